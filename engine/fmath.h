/* fmath - exp, log, sin, cos and tanh of our own, so that every machine gets the same bits.
 *
 * The C library's versions choose code by CPU and differ in the last bits between versions. These
 * use only +, -, *, / and comparisons, compiled with -ffp-contract=off, so the result is a
 * function of the argument alone. Double precision; the vector kernels have float versions of
 * their own beside them. */
#ifndef TANDEM_ENGINE_FMATH_H
#define TANDEM_ENGINE_FMATH_H

double fmath_exp(double x); /* within 1 ulp; 0 below -745.2, infinity above 709.8, NaN for NaN */
double fmath_log(double x); /* within 1 ulp; -infinity for 0, NaN below */
double fmath_sin(double x); /* |x| <= 1e6: within 1e-15 absolute */
double fmath_cos(double x);
double fmath_tanh(double x);                    /* within 3 ulp */
double fmath_pow(double base, double exponent); /* base > 0: exp(exponent * log(base)) */

#endif
