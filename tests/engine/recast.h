/* recast - a model with other matrices, for tests: rounded, expanded or random ones, in any number
 * format. Included after cmocka. */
#ifndef TANDEM_TESTS_ENGINE_RECAST_H
#define TANDEM_TESTS_ENGINE_RECAST_H

#include "engine/model.h"
#include "engine/quant_formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The tensors of a model, some of them replaced. Their data lies in a mapped file, as tensor data
 * must. */
struct recast {
    struct model model; /* shares everything but tensors with the original */
    struct gguf_tensor *tensors;
    uint8_t *map;
    size_t bytes;
};

/* Gives a tensor new data and, perhaps, another number format; at most 4 bytes a value. */
typedef void recast_fn(struct gguf_tensor *t, uint32_t format, uint8_t *data);

static inline size_t recast_values(const struct gguf_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

/* recast_new() - recast() is called for every tensor that is no vector. */
static inline struct recast recast_new(const struct model *m, recast_fn *recast, uint32_t format)
{
    size_t slots = (1 + (size_t)m->hp.n_layer) * TENSOR_COUNT;
    struct recast r = {.model = *m, .tensors = calloc(slots, sizeof *r.tensors)};
    const struct gguf_tensor **pointers = calloc(slots, sizeof *pointers);
    assert_non_null(r.tensors);
    assert_non_null(pointers);
    r.model.tensors = pointers;
    for (size_t i = 0; i < slots; i++)
        if (m->tensors[i] != NULL) r.bytes += recast_values(m->tensors[i]) * sizeof(float) + 64;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)r.bytes), 0);
    r.map = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    assert_ptr_not_equal(r.map, MAP_FAILED);
    fclose(file);
    uint8_t *at = r.map;
    for (size_t i = 0; i < slots; i++) {
        if (m->tensors[i] == NULL) continue;
        struct gguf_tensor *t = &r.tensors[i];
        *t = *m->tensors[i];
        pointers[i] = t;
        if (t->n_dims < 2) continue;
        recast(t, format, at);
        t->data = at;
        t->bytes = format_row_bytes(format_find(t->format), recast_values(t));
        at += (t->bytes + 63) / 64 * 64;
    }
    return r;
}

static inline void recast_free(struct recast *r)
{
    munmap(r->map, r->bytes);
    free(r->model.tensors);
    free(r->tensors);
}

#endif
