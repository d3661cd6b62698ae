/* overlap - did the stages work at the same time? Counted from when their forward passes ran.
 *
 * Stages of one host only: their clocks are the same.
 * Station before: journal. Station after: line (counts). */
#ifndef TANDEM_COORDINATOR_LINE_OVERLAP_H
#define TANDEM_COORDINATOR_LINE_OVERLAP_H

#include "coordinator/line/journal.h"
#include "coordinator/line/line.h"

/* overlap_count() - forward passes, of the latest few hundred of each stage, during which another
 * stage of the same host was at work on another batch. */
uint64_t overlap_count(const struct journal *j, const struct line_stage *stages, uint32_t n_stages);

#endif
