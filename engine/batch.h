/* batch - the rows of one forward pass, and the KV cache commands that come before them.
 *
 * Plain data, the small part of the engine that proto may know. The coordinator fills it, the codec
 * carries it, every stage obeys it.
 * Station before: coordinator/line/scheduler. Station after: proto/codec, then engine/stage. */
#ifndef TANDEM_ENGINE_BATCH_H
#define TANDEM_ENGINE_BATCH_H

#include <stdint.h>

enum {
    KV_BLOCK_POSITIONS = 32, /* positions of a KV block */
    ATTENTION_TILE = 256,    /* absolute positions of an attention tile: whole blocks */
    KV_CLASSES_MAX = 4,      /* kinds of layer by how long they keep a position (hparams.h) */
};

/* Each cache class has a pool and block tables of its own. */
enum kv_op {
    KV_MAP,  /* block table of seq in this class, entry index := block */
    KV_COPY, /* contents of block index are copied to block, in every layer of the class */
    KV_TRIM, /* every block table of seq keeps its first index entries (0: the sequence is gone) */
};

struct kv_command {
    enum kv_op op;
    uint32_t seq;
    uint32_t index;
    uint32_t block;
    uint32_t kv_class; /* of KV_MAP and KV_COPY */
};

/* Rows of one sequence stand side by side in ascending, gapless positions. Commands are obeyed in
 * order, before any row. Arrays belong to whoever filled the batch. */
struct batch {
    uint32_t n_rows;
    uint32_t n_wanted; /* rows with wanted[i] != 0 */
    uint32_t n_commands;
    const int32_t *token;              /* [n_rows] */
    const uint32_t *seq;               /* [n_rows] */
    const uint32_t *pos;               /* [n_rows] absolute position */
    const uint8_t *wanted;             /* [n_rows] scores of this row are wanted */
    const struct kv_command *commands; /* [n_commands] */
};

#endif
