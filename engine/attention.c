/* attention - see attention.h.
 *
 * Regions of buffers.wide: [rows][q k v], then [rows][heads]. A row of q k v holds all heads of q,
 * then of k, then of v. */
#include "engine/attention.h"

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
    size_t keys_bytes = kv_part_bytes(kv->format, a->dim_k);
    for (uint32_t h = 0; h < a->n_head_kv; h++) {
        uint8_t *keys =
            kv_cache_block(kv, a->local, p->batch->seq[row], pos / KV_BLOCK_POSITIONS, h);
        store(k + h * a->dim_k, a->dim_k, keys, within, true);
        if (v != NULL) store(v + h * a->dim_v, a->dim_v, keys + keys_bytes, within, false);
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
