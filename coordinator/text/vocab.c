/* vocab - the vocabulary that a model file carries: pieces, scores, kinds, merges, special ids.
 *
 * Everything is read once, here, and checked against each other; strings stay inside the file's
 * map.
 * Station before: engine/gguf. Stations after: spm, bpe, tokenizer. */
#include "coordinator/text/vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char key_tokens[] = "tokenizer.ggml.tokens";
static const char key_scores[] = "tokenizer.ggml.scores";
static const char key_kinds[] = "tokenizer.ggml.token_type";
static const char key_merges[] = "tokenizer.ggml.merges";

/* --- strings by content --- */

static const uint64_t hash_start = 0xcbf29ce484222325u;

/* FNV-1a: short strings, and a hash that can be continued. */
static uint64_t hash_bytes(uint64_t hash, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

static size_t hash_slot(const struct vocab_index *index, uint64_t hash)
{
    return (size_t)(hash ^ hash >> 32) & index->mask;
}

static int index_build(struct vocab_index *index, const struct gguf_str *strings, size_t n,
                       struct err *err)
{
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    index->mask = slots - 1;
    index->slot = calloc(slots, sizeof *index->slot);
    CHECK(index->slot != NULL, err, ERR_MEMORY, "no memory for an index of %zu strings", n);
    for (size_t i = 0; i < n; i++) {
        const struct gguf_str s = strings[i];
        if (s.len == 0) continue; /* nothing in a text can ever be the empty piece */
        size_t at = hash_slot(index, hash_bytes(hash_start, s.data, s.len));
        while (index->slot[at] != 0) {
            const struct gguf_str *other = &strings[index->slot[at] - 1];
            /* Of equal strings the first one keeps the name: lower id, better rank. */
            if (other->len == s.len && memcmp(other->data, s.data, s.len) == 0) break;
            at = (at + 1) & index->mask;
        }
        if (index->slot[at] == 0) index->slot[at] = (uint32_t)i + 1;
    }
    return ERR_NONE;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t len)
{
    const struct vocab_index *index = &v->piece_index;
    size_t at = hash_slot(index, hash_bytes(hash_start, text, len));
    for (; index->slot[at] != 0; at = (at + 1) & index->mask) {
        const struct gguf_str *s = &v->piece[index->slot[at] - 1];
        if (s->len == len && memcmp(s->data, text, len) == 0) return (int32_t)index->slot[at] - 1;
    }
    return -1;
}

int32_t vocab_find_merge(const struct vocab *v, const char *text, size_t left, size_t right)
{
    const struct vocab_index *index = &v->merge_index;
    uint64_t hash = hash_bytes(hash_start, text, left);
    hash = hash_bytes(hash, " ", 1);
    hash = hash_bytes(hash, text + left, right);
    size_t at = hash_slot(index, hash);
    for (; index->slot[at] != 0; at = (at + 1) & index->mask) {
        const struct gguf_str *s = &v->merge[index->slot[at] - 1];
        if (s->len == left + 1 + right && s->data[left] == ' ' &&
            memcmp(s->data, text, left) == 0 && memcmp(s->data + left + 1, text + left, right) == 0)
            return (int32_t)index->slot[at] - 1;
    }
    return -1;
}

/* --- reading the file --- */

static bool is_integer(enum gguf_type type)
{
    return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64;
}

/* find_array() - the array under key, or *out = NULL where the key is absent. */
static int find_array(const struct gguf *g, const char *key, const struct gguf_kv **out,
                      struct err *err)
{
    *out = gguf_find(g, key);
    CHECK(*out == NULL || gguf_kv_type(*out) == GGUF_ARRAY, err, ERR_FILE,
          "%s: %s is a %s, want an array", gguf_path(g), key, gguf_type_name(gguf_kv_type(*out)));
    return ERR_NONE;
}

/* read_strings() - a required array of strings; *out is allocated. */
static int read_strings(const struct gguf *g, const char *key, struct gguf_str **out, size_t *n,
                        struct err *err)
{
    const struct gguf_kv *kv;
    TRY(find_array(g, key, &kv, err));
    CHECK(kv != NULL, err, ERR_FILE, "%s: %s is missing: the file carries no whole vocabulary",
          gguf_path(g), key);
    CHECK(gguf_kv_element_type(kv) == GGUF_STRING, err, ERR_FILE,
          "%s: %s is an array of %s, want strings", gguf_path(g), key,
          gguf_type_name(gguf_kv_element_type(kv)));
    uint64_t length = gguf_array_length(kv);
    CHECK(length <= INT32_MAX / 2, err, ERR_FILE, "%s: %s has %llu entries, want at most %d",
          gguf_path(g), key, (unsigned long long)length, INT32_MAX / 2);
    *n = (size_t)length;
    *out = calloc(*n + 1, sizeof **out);
    CHECK(*out != NULL, err, ERR_MEMORY, "no memory for the %zu strings of %s", *n, key);
    for (size_t i = 0; i < *n; i++) (*out)[i] = gguf_array_str(kv, i);
    return ERR_NONE;
}

static int read_pieces(struct vocab *v, const struct gguf *g, struct err *err)
{
    size_t n = 0;
    TRY(read_strings(g, key_tokens, &v->piece, &n, err));
    CHECK(n > 0, err, ERR_FILE, "%s: %s is empty", gguf_path(g), key_tokens);
    v->n = (int32_t)n;
    v->score = calloc(n, sizeof *v->score);
    v->kind = calloc(n, sizeof *v->kind);
    v->is_end = calloc(n, sizeof *v->is_end);
    CHECK(v->score != NULL && v->kind != NULL && v->is_end != NULL, err, ERR_MEMORY,
          "no memory for a vocabulary of %zu tokens", n);
    return index_build(&v->piece_index, v->piece, n, err);
}

static int read_scores(struct vocab *v, const struct gguf *g, struct err *err)
{
    const struct gguf_kv *kv;
    TRY(find_array(g, key_scores, &kv, err));
    CHECK(kv != NULL || v->model != VOCAB_SPM, err, ERR_FILE,
          "%s: %s is missing: a \"llama\" tokenizer merges by score", gguf_path(g), key_scores);
    if (kv == NULL) return ERR_NONE;
    enum gguf_type type = gguf_kv_element_type(kv);
    CHECK(type == GGUF_F32 || is_integer(type), err, ERR_FILE, "%s: %s is an array of %s, want f32",
          gguf_path(g), key_scores, gguf_type_name(type));
    CHECK(gguf_array_length(kv) == (uint64_t)v->n, err, ERR_FILE,
          "%s: %s has %llu entries for %d tokens", gguf_path(g), key_scores,
          (unsigned long long)gguf_array_length(kv), v->n);
    for (int32_t i = 0; i < v->n; i++) {
        v->score[i] = type == GGUF_F32 ? gguf_array_f32(kv, (uint64_t)i)
                                       : (float)gguf_array_int(kv, (uint64_t)i);
        CHECK(!isnan(v->score[i]), err, ERR_FILE, "%s: %s[%d] is not a number", gguf_path(g),
              key_scores, i);
    }
    return ERR_NONE;
}

static int read_kinds(struct vocab *v, const struct gguf *g, struct err *err)
{
    const struct gguf_kv *kv;
    TRY(find_array(g, key_kinds, &kv, err));
    if (kv == NULL) {
        memset(v->kind, TOKEN_NORMAL, (size_t)v->n);
        return ERR_NONE;
    }
    enum gguf_type type = gguf_kv_element_type(kv);
    CHECK(is_integer(type), err, ERR_FILE, "%s: %s is an array of %s, want i32", gguf_path(g),
          key_kinds, gguf_type_name(type));
    CHECK(gguf_array_length(kv) == (uint64_t)v->n, err, ERR_FILE,
          "%s: %s has %llu entries for %d tokens", gguf_path(g), key_kinds,
          (unsigned long long)gguf_array_length(kv), v->n);
    for (int32_t i = 0; i < v->n; i++) {
        int64_t kind = gguf_array_int(kv, (uint64_t)i);
        /* A kind that the format does not define stands for no text, like an unused token. */
        bool known = kind >= TOKEN_NORMAL && kind <= TOKEN_BYTE;
        v->kind[i] = known ? (uint8_t)kind : TOKEN_UNUSED;
    }
    return ERR_NONE;
}

static int read_merges(struct vocab *v, const struct gguf *g, struct err *err)
{
    TRY(read_strings(g, key_merges, &v->merge, &v->n_merges, err));
    for (size_t i = 0; i < v->n_merges; i++) {
        const struct gguf_str s = v->merge[i];
        const char *space = s.len < 3 ? NULL : memchr(s.data + 1, ' ', s.len - 2);
        CHECK(space != NULL, err, ERR_FILE,
              "%s: %s[%zu] is \"%.*s\", want two pieces with a space between them", gguf_path(g),
              key_merges, i, (int)(s.len < 40 ? s.len : 40), s.data);
    }
    return index_build(&v->merge_index, v->merge, v->n_merges, err);
}

/* read_id() - a token id under key; *id is unchanged where the key is absent or says "none". */
static int read_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t *id,
                   struct err *err)
{
    uint32_t found = UINT32_MAX;
    TRY(gguf_get_u32(g, key, &found, err));
    if (found == UINT32_MAX) return ERR_NONE; /* -1, as some files write "none" */
    CHECK(found < (uint32_t)v->n, err, ERR_FILE, "%s: %s is %u, want less than %d (the vocabulary)",
          gguf_path(g), key, found, v->n);
    *id = (int32_t)found;
    return ERR_NONE;
}

static bool is_control(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->n && v->kind[id] == TOKEN_CONTROL;
}

static int read_special_ids(struct vocab *v, const struct gguf *g, bool add_bos_default,
                            struct err *err)
{
    int32_t eot = -1, eom = -1;
    v->bos = v->eos = v->unk = -1;
    if (v->model == VOCAB_SPM) { /* SentencePiece's own numbering */
        v->bos = is_control(v, 1) ? 1 : -1;
        v->eos = is_control(v, 2) ? 2 : -1;
        v->unk = v->kind[0] == TOKEN_UNKNOWN ? 0 : -1;
    }
    TRY(read_id(v, g, "tokenizer.ggml.bos_token_id", &v->bos, err));
    TRY(read_id(v, g, "tokenizer.ggml.eos_token_id", &v->eos, err));
    TRY(read_id(v, g, "tokenizer.ggml.unknown_token_id", &v->unk, err));
    TRY(read_id(v, g, "tokenizer.ggml.eot_token_id", &eot, err));
    TRY(read_id(v, g, "tokenizer.ggml.eom_token_id", &eom, err));
    if (v->eos >= 0) v->is_end[v->eos] = true;
    if (eot >= 0) v->is_end[eot] = true;
    if (eom >= 0) v->is_end[eom] = true;

    v->add_bos = add_bos_default && v->bos >= 0;
    v->add_space_prefix = v->model == VOCAB_SPM;
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, err));
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, err));
    if (v->add_space_prefix)
        TRY(gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, err));
    CHECK(!v->add_bos || v->bos >= 0, err, ERR_FILE,
          "%s: tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing",
          gguf_path(g));
    CHECK(!v->add_eos || v->eos >= 0, err, ERR_FILE,
          "%s: tokenizer.ggml.add_eos_token is true, but tokenizer.ggml.eos_token_id is missing",
          gguf_path(g));
    return ERR_NONE;
}

/* Texts of published models that end a turn or an answer. Many files name only one of them by a
 * key. */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "</s>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "[e~[",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<end_of_utterance>",
    ("<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
};

static int32_t find_text(const struct vocab *v, const char *text)
{
    return vocab_find(v, text, strlen(text));
}

static void mark_end_texts(struct vocab *v)
{
    /* Where an answer is made of messages, <|end|> ends a message and the answer goes on. */
    bool in_messages = (find_text(v, "<|return|>") >= 0 && find_text(v, "<|call|>") >= 0) ||
                       (find_text(v, "<|flush|>") >= 0 && find_text(v, "<|calls|>") >= 0);
    for (size_t i = 0; i < sizeof end_texts / sizeof end_texts[0]; i++) {
        int32_t id = find_text(v, end_texts[i]);
        if (id < 0) continue;
        if (v->kind[id] != TOKEN_CONTROL && v->kind[id] != TOKEN_USER_DEFINED) continue;
        if (in_messages && strcmp(end_texts[i], "<|end|>") == 0) continue;
        /* Some files call an end token user-defined; then a user's text could write it. */
        v->kind[id] = TOKEN_CONTROL;
        v->is_end[id] = true;
    }
}

int vocab_open(struct vocab *v, const struct gguf *g, enum vocab_model model, bool add_bos_default,
               struct err *err)
{
    memset(v, 0, sizeof *v);
    memset(v->byte_id, 0xff, sizeof v->byte_id);
    v->model = model;
    TRY(read_pieces(v, g, err));
    TRY(read_scores(v, g, err));
    TRY(read_kinds(v, g, err));
    if (model == VOCAB_BPE) TRY(read_merges(v, g, err));
    TRY(read_special_ids(v, g, add_bos_default, err));
    mark_end_texts(v);
    return ERR_NONE;
}

void vocab_close(struct vocab *v)
{
    free(v->piece);
    free(v->score);
    free(v->kind);
    free(v->is_end);
    free(v->piece_index.slot);
    free(v->merge);
    free(v->merge_index.slot);
    memset(v, 0, sizeof *v);
}
