/* line_report - who did what: a table of the stages and their times, on standard error.
 *
 * Station before: line_session, when the line has stopped. */
#ifndef TANDEM_COORDINATOR_FRONT_LINE_REPORT_H
#define TANDEM_COORDINATOR_FRONT_LINE_REPORT_H

#include "coordinator/line/line.h"

#include <stdbool.h>
#include <stdint.h>

/* The times of one run, from one clock. */
struct line_times {
    uint64_t load_ns;         /* how long loading took */
    uint64_t ready_ns;        /* when the line was ready */
    uint64_t first_token_ns;  /* when the first sequence had its first token; 0: there was none */
    uint64_t prompts_done_ns; /* when the last sequence had its first token; 0: there was none */
    uint64_t done_ns;         /* when the last request was finished */
};

/* line_report_print() - after line_stop(). verbose: waits, messages and counts too. */
void line_report_print(const struct line *ln, const struct line_times *times, bool verbose);

#endif
