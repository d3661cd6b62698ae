/* fmath_core - the exponential as an inline function that loops can vectorise.
 *
 * Only +, -, * and integer operations on bits, no branch and no table: a loop over an array gives
 * the same bits whatever the vector width. Private to the files that sum exponentials over long
 * rows; everybody else calls fmath.h.
 *
 * Formula: x = k ln 2 + r with |r| <= ln(2) / 2; exp(x) = 2^k (1 + q), q = exp(r) - 1 by its
 * Taylor series to r^13 / 13!, whose remainder is below 2^-57. ln 2 is split in two, the first part
 * short enough that k times it is exact.
 * Station before: worker/score_select, fmath.c. Station after: none, it is the bottom. */
#ifndef TANDEM_ENGINE_FMATH_CORE_H
#define TANDEM_ENGINE_FMATH_CORE_H

#include <stdint.h>
#include <string.h>

#define FMATH_LOG2_E 0x1.71547652b82fep+0
#define FMATH_LN2_HIGH 0x1.62e42fee00000p-1
#define FMATH_LN2_LOW 0x1.a39ef35793c76p-33
/* Adding and subtracting this rounds |x| < 2^51 to the nearest integer, which meanwhile stands in
 * the low bits of the sum. */
#define FMATH_ROUNDER 0x1.8p52

static inline uint64_t fmath_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double fmath_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* fmath_expm1_reduced() - exp(r) - 1 for |r| <= 0.35. Paired terms keep the chain short. */
static inline double fmath_expm1_reduced(double r)
{
    double r2 = r * r, r4 = r2 * r2;
    double p0 = (1.0 / 2) + r * (1.0 / 6) + r2 * ((1.0 / 24) + r * (1.0 / 120));
    double p1 = (1.0 / 720) + r * (1.0 / 5040) + r2 * ((1.0 / 40320) + r * (1.0 / 362880));
    double p2 = (1.0 / 3628800) + r * (1.0 / 39916800) +
                r2 * ((1.0 / 479001600) + r * (1.0 / 6227020800.0));
    return r + r2 * (p0 + r4 * (p1 + r4 * p2));
}

/* fmath_exp_parts() - q with exp(x) = 2^k (1 + q); the low 12 bits of *k_bits are k in two's
 * complement. |x| <= 746. */
static inline double fmath_exp_parts(double x, uint64_t *k_bits)
{
    double shifted = x * FMATH_LOG2_E + FMATH_ROUNDER;
    double k = shifted - FMATH_ROUNDER;
    double high = x - k * FMATH_LN2_HIGH, low = k * FMATH_LN2_LOW;
    double r = high - low;
    double lost = (high - r) - low;
    *k_bits = fmath_bits(shifted);
    return fmath_expm1_reduced(r) + lost;
}

/* fmath_exp_inline() - fmath_exp(x) to the last bit for -708 <= x <= 709; below (also -infinity),
 * exp(-708), which vanishes in any sum that holds a term near 1. Not for NaN or x > 709. */
static inline double fmath_exp_inline(double x)
{
    uint64_t k_bits;
    double q = fmath_exp_parts(x < -708.0 ? -708.0 : x, &k_bits);
    return fmath_from_bits(fmath_bits(1.0 + q) + (k_bits << 52));
}

#endif
