/* amx_tiles - what the products on AMX tiles share: the configuration, and bf16.
 *
 * A tile product adds A [rows][32 k] times B [32 k][16 outputs] of bf16, where B holds pairs along
 * k side by side, to C [rows][16 outputs] of f32. The order of an element's sum does not depend on
 * how many rows A has, so a row alone gives the same bits as among others.
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
    TILE_K = 32,
    TILE_VALUES = TILE_ROWS * TILE_K, /* 1 KiB, of A and of B */
    TILE_STRIDE = 64,                 /* bytes of a row of a tile */
    A_TILES = 512,                    /* activations at once: 512 KiB, a share of the L2 cache */
};

struct tile_config {
    uint8_t palette, start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* tiles_begin() - C in tiles 0 to 3 and A in 4 and 5 have so many rows, B in 6 and 7 has 16. The
 * compiler's intrinsic claims to read 8 bytes only, so without the barrier the rest of the
 * configuration would never be stored. tiles_end() lets the system save less when it switches. */
static inline void tiles_begin(size_t n_rows)
{
    struct tile_config config = {.palette = 1};
    for (size_t i = 0; i < 8; i++) {
        config.row_bytes[i] = TILE_STRIDE;
        config.rows[i] = (uint8_t)(i < 6 ? n_rows : TILE_ROWS);
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

/* 32 f32 as bf16, in order. */
static inline __m512i to_bf16(__m512 first, __m512 second)
{
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

#endif
