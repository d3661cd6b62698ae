/* score_select - selects the head of a row of scores; see score_select.h and proto/scores.h.
 *
 * The way of a row: check the need, adjust a copy (or use the row itself), find the extremes, sum
 * the exponentials in the order of ids, then walk the ordered row until a limit of the need is
 * reached. The ordered row is made lazily: one linear pass deals all tokens into buckets of falling
 * score, and a bucket is sorted when the walk arrives there. So a greedy pick sorts nothing, a
 * top-p head sorts a few hundred tokens, and a whole row is never worse than a few linear passes.
 * Station before: engine/stage. Station after: proto/frame. */
#include "worker/score_select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fmath.h"
#include "engine/fmath_core.h"

enum { BUCKETS = 2048, EXP_BLOCK = 256, INSERTION_MAX = 48 };

/* Buckets span at most so many scores (times T above 1) below the best; what is lower shares the
 * last. */
#define SPAN_MAX 64.0f
/* The hair by which a head is longer than asked, so that the sampler's own sums end inside it. */
#define HAIR 1e-6

struct score_selector {
    uint32_t n_vocab;
    float *adjusted;   /* [n_vocab] */
    uint64_t *entries; /* [n_vocab] descending key in the high half, id in the low half */
    uint64_t *spare;   /* [n_vocab] for the radix sort */
    uint32_t starts[BUCKETS + 1];
};

/* One row on its way: the adjusted scores and what the limits are measured by. */
struct row {
    const float *s;
    uint32_t n;
    float max, min;
    double per_t; /* 1 / T */
    double lse;
};

size_t score_selector_bytes(uint32_t n_vocab)
{
    return sizeof(struct score_selector) + (size_t)n_vocab * (sizeof(float) + 2 * sizeof(uint64_t));
}

int score_selector_open(struct score_selector **out, uint32_t n_vocab, struct err *err)
{
    *out = NULL;
    BUG_IF(n_vocab == 0 || n_vocab > INT32_MAX, "score_selector_open: no vocabulary");
    struct score_selector *sel = calloc(1, sizeof *sel);
    CHECK(sel != NULL, err, ERR_MEMORY, "no memory for the score selector");
    sel->n_vocab = n_vocab;
    sel->adjusted = calloc(n_vocab, sizeof *sel->adjusted);
    sel->entries = calloc(n_vocab, sizeof *sel->entries);
    sel->spare = calloc(n_vocab, sizeof *sel->spare);
    if (sel->adjusted == NULL || sel->entries == NULL || sel->spare == NULL) {
        score_selector_close(sel);
        return err_set(err, ERR_MEMORY, "no memory to order %u scores (%zu bytes)", n_vocab,
                       score_selector_bytes(n_vocab));
    }
    *out = sel;
    return ERR_NONE;
}

void score_selector_close(struct score_selector *sel)
{
    if (sel == NULL) return;
    free(sel->adjusted);
    free(sel->entries);
    free(sel->spare);
    free(sel);
}

static int check_need(const struct score_need *need, uint32_t n_vocab, struct err *err)
{
    CHECK(need->temperature > 0 && need->temperature < HUGE_VALF, err, ERR_PEER,
          "a score need has temperature %g, want one above 0", (double)need->temperature);
    CHECK(need->mass >= 0 && need->ratio >= 0, err, ERR_PEER,
          "a score need has mass %g and ratio %g, want none below 0", (double)need->mass,
          (double)need->ratio);
    CHECK(need->n_ids <= n_vocab, err, ERR_PEER,
          "a score need asks for %u ids, the vocabulary has %u", need->n_ids, n_vocab);
    for (uint32_t i = 0; i < need->n_ids; i++) {
        CHECK(need->ids[i] >= 0 && (uint32_t)need->ids[i] < n_vocab, err, ERR_PEER,
              "a score need asks for token %d, the vocabulary has %u", need->ids[i], n_vocab);
    }
    int64_t last = -1;
    for (uint32_t i = 0; i < need->n_adjust; i++) {
        const struct score_adjust *a = &need->adjust[i];
        CHECK(a->id > last && (uint32_t)a->id < n_vocab, err, ERR_PEER,
              "a score need adjusts token %d after %lld, want rising ids below %u", a->id,
              (long long)last, n_vocab);
        CHECK(a->repeat > 0 && a->repeat < HUGE_VALF && a->delta < HUGE_VALF, err, ERR_PEER,
              "a score need adjusts token %d by repeat %g and delta %g", a->id, (double)a->repeat,
              (double)a->delta);
        last = a->id;
    }
    return ERR_NONE;
}

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* An integer that orders as the float does; the integer form lets the passes below vectorise. Its
 * own inverse on the bits. */
static int32_t rising_key(uint32_t bits)
{
    return (int32_t)(bits ^ (-(bits >> 31) & 0x7fffffffu));
}

static float float_of_key(int32_t key)
{
    uint32_t bits = (uint32_t)rising_key((uint32_t)key);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int check_finite(const float *z, uint32_t n, struct err *err)
{
    int32_t worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t size = (int32_t)(float_bits(z[i]) & 0x7fffffffu);
        worst = size > worst ? size : worst;
    }
    if (worst < 0x7f800000) return ERR_NONE;
    uint32_t i = 0;
    while (isfinite(z[i])) i++;
    return err_set(err, ERR_NUMERIC,
                   "the score of token %u is %g: the model's weights or activations are broken", i,
                   (double)z[i]);
}

/* s from z: only the adjusted places differ. */
static int adjust_row(float *s, const float *z, uint32_t n, const struct score_need *need,
                      struct err *err)
{
    memcpy(s, z, n * sizeof *s);
    for (uint32_t i = 0; i < need->n_adjust; i++) {
        const struct score_adjust *a = &need->adjust[i];
        float x = z[a->id];
        x = (x > 0 ? x / a->repeat : x * a->repeat) + a->delta;
        CHECK(x < HUGE_VALF, err, ERR_NUMERIC,
              "the score of token %d is %g after repeat %g and delta %g (%g before)", a->id,
              (double)x, (double)a->repeat, (double)a->delta, (double)z[a->id]);
        s[a->id] = x;
    }
    return ERR_NONE;
}

static void find_extremes(struct row *row)
{
    int32_t max = INT32_MIN, min = INT32_MAX;
    for (uint32_t i = 0; i < row->n; i++) {
        int32_t key = rising_key(float_bits(row->s[i]));
        max = key > max ? key : max;
        min = key < min ? key : min;
    }
    row->max = float_of_key(max);
    row->min = float_of_key(min);
}

/* sum exp((s[i] - max) / T), added in the order of ids; the exponentials of a block come first, so
 * that they vectorise. The sum is between 1 and n. */
static double sum_exponentials(const struct row *row)
{
    double block[EXP_BLOCK], sum = 0, max = row->max, per_t = row->per_t;
    for (uint32_t first = 0; first < row->n; first += EXP_BLOCK) {
        uint32_t n = row->n - first < EXP_BLOCK ? row->n - first : EXP_BLOCK;
        const float *s = row->s + first;
        for (uint32_t i = 0; i < n; i++) block[i] = fmath_exp_inline(((double)s[i] - max) * per_t);
        for (uint32_t i = 0; i < n; i++) sum += block[i];
    }
    return sum;
}

/* deal_entries() - all tokens into buckets of falling score; ids rise within a bucket. */
static void deal_entries(struct score_selector *sel, const struct row *row, float temperature)
{
    float span = fminf(row->max - row->min, SPAN_MAX * fmaxf(temperature, 1.0f));
    float scale = span > 1e-30f ? BUCKETS / span : 0.0f;
    uint32_t *starts = sel->starts;
    memset(starts, 0, sizeof sel->starts);
    for (uint32_t i = 0; i < row->n; i++) {
        float place = fminf((row->max - row->s[i]) * scale, BUCKETS - 1);
        starts[(uint32_t)place + 1]++;
    }
    for (uint32_t b = 0; b < BUCKETS; b++) starts[b + 1] += starts[b];
    for (uint32_t i = 0; i < row->n; i++) {
        float place = fminf((row->max - row->s[i]) * scale, BUCKETS - 1);
        /* Adding 0 makes one zero of two: they are the same score. */
        uint32_t rising = (uint32_t)rising_key(float_bits(row->s[i] + 0.0f)) ^ 0x80000000u;
        sel->entries[starts[(uint32_t)place]++] = (uint64_t)~rising << 32 | i;
    }
    /* Each start has moved to its bucket's end, which is the next one's start. */
    memmove(starts + 1, starts, BUCKETS * sizeof *starts);
    starts[0] = 0;
}

static void sort_by_insertion(uint64_t *a, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint64_t entry = a[i];
        uint32_t at = i;
        for (; at > 0 && a[at - 1] > entry; at--) a[at] = a[at - 1];
        a[at] = entry;
    }
}

/* Least significant byte of the key first; stable, so the ids keep rising among equal scores. Four
 * passes end where they began. */
static void sort_by_radix(uint64_t *a, uint64_t *spare, uint32_t n)
{
    for (uint32_t shift = 32; shift < 64; shift += 8) {
        uint32_t places[257] = {0};
        for (uint32_t i = 0; i < n; i++) places[((a[i] >> shift) & 255) + 1]++;
        for (uint32_t d = 0; d < 256; d++) places[d + 1] += places[d];
        for (uint32_t i = 0; i < n; i++) spare[places[(a[i] >> shift) & 255]++] = a[i];
        uint64_t *swap = a;
        a = spare;
        spare = swap;
    }
}

/* The limits of a need while the head grows. */
struct limits {
    uint32_t count;
    double mass;
    double floor; /* a score below it has a ratio below the wanted one */
    bool weigh;   /* mass is limited: sum it */
    double sum;
};

static struct limits limits_of_need(const struct score_need *need, const struct row *row)
{
    struct limits l = {.count = row->n, .floor = -HUGE_VAL};
    if (need->count > 0 && need->count < row->n) l.count = need->count;
    if (need->mass > 0) {
        l.weigh = true;
        l.mass = (double)need->mass * (1 + HAIR);
    }
    if (need->ratio > 0) {
        l.floor =
            (double)row->max + (double)need->temperature * (fmath_log((double)need->ratio) - HAIR);
    }
    return l;
}

/* Does the head end with this score, the n-th? The first one below the ratio still belongs to it,
 * and shows the sampler that there is no other. */
static bool limit_reached(struct limits *l, const struct row *row, uint32_t n, float s)
{
    if (n >= l->count || (double)s < l->floor) return true;
    if (!l->weigh) return false;
    l->sum += fmath_exp((double)s * row->per_t - row->lse);
    return l->sum >= l->mass;
}

/* walk_row() - append the ordered row to the head until a limit is reached. */
static uint32_t walk_row(struct score_selector *sel, const struct row *row, struct limits *l,
                         int32_t *ids, float *scores)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < BUCKETS; b++) {
        uint64_t *bucket = sel->entries + sel->starts[b];
        uint32_t size = sel->starts[b + 1] - sel->starts[b];
        if (size <= INSERTION_MAX) {
            sort_by_insertion(bucket, size);
        } else {
            sort_by_radix(bucket, sel->spare, size);
        }
        for (uint32_t i = 0; i < size; i++) {
            uint32_t id = (uint32_t)bucket[i];
            ids[n] = (int32_t)id;
            scores[n] = row->s[id];
            n++;
            if (limit_reached(l, row, n, row->s[id])) return n;
        }
    }
    return n;
}

static uint32_t first_best(const struct row *row)
{
    uint32_t i = 0;
    while (row->s[i] != row->max) i++;
    return i;
}

int score_select(struct score_selector *sel, const float *z, const struct score_need *need,
                 const struct score_room *room, struct score_head *head, struct err *err)
{
    struct row row = {.s = z, .n = sel->n_vocab, .per_t = 1.0 / (double)need->temperature};
    TRY(check_need(need, row.n, err));
    TRY(check_finite(z, row.n, err));
    if (need->n_adjust > 0) {
        TRY(adjust_row(sel->adjusted, z, row.n, need, err));
        row.s = sel->adjusted;
    }
    find_extremes(&row);
    CHECK(row.max > -HUGE_VALF, err, ERR_NUMERIC,
          "all %u tokens are banned: take away a logit bias", row.n);
    row.lse = (double)row.max * row.per_t + fmath_log(sum_exponentials(&row));
    CHECK(isfinite(row.lse), err, ERR_NUMERIC,
          "the log-sum-exp of the scores is %g: the best is %g, the temperature %g", row.lse,
          (double)row.max, (double)need->temperature);

    struct limits limits = limits_of_need(need, &row), first = limits;
    room->ids[0] = (int32_t)first_best(&row);
    room->scores[0] = row.max;
    uint32_t n = 1;
    if (!limit_reached(&first, &row, 1, row.max)) {
        deal_entries(sel, &row, need->temperature);
        n = walk_row(sel, &row, &limits, room->ids, room->scores);
    }
    for (uint32_t i = 0; i < need->n_ids; i++) room->id_scores[i] = row.s[need->ids[i]];
    *head = (struct score_head){.lse = row.lse,
                                .whole = n == row.n,
                                .n = n,
                                .ids = room->ids,
                                .scores = room->scores,
                                .n_ids = need->n_ids,
                                .id_scores = room->id_scores,
                                .raw = need->raw ? z : NULL};
    return ERR_NONE;
}
