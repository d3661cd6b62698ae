/* matmul_planes - products of panels of bit planes in plain C: the oracle of x86/planes_body.h.
 *
 *   y[r][o] = sum over k of W[o][k] * x[r][k]
 *
 * A block of 32 values is taken apart once for ROWS rows of activations.
 * Station before: planes. Next station: layer. */
#include "engine/kernels/generic/planes.h"

#include <string.h>

enum { ROWS = 8 };

/* Part p of a block with 32 quantised activations, for the 16 rows of a panel. */
static void add_part(const struct planes_shape *s, const struct planes_block *w, size_t p,
                     const int8_t *x, float x_scale, float acc[PANEL_ROWS])
{
    size_t n = QUANT_BLOCK / s->parts;
    int32_t sum[PANEL_ROWS] = {0}, x_sum = 0;
    for (size_t k = p * n; k < (p + 1) * n; k++) {
        x_sum += x[k];
        for (size_t i = 0; i < PANEL_ROWS; i++) sum[i] += w->level[k][i] * x[k];
    }
    for (size_t i = 0; i < PANEL_ROWS; i++) acc[i] += w->scale[p][i] * x_scale * (float)sum[i];
    if (!s->has_minimum) return;
    float offset = x_scale * (float)x_sum;
    for (size_t i = 0; i < PANEL_ROWS; i++) acc[i] += w->minimum[p][i] * offset;
}

/* Panel p for rows [from, from + n), n <= ROWS. */
static void multiply(const struct planes_format *f, const struct panels *w, size_t p,
                     const struct activations *x, size_t from, size_t n, float *y, size_t y_stride)
{
    const struct planes_shape *s = planes_shape(f);
    size_t n_blocks = w->n_in / QUANT_BLOCK, group_bytes = planes_group_bytes(s);
    const uint8_t *panel = w->data + p * (n_blocks / s->blocks) * group_bytes;
    float acc[ROWS][PANEL_ROWS] = {{0}};
    for (size_t b = 0; b < n_blocks; b++) {
        struct planes_block block;
        planes_unpack(f, panel + b / s->blocks * group_bytes, b % s->blocks, &block);
        for (size_t r = 0; r < n; r++) {
            size_t at = (from + r) * n_blocks + b;
            for (size_t part = 0; part < s->parts; part++)
                add_part(s, &block, part, x->q8 + at * QUANT_BLOCK, x->scale[at], acc[r]);
        }
    }
    size_t first = p * PANEL_ROWS;
    size_t lanes = w->n_out - first < PANEL_ROWS ? w->n_out - first : PANEL_ROWS;
    for (size_t r = 0; r < n; r++)
        memcpy(y + (from + r) * y_stride + first, acc[r], lanes * sizeof **acc);
}

#define DEFINE_PLANES(id, suffix, ...)                                                             \
    KERNEL_MATMUL(matmul_##suffix##_generic)                                                       \
    {                                                                                              \
        for (size_t p = from; p < to; p++)                                                         \
            for (size_t r = 0; r < n_rows; r += ROWS)                                              \
                multiply(&planes_##suffix, w, p, x, r, n_rows - r < ROWS ? n_rows - r : ROWS, y,   \
                         y_stride);                                                                \
    }
PLANES_SHAPES(DEFINE_PLANES)
