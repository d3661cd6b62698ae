/* test_sampler - penalties, filters and draws, against a naive sampler over whole rows; the heads
 * come from worker/score_select, as they do in the line. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../splitmix.h"
#include "coordinator/sample/sampler.h"
#include "worker/score_select.h"

enum { VOCAB_MAX = 2000, DRAWS = 100000 };

static uint64_t random_state = 99;

/* The last stage of the line: a selector and the buffers of its answer. */
struct stage {
    struct score_selector *sel;
    float scores[VOCAB_MAX];
    int32_t ids[VOCAB_MAX];
};

static struct stage stage;

static void open_stage(uint32_t n)
{
    struct err err;
    assert_true(n <= VOCAB_MAX);
    assert_int_equal(score_selector_open(&stage.sel, n, &err), ERR_NONE);
}

static struct score_head answer(const float *z, const struct score_need *need)
{
    struct score_head head;
    struct err err;
    assert_int_equal(score_select(stage.sel, z, need,
                                  &(struct score_room){stage.ids, stage.scores, NULL}, &head, &err),
                     ERR_NONE);
    return head;
}

static struct score_need whole_of(const struct score_need *need)
{
    struct score_need whole = *need;
    whole.count = 0;
    whole.mass = whole.ratio = 0;
    return whole;
}

static struct sampler *open_sampler(const struct sampling *set, uint32_t n_vocab)
{
    struct sampler *sm;
    struct err err;
    assert_int_equal(sampler_open(&sm, set, (int32_t)n_vocab, &err), ERR_NONE);
    return sm;
}

/* pick_in_line() - as the pipeline does: the head, and the whole row where the head is short. */
static int32_t pick_in_line(struct sampler *sm, const float *z, uint64_t position, bool *more)
{
    struct score_need need;
    struct err err;
    int32_t token = -1;
    sampler_need(sm, position, &need);
    struct score_head head = answer(z, &need);
    int rc = sampler_pick(sm, &head, position, &token, &err);
    *more = rc == SAMPLER_MORE;
    if (*more) {
        need = whole_of(&need);
        head = answer(z, &need);
        rc = sampler_pick(sm, &head, position, &token, &err);
    }
    assert_int_equal(rc, ERR_NONE);
    return token;
}

static int32_t pick_from_whole_row(struct sampler *sm, const float *z, uint64_t position)
{
    struct score_need need;
    struct err err;
    int32_t token = -1;
    sampler_need(sm, position, &need);
    need = whole_of(&need);
    struct score_head head = answer(z, &need);
    assert_int_equal(sampler_pick(sm, &head, position, &token, &err), ERR_NONE);
    return token;
}

/* The naive sampler: every filter is a copy, a sort and a renormalisation. */
struct naive {
    uint32_t n;
    struct naive_token {
        int32_t id;
        double p, distance;
    } t[VOCAB_MAX];
};

static int by_probability(const void *a, const void *b)
{
    const struct naive_token *x = a, *y = b;
    if (x->p > y->p) return -1;
    if (x->p < y->p) return 1;
    return x->id - y->id;
}

static int by_distance(const void *a, const void *b)
{
    const struct naive_token *x = a, *y = b;
    if (x->distance < y->distance - 1e-12) return -1;
    if (x->distance > y->distance + 1e-12) return 1;
    return by_probability(a, b);
}

static void naive_renormalise(struct naive *d)
{
    double sum = 0;
    for (uint32_t i = 0; i < d->n; i++) sum += d->t[i].p;
    for (uint32_t i = 0; i < d->n; i++) d->t[i].p /= sum;
}

static void naive_keep_mass(struct naive *d, double mass)
{
    double sum = 0;
    uint32_t kept = 0;
    while (kept < d->n && sum < mass - 1e-12) sum += d->t[kept++].p;
    d->n = kept;
    naive_renormalise(d);
}

static void naive_typical(struct naive *d, double mass)
{
    double entropy = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->t[i].p > 0) entropy -= d->t[i].p * log(d->t[i].p);
    }
    for (uint32_t i = 0; i < d->n; i++) d->t[i].distance = fabs(-log(d->t[i].p) - entropy);
    qsort(d->t, d->n, sizeof d->t[0], by_distance);
    naive_keep_mass(d, mass);
    qsort(d->t, d->n, sizeof d->t[0], by_probability);
}

/* The distribution of the next token; s are the adjusted scores. */
static void naive_distribution(struct naive *d, const float *s, uint32_t n,
                               const struct sampling *set)
{
    d->n = n;
    double max = -HUGE_VAL;
    for (uint32_t i = 0; i < n; i++) max = fmax(max, (double)s[i]);
    for (uint32_t i = 0; i < n; i++) {
        d->t[i] = (struct naive_token){(int32_t)i,
                                       exp(((double)s[i] - max) / (double)set->temperature), 0};
    }
    naive_renormalise(d);
    qsort(d->t, n, sizeof d->t[0], by_probability);
    if (set->top_k > 0 && set->top_k < d->n) d->n = set->top_k;
    naive_renormalise(d);
    if (set->typical_p < 1) naive_typical(d, (double)set->typical_p);
    if (set->top_p < 1) naive_keep_mass(d, (double)set->top_p);
    double least = (double)set->min_p * d->t[0].p - 1e-12;
    while (d->n > 1 && d->t[d->n - 1].p < least) d->n--;
    naive_renormalise(d);
}

static const float fixed_row[] = {1.0f,  3.5f, 2.0f,  3.5f,  0.0f, -1.0f, 2.75f, 3.0f,
                                  -4.0f, 1.5f, -2.5f, -0.5f, 2.0f, 2.0f,  -0.0f, 0.5f};
enum { FIXED_N = sizeof fixed_row / sizeof fixed_row[0] };

struct setting {
    const char *name;
    struct sampling set;
};

#define OFF .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .penalty_last_n = 64
static const struct setting settings[] = {
    {"temperature 1", {OFF, .temperature = 1, .seed = 1}},
    {"temperature 0.5", {OFF, .temperature = 0.5f, .seed = 2}},
    {"temperature 3", {OFF, .temperature = 3, .seed = 3}},
    {"top-k 5", {OFF, .temperature = 1, .top_k = 5, .seed = 4}},
    {"top-k 1", {OFF, .temperature = 1, .top_k = 1, .seed = 5}},
    {"top-k above the vocabulary", {OFF, .temperature = 1, .top_k = 1000, .seed = 6}},
    {"top-p 0.9",
     {.top_p = 0.9f, .typical_p = 1, .repeat_penalty = 1, .temperature = 1, .seed = 7}},
    {"top-p 0.3",
     {.top_p = 0.3f, .typical_p = 1, .repeat_penalty = 1, .temperature = 1, .seed = 8}},
    {"min-p 0.1", {OFF, .temperature = 1, .min_p = 0.1f, .seed = 9}},
    {"min-p 1", {OFF, .temperature = 1, .min_p = 1, .seed = 10}},
    {"typical 0.9",
     {.top_p = 1, .typical_p = 0.9f, .repeat_penalty = 1, .temperature = 1, .seed = 11}},
    {"typical 0.4",
     {.top_p = 1, .typical_p = 0.4f, .repeat_penalty = 1, .temperature = 1, .seed = 12}},
    {"typical 0.2, hot",
     {.top_p = 1, .typical_p = 0.2f, .repeat_penalty = 1, .temperature = 2, .seed = 13}},
    {"top-k, top-p, min-p",
     {.top_p = 0.8f,
      .typical_p = 1,
      .repeat_penalty = 1,
      .temperature = 1.3f,
      .top_k = 9,
      .min_p = 0.2f,
      .seed = 14}},
    {"all of them",
     {.top_p = 0.9f,
      .typical_p = 0.8f,
      .repeat_penalty = 1,
      .temperature = 0.9f,
      .top_k = 10,
      .min_p = 0.1f,
      .seed = 15}},
    {"typical, top-p",
     {.top_p = 0.7f, .typical_p = 0.7f, .repeat_penalty = 1, .temperature = 1, .seed = 16}},
    {"top-p and the most probable reported",
     {.top_p = 0.8f,
      .typical_p = 1,
      .repeat_penalty = 1,
      .temperature = 1,
      .top_probs = 7,
      .seed = 17}},
};

static void frequencies_are_within_five_standard_errors_and_never_outside_the_set(void **state)
{
    (void)state;
    static struct naive d;
    open_stage(FIXED_N);
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
        const struct sampling *set = &settings[k].set;
        double want[FIXED_N] = {0};
        uint32_t seen[FIXED_N] = {0};
        naive_distribution(&d, fixed_row, FIXED_N, set);
        for (uint32_t i = 0; i < d.n; i++) want[d.t[i].id] = d.t[i].p;
        struct sampler *sm = open_sampler(set, FIXED_N);
        bool more;
        for (uint64_t position = 0; position < DRAWS; position++) {
            seen[pick_in_line(sm, fixed_row, position, &more)]++;
        }
        sampler_close(sm);
        double worst = 0;
        for (uint32_t i = 0; i < FIXED_N; i++) {
            if (want[i] <= 0) assert_int_equal(seen[i], 0);
            double error = sqrt(want[i] * (1 - want[i]) / DRAWS);
            double off = fabs((double)seen[i] / DRAWS - want[i]);
            assert_true(off <= 5 * error + 1e-12);
            if (error > 0) worst = fmax(worst, off / error);
        }
        print_message("%-38s %2u kept, worst %.2f standard errors\n", settings[k].name, d.n, worst);
    }
    score_selector_close(stage.sel);
}

/* A size (and limits below) with which no cut falls exactly between equal tokens, where the
 * rounding of a sum would decide. */
enum { ROW_N = 397, ROWS = 6 };

static void fill_rows(float z[ROWS][ROW_N])
{
    for (int i = 0; i < ROW_N; i++) {
        double x = splitmix_normal(&random_state);
        z[0][i] = (float)(3 * x);        /* like a model's */
        z[1][i] = (float)(0.2 * x);      /* nearly flat */
        z[2][i] = (float)floor(2 * x);   /* ties */
        z[3][i] = 1.25f;                 /* nothing but ties */
        z[4][i] = (float)(10 * x);       /* certain */
        z[5][i] = (float)(50 + x * 0.5); /* far from 0 */
    }
}

/* compare_draws() - one setting, every row: the head of the sampler's own need against the whole
 * row. Counts the heads that had to be widened. */
static uint32_t compare_draws(const struct sampling *set, float z[ROWS][ROW_N])
{
    uint32_t widened = 0;
    struct sampler *sm = open_sampler(set, ROW_N);
    for (int row = 0; row < ROWS; row++) {
        for (uint64_t position = 0; position < 8; position++) {
            bool more;
            int32_t token = pick_in_line(sm, z[row], position, &more);
            assert_int_equal(token, pick_from_whole_row(sm, z[row], position));
            widened += more;
            sampler_accept(sm, token);
        }
    }
    sampler_close(sm);
    return widened;
}

static const struct logit_bias combination_bias[] = {{7, -HUGE_VALF}, {9, 3}, {ROW_N - 1, -2}};
enum { COMBINATIONS = 4 * 4 * 3 * 4 * 4 * 2 };

static struct sampling combination(int i)
{
    static const float temperatures[] = {0, 0.3f, 1, 4};
    static const uint32_t top_ks[] = {0, 1, 3, 41};
    static const float typicals[] = {1, 0.9f, 0.3f}, top_ps[] = {1, 0.937f, 0.47f, 0.01f};
    static const float min_ps[] = {0, 0.02f, 0.5f, 1};
    struct sampling set = sampling_default();
    set.seed = (uint64_t)i;
    set.temperature = temperatures[i % 4];
    set.top_k = top_ks[i / 4 % 4];
    set.top_p = top_ps[i / 16 % 4];
    set.min_p = min_ps[i / 64 % 4];
    set.typical_p = typicals[i / 256 % 3];
    if (i / 768) {
        set.repeat_penalty = 1.2f;
        set.presence_penalty = 0.5f;
        set.penalty_last_n = 5;
        set.bias = combination_bias;
        set.n_bias = 3;
    }
    return set;
}

static void heads_give_the_draws_of_whole_rows_for_every_combination(void **state)
{
    (void)state;
    static float z[ROWS][ROW_N];
    open_stage(ROW_N);
    fill_rows(z);
    uint32_t widened = 0;
    for (int i = 0; i < COMBINATIONS; i++) {
        struct sampling set = combination(i);
        widened += compare_draws(&set, z);
    }
    assert_int_equal(widened, 0); /* the need was always enough */
    score_selector_close(stage.sel);
}

/* The same random number, the same token: ties, their lower ids and every cut included. */
static void draws_equal_those_of_the_naive_sampler_for_every_combination(void **state)
{
    (void)state;
    static float z[ROWS][ROW_N];
    static struct naive d;
    open_stage(ROW_N);
    fill_rows(z);
    for (int i = 0; i < COMBINATIONS / 2; i++) {
        struct sampling set = combination(i);
        if (set.temperature <= 0) continue;
        struct sampler *sm = open_sampler(&set, ROW_N);
        for (int row = 0; row < ROWS; row++) {
            naive_distribution(&d, z[row], ROW_N, &set);
            for (uint64_t position = 0; position < 20; position++) {
                double u = sampler_random(set.seed, 0, position), sum = 0;
                uint32_t k = 0;
                while (k + 1 < d.n && (sum += d.t[k].p) <= u) k++;
                bool more;
                assert_int_equal(pick_in_line(sm, z[row], position, &more), d.t[k].id);
            }
        }
        sampler_close(sm);
    }
    score_selector_close(stage.sel);
}

static void reported_probabilities_widen_the_head_and_change_no_draw(void **state)
{
    (void)state;
    static float z[ROWS][ROW_N];
    open_stage(ROW_N);
    fill_rows(z);
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
        struct sampling set = settings[k].set;
        set.top_probs = 0;
        struct sampler *plain = open_sampler(&set, ROW_N);
        set.top_probs = 20;
        struct sampler *reporting = open_sampler(&set, ROW_N);
        for (int row = 0; row < ROWS; row++) {
            for (uint64_t position = 0; position < 40; position++) {
                struct score_need need;
                bool more;
                sampler_need(reporting, position, &need);
                assert_true(answer(z[row], &need).n >= 20);
                assert_int_equal(pick_in_line(plain, z[row], position, &more),
                                 pick_in_line(reporting, z[row], position, &more));
            }
        }
        sampler_close(plain);
        sampler_close(reporting);
    }
    score_selector_close(stage.sel);
}

static void a_head_that_is_too_short_asks_for_more(void **state)
{
    (void)state;
    open_stage(FIXED_N);
    uint32_t asked = 0;
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
        struct sampler *sm = open_sampler(&settings[k].set, FIXED_N);
        for (uint64_t position = 0; position < 50; position++) {
            int32_t want = pick_from_whole_row(sm, fixed_row, position), token = -1;
            for (uint32_t count = 1; count < FIXED_N; count++) {
                struct score_need need;
                struct err err;
                sampler_need(sm, position, &need);
                need = whole_of(&need);
                need.count = count;
                struct score_head head = answer(fixed_row, &need);
                int rc = sampler_pick(sm, &head, position, &token, &err);
                assert_true(rc == SAMPLER_MORE || (rc == ERR_NONE && token == want));
                asked += rc == SAMPLER_MORE;
            }
        }
        sampler_close(sm);
    }
    assert_true(asked > 100);
    score_selector_close(stage.sel);
}

static void greedy_takes_the_best_token_and_the_lower_id_of_equals(void **state)
{
    (void)state;
    open_stage(FIXED_N);
    const float temperatures[] = {0, 1e-6f, 1e-30f};
    for (size_t i = 0; i < 3; i++) {
        struct sampling set = sampling_default();
        set.temperature = temperatures[i];
        struct sampler *sm = open_sampler(&set, FIXED_N);
        struct score_need need;
        bool more;
        sampler_need(sm, 0, &need);
        assert_int_equal(need.count, 1);
        assert_int_equal(pick_in_line(sm, fixed_row, 0, &more), 1);
        sampler_close(sm);
    }
    score_selector_close(stage.sel);
}

static void a_seed_repeats_exactly_and_choices_differ(void **state)
{
    (void)state;
    static int32_t tokens[4][200];
    open_stage(FIXED_N);
    for (int run = 0; run < 4; run++) {
        struct sampling set = sampling_default();
        set.temperature = 1;
        set.seed = run == 3 ? 43 : 42;
        set.choice = run == 2 ? 1 : 0;
        struct sampler *sm = open_sampler(&set, FIXED_N);
        bool more;
        for (int i = 0; i < 200; i++) {
            int at = run == 1 ? 199 - i : i; /* the order of the calls does not matter */
            tokens[run][at] = pick_in_line(sm, fixed_row, (uint64_t)at, &more);
        }
        sampler_close(sm);
    }
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    assert_memory_not_equal(tokens[0], tokens[2], sizeof tokens[0]);
    assert_memory_not_equal(tokens[0], tokens[3], sizeof tokens[0]);
    score_selector_close(stage.sel);
}

static void random_numbers_are_philox_and_uniform(void **state)
{
    (void)state;
    /* The published first words for counter 0 and key 0: 6627e8d5 e169c58d. */
    assert_true(sampler_random(0, 0, 0) == (double)(0xe169c58d6627e8d5u >> 11) * 0x1p-53);
    double sum = 0, squares = 0, product = 0, before = 0.5;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = sampler_random(0xfeedfacecafebeefu, 3, i);
        assert_true(u >= 0 && u < 1);
        sum += u - 0.5;
        squares += (u - 0.5) * (u - 0.5);
        product += (u - 0.5) * (before - 0.5);
        before = u;
    }
    assert_true(fabs(sum / DRAWS) < 5 * sqrt(1.0 / 12 / DRAWS));
    assert_true(fabs(squares / DRAWS - 1.0 / 12) < 5 * sqrt(1.0 / 180 / DRAWS));
    assert_true(fabs(product / DRAWS) < 5 * sqrt(1.0 / 144 / DRAWS));
    assert_true(sampler_random(1, 0, 5) != sampler_random(1, 1, 5));
    assert_true(sampler_random(1, 0, 5) != sampler_random(1ull << 32, 0, 5));
    assert_true(sampler_random(1, 0, 5) != sampler_random(1, 0, 5 + (1ull << 32)));
}

/* The adjusted row, computed from the whole history. */
static void naive_adjust(float *s, const float *z, uint32_t n, const struct sampling *set,
                         const int32_t *history, uint32_t n_history)
{
    uint32_t first = n_history > set->penalty_last_n ? n_history - set->penalty_last_n : 0;
    for (uint32_t id = 0; id < n; id++) {
        uint32_t seen = 0;
        for (uint32_t i = first; i < n_history; i++) seen += history[i] == (int32_t)id;
        float x = z[id];
        if (seen > 0) x = x > 0 ? x / set->repeat_penalty : x * set->repeat_penalty;
        double delta = 0;
        for (uint32_t i = 0; i < set->n_bias; i++) {
            if (set->bias[i].id == (int32_t)id) delta = (double)set->bias[i].bias;
        }
        if (seen > 0) {
            delta -= seen * (double)set->frequency_penalty + (double)set->presence_penalty;
        }
        s[id] = x + (float)delta;
    }
}

static void penalties_and_bias_equal_a_naive_count_of_the_history(void **state)
{
    (void)state;
    enum { N = 30, STEPS = 300 };
    /* One banned, one whose later value counts, one taken back to nothing. */
    const struct logit_bias bias[] = {{29, -HUGE_VALF}, {4, -1}, {11, 5},
                                      {4, 2.5f},        {11, 0}, {0, -1}};
    const uint32_t windows[] = {0, 1, 7, 64, 1000};
    open_stage(N);
    for (size_t w = 0; w < 5 * 2; w++) {
        struct sampling set = sampling_default();
        set.temperature = 1;
        set.penalty_last_n = windows[w / 2];
        set.repeat_penalty = 1.3f;
        set.frequency_penalty = 0.25f;
        set.presence_penalty = -0.5f;
        if (w % 2) {
            set.bias = bias;
            set.n_bias = 6;
        }
        struct sampler *sm = open_sampler(&set, N);
        int32_t history[STEPS];
        for (uint32_t step = 0; step < STEPS; step++) {
            float z[N], want[N];
            for (int i = 0; i < N; i++) z[i] = (float)splitmix_normal(&random_state);
            naive_adjust(want, z, N, &set, history, step);
            struct score_need need;
            sampler_need(sm, step, &need);
            need = whole_of(&need);
            struct score_head head = answer(z, &need);
            for (uint32_t i = 0; i < N; i++) assert_true(head.scores[i] == want[head.ids[i]]);
            history[step] =
                (int32_t)(splitmix_unit(&random_state) * splitmix_unit(&random_state) * N);
            sampler_accept(sm, history[step]);
        }
        sampler_close(sm);
    }
    score_selector_close(stage.sel);
}

static void penalties_that_are_off_adjust_nothing(void **state)
{
    (void)state;
    struct sampling set = sampling_default();
    struct sampler *sm = open_sampler(&set, 10);
    struct score_need need;
    for (int32_t i = 0; i < 10; i++) sampler_accept(sm, i);
    sampler_need(sm, 10, &need);
    assert_int_equal(need.n_adjust, 0);
    sampler_close(sm);
}

static void banned_tokens_are_never_drawn(void **state)
{
    (void)state;
    const struct logit_bias bias[] = {{1, -HUGE_VALF}, {3, -HUGE_VALF}, {6, -HUGE_VALF}};
    open_stage(FIXED_N);
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
        struct sampling set = settings[k].set;
        set.bias = bias;
        set.n_bias = 3;
        struct sampler *sm = open_sampler(&set, FIXED_N);
        bool more;
        for (uint64_t position = 0; position < 500; position++) {
            int32_t token = pick_in_line(sm, fixed_row, position, &more);
            assert_true(token != 1 && token != 3 && token != 6);
        }
        sampler_close(sm);
    }
    score_selector_close(stage.sel);
}

static void broken_answers_are_errors(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 0, 1}, outside[] = {2, 0, 3}, negative[] = {-1, 0, 1};
    static const float good[] = {2, 1, 0}, nan_first[] = {NAN, 1, 0}, nan_later[] = {2, NAN, 0};
    static const float infinite[] = {HUGE_VALF, 1, 0}, banned[] = {2, 1, -HUGE_VALF};
    static const struct {
        double lse;
        uint32_t n;
        const int32_t *ids;
        const float *scores;
        int want;
    } cases[] = {
        {2.4076, 3, ids, good, ERR_NONE},       {2.3133, 3, ids, banned, ERR_NONE},
        {NAN, 3, ids, good, ERR_NUMERIC},       {HUGE_VAL, 3, ids, good, ERR_NUMERIC},
        {-HUGE_VAL, 3, ids, good, ERR_NUMERIC}, {2.4, 3, ids, nan_first, ERR_NUMERIC},
        {2.4, 3, ids, nan_later, ERR_NUMERIC},  {2.4, 3, ids, infinite, ERR_NUMERIC},
        {2.4, 0, ids, good, ERR_PEER},          {2.4, 4, ids, good, ERR_PEER},
        {2.4, 3, outside, good, ERR_PEER},      {2.4, 3, negative, good, ERR_PEER},
    };
    for (int greedy = 0; greedy < 2; greedy++) {
        struct sampling set = sampling_default();
        set.temperature = greedy ? 0 : 1;
        struct sampler *sm = open_sampler(&set, 3);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct score_head head = {.lse = cases[i].lse,
                                      .whole = true,
                                      .n = cases[i].n,
                                      .ids = cases[i].ids,
                                      .scores = cases[i].scores};
            struct err err = {0};
            int32_t token = -1;
            assert_int_equal(sampler_pick(sm, &head, 0, &token, &err), cases[i].want);
            if (cases[i].want == ERR_NONE) {
                assert_in_range(token, 0, 2);
            } else {
                assert_true(err.text[0] != 0);
            }
        }
        sampler_close(sm);
    }
}

static void parameters_out_of_range_are_named(void **state)
{
    (void)state;
    static const struct logit_bias outside[] = {{100, 1}}, negative[] = {{-1, 1}};
    static const struct logit_bias nan_bias[] = {{1, NAN}}, inf_bias[] = {{1, HUGE_VALF}};
#define BASE .top_p = 1, .typical_p = 1, .repeat_penalty = 1
    static const struct setting bad[] = {
        {"temperature", {BASE, .temperature = -0.1f}},
        {"temperature", {BASE, .temperature = NAN}},
        {"temperature", {BASE, .temperature = HUGE_VALF}},
        {"top_p", {.top_p = 0, .typical_p = 1, .repeat_penalty = 1}},
        {"top_p", {.top_p = 1.01f, .typical_p = 1, .repeat_penalty = 1}},
        {"top_p", {.top_p = NAN, .typical_p = 1, .repeat_penalty = 1}},
        {"min_p", {BASE, .min_p = -0.1f}},
        {"min_p", {BASE, .min_p = 1.1f}},
        {"min_p", {BASE, .min_p = NAN}},
        {"typical_p", {.top_p = 1, .typical_p = 0, .repeat_penalty = 1}},
        {"typical_p", {.top_p = 1, .typical_p = NAN, .repeat_penalty = 1}},
        {"typical_p", {.top_p = 1, .typical_p = 2, .repeat_penalty = 1}},
        {"repeat_penalty", {.top_p = 1, .typical_p = 1, .repeat_penalty = 0}},
        {"repeat_penalty", {.top_p = 1, .typical_p = 1, .repeat_penalty = -1}},
        {"repeat_penalty", {.top_p = 1, .typical_p = 1, .repeat_penalty = NAN}},
        {"frequency_penalty", {BASE, .frequency_penalty = NAN}},
        {"frequency_penalty", {BASE, .frequency_penalty = -101}},
        {"presence_penalty", {BASE, .presence_penalty = NAN}},
        {"presence_penalty", {BASE, .presence_penalty = HUGE_VALF}},
        {"penalty_last_n", {BASE, .penalty_last_n = UINT32_MAX}},
        {"top_probs", {BASE, .top_probs = 101}},
        {"token 100", {BASE, .bias = outside, .n_bias = 1}},
        {"token -1", {BASE, .bias = negative, .n_bias = 1}},
        {"token 1 is nan", {BASE, .bias = nan_bias, .n_bias = 1}},
        {"token 1 is inf", {BASE, .bias = inf_bias, .n_bias = 1}},
    };
#undef BASE
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        struct sampler *sm = NULL;
        assert_int_equal(sampling_check(&bad[i].set, 100, &err), ERR_USAGE);
        assert_non_null(strstr(err.text, bad[i].name));
        assert_int_equal(sampler_open(&sm, &bad[i].set, 100, &err), ERR_USAGE);
        assert_null(sm);
    }
    struct sampling good = sampling_default();
    assert_int_equal(sampling_check(&good, 100, NULL), ERR_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_within_five_standard_errors_and_never_outside_the_set),
        cmocka_unit_test(heads_give_the_draws_of_whole_rows_for_every_combination),
        cmocka_unit_test(draws_equal_those_of_the_naive_sampler_for_every_combination),
        cmocka_unit_test(reported_probabilities_widen_the_head_and_change_no_draw),
        cmocka_unit_test(a_head_that_is_too_short_asks_for_more),
        cmocka_unit_test(greedy_takes_the_best_token_and_the_lower_id_of_equals),
        cmocka_unit_test(a_seed_repeats_exactly_and_choices_differ),
        cmocka_unit_test(random_numbers_are_philox_and_uniform),
        cmocka_unit_test(penalties_and_bias_equal_a_naive_count_of_the_history),
        cmocka_unit_test(penalties_that_are_off_adjust_nothing),
        cmocka_unit_test(banned_tokens_are_never_drawn),
        cmocka_unit_test(broken_answers_are_errors),
        cmocka_unit_test(parameters_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
