/* vocab - the vocabulary that a model file carries: pieces, scores, kinds, merges, special ids.
 *
 * Station before: engine/gguf (checked metadata). Stations after: spm and bpe (which look pieces
 * and merges up), tokenizer (which owns the vocabulary). */
#ifndef TANDEM_COORDINATOR_TEXT_VOCAB_H
#define TANDEM_COORDINATOR_TEXT_VOCAB_H

#include "coordinator/text/tokenizer.h"

enum vocab_model {
    VOCAB_SPM, /* tokenizer.ggml.model "llama" */
    VOCAB_BPE, /* tokenizer.ggml.model "gpt2" */
};

/* Strings by content: open addressing, slots hold index + 1 of the string, 0 is empty. */
struct vocab_index {
    uint32_t *slot;
    size_t mask; /* slots - 1; a power of two minus one */
};

struct vocab {
    enum vocab_model model;
    int32_t n;
    struct gguf_str *piece; /* [n], inside the file's map */
    float *score;           /* [n]; 0 where the file has none */
    uint8_t *kind;          /* [n], enum token_kind */
    bool *is_end;           /* [n] */
    struct vocab_index piece_index;

    struct gguf_str *merge; /* [n_merges] "left right", best first; VOCAB_BPE only */
    size_t n_merges;
    struct vocab_index merge_index;

    int32_t byte_id[256];  /* the token of a single byte, -1 where there is none */
    int32_t bos, eos, unk; /* -1 where there is none */
    bool add_bos, add_eos;
    bool add_space_prefix; /* VOCAB_SPM: a text's first word gets a leading space */
};

/* vocab_open() - read the vocabulary of g, which must outlive it. *v is zeroed first; call
 * vocab_close() also after an error. add_bos_default holds where the file has no add_bos_token.
 * Returns ERR_FILE (the text names key or token), ERR_MEMORY. */
int vocab_open(struct vocab *v, const struct gguf *g, enum vocab_model model, bool add_bos_default,
               struct err *err);
void vocab_close(struct vocab *v);

/* vocab_find() - the id of the token whose piece is exactly text[0..len), -1 where there
 * is none. */
int32_t vocab_find(const struct vocab *v, const char *text, size_t len);

/* vocab_find_merge() - the rank (0 is best) of merging text[0..left) with the `right` bytes that
 * follow it; -1 where there is no such merge. */
int32_t vocab_find_merge(const struct vocab *v, const char *text, size_t left, size_t right);

#endif
