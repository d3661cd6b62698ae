/* footprint - what a stage will need, in bytes and before anything is taken; declared in model.h.
 *
 * The loader and the stage size what they take by the same functions, so the two agree.
 * Station before: model. Stations after: plan, inspect, weights, stage. */
#include "engine/batch.h"
#include "engine/model.h"
#include "engine/quant_formats.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- tensors ---- */

uint64_t model_matrix_bytes(uint32_t format, uint64_t n_in, uint64_t n_out)
{
    const struct format *f = format_find(format);
    BUG_IF(f == NULL, "a number format that does not exist");
    uint64_t rows = (n_out + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
    return rows * format_row_bytes(f, n_in);
}

/* Keys of latent attention are turned round at load. A block format cannot be, so it is decoded. */
static uint32_t turned_format(uint32_t format)
{
    return format_find(format)->block_values == 1 ? format : FORMAT_F32;
}

uint32_t model_held(const struct model *m, const struct tensor_row *row,
                    const struct gguf_tensor *t, struct held out[2])
{
    const struct latent_hparams *latent = &m->hp.latent;
    uint64_t n_in = t->shape[0], n_out = t->shape[1], n = t->shape[2];
    uint64_t n_head;
    switch (row->role) {
    case ROLE_MATRIX:
        out[0] = (struct held){row->id, true, t->format, n_in, n_out, n};
        return 1;
    case ROLE_HALVES:
        out[0] = (struct held){row->id, true, t->format, n_in, n_out / 2, 2};
        return 1;
    case ROLE_VALUES:
        out[0] = (struct held){row->id, false, FORMAT_F32, n_in, n_out, n};
        return 1;
    case ROLE_LATENT:
        n_head = n_out / (latent->key_plain + latent->value);
        out[0] = (struct held){TENSOR_ATTN_K_B,   true,          turned_format(t->format),
                               latent->key_plain, latent->width, n_head};
        out[1] = (struct held){TENSOR_ATTN_V_B, true, t->format, n_in, latent->value, n_head};
        return 2;
    }
    BUG_IF(true, "a role that does not exist");
    return 0;
}

uint64_t held_bytes(const struct held *h)
{
    if (h->is_packed) return h->n * model_matrix_bytes(h->format, h->n_in, h->n_out);
    return h->n * h->n_out * h->n_in * sizeof(float);
}

uint64_t model_held_bytes(const struct model *m, const struct tensor_row *row,
                          const struct gguf_tensor *t)
{
    struct held held[2];
    uint64_t bytes = 0;
    for (uint32_t i = model_held(m, row, t, held); i-- > 0;) bytes += held_bytes(&held[i]);
    return bytes;
}

struct weight_sum {
    const struct model *m;
    uint64_t bytes;
};

static int add_held_bytes(void *ctx, const struct tensor_row *row, uint32_t layer,
                          const struct gguf_tensor *t, struct err *err)
{
    struct weight_sum *sum = ctx;
    (void)layer;
    (void)err;
    sum->bytes += model_held_bytes(sum->m, row, t);
    return ERR_NONE;
}

/* ---- cache ---- */

/* What the pools take: each layer keeps its positions in the blocks of its class. */
static uint64_t kv_bytes(const struct model *m, struct layer_range range,
                         const struct line_limits *limits)
{
    uint64_t bytes = 0;
    for (uint32_t i = range.first; i < range.end; i++)
        bytes += limits->n_blocks[m->hp.layer[i].kv_class] *
                 kv_block_bytes(limits->kv, hparams_cache_row(&m->hp, i));
    return bytes;
}

/* ---- buffers ---- */

/* Attention, or what stands in its place: see the regions of attention.c, latent_attention.c and
 * short_conv.c. */
static void size_mixer(const struct model *m, uint32_t layer, struct row_sizes *sizes)
{
    const struct hparams *hp = &m->hp;
    uint64_t n_head = hp->layer[layer].n_head, embd = hp->n_embd;
    uint64_t heads = model_dim(m, DIM_HEADS, layer);
    if (hp->layer[layer].is_conv) {
        sizes->wide = max_u64(sizes->wide, 4 * embd);
    } else if (hp->latent.width > 0) {
        uint64_t plain = n_head * hp->latent.key_plain, latent = n_head * hp->latent.width;
        sizes->wide = max_u64(sizes->wide, hp->latent.q_rank + model_dim(m, DIM_LATENT_KEY, layer) +
                                               max_u64(model_dim(m, DIM_LATENT_Q, layer), heads) +
                                               max_u64(plain, latent) +
                                               n_head * model_dim(m, DIM_LATENT_KEY, layer));
        sizes->input = max_u64(sizes->input, max_u64(plain, max_u64(latent, hp->latent.q_rank)));
    } else {
        sizes->wide = max_u64(sizes->wide, model_dim(m, DIM_QKV, layer) + heads);
    }
    sizes->input = max_u64(sizes->input, max_u64(embd, heads));
}

/* Feed-forward or experts: see the regions of feed_forward.c and experts.c. */
static void size_ffn(const struct model *m, uint32_t layer, struct row_sizes *sizes)
{
    const struct expert_hparams *e = &m->hp.experts;
    uint64_t embd = m->hp.n_embd, ff = m->hp.layer[layer].n_ff, used = e->n_used;
    if (!m->hp.layer[layer].has_experts) {
        sizes->wide = max_u64(sizes->wide, 2 * ff);
        sizes->input = max_u64(sizes->input, ff);
        return;
    }
    uint64_t hidden = max_u64(used * e->n_ff, e->n_ff_shared);
    sizes->wide = max_u64(sizes->wide, e->n + 1 + embd + used * embd + 2 * hidden);
    sizes->input = max_u64(sizes->input, max_u64(used * embd, hidden));
    sizes->chosen = used;
}

struct row_sizes model_row_sizes(const struct model *m, struct layer_range range)
{
    struct row_sizes sizes = {.kept = m->hp.residual == RESIDUAL_SEQUENTIAL ? 0 : m->hp.n_embd,
                              .angles = (uint64_t)m->hp.n_rope_tables * (m->hp.n_rot / 2)};
    for (uint32_t i = range.first; i < range.end; i++) {
        size_mixer(m, i, &sizes);
        size_ffn(m, i, &sizes);
    }
    sizes.blocks = (sizes.input + 31) / 32;
    return sizes;
}

uint64_t model_attention_parts(const struct model *m, struct layer_range range,
                               const struct line_limits *limits)
{
    uint64_t tiles = (limits->n_ctx + ATTENTION_TILE - UINT64_C(1)) / ATTENTION_TILE, n_head = 0;
    for (uint32_t i = range.first; i < range.end; i++)
        if (!m->hp.layer[i].is_conv) n_head = max_u64(n_head, m->hp.layer[i].n_head);
    if (tiles < 2) return 0; /* nothing to share */
    uint64_t places = n_head * (tiles + 1);
    return (places < ATTENTION_PARTS ? places : ATTENTION_PARTS) * (m->hp.head_dim_v + UINT64_C(2));
}

/* What engine/stage takes. For each row of a batch:
 *   the residual (the last stage; elsewhere it lives in the caller's frame) and its normed copy
 *   the regions of the widest layer
 *   the widest input quantised: for each 32 values as many bytes, a scale and a sum
 *   cosines and sines; a row group; of each chosen expert its number, place and weight
 * and once: where each expert's rows begin, results of attention's tiles, the wanted rows, the
 * block tables and a mark for each sequence. */
static uint64_t stage_buffer_bytes(const struct model *m, struct layer_range range,
                                   const struct line_limits *limits)
{
    struct row_sizes sizes = model_row_sizes(m, range);
    uint64_t values = (uint64_t)m->hp.n_embd * (range.end == m->hp.n_layer ? 2 : 1) + sizes.kept +
                      sizes.wide + 2 * sizes.angles;
    uint64_t row = values * sizeof(float) + sizes.blocks * 40 + 2 * sizeof(uint32_t) +
                   sizes.chosen * 3 * sizeof(uint32_t);
    uint64_t blocks = (limits->n_ctx + KV_BLOCK_POSITIONS - UINT64_C(1)) / KV_BLOCK_POSITIONS;
    return limits->rows_max * row + (m->hp.experts.n + UINT64_C(1)) * sizeof(uint32_t) +
           model_attention_parts(m, range, limits) * sizeof(float) +
           limits->wanted_max * sizeof(uint32_t) +
           limits->n_seqs * (m->hp.n_kv_classes * (blocks + 2) * sizeof(uint32_t) + 1);
}

struct footprint model_working_bytes(const struct model *m, struct layer_range range,
                                     const struct line_limits *limits)
{
    return (struct footprint){
        .kv = kv_bytes(m, range, limits),
        .buffers = stage_buffer_bytes(m, range, limits),
    };
}

struct footprint model_footprint(const struct model *m, struct layer_range range,
                                 const struct line_limits *limits)
{
    struct weight_sum weights = {.m = m};
    struct footprint f = model_working_bytes(m, range, limits);
    model_visit_range(m, range, add_held_bytes, &weights, NULL);
    f.weights = weights.bytes;
    return f;
}
