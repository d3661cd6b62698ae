/* rows_plain - norm, rotate, add: loops that a compiler turns into vectors by itself; included by
 * one file of each instruction set, where KERNEL_NAME is known. Products are not fused with sums,
 * and lanes are 16 everywhere, so all instruction sets give the same bits.
 *
 * Station before and after: layer. */
#include "engine/kernels/kernels.h"

#include <math.h>

/* sum_squares() - of x - mean, in 16 lanes that are folded in halves at the end: nearly as exact as
 * pairwise summation, and quick on a vector unit. sum_plain() - the same for x. */
static float fold(float lanes[16])
{
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

static float sum_squares(const float *x, size_t n, float mean)
{
    float lanes[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t l = 0; l < 16; l++) {
            float d = x[i + l] - mean;
            lanes[l] += d * d;
        }
    for (size_t l = 0; i < n; l++, i++) lanes[l] += (x[i] - mean) * (x[i] - mean);
    return fold(lanes);
}

static float sum_plain(const float *x, size_t n)
{
    float lanes[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t l = 0; l < 16; l++) lanes[l] += x[i + l];
    for (size_t l = 0; i < n; l++, i++) lanes[l] += x[i];
    return fold(lanes);
}

static void scale_shift(const float *x, const float *w, const float *b, size_t n, float mean,
                        float scale, float *y)
{
    if (b == NULL)
        for (size_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale * w[i];
    else
        for (size_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale * w[i] + b[i];
}

KERNEL_NORM(KERNEL_NAME(norm_rms))
{
    float scale = 1 / sqrtf(sum_squares(x, n, 0) / (float)n + eps);
    scale_shift(x, w, b, n, 0, scale, y);
}

KERNEL_NORM(KERNEL_NAME(norm_layer))
{
    float mean = sum_plain(x, n) / (float)n;
    float scale = 1 / sqrtf(sum_squares(x, n, mean) / (float)n + eps);
    scale_shift(x, w, b, n, mean, scale, y);
}

KERNEL_ROPE(KERNEL_NAME(rope_interleaved))
{
    for (size_t i = 0; i < n_rot / 2; i++) {
        float a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cos[i] - b * sin[i];
        head[2 * i + 1] = a * sin[i] + b * cos[i];
    }
}

KERNEL_ROPE(KERNEL_NAME(rope_half))
{
    float *high = head + n_rot / 2;
    for (size_t i = 0; i < n_rot / 2; i++) {
        float a = head[i], b = high[i];
        head[i] = a * cos[i] - b * sin[i];
        high[i] = a * sin[i] + b * cos[i];
    }
}

KERNEL_ADD_SCALED(KERNEL_NAME(add_scaled))
{
    for (size_t i = 0; i < n; i++) x[i] += scale * y[i];
}

KERNEL_ADD(KERNEL_NAME(add))
{
    for (size_t i = 0; i < n; i++) x[i] += y[i];
}
