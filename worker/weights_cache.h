/* weights_cache - a weight_source that keeps what another one gave on a local disk, for the next
 * start.
 *
 * A file of a folder holds the bytes of one layer range, as they were read, cut into blocks with a
 * digest each. Its name is made of the model's digest and stamp, the layers and the version of this
 * layout; it gets that name when it is complete. The folder is kept below a limit: slices that were
 * not used for the longest time go first. Several workers, and several jobs, may share a folder.
 * A cache that cannot be used, or is damaged, is said in one line, and the other source goes on.
 * Stations before: weights_pull. Station after: engine/weights. */
#ifndef TANDEM_WORKER_WEIGHTS_CACHE_H
#define TANDEM_WORKER_WEIGHTS_CACHE_H

#include "engine/weight_source.h"

struct weights_cache;

struct weights_cache_config {
    const char *folder;     /* made where it is not there */
    uint64_t limit_bytes;   /* of all files in it */
    uint64_t digest, stamp; /* of the model's files */
    uint32_t first, end;    /* layers */
    struct weight_source from;
};

/* weights_cache_open() - *out is the caller's. ERR_MEMORY. */
int weights_cache_open(struct weights_cache **out, const struct weights_cache_config *config,
                       struct err *err);
/* weights_cache_close() - what is not complete is removed. NULL is allowed. */
void weights_cache_close(struct weights_cache *c);

/* weights_cache_source() - returns what the other source returns, and ERR_MEMORY. */
struct weight_source weights_cache_source(struct weights_cache *c);

#endif
