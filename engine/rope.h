/* rope - the rotary angles of a position, for every layer alike.
 *
 * Frequencies are worked out in double once, with the model's scaling (linear, YaRN) and factors;
 * each batch then gets the cosines and sines of its own positions. Station before: model, weights.
 * Station after: layer. */
#ifndef TANDEM_ENGINE_ROPE_H
#define TANDEM_ENGINE_ROPE_H

#include "engine/model.h"

struct rope {
    uint32_t n_pairs;  /* n_rot / 2; 0: the family does not rotate */
    double *frequency; /* [n_pairs] radians a position */
    double magnitude;  /* multiplies cosines and sines */
};

/* rope_open() - factors: [n_rot / 2] divide the frequencies, or NULL. On success the caller owns *r
 * (rope_close). Returns ERR_MEMORY, ERR_FILE (a factor that is not above 0). */
int rope_open(struct rope *r, const struct model *m, const float *factors, struct err *err);
void rope_close(struct rope *r); /* a zeroed struct is allowed */

/* rope_fill() - cos, sin: [n_pairs] of one position. */
void rope_fill(const struct rope *r, uint32_t pos, float *cos, float *sin);

#endif
