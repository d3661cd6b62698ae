/* ledger - see ledger.h. */
#include "worker/ledger.h"

#include <time.h>

uint64_t ledger_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void ledger_add_span(struct ledger *g, uint64_t batch_id, uint32_t rows, uint64_t begin_ns, uint64_t end_ns)
{
    g->spans[g->batches % MESSAGE_SPANS_MAX] =
        (struct msg_span){.batch_id = batch_id, .begin_ns = begin_ns, .end_ns = end_ns};
    g->batches++;
    g->rows += rows;
    g->compute_ns += end_ns - begin_ns;
}
