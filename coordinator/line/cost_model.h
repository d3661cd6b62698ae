/* cost_model - what a batch costs each stage, and so how large a chunk of a prompt should be.
 *
 *   cost = fixed + row x rows + seen x (positions that the rows see, added up)
 *
 * Fitted for each stage to its own ledger, which comes in band; before that, and where the batches
 * were all of one size, a usual ratio of the parts counts. The chunk decides how fast a prompt is,
 * never what comes out.
 * Station before: journal (accounts of batches). Station after: scheduler. */
#ifndef TANDEM_COORDINATOR_LINE_COST_MODEL_H
#define TANDEM_COORDINATOR_LINE_COST_MODEL_H

#include "coordinator/line/journal.h"

struct cost {
    double fixed_ns, row_ns, seen_ns;
};

struct cost_model;

int cost_model_open(struct cost_model **out, uint32_t n_stages, struct err *err);
void cost_model_close(struct cost_model *cm); /* NULL is allowed */

/* cost_model_learn() - from the accounts that have come since the last call. No allocation. */
void cost_model_learn(struct cost_model *cm, const struct journal *j);

/* cost_model_add() - one batch of a stage. cost_model_stage() - what all of them say; false, and
 * nothing in *cost, while there was none. */
void cost_model_add(struct cost_model *cm, uint32_t stage, uint32_t rows, uint64_t seen,
                    uint64_t ns);
bool cost_model_stage(const struct cost_model *cm, uint32_t stage, struct cost *cost);

/* cost_model_chunk() - rows of a batch with which so many rows, each of which sees `seen` positions
 * on average, are through the line first; all of them where there is one stage. */
uint64_t cost_model_chunk(const struct cost_model *cm, uint64_t rows, double seen);

/* cost_model_beside() - rows of prompts that may go along with n_decode rows of text, so that these
 * come a few times slower at most: weights are read for them anyway, so small chunks
 * cost little. */
uint64_t cost_model_beside(const struct cost_model *cm, uint64_t n_decode, double seen);

#endif
