/* families - what each model family is: one row of features, and a table of its tensors.
 *
 * The loader, the shape check, the memory estimate, the planner and `tandem inspect` all read this one
 * table; engine/layer tests features and never a family's name. Adding a family is adding rows.
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
    ACT_SILU, /* x * sigmoid(x) */
    ACT_GELU, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
};

/* Each kind of tensor once: X(id, "name in the file"). Layer tensors stand behind "blk.N.". */
#define TENSOR_LIST(X)                                                                             \
    X(TOKEN_EMBD, "token_embd.weight")                                                             \
    X(POSITION_EMBD, "position_embd.weight")                                                       \
    X(ROPE_FREQS, "rope_freqs.weight")                                                             \
    X(OUTPUT_NORM, "output_norm.weight")                                                           \
    X(OUTPUT_NORM_BIAS, "output_norm.bias")                                                        \
    X(OUTPUT, "output.weight")                                                                     \
    X(ATTN_NORM, "attn_norm.weight")                                                               \
    X(ATTN_NORM_BIAS, "attn_norm.bias")                                                            \
    X(ATTN_QKV, "attn_qkv.weight")                                                                 \
    X(ATTN_QKV_BIAS, "attn_qkv.bias")                                                              \
    X(ATTN_Q, "attn_q.weight")                                                                     \
    X(ATTN_Q_BIAS, "attn_q.bias")                                                                  \
    X(ATTN_K, "attn_k.weight")                                                                     \
    X(ATTN_K_BIAS, "attn_k.bias")                                                                  \
    X(ATTN_V, "attn_v.weight")                                                                     \
    X(ATTN_V_BIAS, "attn_v.bias")                                                                  \
    X(ATTN_OUT, "attn_output.weight")                                                              \
    X(ATTN_OUT_BIAS, "attn_output.bias")                                                           \
    X(FFN_NORM, "ffn_norm.weight")                                                                 \
    X(FFN_NORM_BIAS, "ffn_norm.bias")                                                              \
    X(FFN_GATE, "ffn_gate.weight")                                                                 \
    X(FFN_GATE_BIAS, "ffn_gate.bias")                                                              \
    X(FFN_UP, "ffn_up.weight")                                                                     \
    X(FFN_UP_BIAS, "ffn_up.bias")                                                                  \
    X(FFN_DOWN, "ffn_down.weight")                                                                 \
    X(FFN_DOWN_BIAS, "ffn_down.bias")

enum tensor_id {
#define TENSOR_ENUM(id, name) TENSOR_##id,
    TENSOR_LIST(TENSOR_ENUM)
#undef TENSOR_ENUM
        TENSOR_COUNT
};

enum tensor_scope {
    SCOPE_INPUT,  /* held by the first stage */
    SCOPE_LAYER,  /* held by the stage of that layer */
    SCOPE_OUTPUT, /* held by the last stage */
    SCOPE_EVERY,  /* small, held by every stage (RoPE factors) */
};

enum tensor_need {
    NEED_ALWAYS,
    NEED_OPTIONAL,
    NEED_UNLESS, /* needed unless tensor `other` of the same scope is present, and then not used */
    NEED_WITH,    /* optional, and only beside tensor `other` (the bias of a weight) */
    NEED_OR_TIED, /* where absent, the stage uses tensor `other` in its place (tied output) */
};

/* What the number in a shape is, so that one table serves every size of model. */
enum dim {
    DIM_NONE, /* the tensor has no such axis */
    DIM_EMBD,
    DIM_VOCAB,
    DIM_CTX_TRAIN,
    DIM_FF,
    DIM_Q,        /* n_head * head_dim_k */
    DIM_K,        /* n_head_kv * head_dim_k */
    DIM_V,        /* n_head_kv * head_dim_v */
    DIM_QKV,      /* DIM_Q + DIM_K + DIM_V, in that order */
    DIM_HEADS,    /* n_head * head_dim_v: what attention gives */
    DIM_ROT_HALF, /* n_rot / 2 */
};

/* How the stage keeps a tensor. */
enum tensor_role {
    ROLE_MATRIX, /* packed panels, in the file's number format */
    ROLE_VECTOR, /* f32 */
    ROLE_ROWS,   /* looked up by row: token embedding (packed panels), positions (f32) */
};

struct tensor_row {
    enum tensor_id id;
    enum tensor_scope scope;
    enum tensor_need need;
    enum tensor_role role;
    enum dim shape[3]; /* GGUF order: the input dimension first */
    enum tensor_id other; /* NEED_UNLESS, NEED_WITH, NEED_OR_TIED */
};

struct family {
    const char *name; /* general.architecture */
    enum norm_kind norm;
    enum rope_style rope;
    bool rope_is_partial; /* n_rot may be smaller than the head */
    enum activation activation;
    bool ctx_is_hard; /* context_length limits positions (learned position rows) */
    const struct tensor_row *tensors;
    size_t n_tensors;
};

/* family_find() - NULL where no family has that name. */
const struct family *family_find(const char *name, size_t len);
size_t family_count(void);
const struct family *family_at(size_t index);

/* tensor_suffix() - "attn_q.weight", without "blk.N.". */
const char *tensor_suffix(enum tensor_id id);

#endif
