/* exp - exp(x) in f32 by range reduction and a Taylor polynomial; the vector kernels compute the
 * same formula.
 *
 *   x = n ln 2 + r, |r| <= ln 2 / 2;  exp(x) = 2^n (1 + r + r^2/2! + ... + r^7/7!)
 *
 * Within 2 ulp. Exactly 0 below -87.3, stays at exp(88.3) above, NaN for NaN. */
#ifndef TANDEM_ENGINE_KERNELS_EXP_H
#define TANDEM_ENGINE_KERNELS_EXP_H

#include <stdint.h>
#include <string.h>

#define EXP_LOWEST -87.3F
#define EXP_HIGHEST 88.3F
#define EXP_LOG2E 0x1.715476p+0F
#define EXP_ROUND 0x1.8p+23F    /* adding and subtracting it rounds to the nearest whole number */
#define EXP_LN2_HIGH 0x1.63p-1F /* few bits, so that n times it is exact */
#define EXP_LN2_LOW -0x1.bd0106p-13F

static inline float exp_f32(float x)
{
    float clamped = x > EXP_HIGHEST ? EXP_HIGHEST : x < EXP_LOWEST ? EXP_LOWEST : x;
    float shifted = clamped * EXP_LOG2E + EXP_ROUND;
    float n = shifted - EXP_ROUND;
    float r = (clamped - n * EXP_LN2_HIGH) - n * EXP_LN2_LOW;
    float p = 1.0F / 5040;
    p = p * r + 1.0F / 720;
    p = p * r + 1.0F / 120;
    p = p * r + 1.0F / 24;
    p = p * r + 1.0F / 6;
    p = p * r + 0.5F;
    p = p * r + 1;
    p = p * r + 1;
    /* The low bits of shifted hold n: moved up, they are added to the exponent of 1. */
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < EXP_LOWEST ? 0 : p * power;
}

/* softcap_f32() - cap tanh(x / cap). */
static inline float softcap_f32(float x, float cap)
{
    return cap * (1 - 2 / (1 + exp_f32(2 * (x / cap))));
}

#endif
