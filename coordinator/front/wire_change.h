/* wire_change - what --wire changes: the scores of one prompt through the narrow form, and of the
 * same prompt on the same line with f32 between its stages.
 *
 * Station before: bench. Station after: bench_report. */
#ifndef TANDEM_COORDINATOR_FRONT_WIRE_CHANGE_H
#define TANDEM_COORDINATOR_FRONT_WIRE_CHANGE_H

#include "coordinator/front/bench_report.h"
#include "coordinator/line/line.h"

/* Positions worth comparing. */
enum { WIRE_CHANGE_POSITIONS = 64 };

/* wire_change_measure() - fills out. No request may be in the line, which was opened for wire.
 * prompt [n]: that fits into its context. With one stage, or with f32, there is nothing to compare:
 * no batch is sent. Returns ERR_MEMORY, and what line_next() returns. */
int wire_change_measure(struct bench_wire *out, struct line *ln, const struct model *m,
                        enum wire_format wire, const int32_t *prompt, uint32_t n, struct err *err);

#endif
