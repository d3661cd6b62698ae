/* exec - one batch: the frame that came in, through the stage, into the frame that goes out.
 *
 * Station before: worker (a received BATCH). Stations inside: engine/stage, scores (the last stage
 * only). Station after: proto/link, to the next stage or, as a RESULT, home. */
#ifndef TANDEM_WORKER_EXEC_H
#define TANDEM_WORKER_EXEC_H

#include "engine/stage.h"
#include "proto/codec.h"
#include "proto/message.h"
#include "proto/wire_rows.h"

struct exec;

struct exec_config {
    struct stage *stage;
    struct codec *codec;
    struct line_limits limits;
    uint32_t n_embd, n_vocab;
    bool is_first, is_last;
    enum wire_format wire; /* of the rows, between stages */
};

/* exec_open() - the last stage also takes its retained score rows: credits x wanted_max rows. */
int exec_open(struct exec **out, const struct exec_config *config, struct err *err);
void exec_close(struct exec *x); /* NULL is allowed */

/* exec_bytes() - what it has taken: proto/stage_bytes.h says the same before. */
uint64_t exec_bytes(const struct exec *x);

/* exec_batch() - run b, which came in as view, and fill out (64-byte aligned, capacity bytes); *len
 * is what to send. Not the last stage: the same head, then this stage's rows as they travel. The
 * last stage: a RESULT. Returns what stage_forward() and score_select() return; ERR_PEER for a
 * batch that breaks the line's limits. Cost: no allocation. */
int exec_batch(struct exec *x, const struct msg_batch *b, const struct frame_view *view,
               uint8_t *out, size_t capacity, size_t *len, struct err *err);

#endif
