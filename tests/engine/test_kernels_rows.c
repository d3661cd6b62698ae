/* Kernels of rows: quantising, activations, norms, rotation, the cache's number formats. Every
 * instruction set that this CPU has against formulas in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/fmath.h"
#include "tests/engine/kernel_tables.h"

static void quantising_rounds_to_nearest_within_half_a_step(void **state)
{
    (void)state;
    static const float magnitudes[] = {1, 1e-3F, 1e4F, 1e30F, 1e-20F, 1e-36F, 0};
    enum { BLOCKS = 5, N = BLOCKS * QUANT_BLOCK };
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t m = 0; m < sizeof magnitudes / sizeof *magnitudes; m++) {
            float *x = random_floats(N);
            int8_t *q = take(N), *plain_q = take(N);
            float scale[BLOCKS], plain_scale[BLOCKS];
            int32_t sum[BLOCKS], plain_sum[BLOCKS];
            for (size_t i = 0; i < N; i++) x[i] *= magnitudes[m];
            tables[isa].quantise(x, BLOCKS, q, scale, sum);
            tables[0].quantise(x, BLOCKS, plain_q, plain_scale, plain_sum);
            assert_memory_equal(q, plain_q, N);
            assert_memory_equal(scale, plain_scale, sizeof scale);
            assert_memory_equal(sum, plain_sum, sizeof sum);
            for (size_t i = 0; i < N; i++) {
                double step = scale[i / QUANT_BLOCK];
                if (fabsf(magnitudes[m]) > 1e-30F)
                    assert_near(step * q[i], x[i], step * 0.50001, "quantise", i);
                assert_in_range(q[i] + 127, 0, 254);
            }
            for (size_t b = 0; b < BLOCKS; b++) {
                int32_t total = 0;
                for (size_t i = 0; i < QUANT_BLOCK; i++) total += q[b * QUANT_BLOCK + i];
                assert_int_equal(total, sum[b]);
            }
            free(plain_q);
            free(q);
            free(x);
        }
}

static void a_block_with_a_value_that_is_not_finite_gets_such_a_scale(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t b = 0; b < 3; b++)
            for (size_t at = 0; at < QUANT_BLOCK; at++) {
                float *x = random_floats(QUANT_BLOCK), scale;
                int8_t q[QUANT_BLOCK];
                int32_t sum;
                x[at] = bad[b];
                tables[isa].quantise(x, 1, q, &scale, &sum);
                assert_true(isfinite(scale) == 0);
                free(x);
            }
}

/* up NULL: there is none. */
static double exact_activation(enum activation act, double x, const float *up)
{
    double factor = up != NULL ? *up : 1;
    switch (act) {
    case ACT_SILU:
        return x / (1 + fmath_exp(-x)) * factor;
    case ACT_GELU:
        return x / (1 + fmath_exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x))) *
               factor;
    case ACT_RELU_SQUARED:
        return (x > 0 ? x * x : 0) * factor;
    case ACT_SWIGLU_CLAMPED:
        x = fmin(x, 7);
        return x / (1 + fmath_exp(-1.702F * x)) * (up != NULL ? fmax(-7, fmin(7, *up)) + 1 : 1);
    }
    return 0;
}

static void activations_agree_with_the_formula_in_double(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (int act = 0; act < ACTIVATION_COUNT; act++)
            for (size_t n = 1; n < 70; n++)
                for (int gated = 0; gated < 2; gated++) {
                    struct guarded x = guarded_new(n);
                    float *up = random_floats(n);
                    double want[70];
                    for (size_t i = 0; i < n; i += 4) up[i] *= 20; /* some beyond the clamps */
                    for (size_t i = 0; i < n; i++) {
                        x.x[i] = random_float() * (i % 3 == 0 ? 30 : 3);
                        want[i] =
                            exact_activation((enum activation)act, x.x[i], gated ? &up[i] : NULL);
                    }
                    tables[isa].activate[act](x.x, gated ? up : NULL, n);
                    for (size_t i = 0; i < n; i++)
                        assert_near(x.x[i], want[i], fabs(want[i]) * 4e-6 + 1e-11,
                                    isa_name(tables[isa].isa), i);
                    free(up);
                    guarded_free(x);
                }
}

static void activations_keep_what_is_not_a_number_and_survive_extremes(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (int act = 0; act < ACTIVATION_COUNT; act++) {
            float x[] = {NAN, 1e30F, -1e30F, 200, -200, 0, 3e38F, -3e38F, INFINITY};
            tables[isa].activate[act](x, NULL, sizeof x / sizeof *x);
            assert_true(isnan(x[0]));
            bool is_clamped = act == ACT_SWIGLU_CLAMPED;
            double top = exact_activation((enum activation)act, 200, NULL);
            assert_near(x[3], top, top * 1e-6, "act(200)", 3);
            assert_near(x[4], 0, 1e-30, "act(-200)", 4);
            assert_true(x[5] == 0);
            assert_int_equal(isfinite(x[8]) != 0, is_clamped);
        }
}

static void activations_do_not_feel_where_a_slice_begins(void **state)
{
    (void)state;
    enum { N = 77 };
    for (int isa = 0; isa < n_tables; isa++)
        for (int act = 0; act < ACTIVATION_COUNT; act++)
            for (size_t cut = 1; cut < N; cut++) {
                float *whole = random_floats(N), *sliced = take(N * sizeof(float));
                memcpy(sliced, whole, N * sizeof(float));
                tables[isa].activate[act](whole, NULL, N);
                tables[isa].activate[act](sliced, NULL, cut);
                tables[isa].activate[act](sliced + cut, NULL, N - cut);
                assert_same_bits(whole, sliced, N, "slice");
                free(whole);
                free(sliced);
            }
}

static void norms_agree_with_the_formula_in_double(void **state)
{
    (void)state;
    for (size_t n = 1; n < 100; n++)
        for (int kind = 0; kind < NORM_COUNT; kind++)
            for (int biased = 0; biased < 2; biased++) {
                float *x = random_floats(n), *w = random_floats(n), *b = random_floats(n);
                struct guarded y = guarded_new(n);
                double mean = 0, square = 0;
                for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
                if (kind == NORM_RMS) mean = 0;
                for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n;
                tables[0].norm[kind](x, w, biased ? b : NULL, n, 1e-5F, y.x);
                for (size_t i = 0; i < n; i++) {
                    double want = (x[i] - mean) / sqrt(square + 1e-5F) * w[i] + (biased ? b[i] : 0);
                    assert_near(y.x[i], want, 2e-6 * (fabs(want) + 1), "norm", i);
                }
                guarded_free(y);
                free(b);
                free(w);
                free(x);
            }
}

static void rotation_turns_the_pairs_of_each_style_and_nothing_else(void **state)
{
    (void)state;
    enum { PAIRS = 5, DIM = 13 };
    float cos[PAIRS], sin[PAIRS];
    for (size_t i = 0; i < PAIRS; i++) {
        cos[i] = (float)fmath_cos((double)i + 1);
        sin[i] = (float)fmath_sin((double)i + 1);
    }
    for (int style = ROPE_INTERLEAVED; style < ROPE_COUNT; style++) {
        float head[DIM], before[DIM];
        for (size_t i = 0; i < DIM; i++) head[i] = before[i] = random_float();
        tables[0].rope[style](head, cos, sin, 2 * PAIRS);
        for (size_t i = 0; i < PAIRS; i++) {
            size_t a = style == ROPE_HALF ? i : 2 * i, b = style == ROPE_HALF ? i + PAIRS : a + 1;
            assert_near(head[a], before[a] * cos[i] - before[b] * sin[i], 1e-6, "rope", a);
            assert_near(head[b], before[a] * sin[i] + before[b] * cos[i], 1e-6, "rope", b);
        }
        for (size_t i = 2 * PAIRS; i < DIM; i++) assert_true(head[i] == before[i]);
    }
}

static void norms_rotation_and_sums_give_the_same_bits_on_every_instruction_set(void **state)
{
    (void)state;
    for (size_t n = 2; n < 100; n += 2) {
        float *x = random_floats(n), *w = random_floats(n), *b = random_floats(n);
        struct guarded want = guarded_new(n);
        for (int isa = 1; isa < n_tables; isa++) {
            struct guarded got = guarded_new(n);
            for (int kind = 0; kind < 2 * NORM_COUNT; kind++) {
                const float *bias = kind < NORM_COUNT ? NULL : b;
                tables[0].norm[kind % NORM_COUNT](x, w, bias, n, 1e-5F, want.x);
                tables[isa].norm[kind % NORM_COUNT](x, w, bias, n, 1e-5F, got.x);
                assert_same_bits(got.x, want.x, n, "norm");
            }
            for (int style = ROPE_INTERLEAVED; style < ROPE_COUNT; style++) {
                tables[0].rope[style](want.x, w, b, n);
                tables[isa].rope[style](got.x, w, b, n);
                assert_same_bits(got.x, want.x, n, "rope");
            }
            tables[0].add(want.x, w, n);
            tables[isa].add(got.x, w, n);
            assert_same_bits(got.x, want.x, n, "add");
            tables[0].add_scaled(want.x, w, 0.3F, n);
            tables[isa].add_scaled(got.x, w, 0.3F, n);
            assert_same_bits(got.x, want.x, n, "add scaled");
            guarded_free(got);
        }
        guarded_free(want);
        free(b);
        free(w);
        free(x);
    }
}

static void storing_keeps_to_its_places_and_loading_gives_back_what_was_stored(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (int format = 0; format < KV_FORMAT_COUNT; format++)
            for (size_t n = 1; n < 70; n++) {
                size_t bytes = kv_part_bytes((enum kv_format)format, n), last = n % 32;
                uint8_t *block = take(bytes), *before = take(bytes);
                float *x = random_floats(3 * n), *want = take(n * sizeof *want);
                struct guarded back = guarded_new(n);
                x[0] = 1e-7F; /* a subnormal of f16 */
                memset(block, 0xee, bytes);
                tables[isa].store[format](x, n, block, last, false);
                tables[isa].store[format](x + n, n, block, 31, false);
                memcpy(before, block, bytes);
                tables[isa].store[format](x + 2 * n, n, block, 30, false);
                tables[isa].load[format](block, n, 31, back.x);
                as_cached((enum kv_format)format, x + n, n, want);
                assert_same_bits(back.x, want, n, "load");
                if (last < 30) {
                    tables[isa].load[format](block, n, last, back.x);
                    as_cached((enum kv_format)format, x, n, want);
                    assert_same_bits(back.x, want, n, "load");
                }
                size_t changed = 0;
                for (size_t i = 0; i < bytes; i++) changed += block[i] != before[i];
                assert_true(changed <= bytes / KV_BLOCK_POSITIONS);
                guarded_free(back);
                free(want);
                free(x);
                free(before);
                free(block);
            }
}

static void a_cached_value_that_is_not_finite_stays_so(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY, 1e30F};
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            float x[40] = {1, 2, 3}, back[40];
            uint8_t block[64 * 40];
            x[5] = bad[i];
            tables[isa].store[KV_Q8_0](x, 40, block, 3, false);
            tables[isa].load[KV_Q8_0](block, 40, 3, back);
            assert_true(!isfinite(back[5]));
            assert_true(back[39] == 0);
        }
}

static void soft_caps_agree_with_the_formula_in_double(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t n = 1; n < 40; n++) {
            struct guarded x = guarded_new(n);
            double want[40];
            for (size_t i = 0; i < n; i++) {
                x.x[i] = random_float() * (i % 5 == 0 ? 1e4F : 30);
                want[i] = 6 * fmath_tanh(x.x[i] / 6.0);
            }
            tables[isa].softcap(x.x, n, 6);
            for (size_t i = 0; i < n; i++) assert_near(x.x[i], want[i], 3e-6, "softcap", i);
            guarded_free(x);
            float bad[] = {NAN, INFINITY};
            tables[isa].softcap(bad, 2, 6);
            assert_true(isnan(bad[0]) && bad[1] == 6);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantising_rounds_to_nearest_within_half_a_step),
        cmocka_unit_test(a_block_with_a_value_that_is_not_finite_gets_such_a_scale),
        cmocka_unit_test(activations_agree_with_the_formula_in_double),
        cmocka_unit_test(activations_keep_what_is_not_a_number_and_survive_extremes),
        cmocka_unit_test(activations_do_not_feel_where_a_slice_begins),
        cmocka_unit_test(norms_agree_with_the_formula_in_double),
        cmocka_unit_test(rotation_turns_the_pairs_of_each_style_and_nothing_else),
        cmocka_unit_test(norms_rotation_and_sums_give_the_same_bits_on_every_instruction_set),
        cmocka_unit_test(storing_keeps_to_its_places_and_loading_gives_back_what_was_stored),
        cmocka_unit_test(a_cached_value_that_is_not_finite_stays_so),
        cmocka_unit_test(soft_caps_agree_with_the_formula_in_double),
    };
    return tables_init() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
