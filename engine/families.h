/* families - what each model family is: one row of features, and a table of its tensors.
 *
 * The loader, the shape check, the memory estimate, the planner and `tandem inspect` all read this
 * one table; engine/layer tests features and never a family's name. Adding a family is adding rows.
 * Source: FAMILIES facts as checked by the goldens in tests. */
#ifndef TANDEM_ENGINE_FAMILIES_H
#define TANDEM_ENGINE_FAMILIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum norm_kind {
    NORM_RMS,   /* x / sqrt(mean(x^2) + eps) * w */
    NORM_LAYER, /* (x - mean) / sqrt(var + eps) * w + b */
};

enum rope_style {
    ROPE_NONE,
    ROPE_INTERLEAVED, /* pairs (2i, 2i+1) */
    ROPE_HALF,        /* pairs (i, i + n_rot/2) */
};

enum activation {
    ACT_SILU,           /* x * sigmoid(x) */
    ACT_GELU,           /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    ACT_RELU_SQUARED,   /* max(0, x)^2 */
    ACT_SWIGLU_CLAMPED, /* gate sigmoid(1.702 gate) (up + 1), both clamped at 7; gated only */
};

/* How attention and feed-forward join the residual stream. */
enum residual {
    RESIDUAL_SEQUENTIAL, /* the feed-forward reads what attention has left */
    RESIDUAL_PARALLEL,   /* both read the layer's input; without a norm of its own, the feed-forward
                            shares attention's */
    RESIDUAL_BY_KEY,     /* X.use_parallel_residual says which */
    RESIDUAL_BY_FFN_NORM, /* parallel where ffn_norm is absent */
};

/* Does a model of the family have experts? */
enum expert_use { EXPERTS_NEVER, EXPERTS_BY_KEY, EXPERTS_ALWAYS };

/* From the router's logits to the weights of the chosen experts. */
enum router {
    ROUTER_SOFTMAX,        /* p = softmax over all; p of the chosen, as it is */
    ROUTER_SOFTMAX_NORMED, /* the same, divided by the sum over the chosen */
    ROUTER_LOGITS,         /* the best logits are chosen; softmax over these */
    ROUTER_BY_KEY,         /* softmax or sigmoid, normed or not, as keys say; perhaps in groups */
};

/* The width of the experts, where X.expert_feed_forward_length does not say it. */
enum expert_width { EXPERT_WIDTH_FF, EXPERT_WIDTH_FF_SHARED_OUT /* n_ff / experts used */ };

/* The width of the expert that every row passes through; 0: there is none. */
enum shared_width {
    SHARED_NONE,
    SHARED_BY_KEY,    /* X.expert_shared_feed_forward_length, else none */
    SHARED_KEY_OR_FF, /* the same, else n_ff */
    SHARED_BY_COUNT,  /* X.expert_shared_count times the experts' width */
};

/* Factors of the embedding rows (X.embedding_scale) and of what joins the residual stream
 * (X.residual_scale). */
enum multipliers {
    MULTIPLIERS_NONE,
    MULTIPLIERS_BY_KEY,        /* 1 where missing; X.attention.scale in place of 1 / sqrt(head) */
    MULTIPLIERS_WITH_DEFAULTS, /* 12 and 1.4 / sqrt(n_layer) where missing */
};

/* What X.logit_scale does to the scores. */
enum logit_scale { LOGITS_PLAIN, LOGITS_TIMES_KEY, LOGITS_OVER_KEY };

/* Each kind of tensor once: X(id, "name in the file"). Layer tensors stand behind "blk.N.". */
#define TENSOR_LIST(X)                                                                             \
    X(TOKEN_EMBD, "token_embd.weight")                                                             \
    X(TOKEN_EMBD_NORM, "token_embd_norm.weight")                                                   \
    X(TOKEN_EMBD_NORM_BIAS, "token_embd_norm.bias")                                                \
    X(POSITION_EMBD, "position_embd.weight")                                                       \
    X(ROPE_FREQS, "rope_freqs.weight")                                                             \
    X(ROPE_FACTORS_LONG, "rope_factors_long.weight")                                               \
    X(ROPE_FACTORS_SHORT, "rope_factors_short.weight")                                             \
    X(OUTPUT_NORM, "output_norm.weight")                                                           \
    X(OUTPUT_NORM_BIAS, "output_norm.bias")                                                        \
    X(OUTPUT, "output.weight")                                                                     \
    X(OUTPUT_BIAS, "output.bias")                                                                  \
    X(ATTN_NORM, "attn_norm.weight")                                                               \
    X(ATTN_NORM_BIAS, "attn_norm.bias")                                                            \
    X(ATTN_NORM_2, "attn_norm_2.weight")                                                           \
    X(ATTN_NORM_2_BIAS, "attn_norm_2.bias")                                                        \
    X(ATTN_QKV, "attn_qkv.weight")                                                                 \
    X(ATTN_QKV_BIAS, "attn_qkv.bias")                                                              \
    X(ATTN_Q, "attn_q.weight")                                                                     \
    X(ATTN_Q_BIAS, "attn_q.bias")                                                                  \
    X(ATTN_K, "attn_k.weight")                                                                     \
    X(ATTN_K_BIAS, "attn_k.bias")                                                                  \
    X(ATTN_V, "attn_v.weight")                                                                     \
    X(ATTN_V_BIAS, "attn_v.bias")                                                                  \
    X(ATTN_Q_NORM, "attn_q_norm.weight")                                                           \
    X(ATTN_K_NORM, "attn_k_norm.weight")                                                           \
    X(ATTN_Q_A, "attn_q_a.weight")                                                                 \
    X(ATTN_Q_A_NORM, "attn_q_a_norm.weight")                                                       \
    X(ATTN_Q_B, "attn_q_b.weight")                                                                 \
    X(ATTN_KV_A, "attn_kv_a_mqa.weight")                                                           \
    X(ATTN_KV_A_NORM, "attn_kv_a_norm.weight")                                                     \
    X(ATTN_KV_B, "attn_kv_b.weight")                                                               \
    X(ATTN_K_B, "attn_k_b.weight")                                                                 \
    X(ATTN_V_B, "attn_v_b.weight")                                                                 \
    X(ATTN_SINKS, "attn_sinks.weight")                                                             \
    X(ATTN_OUT, "attn_output.weight")                                                              \
    X(ATTN_OUT_BIAS, "attn_output.bias")                                                           \
    X(ATTN_POST_NORM, "post_attention_norm.weight")                                                \
    X(CONV_IN, "shortconv.in_proj.weight")                                                         \
    X(CONV_KERNEL, "shortconv.conv.weight")                                                        \
    X(CONV_OUT, "shortconv.out_proj.weight")                                                       \
    X(FFN_NORM, "ffn_norm.weight")                                                                 \
    X(FFN_NORM_BIAS, "ffn_norm.bias")                                                              \
    X(FFN_GATE, "ffn_gate.weight")                                                                 \
    X(FFN_GATE_BIAS, "ffn_gate.bias")                                                              \
    X(FFN_UP, "ffn_up.weight")                                                                     \
    X(FFN_UP_BIAS, "ffn_up.bias")                                                                  \
    X(FFN_DOWN, "ffn_down.weight")                                                                 \
    X(FFN_DOWN_BIAS, "ffn_down.bias")                                                              \
    X(FFN_POST_NORM, "post_ffw_norm.weight")                                                       \
    X(ROUTER, "ffn_gate_inp.weight")                                                               \
    X(ROUTER_BIAS, "ffn_gate_inp.bias")                                                            \
    X(ROUTER_CHOICE_BIAS, "exp_probs_b.bias")                                                      \
    X(EXPERT_GATE, "ffn_gate_exps.weight")                                                         \
    X(EXPERT_GATE_BIAS, "ffn_gate_exps.bias")                                                      \
    X(EXPERT_UP, "ffn_up_exps.weight")                                                             \
    X(EXPERT_UP_BIAS, "ffn_up_exps.bias")                                                          \
    X(EXPERT_DOWN, "ffn_down_exps.weight")                                                         \
    X(EXPERT_DOWN_BIAS, "ffn_down_exps.bias")                                                      \
    X(SHARED_ROUTER, "ffn_gate_inp_shexp.weight")                                                  \
    X(SHARED_GATE, "ffn_gate_shexp.weight")                                                        \
    X(SHARED_UP, "ffn_up_shexp.weight")                                                            \
    X(SHARED_DOWN, "ffn_down_shexp.weight")

enum tensor_id {
#define TENSOR_ENUM(id, name) TENSOR_##id,
    TENSOR_LIST(TENSOR_ENUM)
#undef TENSOR_ENUM
        TENSOR_COUNT,
    TENSOR_NONE = TENSOR_COUNT /* in place of a tensor that there cannot be */
};

enum tensor_scope {
    SCOPE_INPUT,  /* held by the first stage */
    SCOPE_LAYER,  /* held by the stage of that layer */
    SCOPE_OUTPUT, /* held by the last stage */
    SCOPE_EVERY,  /* small, held by every stage (RoPE factors) */
};

/* Which layers have the tensor; model.h's struct layer_hparams says what a layer is. */
enum tensor_part {
    PART_EVERY,     /* all; and tensors outside of layers */
    PART_ATTENTION, /* layers that attend */
    PART_CONV,      /* layers with a short convolution in attention's place */
    PART_DENSE,     /* layers with one feed-forward */
    PART_EXPERTS,   /* layers with experts */
    PART_SHARED,    /* layers with a shared expert beside them */
};

/* In the layers of its part. Elsewhere the tensor must be absent. */
enum tensor_need {
    NEED_ALWAYS,
    NEED_OPTIONAL,
    NEED_UNLESS,  /* needed unless tensor `other` of the same scope is present, and then not used */
    NEED_IF,      /* needed where tensor `other` is present, and then only */
    NEED_WITH,    /* optional, and only beside tensor `other` (the bias of a weight) */
    NEED_OR_TIED, /* where absent, the stage uses tensor `other` in its place (tied output) */
    NEED_TIED,    /* never in the file: the stage uses tensor `other` in its place */
};

/* What the number in a shape is, so that one table serves every size of model. */
enum dim {
    DIM_NONE, /* the tensor has no such axis */
    DIM_EMBD,
    DIM_VOCAB,
    DIM_CTX_TRAIN,
    DIM_FF,
    DIM_FF_TWICE,
    DIM_Q,           /* n_head * head_dim_k */
    DIM_K,           /* n_head_kv * head_dim_k */
    DIM_V,           /* n_head_kv * head_dim_v */
    DIM_QKV,         /* DIM_Q + DIM_K + DIM_V, in that order */
    DIM_HEADS,       /* what attention gives to its last product: n_head values of a head */
    DIM_ROT_HALF,    /* n_rot / 2 */
    DIM_HEAD,        /* head_dim_k */
    DIM_N_HEAD,      /* n_head */
    DIM_N_HEAD_KV,   /* n_head_kv */
    DIM_CONV,        /* columns that a short convolution sees */
    DIM_CONV_IN,     /* 3 n_embd */
    DIM_EXPERTS,     /* how many */
    DIM_FF_EXPERT,   /* width of one */
    DIM_FF_SHARED,   /* width of the shared expert */
    DIM_Q_RANK,      /* latent attention (struct latent_hparams): width of the compressed query */
    DIM_LATENT,      /* of the compressed keys and values */
    DIM_LATENT_KEY,  /* DIM_LATENT + n_rot: what is cached of a position */
    DIM_LATENT_Q,    /* n_head * (key_plain + n_rot) */
    DIM_KEY_PLAIN,   /* the part of a head's key that is not rotated */
    DIM_VALUE,       /* a head's value, expanded from the latent */
    DIM_KEYS_VALUES, /* n_head * (key_plain + value) */
};

/* How the stage keeps a tensor. */
enum tensor_role {
    ROLE_MATRIX, /* packed panels, in the file's number format; a third axis counts matrices */
    ROLE_HALVES, /* the same, as two matrices: the first and the second half of the outputs */
    ROLE_VALUES, /* f32 as it stands: vectors, position rows, biases of experts */
    ROLE_LATENT, /* keys and values out of a latent in one: kept as TENSOR_ATTN_K_B and _V_B */
};

struct tensor_row {
    enum tensor_id id;
    enum tensor_scope scope;
    enum tensor_part part;
    enum tensor_need need;
    enum tensor_role role;
    enum dim shape[3];    /* GGUF order: the input dimension first */
    enum tensor_id other; /* NEED_UNLESS, IF, WITH, OR_TIED, TIED */
    const char *name;     /* in this family, where it is not the usual one; else NULL */
};

/* Sliding windows: layer i sees all positions where (i + 1) % period == 0, the others a window. */
struct window_features {
    uint32_t period;      /* 0: no windows; X.attention.sliding_window_pattern overrides it */
    uint32_t width;       /* where X.attention.sliding_window does not say it; 0: then none */
    bool is_required;     /* the key must be there */
    uint32_t only_layers; /* models of so many layers have windows, others none; 0: all */
    bool plain_rope;      /* windowed layers rotate without scaling ... */
    float rope_base;      /* ... from this base, or X.rope.freq_base_swa; 0: from that of all */
};

struct expert_features {
    enum expert_use use;
    enum router router;
    enum expert_width width;
    enum shared_width shared;
};

/* Names of keys without "X.", which stands for the family's name. Zero means: as usual. */
struct family {
    const char *name; /* general.architecture */
    enum norm_kind norm;
    enum rope_style rope;
    bool rope_is_partial;     /* n_rot may be smaller than the head */
    bool rope_is_by_key;      /* rope.scaling.finetuned false: no rotation at all */
    uint32_t rope_off_period; /* no rotation in layer i where (i + 1) % period == 0; 0: none */
    bool rope_off_unwindowed; /* in models with windows: none in the layers that see all */
    enum activation activation;
    enum residual residual;
    bool ctx_is_hard; /* context_length limits positions (learned position rows) */
    bool is_latent;   /* attention over compressed keys and values (MLA) */
    bool has_convs;   /* layers without KV heads are short convolutions */
    struct window_features window;
    struct expert_features experts;
    bool embd_times_sqrt; /* embedding rows times sqrt(n_embd) */
    enum multipliers multipliers;
    enum logit_scale logits;
    float attn_softcap;         /* where attn_logit_softcapping does not say it; 0: never any */
    bool caps_scores;           /* final_logit_softcapping ... */
    float final_softcap;        /* ... or this; 0: none */
    uint32_t wide_scale_layers; /* models of so many layers scale scores by n_embd / n_head */
    float alibi_max_bias;       /* linear position biases; 0: none */
    bool alibi_is_by_key;       /* attention.max_alibi_bias */
    bool clamps_qkv;            /* attention.clamp_kqv */
    const struct tensor_row *tensors;
    size_t n_tensors;
};

/* family_find() - NULL where no family has that name. */
const struct family *family_find(const char *name, size_t len);
size_t family_count(void);
const struct family *family_at(size_t index);

/* tensor_suffix() - "attn_q.weight", without "blk.N.". tensor_row_suffix() - as the row's family
 * has it. */
const char *tensor_suffix(enum tensor_id id);
const char *tensor_row_suffix(const struct tensor_row *row);

#endif
