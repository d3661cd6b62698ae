/* trace_file - the timeline of a line as a Chrome trace (--trace), for Perfetto, chrome://tracing
 * and cluster/plot-trace.
 *
 * The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (JSON
 * object format), one event a line, so that line tools can read it. One process a rank; complete
 * events whose category is the column of the ledger (compute, wait, send, control), or layer; and
 * for each hop of each batch a flow from the sender's "send" to the receiver's "read". All instants
 * are of the coordinator's clock; otherData.ranks has how far each rank's clock was off, and how
 * well that is known.
 * Station before: line_session (a line that has stopped), line/journal. Station after: a file. */
#ifndef TANDEM_COORDINATOR_FRONT_TRACE_FILE_H
#define TANDEM_COORDINATOR_FRONT_TRACE_FILE_H

#include "coordinator/line/line.h"

#include <stdio.h>

/* trace_file_open() - before the work, so that a name that cannot be written is told at once.
 * ERR_FILE. */
int trace_file_open(FILE **out, const char *path, struct err *err);

/* trace_file_write() - all that the line's journal has; closes file in any case. n_layer: of the
 * model. ERR_FILE, ERR_MEMORY. */
int trace_file_write(FILE *file, const char *path, const struct line *ln, uint32_t n_layer,
                     struct err *err);

#endif
