/* test_quantise - the quantisers against their decoders, and against files of the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/gguf.h"
#include "engine/quant_formats.h"
#include "tests/test_data.h"
#include "worker/quantise.h"

#include <math.h>
#include <stdlib.h>

enum { N = 4096 };

/* Sum of four uniform numbers, near normal with a standard deviation of about 1. */
static float near_normal(uint64_t *state)
{
    float sum = -2;
    for (int i = 0; i < 4; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (float)(*state >> 40) * 0x1p-24f;
    }
    return sum * 1.7320508f;
}

static void fill_normal(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) x[i] = near_normal(&seed);
}

/* there_and_back() - decode(quantise(x)). */
static void there_and_back(uint32_t format, const float *x, float *y, size_t n)
{
    const struct format *f = format_find(format);
    uint8_t *bytes = malloc(format_row_bytes(f, n));
    assert_non_null(bytes);
    assert_non_null(quantise_find(format));
    quantise_find(format)(x, bytes, n);
    f->decode(bytes, y, n);
    free(bytes);
}

static double rms_of_difference(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sqrt(sum / (double)n);
}

static const struct bound {
    uint32_t format;
    double rms; /* of the error, for values of rms 1 */
} bounds[] = {
    {FORMAT_F32, 0},       {FORMAT_F16, 3e-4},    {FORMAT_BF16, 2.4e-3}, {FORMAT_Q8_0, 5.5e-3},
    {FORMAT_Q4_0, 8.7e-2}, {FORMAT_Q4_K, 6.9e-2}, {FORMAT_Q6_K, 1.9e-2},
};
enum { BOUNDS = sizeof bounds / sizeof bounds[0] };

static void every_format_comes_back_within_its_bound(void **state)
{
    (void)state;
    float x[N], y[N];
    fill_normal(x, N, 1);
    for (size_t i = 0; i < BOUNDS; i++) {
        there_and_back(bounds[i].format, x, y, N);
        const double rms = rms_of_difference(x, y, N);
        if (rms > bounds[i].rms || (rms == 0) != (bounds[i].rms == 0))
            fail_msg("%s: rms error %g, want at most %g", format_find(bounds[i].format)->name, rms,
                     bounds[i].rms);
    }
}

static void sixteen_times_the_values_give_sixteen_times_the_result(void **state)
{
    (void)state;
    float x[N], y[N], scaled[N], z[N];
    fill_normal(x, N, 2);
    for (size_t i = 0; i < N; i++) scaled[i] = x[i] * 16;
    for (size_t f = 0; f < BOUNDS; f++) {
        there_and_back(bounds[f].format, x, y, N);
        there_and_back(bounds[f].format, scaled, z, N);
        for (size_t i = 0; i < N; i++) assert_true(z[i] == 16 * y[i]);
    }
}

/* Blocks where a scale is zero, negative, or belongs to one value. */
static void odd_blocks_come_back(void **state)
{
    (void)state;
    enum { ZEROS, SAME, NEGATIVE, OUTLIER, TINY, TWO_EXTREMES, CASES };
    float x[256], y[256];
    for (int kind = 0; kind < CASES; kind++) {
        for (int i = 0; i < 256; i++)
            x[i] = kind == ZEROS      ? 0.0f
                   : kind == SAME     ? 0.75f
                   : kind == NEGATIVE ? -1.0f - (float)(i % 16) / 16
                   : kind == OUTLIER  ? (i == 77 ? 100.0f : 0.0f)
                   : kind == TINY     ? 1e-42f * (float)(i - 128)
                                      : (i % 2 == 0 ? 3.0f : -3.0f);
        for (size_t f = 0; f < BOUNDS; f++) {
            there_and_back(bounds[f].format, x, y, 256);
            /* Four bits have -8 .. 7: what mirrors the largest is a seventh off at most. */
            const float largest = kind == OUTLIER ? 100 : kind == TINY ? 1e-6f : 3;
            for (int i = 0; i < 256; i++) {
                assert_true(isfinite(y[i]));
                if (fabsf(x[i] - y[i]) > largest / 7)
                    fail_msg("%s, kind %d, value %d: %g became %g",
                             format_find(bounds[f].format)->name, kind, i, (double)x[i],
                             (double)y[i]);
            }
        }
    }
}

static void a_block_does_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    float x[N];
    fill_normal(x, N, 3);
    for (size_t f = 0; f < BOUNDS; f++) {
        const struct format *format = format_find(bounds[f].format);
        quantise_fn *quantise = quantise_find(format->id);
        uint8_t whole[4 * N], one[4 * 256];
        quantise(x, whole, N);
        for (size_t i = 0; i < N; i += 256) {
            quantise(x + i, one, 256);
            assert_memory_equal(one, whole + format_row_bytes(format, i),
                                format_row_bytes(format, 256));
        }
    }
}

static void formats_without_a_quantiser_are_known(void **state)
{
    (void)state;
    assert_null(quantise_find(FORMAT_Q2_K));
    assert_null(quantise_find(12345));
}

/* ---- against the reference ---- */

struct pair {
    const float *source;
    const struct gguf_tensor *quantised;
    size_t n;
};

static struct pair find_pair(const struct gguf *g, const char *source, const char *quantised)
{
    const struct gguf_tensor *s = gguf_find_tensor(g, source), *q = gguf_find_tensor(g, quantised);
    assert_non_null(s);
    assert_non_null(q);
    assert_int_equal(s->format, FORMAT_F32);
    return (struct pair){(const float *)(const void *)s->data, q, s->shape[0] * s->shape[1]};
}

/* same_bytes() - of ordinary values. Of the extreme ones the same values are enough: where a scale
 * rounds to 0, what stands beside it does not matter. */
static void same_bytes(const char *name)
{
    SKIP_WITHOUT(path, name);
    struct gguf *g;
    struct err err;
    assert_int_equal(gguf_open(&g, path, &err), ERR_NONE);
    const struct pair p = find_pair(g, "x_src", "x"), edge = find_pair(g, "edge_src", "edge");
    uint8_t *bytes = malloc(p.quantised->bytes);
    float *ours = malloc(edge.n * sizeof *ours), *theirs = malloc(edge.n * sizeof *theirs);
    assert_true(bytes != NULL && ours != NULL && theirs != NULL);
    quantise_find(p.quantised->format)(p.source, bytes, p.n);
    assert_memory_equal(bytes, p.quantised->data, p.quantised->bytes);
    there_and_back(edge.quantised->format, edge.source, ours, edge.n);
    format_find(edge.quantised->format)->decode(edge.quantised->data, theirs, edge.n);
    for (size_t i = 0; i < edge.n; i++)
        if (ours[i] != theirs[i] && !(isnan(ours[i]) && isnan(theirs[i])))
            fail_msg("%s: edge %zu: %g became %g, want %g", name, i, (double)edge.source[i],
                     (double)ours[i], (double)theirs[i]);
    free(bytes);
    free(ours);
    free(theirs);
    gguf_close(g);
}

static void f16_has_the_references_bytes(void **state)
{
    (void)state;
    same_bytes("quants/F16.gguf");
}

static void bf16_has_the_references_bytes(void **state)
{
    (void)state;
    same_bytes("quants/BF16.gguf");
}

static void q8_0_has_the_references_bytes(void **state)
{
    (void)state;
    same_bytes("quants/Q8_0.gguf");
}

static void q4_0_has_the_references_bytes(void **state)
{
    (void)state;
    same_bytes("quants/Q4_0.gguf");
}

/* as_good() - on the same values, the error is at most so much larger than the reference's. */
static void as_good(const char *name)
{
    SKIP_WITHOUT(path, name);
    struct gguf *g;
    struct err err;
    assert_int_equal(gguf_open(&g, path, &err), ERR_NONE);
    const struct pair p = find_pair(g, "x_src", "x");
    float *theirs = malloc(p.n * sizeof *theirs), *ours = malloc(p.n * sizeof *ours);
    assert_non_null(theirs);
    assert_non_null(ours);
    format_find(p.quantised->format)->decode(p.quantised->data, theirs, p.n);
    there_and_back(p.quantised->format, p.source, ours, p.n);
    const double want = rms_of_difference(p.source, theirs, p.n);
    const double got = rms_of_difference(p.source, ours, p.n);
    print_message("%s: rms error %.5g, the reference's %.5g\n", name, got, want);
    assert_true(got <= 1.05 * want);
    free(theirs);
    free(ours);
    gguf_close(g);
}

static void q4_k_is_as_good_as_the_references(void **state)
{
    (void)state;
    as_good("quants/Q4_K.gguf");
}

static void q6_k_is_as_good_as_the_references(void **state)
{
    (void)state;
    as_good("quants/Q6_K.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_comes_back_within_its_bound),
        cmocka_unit_test(sixteen_times_the_values_give_sixteen_times_the_result),
        cmocka_unit_test(odd_blocks_come_back),
        cmocka_unit_test(a_block_does_not_depend_on_its_neighbours),
        cmocka_unit_test(formats_without_a_quantiser_are_known),
        cmocka_unit_test(f16_has_the_references_bytes),
        cmocka_unit_test(bf16_has_the_references_bytes),
        cmocka_unit_test(q8_0_has_the_references_bytes),
        cmocka_unit_test(q4_0_has_the_references_bytes),
        cmocka_unit_test(q4_k_is_as_good_as_the_references),
        cmocka_unit_test(q6_k_is_as_good_as_the_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
