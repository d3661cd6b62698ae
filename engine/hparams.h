/* hparams - the numbers of a model, read from its metadata as the features of its family say.
 *
 * Stations before: gguf, families. Station after: model. */
#ifndef TANDEM_ENGINE_HPARAMS_H
#define TANDEM_ENGINE_HPARAMS_H

#include "engine/batch.h"
#include "engine/err.h"
#include "engine/families.h"
#include "engine/gguf.h"

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN };

/* Which rotary angles a layer uses: one of two tables, or none. */
enum layer_rope { LAYER_ROPE_MAIN, LAYER_ROPE_PLAIN, LAYER_ROPE_OFF };
enum { ROPE_TABLES = LAYER_ROPE_OFF };

/* What may differ from layer to layer. */
struct layer_hparams {
    uint32_t n_head, n_head_kv, n_ff;
    uint32_t window; /* positions that a row sees, its own included; 0: all before it */
    uint32_t kv_class;
    enum layer_rope rope;
    bool is_conv;     /* a short convolution in attention's place */
    bool has_experts; /* in the feed-forward's place */
};

/* Latent attention: keys and values of all heads come out of one compressed row. */
struct latent_hparams {
    uint32_t q_rank;    /* width of the compressed query; 0: queries are not compressed */
    uint32_t width;     /* of the compressed keys and values; 0: the model has no such attention */
    uint32_t key_plain; /* the dimensions of a head's key that are not rotated */
    uint32_t value;     /* a head's value, expanded */
};

enum { EXPERTS_MAX = 4096 }; /* of a layer */

struct expert_hparams {
    uint32_t n, n_used; /* 0: the model has none */
    uint32_t n_ff, n_ff_shared;
    enum router router;               /* ROUTER_SOFTMAX or ROUTER_LOGITS */
    bool is_sigmoid;                  /* of each logit, in place of the softmax */
    bool is_normed;                   /* weights are divided by their sum */
    float scale;                      /* ... and multiplied */
    uint32_t n_groups, n_groups_used; /* experts are chosen from the best groups only; 1 of 1 */
};

struct hparams {
    uint32_t n_vocab, n_embd, n_layer, n_ctx_train;
    uint32_t head_dim_k, head_dim_v, n_rot; /* n_rot: rotated dimensions of a head */
    float norm_eps;
    enum residual residual; /* never RESIDUAL_BY_KEY */
    enum rope_scaling rope_scaling;
    float rope_base, rope_factor; /* factor > 0; 1 without scaling */
    float rope_base_plain;        /* of LAYER_ROPE_PLAIN, which is never scaled */
    uint32_t n_rope_tables;       /* 0 to ROPE_TABLES */
    uint32_t rope_ctx_orig;       /* YaRN: the context the model was trained at first */
    float rope_attn_factor;
    float yarn_log_multiplier; /* not 0: YaRN scales the scores and not the angles */
    float attn_scale;          /* multiplies q . k */
    float attn_softcap;        /* 0: none */
    float alibi_max_bias;      /* 0: none */
    float qkv_clamp;           /* 0: none */
    float embd_scale, residual_scale, logit_scale;
    float final_softcap; /* 0: none */
    uint32_t conv_width; /* positions that a short convolution sees, its own included */
    struct latent_hparams latent;
    struct expert_hparams experts;
    const struct layer_hparams *layer; /* [n_layer] */
    /* Cache classes: layers of one window keep a position equally long. Class 0 keeps all (window
     * 0). */
    uint32_t n_kv_classes;
    uint32_t kv_class_window[KV_CLASSES_MAX];
};

/* What a layer keeps of each position: heads, and in each so many values of key and of value. */
struct cache_row {
    uint32_t n_head;
    uint32_t dim_k, dim_v;
};

/* hparams_cache_row() - a convolution keeps its input as a value; latent attention keeps one key,
 * whose front is the value too. */
struct cache_row hparams_cache_row(const struct hparams *hp, uint32_t layer);

struct model;

/* hparams_read() - fill m->hp from m->file for m->family. m->hp.layer is owned by the model.
 * Returns ERR_FILE (the key and what it should be), ERR_UNSUPPORTED, ERR_MEMORY. */
int hparams_read(struct model *m, struct err *err);

/* hparams_show_text() - a string of the file, cut and made fit for a message; returns out. */
enum { HPARAMS_TEXT_MAX = 48 };
const char *hparams_show_text(char out[HPARAMS_TEXT_MAX], struct gguf_str s);

#endif
