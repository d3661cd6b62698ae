/* kv_cache - the block pool of one stage, and each sequence's block table.
 *
 * The coordinator alone decides which block holds what (batch.h); this stage obeys. A block holds
 * 32 positions of every layer of the stage: pool[layer][kv head][block], and there K as
 * [dim_k][32], so that a vector lane is a position, then V as [32][dim_v] (kernels.h). So the past
 * of a head is read in the order of memory wherever its blocks were given out in order. Tables have
 * no gaps: entry i covers positions 32 i .. 32 i + 31. Layers of a window have pools and tables of
 * their own (cache classes): the entries of blocks that have left the window go stale, and their
 * blocks are mapped again.
 *
 * Stations before: batch (commands). Stations after: layer (stores, attends). */
#ifndef TANDEM_ENGINE_KV_CACHE_H
#define TANDEM_ENGINE_KV_CACHE_H

#include "engine/batch.h"
#include "engine/model.h"

/* What a layer keeps of a position (hparams_cache_row), and where. */
struct kv_layer {
    uint64_t offset;     /* bytes from the pool's start */
    uint64_t head_bytes; /* of a block, for one head */
    uint32_t kv_class;
    struct cache_row row;
};

struct kv_cache {
    enum kv_format format;
    uint32_t n_classes, n_seqs, blocks_per_seq;
    uint32_t n_blocks[KV_CLASSES_MAX];
    uint32_t n_layers;
    struct kv_layer *layer; /* [n_layers] */
    uint8_t *pool;
    uint64_t pool_bytes;
    uint32_t *table;   /* [n_classes][n_seqs][blocks_per_seq] */
    uint32_t *mapped;  /* [n_classes][n_seqs] entries of the table in use */
    uint32_t *checked; /* [n_classes][n_seqs] the same after the commands that kv_cache_check() has
                          seen */
    uint64_t table_bytes; /* of the arrays above */
};

/* kv_cache_open() - take the pool and the tables. On success the caller owns *kv (kv_cache_close).
 * Returns ERR_MEMORY (bytes and what to do), ERR_CAPACITY for a size that cannot be counted. */
int kv_cache_open(struct kv_cache *kv, const struct model *m, struct layer_range range,
                  const struct line_limits *limits, struct err *err);
void kv_cache_close(struct kv_cache *kv); /* a zeroed struct is allowed */

/* kv_cache_check() - would the commands be obeyed? Changes nothing but kv->checked, for
 * kv_cache_is_covered(). KV_MAP: index may be at most one past the table's end. Returns ERR_PEER
 * (the command and the fault). */
int kv_cache_check(struct kv_cache *kv, const struct kv_command *commands, uint32_t n,
                   struct err *err);

/* kv_cache_is_covered() - after the checked commands, will position pos of seq have a block in
 * every class? */
static inline bool kv_cache_is_covered(const struct kv_cache *kv, uint32_t seq, uint32_t pos)
{
    for (uint32_t c = 0; c < kv->n_classes; c++)
        if (pos / KV_BLOCK_POSITIONS >= kv->checked[c * kv->n_seqs + seq]) return false;
    return true;
}

/* kv_cache_obey() - carry out commands that kv_cache_check() has accepted. */
void kv_cache_obey(struct kv_cache *kv, const struct kv_command *commands, uint32_t n);

/* kv_cache_block() - the block of a sequence's table entry, for one layer of the stage and one kv
 * head. */
static inline uint8_t *kv_cache_block(const struct kv_cache *kv, uint32_t layer, uint32_t seq,
                                      uint32_t index, uint32_t head)
{
    const struct kv_layer *l = &kv->layer[layer];
    size_t table = (size_t)l->kv_class * kv->n_seqs + seq;
    uint64_t block = kv->table[table * kv->blocks_per_seq + index];
    uint64_t n_blocks = kv->n_blocks[l->kv_class];
    return kv->pool + l->offset + (head * n_blocks + block) * l->head_bytes;
}

#endif
