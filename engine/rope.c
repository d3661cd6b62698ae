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

enum { YARN_BETA_FAST = 32, YARN_BETA_SLOW = 1 }; /* turns within the original context */

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

int rope_open(struct rope *r, const struct model *m, const float *factors, struct err *err)
{
    const struct hparams *hp = &m->hp;
    *r = (struct rope){.n_pairs = m->family->rope == ROPE_NONE ? 0 : hp->n_rot / 2};
    r->magnitude = hp->rope_attn_factor;
    if (hp->rope_scaling == ROPE_SCALING_YARN) r->magnitude *= 1 + 0.1 * fmath_log(hp->rope_factor);
    if (r->n_pairs == 0) return ERR_NONE;
    for (uint32_t j = 0; factors != NULL && j < r->n_pairs; j++)
        CHECK(factors[j] > 0, err, ERR_FILE,
              "tensor %s: value %" PRIu32 " is %g, want a number above 0: the file is damaged",
              tensor_suffix(TENSOR_ROPE_FREQS), j, (double)factors[j]);
    r->frequency = calloc(r->n_pairs, sizeof *r->frequency);
    CHECK(r->frequency != NULL, err, ERR_MEMORY, "no memory for %" PRIu32 " rotary frequencies",
          r->n_pairs);
    for (uint32_t j = 0; j < r->n_pairs; j++) {
        double frequency = fmath_pow(hp->rope_base, -2.0 * j / hp->n_rot);
        if (factors != NULL) frequency /= factors[j];
        r->frequency[j] = scaled_frequency(hp, j, frequency);
    }
    return ERR_NONE;
}

void rope_close(struct rope *r)
{
    free(r->frequency);
    *r = (struct rope){0};
}

void rope_fill(const struct rope *r, uint32_t pos, float *cos, float *sin)
{
    for (uint32_t j = 0; j < r->n_pairs; j++) {
        double angle = pos * r->frequency[j];
        cos[j] = (float)(fmath_cos(angle) * r->magnitude);
        sin[j] = (float)(fmath_sin(angle) * r->magnitude);
    }
}
