/* families - see families.h.
 *
 * Tables only. The order of rows is the order in which a stage loads them. */
#include "engine/families.h"

#include <string.h>

/* clang-format off */

/* Shorthands: id, scope, need, shape. A matrix maps its first dimension to its second; VALUES may
 * have several axes. The _OF forms stand beside, or in place of, another tensor. */
#define ROW(id, scope, part, need, role, other, ...) \
    {TENSOR_##id, SCOPE_##scope, PART_##part, NEED_##need, ROLE_##role, {__VA_ARGS__}, \
     TENSOR_##other, NULL}
#define GLOBAL(id, scope, need, ...) \
    ROW(id, scope, EVERY, need, VALUES, id, __VA_ARGS__)
#define GLOBAL_OF(id, scope, need, other, ...) \
    ROW(id, scope, EVERY, need, VALUES, other, __VA_ARGS__)
#define VALUES(id, part, need, ...) \
    ROW(id, LAYER, part, need, VALUES, id, __VA_ARGS__)
#define VALUES_OF(id, part, need, other, ...) \
    ROW(id, LAYER, part, need, VALUES, other, __VA_ARGS__)
#define MATRIX(id, part, need, ...) \
    ROW(id, LAYER, part, need, MATRIX, id, __VA_ARGS__)
#define MATRIX_OF(id, part, need, other, ...) \
    ROW(id, LAYER, part, need, MATRIX, other, __VA_ARGS__)

/* Groups of rows that families share. */
#define EMBEDDING  ROW(TOKEN_EMBD, INPUT, EVERY, ALWAYS, MATRIX, TOKEN_EMBD, DIM_EMBD, DIM_VOCAB)
#define EMBEDDING_NORM \
    GLOBAL(TOKEN_EMBD_NORM, INPUT, ALWAYS, DIM_EMBD), \
    GLOBAL_OF(TOKEN_EMBD_NORM_BIAS, INPUT, ALWAYS, TOKEN_EMBD_NORM, DIM_EMBD)
#define ROPE_FACTORS \
    GLOBAL(ROPE_FREQS, EVERY, OPTIONAL, DIM_ROT_HALF), \
    GLOBAL(ROPE_FACTORS_LONG, EVERY, OPTIONAL, DIM_ROT_HALF), \
    GLOBAL_OF(ROPE_FACTORS_SHORT, EVERY, IF, ROPE_FACTORS_LONG, DIM_ROT_HALF)

#define NORM_BEFORE_ATTENTION  VALUES(ATTN_NORM, EVERY, ALWAYS, DIM_EMBD)
#define NORM_BEFORE_FFN  VALUES(FFN_NORM, EVERY, ALWAYS, DIM_EMBD)
#define NORMS_BEFORE  NORM_BEFORE_ATTENTION, NORM_BEFORE_FFN
#define NORMS_AFTER \
    VALUES(ATTN_POST_NORM, EVERY, ALWAYS, DIM_EMBD), \
    VALUES(FFN_POST_NORM,  EVERY, ALWAYS, DIM_EMBD)
#define BIASED_NORM_BEFORE_ATTENTION \
    NORM_BEFORE_ATTENTION, VALUES_OF(ATTN_NORM_BIAS, EVERY, ALWAYS, ATTN_NORM, DIM_EMBD)
#define BIASED_NORMS_BEFORE \
    BIASED_NORM_BEFORE_ATTENTION, \
    NORM_BEFORE_FFN, VALUES_OF(FFN_NORM_BIAS, EVERY, ALWAYS, FFN_NORM, DIM_EMBD)

#define Q_K_V_APART(need) \
    MATRIX_OF(ATTN_Q,      ATTENTION, need, ATTN_QKV, DIM_EMBD, DIM_Q), \
    VALUES_OF(ATTN_Q_BIAS, ATTENTION, WITH, ATTN_Q,   DIM_Q), \
    MATRIX_OF(ATTN_K,      ATTENTION, need, ATTN_QKV, DIM_EMBD, DIM_K), \
    VALUES_OF(ATTN_K_BIAS, ATTENTION, WITH, ATTN_K,   DIM_K), \
    MATRIX_OF(ATTN_V,      ATTENTION, need, ATTN_QKV, DIM_EMBD, DIM_V), \
    VALUES_OF(ATTN_V_BIAS, ATTENTION, WITH, ATTN_V,   DIM_V)
#define Q_K_V \
    MATRIX(ATTN_QKV,         ATTENTION, OPTIONAL, DIM_EMBD, DIM_QKV), \
    VALUES_OF(ATTN_QKV_BIAS, ATTENTION, WITH, ATTN_QKV, DIM_QKV), \
    Q_K_V_APART(UNLESS)
/* Of each head alone, all heads alike; of each head, with a row of weights each; of all at once. */
#define Q_K_NORMS \
    VALUES(ATTN_Q_NORM, ATTENTION, ALWAYS, DIM_HEAD), \
    VALUES(ATTN_K_NORM, ATTENTION, ALWAYS, DIM_HEAD)
#define Q_K_NORMS_PER_HEAD \
    VALUES(ATTN_Q_NORM, ATTENTION, OPTIONAL, DIM_HEAD, DIM_N_HEAD), \
    VALUES(ATTN_K_NORM, ATTENTION, OPTIONAL, DIM_HEAD, DIM_N_HEAD_KV)
#define Q_K_NORMS_WHOLE \
    VALUES(ATTN_Q_NORM, ATTENTION, ALWAYS, DIM_Q), \
    VALUES(ATTN_K_NORM, ATTENTION, ALWAYS, DIM_K)
#define ATTENTION_OUT \
    MATRIX(ATTN_OUT,         ATTENTION, ALWAYS, DIM_HEADS, DIM_EMBD), \
    VALUES_OF(ATTN_OUT_BIAS, ATTENTION, WITH, ATTN_OUT, DIM_EMBD)

#define FFN_UP_DOWN \
    MATRIX(FFN_UP,           DENSE, ALWAYS, DIM_EMBD, DIM_FF), \
    VALUES_OF(FFN_UP_BIAS,   DENSE, WITH, FFN_UP, DIM_FF), \
    MATRIX(FFN_DOWN,         DENSE, ALWAYS, DIM_FF, DIM_EMBD), \
    VALUES_OF(FFN_DOWN_BIAS, DENSE, WITH, FFN_DOWN, DIM_EMBD)
#define FFN_GATED \
    MATRIX(FFN_GATE,         DENSE, ALWAYS, DIM_EMBD, DIM_FF), \
    VALUES_OF(FFN_GATE_BIAS, DENSE, WITH, FFN_GATE, DIM_FF), \
    FFN_UP_DOWN
#define FFN_GATED_IN_ONE \
    ROW(FFN_UP, LAYER, DENSE, ALWAYS, HALVES, FFN_UP, DIM_EMBD, DIM_FF_TWICE), \
    MATRIX(FFN_DOWN,         DENSE, ALWAYS, DIM_FF, DIM_EMBD), \
    VALUES_OF(FFN_DOWN_BIAS, DENSE, WITH, FFN_DOWN, DIM_EMBD)
#define EXPERT_MATRICES \
    MATRIX(ROUTER,      EXPERTS, ALWAYS, DIM_EMBD, DIM_EXPERTS), \
    MATRIX(EXPERT_GATE, EXPERTS, ALWAYS, DIM_EMBD, DIM_FF_EXPERT, DIM_EXPERTS), \
    MATRIX(EXPERT_UP,   EXPERTS, ALWAYS, DIM_EMBD, DIM_FF_EXPERT, DIM_EXPERTS), \
    MATRIX(EXPERT_DOWN, EXPERTS, ALWAYS, DIM_FF_EXPERT, DIM_EMBD, DIM_EXPERTS)
#define SHARED_EXPERT \
    MATRIX(SHARED_GATE, SHARED, ALWAYS, DIM_EMBD, DIM_FF_SHARED), \
    MATRIX(SHARED_UP,   SHARED, ALWAYS, DIM_EMBD, DIM_FF_SHARED), \
    MATRIX(SHARED_DOWN, SHARED, ALWAYS, DIM_FF_SHARED, DIM_EMBD)

#define LAST_NORM  GLOBAL(OUTPUT_NORM, OUTPUT, ALWAYS, DIM_EMBD)
#define BIASED_LAST_NORM \
    LAST_NORM, GLOBAL_OF(OUTPUT_NORM_BIAS, OUTPUT, ALWAYS, OUTPUT_NORM, DIM_EMBD)
#define HEAD(need)  ROW(OUTPUT, OUTPUT, EVERY, need, MATRIX, TOKEN_EMBD, DIM_EMBD, DIM_VOCAB)
#define HEAD_BIAS(need)  GLOBAL(OUTPUT_BIAS, OUTPUT, need, DIM_VOCAB)

#define LLAMA(head) \
    EMBEDDING, ROPE_FACTORS, NORMS_BEFORE, Q_K_V, ATTENTION_OUT, FFN_GATED, EXPERT_MATRICES, \
    SHARED_EXPERT, LAST_NORM, HEAD(head), HEAD_BIAS(OPTIONAL)

static const struct tensor_row llama_tensors[] = {LLAMA(OR_TIED)};
static const struct tensor_row internlm2_tensors[] = {LLAMA(ALWAYS)};
static const struct tensor_row gemma_tensors[] = {LLAMA(TIED)};
static const struct tensor_row gemma2_tensors[] = {LLAMA(TIED), NORMS_AFTER};
static const struct tensor_row gemma3_tensors[] = {LLAMA(OR_TIED), NORMS_AFTER, Q_K_NORMS};
static const struct tensor_row qwen3_tensors[] = {LLAMA(OR_TIED), Q_K_NORMS};
static const struct tensor_row qwen2moe_tensors[] = {
    LLAMA(ALWAYS),
    MATRIX(SHARED_ROUTER, SHARED, ALWAYS, DIM_EMBD),
};
static const struct tensor_row olmoe_tensors[] = {
    EMBEDDING, NORMS_BEFORE, Q_K_V_APART(ALWAYS), Q_K_NORMS_WHOLE, ATTENTION_OUT, EXPERT_MATRICES,
    LAST_NORM, HEAD(ALWAYS),
};
static const struct tensor_row olmo2_tensors[] = {
    EMBEDDING, Q_K_V_APART(ALWAYS), Q_K_NORMS_WHOLE, ATTENTION_OUT, FFN_GATED, NORMS_AFTER,
    LAST_NORM, HEAD(ALWAYS),
};
static const struct tensor_row exaone4_tensors[] = {
    EMBEDDING, ROPE_FACTORS, Q_K_V, Q_K_NORMS, ATTENTION_OUT, FFN_GATED, NORMS_AFTER,
    LAST_NORM, HEAD(OR_TIED),
};
static const struct tensor_row phi3_tensors[] = {
    EMBEDDING, ROPE_FACTORS, NORMS_BEFORE, Q_K_V, ATTENTION_OUT, FFN_GATED_IN_ONE,
    LAST_NORM, HEAD(OR_TIED),
};
static const struct tensor_row glm4_tensors[] = {
    EMBEDDING, NORMS_BEFORE, Q_K_V, ATTENTION_OUT, FFN_GATED_IN_ONE, NORMS_AFTER,
    LAST_NORM, HEAD(OR_TIED),
};
static const struct tensor_row gpt2_tensors[] = {
    EMBEDDING, GLOBAL(POSITION_EMBD, INPUT, ALWAYS, DIM_EMBD, DIM_CTX_TRAIN),
    BIASED_NORMS_BEFORE, Q_K_V, ATTENTION_OUT, FFN_UP_DOWN, BIASED_LAST_NORM, HEAD(OR_TIED),
};
static const struct tensor_row starcoder2_tensors[] = {
    EMBEDDING, BIASED_NORMS_BEFORE, Q_K_V, ATTENTION_OUT, FFN_UP_DOWN, BIASED_LAST_NORM,
    HEAD(OR_TIED),
};
static const struct tensor_row gptneox_tensors[] = {
    EMBEDDING, BIASED_NORMS_BEFORE, Q_K_V, ATTENTION_OUT, FFN_UP_DOWN, BIASED_LAST_NORM,
    HEAD(ALWAYS),
};
static const struct tensor_row bloom_tensors[] = {
    EMBEDDING, EMBEDDING_NORM, BIASED_NORMS_BEFORE, Q_K_V, ATTENTION_OUT, FFN_UP_DOWN,
    BIASED_LAST_NORM, HEAD(OR_TIED),
};
static const struct tensor_row mpt_tensors[] = {
    EMBEDDING, NORMS_BEFORE,
    VALUES_OF(ATTN_NORM_BIAS, EVERY, WITH, ATTN_NORM, DIM_EMBD),
    VALUES_OF(FFN_NORM_BIAS,  EVERY, WITH, FFN_NORM,  DIM_EMBD),
    Q_K_V, ATTENTION_OUT, FFN_UP_DOWN, LAST_NORM,
    GLOBAL_OF(OUTPUT_NORM_BIAS, OUTPUT, WITH, OUTPUT_NORM, DIM_EMBD), HEAD(OR_TIED),
};
static const struct tensor_row phi2_tensors[] = {
    EMBEDDING, BIASED_NORM_BEFORE_ATTENTION, Q_K_V, ATTENTION_OUT, FFN_UP_DOWN, BIASED_LAST_NORM,
    HEAD(ALWAYS), HEAD_BIAS(ALWAYS),
};
static const struct tensor_row falcon_tensors[] = {
    EMBEDDING, BIASED_NORM_BEFORE_ATTENTION,
    VALUES(ATTN_NORM_2,         EVERY, OPTIONAL, DIM_EMBD),
    VALUES_OF(ATTN_NORM_2_BIAS, EVERY, IF, ATTN_NORM_2, DIM_EMBD),
    Q_K_V, ATTENTION_OUT, FFN_UP_DOWN, BIASED_LAST_NORM, HEAD(OR_TIED),
};
static const struct tensor_row stablelm_tensors[] = {
    EMBEDDING, BIASED_NORM_BEFORE_ATTENTION, Q_K_V, Q_K_NORMS_PER_HEAD, ATTENTION_OUT,
    VALUES(FFN_NORM,         EVERY, OPTIONAL, DIM_EMBD),
    VALUES_OF(FFN_NORM_BIAS, EVERY, IF, FFN_NORM, DIM_EMBD),
    FFN_GATED, BIASED_LAST_NORM, HEAD(ALWAYS),
};
static const struct tensor_row command_r_tensors[] = {
    EMBEDDING, NORM_BEFORE_ATTENTION, Q_K_V, Q_K_NORMS_PER_HEAD, ATTENTION_OUT, FFN_GATED,
    LAST_NORM, HEAD(TIED),
};
static const struct tensor_row deepseek2_tensors[] = {
    EMBEDDING, NORMS_BEFORE,
    MATRIX(ATTN_Q_A,         ATTENTION, OPTIONAL, DIM_EMBD, DIM_Q_RANK),
    VALUES_OF(ATTN_Q_A_NORM, ATTENTION, IF, ATTN_Q_A, DIM_Q_RANK),
    MATRIX_OF(ATTN_Q_B,      ATTENTION, IF, ATTN_Q_A, DIM_Q_RANK, DIM_LATENT_Q),
    MATRIX_OF(ATTN_Q,        ATTENTION, UNLESS, ATTN_Q_A, DIM_EMBD, DIM_LATENT_Q),
    MATRIX(ATTN_KV_A,        ATTENTION, ALWAYS, DIM_EMBD, DIM_LATENT_KEY),
    VALUES(ATTN_KV_A_NORM,   ATTENTION, ALWAYS, DIM_LATENT),
    ROW(ATTN_KV_B, LAYER,    ATTENTION, OPTIONAL, LATENT, ATTN_KV_B, DIM_LATENT, DIM_KEYS_VALUES),
    MATRIX_OF(ATTN_K_B,      ATTENTION, UNLESS, ATTN_KV_B, DIM_KEY_PLAIN, DIM_LATENT, DIM_N_HEAD),
    MATRIX_OF(ATTN_V_B,      ATTENTION, UNLESS, ATTN_KV_B, DIM_LATENT, DIM_VALUE, DIM_N_HEAD),
    ATTENTION_OUT, FFN_GATED, EXPERT_MATRICES,
    VALUES_OF(ROUTER_CHOICE_BIAS, EXPERTS, WITH, ROUTER, DIM_EXPERTS),
    SHARED_EXPERT, LAST_NORM, HEAD(OR_TIED),
};
static const struct tensor_row gpt_oss_tensors[] = {
    EMBEDDING, NORM_BEFORE_ATTENTION, Q_K_V,
    VALUES(ATTN_SINKS, ATTENTION, ALWAYS, DIM_N_HEAD),
    ATTENTION_OUT,
    {TENSOR_FFN_NORM, SCOPE_LAYER, PART_EVERY, NEED_ALWAYS, ROLE_VALUES, {DIM_EMBD},
     TENSOR_FFN_NORM, "post_attention_norm.weight"},
    EXPERT_MATRICES,
    VALUES_OF(ROUTER_BIAS,      EXPERTS, WITH, ROUTER,      DIM_EXPERTS),
    VALUES_OF(EXPERT_GATE_BIAS, EXPERTS, WITH, EXPERT_GATE, DIM_FF_EXPERT, DIM_EXPERTS),
    VALUES_OF(EXPERT_UP_BIAS,   EXPERTS, WITH, EXPERT_UP,   DIM_FF_EXPERT, DIM_EXPERTS),
    VALUES_OF(EXPERT_DOWN_BIAS, EXPERTS, WITH, EXPERT_DOWN, DIM_EMBD, DIM_EXPERTS),
    LAST_NORM, HEAD(ALWAYS),
};
static const struct tensor_row lfm2_tensors[] = {
    EMBEDDING, NORMS_BEFORE,
    Q_K_V, Q_K_NORMS, ATTENTION_OUT,
    MATRIX(CONV_IN,     CONV, ALWAYS, DIM_EMBD, DIM_CONV_IN),
    VALUES(CONV_KERNEL, CONV, ALWAYS, DIM_CONV, DIM_EMBD),
    MATRIX(CONV_OUT,    CONV, ALWAYS, DIM_EMBD, DIM_EMBD),
    FFN_GATED,
    {TENSOR_OUTPUT_NORM, SCOPE_OUTPUT, PART_EVERY, NEED_ALWAYS, ROLE_VALUES, {DIM_EMBD},
     TENSOR_OUTPUT_NORM, "token_embd_norm.weight"},
    HEAD(OR_TIED),
};

#define TENSORS(table) .tensors = table, .n_tensors = sizeof table / sizeof table[0]

/* The usual shapes of a family: norm, rotation, activation. */
#define LIKE_LLAMA .norm = NORM_RMS, .rope = ROPE_INTERLEAVED, .activation = ACT_SILU
#define LIKE_QWEN .norm = NORM_RMS, .rope = ROPE_HALF, .activation = ACT_SILU
#define LIKE_GEMMA \
    .norm = NORM_RMS, .rope = ROPE_HALF, .activation = ACT_GELU, .embd_times_sqrt = true
#define LIKE_NEOX .norm = NORM_LAYER, .rope = ROPE_HALF, .activation = ACT_GELU
#define LIKE_GPT2 .norm = NORM_LAYER, .rope = ROPE_NONE, .activation = ACT_GELU
#define LIKE_COHERE \
    .norm = NORM_LAYER, .rope = ROPE_INTERLEAVED, .activation = ACT_SILU, \
    .residual = RESIDUAL_PARALLEL, .logits = LOGITS_TIMES_KEY
#define LIKE_GRANITE \
    LIKE_LLAMA, .rope_is_by_key = true, .multipliers = MULTIPLIERS_BY_KEY, .logits = LOGITS_OVER_KEY

static const struct family families[] = {
    {.name = "llama", LIKE_LLAMA, TENSORS(llama_tensors), /* also Mistral and Mixtral */
     .experts = {.use = EXPERTS_BY_KEY, .router = ROUTER_SOFTMAX_NORMED}},
    {.name = "gpt2", LIKE_GPT2, TENSORS(gpt2_tensors), .ctx_is_hard = true},
    {.name = "qwen2", LIKE_QWEN, TENSORS(llama_tensors)},
    {.name = "qwen2moe", LIKE_QWEN, TENSORS(qwen2moe_tensors),
     .experts = {EXPERTS_ALWAYS, ROUTER_SOFTMAX, EXPERT_WIDTH_FF_SHARED_OUT, SHARED_KEY_OR_FF}},
    {.name = "qwen3", LIKE_QWEN, TENSORS(qwen3_tensors)},
    {.name = "qwen3moe", LIKE_QWEN, TENSORS(qwen3_tensors),
     .experts = {EXPERTS_ALWAYS, ROUTER_SOFTMAX_NORMED, EXPERT_WIDTH_FF_SHARED_OUT, SHARED_NONE}},
    {.name = "phi2", LIKE_NEOX, TENSORS(phi2_tensors), .rope_is_partial = true,
     .residual = RESIDUAL_PARALLEL},
    {.name = "phi3", LIKE_QWEN, TENSORS(phi3_tensors), .rope_is_partial = true},
    {.name = "gemma", LIKE_GEMMA, TENSORS(gemma_tensors)},
    {.name = "gemma2", LIKE_GEMMA, TENSORS(gemma2_tensors),
     .window = {.period = 2, .width = 4096}, .attn_softcap = 50, .caps_scores = true,
     .final_softcap = 30, .wide_scale_layers = 46},
    {.name = "gemma3", LIKE_GEMMA, TENSORS(gemma3_tensors),
     .window = {.period = 6, .plain_rope = true, .rope_base = 10000}, .caps_scores = true,
     .wide_scale_layers = 62},
    {.name = "gptneox", LIKE_NEOX, TENSORS(gptneox_tensors), .rope_is_partial = true,
     .residual = RESIDUAL_BY_KEY},
    {.name = "starcoder2", LIKE_NEOX, TENSORS(starcoder2_tensors)},
    {.name = "falcon", LIKE_NEOX, TENSORS(falcon_tensors), .residual = RESIDUAL_PARALLEL},
    {.name = "stablelm", .norm = NORM_LAYER, .rope = ROPE_HALF, .activation = ACT_SILU,
     TENSORS(stablelm_tensors), .rope_is_partial = true, .residual = RESIDUAL_BY_FFN_NORM},
    {.name = "nemotron", .norm = NORM_LAYER, .rope = ROPE_HALF, .activation = ACT_RELU_SQUARED,
     TENSORS(gptneox_tensors), .rope_is_partial = true},
    {.name = "bloom", LIKE_GPT2, TENSORS(bloom_tensors), .alibi_max_bias = 8},
    {.name = "mpt", LIKE_GPT2, TENSORS(mpt_tensors), .alibi_is_by_key = true, .clamps_qkv = true},
    {.name = "command-r", LIKE_COHERE, TENSORS(command_r_tensors)},
    {.name = "cohere2", LIKE_COHERE, TENSORS(command_r_tensors), .rope_off_unwindowed = true,
     .window = {.period = 4, .is_required = true}},
    {.name = "olmo2", LIKE_QWEN, TENSORS(olmo2_tensors), /* also OLMo 3 */
     .window = {.period = 4, .plain_rope = true}},
    {.name = "olmoe", LIKE_QWEN, TENSORS(olmoe_tensors),
     .experts = {.use = EXPERTS_ALWAYS, .router = ROUTER_SOFTMAX}},
    {.name = "exaone", LIKE_QWEN, TENSORS(llama_tensors)},
    {.name = "exaone4", LIKE_QWEN, TENSORS(exaone4_tensors), .rope_off_unwindowed = true,
     .window = {.period = 4, .width = 4096, .only_layers = 64}},
    {.name = "granite", LIKE_GRANITE, TENSORS(llama_tensors)},
    {.name = "granitemoe", LIKE_GRANITE, TENSORS(llama_tensors),
     .experts = {.use = EXPERTS_ALWAYS, .router = ROUTER_SOFTMAX_NORMED, .shared = SHARED_BY_KEY}},
    {.name = "minicpm", LIKE_LLAMA, TENSORS(llama_tensors),
     .multipliers = MULTIPLIERS_WITH_DEFAULTS, .logits = LOGITS_OVER_KEY},
    {.name = "internlm2", LIKE_LLAMA, TENSORS(internlm2_tensors)},
    {.name = "smollm3", LIKE_LLAMA, TENSORS(llama_tensors), .rope_off_period = 4},
    {.name = "glm4", LIKE_LLAMA, TENSORS(glm4_tensors), .rope_is_partial = true},
    {.name = "deepseek2", LIKE_LLAMA, TENSORS(deepseek2_tensors), .is_latent = true,
     .experts = {EXPERTS_BY_KEY, ROUTER_BY_KEY, EXPERT_WIDTH_FF, SHARED_BY_COUNT}},
    {.name = "gpt-oss", .norm = NORM_RMS, .rope = ROPE_HALF, .activation = ACT_SWIGLU_CLAMPED,
     TENSORS(gpt_oss_tensors), .window = {.period = 2, .is_required = true},
     .experts = {.use = EXPERTS_ALWAYS, .router = ROUTER_LOGITS}},
    {.name = "lfm2", LIKE_QWEN, TENSORS(lfm2_tensors), .has_convs = true},
};
/* clang-format on */
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

const char *tensor_row_suffix(const struct tensor_row *row)
{
    return row->name != NULL ? row->name : tensor_suffix(row->id);
}
