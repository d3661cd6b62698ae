/* overlap - see overlap.h. */
#include "coordinator/line/overlap.h"

#include <string.h>

enum { BATCHES_MAX = 256 };

/* first_batch() - that counts. */
static uint64_t first_batch(const struct journal *j)
{
    uint64_t first = journal_first(j), last = journal_last(j);
    return last >= first + BATCHES_MAX ? last - BATCHES_MAX + 1 : first;
}

static bool meets(const struct msg_account *a, const struct journal *j, uint32_t other)
{
    for (uint64_t id = first_batch(j); id <= journal_last(j); id++) {
        const struct msg_account *b = journal_account(j, other, id);
        if (b != NULL && id != a->batch_id && a->begin_ns < b->sent_ns && b->begin_ns < a->sent_ns)
            return true;
    }
    return false;
}

static bool meets_any(const struct msg_account *a, const struct journal *j,
                      const struct line_stage *stages, uint32_t n_stages, uint32_t own)
{
    for (uint32_t i = 0; i < n_stages; i++)
        if (i != own && strcmp(stages[i].host, stages[own].host) == 0 && meets(a, j, i))
            return true;
    return false;
}

uint64_t overlap_count(const struct journal *j, const struct line_stage *stages, uint32_t n_stages)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < n_stages; i++)
        for (uint64_t id = first_batch(j); id <= journal_last(j); id++) {
            const struct msg_account *a = journal_account(j, i, id);
            count += a != NULL && meets_any(a, j, stages, n_stages, i);
        }
    return count;
}
