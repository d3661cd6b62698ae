/* speed_probe - how fast this rank reads weights, multiplies, and hears its neighbours.
 *
 * Station before: worker (a PROBE). Stations inside: engine/stage, engine/speed, proto/link.
 * Station after: PROBED. */
#ifndef TANDEM_WORKER_SPEED_PROBE_H
#define TANDEM_WORKER_SPEED_PROBE_H

#include "engine/plan_work.h"
#include "engine/stage.h"
#include "proto/link.h"
#include "proto/message.h"

/* What is measured with. */
struct speed_probe {
    struct link *link;
    struct stage *stage; /* NULL before LOAD: then it cannot be asked for its weights */
    /* alive() - called by the caller's thread about every 50 ms, and between passes. */
    void (*alive)(void *ctx);
    void *ctx;
};

/* speed_probe_answer() - what p asks for (struct msg_probe says what that may be); *out begins as
 * zeros. Takes some tenths of a second. Returns ERR_PEER for a question that this rank cannot
 * answer, ERR_MEMORY, ERR_UNSUPPORTED, and what link_raw_pingpong() returns. */
int speed_probe_answer(const struct speed_probe *s, const struct msg_probe *p,
                       struct msg_probed *out, struct err *err);

/* speed_probe_products() - how fast products with weights of a number format would be on a rank of
 * so many threads here: speed_measure() with the best kernels, and a quarter of the free memory at
 * most. */
int speed_probe_products(struct plan_speed *out, uint32_t format, uint32_t threads, uint64_t bytes,
                         struct err *err);

#endif
