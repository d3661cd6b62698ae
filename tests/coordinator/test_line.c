/* test_line - the scheduler and the line, against stages that check every rule and know every
 * answer. */
#include "../test_data.h"
#include "coordinator/line/line.h"
#include "fake_stages.h"
#include "line_jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

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

static void bench_open_model(struct bench *b, const char *name, int n_stages,
                             const struct line_config *config, const struct fake_options *o)
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

static void bench_open(struct bench *b, int n_stages, const struct line_config *config,
                       const struct fake_options *o)
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

static void run_all(struct bench *b, struct job *jobs)
{
    for (;;) {
        struct line_event ev;
        bool none;
        struct err err;
        if (line_next(b->line, &ev, &none, &err) != ERR_NONE) fail_msg("%s", err.text);
        if (none) return;
        take_event(&jobs[ev.request], &ev);
    }
}

static void each_sequence_gets_the_tokens_it_has_alone(void **state)
{
    (void)state;
    static struct job jobs[40];
    for (int n_stages = 1; n_stages <= 4; n_stages++) {
        for (uint32_t chunk = 0; chunk <= 70; chunk += 35) {
            struct bench b;
            struct line_config c = {.n_ctx = 128,
                                    .n_seqs = 5,
                                    .chunk = chunk,
                                    .shuffle_blocks = true,
                                    .shuffle_seed = 3};
            bench_open(&b, n_stages, &c, &(struct fake_options){.short_heads = chunk == 35});
            for (uint32_t i = 0; i < 40; i++) {
                make_job(&jobs[i], 1 + roll(120), 1 + roll(TEXT_MAX), 128);
                vary_sampling(&jobs[i].sampling);
                submit_job(b.line, &jobs[i], i);
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

/* count_batches() - of n sequences with 60 tokens each, on stages that share so many CPUs. */
static uint64_t count_batches(uint32_t n, int n_stages, uint32_t cpus)
{
    static struct job jobs[8];
    struct bench b;
    bench_open(&b, n_stages, &(struct line_config){.n_ctx = 128, .n_seqs = 8},
               &(struct fake_options){.cpus = cpus});
    for (uint32_t i = 0; i < n; i++) {
        do {
            memset(&jobs[i], 0, sizeof jobs[i]);
            make_job(&jobs[i], 10, 60, 128);
            foretell(&jobs[i]);
        } while (jobs[i].n_want < 60); /* one without an early end */
        submit_job(b.line, &jobs[i], i);
    }
    run_all(&b, jobs);
    uint64_t batches = line_counts(b.line).batches;
    bench_close(&b);
    return batches;
}

static void where_one_stage_computes_at_a_time_eight_sequences_take_the_batches_of_one(void **state)
{
    (void)state;
    for (int n_stages = 1; n_stages <= 4; n_stages++) {
        uint64_t one = count_batches(1, n_stages, 1), eight = count_batches(8, n_stages, 1);
        assert_int_equal(one, 60);
        assert_true((double)eight <= 1.1 * (double)one);
    }
}

/* While a stage computes one group, the others have theirs: so the batches are those of one
 * sequence for each group, and hold fewer rows. */
static void where_stages_compute_at_once_each_group_takes_the_batches_of_one(void **state)
{
    (void)state;
    for (int n_stages = 2; n_stages <= 4; n_stages++) {
        for (uint32_t cpus = 2; cpus <= 4; cpus += 2) {
            uint32_t groups = (uint32_t)n_stages < cpus ? (uint32_t)n_stages : cpus;
            assert_int_equal(count_batches(1, n_stages, cpus), 60);
            uint64_t eight = count_batches(8, n_stages, cpus);
            if ((double)eight > 1.1 * 60 * groups || (double)eight < 0.9 * 60 * groups)
                fail_msg("%d stages on %u CPUs: %llu batches, want about 60 for each of %u groups",
                         n_stages, cpus, (unsigned long long)eight, groups);
        }
    }
}

static void a_prompt_fills_the_line_in_chunks(void **state)
{
    (void)state;
    static struct job job;
    struct bench b;
    bench_open(&b, 3, &(struct line_config){.n_ctx = 256, .n_seqs = 1}, NULL);
    make_job(&job, 192, 0, 256);
    submit_job(b.line, &job, 0);
    run_all(&b, &job);
    assert_true(job.finished);
    assert_int_equal(line_counts(b.line).batches, 3);
    assert_int_equal(line_counts(b.line).prompt_tokens, 192);
    bench_close(&b);
}

/* The workers were heard of in the poll with which the absence began, and say nothing meanwhile. */
static void a_coordinator_that_was_away_blames_nobody(void **state)
{
    (void)state;
    static struct job job;
    struct bench b;
    bench_open(&b, 2, &(struct line_config){.n_ctx = 64, .n_seqs = 1}, NULL);
    make_job(&job, 10, 5, 64);
    foretell(&job);
    submit_job(b.line, &job, 0);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL);
    run_all(&b, &job);
    check_job(&job);
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
    submit_job(b.line, &job, 0);
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
    submit_job(b.line, &job, 0);
    run_all(&b, &job);
    assert_true(job.finished);
    assert_int_equal(job.n_got, 0);
    make_job(&job, 65, 5, 64);
    struct line_request r = {
        .prompt = job.tokens, .n_prompt = 65, .sampling = job.sampling, .max_tokens = 5};
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
        submit_job(b.line, &jobs[i], i);
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
            assert_int_equal(ev.finish,
                             ev.request == 1 ? LINE_FINISH_LENGTH : LINE_FINISH_CANCELLED);
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
    bench_open_model(&b, "families/gemma2.gguf", 2,
                     &(struct line_config){.n_ctx = 256, .n_seqs = 2, .chunk = 8}, NULL);
    uint32_t window = b.model->hp.kv_class_window[1];
    assert_int_equal(b.model->hp.n_kv_classes, 2);
    for (uint32_t i = 0; i < 3; i++) {
        make_job(&jobs[i], i == 0 ? 190 : 20, TEXT_MAX, 256);
        foretell(&jobs[i]);
        submit_job(b.line, &jobs[i], i);
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

static void scores_come_once_also_of_who_had_to_leave(void **state)
{
    (void)state;
    enum { REQUESTS = 4, PROMPT = 120 };
    static struct job text, prompts[REQUESTS];
    struct bench b;
    uint32_t n[REQUESTS] = {0}, request;
    struct err err;
    /* The text begins small and is the oldest: it grows into what the prompts have. */
    bench_open(&b, 2,
               &(struct line_config){
                   .n_ctx = 128, .n_seqs = 4, .chunk = 9, .kv_tokens = 160, .share_prefixes = true},
               NULL);
    do {
        make_job(&text, 30, TEXT_MAX, 128);
        foretell(&text);
    } while (text.n_want < TEXT_MAX);
    submit_job(b.line, &text, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        make_job(&prompts[i], i % 2 == 0 ? PROMPT : 30, 0, 128);
        const struct line_request r = {.prompt = prompts[i].tokens,
                                       .n_prompt = prompts[i].n_prompt,
                                       .sampling = prompts[i].sampling,
                                       .scores = LINE_SCORES_ROWS};
        assert_int_equal(line_submit(b.line, &r, &request, &err), ERR_NONE);
    }
    for (;;) {
        struct line_event ev;
        bool none;
        if (line_next(b.line, &ev, &none, &err) != ERR_NONE) fail_msg("%s", err.text);
        if (none) break;
        if (ev.request == 0) take_event(&text, &ev);
        if (ev.kind != LINE_EVENT_SCORES) continue;
        const struct job *j = &prompts[ev.request - 1];
        float z[VOCAB];
        fake_scores(j->tokens, ev.position + 1, VOCAB, z);
        assert_int_equal(ev.position, n[ev.request - 1]++);
        assert_memory_equal(ev.head->raw, z, sizeof z);
    }
    check_job(&text);
    for (uint32_t i = 0; i < REQUESTS; i++) assert_int_equal(n[i], prompts[i].n_prompt);
    assert_true(line_counts(b.line).preemptions > 0);
    bench_close(&b);
}

static void what_never_fits_into_the_pool_is_refused(void **state)
{
    (void)state;
    static struct job job;
    struct bench b;
    struct err err;
    uint32_t request;
    bench_open(&b, 2, &(struct line_config){.n_ctx = 256, .n_seqs = 2, .kv_tokens = 64}, NULL);
    make_job(&job, 50, 14, 64);
    foretell(&job);
    submit_job(b.line, &job, 0);
    run_all(&b, &job);
    check_job(&job);
    struct line_request r = {
        .prompt = job.tokens, .n_prompt = 50, .sampling = job.sampling, .max_tokens = 15};
    assert_int_equal(line_submit(b.line, &r, &request, &err), ERR_CAPACITY);
    assert_non_null(strstr(err.text, "--kv-tokens"));
    r.max_tokens = UINT32_MAX; /* as far as it goes */
    assert_int_equal(line_submit(b.line, &r, &request, &err), ERR_NONE);
    for (bool none = false; !none;) {
        struct line_event ev;
        if (line_next(b.line, &ev, &none, &err) != ERR_NONE) fail_msg("%s", err.text);
        if (!none && ev.kind == LINE_EVENT_FINISHED) assert_int_equal(ev.position, 64);
    }
    bench_close(&b);
}

static void expect_open_fails(int n_stages, const struct line_config *config,
                              const struct fake_options *o, enum err_code code, const char *text)
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
    expect_open_fails(2, &c, &(struct fake_options){.digest_xor = 1}, ERR_DISAGREE,
                      "different model");
}

static void stages_that_read_other_bytes_of_a_tensor_are_named(void **state)
{
    (void)state;
    struct line_config c = {.n_ctx = 64, .n_seqs = 1};
    struct tensor_digest d[3] = {
        {TENSOR_TOKEN_EMBD, 7}, {TENSOR_OUTPUT_NORM, 9}, {TENSOR_TOKEN_EMBD, 8}};
    const struct fake_options o = {.digests = d};
    expect_open_fails(3, &c, &o, ERR_DISAGREE,
                      "tensor token_embd.weight has digest 0000000000000008, that of worker 1 "
                      "@fake has 0000000000000007: their model files differ: copy the same file");
    d[1] = (struct tensor_digest){TENSOR_ROPE_FREQS, 7};
    expect_open_fails(3, &c, &o, ERR_PEER, "which is not there");
    d[1] = (struct tensor_digest){UINT32_MAX, 7};
    expect_open_fails(3, &c, &o, ERR_PEER, "tensor 4294967295, which is not there");

    d[1] = d[2] = d[0];
    static struct job job;
    struct bench b;
    bench_open(&b, 3, &c, &o);
    make_job(&job, 5, 4, 64);
    foretell(&job);
    submit_job(b.line, &job, 0);
    run_all(&b, &job);
    check_job(&job);
    bench_close(&b);
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
    bench_open(&b, 2, &(struct line_config){.n_ctx = 64, .n_seqs = 1},
               &(struct fake_options){.fail_batch = 3});
    make_job(&job, 10, 30, 64);
    submit_job(b.line, &job, 0);
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
        cmocka_unit_test(
            where_one_stage_computes_at_a_time_eight_sequences_take_the_batches_of_one),
        cmocka_unit_test(where_stages_compute_at_once_each_group_takes_the_batches_of_one),
        cmocka_unit_test(a_prompt_fills_the_line_in_chunks),
        cmocka_unit_test(a_coordinator_that_was_away_blames_nobody),
        cmocka_unit_test(a_full_context_ends_with_reason_length),
        cmocka_unit_test(a_prompt_as_long_as_the_context_is_taken_and_a_longer_one_refused),
        cmocka_unit_test(a_cancelled_request_ends_and_the_others_go_on),
        cmocka_unit_test(a_windows_blocks_stay_at_their_bound_however_long_the_text),
        cmocka_unit_test(prompt_scores_come_for_every_position),
        cmocka_unit_test(scores_come_once_also_of_who_had_to_leave),
        cmocka_unit_test(what_never_fits_into_the_pool_is_refused),
        cmocka_unit_test(disagreement_is_named_before_anything_is_loaded),
        cmocka_unit_test(stages_that_read_other_bytes_of_a_tensor_are_named),
        cmocka_unit_test(a_line_that_cannot_be_is_refused),
        cmocka_unit_test(a_workers_error_ends_the_line_and_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
