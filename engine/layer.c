/* layer - see layer.h. */
#include "engine/layer.h"

#include <math.h>

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t layer_wide_values(const struct model *m, uint32_t layer)
{
    return max_u64(model_dim(m, DIM_QKV, layer) + model_dim(m, DIM_HEADS, layer),
                   2 * model_dim(m, DIM_FF, layer));
}

uint64_t layer_widest_input(const struct model *m, uint32_t layer)
{
    return max_u64(m->hp.n_embd,
                   max_u64(model_dim(m, DIM_HEADS, layer), model_dim(m, DIM_FF, layer)));
}

/* The numbers of one layer's attention. A row of qkv holds all of q, then k, then v. */
struct attention {
    uint32_t layer, local; /* its number in the model and in the stage */
    uint32_t n_head, n_head_kv;
    size_t dim_k, dim_v, width_q, width_k, width;
    float *qkv;   /* [rows][width] */
    float *heads; /* [rows][n_head dim_v] */
};

static struct attention describe(const struct pass *p, uint32_t layer)
{
    const struct model *m = p->model;
    struct attention a = {
        .layer = layer,
        .local = layer - p->first_layer,
        .n_head = m->hp.layer[layer].n_head,
        .n_head_kv = m->hp.layer[layer].n_head_kv,
        .dim_k = m->hp.head_dim_k,
        .dim_v = m->hp.head_dim_v,
        .width_q = model_dim(m, DIM_Q, layer),
        .width_k = model_dim(m, DIM_K, layer),
        .width = model_dim(m, DIM_QKV, layer),
        .qkv = p->buffers->wide,
    };
    a.heads = a.qkv + p->n_rows * a.width;
    return a;
}

/* norm_input() - the normed rows, quantised if any of the weights that read them wants that. */
static struct input norm_input(const struct pass *p, struct team *t, uint32_t layer,
                               enum tensor_id norm, enum tensor_id bias, bool quantised)
{
    struct input in = {.rows = p->buffers->normed,
                       .n = p->n_rows,
                       .n_in = p->model->hp.n_embd,
                       .quantised = quantised};
    pass_norm(p, t, &in, weights_values(p->weights, norm, layer),
              weights_values(p->weights, bias, layer), NULL);
    team_wait(t);
    return in;
}

/* project() - the product of one tensor into its columns of y; nothing where the tensor is absent.
 */
static void project(const struct pass *p, struct team *t, uint32_t layer, enum tensor_id id,
                    enum tensor_id bias, const struct input *in, float *y, size_t stride)
{
    const struct weight *w = weights_get(p->weights, id, layer);
    if (w == NULL) return;
    struct output out = {.y = y, .stride = stride, .bias = weights_values(p->weights, bias, layer)};
    pass_product(p, t, w, in, &out);
}

/* project_back() - the product that returns to the residual stream. */
static void project_back(const struct pass *p, struct team *t, uint32_t layer, enum tensor_id id,
                         enum tensor_id bias, struct input *in)
{
    const struct weight *w = weights_get(p->weights, id, layer);
    size_t n_embd = p->model->hp.n_embd;
    struct output out = {.y = p->buffers->normed,
                         .stride = n_embd,
                         .bias = weights_values(p->weights, bias, layer),
                         .residual = p->x,
                         .residual_stride = n_embd};
    in->quantised = pass_reads_q8(w);
    if (in->quantised) {
        pass_quantise(p, t, in);
        team_wait(t);
    }
    pass_product(p, t, w, in, &out);
    team_wait(t);
}

static void project_qkv(const struct pass *p, struct team *t, const struct attention *a)
{
    static const enum tensor_id reads[] = {TENSOR_ATTN_QKV, TENSOR_ATTN_Q, TENSOR_ATTN_K,
                                           TENSOR_ATTN_V};
    bool quantised = false;
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++)
        quantised |= pass_reads_q8(weights_get(p->weights, reads[i], a->layer));
    struct input in =
        norm_input(p, t, a->layer, TENSOR_ATTN_NORM, TENSOR_ATTN_NORM_BIAS, quantised);
    float *q = a->qkv, *k = q + a->width_q, *v = k + a->width_k;
    project(p, t, a->layer, TENSOR_ATTN_QKV, TENSOR_ATTN_QKV_BIAS, &in, q, a->width);
    project(p, t, a->layer, TENSOR_ATTN_Q, TENSOR_ATTN_Q_BIAS, &in, q, a->width);
    project(p, t, a->layer, TENSOR_ATTN_K, TENSOR_ATTN_K_BIAS, &in, k, a->width);
    project(p, t, a->layer, TENSOR_ATTN_V, TENSOR_ATTN_V_BIAS, &in, v, a->width);
    team_wait(t);
}

/* store_row() - one row's keys and values to the cache, rounded to its number format there. */
static void store_row(const struct pass *p, const struct attention *a, uint32_t row)
{
    const struct kv_cache *kv = p->kv;
    uint32_t pos = p->batch->pos[row], within = pos % KV_BLOCK_POSITIONS;
    const float *k = a->qkv + row * a->width + a->width_q, *v = k + a->width_k;
    kernel_store_fn *store = p->kernels->store[kv->format];
    for (uint32_t h = 0; h < a->n_head_kv; h++) {
        uint8_t *keys =
            kv_cache_block(kv, a->local, p->batch->seq[row], pos / KV_BLOCK_POSITIONS, h);
        uint8_t *values = keys + KV_BLOCK_POSITIONS * a->dim_k * kv->value_bytes;
        store(k + h * a->dim_k, a->dim_k, keys + within * kv->value_bytes, KV_BLOCK_POSITIONS);
        store(v + h * a->dim_v, a->dim_v, values + within * a->dim_v * kv->value_bytes, 1);
    }
}

/* rotate_and_store() - q and k get their positions; then k and v go to the cache, from where all
 * rows read them. */
static void rotate_and_store(const struct pass *p, struct team *t, const struct attention *a)
{
    size_t from, to, pairs = p->rope->n_pairs;
    kernel_rope_fn *rotate = p->kernels->rope[p->model->family->rope];
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) {
        float *head = a->qkv + row * a->width;
        const float *cos = p->buffers->cos + row * pairs, *sin = p->buffers->sin + row * pairs;
        for (uint32_t h = 0; pairs > 0 && h < a->n_head + a->n_head_kv; h++, head += a->dim_k)
            rotate(head, cos, sin, 2 * pairs);
        store_row(p, a, (uint32_t)row);
        team_tick(t, p, 4 * a->width);
    }
    team_wait(t);
}

/* The queries of a group of rows and one kv head, in the order row by row, head by head. */
struct query_set {
    const struct row_group *group;
    uint32_t kv_head, heads_per_kv, seq;
};

static uint32_t query_row(const struct query_set *set, uint32_t i)
{
    return set->group->first + i / set->heads_per_kv;
}

/* attend_few() - queries [first, first + n) of a set walk all tiles that they see. */
static void attend_few(const struct pass *p, const struct attention *a, const struct query_set *set,
                       uint32_t first, uint32_t n)
{
    struct attention_queries queries = {.n = n};
    struct attention_tile tile = {
        .dim_k = a->dim_k, .dim_v = a->dim_v, .scale = 1 / sqrtf((float)a->dim_k)};
    uint32_t seen[ATTENTION_QUERIES] = {0}; /* positions */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = query_row(set, first + i);
        uint32_t head = set->kv_head * set->heads_per_kv + (first + i) % set->heads_per_kv;
        queries.q[i] = a->qkv + row * a->width + head * a->dim_k;
        queries.acc[i] = a->heads + (row * (size_t)a->n_head + head) * a->dim_v;
        queries.max[i] = -INFINITY;
        for (size_t d = 0; d < a->dim_v; d++) queries.acc[i][d] = 0;
        seen[i] = p->batch->pos[row] + 1;
    }
    for (uint32_t start = 0; start < seen[n - 1]; start += ATTENTION_TILE) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t left = seen[i] > start ? seen[i] - start : 0;
            tile.n_valid[i] = left < ATTENTION_TILE ? left : ATTENTION_TILE;
        }
        for (uint32_t b = 0; b * KV_BLOCK_POSITIONS < tile.n_valid[n - 1]; b++)
            tile.block[b] = kv_cache_block(p->kv, a->local, set->seq,
                                           start / KV_BLOCK_POSITIONS + b, set->kv_head);
        p->kernels->attention[p->kv->format](&queries, &tile);
    }
    for (uint32_t i = 0; i < n; i++)
        for (size_t d = 0; d < a->dim_v; d++) queries.acc[i][d] /= queries.sum[i];
}

static void attend(const struct pass *p, struct team *t, const struct attention *a)
{
    uint64_t n_items = (uint64_t)p->n_groups * a->n_head_kv;
    for (uint64_t item = t->id; item < n_items; item += t->size) {
        const struct row_group *group = &p->buffers->groups[item / a->n_head_kv];
        struct query_set set = {
            .group = group,
            .kv_head = (uint32_t)(item % a->n_head_kv),
            .heads_per_kv = a->n_head / a->n_head_kv,
            .seq = p->batch->seq[group->first],
        };
        uint32_t n = group->n * set.heads_per_kv;
        for (uint32_t i = 0; i < n; i += ATTENTION_QUERIES) {
            uint32_t few = n - i < ATTENTION_QUERIES ? n - i : ATTENTION_QUERIES;
            attend_few(p, a, &set, i, few);
            uint64_t last = p->batch->pos[query_row(&set, i + few - 1)];
            team_tick(t, p, few * last * (a->dim_k + a->dim_v));
        }
    }
    team_wait(t);
}

static void attention_forward(const struct pass *p, struct team *t, uint32_t layer)
{
    struct attention a = describe(p, layer);
    project_qkv(p, t, &a);
    rotate_and_store(p, t, &a);
    attend(p, t, &a);
    struct input heads = {.rows = a.heads, .n = p->n_rows, .n_in = a.n_head * a.dim_v};
    project_back(p, t, layer, TENSOR_ATTN_OUT, TENSOR_ATTN_OUT_BIAS, &heads);
}

/* activate() - act(gate) * up, or act(up) without a gate, in the columns that this thread has just
 * computed. */
static void activate(const struct pass *p, struct team *t, const struct weight *w, float *hidden,
                     const float *up)
{
    size_t from, to, n_ff = w->panels.n_out;
    team_share(t, panels_count(n_ff), &from, &to);
    from *= PANEL_ROWS;
    to = to * PANEL_ROWS < n_ff ? to * PANEL_ROWS : n_ff;
    kernel_activate_fn *act = p->kernels->activate[p->model->family->activation];
    for (size_t row = 0; from < to && row < p->n_rows; row++) {
        act(hidden + row * n_ff + from, up == NULL ? NULL : up + row * n_ff + from, to - from);
        team_tick(t, p, 16 * (to - from));
    }
    team_wait(t);
}

static void feed_forward(const struct pass *p, struct team *t, uint32_t layer)
{
    const struct weight *gate = weights_get(p->weights, TENSOR_FFN_GATE, layer);
    const struct weight *up = weights_get(p->weights, TENSOR_FFN_UP, layer);
    struct input in = norm_input(p, t, layer, TENSOR_FFN_NORM, TENSOR_FFN_NORM_BIAS,
                                 pass_reads_q8(gate) || pass_reads_q8(up));
    size_t n_ff = up->panels.n_out;
    float *hidden = p->buffers->wide, *other = hidden + p->n_rows * n_ff;
    float *up_to = gate != NULL ? other : hidden;
    project(p, t, layer, TENSOR_FFN_GATE, TENSOR_FFN_GATE_BIAS, &in, hidden, n_ff);
    project(p, t, layer, TENSOR_FFN_UP, TENSOR_FFN_UP_BIAS, &in, up_to, n_ff);
    activate(p, t, up, hidden, gate != NULL ? other : NULL);
    struct input down = {.rows = hidden, .n = p->n_rows, .n_in = n_ff};
    project_back(p, t, layer, TENSOR_FFN_DOWN, TENSOR_FFN_DOWN_BIAS, &down);
}

void layer_forward(const struct pass *p, struct team *t, uint32_t layer)
{
    t->layer = layer;
    attention_forward(p, t, layer);
    feed_forward(p, t, layer);
}
