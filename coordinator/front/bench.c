/* bench - measure a line: tokens a second, where the time goes, what a hop costs, and what the
 * machines could do at best.
 *
 * The tests run one after the other on one line, each several times behind a warm-up. Then, still
 * on that line, what --wire changes and the limits are measured.
 * Stations before: line_session. Stations after: wire_change, bench_collect (the line's numbers),
 * bench_report (what is written). */
#include "coordinator/front/front.h"

#include "coordinator/front/bench_collect.h"
#include "coordinator/front/bench_report.h"
#include "coordinator/front/kernel_report.h"
#include "coordinator/front/line_session.h"
#include "coordinator/front/output.h"
#include "coordinator/front/wire_change.h"
#include "engine/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 32, TOKENS_MAX = 1 << 24, WARM_UP_TOKENS = 8 };

/* Numbers of a flag. */
struct list {
    uint32_t n, of[LIST_MAX];
};

/* One repetition of a test. */
struct sample {
    double seconds;
    double *ttft_s; /* [seqs] */
};

struct bench {
    struct session session;
    struct list pp, tg, seqs;
    FILE *json, *csv;         /* NULL: not wanted */
    int32_t *prompt;          /* [the longest] */
    uint64_t random;          /* state */
    double *tok_s;            /* [repeat] */
    double *ttft_s;           /* [repeat][the most seqs] */
    struct bench_span *spans; /* [n_runs] */
    struct bench_wire wire;
    struct bench_results results;
};

/* ---- what is asked for ---- */

/* read_list() - "1,2,4", each in least .. most; 0 alone, where it is below least, is an
 * empty list. */
static int read_list(const char *flag, const char *text, uint32_t least, uint32_t most,
                     struct list *out, struct err *err)
{
    *out = (struct list){0};
    if (least > 0 && strcmp(text, "0") == 0) return ERR_NONE;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        const unsigned long n = strtoul(at, &end, 10);
        CHECK(*at >= '0' && *at <= '9' && errno == 0 && (*end == ',' || *end == '\0'), err,
              ERR_USAGE, "%s wants numbers between commas, got '%s'", flag, text);
        CHECK(n >= least && n <= most, err, ERR_USAGE, "%s: %lu is out of range, want %u to %u",
              flag, n, least, most);
        CHECK(out->n < LIST_MAX, err, ERR_USAGE, "%s has more than %d numbers", flag, LIST_MAX);
        out->of[out->n++] = (uint32_t)n;
        at = end;
        if (*at == '\0') return ERR_NONE;
    }
}

static uint32_t most_of(const struct list *l)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->of[i] > most) most = l->of[i];
    return most;
}

/* usual_prompts() - 128 and 512, as far as the context goes; a token follows each. */
static void usual_prompts(struct bench *b)
{
    static const uint32_t usual[] = {128, 512};
    const uint32_t n_ctx = session_context(&b->session, 512 + 1);
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (usual[i] < n_ctx) b->pp.of[b->pp.n++] = usual[i];
    if (b->pp.n == 0) b->pp.of[b->pp.n++] = n_ctx - 1;
}

static int read_lists(struct bench *b, struct err *err)
{
    const struct settings *s = b->session.settings;
    if (s->pp == NULL)
        usual_prompts(b);
    else
        TRY(read_list("--pp", s->pp, 1, TOKENS_MAX, &b->pp, err));
    TRY(read_list("--tg", s->tg == NULL ? "64" : s->tg, 1, TOKENS_MAX, &b->tg, err));
    const char *seqs = s->seqs == NULL ? "1,2,4,8" : s->seqs;
    TRY(read_list("--seqs", seqs, 1, SEQUENCES_MAX, &b->seqs, err));
    CHECK(b->seqs.n > 0, err, ERR_USAGE, "--seqs: 0 is out of range, want 1 to %d", SEQUENCES_MAX);
    CHECK(b->pp.n + b->tg.n > 0, err, ERR_USAGE, "--pp 0 and --tg 0 leave nothing to measure");
    CHECK(s->slots == 0 || s->slots >= most_of(&b->seqs), err, ERR_USAGE,
          "--slots %u does not hold the %u sequences of --seqs", s->slots, most_of(&b->seqs));
    return ERR_NONE;
}

/* longest_test() - in tokens; one position more is taken. */
static uint32_t longest_test(const struct bench *b)
{
    const uint32_t pp = most_of(&b->pp), tg = most_of(&b->tg);
    return pp > tg ? pp : tg;
}

/* check_context() - the longest sequence fits. */
static int check_context(const struct bench *b, uint32_t *n_ctx, struct err *err)
{
    const uint32_t longest = longest_test(b);
    *n_ctx = session_context(&b->session, (uint64_t)longest + 1);
    CHECK(*n_ctx > longest, err, ERR_CAPACITY,
          "%s %u and a token more need %u positions and the context holds %u: measure less, or "
          "raise --ctx (the model was trained for %u)",
          longest == most_of(&b->pp) ? "--pp" : "--tg", longest, longest + 1, *n_ctx,
          b->session.model->hp.n_ctx_train);
    return ERR_NONE;
}

static int open_file(const char *path, FILE **out, struct err *err)
{
    if (path == NULL) return ERR_NONE;
    *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    CHECK(*out != NULL, err, ERR_FILE, "%s: %s", path, strerror(errno));
    return ERR_NONE;
}

static int open_files(struct bench *b, struct err *err)
{
    const struct settings *s = b->session.settings;
    CHECK(s->json_file == NULL || s->csv_file == NULL || strcmp(s->json_file, s->csv_file) != 0,
          err, ERR_USAGE, "--json and --csv cannot both go to %s", s->json_file);
    TRY(open_file(s->json_file, &b->json, err));
    return open_file(s->csv_file, &b->csv, err);
}

static int take_memory(struct bench *b, struct err *err)
{
    struct bench_results *r = &b->results;
    const size_t n_runs = b->pp.n + (size_t)b->tg.n * b->seqs.n, most = most_of(&b->seqs);
    const size_t repeat = b->session.settings->repeat;
    b->prompt = calloc((size_t)most_of(&b->pp) + 1, sizeof *b->prompt);
    b->tok_s = calloc(repeat, sizeof *b->tok_s);
    b->ttft_s = calloc(repeat * most, sizeof *b->ttft_s);
    b->spans = calloc(n_runs, sizeof *b->spans);
    r->runs = calloc(n_runs, sizeof *r->runs);
    r->run_notes = calloc(n_runs, sizeof *r->run_notes);
    CHECK(b->prompt != NULL && b->tok_s != NULL && b->ttft_s != NULL && b->spans != NULL &&
              r->runs != NULL && r->run_notes != NULL,
          err, ERR_MEMORY, "no memory for the numbers of %zu tests", n_runs);
    return ERR_NONE;
}

/* ---- a test ---- */

static uint64_t next_random(uint64_t *state)
{
    /* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
    uint64_t z = *state += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* fill_prompt() - with what nobody has seen yet. */
static void fill_prompt(struct bench *b, int32_t *prompt, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (int32_t)(next_random(&b->random) % b->session.model->hp.n_vocab);
}

/* submit() - a prompt that nobody has seen yet; no token ends the sequence. */
static int submit(struct bench *b, uint32_t n_prompt, uint32_t n_tokens, uint32_t *request,
                  struct err *err)
{
    fill_prompt(b, b->prompt, n_prompt);
    const struct line_request r = {.prompt = b->prompt,
                                   .n_prompt = n_prompt,
                                   .sampling = sampling_default(),
                                   .max_tokens = n_tokens};
    return line_submit(b->session.line, &r, request, err);
}

/* repeat_once() - seqs sequences from their submission to the last one's end. */
static int repeat_once(struct bench *b, uint32_t seqs, uint32_t n_prompt, uint32_t n_tokens,
                       struct sample *sample, struct err *err)
{
    const uint64_t begin_ns = clock_now_ns();
    uint32_t request = 0, first = 0;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < seqs; i++) {
        TRY(submit(b, n_prompt, n_tokens, &request, err));
        if (i == 0) first = request;
        sample->ttft_s[i] = 0;
    }
    for (bool none = false; !none;) {
        struct line_event ev;
        TRY(line_next(b->session.line, &ev, &none, err));
        if (none || ev.kind != LINE_EVENT_TOKEN) continue;
        double *ttft_s = &sample->ttft_s[ev.request - first];
        if (*ttft_s == 0) *ttft_s = (double)(clock_now_ns() - begin_ns) * 1e-9;
        tokens++;
    }
    sample->seconds = (double)(clock_now_ns() - begin_ns) * 1e-9;
    BUG_IF(tokens != (uint64_t)seqs * n_tokens, "bench: a sequence ended early");
    return ERR_NONE;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* quantile() - of sorted values, with a straight line between neighbours. */
static double quantile(const double *sorted, size_t n, double q)
{
    const double at = q * (double)(n - 1);
    const size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[i];
}

/* sum_up() - what the repetitions of a test say. */
static void sum_up(struct bench *b, struct bench_run *run, struct bench_run_note *note)
{
    const size_t n = b->session.settings->repeat, n_ttft = n * run->seqs;
    qsort(b->tok_s, n, sizeof *b->tok_s, compare);
    qsort(b->ttft_s, n_ttft, sizeof *b->ttft_s, compare);
    run->tok_s_median = quantile(b->tok_s, n, 0.5);
    run->tok_s_min = b->tok_s[0];
    run->tok_s_max = b->tok_s[n - 1];
    run->ttft_ms = quantile(b->ttft_s, n_ttft, 0.5) * 1e3;
    note->iqr = quantile(b->tok_s, n, 0.75) - quantile(b->tok_s, n, 0.25);
}

static int run_test(struct bench *b, const char *kind, uint32_t n, uint32_t seqs, struct err *err)
{
    const bool is_prompt = strcmp(kind, "pp") == 0;
    const uint32_t n_prompt = is_prompt ? n : 1, n_tokens = is_prompt ? 1 : n;
    const uint32_t warm_up = n_tokens < WARM_UP_TOKENS ? n_tokens : WARM_UP_TOKENS;
    struct bench_results *r = &b->results;
    struct bench_span *span = &b->spans[r->n_runs];
    struct sample sample = {.ttft_s = b->ttft_s};
    TRY(repeat_once(b, seqs, n_prompt, warm_up, &sample, err));
    span->first = line_counts(b->session.line).batches + 1;
    for (uint32_t i = 0; i < b->session.settings->repeat; i++) {
        sample.ttft_s = b->ttft_s + (size_t)i * seqs;
        TRY(repeat_once(b, seqs, n_prompt, n_tokens, &sample, err));
        b->tok_s[i] = (double)n * seqs / sample.seconds;
    }
    span->last = line_counts(b->session.line).batches;
    struct bench_run *run = &r->runs[r->n_runs];
    *run = (struct bench_run){.kind = kind, .n = n, .seqs = seqs};
    sum_up(b, run, &r->run_notes[r->n_runs++]);
    progress_bar_show(&b->session.bar, "measuring", r->n_runs,
                      b->pp.n + (uint64_t)b->tg.n * b->seqs.n);
    return ERR_NONE;
}

/* ---- the bench ---- */

/* predict() - what the planner would have said of each test. */
static void predict(struct bench *b)
{
    const struct layer_range *ranges;
    struct planner *p = line_planner(b->session.line, &ranges);
    for (size_t i = 0; i < b->results.n_runs; i++) {
        struct bench_run *run = &b->results.runs[i];
        const uint32_t n = (uint32_t)run->n, seqs = (uint32_t)run->seqs;
        run->predicted_tok_s = strcmp(run->kind, "pp") == 0
                                   ? n / planner_predict_prompt(p, ranges, n)
                                   : planner_predict_decode(p, ranges, seqs, n / 2.0).tok_s;
    }
}

static int run_tests(struct bench *b, struct err *err)
{
    for (uint32_t i = 0; i < b->pp.n; i++) TRY(run_test(b, "pp", b->pp.of[i], 1, err));
    for (uint32_t i = 0; i < b->tg.n; i++)
        for (uint32_t k = 0; k < b->seqs.n; k++)
            TRY(run_test(b, "tg", b->tg.of[i], b->seqs.of[k], err));
    return ERR_NONE;
}

/* measure_wire() - with as long a prompt as the tests have made sure that it fits. */
static int measure_wire(struct bench *b, struct err *err)
{
    int32_t prompt[WIRE_CHANGE_POSITIONS];
    const struct session *s = &b->session;
    const uint32_t longest = longest_test(b);
    const uint32_t n = longest < WIRE_CHANGE_POSITIONS ? longest : WIRE_CHANGE_POSITIONS;
    fill_prompt(b, prompt, n);
    b->results.wire = &b->wire;
    b->results.n_wire = 1;
    return wire_change_measure(&b->wire, s->line, s->model, (enum wire_format)s->settings->wire,
                               prompt, n, err);
}

static int close_file(FILE **file, const char *path, struct err *err)
{
    if (*file == NULL) return ERR_NONE;
    FILE *f = *file;
    *file = NULL;
    if (f == stdout) return output_flush(err);
    const bool failed = ferror(f) != 0;
    CHECK((fclose(f) == 0) & !failed, err, ERR_FILE, "%s cannot be written: %s", path,
          strerror(errno));
    return ERR_NONE;
}

/* write_all() - the table goes to standard output, unless one of the files does. */
static int write_all(struct bench *b, struct err *err)
{
    const struct settings *s = b->session.settings;
    const bool taken = b->json == stdout || b->csv == stdout;
    if (!taken)
        bench_print_table(stdout, &b->results);
    else if (!s->quiet)
        bench_print_table(stderr, &b->results);
    if (b->json != NULL) TRY(bench_write_json(b->json, &b->results, err));
    if (b->csv != NULL) bench_write_csv(b->csv, &b->results);
    TRY(close_file(&b->json, s->json_file, err));
    TRY(close_file(&b->csv, s->csv_file, err));
    return output_flush(err);
}

static int run(struct bench *b, const struct settings *settings, const struct line_starter *starter,
               struct err *err)
{
    uint32_t n_ctx;
    struct session *s = &b->session;
    TRY(session_open(s, settings, starter, err));
    TRY(read_lists(b, err));
    TRY(check_context(b, &n_ctx, err));
    TRY(take_memory(b, err));
    TRY(open_files(b, err));
    s->tokens_only = s->measures = s->predicts = true;
    TRY(session_start(s, n_ctx, most_of(&b->seqs), err));
    TRY(run_tests(b, err));
    predict(b);
    TRY(measure_wire(b, err));
    TRY(bench_collect_limits(&b->results, s->line, s->model, b->spans, err));
    TRY(session_finish(s, err));
    b->results.version = TANDEM_VERSION;
    b->results.model = settings->model;
    TRY(bench_collect_times(&b->results, s->line, b->spans, err));
    return write_all(b, err);
}

int bench_run(const struct settings *settings, const struct line_starter *starter, struct err *err)
{
    if (settings->kernels) return kernel_report_run(settings, starter, err);
    struct bench b = {0};
    int rc = run(&b, settings, starter, err);
    if (b.json != NULL && b.json != stdout) fclose(b.json);
    if (b.csv != NULL && b.csv != stdout) fclose(b.csv);
    free(b.prompt);
    free(b.tok_s);
    free(b.ttft_s);
    free(b.spans);
    bench_collect_free(&b.results);
    session_close(&b.session);
    return rc;
}
