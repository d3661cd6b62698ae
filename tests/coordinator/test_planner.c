/* test_planner - the planner's cut is the best there is, within each rank's memory, and what it
 * says of a line follows from the figures it was given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/line/planner.h"
#include "engine/plan.h"
#include "tests/engine/make_gguf.h"

#include <math.h>

enum { LAYERS_MAX = 8, RANKS_MAX = 4, CASES = 1000 };

struct random_state {
    uint64_t x;
};

static uint64_t draw(struct random_state *r, uint64_t below)
{
    r->x = r->x * 6364136223846793005U + 1442695040888963407U;
    return (r->x >> 33) % below;
}

/* From low to high, evenly on a logarithmic scale. */
static double draw_scale(struct random_state *r, double low, double high)
{
    return low * pow(high / low, (double)draw(r, 1000) / 999);
}

static void make_model(struct make_gguf *file, struct model **m, struct random_state *r)
{
    uint32_t ff[LAYERS_MAX];
    for (int i = 0; i < LAYERS_MAX; i++) ff[i] = 32 * (1 + (uint32_t)draw(r, 40));
    const struct make_llama s = {.n_layer = 1 + (uint32_t)draw(r, LAYERS_MAX),
                                 .n_embd = 64,
                                 .n_head = 4,
                                 .layer_ff = ff,
                                 .n_vocab = 32 + (uint32_t)draw(r, 4000),
                                 .format = draw(r, 2) ? FORMAT_Q8_0 : FORMAT_F16,
                                 .tied = draw(r, 2)};
    struct err err;
    make_llama_begin(file, &s);
    if (model_open(m, make_gguf_write(file), &err) != ERR_NONE) fail_msg("%s", err.text);
}

/* ---- brute force ---- */

struct score {
    uint64_t slowest, sum;
};

struct trial {
    struct planner *p;
    const struct planner_rank *ranks;
    const struct model *m;
    uint32_t n_ranks, n_layer;
    struct score best;
};

/* All ways to go on, when the stage on rank begins at first. */
static void try_all(struct trial *t, uint32_t rank, uint32_t first, struct score so_far)
{
    for (uint32_t end = first + 1; end <= t->n_layer; end++) {
        const struct layer_range range = {first, end};
        const struct footprint f = capacity_need(t->m, range, planner_limits(t->p));
        if (capacity_total(&f) + CAPACITY_PROGRAM_BYTES > t->ranks[rank].may) continue;
        const uint32_t from = end == t->n_layer ? t->n_ranks : rank + 1;
        const uint32_t to = end == t->n_layer ? t->n_ranks + 1 : t->n_ranks;
        for (uint32_t next = from; next < to; next++) {
            const uint64_t cost = planner_cost(t->p, rank, next, range);
            struct score s = {cost > so_far.slowest ? cost : so_far.slowest, so_far.sum + cost};
            if (end < t->n_layer)
                try_all(t, next, end, s);
            else if (s.slowest < t->best.slowest ||
                     (s.slowest == t->best.slowest && s.sum < t->best.sum))
                t->best = s;
        }
    }
}

static struct score best_by_trying(struct trial *t)
{
    t->best = (struct score){UINT64_MAX, UINT64_MAX};
    for (uint32_t rank = 0; rank < t->n_ranks; rank++) try_all(t, rank, 0, (struct score){0, 0});
    return t->best;
}

static struct score score_of(struct planner *p, const struct layer_range *ranges, uint32_t n_ranks,
                             uint32_t n_layer)
{
    struct score s = {0, 0};
    uint32_t at = 0;
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        if (ranges[rank].end == ranges[rank].first) continue;
        uint32_t next = rank + 1;
        while (next < n_ranks && ranges[next].end == ranges[next].first) next++;
        assert_int_equal(ranges[rank].first, at);
        at = ranges[rank].end;
        const uint64_t cost = planner_cost(p, rank, next, ranges[rank]);
        assert_true(cost != PLAN_NEVER);
        s.sum += cost;
        if (cost > s.slowest) s.slowest = cost;
    }
    assert_int_equal(at, n_layer);
    return s;
}

static void draw_ranks(struct random_state *r, const struct model *m,
                       const struct capacity_wish *wish, struct planner_rank *ranks, uint32_t n)
{
    static const char *const hosts[] = {"a", "a", "b", "c"};
    const struct layer_range all = {0, m->hp.n_layer};
    struct capacity_wish one = *wish;
    struct line_limits limits;
    one.n_stages = 1;
    assert_int_equal(capacity_settle(&one, &limits, NULL), ERR_NONE);
    const struct footprint f = capacity_need(m, all, &limits);
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = (struct planner_rank){
            .host = hosts[draw(r, 4)],
            .threads = 1 + (uint32_t)draw(r, 4),
            .cpus = (uint32_t)draw(r, 9),
            .busy = {draw_scale(r, 0.3, 1), draw_scale(r, 0.3, 1)},
            .may = CAPACITY_PROGRAM_BYTES +
                   (uint64_t)((double)capacity_total(&f) * draw_scale(r, 0.2, 3)),
            .speed = {draw_scale(r, 1e8, 1e10), draw_scale(r, 1e9, 1e11), draw_scale(r, 1e9, 1e11)},
            .away = {draw_scale(r, 1, 1000), draw_scale(r, 1e7, 1e10)},
            .local = {draw_scale(r, 0.5, 10), draw_scale(r, 1e9, 1e10)}};
}

static void the_cut_is_the_best_of_all_in_a_thousand_cases(void **state)
{
    (void)state;
    struct random_state r = {2024};
    uint32_t refused = 0, left_out = 0;
    for (int i = 0; i < CASES; i++) {
        struct make_gguf file;
        struct model *m;
        struct planner *p;
        struct err err;
        struct planner_rank ranks[RANKS_MAX];
        struct layer_range ranges[RANKS_MAX];
        make_model(&file, &m, &r);
        const struct capacity_wish wish = {.model = m,
                                           .n_ctx = 32 + (uint32_t)draw(&r, 96),
                                           .n_seqs = 1 + (uint32_t)draw(&r, 20),
                                           .tokens_only = true};
        const uint32_t n = 1 + (uint32_t)draw(&r, RANKS_MAX);
        draw_ranks(&r, m, &wish, ranks, n);
        assert_int_equal(planner_open(&p, &wish, ranks, n, &err), ERR_NONE);
        const int rc = planner_split(p, ranges, &err);
        struct trial t = {.p = p, .ranks = ranks, .m = m, .n_ranks = n, .n_layer = m->hp.n_layer};
        const struct score best = best_by_trying(&t);
        if (rc == ERR_NONE) {
            const struct score s = score_of(p, ranges, n, m->hp.n_layer);
            assert_int_equal(s.slowest, best.slowest);
            assert_int_equal(s.sum, best.sum);
            for (uint32_t k = 0; k < n; k++) left_out += ranges[k].end == ranges[k].first;
        } else {
            assert_int_equal(rc, ERR_CAPACITY);
            assert_true(best.slowest == UINT64_MAX);
            refused++;
        }
        planner_close(p);
        model_close(m);
        make_gguf_end(&file);
    }
    /* The cases are what they are meant to be. */
    assert_in_range(refused, CASES / 20, CASES / 2);
    assert_in_range(left_out, CASES / 20, CASES * 2);
}

/* ---- single facts ---- */

static const struct planner_rank plain = {.host = "a",
                                          .threads = 1,
                                          .may = UINT64_C(1) << 40,
                                          .busy = {1, 1},
                                          .speed = {1e10, 1e12, 0},
                                          .away = {50, 1e8},
                                          .local = {1, 5e9}};

struct made {
    struct make_gguf file;
    struct model *m;
    struct planner_rank ranks[RANKS_MAX];
    struct layer_range ranges[RANKS_MAX];
    struct planner *p;
    struct err err;
};

static void make(struct made *k, const struct make_llama *s)
{
    *k = (struct made){0};
    make_llama_begin(&k->file, s);
    assert_int_equal(model_open(&k->m, make_gguf_write(&k->file), &k->err), ERR_NONE);
    for (int i = 0; i < RANKS_MAX; i++) k->ranks[i] = plain;
}

static int split(struct made *k, uint32_t n_ranks, uint32_t n_seqs)
{
    const struct capacity_wish wish = {
        .model = k->m, .n_ctx = 128, .n_seqs = n_seqs, .tokens_only = true};
    planner_close(k->p);
    assert_int_equal(planner_open(&k->p, &wish, k->ranks, n_ranks, &k->err), ERR_NONE);
    return planner_split(k->p, k->ranges, &k->err);
}

static uint32_t layers_of(const struct made *k, uint32_t rank)
{
    return k->ranges[rank].end - k->ranges[rank].first;
}

static void end(struct made *k)
{
    planner_close(k->p);
    model_close(k->m);
    make_gguf_end(&k->file);
}

static const struct make_llama eight = {
    .n_layer = 8, .n_embd = 512, .n_ff = 2048, .n_head = 8, .n_vocab = 64, .format = FORMAT_Q8_0};

static void a_rank_of_half_the_speed_holds_half_the_layers(void **state)
{
    (void)state;
    struct made k;
    make(&k, &eight);
    k.ranks[1].speed = (struct plan_speed){5e9, 5e11, 0};
    k.ranks[2].speed = (struct plan_speed){5e9, 5e11, 0};
    assert_int_equal(split(&k, 3, 1), ERR_NONE);
    assert_int_equal(layers_of(&k, 0), 4);
    assert_int_equal(layers_of(&k, 1), 2);
    assert_int_equal(layers_of(&k, 2), 2);
    end(&k);
}

static void a_rank_holds_no_more_than_it_may(void **state)
{
    (void)state;
    struct made k;
    make(&k, &eight);
    assert_int_equal(split(&k, 2, 1), ERR_NONE);
    const struct footprint one = planner_need(k.p, (struct layer_range){0, 1});
    k.ranks[0].may = capacity_total(&one) + CAPACITY_PROGRAM_BYTES;
    assert_int_equal(split(&k, 2, 1), ERR_NONE);
    assert_int_equal(layers_of(&k, 0), 1);
    assert_int_equal(layers_of(&k, 1), 7);
    end(&k);
}

static void a_slow_rank_or_a_slow_link_is_left_out(void **state)
{
    (void)state;
    struct made k;
    make(&k, &eight);
    k.ranks[1].speed = (struct plan_speed){1e7, 1e9, 0};
    assert_int_equal(split(&k, 3, 1), ERR_NONE);
    assert_int_equal(layers_of(&k, 1), 0);
    assert_int_equal(layers_of(&k, 0), 4);
    assert_int_equal(layers_of(&k, 2), 4);
    k.ranks[1] = plain;
    k.ranks[1].host = "far";
    k.ranks[1].away.us = 1e6;
    assert_int_equal(split(&k, 3, 1), ERR_NONE);
    assert_int_equal(layers_of(&k, 1), 0);
    end(&k);
}

static void more_ranks_than_layers_leave_some_out(void **state)
{
    (void)state;
    struct make_llama two = eight;
    two.n_layer = 2;
    struct made k;
    make(&k, &two);
    assert_int_equal(split(&k, 4, 1), ERR_NONE);
    assert_int_equal(planner_count_stages(k.p, k.ranges), 2);
    end(&k);
}

static void what_does_not_fit_is_refused_with_a_context_that_does(void **state)
{
    (void)state;
    struct made k;
    make(&k, &eight);
    assert_int_equal(split(&k, 1, 20), ERR_NONE);
    const struct footprint all = planner_need(k.p, (struct layer_range){0, 8});
    k.ranks[0].may = capacity_total(&all) + CAPACITY_PROGRAM_BYTES - all.kv / 2;
    assert_int_equal(split(&k, 1, 20), ERR_CAPACITY);
    unsigned n_ctx = 0;
    const char *hint = strstr(k.err.text, "what fits is --ctx ");
    assert_non_null(hint);
    assert_int_equal(sscanf(hint, "what fits is --ctx %u", &n_ctx), 1);
    assert_in_range(n_ctx, 32, 96);
    uint32_t largest;
    assert_int_equal(planner_largest_context(k.p, &largest, &k.err), ERR_NONE);
    assert_int_equal(largest, n_ctx);
    k.ranks[0].may = 1 << 20;
    assert_int_equal(split(&k, 1, 1), ERR_CAPACITY);
    assert_non_null(strstr(k.err.text, "more hosts"));
    end(&k);
}

static void predictions_follow_from_the_figures(void **state)
{
    (void)state;
    struct made k;
    make(&k, &eight);
    for (int i = 0; i < 2; i++) k.ranks[i].speed = (struct plan_speed){1e9, 1e18, 0};
    assert_int_equal(split(&k, 1, 1), ERR_NONE);
    /* All weights but the embedding, each token: it is as large as the output head. */
    const struct footprint f = planner_need(k.p, (struct layer_range){0, 8});
    const double embedding = (double)model_matrix_bytes(FORMAT_Q8_0, 512, 64);
    const struct planner_decode one = planner_predict_decode(k.p, k.ranges, 1, 0);
    assert_true(fabs(one.tok_s * ((double)f.weights - embedding) / 1e9 - 1) < 0.01);
    assert_true(fabs(one.bubble) < 0.01);
    /* Two stages, one sequence: no faster, and each idle for half of the time. */
    assert_int_equal(split(&k, 2, 1), ERR_NONE);
    const struct planner_decode two = planner_predict_decode(k.p, k.ranges, 1, 0);
    assert_true(fabs(two.tok_s / one.tok_s - 1) < 0.01);
    assert_true(fabs(two.bubble - 0.5) < 0.01);
    /* Sixteen are two batches of eight under way: twice as fast as one batch after the other. */
    assert_int_equal(split(&k, 2, 16), ERR_NONE);
    const struct planner_decode many = planner_predict_decode(k.p, k.ranges, 16, 0);
    assert_true(fabs(many.tok_s / one.tok_s / 16 - 1) < 0.02);
    assert_true(many.bubble < 0.02);
    end(&k);
}

static const struct plan_speed reading = {1e9, 1e18, 0}, computing = {1e18, 1e9, 0};

/* decode_rate() - of so many sequences on as many ranks of one host, with so many CPUs and that
 * share of their speed left. */
static double decode_rate(struct made *k, const struct plan_speed *speed, uint32_t n_ranks,
                          uint32_t cpus, double busy, uint32_t n_seqs)
{
    for (uint32_t i = 0; i < n_ranks; i++) {
        k->ranks[i].speed = *speed;
        k->ranks[i].cpus = cpus;
        k->ranks[i].busy = (struct planner_share){busy, busy};
    }
    assert_int_equal(split(k, n_ranks, n_seqs), ERR_NONE);
    assert_int_equal(planner_count_stages(k->p, k->ranges), n_ranks);
    return planner_predict_decode(k->p, k->ranges, n_seqs, 0).tok_s;
}

static void ranks_of_one_host_share_its_cpus(void **state)
{
    (void)state;
    struct made k;
    make(&k, &eight);
    static const struct {
        uint32_t n_ranks, cpus, n_seqs;
        double reading, computing; /* times as fast as one rank with one sequence */
    } cases[] = {
        {2, 2, 1, 1, 1},   {4, 1, 1, 1, 1},                      /* a sequence is in one place */
        {2, 1, 16, 16, 1}, {4, 1, 16, 16, 1},                    /* one batch of all of them */
        {2, 2, 16, 16, 2}, {4, 2, 16, 16, 2}, {3, 2, 16, 16, 2}, /* two batches of eight */
        {4, 0, 16, 16, 4},                                       /* four batches of four */
    };
    const double read_one = decode_rate(&k, &reading, 1, 1, 1, 1);
    const double compute_one = decode_rate(&k, &computing, 1, 1, 1, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t n = cases[i].n_ranks, cpus = cases[i].cpus, n_seqs = cases[i].n_seqs;
        const double read = decode_rate(&k, &reading, n, cpus, 1, n_seqs) / read_one;
        const double compute = decode_rate(&k, &computing, n, cpus, 1, n_seqs) / compute_one;
        if (fabs(read / cases[i].reading - 1) > 0.05 ||
            fabs(compute / cases[i].computing - 1) > 0.05)
            fail_msg("case %zu: %.2f and %.2f times as fast as one, want %.2f and %.2f", i, read,
                     compute, cases[i].reading, cases[i].computing);
    }
    end(&k);
}

static void ranks_that_slow_one_another_do_so_as_far_as_they_work_together(void **state)
{
    (void)state;
    struct made k;
    make(&k, &eight);
    const double one = decode_rate(&k, &reading, 1, 1, 0.5, 1);
    assert_true(fabs(decode_rate(&k, &reading, 2, 2, 0.5, 1) / one - 1) < 0.05);
    assert_true(fabs(decode_rate(&k, &reading, 2, 2, 0.5, 16) / one / 8 - 1) < 0.05);
    assert_true(fabs(decode_rate(&k, &reading, 3, 1, 0.5, 16) / one / 16 - 1) < 0.05);
    k.ranks[1].host = "b"; /* alone there, and so is the other one */
    k.ranks[1].away = plain.local;
    k.ranks[0].away = plain.local;
    assert_true(fabs(decode_rate(&k, &reading, 2, 1, 0.5, 16) / one / 16 - 1) < 0.05);
    end(&k);
}

static void a_prompt_takes_no_less_than_the_cpus_of_its_host_allow(void **state)
{
    (void)state;
    struct made k;
    make(&k, &eight);
    for (int i = 0; i < RANKS_MAX; i++) k.ranks[i].speed = (struct plan_speed){1e15, 1e9, 0};
    assert_int_equal(split(&k, 1, 1), ERR_NONE);
    const double alone_s = planner_predict_prompt(k.p, k.ranges, 64);
    for (uint32_t cpus = 1; cpus <= RANKS_MAX; cpus++) {
        for (int i = 0; i < RANKS_MAX; i++) k.ranks[i].cpus = cpus;
        assert_int_equal(split(&k, RANKS_MAX, 1), ERR_NONE);
        const double seconds = planner_predict_prompt(k.p, k.ranges, 64);
        assert_true(seconds > 0.99 * alone_s / cpus && seconds < 1.01 * alone_s);
    }
    end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_is_the_best_of_all_in_a_thousand_cases),
        cmocka_unit_test(a_rank_of_half_the_speed_holds_half_the_layers),
        cmocka_unit_test(a_rank_holds_no_more_than_it_may),
        cmocka_unit_test(a_slow_rank_or_a_slow_link_is_left_out),
        cmocka_unit_test(more_ranks_than_layers_leave_some_out),
        cmocka_unit_test(what_does_not_fit_is_refused_with_a_context_that_does),
        cmocka_unit_test(predictions_follow_from_the_figures),
        cmocka_unit_test(ranks_of_one_host_share_its_cpus),
        cmocka_unit_test(ranks_that_slow_one_another_do_so_as_far_as_they_work_together),
        cmocka_unit_test(a_prompt_takes_no_less_than_the_cpus_of_its_host_allow),
    };
    return cmocka_run_group_tests_name("planner", tests, NULL, NULL);
}
