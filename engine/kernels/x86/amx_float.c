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
    TILE_K = 32,
    TILE_VALUES = TILE_ROWS * TILE_K, /* 1 KiB, of A and of B */
    X_PARTS = 2,
    PARTS_MAX = 2,  /* of a weight */
    A_TILES = 512,  /* activations at once: 512 KiB, a share of the L2 cache */
    PANELS_MAX = 4, /* that share a tile of A */
    B_TILES = 24,   /* weights at once: half of the L1 cache */
    ROWS_MAX = 512, /* of one walk over the panels */
};

/* A group of rows and a chunk of k: tiles [tile][part] of A, each of rows_each rows. */
struct float_chunk {
    size_t first, n; /* tiles along k */
    bool is_last;
    size_t n_groups, rows_each;
    uint16_t *a;
};

static size_t a_tile(const struct float_chunk *c)
{
    return c->rows_each * TILE_K;
}

/* 32 f32 as bf16, in order. */
static inline __m512i to_bf16(__m512 first, __m512 second)
{
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

/* pack_floats() - the activations of a chunk in two parts; what is missing is zeros. */
static void pack_floats(const struct float_chunk *c, const float *x, size_t n_rows, size_t n_in)
{
    size_t size = a_tile(c);
    for (size_t r = 0; r < c->n_groups * c->rows_each; r++) {
        size_t k = c->first * TILE_K, group = r / c->rows_each, within = r % c->rows_each;
        uint16_t *a = c->a + group * c->n * X_PARTS * size + within * TILE_K;
        for (size_t t = 0; t < c->n; t++, k += TILE_K, a += X_PARTS * size) {
            size_t left = r < n_rows ? n_in - k : 0;
            const float *row = x + r * n_in + k;
            __m512 x0 = _mm512_maskz_loadu_ps(first_lanes(left), row);
            __m512 x1 = _mm512_maskz_loadu_ps(first_lanes(left > 16 ? left - 16 : 0), row + 16);
            __m512i first = to_bf16(x0, x1);
            __m512i half0 = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(first));
            __m512i half1 = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(first, 1));
            x0 = _mm512_sub_ps(x0, _mm512_castsi512_ps(_mm512_slli_epi32(half0, 16)));
            x1 = _mm512_sub_ps(x1, _mm512_castsi512_ps(_mm512_slli_epi32(half1, 16)));
            _mm512_storeu_si512(a, first);
            _mm512_storeu_si512(a + size, to_bf16(x0, x1));
        }
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

/* What bf16 keeps of a float when the rest is cut off. */
static inline __m512 high_half(__m512 x)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000)));
}

/* Two vectors of floats that bf16 holds, as pairs. */
static inline __m512i pair_parts(__m512 even, __m512 odd)
{
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
    return _mm512_or_si512(low, _mm512_castps_si512(odd));
}

static const uint16_t *split_f16(const uint8_t *panel, size_t n_in, size_t k, size_t n,
                                 uint16_t *scratch)
{
    for (size_t t = 0; t < n; t++)
        for (size_t pair = 0; pair < TILE_K / 2; pair++) {
            __m512 even = load_f16(panel, n_in, k + t * TILE_K + 2 * pair);
            __m512 odd = load_f16(panel, n_in, k + t * TILE_K + 2 * pair + 1);
            __m512 even_high = high_half(even), odd_high = high_half(odd);
            uint16_t *tile = scratch + t * 2 * TILE_VALUES + pair * 2 * PANEL_ROWS;
            _mm512_storeu_si512(tile, pair_parts(even_high, odd_high));
            _mm512_storeu_si512(tile + TILE_VALUES, pair_parts(_mm512_sub_ps(even, even_high),
                                                               _mm512_sub_ps(odd, odd_high)));
        }
    return scratch;
}

/* One group of rows times some panels, whose results are tiles 0 to 3. */
struct float_block {
    const uint16_t *a, *b[PANELS_MAX];
    float (*result)[RESULT_VALUES];
};

/* A part of the activations, in tile a, times one of the weights; a panel after the other, so that
 * no product waits for the one before. */
#define ADD_PANEL(p, a_reg, b_reg)                                                                 \
    do {                                                                                           \
        if (panels <= (p)) break;                                                                  \
        _tile_loadd(b_reg, f->b[p] + b, TILE_STRIDE);                                              \
        _tile_dpbf16ps(p, a_reg, b_reg);                                                           \
    } while (0)
#define ADD_TERM(a_reg)                                                                            \
    do {                                                                                           \
        ADD_PANEL(0, a_reg, 6);                                                                    \
        ADD_PANEL(1, a_reg, 7);                                                                    \
        ADD_PANEL(2, a_reg, 6);                                                                    \
        ADD_PANEL(3, a_reg, 7);                                                                    \
    } while (0)
#define BEGIN_RESULT(p)                                                                            \
    do {                                                                                           \
        if (panels <= (p)) break;                                                                  \
        if (is_first)                                                                              \
            _tile_zero(p);                                                                         \
        else                                                                                       \
            _tile_loadd(p, f->result[p], TILE_STRIDE);                                             \
    } while (0)
#define END_RESULT(p)                                                                              \
    do {                                                                                           \
        if (panels > (p)) _tile_stored(p, f->result[p], TILE_STRIDE);                              \
    } while (0)

/* multiply() - n tiles along k. */
INLINE void multiply(const struct float_block *f, int panels, size_t n, size_t a_size,
                     size_t w_parts, bool is_first)
{
    BEGIN_RESULT(0);
    BEGIN_RESULT(1);
    BEGIN_RESULT(2);
    BEGIN_RESULT(3);
    const uint16_t *a = f->a;
    size_t b = 0;
    for (size_t t = 0; t < n; t++, a += X_PARTS * a_size, b += TILE_VALUES) {
        _tile_loadd(4, a, TILE_STRIDE);
        ADD_TERM(4);
        _tile_loadd(5, a + a_size, TILE_STRIDE);
        ADD_TERM(5);
        if (w_parts == 1) continue;
        b += TILE_VALUES;
        ADD_TERM(4);
    }
    END_RESULT(0);
    END_RESULT(1);
    END_RESULT(2);
    END_RESULT(3);
}

/* What the products of some rows share. */
struct float_product {
    const struct panels *w;
    size_t n_rows, y_stride, w_parts;
    split_fn *split;
    float *y;
};

/* Some panels on their way through a chunk. */
struct float_set {
    size_t first, n;                 /* panels of the matrix */
    float (*results)[RESULT_VALUES]; /* [groups][n] */
    const uint16_t *b[PANELS_MAX];   /* tiles [from, from + n_tiles) of the chunk */
    size_t from, n_tiles;
    struct ahead ahead[PANELS_MAX];
    uint16_t scratch[PANELS_MAX][B_TILES * TILE_VALUES / PANELS_MAX] __attribute__((aligned(64)));
};

/* piece_tiles() - along k, of a set at once. */
static size_t piece_tiles(const struct float_product *m)
{
    return B_TILES / PANELS_MAX / m->w_parts;
}

static struct result_place place_of(const struct float_product *m, const struct float_chunk *c,
                                    size_t group, size_t panel)
{
    size_t row = group * c->rows_each, column = panel * PANEL_ROWS;
    return (struct result_place){.y = m->y + row * m->y_stride + column,
                                 .y_stride = m->y_stride,
                                 .n_rows = smaller(m->n_rows - row, c->rows_each),
                                 .columns = first_lanes(m->w->n_out - column)};
}

/* multiply_group() - a group of rows times a set. */
static void multiply_group(const struct float_product *m, const struct float_chunk *c,
                           const struct float_set *set, size_t group)
{
    size_t size = a_tile(c), n = set->n_tiles;
    struct float_block f = {.a = c->a + (group * c->n + set->from) * X_PARTS * size,
                            .result = set->results + group * set->n};
    bool is_first = c->first + set->from == 0, is_last = c->is_last && set->from + n == c->n;
    for (size_t p = 0; p < set->n; p++) {
        f.b[p] = set->b[p];
        if (is_last) result_fetch(place_of(m, c, group, set->first + p));
    }
    switch (set->n) {
    case 4:
        multiply(&f, 4, n, size, m->w_parts, is_first);
        break;
    case 3:
        multiply(&f, 3, n, size, m->w_parts, is_first);
        break;
    case 2:
        multiply(&f, 2, n, size, m->w_parts, is_first);
        break;
    default:
        multiply(&f, 1, n, size, m->w_parts, is_first);
    }
    for (size_t p = 0; is_last && p < set->n; p++)
        result_store(f.result[p], place_of(m, c, group, set->first + p));
}

/* open_piece() - the next tiles of a set, split if they must be; and a plan to fetch what comes
 * after them, in the same panels or the next ones. */
static void open_piece(const struct float_product *m, const struct float_chunk *c,
                       struct float_set *set)
{
    size_t tile_bytes = TILE_K * PANEL_ROWS * 2, panel_bytes = 2 * PANEL_ROWS * m->w->n_in;
    set->n_tiles = smaller(piece_tiles(m), c->n - set->from);
    bool is_end = set->from + set->n_tiles == c->n;
    size_t next = is_end ? PANELS_MAX * panel_bytes + c->first * tile_bytes
                         : (c->first + set->from + set->n_tiles) * tile_bytes;
    for (size_t p = 0; p < set->n; p++) {
        const uint8_t *panel = m->w->data + (set->first + p) * panel_bytes;
        set->b[p] = m->split(panel, m->w->n_in, (c->first + set->from) * TILE_K, set->n_tiles,
                             set->scratch[p]);
        set->ahead[p] =
            ahead_of(panel + next, smaller(piece_tiles(m), c->n) * tile_bytes, c->n_groups);
    }
}

/* multiply_set() - a chunk of some panels for all rows. */
static void multiply_set(const struct float_product *m, const struct float_chunk *c,
                         struct float_set *set)
{
    for (set->from = 0; set->from < c->n; set->from += set->n_tiles) {
        open_piece(m, c, set);
        for (size_t g = 0; g < c->n_groups; g++) {
            for (size_t p = 0; p < set->n; p++) fetch_share(&set->ahead[p]);
            multiply_group(m, c, set, g);
        }
    }
}

/* multiply_rows() - as many panels at once as there is room for their results, in chunks
 * along k. */
static void multiply_rows(const struct float_product *m, size_t from, size_t to, const float *x)
{
    uint16_t a[A_TILES * TILE_VALUES] __attribute__((aligned(64)));
    struct results results;
    struct float_set set;
    size_t n_tiles = (m->w->n_in + TILE_K - 1) / TILE_K;
    struct float_chunk c = {.rows_each = smaller(m->n_rows, TILE_ROWS), .a = a};
    c.n_groups = (m->n_rows + c.rows_each - 1) / c.rows_each;
    size_t step = A_TILES * TILE_ROWS / X_PARTS / (c.n_groups * c.rows_each);
    size_t n_panels = RESULT_TILES / c.n_groups;
    if (step > piece_tiles(m)) step -= step % piece_tiles(m);
    tiles_begin(c.rows_each, TILE_STRIDE);
    for (; from < to; from += n_panels) {
        size_t end = smaller(from + n_panels, to);
        for (c.first = 0; c.first < n_tiles; c.first += c.n) {
            c.n = smaller(step, n_tiles - c.first);
            c.is_last = c.first + c.n == n_tiles;
            pack_floats(&c, x, m->n_rows, m->w->n_in);
            for (set.first = from; set.first < end; set.first += PANELS_MAX) {
                set.n = smaller(PANELS_MAX, end - set.first);
                set.results = results.value + (set.first - from) * c.n_groups;
                multiply_set(m, &c, &set);
            }
        }
    }
    tiles_end();
}

/* ---- few rows: the arithmetic of the tile unit, without its tiles ----
 *
 * For each result and 32 k, the unit adds up the products of even k and those of odd k, each with
 * one rounding a step, and then C = C + (even + odd); what is too small to be normal is 0, coming
 * and going. A row alone waits for memory here, where unpacking into tiles would make it wait for
 * itself. */

enum {
    FEW_ROWS = 2,
    FEW_K = 16384, /* of a row at once */
    TERMS_MAX = 3,
    PREFETCH_BYTES = 2048,  /* ahead in a panel, past a page's end, where the CPU guesses no more */
    FLUSH_TO_ZERO = 0x8040, /* in MXCSR: results and operands */
};

/* A row in two parts, each number of bf16 as a float. */
struct split_row {
    float first[FEW_K], second[FEW_K];
};

static void split_row(const float *x, size_t n, struct split_row *to)
{
    for (size_t k = 0; k < (n + TILE_K - 1) / TILE_K * TILE_K; k += 16) {
        __m512 value = _mm512_maskz_loadu_ps(first_lanes(k < n ? n - k : 0), x + k);
        __m512 first = _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(value)), 16));
        __m512i second = _mm512_slli_epi32(
            _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_sub_ps(value, first))), 16);
        _mm512_storeu_ps(to->first + k, first);
        _mm512_storeu_ps(to->second + k, _mm512_castsi512_ps(second));
    }
}

/* The parts of the weights of k and k + 1, for all outputs of a panel. */
typedef void load_pair_fn(const uint8_t *panel, size_t n_in, size_t k, __m512 even[PARTS_MAX],
                          __m512 odd[PARTS_MAX]);

INLINE void load_pair_bf16(const uint8_t *panel, size_t n_in, size_t k, __m512 even[PARTS_MAX],
                           __m512 odd[PARTS_MAX])
{
    const uint8_t *at = panel + k * PANEL_ROWS * 2;
    if (k + 1 == n_in) {
        __m512i last = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)at));
        even[0] = _mm512_castsi512_ps(_mm512_slli_epi32(last, 16));
        odd[0] = _mm512_setzero_ps();
        return;
    }
    __m512i both = _mm512_loadu_si512(at);
    even[0] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    odd[0] = high_half(_mm512_castsi512_ps(both));
}

INLINE void load_pair_f16(const uint8_t *panel, size_t n_in, size_t k, __m512 even[PARTS_MAX],
                          __m512 odd[PARTS_MAX])
{
    __m512 w0 = load_f16(panel, n_in, k), w1 = load_f16(panel, n_in, k + 1);
    even[0] = high_half(w0);
    odd[0] = high_half(w1);
    even[1] = _mm512_sub_ps(w0, even[0]);
    odd[1] = _mm512_sub_ps(w1, odd[0]);
}

/* add_products() - tiles [first, end) along k of one row times panels, onto acc. */
INLINE void add_products(const uint8_t *const panel[2], int panels, int parts,
                         load_pair_fn *load_pair, size_t n_in, size_t from, size_t to,
                         const struct split_row *x, __m512 acc[2])
{
    for (size_t tile = from; tile < to; tile += TILE_K) {
        __m512 even[2][TERMS_MAX], odd[2][TERMS_MAX];
        UNROLL_FOR (p, panels)
            UNROLL_FOR (i, parts + 1) even[p][i] = odd[p][i] = _mm512_setzero_ps();
        size_t end = smaller(tile + TILE_K, n_in);
        for (size_t k = tile; k < end; k += 2) {
            const float *first = x->first + (k - from), *second = x->second + (k - from);
            UNROLL_FOR (p, panels) {
                __m512 w_even[PARTS_MAX], w_odd[PARTS_MAX];
                _mm_prefetch(panel[p] + k * PANEL_ROWS * 2 + PREFETCH_BYTES, _MM_HINT_T0);
                load_pair(panel[p], n_in, k, w_even, w_odd);
                UNROLL_FOR (i, parts + 1) {
                    const float *part = i == 1 ? second : first;
                    int j = i == 2 ? 1 : 0;
                    even[p][i] = _mm512_fmadd_ps(w_even[j], _mm512_set1_ps(part[0]), even[p][i]);
                    odd[p][i] = _mm512_fmadd_ps(w_odd[j], _mm512_set1_ps(part[1]), odd[p][i]);
                }
            }
        }
        UNROLL_FOR (p, panels)
            UNROLL_FOR (i, parts + 1)
                acc[p] = _mm512_add_ps(acc[p], _mm512_add_ps(even[p][i], odd[p][i]));
    }
}

/* multiply_row() - row by row; two panels side by side hide what one waits for. */
INLINE void multiply_row(const struct float_product *m, int parts, load_pair_fn *load_pair,
                         size_t from, size_t to, const float *x)
{
    struct split_row row;
    size_t n_in = m->w->n_in, panel_bytes = 2 * PANEL_ROWS * n_in;
    for (size_t k = 0; k < n_in; k += FEW_K) {
        size_t end = smaller(k + FEW_K, n_in);
        split_row(x + k, end - k, &row);
        for (size_t first = from; first < to; first += 2) {
            const uint8_t *panel[2];
            __m512 acc[2];
            __mmask16 columns[2];
            size_t n_panels = smaller(2, to - first);
            for (size_t p = 0; p < n_panels; p++) {
                size_t column = (first + p) * PANEL_ROWS;
                panel[p] = m->w->data + (first + p) * panel_bytes;
                columns[p] = first_lanes(m->w->n_out - column);
                acc[p] =
                    k > 0 ? _mm512_maskz_loadu_ps(columns[p], m->y + column) : _mm512_setzero_ps();
            }
            if (n_panels == 2)
                add_products(panel, 2, parts, load_pair, n_in, k, end, &row, acc);
            else
                add_products(panel, 1, parts, load_pair, n_in, k, end, &row, acc);
            for (size_t p = 0; p < n_panels; p++)
                _mm512_mask_storeu_ps(m->y + (first + p) * PANEL_ROWS, columns[p], acc[p]);
        }
    }
}

static __attribute__((noinline)) void multiply_row_bf16(const struct float_product *m, size_t from,
                                                        size_t to, const float *x)
{
    multiply_row(m, 1, load_pair_bf16, from, to, x);
}

static __attribute__((noinline)) void multiply_row_f16(const struct float_product *m, size_t from,
                                                       size_t to, const float *x)
{
    multiply_row(m, 2, load_pair_f16, from, to, x);
}

typedef void multiply_row_fn(const struct float_product *m, size_t from, size_t to, const float *x);

static void multiply_few(struct float_product m, multiply_row_fn *row, size_t from, size_t to,
                         const float *x)
{
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_TO_ZERO);
    for (size_t r = 0; r < m.n_rows; r++, m.y += m.y_stride) row(&m, from, to, x + r * m.w->n_in);
    _mm_setcsr(mode);
}

/* ---- the products ---- */

#define DEFINE_MATMUL(format, parts)                                                               \
    KERNEL_MATMUL(matmul_##format##_amx)                                                           \
    {                                                                                              \
        for (size_t r = 0; r < n_rows; r += ROWS_MAX) {                                            \
            struct float_product m = {.w = w,                                                      \
                                      .n_rows = smaller(n_rows - r, ROWS_MAX),                     \
                                      .y_stride = y_stride,                                        \
                                      .w_parts = (parts),                                          \
                                      .split = split_##format,                                     \
                                      .y = y + r * y_stride};                                      \
            const float *rows = x->f32 + r * w->n_in;                                              \
            if (m.n_rows <= FEW_ROWS)                                                              \
                multiply_few(m, multiply_row_##format, from, to, rows);                            \
            else                                                                                   \
                multiply_rows(&m, from, to, rows);                                                 \
        }                                                                                          \
    }

DEFINE_MATMUL(bf16, 1)
DEFINE_MATMUL(f16, 2)
