/* wire_rows: what arrives is what was sent, as nearly as the format allows, row by row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/wire_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, WIDEST = 100, GUARD = 16 };

static float rows[ROWS * WIDEST], back[ROWS * WIDEST];
static uint8_t wire[ROWS * WIDEST * 4 + GUARD];

static void fill(uint32_t n)
{
    for (uint32_t i = 0; i < ROWS * n; i++)
        rows[i] = ((float)rand() / (float)RAND_MAX - 0.5F) * (i % 7 == 0 ? 1e3F : 1);
}

static void rows_come_back_within_the_formats_step(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= WIDEST; n++)
        for (int format = 0; format < WIRE_FORMAT_COUNT; format++) {
            enum wire_format f = (enum wire_format)format;
            size_t bytes = ROWS * wire_row_bytes(f, n);
            fill(n);
            memset(wire, 0xee, sizeof wire);
            wire_rows_encode(f, rows, ROWS, n, wire);
            for (size_t i = bytes; i < bytes + GUARD; i++) assert_int_equal(wire[i], 0xee);
            wire_rows_decode(f, wire, ROWS, n, back);
            for (uint32_t i = 0; i < ROWS * n; i++) {
                float max = 0, most = 0, x = rows[i];
                uint32_t row = i / n * n, first = row + (i - row) / WIRE_BLOCK * WIRE_BLOCK;
                for (uint32_t k = first; k < first + WIRE_BLOCK && k < row + n; k++)
                    max = fabsf(rows[k]) > max ? fabsf(rows[k]) : max;
                if (f == WIRE_BF16) most = fabsf(x) / 256;
                if (f == WIRE_Q8_0) most = max / 253;
                assert_true(fabsf(back[i] - x) <= most);
            }
        }
}

static void a_row_does_not_feel_its_neighbours(void **state)
{
    (void)state;
    static uint8_t alone[WIDEST * 4];
    for (int format = 0; format < WIRE_FORMAT_COUNT; format++) {
        enum wire_format f = (enum wire_format)format;
        size_t bytes = wire_row_bytes(f, 77);
        fill(77);
        wire_rows_encode(f, rows, ROWS, 77, wire);
        for (size_t r = 0; r < ROWS; r++) {
            wire_rows_encode(f, rows + r * 77, 1, 77, alone);
            assert_memory_equal(alone, wire + r * bytes, bytes);
        }
    }
}

static void what_is_not_finite_stays_so(void **state)
{
    (void)state;
    uint32_t bits = 0x7f800001; /* a NaN whose upper half is infinity's */
    float odd;
    memcpy(&odd, &bits, sizeof odd);
    const float bad[] = {NAN, INFINITY, -INFINITY, odd};
    for (int format = 0; format < WIRE_FORMAT_COUNT; format++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            float x[40] = {1, 2, 3}, y[40];
            x[33] = bad[i];
            wire_rows_encode((enum wire_format)format, x, 1, 40, wire);
            wire_rows_decode((enum wire_format)format, wire, 1, 40, y);
            assert_true(!isfinite(y[33]));
            assert_true(isnan(bad[i]) == 0 || isnan(y[33]) != 0);
            assert_true(fabsf(y[0] - 1) < 0.02F);
        }
}

static void zeros_and_the_smallest_stay_small(void **state)
{
    (void)state;
    const float small[] = {0, 1e-45F, 1e-40F, 1e-38F};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        float x[2] = {small[i], -small[i]}, y[2];
        wire_rows_encode(WIRE_Q8_0, x, 1, 2, wire);
        wire_rows_decode(WIRE_Q8_0, wire, 1, 2, y);
        assert_true(fabsf(y[0]) <= 2 * small[i] && fabsf(y[1]) <= 2 * small[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_within_the_formats_step),
        cmocka_unit_test(a_row_does_not_feel_its_neighbours),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(zeros_and_the_smallest_stay_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
