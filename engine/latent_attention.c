/* latent_attention - see latent_attention.h.
 *
 * Regions of buffers.wide, where a later one may take the place of one that is done with:
 *   [rows][q_rank]                     the compressed query
 *   [rows][c r]                        the latent and its key, to be cached
 *   [rows][n_head][plain rotated]      queries; later [rows][n_head][value], the results
 *   [n_head][rows][plain]              the queries' plain part; later [n_head][rows][c], the sums
 *   [rows][n_head][c r]                queries on the latent's side
 * Of those that start with n_head, the rows of a head lie side by side, as a product reads them. */
#include "engine/latent_attention.h"

#include <string.h>

struct regions {
    float *q_low, *kv, *q, *heads, *plain, *sums, *query;
    size_t q_rank, width, n_rot, key, key_plain, value, n_head;
};

static struct regions lay_out(const struct pass *p, uint32_t layer)
{
    const struct hparams *hp = &p->model->hp;
    struct regions r = {
        .q_low = p->buffers->wide,
        .q_rank = hp->latent.q_rank,
        .width = hp->latent.width,
        .n_rot = hp->n_rot,
        .key = hp->latent.width + hp->n_rot,
        .key_plain = hp->latent.key_plain,
        .value = hp->latent.value,
        .n_head = hp->layer[layer].n_head,
    };
    size_t n = p->n_rows, head = r.key_plain + r.n_rot;
    r.kv = r.q_low + n * r.q_rank;
    r.q = r.heads = r.kv + n * r.key;
    r.plain = r.sums = r.q + n * r.n_head * (head > r.value ? head : r.value);
    r.query = r.plain + n * r.n_head * (r.key_plain > r.width ? r.key_plain : r.width);
    return r;
}

/* project_rows() - queries, through their compressed form where the model has one, and
 * the latent. */
static void project_rows(const struct pass *p, struct team *t, uint32_t layer,
                         const struct input *in, const struct regions *r)
{
    size_t from, to, width_q = r->n_head * (r->key_plain + r->n_rot);
    const struct weight *expand = weights_get(p->weights, TENSOR_ATTN_Q_B, layer);
    const float *norm = weights_values(p->weights, TENSOR_ATTN_Q_A_NORM, layer);
    pass_project(p, t, layer, TENSOR_ATTN_Q, TENSOR_ATTN_Q_BIAS, in, r->q, width_q);
    pass_project(p, t, layer, TENSOR_ATTN_Q_A, TENSOR_ATTN_Q_BIAS, in, r->q_low, r->q_rank);
    pass_project(p, t, layer, TENSOR_ATTN_KV_A, TENSOR_ATTN_K_BIAS, in, r->kv, r->key);
    team_wait(t);
    if (expand == NULL) return;
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) {
        float *x = r->q_low + row * r->q_rank;
        p->kernels->norm[p->model->family->norm](x, norm, NULL, r->q_rank, p->model->hp.norm_eps,
                                                 x);
    }
    team_wait(t);
    struct input low = {
        .rows = r->q_low, .n = p->n_rows, .n_in = r->q_rank, .quantised = pass_reads_q8(expand)};
    pass_quantise(p, t, &low);
    team_wait(t);
    pass_product(p, t, expand, &low, &(struct output){.y = r->q, .stride = width_q});
    team_wait(t);
}

/* prepare_rows() - norm and rotate what is cached, and store it; take the queries apart. */
static void prepare_rows(const struct pass *p, struct team *t, const struct attention *a,
                         const struct regions *r)
{
    const float *norm = weights_values(p->weights, TENSOR_ATTN_KV_A_NORM, a->layer);
    size_t from, to, head = r->key_plain + r->n_rot;
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) {
        float *kv = r->kv + row * r->key, *q = r->q + row * r->n_head * head;
        p->kernels->norm[p->model->family->norm](kv, norm, NULL, r->width, p->model->hp.norm_eps,
                                                 kv);
        attention_rotate(p, a->layer, row, kv + r->width, 1, r->key);
        attention_store(p, a, (uint32_t)row, kv, NULL);
        attention_rotate(p, a->layer, row, q + r->key_plain, a->n_head, head);
        for (size_t h = 0; h < r->n_head; h++) {
            memcpy(r->plain + (h * p->n_rows + row) * r->key_plain, q + h * head,
                   r->key_plain * sizeof *q);
            memcpy(r->query + (row * r->n_head + h) * r->key + r->width,
                   q + h * head + r->key_plain, r->n_rot * sizeof *q);
        }
    }
    team_wait(t);
}

/* project_heads() - each head's own matrix: rows [n_head][rows][n_in] to y + row stride + h step. A
 * share of heads each. */
static void project_heads(const struct pass *p, struct team *t, const struct weight *w, float *rows,
                          float *y, size_t stride, size_t step)
{
    size_t from, to, n_in = w->panels.n_in;
    struct input all = {
        .rows = rows, .n = w->n_matrices * p->n_rows, .n_in = n_in, .quantised = pass_reads_q8(w)};
    pass_quantise(p, t, &all);
    team_wait(t);
    team_share(t, w->n_matrices, &from, &to);
    for (size_t h = from; h < to; h++) {
        struct weight matrix = weight_matrix(w, h);
        struct input in = all;
        in.n = p->n_rows;
        in.q8_row = h * p->n_rows;
        in.rows = rows + in.q8_row * n_in;
        pass_whole_product(p, t, &matrix, &in,
                           &(struct output){.y = y + h * step, .stride = stride});
    }
    team_wait(t);
}

void latent_attention_forward(const struct pass *p, struct team *t, uint32_t layer,
                              const struct input *in)
{
    struct regions r = lay_out(p, layer);
    struct attention a = {
        .layer = layer,
        .local = layer - p->first_layer,
        .n_head = (uint32_t)r.n_head,
        .n_head_kv = 1,
        .dim_k = r.key,
        .dim_v = r.width,
        .values_in_keys = true,
        .q = r.query,
        .q_row = r.n_head * r.key,
        .out = r.sums,
        .out_row = r.width,
        .out_head = p->n_rows * r.width,
    };
    project_rows(p, t, layer, in, &r);
    prepare_rows(p, t, &a, &r);
    project_heads(p, t, weights_get(p->weights, TENSOR_ATTN_K_B, layer), r.plain, r.query, a.q_row,
                  r.key);
    attention_attend(p, t, &a);
    project_heads(p, t, weights_get(p->weights, TENSOR_ATTN_V_B, layer), r.sums, r.heads,
                  r.n_head * r.value, r.value);
    struct input heads = {.rows = r.heads, .n = p->n_rows, .n_in = r.n_head * r.value};
    pass_rejoin(p, t, layer, &attention_way_back, &heads);
}
