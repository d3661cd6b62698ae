/* attention_tile - one tile of attention in plain C: the formula is KERNEL_ATTENTION's in kernels.h.
 *
 * A query's result depends on the positions that it sees alone: scores walk the dimensions in
 * order, the sum and the values walk the positions in order. Station before and after: layer, which
 * walks the tiles. */
#include "engine/kernels/generic/exp.h"
#include "engine/kernels/kernels.h"

#include <math.h>

typedef float load_fn(const uint8_t *base, size_t index);

static inline float load_f16(const uint8_t *base, size_t index)
{
    uint16_t half;
    memcpy(&half, base + 2 * index, sizeof half);
    return f16_to_f32(half);
}

static inline float load_f32(const uint8_t *base, size_t index)
{
    float value;
    memcpy(&value, base + 4 * index, sizeof value);
    return value;
}

/* score() - scores of query i with the positions that it sees. */
static inline __attribute__((always_inline)) void
score(const struct attention_queries *queries, const struct attention_tile *tile, uint32_t i,
      load_fn *load, float *scores)
{
    for (uint32_t p = tile->first[i]; p < tile->n_valid[i]; p++) {
        const uint8_t *keys = tile->block[p / KV_BLOCK_POSITIONS];
        float dot = 0;
        for (size_t d = 0; d < tile->dim_k; d++)
            dot += queries->q[i][d] * load(keys, d * KV_BLOCK_POSITIONS + p % KV_BLOCK_POSITIONS);
        scores[p] = dot * tile->scale;
        if (tile->softcap != 0) scores[p] = softcap_f32(scores[p], tile->softcap);
        if (tile->slope[i] != 0)
            scores[p] -= tile->slope[i] * (float)(tile->distance[i] - (int32_t)p);
    }
}

/* weigh() - acc = acc * old + sum of e[p] V[p] * fresh, one value dimension after the other. */
static inline __attribute__((always_inline)) void
weigh(const float *e, const struct attention_tile *tile, uint32_t first, uint32_t end,
      size_t value_bytes, load_fn *load, float old, float fresh, float *acc)
{
    size_t keys_bytes = tile->dim_k * KV_BLOCK_POSITIONS * value_bytes;
    for (size_t d = 0; d < tile->dim_v; d++) {
        float sum = 0;
        for (uint32_t p = first; p < end; p++) {
            const uint8_t *block = tile->block[p / KV_BLOCK_POSITIONS];
            size_t within = p % KV_BLOCK_POSITIONS;
            float value = tile->values_in_keys
                              ? load(block, d * KV_BLOCK_POSITIONS + within)
                              : load(block + keys_bytes, within * tile->dim_v + d);
            sum += e[p] * value;
        }
        acc[d] = acc[d] * old + sum * fresh;
    }
}

static inline __attribute__((always_inline)) void
attention(struct attention_queries *queries, const struct attention_tile *tile, size_t value_bytes,
          load_fn *load)
{
    float scores[ATTENTION_TILE];
    for (uint32_t i = 0; i < queries->n; i++) {
        uint32_t first = tile->first[i], end = tile->n_valid[i];
        if (end == 0) continue;
        score(queries, tile, i, load, scores);
        float max = scores[first], sum = 0;
        for (uint32_t p = first + 1; p < end; p++) max = scores[p] > max ? scores[p] : max;
        for (uint32_t p = first; p < end; p++) {
            scores[p] = exp_f32(scores[p] - max);
            sum += scores[p];
        }
        float highest = max > queries->max[i] ? max : queries->max[i];
        float old = exp_f32(queries->max[i] - highest), fresh = exp_f32(max - highest);
        queries->max[i] = highest;
        queries->sum[i] = queries->sum[i] * old + sum * fresh;
        weigh(scores, tile, first, end, value_bytes, load, old, fresh, queries->acc[i]);
    }
}

KERNEL_ATTENTION(attention_f16_generic)
{
    attention(queries, tile, 2, load_f16);
}

KERNEL_ATTENTION(attention_f32_generic)
{
    attention(queries, tile, 4, load_f32);
}
