/* amx_block - products of block formats on AMX tiles.
 *
 * Quants and quantised activations are whole numbers of at most 8 bits. bf16 holds them exactly,
 * and f32 the sum of a block, which is below 2^24. So tiles of bf16 give that sum as a float, where
 * tiles of int8, no faster for 32 k at a time, would need a conversion. Scaling is that of every
 * instruction set: acc = fma(scale_w * scale_x, isum, acc), block by block. So the bits are those
 * of AVX-512, which does the products of few rows.
 *
 * Unpacking and scaling bound these products: scaling takes two instructions for each 16 sums, on
 * the ports that the tile unit takes its turns on.
 *
 * Station before: pass. Compiled with the flags of this instruction set; called only where
 * isa_detect() found it. */
#include "engine/kernels/x86/amx_tiles.h"

enum {
    BLOCKS_MAX = 12,    /* along k at once: rows and two panels fill most of the L1 cache */
    PANELS_MAX = 2,     /* unpacked at once */
    ROWS_MIN = 24,      /* with fewer, unpacking costs more than it saves */
    ROWS_MAX = A_TILES, /* of one walk over the panels */
};

/* What a product of a block format works on: all blocks of a chunk. */
struct block_chunk {
    size_t first, n; /* blocks of a row */
    size_t n_groups; /* of 16 rows */
    uint16_t *a;     /* [n_groups][n] tiles */
    float *a_scale;  /* [n_groups][n][16] */
};

/* A panel's part of a chunk, unpacked. */
struct block_panel {
    uint16_t tiles[BLOCKS_MAX * TILE_VALUES];
    float scale[BLOCKS_MAX * PANEL_ROWS];
} __attribute__((aligned(64)));

/* The quants and scales of a chunk of a panel, as tiles of bf16 and as floats. */
typedef void unpack_fn(const struct block_chunk *c, const uint8_t *panel, struct block_panel *to);

struct block_product {
    const struct panels *w;
    size_t block_bytes; /* of a block of one row in the file */
    unpack_fn *unpack;
    size_t n_rows, y_stride;
    float *y;
};

/* pack_rows() - the quantised activations of a chunk as tiles of bf16; missing rows are zeros. */
static void pack_rows(const struct block_chunk *c, const struct activations *x, size_t n_rows,
                      size_t row_blocks)
{
    for (size_t r = 0; r < c->n_groups * TILE_ROWS; r++) {
        size_t at = r / TILE_ROWS * c->n, within = r % TILE_ROWS;
        for (size_t b = 0; b < c->n; b++) {
            uint16_t *a = c->a + (at + b) * TILE_VALUES + within * TILE_K;
            float *scale = c->a_scale + (at + b) * TILE_ROWS + within;
            if (r >= n_rows) {
                memset(a, 0, TILE_K * sizeof *a);
                *scale = 0;
                continue;
            }
            size_t block = r * row_blocks + c->first + b;
            const __m128i *q = (const void *)(x->q8 + block * QUANT_BLOCK);
            __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(q)));
            __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(q + 1)));
            _mm512_storeu_si512(a, to_bf16(low, high));
            *scale = x->scale[block];
        }
    }
}

/* Whole numbers of 16 lanes as pairs of bf16: even k in the low half. They have 8 bits, so the low
 * halves of their floats are zeros. */
static inline __m512i pair_whole(__m512i even, __m512i odd)
{
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(even)), 16);
    return _mm512_or_si512(low, _mm512_castps_si512(_mm512_cvtepi32_ps(odd)));
}

static inline __m512 load_scales(const uint8_t *block)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)block));
}

static void unpack_q8_0(const struct block_chunk *c, const uint8_t *panel, struct block_panel *to)
{
    const uint8_t *block = panel + c->first * 34 * PANEL_ROWS;
    for (size_t b = 0; b < c->n; b++, block += 34 * PANEL_ROWS) {
        uint16_t *tile = to->tiles + b * TILE_VALUES;
        _mm512_storeu_ps(to->scale + b * PANEL_ROWS, load_scales(block));
        for (size_t j = 0; j < QUANT_BLOCK / 4; j++) { /* four k of each output */
            __m512i four = _mm512_xor_si512(_mm512_loadu_si512(block + 2 * PANEL_ROWS + j * 64),
                                            _mm512_set1_epi8(-128));
            __m512i k0 = _mm512_srai_epi32(_mm512_slli_epi32(four, 24), 24);
            __m512i k1 = _mm512_srai_epi32(_mm512_slli_epi32(four, 16), 24);
            __m512i k2 = _mm512_srai_epi32(_mm512_slli_epi32(four, 8), 24);
            __m512i k3 = _mm512_srai_epi32(four, 24);
            _mm512_storeu_si512(tile + j * 64, pair_whole(k0, k1));
            _mm512_storeu_si512(tile + j * 64 + 32, pair_whole(k2, k3));
        }
    }
}

/* -8 .. 7 in bf16, by the quant's four bits; twice, because the look-up reads five. */
static const uint16_t nibbles[32] = {
    0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000,
    0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
    0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0,
};

static void unpack_q4_0(const struct block_chunk *c, const uint8_t *panel, struct block_panel *to)
{
    const uint8_t *block = panel + c->first * 18 * PANEL_ROWS;
    const __m512i table = _mm512_loadu_si512(nibbles);
    /* Bytes 0 and 1, or 2 and 3, of each output, a word apart. */
    const __m512i bytes_01 = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
    const __m512i bytes_23 = _mm512_broadcast_i32x4(
        _mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1));
    for (size_t b = 0; b < c->n; b++, block += 18 * PANEL_ROWS) {
        uint16_t *low = to->tiles + b * TILE_VALUES, *high = low + TILE_VALUES / 2;
        _mm512_storeu_ps(to->scale + b * PANEL_ROWS, load_scales(block));
        for (size_t j = 0; j < QUANT_BLOCK / 8; j++) {
            __m512i halves = _mm512_loadu_si512(block + 2 * PANEL_ROWS + j * 64);
            __m512i first = _mm512_shuffle_epi8(halves, bytes_01);
            __m512i second = _mm512_shuffle_epi8(halves, bytes_23);
            _mm512_storeu_si512(low + j * 64, _mm512_permutexvar_epi16(first, table));
            _mm512_storeu_si512(low + j * 64 + 32, _mm512_permutexvar_epi16(second, table));
            _mm512_storeu_si512(high + j * 64,
                                _mm512_permutexvar_epi16(_mm512_srli_epi16(first, 4), table));
            _mm512_storeu_si512(high + j * 64 + 32,
                                _mm512_permutexvar_epi16(_mm512_srli_epi16(second, 4), table));
        }
    }
}

/* Sums of one block for 16 rows and 16 outputs: begun, and given out. */
#define BEGIN_SUMS(c_tile, a_tile, b_tile, a, b)                                                   \
    do {                                                                                           \
        _tile_loadd(a_tile, a, TILE_STRIDE);                                                       \
        _tile_loadd(b_tile, b, TILE_STRIDE);                                                       \
        _tile_zero(c_tile);                                                                        \
        _tile_dpbf16ps(c_tile, a_tile, b_tile);                                                    \
    } while (0)
#define END_SUMS(c_tile, sums) _tile_stored(c_tile, sums, TILE_STRIDE)

INLINE void scale_sums(__m512 acc[TILE_ROWS], const float *sums, const float *a_scale,
                       const float *b_scale)
{
    __m512 scale = _mm512_load_ps(b_scale);
    UNROLL_FOR (r, TILE_ROWS) {
        __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(a_scale[r]));
        acc[r] = _mm512_fmadd_ps(both, _mm512_load_ps(sums + r * PANEL_ROWS), acc[r]);
    }
}

/* One group of rows times one panel. */
struct visit {
    const uint16_t *a, *b;
    const float *a_scale, *b_scale;
    float *y;
    size_t n_rows;
    __mmask16 columns;
};

static struct visit visit_at(const struct block_product *m, const struct block_chunk *c,
                             const struct block_panel *panels, size_t first, size_t n_panels,
                             size_t index)
{
    size_t group = index / n_panels, row = group * TILE_ROWS;
    const struct block_panel *panel = &panels[index % n_panels];
    size_t column = (first + index % n_panels) * PANEL_ROWS;
    return (struct visit){.a = c->a + group * c->n * TILE_VALUES,
                          .b = panel->tiles,
                          .a_scale = c->a_scale + group * c->n * TILE_ROWS,
                          .b_scale = panel->scale,
                          .y = m->y + row * m->y_stride + column,
                          .n_rows = smaller(m->n_rows - row, TILE_ROWS),
                          .columns = first_lanes(m->w->n_out - column)};
}

/* multiply_panels() - a chunk of some panels, unpacked, for all rows; y holds what the chunks
 * before gave. While the sums of one block are scaled, the tiles work on the next two, if need be
 * of the next visit: a visit ends with sums[0] and tile 1 as the next one wants them. */
static void multiply_panels(const struct block_product *m, const struct block_chunk *c,
                            const struct block_panel *panels, size_t first, size_t n_panels,
                            struct ahead ahead[PANELS_MAX])
{
    float sums[2][TILE_ROWS * PANEL_ROWS] __attribute__((aligned(64)));
    size_t n_visits = c->n_groups * n_panels, second = smaller(1, c->n - 1) * TILE_VALUES;
    struct visit v = visit_at(m, c, panels, first, n_panels, 0);
    BEGIN_SUMS(0, 4, 6, v.a, v.b);
    END_SUMS(0, sums[0]);
    BEGIN_SUMS(1, 5, 7, v.a + second, v.b + second);
    for (size_t index = 0; index < n_visits; index++) {
        struct visit next =
            visit_at(m, c, panels, first, n_panels, smaller(index + 1, n_visits - 1));
        __m512 acc[TILE_ROWS];
        for (size_t p = 0; p < PANELS_MAX; p++) fetch_share(&ahead[p]);
        UNROLL_FOR (r, TILE_ROWS)
            acc[r] = c->first > 0 && (size_t)r < v.n_rows
                         ? _mm512_maskz_loadu_ps(v.columns, v.y + (size_t)r * m->y_stride)
                         : _mm512_setzero_ps();
        for (size_t i = 0; i < c->n; i += 2) {
            bool goes_on = i + 2 < c->n;
            size_t even = (i + 2) * TILE_VALUES, odd = smaller(i + 3, c->n - 1) * TILE_VALUES;
            BEGIN_SUMS(0, 4, 6, goes_on ? v.a + even : next.a, goes_on ? v.b + even : next.b);
            END_SUMS(1, sums[1]);
            scale_sums(acc, sums[0], v.a_scale + i * TILE_ROWS, v.b_scale + i * PANEL_ROWS);
            BEGIN_SUMS(1, 5, 7, goes_on ? v.a + odd : next.a + second,
                       goes_on ? v.b + odd : next.b + second);
            END_SUMS(0, sums[0]);
            if (i + 1 == c->n) break;
            scale_sums(acc, sums[1], v.a_scale + (i + 1) * TILE_ROWS,
                       v.b_scale + (i + 1) * PANEL_ROWS);
        }
        UNROLL_FOR (r, TILE_ROWS)
            if ((size_t)r < v.n_rows)
                _mm512_mask_storeu_ps(v.y + (size_t)r * m->y_stride, v.columns, acc[r]);
        v = next;
    }
}

static void multiply(const struct block_product *m, size_t from, size_t to,
                     const struct activations *x)
{
    uint16_t a[A_TILES * TILE_VALUES] __attribute__((aligned(64)));
    float a_scale[A_TILES * TILE_ROWS] __attribute__((aligned(64)));
    struct block_panel panels[PANELS_MAX];
    size_t n_blocks = m->w->n_in / QUANT_BLOCK;
    size_t block_bytes = m->block_bytes * PANEL_ROWS, panel_bytes = n_blocks * block_bytes;
    struct block_chunk c = {
        .n_groups = (m->n_rows + TILE_ROWS - 1) / TILE_ROWS, .a = a, .a_scale = a_scale};
    size_t step = smaller(A_TILES / c.n_groups, BLOCKS_MAX);
    tiles_begin(TILE_ROWS);
    for (; c.first < n_blocks; c.first += step) {
        c.n = smaller(step, n_blocks - c.first);
        pack_rows(&c, x, m->n_rows, n_blocks);
        for (size_t first = from; first < to; first += PANELS_MAX) {
            size_t n_panels = smaller(PANELS_MAX, to - first);
            for (size_t p = 0; p < n_panels; p++)
                m->unpack(&c, m->w->data + (first + p) * panel_bytes, &panels[p]);
            struct ahead ahead[PANELS_MAX] = {{0}};
            for (size_t p = 0; p < PANELS_MAX && first + PANELS_MAX + p < to; p++)
                ahead[p] = ahead_of(m->w->data + (first + PANELS_MAX + p) * panel_bytes +
                                        c.first * block_bytes,
                                    c.n * block_bytes, c.n_groups * n_panels);
            multiply_panels(m, &c, panels, first, n_panels, ahead);
        }
    }
    tiles_end();
}

/* rows_from() - the activations from a row on. */
static struct activations rows_from(const struct activations *x, size_t n_in, size_t row)
{
    size_t blocks = n_in / QUANT_BLOCK;
    return (struct activations){
        .q8 = x->q8 + row * n_in, .scale = x->scale + row * blocks, .sum = x->sum + row * blocks};
}

#define DEFINE_MATMUL(format, bytes)                                                               \
    KERNEL_MATMUL(matmul_##format##_amx)                                                           \
    {                                                                                              \
        for (size_t r = 0; r < n_rows; r += ROWS_MAX) {                                            \
            struct block_product m = {.w = w,                                                      \
                                      .block_bytes = (bytes),                                      \
                                      .unpack = unpack_##format,                                   \
                                      .n_rows = smaller(n_rows - r, ROWS_MAX),                     \
                                      .y_stride = y_stride,                                        \
                                      .y = y + r * y_stride};                                      \
            struct activations some = rows_from(x, w->n_in, r);                                    \
            if (m.n_rows < ROWS_MIN)                                                               \
                matmul_##format##_avx512(w, from, to, &some, m.n_rows, m.y, y_stride);             \
            else                                                                                   \
                multiply(&m, from, to, &some);                                                     \
        }                                                                                          \
    }

DEFINE_MATMUL(q8_0, 34)
DEFINE_MATMUL(q4_0, 18)
