/* block_tables - which KV blocks each sequence has, in every cache class.
 *
 * A table grows by a block for every 32 positions. Layers of a window keep only what a row to come
 * can see: what has left the window is given back. A full block is entered into the prefix index
 * when its last row has been sent, and whoever has the same tokens up to there takes it instead of
 * computing it again; of a block that only begins with the same tokens the contents are copied.
 * Batches pass every stage in one order, so the rows are in the cache before anybody sees them, and
 * a block that is given back can be mapped by any batch that comes later.
 * Stations inside: block_allocator (numbers, one for each class), prefix_index (contents).
 * Station before: scheduler. Station after: the KV commands of a flight. */
#ifndef TANDEM_COORDINATOR_LINE_BLOCK_TABLES_H
#define TANDEM_COORDINATOR_LINE_BLOCK_TABLES_H

#include "coordinator/line/sequence.h"

struct block_tables;

/* Shared blocks that a sequence passes over at once, in each class, so that their commands fit into
 * a batch; and the KV commands of a class that one sequence needs before a row at most. */
enum { BLOCK_TABLES_PASS_MAX = 2048, BLOCK_TABLES_TELL_MAX = BLOCK_TABLES_PASS_MAX + 64 };

struct block_tables_config {
    uint32_t n_classes;
    uint32_t window[KV_CLASSES_MAX]; /* how far the layers of a class see; 0: everything */
    uint32_t n_blocks[KV_CLASSES_MAX];
    bool share; /* equal prefixes share their blocks */
    bool shuffle;
    uint64_t shuffle_seed;
};

int block_tables_open(struct block_tables **out, const struct block_tables_config *config,
                      struct err *err);
void block_tables_close(struct block_tables *bt); /* NULL is allowed */

/* How many blocks there are for so many positions. */
static inline uint32_t block_tables_count(uint64_t positions)
{
    return (uint32_t)((positions + KV_BLOCK_POSITIONS - 1) / KV_BLOCK_POSITIONS);
}

/* Blocks of each class. */
struct block_need {
    uint32_t n[KV_CLASSES_MAX];
};

/* block_tables_add_need() - what s has to take until all its tokens and one more are in the line.
 * block_tables_spare() - of that, what is shared with sequences that hold it already.
 * block_tables_has() - could all this be taken now, and `more` in every class? */
void block_tables_add_need(const struct block_tables *bt, const struct sequence *s,
                           struct block_need *need);
void block_tables_spare(const struct block_tables *bt, const struct sequence *s,
                        struct block_need *need);
bool block_tables_has(const struct block_tables *bt, const struct block_need *need, uint32_t more);

/* block_tables_begin_batch() - what follows is for this batch. */
void block_tables_begin_batch(struct block_tables *bt, uint64_t batch);

/* block_tables_begins() - does the next position of s begin a block that it does not have? */
bool block_tables_begins(const struct sequence *s);

/* block_tables_advance() - before rows of s go into a batch: give back what has left a window, and
 * pass over the positions that are in the cache already. In that batch there must be no row of s
 * yet. Moves s->n_sent and counts s->n_cached; the last token always stays to be sent. */
void block_tables_advance(struct block_tables *bt, struct sequence *s);

/* block_tables_grow() - one more block in every class; false, and nothing taken, where one is
 * missing. */
bool block_tables_grow(struct block_tables *bt, struct sequence *s);

/* block_tables_note_full() - after rows of s were put into a batch: full blocks can be shared. */
void block_tables_note_full(struct block_tables *bt, struct sequence *s);

/* block_tables_untold() - KV commands that the stages need before the next row of s.
 * block_tables_tell() - write them to commands; returns how many. */
uint32_t block_tables_untold(const struct block_tables *bt, const struct sequence *s);
uint32_t block_tables_tell(struct block_tables *bt, struct sequence *s,
                           struct kv_command *commands);

/* block_tables_release() - s gives all its blocks back and starts again from position 0. Returns
 * whether the stages know its tables: KV_TRIM must come before the next use of its slot. */
bool block_tables_release(struct block_tables *bt, struct sequence *s);

/* Blocks in use now, over all classes, and the most that were at once in one of them. */
uint32_t block_tables_held(const struct block_tables *bt);
uint32_t block_tables_most(const struct block_tables *bt, uint32_t kv_class);

#endif
