/* test_capacity - what does not fit is refused with a change that does fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/line/capacity.h"
#include "engine/plan.h"
#include "tests/engine/make_gguf.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 8, STAGES_MAX_HERE = LAYERS };

/* Advice leaves so much more free. */
static const uint64_t spare = CAPACITY_ADVICE_BYTES - CAPACITY_PROGRAM_BYTES;

static struct make_gguf file;
static struct model *model;

static int open_model(void **state)
{
    (void)state;
    static const struct make_llama shape = {.n_layer = LAYERS,
                                            .n_embd = 64,
                                            .n_head = 4,
                                            .n_head_kv = 4,
                                            .n_ff = 96,
                                            .n_vocab = 40,
                                            .format = 8};
    struct err err;
    make_llama_begin(&file, &shape);
    return model_open(&model, make_gguf_write(&file), &err);
}

static int close_model(void **state)
{
    (void)state;
    model_close(model);
    make_gguf_end(&file);
    return 0;
}

/* A line of workers, at first each on a host of its own and without a limit. */
struct made_line {
    struct capacity_wish wish;
    struct layer_range ranges[STAGES_MAX_HERE];
    struct msg_hello hellos[STAGES_MAX_HERE];
    char hosts[STAGES_MAX_HERE][16];
    const struct msg_hello *list[STAGES_MAX_HERE];
    struct err err;
};

static void make_line(struct made_line *ln, uint32_t n_stages)
{
    *ln = (struct made_line){.wish = {.model = model,
                                      .n_stages = n_stages,
                                      .n_ctx = 16384,
                                      .n_seqs = 4,
                                      .kv = KV_F32,
                                      .tokens_only = true}};
    assert_int_equal(plan_by_bytes(model, n_stages, ln->ranges, &ln->err), ERR_NONE);
    for (uint32_t i = 0; i < n_stages; i++) {
        snprintf(ln->hosts[i], sizeof ln->hosts[i], "node%u", i);
        ln->hellos[i] =
            (struct msg_hello){.host = ln->hosts[i], .pid = 100 + i, .cgroup = "", .ulimit = ""};
        ln->list[i] = &ln->hellos[i];
    }
}

static void put_on_one_host(struct made_line *ln)
{
    for (uint32_t i = 0; i < ln->wish.n_stages; i++) ln->hellos[i].host = "one";
}

static int check(struct made_line *ln)
{
    return capacity_check(&ln->wish, ln->ranges, ln->list, &ln->err);
}

static uint64_t need_of(const struct made_line *ln, uint32_t stage)
{
    struct line_limits limits;
    assert_int_equal(capacity_settle(&ln->wish, &limits, NULL), ERR_NONE);
    struct footprint f = capacity_need(model, ln->ranges[stage], &limits);
    return capacity_total(&f) + CAPACITY_PROGRAM_BYTES;
}

static uint64_t need_of_all(const struct made_line *ln)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ln->wish.n_stages; i++) sum += need_of(ln, i);
    return sum;
}

static void assert_says(const struct made_line *ln, const char *text)
{
    if (strstr(ln->err.text, text) == NULL) fail_msg("'%s' does not say '%s'", ln->err.text, text);
}

/* number_behind() - of the error's text; 0 where the words are absent. */
static uint32_t number_behind(const struct made_line *ln, const char *words)
{
    const char *at = strstr(ln->err.text, words);
    return at == NULL ? 0 : (uint32_t)strtoul(at + strlen(words), NULL, 10);
}

static void without_limits_everything_fits(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, 3);
    put_on_one_host(&ln);
    assert_int_equal(check(&ln), ERR_NONE);
    const char *name;
    assert_true(capacity_bound(&ln.hellos[0], &name) == UINT64_MAX);
}

static void each_kind_of_limit_is_met_to_the_byte(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct made_line ln;
        make_line(&ln, 3);
        struct msg_hello *h = &ln.hellos[1];
        uint64_t *limits[] = {&h->memory_bytes, &h->cgroup_bytes, &h->ulimit_bytes};
        static const char *const names[] = {"physical memory", "cgroup /x/y", "ulimit -v"};
        h->cgroup = "cgroup /x/y";
        h->ulimit = "ulimit -v";
        *limits[kind] = need_of(&ln, 1);
        assert_int_equal(check(&ln), ERR_NONE);
        --*limits[kind];
        assert_int_equal(check(&ln), ERR_CAPACITY);
        assert_says(&ln, names[kind]);
        char who[64];
        snprintf(who, sizeof who, "worker 2 @node1, layers %u..%u", ln.ranges[1].first,
                 ln.ranges[1].end - 1);
        assert_string_equal(ln.err.who, who);
    }
}

static void workers_of_one_host_share_its_memory(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, 3);
    put_on_one_host(&ln);
    for (int i = 0; i < 3; i++) ln.hellos[i].memory_bytes = need_of_all(&ln);
    assert_int_equal(check(&ln), ERR_NONE);
    ln.hellos[2].memory_bytes--;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    assert_says(&ln, "3 workers there need");
    ln.hellos[1].host = "other";
    assert_int_equal(check(&ln), ERR_NONE);
}

static void workers_of_one_group_share_its_limit(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, 2);
    put_on_one_host(&ln);
    for (int i = 0; i < 2; i++) {
        ln.hellos[i].cgroup = "cgroup /job";
        ln.hellos[i].cgroup_bytes = need_of_all(&ln) - 1;
    }
    assert_int_equal(check(&ln), ERR_CAPACITY);
    ln.hellos[1].cgroup = "cgroup /job2";
    assert_int_equal(check(&ln), ERR_NONE);
}

static void stages_of_one_process_share_its_ulimit_and_program(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, 2);
    put_on_one_host(&ln);
    for (int i = 0; i < 2; i++) {
        ln.hellos[i].ulimit = "ulimit -v";
        ln.hellos[i].ulimit_bytes = need_of_all(&ln) - CAPACITY_PROGRAM_BYTES - 1;
    }
    assert_int_equal(check(&ln), ERR_NONE);
    ln.hellos[1].pid = ln.hellos[0].pid;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    for (int i = 0; i < 2; i++) ln.hellos[i].ulimit_bytes++;
    assert_int_equal(check(&ln), ERR_NONE);
}

static void the_context_that_fits_is_the_largest_one(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, 2);
    uint64_t whole = need_of(&ln, 0);
    for (int part = 1; part < 8; part++) {
        ln.wish.n_ctx = 16384;
        ln.hellos[0].memory_bytes =
            CAPACITY_ADVICE_BYTES + (whole - CAPACITY_PROGRAM_BYTES) * (unsigned)part / 8;
        assert_int_equal(check(&ln), ERR_CAPACITY);
        uint32_t n_ctx = number_behind(&ln, "--ctx ");
        assert_in_range(n_ctx, 32, 16383);
        ln.wish.n_ctx = n_ctx;
        assert_int_equal(check(&ln), ERR_NONE);
        assert_true(need_of(&ln, 0) + spare <= ln.hellos[0].memory_bytes);
        ln.wish.n_ctx = n_ctx + KV_BLOCK_POSITIONS;
        assert_true(need_of(&ln, 0) + spare > ln.hellos[0].memory_bytes);
    }
}

static void a_context_below_what_the_work_needs_is_no_advice(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, 2);
    ln.hellos[0].memory_bytes = need_of(&ln, 0) / 2;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    uint32_t n_ctx = number_behind(&ln, "--ctx ");
    ln.wish.n_ctx_min = n_ctx + 1;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    assert_null(strstr(ln.err.text, "--ctx"));
    ln.wish.n_ctx_min = n_ctx;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    assert_int_equal(number_behind(&ln, "--ctx "), n_ctx);
}

static void fewer_slots_and_a_smaller_cache_format_are_advised(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, 2);
    ln.hellos[1].memory_bytes = need_of(&ln, 1) - (40 << 20);
    assert_int_equal(check(&ln), ERR_CAPACITY);
    assert_says(&ln, "what fits is --kv f16, or --ctx");
    uint32_t slots = number_behind(&ln, "--slots ");
    assert_in_range(slots, 1, 3);
    ln.wish.n_seqs = slots;
    assert_int_equal(check(&ln), ERR_NONE);
    ln.wish.n_seqs = slots + 1;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    ln.wish.n_seqs = 4;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    uint32_t kv_tokens = number_behind(&ln, "--kv-tokens ");
    assert_in_range(kv_tokens, ln.wish.n_ctx, 4 * ln.wish.n_ctx - 1);
    ln.wish.kv_tokens = kv_tokens;
    assert_int_equal(check(&ln), ERR_NONE);
    ln.wish.kv_tokens = kv_tokens + KV_BLOCK_POSITIONS + (16 << 10);
    assert_int_equal(check(&ln), ERR_CAPACITY);
    ln.wish.kv_tokens = 0;
    ln.wish.kv = KV_F16;
    assert_int_equal(check(&ln), ERR_NONE);
}

/* check_more() - the plan of so many, each with the memory of the one that had too little. */
static int check_more(struct made_line *ln, uint32_t n, uint64_t bytes, bool one_host)
{
    struct made_line more;
    make_line(&more, n);
    if (one_host) put_on_one_host(&more);
    for (uint32_t i = 0; i < n; i++) more.hellos[i].memory_bytes = bytes;
    more.wish.n_ctx = ln->wish.n_ctx;
    return check(&more);
}

static void the_advised_number_of_workers_is_the_smallest(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, 2);
    uint64_t bytes = ln.hellos[0].memory_bytes = need_of(&ln, 0) / 2;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    uint32_t n = number_behind(&ln, "(mpirun -n ") - 1;
    assert_in_range(n, 3, LAYERS);
    assert_says(&ln, "workers, each on a host of its own");
    assert_int_equal(check_more(&ln, n, bytes, false), ERR_NONE);
    assert_int_equal(check_more(&ln, n - 1, bytes, false), ERR_CAPACITY);
    assert_int_equal(check_more(&ln, n, bytes, true), ERR_CAPACITY);

    /* A limit of each process leaves room for more on the same host. */
    ln.hellos[0].memory_bytes = 0;
    ln.hellos[0].ulimit_bytes = bytes;
    ln.hellos[0].ulimit = "ulimit -v";
    assert_int_equal(check(&ln), ERR_CAPACITY);
    assert_null(strstr(ln.err.text, "host of its own"));
    assert_int_equal(number_behind(&ln, "(mpirun -n "), n + 1);
}

static void where_no_single_change_is_enough_all_are_named(void **state)
{
    (void)state;
    struct made_line ln;
    make_line(&ln, LAYERS);
    ln.wish.n_ctx_min = 8192;
    uint64_t floor = need_of(&ln, 0);
    ln.hellos[0].memory_bytes = CAPACITY_ADVICE_BYTES + (floor - CAPACITY_PROGRAM_BYTES) * 11 / 50;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    assert_says(&ln, "what fits is --kv f16 --slots 1 --ctx ");
    ln.wish.kv = KV_F16;
    ln.wish.n_seqs = 1;
    ln.wish.n_ctx = number_behind(&ln, "--ctx ");
    assert_int_equal(check(&ln), ERR_NONE);

    make_line(&ln, LAYERS);
    ln.hellos[0].memory_bytes = 1 << 20;
    assert_int_equal(check(&ln), ERR_CAPACITY);
    assert_says(&ln, "use hosts with more memory");
}

static void limits_follow_from_what_is_asked_for(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_stages, n_ctx, n_seqs, chunk, rows, blocks;
    } cases[] = {
        {1, 100, 1, 0, 101, 4},   {1, 4096, 1, 0, 512, 128}, {2, 64, 1, 0, 33, 2},
        {2, 1024, 2, 0, 512, 64}, {4, 1024, 1, 0, 257, 32},  {2, 64, 40, 7, 40, 80},
        {2, 64, 1, 7, 7, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct capacity_wish w = {.model = model,
                                  .n_stages = cases[i].n_stages,
                                  .n_ctx = cases[i].n_ctx,
                                  .n_seqs = cases[i].n_seqs,
                                  .chunk = cases[i].chunk,
                                  .tokens_only = true};
        struct line_limits limits;
        assert_int_equal(capacity_settle(&w, &limits, NULL), ERR_NONE);
        assert_int_equal(limits.rows_max, cases[i].rows);
        assert_int_equal(limits.n_blocks[0], cases[i].blocks);
        assert_int_equal(limits.wanted_max, cases[i].n_seqs);
        assert_int_equal(limits.credits, cases[i].n_stages + 1);
        w.tokens_only = false;
        assert_int_equal(capacity_settle(&w, &limits, NULL), ERR_NONE);
        assert_int_equal(limits.wanted_max,
                         limits.rows_max); /* 40 scores a row: all may be wanted */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_limits_everything_fits),
        cmocka_unit_test(each_kind_of_limit_is_met_to_the_byte),
        cmocka_unit_test(workers_of_one_host_share_its_memory),
        cmocka_unit_test(workers_of_one_group_share_its_limit),
        cmocka_unit_test(stages_of_one_process_share_its_ulimit_and_program),
        cmocka_unit_test(the_context_that_fits_is_the_largest_one),
        cmocka_unit_test(a_context_below_what_the_work_needs_is_no_advice),
        cmocka_unit_test(fewer_slots_and_a_smaller_cache_format_are_advised),
        cmocka_unit_test(the_advised_number_of_workers_is_the_smallest),
        cmocka_unit_test(where_no_single_change_is_enough_all_are_named),
        cmocka_unit_test(limits_follow_from_what_is_asked_for),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
