/* model - see model.h.
 *
 * Opening goes family, numbers, tensors: general.architecture picks the table, the table's family
 * picks the keys, and each tensor of the file is then put into the one slot that its name and the
 * table give it. What is left over, missing, of another shape or of a number format that does not
 * run is refused by name. */
#include "engine/model.h"

#include "engine/batch.h"
#include "engine/quant_formats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_MAX = 128,
    NAME_MAX_BYTES = 80,
    SHAPE_MAX = 96,
    SHOWN_MAX = 48, /* bytes of a string value in an error */
    SIZE_MAX_DIM =
        1 << 24, /* of any dimension but vocabulary and context: keeps products far from 2^64 */
};

static const char damaged[] = "the file is damaged or not of family";

/* A string value of the file, made fit for a message. */
static const char *shown(char out[SHOWN_MAX], struct gguf_str s)
{
    size_t n = s.len < SHOWN_MAX - 1 ? s.len : SHOWN_MAX - 1;
    for (size_t i = 0; i < n; i++) out[i] = s.data[i] >= 0x20 && s.data[i] < 0x7f ? s.data[i] : '?';
    out[n] = '\0';
    return out;
}

/* ---- numbers ---- */

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

/* A size that may be one number for all layers or an array with one for each. */
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
    TRY(check_size(m, key, value, SIZE_MAX_DIM, err));
    *out = (uint32_t)value;
    return ERR_NONE;
}

static int read_layers(struct model *m, struct err *err)
{
    char key[KEY_MAX];
    uint32_t n = m->hp.n_layer;
    TRY(need_key(m, key_of(m, key, "attention.head_count"), err));
    TRY(need_key(m, key_of(m, key, "feed_forward_length"), err));
    struct layer_hparams *layers = calloc(n, sizeof *layers);
    CHECK(layers != NULL, err, ERR_MEMORY, "%s: no memory for the numbers of %" PRIu32 " layers",
          gguf_path(m->file), n);
    m->hp.layer = layers;
    for (uint32_t i = 0; i < n; i++) {
        struct layer_hparams *l = &layers[i];
        TRY(read_layer_size(m, "attention.head_count", i, &l->n_head, err));
        l->n_head_kv = l->n_head;
        TRY(read_layer_size(m, "attention.head_count_kv", i, &l->n_head_kv, err));
        TRY(read_layer_size(m, "feed_forward_length", i, &l->n_ff, err));
        CHECK(l->n_head % l->n_head_kv == 0, err, ERR_FILE,
              "%s: layer %" PRIu32 " has %" PRIu32 " heads and %" PRIu32
              " KV heads, want a divisor: the file is damaged",
              gguf_path(m->file), i, l->n_head, l->n_head_kv);
    }
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

/* Missing type: linear, if there is a factor at all. */
static int read_rope_scaling_type(struct model *m, struct err *err)
{
    static const struct {
        const char *name;
        enum rope_scaling kind;
    } kinds[] = {
        {"none", ROPE_SCALING_NONE}, {"linear", ROPE_SCALING_LINEAR}, {"yarn", ROPE_SCALING_YARN}};
    char key[KEY_MAX], text[SHOWN_MAX];
    struct gguf_str type = {"linear", 6};
    TRY(gguf_get_str(m->file, key_of(m, key, "rope.scaling.type"), &type, err));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strlen(kinds[i].name) == type.len && memcmp(kinds[i].name, type.data, type.len) == 0) {
            m->hp.rope_scaling = kinds[i].kind;
            return ERR_NONE;
        }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: key %s is \"%s\", supported are none, linear and yarn", gguf_path(m->file),
                   key, shown(text, type));
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

static int read_rope(struct model *m, struct err *err)
{
    struct hparams *hp = &m->hp;
    hp->rope_base = 10000;
    hp->rope_factor = 1;
    hp->rope_attn_factor = 1;
    hp->rope_ctx_orig = hp->n_ctx_train;
    if (m->family->rope == ROPE_NONE) return ERR_NONE;

    hp->n_rot = hp->head_dim_k;
    TRY(read_size(m, "rope.dimension_count", SIZE_MAX_DIM, &hp->n_rot, err));
    bool fits =
        m->family->rope_is_partial ? hp->n_rot <= hp->head_dim_k : hp->n_rot == hp->head_dim_k;
    CHECK(fits && hp->n_rot % 2 == 0, err, ERR_FILE,
          "%s: key %s.rope.dimension_count is %" PRIu32 ", want an even number, %s the %" PRIu32
          " of a head: %s %s",
          gguf_path(m->file), m->family->name, hp->n_rot,
          m->family->rope_is_partial ? "at most" : "equal to", hp->head_dim_k, damaged,
          m->family->name);
    TRY(read_positive(m, "rope.freq_base", &hp->rope_base, err));
    return read_rope_scaling(m, err);
}

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

static int refuse_experts(const struct model *m, struct err *err)
{
    char key[KEY_MAX];
    uint32_t experts = 0;
    TRY(gguf_get_u32(m->file, key_of(m, key, "expert_count"), &experts, err));
    CHECK(experts == 0, err, ERR_UNSUPPORTED,
          "%s: key %s is %" PRIu32 ": models with experts are not supported", gguf_path(m->file),
          key, experts);
    return ERR_NONE;
}

static int read_hparams(struct model *m, struct err *err)
{
    struct hparams *hp = &m->hp;
    TRY(refuse_experts(m, err));
    TRY(read_vocab_size(m, err));
    TRY(need_size(m, "context_length", UINT32_MAX, &hp->n_ctx_train, err));
    TRY(need_size(m, "embedding_length", SIZE_MAX_DIM, &hp->n_embd, err));
    TRY(need_size(m, "block_count", UINT32_MAX, &hp->n_layer, err));
    /* A layer has tensors, so the directory bounds what is allocated for layers. */
    CHECK(hp->n_layer <= gguf_tensor_count(m->file), err, ERR_FILE,
          "%s: %" PRIu32 " layers, but only %" PRIu64
          " tensors: the file is damaged, or holds a vocabulary alone",
          gguf_path(m->file), hp->n_layer, gguf_tensor_count(m->file));
    TRY(read_layers(m, err));
    TRY(read_head_dim(m, "attention.key_length", &hp->head_dim_k, err));
    TRY(read_head_dim(m, "attention.value_length", &hp->head_dim_v, err));
    TRY(read_norm_eps(m, err));
    return read_rope(m, err);
}

uint64_t model_dim(const struct model *m, enum dim dim, uint32_t layer)
{
    const struct hparams *hp = &m->hp;
    const struct layer_hparams *l = &hp->layer[layer < hp->n_layer ? layer : 0];
    uint64_t q = (uint64_t)l->n_head * hp->head_dim_k;
    uint64_t k = (uint64_t)l->n_head_kv * hp->head_dim_k;
    uint64_t v = (uint64_t)l->n_head_kv * hp->head_dim_v;
    switch (dim) {
    case DIM_NONE:
        return 1;
    case DIM_EMBD:
        return hp->n_embd;
    case DIM_VOCAB:
        return hp->n_vocab;
    case DIM_CTX_TRAIN:
        return hp->n_ctx_train;
    case DIM_FF:
        return l->n_ff;
    case DIM_Q:
        return q;
    case DIM_K:
        return k;
    case DIM_V:
        return v;
    case DIM_QKV:
        return q + k + v;
    case DIM_HEADS:
        return (uint64_t)l->n_head * hp->head_dim_v;
    case DIM_ROT_HALF:
        return hp->n_rot / 2;
    }
    BUG_IF(true, "a dimension that has no size");
    return 0;
}

/* ---- tensors ---- */

/* Where the tensor of an id stands in m->tensors: outside of layers first, then layer by layer. */
static size_t slot_of(const struct tensor_row *row, uint32_t layer)
{
    size_t group = row->scope == SCOPE_LAYER ? 1 + (size_t)layer : 0;
    return group * TENSOR_COUNT + row->id;
}

static const char *tensor_name(char out[NAME_MAX_BYTES], const struct tensor_row *row,
                               uint32_t layer)
{
    if (row->scope == SCOPE_LAYER)
        snprintf(out, NAME_MAX_BYTES, "blk.%" PRIu32 ".%s", layer, tensor_suffix(row->id));
    else
        snprintf(out, NAME_MAX_BYTES, "%s", tensor_suffix(row->id));
    return out;
}

/* "blk.12.attn_q.weight": takes "blk.12." off and gives 12; false for any other name. */
static bool take_layer(struct gguf_str *name, uint32_t *layer)
{
    size_t i = 4;
    uint64_t n = 0;
    if (name->len < 4 || memcmp(name->data, "blk.", 4) != 0) return false;
    for (; i < name->len && name->data[i] >= '0' && name->data[i] <= '9'; i++) {
        if (i > 4 && n == 0) return false; /* a leading zero would be a second name for a layer */
        n = n * 10 + (uint64_t)(name->data[i] - '0');
        if (n > UINT32_MAX) return false;
    }
    if (i == 4 || i == name->len || name->data[i] != '.') return false;
    *layer = (uint32_t)n;
    *name = (struct gguf_str){name->data + i + 1, name->len - i - 1};
    return true;
}

/* The row and layer that a tensor's name stands for; NULL where the family has none. */
static const struct tensor_row *find_row(const struct model *m, struct gguf_str name,
                                         uint32_t *layer)
{
    *layer = 0;
    bool in_layer = take_layer(&name, layer);
    if (in_layer && *layer >= m->hp.n_layer) return NULL;
    for (size_t i = 0; i < m->family->n_tensors; i++) {
        const struct tensor_row *row = &m->family->tensors[i];
        const char *suffix = tensor_suffix(row->id);
        if ((row->scope == SCOPE_LAYER) == in_layer && strlen(suffix) == name.len &&
            memcmp(suffix, name.data, name.len) == 0)
            return row;
    }
    return NULL;
}

/* "[4096,4096]"; axes of 1 at the end are not shown. */
static const char *shape_text(char out[SHAPE_MAX], const uint64_t shape[4])
{
    int axes = 4;
    while (axes > 1 && shape[axes - 1] == 1) axes--;
    size_t at = 0;
    for (int i = 0; i < axes; i++)
        at +=
            (size_t)snprintf(out + at, SHAPE_MAX - at, "%s%" PRIu64, i == 0 ? "[" : ",", shape[i]);
    snprintf(out + at, SHAPE_MAX - at, "]");
    return out;
}

static int check_tensor(const struct model *m, const struct tensor_row *row, uint32_t layer,
                        const struct gguf_tensor *t, struct err *err)
{
    char found[SHAPE_MAX], wanted[SHAPE_MAX];
    uint64_t want[4] = {1, 1, 1, 1};
    for (int i = 0; i < 3; i++) want[i] = model_dim(m, row->shape[i], layer);
    CHECK(memcmp(want, t->shape, sizeof want) == 0, err, ERR_SHAPE,
          "%s: tensor %.*s is %s, want %s: %s %s", gguf_path(m->file), (int)t->name.len,
          t->name.data, shape_text(found, t->shape), shape_text(wanted, want), damaged,
          m->family->name);
    const struct format *f = format_find(t->format);
    CHECK(f != NULL && f->runs, err, ERR_UNSUPPORTED,
          "%s: tensor %.*s has number format %s, which is not supported: convert the file, for "
          "example to "
          "Q8_0",
          gguf_path(m->file), (int)t->name.len, t->name.data, f != NULL ? f->name : "?");
    return ERR_NONE;
}

static int place_tensors(struct model *m, struct err *err)
{
    for (uint64_t i = 0; i < gguf_tensor_count(m->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->file, i);
        uint32_t layer;
        const struct tensor_row *row = find_row(m, t->name, &layer);
        CHECK(row != NULL, err, ERR_UNSUPPORTED,
              "%s: tensor %.*s has no place in a model of family %s with %" PRIu32
              " layers: the file is damaged or of a variant that is not supported",
              gguf_path(m->file), (int)t->name.len, t->name.data, m->family->name, m->hp.n_layer);
        TRY(check_tensor(m, row, layer, t, err));
        m->tensors[slot_of(row, layer)] = t;
    }
    return ERR_NONE;
}

/* Presence of one row's tensor, as its need says. */
static int check_need(const struct model *m, const struct tensor_row *row, uint32_t layer,
                      struct err *err)
{
    char name[NAME_MAX_BYTES];
    size_t slot = slot_of(row, layer);
    bool here = m->tensors[slot] != NULL;
    bool other = m->tensors[slot - row->id + row->other] != NULL; /* the same layer's */
    bool missing =
        (row->need == NEED_ALWAYS && !here) || (row->need == NEED_UNLESS && !here && !other);
    bool unused =
        (row->need == NEED_UNLESS && here && other) || (row->need == NEED_WITH && here && !other);
    CHECK(!missing, err, ERR_FILE, "%s: tensor %s is missing: %s %s", gguf_path(m->file),
          tensor_name(name, row, layer), damaged, m->family->name);
    CHECK(!unused, err, ERR_UNSUPPORTED, "%s: tensor %s %s %s: %s %s", gguf_path(m->file),
          tensor_name(name, row, layer),
          row->need == NEED_UNLESS ? "has no use beside" : "has no use without",
          tensor_suffix(row->other), damaged, m->family->name);
    return ERR_NONE;
}

static int check_needs(const struct model *m, struct err *err)
{
    for (size_t i = 0; i < m->family->n_tensors; i++) {
        const struct tensor_row *row = &m->family->tensors[i];
        uint32_t layers = row->scope == SCOPE_LAYER ? m->hp.n_layer : 1;
        for (uint32_t layer = 0; layer < layers; layer++) TRY(check_need(m, row, layer, err));
    }
    return ERR_NONE;
}

static int bind_tensors(struct model *m, struct err *err)
{
    size_t slots = (1 + (size_t)m->hp.n_layer) * TENSOR_COUNT;
    m->tensors = calloc(slots, sizeof *m->tensors);
    CHECK(m->tensors != NULL, err, ERR_MEMORY,
          "%s: no memory for the tensors of %" PRIu32 " layers", gguf_path(m->file), m->hp.n_layer);
    TRY(place_tensors(m, err));
    return check_needs(m, err);
}

/* ---- opening ---- */

static int find_family(struct model *m, struct err *err)
{
    const char *key = "general.architecture";
    struct gguf_str name = {"", 0};
    CHECK(gguf_find(m->file, key) != NULL, err, ERR_FILE,
          "%s: key %s is missing: the file is damaged or not a model", gguf_path(m->file), key);
    TRY(gguf_get_str(m->file, key, &name, err));
    m->family = family_find(name.data, name.len);
    if (m->family != NULL) return ERR_NONE;

    char text[SHOWN_MAX], list[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < family_count() && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i > 0 ? ", " : "",
                               family_at(i)->name);
    return err_set(err, ERR_UNSUPPORTED, "%s: family \"%s\" is not supported, only: %s",
                   gguf_path(m->file), shown(text, name), list);
}

static int open_and_check(struct model *m, const char *path, struct err *err)
{
    TRY(gguf_open(&m->file, path, err));
    TRY(find_family(m, err));
    TRY(read_hparams(m, err));
    TRY(bind_tensors(m, err));
    m->digest = gguf_digest(m->file);
    return ERR_NONE;
}

int model_open(struct model **out, const char *path, struct err *err)
{
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    CHECK(m != NULL, err, ERR_MEMORY, "%s: no memory to open it", path);
    int rc = open_and_check(m, path, err);
    if (rc != ERR_NONE) {
        model_close(m);
        return rc;
    }
    *out = m;
    return ERR_NONE;
}

void model_close(struct model *m)
{
    if (m == NULL) return;
    free(m->tensors);
    free((void *)(uintptr_t)m->hp.layer);
    gguf_close(m->file);
    free(m);
}

const struct gguf_tensor *model_tensor(const struct model *m, enum tensor_id id, uint32_t layer)
{
    /* In one family an id has one scope, so at most one of the two slots is ever filled. */
    const struct gguf_tensor *outside = m->tensors[id];
    if (outside != NULL || layer >= m->hp.n_layer) return outside;
    return m->tensors[(1 + (size_t)layer) * TENSOR_COUNT + id];
}

/* ---- ranges ---- */

static bool range_has_scope(const struct model *m, struct layer_range range,
                            enum tensor_scope scope)
{
    switch (scope) {
    case SCOPE_INPUT:
        return range.first == 0;
    case SCOPE_OUTPUT:
        return range.end == m->hp.n_layer;
    case SCOPE_EVERY:
        return true;
    case SCOPE_LAYER:
        return false; /* visited layer by layer */
    }
    return false;
}

/* The tensor that a stage of this range holds for a row; NULL for none. */
static const struct gguf_tensor *held_tensor(const struct model *m, struct layer_range range,
                                             const struct tensor_row *row, uint32_t layer)
{
    const struct gguf_tensor *t = m->tensors[slot_of(row, layer)];
    if (t != NULL || row->need != NEED_OR_TIED) return t;
    return range.first == 0 ? NULL : m->tensors[row->other]; /* the first stage has it as input */
}

static int visit_rows(const struct model *m, struct layer_range range, bool output,
                      model_visit_fn *visit, void *ctx, struct err *err)
{
    for (size_t i = 0; i < m->family->n_tensors; i++) {
        const struct tensor_row *row = &m->family->tensors[i];
        if ((row->scope == SCOPE_OUTPUT) != output || !range_has_scope(m, range, row->scope))
            continue;
        const struct gguf_tensor *t = held_tensor(m, range, row, 0);
        if (t != NULL) TRY(visit(ctx, row, 0, t, err));
    }
    return ERR_NONE;
}

static int visit_layer(const struct model *m, struct layer_range range, uint32_t layer,
                       model_visit_fn *visit, void *ctx, struct err *err)
{
    for (size_t i = 0; i < m->family->n_tensors; i++) {
        const struct tensor_row *row = &m->family->tensors[i];
        if (row->scope != SCOPE_LAYER) continue;
        const struct gguf_tensor *t = held_tensor(m, range, row, layer);
        if (t != NULL) TRY(visit(ctx, row, layer, t, err));
    }
    return ERR_NONE;
}

int model_visit_range(const struct model *m, struct layer_range range, model_visit_fn *visit,
                      void *ctx, struct err *err)
{
    BUG_IF(range.first > range.end || range.end > m->hp.n_layer, "a layer range outside the model");
    TRY(visit_rows(m, range, false, visit, ctx, err));
    for (uint32_t layer = range.first; layer < range.end; layer++)
        TRY(visit_layer(m, range, layer, visit, ctx, err));
    return visit_rows(m, range, true, visit, ctx, err);
}

/* ---- bytes ---- */

uint64_t model_matrix_bytes(uint32_t format, uint64_t n_in, uint64_t n_out)
{
    const struct format *f = format_find(format);
    BUG_IF(f == NULL, "a number format that does not exist");
    uint64_t rows = (n_out + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
    return rows * format_row_bytes(f, n_in);
}

uint64_t model_held_bytes(const struct tensor_row *row, const struct gguf_tensor *t)
{
    bool packed =
        row->role == ROLE_MATRIX || (row->role == ROLE_ROWS && row->id != TENSOR_POSITION_EMBD);
    if (packed) return model_matrix_bytes(t->format, t->shape[0], t->shape[1] * t->shape[2]);
    return t->shape[0] * t->shape[1] * t->shape[2] * sizeof(float);
}

static int add_held_bytes(void *ctx, const struct tensor_row *row, uint32_t layer,
                          const struct gguf_tensor *t, struct err *err)
{
    (void)layer;
    (void)err;
    *(uint64_t *)ctx += model_held_bytes(row, t);
    return ERR_NONE;
}

/* Keys and values of every position of the pool, in every layer of the range. */
static uint64_t kv_bytes(const struct model *m, struct layer_range range,
                         const struct line_limits *limits)
{
    uint64_t per_position = 0;
    for (uint32_t i = range.first; i < range.end; i++)
        per_position += model_dim(m, DIM_K, i) + model_dim(m, DIM_V, i);
    uint64_t number = limits->kv == KV_F16 ? 2 : 4;
    return (uint64_t)limits->n_blocks * KV_BLOCK_POSITIONS * per_position * number;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What engine/stage takes for the rows of a batch, in the widest layer, since layers use it in
 * turn: the residual (the last stage; elsewhere it lives in the caller's frame), its normed copy q,
 * k, v and what attention gives, or the two hidden rows of the feed-forward the widest input
 * quantised: for each 32 values as many bytes, a scale and a sum cosines and sines; a row group and
 * once: the wanted rows, the block tables and a mark for each sequence. */
static uint64_t stage_buffer_bytes(const struct model *m, struct layer_range range,
                                   const struct line_limits *limits)
{
    uint64_t embd = m->hp.n_embd, wide = 0, widest = 0;
    for (uint32_t i = range.first; i < range.end; i++) {
        uint64_t heads = model_dim(m, DIM_HEADS, i), ff = model_dim(m, DIM_FF, i);
        wide = max_u64(wide, max_u64(model_dim(m, DIM_QKV, i) + heads, 2 * ff));
        widest = max_u64(widest, max_u64(embd, max_u64(heads, ff)));
    }
    bool rotates = m->family->rope != ROPE_NONE;
    uint64_t values = embd * (range.end == m->hp.n_layer ? 2 : 1) + wide +
                      (rotates ? m->hp.n_rot / 2 * UINT64_C(2) : 0);
    uint64_t row = values * sizeof(float) + (widest + 31) / 32 * 40 + 2 * sizeof(uint32_t);
    uint64_t blocks = (limits->n_ctx + KV_BLOCK_POSITIONS - UINT64_C(1)) / KV_BLOCK_POSITIONS;
    return limits->rows_max * row + limits->wanted_max * sizeof(uint32_t) +
           limits->n_seqs * ((blocks + 2) * sizeof(uint32_t) + 1);
}

struct footprint model_footprint(const struct model *m, struct layer_range range,
                                 const struct line_limits *limits)
{
    uint64_t weights = 0;
    model_visit_range(m, range, add_held_bytes, &weights, NULL);
    return (struct footprint){
        .weights = weights,
        .kv = kv_bytes(m, range, limits),
        .buffers = stage_buffer_bytes(m, range, limits),
    };
}
