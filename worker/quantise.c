/* quantise - see quantise.h.
 *
 * Q8_0 and Q4_0 follow the rule that defines them in ggml, byte for byte. The K formats leave the
 * choice of scales open: here each sub-block tries a row of scales around the obvious one, lets
 * least squares improve each, and keeps the one with the smallest weighted squared error. Larger
 * values weigh more, since they decide more of a dot product. */
#include "worker/quantise.h"

#include "engine/quant_formats.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { SUPER_BLOCK = 256 }; /* values in a block of the K formats */

static void store_u16(uint8_t *at, uint16_t value)
{
    memcpy(at, &value, sizeof value);
}

static int clamp(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

/* inverse() - 0 for 0, and for what is too small to have one. */
static float inverse(float x)
{
    const float y = 1.0f / x;
    return isfinite(y) ? y : 0.0f;
}

/* nearest() - to the nearest whole number in low .. high, ties to even; low where x is no number.
 * The sum's last bit is worth 1, so that the addition rounds; a compiler can do eight at once. */
static inline float nearest(float x, float low, float high)
{
    const float rounder = 0x1.8p23f;
    x = x > low ? x : low;
    x = x < high ? x : high;
    return (x + rounder) - rounder;
}

/* ---- plain numbers ---- */

static void quantise_f32(const float *src, void *dst, size_t n)
{
    memcpy(dst, src, n * sizeof *src);
}

static void quantise_f16(const float *src, void *dst, size_t n)
{
    uint8_t *out = dst;
    for (size_t i = 0; i < n; i++) store_u16(out + 2 * i, f32_to_f16(src[i]));
}

static void quantise_bf16(const float *src, void *dst, size_t n)
{
    uint8_t *out = dst;
    for (size_t i = 0; i < n; i++) store_u16(out + 2 * i, f32_to_bf16(src[i]));
}

/* ---- blocks of 32 ---- */

/* round_away() - to the nearest whole number, ties away from 0; |x| < 2^23. */
static int round_away(float x)
{
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* d = max |x| / 127, q = x / d */
static void quantise_q8_0_block(const float *x, uint8_t *block)
{
    float most = 0;
    for (int i = 0; i < 32; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float d = most / 127;
    const float per_d = inverse(d);
    store_u16(block, f32_to_f16(d));
    for (int i = 0; i < 32; i++) block[2 + i] = (uint8_t)round_away(x[i] * per_d);
}

/* d = x of the largest |x|, / -8, so that the largest is exact; q = x / d + 8 */
static void quantise_q4_0_block(const float *x, uint8_t *block)
{
    float low = 0, high = 0;
    for (int i = 0; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float most = high > -low ? high : low;
    /* Of two that are equally large the first counts. */
    if (high > 0 && high == -low)
        for (int i = 31; i >= 0; i--) most = fabsf(x[i]) == high ? x[i] : most;
    const float d = most / -8;
    const float per_d = inverse(d);
    store_u16(block, f32_to_f16(d));
    uint8_t q[32];
    for (int i = 0; i < 32; i++) q[i] = (uint8_t)clamp((int)(x[i] * per_d + 8.5f), 0, 15);
    for (int i = 0; i < 16; i++) block[2 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

/* ---- blocks of 256 ---- */

/* add_up() - of n values, a multiple of 8: eight sums side by side and then together. The order,
 * and with it every bit, is the same with and without vector instructions. */
static inline float add_up(const float *x, int n)
{
    float lane[8];
    for (int l = 0; l < 8; l++) lane[l] = x[l];
    for (int i = 8; i < n; i += 8)
        for (int l = 0; l < 8; l++) lane[l] += x[i + l];
    for (int l = 0; l < 4; l++) lane[l] += lane[l + 4];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

/* weigh() - what a squared error at each x counts: |x| and the root mean square of all n; and that
 * times x. */
static inline void weigh(const float *x, int n, float *weight, float *weighted)
{
    for (int i = 0; i < n; i++) weight[i] = x[i] * x[i];
    const float rms = sqrtf(add_up(weight, n) / (float)n);
    for (int i = 0; i < n; i++) weight[i] = rms + fabsf(x[i]);
    for (int i = 0; i < n; i++) weighted[i] = weight[i] * x[i];
}

/* fit_scale() - for 16 values x ~ scale * q with q in -32 .. 31: the scale. For given q the best
 * scale is <x,q> / <q,q>, and the error it leaves is smallest where <x,q>^2 / <q,q> is largest. */
static float fit_scale(const float *x)
{
    enum { N = 16, STEPS = 9 };
    float weight[N], weighted[N], most = 0;
    weigh(x, N, weight, weighted);
    for (int i = 0; i < N; i++) most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    const float per_most = inverse(-most);
    float best_gain = 0, best_scale = 0;
    for (int step = -STEPS; step <= STEPS; step++) {
        const float per_scale = (32.0f + 0.1f * (float)step) * per_most;
        float xq_each[N], qq_each[N];
        for (int i = 0; i < N; i++) {
            const float q = nearest(x[i] * per_scale, -32, 31);
            xq_each[i] = weighted[i] * q;
            qq_each[i] = weight[i] * q * q;
        }
        const float xq = add_up(xq_each, N), qq = add_up(qq_each, N);
        if (qq > 0 && xq * xq > best_gain * qq) {
            best_gain = xq * xq / qq;
            best_scale = xq / qq;
        }
    }
    return best_scale;
}

/* Layout: engine/quant_decode. d * 127 or d * -128 is the largest scale. */
static void quantise_q6_k_block(const float *x, uint8_t *block)
{
    float scale[16], most = 0;
    for (int j = 0; j < 16; j++) {
        scale[j] = fit_scale(x + 16 * j);
        most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
    }
    memset(block, 0, 210);
    const uint16_t d_bits = f32_to_f16(most / -128);
    const float d = f16_to_f32(d_bits);
    store_u16(block + 208, d_bits);
    for (int j = 0; j < 16; j++) {
        const int s = (int)nearest(scale[j] * inverse(d), -128, 127);
        const float per_scale = inverse(d * (float)s);
        block[192 + j] = (uint8_t)s;
        for (int i = 16 * j; i < 16 * j + 16; i++) {
            const int q = (int)nearest(x[i] * per_scale, -32, 31) + 32;
            block[i / 128 * 64 + i % 64] |= (uint8_t)((q & 0xf) << 4 * (i / 64 % 2));
            block[128 + i / 128 * 32 + i % 32] |= (uint8_t)(q >> 4 << 2 * (i / 32 % 4));
        }
    }
}

/* Sums over a sub-block, each term weighted, for the straight line x ~ scale * q - minimum. */
struct line_sums {
    float w, x, q, qq, xq;
};

/* solve_line() - least squares for given q; the minimum is never below 0. Where the q hardly
 * differ, rounding would decide the slope: then the line goes through 0, too. */
static void solve_line(const struct line_sums *s, float *scale, float *minimum)
{
    const float det = s->w * s->qq - s->q * s->q;
    const bool is_clear = det > 1e-5f * s->w * s->qq;
    *scale = (s->w * s->xq - s->x * s->q) * inverse(det);
    *minimum = (s->q * s->xq - s->qq * s->x) * inverse(det);
    if (!is_clear || *minimum < 0) {
        *minimum = 0;
        *scale = s->xq * inverse(s->qq);
    }
}

/* sum_line() - the sums that depend on q, for the q that a scale and the lowest value give. */
static void sum_line(const float *x, const float *weight, const float *weighted, float per_scale,
                     float low, struct line_sums *s)
{
    enum { N = 32 };
    float q_each[N], qq_each[N], xq_each[N];
    for (int i = 0; i < N; i++) {
        const float q = nearest((x[i] - low) * per_scale, 0, 15);
        q_each[i] = weight[i] * q;
        qq_each[i] = weight[i] * q * q;
        xq_each[i] = weighted[i] * q;
    }
    s->q = add_up(q_each, N);
    s->qq = add_up(qq_each, N);
    s->xq = add_up(xq_each, N);
}

/* fit_line() - for 32 values x ~ scale * q - minimum with q in 0 .. 15 and minimum >= 0. The
 * squared error, less the part that does not depend on q, is what is compared. */
static void fit_line(const float *x, float *scale, float *minimum)
{
    enum { N = 32, STEPS = 20 };
    float weight[N], weighted[N], low = 0, high = x[0];
    struct line_sums s = {0};
    weigh(x, N, weight, weighted);
    for (int i = 0; i < N; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    s.w = add_up(weight, N);
    s.x = add_up(weighted, N);
    *scale = 0;
    *minimum = -low;
    const float per_range = inverse(high - low);
    float best = INFINITY;
    for (int step = 0; step <= STEPS && high > low; step++) {
        const float per_scale = (14.0f + 0.1f * (float)step) * per_range;
        sum_line(x, weight, weighted, per_scale, low, &s);
        float a, b;
        solve_line(&s, &a, &b);
        const float error =
            a * a * s.qq + b * b * s.w - 2 * a * b * s.q - 2 * a * s.xq + 2 * b * s.x;
        if (error < best) {
            best = error;
            *scale = a;
            *minimum = b;
        }
    }
}

/* store_six_bits() - scale and minimum j of 8; layout: engine/quant_decode. */
static void store_six_bits(uint8_t *p, int j, int scale, int minimum)
{
    if (j < 4) {
        p[j] |= (uint8_t)scale;
        p[j + 4] |= (uint8_t)minimum;
    } else {
        p[j + 4] = (uint8_t)((scale & 0xf) | (minimum & 0xf) << 4);
        p[j - 4] |= (uint8_t)(scale >> 4 << 6);
        p[j] |= (uint8_t)(minimum >> 4 << 6);
    }
}

/* Layout: engine/quant_decode. 63 stands for the largest scale, and for the largest minimum. */
static void quantise_q4_k_block(const float *x, uint8_t *block)
{
    float scale[8], minimum[8], scale_max = 0, minimum_max = 0;
    for (int j = 0; j < 8; j++) {
        fit_line(x + 32 * j, &scale[j], &minimum[j]);
        scale_max = scale[j] > scale_max ? scale[j] : scale_max;
        minimum_max = minimum[j] > minimum_max ? minimum[j] : minimum_max;
    }
    memset(block, 0, 144);
    const uint16_t d_bits = f32_to_f16(scale_max / 63), m_bits = f32_to_f16(minimum_max / 63);
    const float d = f16_to_f32(d_bits), m = f16_to_f32(m_bits);
    store_u16(block, d_bits);
    store_u16(block + 2, m_bits);
    for (int j = 0; j < 8; j++) {
        const int s = (int)nearest(scale[j] * inverse(d), 0, 63);
        const int b = (int)nearest(minimum[j] * inverse(m), 0, 63);
        store_six_bits(block + 4, j, s, b);
        const float per_scale = inverse(d * (float)s), offset = m * (float)b;
        for (int i = 0; i < 32; i++) {
            const int q = (int)nearest((x[32 * j + i] + offset) * per_scale, 0, 15);
            block[16 + j / 2 * 32 + i] |= (uint8_t)(q << 4 * (j % 2));
        }
    }
}

/* ---- whole rows ---- */

#define QUANTISE_BLOCKS(name, block_values, block_bytes)                                           \
    static void quantise_##name(const float *src, void *dst, size_t n)                             \
    {                                                                                              \
        uint8_t *block = dst;                                                                      \
        for (size_t i = 0; i < n; i += (block_values), block += (block_bytes))                     \
            quantise_##name##_block(src + i, block);                                               \
    }
QUANTISE_BLOCKS(q8_0, 32, 34)
QUANTISE_BLOCKS(q4_0, 32, 18)
QUANTISE_BLOCKS(q4_k, SUPER_BLOCK, 144)
QUANTISE_BLOCKS(q6_k, SUPER_BLOCK, 210)

quantise_fn *quantise_find(uint32_t format)
{
    static const struct {
        uint32_t format;
        quantise_fn *run;
    } quantisers[] = {
        {FORMAT_F32, quantise_f32},   {FORMAT_F16, quantise_f16},   {FORMAT_BF16, quantise_bf16},
        {FORMAT_Q8_0, quantise_q8_0}, {FORMAT_Q4_0, quantise_q4_0}, {FORMAT_Q4_K, quantise_q4_k},
        {FORMAT_Q6_K, quantise_q6_k},
    };
    for (size_t i = 0; i < sizeof quantisers / sizeof quantisers[0]; i++)
        if (quantisers[i].format == format) return quantisers[i].run;
    return NULL;
}
