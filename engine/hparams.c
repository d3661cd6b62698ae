/* hparams - see hparams.h.
 *
 * Keys are read in the order in which they need each other: sizes, layers, heads, rotation, then
 * the features that only some families have. A key that is missing leaves what the family says. */
#include "engine/hparams.h"

#include "engine/fmath.h"
#include "engine/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_MAX = 128,
    /* Of any dimension but vocabulary and context: keeps products far from 2^64. */
    SIZE_MAX_DIM = 1 << 24,

};

static const char damaged[] = "the file is damaged or not of family";

const char *hparams_show_text(char out[HPARAMS_TEXT_MAX], struct gguf_str s)
{
    size_t n = s.len < HPARAMS_TEXT_MAX - 1 ? s.len : HPARAMS_TEXT_MAX - 1;
    for (size_t i = 0; i < n; i++) out[i] = s.data[i] >= 0x20 && s.data[i] < 0x7f ? s.data[i] : '?';
    out[n] = '\0';
    return out;
}

/* ---- keys ---- */

/* "llama.block_count" from "block_count". */
static const char *key_of(const struct model *m, char out[KEY_MAX], const char *suffix)
{
    snprintf(out, KEY_MAX, "%s.%s", m->family->name, suffix);
    return out;
}

static int need_key(const struct model *m, const char *key, struct err *err)
{
    CHECK(gguf_find(m->file, key) != NULL, err, ERR_FILE, "%s: key %s is missing: %s %s",
          gguf_path(m->file), key, damaged, m->family->name);
    return ERR_NONE;
}

static int check_size(const struct model *m, const char *key, uint64_t value, uint64_t max,
                      struct err *err)
{
    CHECK(value >= 1 && value <= max, err, ERR_FILE,
          "%s: key %s is %" PRIu64 ", want 1 to %" PRIu64 ": the file is damaged",
          gguf_path(m->file), key, value, max);
    return ERR_NONE;
}

/* A size; absent keys leave *out, which must be set. */
static int read_size(const struct model *m, const char *suffix, uint64_t max, uint32_t *out,
                     struct err *err)
{
    char key[KEY_MAX];
    TRY(gguf_get_u32(m->file, key_of(m, key, suffix), out, err));
    return check_size(m, key, *out, max, err);
}

static int need_size(const struct model *m, const char *suffix, uint64_t max, uint32_t *out,
                     struct err *err)
{
    char key[KEY_MAX];
    TRY(need_key(m, key_of(m, key, suffix), err));
    return read_size(m, suffix, max, out, err);
}

/* A number > 0; absent keys leave *out, which must be set. */
static int read_positive(const struct model *m, const char *suffix, float *out, struct err *err)
{
    char key[KEY_MAX];
    TRY(gguf_get_f32(m->file, key_of(m, key, suffix), out, err));
    CHECK(isfinite(*out) && *out > 0, err, ERR_FILE,
          "%s: key %s is %g, want a number above 0: the file is damaged", gguf_path(m->file), key,
          (double)*out);
    return ERR_NONE;
}

static bool is_integer(enum gguf_type type)
{
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_STRING && type != GGUF_BOOL;
}

/* A factor; absent keys and 0 leave *out, which must be set. */
static int read_factor(const struct model *m, const char *suffix, float *out, struct err *err)
{
    char key[KEY_MAX];
    float value = 0;
    TRY(gguf_get_f32(m->file, key_of(m, key, suffix), &value, err));
    CHECK(isfinite(value), err, ERR_FILE, "%s: key %s is not finite: the file is damaged",
          gguf_path(m->file), key);
    if (value != 0) *out = value;
    return ERR_NONE;
}

/* A limit or a bias; 0: none. Absent keys leave *out, which must be set. */
static int read_limit(const struct model *m, const char *suffix, float *out, struct err *err)
{
    char key[KEY_MAX];
    TRY(gguf_get_f32(m->file, key_of(m, key, suffix), out, err));
    CHECK(isfinite(*out) && *out >= 0, err, ERR_FILE,
          "%s: key %s is %g, want 0 or more: the file is damaged", gguf_path(m->file), key,
          (double)*out);
    return ERR_NONE;
}

/* ---- layers and heads ---- */

/* A size that may be one number for all layers or an array with one for each. Where the family has
 * convolutions, an array may say 0. */
static int read_layer_size(const struct model *m, const char *suffix, uint32_t layer, uint32_t *out,
                           struct err *err)
{
    char key[KEY_MAX];
    const struct gguf_kv *kv = gguf_find(m->file, key_of(m, key, suffix));
    if (kv == NULL || gguf_kv_type(kv) != GGUF_ARRAY)
        return read_size(m, suffix, SIZE_MAX_DIM, out, err);
    CHECK(is_integer(gguf_kv_element_type(kv)), err, ERR_FILE,
          "%s: key %s is an array of %s, want integers: the file is damaged", gguf_path(m->file),
          key, gguf_type_name(gguf_kv_element_type(kv)));
    CHECK(gguf_array_length(kv) == m->hp.n_layer, err, ERR_FILE,
          "%s: key %s has %" PRIu64 " entries, want %" PRIu32 " (one a layer): the file is damaged",
          gguf_path(m->file), key, gguf_array_length(kv), m->hp.n_layer);
    uint64_t value = (uint64_t)gguf_array_int(kv, layer);
    if (value != 0 || !m->family->has_convs) TRY(check_size(m, key, value, SIZE_MAX_DIM, err));
    *out = (uint32_t)value;
    return ERR_NONE;
}

static int read_layer(const struct model *m, uint32_t i, struct layer_hparams *l, struct err *err)
{
    TRY(read_layer_size(m, "attention.head_count", i, &l->n_head, err));
    l->n_head_kv = l->n_head;
    TRY(read_layer_size(m, "attention.head_count_kv", i, &l->n_head_kv, err));
    TRY(read_layer_size(m, "feed_forward_length", i, &l->n_ff, err));
    l->is_conv = l->n_head_kv == 0;
    CHECK(l->n_head > 0 && l->n_ff > 0 && (l->is_conv || l->n_head % l->n_head_kv == 0), err,
          ERR_FILE,
          "%s: layer %" PRIu32 " has %" PRIu32 " heads, %" PRIu32
          " KV heads and a feed-forward of %" PRIu32
          ", want a divisor and no other 0: the file is damaged",
          gguf_path(m->file), i, l->n_head, l->n_head_kv, l->n_ff);
    return ERR_NONE;
}

static int read_layers(struct model *m, struct layer_hparams **out, struct err *err)
{
    char key[KEY_MAX];
    uint32_t n = m->hp.n_layer;
    TRY(need_key(m, key_of(m, key, "attention.head_count"), err));
    TRY(need_key(m, key_of(m, key, "feed_forward_length"), err));
    struct layer_hparams *layers = calloc(n, sizeof *layers);
    CHECK(layers != NULL, err, ERR_MEMORY, "%s: no memory for the numbers of %" PRIu32 " layers",
          gguf_path(m->file), n);
    m->hp.layer = *out = layers;
    for (uint32_t i = 0; i < n; i++) TRY(read_layer(m, i, &layers[i], err));
    return ERR_NONE;
}

/* A head's width: its key, else n_embd / n_head. */
static int read_head_dim(struct model *m, const char *suffix, uint32_t *out, struct err *err)
{
    char key[KEY_MAX];
    uint32_t n_head = m->hp.layer[0].n_head;
    if (gguf_find(m->file, key_of(m, key, suffix)) == NULL) {
        CHECK(m->hp.n_embd % n_head == 0, err, ERR_FILE,
              "%s: %" PRIu32 " heads do not divide the width of %" PRIu32
              ", and there is no key %s: the file is damaged",
              gguf_path(m->file), n_head, m->hp.n_embd, key);
        *out = m->hp.n_embd / n_head;
    }
    return read_size(m, suffix, SIZE_MAX_DIM, out, err);
}

/* Latent attention: the file has a head's width in its own keys beside those of the cached row, or,
 * in its older form, in place of them. What is cached is the same: one row for all heads. */
static int read_latent(struct model *m, struct layer_hparams *layers, struct err *err)
{
    struct hparams *hp = &m->hp;
    struct latent_hparams *latent = &hp->latent;
    uint32_t key_width = hp->head_dim_k, q_rank = 0;
    char key[KEY_MAX];
    latent->value = hp->head_dim_v;
    TRY(need_size(m, "attention.kv_lora_rank", SIZE_MAX_DIM, &latent->width, err));
    TRY(need_size(m, "rope.dimension_count", SIZE_MAX_DIM, &hp->n_rot, err));
    TRY(gguf_get_u32(m->file, key_of(m, key, "attention.q_lora_rank"), &q_rank, err));
    TRY(read_size(m, "attention.key_length_mla", SIZE_MAX_DIM, &key_width, err));
    TRY(read_size(m, "attention.value_length_mla", SIZE_MAX_DIM, &latent->value, err));
    CHECK(hp->n_rot < key_width && q_rank <= SIZE_MAX_DIM, err, ERR_FILE,
          "%s: %" PRIu32 " rotated dimensions of a head of %" PRIu32
          ", queries compressed to %" PRIu32 ": the file is damaged",
          gguf_path(m->file), hp->n_rot, key_width, q_rank);
    latent->q_rank = q_rank;
    latent->key_plain = key_width - hp->n_rot;
    hp->head_dim_k = latent->width + hp->n_rot;
    hp->head_dim_v = latent->width;
    for (uint32_t i = 0; i < hp->n_layer; i++) layers[i].n_head_kv = 1;
    return ERR_NONE;
}

struct cache_row hparams_cache_row(const struct hparams *hp, uint32_t layer)
{
    const struct layer_hparams *l = &hp->layer[layer];
    if (l->is_conv) return (struct cache_row){1, 0, hp->n_embd};
    return (struct cache_row){l->n_head_kv, hp->head_dim_k,
                              hp->latent.width > 0 ? 0 : hp->head_dim_v};
}

static int read_norm_eps(struct model *m, struct err *err)
{
    char key[KEY_MAX];
    key_of(m, key,
           m->family->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                       : "attention.layer_norm_epsilon");
    TRY(need_key(m, key, err));
    TRY(gguf_get_f32(m->file, key, &m->hp.norm_eps, err));
    CHECK(isfinite(m->hp.norm_eps) && m->hp.norm_eps >= 0, err, ERR_FILE,
          "%s: key %s is %g, want 0 or more: the file is damaged", gguf_path(m->file), key,
          (double)m->hp.norm_eps);
    return ERR_NONE;
}

/* ---- rotation and windows ---- */

/* Missing type: linear, if there is a factor at all. */
static int read_rope_scaling_type(struct model *m, struct err *err)
{
    static const struct {
        const char *name;
        enum rope_scaling kind;
    } kinds[] = {
        {"none", ROPE_SCALING_NONE},
        {"linear", ROPE_SCALING_LINEAR},
        {"yarn", ROPE_SCALING_YARN},
        {"longrope", ROPE_SCALING_NONE}, /* its factors are tensors */
    };
    char key[KEY_MAX], text[HPARAMS_TEXT_MAX];
    struct gguf_str type = {"linear", 6};
    TRY(gguf_get_str(m->file, key_of(m, key, "rope.scaling.type"), &type, err));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strlen(kinds[i].name) == type.len && memcmp(kinds[i].name, type.data, type.len) == 0) {
            m->hp.rope_scaling = kinds[i].kind;
            return ERR_NONE;
        }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: key %s is \"%s\", supported are none, linear, yarn and longrope",
                   gguf_path(m->file), key, hparams_show_text(text, type));
}

static int read_rope_scaling(struct model *m, struct err *err)
{
    char key[KEY_MAX];
    struct hparams *hp = &m->hp;
    TRY(read_rope_scaling_type(m, err));
    const char *suffix = "rope.scaling.factor";
    if (gguf_find(m->file, key_of(m, key, suffix)) == NULL) suffix = "rope.scale_linear";
    TRY(gguf_get_f32(m->file, key_of(m, key, suffix), &hp->rope_factor, err));
    if (hp->rope_factor == 0) hp->rope_factor = 1; /* 0 is how some files say "not scaled" */
    CHECK(isfinite(hp->rope_factor) && hp->rope_factor > 0, err, ERR_FILE,
          "%s: key %s is %g, want a number above 0: the file is damaged", gguf_path(m->file), key,
          (double)hp->rope_factor);
    if (hp->rope_scaling == ROPE_SCALING_LINEAR && hp->rope_factor == 1)
        hp->rope_scaling = ROPE_SCALING_NONE;
    if (hp->rope_scaling == ROPE_SCALING_NONE) hp->rope_factor = 1;
    TRY(read_size(m, "rope.scaling.original_context_length", UINT32_MAX, &hp->rope_ctx_orig, err));
    return read_positive(m, "rope.scaling.attn_factor", &hp->rope_attn_factor, err);
}

static int check_rotated(const struct model *m, struct err *err)
{
    const struct hparams *hp = &m->hp;
    bool partial = m->family->rope_is_partial || m->family->is_latent;
    bool fits = partial ? hp->n_rot <= hp->head_dim_k : hp->n_rot == hp->head_dim_k;
    CHECK(fits && hp->n_rot % 2 == 0, err, ERR_FILE,
          "%s: key %s.rope.dimension_count is %" PRIu32 ", want an even number, %s the %" PRIu32
          " of a head: %s %s",
          gguf_path(m->file), m->family->name, hp->n_rot, partial ? "at most" : "equal to",
          hp->head_dim_k, damaged, m->family->name);
    return ERR_NONE;
}

static int read_rope(struct model *m, struct err *err)
{
    struct hparams *hp = &m->hp;
    hp->rope_base = 10000;
    hp->rope_factor = 1;
    hp->rope_attn_factor = 1;
    hp->rope_ctx_orig = hp->n_ctx_train;
    if (m->family->rope == ROPE_NONE) return ERR_NONE;

    if (!m->family->is_latent) hp->n_rot = hp->head_dim_k;
    TRY(read_size(m, "rope.dimension_count", SIZE_MAX_DIM, &hp->n_rot, err));
    TRY(check_rotated(m, err));
    TRY(read_positive(m, "rope.freq_base", &hp->rope_base, err));
    hp->rope_base_plain = m->family->window.rope_base;
    if (hp->rope_base_plain == 0) hp->rope_base_plain = hp->rope_base;
    TRY(read_positive(m, "rope.freq_base_swa", &hp->rope_base_plain, err));
    TRY(read_rope_scaling(m, err));
    if (m->family->is_latent)
        TRY(read_factor(m, "rope.scaling.yarn_log_multiplier", &hp->yarn_log_multiplier, err));
    return ERR_NONE;
}

/* The window of a model, 0 where it has none, and after how many layers one sees everything. */
static int read_window(const struct model *m, uint32_t *width, uint32_t *period, struct err *err)
{
    const struct window_features *f = &m->family->window;
    const char *suffix = "attention.sliding_window_pattern";
    char key[KEY_MAX];
    *period = f->period;
    *width = f->width;
    if (f->period == 0 || (f->only_layers != 0 && m->hp.n_layer != f->only_layers)) {
        *width = 0;
        return ERR_NONE;
    }
    if (f->is_required) TRY(need_key(m, key_of(m, key, "attention.sliding_window"), err));
    TRY(gguf_get_u32(m->file, key_of(m, key, "attention.sliding_window"), width, err));
    /* Some files give a flag for each layer here; they mean the family's own period. */
    const struct gguf_kv *pattern = gguf_find(m->file, key_of(m, key, suffix));
    if (pattern != NULL && gguf_kv_type(pattern) == GGUF_ARRAY) return ERR_NONE;
    return read_size(m, suffix, SIZE_MAX_DIM, period, err);
}

/* class_of() - the cache class of a window; a new one where it is the first of its kind. */
static uint32_t class_of(struct hparams *hp, uint32_t window)
{
    uint32_t c = 0;
    while (c < hp->n_kv_classes && hp->kv_class_window[c] != window) c++;
    BUG_IF(c == KV_CLASSES_MAX, "a model with more kinds of windows than cache classes");
    hp->kv_class_window[c] = window;
    if (c == hp->n_kv_classes) hp->n_kv_classes++;
    return c;
}

static int read_windows(struct model *m, struct layer_hparams *layers, struct err *err)
{
    const struct family *f = m->family;
    struct hparams *hp = &m->hp;
    uint32_t width, period;
    char key[KEY_MAX];
    bool rotates = f->rope != ROPE_NONE;
    TRY(read_window(m, &width, &period, err));
    class_of(hp, 0); /* is class 0 */
    if (f->rope_is_by_key)
        TRY(gguf_get_bool(m->file, key_of(m, key, "rope.scaling.finetuned"), &rotates, err));
    hp->n_rope_tables = !rotates ? 0 : width > 0 && f->window.plain_rope ? 2 : 1;
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        struct layer_hparams *l = &layers[i];
        l->window = width > 0 && (i + 1) % period != 0 ? width : 0;
        bool off = f->rope_off_period > 0 && (i + 1) % f->rope_off_period == 0;
        off |= f->rope_off_unwindowed && width > 0 && l->window == 0;
        if (!rotates || off)
            l->rope = LAYER_ROPE_OFF;
        else
            l->rope = l->window > 0 && f->window.plain_rope ? LAYER_ROPE_PLAIN : LAYER_ROPE_MAIN;
        if (l->is_conv) l->window = hp->conv_width;
        l->kv_class = class_of(hp, l->window);
    }
    return ERR_NONE;
}

/* ---- scales and limits ---- */

static int read_attn_scale(struct model *m, struct err *err)
{
    struct hparams *hp = &m->hp;
    uint32_t width = hp->latent.width > 0 ? hp->latent.key_plain + hp->n_rot : hp->head_dim_k;
    if (m->family->wide_scale_layers == hp->n_layer) width = hp->n_embd / hp->layer[0].n_head;
    CHECK(width > 0, err, ERR_FILE, "%s: more heads than dimensions: the file is damaged",
          gguf_path(m->file));
    hp->attn_scale = 1 / sqrtf((float)width);
    if (hp->rope_scaling == ROPE_SCALING_YARN && hp->yarn_log_multiplier != 0) {
        double grown = 1 + (double)hp->yarn_log_multiplier * fmath_log(hp->rope_factor);
        hp->attn_scale = (float)(hp->attn_scale * grown * grown);
    }
    if (m->family->multipliers == MULTIPLIERS_BY_KEY)
        TRY(read_factor(m, "attention.scale", &hp->attn_scale, err));
    return ERR_NONE;
}

static int read_multipliers(struct model *m, struct err *err)
{
    const struct family *f = m->family;
    struct hparams *hp = &m->hp;
    bool defaults = f->multipliers == MULTIPLIERS_WITH_DEFAULTS;
    char key[KEY_MAX];
    hp->embd_scale = f->embd_times_sqrt ? sqrtf((float)hp->n_embd) : defaults ? 12 : 1;
    hp->residual_scale = defaults ? 1.4F / sqrtf((float)hp->n_layer) : 1;
    hp->logit_scale = defaults ? 256.0F / (float)hp->n_embd : 1;
    if (f->multipliers != MULTIPLIERS_NONE) {
        TRY(read_factor(m, "embedding_scale", &hp->embd_scale, err));
        TRY(read_factor(m, "residual_scale", &hp->residual_scale, err));
    }
    if (f->logits == LOGITS_PLAIN) return ERR_NONE;
    if (!defaults) TRY(need_key(m, key_of(m, key, "logit_scale"), err));
    TRY(read_factor(m, "logit_scale", &hp->logit_scale, err));
    if (f->logits == LOGITS_OVER_KEY) hp->logit_scale = 1 / hp->logit_scale;
    return ERR_NONE;
}

static int read_limits(struct model *m, struct err *err)
{
    const struct family *f = m->family;
    struct hparams *hp = &m->hp;
    hp->attn_softcap = f->attn_softcap;
    hp->final_softcap = f->final_softcap;
    hp->alibi_max_bias = f->alibi_max_bias;
    if (f->attn_softcap > 0) TRY(read_limit(m, "attn_logit_softcapping", &hp->attn_softcap, err));
    if (f->caps_scores) TRY(read_limit(m, "final_logit_softcapping", &hp->final_softcap, err));
    if (f->alibi_is_by_key)
        TRY(read_limit(m, "attention.max_alibi_bias", &hp->alibi_max_bias, err));
    if (f->clamps_qkv) TRY(read_limit(m, "attention.clamp_kqv", &hp->qkv_clamp, err));
    return ERR_NONE;
}

static int read_residual(struct model *m, struct err *err)
{
    char key[KEY_MAX];
    bool is_parallel = false;
    m->hp.residual = m->family->residual;
    if (m->family->residual != RESIDUAL_BY_KEY) return ERR_NONE;
    TRY(need_key(m, key_of(m, key, "use_parallel_residual"), err));
    TRY(gguf_get_bool(m->file, key, &is_parallel, err));
    m->hp.residual = is_parallel ? RESIDUAL_PARALLEL : RESIDUAL_SEQUENTIAL;
    return ERR_NONE;
}

/* ---- experts ---- */

static int read_shared_width(struct model *m, struct err *err)
{
    struct expert_hparams *e = &m->hp.experts;
    uint32_t count = 0;
    char key[KEY_MAX];
    switch (m->family->experts.shared) {
    case SHARED_NONE:
        return ERR_NONE;
    case SHARED_KEY_OR_FF:
        e->n_ff_shared = m->hp.layer[0].n_ff;
        return read_size(m, "expert_shared_feed_forward_length", SIZE_MAX_DIM, &e->n_ff_shared,
                         err);
    case SHARED_BY_KEY:
        key_of(m, key, "expert_shared_feed_forward_length");
        TRY(gguf_get_u32(m->file, key, &e->n_ff_shared, err));
        break;
    case SHARED_BY_COUNT:
        TRY(gguf_get_u32(m->file, key_of(m, key, "expert_shared_count"), &count, err));
        CHECK(count <= EXPERTS_MAX && (uint64_t)count * e->n_ff <= SIZE_MAX_DIM, err, ERR_FILE,
              "%s: key %s is %" PRIu32 ": the file is damaged", gguf_path(m->file), key, count);
        e->n_ff_shared = count * e->n_ff;
        break;
    }
    CHECK(e->n_ff_shared <= SIZE_MAX_DIM, err, ERR_FILE,
          "%s: a shared expert of %" PRIu32 ": the file is damaged", gguf_path(m->file),
          e->n_ff_shared);
    return ERR_NONE;
}

/* Of ROUTER_BY_KEY. */
static int read_router(struct model *m, struct err *err)
{
    enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 };
    struct expert_hparams *e = &m->hp.experts;
    uint32_t gating = 0;
    char key[KEY_MAX];
    TRY(gguf_get_bool(m->file, key_of(m, key, "expert_weights_norm"), &e->is_normed, err));
    TRY(read_factor(m, "expert_weights_scale", &e->scale, err));
    TRY(read_size(m, "expert_group_count", e->n, &e->n_groups, err));
    e->n_groups_used = e->n_groups;
    TRY(read_size(m, "expert_group_used_count", e->n_groups, &e->n_groups_used, err));
    CHECK(e->n % e->n_groups == 0 && e->n / e->n_groups * e->n_groups_used >= e->n_used, err,
          ERR_FILE,
          "%s: %" PRIu32 " experts of %" PRIu32 " in %" PRIu32 " groups of %" PRIu32
          ", which does not come out even or has too few: the file is damaged",
          gguf_path(m->file), e->n_used, e->n, e->n_groups_used, e->n_groups);
    TRY(gguf_get_u32(m->file, key_of(m, key, "expert_gating_func"), &gating, err));
    CHECK(gating <= GATING_SIGMOID, err, ERR_UNSUPPORTED,
          "%s: key %s is %" PRIu32 ", supported are 1 (softmax) and 2 (sigmoid)",
          gguf_path(m->file), key, gating);
    e->is_sigmoid = gating == GATING_SIGMOID;
    return ERR_NONE;
}

/* How many experts, if any; false in *found for none. */
static int read_expert_count(struct model *m, bool *found, struct err *err)
{
    struct expert_hparams *e = &m->hp.experts;
    enum expert_use use = m->family->experts.use;
    char key[KEY_MAX];
    TRY(gguf_get_u32(m->file, key_of(m, key, "expert_count"), &e->n, err));
    *found = e->n > 0;
    CHECK(e->n == 0 || use != EXPERTS_NEVER, err, ERR_UNSUPPORTED,
          "%s: key %s is %" PRIu32 ": a model of family %s with experts is not supported",
          gguf_path(m->file), key, e->n, m->family->name);
    CHECK(e->n > 0 || use != EXPERTS_ALWAYS, err, ERR_FILE, "%s: key %s is missing or 0: %s %s",
          gguf_path(m->file), key, damaged, m->family->name);
    CHECK(e->n <= EXPERTS_MAX, err, ERR_FILE,
          "%s: key %s is %" PRIu32 ", want at most %d: the file is damaged", gguf_path(m->file),
          key, e->n, EXPERTS_MAX);
    return ERR_NONE;
}

static int read_experts(struct model *m, struct layer_hparams *layers, struct err *err)
{
    const struct expert_features *f = &m->family->experts;
    struct expert_hparams *e = &m->hp.experts;
    uint32_t first = 0; /* layer with experts */
    bool found;
    char key[KEY_MAX];
    TRY(read_expert_count(m, &found, err));
    if (!found) return ERR_NONE;
    TRY(need_size(m, "expert_used_count", e->n, &e->n_used, err));
    TRY(gguf_get_u32(m->file, key_of(m, key, "leading_dense_block_count"), &first, err));
    for (uint32_t i = first; i < m->hp.n_layer; i++) layers[i].has_experts = true;

    e->n_ff = m->hp.layer[0].n_ff;
    if (f->width == EXPERT_WIDTH_FF_SHARED_OUT) e->n_ff /= e->n_used;
    TRY(read_size(m, "expert_feed_forward_length", SIZE_MAX_DIM, &e->n_ff, err));
    TRY(read_shared_width(m, err));
    e->scale = 1;
    e->n_groups = e->n_groups_used = 1;
    e->router = f->router == ROUTER_LOGITS ? ROUTER_LOGITS : ROUTER_SOFTMAX;
    e->is_normed = f->router == ROUTER_SOFTMAX_NORMED;
    return f->router == ROUTER_BY_KEY ? read_router(m, err) : ERR_NONE;
}

/* ---- all together ---- */

/* The vocabulary is as long as the token list; files without one may say it by a key. */
static int read_vocab_size(struct model *m, struct err *err)
{
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_kv *tokens = gguf_find(m->file, key);
    if (tokens == NULL) {
        char other[KEY_MAX];
        CHECK(gguf_find(m->file, key_of(m, other, "vocab_size")) != NULL, err, ERR_FILE,
              "%s: keys %s and %s are both missing: %s %s", gguf_path(m->file), key, other, damaged,
              m->family->name);
        return read_size(m, "vocab_size", INT32_MAX, &m->hp.n_vocab, err);
    }
    CHECK(gguf_kv_type(tokens) == GGUF_ARRAY && gguf_kv_element_type(tokens) == GGUF_STRING, err,
          ERR_FILE, "%s: key %s is %s%s, want an array of string: the file is damaged",
          gguf_path(m->file), key, gguf_kv_type(tokens) == GGUF_ARRAY ? "an array of " : "",
          gguf_type_name(gguf_kv_element_type(tokens)));
    uint64_t count = gguf_array_length(tokens);
    CHECK(count >= 1 && count <= INT32_MAX, err, ERR_FILE,
          "%s: key %s has %" PRIu64 " entries, want 1 or more: the file is damaged",
          gguf_path(m->file), key, count);
    m->hp.n_vocab = (uint32_t)count;
    return ERR_NONE;
}

static int read_sizes(struct model *m, struct err *err)
{
    struct hparams *hp = &m->hp;
    TRY(read_vocab_size(m, err));
    TRY(need_size(m, "context_length", UINT32_MAX, &hp->n_ctx_train, err));
    TRY(need_size(m, "embedding_length", SIZE_MAX_DIM, &hp->n_embd, err));
    TRY(need_size(m, "block_count", UINT32_MAX, &hp->n_layer, err));
    /* A layer has tensors, so the directory bounds what is allocated for layers. */
    CHECK(hp->n_layer <= gguf_tensor_count(m->file), err, ERR_FILE,
          "%s: %" PRIu32 " layers, but only %" PRIu64
          " tensors: the file is damaged, or holds a vocabulary alone",
          gguf_path(m->file), hp->n_layer, gguf_tensor_count(m->file));
    if (m->family->has_convs)
        TRY(need_size(m, "shortconv.l_cache", SIZE_MAX_DIM, &hp->conv_width, err));
    return ERR_NONE;
}

int hparams_read(struct model *m, struct err *err)
{
    struct hparams *hp = &m->hp;
    struct layer_hparams *layers = NULL;
    TRY(read_sizes(m, err));
    TRY(read_layers(m, &layers, err));
    TRY(read_experts(m, layers, err));
    TRY(read_head_dim(m, "attention.key_length", &hp->head_dim_k, err));
    TRY(read_head_dim(m, "attention.value_length", &hp->head_dim_v, err));
    TRY(read_norm_eps(m, err));
    TRY(read_residual(m, err));
    if (m->family->is_latent) TRY(read_latent(m, layers, err));
    TRY(read_rope(m, err));
    TRY(read_windows(m, layers, err));
    TRY(read_attn_scale(m, err));
    TRY(read_multipliers(m, err));
    return read_limits(m, err);
}
