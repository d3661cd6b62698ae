/* watch - see watch.h. */
#include "worker/watch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 100,
    ABSENCE_MS = 1000, /* this process itself was away */
    GONE_MS = 300,     /* one that ends the job by itself, with its own error line, is gone a moment
                          before the job is */
};

void watch_open(struct watch *w, const struct msg_watch *who, const char *host, uint32_t stall_ms)
{
    *w = (struct watch){.pid = who->pid, .stall_ms = stall_ms};
    snprintf(w->host, sizeof w->host, "%s", who->host);
    w->on = w->pid != 0 && w->pid != (uint32_t)getpid() && strcmp(w->host, host) == 0;
}

int watch_look(struct watch *w, uint64_t now, struct err *err)
{
    const uint64_t ms = 1000000;
    const uint64_t away = now - w->looked_ns;
    if (!w->on || away < LOOK_MS * ms) return ERR_NONE;
    const enum process_state state = process_look(w->pid);
    if (state != w->state || away >= ABSENCE_MS * ms) w->since_ns = now;
    w->state = state;
    w->looked_ns = now;
    if (state == PROCESS_RUNS ||
        now - w->since_ns < (state == PROCESS_GONE ? GONE_MS : w->stall_ms) * ms)
        return ERR_NONE;
    const double seconds = (double)(now - w->since_ns) * 1e-9;
    int rc =
        state == PROCESS_GONE
            ? err_set(err, ERR_RANK,
                      "died %.1f s ago: its process was killed or crashed (memory? see its host)",
                      seconds)
            : err_set(err, ERR_STALL,
                      "stopped answering, silent for %.1f s: its process is stopped (SIGSTOP)",
                      seconds);
    err_set_who(err, "coordinator @%.64s", w->host);
    return rc;
}
