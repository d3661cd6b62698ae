/* pretokenize - cuts a text into the pre-tokens inside which byte-level BPE merges.
 *
 * Each published vocabulary was trained with a certain way of cutting, which the file names
 * (tokenizer.ggml.pre); a table holds the patterns of each name.
 * Station before: tokenizer (special tokens are already cut out). Station after: bpe. */
#ifndef TANDEM_COORDINATOR_TEXT_PRETOKENIZE_H
#define TANDEM_COORDINATOR_TEXT_PRETOKENIZE_H

#include "engine/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pretokenizer;

/* pretokenizer_open() - look name up and compile its patterns. Returns ERR_UNSUPPORTED (no such
 * name: named), ERR_MEMORY. */
int pretokenizer_open(struct pretokenizer **out, const char *name, struct err *err);
void pretokenizer_close(struct pretokenizer *p); /* NULL is allowed */

/* What models with this pre-tokenizer do where their file does not say. */
bool pretokenizer_adds_bos(const struct pretokenizer *p);
/* A pre-token that is a piece as a whole is that token, whatever the merges say. */
bool pretokenizer_whole_first(const struct pretokenizer *p);

/* Where the pre-tokens of a text end; together they cover it. Zero-initialise, free with
 * split_list_free(). */
struct split_list {
    uint32_t *end;
    size_t n, capacity;
};
void split_list_free(struct split_list *list);

/* pretokenizer_split() - cut text[0..len), any bytes, len < 2 GiB. Replaces what *out held.
 * Returns ERR_MEMORY, ERR_USAGE (a pattern hit its match limit: the text says where). */
int pretokenizer_split(const struct pretokenizer *p, const char *text, size_t len,
                       struct split_list *out, struct err *err);

#endif
