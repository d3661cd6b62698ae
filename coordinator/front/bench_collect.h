/* bench_collect - the numbers of a line that ran its tests, as the tables of a bench.
 *
 * Stations before: bench; line and line_stats have the numbers. Station after: bench_report. */
#ifndef TANDEM_COORDINATOR_FRONT_BENCH_COLLECT_H
#define TANDEM_COORDINATOR_FRONT_BENCH_COLLECT_H

#include "coordinator/front/bench_report.h"
#include "coordinator/line/line.h"

/* The batches of a run. */
struct bench_span {
    uint64_t first, last;
};

/* bench_collect_limits() - before the line is stopped: how fast the stages read, and plain messages
 * of the sizes that travelled up to the end of the runs. Fills limits, hops (without latencies) and
 * the runs' limits. spans [n_runs]. What line_read_speeds() returns, or ERR_MEMORY. */
int bench_collect_limits(struct bench_results *r, struct line *ln, const struct model *m,
                         const struct bench_span *spans, struct err *err);

/* bench_collect_times() - after it: stages, the hops' latencies, the runs' bubbles. spans [n_runs].
 * Strings live as long as the line. ERR_MEMORY. */
int bench_collect_times(struct bench_results *r, struct line *ln, const struct bench_span *spans,
                        struct err *err);

/* bench_collect_free() - all tables, the runs too. */
void bench_collect_free(struct bench_results *r);

#endif
