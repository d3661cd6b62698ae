/* test_clock_pair - two clocks are compared as well as the stated error says, and followed when
 * they drift. */
#include "coordinator/line/clock_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t dice = 7;

static uint64_t roll(uint64_t n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (dice >> 33) % n;
}

/* A worker's clock: an offset, and a drift in parts per million. */
struct other_clock {
    int64_t offset_ns;
    double drift_ppm;
};

static uint64_t show(const struct other_clock *c, uint64_t ns)
{
    return ns + (uint64_t)c->offset_ns + (uint64_t)(int64_t)(c->drift_ppm * 1e-6 * (double)ns);
}

/* One round at an instant of the coordinator's clock; the two ways take 1 to 200 us each. */
static struct clock_round ask(const struct other_clock *c, uint64_t now_ns)
{
    uint64_t there = 1000 + roll(200000), back = 1000 + roll(200000);
    return (struct clock_round){now_ns, show(c, now_ns + there), now_ns + there + back};
}

static struct clock_reading read_clock(const struct other_clock *c, uint64_t now_ns, bool same_host)
{
    struct clock_reading reading = {0};
    for (int i = 0; i < 16; i++) {
        struct clock_round round = ask(c, now_ns);
        clock_reading_take(&reading, &round, same_host);
        now_ns = round.heard_ns;
    }
    return reading;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static void an_instant_is_converted_within_the_stated_error(void **state)
{
    (void)state;
    const uint64_t begin = 1000000000000, end = begin + 60000000000;
    for (int round = 0; round < 1000; round++) {
        struct other_clock c = {(int64_t)roll(1u << 30) * 4000000 - (int64_t)begin,
                                (double)roll(100) - 50};
        struct clock_pair p = {read_clock(&c, begin, round % 2), read_clock(&c, end, round % 2)};
        /* Between the readings the error is at most that of either. */
        for (int i = 0; i < 20; i++) {
            uint64_t now = begin + roll(1000) * 60000000;
            assert_true(distance(clock_pair_convert(&p, show(&c, now)), now) <=
                        clock_pair_error_ns(&p) + 2);
        }
    }
}

static void without_a_second_reading_the_first_holds(void **state)
{
    (void)state;
    struct other_clock c = {-123456789, 0};
    struct clock_pair p = {.begin = read_clock(&c, 5000000000, false)};
    assert_true(distance(clock_pair_convert(&p, show(&c, 9000000000)), 9000000000) <=
                clock_pair_error_ns(&p) + 2);
    assert_true(clock_pair_error_ns(&p) < 100000);
}

static void without_any_reading_nothing_changes(void **state)
{
    (void)state;
    struct clock_pair p = {0};
    assert_int_equal(clock_pair_convert(&p, 42), 42);
    assert_int_equal(clock_pair_error_ns(&p), 0);
}

static void the_same_clock_is_exact(void **state)
{
    (void)state;
    struct other_clock same = {0, 0};
    struct clock_pair p = {read_clock(&same, 1000000000, true),
                           read_clock(&same, 2000000000, true)};
    assert_int_equal(clock_pair_error_ns(&p), 0);
    assert_int_equal(clock_pair_convert(&p, 1500000000), 1500000000);
    /* The same name, but another clock: what was measured counts. */
    struct other_clock other = {1000000000, 0};
    struct clock_pair q = {.begin = read_clock(&other, 1000000000, true)};
    assert_true(clock_pair_error_ns(&q) > 0);
    assert_true(distance(clock_pair_convert(&q, show(&other, 1500000000)), 1500000000) <=
                clock_pair_error_ns(&q));
}

static void the_shortest_round_counts(void **state)
{
    (void)state;
    struct clock_reading r = {0};
    clock_reading_take(&r, &(struct clock_round){0, 5000, 9000}, false);
    clock_reading_take(&r, &(struct clock_round){10000, 12000, 12000}, false);
    clock_reading_take(&r, &(struct clock_round){20000, 22500, 26000}, false);
    assert_int_equal(r.offset_ns, 1000);
    assert_int_equal(r.error_ns, 1001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_instant_is_converted_within_the_stated_error),
        cmocka_unit_test(without_a_second_reading_the_first_holds),
        cmocka_unit_test(without_any_reading_nothing_changes),
        cmocka_unit_test(the_same_clock_is_exact),
        cmocka_unit_test(the_shortest_round_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
