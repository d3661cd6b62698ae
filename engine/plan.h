/* plan - layers to stages. Pure: no I/O, no ranks, no clock.
 *
 * Station before: model (bytes of each layer). Station after: coordinator/line (sends each worker
 * its range). */
#ifndef TANDEM_ENGINE_PLAN_H
#define TANDEM_ENGINE_PLAN_H

#include "engine/model.h"

/* What a cut is judged by. */
#define PLAN_NEVER UINT64_MAX
struct plan_question {
    uint32_t n_layer, n_ranks;
    bool all_ranks; /* every rank takes a layer at least; else ranks may be left out */
    /* cost() - of a stage on a rank that sends to rank next (n_ranks: home, for the stage that ends
     * the line), in any unit; sums must not overflow. PLAN_NEVER where it is not possible. Grows
     * with range.end, and so does what is not possible, as long as range.end < n_layer. */
    uint64_t (*cost)(const void *ctx, uint32_t rank, uint32_t next, struct layer_range range);
    const void *ctx;
};

/* plan_best() - the cut whose most expensive stage is as cheap as it can be, and among those one
 * whose sum is. Exact. Of equally good ones: each stage in turn leaves the rest as even as it can
 * be, and takes as many layers as that allows. ranges[n_ranks] is the caller's; a rank that is left
 * out has none (first == end). Returns ERR_CAPACITY when every cut is impossible, ERR_MEMORY. */
int plan_best(const struct plan_question *q, struct layer_range *ranges, struct err *err);

/* plan_by_bytes() - cut the layers into n_stages ranges, every one non-empty, so that the largest
 * stage is as small as it can be, counting tensor bytes as held (embedding with the first stage,
 * output head with the last). Exact, as plan_best() is. ranges[n_stages] is the caller's. Returns
 * ERR_CAPACITY when n_stages > n_layer ("the limit is N layers, so N + 1 ranks"). */
int plan_by_bytes(const struct model *m, uint32_t n_stages, struct layer_range *ranges,
                  struct err *err);

/* plan_by_hand() - from "3,3,2": as many numbers as stages, all positive, adding up to n_layer.
 * *n_stages: in: capacity of ranges, out: how many. ERR_USAGE otherwise, with the sum that is
 * wanted. */
int plan_by_hand(const struct model *m, const char *split, uint32_t *n_stages,
                 struct layer_range *ranges, struct err *err);

/* plan_stage_bytes() - tensor bytes, as packed, that a stage of this range holds. */
uint64_t plan_stage_bytes(const struct model *m, struct layer_range range);

#endif
