/* test_fmath - our own exp, log, sin, cos, tanh and pow against the long double C library. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../splitmix.h"
#include "engine/fmath.h"
#include "engine/fmath_core.h"

enum { DRAWS = 200000 };

static uint64_t random_state = 12345;

static double random_between(double low, double high)
{
    return low + (high - low) * splitmix_unit(&random_state);
}

/* How many units in the last place of want lie between got and want. */
static double ulps(double got, long double want)
{
    double near = (double)want;
    if (got == near) return 0;
    if (isinf(near) || isnan(near) || isnan(got)) return HUGE_VAL;
    double size = fabs(near);
    double ulp = nextafter(size, HUGE_VAL) - size;
    return (double)(fabsl((long double)got - want) / ulp);
}

struct case_of_function {
    const char *name;
    double (*ours)(double);
    long double (*theirs)(long double);
    double low, high; /* random arguments */
    double ulps_max;  /* 0: use absolute_max */
    double absolute_max;
};

static const struct case_of_function cases[] = {
    {"exp", fmath_exp, expl, -1, 1, 1, 0},
    {"exp", fmath_exp, expl, -30, 30, 1, 0},
    {"exp", fmath_exp, expl, -708, 709.7, 1, 0},
    {"exp, subnormal results", fmath_exp, expl, -745, -708, 1, 0},
    {"log", fmath_log, logl, 0.5, 2, 1, 0},
    {"log", fmath_log, logl, 0.999, 1.001, 1, 0},
    {"log", fmath_log, logl, 0, 1e6, 1, 0},
    {"log", fmath_log, logl, 0, 1e300, 1, 0},
    {"log, subnormal arguments", fmath_log, logl, 0, 2e-308, 1, 0},
    {"sin", fmath_sin, sinl, -4, 4, 0, 1e-15},
    {"sin", fmath_sin, sinl, -1e6, 1e6, 0, 1e-15},
    {"cos", fmath_cos, cosl, -4, 4, 0, 1e-15},
    {"cos", fmath_cos, cosl, -1e6, 1e6, 0, 1e-15},
    {"tanh", fmath_tanh, tanhl, -1, 1, 3, 0},
    {"tanh", fmath_tanh, tanhl, -25, 25, 3, 0},
    {"tanh, small", fmath_tanh, tanhl, -1e-3, 1e-3, 3, 0},
};

static void every_function_is_as_accurate_as_its_contract(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct case_of_function *c = &cases[i];
        double worst = 0;
        for (int n = 0; n < DRAWS; n++) {
            double x = random_between(c->low, c->high);
            double error = c->ulps_max > 0 ? ulps(c->ours(x), c->theirs(x))
                                           : (double)fabsl(c->ours(x) - c->theirs(x));
            if (error > worst) worst = error;
        }
        double limit = c->ulps_max > 0 ? c->ulps_max : c->absolute_max;
        print_message("%-26s [%g, %g]: worst %.3g, limit %g\n", c->name, c->low, c->high, worst,
                      limit);
        assert_true(worst <= limit);
    }
}

static void arguments_near_multiples_of_half_pi_reduce_well(void **state)
{
    (void)state;
    for (int k = 1; k < 636619; k += 7) {
        double x = (double)(k * 1.57079632679489661923L);
        assert_true(fabsl(fmath_sin(x) - sinl(x)) <= 1e-15L);
        assert_true(fabsl(fmath_cos(x) - cosl(x)) <= 1e-15L);
    }
}

static void edges_are_as_the_contract_says(void **state)
{
    (void)state;
    assert_true(fmath_exp(0) == 1 && fmath_exp(-0.0) == 1);
    assert_true(fmath_exp(-745.3) == 0 && fmath_exp(-HUGE_VAL) == 0 && fmath_exp(-1e300) == 0);
    assert_true(fmath_exp(709.9) == HUGE_VAL && fmath_exp(HUGE_VAL) == HUGE_VAL);
    assert_true(isfinite(fmath_exp(709.78)) && fmath_exp(-745.1) > 0);
    assert_true(isnan(fmath_exp(NAN)) && isnan(fmath_log(NAN)) && isnan(fmath_tanh(NAN)));
    assert_true(fmath_log(1) == 0);
    assert_true(fmath_log(0) == -HUGE_VAL && fmath_log(-0.0) == -HUGE_VAL);
    assert_true(isnan(fmath_log(-1)) && isnan(fmath_log(-HUGE_VAL)));
    assert_true(fmath_log(HUGE_VAL) == HUGE_VAL);
    assert_true(ulps(fmath_log(DBL_TRUE_MIN), logl(DBL_TRUE_MIN)) <= 1);
    assert_true(ulps(fmath_log(DBL_MAX), logl(DBL_MAX)) <= 1);
    assert_true(fmath_sin(0) == 0 && fmath_cos(0) == 1);
    assert_true(fmath_tanh(0) == 0 && fmath_tanh(1e-300) == 1e-300);
    assert_true(fmath_tanh(HUGE_VAL) == 1 && fmath_tanh(-HUGE_VAL) == -1 && fmath_tanh(-30) == -1);
    assert_true(fmath_tanh(-0.5) == -fmath_tanh(0.5));
}

static void pow_is_accurate_over_the_bases_of_rope(void **state)
{
    (void)state;
    static const double bases[] = {1e4, 5e5, 1e6, 1.5, 0.25};
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        for (int n = 0; n <= 128; n++) {
            double exponent = -n / 64.0;
            long double want = powl(bases[i], exponent);
            assert_true(fabsl(fmath_pow(bases[i], exponent) - want) <= 1e-14L * want);
        }
    }
    assert_true(fmath_pow(10000, 0) == 1);
}

static void the_inline_exponential_has_the_same_bits(void **state)
{
    (void)state;
    for (int n = 0; n < DRAWS; n++) {
        double x = random_between(-708, 709);
        assert_true(fmath_exp_inline(x) == fmath_exp(x));
    }
    assert_true(fmath_exp_inline(-HUGE_VAL) < 1e-300);
    assert_true(fmath_exp_inline(0) == 1);
}

/* A change of compiler, of CPU or of its flags must not move a bit: this digest is fixed. */
static void bits_are_the_same_on_every_machine(void **state)
{
    (void)state;
    uint64_t digest = 0;
    random_state = 1;
    for (int n = 0; n < 20000; n++) {
        double x = random_between(-50, 50);
        double values[] = {fmath_exp(x), fmath_log(x + 51), fmath_sin(x), fmath_cos(x),
                           fmath_tanh(x / 10)};
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            digest = (digest ^ fmath_bits(values[i])) * 0x100000001b3u;
        }
    }
    assert_true(digest == 0xcbb645adb1d1d127u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_as_accurate_as_its_contract),
        cmocka_unit_test(arguments_near_multiples_of_half_pi_reduce_well),
        cmocka_unit_test(edges_are_as_the_contract_says),
        cmocka_unit_test(pow_is_accurate_over_the_bases_of_rope),
        cmocka_unit_test(the_inline_exponential_has_the_same_bits),
        cmocka_unit_test(bits_are_the_same_on_every_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
