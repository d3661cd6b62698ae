/* tokenizer - text to token ids and back, by the vocabulary that a model file carries.
 *
 * Two models: "llama" (SentencePiece-style merges by score, byte fallback; spm.c) and
 * "gpt2" (byte-level BPE; pretokenize.c cuts the text by PCRE2 patterns, bpe.c merges).
 * Station before: front/ (a prompt). Stations after: line/ (ids), detokenizer (ids to text). */
#ifndef TANDEM_COORDINATOR_TEXT_TOKENIZER_H
#define TANDEM_COORDINATOR_TEXT_TOKENIZER_H

#include "engine/err.h"
#include "engine/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* What a token is (tokenizer.ggml.token_type). */
enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* A growing list of ids; zero-initialise, free with token_list_free(). */
struct token_list {
    int32_t *ids;
    size_t n, capacity;
};
int token_list_push(struct token_list *list, int32_t id, struct err *err); /* ERR_MEMORY */
void token_list_free(struct token_list *list);

/* tokenizer_open() - read the vocabulary of g, which must outlive the tokenizer.
 *
 * pretokenizer_override: NULL, or the name to use instead of tokenizer.ggml.pre.
 * On success *out is owned by the caller.
 * Returns ERR_FILE (a vocabulary that contradicts itself; the text says which key or token),
 * ERR_UNSUPPORTED (tokenizer model or pre-tokenizer name unknown: named), ERR_USAGE (an override
 * for a model that has no pre-tokenizer), ERR_MEMORY. */
int tokenizer_open(struct tokenizer **out, const struct gguf *g, const char *pretokenizer_override,
                   struct err *err);
void tokenizer_close(struct tokenizer *t); /* NULL is allowed */

/* tokenizer_encode() - append the ids of text[0..len) to *out.
 *
 * Any bytes are allowed: invalid UTF-8 is encoded through byte tokens; a byte for which the
 * vocabulary has none becomes U+FFFD ("gpt2") or the unknown token.
 * add_special    put BOS before and EOS after, as the file asks (add_bos_token, add_eos_token).
 * parse_special  control tokens written out in the text ("<|endoftext|>") become their id;
 *                otherwise they are plain text. User-defined tokens are always matched.
 * Returns ERR_MEMORY, ERR_USAGE (a pre-tokenizer pattern hit its match limit on this text; a byte
 * for which the vocabulary has nothing at all); *out is then as it was. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool add_special,
                     bool parse_special, struct token_list *out, struct err *err);

/* tokenizer_piece() - the bytes that a token stands for, as they appear in text.
 *
 * Writes at most capacity bytes and returns the full length. Control tokens give nothing
 * unless with_special. The bytes need not be whole UTF-8 characters: see detokenizer.h. */
size_t tokenizer_piece(const struct tokenizer *t, int32_t id, bool with_special, char *out,
                       size_t capacity);

/* The vocabulary's facts. Ids are -1 where the file has none. */
const char *tokenizer_model_name(const struct tokenizer *t); /* "llama", "gpt2" */
const char *tokenizer_pre_name(const struct tokenizer *t);   /* "gpt-2", "" */
int32_t tokenizer_vocab_size(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_space_prefix(const struct tokenizer *t); /* before a text's first word */
/* True for every id that ends generation: EOS, EOT, EOM and the usual end-of-turn texts. */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);

#endif
