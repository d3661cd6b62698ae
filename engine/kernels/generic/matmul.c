/* matmul - packed products in plain C: the oracle of the vector kernels.
 *
 *   y[r][o] = sum over k of W[o][k] * x[r][k]
 *
 * One lane per output row, k ascending, one accumulator a lane (kernels.h, "Order"). Weights are
 * decoded once for ROWS rows of activations; that changes how often they are read, never the order
 * of a sum. */
#include "engine/kernels/kernels.h"

#include <string.h>

enum { ROWS = 4, SCALES = 2 * PANEL_ROWS };

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* store() - the lanes of one panel that are outputs. */
static void store(const float lanes[PANEL_ROWS], const struct panels *w, size_t panel, float *y)
{
    size_t first = panel * PANEL_ROWS;
    size_t n = w->n_out - first < PANEL_ROWS ? w->n_out - first : PANEL_ROWS;
    memcpy(y + first, lanes, n * sizeof *lanes);
}

/* The weights of one k, for the 16 rows of a panel. */
typedef void column_fn(const uint8_t *panel, size_t n_in, size_t k, float w[PANEL_ROWS]);

static inline void column_f32(const uint8_t *panel, size_t n_in, size_t k, float w[PANEL_ROWS])
{
    (void)n_in;
    memcpy(w, panel + k * PANEL_ROWS * sizeof *w, PANEL_ROWS * sizeof *w);
}

static inline void column_f16(const uint8_t *panel, size_t n_in, size_t k, float w[PANEL_ROWS])
{
    (void)n_in;
    for (size_t i = 0; i < PANEL_ROWS; i++)
        w[i] = f16_to_f32(load_u16(panel + 2 * (k * PANEL_ROWS + i)));
}

static inline void column_bf16(const uint8_t *panel, size_t n_in, size_t k, float w[PANEL_ROWS])
{
    bool alone = k == n_in - 1 && n_in % 2 != 0;
    const uint8_t *first = panel + 2 * (k / 2 * 2 * PANEL_ROWS + (alone ? 0 : k % 2));
    size_t step = alone ? 2 : 4;
    for (size_t i = 0; i < PANEL_ROWS; i++) w[i] = bf16_to_f32(load_u16(first + i * step));
}

static inline __attribute__((always_inline)) void matmul_float(
    const struct panels *w, size_t value_bytes, column_fn *column, size_t from, size_t to,
    const struct activations *x, size_t n_rows, float *y, size_t y_stride)
{
    for (size_t p = from; p < to; p++) {
        const uint8_t *panel = w->data + p * PANEL_ROWS * value_bytes * w->n_in;
        for (size_t r0 = 0; r0 < n_rows; r0 += ROWS) {
            size_t n = n_rows - r0 < ROWS ? n_rows - r0 : ROWS;
            float acc[ROWS][PANEL_ROWS] = {{0}};
            for (size_t k = 0; k < w->n_in; k++) {
                float weights[PANEL_ROWS];
                column(panel, w->n_in, k, weights);
                for (size_t r = 0; r < n; r++) {
                    float value = x->f32[(r0 + r) * w->n_in + k];
                    for (size_t i = 0; i < PANEL_ROWS; i++) acc[r][i] += weights[i] * value;
                }
            }
            for (size_t r = 0; r < n; r++) store(acc[r], w, p, y + (r0 + r) * y_stride);
        }
    }
}

KERNEL_MATMUL(matmul_f32_generic)
{
    matmul_float(w, 4, column_f32, from, to, x, n_rows, y, y_stride);
}

KERNEL_MATMUL(matmul_f16_generic)
{
    matmul_float(w, 2, column_f16, from, to, x, n_rows, y, y_stride);
}

KERNEL_MATMUL(matmul_bf16_generic)
{
    matmul_float(w, 2, column_bf16, from, to, x, n_rows, y, y_stride);
}

/* Sum over one block of unsigned quants times int8 activations, for the 16 rows of a
 * panel; exact. */
typedef void block_sum_fn(const uint8_t *quants, const int8_t *x, int32_t sum[PANEL_ROWS]);

static inline void block_sum_q8_0(const uint8_t *quants, const int8_t *x, int32_t sum[PANEL_ROWS])
{
    for (size_t j = 0; j < QUANT_BLOCK / 4; j++)
        for (size_t i = 0; i < PANEL_ROWS; i++)
            for (size_t b = 0; b < 4; b++)
                sum[i] += quants[(j * PANEL_ROWS + i) * 4 + b] * x[4 * j + b];
}

static inline void block_sum_q4_0(const uint8_t *quants, const int8_t *x, int32_t sum[PANEL_ROWS])
{
    for (size_t j = 0; j < QUANT_BLOCK / 8; j++)
        for (size_t i = 0; i < PANEL_ROWS; i++)
            for (size_t b = 0; b < 4; b++) {
                int q = quants[(j * PANEL_ROWS + i) * 4 + b];
                sum[i] += (q & 0xf) * x[4 * j + b] + (q >> 4) * x[16 + 4 * j + b];
            }
}

/* block_bytes: of a block of one row in the file; zero: what the unsigned quants have too much. */
static inline __attribute__((always_inline)) void matmul_block(
    const struct panels *w, size_t block_bytes, int32_t zero, block_sum_fn *block_sum, size_t from,
    size_t to, const struct activations *x, size_t n_rows, float *y, size_t y_stride)
{
    size_t n_blocks = w->n_in / QUANT_BLOCK;
    for (size_t p = from; p < to; p++) {
        const uint8_t *panel = w->data + p * PANEL_ROWS * block_bytes * n_blocks;
        for (size_t r = 0; r < n_rows; r++) {
            float acc[PANEL_ROWS] = {0};
            for (size_t b = 0; b < n_blocks; b++) {
                const uint8_t *block = panel + b * block_bytes * PANEL_ROWS;
                size_t at = r * n_blocks + b;
                int32_t sum[PANEL_ROWS];
                for (size_t i = 0; i < PANEL_ROWS; i++) sum[i] = -zero * x->sum[at];
                block_sum(block + SCALES, x->q8 + at * QUANT_BLOCK, sum);
                for (size_t i = 0; i < PANEL_ROWS; i++) {
                    float scale = f16_to_f32(load_u16(block + 2 * i)) * x->scale[at];
                    acc[i] += scale * (float)sum[i];
                }
            }
            store(acc, w, p, y + r * y_stride);
        }
    }
}

KERNEL_MATMUL(matmul_q8_0_generic)
{
    matmul_block(w, 34, 128, block_sum_q8_0, from, to, x, n_rows, y, y_stride);
}

KERNEL_MATMUL(matmul_q4_0_generic)
{
    matmul_block(w, 18, 8, block_sum_q4_0, from, to, x, n_rows, y, y_stride);
}
