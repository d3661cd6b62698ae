/* kernel_tables - what the tests of kernels share: the kernels of every instruction set that this
 * CPU has, random numbers, and guard words around what is written. Included after cmocka. */
#ifndef TANDEM_TESTS_ENGINE_KERNEL_TABLES_H
#define TANDEM_TESTS_ENGINE_KERNEL_TABLES_H

#include "engine/kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 16 };
static const float GUARD_VALUE = -12345.5F;

/* Those of instruction sets up to tables_best stand at the set's own number. Behind them, where
 * AVX2 takes AVX-VNNI, is AVX2 of a CPU without it. */
static struct kernels tables[ISA_COUNT + 1];
static int n_tables;
static enum isa tables_best;

/* tables_init() - the tables of every instruction set of this CPU. */
static inline bool tables_init(void)
{
    struct err err;
    unsetenv("TANDEM_ISA");
    if (isa_detect(&tables_best, &err) != ERR_NONE) return false;
    for (n_tables = 0; n_tables <= (int)tables_best; n_tables++)
        kernels_init(&tables[n_tables], (enum isa)n_tables);
    if (tables_best >= ISA_AVX2 && isa_has_avx_vnni()) {
        kernels_init(&tables[n_tables], ISA_AVX2);
        kernels_forgo_vnni(&tables[n_tables++]);
    }
    print_message("instruction sets up to %s\n", isa_name(tables_best));
    return true;
}

/* ---- random numbers and memory ---- */

static uint64_t random_state = 1;

static inline uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(random_state >> 33) ^ (uint32_t)(random_state >> 20);
}

static inline size_t random_below(size_t n)
{
    return random_u32() % n;
}

static inline float random_float(void) /* -1 .. 1 */
{
    return (float)((int32_t)(random_u32() & 0xffffff) - 0x800000) / 0x800000;
}

/* Exactly n bytes, so that a sanitizer sees the first byte too far. */
static inline void *take(size_t n)
{
    void *p = malloc(n > 0 ? n : 1);
    assert_non_null(p);
    return p;
}

static inline float *random_floats(size_t n)
{
    float *x = take(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_float();
    return x;
}

static inline void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]) != 0)
            fail_msg("%s: value %zu is %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}

static inline void assert_near(double got, double want, double tolerance, const char *what,
                               size_t at)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: value %zu is %.9g, want %.9g within %.3g", what, at, got, want, tolerance);
}

/* n floats between two guards. */
struct guarded {
    float *all, *x;
    size_t n;
};

static inline struct guarded guarded_new(size_t n)
{
    struct guarded g = {.all = take((n + 2 * GUARD) * sizeof(float)), .n = n};
    g.x = g.all + GUARD;
    for (size_t i = 0; i < n + 2 * GUARD; i++) g.all[i] = GUARD_VALUE;
    return g;
}

static inline void guarded_free(struct guarded g)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_true(g.all[i] == GUARD_VALUE);
        assert_true(g.x[g.n + i] == GUARD_VALUE);
    }
    free(g.all);
}

/* as_cached() - what the cache makes of n values, by the formats' definitions. */
static inline void as_cached(enum kv_format format, const float *x, size_t n, float *out)
{
    for (size_t first = 0; first < n; first += QUANT_BLOCK) {
        size_t end = n - first < QUANT_BLOCK ? n : first + QUANT_BLOCK;
        float max = 0;
        for (size_t i = first; i < end; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        float scale = f16_to_f32(f32_to_f16(max / 127));
        for (size_t i = first; i < end; i++) {
            float steps = scale > 0 ? rintf(x[i] * (1 / scale)) : 0;
            steps = steps > 127 ? 127 : steps < -127 ? -127 : steps;
            out[i] = format == KV_F32   ? x[i]
                     : format == KV_F16 ? f16_to_f32(f32_to_f16(x[i]))
                                        : scale * (float)(int)steps;
        }
    }
}

#endif
