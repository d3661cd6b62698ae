/* recast - a model with other matrices, for tests: rounded, expanded or random ones, in any number
 * format. Included after cmocka. */
#ifndef TANDEM_TESTS_ENGINE_RECAST_H
#define TANDEM_TESTS_ENGINE_RECAST_H

#include "engine/model.h"
#include "engine/quant_formats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* ---- rounded, as a file in that format has them: F32, F16, BF16, Q8_0 or Q4_0 ---- */

static inline void quantise_block(uint32_t format, const float *x, uint8_t *out)
{
    float max = 0;
    for (size_t i = 0; i < 32; i++) max = fabsf(x[i]) > fabsf(max) ? x[i] : max;
    uint16_t half = f32_to_f16(format == FORMAT_Q8_0 ? fabsf(max) / 127 : max / -8);
    float scale = f16_to_f32(half), inverse = scale != 0 ? 1 / scale : 0;
    memcpy(out, &half, 2);
    memset(out + 2, 0, 16);
    for (size_t i = 0; i < 32; i++) {
        long q = lrintf(x[i] * inverse);
        long nibble = q + 8 > 15 ? 15 : q + 8;
        if (format == FORMAT_Q8_0)
            out[2 + i] = (uint8_t)(int8_t)q;
        else
            out[2 + i % 16] |= (uint8_t)(nibble << (i < 16 ? 0 : 4));
    }
}

static inline void encode(uint32_t format, const float *x, size_t n, uint8_t *out)
{
    const struct format *f = format_find(format);
    for (size_t i = 0; i < n; i += f->block_values, out += f->block_bytes) {
        uint16_t half = format == FORMAT_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
        if (f->block_values == 32)
            quantise_block(format, x + i, out);
        else
            memcpy(out, format == FORMAT_F32 ? (const void *)&x[i] : &half, f->block_bytes);
    }
}

/* Of an F32 model: the matrices rounded to format; or rounded, and expanded to F32 again. */
static inline void round_to(struct gguf_tensor *t, uint32_t format, uint8_t *data)
{
    /* Rows that are no whole blocks stay as they are, as in a file. */
    if (t->shape[0] % format_find(format)->block_values != 0) format = t->format;
    assert_int_equal(t->format, FORMAT_F32);
    encode(format, (const float *)(const void *)t->data, recast_values(t), data);
    t->format = format;
}

#endif
