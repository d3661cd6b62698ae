/* measure - how fast the ranks of a line and the ways between them are, before anything is loaded.
 *
 * Stations before: line, front/probe (all workers have said HELLO). Stations inside: roster
 * (PROBE), engine/speed on the other side. Station after: planner. */
#ifndef TANDEM_COORDINATOR_LINE_MEASURE_H
#define TANDEM_COORDINATOR_LINE_MEASURE_H

#include "coordinator/line/planner.h"
#include "coordinator/line/roster.h"

struct measure_wish {
    uint32_t format;       /* of the weights (enum format_id) */
    uint64_t weight_bytes; /* that all ranks will hold: those of a host share its cache */
    uint32_t threads;      /* of each rank; 0: cpu_share_threads() */
};

/* measure_ranks() - out[roster_size]; hosts' names live as long as the roster. One rank of each
 * host is measured at a time, half a second each; then as many of each host as can compute at the
 * same time, together; then the hops, one after the other. A link that
 * no hop of the line takes is taken to be as *usual has it. Emulated links count as what they
 * emulate. Errors as roster_poll(). */
int measure_ranks(struct roster *r, struct link *l, const struct measure_wish *wish,
                  const struct planner_rank *usual, struct planner_rank *out, struct err *err);

#endif
