/* mapped_source - a weight_source of what the tensors' data points to, for models whose tensors
 * were replaced in memory. Tensors come in any order, each once. */
#ifndef TANDEM_TESTS_ENGINE_MAPPED_SOURCE_H
#define TANDEM_TESTS_ENGINE_MAPPED_SOURCE_H

#include "engine/weight_source.h"

#include <string.h>

static struct weight_cursor mapped_next;

static inline int mapped_begin(void *ctx, const struct weight_extent *extents, size_t n,
                               struct err *err)
{
    (void)ctx;
    (void)err;
    weight_cursor_open(&mapped_next, extents, n);
    return ERR_NONE;
}

static inline int mapped_read(void *ctx, uint8_t *out, size_t n, struct err *err)
{
    (void)ctx;
    (void)err;
    memcpy(out, mapped_next.extents[mapped_next.at].tensor->data + mapped_next.inside, n);
    weight_cursor_move(&mapped_next, n);
    return ERR_NONE;
}

static const struct weight_source mapped_source = {.begin = mapped_begin, .read = mapped_read};

#endif
