/* families - see families.h.
 *
 * Tables only. The order of rows is the order in which a stage loads them. */
#include "engine/families.h"

#include <string.h>

/* Shorthands for the rows below: id, scope, need, dimensions, the other tensor. A vector has one
 * axis; a matrix maps its first dimension to its second; a bias stands only beside its weight. */
/* clang-format off */
#define VECTOR(id, scope, need, dim) \
    {TENSOR_##id, SCOPE_##scope, NEED_##need, ROLE_VECTOR, {DIM_##dim}, TENSOR_##id}
#define BIAS(id, scope, need, dim, weight) \
    {TENSOR_##id, SCOPE_##scope, NEED_##need, ROLE_VECTOR, {DIM_##dim}, TENSOR_##weight}
#define MATRIX(id, scope, need, in, out, other) \
    {TENSOR_##id, SCOPE_##scope, NEED_##need, ROLE_MATRIX, {DIM_##in, DIM_##out}, TENSOR_##other}
#define ROWS(id, scope, need, in, out) \
    {TENSOR_##id, SCOPE_##scope, NEED_##need, ROLE_ROWS, {DIM_##in, DIM_##out}, TENSOR_##id}

static const struct tensor_row llama_tensors[] = {
    ROWS  (TOKEN_EMBD,       INPUT,  ALWAYS,   EMBD,  VOCAB),
    VECTOR(ROPE_FREQS,       EVERY,  OPTIONAL, ROT_HALF),
    VECTOR(ATTN_NORM,        LAYER,  ALWAYS,   EMBD),
    MATRIX(ATTN_QKV,         LAYER,  OPTIONAL, EMBD,  QKV,   ATTN_QKV),
    BIAS  (ATTN_QKV_BIAS,    LAYER,  WITH,     QKV,          ATTN_QKV),
    MATRIX(ATTN_Q,           LAYER,  UNLESS,   EMBD,  Q,     ATTN_QKV),
    BIAS  (ATTN_Q_BIAS,      LAYER,  WITH,     Q,            ATTN_Q),
    MATRIX(ATTN_K,           LAYER,  UNLESS,   EMBD,  K,     ATTN_QKV),
    BIAS  (ATTN_K_BIAS,      LAYER,  WITH,     K,            ATTN_K),
    MATRIX(ATTN_V,           LAYER,  UNLESS,   EMBD,  V,     ATTN_QKV),
    BIAS  (ATTN_V_BIAS,      LAYER,  WITH,     V,            ATTN_V),
    MATRIX(ATTN_OUT,         LAYER,  ALWAYS,   HEADS, EMBD,  ATTN_OUT),
    BIAS  (ATTN_OUT_BIAS,    LAYER,  WITH,     EMBD,         ATTN_OUT),
    VECTOR(FFN_NORM,         LAYER,  ALWAYS,   EMBD),
    MATRIX(FFN_GATE,         LAYER,  ALWAYS,   EMBD,  FF,    FFN_GATE),
    BIAS  (FFN_GATE_BIAS,    LAYER,  WITH,     FF,           FFN_GATE),
    MATRIX(FFN_UP,           LAYER,  ALWAYS,   EMBD,  FF,    FFN_UP),
    BIAS  (FFN_UP_BIAS,      LAYER,  WITH,     FF,           FFN_UP),
    MATRIX(FFN_DOWN,         LAYER,  ALWAYS,   FF,    EMBD,  FFN_DOWN),
    BIAS  (FFN_DOWN_BIAS,    LAYER,  WITH,     EMBD,         FFN_DOWN),
    VECTOR(OUTPUT_NORM,      OUTPUT, ALWAYS,   EMBD),
    MATRIX(OUTPUT,           OUTPUT, OR_TIED,  EMBD,  VOCAB, TOKEN_EMBD),
};

static const struct tensor_row gpt2_tensors[] = {
    ROWS  (TOKEN_EMBD,       INPUT,  ALWAYS,   EMBD,  VOCAB),
    ROWS  (POSITION_EMBD,    INPUT,  ALWAYS,   EMBD,  CTX_TRAIN),
    VECTOR(ATTN_NORM,        LAYER,  ALWAYS,   EMBD),
    BIAS  (ATTN_NORM_BIAS,   LAYER,  ALWAYS,   EMBD,         ATTN_NORM),
    MATRIX(ATTN_QKV,         LAYER,  ALWAYS,   EMBD,  QKV,   ATTN_QKV),
    BIAS  (ATTN_QKV_BIAS,    LAYER,  ALWAYS,   QKV,          ATTN_QKV),
    MATRIX(ATTN_OUT,         LAYER,  ALWAYS,   HEADS, EMBD,  ATTN_OUT),
    BIAS  (ATTN_OUT_BIAS,    LAYER,  ALWAYS,   EMBD,         ATTN_OUT),
    VECTOR(FFN_NORM,         LAYER,  ALWAYS,   EMBD),
    BIAS  (FFN_NORM_BIAS,    LAYER,  ALWAYS,   EMBD,         FFN_NORM),
    MATRIX(FFN_UP,           LAYER,  ALWAYS,   EMBD,  FF,    FFN_UP),
    BIAS  (FFN_UP_BIAS,      LAYER,  ALWAYS,   FF,           FFN_UP),
    MATRIX(FFN_DOWN,         LAYER,  ALWAYS,   FF,    EMBD,  FFN_DOWN),
    BIAS  (FFN_DOWN_BIAS,    LAYER,  ALWAYS,   EMBD,         FFN_DOWN),
    VECTOR(OUTPUT_NORM,      OUTPUT, ALWAYS,   EMBD),
    BIAS  (OUTPUT_NORM_BIAS, OUTPUT, ALWAYS,   EMBD,         OUTPUT_NORM),
    MATRIX(OUTPUT,           OUTPUT, OR_TIED,  EMBD,  VOCAB, TOKEN_EMBD),
};
/* clang-format on */

#define TENSORS(table) .tensors = table, .n_tensors = sizeof table / sizeof table[0]

static const struct family families[] = {
    {
        .name = "llama", /* also Mistral */
        .norm = NORM_RMS,
        .rope = ROPE_INTERLEAVED,
        .activation = ACT_SILU,
        TENSORS(llama_tensors),
    },
    {
        .name = "gpt2",
        .norm = NORM_LAYER,
        .rope = ROPE_NONE,
        .activation = ACT_GELU,
        .ctx_is_hard = true,
        TENSORS(gpt2_tensors),
    },
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

const struct family *family_find(const char *name, size_t len)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (strlen(families[i].name) == len && memcmp(families[i].name, name, len) == 0)
            return &families[i];
    return NULL;
}

size_t family_count(void)
{
    return FAMILY_COUNT;
}

const struct family *family_at(size_t index)
{
    return index < FAMILY_COUNT ? &families[index] : NULL;
}

const char *tensor_suffix(enum tensor_id id)
{
    static const char *const suffixes[TENSOR_COUNT] = {
#define TENSOR_NAME(id, name) name,
        TENSOR_LIST(TENSOR_NAME)
#undef TENSOR_NAME
    };
    return (unsigned)id < TENSOR_COUNT ? suffixes[id] : "?";
}
