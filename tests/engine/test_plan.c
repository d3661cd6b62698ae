/* test_plan - the cut by bytes is the best there is, and cuts by hand are checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan.h"
#include "tests/engine/make_gguf.h"
#include "tests/test_data.h"

enum { LAYERS_MAX = 9 };

static void open_made(struct model **m, struct make_gguf *file, const struct make_llama *s)
{
    struct err err = {0};
    make_llama_begin(file, s);
    if (model_open(m, make_gguf_write(file), &err) != ERR_NONE) fail_msg("%s", err.text);
}

static uint64_t largest_stage(const struct model *m, const struct layer_range *ranges, uint32_t n)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = plan_stage_bytes(m, ranges[i]);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

/* The best largest stage of all cuts of [first, n_layer) into n stages, by trying each. */
static uint64_t best_by_trying(const struct model *m, uint32_t first, uint32_t n)
{
    if (n == 1) return plan_stage_bytes(m, (struct layer_range){first, m->hp.n_layer});
    uint64_t best = UINT64_MAX;
    for (uint32_t end = first + 1; end + n - 1 <= m->hp.n_layer; end++) {
        uint64_t here = plan_stage_bytes(m, (struct layer_range){first, end});
        uint64_t rest = best_by_trying(m, end, n - 1);
        uint64_t largest = here > rest ? here : rest;
        if (largest < best) best = largest;
    }
    return best;
}

static void assert_covers(const struct model *m, const struct layer_range *ranges, uint32_t n)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(ranges[i].first, next);
        assert_true(ranges[i].end > ranges[i].first);
        next = ranges[i].end;
    }
    assert_int_equal(next, m->hp.n_layer);
}

static void no_cut_has_a_smaller_largest_stage(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (unsigned turn = 0; turn < 40; turn++) {
        uint32_t ff[LAYERS_MAX];
        for (unsigned i = 0; i < LAYERS_MAX; i++) {
            seed = seed * 1664525 + 1013904223;
            ff[i] = 16 * (1 + (seed >> 24) % 40);
        }
        struct make_llama s = {.n_layer = 1 + turn % LAYERS_MAX,
                               .n_embd = 32,
                               .n_head = 2,
                               .layer_ff = ff,
                               .n_vocab = 16 + 500 * (turn % 3),
                               .format = FORMAT_F16,
                               .tied = turn % 2,
                               .rope_freqs = turn % 5 == 0};
        struct make_gguf file;
        struct model *m;
        struct err err;
        open_made(&m, &file, &s);
        for (uint32_t n = 1; n <= s.n_layer; n++) {
            struct layer_range ranges[LAYERS_MAX];
            assert_int_equal(plan_by_bytes(m, n, ranges, &err), ERR_NONE);
            assert_covers(m, ranges, n);
            assert_int_equal(largest_stage(m, ranges, n), best_by_trying(m, 0, n));
        }
        model_close(m);
        make_gguf_end(&file);
    }
}

static void equal_cuts_give_early_stages_what_fits(void **state)
{
    (void)state;
    /* A small vocabulary: input and output are little beside a layer, but they count. */
    static const struct {
        uint32_t n_layer, n_stages, want[5];
    } cases[] = {
        {9, 4, {2, 3, 2, 2}}, /* three layers are less where the embedding is not */
        {8, 3, {3, 3, 2}},    /* the output head is more than the embedding: the norm */
        {8, 4, {2, 2, 2, 2}}, {8, 5, {1, 2, 2, 2, 1}}, {3, 3, {1, 1, 1}}, {8, 1, {8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct make_llama s = {.n_layer = cases[i].n_layer,
                               .n_embd = 256,
                               .n_ff = 1024,
                               .n_head = 8,
                               .n_vocab = 64,
                               .format = FORMAT_Q8_0};
        struct make_gguf file;
        struct model *m;
        struct err err;
        struct layer_range ranges[LAYERS_MAX];
        open_made(&m, &file, &s);
        assert_int_equal(plan_by_bytes(m, cases[i].n_stages, ranges, &err), ERR_NONE);
        for (uint32_t j = 0; j < cases[i].n_stages; j++)
            assert_int_equal(ranges[j].end - ranges[j].first, cases[i].want[j]);
        model_close(m);
        make_gguf_end(&file);
    }
}

static void a_large_output_head_leaves_its_stage_few_layers(void **state)
{
    (void)state;
    struct make_llama s = {.n_layer = 8, .n_embd = 64, .n_ff = 128, .n_head = 2, .n_vocab = 4000};
    for (unsigned tied = 0; tied < 2; tied++) {
        struct make_gguf file;
        struct model *m;
        struct err err;
        struct layer_range ranges[4];
        s.tied = tied;
        open_made(&m, &file, &s);
        assert_int_equal(plan_by_bytes(m, 4, ranges, &err), ERR_NONE);
        assert_int_equal(ranges[0].end, 1);
        assert_int_equal(ranges[3].first, 7);
        model_close(m);
        make_gguf_end(&file);
    }
}

static void more_stages_than_layers_is_an_error_that_says_the_limit(void **state)
{
    (void)state;
    struct make_llama s = {.n_layer = 4, .n_embd = 32, .n_ff = 32, .n_head = 2, .n_vocab = 16};
    struct make_gguf file;
    struct model *m;
    struct err err = {0};
    struct layer_range ranges[5];
    open_made(&m, &file, &s);
    assert_int_equal(plan_by_bytes(m, 5, ranges, &err), ERR_CAPACITY);
    assert_non_null(strstr(err.text, "the limit is 4 stages, so 5 ranks"));
    model_close(m);
    make_gguf_end(&file);
}

static void cuts_by_hand_are_taken_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *split;
        uint32_t n_stages; /* 0: refused */
        const char *text;
    } cases[] = {
        {"3,3,2", 3, NULL},
        {"8", 1, NULL},
        {"1,7", 2, NULL},
        {"3,3,3", 0, "add up to 9, want 8"},
        {"3,3", 0, "add up to 6, want 8"},
        {"2,2,2,1,1", 0, "more than 4 parts"},
        {"8,0", 0, "part 2 is not a number"},
        {"", 0, "part 1 is not a number"},
        {",8", 0, "part 1 is not a number"},
        {"8,", 0, "part 1 is not a number"},
        {"4,-1,5", 0, "part 2 is not a number"},
        {"4 4", 0, "part 1 is not a number"},
        {"4;4", 0, "part 1 is not a number"},
        {"4294967296,8", 0, "part 1 is not a number"},
        {"4294967295,4294967295,8", 0, "add up to 8589934598"},
        {"99999999999999999999999999", 0, "part 1 is not a number"},
    };
    struct make_llama s = {.n_layer = 8, .n_embd = 32, .n_ff = 32, .n_head = 2, .n_vocab = 16};
    struct make_gguf file;
    struct model *m;
    open_made(&m, &file, &s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct layer_range ranges[4];
        struct err err = {0};
        uint32_t n = 4;
        int rc = plan_by_hand(m, cases[i].split, &n, ranges, &err);
        if (cases[i].n_stages > 0) {
            assert_int_equal(rc, ERR_NONE);
            assert_int_equal(n, cases[i].n_stages);
            assert_covers(m, ranges, n);
        } else {
            assert_int_equal(rc, ERR_USAGE);
            if (strstr(err.text, cases[i].text) == NULL) fail_msg("%s", err.text);
        }
    }
    model_close(m);
    make_gguf_end(&file);
}

static void a_very_large_model_is_planned_without_touching_its_data(void **state)
{
    (void)state;
    struct make_llama s = {.n_layer = 80,
                           .n_embd = 8192,
                           .n_ff = 28672,
                           .n_head = 64,
                           .n_head_kv = 8,
                           .n_vocab = 128256,
                           .format = FORMAT_Q8_0};
    struct make_gguf file;
    struct model *m;
    struct err err;
    struct layer_range ranges[20];
    open_made(&m, &file, &s);
    assert_int_equal(plan_by_bytes(m, 20, ranges, &err), ERR_NONE);
    assert_covers(m, ranges, 20);
    uint64_t all = plan_stage_bytes(m, (struct layer_range){0, 80});
    assert_true(all > UINT64_C(69) << 30);
    assert_true(largest_stage(m, ranges, 20) < all / 16);
    model_close(m);
    make_gguf_end(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cut_has_a_smaller_largest_stage),
        cmocka_unit_test(equal_cuts_give_early_stages_what_fits),
        cmocka_unit_test(a_large_output_head_leaves_its_stage_few_layers),
        cmocka_unit_test(more_stages_than_layers_is_an_error_that_says_the_limit),
        cmocka_unit_test(cuts_by_hand_are_taken_or_refused),
        cmocka_unit_test(a_very_large_model_is_planned_without_touching_its_data),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
