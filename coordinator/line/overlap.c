/* overlap - see overlap.h. */
#include "coordinator/line/overlap.h"

#include <string.h>

static bool meets(const struct msg_span *a, const struct line_stage *other)
{
    for (uint32_t i = 0; i < other->report.n_spans; i++) {
        const struct msg_span *b = &other->report.spans[i];
        if (a->batch_id != b->batch_id && a->begin_ns < b->end_ns && b->begin_ns < a->end_ns) return true;
    }
    return false;
}

static bool meets_any(const struct msg_span *a, const struct line_stage *stages, uint32_t n_stages, uint32_t own)
{
    for (uint32_t j = 0; j < n_stages; j++)
        if (j != own && strcmp(stages[j].host, stages[own].host) == 0 && meets(a, &stages[j])) return true;
    return false;
}

uint64_t overlap_count(const struct line_stage *stages, uint32_t n_stages)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < n_stages; i++)
        for (uint32_t k = 0; k < stages[i].report.n_spans; k++)
            count += meets_any(&stages[i].report.spans[k], stages, n_stages, i);
    return count;
}
