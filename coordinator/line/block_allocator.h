/* block_allocator - the numbers of the KV blocks of one cache class, the same on every stage.
 *
 * The coordinator is the only allocator; a stage obeys the commands that travel with the batches. A
 * block has as many holders as sequences have it in their tables. Without a holder it is free, or,
 * where its contents are worth keeping, idle: still known to the prefix index, and taken again, the
 * one that lay idle longest first, when no free one is left.
 * Station before: block_tables. Station after: engine/kv_cache, by KV_MAP and KV_TRIM. */
#ifndef TANDEM_COORDINATOR_LINE_BLOCK_ALLOCATOR_H
#define TANDEM_COORDINATOR_LINE_BLOCK_ALLOCATOR_H

#include "engine/err.h"

#include <stdbool.h>
#include <stdint.h>

struct block_allocator;

/* block_allocator_open() - blocks 0 .. n_blocks-1, all free. shuffle: hand them out in a random
 * order drawn from seed, to show that results do not depend on it. */
int block_allocator_open(struct block_allocator **out, uint32_t n_blocks, bool shuffle,
                         uint64_t seed, struct err *err);
void block_allocator_close(struct block_allocator *a); /* NULL is allowed */

/* block_allocator_take() - a block with one holder, or false when all are held. *was_kept: it lay
 * idle, and whoever knows its contents must forget them. */
bool block_allocator_take(struct block_allocator *a, uint32_t *block, bool *was_kept);

/* block_allocator_share() - a block that is held or idle has one holder more. */
void block_allocator_share(struct block_allocator *a, uint32_t block);

/* block_allocator_give() - one holder less. Giving a block that nobody holds is a bug. */
void block_allocator_give(struct block_allocator *a, uint32_t block);

/* block_allocator_keep() - without a holder this held block will be idle, not free.
 * block_allocator_drop() - it will be free, and is at once where it lies idle. */
void block_allocator_keep(struct block_allocator *a, uint32_t block);
void block_allocator_drop(struct block_allocator *a, uint32_t block);

bool block_allocator_is_held(const struct block_allocator *a, uint32_t block);

/* block_allocator_available() - blocks that can be taken: free and idle ones. */
uint32_t block_allocator_available(const struct block_allocator *a);

/* block_allocator_held() - blocks that somebody holds; block_allocator_most(): at once, at most. */
uint32_t block_allocator_held(const struct block_allocator *a);
uint32_t block_allocator_most(const struct block_allocator *a);

#endif
