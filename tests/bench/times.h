/* times - the clock of the benchmarks, and the order of what they timed. */
#ifndef TANDEM_TESTS_BENCH_TIMES_H
#define TANDEM_TESTS_BENCH_TIMES_H

#include "engine/clock.h"

#include <stdlib.h>

static inline double now_us(void)
{
    return (double)clock_now_ns() * 1e-3;
}

static inline int times_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* times_sort() - ascending. */
static inline void times_sort(double *x, size_t n)
{
    qsort(x, n, sizeof *x, times_compare);
}

#endif
