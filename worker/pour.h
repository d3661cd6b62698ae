/* pour - one tensor's values, piece by piece: filled in, quantised, written; all threads at once.
 *
 * Stations before: synth, requantize. Next stations: quantise, gguf_write. */
#ifndef TANDEM_WORKER_POUR_H
#define TANDEM_WORKER_POUR_H

#include "worker/gguf_write.h"

#include <stddef.h>
#include <stdint.h>

/* A tensor as pour needs it. */
struct pouring {
    const struct gguf_writer *writer;
    uint64_t tensor;    /* its number in the writer */
    uint32_t format;    /* has a quantiser */
    uint64_t n_values;  /* a whole number of blocks */
    uint32_t n_threads; /* 0: OpenMP's default */
    /* fill() - values first .. first + n - 1 to out, all finite; from several threads at once. */
    int (*fill)(const void *ctx, uint64_t first, size_t n, float *out, struct err *err);
    const void *ctx;
};

/* pour_tensor() - until it is written, or until the first error: one of fill's, ERR_FILE,
 * ERR_MEMORY. Holds half a megabyte a thread. */
int pour_tensor(const struct pouring *p, struct err *err);

#endif
