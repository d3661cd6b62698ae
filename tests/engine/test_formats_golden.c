/* Every number format in a whole model: what quantised activations cost against the same weights in
 * F32, and the bitwise promise through other ways of cutting a line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/kernels/kernels.h"
#include "tests/engine/golden.h"
#include "tests/engine/random_blocks.h"
#include "tests/engine/recast.h"
#include "tests/engine/same_bits.h"
#include "tests/test_data.h"

static enum isa best_isa;

/* ---- a model with other matrices ---- */

static void expand(struct gguf_tensor *t, uint32_t format, uint8_t *data)
{
    format_find(t->format)->decode(t->data, (float *)(void *)data, recast_values(t));
    t->format = format;
}

/* Random blocks, whose values are small enough that nothing overflows on the way. */
static void randomise(struct gguf_tensor *t, uint32_t format, uint8_t *data)
{
    static uint64_t state = 1;
    const struct format *f = format_find(format);
    t->format = format;
    for (size_t i = 0; i < recast_values(t); i += f->block_values, data += f->block_bytes) {
        for (size_t j = 0; j < f->block_bytes; j++) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            data[j] = (uint8_t)(state >> 40);
        }
        block_scale_to(f, data, 0.2F);
    }
}

/* ---- accuracy ---- */

/* Scores of the file, in every instruction set, against those of its weights expanded to F32, and
 * these against the reference. */
static void check_type(const char *path, const int32_t *ids, uint32_t n, const json_t *type)
{
    struct model *m = open_model(path);
    size_t values = (size_t)n * m->hp.n_vocab;
    float *want = line_take(values), *got = line_take(values);
    struct recast expanded = recast_new(m, expand, FORMAT_F32);
    score_alone(&expanded.model, (struct line_way){.kv = KV_F32, .isa = best_isa}, ids, n, want);
    recast_free(&expanded);
    check_record(json_object_get(type, "dequant_f32"), want, m->hp.n_vocab, path);
    double limit = 1.1 * json_number_value(json_object_get(json_object_get(type, "diff"),
                                                           "stock_vs_dequant_rms"));
    for (int isa = 0; isa <= (int)best_isa; isa++) {
        score_alone(m, (struct line_way){.kv = KV_F32, .isa = (enum isa)isa}, ids, n, got);
        double sum = 0;
        for (size_t i = 0; i < values; i++) sum += pow((double)got[i] - want[i], 2);
        double rms = sqrt(sum / (double)values);
        print_message("%s %s: rms %.3g, limit %.3g\n", strrchr(path, '/') + 1,
                      isa_name((enum isa)isa), rms, limit);
        assert_true(limit > 0 && rms <= limit);
    }
    free(got);
    free(want);
    model_close(m);
}

static void quantised_activations_cost_no_more_than_the_reference_s(void **state)
{
    (void)state;
    static const char *const names[] = {"q-llama", "q-gpt2", "gpt-oss-MXFP4_MOE", "llama-moe-Q8_0",
                                        "deepseek2-Q8_0"};
    uint32_t checked = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[128];
        snprintf(file, sizeof file, "families-quantised/%s.json", names[i]);
        SKIP_WITHOUT(json_path, file);
        json_t *golden = read_json(json_path), *type;
        const char *key;
        int32_t ids[64];
        uint32_t n = read_ids(json_object_get(golden, "prompt"), ids, 64);
        json_object_foreach(json_object_get(golden, "types"), key, type)
        {
            snprintf(file, sizeof file, "families-quantised/%s",
                     json_string_value(json_object_get(type, "model")));
            SKIP_WITHOUT(path, file);
            check_type(path, ids, n, type);
            checked++;
        }
        json_decref(golden);
    }
    assert_true(checked >= 20);
}

/* ---- the bitwise promise ---- */

static const struct line_way ways[] = {
    {.chunk = 1},
    {.chunk = 7, .beside = true, .threads = 2},
    {.stages = 2, .chunk = 5, .shuffled = true},
};

static void every_number_format_gives_the_same_bits_through_every_line(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families-quantised/q-llama-F32.gguf");
    struct model *m = open_model(path);
    for (uint32_t id = 0; id < 64; id++) {
        const struct format *f = format_find(id);
        if (f == NULL || !f->runs || f->block_values == 1) continue;
        struct kernels table;
        kernels_init(&table, best_isa);
        /* What is decoded on the way multiplies like F32, and takes its time. */
        bool everywhere = kernels_find_format(&table, id)->reads_q8;
        struct recast r = recast_new(m, randomise, id);
        for (int isa = everywhere ? 0 : (int)best_isa; isa <= (int)best_isa; isa++) {
            const struct ways all = {{.isa = (enum isa)isa}, ways, sizeof ways / sizeof *ways};
            check_promise(&r.model, &all, 16, f->name);
        }
        recast_free(&r);
    }
    model_close(m);
}

int main(void)
{
    struct err err;
    if (isa_detect(&best_isa, &err) != ERR_NONE) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_activations_cost_no_more_than_the_reference_s),
        cmocka_unit_test(every_number_format_gives_the_same_bits_through_every_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
