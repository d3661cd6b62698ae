/* test_line - the scheduler and the line, against stages that check every rule and know every answer. */
#include "../test_data.h"
#include "coordinator/line/line.h"
#include "fake_stages.h"
#include "worker/score_select.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 320, PROMPT_MAX = 200, TEXT_MAX = 64, END_TOKEN = 7 };

static struct model *open_model(const char *name)
{
    const char *path = test_data_path(name);
    struct model *m = NULL;
    struct err err;
    if (path == NULL) return NULL;
    if (model_open(&m, path, &err) != ERR_NONE) fail_msg("%s", err.text);
    return m;
}

struct bench {
    struct model *model;
    struct fake_stages stages;
    struct line *line;
};

static void bench_open_model(struct bench *b, const char *name, int n_stages, const struct line_config *config,
                             const struct fake_options *o)
{
    b->model = open_model(name);
    if (b->model == NULL) {
        print_message("skipped: %s is absent\n", name);
        skip();
    }
    fake_stages_start(&b->stages, n_stages, b->model, o);
    struct line_config c = *config;
    c.model = b->model;
    struct err err;
    if (line_open(&b->line, b->stages.link[0], &c, &err) != ERR_NONE) fail_msg("%s", err.text);
}

static void bench_open(struct bench *b, int n_stages, const struct line_config *config, const struct fake_options *o)
{
    bench_open_model(b, "families/llama.gguf", n_stages, config, o);
}

static void bench_close(struct bench *b)
{
    struct err err;
    if (line_stop(b->line, &err) != ERR_NONE) fail_msg("%s", err.text);
    assert_int_equal(line_counts(b->line).blocks_used, 0);
    line_close(b->line);
    fake_stages_join(&b->stages);
    assert_string_equal(b->stages.broken_rule, "");
    model_close(b->model);
}

static bool is_end(const void *ctx, int32_t token)
{
    (void)ctx;
    return token == END_TOKEN;
}

/* A request, what it must give, and what it gave. */
struct job {
    int32_t tokens[PROMPT_MAX + TEXT_MAX];
    uint32_t n_prompt, max_tokens, n_ctx;
    struct sampling sampling;
    int32_t want[TEXT_MAX], got[TEXT_MAX];
    uint32_t n_want, n_got;
    enum line_finish want_finish, finish;
    bool finished;
};

static uint64_t dice = 42;

static uint32_t roll(uint32_t n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice >> 33) % n;
}

/* foretell() - the tokens of a job by itself: whole rows, no line. */
static void foretell(struct job *j)
{
    float z[VOCAB];
    struct sampler *sm;
    struct err err;
    assert_int_equal(sampler_open(&sm, &j->sampling, VOCAB, &err), ERR_NONE);
    for (uint32_t i = 0; i < j->n_prompt; i++) sampler_accept(sm, j->tokens[i]);
    j->want_finish = LINE_FINISH_LENGTH;
    struct score_selector *sel;
    assert_int_equal(score_selector_open(&sel, VOCAB, &err), ERR_NONE);
    for (uint32_t n = j->n_prompt; j->n_want < j->max_tokens && n < j->n_ctx; n++) {
        fake_scores(j->tokens, n, VOCAB, z);
        struct score_need need;
        sampler_need(sm, n, &need);
        need.count = 0;
        need.mass = need.ratio = 0;
        int32_t ids[VOCAB], token;
        float scores[VOCAB];
        struct score_head head;
        assert_int_equal(score_select(sel, z, &need, ids, scores, NULL, &head, &err), ERR_NONE);
        assert_int_equal(sampler_pick(sm, &head, n, &token, &err), ERR_NONE);
        if (token == END_TOKEN) {
            j->want_finish = LINE_FINISH_STOP;
            break;
        }
        sampler_accept(sm, token);
        j->tokens[n] = token;
        j->want[j->n_want++] = token;
    }
    score_selector_close(sel);
    sampler_close(sm);
}

static void make_job(struct job *j, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_ctx)
{
    memset(j, 0, sizeof *j);
    j->n_prompt = n_prompt;
    j->max_tokens = max_tokens;
    j->n_ctx = n_ctx;
    j->sampling = sampling_default();
    for (uint32_t i = 0; i < n_prompt; i++) j->tokens[i] = (int32_t)roll(VOCAB);
}

static void submit(struct bench *b, struct job *j, uint32_t number)
{
    struct line_request r = {.prompt = j->tokens,
                             .n_prompt = j->n_prompt,
                             .sampling = j->sampling,
                             .max_tokens = j->max_tokens,
                             .is_end = is_end};
    uint32_t request;
    struct err err;
    if (line_submit(b->line, &r, &request, &err) != ERR_NONE) fail_msg("%s", err.text);
    assert_int_equal(request, number);
}

static void run_all(struct bench *b, struct job *jobs)
{
    for (;;) {
        struct line_event ev;
        bool none;
        struct err err;
        if (line_next(b->line, &ev, &none, &err) != ERR_NONE) fail_msg("%s", err.text);
        if (none) return;
        struct job *j = &jobs[ev.request];
        assert_false(j->finished);
        if (ev.kind == LINE_EVENT_TOKEN) {
            assert_true(j->n_got < TEXT_MAX);
            assert_int_equal(ev.position, j->n_prompt + j->n_got);
            assert_non_null(ev.head);
            j->got[j->n_got++] = ev.token;
        } else if (ev.kind == LINE_EVENT_FINISHED) {
            j->finished = true;
            j->finish = ev.finish;
        }
    }
}

static void check_job(const struct job *j)
{
    assert_true(j->finished);
    assert_int_equal(j->finish, j->want_finish);
    assert_int_equal(j->n_got, j->n_want);
    assert_memory_equal(j->got, j->want, j->n_want * sizeof *j->want);
}

static void vary_sampling(struct sampling *s)
{
    if (roll(3) == 0) return;
    s->temperature = 0.5f + (float)roll(100) / 100.0f;
    s->seed = roll(1000);
    if (roll(2)) s->top_p = 0.8f;
    if (roll(3) == 0) s->top_k = 5 + roll(20);
    if (roll(3) == 0) s->min_p = 0.05f;
    if (roll(4) == 0) s->typical_p = 0.7f;
    if (roll(2)) s->repeat_penalty = 1.2f;
}

static void each_sequence_gets_the_tokens_it_has_alone(void **state)
{
    (void)state;
    static struct job jobs[40];
    for (int n_stages = 1; n_stages <= 4; n_stages++) {
        for (uint32_t chunk = 0; chunk <= 70; chunk += 35) {
            struct bench b;
            struct line_config c = {.n_ctx = 128, .n_seqs = 5, .chunk = chunk, .shuffle_blocks = true, .shuffle_seed = 3};
            bench_open(&b, n_stages, &c, &(struct fake_options){.short_heads = chunk == 35});
            for (uint32_t i = 0; i < 40; i++) {
                make_job(&jobs[i], 1 + roll(120), 1 + roll(TEXT_MAX), 128);
                vary_sampling(&jobs[i].sampling);
                submit(&b, &jobs[i], i);
                foretell(&jobs[i]);
            }
            run_all(&b, jobs);
            for (uint32_t i = 0; i < 40; i++) check_job(&jobs[i]);
            if (chunk == 35) assert_true(b.stages.fetches > 0);
            if (chunk == 70) assert_true(b.stages.rows_most <= 70);
            bench_close(&b);
        }
    }
}

static uint64_t count_batches(uint32_t n, int n_stages)
{
    static struct job jobs[8];
    struct bench b;
    bench_open(&b, n_stages, &(struct line_config){.n_ctx = 128, .n_seqs = 8}, NULL);
    for (uint32_t i = 0; i < n; i++) {
        do {
            memset(&jobs[i], 0, sizeof jobs[i]);
            make_job(&jobs[i], 10, 60, 128);
            foretell(&jobs[i]);
        } while (jobs[i].n_want < 60); /* one without an early end */
        submit(&b, &jobs[i], i);
    }
    run_all(&b, jobs);
    uint64_t batches = line_counts(b.line).batches;
    bench_close(&b);
    return batches;
}

static void eight_sequences_share_the_batches_of_one(void **state)
{
    (void)state;
    for (int n_stages = 1; n_stages <= 4; n_stages++) {
        uint64_t one = count_batches(1, n_stages), eight = count_batches(8, n_stages);
        assert_int_equal(one, 60);
        assert_true((double)eight <= 1.1 * (double)one);
    }
}

static void a_prompt_fills_the_line_in_chunks(void **state)
{
    (void)state;
    static struct job job;
    struct bench b;
    bench_open(&b, 3, &(struct line_config){.n_ctx = 256, .n_seqs = 1}, NULL);
    make_job(&job, 192, 0, 256);
    submit(&b, &job, 0);
    run_all(&b, &job);
    assert_true(job.finished);
    assert_int_equal(line_counts(b.line).batches, 6);
    assert_int_equal(line_counts(b.line).prompt_tokens, 192);
    bench_close(&b);
}

static void a_full_context_ends_with_reason_length(void **state)
{
    (void)state;
    static struct job job;
    struct bench b;
    bench_open(&b, 2, &(struct line_config){.n_ctx = 64, .n_seqs = 1}, NULL);
    do {
        make_job(&job, 50, TEXT_MAX, 64);
        foretell(&job);
    } while (job.n_want < 14);
    submit(&b, &job, 0);
    run_all(&b, &job);
    check_job(&job);
    assert_int_equal(job.n_got, 14);
    bench_close(&b);
}

static void a_prompt_as_long_as_the_context_is_taken_and_a_longer_one_refused(void **state)
{
    (void)state;
    static struct job job;
    struct bench b;
    bench_open(&b, 2, &(struct line_config){.n_ctx = 64, .n_seqs = 1}, NULL);
    make_job(&job, 64, 5, 64);
    submit(&b, &job, 0);
    run_all(&b, &job);
    assert_true(job.finished);
    assert_int_equal(job.n_got, 0);
    make_job(&job, 65, 5, 64);
    struct line_request r = {.prompt = job.tokens, .n_prompt = 65, .sampling = job.sampling, .max_tokens = 5};
    uint32_t request;
    struct err err;
    assert_int_equal(line_submit(b.line, &r, &request, &err), ERR_CAPACITY);
    assert_non_null(strstr(err.text, "65"));
    bench_close(&b);
}

static void a_cancelled_request_ends_and_the_others_go_on(void **state)
{
    (void)state;
    static struct job jobs[3];
    struct bench b;
    bench_open(&b, 2, &(struct line_config){.n_ctx = 256, .n_seqs = 2}, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        do {
            make_job(&jobs[i], 20, 40, 256);
            foretell(&jobs[i]);
        } while (jobs[i].n_want < 40);
        submit(&b, &jobs[i], i);
    }
    uint32_t n_tokens = 0;
    bool finished[3] = {false};
    for (;;) {
        struct line_event ev;
        bool none;
        struct err err;
        assert_int_equal(line_next(b.line, &ev, &none, &err), ERR_NONE);
        if (none) break;
        if (ev.kind == LINE_EVENT_TOKEN && ev.request == 0 && ++n_tokens == 3) {
            line_cancel(b.line, 0);
            line_cancel(b.line, 2);
        }
        if (ev.kind == LINE_EVENT_FINISHED) {
            finished[ev.request] = true;
            assert_int_equal(ev.finish, ev.request == 1 ? LINE_FINISH_LENGTH : LINE_FINISH_CANCELLED);
        }
    }
    assert_true(finished[0] && finished[1] && finished[2]);
    bench_close(&b);
}

static void a_windows_blocks_stay_at_their_bound_however_long_the_text(void **state)
{
    (void)state;
    static struct job jobs[3];
    struct bench b;
    bench_open_model(&b, "families/gemma2.gguf", 2, &(struct line_config){.n_ctx = 256, .n_seqs = 2, .chunk = 8}, NULL);
    uint32_t window = b.model->hp.kv_class_window[1];
    assert_int_equal(b.model->hp.n_kv_classes, 2);
    for (uint32_t i = 0; i < 3; i++) {
        make_job(&jobs[i], i == 0 ? 190 : 20, TEXT_MAX, 256);
        foretell(&jobs[i]);
        submit(&b, &jobs[i], i);
    }
    run_all(&b, jobs);
    for (uint32_t i = 0; i < 3; i++) check_job(&jobs[i]);
    uint32_t bound = (window - 1 + 8 + KV_BLOCK_POSITIONS - 1) / KV_BLOCK_POSITIONS + 1;
    struct line_counts counts = line_counts(b.line);
    assert_true(counts.blocks_most[0] > 190 / KV_BLOCK_POSITIONS);
    assert_in_range(counts.blocks_most[1], 1, 2 * bound);
    assert_true(2 * bound < counts.blocks_most[0]);
    bench_close(&b);
}

static void prompt_scores_come_for_every_position(void **state)
{
    (void)state;
    static struct job job;
    struct bench b;
    bench_open(&b, 2, &(struct line_config){.n_ctx = 256, .n_seqs = 1, .chunk = 7}, NULL);
    make_job(&job, 100, 0, 256);
    struct line_request r = {.prompt = job.tokens, .n_prompt = 100, .sampling = job.sampling};
    uint32_t request, n_rows = 0, n_next = 0;
    struct err err;
    r.scores = LINE_SCORES_ROWS;
    assert_int_equal(line_submit(b.line, &r, &request, &err), ERR_NONE);
    r.scores = LINE_SCORES_NEXT;
    assert_int_equal(line_submit(b.line, &r, &request, &err), ERR_NONE);
    for (;;) {
        struct line_event ev;
        bool none;
        if (line_next(b.line, &ev, &none, &err) != ERR_NONE) fail_msg("%s", err.text);
        if (none) break;
        if (ev.kind != LINE_EVENT_SCORES) continue;
        float z[VOCAB];
        fake_scores(job.tokens, ev.position + 1, VOCAB, z);
        if (ev.request == 0) {
            assert_int_equal(ev.position, n_rows++);
            assert_memory_equal(ev.head->raw, z, sizeof z);
        } else {
            assert_int_equal(ev.position, n_next++);
            float want = z[job.tokens[ev.position + 1]];
            assert_memory_equal(&ev.head->id_scores[0], &want, sizeof want);
        }
    }
    assert_int_equal(n_rows, 100);
    assert_int_equal(n_next, 99);
    bench_close(&b);
}

static void expect_open_fails(int n_stages, const struct line_config *config, const struct fake_options *o,
                              enum err_code code, const char *text)
{
    struct model *m = open_model("families/llama.gguf");
    if (m == NULL) skip();
    struct fake_stages f;
    fake_stages_start(&f, n_stages, m, o);
    struct line_config c = *config;
    c.model = m;
    struct line *ln = NULL;
    struct err err;
    assert_int_equal(line_open(&ln, f.link[0], &c, &err), code);
    if (strstr(err.text, text) == NULL) fail_msg("'%s' does not say '%s'", err.text, text);
    fake_stages_join(&f);
    model_close(m);
}

static void disagreement_is_named_before_anything_is_loaded(void **state)
{
    (void)state;
    struct line_config c = {.n_ctx = 64, .n_seqs = 1};
    expect_open_fails(2, &c, &(struct fake_options){.version = "0.0.1"}, ERR_DISAGREE, "0.0.1");
    expect_open_fails(2, &c, &(struct fake_options){.digest_xor = 1}, ERR_DISAGREE, "different model");
}

static void a_line_that_cannot_be_is_refused(void **state)
{
    (void)state;
    struct line_config c = {.n_ctx = 64, .n_seqs = 1};
    expect_open_fails(5, &c, NULL, ERR_CAPACITY, "limit is 4");
    c.split = "1,3,1";
    expect_open_fails(2, &c, NULL, ERR_USAGE, "1,3,1");
}

static void a_workers_error_ends_the_line_and_names_it(void **state)
{
    (void)state;
    static struct job job;
    struct bench b;
    bench_open(&b, 2, &(struct line_config){.n_ctx = 64, .n_seqs = 1}, &(struct fake_options){.fail_batch = 3});
    make_job(&job, 10, 30, 64);
    submit(&b, &job, 0);
    struct line_event ev;
    bool none = false;
    struct err err;
    int rc;
    while ((rc = line_next(b.line, &ev, &none, &err)) == ERR_NONE && !none) continue;
    assert_int_equal(rc, ERR_NUMERIC);
    assert_string_equal(err.text, "score 7 is not finite");
    assert_non_null(strstr(err.who, "worker 2 @fake, layers 2..3"));
    line_close(b.line);
    fake_stages_join(&b.stages);
    model_close(b.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sequence_gets_the_tokens_it_has_alone),
        cmocka_unit_test(eight_sequences_share_the_batches_of_one),
        cmocka_unit_test(a_prompt_fills_the_line_in_chunks),
        cmocka_unit_test(a_full_context_ends_with_reason_length),
        cmocka_unit_test(a_prompt_as_long_as_the_context_is_taken_and_a_longer_one_refused),
        cmocka_unit_test(a_cancelled_request_ends_and_the_others_go_on),
        cmocka_unit_test(a_windows_blocks_stay_at_their_bound_however_long_the_text),
        cmocka_unit_test(prompt_scores_come_for_every_position),
        cmocka_unit_test(disagreement_is_named_before_anything_is_loaded),
        cmocka_unit_test(a_line_that_cannot_be_is_refused),
        cmocka_unit_test(a_workers_error_ends_the_line_and_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
