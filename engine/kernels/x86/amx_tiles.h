/* amx_tiles - what the products on AMX tiles share: the configuration, and results under way.
 *
 * A tile product adds A [rows][k] times B [k][16 outputs] to C [rows][16 outputs]: of bf16 to f32,
 * where B holds pairs along k side by side, or of int8 to int32, where it holds fours. The order of
 * an element's sum does not depend on how many rows A has, so a row alone gives the same bits as
 * among others.
 *
 * Source: Intel Architecture Instruction Set Extensions Programming Reference, AMX. */
#ifndef TANDEM_ENGINE_KERNELS_AMX_TILES_H
#define TANDEM_ENGINE_KERNELS_AMX_TILES_H

#include "engine/kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
/* A loop over registers: it must vanish. */
#define UNROLL_FOR(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)

enum {
    TILE_ROWS = 16,
    TILE_STRIDE = 64, /* bytes of a row of B, and of C */
    RESULT_VALUES = TILE_ROWS * PANEL_ROWS,
    RESULT_TILES = 1024, /* under way: 1 MiB, half of the L2 cache */
};

struct tile_config {
    uint8_t palette, start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* tiles_begin() - C in tiles 0 to 3 and A in 4 and 5 have so many rows, those of A so many bytes,
 * and B in 6 and 7 has as many rows as it takes for them. The compiler's intrinsic claims to read 8
 * bytes only, so without the barrier the rest of the configuration would never be stored.
 * tiles_end() lets the system save less when it switches. */
static inline void tiles_begin(size_t n_rows, size_t a_bytes)
{
    struct tile_config config = {.palette = 1};
    for (size_t i = 0; i < 8; i++) {
        config.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? a_bytes : TILE_STRIDE);
        config.rows[i] = (uint8_t)(i < 6 ? n_rows : a_bytes / 4);
    }
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

static inline void tiles_end(void)
{
    _tile_release();
}

static inline __mmask16 first_lanes(size_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1U << n) - 1);
}

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Results under way, while k is walked in chunks, as tiles. They do not wait in y, whose rows are
 * often a power of two apart and would fall upon the same few places of the caches. */
struct results {
    float value[RESULT_TILES][RESULT_VALUES];
} __attribute__((aligned(64)));

/* Where a tile's results go. */
struct result_place {
    float *y;
    size_t y_stride, n_rows;
    __mmask16 columns;
};

/* result_fetch() - it is going to be written: rows far apart, which the CPU does not foresee. */
static inline void result_fetch(struct result_place to)
{
    for (size_t r = 0; r < to.n_rows; r++) __builtin_prefetch(to.y + r * to.y_stride, 1);
}

static inline void result_store(const float *tile, struct result_place to)
{
    for (size_t r = 0; r < to.n_rows; r++)
        _mm512_mask_storeu_ps(to.y + r * to.y_stride, to.columns,
                              _mm512_load_ps(tile + r * PANEL_ROWS));
}

/* What is needed next of the weights: fetched in small shares while there is work, because it comes
 * from far and in pieces that the CPU does not foresee. */
struct ahead {
    const uint8_t *from, *end;
    size_t share; /* bytes */
};

static inline struct ahead ahead_of(const uint8_t *from, size_t n_bytes, size_t n_shares)
{
    size_t lines = (n_bytes + 63) / 64;
    return (struct ahead){
        .from = from, .end = from + n_bytes, .share = (lines + n_shares - 1) / n_shares * 64};
}

static inline void fetch_share(struct ahead *ahead)
{
    const uint8_t *stop = ahead->from + ahead->share;
    for (; ahead->from < stop && ahead->from < ahead->end; ahead->from += 64)
        _mm_prefetch(ahead->from, _MM_HINT_T1);
}

#endif
