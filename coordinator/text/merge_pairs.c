/* merge_pairs - greedy merging of neighbours, the loop that both tokenizer models share.
 *
 * A binary heap holds candidates; one that is out of date is recognised when it comes up, because
 * symbols only grow: the pair's total length is then no longer the one noted.
 * Stations before and after: spm, bpe. */
#include "coordinator/text/merge_pairs.h"

#include <stdlib.h>

void merge_chain_clear(struct merge_chain *chain)
{
    chain->n = 0;
    chain->heap_n = 0;
}

void merge_chain_free(struct merge_chain *chain)
{
    free(chain->symbol);
    free(chain->heap);
    *chain = (struct merge_chain){0};
}

int merge_chain_add(struct merge_chain *chain, const char *text, size_t len, struct err *err)
{
    if (chain->n == chain->capacity) {
        size_t capacity = chain->capacity == 0 ? 64 : 2 * chain->capacity;
        struct merge_symbol *grown = realloc(chain->symbol, capacity * sizeof *grown);
        CHECK(grown != NULL, err, ERR_MEMORY, "no memory for a text of %zu characters", capacity);
        chain->symbol = grown;
        chain->capacity = capacity;
    }
    int32_t i = (int32_t)chain->n++;
    chain->symbol[i] = (struct merge_symbol){text, (uint32_t)len, i - 1, -1};
    if (i > 0) chain->symbol[i - 1].next = i;
    return ERR_NONE;
}

static bool comes_before(const struct merge_candidate *a, const struct merge_candidate *b)
{
    if (a->cost != b->cost) return a->cost < b->cost;
    return a->left < b->left;
}

static int heap_push(struct merge_chain *chain, struct merge_candidate c, struct err *err)
{
    if (chain->heap_n == chain->heap_capacity) {
        size_t capacity = chain->heap_capacity == 0 ? 64 : 2 * chain->heap_capacity;
        struct merge_candidate *grown = realloc(chain->heap, capacity * sizeof *grown);
        CHECK(grown != NULL, err, ERR_MEMORY, "no memory for %zu pairs of a text", capacity);
        chain->heap = grown;
        chain->heap_capacity = capacity;
    }
    size_t at = chain->heap_n++;
    while (at > 0 && comes_before(&c, &chain->heap[(at - 1) / 2])) {
        chain->heap[at] = chain->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    chain->heap[at] = c;
    return ERR_NONE;
}

static struct merge_candidate heap_pop(struct merge_chain *chain)
{
    struct merge_candidate *heap = chain->heap;
    struct merge_candidate best = heap[0], last = heap[--chain->heap_n];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < chain->heap_n) {
        if (child + 1 < chain->heap_n && comes_before(&heap[child + 1], &heap[child])) child++;
        if (!comes_before(&heap[child], &last)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return best;
}

/* push_pair() - note the pair that begins at symbol `left`, if there is one and it may merge. */
static int push_pair(struct merge_chain *chain, int32_t left, merge_cost_fn cost,
                     const void *context, struct err *err)
{
    if (left < 0 || chain->symbol[left].next < 0) return ERR_NONE;
    const struct merge_symbol *a = &chain->symbol[left];
    const struct merge_symbol *b = &chain->symbol[a->next];
    struct merge_candidate c = {0.0, left, a->len + b->len};
    if (!cost(context, a->text, a->len, b->len, &c.cost)) return ERR_NONE;
    return heap_push(chain, c, err);
}

int merge_chain_run(struct merge_chain *chain, merge_cost_fn cost, const void *context,
                    struct err *err)
{
    for (size_t i = 0; i + 1 < chain->n; i++) TRY(push_pair(chain, (int32_t)i, cost, context, err));
    while (chain->heap_n > 0) {
        struct merge_candidate c = heap_pop(chain);
        struct merge_symbol *a = &chain->symbol[c.left];
        if (a->len == 0 || a->next < 0) continue;
        struct merge_symbol *b = &chain->symbol[a->next];
        if (a->len + b->len != c.len) continue;
        a->len = c.len;
        b->len = 0; /* swallowed: its own candidates are out of date */
        a->next = b->next;
        if (b->next >= 0) chain->symbol[b->next].prev = c.left;
        TRY(push_pair(chain, a->prev, cost, context, err));
        TRY(push_pair(chain, c.left, cost, context, err));
    }
    return ERR_NONE;
}
