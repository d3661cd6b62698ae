/* rows - what happens to one row between two products, in plain C: quantise, activate, store; and
 * norm, rotate, add (rows_plain.h).
 *
 * Each function works on one row or block from its first value to its last, so the result cannot
 * depend on what else is in the batch.
 * Station before and after: layer. */
#include "engine/kernels/generic/exp.h"
#include "engine/kernels/kernels.h"

#define KERNEL_NAME(name) name##_generic
#include "engine/kernels/generic/rows_plain.h"

#include <math.h>
#include <string.h>

/* The largest magnitude is found by comparing bits as integers: NaN and infinity win, so that the
 * scale of a block that holds one is not finite either. */
KERNEL_QUANTISE(quantise_generic)
{
    for (size_t b = 0; b < n_blocks; b++, x += QUANT_BLOCK, q += QUANT_BLOCK) {
        uint32_t max_bits = 0;
        for (size_t i = 0; i < QUANT_BLOCK; i++) {
            uint32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            bits &= 0x7fffffff;
            max_bits = bits > max_bits ? bits : max_bits;
        }
        float max;
        memcpy(&max, &max_bits, sizeof max);
        float inverse = max > QUANT_TINY ? 127.0F / max : 0;
        int32_t total = 0;
        for (size_t i = 0; i < QUANT_BLOCK; i++) {
            float v = x[i] * inverse;
            int32_t value = v >= -127 && v <= 127 ? (int32_t)lrintf(v) : v > 0 ? 127 : -127;
            q[i] = (int8_t)value;
            total += value;
        }
        scale[b] = max / 127.0F;
        sum[b] = total;
    }
}

KERNEL_ACTIVATE(silu_generic)
{
    for (size_t i = 0; i < n; i++) x[i] = x[i] / (1 + exp_f32(-x[i]));
    if (up == NULL) return;
    for (size_t i = 0; i < n; i++) x[i] *= up[i];
}

KERNEL_ACTIVATE(gelu_generic)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        float y = GELU_SCALE * (v + GELU_CUBE * (v * v * v));
        x[i] = v / (1 + exp_f32(-2 * y));
    }
    if (up == NULL) return;
    for (size_t i = 0; i < n; i++) x[i] *= up[i];
}

KERNEL_ACTIVATE(relu_squared_generic)
{
    for (size_t i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i] * x[i];
    if (up == NULL) return;
    for (size_t i = 0; i < n; i++) x[i] *= up[i];
}

KERNEL_ACTIVATE(swiglu_clamped_generic)
{
    for (size_t i = 0; i < n; i++) {
        float g = x[i] > SWIGLU_LIMIT ? SWIGLU_LIMIT : x[i];
        x[i] = g / (1 + exp_f32(-SWIGLU_SLOPE * g));
    }
    for (size_t i = 0; up != NULL && i < n; i++) {
        float u = up[i] > SWIGLU_LIMIT ? SWIGLU_LIMIT : up[i];
        x[i] *= (u < -SWIGLU_LIMIT ? -SWIGLU_LIMIT : u) + 1;
    }
}

KERNEL_SOFTCAP(softcap_generic)
{
    for (size_t i = 0; i < n; i++) x[i] = softcap_f32(x[i], cap);
}

/* cached_at() - where value i of n of position at stands in a block's K or V. */
static inline size_t cached_at(size_t i, size_t n, size_t at, bool across)
{
    return across ? i * KV_BLOCK_POSITIONS + at : at * n + i;
}

KERNEL_STORE(store_f16_generic)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half = f32_to_f16(src[i]);
        memcpy(block + 2 * cached_at(i, n, at, across), &half, sizeof half);
    }
}

KERNEL_STORE(store_f32_generic)
{
    for (size_t i = 0; i < n; i++)
        memcpy(block + 4 * cached_at(i, n, at, across), &src[i], sizeof src[i]);
}

/* scale_at() - where the scale of value i of n stands. */
static inline uint8_t *scale_at(const uint8_t *block, size_t i, size_t n, size_t at)
{
    size_t scale = i / QUANT_BLOCK * KV_BLOCK_POSITIONS + at;
    return (uint8_t *)block + n * KV_BLOCK_POSITIONS + 2 * scale;
}

/* The bytes are counted in steps of the scale as it was rounded. */
KERNEL_STORE(store_q8_0_generic)
{
    for (size_t first = 0; first < n; first += QUANT_BLOCK) {
        size_t end = n - first < QUANT_BLOCK ? n : first + QUANT_BLOCK;
        float max = 0;
        for (size_t i = first; i < end; i++) {
            float size = fabsf(src[i]);
            if (!(size <= max)) max = size;
            if (max != max) break;
        }
        uint16_t half = f32_to_f16(max / 127.0F);
        float scale = f16_to_f32(half), inverse = scale > 0 ? 1 / scale : 0;
        memcpy(scale_at(block, first, n, at), &half, sizeof half);
        for (size_t i = first; i < end; i++) {
            float v = src[i] * inverse;
            int32_t value = v >= -127 && v <= 127 ? (int32_t)lrintf(v) : v > 0 ? 127 : -127;
            block[cached_at(i, n, at, across)] = (uint8_t)value;
        }
    }
}

KERNEL_LOAD(load_q8_0_generic)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, scale_at(block, i, n, at), sizeof half);
        dst[i] = f16_to_f32(half) * (float)(int8_t)block[cached_at(i, n, at, false)];
    }
}

KERNEL_LOAD(load_f16_generic)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, block + 2 * cached_at(i, n, at, false), sizeof half);
        dst[i] = f16_to_f32(half);
    }
}

KERNEL_LOAD(load_f32_generic)
{
    memcpy(dst, block + 4 * cached_at(0, n, at, false), n * sizeof *dst);
}
