/* generate - continue prompts: text to standard output as it comes.
 *
 * Several sequences run at once; their texts are printed in the order of the prompts, so the first
 * one that is not finished streams, and the others wait in memory.
 * Stations: line_session (prompts, line), line/line (tokens), continuation, output. */
#include "coordinator/front/front.h"

#include "coordinator/front/continuation.h"
#include "coordinator/front/line_session.h"
#include "coordinator/front/output.h"
#include "coordinator/front/sampling_settings.h"
#include "engine/clock.h"
#include "engine/fmath.h"
#include "engine/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct reply {
    struct continuation said;
    size_t shown;               /* bytes of text that are printed */
    uint64_t prefilled;         /* prompt tokens that are done */
    uint64_t first_ns, last_ns; /* of its tokens; 0: none yet */
};

struct generation {
    struct session session;
    struct sampling sampling; /* of each sequence, seed and all: it continues as if it were alone */
    struct logit_bias *bias;
    struct reply *replies; /* [session.n_prompts] */
    uint32_t current;      /* the sequence being printed */
    bool begun;            /* its header is printed */
};

/* ---- printing ---- */

static double rate(size_t n, double ms)
{
    return ms > 0 ? (double)n * 1000 / ms : 0;
}

static json_t *reply_json(const struct generation *g, uint32_t i)
{
    const struct reply *r = &g->replies[i];
    const struct line_times *times = &g->session.times;
    const struct token_list *prompt = &g->session.prompts[i];
    const double prompt_ms = r->first_ns == 0 ? 0 : (double)(r->first_ns - times->ready_ns) * 1e-6;
    const double text_ms = (double)(r->last_ns - r->first_ns) * 1e-6;
    json_t *seed =
        g->sampling.temperature > 0 ? json_integer((json_int_t)g->sampling.seed) : json_null();
    return json_pack(
        "{s:I, s:o, s:I, s:o, s:o, s:s, s:o, s:{s:f, s:f, s:f, s:f, s:f}}", "index", (json_int_t)i,
        "prompt_ids", output_json_ids(prompt->ids, prompt->n), "cached_tokens",
        (json_int_t)r->said.cached, "ids", output_json_ids(r->said.ids.ids, r->said.ids.n), "text",
        output_json_text(r->said.n == 0 ? "" : r->said.text, r->said.n), "finish_reason",
        continuation_reason(&r->said), "seed", seed, "timings", "load_ms",
        (double)times->load_ns * 1e-6, "prompt_ms", prompt_ms, "text_ms", text_ms,
        "prompt_tokens_per_second", rate(prompt->n, prompt_ms), "text_tokens_per_second",
        rate(r->said.ids.n == 0 ? 0 : r->said.ids.n - 1, text_ms));
}

/* show_text() - what is new of the current sequence; then the next ones, as far as they
 * have come. */
static int show_text(struct generation *g, struct err *err)
{
    for (; g->current < g->session.n_prompts; g->current++, g->begun = false) {
        struct reply *r = &g->replies[g->current];
        if (g->session.settings->json) {
            if (!r->said.finished) return ERR_NONE;
            TRY(output_json(reply_json(g, g->current), false, err));
            continue;
        }
        if (r->said.n > 0 || r->said.finished) progress_bar_erase(&g->session.bar);
        if (!g->begun && g->session.n_prompts > 1)
            TRY(output_printf(err, "== %u ==\n", g->current + 1));
        g->begun = true;
        if (r->said.n > r->shown)
            TRY(output_write(r->said.text + r->shown, r->said.n - r->shown, err));
        r->shown = r->said.n;
        if (!r->said.finished) return ERR_NONE;
        TRY(output_write("\n", 1, err));
    }
    return ERR_NONE;
}

/* print_top_probs() - "1.0: 403 " there" 0.9731 | ...": sequence and step, then the most probable
 * tokens. */
static void print_top_probs(const struct generation *g, const struct line_event *ev)
{
    const struct score_head *head = ev->head;
    uint32_t n = g->session.settings->sampling.top_probs;
    if (n == 0 || head == NULL) return;
    if (n > head->n) n = head->n;
    fprintf(stderr, "%u.%zu:", ev->request + 1, g->replies[ev->request].said.ids.n);
    for (uint32_t k = 0; k < n; k++) {
        char piece[128], quoted[256];
        size_t len = tokenizer_piece(g->session.tokenizer, head->ids[k], true, piece, sizeof piece);
        if (len > sizeof piece) len = sizeof piece;
        double p = fmath_exp((double)head->scores[k] / (double)ev->temperature - head->lse);
        fprintf(stderr, "%s %d %s %.6f", k == 0 ? "" : " |", head->ids[k],
                output_quote(piece, len, quoted, sizeof quoted), p);
    }
    fputc('\n', stderr);
}

/* ---- events ---- */

static void show_prefill(struct generation *g, const struct line_event *ev)
{
    uint64_t done = 0, total = 0;
    g->replies[ev->request].prefilled = ev->position;
    for (uint32_t i = 0; i < g->session.n_prompts; i++) {
        total += g->session.prompts[i].n;
        done += g->replies[i].first_ns != 0 ? g->session.prompts[i].n : g->replies[i].prefilled;
    }
    if (g->replies[0].said.n == 0) progress_bar_show(&g->session.bar, "prompt", done, total);
}

static void note_time(struct generation *g, struct reply *r)
{
    struct line_times *times = &g->session.times;
    r->last_ns = clock_now_ns();
    if (r->first_ns != 0) return;
    r->first_ns = times->prompts_done_ns = r->last_ns;
    if (times->first_token_ns == 0) times->first_token_ns = r->last_ns;
}

static int take_token(struct generation *g, const struct line_event *ev, struct err *err)
{
    struct reply *r = &g->replies[ev->request];
    if (r->said.stopped) return ERR_NONE;
    note_time(g, r);
    if (g->session.settings->sampling.top_probs > 0) progress_bar_erase(&g->session.bar);
    print_top_probs(g, ev);
    TRY(continuation_push(&r->said, ev->token, err));
    if (r->said.stopped) line_cancel(g->session.line, ev->request);
    return show_text(g, err);
}

static int take_event(struct generation *g, const struct line_event *ev, struct err *err)
{
    struct reply *r = &g->replies[ev->request];
    switch (ev->kind) {
    case LINE_EVENT_PREFILL:
        show_prefill(g, ev);
        return ERR_NONE;
    case LINE_EVENT_TOKEN:
        return take_token(g, ev, err);
    case LINE_EVENT_FINISHED:
        TRY(continuation_finish(&r->said, ev, err));
        return show_text(g, err);
    case LINE_EVENT_SCORES:
        break;
    }
    return ERR_NONE;
}

/* ---- the run ---- */

static bool is_end(const void *ctx, int32_t token)
{
    return tokenizer_is_end(ctx, token);
}

static int submit(struct generation *g, uint32_t i, struct err *err)
{
    const struct session *s = &g->session;
    const struct line_request r = {
        .prompt = s->prompts[i].ids,
        .n_prompt = (uint32_t)s->prompts[i].n,
        .sampling = g->sampling,
        .max_tokens = s->settings->n_tokens < 0 ? UINT32_MAX : (uint32_t)s->settings->n_tokens,
        .is_end = s->settings->ignore_eos ? NULL : is_end,
        .is_end_ctx = s->tokenizer,
    };
    uint32_t request;
    TRY(line_submit(s->line, &r, &request, err));
    BUG_IF(request != i, "generate: requests are not numbered as they were submitted");
    return ERR_NONE;
}

static void say_seed(uint64_t seed)
{
    if (log_is_json())
        log_event(LOG_INFO, "seed", "%" PRIu64, seed);
    else
        fprintf(stderr, "seed %" PRIu64 "\n", seed);
}

static int prepare(struct generation *g, uint32_t *n_ctx, struct err *err)
{
    struct session *s = &g->session;
    TRY(sampling_settings_read(s->settings, s->tokenizer, (int32_t)s->model->hp.n_vocab,
                               &g->sampling, &g->bias, err));
    TRY(session_read_prompts(s, err));
    uint64_t longest = 0;
    for (uint32_t i = 0; i < s->n_prompts; i++)
        if (s->prompts[i].n > longest) longest = s->prompts[i].n;
    *n_ctx = session_context(s, longest + session_tokens_max(s, s->settings->n_tokens));
    TRY(session_check_prompts(s, *n_ctx, err));
    g->replies = calloc(s->n_prompts, sizeof *g->replies);
    CHECK(g->replies != NULL, err, ERR_MEMORY, "no memory for %u sequences", s->n_prompts);
    for (uint32_t i = 0; i < s->n_prompts; i++)
        TRY(continuation_open(&g->replies[i].said, s->tokenizer, s->prompts[i].ids, s->prompts[i].n,
                              s->settings->stops.items, s->settings->stops.n, err));
    if (g->sampling.temperature > 0 && !s->settings->quiet) say_seed(g->sampling.seed);
    return ERR_NONE;
}

static int run(struct generation *g, const struct settings *settings,
               const struct line_starter *starter, struct err *err)
{
    uint32_t n_ctx;
    TRY(session_open(&g->session, settings, starter, err));
    TRY(prepare(g, &n_ctx, err));
    g->session.tokens_only = true;
    TRY(session_start(&g->session, n_ctx, g->session.n_prompts, err));
    for (uint32_t i = 0; i < g->session.n_prompts; i++) TRY(submit(g, i, err));
    for (;;) {
        struct line_event ev;
        bool none = false;
        TRY(line_next(g->session.line, &ev, &none, err));
        if (none) break;
        TRY(take_event(g, &ev, err));
    }
    return session_finish(&g->session, err);
}

int generate_run(const struct settings *settings, const struct line_starter *starter,
                 struct err *err)
{
    if (settings->batch != NULL) return batch_run(settings, starter, err);
    CHECK(settings->out == NULL, err, ERR_USAGE,
          "-o goes with --batch: the text comes on standard output");
    struct generation g = {0};
    int rc = run(&g, settings, starter, err);
    for (uint32_t i = 0; g.replies != NULL && i < g.session.n_prompts; i++)
        continuation_close(&g.replies[i].said);
    free(g.replies);
    free(g.bias);
    session_close(&g.session);
    return rc;
}
