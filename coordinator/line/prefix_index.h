/* prefix_index - which full blocks hold which tokens, so that equal prefixes are computed once.
 *
 * A node is a full block behind the node of the block before it (or behind nothing), so a node
 * stands for all tokens from position 0 to its end. It is found by a hash of its parent's key and
 * its tokens, and a find compares parent and tokens too: two prefixes that differ never count as
 * equal. A node has the number of its block of cache class 0, which keeps all positions; the blocks
 * of the other classes may be gone before it. All memory is taken at open.
 * Stations before and after: block_tables. */
#ifndef TANDEM_COORDINATOR_LINE_PREFIX_INDEX_H
#define TANDEM_COORDINATOR_LINE_PREFIX_INDEX_H

#include "engine/batch.h"
#include "engine/err.h"

#include <stdint.h>

enum { PREFIX_NONE = UINT32_MAX }; /* no node, or no block */

struct prefix_index;

/* prefix_index_open() - n_blocks [n_classes]: the sizes of the pools. */
int prefix_index_open(struct prefix_index **out, const uint32_t *n_blocks, uint32_t n_classes,
                      struct err *err);
void prefix_index_close(struct prefix_index *px); /* NULL is allowed */

/* prefix_index_find() - the node with these tokens [KV_BLOCK_POSITIONS] behind parent, or
 * PREFIX_NONE. parent: PREFIX_NONE for the first block. */
uint32_t prefix_index_find(const struct prefix_index *px, uint32_t parent, const int32_t *tokens);

/* prefix_index_find_like() - of the nodes behind parent the one that begins with most of tokens
 * [n], of those that were added before batch `before`: *n_like of them, 1 at least; or PREFIX_NONE.
 * Looks at a few only, the latest first. */
uint32_t prefix_index_find_like(const struct prefix_index *px, uint32_t parent,
                                const int32_t *tokens, uint32_t n, uint64_t before,
                                uint32_t *n_like);

/* prefix_index_add() - a node that is not there yet; its number is block. batch: which
 * writes its last row. */
void prefix_index_add(struct prefix_index *px, uint32_t parent, const int32_t *tokens,
                      uint32_t block, uint64_t batch);

/* prefix_index_remove() - its children must have gone before. */
void prefix_index_remove(struct prefix_index *px, uint32_t node);

uint32_t prefix_index_parent(const struct prefix_index *px, uint32_t node);

/* prefix_index_block() - of a cache class above 0; PREFIX_NONE where it is gone.
 * prefix_index_set_block() - block PREFIX_NONE: it is gone. prefix_index_owner() - the node that
 * has this block; it must have one. */
uint32_t prefix_index_block(const struct prefix_index *px, uint32_t node, uint32_t kv_class);
void prefix_index_set_block(struct prefix_index *px, uint32_t node, uint32_t kv_class,
                            uint32_t block);
uint32_t prefix_index_owner(const struct prefix_index *px, uint32_t kv_class, uint32_t block);

#endif
