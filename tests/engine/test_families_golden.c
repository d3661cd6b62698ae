/* Every family: scores and greedy text against the references, and the bitwise promise through
 * every way of cutting a line, in every KV format and instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/golden.h"
#include "tests/engine/same_bits.h"
#include "tests/test_data.h"

static enum isa best_isa;

static const char *const models[] = {
    "llama",
    "llama-tied",
    "llama-yarn",
    "llama-linear",
    "llama-rope-freqs",
    "llama-moe",
    "mistral",
    "gpt2",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "phi2",
    "phi3",
    "phi3-longrope",
    "gemma",
    "gemma2",
    "gemma3",
    "gptneox",
    "gptneox-seq",
    "starcoder2",
    "falcon",
    "falcon-40b",
    "stablelm",
    "stablelm-12b",
    "nemotron",
    "bloom",
    "mpt",
    "command-r",
    "cohere2",
    "olmo2",
    "olmo3",
    "olmoe",
    "exaone",
    "exaone4",
    "granite",
    "granitemoe",
    "minicpm",
    "internlm2",
    "smollm3",
    "glm4",
    "deepseek2",
    "deepseek2-lite",
    "gpt-oss",
    "lfm2",
};
enum { MODEL_COUNT = sizeof models / sizeof models[0] };

/* The path of a family's file; NULL, and a word about it, where it is absent. */
static const char *find(const char *model, const char *suffix)
{
    char name[96];
    snprintf(name, sizeof name, "families/%s.%s", model, suffix);
    const char *path = test_data_path(name);
    if (path == NULL) print_message("skipped: %s is absent (TANDEM_TEST_DATA)\n", name);
    return path;
}

/* ---- references ---- */

static void check_goldens(const struct model *m, const json_t *golden, const float *scores,
                          const char *name)
{
    const json_t *more = json_object_get(golden, "ctx512");
    for (int isa = 0; isa <= (int)best_isa; isa++) {
        struct line_way way = {.kv = KV_F32, .isa = (enum isa)isa};
        way.n_ctx = (uint32_t)json_integer_value(json_object_get(golden, "n_ctx"));
        check_prompt(m, golden, way, scores, name);
        check_prompt(m, json_object_get(golden, "long"), way, NULL, name);
        if (more == NULL) continue;
        way.n_ctx = (uint32_t)json_integer_value(json_object_get(more, "n_ctx"));
        check_prompt(m, more, way, NULL, name);
    }
}

static void scores_and_greedy_text_match_the_goldens(void **state)
{
    (void)state;
    uint32_t checked = 0;
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        const char *model_path = find(models[i], "gguf"), *json_path = find(models[i], "json"),
                   *scores_path = find(models[i], "logits.f32");
        if (model_path == NULL || json_path == NULL || scores_path == NULL) continue;
        struct model *m = open_model(model_path);
        json_t *golden = read_json(json_path);
        float *scores = read_scores(scores_path, 32 * (size_t)m->hp.n_vocab);
        golden_worst = 0;
        check_goldens(m, golden, scores, models[i]);
        print_message("%-16s within %.1e\n", models[i], golden_worst);
        free(scores);
        json_decref(golden);
        model_close(m);
        checked++;
    }
    if (checked == 0) skip();
}

/* ---- the bitwise promise ---- */

static const struct line_way ways[] = {
    {.chunk = 1},
    {.chunk = 7, .threads = 2},
    {.chunk = 64, .beside = true},
    {.beside = true, .chunk = 5, .threads = 2, .shuffled = true},
    {.stages = 2, .chunk = 64, .shuffled = true},
    {.stages = 3, .threads = 2},
    {.stages = 4, .chunk = 7, .beside = true},
};

static void check_ways(const struct model *m, enum isa isa, enum kv_format kv, uint32_t n,
                       const char *name)
{
    const struct ways all = {{.isa = isa, .kv = kv}, ways, sizeof ways / sizeof *ways};
    check_promise(m, &all, n, name);
}

static void every_way_through_the_line_gives_the_same_bits(void **state)
{
    (void)state;
    uint32_t checked = 0;
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        const char *path = find(models[i], "gguf");
        if (path == NULL) continue;
        struct model *m = open_model(path);
        for (int isa = 0; isa <= (int)best_isa; isa++)
            for (int kv = 0; kv < KV_FORMAT_COUNT; kv++)
                check_ways(m, (enum isa)isa, (enum kv_format)kv, 80, models[i]);
        model_close(m);
        checked++;
    }
    if (checked == 0) skip();
}

static void windows_and_biases_hold_across_the_edge_of_a_tile(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma2", "olmo3", "gpt-oss", "mpt", "deepseek2", "lfm2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = find(names[i], "gguf");
        if (path == NULL) continue;
        struct model *m = open_model(path);
        check_ways(m, best_isa, KV_F16, 300, names[i]);
        model_close(m);
    }
}

/* What a narrower cache changes, as a share of the scores' own spread. */
static void a_narrow_cache_changes_the_scores_little(void **state)
{
    (void)state;
    enum { N = 80 };
    static const double share_max[KV_FORMAT_COUNT] = {[KV_F16] = 0.03, [KV_Q8_0] = 0.2};
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        const char *path = find(models[i], "gguf");
        if (path == NULL) continue;
        struct model *m = open_model(path);
        int32_t ids[N];
        size_t values = (size_t)N * m->hp.n_vocab;
        float *want = line_take(values), *got = line_take(values);
        make_prompt(ids, N, m->hp.n_vocab);
        score_alone(m, (struct line_way){.isa = best_isa, .kv = KV_F32}, ids, N, want);
        for (int kv = 0; kv < KV_FORMAT_COUNT; kv++) {
            double apart = 0, sum = 0, squares = 0;
            if (kv == KV_F32) continue;
            score_alone(m, (struct line_way){.isa = best_isa, .kv = (enum kv_format)kv}, ids, N,
                        got);
            for (size_t j = 0; j < values; j++) {
                apart += ((double)got[j] - want[j]) * ((double)got[j] - want[j]);
                sum += want[j];
                squares += (double)want[j] * want[j];
            }
            double n = (double)values, share = sqrt(apart / (squares - sum * sum / n));
            print_message("%s, %s: %.5f\n", models[i], kv_names[kv], share);
            assert_true(share > 0 && share < share_max[kv]);
        }
        free(got);
        free(want);
        model_close(m);
    }
}

/* A sequence that loses its end and goes on otherwise knows nothing of what it lost. */
static void a_trimmed_sequence_goes_on_like_a_new_one(void **state)
{
    (void)state;
    enum { FIRST = 70, KEPT = KV_BLOCK_POSITIONS, REST = 20 };
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        const char *path = find(models[i], "gguf");
        if (path == NULL) continue;
        struct model *m = open_model(path);
        uint32_t n_vocab = m->hp.n_vocab;
        int32_t ids[FIRST], other[KEPT + REST];
        make_prompt(ids, FIRST, n_vocab);
        make_prompt(other, KEPT + REST, n_vocab);
        for (uint32_t j = KEPT; j < KEPT + REST; j++) other[j] = (other[j] + 11) % (int32_t)n_vocab;
        float *want = line_take((size_t)FIRST * n_vocab), *got = line_take((size_t)FIRST * n_vocab);
        struct line_way way = {.isa = best_isa, .kv = KV_F16, .stages = 2, .chunk = 9};
        score_alone(m, way, other, KEPT + REST, want);
        struct line l;
        line_open(&l, m, way);
        line_score(&l, ids, 0, FIRST, got);
        line_trim(&l, 1, KEPT / KV_BLOCK_POSITIONS);
        line_score(&l, other + KEPT, KEPT, REST, got);
        line_close(&l);
        assert_same_rows(got, want + (size_t)KEPT * n_vocab, REST, n_vocab, models[i]);
        free(got);
        free(want);
        model_close(m);
    }
}

/* ---- what a stage takes ---- */

static void a_stage_takes_what_the_footprint_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        const char *path = find(models[i], "gguf");
        if (path == NULL) continue;
        struct model *m = open_model(path);
        uint32_t n = m->hp.n_layer;
        const struct layer_range ranges[] = {{0, n}, {0, 1}, {1, n}, {n - 1, n}};
        for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++) {
            struct stage_config config = {.model = m,
                                          .range = ranges[r],
                                          .limits = {.n_ctx = 64,
                                                     .n_seqs = 2,
                                                     .n_blocks = {4, 4, 4},
                                                     .rows_max = 8,
                                                     .wanted_max = 4,
                                                     .credits = 1,
                                                     .kv = KV_F16},
                                          .threads = 1};
            struct stage *st;
            struct err err;
            if (stage_open(&st, &config, &err) != ERR_NONE) fail_msg("%s: %s", models[i], err.text);
            struct footprint want = model_footprint(m, ranges[r], &config.limits);
            struct footprint used = stage_usage(st);
            assert_int_equal(used.weights, want.weights);
            assert_int_equal(used.kv, want.kv);
            assert_int_equal(used.buffers, want.buffers);
            stage_close(st);
        }
        model_close(m);
    }
}

int main(void)
{
    struct err err;
    if (isa_detect(&best_isa, &err) != ERR_NONE) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_and_greedy_text_match_the_goldens),
        cmocka_unit_test(a_narrow_cache_changes_the_scores_little),
        cmocka_unit_test(every_way_through_the_line_gives_the_same_bits),
        cmocka_unit_test(windows_and_biases_hold_across_the_edge_of_a_tile),
        cmocka_unit_test(a_trimmed_sequence_goes_on_like_a_new_one),
        cmocka_unit_test(a_stage_takes_what_the_footprint_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
