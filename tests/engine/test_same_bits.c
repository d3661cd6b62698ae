/* test_same_bits - a row has the same bits alone, among 16 and among 512, by one thread and by two:
 * for each kind of model, in each instruction set that this CPU has.
 *
 * Kernels have other paths for one row, for a few and for many; these are the sizes that reach all
 * of them. Ways that cut a line otherwise: test_stage, test_families_golden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/golden.h"
#include "tests/engine/recast.h"
#include "tests/engine/same_bits.h"
#include "tests/test_data.h"

enum { ROWS = 512, ROWS_BLAS = 192 };

static enum isa best_isa;

static const char dense[] = "families/llama.gguf";
static const char experts[] = "families/qwen3moe.gguf";
static const char windows[] = "families/gemma2.gguf";
static const char latent[] = "families/deepseek2-lite.gguf";

/* ---- our own kernels: all are compared with 512 rows by one thread ---- */

static const struct line_way by_rows[] = {
    {.chunk = 512, .threads = 2}, {.chunk = 16, .threads = 1}, {.chunk = 16, .threads = 2},
    {.chunk = 1, .threads = 1},   {.chunk = 1, .threads = 2},
};

static void check_rows(const struct model *m, const char *what)
{
    for (int isa = 0; isa <= (int)best_isa; isa++) {
        const struct ways ways = {{.chunk = ROWS, .threads = 1, .isa = (enum isa)isa},
                                  by_rows,
                                  sizeof by_rows / sizeof by_rows[0]};
        check_promise(m, &ways, ROWS, what);
    }
}

/* check_formats() - the model of a file as it is, in F32, and in other formats. */
static void check_formats(const char *path, const uint32_t *formats, size_t n_formats)
{
    struct model *m = open_model(path);
    check_rows(m, "F32");
    for (size_t i = 0; i < n_formats; i++) {
        struct recast r = recast_new(m, round_to, formats[i]);
        check_rows(&r.model, format_find(formats[i])->name);
        recast_free(&r);
    }
    model_close(m);
}

static void batches_of_1_16_and_512_rows_and_1_and_2_threads_agree_in_a_dense_model(void **state)
{
    (void)state;
    static const uint32_t formats[] = {FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_F16, FORMAT_BF16};
    SKIP_WITHOUT(path, dense);
    check_formats(path, formats, sizeof formats / sizeof formats[0]);
}

static const uint32_t blocks[] = {FORMAT_Q8_0};

static void they_agree_in_a_model_of_experts(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, experts);
    check_formats(path, blocks, 1);
}

static void they_agree_in_a_model_with_sliding_windows(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, windows);
    check_formats(path, blocks, 1);
}

static void they_agree_in_a_model_with_latent_attention(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, latent);
    check_formats(path, blocks, 1);
}

/* ---- OpenBLAS, whose sums depend on the rows of a batch: these are the same here ---- */

static const struct line_way by_stages[] = {
    {.chunk = 64, .matmul = MATMUL_BLAS, .threads = 2},
    {.chunk = 64, .matmul = MATMUL_BLAS, .threads = 3},
    {.chunk = 64, .matmul = MATMUL_BLAS, .stages = 2},
    {.chunk = 64, .matmul = MATMUL_BLAS, .stages = 3, .threads = 2},
    {.chunk = 64, .matmul = MATMUL_BLAS, .stages = 4},
};

/* differs_from_packed() - our own sums have another order, in some models. */
static bool differs_from_packed(const struct model *m, enum isa isa)
{
    int32_t ids[ROWS_BLAS];
    const size_t values = (size_t)ROWS_BLAS * m->hp.n_vocab;
    float *blas = line_take(values), *packed = line_take(values);
    struct line_way way = {.chunk = 64, .isa = isa};
    make_prompt(ids, ROWS_BLAS, m->hp.n_vocab);
    score_alone(m, way, ids, ROWS_BLAS, packed);
    way.matmul = MATMUL_BLAS;
    score_alone(m, way, ids, ROWS_BLAS, blas);
    const bool differs = memcmp(packed, blas, values * sizeof *blas) != 0;
    free(packed);
    free(blas);
    return differs;
}

static void with_openblas_any_number_of_stages_and_threads_agrees(void **state)
{
    (void)state;
    static const char *const files[] = {dense, experts, windows, latent};
    bool took_part = false;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        SKIP_WITHOUT(path, files[i]);
        struct model *m = open_model(path);
        for (int isa = 0; isa <= (int)best_isa; isa++) {
            const struct ways ways = {
                {.chunk = 64, .matmul = MATMUL_BLAS, .isa = (enum isa)isa},
                by_stages,
                sizeof by_stages / sizeof by_stages[0],
            };
            check_promise(m, &ways, ROWS_BLAS, files[i]);
            took_part |= differs_from_packed(m, (enum isa)isa);
        }
        model_close(m);
    }
    assert_true(took_part);
}

int main(void)
{
    struct err err;
    if (isa_detect(&best_isa, &err) != ERR_NONE) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_of_1_16_and_512_rows_and_1_and_2_threads_agree_in_a_dense_model),
        cmocka_unit_test(they_agree_in_a_model_of_experts),
        cmocka_unit_test(they_agree_in_a_model_with_sliding_windows),
        cmocka_unit_test(they_agree_in_a_model_with_latent_attention),
        cmocka_unit_test(with_openblas_any_number_of_stages_and_threads_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
