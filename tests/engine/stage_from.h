/* stage_from - a small stage whose weights come from a source of the test's own. Included after
 * cmocka. */
#ifndef TANDEM_TESTS_ENGINE_STAGE_FROM_H
#define TANDEM_TESTS_ENGINE_STAGE_FROM_H

#include "engine/stage.h"
#include "engine/weight_source.h"

/* stage_from() - returns what stage_open() returns. */
static inline int stage_from(struct stage **out, const struct model *m, struct layer_range range,
                             uint32_t threads, const struct weight_source *source, struct err *err)
{
    const struct stage_config config = {.model = m,
                                        .range = range,
                                        .limits = {.n_ctx = 32,
                                                   .n_seqs = 1,
                                                   .n_blocks = {1, 1, 1, 1},
                                                   .rows_max = 1,
                                                   .wanted_max = 1,
                                                   .credits = 1},
                                        .source = source,
                                        .threads = threads};
    return stage_open(out, &config, err);
}

#endif
