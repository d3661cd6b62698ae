/* wire_rows - how the rows of a BATCH travel: as they are, or narrower.
 *
 *   f32    the floats themselves
 *   bf16   the upper half of each, rounded to nearest even
 *   q8_0   for each 32 values, the last of them may be fewer, an f32 scale = max|x| / 127; then a
 *          signed byte each, in steps of its scale
 *
 * A row is encoded by itself, so what arrives does not depend on the rows beside it. A value that
 * is not finite makes its block not finite.
 * Stations before and after: worker/exec. */
#ifndef TANDEM_PROTO_WIRE_ROWS_H
#define TANDEM_PROTO_WIRE_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum wire_format { WIRE_F32, WIRE_BF16, WIRE_Q8_0, WIRE_FORMAT_COUNT };

enum { WIRE_BLOCK = 32 };

/* wire_row_bytes() - of one row of n values. */
static inline uint64_t wire_row_bytes(enum wire_format format, uint32_t n)
{
    uint64_t blocks = ((uint64_t)n + WIRE_BLOCK - 1) / WIRE_BLOCK;
    if (format == WIRE_BF16) return 2 * (uint64_t)n;
    return format == WIRE_F32 ? 4 * (uint64_t)n : blocks * sizeof(float) + n;
}

/* Both: n_rows rows of n values; rows are gapless on either side, which must not overlap. Any bytes
 * decode. */
void wire_rows_encode(enum wire_format format, const float *rows, size_t n_rows, uint32_t n,
                      uint8_t *wire);
void wire_rows_decode(enum wire_format format, const uint8_t *wire, size_t n_rows, uint32_t n,
                      float *rows);

#endif
