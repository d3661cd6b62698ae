/* merge_pairs - greedy merging of neighbours, the loop that both tokenizer models share.
 *
 * A text is a chain of symbols (at first: characters). As long as a pair of neighbours may merge,
 * the cheapest pair does; of equally cheap ones, the leftmost.
 * Stations before and after: spm (cost: minus the score) and bpe (cost: the rank of the merge). */
#ifndef TANDEM_COORDINATOR_TEXT_MERGE_PAIRS_H
#define TANDEM_COORDINATOR_TEXT_MERGE_PAIRS_H

#include "engine/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One symbol: text[0..len), which follows its left neighbour's bytes directly. */
struct merge_symbol {
    const char *text;
    uint32_t len;
    int32_t prev, next; /* -1 at the ends of the chain */
};

/* A pair that could merge; out of date once symbol `left` and its next are not `len` bytes
 * together. */
struct merge_candidate {
    double cost;
    int32_t left;
    uint32_t len;
};

/* Zero-initialise; free with merge_chain_free(). After merge_chain_run() the symbols that remain
 * are 0, symbol[0].next, … until -1. */
struct merge_chain {
    struct merge_symbol *symbol;
    size_t n, capacity;
    struct merge_candidate *heap;
    size_t heap_n, heap_capacity;
};

/* The cost of merging text[0..left) with the `right` bytes that follow; false: they do
 * not merge. */
typedef bool (*merge_cost_fn)(const void *context, const char *text, size_t left, size_t right,
                              double *cost);

void merge_chain_clear(struct merge_chain *chain); /* keeps the memory for the next text */
void merge_chain_free(struct merge_chain *chain);

/* merge_chain_add() - append a symbol. All symbols of a chain lie in one text of less than
 * 2 GiB. */
int merge_chain_add(struct merge_chain *chain, const char *text, size_t len, struct err *err);

/* merge_chain_run() - merge until nothing merges. O(n log n) calls of cost. ERR_MEMORY. */
int merge_chain_run(struct merge_chain *chain, merge_cost_fn cost, const void *context,
                    struct err *err);

#endif
