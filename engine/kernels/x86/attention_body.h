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

/* score() - scores of every query and of the tile's first n positions, n rounded up to whole
 * vectors. */
INLINE void score(const struct attention_queries *queries, const struct attention_tile *tile,
                  int nq, uint32_t n, load_cached_fn *load, float scores[][ATTENTION_TILE])
{
    for (size_t start = 0; start < n; start += SCORE_VECTORS * V_LANES) {
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

/* soften() - scores of one query to exp(score - maximum), in place; maximum and sum join the
 * query's. */
static inline struct join soften(struct attention_queries *queries, int i, uint32_t n,
                                 float *scores)
{
    vf highest = v_set1(-INFINITY), total = v_zero();
    for (size_t p = 0; p < n; p += V_LANES) {
        size_t some = n - p < V_LANES ? n - p : V_LANES;
        highest = v_max(highest, v_first_n(v_load(scores + p), some, v_set1(-INFINITY)));
    }
    float max = v_fold_max(highest);
    for (size_t p = 0; p < n; p += V_LANES) {
        size_t some = n - p < V_LANES ? n - p : V_LANES;
        vf e = v_exp(v_sub(v_load(scores + p), v_set1(max)));
        v_store(scores + p, e);
        total = v_add(total, v_first_n(e, some, v_zero()));
    }
    float lanes[V_LANES];
    v_store(lanes, total);
    for (size_t half = V_LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++) lanes[l] += lanes[l + half];

    float both = max > queries->max[i] ? max : queries->max[i];
    struct join join = {.old = v_first(v_exp(v_set1(queries->max[i] - both))),
                        .fresh = v_first(v_exp(v_set1(max - both)))};
    queries->max[i] = both;
    queries->sum[i] = queries->sum[i] * join.old + lanes[0] * join.fresh;
    return join;
}

/* values_of() - where position p of the tile has its values. */
INLINE const uint8_t *values_of(const struct attention_tile *tile, uint32_t p, size_t value_bytes)
{
    return tile->block[p / KV_BLOCK_POSITIONS] +
           (tile->dim_k * KV_BLOCK_POSITIONS + p % KV_BLOCK_POSITIONS * tile->dim_v) * value_bytes;
}

/* weigh() - vectors of value dimensions from d on, all of them whole. */
INLINE void weigh(const struct attention_queries *queries, const struct attention_tile *tile,
                  int nq, int vectors, size_t d, size_t value_bytes, load_cached_fn *load,
                  float scores[][ATTENTION_TILE], const struct join *join)
{
    uint32_t common = tile->n_valid[0]; /* rows ascend, so the first query sees least */
    vf acc[ATTENTION_QUERIES][ATTEND_VECTORS];
    UNROLL_FOR (i, nq)
        UNROLL_FOR (v, vectors) acc[i][v] = v_zero();
    for (uint32_t p = 0; p < common; p++) {
        const uint8_t *values = values_of(tile, p, value_bytes);
        vf value[ATTEND_VECTORS];
        UNROLL_FOR (v, vectors) value[v] = load(values, d + (size_t)v * V_LANES);
        UNROLL_FOR (i, nq)
            UNROLL_FOR (v, vectors) acc[i][v] = v_fma(v_set1(scores[i][p]), value[v], acc[i][v]);
    }
    UNROLL_FOR (i, nq) {
        if (tile->n_valid[i] == 0) continue;
        for (uint32_t p = common; p < tile->n_valid[i]; p++)
            UNROLL_FOR (v, vectors)
                acc[i][v] = v_fma(v_set1(scores[i][p]),
                                  load(values_of(tile, p, value_bytes), d + (size_t)v * V_LANES),
                                  acc[i][v]);
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
        for (uint32_t p = 0; p < tile->n_valid[i]; p++) {
            uint8_t padded[V_LANES * sizeof(float)] __attribute__((aligned(4))) = {0};
            memcpy(padded, values_of(tile, p, value_bytes) + d * value_bytes, n * value_bytes);
            acc = v_fma(v_set1(scores[i][p]), load(padded, 0), acc);
        }
        vf before = v_mul(v_load_n(queries->acc[i] + d, n), v_set1(join[i].old));
        v_store_n(queries->acc[i] + d, v_fma(acc, v_set1(join[i].fresh), before), n);
    }
}

INLINE void attention(struct attention_queries *queries, const struct attention_tile *tile, int nq,
                      size_t value_bytes, load_cached_fn *load)
{
    float scores[ATTENTION_QUERIES][ATTENTION_TILE];
    struct join join[ATTENTION_QUERIES] = {{0}};
    score(queries, tile, nq, tile->n_valid[nq - 1], load, scores);
    for (int i = 0; i < nq; i++)
        if (tile->n_valid[i] > 0) join[i] = soften(queries, i, tile->n_valid[i], scores[i]);
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
