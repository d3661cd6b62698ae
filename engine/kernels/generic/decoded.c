/* decoded - see decoded.h: packing, products and look-up in plain C.
 *
 *   y[r][o] = sum over k of W[o][k] * x[r][k]
 *
 * A block is decoded once for up to DECODED_ROWS rows of activations and then walked exactly as an
 * F32 panel is: k ascending, one accumulator a lane. So the result has the bits that the same
 * weights would give in F32. */
#include "engine/kernels/generic/decoded.h"

#include <string.h>

void decoded_unpack(const struct format *f, const uint8_t *blocks,
                    float columns[DECODED_VALUES_MAX][PANEL_ROWS])
{
    float values[DECODED_VALUES_MAX];
    for (size_t i = 0; i < PANEL_ROWS; i++) {
        f->decode(blocks + i * f->block_bytes, values, f->block_values);
        for (size_t k = 0; k < f->block_values; k++) columns[k][i] = values[k];
    }
}

/* Rows that the last panel lacks are zeros, which every decoder takes. */
static void pack(const struct format *f, const uint8_t *rows, size_t n_rows, size_t n_in,
                 uint8_t *panel)
{
    size_t n_blocks = n_in / f->block_values, bytes = f->block_bytes;
    memset(panel, 0, n_blocks * bytes * PANEL_ROWS);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t b = 0; b < n_blocks; b++)
            memcpy(panel + (b * PANEL_ROWS + r) * bytes, rows + (r * n_blocks + b) * bytes, bytes);
}

static void lookup(const struct format *f, const struct panels *w, size_t row, float *out)
{
    size_t n_blocks = w->n_in / f->block_values, step = (size_t)f->block_bytes * PANEL_ROWS;
    const uint8_t *block = w->data + row / PANEL_ROWS * n_blocks * step;
    block += row % PANEL_ROWS * f->block_bytes;
    for (size_t b = 0; b < n_blocks; b++, block += step, out += f->block_values)
        f->decode(block, out, f->block_values);
}

/* One panel for n <= DECODED_ROWS rows; x, y: of the first of them. */
static void multiply(const struct format *f, const struct panels *w, size_t p, const float *x,
                     size_t n, float *y, size_t y_stride)
{
    size_t n_blocks = w->n_in / f->block_values, step = (size_t)f->block_bytes * PANEL_ROWS;
    const uint8_t *blocks = w->data + p * n_blocks * step;
    float columns[DECODED_VALUES_MAX][PANEL_ROWS], acc[DECODED_ROWS][PANEL_ROWS] = {{0}};
    for (size_t b = 0; b < n_blocks; b++, blocks += step, x += f->block_values) {
        decoded_unpack(f, blocks, columns);
        for (size_t r = 0; r < n; r++)
            for (size_t k = 0; k < f->block_values; k++)
                for (size_t i = 0; i < PANEL_ROWS; i++)
                    acc[r][i] += columns[k][i] * x[r * w->n_in + k];
    }
    size_t first = p * PANEL_ROWS;
    size_t lanes = w->n_out - first < PANEL_ROWS ? w->n_out - first : PANEL_ROWS;
    for (size_t r = 0; r < n; r++) memcpy(y + r * y_stride + first, acc[r], lanes * sizeof **acc);
}

#define DEFINE_DECODED(id, suffix, q8)                                                             \
    KERNEL_PACK(pack_##suffix##_generic)                                                           \
    {                                                                                              \
        pack(format_find(FORMAT_##id), rows, n_rows, n_in, panel);                                 \
    }                                                                                              \
    KERNEL_LOOKUP(lookup_##suffix##_generic)                                                       \
    {                                                                                              \
        lookup(format_find(FORMAT_##id), w, row, out);                                             \
    }                                                                                              \
    KERNEL_MATMUL(matmul_##suffix##_generic)                                                       \
    {                                                                                              \
        for (size_t p = from; p < to; p++)                                                         \
            for (size_t r = 0; r < n_rows; r += DECODED_ROWS)                                      \
                multiply(format_find(FORMAT_##id), w, p, x->f32 + r * w->n_in,                     \
                         n_rows - r < DECODED_ROWS ? n_rows - r : DECODED_ROWS, y + r * y_stride,  \
                         y_stride);                                                                \
    }
KERNEL_DECODED_FORMATS(DEFINE_DECODED)
