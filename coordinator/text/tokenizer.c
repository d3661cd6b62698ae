/* tokenizer - text to token ids and back, by the vocabulary that a model file carries.
 *
 * Encoding: cut out the special tokens that the text writes out, give what lies between them to
 * spm, or to pretokenize and bpe.
 * Station before: front/ (a prompt). Stations after: line/ (ids), detokenizer (ids to text). */
#include "coordinator/text/tokenizer.h"

#include "coordinator/text/bpe.h"
#include "coordinator/text/pretokenize.h"
#include "coordinator/text/spm.h"
#include "coordinator/text/vocab.h"
#include "engine/log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 256 * 1024 * 1024, NAME_BYTES_MAX = 64 };

/* Tokens that are matched in the text before anything else, by their first byte, longest first. */
struct special_list {
    int32_t *id;
    size_t n;
    size_t begin[257]; /* id[begin[b]] .. id[begin[b + 1] - 1] begin with byte b */
};

struct tokenizer {
    struct vocab vocab;
    struct pretokenizer *pre; /* NULL for VOCAB_SPM */
    char pre_name[NAME_BYTES_MAX];
    struct special_list special;
};

int token_list_push(struct token_list *list, int32_t id, struct err *err)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        int32_t *grown = realloc(list->ids, capacity * sizeof *grown);
        CHECK(grown != NULL, err, ERR_MEMORY, "no memory for %zu tokens", capacity);
        list->ids = grown;
        list->capacity = capacity;
    }
    list->ids[list->n++] = id;
    return ERR_NONE;
}

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

/* --- special tokens --- */

static bool is_special(const struct vocab *v, int32_t id)
{
    enum token_kind kind = v->kind[id];
    return v->piece[id].len > 0 &&
           (kind == TOKEN_CONTROL || kind == TOKEN_USER_DEFINED || kind == TOKEN_UNKNOWN);
}

static int compare_specials(const void *a, const void *b, void *context)
{
    const struct vocab *v = context;
    int32_t ia = *(const int32_t *)a, ib = *(const int32_t *)b;
    struct gguf_str sa = v->piece[ia], sb = v->piece[ib];
    unsigned char fa = (unsigned char)sa.data[0], fb = (unsigned char)sb.data[0];
    if (fa != fb) return fa < fb ? -1 : 1;
    if (sa.len != sb.len) return sa.len > sb.len ? -1 : 1;
    return ia < ib ? -1 : 1;
}

static int special_list_build(struct special_list *list, struct vocab *v, struct err *err)
{
    list->id = calloc((size_t)v->n, sizeof *list->id);
    CHECK(list->id != NULL, err, ERR_MEMORY, "no memory for the special tokens");
    for (int32_t id = 0; id < v->n; id++) {
        if (!is_special(v, id)) continue;
        list->id[list->n++] = id;
        list->begin[(unsigned char)v->piece[id].data[0] + 1]++;
    }
    for (size_t b = 0; b < 256; b++) list->begin[b + 1] += list->begin[b];
    qsort_r(list->id, list->n, sizeof *list->id, compare_specials, v);
    return ERR_NONE;
}

/* special_at() - the longest special token that text[0..len) begins with, or -1. */
static int32_t special_at(const struct tokenizer *t, const char *text, size_t len,
                          bool parse_special)
{
    const struct special_list *list = &t->special;
    unsigned char first = (unsigned char)text[0];
    for (size_t i = list->begin[first]; i < list->begin[first + 1]; i++) {
        int32_t id = list->id[i];
        struct gguf_str piece = t->vocab.piece[id];
        if (!parse_special && t->vocab.kind[id] != TOKEN_USER_DEFINED) continue;
        if (piece.len <= len && memcmp(piece.data, text, piece.len) == 0) return id;
    }
    return -1;
}

/* --- open and close --- */

/* read_name() - a short name from the metadata as a C string; "" where the key is absent. */
static int read_name(const struct gguf *g, const char *key, char out[NAME_BYTES_MAX],
                     struct err *err)
{
    struct gguf_str s = {"", 0};
    TRY(gguf_get_str(g, key, &s, err));
    size_t len = s.len < NAME_BYTES_MAX ? s.len : NAME_BYTES_MAX - 1;
    for (size_t i = 0; i < len; i++) out[i] = isgraph((unsigned char)s.data[i]) ? s.data[i] : '?';
    out[len] = '\0';
    return ERR_NONE;
}

static int open_pretokenizer(struct tokenizer *t, const struct gguf *g, const char *override,
                             struct err *err)
{
    TRY(read_name(g, "tokenizer.ggml.pre", t->pre_name, err));
    if (t->vocab.model == VOCAB_SPM) {
        CHECK(override == NULL, err, ERR_USAGE,
              "%s has a \"llama\" tokenizer, which has no pre-tokenizer: leave --pretokenizer out",
              gguf_path(g));
        return ERR_NONE;
    }
    if (override != NULL) {
        CHECK(strlen(override) < NAME_BYTES_MAX, err, ERR_UNSUPPORTED,
              "pre-tokenizer \"%.60s\" is not known", override);
        strcpy(t->pre_name, override);
    }
    if (t->pre_name[0] == '\0')
        log_line(LOG_WARN,
                 "%s names no pre-tokenizer: taking \"default\"; --pretokenizer NAME sets it",
                 gguf_path(g));
    return pretokenizer_open(&t->pre, t->pre_name[0] == '\0' ? "default" : t->pre_name, err);
}

static int read_model(const struct gguf *g, enum vocab_model *model, struct err *err)
{
    char name[NAME_BYTES_MAX];
    TRY(read_name(g, "tokenizer.ggml.model", name, err));
    CHECK(name[0] != '\0', err, ERR_FILE,
          "%s: tokenizer.ggml.model is missing: the file carries no vocabulary", gguf_path(g));
    *model = strcmp(name, "llama") == 0 ? VOCAB_SPM : VOCAB_BPE;
    CHECK(*model == VOCAB_SPM || strcmp(name, "gpt2") == 0, err, ERR_UNSUPPORTED,
          "%s: tokenizer.ggml.model is \"%s\"; \"llama\" and \"gpt2\" are known", gguf_path(g),
          name);
    return ERR_NONE;
}

static int open_parts(struct tokenizer *t, const struct gguf *g, const char *override,
                      struct err *err)
{
    TRY(read_model(g, &t->vocab.model, err));
    TRY(open_pretokenizer(t, g, override, err));
    bool add_bos = t->pre == NULL || pretokenizer_adds_bos(t->pre);
    TRY(vocab_open(&t->vocab, g, t->vocab.model, add_bos, err));
    if (t->vocab.model == VOCAB_SPM)
        spm_bind_bytes(&t->vocab);
    else
        bpe_bind_bytes(&t->vocab);
    return special_list_build(&t->special, &t->vocab, err);
}

int tokenizer_open(struct tokenizer **out, const struct gguf *g, const char *pretokenizer_override,
                   struct err *err)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    CHECK(t != NULL, err, ERR_MEMORY, "no memory for a tokenizer");
    int rc = open_parts(t, g, pretokenizer_override, err);
    if (rc != ERR_NONE) {
        tokenizer_close(t);
        return rc;
    }
    *out = t;
    return ERR_NONE;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL) return;
    vocab_close(&t->vocab);
    pretokenizer_close(t->pre);
    free(t->special.id);
    free(t);
}

/* --- encode --- */

/* What one call of encode keeps between its fragments. */
struct encoder {
    const struct tokenizer *t;
    struct split_list splits;
    struct bpe_scratch bpe;
    struct token_list *out;
    bool after_special; /* also true at the beginning: the next word gets SPM's space */
};

static int encode_words(struct encoder *e, const char *text, size_t len, struct err *err)
{
    TRY(pretokenizer_split(e->t->pre, text, len, &e->splits, err));
    bool whole_first = pretokenizer_whole_first(e->t->pre);
    size_t begin = 0;
    for (size_t i = 0; i < e->splits.n; i++) {
        size_t end = e->splits.end[i];
        TRY(bpe_encode_word(&e->t->vocab, text + begin, end - begin, whole_first, &e->bpe, e->out,
                            err));
        begin = end;
    }
    return ERR_NONE;
}

/* encode_fragment() - text without special tokens. */
static int encode_fragment(struct encoder *e, const char *text, size_t len, struct err *err)
{
    if (len == 0) return ERR_NONE;
    const struct vocab *v = &e->t->vocab;
    bool space_prefix = v->add_space_prefix && e->after_special;
    e->after_special = false;
    if (v->model == VOCAB_BPE) return encode_words(e, text, len, err);
    return spm_encode(v, text, len, space_prefix, &e->bpe.chain, e->out, err);
}

static int encode_text(struct encoder *e, const char *text, size_t len, bool parse_special,
                       struct err *err)
{
    size_t begin = 0;
    for (size_t at = 0; at < len;) {
        int32_t id = special_at(e->t, text + at, len - at, parse_special);
        if (id < 0) {
            at++;
            continue;
        }
        TRY(encode_fragment(e, text + begin, at - begin, err));
        TRY(token_list_push(e->out, id, err));
        e->after_special = true;
        at += e->t->vocab.piece[id].len;
        begin = at;
    }
    return encode_fragment(e, text + begin, len - begin, err);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool add_special,
                     bool parse_special, struct token_list *out, struct err *err)
{
    CHECK(len <= TEXT_BYTES_MAX, err, ERR_USAGE, "the text has %zu bytes, want at most %d", len,
          TEXT_BYTES_MAX);
    struct encoder e = {.t = t, .out = out, .after_special = true};
    size_t n_before = out->n;
    int rc = ERR_NONE;
    if (add_special && t->vocab.add_bos) rc = token_list_push(out, t->vocab.bos, err);
    if (rc == ERR_NONE) rc = encode_text(&e, text, len, parse_special, err);
    if (rc == ERR_NONE && add_special && t->vocab.add_eos)
        rc = token_list_push(out, t->vocab.eos, err);
    if (rc != ERR_NONE) out->n = n_before;
    split_list_free(&e.splits);
    bpe_scratch_free(&e.bpe);
    return rc;
}

/* --- pieces and facts --- */

/* byte_token() - the byte that "<0xXX>" writes, or -1. */
static int byte_token(struct gguf_str s)
{
    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>') return -1;
    char digits[3] = {s.data[3], s.data[4], '\0'};
    if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1])) return -1;
    return (int)strtol(digits, NULL, 16);
}

static size_t copy_bytes(const char *from, size_t len, char *out, size_t capacity)
{
    if (capacity > 0) memcpy(out, from, len < capacity ? len : capacity);
    return len;
}

size_t tokenizer_piece(const struct tokenizer *t, int32_t id, bool with_special, char *out,
                       size_t capacity)
{
    if (id < 0 || id >= t->vocab.n) return 0;
    struct gguf_str piece = t->vocab.piece[id];
    switch ((enum token_kind)t->vocab.kind[id]) {
    case TOKEN_NORMAL:
        return t->vocab.model == VOCAB_SPM ? spm_piece(piece, out, capacity)
                                           : bpe_piece(piece, out, capacity);
    case TOKEN_BYTE: {
        int value = byte_token(piece);
        char byte = (char)value;
        return value >= 0 ? copy_bytes(&byte, 1, out, capacity) : 0;
    }
    case TOKEN_USER_DEFINED:
        return copy_bytes(piece.data, piece.len, out, capacity);
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        return with_special ? copy_bytes(piece.data, piece.len, out, capacity) : 0;
    case TOKEN_UNUSED:
        return 0;
    }
    return 0;
}

const char *tokenizer_model_name(const struct tokenizer *t)
{
    return t->vocab.model == VOCAB_SPM ? "llama" : "gpt2";
}

const char *tokenizer_pre_name(const struct tokenizer *t)
{
    return t->pre_name;
}

int32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->vocab.n;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->vocab.bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->vocab.eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->vocab.add_bos;
}

bool tokenizer_adds_space_prefix(const struct tokenizer *t)
{
    return t->vocab.add_space_prefix;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n && t->vocab.is_end[id];
}

enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n ? (enum token_kind)t->vocab.kind[id] : TOKEN_UNUSED;
}
