/* bpe - the "gpt2" tokenizer model: byte-level BPE inside one pre-token.
 *
 * Station before: pretokenize (cuts the text). Station after: tokenizer (ids). */
#ifndef TANDEM_COORDINATOR_TEXT_BPE_H
#define TANDEM_COORDINATOR_TEXT_BPE_H

#include "coordinator/text/merge_pairs.h"
#include "coordinator/text/vocab.h"

/* What encoding needs beside the vocabulary; zero-initialise, free with bpe_scratch_free(). */
struct bpe_scratch {
    struct merge_chain chain;
    char *letters; /* one pre-token, written in the vocabulary's letters */
    size_t capacity;
};
void bpe_scratch_free(struct bpe_scratch *scratch);

/* bpe_bind_bytes() - fill v->byte_id from the letters that stand for single bytes. */
void bpe_bind_bytes(struct vocab *v);

/* bpe_encode_word() - append the ids of one pre-token, any bytes.
 *
 * whole_first  a pre-token that is a piece as a whole is that token, whatever its merges.
 * A byte without a token becomes U+FFFD, or the unknown token where that has none either.
 * Returns ERR_MEMORY, ERR_USAGE (a byte for which the vocabulary has nothing at all). */
int bpe_encode_word(const struct vocab *v, const char *word, size_t len, bool whole_first,
                    struct bpe_scratch *scratch, struct token_list *out, struct err *err);

/* bpe_piece() - the bytes of a normal token's piece; the rules of tokenizer_piece(). */
size_t bpe_piece(struct gguf_str piece, char *out, size_t capacity);

#endif
