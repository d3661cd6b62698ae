/* sampler - penalties, filters and the draw of one sequence; see sampler.h for the order.
 *
 * The kept tokens are always a range [first, end) of the ordered row: top-k, top-p and min-p cut
 * its end, typical cuts both sides. A token's weight is exp(s/T - lse), its probability in the
 * whole row; where a filter has cut, the weights are measured against the mass of what is left.
 * Every sum runs in the order of the row, so a head that is long enough gives the same bits as the
 * whole row.
 * Station before: line/pipeline (a score_head). Station after: text/detokenizer. */
#include "coordinator/sample/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fmath.h"

enum {
    PENALTY_LAST_N_MAX = 1 << 20,
    /* With top_probs a limit of mass could end the head too early, so a count replaces it: long
     * enough for nearly every draw, and SAMPLER_MORE serves the rest. */
    HEAD_WITH_PROBS = 256
};

/* Below this temperature s/T leaves double no digits to tell two tokens apart: it is greedy. */
#define TEMPERATURE_MIN 1e-5f
/* The mass asked for exceeds the random number by this, so that rounding cannot end the
 * head first. */
#define MASS_HAIR 1e-6

/* What stands behind adjust[i] of the same index. */
struct reason {
    uint32_t seen; /* times in the window of the penalties */
    float bias;    /* 0: none */
};

struct sampler {
    struct sampling set; /* its bias pointer is not used after open */
    int32_t n_vocab;
    bool greedy;
    struct score_adjust *adjust; /* [capacity], n_adjust in use, ids rising */
    struct reason *reasons;      /* [capacity], parallel */
    uint32_t n_adjust, capacity;
    int32_t *window; /* [window_size]: ring of the last tokens, NULL without penalties */
    uint32_t window_size, window_n, window_at;
};

struct sampling sampling_default(void)
{
    return (struct sampling){.top_p = 1, .typical_p = 1, .repeat_penalty = 1, .penalty_last_n = 64};
}

static bool is_greedy(const struct sampling *s)
{
    return s->temperature < TEMPERATURE_MIN;
}

float sampling_temperature(const struct sampling *s)
{
    return is_greedy(s) ? 1.0f : s->temperature;
}

static int check_range(const char *name, float value, bool within, const char *want,
                       struct err *err)
{
    CHECK(within, err, ERR_USAGE, "%s is %g, want %s", name, (double)value, want);
    return ERR_NONE;
}

int sampling_check(const struct sampling *s, int32_t n_vocab, struct err *err)
{
    TRY(check_range("temperature", s->temperature,
                    s->temperature >= 0 && s->temperature < HUGE_VALF,
                    "0 (greedy) or a number above", err));
    TRY(check_range("top_p", s->top_p, s->top_p > 0 && s->top_p <= 1, "above 0, up to 1 (off)",
                    err));
    TRY(check_range("min_p", s->min_p, s->min_p >= 0 && s->min_p <= 1, "0 (off) to 1", err));
    TRY(check_range("typical_p", s->typical_p, s->typical_p > 0 && s->typical_p <= 1,
                    "above 0, up to 1 (off)", err));
    TRY(check_range("repeat_penalty", s->repeat_penalty,
                    s->repeat_penalty >= 0.01f && s->repeat_penalty <= 100, "0.01 to 100, 1 is off",
                    err));
    TRY(check_range("frequency_penalty", s->frequency_penalty, fabsf(s->frequency_penalty) <= 100,
                    "-100 to 100, 0 is off", err));
    TRY(check_range("presence_penalty", s->presence_penalty, fabsf(s->presence_penalty) <= 100,
                    "-100 to 100, 0 is off", err));
    CHECK(s->penalty_last_n <= PENALTY_LAST_N_MAX, err, ERR_USAGE,
          "penalty_last_n is %u, want at most %d", s->penalty_last_n, PENALTY_LAST_N_MAX);
    CHECK(s->top_probs <= (uint32_t)n_vocab, err, ERR_USAGE,
          "top_probs is %u, the vocabulary has %d tokens", s->top_probs, n_vocab);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        const struct logit_bias *b = &s->bias[i];
        CHECK(b->id >= 0 && b->id < n_vocab, err, ERR_USAGE,
              "a logit bias names token %d, the vocabulary ends at %d", b->id, n_vocab - 1);
        CHECK(b->bias < HUGE_VALF, err, ERR_USAGE,
              "the logit bias of token %d is %g, want a number or -inf", b->id, (double)b->bias);
    }
    return ERR_NONE;
}

static bool penalties_on(const struct sampling *s)
{
    return s->penalty_last_n > 0 && (s->repeat_penalty < 1 || s->repeat_penalty > 1 ||
                                     s->frequency_penalty != 0 || s->presence_penalty != 0);
}

/* find_place() - the index of id in the adjust list, or where it belongs. */
static uint32_t find_place(const struct sampler *sm, int32_t id)
{
    uint32_t low = 0, high = sm->n_adjust;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sm->adjust[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void move_entries(struct sampler *sm, uint32_t to, uint32_t from)
{
    memmove(sm->adjust + to, sm->adjust + from, (sm->n_adjust - from) * sizeof *sm->adjust);
    memmove(sm->reasons + to, sm->reasons + from, (sm->n_adjust - from) * sizeof *sm->reasons);
}

/* change_seen() - id is seen this many times more or less; the list gains or loses its entry. */
static void change_seen(struct sampler *sm, int32_t id, int change)
{
    uint32_t i = find_place(sm, id);
    if (i == sm->n_adjust || sm->adjust[i].id != id) {
        BUG_IF(sm->n_adjust == sm->capacity, "sampler: more adjusted tokens than reserved");
        move_entries(sm, i + 1, i);
        sm->n_adjust++;
        sm->adjust[i].id = id;
        sm->reasons[i] = (struct reason){0};
    }
    struct reason *why = &sm->reasons[i];
    why->seen = (uint32_t)((int64_t)why->seen + change);
    if (why->seen == 0 && why->bias == 0) {
        move_entries(sm, i, i + 1);
        sm->n_adjust--;
        return;
    }
    double penalty = 0;
    if (why->seen > 0) {
        penalty = (double)why->seen * (double)sm->set.frequency_penalty +
                  (double)sm->set.presence_penalty;
    }
    sm->adjust[i].repeat = why->seen > 0 ? sm->set.repeat_penalty : 1.0f;
    sm->adjust[i].delta = (float)((double)why->bias - penalty);
}

static int compare_bias(const void *a, const void *b)
{
    const struct logit_bias *x = *(const struct logit_bias *const *)a;
    const struct logit_bias *y = *(const struct logit_bias *const *)b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* take_bias() - the biases that are not 0, by id; of several for one token the last counts. */
static int take_bias(struct sampler *sm, const struct sampling *s, struct err *err)
{
    if (s->n_bias == 0) return ERR_NONE;
    const struct logit_bias **sorted = calloc(s->n_bias, sizeof(*sorted));
    CHECK(sorted != NULL, err, ERR_MEMORY, "no memory for %u logit biases", s->n_bias);
    for (uint32_t i = 0; i < s->n_bias; i++) sorted[i] = &s->bias[i];
    qsort(sorted, s->n_bias, sizeof(*sorted), compare_bias);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        bool last = i + 1 == s->n_bias || sorted[i + 1]->id != sorted[i]->id;
        if (!last || sorted[i]->bias == 0) continue;
        uint32_t n = sm->n_adjust++;
        sm->adjust[n] = (struct score_adjust){sorted[i]->id, 1, sorted[i]->bias};
        sm->reasons[n] = (struct reason){0, sorted[i]->bias};
    }
    free(sorted);
    return ERR_NONE;
}

static int take_memory(struct sampler *sm, struct err *err)
{
    const struct sampling *s = &sm->set;
    uint32_t n_vocab = (uint32_t)sm->n_vocab;
    sm->window_size = penalties_on(s) ? s->penalty_last_n : 0;
    uint64_t most = (uint64_t)s->n_bias + sm->window_size;
    sm->capacity = most < n_vocab ? (uint32_t)most : n_vocab;
    if (sm->capacity > 0) {
        sm->adjust = calloc(sm->capacity, sizeof *sm->adjust);
        sm->reasons = calloc(sm->capacity, sizeof *sm->reasons);
        CHECK(sm->adjust != NULL && sm->reasons != NULL, err, ERR_MEMORY,
              "no memory for the adjustments of %u tokens", sm->capacity);
    }
    if (sm->window_size > 0) {
        sm->window = calloc(sm->window_size, sizeof *sm->window);
        CHECK(sm->window != NULL, err, ERR_MEMORY, "no memory for the penalties of %u tokens",
              sm->window_size);
    }
    return ERR_NONE;
}

int sampler_open(struct sampler **out, const struct sampling *s, int32_t n_vocab, struct err *err)
{
    *out = NULL;
    BUG_IF(n_vocab <= 0, "sampler_open: no vocabulary");
    TRY(sampling_check(s, n_vocab, err));
    struct sampler *sm = calloc(1, sizeof *sm);
    CHECK(sm != NULL, err, ERR_MEMORY, "no memory for a sampler");
    sm->set = *s;
    sm->n_vocab = n_vocab;
    sm->greedy = is_greedy(s);
    if (sm->set.top_k >= (uint32_t)n_vocab) sm->set.top_k = 0;
    int rc = take_memory(sm, err);
    if (rc == ERR_NONE) rc = take_bias(sm, s, err);
    if (rc != ERR_NONE) {
        sampler_close(sm);
        return rc;
    }
    sm->set.bias = NULL;
    *out = sm;
    return ERR_NONE;
}

void sampler_close(struct sampler *sm)
{
    if (sm == NULL) return;
    free(sm->adjust);
    free(sm->reasons);
    free(sm->window);
    free(sm);
}

void sampler_accept(struct sampler *sm, int32_t token)
{
    BUG_IF(token < 0 || token >= sm->n_vocab, "sampler_accept: no such token");
    if (sm->window_size == 0) return;
    if (sm->window_n == sm->window_size) {
        change_seen(sm, sm->window[sm->window_at], -1);
    } else {
        sm->window_n++;
    }
    change_seen(sm, token, 1);
    sm->window[sm->window_at] = token;
    sm->window_at = (sm->window_at + 1) % sm->window_size;
}

/* Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011): the counter is (position, choice, 0), the key is the seed. */
double sampler_random(uint64_t seed, uint32_t choice, uint64_t position)
{
    uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), choice, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(b >> 32) ^ c1 ^ key[0];
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c3 ^ key[1];
        c[3] = (uint32_t)a;
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    return (double)(((uint64_t)c[1] << 32 | c[0]) >> 11) * 0x1p-53;
}

static double random_of_position(const struct sampler *sm, uint64_t position)
{
    return sampler_random(sm->set.seed, sm->set.choice, position);
}

static uint32_t at_least(uint32_t n, uint32_t least)
{
    return n > least ? n : least;
}

void sampler_need(struct sampler *sm, uint64_t position, struct score_need *need)
{
    const struct sampling *s = &sm->set;
    *need = (struct score_need){
        .temperature = sampling_temperature(s), .adjust = sm->adjust, .n_adjust = sm->n_adjust};
    if (sm->greedy) {
        need->count = at_least(1, s->top_probs);
    } else if (s->top_k > 0) {
        need->count = at_least(s->top_k, s->top_probs);
    } else if (s->typical_p < 1) {
        return; /* the entropy takes the whole row */
    } else if (s->top_probs > 0) {
        need->count = at_least(HEAD_WITH_PROBS, s->top_probs);
    } else if (s->top_p < 1 || s->min_p > 0) {
        need->mass = s->top_p < 1 ? s->top_p : 0;
        need->ratio = s->min_p;
    } else {
        need->mass = (float)(random_of_position(sm, position) + MASS_HAIR);
    }
}

/* The kept range of the ordered row. */
struct kept {
    const struct score_head *head;
    double per_t; /* 1 / T */
    uint32_t first, end;
    double mass; /* of the range; 1 for the whole row, by definition of the lse */
    bool open;   /* the row goes on behind end, unseen */
};

static double weight_of(const struct kept *k, uint32_t i)
{
    return fmath_exp((double)k->head->scores[i] * k->per_t - k->head->lse);
}

static int check_head(const struct sampler *sm, const struct score_head *head, struct err *err)
{
    CHECK(isfinite(head->lse), err, ERR_NUMERIC, "the log-sum-exp of the scores is %g", head->lse);
    CHECK(head->n > 0 && head->n <= (uint32_t)sm->n_vocab, err, ERR_PEER,
          "an answer of %u scores, the vocabulary has %d tokens", head->n, sm->n_vocab);
    CHECK(isfinite(head->scores[0]), err, ERR_NUMERIC, "the best score, of token %d, is %g",
          head->ids[0], (double)head->scores[0]);
    for (uint32_t i = 0; i < head->n; i++) {
        CHECK(head->ids[i] >= 0 && head->ids[i] < sm->n_vocab, err, ERR_PEER,
              "an answer names token %d, the vocabulary ends at %d", head->ids[i], sm->n_vocab - 1);
        CHECK(head->scores[i] < HUGE_VALF, err, ERR_NUMERIC, "the score of token %d is %g",
              head->ids[i], (double)head->scores[i]);
    }
    return ERR_NONE;
}

static int keep_top_k(struct kept *k, uint32_t top_k)
{
    if (top_k == 0) return ERR_NONE;
    if (k->end < top_k) return k->open ? SAMPLER_MORE : ERR_NONE;
    k->end = top_k;
    k->open = false;
    k->mass = 0;
    for (uint32_t i = 0; i < top_k; i++) k->mass += weight_of(k, i);
    return ERR_NONE;
}

/* keep_typical() - Meister, Pimentel, Wiher and Cotterell, "Locally typical sampling", 2022: the
 * tokens whose surprise -log p is nearest to the entropy, nearest first, until their mass reaches
 * typical_p. Surprise rises along the ordered row, so nearest first means outward from the place
 * where it passes the entropy, and what is kept is a range. */
static int keep_typical(struct kept *k, double typical_p)
{
    if (typical_p >= 1) return ERR_NONE;
    if (k->open) return SAMPLER_MORE;
    const float *s = k->head->scores;
    /* Surprise of i: zero - s[i] / T. The log of the range's mass would move it and the entropy
     * alike. */
    double zero = k->head->lse;
    double entropy = 0;
    for (uint32_t i = k->first; i < k->end; i++) {
        double w = weight_of(k, i);
        if (w > 0) entropy += w / k->mass * (zero - (double)s[i] * k->per_t);
    }
    uint32_t left = k->first, right, end = k->end;
    while (left < end && zero - (double)s[left] * k->per_t < entropy) left++;
    right = left;
    double want = typical_p * k->mass, sum = 0;
    while (sum < want && (left > k->first || right < end)) {
        bool go_left = right == end;
        if (!go_left && left > k->first) {
            double below = entropy - (zero - (double)s[left - 1] * k->per_t);
            double above = (zero - (double)s[right] * k->per_t) - entropy;
            go_left = below <= above;
        }
        sum += weight_of(k, go_left ? --left : right++);
    }
    k->first = left;
    k->end = right;
    k->mass = sum;
    return ERR_NONE;
}

/* keep_top_p_min_p() - both cut the end of the range; the nearer cut holds. */
static int keep_top_p_min_p(struct kept *k, double top_p, double min_p)
{
    if (top_p >= 1 && min_p <= 0) return ERR_NONE;
    double least = min_p * weight_of(k, k->first);
    double want = top_p < 1 ? top_p * k->mass : HUGE_VAL;
    double sum = 0;
    uint32_t i = k->first;
    while (i < k->end && sum < want) {
        double w = weight_of(k, i);
        if (i > k->first && w < least) break;
        sum += w;
        i++;
    }
    if (i == k->end && sum < want && k->open) return SAMPLER_MORE;
    k->end = i;
    k->open = false;
    k->mass = sum;
    return ERR_NONE;
}

/* id_at() - the token at place i of the range. Where typical cut into a run of equal scores from
 * the likelier side, the lower ids of that run are the kept ones. */
static int32_t id_at(const struct kept *k, uint32_t i)
{
    const float *s = k->head->scores;
    uint32_t run = k->first;
    while (run > 0 && !(s[run - 1] > s[k->first])) run--;
    if (!(s[i] < s[k->first])) i -= k->first - run;
    return k->head->ids[i];
}

/* draw() - the first token where the running mass passes u times the mass of the range. */
static int draw(const struct kept *k, double u, int32_t *token)
{
    double target = u * k->mass, sum = 0;
    uint32_t last = k->first;
    for (uint32_t i = k->first; i < k->end; i++) {
        double w = weight_of(k, i);
        sum += w;
        if (w > 0) last = i;
        if (sum > target) break;
        if (i + 1 == k->end && k->open) return SAMPLER_MORE;
    }
    *token = id_at(k, last);
    return ERR_NONE;
}

int sampler_pick(struct sampler *sm, const struct score_head *head, uint64_t position,
                 int32_t *token, struct err *err)
{
    const struct sampling *s = &sm->set;
    TRY(check_head(sm, head, err));
    if (sm->greedy) {
        *token = head->ids[0];
        return ERR_NONE;
    }
    struct kept kept = {.head = head,
                        .per_t = 1.0 / (double)s->temperature,
                        .end = head->n,
                        .mass = 1,
                        .open = !head->whole};
    TRY(keep_top_k(&kept, s->top_k));
    TRY(keep_typical(&kept, (double)s->typical_p));
    TRY(keep_top_p_min_p(&kept, (double)s->top_p, (double)s->min_p));
    return draw(&kept, random_of_position(sm, position), token);
}
