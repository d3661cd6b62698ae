/* weight_source - where the bytes of a model's files come from: a stream, in an order told before.
 *
 * Whoever loads says first which bytes it will want, and then takes them one behind the other; so a
 * source can read a disk in one go, or ask another host ahead of time. The source of this file are
 * the model's own files.
 * Stations before: gguf (files). Station after: weights. Others like it: worker/weights_pull
 * (another host has the files), worker/weights_cache (they were here before). */
#ifndef TANDEM_ENGINE_WEIGHT_SOURCE_H
#define TANDEM_ENGINE_WEIGHT_SOURCE_H

#include "engine/gguf.h"

/* Bytes that stand together in one file of the model. */
struct weight_extent {
    const struct gguf_tensor *tensor; /* whose they are; NULL: no tensor's */
    uint32_t part;
    uint64_t offset, bytes;
};

struct weight_source {
    /* begin() - these will be read, in this order. extents stay valid until the last read(). */
    int (*begin)(void *ctx, const struct weight_extent *extents, size_t n, struct err *err);
    /* read() - the next n bytes, at most what is left of the extent that they begin in. */
    int (*read)(void *ctx, uint8_t *out, size_t n, struct err *err);
    void *ctx;
};

/* A place in a list of extents. */
struct weight_cursor {
    const struct weight_extent *extents;
    size_t n, at;    /* at n: behind the last byte */
    uint64_t inside; /* bytes of extents[at] that are behind it */
};

/* weight_cursor_open() - before the first byte. weight_cursor_left(): of the extent at hand.
 * weight_cursor_move() - on by n bytes, at most what is left of it. */
void weight_cursor_open(struct weight_cursor *c, const struct weight_extent *extents, size_t n);
uint64_t weight_cursor_left(const struct weight_cursor *c);
void weight_cursor_move(struct weight_cursor *c, uint64_t n);

/* weight_source_file() - the files of a model that is open here; state is the source's memory. */
struct weight_file_state {
    const struct gguf *file;
    struct weight_cursor next;
};
struct weight_source weight_source_file(struct weight_file_state *state, const struct gguf *file);

#endif
