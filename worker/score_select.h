/* score_select - the last stage's answer to a score_need: the head of one row, in order.
 *
 * What is computed is defined in proto/scores.h, to the bit: the same row and need give the same
 * answer on every CPU, with every compiler, and whatever was selected before.
 * Station before: engine/stage (raw scores). Station after: proto/frame (the row goes home). */
#ifndef TANDEM_WORKER_SCORE_SELECT_H
#define TANDEM_WORKER_SCORE_SELECT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "proto/scores.h"

struct score_selector;

/* score_selector_bytes() - what score_selector_open() takes; part of the declared buffers. */
size_t score_selector_bytes(uint32_t n_vocab);

/* score_selector_open() - take the scratch for rows of n_vocab >= 1 scores. ERR_MEMORY. */
int score_selector_open(struct score_selector **out, uint32_t n_vocab, struct err *err);
void score_selector_close(struct score_selector *sel); /* NULL is allowed */

/* Where an answer goes; the caller's. */
struct score_room {
    int32_t *ids;     /* [n_vocab]: the head gets the first head->n places, here and in scores */
    float *scores;    /* [n_vocab] */
    float *id_scores; /* [need->n_ids], may be NULL when there are none */
};

/* score_select() - answer need for one row.
 *
 * z     f32 [n_vocab], read only.
 * head  filled; it borrows what room points to and, when raw is wanted, z.
 * Cost  no allocation. Linear in n_vocab, and only the head is sorted. One caller at a time.
 * Returns 0, ERR_PEER (a need out of its range, n_ids > n_vocab included), or ERR_NUMERIC (a score
 * is not finite, or every token is banned); after an error head and the buffers are undefined. */
int score_select(struct score_selector *sel, const float *z, const struct score_need *need,
                 const struct score_room *room, struct score_head *head, struct err *err);

#endif
