/* model - see model.h.
 *
 * Opening goes family, numbers, tensors: general.architecture picks the table, the table's family
 * picks the keys, and each tensor of the file is then put into the one slot that its name and the
 * table give it. What is left over, missing, of another shape or of a number format that does not
 * run is refused by name. */
#include "engine/model.h"

#include "engine/gguf_parts.h"
#include "engine/quant_formats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_MAX_BYTES = 80,
    SHAPE_MAX = 96,
};

static const char damaged[] = "the file is damaged or not of family";

/* The dimensions of attention over all heads. */
static uint64_t head_dims(const struct hparams *hp, const struct layer_hparams *l, enum dim dim)
{
    const struct latent_hparams *latent = &hp->latent;
    uint64_t n_head = l->n_head, q = n_head * hp->head_dim_k;
    uint64_t k = (uint64_t)l->n_head_kv * hp->head_dim_k;
    uint64_t v = (uint64_t)l->n_head_kv * hp->head_dim_v;
    switch (dim) {
    case DIM_Q:
        return q;
    case DIM_K:
        return k;
    case DIM_V:
        return v;
    case DIM_QKV:
        return q + k + v;
    case DIM_HEADS:
        return n_head * (latent->width > 0 ? latent->value : hp->head_dim_v);
    case DIM_LATENT_Q:
        return n_head * (latent->key_plain + hp->n_rot);
    default: /* DIM_KEYS_VALUES */
        return n_head * (latent->key_plain + latent->value);
    }
}

uint64_t model_dim(const struct model *m, enum dim dim, uint32_t layer)
{
    const struct hparams *hp = &m->hp;
    const struct layer_hparams *l = &hp->layer[layer < hp->n_layer ? layer : 0];
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
    case DIM_FF_TWICE:
        return 2 * (uint64_t)l->n_ff;
    case DIM_ROT_HALF:
        return hp->n_rot / 2;
    case DIM_HEAD:
        return hp->head_dim_k;
    case DIM_N_HEAD:
        return l->n_head;
    case DIM_N_HEAD_KV:
        return l->n_head_kv;
    case DIM_CONV:
        return hp->conv_width;
    case DIM_CONV_IN:
        return 3 * (uint64_t)hp->n_embd;
    case DIM_EXPERTS:
        return hp->experts.n;
    case DIM_FF_EXPERT:
        return hp->experts.n_ff;
    case DIM_FF_SHARED:
        return hp->experts.n_ff_shared;
    case DIM_Q_RANK:
        return hp->latent.q_rank;
    case DIM_LATENT:
        return hp->latent.width;
    case DIM_LATENT_KEY:
        return (uint64_t)hp->latent.width + hp->n_rot;
    case DIM_KEY_PLAIN:
        return hp->latent.key_plain;
    case DIM_VALUE:
        return hp->latent.value;
    case DIM_Q:
    case DIM_K:
    case DIM_V:
    case DIM_QKV:
    case DIM_HEADS:
    case DIM_LATENT_Q:
    case DIM_KEYS_VALUES:
        return head_dims(hp, l, dim);
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
        snprintf(out, NAME_MAX_BYTES, "blk.%" PRIu32 ".%s", layer, tensor_row_suffix(row));
    else
        snprintf(out, NAME_MAX_BYTES, "%s", tensor_row_suffix(row));
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
        const char *suffix = tensor_row_suffix(row);
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
          "example to Q8_0",
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

bool model_has_part(const struct model *m, enum tensor_part part, uint32_t layer)
{
    const struct layer_hparams *l = &m->hp.layer[layer];
    switch (part) {
    case PART_EVERY:
        return true;
    case PART_ATTENTION:
        return !l->is_conv;
    case PART_CONV:
        return l->is_conv;
    case PART_DENSE:
        return !l->has_experts;
    case PART_EXPERTS:
        return l->has_experts;
    case PART_SHARED:
        return l->has_experts && m->hp.experts.n_ff_shared > 0;
    }
    return false;
}

enum presence { PRESENT_ALWAYS, PRESENT_MAYBE, PRESENT_NEVER };

/* What a row says about its tensor in a layer, where `other` is there or not. */
static enum presence wanted_presence(const struct model *m, const struct tensor_row *row,
                                     uint32_t layer, bool other)
{
    if (!model_has_part(m, row->part, layer)) return PRESENT_NEVER;
    switch (row->need) {
    case NEED_ALWAYS:
        return PRESENT_ALWAYS;
    case NEED_OPTIONAL:
    case NEED_OR_TIED:
        return PRESENT_MAYBE;
    case NEED_UNLESS:
        return other ? PRESENT_NEVER : PRESENT_ALWAYS;
    case NEED_IF:
        return other ? PRESENT_ALWAYS : PRESENT_NEVER;
    case NEED_WITH:
        return other ? PRESENT_MAYBE : PRESENT_NEVER;
    case NEED_TIED:
        return PRESENT_NEVER;
    }
    return PRESENT_NEVER;
}

static int check_need(const struct model *m, const struct tensor_row *row, uint32_t layer,
                      struct err *err)
{
    char name[NAME_MAX_BYTES];
    size_t slot = slot_of(row, layer);
    bool here = m->tensors[slot] != NULL;
    bool other = m->tensors[slot - row->id + row->other] != NULL; /* the same layer's */
    enum presence want = wanted_presence(m, row, layer, other);
    CHECK(here || want != PRESENT_ALWAYS, err, ERR_FILE, "%s: tensor %s is missing: %s %s",
          gguf_path(m->file), tensor_name(name, row, layer), damaged, m->family->name);
    if (!here || want != PRESENT_NEVER) return ERR_NONE;
    bool because = model_has_part(m, row->part, layer) && row->need != NEED_TIED;
    return err_set(err, ERR_UNSUPPORTED, "%s: tensor %s has no use%s%s: %s %s", gguf_path(m->file),
                   tensor_name(name, row, layer),
                   !because                   ? " in this model"
                   : row->need == NEED_UNLESS ? " beside "
                                              : " without ",
                   because ? tensor_suffix(row->other) : "", damaged, m->family->name);
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

    char text[HPARAMS_TEXT_MAX];
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: family \"%s\" is not supported: tandem inspect --families lists those that "
                   "are",
                   gguf_path(m->file), hparams_show_text(text, name));
}

static int bind_file(struct model *m, struct err *err)
{
    TRY(find_family(m, err));
    TRY(hparams_read(m, err));
    TRY(bind_tensors(m, err));
    m->digest = gguf_digest(m->file);
    return gguf_sample(m->file, &m->sample, err);
}

/* open_model() - from the files at path, or where headers is set from those. */
static int open_model(struct model **out, const char *path, const struct gguf_header *headers,
                      uint32_t n, struct err *err)
{
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    CHECK(m != NULL, err, ERR_MEMORY, "%s: no memory to open it", path);
    int rc = headers != NULL ? gguf_parts_open_headers(&m->file, path, headers, n, err)
                             : gguf_parts_open(&m->file, path, err);
    if (rc == ERR_NONE) rc = bind_file(m, err);
    if (rc != ERR_NONE) {
        model_close(m);
        return rc;
    }
    *out = m;
    return ERR_NONE;
}

int model_open(struct model **out, const char *path, struct err *err)
{
    return open_model(out, path, NULL, 0, err);
}

int model_open_headers(struct model **out, const char *path, const struct gguf_header *headers,
                       uint32_t n, struct err *err)
{
    return open_model(out, path, headers, n, err);
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
    if (t != NULL || (row->need != NEED_OR_TIED && row->need != NEED_TIED)) return t;
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
