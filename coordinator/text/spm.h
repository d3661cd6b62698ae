/* spm - the "llama" tokenizer model: SentencePiece-style merges by score, byte fallback.
 *
 * Station before: tokenizer (special tokens are already cut out).
 * Station after: tokenizer (ids). */
#ifndef TANDEM_COORDINATOR_TEXT_SPM_H
#define TANDEM_COORDINATOR_TEXT_SPM_H

#include "coordinator/text/merge_pairs.h"
#include "coordinator/text/vocab.h"

/* spm_bind_bytes() - fill v->byte_id from the tokens <0x00> … <0xFF>. */
void spm_bind_bytes(struct vocab *v);

/* spm_encode() - append the ids of text[0..len), any bytes, with a space before it if space_prefix.
 * Returns ERR_MEMORY, ERR_USAGE (a byte for which the vocabulary has no token at all). */
int spm_encode(const struct vocab *v, const char *text, size_t len, bool space_prefix,
               struct merge_chain *chain, struct token_list *out, struct err *err);

/* spm_piece() - the bytes of a normal token's piece; the rules of tokenizer_piece(). */
size_t spm_piece(struct gguf_str piece, char *out, size_t capacity);

#endif
