/* pack - rows of a weight matrix, as they lie in the file, to a panel; and one row back out of the
 * panels.
 *
 * The layouts are those of kernels.h, the same for every instruction set. Rows that the last panel
 * lacks are zeros.
 * Station before: weights. Stations after: the matmul kernels; embedding look-up in layer. */
#include "engine/kernels/kernels.h"

#include <string.h>

enum {
    Q8_BLOCK = 34,           /* bytes in the file: f16 scale, 32 x int8 */
    Q4_BLOCK = 18,           /* f16 scale, 16 bytes of two halves */
    SCALES = 2 * PANEL_ROWS, /* bytes of the scales of a panel's block */
};

KERNEL_PACK(pack_f32_generic)
{
    memset(panel, 0, PANEL_ROWS * 4 * n_in);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < n_in; k++)
            memcpy(panel + 4 * (k * PANEL_ROWS + r), rows + 4 * (r * n_in + k), 4);
}

KERNEL_PACK(pack_f16_generic)
{
    memset(panel, 0, PANEL_ROWS * 2 * n_in);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < n_in; k++)
            memcpy(panel + 2 * (k * PANEL_ROWS + r), rows + 2 * (r * n_in + k), 2);
}

/* Index of value k of row r in a BF16 panel, in values. */
static size_t bf16_index(size_t n_in, size_t r, size_t k)
{
    if (k == n_in - 1 && n_in % 2 != 0) return k * PANEL_ROWS + r;
    return (k / 2 * PANEL_ROWS + r) * 2 + k % 2;
}

KERNEL_PACK(pack_bf16_generic)
{
    memset(panel, 0, PANEL_ROWS * 2 * n_in);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < n_in; k++)
            memcpy(panel + 2 * bf16_index(n_in, r, k), rows + 2 * (r * n_in + k), 2);
}

/* A missing row has scale 0, so its quants do not matter; they are 0 + 128. */
KERNEL_PACK(pack_q8_0_generic)
{
    size_t n_blocks = n_in / QUANT_BLOCK;
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t *scales = panel + b * Q8_BLOCK * PANEL_ROWS;
        uint8_t *quants = scales + SCALES;
        memset(scales, 0, SCALES);
        memset(quants, 128, QUANT_BLOCK * PANEL_ROWS);
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *block = rows + (r * n_blocks + b) * Q8_BLOCK;
            memcpy(scales + 2 * r, block, 2);
            for (size_t i = 0; i < QUANT_BLOCK; i++)
                quants[(i / 4 * PANEL_ROWS + r) * 4 + i % 4] = block[2 + i] ^ 0x80;
        }
    }
}

/* The file's byte i holds values i and i + 16, which is what group i / 4 wants at place i % 4. */
KERNEL_PACK(pack_q4_0_generic)
{
    size_t n_blocks = n_in / QUANT_BLOCK;
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t *scales = panel + b * Q4_BLOCK * PANEL_ROWS;
        uint8_t *quants = scales + SCALES;
        memset(scales, 0, SCALES);
        memset(quants, 0x88, QUANT_BLOCK / 2 * PANEL_ROWS);
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *block = rows + (r * n_blocks + b) * Q4_BLOCK;
            memcpy(scales + 2 * r, block, 2);
            for (size_t i = 0; i < QUANT_BLOCK / 2; i++)
                quants[(i / 4 * PANEL_ROWS + r) * 4 + i % 4] = block[2 + i];
        }
    }
}

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

KERNEL_LOOKUP(lookup_f32_generic)
{
    const uint8_t *panel = w->data + row / PANEL_ROWS * PANEL_ROWS * 4 * w->n_in;
    for (size_t k = 0; k < w->n_in; k++)
        memcpy(&out[k], panel + 4 * (k * PANEL_ROWS + row % PANEL_ROWS), 4);
}

KERNEL_LOOKUP(lookup_f16_generic)
{
    const uint8_t *panel = w->data + row / PANEL_ROWS * PANEL_ROWS * 2 * w->n_in;
    for (size_t k = 0; k < w->n_in; k++)
        out[k] = f16_to_f32(load_u16(panel + 2 * (k * PANEL_ROWS + row % PANEL_ROWS)));
}

KERNEL_LOOKUP(lookup_bf16_generic)
{
    const uint8_t *panel = w->data + row / PANEL_ROWS * PANEL_ROWS * 2 * w->n_in;
    for (size_t k = 0; k < w->n_in; k++)
        out[k] = bf16_to_f32(load_u16(panel + 2 * bf16_index(w->n_in, row % PANEL_ROWS, k)));
}

KERNEL_LOOKUP(lookup_q8_0_generic)
{
    size_t n_blocks = w->n_in / QUANT_BLOCK, r = row % PANEL_ROWS;
    const uint8_t *block = w->data + row / PANEL_ROWS * n_blocks * Q8_BLOCK * PANEL_ROWS;
    for (size_t b = 0; b < n_blocks; b++, block += Q8_BLOCK * PANEL_ROWS) {
        float scale = f16_to_f32(load_u16(block + 2 * r));
        for (size_t i = 0; i < QUANT_BLOCK; i++) {
            int q = block[SCALES + (i / 4 * PANEL_ROWS + r) * 4 + i % 4] - 128;
            out[b * QUANT_BLOCK + i] = scale * (float)q;
        }
    }
}

KERNEL_LOOKUP(lookup_q4_0_generic)
{
    size_t n_blocks = w->n_in / QUANT_BLOCK, r = row % PANEL_ROWS;
    const uint8_t *block = w->data + row / PANEL_ROWS * n_blocks * Q4_BLOCK * PANEL_ROWS;
    for (size_t b = 0; b < n_blocks; b++, block += Q4_BLOCK * PANEL_ROWS) {
        float scale = f16_to_f32(load_u16(block + 2 * r));
        for (size_t i = 0; i < QUANT_BLOCK / 2; i++) {
            int q = block[SCALES + (i / 4 * PANEL_ROWS + r) * 4 + i % 4];
            out[b * QUANT_BLOCK + i] = (float)((q & 0xf) - 8) * scale;
            out[b * QUANT_BLOCK + i + 16] = (float)((q >> 4) - 8) * scale;
        }
    }
}
