/* test_matmul_blas - products by OpenBLAS against the plain kernels, and against themselves however
 * threads share the panels. */
#include "engine/kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 11;

static float random_value(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (float)(int32_t)(random_state >> 32) / 2147483648.0F;
}

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    return memory;
}

/* Random weights in the file's format, packed. */
static uint8_t *pack_random(const struct format_kernels *k, size_t n_in, size_t n_out)
{
    const size_t value_bytes = format_row_bytes(format_find(k->format), n_in) / n_in;
    const size_t panel_bytes = PANEL_ROWS * value_bytes * n_in;
    uint8_t *rows = take(PANEL_ROWS * panel_bytes),
            *panels = take(panels_count(n_out) * panel_bytes);
    for (size_t first = 0; first < n_out; first += PANEL_ROWS) {
        const size_t n = n_out - first < PANEL_ROWS ? n_out - first : PANEL_ROWS;
        for (size_t i = 0; i < n * n_in; i++) {
            const float value = random_value();
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            const uint16_t half =
                k->format == FORMAT_BF16 ? (uint16_t)(bits >> 16) : f32_to_f16(value);
            if (value_bytes == 4)
                memcpy(rows + i * 4, &value, 4);
            else
                memcpy(rows + i * 2, &half, 2);
        }
        k->pack(rows, n, n_in, panels + first / PANEL_ROWS * panel_bytes);
    }
    free(rows);
    return panels;
}

struct product_case {
    size_t n_in, n_out, n_rows;
};

/* Depths around a square's, odd ones, panels that are not full, groups that are not. */
static const struct product_case cases[] = {{1, 1, 1},     {3, 17, 2},     {256, 128, 1},
                                            {257, 129, 7}, {511, 300, 5},  {512, 256, 33},
                                            {640, 1, 3},   {1000, 777, 61}};

static void check_format(size_t format, const struct product_case *c)
{
    struct kernels plain, blas;
    kernels_init(&plain, ISA_GENERIC);
    kernels_init(&blas, ISA_GENERIC);
    kernels_choose_matmul(&blas, MATMUL_BLAS);
    const struct panels w = {.data = pack_random(&plain.format[format], c->n_in, c->n_out),
                             .n_in = c->n_in,
                             .n_out = c->n_out};
    const size_t n = panels_count(c->n_out), stride = c->n_out + 3;
    float *x = take(c->n_rows * c->n_in * sizeof *x);
    float *want = take(c->n_rows * stride * sizeof *want),
          *got = take(c->n_rows * stride * sizeof *got);
    float *parts = take(c->n_rows * stride * sizeof *parts);
    for (size_t i = 0; i < c->n_rows * c->n_in; i++) x[i] = random_value();
    for (size_t i = 0; i < c->n_rows * stride; i++) got[i] = parts[i] = -77;
    const struct activations in = {.f32 = x};
    plain.format[format].matmul(&w, 0, n, &in, c->n_rows, want, stride);
    blas.format[format].matmul(&w, 0, n, &in, c->n_rows, got, stride);
    for (size_t from = 0; from < n; from += blas.share_panels)
        blas.format[format].matmul(&w, from,
                                   n - from < blas.share_panels ? n : from + blas.share_panels, &in,
                                   c->n_rows, parts, stride);
    assert_memory_equal(got, parts, c->n_rows * stride * sizeof *got);
    for (size_t r = 0; r < c->n_rows; r++)
        for (size_t i = 0; i < stride; i++) {
            const float g = got[r * stride + i];
            if (i >= c->n_out)
                assert_true(g == -77);
            else if (!(fabsf(g - want[r * stride + i]) <= 1e-6F * (float)c->n_in))
                fail_msg("format %zu, %zu in, row %zu, output %zu: %g, want %g", format, c->n_in, r,
                         i, (double)g, (double)want[r * stride + i]);
        }
    free((void *)(uintptr_t)w.data);
    free(x);
    free(want);
    free(got);
    free(parts);
}

static void products_agree_with_the_plain_kernels_and_with_their_parts(void **state)
{
    (void)state;
    static const size_t formats[] = {KERNEL_FORMAT_F32, KERNEL_FORMAT_F16, KERNEL_FORMAT_BF16};
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            check_format(formats[f], &cases[i]);
}

static void a_choice_depends_on_instruction_set_and_format_alone(void **state)
{
    (void)state;
    static const enum isa isas[] = {ISA_GENERIC, ISA_AVX2, ISA_AVX512, ISA_AMX};
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        struct kernels packed, blas, automatic;
        kernels_init(&packed, isas[i]);
        blas = automatic = packed;
        kernels_choose_matmul(&packed, MATMUL_PACKED);
        kernels_choose_matmul(&blas, MATMUL_BLAS);
        kernels_choose_matmul(&automatic, MATMUL_AUTO);
        assert_ptr_not_equal(packed.format[KERNEL_FORMAT_F16].matmul,
                             blas.format[KERNEL_FORMAT_F16].matmul);
        assert_ptr_equal(packed.format[KERNEL_FORMAT_Q8_0].matmul,
                         blas.format[KERNEL_FORMAT_Q8_0].matmul);
        assert_int_equal(blas.bite_panels % blas.share_panels, 0);
        const struct kernels *want = isas[i] == ISA_GENERIC ? &blas : &packed;
        assert_ptr_equal(automatic.format[KERNEL_FORMAT_F32].matmul,
                         want->format[KERNEL_FORMAT_F32].matmul);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_the_plain_kernels_and_with_their_parts),
        cmocka_unit_test(a_choice_depends_on_instruction_set_and_format_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
