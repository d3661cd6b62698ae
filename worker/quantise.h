/* quantise - from f32 to the blocks of a file: the counterpart of a format's decoder.
 *
 * Every quantiser is a function of its block alone, in one order of operations: the same values
 * give the same bytes on any machine and however the work is cut. Formats and layouts:
 * engine/quant_formats.
 * Station before: pour. Next station: gguf_write. */
#ifndef TANDEM_WORKER_QUANTISE_H
#define TANDEM_WORKER_QUANTISE_H

#include <stddef.h>
#include <stdint.h>

/* n values at src, all finite, to n / block_values blocks at dst, which need not be aligned. n is a
 * whole number of blocks. */
typedef void quantise_fn(const float *src, void *dst, size_t n);

/* quantise_find() - for FORMAT_F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K; NULL for others. */
quantise_fn *quantise_find(uint32_t format);

#endif
