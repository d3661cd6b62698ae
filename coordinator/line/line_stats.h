/* line_stats - where the time of a line went, added up from the journal and the stages' reports.
 *
 * Station before: journal, line (after line_stop()). Stations after: front/line_report, bench. */
#ifndef TANDEM_COORDINATOR_LINE_LINE_STATS_H
#define TANDEM_COORDINATOR_LINE_LINE_STATS_H

#include "coordinator/line/line.h"

/* A stage's columns, in nanoseconds of its own clock; other is what nobody booked. */
struct line_stats_stage {
    const struct line_stage *stage; /* rank, host, layers, threads, bytes */
    uint64_t batches, rows;
    uint64_t wall_ns, compute_ns, wait_ns, send_ns, control_ns, idle_ns, other_ns;
    double occupancy; /* compute / (wall - idle); 0 where it was never at work */
};

/* The way from one station to the next: hop i ends at stage i, the last one at the coordinator
 * (rank 0). A latency counts from the frame being handed to the link until the next station has it,
 * for frames that the next station was waiting for: what lies in a queue is no cost of the hop. */
struct line_stats_hop {
    int from, to; /* ranks */
    uint64_t messages, bytes;
    uint64_t timed; /* messages with a latency; 0: median and p99 are 0 */
    double us_median, us_p99;
    double us_error; /* of the clocks, at most */
};

/* What rows cost on their way: each nanosecond where a batch was, waiting in queues left out. A
 * batch's cost is shared by its rows. */
struct line_stats_cost {
    uint64_t batches, rows;
    double compute_ns, hops_ns, send_ns, control_ns; /* over all stages, all batches */
    double coordinator_ns;                           /* filling the batch, choosing the tokens */
};

struct line_stats {
    uint32_t n_stages;
    struct line_stats_stage *stages; /* [n_stages] */
    struct line_stats_hop *hops;     /* [n_stages + 1] */
    double bubble; /* of the stages' time without idle: the share spent waiting for input */
    struct line_stats_cost prompt; /* batches of prompt rows alone */
    struct line_stats_cost text;   /* batches with rows that decode */
    uint64_t missing; /* batches of the range without a whole record: not kept any more, or lost */
};

/* line_stats_read() - after line_stop() of a line with config.measure. first, last: the batches
 * that count (numbers as in line_counts().batches: a run that began when that was n, and ended when
 * it was m, is n + 1 .. m); 1 and UINT64_MAX for all, which then counts the stages' whole life
 * (REPORT) and not only what is in the records. Returns ERR_MEMORY. line_stats_free() in
 * any case. */
int line_stats_read(struct line_stats *out, const struct line *ln, uint64_t first, uint64_t last,
                    struct err *err);
void line_stats_free(struct line_stats *s);

/* Messages of about one size on one hop; else as in struct line_stats_hop. Numbers in a message's
 * head take more or fewer bytes; sizes that are no further apart count as one. */
struct line_stats_size {
    uint32_t hop;
    int from, to;   /* ranks */
    uint32_t bytes; /* the median: a size that was used */
    uint64_t messages, timed;
    double us_median, us_p99;
};

/* line_stats_read_sizes() - of the batches up to `last` that are kept: hop by hop, the smallest
 * size first; of each hop the LINE_STATS_SIZES_MAX sizes that came most often. Also before
 * line_stop(), then without those batches whose accounts have not come yet. *out is the caller's to
 * free(). Returns ERR_MEMORY. */
enum { LINE_STATS_SIZES_MAX = 16 };
int line_stats_read_sizes(struct line_stats_size **out, uint32_t *n, const struct line *ln,
                          uint64_t last, struct err *err);

#endif
