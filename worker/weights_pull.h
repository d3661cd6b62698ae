/* weights_pull - a weight_source for a host without the file: the coordinator reads, this asks.
 *
 * Bytes are asked for some megabytes ahead of their use, so that the wire is busy while a tensor is
 * being packed; more is never under way. Each piece must be what was asked for, in order, and its
 * digest must fit. Stations before: worker (a PIECE), proto/link. Station after: engine/weights, or
 * weights_cache. */
#ifndef TANDEM_WORKER_WEIGHTS_PULL_H
#define TANDEM_WORKER_WEIGHTS_PULL_H

#include "engine/weight_source.h"
#include "proto/message.h"

/* How it talks to the coordinator. */
struct weights_port {
    int (*ask)(void *ctx, const struct msg_pull *pull, struct err *err); /* send a PULL */
    /* Look after messages until a PIECE has gone to weights_pull_take(), once at most; may come
     * back earlier. The bytes of the piece before are not needed any more. */
    int (*wait)(void *ctx, struct err *err);
    void *ctx;
};

struct weights_pull;

/* weights_pull_open() - *out is the caller's. ERR_MEMORY. */
int weights_pull_open(struct weights_pull **out, const struct weights_port *port, struct err *err);
void weights_pull_close(struct weights_pull *p); /* NULL is allowed */

/* weights_pull_source() - reading returns ERR_PEER (a piece that was not asked for, or whose digest
 * does not fit), ERR_STALL (nothing came for half a minute), or what the port returns. */
struct weight_source weights_pull_source(struct weights_pull *p);

/* weights_pull_take() - a PIECE has come; its bytes stay where they are until the next wait(). */
int weights_pull_take(struct weights_pull *p, const struct msg_piece *piece, struct err *err);

#endif
