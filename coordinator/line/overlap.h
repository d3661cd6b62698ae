/* overlap - did the stages work at the same time? Counted from the spans of their forward passes.
 *
 * Only spans of one host's clock compare. Station before: roster (reports). Station after: line (counts). */
#ifndef TANDEM_COORDINATOR_LINE_OVERLAP_H
#define TANDEM_COORDINATOR_LINE_OVERLAP_H

#include "coordinator/line/line.h"

/* overlap_count() - forward passes during which another stage of the same host was at work on another batch. */
uint64_t overlap_count(const struct line_stage *stages, uint32_t n_stages);

#endif
