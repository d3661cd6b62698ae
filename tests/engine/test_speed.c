/* test_speed - products are measured in every number format and instruction set, for as little
 * memory as one likes. What comes out is a time, so it is not judged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/kernels/kernels.h"
#include "engine/speed.h"

#include <math.h>

static void every_format_is_measured_on_every_instruction_set(void **state)
{
    (void)state;
    enum isa best;
    struct err err;
    assert_int_equal(isa_detect(&best, &err), ERR_NONE);
    for (enum isa isa = best == ISA_GENERIC ? ISA_GENERIC : ISA_AVX2; isa <= best; isa++) {
        struct kernels k;
        kernels_init(&k, isa);
        /* All kernels are called alike. */
        for (size_t i = 1; i < 6; i += 2) {
            struct plan_speed s = {0};
            const uint32_t threads = 1 + (uint32_t)(i % 3);
            if (speed_measure(&s, k.format[i].format, isa, threads, 40000 * i, NULL, NULL, &err) !=
                ERR_NONE)
                fail_msg("%s", err.text);
            assert_true(isfinite(s.read_bytes_s) && s.read_bytes_s > 0);
            assert_true(isfinite(s.ops_s) && s.ops_s > 0);
            assert_true(isfinite(s.few_ops_s) && s.few_ops_s > 0);
        }
    }
}

static void count(void *ctx)
{
    ++*(unsigned *)ctx;
}

static void progress_is_told_while_it_measures(void **state)
{
    (void)state;
    unsigned calls = 0;
    struct plan_speed s;
    struct err err;
    assert_int_equal(speed_measure(&s, FORMAT_Q8_0, ISA_GENERIC, 1, 1 << 20, count, &calls, &err),
                     ERR_NONE);
    assert_in_range(calls, 2, 1000);
}

static void a_format_without_kernels_is_refused(void **state)
{
    (void)state;
    struct plan_speed s;
    struct err err;
    assert_int_equal(speed_measure(&s, 12345, ISA_GENERIC, 1, 1 << 20, NULL, NULL, &err),
                     ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_is_measured_on_every_instruction_set),
        cmocka_unit_test(progress_is_told_while_it_measures),
        cmocka_unit_test(a_format_without_kernels_is_refused),
    };
    return cmocka_run_group_tests_name("speed", tests, NULL, NULL);
}
