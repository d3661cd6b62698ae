/* matmul_blas - products of float formats through OpenBLAS; the only file that knows it.
 *
 *   y[r][o] = sum over k of W[o][k] * x[r][k]
 *
 * A square of the packed weights, GROUP_PANELS panels wide and CHUNK_K deep, is decoded to f32
 * [k][column] and handed to sgemm, square by square along k. Squares lie at fixed places of the
 * matrix, whatever share of it a thread has, so that the result does not depend on the number of
 * threads. It does depend on the number of rows, by which sgemm chooses its ways.
 *
 * Station before: kernels.c, which puts these in the table where they are asked for. */
#include "engine/kernels/kernels.h"

#include <cblas.h>
#include <string.h>

enum { GROUP_PANELS = BLAS_SHARE_PANELS, COLUMNS = GROUP_PANELS * PANEL_ROWS, CHUNK_K = 256 };

/* decode() - k and the next n - 1 columns of one panel, as 16 values each, COLUMNS apart. */
typedef void decode_fn(const uint8_t *panel, size_t n_in, size_t k, size_t n, float *out);

static void decode_f32(const uint8_t *panel, size_t n_in, size_t k, size_t n, float *out)
{
    (void)n_in;
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * COLUMNS, panel + (k + i) * PANEL_ROWS * sizeof *out,
               PANEL_ROWS * sizeof *out);
}

static void decode_f16(const uint8_t *panel, size_t n_in, size_t k, size_t n, float *out)
{
    (void)n_in;
    for (size_t i = 0; i < n; i++) {
        uint16_t values[PANEL_ROWS];
        memcpy(values, panel + (k + i) * sizeof values, sizeof values);
        for (size_t lane = 0; lane < PANEL_ROWS; lane++)
            out[i * COLUMNS + lane] = f16_to_f32(values[lane]);
    }
}

/* Pairs along k, but for the last k of an odd length. k and, but at the end, n are even. */
static void decode_bf16(const uint8_t *panel, size_t n_in, size_t k, size_t n, float *out)
{
    for (size_t i = 0; i < n; i += 2) {
        const bool alone = k + i + 1 == n_in;
        uint16_t values[2 * PANEL_ROWS] = {0};
        memcpy(values, panel + (k + i) * PANEL_ROWS * sizeof *values,
               (alone ? 1U : 2U) * PANEL_ROWS * sizeof *values);
        for (size_t lane = 0; lane < PANEL_ROWS; lane++) {
            out[i * COLUMNS + lane] = bf16_to_f32(values[alone ? lane : 2 * lane]);
            if (!alone) out[(i + 1) * COLUMNS + lane] = bf16_to_f32(values[2 * lane + 1]);
        }
    }
}

static void multiply(const struct panels *w, size_t value_bytes, decode_fn *decode, size_t from,
                     size_t to, const float *x, size_t n_rows, float *y, size_t y_stride)
{
    float square[CHUNK_K * COLUMNS] __attribute__((aligned(64)));
    const size_t panel_bytes = PANEL_ROWS * value_bytes * w->n_in;
    for (size_t first = from; first < to; first += GROUP_PANELS) {
        const size_t n_panels = to - first < GROUP_PANELS ? to - first : GROUP_PANELS;
        const size_t column = first * PANEL_ROWS, left = w->n_out - column;
        const size_t n_columns = left < n_panels * PANEL_ROWS ? left : n_panels * PANEL_ROWS;
        for (size_t k = 0; k < w->n_in; k += CHUNK_K) {
            const size_t n = w->n_in - k < CHUNK_K ? w->n_in - k : CHUNK_K;
            for (size_t p = 0; p < n_panels; p++)
                decode(w->data + (first + p) * panel_bytes, w->n_in, k, n, square + p * PANEL_ROWS);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)n_rows,
                        (blasint)n_columns, (blasint)n, 1, x + k, (blasint)w->n_in, square, COLUMNS,
                        k == 0 ? 0 : 1, y + column, (blasint)y_stride);
        }
    }
}

KERNEL_MATMUL(matmul_f32_blas)
{
    multiply(w, 4, decode_f32, from, to, x->f32, n_rows, y, y_stride);
}

KERNEL_MATMUL(matmul_f16_blas)
{
    multiply(w, 2, decode_f16, from, to, x->f32, n_rows, y, y_stride);
}

KERNEL_MATMUL(matmul_bf16_blas)
{
    multiply(w, 2, decode_bf16, from, to, x->f32, n_rows, y, y_stride);
}

/* Other flavours, which a machine may have instead, would start threads of their own. */
void blas_begin(void)
{
    openblas_set_num_threads(1);
}
