/* sampler - picks the next token of one sequence.
 *
 * Order: penalties, logit bias, temperature, top-k, typical, top-p, min-p, draw; ties go to the
 * lower id. Penalties and bias are stated in the need and applied by the last stage, exactly.
 * Truncated heads give the same draws as whole rows: the draw walks the ordered row from its best
 * token, so only the part that it walks has to be here.
 * The random number of a token is a function of (seed, choice, position) alone, so a run can be
 * resumed anywhere, and neither slots nor arrival order matter.
 * Station before: line/pipeline (a score_head). Station after: text/detokenizer. */
#ifndef TANDEM_COORDINATOR_SAMPLE_SAMPLER_H
#define TANDEM_COORDINATOR_SAMPLE_SAMPLER_H

#include "engine/err.h"
#include "proto/scores.h"

struct logit_bias {
    int32_t id;
    float bias;
};

/* What a user may ask. sampling_default() is greedy with every filter off. */
struct sampling {
    float temperature;       /* 0, and whatever is below 1e-5: greedy */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 1: off; in (0, 1] */
    float min_p;             /* 0: off; in [0, 1] */
    float typical_p;         /* 1: off; in (0, 1] */
    float repeat_penalty;    /* 1: off; in [0.01, 100] */
    float frequency_penalty; /* 0: off; in [-100, 100] */
    float presence_penalty;  /* 0: off; in [-100, 100] */
    uint32_t penalty_last_n; /* tokens that the penalties look at; default 64, at most 2^20 */
    uint64_t seed;
    uint32_t choice;               /* index of the choice within its request, 0 for the first */
    uint32_t top_probs;            /* report this many most probable tokens per step; 0: none */
    const struct logit_bias *bias; /* [n_bias], copied by sampler_open; a token's last one counts */
    uint32_t n_bias;
};

struct sampling sampling_default(void);

/* sampling_temperature() - the temperature of its needs: 1 for greedy. */
float sampling_temperature(const struct sampling *s);

/* sampling_check() - ERR_USAGE names the parameter that is out of its range (NaN included). */
int sampling_check(const struct sampling *s, int32_t n_vocab, struct err *err);

struct sampler;

/* sampler_open() - checks s (sampling_check) and takes all memory it will ever need. */
int sampler_open(struct sampler **out, const struct sampling *s, int32_t n_vocab, struct err *err);
void sampler_close(struct sampler *sm); /* NULL is allowed */

/* sampler_accept() - token is now part of the sequence (prompt or text): the penalties see it. */
void sampler_accept(struct sampler *sm, int32_t token);

/* sampler_need() - what the next pick needs, drawn for this absolute position. need->adjust points
 * into the sampler and stays valid until the next call of sampler_accept() or sampler_need(). */
void sampler_need(struct sampler *sm, uint64_t position, struct score_need *need);

/* sampler_pick() - the token for this position.
 *
 * head must answer the need stated for the same position, or a larger one.
 * Returns SAMPLER_MORE when the head proves too short: ask for the whole row (a need
 * with all limits off) and call again; otherwise an err_code: ERR_NONE with *token set, or
 * ERR_NUMERIC when a score or the lse is not finite (an adjusted -INFINITY is fine), or ERR_PEER
 * when the head is longer than the vocabulary or names a token outside it.
 * No allocation. Deterministic: same seed, choice, position and scores give the same token. */
enum { SAMPLER_MORE = -1 };
int sampler_pick(struct sampler *sm, const struct score_head *head, uint64_t position,
                 int32_t *token, struct err *err);

/* sampler_random() - the uniform number in [0, 1) of (seed, choice, position); 53 bits. */
double sampler_random(uint64_t seed, uint32_t choice, uint64_t position);

#endif
