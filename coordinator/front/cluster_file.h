/* cluster_file - the description of a cluster: a text that `tandem probe` writes, and people too.
 *
 *   # tandem cluster
 *   node01  ranks=1 threads=8 memory=16GiB read=21.5 gops=900 link=30,1.1 local=1,5
 *
 * One line for each run of ranks on one host, in the order of the line; blanks between the words:
 *   NAME             of the host; * sets what the lines after it need not say
 *   ranks=N          workers there (1)
 *   threads=N        of each (1)
 *   cpus=N           of the host, for all its ranks (as many as their threads)
 *   memory=BYTES     they may use together, as 16GiB, 400M or bytes (no limit)
 *   read=GB/s        of packed weights that go through one of them, one row at a time; needed
 *   gops=N           10^9 operations a second of one of them, many rows at a time; needed
 *   few=N            the same with the first eight rows (as gops)
 *   busy=R,G         what is left of read and gops, 0..1, while as many of them work at the same
 *                    time as the CPUs allow (1,1)
 *   link=US,GB/s     to other hosts: microseconds, and 10^9 bytes a second (50,0.1)
 *   local=US,GB/s    between ranks of this host (2,5)
 * Stations before: the command line, or probe. Station after: line/planner. */
#ifndef TANDEM_COORDINATOR_FRONT_CLUSTER_FILE_H
#define TANDEM_COORDINATOR_FRONT_CLUSTER_FILE_H

#include "coordinator/line/planner.h"

#include <stdio.h>

struct cluster {
    struct planner_rank *ranks; /* [n] a host's memory is shared evenly by its ranks */
    uint32_t n;
    char *text; /* what the hosts' names point to */
};

/* cluster_file_read() - at most ranks_max ranks. On success *out is the caller's: cluster_free().
 * Returns ERR_FILE ("FILE:LINE: what is wrong"), ERR_MEMORY. cluster_file_parse() - the same of a
 * text, which it takes over (malloc'ed, NUL-terminated); path is for errors. */
int cluster_file_read(struct cluster *out, const char *path, uint32_t ranks_max, struct err *err);
int cluster_file_parse(struct cluster *out, char *text, const char *path, uint32_t ranks_max,
                       struct err *err);
void cluster_free(struct cluster *c); /* a zeroed struct is allowed */

/* cluster_file_write() - a line for each run of ranks of one host, which are taken to be as fast as
 * the slowest of them. Whether it could be written is the caller's to ask. */
void cluster_file_write(FILE *out, const struct planner_rank *ranks, uint32_t n);

#endif
