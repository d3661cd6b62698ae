/* stats_report - where the time went (--stats): stages, hops and what a token cost, on standard
 * error.
 *
 * Stations before: line_session, when the line has stopped; line/line_stats has the numbers. */
#ifndef TANDEM_COORDINATOR_FRONT_STATS_REPORT_H
#define TANDEM_COORDINATOR_FRONT_STATS_REPORT_H

#include "coordinator/line/line.h"

/* stats_report_print() - after line_stop() of a line that measured. ERR_MEMORY. */
int stats_report_print(const struct line *ln, struct err *err);

#endif
