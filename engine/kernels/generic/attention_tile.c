/* attention_tile - one tile of attention in plain C: the formula is KERNEL_ATTENTION's in
 * kernels.h.
 *
 * A query's result depends on the positions that it sees alone: scores walk the dimensions in
 * order, the sum and the values walk the positions in order. Station before and after: layer, which
 * walks the tiles. */
#include "engine/kernels/generic/exp.h"
#include "engine/kernels/kernels.h"

#include <math.h>

/* Value i of dimension d, d of position at, in K or V of dim dimensions. */
typedef float load_fn(const uint8_t *part, size_t i, size_t dim, size_t d, size_t at);

static inline float load_f16(const uint8_t *part, size_t i, size_t dim, size_t d, size_t at)
{
    (void)dim, (void)d, (void)at;
    uint16_t half;
    memcpy(&half, part + 2 * i, sizeof half);
    return f16_to_f32(half);
}

static inline float load_f32(const uint8_t *part, size_t i, size_t dim, size_t d, size_t at)
{
    (void)dim, (void)d, (void)at;
    float value;
    memcpy(&value, part + 4 * i, sizeof value);
    return value;
}

static inline float load_q8_0(const uint8_t *part, size_t i, size_t dim, size_t d, size_t at)
{
    uint16_t half;
    size_t scale = d / QUANT_BLOCK * KV_BLOCK_POSITIONS + at;
    memcpy(&half, part + dim * KV_BLOCK_POSITIONS + 2 * scale, sizeof half);
    return f16_to_f32(half) * (float)(int8_t)part[i];
}

/* score() - scores of query i with the positions that it sees. */
static inline __attribute__((always_inline)) void score(const struct attention_queries *queries,
                                                        const struct attention_tile *tile,
                                                        uint32_t i, load_fn *load, float *scores)
{
    for (uint32_t p = tile->first[i]; p < tile->n_valid[i]; p++) {
        const uint8_t *keys = tile->block[p / KV_BLOCK_POSITIONS];
        size_t at = p % KV_BLOCK_POSITIONS;
        float dot = 0;
        for (size_t d = 0; d < tile->dim_k; d++)
            dot += queries->q[i][d] * load(keys, d * KV_BLOCK_POSITIONS + at, tile->dim_k, d, at);
        scores[p] = dot * tile->scale;
        if (tile->softcap != 0) scores[p] = softcap_f32(scores[p], tile->softcap);
        if (tile->slope[i] != 0)
            scores[p] -= tile->slope[i] * (float)(tile->distance[i] - (int32_t)p);
    }
}

/* How one tile joins what came before: acc = acc * old + tile * fresh. */
struct join {
    float old, fresh;
};

static struct join join_sums(struct attention_queries *queries, uint32_t i, float max, float sum)
{
    float highest = max > queries->max[i] ? max : queries->max[i];
    struct join join = {exp_f32(queries->max[i] - highest), exp_f32(max - highest)};
    queries->max[i] = highest;
    queries->sum[i] = queries->sum[i] * join.old + sum * join.fresh;
    return join;
}

/* weigh() - sum of e[p] V[p] joins acc, one value dimension after the other. */
static inline __attribute__((always_inline)) void weigh(const float *e,
                                                        const struct attention_tile *tile,
                                                        uint32_t first, uint32_t end,
                                                        size_t keys_bytes, load_fn *load,
                                                        struct join join, float *acc)
{
    for (size_t d = 0; d < tile->dim_v; d++) {
        float sum = 0;
        for (uint32_t p = first; p < end; p++) {
            const uint8_t *block = tile->block[p / KV_BLOCK_POSITIONS];
            size_t at = p % KV_BLOCK_POSITIONS;
            float value = tile->values_in_keys
                              ? load(block, d * KV_BLOCK_POSITIONS + at, tile->dim_k, d, at)
                              : load(block + keys_bytes, at * tile->dim_v + d, tile->dim_v, d, at);
            sum += e[p] * value;
        }
        acc[d] = acc[d] * join.old + sum * join.fresh;
    }
}

static inline __attribute__((always_inline)) void attention(struct attention_queries *queries,
                                                            const struct attention_tile *tile,
                                                            enum kv_format format, load_fn *load)
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
        struct join join = join_sums(queries, i, max, sum);
        weigh(scores, tile, first, end, kv_part_bytes(format, tile->dim_k), load, join,
              queries->acc[i]);
    }
}

KERNEL_ATTENTION(attention_f16_generic)
{
    attention(queries, tile, KV_F16, load_f16);
}

KERNEL_ATTENTION(attention_f32_generic)
{
    attention(queries, tile, KV_F32, load_f32);
}

KERNEL_ATTENTION(attention_q8_0_generic)
{
    attention(queries, tile, KV_Q8_0, load_q8_0);
}

KERNEL_ATTENTION_JOIN(attention_join_generic)
{
    for (uint32_t i = 0; i < whole->n; i++) {
        if (part->sum[i] == 0) continue;
        struct join join = join_sums(whole, i, part->max[i], part->sum[i]);
        for (size_t d = 0; d < dim_v; d++)
            whole->acc[i][d] = whole->acc[i][d] * join.old + part->acc[i][d] * join.fresh;
    }
}
