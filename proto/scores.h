/* scores - what the sampler needs of a row of scores, and what the last stage answers.
 *
 * The last stage never ships a vocabulary row when a head of it is enough. Plain structs, shared by
 * coordinator/sample (states the need, draws from the answer) and worker/score_select (selects the
 * head); codec carries them.
 *
 * Let z[i] be the model's score of token i. The adjusted score is, for each id in `adjust`,
 *     s[i] = (z[i] > 0 ? z[i] / repeat : z[i] * repeat) + delta
 * and s[i] = z[i] elsewhere. T is the temperature, 1 where 0 (greedy) was asked for.
 *     lse = log(sum over the whole row of exp(s[i] / T)), in double, in the order of ids.
 * The ordered row is by (s descending, id ascending). A head is a prefix of the ordered row. */
#ifndef TANDEM_PROTO_SCORES_H
#define TANDEM_PROTO_SCORES_H

#include <stdbool.h>
#include <stdint.h>

struct score_adjust {
    int32_t id;
    float repeat; /* 1: none */
    float delta;  /* added; -INFINITY bans the token */
};

/* The head ends at the first of these limits that is reached; 0 switches a limit off; all off: the
 * whole ordered row. At least one pair always comes. */
struct score_need {
    float temperature; /* > 0 */
    uint32_t count;    /* this many pairs */
    float mass;  /* sum of exp(s/T - lse) over the head is >= mass (a hair more, never less) */
    float ratio; /* every token with exp(s/T - max/T) >= ratio is in the head, and the first below
                    it */
    bool raw;    /* besides the head: the whole row z, unadjusted, as f32 [n_vocab] */
    const struct score_adjust *adjust; /* [n_adjust], ids ascending and distinct */
    uint32_t n_adjust;
    const int32_t *ids; /* [n_ids]: the adjusted scores of these ids, whatever the head */
    uint32_t n_ids;
};

/* The answer for one wanted row. Pointers are borrowed from the message or the buffer it
 * came in. */
struct score_head {
    double lse;
    bool whole;             /* the head is the whole row */
    uint32_t n;             /* pairs, best first */
    const int32_t *ids;     /* [n] */
    const float *scores;    /* [n] adjusted scores s, not divided by T */
    uint32_t n_ids;         /* as in the need */
    const float *id_scores; /* [n_ids] adjusted scores of the ids asked for */
    const float *raw;       /* [n_vocab] or NULL */
};

#endif
