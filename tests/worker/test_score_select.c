/* test_score_select - the head that the last stage selects, against a full sort. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../splitmix.h"
#include "engine/fmath.h"
#include "worker/score_select.h"

enum { VOCAB_MAX = 3000 };

static uint64_t random_state = 7;

/* Shapes of rows that break orderings: ties, zeros of both signs, far outliers, tiny and large
 * spreads. */
enum shape { NORMAL, TIES, EQUAL, ZEROS, OUTLIERS, NARROW, WIDE, NEGATIVE, SHAPES };

static void fill_row(float *z, uint32_t n, enum shape shape)
{
    for (uint32_t i = 0; i < n; i++) {
        double x = splitmix_normal(&random_state) * 3;
        switch (shape) {
        case TIES:
            x = floor(x);
            break;
        case EQUAL:
            x = 2.5;
            break;
        case ZEROS:
            x = i % 3 == 0 ? -0.0 : i % 3 == 1 ? 0.0 : floor(x / 3);
            break;
        case OUTLIERS:
            x = i % 50 == 1 ? -1e30 : x;
            break;
        case NARROW:
            x = 1000 + x * 1e-3;
            break;
        case WIDE:
            x *= 1e4;
            break;
        case NEGATIVE:
            x -= 40;
            break;
        default:
            break;
        }
        z[i] = (float)x;
    }
}

struct reference {
    float s[VOCAB_MAX];
    int32_t order[VOCAB_MAX];
    double lse;
};

static const float *sorted_scores;

static int compare_order(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sorted_scores[i] > sorted_scores[j]) return -1;
    if (sorted_scores[i] < sorted_scores[j]) return 1;
    return i < j ? -1 : 1;
}

static void make_reference(struct reference *r, const float *z, uint32_t n,
                           const struct score_need *need)
{
    memcpy(r->s, z, n * sizeof *z);
    for (uint32_t i = 0; i < need->n_adjust; i++) {
        const struct score_adjust *a = &need->adjust[i];
        float x = z[a->id];
        r->s[a->id] = (x > 0 ? x / a->repeat : x * a->repeat) + a->delta;
    }
    for (uint32_t i = 0; i < n; i++) r->order[i] = (int32_t)i;
    sorted_scores = r->s;
    qsort(r->order, n, sizeof r->order[0], compare_order);
    long double max = r->s[r->order[0]], sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += expl(((long double)r->s[i] - max) / need->temperature);
    r->lse = (double)(max / need->temperature + logl(sum));
}

struct fixture {
    struct score_selector *sel;
    uint32_t n;
    float z[VOCAB_MAX], scores[VOCAB_MAX], id_scores[VOCAB_MAX];
    int32_t ids[VOCAB_MAX];
    struct reference ref;
    struct err err;
};

static void open_fixture(struct fixture *f, uint32_t n)
{
    f->n = n;
    assert_int_equal(score_selector_open(&f->sel, n, &f->err), ERR_NONE);
}

static int select_row(struct fixture *f, const float *z, const struct score_need *need,
                      struct score_head *head)
{
    const struct score_room room = {f->ids, f->scores, f->id_scores};
    return score_select(f->sel, z, need, &room, head, &f->err);
}

static struct score_head select_head(struct fixture *f, const struct score_need *need)
{
    struct score_head head;
    assert_int_equal(select_row(f, f->z, need, &head), ERR_NONE);
    make_reference(&f->ref, f->z, f->n, need);
    return head;
}

static double share(const struct fixture *f, const struct score_need *need, uint32_t i)
{
    return exp((double)f->ref.s[f->ref.order[i]] / (double)need->temperature - f->ref.lse);
}

/* The head is a prefix of the fully sorted row, and no limit is broken. */
static void check_head(const struct fixture *f, const struct score_need *need,
                       const struct score_head *head)
{
    assert_true(fabs(head->lse - f->ref.lse) <= 1e-14 * (fabs(f->ref.lse) + 10));
    assert_true(head->n >= 1 && head->n <= f->n);
    assert_int_equal(head->whole, head->n == f->n);
    double mass = 0, best = (double)f->ref.s[f->ref.order[0]];
    for (uint32_t i = 0; i < head->n; i++) {
        assert_int_equal(head->ids[i], f->ref.order[i]);
        assert_true(head->scores[i] == f->ref.s[f->ref.order[i]]);
        double before = mass;
        mass += share(f, need, i);
        bool ended = (need->count > 0 && i >= need->count) ||
                     (need->mass > 0 && before > (double)need->mass * (1 + 3e-6)) ||
                     (need->ratio > 0 && i > 0 &&
                      exp(((double)f->ref.s[f->ref.order[i - 1]] - best) /
                          (double)need->temperature) < (double)need->ratio * (1 - 3e-6));
        assert_false(ended);
    }
    if (head->whole) return;
    double next = exp(((double)f->ref.s[f->ref.order[head->n]] - best) / (double)need->temperature);
    bool may_end = (need->count > 0 && head->n == need->count) ||
                   (need->mass > 0 && mass >= (double)need->mass) ||
                   (need->ratio > 0 && next < (double)need->ratio);
    assert_true(may_end);
}

static void heads_are_prefixes_of_the_sorted_row_for_every_limit_and_shape(void **state)
{
    (void)state;
    static struct fixture f;
    static const uint32_t sizes[] = {1, 2, 17, 300, 2999};
    static const struct score_need needs[] = {
        {.temperature = 1},
        {.temperature = 1, .count = 1},
        {.temperature = 0.7f, .count = 40},
        {.temperature = 1, .count = 100000},
        {.temperature = 1, .mass = 1e-7f},
        {.temperature = 1, .mass = 0.5f},
        {.temperature = 1.7f, .mass = 0.95f},
        {.temperature = 1, .mass = 1},
        {.temperature = 1e-5f, .mass = 0.9f},
        {.temperature = 1000, .mass = 0.9f},
        {.temperature = 1, .ratio = 0.05f},
        {.temperature = 0.3f, .ratio = 1},
        {.temperature = 1, .ratio = 2},
        {.temperature = 1, .ratio = 0.01f, .mass = 0.9f},
        {.temperature = 1, .ratio = 0.01f, .mass = 0.9f, .count = 7},
    };
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        open_fixture(&f, sizes[k]);
        for (enum shape shape = 0; shape < SHAPES; shape++) {
            fill_row(f.z, f.n, shape);
            for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
                struct score_head head = select_head(&f, &needs[i]);
                check_head(&f, &needs[i], &head);
            }
        }
        score_selector_close(f.sel);
    }
}

static void adjustments_change_the_answer_and_never_the_row(void **state)
{
    (void)state;
    static struct fixture f;
    static float before[VOCAB_MAX];
    open_fixture(&f, 500);
    for (int round = 0; round < 50; round++) {
        fill_row(f.z, f.n, (enum shape)(round % SHAPES));
        memcpy(before, f.z, sizeof before);
        struct score_adjust adjust[64];
        uint32_t n_adjust = 0;
        for (int32_t id = 0; id < 500 && n_adjust < 64;
             id += 1 + (int32_t)(splitmix_unit(&random_state) * 16)) {
            float delta = splitmix_unit(&random_state) < 0.2
                              ? -HUGE_VALF
                              : (float)splitmix_normal(&random_state);
            adjust[n_adjust++] =
                (struct score_adjust){id, (float)(0.5 + splitmix_unit(&random_state)), delta};
        }
        int32_t wanted[] = {0, 499, 7, 7, adjust[3].id};
        struct score_need need = {.temperature = 0.8f,
                                  .count = round % 2 ? 30 : 0,
                                  .raw = round % 3 == 0,
                                  .adjust = adjust,
                                  .n_adjust = n_adjust,
                                  .ids = wanted,
                                  .n_ids = 5};
        struct score_head head = select_head(&f, &need);
        check_head(&f, &need, &head);
        for (uint32_t i = 0; i < 5; i++) assert_true(head.id_scores[i] == f.ref.s[wanted[i]]);
        assert_memory_equal(before, f.z, sizeof before);
        assert_true(head.raw == (need.raw ? f.z : NULL));
    }
    score_selector_close(f.sel);
}

static void answers_do_not_depend_on_earlier_rows(void **state)
{
    (void)state;
    static struct fixture f;
    static float other[VOCAB_MAX], first_scores[VOCAB_MAX];
    static int32_t first_ids[VOCAB_MAX];
    open_fixture(&f, 1000);
    fill_row(other, f.n, WIDE);
    fill_row(f.z, f.n, TIES);
    struct score_need need = {.temperature = 1, .mass = 0.9f};
    struct score_head first = select_head(&f, &need);
    memcpy(first_ids, first.ids, first.n * sizeof first_ids[0]);
    memcpy(first_scores, first.scores, first.n * sizeof first_scores[0]);
    struct score_head between, again;
    struct score_need all = {.temperature = 2};
    assert_int_equal(select_row(&f, other, &all, &between), ERR_NONE);
    again = select_head(&f, &need);
    assert_true(again.lse == first.lse && again.n == first.n);
    assert_memory_equal(again.ids, first_ids, first.n * sizeof first_ids[0]);
    assert_memory_equal(again.scores, first_scores, first.n * sizeof first_scores[0]);
    score_selector_close(f.sel);
}

/* The definition in proto/scores.h leaves no bit open, whatever vector width did the work. */
static void the_lse_is_the_sum_in_the_order_of_ids_to_the_bit(void **state)
{
    (void)state;
    static struct fixture f;
    open_fixture(&f, 2999);
    fill_row(f.z, f.n, NORMAL);
    struct score_need need = {.temperature = 0.7f, .count = 1};
    struct score_head head = select_head(&f, &need);
    double per_t = 1.0 / (double)need.temperature, max = (double)head.scores[0], sum = 0;
    for (uint32_t i = 0; i < f.n; i++) sum += fmath_exp(((double)f.z[i] - max) * per_t);
    assert_true(head.lse == max * per_t + fmath_log(sum));
    score_selector_close(f.sel);
}

static int select_broken(struct fixture *f, uint32_t at, float value)
{
    struct score_need need = {.temperature = 1, .count = 1};
    struct score_head head;
    float kept = f->z[at];
    f->z[at] = value;
    int rc = select_row(f, f->z, &need, &head);
    f->z[at] = kept;
    return rc;
}

static void a_score_that_is_not_finite_is_named(void **state)
{
    (void)state;
    static struct fixture f;
    open_fixture(&f, 777);
    fill_row(f.z, f.n, NORMAL);
    static const uint32_t places[] = {0, 1, 400, 775, 776};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char token[32];
        snprintf(token, sizeof token, "token %u is", places[i]);
        const float values[] = {NAN, -NAN, HUGE_VALF, -HUGE_VALF};
        for (size_t v = 0; v < 4; v++) {
            assert_int_equal(select_broken(&f, places[i], values[v]), ERR_NUMERIC);
            assert_non_null(strstr(f.err.text, token));
        }
    }
    assert_int_equal(select_broken(&f, 5, 1e38f), ERR_NONE);
    score_selector_close(f.sel);
}

static void a_row_of_banned_tokens_is_an_error(void **state)
{
    (void)state;
    static struct fixture f;
    open_fixture(&f, 3);
    fill_row(f.z, f.n, NORMAL);
    struct score_adjust ban[] = {{0, 1, -HUGE_VALF}, {1, 1, -HUGE_VALF}, {2, 1, -HUGE_VALF}};
    struct score_need need = {.temperature = 1, .adjust = ban, .n_adjust = 2};
    struct score_head head = select_head(&f, &need);
    assert_int_equal(head.ids[0], 2);
    assert_true(head.lse == (double)f.z[2]);
    need.n_adjust = 3;
    assert_int_equal(select_row(&f, f.z, &need, &head), ERR_NUMERIC);
    assert_non_null(strstr(f.err.text, "banned"));
    score_selector_close(f.sel);
}

static void a_need_out_of_range_is_refused(void **state)
{
    (void)state;
    static struct fixture f;
    open_fixture(&f, 10);
    fill_row(f.z, f.n, NORMAL);
    static const struct score_adjust twice[] = {{3, 1, 0}, {3, 1, 0}};
    static const struct score_adjust falling[] = {{3, 1, 0}, {2, 1, 0}};
    static const struct score_adjust outside[] = {{10, 1, 0}}, negative[] = {{-1, 1, 0}};
    static const struct score_adjust zero_repeat[] = {{1, 0, 0}}, nan_repeat[] = {{1, NAN, 0}};
    static const struct score_adjust nan_delta[] = {{1, 1, NAN}}, inf_delta[] = {{1, 1, HUGE_VALF}};
    static const int32_t outside_id[] = {10}, negative_id[] = {-1};
    const struct score_need needs[] = {
        {.temperature = 0},
        {.temperature = -1},
        {.temperature = NAN},
        {.temperature = HUGE_VALF},
        {.temperature = 1, .mass = NAN},
        {.temperature = 1, .mass = -0.5f},
        {.temperature = 1, .ratio = NAN},
        {.temperature = 1, .ratio = -1},
        {.temperature = 1, .adjust = twice, .n_adjust = 2},
        {.temperature = 1, .adjust = falling, .n_adjust = 2},
        {.temperature = 1, .adjust = outside, .n_adjust = 1},
        {.temperature = 1, .adjust = negative, .n_adjust = 1},
        {.temperature = 1, .adjust = zero_repeat, .n_adjust = 1},
        {.temperature = 1, .adjust = nan_repeat, .n_adjust = 1},
        {.temperature = 1, .adjust = nan_delta, .n_adjust = 1},
        {.temperature = 1, .adjust = inf_delta, .n_adjust = 1},
        {.temperature = 1, .ids = outside_id, .n_ids = 1},
        {.temperature = 1, .ids = negative_id, .n_ids = 1},
        {.temperature = 1, .ids = outside_id, .n_ids = 11},
    };
    struct score_head head;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        f.err.text[0] = 0;
        assert_int_equal(select_row(&f, f.z, &needs[i], &head), ERR_PEER);
        assert_int_not_equal(f.err.text[0], 0);
    }
    score_selector_close(f.sel);
}

static void a_large_vocabulary_is_ordered_whole(void **state)
{
    (void)state;
    enum { N = 128256 };
    struct score_selector *sel;
    struct err err;
    float *z = calloc(N, sizeof *z), *scores = calloc(N, sizeof *scores);
    int32_t *ids = calloc(N, sizeof *ids);
    assert_true(z != NULL && scores != NULL && ids != NULL);
    assert_int_equal(score_selector_open(&sel, N, &err), ERR_NONE);
    for (enum shape shape = 0; shape < SHAPES; shape++) {
        fill_row(z, N, shape);
        struct score_need need = {.temperature = 1};
        struct score_head head;
        assert_int_equal(
            score_select(sel, z, &need, &(struct score_room){ids, scores, NULL}, &head, &err),
            ERR_NONE);
        assert_true(head.whole && head.n == N);
        for (uint32_t i = 1; i < N; i++) {
            assert_true(scores[i - 1] > scores[i] ||
                        (!(scores[i - 1] < scores[i]) && ids[i - 1] < ids[i]));
        }
    }
    score_selector_close(sel);
    free(z);
    free(scores);
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_prefixes_of_the_sorted_row_for_every_limit_and_shape),
        cmocka_unit_test(adjustments_change_the_answer_and_never_the_row),
        cmocka_unit_test(answers_do_not_depend_on_earlier_rows),
        cmocka_unit_test(the_lse_is_the_sum_in_the_order_of_ids_to_the_bit),
        cmocka_unit_test(a_score_that_is_not_finite_is_named),
        cmocka_unit_test(a_row_of_banned_tokens_is_an_error),
        cmocka_unit_test(a_need_out_of_range_is_refused),
        cmocka_unit_test(a_large_vocabulary_is_ordered_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
