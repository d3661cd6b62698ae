/* clock_pair - see clock_pair.h. */
#include "coordinator/line/clock_pair.h"

void clock_reading_take(struct clock_reading *reading, const struct clock_round *round,
                        bool same_host)
{
    uint64_t half = (round->heard_ns - round->asked_ns) / 2;
    int64_t offset = (int64_t)(round->told_ns - (round->asked_ns + half));
    uint64_t distance = offset < 0 ? (uint64_t)-offset : (uint64_t)offset;
    /* One nanosecond for the half that the division lost. */
    bool same_clock = same_host && distance <= half + 1;
    uint64_t error = same_clock ? 0 : half + 1;
    if (reading->taken && reading->error_ns <= error) return;
    *reading = (struct clock_reading){.taken = true,
                                      .stage_ns = round->told_ns,
                                      .offset_ns = same_clock ? 0 : offset,
                                      .error_ns = error};
}

uint64_t clock_pair_convert(const struct clock_pair *p, uint64_t stage_ns)
{
    if (!p->begin.taken) return stage_ns;
    double drift = 0;
    if (p->end.taken && p->end.stage_ns > p->begin.stage_ns)
        drift = (double)(p->end.offset_ns - p->begin.offset_ns) *
                (double)(int64_t)(stage_ns - p->begin.stage_ns) /
                (double)(p->end.stage_ns - p->begin.stage_ns);
    return stage_ns - (uint64_t)p->begin.offset_ns - (uint64_t)(int64_t)drift;
}

uint64_t clock_pair_error_ns(const struct clock_pair *p)
{
    return p->end.taken && p->end.error_ns > p->begin.error_ns ? p->end.error_ns
                                                               : p->begin.error_ns;
}
