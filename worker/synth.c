/* synth - see synth.h.
 *
 * Which tensors, of which shapes, is read from the families table. The header is written first and
 * opened as any model file would be, so that a shape that makes no model is refused before
 * gigabytes are written. */
#include "worker/synth.h"

#include "engine/families.h"
#include "engine/model.h"
#include "engine/quant_formats.h"
#include "worker/gguf_write.h"
#include "worker/mixture.h"
#include "worker/pour.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 80, KEY_BYTES = 128, TOKEN_UNUSED = 5, TOKEN_NORMAL = 1 };

static const float norm_eps = 1e-5f, rope_base_default = 10000.0f;
static const char tokens_key[] = "tokenizer.ggml.tokens";
static const char types_key[] = "tokenizer.ggml.token_type";
static const char scores_key[] = "tokenizer.ggml.scores";

struct job {
    const struct synth_order *order;
    struct model_shape shape;   /* with every number settled */
    struct layer_hparams layer; /* all layers are alike */
    struct model model;         /* the shape as the families table asks for it; has no file */
    struct gguf *tokenizer;
    struct gguf_writer *out;
};

/* ---- the shape ---- */

static int check_given(const struct model_shape *s, struct err *err)
{
    const struct {
        const char *name;
        uint32_t value;
    } needed[] = {
        {"layers", s->n_layer}, {"embd", s->n_embd}, {"heads", s->n_head}, {"ff", s->n_ff}};
    CHECK(s->family != NULL, err, ERR_USAGE, "--preset or --family is needed");
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        CHECK(needed[i].value > 0, err, ERR_USAGE, "--%s is needed", needed[i].name);
    return ERR_NONE;
}

static int check_vocab(const struct job *j, uint64_t *n_tokens, struct err *err)
{
    const char *path = gguf_path(j->tokenizer);
    const struct gguf_kv *tokens = gguf_find(j->tokenizer, tokens_key);
    CHECK(tokens != NULL && gguf_kv_element_type(tokens) == GGUF_STRING, err, ERR_FILE,
          "%s: it has no list of tokens (%s): name a file with a tokenizer", path, tokens_key);
    *n_tokens = gguf_array_length(tokens);
    CHECK(j->shape.n_vocab == 0 || j->shape.n_vocab >= *n_tokens, err, ERR_USAGE,
          "--vocab %" PRIu32 " is less than the %" PRIu64 " tokens of %s", j->shape.n_vocab,
          *n_tokens, path);
    return ERR_NONE;
}

/* settle_shape() - what is not given follows from what is. */
static int settle_shape(struct job *j, struct err *err)
{
    struct model_shape *s = &j->shape;
    uint64_t n_tokens = 0;
    *s = j->order->shape;
    TRY(check_given(s, err));
    TRY(check_vocab(j, &n_tokens, err));
    if (s->n_head_kv == 0) s->n_head_kv = s->n_head;
    CHECK(s->head_dim != 0 || s->n_embd % s->n_head == 0, err, ERR_USAGE,
          "--heads %" PRIu32 " do not divide --embd %" PRIu32 ": give --head-dim, too", s->n_head,
          s->n_embd);
    if (s->head_dim == 0) s->head_dim = s->n_embd / s->n_head;
    if (s->n_ctx == 0) s->n_ctx = 2048;
    if (s->n_vocab == 0) s->n_vocab = (uint32_t)n_tokens;
    if (s->n_expert != 0 && s->n_expert_used == 0) s->n_expert_used = 1;
    if (!(s->rope_base > 0)) s->rope_base = rope_base_default;
    return ERR_NONE;
}

/* shape_model() - so that model_dim() gives the shapes of tensors. */
static int shape_model(struct job *j, struct err *err)
{
    const struct model_shape *s = &j->shape;
    const struct family *family = family_find(s->family, strlen(s->family));
    CHECK(family != NULL, err, ERR_USAGE, "'%s' is no family; see tandem inspect --families",
          s->family);
    j->layer = (struct layer_hparams){.n_head = s->n_head,
                                      .n_head_kv = s->n_head_kv,
                                      .n_ff = s->n_ff,
                                      .has_experts = s->n_expert > 0};
    j->model = (struct model){
        .family = family,
        .hp = {.n_vocab = s->n_vocab,
               .n_embd = s->n_embd,
               .n_layer = 1, /* as many as layer has entries */
               .n_ctx_train = s->n_ctx,
               .head_dim_k = s->head_dim,
               .head_dim_v = s->head_dim,
               .n_rot = s->head_dim,
               .experts = {.n = s->n_expert,
                           .n_used = s->n_expert_used,
                           .n_ff = s->n_ff,
                           .n_ff_shared = family->experts.shared == SHARED_KEY_OR_FF ? s->n_ff : 0},
               .layer = &j->layer},
    };
    return ERR_NONE;
}

/* ---- metadata ---- */

static void put_number(const struct job *j, const char *suffix, uint32_t value)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", j->model.family->name, suffix);
    gguf_writer_put_u32(j->out, key, value);
}

static void put_float(const struct job *j, const char *suffix, float value)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", j->model.family->name, suffix);
    gguf_writer_put_f32(j->out, key, value);
}

static void put_metadata(const struct job *j)
{
    const struct model_shape *s = &j->shape;
    const struct family *family = j->model.family;
    gguf_writer_put_str(j->out, "general.architecture", family->name);
    gguf_writer_put_str(j->out, "general.name", j->order->name);
    gguf_writer_put_u32(j->out, "general.file_type", mixture_file_type(j->order->format));
    gguf_writer_put_u32(j->out, "general.quantization_version", 2);
    put_number(j, "context_length", s->n_ctx);
    put_number(j, "embedding_length", s->n_embd);
    put_number(j, "block_count", s->n_layer);
    put_number(j, "feed_forward_length", s->n_ff);
    put_number(j, "attention.head_count", s->n_head);
    put_number(j, "attention.head_count_kv", s->n_head_kv);
    put_number(j, "attention.key_length", s->head_dim);
    put_number(j, "attention.value_length", s->head_dim);
    put_number(j, "vocab_size", s->n_vocab);
    put_float(j,
              family->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                       : "attention.layer_norm_epsilon",
              norm_eps);
    if (family->rope != ROPE_NONE) {
        put_number(j, "rope.dimension_count", s->head_dim);
        put_float(j, "rope.freq_base", s->rope_base);
    }
    if (s->n_expert == 0) return;
    put_number(j, "expert_count", s->n_expert);
    put_number(j, "expert_used_count", s->n_expert_used);
    put_number(j, "expert_feed_forward_length", s->n_ff);
}

/* ---- the tokenizer ---- */

static bool key_is(struct gguf_str key, const char *text)
{
    return key.len == strlen(text) && memcmp(key.data, text, key.len) == 0;
}

static void put_tokens(const struct job *j)
{
    const struct gguf_kv *kv = gguf_find(j->tokenizer, tokens_key);
    const uint64_t n = gguf_array_length(kv);
    gguf_writer_put_array(j->out, tokens_key, GGUF_STRING, j->shape.n_vocab);
    for (uint64_t i = 0; i < n; i++) {
        const struct gguf_str token = gguf_array_str(kv, i);
        gguf_writer_element_str(j->out, token.data, token.len);
    }
    for (uint64_t i = n; i < j->shape.n_vocab; i++) {
        char text[32];
        const int len = snprintf(text, sizeof text, "<|unused%" PRIu64 "|>", i);
        gguf_writer_element_str(j->out, text, (size_t)len);
    }
}

/* put_types() - a file may leave them out; then all of its tokens are normal ones. */
static void put_types(const struct job *j)
{
    const struct gguf_kv *kv = gguf_find(j->tokenizer, types_key);
    const uint64_t n = gguf_array_length(gguf_find(j->tokenizer, tokens_key));
    const bool has = kv != NULL && gguf_array_length(kv) == n;
    const bool is_number = has && gguf_kv_element_type(kv) != GGUF_STRING &&
                           gguf_kv_element_type(kv) != GGUF_F32 &&
                           gguf_kv_element_type(kv) != GGUF_F64;
    gguf_writer_put_array(j->out, types_key, GGUF_I32, j->shape.n_vocab);
    for (uint64_t i = 0; i < j->shape.n_vocab; i++) {
        int32_t type = i < n ? TOKEN_NORMAL : TOKEN_UNUSED;
        if (i < n && is_number) type = (int32_t)gguf_array_int(kv, i);
        gguf_writer_element_i32(j->out, type);
    }
}

/* put_scores() - an unused token is the last that any text would be made of. */
static void put_scores(const struct job *j)
{
    const struct gguf_kv *kv = gguf_find(j->tokenizer, scores_key);
    if (kv == NULL || gguf_kv_element_type(kv) != GGUF_F32) return;
    const uint64_t n = gguf_array_length(kv);
    gguf_writer_put_array(j->out, scores_key, GGUF_F32, j->shape.n_vocab);
    for (uint64_t i = 0; i < j->shape.n_vocab; i++)
        gguf_writer_element_f32(j->out, i < n ? gguf_array_f32(kv, i) : -1e6f);
}

static void put_tokenizer(const struct job *j)
{
    static const char prefix[] = "tokenizer.";
    for (uint64_t i = 0; i < gguf_kv_count(j->tokenizer); i++) {
        const struct gguf_kv *kv = gguf_kv_at(j->tokenizer, i);
        const struct gguf_str key = gguf_kv_key(kv);
        const bool padded =
            key_is(key, tokens_key) || key_is(key, types_key) || key_is(key, scores_key);
        if (key.len > strlen(prefix) && memcmp(key.data, prefix, strlen(prefix)) == 0 && !padded)
            gguf_writer_put_kv(j->out, kv);
    }
    put_tokens(j);
    put_types(j);
    put_scores(j);
}

/* ---- tensors ---- */

static const struct tensor_row *row_of(const struct family *f, enum tensor_id id)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].id == id) return &f->tensors[i];
    return NULL;
}

/* What the files of a family usually have that the table leaves open; the others have none
 * of it. */
enum biases { BIASES_NONE, BIASES_QKV, BIASES_ALL };
static const struct habit {
    const char *family;
    bool is_fused; /* query, key and value are one matrix */
    enum biases biases;
} habits[] = {
    {"gpt2", true, BIASES_ALL},   {"gptneox", true, BIASES_ALL},     {"bloom", true, BIASES_ALL},
    {"phi2", true, BIASES_ALL},   {"falcon", true, BIASES_NONE},     {"mpt", true, BIASES_NONE},
    {"phi3", true, BIASES_NONE},  {"starcoder2", false, BIASES_ALL}, {"gpt-oss", false, BIASES_ALL},
    {"qwen2", false, BIASES_QKV}, {"qwen2moe", false, BIASES_QKV},
};

static struct habit habit_of(const struct family *family)
{
    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
        if (strcmp(habits[i].family, family->name) == 0) return habits[i];
    return (struct habit){0};
}

static bool is_qkv_bias(enum tensor_id id)
{
    return id == TENSOR_ATTN_Q_BIAS || id == TENSOR_ATTN_K_BIAS || id == TENSOR_ATTN_V_BIAS ||
           id == TENSOR_ATTN_QKV_BIAS;
}

/* has_tensor() - the plainest model of the family: what is optional, only by habit. */
static bool has_tensor(const struct job *j, const struct tensor_row *row)
{
    const struct habit habit = habit_of(j->model.family);
    const struct tensor_row *other = row_of(j->model.family, row->other);
    const bool has_other = other != NULL && other != row && has_tensor(j, other);
    if (!model_has_part(&j->model, row->part, 0)) return false;
    if (row->need == NEED_ALWAYS) return true;
    if (row->need == NEED_OPTIONAL) return habit.is_fused && row->id == TENSOR_ATTN_QKV;
    if (row->need == NEED_UNLESS) return !has_other;
    if (row->need == NEED_IF) return has_other;
    if (row->need == NEED_OR_TIED) return !j->shape.tied;
    return row->need == NEED_WITH && has_other &&
           (habit.biases == BIASES_ALL || (habit.biases == BIASES_QKV && is_qkv_bias(row->id)));
}

/* A tensor of the model to be, as the directory has it. */
struct item {
    char name[NAME_BYTES];
    struct gguf_tensor tensor;
};

static void describe(const struct job *j, const struct tensor_row *row, uint32_t layer,
                     struct item *item)
{
    struct gguf_tensor *t = &item->tensor;
    if (row->scope == SCOPE_LAYER)
        snprintf(item->name, NAME_BYTES, "blk.%" PRIu32 ".%s", layer, tensor_row_suffix(row));
    else
        snprintf(item->name, NAME_BYTES, "%s", tensor_row_suffix(row));
    *t = (struct gguf_tensor){.name = {item->name, strlen(item->name)}, .shape = {1, 1, 1, 1}};
    for (uint32_t i = 0; i < 3; i++) {
        if (row->shape[i] == DIM_NONE) continue;
        t->shape[i] = model_dim(&j->model, row->shape[i], layer);
        t->n_dims = i + 1;
    }
    t->format = mixture_is_small(t) ? FORMAT_F32 : j->order->format;
}

typedef int visit_fn(struct job *j, const struct item *item, void *ctx, struct err *err);

static int visit_rows(struct job *j, bool layers, uint32_t layer, visit_fn *visit, void *ctx,
                      struct err *err)
{
    const struct family *family = j->model.family;
    for (size_t i = 0; i < family->n_tensors; i++) {
        const struct tensor_row *row = &family->tensors[i];
        if ((row->scope == SCOPE_LAYER) != layers || !has_tensor(j, row)) continue;
        struct item item;
        describe(j, row, layer, &item);
        TRY(visit(j, &item, ctx, err));
    }
    return ERR_NONE;
}

/* visit_tensors() - all of them, in the order of the file. */
static int visit_tensors(struct job *j, visit_fn *visit, void *ctx, struct err *err)
{
    TRY(visit_rows(j, false, 0, visit, ctx, err));
    for (uint32_t layer = 0; layer < j->shape.n_layer; layer++)
        TRY(visit_rows(j, true, layer, visit, ctx, err));
    return ERR_NONE;
}

static int list_tensor(struct job *j, const struct item *item, void *ctx, struct err *err)
{
    const struct gguf_tensor *t = &item->tensor;
    const struct format *format = format_find(t->format);
    CHECK(t->shape[0] % format->block_values == 0, err, ERR_USAGE,
          "tensor %s has rows of %" PRIu64 ", which are no whole blocks of %" PRIu32
          " in %s: choose other sizes, or --type f16",
          item->name, t->shape[0], format->block_values, format->name);
    gguf_writer_add_tensor(j->out, t);
    (void)ctx;
    return ERR_NONE;
}

/* ---- random weights ---- */

/* splitmix64's output function (Steele, Lea, Flood 2014): every bit of z changes every bit. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A tensor's numbers: mean + width * g, where g is near normal. */
struct random_tensor {
    uint64_t key;
    float mean, width;
};

static struct random_tensor random_tensor(uint64_t seed, const struct gguf_tensor *t)
{
    static const char bias[] = ".bias";
    uint64_t key = mix(seed + UINT64_C(0x9e3779b97f4a7c15));
    for (size_t i = 0; i < t->name.len; i++) key = mix(key + (uint8_t)t->name.data[i]);
    if (t->n_dims > 1) return (struct random_tensor){key, 0, 1.0f / sqrtf((float)t->shape[0])};
    const size_t len = strlen(bias);
    const bool is_bias =
        t->name.len > len && memcmp(t->name.data + t->name.len - len, bias, len) == 0;
    return (struct random_tensor){key, is_bias ? 0.0f : 1.0f, is_bias ? 0.02f : 0.1f};
}

/* fill_random() - see pouring. Number i depends on key and i alone. The sum of four uniform numbers
 * of 16 bits is near normal, with the mean 131070 and the standard deviation 2^16 / sqrt(3). */
static int fill_random(const void *ctx, uint64_t first, size_t n, float *out, struct err *err)
{
    static const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15), low = 0xffff;
    const struct random_tensor *r = ctx;
    const float scale = r->width / 37837.227f;
    const float start = r->mean - 131070.0f * scale;
    for (size_t i = 0; i < n; i++) {
        const uint64_t z = mix(r->key + (first + i) * golden);
        const uint64_t sum = (z & low) + (z >> 16 & low) + (z >> 32 & low) + (z >> 48);
        out[i] = start + (float)(int32_t)sum * scale;
    }
    (void)err;
    return ERR_NONE;
}

static int write_tensor(struct job *j, const struct item *item, void *ctx, struct err *err)
{
    const struct gguf_tensor *t = &item->tensor;
    const struct making *how = &j->order->how;
    const struct random_tensor random = random_tensor(j->order->seed, t);
    struct made_file *made = ctx;
    const struct pouring pouring = {
        .writer = j->out,
        .tensor = made->n_tensors,
        .format = t->format,
        .n_values = t->shape[0] * t->shape[1] * t->shape[2],
        .n_threads = how->n_threads,
        .fill = fill_random,
        .ctx = &random,
    };
    TRY(pour_tensor(&pouring, err));
    made->n_tensors++;
    made->n_values += pouring.n_values;
    made->bytes += format_row_bytes(format_find(t->format), pouring.n_values);
    if (how->progress != NULL)
        how->progress(how->progress_ctx, made->bytes, gguf_writer_file_bytes(j->out));
    return ERR_NONE;
}

/* ---- the file ---- */

/* check_model() - what will stand in the file must be a model to this program. */
static int check_model(const struct job *j, struct err *err)
{
    struct model *model;
    struct err why;
    const int rc = model_open(&model, gguf_writer_part_path(j->out), &why);
    CHECK(rc == ERR_NONE, err, ERR_UNSUPPORTED,
          "these numbers alone make no model of family %s: %.380s", j->shape.family, why.text);
    model_close(model);
    return ERR_NONE;
}

static int write_file(struct job *j, struct made_file *made, struct err *err)
{
    TRY(settle_shape(j, err));
    TRY(shape_model(j, err));
    TRY(gguf_writer_open(&j->out, j->order->out, err));
    put_metadata(j);
    put_tokenizer(j);
    TRY(visit_tensors(j, list_tensor, NULL, err));
    TRY(gguf_writer_begin(j->out, err));
    TRY(check_model(j, err));
    TRY(visit_tensors(j, write_tensor, made, err));
    made->bytes = gguf_writer_file_bytes(j->out);
    return gguf_writer_finish(j->out, err);
}

int synth_write(const struct synth_order *order, struct made_file *made, struct err *err)
{
    *made = (struct made_file){0};
    struct job j = {.order = order};
    int rc = gguf_open(&j.tokenizer, order->tokenizer, err);
    if (rc == ERR_NONE) rc = write_file(&j, made, err);
    gguf_writer_close(j.out);
    gguf_close(j.tokenizer);
    return rc;
}
