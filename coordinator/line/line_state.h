/* line_state - what the line has to do, in lines of the log: see engine/state_dump.
 *
 * Station before: line, when it is asked. roster says what the workers were heard of. */
#ifndef TANDEM_COORDINATOR_LINE_LINE_STATE_H
#define TANDEM_COORDINATOR_LINE_LINE_STATE_H

#include "coordinator/line/pipeline.h"
#include "coordinator/line/scheduler.h"

/* line_state_log() - the queue: requests by state, batches under way; and each request in
 * the line. */
void line_state_log(struct scheduler *sc, const struct pipeline *p,
                    const struct line_counts *counts);

#endif
