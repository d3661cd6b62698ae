/* fmath - exp, log, sin, cos, tanh and pow of our own; see fmath.h for what they promise.
 *
 * Each function reduces its argument to a short interval by exact steps (Cody and Waite, "Software
 * Manual for the Elementary Functions", 1980), sums the Taylor series there, and undoes the
 * reduction. Constants in hexadecimal are the leading bits of ln 2 and pi / 2 and what is left of
 * them.
 * Station before: whoever needs the same bits everywhere (RoPE, sampling). Station after: none. */
#include "engine/fmath.h"

#include <math.h>

#include "engine/fmath_core.h"

static const double two_over_pi = 0x1.45f306dc9c883p-1;
/* pi / 2 in three parts; the first two have 33 bits, so that k times them is exact for k < 2^20. */
static const double half_pi_1 = 0x1.921fb54400000p+0;
static const double half_pi_2 = 0x1.0b4611a600000p-34;
static const double half_pi_3 = 0x1.3198a2e037073p-69;

static double power_of_two(int k) /* -1022 <= k <= 1023 */
{
    return fmath_from_bits((uint64_t)(1023 + k) << 52);
}

static int low_bits_as_int(uint64_t bits) /* the low 12 bits, signed */
{
    return (int)((bits + 2048) & 4095) - 2048;
}

double fmath_exp(double x)
{
    if (isnan(x)) return x;
    if (x > 709.79) return HUGE_VAL;
    if (x < -745.2) return 0.0;
    uint64_t k_bits;
    double q = fmath_exp_parts(x, &k_bits);
    /* Two factors, because 2^k itself may be out of range where the result is not. */
    int k = low_bits_as_int(k_bits);
    return (1.0 + q) * power_of_two(k / 2) * power_of_two(k - k / 2);
}

/* log(x) = k ln 2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)). With s = f / (2 + f),
 * log(1 + f) = 2 s + s R, R = 2 s^2 (1/3 + s^2 / 5 + ...), and as 2 s = f - s f, it is
 * f - (f^2/2 - s (f^2/2 + R)): the leading term f is exact. */
double fmath_log(double x)
{
    if (isnan(x) || x == HUGE_VAL) return x;
    if (x < 0) return NAN;
    if (x == 0) return -HUGE_VAL;
    int k = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        k = -54;
    }
    uint64_t offset = fmath_bits(x) - fmath_bits(0x1.6a09e667f3bcdp-1);
    int exponent = low_bits_as_int(offset >> 52);
    double f = fmath_from_bits(fmath_bits(x) - ((uint64_t)(int64_t)exponent << 52)) - 1.0;
    double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
    double tail = 2.0 / 23;
    for (int odd = 21; odd >= 3; odd -= 2) tail = 2.0 / odd + z * tail;
    double r = z * tail, kd = k + exponent;
    double correction = s * (half_square + r) + kd * FMATH_LN2_LOW;
    return kd * FMATH_LN2_HIGH - ((half_square - correction) - f);
}

/* reduce_angle() - x = k pi / 2 + r, |r| <= pi / 4; returns r, *quadrant is k. */
static double reduce_angle(double x, uint64_t *quadrant)
{
    double shifted = x * two_over_pi + FMATH_ROUNDER;
    double k = shifted - FMATH_ROUNDER;
    double high = x - k * half_pi_1, middle = k * half_pi_2;
    double r = high - middle;
    double lost = (high - r) - middle;
    *quadrant = fmath_bits(shifted);
    return r + (lost - k * half_pi_3);
}

static double sin_reduced(double r)
{
    double z = r * r, p = 1.0 / 355687428096000.0; /* 17! */
    p = -1.0 / 1307674368000.0 + z * p;
    p = 1.0 / 6227020800.0 + z * p;
    p = -1.0 / 39916800 + z * p;
    p = 1.0 / 362880 + z * p;
    p = -1.0 / 5040 + z * p;
    p = 1.0 / 120 + z * p;
    p = -1.0 / 6 + z * p;
    return r + r * (z * p);
}

static double cos_reduced(double r)
{
    double z = r * r, p = 1.0 / 20922789888000.0; /* 16! */
    p = -1.0 / 87178291200.0 + z * p;
    p = 1.0 / 479001600 + z * p;
    p = -1.0 / 3628800 + z * p;
    p = 1.0 / 40320 + z * p;
    p = -1.0 / 720 + z * p;
    p = 1.0 / 24 + z * p;
    double half = 0.5 * z, w = 1.0 - half;
    return w + ((1.0 - w - half) + z * z * p);
}

/* sin(r + quadrant pi / 2) */
static double sin_of_quadrant(double r, uint64_t quadrant)
{
    double y = quadrant & 1 ? cos_reduced(r) : sin_reduced(r);
    return quadrant & 2 ? -y : y;
}

double fmath_sin(double x)
{
    uint64_t quadrant;
    double r = reduce_angle(x, &quadrant);
    return sin_of_quadrant(r, quadrant);
}

double fmath_cos(double x)
{
    uint64_t quadrant;
    double r = reduce_angle(x, &quadrant);
    return sin_of_quadrant(r, quadrant + 1);
}

/* tanh(x) = t / (t + 2) with t = exp(2x) - 1 = 2^k q + (2^k - 1): no cancellation near 0. */
double fmath_tanh(double x)
{
    if (isnan(x)) return x;
    double size = fabs(x);
    if (size > 20.0) return copysign(1.0, x);
    uint64_t k_bits;
    double q = fmath_exp_parts(2.0 * size, &k_bits);
    double scale = power_of_two(low_bits_as_int(k_bits));
    double t = scale * q + (scale - 1.0);
    return copysign(t / (t + 2.0), x);
}

double fmath_pow(double base, double exponent)
{
    return fmath_exp(exponent * fmath_log(base));
}
