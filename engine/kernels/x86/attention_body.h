/* attention_body - one tile of attention, written once for every vector width; included by one file
 * of each instruction set after its simd_*.h and rows_body.h. The formula is KERNEL_ATTENTION's in
 * kernels.h.
 *
 * Up to four queries share what is loaded of keys and values. Scores: a lane is a position and
 * walks the dimensions in order. Values: a lane is a dimension and walks the positions in order. So
 * a query's result depends on the positions that it sees alone, whoever walks beside it; it never
 * touches a position that it does not see. */
#include "engine/kernels/kernels.h"

#include <math.h>

typedef vf load_cached_fn(const uint8_t *base, size_t index);

INLINE vf cached_f16(const uint8_t *base, size_t index)
{
    return v_load_f16(base + 2 * index);
}

INLINE vf cached_f32(const uint8_t *base, size_t index)
{
    return v_load((const float *)base + index);
}

enum { SCORE_VECTORS = 2 }; /* vectors of positions at once */

/* score() - scale * (q . K[p]) of every query for the tile's positions [first, n), n rounded up to
 * whole groups of vectors; first is the beginning of a block. */
INLINE void score(const struct attention_queries *queries, const struct attention_tile *tile,
                  int nq, uint32_t first, uint32_t n, load_cached_fn *load,
                  float scores[][ATTENTION_TILE])
{
    for (size_t start = first; start < n; start += SCORE_VECTORS * V_LANES) {
        const uint8_t *keys = tile->block[start / KV_BLOCK_POSITIONS];
        size_t within = start % KV_BLOCK_POSITIONS;
        vf acc[ATTENTION_QUERIES][SCORE_VECTORS];
        UNROLL_FOR (i, nq)
            UNROLL_FOR (v, SCORE_VECTORS) acc[i][v] = v_zero();
        for (size_t d = 0; d < tile->dim_k; d++) {
            vf k[SCORE_VECTORS];
            UNROLL_FOR (v, SCORE_VECTORS)
                k[v] = load(keys, d * KV_BLOCK_POSITIONS + within + (size_t)v * V_LANES);
            UNROLL_FOR (i, nq)
                UNROLL_FOR (v, SCORE_VECTORS)
                    acc[i][v] = v_fma(v_set1(queries->q[i][d]), k[v], acc[i][v]);
        }
        UNROLL_FOR (i, nq)
            UNROLL_FOR (v, SCORE_VECTORS)
                v_store(&scores[i][start + (size_t)v * V_LANES],
                        v_mul(acc[i][v], v_set1(tile->scale)));
    }
}

/* How one tile joins what came before: acc = acc * old + tile * fresh. */
struct join {
    float old, fresh;
};

/* adjust() - what comes between the product and the softmax for query i: soft cap, linear bias; and
 * positions before its first one weigh nothing. */
INLINE void adjust(const struct attention_tile *tile, int i, uint32_t first, float *scores)
{
    uint32_t n = tile->n_valid[i];
    if (tile->softcap != 0)
        for (size_t p = first; p < n; p += V_LANES)
            v_store(scores + p, v_softcap(v_load(scores + p), tile->softcap));
    if (tile->slope[i] != 0)
        for (uint32_t p = first; p < n; p++)
            scores[p] -= tile->slope[i] * (float)(tile->distance[i] - (int32_t)p);
    for (uint32_t p = first; p < tile->first[i]; p++) scores[p] = -INFINITY;
}

/* soften() - scores [first, n) of one query to exp(score - maximum), in place; maximum and sum join
 * the query's. */
static inline struct join soften(struct attention_queries *queries, int i, uint32_t first,
                                 uint32_t n, float *scores)
{
    vf highest = v_set1(-INFINITY), total = v_zero();
    for (size_t p = first; p < n; p += V_LANES) {
        size_t some = n - p < V_LANES ? n - p : V_LANES;
        highest = v_max(highest, v_first_n(v_load(scores + p), some, v_set1(-INFINITY)));
    }
    float max = v_fold_max(highest);
    for (size_t p = first; p < n; p += V_LANES) {
        size_t some = n - p < V_LANES ? n - p : V_LANES;
        vf e = v_exp(v_sub(v_load(scores + p), v_set1(max)));
        v_store(scores + p, e);
        total = v_add(total, v_first_n(e, some, v_zero()));
    }
    float both = max > queries->max[i] ? max : queries->max[i];
    struct join join = {.old = v_first(v_exp(v_set1(queries->max[i] - both))),
                        .fresh = v_first(v_exp(v_set1(max - both)))};
    queries->max[i] = both;
    queries->sum[i] = queries->sum[i] * join.old + v_fold_add(total) * join.fresh;
    return join;
}

/* values_of() - where position p of the tile has its values. */
INLINE const uint8_t *values_of(const struct attention_tile *tile, uint32_t p, size_t value_bytes)
{
    return tile->block[p / KV_BLOCK_POSITIONS] +
           (tile->dim_k * KV_BLOCK_POSITIONS + p % KV_BLOCK_POSITIONS * tile->dim_v) * value_bytes;
}

/* weigh_some() - positions [from, to) for query i alone. */
INLINE void weigh_some(const struct attention_tile *tile, int vectors, uint32_t from, uint32_t to,
                       size_t d, size_t value_bytes, load_cached_fn *load, const float *scores,
                       vf acc[ATTEND_VECTORS])
{
    for (uint32_t p = from; p < to; p++)
        UNROLL_FOR (v, vectors)
            acc[v] =
                v_fma(v_set1(scores[p]),
                      load(values_of(tile, p, value_bytes), d + (size_t)v * V_LANES), acc[v]);
}

/* weigh() - vectors of value dimensions from d on, all of them whole. Positions that every query
 * sees are read once for all; what comes before and after is each query's own. */
INLINE void weigh(const struct attention_queries *queries, const struct attention_tile *tile,
                  int nq, int vectors, size_t d, size_t value_bytes, load_cached_fn *load,
                  float scores[][ATTENTION_TILE], const struct join *join)
{
    uint32_t to = tile->n_valid[0], from = 0;
    UNROLL_FOR (i, nq) from = tile->first[i] > from ? tile->first[i] : from;
    if (from > to) from = to;
    vf acc[ATTENTION_QUERIES][ATTEND_VECTORS];
    UNROLL_FOR (i, nq)
        UNROLL_FOR (v, vectors) acc[i][v] = v_zero();
    UNROLL_FOR (i, nq)
        weigh_some(tile, vectors, tile->first[i], from, d, value_bytes, load, scores[i], acc[i]);
    for (uint32_t p = from; p < to; p++) {
        const uint8_t *values = values_of(tile, p, value_bytes);
        vf value[ATTEND_VECTORS];
        UNROLL_FOR (v, vectors) value[v] = load(values, d + (size_t)v * V_LANES);
        UNROLL_FOR (i, nq)
            UNROLL_FOR (v, vectors) acc[i][v] = v_fma(v_set1(scores[i][p]), value[v], acc[i][v]);
    }
    UNROLL_FOR (i, nq) {
        if (tile->n_valid[i] == 0) continue;
        uint32_t rest = tile->first[i] > to ? tile->first[i] : to;
        weigh_some(tile, vectors, rest, tile->n_valid[i], d, value_bytes, load, scores[i], acc[i]);
        UNROLL_FOR (v, vectors) {
            float *out = queries->acc[i] + d + (size_t)v * V_LANES;
            vf before = v_mul(v_load(out), v_set1(join[i].old));
            v_store(out, v_fma(acc[i][v], v_set1(join[i].fresh), before));
        }
    }
}

/* weigh_tail() - the last dim_v % V_LANES dimensions, copied out so that no load passes the end of
 * a row. */
INLINE void weigh_tail(const struct attention_queries *queries, const struct attention_tile *tile,
                       int nq, size_t d, size_t value_bytes, load_cached_fn *load,
                       float scores[][ATTENTION_TILE], const struct join *join)
{
    size_t n = tile->dim_v - d;
    for (int i = 0; i < nq; i++) {
        if (tile->n_valid[i] == 0) continue;
        vf acc = v_zero();
        for (uint32_t p = tile->first[i]; p < tile->n_valid[i]; p++) {
            uint8_t padded[V_LANES * sizeof(float)] __attribute__((aligned(4))) = {0};
            memcpy(padded, values_of(tile, p, value_bytes) + d * value_bytes, n * value_bytes);
            acc = v_fma(v_set1(scores[i][p]), load(padded, 0), acc);
        }
        vf before = v_mul(v_load_n(queries->acc[i] + d, n), v_set1(join[i].old));
        v_store_n(queries->acc[i] + d, v_fma(acc, v_set1(join[i].fresh), before), n);
    }
}

/* weigh_keys() - values that are the front of the keys: a lane is a position, positions [first, end)
 * are those that any query sees, and the lanes of a dimension are folded at the end. */
INLINE void weigh_keys(const struct attention_queries *queries, const struct attention_tile *tile,
                       int nq, uint32_t first, uint32_t end, load_cached_fn *load,
                       float scores[][ATTENTION_TILE], const struct join *join)
{
    for (size_t d = 0; d < tile->dim_v; d++) {
        vf acc[ATTENTION_QUERIES];
        UNROLL_FOR (i, nq) acc[i] = v_zero();
        for (uint32_t p = first; p < end; p += V_LANES) {
            vf key = load(tile->block[p / KV_BLOCK_POSITIONS],
                          d * KV_BLOCK_POSITIONS + p % KV_BLOCK_POSITIONS);
            UNROLL_FOR (i, nq) {
                uint32_t left = tile->n_valid[i] > p ? tile->n_valid[i] - p : 0;
                size_t some = left < V_LANES ? left : V_LANES;
                acc[i] = v_fma(v_first_n(v_load(&scores[i][p]), some, v_zero()),
                               v_first_n(key, some, v_zero()), acc[i]);
            }
        }
        UNROLL_FOR (i, nq)
            if (tile->n_valid[i] > 0)
                queries->acc[i][d] =
                    queries->acc[i][d] * join[i].old + v_fold_add(acc[i]) * join[i].fresh;
    }
}

INLINE void attention(struct attention_queries *queries, const struct attention_tile *tile, int nq,
                      size_t value_bytes, load_cached_fn *load)
{
    float scores[ATTENTION_QUERIES][ATTENTION_TILE];
    struct join join[ATTENTION_QUERIES] = {{0}};
    uint32_t first = ATTENTION_TILE, end = 0; /* of what any query sees */
    for (int i = 0; i < nq; i++) {
        if (tile->n_valid[i] > end) end = tile->n_valid[i];
        if (tile->n_valid[i] > 0 && tile->first[i] < first) first = tile->first[i];
    }
    uint32_t block = first / KV_BLOCK_POSITIONS * KV_BLOCK_POSITIONS;
    score(queries, tile, nq, block, end, load, scores);
    for (int i = 0; i < nq; i++) {
        if (tile->n_valid[i] == 0) continue;
        adjust(tile, i, block, scores[i]);
        join[i] = soften(queries, i, block, tile->n_valid[i], scores[i]);
    }
    if (tile->values_in_keys) {
        weigh_keys(queries, tile, nq, block, end, load, scores, join);
        return;
    }
    size_t d = 0;
    for (; d + ATTEND_VECTORS * V_LANES <= tile->dim_v; d += ATTEND_VECTORS * V_LANES)
        weigh(queries, tile, nq, ATTEND_VECTORS, d, value_bytes, load, scores, join);
    for (; d + V_LANES <= tile->dim_v; d += V_LANES)
        weigh(queries, tile, nq, 1, d, value_bytes, load, scores, join);
    if (d < tile->dim_v) weigh_tail(queries, tile, nq, d, value_bytes, load, scores, join);
}

#define DEFINE_ATTENTION(format, bytes)                                                            \
    KERNEL_ATTENTION(KERNEL_NAME(attention_##format))                                              \
    {                                                                                              \
        switch (queries->n) {                                                                      \
        case 1:                                                                                    \
            attention(queries, tile, 1, bytes, cached_##format);                                   \
            break;                                                                                 \
        case 2:                                                                                    \
            attention(queries, tile, 2, bytes, cached_##format);                                   \
            break;                                                                                 \
        case 3:                                                                                    \
            attention(queries, tile, 3, bytes, cached_##format);                                   \
            break;                                                                                 \
        default:                                                                                   \
            attention(queries, tile, 4, bytes, cached_##format);                                   \
            break;                                                                                 \
        }                                                                                          \
    }

DEFINE_ATTENTION(f16, 2)
DEFINE_ATTENTION(f32, 4)
