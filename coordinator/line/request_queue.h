/* request_queue - who waits for a place in the line: first come, first served, with aging.
 *
 * Order is the order of arrival, also for a request that was in the line and had to give its place
 * back. Where the first one does not fit yet, one of the next few that does may go before it, but
 * only so often; then nobody overtakes it any more, and the line empties until it fits.
 * Stations before and after: scheduler. */
#ifndef TANDEM_COORDINATOR_LINE_REQUEST_QUEUE_H
#define TANDEM_COORDINATOR_LINE_REQUEST_QUEUE_H

#include "coordinator/line/sequence.h"

/* Zeros: an empty queue. Linked through sequence.next_queued; owns nothing. */
struct request_queue {
    struct sequence *first, *last;
};

/* request_queue_put() - s takes its place by the number of its request. */
void request_queue_put(struct request_queue *q, struct sequence *s);

/* request_queue_remove() - s must be in the queue. */
void request_queue_remove(struct request_queue *q, struct sequence *s);

/* request_queue_choose() - whose turn is it, of those that fit? NULL: nobody's. Stays in
 * the queue. */
struct sequence *request_queue_choose(const struct request_queue *q,
                                      bool (*fits)(const void *ctx, const struct sequence *s),
                                      const void *ctx);

#endif
