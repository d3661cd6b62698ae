/* block_allocator - see block_allocator.h. */
#include "coordinator/line/block_allocator.h"

#include <stdlib.h>

struct block_allocator {
    uint32_t n_blocks, n_free, n_free_least;
    uint32_t *free; /* a stack of free blocks */
    bool *taken;    /* [n_blocks] */
};

/* One step of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void shuffle_blocks(struct block_allocator *a, uint64_t seed)
{
    for (uint32_t i = a->n_blocks - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(next_random(&seed) % (i + 1));
        uint32_t t = a->free[i];
        a->free[i] = a->free[j];
        a->free[j] = t;
    }
}

int block_allocator_open(struct block_allocator **out, uint32_t n_blocks, bool shuffle, uint64_t seed,
                         struct err *err)
{
    BUG_IF(n_blocks == 0, "a pool of no blocks");
    struct block_allocator *a = calloc(1, sizeof *a);
    uint32_t *stack = calloc(n_blocks, sizeof *stack);
    bool *taken = calloc(n_blocks, sizeof *taken);
    if (a == NULL || stack == NULL || taken == NULL) {
        free(a);
        free(stack);
        free(taken);
        return err_set(err, ERR_MEMORY, "no memory to keep count of %u KV blocks", n_blocks);
    }
    *a = (struct block_allocator){.n_blocks = n_blocks, .n_free = n_blocks, .n_free_least = n_blocks, .free = stack, .taken = taken};
    for (uint32_t i = 0; i < n_blocks; i++) stack[i] = n_blocks - 1 - i;
    if (shuffle) shuffle_blocks(a, seed);
    *out = a;
    return ERR_NONE;
}

void block_allocator_close(struct block_allocator *a)
{
    if (a == NULL) return;
    free(a->free);
    free(a->taken);
    free(a);
}

bool block_allocator_take(struct block_allocator *a, uint32_t *block)
{
    if (a->n_free == 0) return false;
    *block = a->free[--a->n_free];
    if (a->n_free < a->n_free_least) a->n_free_least = a->n_free;
    a->taken[*block] = true;
    return true;
}

void block_allocator_give(struct block_allocator *a, uint32_t block)
{
    BUG_IF(block >= a->n_blocks || !a->taken[block], "a free KV block was given back");
    a->taken[block] = false;
    a->free[a->n_free++] = block;
}

uint32_t block_allocator_free_count(const struct block_allocator *a)
{
    return a->n_free;
}

uint32_t block_allocator_most(const struct block_allocator *a)
{
    return a->n_blocks - a->n_free_least;
}
