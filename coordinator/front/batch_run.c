/* batch_run - generate --batch: many requests from a file, their results to a file as they finish.
 *
 * The line always has some more requests than it can run at once, so that none of its slots waits
 * for this file. Nothing is lost by an end at any time: what OUT has is done, and the next start
 * does the rest. Stations: batch_input, batch_plan (what to do), line/line (tokens), continuation
 * (text), batch_output. */
#include "coordinator/front/front.h"

#include "coordinator/front/batch_plan.h"
#include "coordinator/front/continuation.h"
#include "coordinator/front/output.h"
#include "coordinator/front/sampling_settings.h"
#include "engine/clock.h"
#include "engine/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A request in the line. */
struct job {
    bool busy;
    uint32_t request;   /* as the line numbers it */
    uint32_t entry;     /* of the plan */
    uint32_t prefilled; /* prompt tokens that are done */
    struct batch_request r;
    struct continuation said;
};

struct batch_work {
    struct session session;
    struct batch_input in;
    struct batch_plan plan;
    struct batch_output out;
    uint32_t n_ctx;
    struct job *jobs; /* [n_jobs] */
    uint32_t n_jobs, n_busy;
    uint32_t next; /* entry that begins next */
    bool ending, cancelled;
    uint64_t end_ns; /* when the grace is over, while ending */
    uint64_t began_ns, tokens;
    uint64_t done_work, all_work; /* tokens, of prompts and at most to come */
};

static bool is_end(const void *ctx, int32_t token)
{
    return tokenizer_is_end(ctx, token);
}

/* ---- requests into the line ---- */

/* work_of() - the tokens that an entry may take. */
static uint64_t work_of(const struct batch_work *b, const struct batch_entry *e)
{
    const uint64_t tokens = session_tokens_max(&b->session, e->n_tokens),
                   room = b->n_ctx - e->n_prompt;
    return e->n_prompt + (tokens < room ? tokens : room);
}

static int write_error(struct batch_work *b, struct batch_entry *e, struct err *err)
{
    TRY(batch_output_write(&b->out, batch_plan_error(e), err));
    e->state = BATCH_DONE;
    return ERR_NONE;
}

static int submit(struct batch_work *b, struct job *j, struct batch_entry *e, struct err *err)
{
    struct session *s = &b->session;
    TRY(batch_input_again(&b->in, &e->place, err));
    TRY(batch_input_prepare(&b->in, &e->place, &j->r, err));
    if (j->r.sampling.temperature > 0 && !j->r.seed_given)
        TRY(sampling_settings_draw_seed(&j->r.sampling.seed, err));
    TRY(continuation_open(&j->said, s->tokenizer, j->r.ids.ids, j->r.ids.n, j->r.stops,
                          j->r.n_stops, err));
    const struct line_request r = {
        .prompt = j->r.ids.ids,
        .n_prompt = (uint32_t)j->r.ids.n,
        .sampling = j->r.sampling,
        .max_tokens = session_tokens_max(s, j->r.n_tokens),
        .is_end = j->r.ignore_eos ? NULL : is_end,
        .is_end_ctx = s->tokenizer,
    };
    return line_submit(s->line, &r, &j->request, err);
}

static void free_job(struct batch_work *b, struct job *j)
{
    batch_request_free(&j->r);
    continuation_close(&j->said);
    b->n_busy -= j->busy;
    *j = (struct job){0};
}

/* begin() - entry i into the line; what cannot be run after all gets its error record. */
static int begin(struct batch_work *b, struct job *j, uint32_t i, struct err *err)
{
    struct err why = {.code = ERR_NONE};
    struct batch_entry *e = &b->plan.entries[i];
    int rc = submit(b, j, e, &why);
    if (rc == ERR_NONE) {
        j->busy = true;
        j->entry = i;
        b->n_busy++;
        return ERR_NONE;
    }
    if (batch_plan_judge(rc)) {
        rc = batch_plan_refuse(&b->plan, i, j->r.id, &why, err);
        if (rc == ERR_NONE) rc = write_error(b, e, err);
    } else {
        *err = why;
    }
    free_job(b, j);
    return rc;
}

static int top_up(struct batch_work *b, struct err *err)
{
    for (uint32_t k = 0; k < b->n_jobs && !b->ending; k++) {
        while (!b->jobs[k].busy && b->next < b->plan.n) {
            const uint32_t i = b->next++;
            if (b->plan.entries[i].state == BATCH_TO_DO) TRY(begin(b, &b->jobs[k], i, err));
        }
    }
    return ERR_NONE;
}

/* ---- events ---- */

static json_t *result_of(const struct batch_work *b, const struct job *j)
{
    const struct batch_entry *e = &b->plan.entries[j->entry];
    char key[BATCH_KEY_BYTES];
    const struct continuation *c = &j->said;
    json_t *seed =
        j->r.sampling.temperature > 0 ? json_integer((json_int_t)j->r.sampling.seed) : json_null();
    batch_plan_key(&b->plan, e, key);
    json_t *root = json_pack("{s:o, s:I, s:s, s:o, s:s, s:I, s:I, s:o}", "id",
                             batch_plan_id(j->r.id, &e->place), "line", (json_int_t)e->place.line,
                             "key", key, "text", output_json_text(c->n == 0 ? "" : c->text, c->n),
                             "finish_reason", continuation_reason(c), "prompt_tokens",
                             (json_int_t)j->r.ids.n, "tokens", (json_int_t)c->ids.n, "seed", seed);
    if (root == NULL || !b->session.settings->with_ids) return root;
    if (json_object_set_new(root, "prompt_ids", output_json_ids(j->r.ids.ids, j->r.ids.n)) == 0 &&
        json_object_set_new(root, "ids", output_json_ids(c->ids.ids, c->ids.n)) == 0)
        return root;
    json_decref(root);
    return NULL;
}

/* finish() - a request that was cancelled for want of time is left to the next start. */
static int finish(struct batch_work *b, struct job *j, const struct line_event *ev, struct err *err)
{
    struct batch_entry *e = &b->plan.entries[j->entry];
    TRY(continuation_finish(&j->said, ev, err));
    if (ev->finish != LINE_FINISH_CANCELLED || j->said.stopped) {
        TRY(batch_output_write(&b->out, result_of(b, j), err));
        e->state = BATCH_DONE;
        b->done_work += work_of(b, e);
    }
    free_job(b, j);
    return ERR_NONE;
}

static int take_token(struct batch_work *b, struct job *j, const struct line_event *ev,
                      struct err *err)
{
    struct line_times *times = &b->session.times;
    if (j->said.stopped) return ERR_NONE;
    if (times->first_token_ns == 0) times->first_token_ns = clock_now_ns();
    if (j->said.ids.n == 0) times->prompts_done_ns = clock_now_ns();
    j->prefilled = (uint32_t)j->r.ids.n;
    b->tokens++;
    TRY(continuation_push(&j->said, ev->token, err));
    if (j->said.stopped) line_cancel(b->session.line, ev->request);
    return ERR_NONE;
}

static int take_event(struct batch_work *b, const struct line_event *ev, struct err *err)
{
    struct job *j = b->jobs;
    while (j < b->jobs + b->n_jobs && !(j->busy && j->request == ev->request)) j++;
    BUG_IF(j == b->jobs + b->n_jobs, "batch: an event of a request that is not in the line");
    switch (ev->kind) {
    case LINE_EVENT_PREFILL:
        j->prefilled = ev->position;
        return ERR_NONE;
    case LINE_EVENT_TOKEN:
        return take_token(b, j, ev, err);
    case LINE_EVENT_FINISHED:
        return finish(b, j, ev, err);
    case LINE_EVENT_SCORES:
        break;
    }
    return ERR_NONE;
}

/* show_progress() - the time that is left is told from the tokens that may still come, so it is too
 * long where texts end early, and mends itself as they do. */
static void show_progress(struct batch_work *b)
{
    struct progress_bar *bar = &b->session.bar;
    if (!progress_bar_is_due(bar)) return;
    uint64_t done = b->done_work;
    for (uint32_t k = 0; k < b->n_jobs; k++)
        if (b->jobs[k].busy) done += b->jobs[k].prefilled + b->jobs[k].said.ids.n;
    const double spent_s = (double)(clock_now_ns() - b->began_ns) * 1e-9;
    const double left_s = done == 0 ? 0 : spent_s * (double)(b->all_work - done) / (double)done;
    const unsigned left = left_s < 3.6e6 ? (unsigned)left_s : 3600000;
    snprintf(bar->note, sizeof bar->note, "%.1f tokens/s, %u:%02u:%02u left",
             (double)b->tokens / spent_s, left / 3600, left / 60 % 60, left % 60);
    progress_bar_show(bar, "batch", done, b->all_work);
}

/* cancel() - a request that has shown no sign of life waits in the line still; begun: those that
 * have, too. */
static void cancel(struct batch_work *b, bool begun)
{
    for (uint32_t k = 0; k < b->n_jobs; k++) {
        const struct job *j = &b->jobs[k];
        if (j->busy && (begun || j->prefilled == 0)) line_cancel(b->session.line, j->request);
    }
}

/* heed_signal() - begin nothing more, and leave what is not done when the grace is over. */
static void heed_signal(struct batch_work *b)
{
    if (!line_should_finish()) return;
    const uint64_t now = clock_now_ns();
    if (!b->ending) {
        b->ending = true;
        b->end_ns = now + (uint64_t)((double)b->session.settings->grace_s * 1e9);
        progress_bar_erase(&b->session.bar);
        log_event(LOG_WARN, "finish",
                  "SIGUSR1: what is under way has %g s to end, nothing else begins",
                  (double)b->session.settings->grace_s);
        cancel(b, false);
    }
    if (now < b->end_ns || b->cancelled) return;
    b->cancelled = true;
    cancel(b, true);
}

/* ---- the run ---- */

static int check_settings(const struct settings *s, struct err *err)
{
    CHECK(s->out != NULL, err, ERR_USAGE, "--batch wants -o OUT.jsonl for the results");
    CHECK(s->prompts.n + s->ids.n == 0 && s->file == NULL, err, ERR_USAGE,
          "--batch has the prompts: leave -p, -f and --ids out");
    CHECK(!s->json && s->sampling.top_probs == 0, err, ERR_USAGE,
          "--batch writes JSON lines to -o: leave --json and --top-probs out");
    return ERR_NONE;
}

/* prepare() - the context is the same whatever is done already, so that an interruption changes no
 * result. */
static int prepare(struct batch_work *b, struct err *err)
{
    struct session *s = &b->session;
    const char *path = s->settings->batch;
    TRY(batch_input_open(&b->in, path, s, err));
    TRY(batch_plan_read(&b->plan, &b->in, err));
    b->n_ctx = session_context(s, batch_plan_need(&b->plan, SESSION_UNTIL_FULL_MAX));
    batch_plan_share(&b->plan, s, b->n_ctx);
    b->plan.out = s->settings->out;
    TRY(batch_output_open(&b->out, s->settings->out, batch_plan_note, &b->plan, err));
    if (b->plan.n_strange > 0)
        log_line(LOG_WARN, "%s has %u results of requests that are not in %s", s->settings->out,
                 b->plan.n_strange, path);
    const uint32_t n_bad = batch_plan_count(&b->plan, BATCH_BAD);
    if (n_bad > 0)
        log_line(LOG_WARN, "%s: %u requests cannot be run: see their error in %s", path, n_bad,
                 s->settings->out);
    for (uint32_t i = 0; i < b->plan.n; i++) {
        struct batch_entry *e = &b->plan.entries[i];
        if (e->state == BATCH_BAD) TRY(write_error(b, e, err));
        if (e->state == BATCH_TO_DO) b->all_work += work_of(b, e);
    }
    return ERR_NONE;
}

static int start(struct batch_work *b, uint32_t n, struct err *err)
{
    const uint32_t slots =
        b->session.settings->slots != 0 ? b->session.settings->slots : SEQUENCES_MAX;
    b->session.tokens_only = true;
    TRY(session_start(&b->session, b->n_ctx, n, err));
    b->n_jobs = n < 2 * slots ? n : 2 * slots;
    b->jobs = calloc(b->n_jobs, sizeof *b->jobs);
    CHECK(b->jobs != NULL, err, ERR_MEMORY, "no memory for %u requests", b->n_jobs);
    b->began_ns = clock_now_ns();
    return ERR_NONE;
}

static int work(struct batch_work *b, struct err *err)
{
    for (;;) {
        struct line_event ev;
        bool none = false;
        heed_signal(b);
        TRY(top_up(b, err));
        if (b->n_busy == 0) return ERR_NONE;
        TRY(line_next(b->session.line, &ev, &none, err));
        BUG_IF(none, "batch: the line has lost a request");
        TRY(take_event(b, &ev, err));
        show_progress(b);
    }
}

static int run(struct batch_work *b, const struct settings *settings,
               const struct line_starter *starter, struct err *err)
{
    line_catch_finish();
    TRY(check_settings(settings, err));
    TRY(session_open(&b->session, settings, starter, err));
    TRY(prepare(b, err));
    const uint32_t n = batch_plan_count(&b->plan, BATCH_TO_DO);
    if (n == 0) {
        TRY(session_dismiss(&b->session, err));
        TRY(batch_plan_check(&b->plan, settings->batch, err));
        log_line(LOG_WARN, "nothing is left to do: %s has a record for each of %u requests",
                 settings->out, b->plan.n);
        return ERR_NONE;
    }
    TRY(start(b, n, err));
    TRY(work(b, err));
    TRY(session_finish(&b->session, err));
    const uint32_t left = batch_plan_count(&b->plan, BATCH_TO_DO);
    CHECK(left == 0, err, ERR_UNFINISHED,
          "ended early, as asked: %u of %u requests are left; start it again to do them", left,
          b->plan.n);
    return batch_plan_check(&b->plan, settings->batch, err);
}

int batch_run(const struct settings *settings, const struct line_starter *starter, struct err *err)
{
    struct batch_work b = {.out = {.fd = -1}};
    int rc = run(&b, settings, starter, err);
    for (uint32_t k = 0; k < b.n_jobs && b.jobs != NULL; k++) free_job(&b, &b.jobs[k]);
    free(b.jobs);
    batch_output_close(&b.out);
    batch_plan_free(&b.plan);
    batch_input_close(&b.in);
    session_close(&b.session);
    return rc;
}
