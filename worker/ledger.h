/* ledger - where a stage's time went, in nanoseconds of the monotonic clock.
 *
 * Each column is measured on its own; none is what is left over of another. */
#ifndef TANDEM_WORKER_LEDGER_H
#define TANDEM_WORKER_LEDGER_H

#include "proto/message.h"

#include <stdint.h>

uint64_t ledger_now_ns(void);

struct ledger {
    uint64_t batches, rows;
    uint64_t compute_ns; /* in exec_batch() of batches with rows */
    uint64_t wait_ns;    /* from being ready for a frame to having one */
    uint64_t send_ns;    /* from a filled frame to link_send() having taken it, waiting for a slot included */
    /* The latest spans of forward passes, oldest overwritten. */
    struct msg_span spans[MESSAGE_SPANS_MAX];
};

/* ledger_add_span() - a forward pass of batch id ran from begin to end. */
void ledger_add_span(struct ledger *g, uint64_t batch_id, uint32_t rows, uint64_t begin_ns, uint64_t end_ns);

#endif
