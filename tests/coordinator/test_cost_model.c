/* test_cost_model - the chunk that follows from what batches cost is close to the best one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/line/cost_model.h"

#include <math.h>

enum { STAGES_HERE = 4 };

/* A line whose stages cost so much. */
struct costs_case {
    const char *name;
    uint32_t n_stages;
    struct cost cost[STAGES_HERE];
};

static const struct costs_case cases[] = {
    {"equal", 2, {{40e6, 1e6, 0}, {40e6, 1e6, 0}}},
    {"the second twice as slow", 2, {{20e6, 0.5e6, 0}, {40e6, 1e6, 0}}},
    {"the first twice as slow", 2, {{40e6, 1e6, 0}, {20e6, 0.5e6, 0}}},
    {"four", 4, {{10e6, 1e6, 0}, {10e6, 1e6, 0}, {10e6, 1e6, 0}, {10e6, 1e6, 0}}},
    {"a large fixed part", 2, {{200e6, 1e6, 0}, {200e6, 1e6, 0}}},
    {"nearly none", 3, {{2e6, 1e6, 0}, {2e6, 1e6, 0}, {2e6, 1e6, 0}}},
    {"attention", 2, {{40e6, 1e6, 500}, {40e6, 1e6, 500}}},
};

static double cost_of(const struct cost *c, uint64_t first, uint64_t rows)
{
    const double seen = (double)rows * ((double)first + (double)rows / 2);
    return c->fixed_ns + c->row_ns * (double)rows + c->seen_ns * seen;
}

/* run_line() - when the last of n rows, in chunks of r, is through: a chunk begins at a stage when
 * the one before it there, and itself at the stage before, are done. */
static double run_line(const struct costs_case *c, uint64_t n, uint64_t r)
{
    double done[STAGES_HERE] = {0};
    for (uint64_t first = 0; first < n; first += r) {
        const uint64_t rows = n - first < r ? n - first : r;
        for (uint32_t i = 0; i < c->n_stages; i++) {
            if (i > 0 && done[i] < done[i - 1]) done[i] = done[i - 1];
            done[i] += cost_of(&c->cost[i], first, rows);
        }
    }
    return done[c->n_stages - 1];
}

static void add_batches(struct cost_model *cm, const struct costs_case *c, uint64_t first,
                        uint32_t rows, int times)
{
    for (int t = 0; t < times; t++)
        for (uint32_t i = 0; i < c->n_stages; i++)
            cost_model_add(cm, i, rows, rows * first + (uint64_t)rows * rows / 2,
                           (uint64_t)cost_of(&c->cost[i], first, rows));
}

static struct cost_model *open_costs(uint32_t n_stages)
{
    struct cost_model *cm;
    struct err err;
    assert_int_equal(cost_model_open(&cm, n_stages, &err), ERR_NONE);
    return cm;
}

static void costs_of_sizes_that_never_came_are_foretold(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct cost_model *cm = open_costs(cases[k].n_stages);
        for (uint32_t rows = 16; rows <= 512; rows *= 2)
            for (uint64_t first = 0; first < 2048; first += 512)
                add_batches(cm, &cases[k], first, rows, 8);
        for (uint32_t i = 0; i < cases[k].n_stages; i++) {
            struct cost got;
            assert_true(cost_model_stage(cm, i, &got));
            for (uint32_t rows = 24; rows <= 400; rows += 94) {
                const double share =
                    cost_of(&got, 700, rows) / cost_of(&cases[k].cost[i], 700, rows);
                if (fabs(share - 1) > 0.03)
                    fail_msg("%s: %u rows are foretold as %.3f of their cost", cases[k].name, rows,
                             share);
            }
        }
        cost_model_close(cm);
    }
}

static void the_chunk_is_within_5_percent_of_the_best(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {128, 512, 2048, 8192};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct cost_model *cm = open_costs(cases[k].n_stages);
        for (int t = 0; t < 8; t++) {
            add_batches(cm, &cases[k], 0, 256, 1);
            add_batches(cm, &cases[k], 256, 64, 1);
            add_batches(cm, &cases[k], 64, 128, 1);
            add_batches(cm, &cases[k], 400, 1, 200); /* text does not hide what prompts cost */
        }
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            const uint64_t n = lengths[l], chunk = cost_model_chunk(cm, n, (double)n / 2);
            double best = INFINITY;
            for (uint64_t r = 1; r <= n; r++) best = fmin(best, run_line(&cases[k], n, r));
            if (run_line(&cases[k], n, chunk) > 1.05 * best)
                fail_msg("%s: %d rows in chunks of %d take %.3f of the best", cases[k].name, (int)n,
                         (int)chunk, run_line(&cases[k], n, chunk) / best);
        }
        cost_model_close(cm);
    }
}

static void without_experience_every_stage_gets_work(void **state)
{
    (void)state;
    for (uint32_t n_stages = 2; n_stages <= STAGES_HERE; n_stages++) {
        struct cost_model *cm = open_costs(n_stages);
        assert_in_range(cost_model_chunk(cm, 2048, 1024), 64, 2048 / n_stages / 2);
        assert_in_range(cost_model_chunk(cm, 10, 5), 1, 10);
        cost_model_close(cm);
    }
}

static void costs_are_told_only_of_stages_that_had_a_batch(void **state)
{
    (void)state;
    struct cost_model *cm = open_costs(2);
    struct cost got;
    cost_model_add(cm, 1, 4, 10, 5000);
    cost_model_add(cm, 0, 4, 10, 0); /* a clock that stands still says nothing */
    assert_false(cost_model_stage(cm, 0, &got));
    assert_true(cost_model_stage(cm, 1, &got));
    assert_true(fabs(got.fixed_ns + 4 * got.row_ns + 10 * got.seen_ns - 5000) < 50);
    cost_model_close(cm);
}

static void prompts_slow_down_text_a_few_times_at_most(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const struct costs_case *c = &cases[k];
        struct cost_model *cm = open_costs(c->n_stages);
        for (uint32_t rows = 16; rows <= 512; rows *= 2) add_batches(cm, c, 500, rows, 8);
        for (uint32_t n_decode = 1; n_decode <= 64; n_decode *= 8) {
            const uint64_t rows = cost_model_beside(cm, n_decode, 750);
            assert_true(rows >= 16);
            for (uint32_t i = 0; i < c->n_stages; i++)
                assert_true(cost_of(&c->cost[i], 500, n_decode + rows) <
                            5 * cost_of(&c->cost[i], 500, n_decode) + 16 * c->cost[i].row_ns);
        }
        cost_model_close(cm);
    }
}

static void one_stage_takes_everything_at_once(void **state)
{
    (void)state;
    struct cost_model *cm = open_costs(1);
    assert_int_equal(cost_model_chunk(cm, 2048, 1024), 2048);
    cost_model_close(cm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_of_sizes_that_never_came_are_foretold),
        cmocka_unit_test(the_chunk_is_within_5_percent_of_the_best),
        cmocka_unit_test(without_experience_every_stage_gets_work),
        cmocka_unit_test(costs_are_told_only_of_stages_that_had_a_batch),
        cmocka_unit_test(prompts_slow_down_text_a_few_times_at_most),
        cmocka_unit_test(one_stage_takes_everything_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
