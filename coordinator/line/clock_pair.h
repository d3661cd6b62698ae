/* clock_pair - a worker's clock beside the coordinator's.
 *
 * Cristian's method: ask, and take the middle between question and answer for the instant that the
 * worker told; of several rounds the shortest counts, and half of it bounds the error. Read at the
 * line's begin and end, so that a clock that runs fast or slow is followed in between. Two
 * processes of one host have the same clock: where their hosts have the same name and the readings
 * do not contradict it, the offset is 0 and exact.
 * Station before: roster (questions and answers). Station after: journal. */
#ifndef TANDEM_COORDINATOR_LINE_CLOCK_PAIR_H
#define TANDEM_COORDINATOR_LINE_CLOCK_PAIR_H

#include <stdbool.h>
#include <stdint.h>

/* One round: the coordinator asked and had the answer by its own clock, the worker told its own. */
struct clock_round {
    uint64_t asked_ns, told_ns, heard_ns;
};

struct clock_reading {
    bool taken;
    uint64_t stage_ns; /* the worker's clock then */
    int64_t offset_ns; /* the worker's clock minus the coordinator's */
    uint64_t error_ns; /* at most */
};

struct clock_pair {
    struct clock_reading begin, end;
};

/* clock_reading_take() - fold a round into a reading: the better of the two stays. */
void clock_reading_take(struct clock_reading *reading, const struct clock_round *round,
                        bool same_host);

/* clock_pair_convert() - an instant of the worker's clock on the coordinator's. */
uint64_t clock_pair_convert(const struct clock_pair *p, uint64_t stage_ns);

/* clock_pair_error_ns() - how far off that may be. */
uint64_t clock_pair_error_ns(const struct clock_pair *p);

#endif
