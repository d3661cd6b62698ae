/* splitmix - random numbers for tests: small, and the same everywhere.
 *
 * Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014. */
#ifndef TANDEM_TESTS_SPLITMIX_H
#define TANDEM_TESTS_SPLITMIX_H

#include <math.h>
#include <stdint.h>

/* splitmix_next() - 64 bits; *state begins with any seed. */
static inline uint64_t splitmix_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* splitmix_unit() - 0 <= x < 1. */
static inline double splitmix_unit(uint64_t *state)
{
    return (double)(splitmix_next(state) >> 11) * 0x1p-53;
}

/* splitmix_normal() - of mean 0 and deviation 1 (Box and Muller). */
static inline double splitmix_normal(uint64_t *state)
{
    const double length = sqrt(-2 * log(splitmix_unit(state) + 1e-300));
    return length * cos(6.283185307 * splitmix_unit(state));
}

#endif
