/* quant_formats - the number formats of tensors: block sizes, names, and the reference decoder.
 *
 * One table row a format; ids are those of GGUF files. Three degrees of knowing a format:
 *   a row     name and size, so that a file that uses it can be listed;
 *   decode    its values can be read, as a conversion needs;
 *   runs      a model may use it. Models that use any other format are refused by name.
 * Source: the GGUF specification and ggml's block layouts.
 * Station before: quant_decode and quant_iq, which decode. Next station: kernels, which pack. */
#ifndef TANDEM_ENGINE_QUANT_FORMATS_H
#define TANDEM_ENGINE_QUANT_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum format_id {
    FORMAT_F32 = 0,
    FORMAT_F16 = 1,
    FORMAT_Q4_0 = 2,
    FORMAT_Q4_1 = 3,
    FORMAT_Q5_0 = 6,
    FORMAT_Q5_1 = 7,
    FORMAT_Q8_0 = 8,
    FORMAT_Q2_K = 10,
    FORMAT_Q3_K = 11,
    FORMAT_Q4_K = 12,
    FORMAT_Q5_K = 13,
    FORMAT_Q6_K = 14,
    FORMAT_IQ2_XXS = 16,
    FORMAT_IQ2_XS = 17,
    FORMAT_IQ3_XXS = 18,
    FORMAT_IQ1_S = 19,
    FORMAT_IQ4_NL = 20,
    FORMAT_IQ3_S = 21,
    FORMAT_IQ2_S = 22,
    FORMAT_IQ4_XS = 23,
    FORMAT_IQ1_M = 29,
    FORMAT_BF16 = 30,
    FORMAT_TQ1_0 = 34,
    FORMAT_TQ2_0 = 35,
    FORMAT_MXFP4 = 39,
};

/* PANEL_ROWS output rows are packed side by side (engine/kernels/kernels.h has the layouts). */
enum { PANEL_ROWS = 16 };

struct format {
    uint32_t id;
    const char *name;      /* "Q8_0" */
    uint32_t block_values; /* values in a block, along the fastest axis */
    uint32_t block_bytes;
    /* There are kernels for it: the rows of KERNEL_FORMATS in engine/kernels/kernels.h, as a test
     * checks. A format that runs has a decoder. */
    bool runs;
    /* decode() - n values (a multiple of block_values) at src, which need not be aligned, to f32,
     * bit for bit as the reference does. Any bytes are valid. NULL where there is none. */
    void (*decode)(const void *src, float *dst, size_t n);
};

/* format_find() - the row of an id, NULL for an id that no format has. */
const struct format *format_find(uint32_t id);
/* format_find_name() - by name, any case; NULL where unknown. */
const struct format *format_find_name(const char *name);

/* format_row_bytes() - bytes of n values; n must be a multiple of block_values. */
size_t format_row_bytes(const struct format *f, uint64_t n);

/* Scalar conversions, round to nearest even; used by the kernels' reference and the KV cache. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);

#endif
