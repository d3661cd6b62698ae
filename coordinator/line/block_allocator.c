/* block_allocator - see block_allocator.h. */
#include "coordinator/line/block_allocator.h"

#include <stdlib.h>

enum { NO_BLOCK = UINT32_MAX };

struct block {
    uint32_t holders;
    bool kept;
    uint32_t older, newer; /* among the idle ones */
};

struct block_allocator {
    uint32_t n_blocks, n_free, n_idle, n_held_most;
    uint32_t *free;          /* [n_blocks] a stack of free blocks, n_free in use */
    struct block *blocks;    /* [n_blocks] */
    uint32_t oldest, newest; /* idle ones; NO_BLOCK: none */
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

int block_allocator_open(struct block_allocator **out, uint32_t n_blocks, bool shuffle,
                         uint64_t seed, struct err *err)
{
    BUG_IF(n_blocks == 0, "a pool of no blocks");
    struct block_allocator *a = calloc(1, sizeof *a);
    uint32_t *stack = calloc(n_blocks, sizeof *stack);
    struct block *blocks = calloc(n_blocks, sizeof *blocks);
    if (a == NULL || stack == NULL || blocks == NULL) {
        free(a);
        free(stack);
        free(blocks);
        return err_set(err, ERR_MEMORY, "no memory to keep count of %u KV blocks", n_blocks);
    }
    *a = (struct block_allocator){.n_blocks = n_blocks,
                                  .n_free = n_blocks,
                                  .free = stack,
                                  .blocks = blocks,
                                  .oldest = NO_BLOCK,
                                  .newest = NO_BLOCK};
    for (uint32_t i = 0; i < n_blocks; i++) stack[i] = n_blocks - 1 - i;
    if (shuffle) shuffle_blocks(a, seed);
    *out = a;
    return ERR_NONE;
}

void block_allocator_close(struct block_allocator *a)
{
    if (a == NULL) return;
    free(a->free);
    free(a->blocks);
    free(a);
}

static void begin_idling(struct block_allocator *a, uint32_t block)
{
    struct block *b = &a->blocks[block];
    b->older = a->newest;
    b->newer = NO_BLOCK;
    if (a->newest != NO_BLOCK)
        a->blocks[a->newest].newer = block;
    else
        a->oldest = block;
    a->newest = block;
    a->n_idle++;
}

static void end_idling(struct block_allocator *a, uint32_t block)
{
    const struct block *b = &a->blocks[block];
    if (b->older != NO_BLOCK)
        a->blocks[b->older].newer = b->newer;
    else
        a->oldest = b->newer;
    if (b->newer != NO_BLOCK)
        a->blocks[b->newer].older = b->older;
    else
        a->newest = b->older;
    a->n_idle--;
}

static void begin_holding(struct block_allocator *a, uint32_t block)
{
    a->blocks[block].holders++;
    if (block_allocator_held(a) > a->n_held_most) a->n_held_most = block_allocator_held(a);
}

bool block_allocator_take(struct block_allocator *a, uint32_t *block, bool *was_kept)
{
    *was_kept = a->n_free == 0;
    if (a->n_free > 0) {
        *block = a->free[--a->n_free];
    } else if (a->n_idle > 0) {
        *block = a->oldest;
        end_idling(a, *block);
        a->blocks[*block].kept = false;
    } else {
        return false;
    }
    begin_holding(a, *block);
    return true;
}

void block_allocator_share(struct block_allocator *a, uint32_t block)
{
    const struct block *b = &a->blocks[block];
    BUG_IF(block >= a->n_blocks || (b->holders == 0 && !b->kept), "a free KV block was shared");
    if (b->holders == 0) end_idling(a, block);
    begin_holding(a, block);
}

void block_allocator_give(struct block_allocator *a, uint32_t block)
{
    BUG_IF(block >= a->n_blocks || a->blocks[block].holders == 0, "a free KV block was given back");
    if (--a->blocks[block].holders > 0) return;
    if (a->blocks[block].kept)
        begin_idling(a, block);
    else
        a->free[a->n_free++] = block;
}

void block_allocator_keep(struct block_allocator *a, uint32_t block)
{
    BUG_IF(!block_allocator_is_held(a, block), "a free KV block is to be kept");
    a->blocks[block].kept = true;
}

void block_allocator_drop(struct block_allocator *a, uint32_t block)
{
    BUG_IF(block >= a->n_blocks || !a->blocks[block].kept, "a KV block was dropped twice");
    a->blocks[block].kept = false;
    if (a->blocks[block].holders > 0) return;
    end_idling(a, block);
    a->free[a->n_free++] = block;
}

bool block_allocator_is_held(const struct block_allocator *a, uint32_t block)
{
    return block < a->n_blocks && a->blocks[block].holders > 0;
}

uint32_t block_allocator_available(const struct block_allocator *a)
{
    return a->n_free + a->n_idle;
}

uint32_t block_allocator_held(const struct block_allocator *a)
{
    return a->n_blocks - a->n_free - a->n_idle;
}

uint32_t block_allocator_most(const struct block_allocator *a)
{
    return a->n_held_most;
}
