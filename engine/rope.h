/* rope - the rotary angles of a position, in each way that layers of the model rotate.
 *
 * Frequencies are worked out in double once, with the model's scaling (linear, YaRN) and factors;
 * each batch then gets the cosines and sines of its own positions.
 * Station before: model, weights. Station after: layer. */
#ifndef TANDEM_ENGINE_ROPE_H
#define TANDEM_ENGINE_ROPE_H

#include "engine/model.h"

struct rope_table {
    double *frequency; /* [n_pairs] radians a position */
    double magnitude;  /* multiplies cosines and sines */
};

/* Tables by enum layer_rope: the model's own, and perhaps a plain one for its windowed layers. */
struct rope {
    uint32_t n_pairs, n_tables; /* n_rot / 2; no table: the model does not rotate */
    struct rope_table table[ROPE_TABLES];
};

/* Factors that divide the frequencies of the model's own table, [n_rot / 2] each or NULL. Of long
 * and short ones, the context's length picks. */
struct rope_factors {
    const float *all, *long_ctx, *short_ctx;
};

/* rope_open() - n_ctx: positions of a sequence at most. On success the caller owns *r (rope_close).
 * Returns ERR_MEMORY, ERR_FILE (a factor that is not above 0). */
int rope_open(struct rope *r, const struct model *m, const struct rope_factors *factors,
              uint32_t n_ctx, struct err *err);
void rope_close(struct rope *r); /* a zeroed struct is allowed */

/* rope_fill() - cos, sin: [n_tables][n_pairs] of one position. */
void rope_fill(const struct rope *r, uint32_t pos, float *cos, float *sin);

#endif
