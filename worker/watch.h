/* watch - is the coordinator well? Its silence means nothing, since it speaks only when there is
 * work; its process does.
 *
 * The first worker looks, where it shares the coordinator's host, as is usual: a coordinator that
 * is killed or stopped says nothing itself.
 * Station before: WATCH, which says which process to look at. Station after: worker. */
#ifndef TANDEM_WORKER_WATCH_H
#define TANDEM_WORKER_WATCH_H

#include "engine/err.h"
#include "engine/process_look.h"
#include "proto/message.h"

#include <stdbool.h>

/* All zero: nobody is watched. */
struct watch {
    bool on;
    uint32_t pid, stall_ms;
    char host[256];
    enum process_state state;
    uint64_t looked_ns, since_ns; /* the last look; since when it has been in this state */
};

/* watch_open() - if it is another process of this host. stall_ms: how long it may be stopped. */
void watch_open(struct watch *w, const struct msg_watch *who, const char *host, uint32_t stall_ms);

/* watch_look() - cheap: looks a few times a second at most. now: clock_now_ns(). Returns ERR_RANK
 * (it is gone), ERR_STALL (it has been stopped for stall_ms); the error's who names it. Time in
 * which this process itself was stopped does not count, so that a line may be stopped and continued
 * as a whole. */
int watch_look(struct watch *w, uint64_t now, struct err *err);

#endif
