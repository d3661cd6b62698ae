/* frame_sizes - how large the frames of a line can be; both ends of a hop compute the same numbers.
 *
 * Declared limits instead of "as large as it gets": the scheduler keeps every batch inside them. */
#ifndef TANDEM_PROTO_FRAME_SIZES_H
#define TANDEM_PROTO_FRAME_SIZES_H

#include "proto/frame.h"
#include "proto/wire_rows.h"

#include <stddef.h>
#include <stdint.h>

enum {
    BATCH_HEAD_MAX = 1 << 20, /* bytes of a BATCH's head */
    /* (id, score) pairs of a RESULT, unless one row alone has more; floats of its raw rows,
     * likewise. */
    RESULT_PAIRS_BUDGET = 1 << 20,
    RESULT_RAW_BUDGET = 1 << 22,
    /* Packed at most: what a RESULT has besides its heads, a head with its id scores (ten), and a
     * pair. */
    RESULT_FIXED_BYTES = 256,
    RESULT_HEAD_BYTES = 64,
    RESULT_PAIR_BYTES = 9,
};

/* frame_pairs_max() - pairs that one RESULT may carry: at least one whole row. */
static inline uint32_t frame_pairs_max(uint32_t wanted_max, uint32_t n_vocab)
{
    uint64_t all = (uint64_t)wanted_max * n_vocab;
    if (all > RESULT_PAIRS_BUDGET) all = RESULT_PAIRS_BUDGET;
    return all > n_vocab ? (uint32_t)all : n_vocab;
}

/* frame_raw_rows_max() - raw rows that one RESULT may carry, at least one. */
static inline uint32_t frame_raw_rows_max(uint32_t wanted_max, uint32_t n_vocab)
{
    uint32_t rows = (uint32_t)RESULT_RAW_BUDGET / n_vocab;
    if (rows > wanted_max) rows = wanted_max;
    return rows > 0 ? rows : 1;
}

/* frame_f32_rows_max() - rows of n_embd values that may travel as floats (BATCH.as_f32) where the
 * frames are made for rows_max in another form: what takes as many bytes, 1 .. rows_max. */
static inline uint32_t frame_f32_rows_max(uint32_t rows_max, uint32_t n_embd, enum wire_format wire)
{
    uint64_t rows = rows_max * wire_row_bytes(wire, n_embd) / wire_row_bytes(WIRE_F32, n_embd);
    if (rows > rows_max) rows = rows_max; /* a scale and a value take more than a float */
    return rows > 0 ? (uint32_t)rows : 1;
}

/* frame_batch_bytes_max() - a BATCH with rows of n_embd values (0 on the first hop). */
static inline size_t frame_batch_bytes_max(uint32_t rows_max, uint32_t n_embd,
                                           enum wire_format wire)
{
    const uint64_t all = rows_max * wire_row_bytes(wire, n_embd);
    const uint64_t one = wire_row_bytes(WIRE_F32, n_embd);
    return frame_total_bytes(BATCH_HEAD_MAX, all > one ? all : one);
}

/* frame_result_head_max() - of a RESULT with so many heads. */
static inline uint32_t frame_result_head_max(uint32_t heads_max, uint32_t n_vocab)
{
    return RESULT_FIXED_BYTES + heads_max * RESULT_HEAD_BYTES +
           frame_pairs_max(heads_max, n_vocab) * RESULT_PAIR_BYTES;
}

static inline size_t frame_result_bytes_max(uint32_t heads_max, uint32_t n_vocab)
{
    uint64_t raw = (uint64_t)frame_raw_rows_max(heads_max, n_vocab) * n_vocab * sizeof(float);
    return frame_total_bytes(frame_result_head_max(heads_max, n_vocab), raw);
}

#endif
