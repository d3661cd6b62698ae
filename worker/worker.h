/* worker - one stage behind a link: hello, load my slice, receive, forward, send, until told to
 * stop.
 *
 * Stations: proto/link on both sides, exec (one batch) and engine/stage inside. */
#ifndef TANDEM_WORKER_WORKER_H
#define TANDEM_WORKER_WORKER_H

#include "engine/err.h"
#include "proto/link.h"

#include <stdint.h>

/* Where a worker's weights come from. */
enum weights_from {
    WEIGHTS_AUTO,   /* the file, or where it cannot be opened the coordinator */
    WEIGHTS_LOCAL,  /* the file */
    WEIGHTS_STREAM, /* the coordinator */
};

struct worker_config {
    const char *model_path; /* NULL: none, to answer PROBEs alone */
    enum weights_from weights;
    const char *cache;    /* the folder that keeps streamed slices, or NULL */
    uint64_t cache_bytes; /* of it at most */
    uint32_t stall_ms;    /* a coordinator that is stopped for so long has stalled */
};

/* worker_run() - the whole life of a worker on endpoint l (rank >= 1); the link stays the caller's.
 * Returns ERR_NONE after an orderly stop. An error of its own has then been reported to the
 * coordinator, which prints it: the caller prints nothing. */
int worker_run(struct link *l, const struct worker_config *config, struct err *err);

#endif
