/* process_look - what another process of this host does: runs, is stopped, or is gone.
 *
 * Stations: line/roster (a worker that is silent), worker/watch (the coordinator). */
#ifndef TANDEM_ENGINE_PROCESS_LOOK_H
#define TANDEM_ENGINE_PROCESS_LOOK_H

#include <stdint.h>

enum process_state {
    PROCESS_RUNS,
    PROCESS_STOPPED, /* by a signal; not by a debugger */
    PROCESS_GONE /* a killed process is a zombie until its launcher has collected it: that, too */
};

/* process_look() - of this host and its process numbers. Cost: one small file of /proc, no
 * allocation. */
enum process_state process_look(uint32_t pid);

#endif
