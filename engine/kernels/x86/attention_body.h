/* attention_body - one tile of attention, written once for every vector width; included by one file
 * of each instruction set after its simd_*.h and rows_body.h. The formula is KERNEL_ATTENTION's in
 * kernels.h.
 *
 * A few queries share what is loaded of keys and values. Scores: a lane is a position and walks the
 * dimensions in order. Values: a lane is a dimension and walks the positions in order. So a query's
 * result depends on the positions that it sees alone, whoever walks beside it; it never touches a
 * position that it does not see. */
#include "engine/kernels/kernels.h"

#include <math.h>

/* ---- the cache's number formats: each is known when its kernel is compiled ---- */

INLINE size_t cached_bytes(enum kv_format format)
{
    return format == KV_F16 ? 2 : format == KV_F32 ? 4 : 1;
}

/* cached() - values index .. of K or V, which begins at part; those of q8_0 without their scales.
 */
INLINE vf cached(enum kv_format format, const uint8_t *part, size_t index)
{
    if (format == KV_F16) return v_load_f16(part + 2 * index);
    if (format == KV_F32) return v_load((const float *)(const void *)part + index);
    return vi_to_float(vi_load_i8(part + index));
}

/* cached_scales() - of positions at .. of a block, for dimension d of dim: f16, behind the values.
 */
INLINE vf cached_scales(const uint8_t *part, size_t dim, size_t d, size_t at)
{
    size_t scale = d / QUANT_BLOCK * KV_BLOCK_POSITIONS + at;
    return v_load_f16(part + dim * KV_BLOCK_POSITIONS + 2 * scale);
}

/* values_of() - V of a block of the tile; the front of K where values are in the keys. */
INLINE const uint8_t *values_of(enum kv_format format, const struct attention_tile *tile,
                                uint32_t block)
{
    size_t keys = tile->values_in_keys ? 0 : kv_part_bytes(format, tile->dim_k);
    return tile->block[block] + keys;
}

/* What is brought nearer while a tile is at work: the blocks of the next one, from end to end in
 * the order of memory (in any other, the CPU's own prefetching helps little), at the pace at which
 * the queries at work read theirs. */
struct scout {
    const uint8_t *const *block; /* [n_blocks] left; NULL: to be left out */
    uint32_t n_blocks, share;    /* so many times all of the tile at work is read */
    const uint8_t *at;
    size_t left, block_bytes;
};

/* scout_pace() - bytes to bring for each step that reads so many: scales come along. */
INLINE size_t scout_pace(enum kv_format format, const struct scout *scout, size_t bytes)
{
    return (format == KV_Q8_0 ? bytes + 2 * bytes / QUANT_BLOCK : bytes) / scout->share;
}

/* scout_go() - from where on shall so many bytes be brought nearer? instead where there is nothing
 * to bring. */
static inline const uint8_t *scout_go(struct scout *scout, size_t bytes, const uint8_t *instead)
{
    for (; scout->left == 0 && scout->n_blocks > 0; scout->n_blocks--) {
        scout->at = *scout->block++;
        scout->left = scout->at != NULL ? scout->block_bytes : 0;
    }
    if (scout->left == 0) return instead;
    const uint8_t *from = scout->at;
    size_t some = bytes < scout->left ? bytes : scout->left;
    scout->at += some;
    scout->left -= some;
    return from;
}

/* come_near() - what belongs to a step that reads bytes; into the second cache, because it is
 * early. */
INLINE void come_near(const uint8_t *at, size_t bytes)
{
    for (size_t offset = 0; offset < bytes; offset += 64) __builtin_prefetch(at + offset, 0, 2);
}

/* Some of a tile's queries, from..from + ATTEND_QUERIES at most, and what any of them sees:
 * positions [first, end), first being the beginning of a block. */
struct few {
    const struct attention_tile *tile;
    const float *const *q;
    float *const *acc;
    const uint32_t *first_of, *end_of;
    uint32_t first, end;
    struct scout *scout;
};

/* ---- scores ---- */

enum { SCORE_VECTORS = 2 }; /* vectors of positions at once */

/* score() - q . K[p] of every query for whole groups of vectors. Where the cache has scales, the
 * dimensions of one scale are summed first. */
INLINE void score(enum kv_format format, const struct few *few, int nq,
                  float scores[][ATTENTION_TILE])
{
    const struct attention_tile *tile = few->tile;
    const float *q[ATTEND_QUERIES];
    UNROLL_FOR (i, nq) q[i] = few->q[i];
    size_t run = format == KV_Q8_0 ? QUANT_BLOCK : tile->dim_k;
    const size_t step = SCORE_VECTORS * V_LANES * cached_bytes(format);
    const size_t pace = scout_pace(format, few->scout, step);
    for (size_t start = few->first; start < few->end; start += SCORE_VECTORS * V_LANES) {
        size_t block = start / KV_BLOCK_POSITIONS, within = start % KV_BLOCK_POSITIONS;
        const uint8_t *keys = tile->block[block];
        for (size_t d = 0; d < tile->dim_k;) {
            size_t d0 = d, end = tile->dim_k - d < run ? tile->dim_k : d + run;
            const uint8_t *near = scout_go(few->scout, (end - d) * pace, keys);
            vf acc[ATTEND_QUERIES][SCORE_VECTORS];
            UNROLL_FOR (i, nq)
                UNROLL_FOR (v, SCORE_VECTORS) acc[i][v] = v_zero();
            for (; d < end; d++) {
                size_t at = d * KV_BLOCK_POSITIONS + within;
                vf k[SCORE_VECTORS];
                UNROLL_FOR (v, SCORE_VECTORS) k[v] = cached(format, keys, at + (size_t)v * V_LANES);
                come_near(near, step);
                near += pace;
                UNROLL_FOR (i, nq)
                    UNROLL_FOR (v, SCORE_VECTORS)
                        acc[i][v] = v_fma(v_set1(q[i][d]), k[v], acc[i][v]);
            }
            UNROLL_FOR (v, SCORE_VECTORS) {
                size_t lanes = (size_t)v * V_LANES;
                vf scale = format != KV_Q8_0 ? v_set1(1)
                                             : cached_scales(keys, tile->dim_k, d0, within + lanes);
                UNROLL_FOR (i, nq) {
                    float *s = &scores[i][start + lanes];
                    if (format == KV_Q8_0)
                        acc[i][v] = v_fma(acc[i][v], scale, d0 == 0 ? v_zero() : v_load(s));
                    v_store(s, acc[i][v]);
                }
            }
        }
    }
}

/* adjust() - what comes between the product and the softmax for query i: scale, soft cap, linear
 * bias; and positions before its first one weigh nothing. */
INLINE void adjust(const struct attention_tile *tile, uint32_t i, uint32_t first, float *scores)
{
    uint32_t n = tile->n_valid[i];
    for (size_t p = first; p < n; p += V_LANES) {
        vf s = v_mul(v_load(scores + p), v_set1(tile->scale));
        v_store(scores + p, tile->softcap != 0 ? v_softcap(s, tile->softcap) : s);
    }
    if (tile->slope[i] != 0)
        for (uint32_t p = first; p < n; p++)
            scores[p] -= tile->slope[i] * (float)(tile->distance[i] - (int32_t)p);
    for (uint32_t p = first; p < tile->first[i]; p++) scores[p] = -INFINITY;
}

/* How one tile joins what came before: acc = acc * old + tile * fresh. */
struct join {
    float old, fresh;
};

/* join_sums() - a maximum and the sum over it join query i's. */
static inline struct join join_sums(struct attention_queries *queries, uint32_t i, float max,
                                    float sum)
{
    float both = max > queries->max[i] ? max : queries->max[i];
    struct join join = {.old = v_first(v_exp(v_set1(queries->max[i] - both))),
                        .fresh = v_first(v_exp(v_set1(max - both)))};
    queries->max[i] = both;
    queries->sum[i] = queries->sum[i] * join.old + sum * join.fresh;
    return join;
}

/* soften() - scores [first, n) of one query to exp(score - maximum), in place; maximum and sum join
 * the query's. */
static inline struct join soften(struct attention_queries *queries, uint32_t i, uint32_t first,
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
    return join_sums(queries, i, max, v_fold_add(total));
}

/* ---- values ---- */

/* Vectors of value dimensions from d on, all of them whole. */
struct slice {
    size_t d;
    int vectors;
};

/* weigh_run() - positions [from, to) for queries [i, i + nq). */
INLINE void weigh_run(enum kv_format format, const struct few *few, struct slice s, int i, int nq,
                      uint32_t from, uint32_t to, float e[][ATTENTION_TILE],
                      vf acc[][ATTEND_VECTORS])
{
    const struct attention_tile *tile = few->tile;
    size_t row = tile->dim_v * cached_bytes(format);
    const size_t step = (size_t)s.vectors * V_LANES * cached_bytes(format);
    const size_t pace = scout_pace(format, few->scout, step);
    for (uint32_t p = from; p < to;) {
        uint32_t block = p / KV_BLOCK_POSITIONS, next = (block + 1) * KV_BLOCK_POSITIONS;
        const uint8_t *values = values_of(format, tile, block);
        values += p % KV_BLOCK_POSITIONS * row + s.d * cached_bytes(format);
        next = next < to ? next : to;
        const uint8_t *near = scout_go(few->scout, (next - p) * pace, values);
        for (; p < next; p++, values += row, near += pace) {
            vf value[ATTEND_VECTORS];
            UNROLL_FOR (v, s.vectors) value[v] = cached(format, values, (size_t)v * V_LANES);
            come_near(near, step);
            UNROLL_FOR (k, nq)
                UNROLL_FOR (v, s.vectors)
                    acc[i + k][v] = v_fma(v_set1(e[i + k][p]), value[v], acc[i + k][v]);
        }
    }
}

/* weigh() - positions that every query sees are read once for all; what comes before and after is
 * each query's own. */
INLINE void weigh(enum kv_format format, const struct few *few, struct slice s, int nq,
                  float e[][ATTENTION_TILE], const struct join *join)
{
    const uint32_t *first = few->first_of, *end = few->end_of;
    uint32_t to = end[0], from = 0;
    UNROLL_FOR (i, nq) from = first[i] > from ? first[i] : from;
    if (from > to) from = to;
    vf acc[ATTEND_QUERIES][ATTEND_VECTORS];
    UNROLL_FOR (i, nq)
        UNROLL_FOR (v, s.vectors) acc[i][v] = v_zero();
    UNROLL_FOR (i, nq)
        if (first[i] < from) weigh_run(format, few, s, i, 1, first[i], from, e, acc);
    weigh_run(format, few, s, 0, nq, from, to, e, acc);
    UNROLL_FOR (i, nq) {
        if (end[i] == 0) continue;
        uint32_t rest = first[i] > to ? first[i] : to;
        if (rest < end[i]) weigh_run(format, few, s, i, 1, rest, end[i], e, acc);
        UNROLL_FOR (v, s.vectors) {
            float *out = few->acc[i] + s.d + (size_t)v * V_LANES;
            vf before = v_mul(v_load(out), v_set1(join[i].old));
            v_store(out, v_fma(acc[i][v], v_set1(join[i].fresh), before));
        }
    }
}

/* weigh_tail() - the last dim_v % V_LANES dimensions, copied out so that no load passes the end of
 * a row. */
INLINE void weigh_tail(enum kv_format format, const struct few *few, size_t d, int nq,
                       float e[][ATTENTION_TILE], const struct join *join)
{
    const struct attention_tile *tile = few->tile;
    size_t n = tile->dim_v - d, bytes = cached_bytes(format);
    for (int i = 0; i < nq; i++) {
        if (few->end_of[i] == 0) continue;
        vf acc = v_zero();
        for (uint32_t p = few->first_of[i]; p < few->end_of[i]; p++) {
            const uint8_t *values = values_of(format, tile, p / KV_BLOCK_POSITIONS);
            uint8_t padded[V_LANES * sizeof(float)] __attribute__((aligned(4))) = {0};
            memcpy(padded, values + (p % KV_BLOCK_POSITIONS * tile->dim_v + d) * bytes, n * bytes);
            acc = v_fma(v_set1(e[i][p]), cached(format, padded, 0), acc);
        }
        vf before = v_mul(v_load_n(few->acc[i] + d, n), v_set1(join[i].old));
        v_store_n(few->acc[i] + d, v_fma(acc, v_set1(join[i].fresh), before), n);
    }
}

/* weigh_key() - dimension d of values that are the front of the keys: a lane is a position, and the
 * lanes are folded at the end. Vectors of which every query sees all lanes need no mask. */
INLINE void weigh_key(enum kv_format format, const struct few *few, size_t d, int nq,
                      float e[][ATTENTION_TILE], const struct join *join)
{
    vf acc[ATTEND_QUERIES];
    UNROLL_FOR (i, nq) acc[i] = v_zero();
    for (uint32_t p = few->first; p < few->end; p += V_LANES) {
        vf key = cached(format, few->tile->block[p / KV_BLOCK_POSITIONS],
                        d * KV_BLOCK_POSITIONS + p % KV_BLOCK_POSITIONS);
        if (p + V_LANES <= few->end_of[0]) {
            UNROLL_FOR (i, nq) acc[i] = v_fma(v_load(&e[i][p]), key, acc[i]);
            continue;
        }
        UNROLL_FOR (i, nq) {
            uint32_t left = few->end_of[i] > p ? few->end_of[i] - p : 0;
            size_t some = left < V_LANES ? left : V_LANES;
            acc[i] = v_fma(v_first_n(v_load(&e[i][p]), some, v_zero()),
                           v_first_n(key, some, v_zero()), acc[i]);
        }
    }
    UNROLL_FOR (i, nq)
        if (few->end_of[i] > 0)
            few->acc[i][d] =
                __builtin_fmaf(v_fold_add(acc[i]), join[i].fresh, few->acc[i][d] * join[i].old);
}

/* weigh_dims() - value dimensions [d, end). */
INLINE void weigh_dims(enum kv_format format, const struct few *few, size_t d, size_t end, int nq,
                       float e[][ATTENTION_TILE], const struct join *join)
{
    const int most = nq > 4 ? ATTEND_VECTORS / 2 : ATTEND_VECTORS;
    if (few->tile->values_in_keys) {
        for (; d < end; d++) weigh_key(format, few, d, nq, e, join);
        return;
    }
    for (; d + (size_t)most * V_LANES <= end; d += (size_t)most * V_LANES)
        weigh(format, few, (struct slice){d, most}, nq, e, join);
    for (; d + V_LANES <= end; d += V_LANES) weigh(format, few, (struct slice){d, 1}, nq, e, join);
    if (d < end) weigh_tail(format, few, d, nq, e, join);
}

/* weigh_scaled() - where the cache has scales, a position's scale goes to its weight first. */
INLINE void weigh_scaled(const struct few *few, int nq, float e[][ATTENTION_TILE],
                         const struct join *join)
{
    const struct attention_tile *tile = few->tile;
    size_t row = tile->values_in_keys ? tile->dim_k : tile->dim_v;
    float scaled[ATTEND_QUERIES][ATTENTION_TILE];
    for (size_t d = 0; d < tile->dim_v; d += QUANT_BLOCK) {
        for (uint32_t p = few->first; p < few->end; p += V_LANES) {
            const uint8_t *values = values_of(KV_Q8_0, tile, p / KV_BLOCK_POSITIONS);
            vf scale = cached_scales(values, row, d, p % KV_BLOCK_POSITIONS);
            UNROLL_FOR (i, nq) v_store(&scaled[i][p], v_mul(v_load(&e[i][p]), scale));
        }
        size_t end = tile->dim_v - d < QUANT_BLOCK ? tile->dim_v : d + QUANT_BLOCK;
        weigh_dims(KV_Q8_0, few, d, end, nq, scaled, join);
    }
}

/* ---- all together ---- */

/* attention() - queries [from, from + nq). */
INLINE void attention(enum kv_format format, struct attention_queries *queries,
                      const struct attention_tile *tile, struct scout *scout, uint32_t from, int nq)
{
    float scores[ATTEND_QUERIES][ATTENTION_TILE];
    struct join join[ATTEND_QUERIES] = {{0}};
    struct few few = {.tile = tile,
                      .q = queries->q + from,
                      .acc = queries->acc + from,
                      .first_of = tile->first + from,
                      .end_of = tile->n_valid + from,
                      .first = ATTENTION_TILE,
                      .scout = scout};
    for (int i = 0; i < nq; i++) {
        if (few.end_of[i] > few.end) few.end = few.end_of[i];
        if (few.end_of[i] > 0 && few.first_of[i] < few.first) few.first = few.first_of[i];
    }
    if (few.end == 0) return;
    few.first = few.first / KV_BLOCK_POSITIONS * KV_BLOCK_POSITIONS;
    score(format, &few, nq, scores);
    for (int i = 0; i < nq; i++) {
        if (few.end_of[i] == 0) continue;
        adjust(tile, from + (uint32_t)i, few.first, scores[i]);
        join[i] = soften(queries, from + (uint32_t)i, few.first, few.end_of[i], scores[i]);
    }
    if (format == KV_Q8_0)
        weigh_scaled(&few, nq, scores, join);
    else
        weigh_dims(format, &few, 0, tile->dim_v, nq, scores, join);
}

INLINE void attention_by_few(enum kv_format format, struct attention_queries *queries,
                             const struct attention_tile *tile)
{
    uint32_t i = 0, n = queries->n;
    size_t values = tile->values_in_keys ? 0 : kv_part_bytes(format, tile->dim_v);
    struct scout scout = {.block = tile->ahead,
                          .n_blocks = TILE_BLOCKS,
                          .share =
                              n / ATTEND_QUERIES + (uint32_t)__builtin_popcount(n % ATTEND_QUERIES),
                          .block_bytes = kv_part_bytes(format, tile->dim_k) + values};
    for (; i + ATTEND_QUERIES <= n; i += ATTEND_QUERIES)
        attention(format, queries, tile, &scout, i, ATTEND_QUERIES);
    if (i + 4 <= n) attention(format, queries, tile, &scout, i, 4), i += 4;
    if (i + 2 <= n) attention(format, queries, tile, &scout, i, 2), i += 2;
    if (i < n) attention(format, queries, tile, &scout, i, 1);
}

KERNEL_ATTENTION(KERNEL_NAME(attention_f16))
{
    attention_by_few(KV_F16, queries, tile);
}

KERNEL_ATTENTION(KERNEL_NAME(attention_f32))
{
    attention_by_few(KV_F32, queries, tile);
}

KERNEL_ATTENTION(KERNEL_NAME(attention_q8_0))
{
    attention_by_few(KV_Q8_0, queries, tile);
}

KERNEL_ATTENTION_JOIN(KERNEL_NAME(attention_join))
{
    for (uint32_t i = 0; i < whole->n; i++) {
        if (part->sum[i] == 0) continue;
        struct join join = join_sums(whole, i, part->max[i], part->sum[i]);
        float *out = whole->acc[i];
        const float *in = part->acc[i];
        size_t d = 0;
        for (; d + V_LANES <= dim_v; d += V_LANES) {
            vf before = v_mul(v_load(out + d), v_set1(join.old));
            v_store(out + d, v_fma(v_load(in + d), v_set1(join.fresh), before));
        }
        if (d == dim_v) continue;
        vf before = v_mul(v_load_n(out + d, dim_v - d), v_set1(join.old));
        vf more = v_load_n(in + d, dim_v - d);
        v_store_n(out + d, v_fma(more, v_set1(join.fresh), before), dim_v - d);
    }
}
