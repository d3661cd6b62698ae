/* test_soak - many requests at random times, with random lengths, samplers, shared beginnings and
 * cancellations, through a KV pool that is too small for those in the line: each gets the tokens
 * that it has alone, and every block comes back.
 *
 * TANDEM_SOAK_REQUESTS: how many for each line (200 for the long run), TANDEM_SOAK_SEED: of the
 * dice. Fake stages know every answer and check every rule; real ones show that shared and rebuilt
 * caches have the same bits. */
#include "../test_data.h"
#include "coordinator/line/line.h"
#include "fake_stages.h"
#include "line_jobs.h"
#include "real_stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    REQUESTS_MAX = 2000,
    STAGES_MOST = REAL_STAGES_MAX,
    CONTEXT = 192,
    SLOTS = 8,
    POOL_TOKENS = 256, /* of up to SLOTS * CONTEXT */
    BEGINNINGS = 2,
    BEGINNING_TOKENS = 130,
    BEGINNING_LEAST = 40,
};

static struct job jobs[REQUESTS_MAX];
static uint32_t n_jobs;

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* make_jobs() - most begin as others do, and some are the same as the one before. */
static void make_jobs(void)
{
    static int32_t beginnings[BEGINNINGS][BEGINNING_TOKENS];
    n_jobs = (uint32_t)number_of("TANDEM_SOAK_REQUESTS", 30);
    if (n_jobs > REQUESTS_MAX) n_jobs = REQUESTS_MAX;
    roll_seed(number_of("TANDEM_SOAK_SEED", 6));
    for (uint32_t b = 0; b < BEGINNINGS; b++)
        for (uint32_t i = 0; i < BEGINNING_TOKENS; i++) beginnings[b][i] = (int32_t)roll(VOCAB);
    for (uint32_t i = 0; i < n_jobs; i++) {
        struct job *j = &jobs[i];
        make_job(j, 1 + roll(roll(2) ? 150 : 30), 1 + roll(TEXT_MAX), CONTEXT);
        vary_sampling(&j->sampling);
        if (roll(4) == 0) continue;
        if (i > 0 && roll(6) == 0) {
            *j = jobs[i - 1];
            continue;
        }
        uint32_t same = BEGINNING_LEAST + roll(BEGINNING_TOKENS - BEGINNING_LEAST);
        if (same > j->n_prompt) same = j->n_prompt;
        memcpy(j->tokens, beginnings[roll(BEGINNINGS)], same * sizeof *j->tokens);
    }
}

/* ---- a line of either ---- */

struct soak {
    struct model *model;
    struct line *line;
    bool is_fake;
    struct fake_stages fake;
    struct real_stages real;
};

static void soak_open(struct soak *s, const char *path, bool is_fake, int n_stages,
                      const struct line_config *config)
{
    struct err err;
    if (model_open(&s->model, path, &err) != ERR_NONE) fail_msg("%s", err.text);
    s->is_fake = is_fake;
    if (is_fake)
        fake_stages_start(&s->fake, n_stages, s->model,
                          &(struct fake_options){.short_heads = n_stages == 2});
    else
        real_stages_start(&s->real, n_stages, path);
    struct line_config c = *config;
    c.model = s->model;
    c.threads = 1;
    if (line_open(&s->line, is_fake ? s->fake.link[0] : s->real.link[0], &c, &err) != ERR_NONE)
        fail_msg("%s: %s", err.who, err.text);
}

static void soak_close(struct soak *s)
{
    struct err err;
    if (line_stop(s->line, &err) != ERR_NONE) fail_msg("%s", err.text);
    assert_int_equal(line_counts(s->line).blocks_used, 0);
    line_close(s->line);
    if (s->is_fake) {
        fake_stages_join(&s->fake);
        assert_string_equal(s->fake.broken_rule, "");
    } else {
        real_stages_join(&s->real);
    }
    model_close(s->model);
}

/* next() - false when no request is left in the line. */
static bool next(struct soak *s, struct line_event *ev)
{
    struct err err;
    bool none;
    if (line_next(s->line, ev, &none, &err) != ERR_NONE) fail_msg("%s: %s", err.who, err.text);
    if (!none) take_event(&jobs[ev->request], ev);
    return !none;
}

/* foretell_alone() - what real stages give to each request when nobody is beside it, and nothing is
 * shared. */
static void foretell_alone(const char *path)
{
    struct soak s;
    struct line_event ev;
    soak_open(&s, path, false, 1, &(struct line_config){.n_ctx = CONTEXT, .n_seqs = 1});
    for (uint32_t i = 0; i < n_jobs; i++) submit_job(s.line, &jobs[i], i);
    while (next(&s, &ev)) continue;
    soak_close(&s);
    for (uint32_t i = 0; i < n_jobs; i++) {
        memcpy(jobs[i].want, jobs[i].got, sizeof jobs[i].want);
        jobs[i].n_want = jobs[i].n_got;
        jobs[i].want_finish = jobs[i].finish;
    }
}

/* run_busily() - requests come between any two events, and now and then one is taken back. */
static void run_busily(struct soak *s)
{
    uint32_t n_submitted = 0;
    for (;;) {
        while (n_submitted < n_jobs && roll(2) == 0) {
            submit_job(s->line, &jobs[n_submitted], n_submitted);
            n_submitted++;
        }
        if (n_submitted > 0 && roll(400) == 0) {
            uint32_t victim = roll(n_submitted);
            if (!jobs[victim].finished) line_cancel(s->line, victim);
        }
        struct line_event ev;
        if (!next(s, &ev) && n_submitted == n_jobs) return;
    }
}

static void check_jobs(void)
{
    for (uint32_t i = 0; i < n_jobs; i++) {
        struct job *j = &jobs[i];
        assert_true(j->finished);
        if (j->finish == LINE_FINISH_CANCELLED) {
            assert_true(j->n_got <= j->n_want);
            assert_memory_equal(j->got, j->want, j->n_got * sizeof *j->got);
        } else {
            check_job(j);
        }
    }
}

/* soak_line() - adds up in *sum how often the line had to make room, and what it shared. */
static void soak_line(const char *path, bool is_fake, int n_stages, struct line_counts *sum)
{
    struct soak s;
    const struct line_config config = {.n_ctx = CONTEXT,
                                       .n_seqs = SLOTS,
                                       .kv_tokens = POOL_TOKENS,
                                       .share_prefixes = true,
                                       .chunk = n_stages == 2 ? 24 : 0,
                                       .shuffle_blocks = n_stages > 1,
                                       .shuffle_seed = 3};
    for (uint32_t i = 0; i < n_jobs; i++) {
        jobs[i].n_got = jobs[i].n_cached = 0;
        jobs[i].finished = false;
    }
    soak_open(&s, path, is_fake, n_stages, &config);
    run_busily(&s);
    check_jobs();
    const struct line_counts counts = line_counts(s.line);
    print_message("%s, %d stages: %u requests, %llu tokens, %llu batches, %llu preemptions, %llu "
                  "of %llu prompt tokens "
                  "from the cache\n",
                  is_fake ? "fake" : "real", n_stages, n_jobs, (unsigned long long)counts.tokens,
                  (unsigned long long)counts.batches, (unsigned long long)counts.preemptions,
                  (unsigned long long)counts.cached_tokens,
                  (unsigned long long)(counts.cached_tokens + counts.prompt_tokens));
    sum->preemptions += counts.preemptions;
    sum->cached_tokens += counts.cached_tokens;
    soak_close(&s);
}

static void soak_lines(const char *path, bool is_fake)
{
    struct line_counts sum = {0};
    for (int n_stages = 1; n_stages <= STAGES_MOST; n_stages *= 2)
        soak_line(path, is_fake, n_stages, &sum);
    assert_true(sum.preemptions > 0);
    assert_true(sum.cached_tokens > 0);
}

static void soak_fake(const char *name)
{
    SKIP_WITHOUT(path, name);
    make_jobs();
    for (uint32_t i = 0; i < n_jobs; i++) foretell(&jobs[i]);
    soak_lines(path, true);
}

static void soak_real(const char *name)
{
    SKIP_WITHOUT(path, name);
    make_jobs();
    foretell_alone(path);
    soak_lines(path, false);
}

static void rules_hold_in_a_full_cache(void **state)
{
    (void)state;
    soak_fake("families/llama.gguf");
}

static void rules_hold_in_a_window(void **state)
{
    (void)state;
    soak_fake("families/gemma2.gguf");
}

static void rules_hold_for_a_convolution(void **state)
{
    (void)state;
    soak_fake("families/lfm2.gguf");
}

static void a_dense_model_gives_each_request_the_tokens_it_has_alone(void **state)
{
    (void)state;
    soak_real("families/llama.gguf");
}

static void a_model_with_windows_does(void **state)
{
    (void)state;
    soak_real("families/gemma2.gguf");
}

static void a_model_with_experts_does(void **state)
{
    (void)state;
    soak_real("families/qwen3moe.gguf");
}

static void a_model_with_convolutions_does(void **state)
{
    (void)state;
    soak_real("families/lfm2.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_hold_in_a_full_cache),
        cmocka_unit_test(rules_hold_in_a_window),
        cmocka_unit_test(rules_hold_for_a_convolution),
        cmocka_unit_test(a_dense_model_gives_each_request_the_tokens_it_has_alone),
        cmocka_unit_test(a_model_with_windows_does),
        cmocka_unit_test(a_model_with_experts_does),
        cmocka_unit_test(a_model_with_convolutions_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
