/* rope - see rope.h.
 *
 *   frequency[j] = base^(-2j / n_rot) / factor[j]
 *   linear: frequency[j] / f
 *   YaRN:   frequency[j] (keep[j] + (1 - keep[j]) / f)
 *
 * YaRN (Peng et al., 2023): pairs that turn often within the original context keep their frequency,
 * slow ones are interpolated, and a ramp lies between. */
#include "engine/rope.h"

#include "engine/fmath.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    YARN_BETA_FAST = 32, /* turns within the original context */
    YARN_BETA_SLOW = 1,
    CONTEXT_STEP = 256,
};

static const double PI = 3.14159265358979323846;

/* The pair (as a real number) that makes this many turns within the original context. */
static double yarn_pair(const struct hparams *hp, double turns)
{
    return hp->n_rot * fmath_log(hp->rope_ctx_orig / (turns * 2 * PI)) /
           (2 * fmath_log(hp->rope_base));
}

static double yarn_frequency(const struct hparams *hp, uint32_t j, double frequency)
{
    double low = fmax(0, floor(yarn_pair(hp, YARN_BETA_FAST)));
    double high = fmin(hp->n_rot - 1, ceil(yarn_pair(hp, YARN_BETA_SLOW)));
    double ramp = (j - low) / fmax(0.001, high - low);
    double keep = 1 - fmin(1, fmax(0, ramp));
    return frequency * (keep + (1 - keep) / hp->rope_factor);
}

static double scaled_frequency(const struct hparams *hp, uint32_t j, double frequency)
{
    switch (hp->rope_scaling) {
    case ROPE_SCALING_NONE:
        return frequency;
    case ROPE_SCALING_LINEAR:
        return frequency / hp->rope_factor;
    case ROPE_SCALING_YARN:
        return yarn_frequency(hp, j, frequency);
    }
    return frequency;
}

/* pick_factors() - a context is counted in whole steps of CONTEXT_STEP, as the files' makers do. */
static const float *pick_factors(const struct hparams *hp, const struct rope_factors *factors,
                                 uint32_t n_ctx, enum tensor_id *id)
{
    bool is_long =
        ((uint64_t)n_ctx + CONTEXT_STEP - 1) / CONTEXT_STEP * CONTEXT_STEP > hp->rope_ctx_orig;
    *id = TENSOR_ROPE_FREQS;
    if (factors->all != NULL || factors->long_ctx == NULL) return factors->all;
    *id = is_long ? TENSOR_ROPE_FACTORS_LONG : TENSOR_ROPE_FACTORS_SHORT;
    return is_long ? factors->long_ctx : factors->short_ctx;
}

static int check_factors(const float *factors, uint32_t n, enum tensor_id id, struct err *err)
{
    for (uint32_t j = 0; factors != NULL && j < n; j++)
        CHECK(factors[j] > 0, err, ERR_FILE,
              "tensor %s: value %" PRIu32 " is %g, want a number above 0: the file is damaged",
              tensor_suffix(id), j, (double)factors[j]);
    return ERR_NONE;
}

static void fill_main(struct rope_table *t, const struct hparams *hp, const float *factors)
{
    t->magnitude = hp->rope_attn_factor;
    if (hp->rope_scaling == ROPE_SCALING_YARN && hp->yarn_log_multiplier == 0)
        t->magnitude *= 1 + 0.1 * fmath_log(hp->rope_factor);
    for (uint32_t j = 0; j < hp->n_rot / 2; j++) {
        double frequency = fmath_pow(hp->rope_base, -2.0 * j / hp->n_rot);
        if (factors != NULL) frequency /= factors[j];
        t->frequency[j] = scaled_frequency(hp, j, frequency);
    }
}

static void fill_plain(struct rope_table *t, const struct hparams *hp)
{
    t->magnitude = 1;
    for (uint32_t j = 0; j < hp->n_rot / 2; j++)
        t->frequency[j] = fmath_pow(hp->rope_base_plain, -2.0 * j / hp->n_rot);
}

int rope_open(struct rope *r, const struct model *m, const struct rope_factors *factors,
              uint32_t n_ctx, struct err *err)
{
    const struct hparams *hp = &m->hp;
    *r = (struct rope){.n_pairs = hp->n_rot / 2, .n_tables = hp->n_rope_tables};
    enum tensor_id id;
    const float *picked = pick_factors(hp, factors, n_ctx, &id);
    TRY(check_factors(picked, r->n_pairs, id, err));
    for (uint32_t i = 0; i < r->n_tables; i++) {
        r->table[i].frequency = calloc(r->n_pairs + (size_t)1, sizeof(double));
        CHECK(r->table[i].frequency != NULL, err, ERR_MEMORY,
              "no memory for %" PRIu32 " rotary frequencies", r->n_pairs);
    }
    if (r->n_tables > LAYER_ROPE_MAIN) fill_main(&r->table[LAYER_ROPE_MAIN], hp, picked);
    if (r->n_tables > LAYER_ROPE_PLAIN) fill_plain(&r->table[LAYER_ROPE_PLAIN], hp);
    return ERR_NONE;
}

void rope_close(struct rope *r)
{
    for (uint32_t i = 0; i < ROPE_TABLES; i++) free(r->table[i].frequency);
    *r = (struct rope){0};
}

void rope_fill(const struct rope *r, uint32_t pos, float *cos, float *sin)
{
    for (uint32_t i = 0; i < r->n_tables; i++, cos += r->n_pairs, sin += r->n_pairs)
        for (uint32_t j = 0; j < r->n_pairs; j++) {
            double angle = pos * r->table[i].frequency[j];
            cos[j] = (float)(fmath_cos(angle) * r->table[i].magnitude);
            sin[j] = (float)(fmath_sin(angle) * r->table[i].magnitude);
        }
}
