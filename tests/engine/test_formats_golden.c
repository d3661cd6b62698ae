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
#include "tests/engine/stage_line.h"
#include "tests/test_data.h"

#include <sys/mman.h>
#include <unistd.h>

static enum isa best_isa;

/* ---- a model with other matrices ---- */

/* The tensors of a model, some of them replaced. Their data lies in a mapped file, as tensor data
 * must. */
struct recast {
    struct model model; /* shares everything but tensors with the original */
    struct gguf_tensor *tensors;
    uint8_t *map;
    size_t bytes;
};

/* Gives a tensor new data and, perhaps, another number format; at most 4 bytes a value. */
typedef void recast_fn(struct gguf_tensor *t, uint32_t format, uint8_t *data);

static size_t values_of(const struct gguf_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

static struct recast recast_new(const struct model *m, recast_fn *recast, uint32_t format)
{
    size_t slots = (1 + (size_t)m->hp.n_layer) * TENSOR_COUNT;
    struct recast r = {.model = *m, .tensors = calloc(slots, sizeof *r.tensors)};
    const struct gguf_tensor **pointers = calloc(slots, sizeof *pointers);
    assert_non_null(r.tensors);
    assert_non_null(pointers);
    r.model.tensors = pointers;
    for (size_t i = 0; i < slots; i++)
        if (m->tensors[i] != NULL) r.bytes += values_of(m->tensors[i]) * sizeof(float) + 64;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)r.bytes), 0);
    r.map = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    assert_ptr_not_equal(r.map, MAP_FAILED);
    fclose(file);
    uint8_t *at = r.map;
    for (size_t i = 0; i < slots; i++) {
        if (m->tensors[i] == NULL) continue;
        struct gguf_tensor *t = &r.tensors[i];
        *t = *m->tensors[i];
        pointers[i] = t;
        if (t->n_dims < 2) continue;
        recast(t, format, at);
        t->data = at;
        t->bytes = format_row_bytes(format_find(t->format), values_of(t));
        at += (t->bytes + 63) / 64 * 64;
    }
    return r;
}

static void recast_free(struct recast *r)
{
    munmap(r->map, r->bytes);
    free(r->model.tensors);
    free(r->tensors);
}

static void expand(struct gguf_tensor *t, uint32_t format, uint8_t *data)
{
    format_find(t->format)->decode(t->data, (float *)(void *)data, values_of(t));
    t->format = format;
}

/* Random blocks, whose values are small enough that nothing overflows on the way. */
static void randomise(struct gguf_tensor *t, uint32_t format, uint8_t *data)
{
    static uint64_t state = 1;
    const struct format *f = format_find(format);
    t->format = format;
    for (size_t i = 0; i < values_of(t); i += f->block_values, data += f->block_bytes) {
        for (size_t j = 0; j < f->block_bytes; j++) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            data[j] = (uint8_t)(state >> 40);
        }
        block_scale_to(f, data, 0.2F);
    }
}

static void score_alone(const struct model *m, struct line_way way, const int32_t *ids, uint32_t n,
                        float *out)
{
    struct line l;
    line_open(&l, m, way);
    line_score(&l, ids, 0, n, out);
    line_close(&l);
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

static void check_promise(const struct model *m, enum isa isa, const char *format)
{
    enum { ROWS = 16 };
    size_t values = (size_t)ROWS * m->hp.n_vocab;
    float *want = line_take(values), *got = line_take(values);
    int32_t ids[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) ids[i] = (int32_t)((i * 37 + 3) % m->hp.n_vocab);
    score_alone(m, (struct line_way){.isa = isa}, ids, ROWS, want);
    for (size_t i = 0; i < values; i++) assert_true(isfinite(want[i]) != 0);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct line_way way = ways[w];
        way.isa = isa;
        memset(got, 0, values * sizeof *got);
        score_alone(m, way, ids, ROWS, got);
        for (size_t i = 0; i < values; i++)
            if (memcmp(&got[i], &want[i], sizeof *got) != 0)
                fail_msg("%s, %s: way %zu differs first at row %zu: %.9g for %.9g", format,
                         isa_name(isa), w, i / m->hp.n_vocab, (double)got[i], (double)want[i]);
    }
    free(got);
    free(want);
}

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
        for (int isa = everywhere ? 0 : (int)best_isa; isa <= (int)best_isa; isa++)
            check_promise(&r.model, (enum isa)isa, f->name);
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
