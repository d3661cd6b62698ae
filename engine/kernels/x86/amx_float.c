/* amx_float - products of BF16 and F16 on AMX tiles.
 *
 * They have an order of their own, for any number of rows: an activation is taken as the sum of two
 * bf16 numbers, x = x0 + x1, which hold 16 bits of it; a weight of F16 is exactly w0 + w1; for each
 * 32 k, the result gets x0 w0, then x1 w0, then x0 w1. (x1 w1 would be below what x0 + x1 leaves
 * out.)
 *
 * Station before: pass. Compiled with the flags of this instruction set; called only where
 * isa_detect() found it. */
#include "engine/kernels/x86/amx_tiles.h"

enum {
    X_PARTS = 2,
    PARTS_MAX = 2,    /* of a weight */
    SPLIT_TILES = 16, /* F16: k / 32 of a panel that are split at once */
};

/* A group of rows and a chunk of k: tiles [tile][part] of A, each of rows_each rows. */
struct float_chunk {
    size_t first, n; /* tiles along k */
    size_t n_groups, rows_each;
    uint16_t *a;
};

static size_t a_tile(const struct float_chunk *c)
{
    return c->rows_each * TILE_K;
}

/* pack_floats() - the activations of a chunk in two parts; what is missing is zeros. */
static void pack_floats(const struct float_chunk *c, const float *x, size_t n_rows, size_t n_in)
{
    for (size_t r = 0; r < c->n_groups * c->rows_each; r++)
        for (size_t t = 0; t < c->n; t++) {
            size_t k = (c->first + t) * TILE_K, left = r < n_rows ? n_in - k : 0;
            __mmask16 mask0 = first_lanes(left), mask1 = first_lanes(left > 16 ? left - 16 : 0);
            const float *row = x + r * n_in + k;
            __m512 x0 = _mm512_maskz_loadu_ps(mask0, row);
            __m512 x1 = _mm512_maskz_loadu_ps(mask1, row + 16);
            __m512i first = to_bf16(x0, x1);
            __m512i half0 = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(first));
            __m512i half1 = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(first, 1));
            x0 = _mm512_sub_ps(x0, _mm512_castsi512_ps(_mm512_slli_epi32(half0, 16)));
            x1 = _mm512_sub_ps(x1, _mm512_castsi512_ps(_mm512_slli_epi32(half1, 16)));
            uint16_t *a = c->a + (r / c->rows_each * c->n + t) * X_PARTS * a_tile(c) +
                          r % c->rows_each * TILE_K;
            _mm512_storeu_si512(a, first);
            _mm512_storeu_si512(a + a_tile(c), to_bf16(x0, x1));
        }
}

/* The weights of n tiles along k from k on, as tiles [tile][part]; where they do not lie so in the
 * panel already, made in scratch. */
typedef const uint16_t *split_fn(const uint8_t *panel, size_t n_in, size_t k, size_t n,
                                 uint16_t *scratch);

/* A panel is a row of tiles. The last one, cut, is filled up with zeros; an odd last k stands
 * alone. */
static const uint16_t *split_bf16(const uint8_t *panel, size_t n_in, size_t k, size_t n,
                                  uint16_t *scratch)
{
    const uint8_t *tiles = panel + k * PANEL_ROWS * 2;
    if (n_in - k >= n * TILE_K) return (const void *)tiles;
    size_t bytes = (n_in - k) / 2 * TILE_STRIDE;
    memset(scratch, 0, n * TILE_VALUES * sizeof *scratch);
    memcpy(scratch, tiles, bytes);
    if (n_in % 2 != 0)
        for (size_t i = 0; i < PANEL_ROWS; i++)
            memcpy(scratch + bytes / 2 + 2 * i, tiles + bytes + 2 * i, 2);
    return scratch;
}

static inline __m512 load_f16(const uint8_t *panel, size_t n_in, size_t k)
{
    if (k >= n_in) return _mm512_setzero_ps();
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(panel + k * PANEL_ROWS * 2)));
}

/* The high halves of two vectors of floats as pairs. */
static inline __m512i pair_high(__m512 even, __m512 odd)
{
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
    return _mm512_or_si512(
        low, _mm512_and_si512(_mm512_castps_si512(odd), _mm512_set1_epi32((int)0xffff0000)));
}

/* What is left of a float when its high half is taken away. */
static inline __m512 rest(__m512 x)
{
    __m512i high = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000));
    return _mm512_sub_ps(x, _mm512_castsi512_ps(high));
}

static const uint16_t *split_f16(const uint8_t *panel, size_t n_in, size_t k, size_t n,
                                 uint16_t *scratch)
{
    for (size_t t = 0; t < n; t++)
        for (size_t pair = 0; pair < TILE_K / 2; pair++) {
            __m512 even = load_f16(panel, n_in, k + t * TILE_K + 2 * pair);
            __m512 odd = load_f16(panel, n_in, k + t * TILE_K + 2 * pair + 1);
            uint16_t *tile = scratch + t * 2 * TILE_VALUES + pair * 2 * PANEL_ROWS;
            _mm512_storeu_si512(tile, pair_high(even, odd));
            _mm512_storeu_si512(tile + TILE_VALUES, pair_high(rest(even), rest(odd)));
        }
    return scratch;
}

/* What a block of up to 2 x 2 results in tiles 0 to 3 works on: C tile 2 g + p. */
struct float_block {
    const uint16_t *a[2], *b[2];
    float *y[4];
    size_t stride_bytes[4];
};

/* One term: part i of the activations times part j of the weights. */
INLINE void add_term(const struct float_block *f, int groups, int panels, size_t a, size_t b)
{
    _tile_loadd(6, f->b[0] + b, TILE_STRIDE);
    if (panels == 2) _tile_loadd(7, f->b[1] + b, TILE_STRIDE);
    _tile_loadd(4, f->a[0] + a, TILE_STRIDE);
    if (groups == 2) _tile_loadd(5, f->a[1] + a, TILE_STRIDE);
    _tile_dpbf16ps(0, 4, 6);
    if (panels == 2) _tile_dpbf16ps(1, 4, 7);
    if (groups == 2) _tile_dpbf16ps(2, 5, 6);
    if (groups == 2 && panels == 2) _tile_dpbf16ps(3, 5, 7);
}

#define BEGIN_RESULT(i)                                                                            \
    do {                                                                                           \
        if (is_first)                                                                              \
            _tile_zero(i);                                                                         \
        else                                                                                       \
            _tile_loadd(i, f->y[i], f->stride_bytes[i]);                                           \
    } while (0)
#define END_RESULT(i) _tile_stored(i, f->y[i], f->stride_bytes[i])

INLINE void multiply(const struct float_block *f, int groups, int panels, size_t n, size_t a_size,
                     size_t w_parts, bool is_first)
{
    BEGIN_RESULT(0);
    if (panels == 2) BEGIN_RESULT(1);
    if (groups == 2) BEGIN_RESULT(2);
    if (groups == 2 && panels == 2) BEGIN_RESULT(3);
    for (size_t t = 0; t < n; t++) {
        size_t a = t * X_PARTS * a_size, b = t * w_parts * TILE_VALUES;
        add_term(f, groups, panels, a, b);
        add_term(f, groups, panels, a + a_size, b);
        if (w_parts == 2) add_term(f, groups, panels, a, b + TILE_VALUES);
    }
    END_RESULT(0);
    if (panels == 2) END_RESULT(1);
    if (groups == 2) END_RESULT(2);
    if (groups == 2 && panels == 2) END_RESULT(3);
}

/* Where one C tile's results go: into y, or, where they are no whole tile, first into edge. */
struct result {
    float *y;
    size_t rows, columns; /* 0: there is no such tile */
    bool is_whole;
    float edge[TILE_ROWS * PANEL_ROWS] __attribute__((aligned(64)));
};

static void result_begin(struct result *r, float *y, size_t stride, size_t rows, size_t rows_each,
                         size_t columns, bool is_first)
{
    r->y = y;
    r->rows = rows;
    r->columns = columns;
    r->is_whole = rows == rows_each && columns == PANEL_ROWS;
    for (size_t i = 0; !r->is_whole && !is_first && i < rows; i++)
        memcpy(r->edge + i * PANEL_ROWS, y + i * stride, columns * sizeof *y);
}

static void result_end(const struct result *r, size_t stride)
{
    for (size_t i = 0; !r->is_whole && i < r->rows; i++)
        memcpy(r->y + i * stride, r->edge + i * PANEL_ROWS, r->columns * sizeof *r->y);
}

/* What the products of a chunk share. */
struct float_product {
    const struct panels *w;
    size_t n_rows, y_stride, w_parts;
    float *y;
};

/* multiply_block() - up to 2 groups of rows from group on, times up to 2 panels from panel on: n
 * tiles along k, of which b has the panels' and a_at is the first of the chunk's. */
static void multiply_block(const struct float_product *m, const struct float_chunk *c, size_t group,
                           size_t panel, size_t n_panels, const uint16_t *const b[2], size_t a_at,
                           size_t n)
{
    struct result results[4];
    struct float_block f = {.b = {b[0], b[1]}};
    size_t n_groups = smaller(2, c->n_groups - group);
    bool is_first = c->first + a_at == 0;
    for (size_t g = 0; g < n_groups; g++) {
        size_t row = (group + g) * c->rows_each;
        f.a[g] = c->a + ((group + g) * c->n + a_at) * X_PARTS * a_tile(c);
        for (size_t p = 0; p < n_panels; p++) {
            struct result *r = &results[2 * g + p];
            size_t column = (panel + p) * PANEL_ROWS;
            result_begin(r, m->y + row * m->y_stride + column, m->y_stride,
                         smaller(m->n_rows - row, c->rows_each), c->rows_each,
                         smaller(m->w->n_out - column, PANEL_ROWS), is_first);
            f.y[2 * g + p] = r->is_whole ? r->y : r->edge;
            f.stride_bytes[2 * g + p] = r->is_whole ? m->y_stride * sizeof *m->y : TILE_STRIDE;
        }
    }
    if (n_groups == 2 && n_panels == 2)
        multiply(&f, 2, 2, n, a_tile(c), m->w_parts, is_first);
    else if (n_groups == 2)
        multiply(&f, 2, 1, n, a_tile(c), m->w_parts, is_first);
    else if (n_panels == 2)
        multiply(&f, 1, 2, n, a_tile(c), m->w_parts, is_first);
    else
        multiply(&f, 1, 1, n, a_tile(c), m->w_parts, is_first);
    for (size_t g = 0; g < n_groups; g++)
        for (size_t p = 0; p < n_panels; p++) result_end(&results[2 * g + p], m->y_stride);
}

/* multiply_panels() - all rows times up to 2 panels from panel on, over a chunk. */
static void multiply_panels(const struct float_product *m, const struct float_chunk *c,
                            split_fn *split, size_t panel, size_t n_panels, uint16_t *scratch)
{
    size_t panel_bytes = 2 * PANEL_ROWS * m->w->n_in;
    for (size_t t = 0; t < c->n; t += SPLIT_TILES) {
        size_t n = smaller(SPLIT_TILES, c->n - t);
        const uint16_t *b[2] = {NULL, NULL};
        for (size_t p = 0; p < n_panels; p++)
            b[p] =
                split(m->w->data + (panel + p) * panel_bytes, m->w->n_in, (c->first + t) * TILE_K,
                      n, scratch + p * SPLIT_TILES * PARTS_MAX * TILE_VALUES);
        for (size_t g = 0; g < c->n_groups; g += 2)
            multiply_block(m, c, g, panel, n_panels, b, t, n);
    }
}

static void multiply_rows(const struct float_product *m, split_fn *split, size_t from, size_t to,
                          const float *x)
{
    uint16_t a[A_TILES * TILE_VALUES] __attribute__((aligned(64)));
    uint16_t scratch[2 * SPLIT_TILES * PARTS_MAX * TILE_VALUES] __attribute__((aligned(64)));
    size_t n_tiles = (m->w->n_in + TILE_K - 1) / TILE_K;
    struct float_chunk c = {.rows_each = smaller(m->n_rows, TILE_ROWS), .a = a};
    c.n_groups = (m->n_rows + c.rows_each - 1) / c.rows_each;
    size_t step = A_TILES * TILE_ROWS / X_PARTS / (c.n_groups * c.rows_each);
    tiles_begin(c.rows_each);
    for (; c.first < n_tiles; c.first += step) {
        c.n = smaller(step, n_tiles - c.first);
        pack_floats(&c, x, m->n_rows, m->w->n_in);
        for (size_t p = from; p < to; p += 2)
            multiply_panels(m, &c, split, p, smaller(2, to - p), scratch);
    }
    tiles_end();
}

enum { ROWS_MAX = A_TILES }; /* of one walk over the panels */

#define DEFINE_MATMUL(format, parts)                                                               \
    KERNEL_MATMUL(matmul_##format##_amx)                                                           \
    {                                                                                              \
        for (size_t r = 0; r < n_rows; r += ROWS_MAX) {                                            \
            struct float_product m = {.w = w,                                                      \
                                      .n_rows = smaller(n_rows - r, ROWS_MAX),                     \
                                      .y_stride = y_stride,                                        \
                                      .w_parts = (parts),                                          \
                                      .y = y + r * y_stride};                                      \
            multiply_rows(&m, split_##format, from, to, x->f32 + r * w->n_in);                     \
        }                                                                                          \
    }

DEFINE_MATMUL(bf16, 1)
DEFINE_MATMUL(f16, 2)
