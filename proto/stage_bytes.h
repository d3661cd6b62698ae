/* stage_bytes - what a worker takes around its stage: frames of its two hops, and the score rows of
 * the last one.
 *
 * The worker takes it, and the coordinator must know it before anything is loaded: both compute
 * it here. What engine takes is engine/model's to say (model_footprint). */
#ifndef TANDEM_PROTO_STAGE_BYTES_H
#define TANDEM_PROTO_STAGE_BYTES_H

#include "proto/frame_sizes.h"
#include "proto/scores.h"

#include <stdbool.h>

enum {
    STAGE_DATA_SLOTS = 2,               /* frames under way on a hop, at either end */
    ASKED_IDS_MAX = BATCH_HEAD_MAX / 4, /* scores by id that the head of a BATCH can ask for */
    SELECTOR_TOKEN_BYTES = 20, /* worker/score_select: scratch for each token of the vocabulary */
    SELECTOR_FIXED_BYTES = 10240, /* and besides, rounded up */
};

struct stage_sizes {
    bool is_first, is_last;
    uint32_t n_embd, n_vocab;
    uint32_t rows_max, wanted_max, credits;
    enum wire_format wire;
};

/* The largest frame that comes in, and the largest that goes out. */
static inline size_t stage_in_bytes_max(const struct stage_sizes *s)
{
    return frame_batch_bytes_max(s->rows_max, s->is_first ? 0 : s->n_embd, s->wire);
}

static inline size_t stage_out_bytes_max(const struct stage_sizes *s)
{
    if (s->is_last) return frame_result_bytes_max(s->wanted_max + s->credits, s->n_vocab);
    return frame_batch_bytes_max(s->rows_max, s->n_embd, s->wire);
}

/* stage_frame_bytes() - all slots of both hops. */
static inline uint64_t stage_frame_bytes(const struct stage_sizes *s)
{
    return STAGE_DATA_SLOTS * ((uint64_t)stage_in_bytes_max(s) + stage_out_bytes_max(s));
}

/* stage_row_bytes() - rows as floats, where they travel in another form: what came in, what goes
 * out. */
static inline uint64_t stage_row_bytes(const struct stage_sizes *s)
{
    uint64_t sides = (s->is_first ? 0U : 1U) + (s->is_last ? 0U : 1U);
    return s->wire == WIRE_F32 ? 0 : sides * s->rows_max * s->n_embd * sizeof(float);
}

/* stage_score_bytes() - the last stage: for each batch in flight the score rows that it keeps, one
 * answer, and the selector's scratch. */
static inline uint64_t stage_score_bytes(const struct stage_sizes *s)
{
    if (!s->is_last) return 0;
    uint64_t heads = (uint64_t)s->wanted_max + s->credits;
    uint64_t pairs = (uint64_t)frame_pairs_max((uint32_t)heads, s->n_vocab) + s->n_vocab;
    return (uint64_t)s->credits * s->wanted_max * s->n_vocab * sizeof(float) +
           heads * sizeof(struct score_head) + pairs * (sizeof(int32_t) + sizeof(float)) +
           ASKED_IDS_MAX * sizeof(float) + (uint64_t)s->n_vocab * SELECTOR_TOKEN_BYTES +
           SELECTOR_FIXED_BYTES;
}

#endif
