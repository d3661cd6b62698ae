/* block_allocator - the numbers of the KV blocks, the same on every stage.
 *
 * The coordinator is the only allocator; a stage obeys the commands that travel with the batches.
 * Station before: scheduler (a sequence grows). Station after: engine/kv_cache, by KV_MAP and KV_TRIM. */
#ifndef TANDEM_COORDINATOR_LINE_BLOCK_ALLOCATOR_H
#define TANDEM_COORDINATOR_LINE_BLOCK_ALLOCATOR_H

#include "engine/err.h"

#include <stdbool.h>
#include <stdint.h>

struct block_allocator;

/* block_allocator_open() - blocks 0 .. n_blocks-1, all free. shuffle: hand them out in a random order drawn from
 * seed, to show that results do not depend on it. */
int block_allocator_open(struct block_allocator **out, uint32_t n_blocks, bool shuffle, uint64_t seed,
                         struct err *err);
void block_allocator_close(struct block_allocator *a); /* NULL is allowed */

/* block_allocator_take() - a free block, or false when none is left. */
bool block_allocator_take(struct block_allocator *a, uint32_t *block);

/* block_allocator_give() - block is free again. Giving one that is free is a bug. */
void block_allocator_give(struct block_allocator *a, uint32_t block);

uint32_t block_allocator_free_count(const struct block_allocator *a);

/* block_allocator_most() - the most blocks that were taken at once. */
uint32_t block_allocator_most(const struct block_allocator *a);

#endif
