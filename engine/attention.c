/* attention - see attention.h.
 *
 * Regions of buffers.wide: [rows][q k v], then [rows][heads]. A row of q k v holds all heads of q,
 * then of k, then of v. */
#include "engine/attention.h"

#include "engine/fmath.h"

#include <math.h>

const struct way_back attention_way_back = {TENSOR_ATTN_OUT, TENSOR_ATTN_OUT_BIAS,
                                            TENSOR_ATTN_POST_NORM};

bool attention_reads_q8(const struct pass *p, uint32_t layer)
{
    static const enum tensor_id reads[] = {TENSOR_ATTN_QKV, TENSOR_ATTN_Q,   TENSOR_ATTN_K,
                                           TENSOR_ATTN_V,   TENSOR_ATTN_Q_A, TENSOR_ATTN_KV_A,
                                           TENSOR_CONV_IN};
    bool quantised = false;
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++)
        quantised |= pass_reads_q8(weights_get(p->weights, reads[i], layer));
    return quantised;
}

/* ---- rows: from the products to the cache ---- */

void attention_store(const struct pass *p, const struct attention *a, uint32_t row, const float *k,
                     const float *v)
{
    const struct kv_cache *kv = p->kv;
    uint32_t pos = p->batch->pos[row], within = pos % KV_BLOCK_POSITIONS;
    kernel_store_fn *store = p->kernels->store[kv->format];
    for (uint32_t h = 0; h < a->n_head_kv; h++) {
        uint8_t *keys =
            kv_cache_block(kv, a->local, p->batch->seq[row], pos / KV_BLOCK_POSITIONS, h);
        uint8_t *values = keys + KV_BLOCK_POSITIONS * a->dim_k * kv->value_bytes;
        store(k + h * a->dim_k, a->dim_k, keys + within * kv->value_bytes, KV_BLOCK_POSITIONS);
        if (v == NULL) continue;
        store(v + h * a->dim_v, a->dim_v, values + within * a->dim_v * kv->value_bytes, 1);
    }
}

void attention_rotate(const struct pass *p, uint32_t layer, size_t row, float *head, uint32_t n,
                      size_t stride)
{
    const struct rope *rope = p->rope;
    enum layer_rope table = p->model->hp.layer[layer].rope;
    if (table == LAYER_ROPE_OFF) return;
    size_t at = (row * rope->n_tables + table) * rope->n_pairs;
    kernel_rope_fn *rotate = p->kernels->rope[p->model->family->rope];
    for (uint32_t h = 0; h < n; h++)
        rotate(head + h * stride, p->buffers->cos + at, p->buffers->sin + at, 2 * rope->n_pairs);
}

/* norm_heads() - norm over the width of the tensor's rows: a head each, with one row of weights for
 * all or a row for each, or all heads at once. Nothing where the tensor is absent. */
static void norm_heads(const struct pass *p, uint32_t layer, enum tensor_id id, float *x,
                       size_t width)
{
    const struct weight *w = weights_get(p->weights, id, layer);
    if (w == NULL) return;
    kernel_norm_fn *norm = p->kernels->norm[p->model->family->norm];
    size_t n = w->panels.n_in, rows = w->panels.n_out;
    for (size_t i = 0; i < width / n; i++)
        norm(x + i * n, w->values + (rows > 1 ? i * n : 0), NULL, n, p->model->hp.norm_eps,
             x + i * n);
}

static void clamp(float *x, size_t n, float limit)
{
    for (size_t i = 0; i < n; i++) x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

/* prepare_rows() - q and k get their norms and positions; then k and v go to the cache, from where
 * all rows read them. */
static void prepare_rows(const struct pass *p, struct team *t, const struct attention *a,
                         float *qkv)
{
    const struct hparams *hp = &p->model->hp;
    size_t from, to, width_q = a->n_head * a->dim_k, width_k = a->n_head_kv * a->dim_k;
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) {
        float *q = qkv + row * a->q_row, *k = q + width_q, *v = k + width_k;
        if (hp->qkv_clamp > 0) clamp(q, a->q_row, hp->qkv_clamp);
        norm_heads(p, a->layer, TENSOR_ATTN_Q_NORM, q, width_q);
        norm_heads(p, a->layer, TENSOR_ATTN_K_NORM, k, width_k);
        attention_rotate(p, a->layer, row, q, a->n_head + a->n_head_kv, a->dim_k);
        attention_store(p, a, (uint32_t)row, k, v);
    }
    team_wait(t);
}

/* ---- queries: along the tiles ---- */

/* The queries of a group of rows and one kv head, in the order row by row, head by head. */
struct query_set {
    const struct row_group *group;
    uint32_t kv_head, heads_per_kv, seq;
};

static uint32_t query_row(const struct query_set *set, uint32_t i)
{
    return set->group->first + i / set->heads_per_kv;
}

/* The slope of a head's linear bias: powers of 2^(-max_bias / n2), n2 the largest power of two that
 * is not above n_head; heads beyond it take the odd powers of that number's root (Press et al.,
 * "Train short, test long", 2021). */
static float alibi_slope(float max_bias, uint32_t head, uint32_t n_head)
{
    uint32_t n2 = 1;
    while (n2 * 2 <= n_head) n2 *= 2;
    double power = head < n2 ? head + 1.0 : (2.0 * (head - n2) + 1) / 2;
    return (float)fmath_pow(2, -max_bias * power / n2);
}

/* Up to ATTENTION_QUERIES queries on their way: what they see are positions [from, end). */
struct walk {
    struct attention_queries queries;
    struct attention_tile tile;
    uint32_t from[ATTENTION_QUERIES], end[ATTENTION_QUERIES];
};

static void start_query(const struct pass *p, const struct attention *a,
                        const struct query_set *set, uint32_t index, struct walk *w, uint32_t i)
{
    const struct hparams *hp = &p->model->hp;
    const float *sinks = weights_values(p->weights, TENSOR_ATTN_SINKS, a->layer);
    uint32_t row = query_row(set, index), window = hp->layer[a->layer].window;
    uint32_t head = set->kv_head * set->heads_per_kv + index % set->heads_per_kv;
    w->queries.q[i] = a->q + row * a->q_row + head * a->dim_k;
    w->queries.acc[i] = a->out + row * a->out_row + head * a->out_head;
    for (size_t d = 0; d < a->dim_v; d++) w->queries.acc[i][d] = 0;
    /* A sink is a score that brings no value. */
    w->queries.max[i] = sinks != NULL ? sinks[head] : -INFINITY;
    w->queries.sum[i] = sinks != NULL ? 1 : 0;
    if (hp->alibi_max_bias > 0) w->tile.slope[i] = alibi_slope(hp->alibi_max_bias, head, a->n_head);
    w->end[i] = p->batch->pos[row] + 1;
    w->from[i] = window > 0 && w->end[i] > window ? w->end[i] - window : 0;
}

/* look_at_tile() - what each query sees of the tile at position start, and where its blocks are. */
static void look_at_tile(const struct pass *p, const struct attention *a,
                         const struct query_set *set, struct walk *w, uint32_t start)
{
    struct attention_tile *tile = &w->tile;
    uint32_t first = ATTENTION_TILE, end = 0; /* of what any of them sees */
    for (uint32_t i = 0; i < w->queries.n; i++) {
        uint32_t skipped = w->from[i] > start ? w->from[i] - start : 0;
        uint32_t left = w->end[i] > start ? w->end[i] - start : 0;
        tile->first[i] = skipped < ATTENTION_TILE ? skipped : ATTENTION_TILE;
        tile->n_valid[i] = left < ATTENTION_TILE ? left : ATTENTION_TILE;
        if (tile->first[i] == ATTENTION_TILE) tile->n_valid[i] = 0;
        tile->distance[i] = (int32_t)(w->end[i] - 1) - (int32_t)start;
        if (tile->n_valid[i] == 0) continue;
        first = tile->first[i] < first ? tile->first[i] : first;
        end = tile->n_valid[i] > end ? tile->n_valid[i] : end;
    }
    for (uint32_t b = 0; b < TILE_BLOCKS; b++) {
        bool seen = (b + 1) * KV_BLOCK_POSITIONS > first && b * KV_BLOCK_POSITIONS < end;
        tile->block[b] = !seen ? NULL
                               : kv_cache_block(p->kv, a->local, set->seq,
                                                start / KV_BLOCK_POSITIONS + b, set->kv_head);
    }
}

/* attend_few() - queries [first, first + n) of a set walk all tiles that they see. */
static void attend_few(const struct pass *p, const struct attention *a, const struct query_set *set,
                       uint32_t first, uint32_t n)
{
    struct walk w = {.queries = {.n = n},
                     .tile = {.dim_k = a->dim_k,
                              .dim_v = a->dim_v,
                              .values_in_keys = a->values_in_keys,
                              .scale = p->model->hp.attn_scale,
                              .softcap = p->model->hp.attn_softcap}};
    for (uint32_t i = 0; i < n; i++) start_query(p, a, set, first + i, &w, i);
    uint32_t start = w.from[0] / ATTENTION_TILE * ATTENTION_TILE;
    for (; start < w.end[n - 1]; start += ATTENTION_TILE) {
        look_at_tile(p, a, set, &w, start);
        p->kernels->attention[p->kv->format](&w.queries, &w.tile);
    }
    for (uint32_t i = 0; i < n; i++)
        for (size_t d = 0; d < a->dim_v; d++) w.queries.acc[i][d] /= w.queries.sum[i];
}

void attention_attend(const struct pass *p, struct team *t, const struct attention *a)
{
    uint64_t turn = 0;
    for (uint64_t item = 0; item < (uint64_t)p->n_groups * a->n_head_kv; item++) {
        const struct row_group *group = &p->buffers->groups[item / a->n_head_kv];
        struct query_set set = {
            .group = group,
            .kv_head = (uint32_t)(item % a->n_head_kv),
            .heads_per_kv = a->n_head / a->n_head_kv,
            .seq = p->batch->seq[group->first],
        };
        uint32_t n = group->n * set.heads_per_kv;
        for (uint32_t i = 0; i < n; i += ATTENTION_QUERIES) {
            if (turn++ % t->size != t->id) continue;
            uint32_t few = n - i < ATTENTION_QUERIES ? n - i : ATTENTION_QUERIES;
            attend_few(p, a, &set, i, few);
            uint64_t last = p->batch->pos[query_row(&set, i + few - 1)];
            team_tick(t, p, few * last * (a->dim_k + a->dim_v));
        }
    }
    team_wait(t);
}

/* ---- all together ---- */

void attention_forward(const struct pass *p, struct team *t, uint32_t layer, const struct input *in)
{
    const struct model *m = p->model;
    size_t width = model_dim(m, DIM_QKV, layer);
    float *q = p->buffers->wide, *k = q + model_dim(m, DIM_Q, layer),
          *v = k + model_dim(m, DIM_K, layer);
    struct attention a = {
        .layer = layer,
        .local = layer - p->first_layer,
        .n_head = m->hp.layer[layer].n_head,
        .n_head_kv = m->hp.layer[layer].n_head_kv,
        .dim_k = m->hp.head_dim_k,
        .dim_v = m->hp.head_dim_v,
        .q = q,
        .q_row = width,
        .out = q + p->n_rows * width,
        .out_row = model_dim(m, DIM_HEADS, layer),
        .out_head = m->hp.head_dim_v,
    };
    pass_project(p, t, layer, TENSOR_ATTN_QKV, TENSOR_ATTN_QKV_BIAS, in, q, width);
    pass_project(p, t, layer, TENSOR_ATTN_Q, TENSOR_ATTN_Q_BIAS, in, q, width);
    pass_project(p, t, layer, TENSOR_ATTN_K, TENSOR_ATTN_K_BIAS, in, k, width);
    pass_project(p, t, layer, TENSOR_ATTN_V, TENSOR_ATTN_V_BIAS, in, v, width);
    team_wait(t);
    prepare_rows(p, t, &a, q);
    attention_attend(p, t, &a);
    struct input heads = {.rows = a.out, .n = p->n_rows, .n_in = a.out_row};
    pass_rejoin(p, t, layer, &attention_way_back, &heads);
}
