/* clock - the one clock that everything is timed by: monotonic, of this host, in nanoseconds.
 *
 * Instants of two hosts are compared through clock_pair only. */
#ifndef TANDEM_ENGINE_CLOCK_H
#define TANDEM_ENGINE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

#endif
