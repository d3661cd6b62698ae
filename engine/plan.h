/* plan - layers to stages. Pure: no I/O, no ranks, no clock.
 *
 * Station before: model (bytes of each layer). Station after: coordinator/line (sends each worker its range). */
#ifndef TANDEM_ENGINE_PLAN_H
#define TANDEM_ENGINE_PLAN_H

#include "engine/model.h"

/* plan_by_bytes() - cut the layers into n_stages ranges, every one non-empty, so that the largest stage is as
 * small as it can be, counting tensor bytes as held (embedding with the first stage, output head with the
 * last). Exact. Of equally good cuts: each stage in turn takes as many layers as fit under the best
 * maximum for the layers and stages that are left. ranges[n_stages] is the caller's.
 * Returns ERR_CAPACITY when n_stages > n_layer ("the limit is N layers, so N + 1 ranks"). */
int plan_by_bytes(const struct model *m, uint32_t n_stages, struct layer_range *ranges,
                  struct err *err);

/* plan_by_hand() - from "3,3,2": as many numbers as stages, all positive, adding up to n_layer.
 * *n_stages: in: capacity of ranges, out: how many. ERR_USAGE otherwise, with the sum that is wanted. */
int plan_by_hand(const struct model *m, const char *split, uint32_t *n_stages,
                 struct layer_range *ranges, struct err *err);

/* plan_stage_bytes() - tensor bytes, as packed, that a stage of this range holds. */
uint64_t plan_stage_bytes(const struct model *m, struct layer_range range);

#endif
