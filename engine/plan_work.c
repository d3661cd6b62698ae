/* plan_work - see plan_work.h. */
#include "engine/plan_work.h"

#include "engine/quant_formats.h"

#include <stdlib.h>

enum {
    GROUP_ROWS = 16, /* rows of a prompt that walk along the cache together */
    FORMATS = FORMAT_MXFP4 + 1,
};

struct reading {
    const struct model *model;
    struct plan_model_work *out;
    double format_bytes[FORMATS];
    bool embedding_is_head; /* of a tied output: the range is the whole model */
};

static bool is_expert(enum tensor_id id)
{
    return id == TENSOR_EXPERT_GATE || id == TENSOR_EXPERT_UP || id == TENSOR_EXPERT_DOWN;
}

/* add_tensor() - look-ups of single rows are no work. */
static int add_tensor(void *ctx, const struct tensor_row *row, uint32_t layer,
                      const struct gguf_tensor *t, struct err *err)
{
    (void)err;
    struct reading *r = ctx;
    const double bytes = (double)model_held_bytes(r->model, row, t);
    const double values = (double)t->shape[0] * (double)t->shape[1] * (double)t->shape[2];
    const bool is_matrix = row->role != ROLE_VALUES;
    if (is_matrix && t->format < FORMATS) r->format_bytes[t->format] += bytes;
    if (row->scope == SCOPE_INPUT && !(row->id == TENSOR_TOKEN_EMBD && r->embedding_is_head))
        return ERR_NONE;
    struct plan_work *w = row->scope == SCOPE_LAYER ? &r->out->layer[layer] : &r->out->head;
    if (is_expert(row->id)) {
        w->expert_bytes += bytes;
        w->expert_ops += 2 * values;
    } else {
        w->bytes += bytes;
        w->row_ops += is_matrix ? 2 * values : 0;
    }
    return ERR_NONE;
}

static void add_attention(struct plan_work *w, const struct hparams *hp, uint32_t layer,
                          enum kv_format kv)
{
    const struct layer_hparams *l = &hp->layer[layer];
    const struct cache_row row = hparams_cache_row(hp, layer);
    w->window = l->is_conv ? hp->conv_width : l->window;
    w->position_bytes =
        (double)row.n_head * ((double)row.dim_k + row.dim_v) * (kv == KV_F16 ? 2 : 4);
    if (l->is_conv) return;
    const double value = hp->latent.width > 0 ? hp->latent.width : row.dim_v;
    w->position_ops = 2.0 * l->n_head * ((double)row.dim_k + value);
}

int plan_work_read(struct plan_model_work *out, const struct model *m, enum kv_format kv,
                   struct err *err)
{
    const struct hparams *hp = &m->hp;
    struct reading r = {
        .model = m, .out = out, .embedding_is_head = model_tensor(m, TENSOR_OUTPUT, 0) == NULL};
    *out = (struct plan_model_work){.n_layer = hp->n_layer};
    if (hp->experts.n > 0) out->chosen_share = (double)hp->experts.n_used / hp->experts.n;
    out->layer = calloc(hp->n_layer, sizeof *out->layer);
    CHECK(out->layer != NULL, err, ERR_MEMORY, "no memory to plan %u layers", hp->n_layer);
    model_visit_range(m, (struct layer_range){0, hp->n_layer}, add_tensor, &r, NULL);
    for (uint32_t i = 0; i < hp->n_layer; i++) add_attention(&out->layer[i], hp, i, kv);
    for (uint32_t f = 1; f < FORMATS; f++)
        if (r.format_bytes[f] > r.format_bytes[out->main_format]) out->main_format = f;
    return ERR_NONE;
}

void plan_work_free(struct plan_model_work *w)
{
    free(w->layer);
    w->layer = NULL;
}

static double seconds(double bytes, double ops, const struct plan_speed *s)
{
    return bytes / s->read_bytes_s + ops / s->ops_s;
}

/* product_seconds() - of so many rows with weights; row_ops: of one of them. */
static double product_seconds(double bytes, double row_ops, double rows, const struct plan_speed *s)
{
    const double few = rows < PLAN_FEW_ROWS ? rows : PLAN_FEW_ROWS;
    const double few_ops_s = s->few_ops_s > 0 ? s->few_ops_s : s->ops_s;
    return seconds(bytes, (rows - few) * row_ops, s) + few * row_ops / few_ops_s;
}

/* expert_seconds() - rows are spread evenly: each expert has some, or a share of them has one. */
static double expert_seconds(const struct plan_work *l, double rows, const struct plan_speed *s)
{
    const double chosen = rows < 1 ? rows : 1, each = rows < 1 ? 1 : rows;
    return chosen * product_seconds(l->expert_bytes, l->expert_ops, each, s);
}

double plan_layer_seconds(const struct plan_model_work *w, uint32_t layer,
                          const struct plan_batch *b, const struct plan_speed *s)
{
    const struct plan_work *l = &w->layer[layer];
    const double seen = l->window > 0 && l->window < b->context ? l->window : b->context;
    double walks = b->rows / GROUP_ROWS;
    if (walks < b->n_seqs) walks = b->n_seqs;
    return product_seconds(l->bytes, l->row_ops, b->rows, s) +
           expert_seconds(l, b->rows * w->chosen_share, s) +
           seconds(l->position_bytes * seen * walks, b->rows * l->position_ops * seen, s);
}

double plan_head_seconds(const struct plan_model_work *w, const struct plan_batch *b,
                         const struct plan_speed *s)
{
    if (b->wanted == 0) return 0;
    return product_seconds(w->head.bytes, w->head.row_ops, b->wanted, s);
}
