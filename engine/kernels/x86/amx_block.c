/* amx_block - products of block formats on AMX tiles of int8.
 *
 * Levels and quantised activations are whole numbers of at most 8 bits, and a tile product gives
 * the sum over a step, the 32 or 16 k that share a scale, exactly. Scaling is that of every
 * instruction set, step by step:
 *
 *   acc = fma(scale_w * scale_x, isum, acc), and acc = fma(minimum, scale_x * sum_x, acc)
 *
 * So the bits are those of AVX-512, which does the products of few rows. Scaling bounds these
 * products: of its four or five instructions for each 16 sums two or three multiply, one a cycle,
 * and the tile unit makes a tile in the time of sixteen.
 *
 * Station before: pass. Compiled with the flags of this instruction set; called only where
 * isa_detect() found it. */
#include "engine/kernels/x86/amx_tiles.h"
#include "engine/kernels/x86/simd_avx512.h"

#include "engine/kernels/x86/planes_readers.h"

enum {
    A_BLOCKS = 1024, /* activations at once: 640 or 768 KiB, a share of the L2 cache */
    B_BLOCKS = 16,  /* weights along k at once, a share of the L1 cache: whole blocks of any file */
    PANELS_MAX = 2, /* unpacked at once */
    PARTS_MAX = 2,
    ROWS_MIN = 5,   /* with fewer, unpacking costs more than it saves */
    ROWS_FEW = 8,   /* so many take half a tile */
    ROWS_MAX = 512, /* of one walk over the panels */
    NUMBERS_BYTES = 2 * PANEL_ROWS * sizeof(float),
    BLOCK_MAX = QUANT_BLOCK * TILE_ROWS + PARTS_MAX * NUMBERS_BYTES,
};

/* A step of activations is its tile of A, [16 rows][its k], then of each row its scale, then its
 * offset, scale * sum. One of weights is its tile of B, [its k / 4][16][4], then the scales of the
 * outputs, then their minimums. All that a step needs stands together, so that two addresses are
 * enough. */
INLINE size_t step_bytes(size_t k)
{
    return k * TILE_ROWS + NUMBERS_BYTES;
}

INLINE float *step_numbers(const uint8_t *step, size_t k)
{
    return (float *)(uintptr_t)(step + k * TILE_ROWS);
}

static size_t block_bytes(const struct planes_shape *s)
{
    return s->parts * step_bytes(QUANT_BLOCK / s->parts);
}

/* The activations of a chunk of k. Behind the last step one may be read that does not count. */
struct block_rows {
    _Alignas(64) uint8_t steps[(A_BLOCKS + 1) * BLOCK_MAX]; /* [n_groups][n] blocks */
    size_t group_bytes;
    size_t first, n; /* blocks of a row */
    size_t n_groups; /* of 16 rows */
};

/* A panel's part of a piece of a chunk, unpacked. */
struct block_panel {
    _Alignas(64) uint8_t steps[B_BLOCKS * BLOCK_MAX];
};

/* Some panels on their way through a chunk, a piece at a time. */
struct block_set {
    size_t first, n;                 /* panels of the matrix */
    float (*results)[RESULT_VALUES]; /* what they have given so far, [groups][n] */
    size_t from, blocks;             /* the piece: of the chunk's blocks */
    size_t from_bytes;               /* in a group of rows */
    bool is_last;                    /* it is the end of k */
    struct block_panel panels[PANELS_MAX];
    struct ahead ahead[PANELS_MAX];
};

/* unpack: a block of the file, of 16 outputs, to as many steps as it has. */
typedef void unpack_fn(const uint8_t *group, uint8_t *steps);

struct block_format {
    const struct planes_shape *shape;
    unpack_fn *unpack;
    kernel_matmul_fn *few_rows;
};

struct block_product {
    const struct block_format *format;
    const struct panels *w;
    size_t n_rows, y_stride;
    float *y;
};

/* ---- activations ---- */

/* pack_row() - what row `within` of a group has of a block. */
INLINE void pack_row(uint8_t *step, size_t within, const int8_t *q, float scale, int32_t sum,
                     size_t parts, bool has_minimum)
{
    size_t k = QUANT_BLOCK / parts;
    int32_t first = parts == 2 && has_minimum ? sum_16(q) : sum;
    for (size_t part = 0; part < parts; part++, step += step_bytes(k)) {
        memcpy(step + within * k, q + part * k, k);
        step_numbers(step, k)[within] = scale;
        if (has_minimum)
            step_numbers(step, k)[TILE_ROWS + within] =
                scale * (float)(part == 0 ? first : sum - first);
    }
}

/* pack_group() - n_rows of a group, from row r on; rows that it lacks are zeros. */
INLINE void pack_group(struct block_rows *rows, const struct activations *x, size_t r,
                       size_t n_rows, size_t row_blocks, size_t parts, bool has_minimum)
{
    size_t size = parts * step_bytes(QUANT_BLOCK / parts);
    uint8_t *to = rows->steps + r / TILE_ROWS * rows->group_bytes;
    if (n_rows < TILE_ROWS) memset(to, 0, rows->group_bytes);
    for (size_t b = 0; b < rows->n; b++, to += size)
        for (size_t i = 0; i < n_rows; i++) {
            size_t at = (r + i) * row_blocks + rows->first + b;
            pack_row(to, i, x->q8 + at * QUANT_BLOCK, x->scale[at], x->sum[at], parts, has_minimum);
        }
}

/* pack_rows() - a chunk. */
static void pack_rows(struct block_rows *rows, const struct activations *x,
                      const struct planes_shape *s, size_t n_rows, size_t row_blocks)
{
    rows->group_bytes = rows->n * block_bytes(s);
    for (size_t r = 0; r < n_rows; r += TILE_ROWS) {
        size_t n = smaller(n_rows - r, TILE_ROWS);
        if (s->parts == 1)
            pack_group(rows, x, r, n, row_blocks, 1, s->has_minimum);
        else
            pack_group(rows, x, r, n, row_blocks, 2, s->has_minimum);
    }
}

/* ---- weights ---- */

/* Q8_0 and Q4_0 lie as planes do, too. */
static const struct planes_shape planes_shape_q8_0 = {1, 1, 2, 8, 0, 128, 8, false};
static const struct planes_shape planes_shape_q4_0 = {1, 1, 2, 4, 0, 8, 4, false};

INLINE vi levels_8(const uint8_t *planes, int j, int v)
{
    return plane_bits(planes, 8, j, v, 0);
}

INLINE void unpack_group(const uint8_t *group, const struct planes_shape s, levels_fn *levels,
                         scales_fn *scales, uint8_t *step)
{
    const uint8_t *planes = group + s.head * PANEL_ROWS;
    size_t k = QUANT_BLOCK / s.parts;
    for (size_t c = 0; c < s.blocks; c++, planes += planes_step(&s))
        UNROLL_FOR (j, QUANT_BLOCK / 4) {
            size_t part = (size_t)j * 4 / k, within = (size_t)j - part * k / 4;
            _mm512_store_si512(step + (c * s.parts + part) * step_bytes(k) + within * TILE_STRIDE,
                               _mm512_sub_epi8(levels(planes, j, 0), vi_set1_byte(s.zero)));
        }
    UNROLL_FOR (i, (int)(s.blocks * s.parts)) {
        vf scale, minimum;
        scales(group, i, 0, &scale, &minimum);
        v_store(step_numbers(step, k), scale);
        if (s.has_minimum) v_store(step_numbers(step, k) + PANEL_ROWS, minimum);
        step += step_bytes(k);
    }
}

/* ---- products ---- */

/* One group of rows times one panel: their steps, and a tile of results. */
struct visit {
    const uint8_t *a, *b;
    float *result;
};

INLINE struct visit visit_at(const struct block_rows *rows, const struct block_set *set,
                             size_t group, size_t p)
{
    return (struct visit){.a = rows->steps + group * rows->group_bytes + set->from_bytes,
                          .b = set->panels[p].steps,
                          .result = set->results[group * set->n + p]};
}

/* next_visit() - all panels of a group of rows, then the next group; the last one again. */
INLINE struct visit next_visit(const struct block_rows *rows, const struct block_set *set,
                               size_t group, size_t p)
{
    if (p + 1 < set->n) return visit_at(rows, set, group, p + 1);
    return group + 1 < rows->n_groups ? visit_at(rows, set, group + 1, 0)
                                      : visit_at(rows, set, group, p);
}

static struct result_place place_of(const struct block_product *m, const struct block_set *set,
                                    size_t group, size_t p)
{
    size_t row = group * TILE_ROWS, column = (set->first + p) * PANEL_ROWS;
    return (struct result_place){.y = m->y + row * m->y_stride + column,
                                 .y_stride = m->y_stride,
                                 .n_rows = smaller(m->n_rows - row, TILE_ROWS),
                                 .columns = first_lanes(m->w->n_out - column)};
}

/* Sums of one step, of k, for all rows of a group and 16 outputs: begun, and given out. */
#define BEGIN_SUMS(c_tile, a_tile, b_tile, a, b, k)                                                \
    do {                                                                                           \
        _tile_loadd(a_tile, a, k);                                                                 \
        _tile_loadd(b_tile, b, TILE_STRIDE);                                                       \
        _tile_zero(c_tile);                                                                        \
        _tile_dpbssd(c_tile, a_tile, b_tile);                                                      \
    } while (0)
#define END_SUMS(c_tile, sums) _tile_stored(c_tile, sums, TILE_STRIDE)

/* sum_as_float() - as a conversion gives it. Among tile instructions the second unit that could
 * convert, multiply or fuse stands still, but the one that adds does not: 1.5 * 2^23 has its last
 * bit at 1, so a whole number below 2^22 can be added to its bits, and it taken away again. */
INLINE __m512 sum_as_float(const int32_t *sums)
{
    const __m512 big = _mm512_set1_ps(0x1.8p23F);
    __m512i bits = _mm512_add_epi32(_mm512_castps_si512(big), _mm512_load_si512(sums));
    return _mm512_sub_ps(_mm512_castsi512_ps(bits), big);
}

INLINE void scale_sums(__m512 acc[TILE_ROWS], const int32_t *sums, const uint8_t *a,
                       const uint8_t *b, size_t k, int rows_each, bool has_minimum)
{
    const float *a_scale = step_numbers(a, k), *b_scale = step_numbers(b, k);
    __m512 scale = _mm512_load_ps(b_scale), minimum = _mm512_setzero_ps();
    if (has_minimum) minimum = _mm512_load_ps(b_scale + PANEL_ROWS);
    UNROLL_FOR (r, rows_each) {
        __m512 sum = sum_as_float(sums + r * PANEL_ROWS);
        __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(a_scale[r]));
        acc[r] = _mm512_fmadd_ps(both, sum, acc[r]);
        if (has_minimum)
            acc[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(a_scale[TILE_ROWS + r]), acc[r]);
    }
}

/* multiply_visit() - and what the tiles do meanwhile: while the sums of one step are scaled, they
 * work on the next two, if need be of the next visit. So a visit finds its first step in sums[0]
 * and its second one in tile 1, and leaves the next one's there. */
INLINE void multiply_visit(const struct visit *v, const struct visit *next, size_t steps, size_t k,
                           int32_t sums[2][RESULT_VALUES], __m512 acc[TILE_ROWS], int rows_each,
                           bool has_minimum)
{
    const size_t size = step_bytes(k);
    const uint8_t *a = v->a, *b = v->b;
    for (size_t i = 0; i < steps; i += 2) {
        bool goes_on = i + 2 < steps;
        const uint8_t *next_a = goes_on ? a + 2 * size : next->a;
        const uint8_t *next_b = goes_on ? b + 2 * size : next->b;
        BEGIN_SUMS(0, 4, 6, next_a, next_b, k);
        END_SUMS(1, sums[1]);
        scale_sums(acc, sums[0], a, b, k, rows_each, has_minimum);
        BEGIN_SUMS(1, 5, 7, next_a + size, next_b + size, k);
        END_SUMS(0, sums[0]);
        if (i + 1 == steps) break;
        scale_sums(acc, sums[1], a + size, b + size, k, rows_each, has_minimum);
        a = next_a;
        b = next_b;
    }
}

/* multiply_piece() - for all rows, in groups of so many; k of each step. */
INLINE void multiply_piece(const struct block_product *m, const struct block_rows *rows,
                           struct block_set *set, int rows_each, size_t k, bool has_minimum)
{
    int32_t sums[2][RESULT_VALUES] __attribute__((aligned(64)));
    size_t steps = set->blocks * QUANT_BLOCK / k;
    bool is_first = rows->first + set->from == 0;
    struct visit v = visit_at(rows, set, 0, 0);
    BEGIN_SUMS(0, 4, 6, v.a, v.b, k);
    END_SUMS(0, sums[0]);
    BEGIN_SUMS(1, 5, 7, v.a + step_bytes(k), v.b + step_bytes(k), k);
    for (size_t group = 0; group < rows->n_groups; group++)
        for (size_t p = 0; p < set->n; p++) {
            struct visit next = next_visit(rows, set, group, p);
            __m512 acc[TILE_ROWS];
            fetch_share(&set->ahead[p]);
            if (set->is_last) result_fetch(place_of(m, set, group, p));
            if (is_first)
                UNROLL_FOR (r, rows_each) acc[r] = _mm512_setzero_ps();
            else
                UNROLL_FOR (r, rows_each) acc[r] = _mm512_load_ps(v.result + r * PANEL_ROWS);
            multiply_visit(&v, &next, steps, k, sums, acc, rows_each, has_minimum);
            UNROLL_FOR (r, rows_each) _mm512_store_ps(v.result + r * PANEL_ROWS, acc[r]);
            if (set->is_last) result_store(v.result, place_of(m, set, group, p));
            v = next;
        }
}

/* Compiled for each kind of format and group. */
#define DEFINE_MULTIPLY(name, rows_each, k, has_minimum)                                           \
    static __attribute__((noinline)) void name(                                                    \
        const struct block_product *m, const struct block_rows *rows, struct block_set *set)       \
    {                                                                                              \
        multiply_piece(m, rows, set, (rows_each), (k), (has_minimum));                             \
    }
DEFINE_MULTIPLY(multiply_8_32, 8, 32, false)
DEFINE_MULTIPLY(multiply_8_32_minimum, 8, 32, true)
DEFINE_MULTIPLY(multiply_8_16, 8, 16, false)
DEFINE_MULTIPLY(multiply_8_16_minimum, 8, 16, true)
DEFINE_MULTIPLY(multiply_16_32, 16, 32, false)
DEFINE_MULTIPLY(multiply_16_32_minimum, 16, 32, true)
DEFINE_MULTIPLY(multiply_16_16, 16, 16, false)
DEFINE_MULTIPLY(multiply_16_16_minimum, 16, 16, true)

typedef void multiply_fn(const struct block_product *m, const struct block_rows *rows,
                         struct block_set *set);

static multiply_fn *multiply_find(const struct planes_shape *s, size_t n_rows)
{
    static multiply_fn *const all[2][2][2] = {
        {{multiply_8_32, multiply_8_32_minimum}, {multiply_8_16, multiply_8_16_minimum}},
        {{multiply_16_32, multiply_16_32_minimum}, {multiply_16_16, multiply_16_16_minimum}}};
    return all[n_rows > ROWS_FEW][s->parts == 2][s->has_minimum];
}

/* open_piece() - unpack the next blocks of a set, and plan to fetch what comes after them, in the
 * same panels or the next ones. */
static void open_piece(const struct block_product *m, const struct block_rows *rows,
                       struct block_set *set)
{
    const struct planes_shape *s = m->format->shape;
    size_t group_bytes = planes_group_bytes(s);
    size_t panel_bytes = m->w->n_in / QUANT_BLOCK / s->blocks * group_bytes;
    set->blocks = smaller(B_BLOCKS, rows->n - set->from);
    set->from_bytes = set->from * block_bytes(s);
    bool is_end = set->from + set->blocks == rows->n;
    size_t first = rows->first + set->from, after = is_end ? rows->first : first + set->blocks;
    set->is_last = first + set->blocks == m->w->n_in / QUANT_BLOCK;
    for (size_t p = 0; p < set->n; p++) {
        const uint8_t *panel = m->w->data + (set->first + p) * panel_bytes;
        for (size_t b = 0; b < set->blocks; b += s->blocks)
            m->format->unpack(panel + (first + b) / s->blocks * group_bytes,
                              set->panels[p].steps + b * block_bytes(s));
        panel += is_end ? PANELS_MAX * panel_bytes : 0;
        set->ahead[p] =
            ahead_of(panel + after / s->blocks * group_bytes,
                     smaller(B_BLOCKS, rows->n) / s->blocks * group_bytes, rows->n_groups);
    }
}

/* multiply_chunk() - of rows, for panels [from, to), whose results stand side by side. */
static void multiply_chunk(const struct block_product *m, const struct block_rows *rows,
                           size_t from, size_t to, struct results *results)
{
    multiply_fn *multiply = multiply_find(m->format->shape, m->n_rows);
    struct block_set set;
    for (set.first = from; set.first < to; set.first += PANELS_MAX) {
        set.n = smaller(PANELS_MAX, to - set.first);
        set.results = results->value + (set.first - from) * rows->n_groups;
        for (set.from = 0; set.from < rows->n; set.from += set.blocks) {
            open_piece(m, rows, &set);
            multiply(m, rows, &set);
        }
    }
}

/* multiply_rows() - as many panels at once as there is room for their results; where all of k fits
 * into one chunk, few at once, so that the results stay near. */
static void multiply_rows(const struct block_product *m, size_t from, size_t to,
                          const struct activations *x)
{
    struct block_rows rows;
    struct results results;
    rows.first = 0;
    rows.n_groups = (m->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    size_t n_blocks = m->w->n_in / QUANT_BLOCK, n_panels = RESULT_TILES / rows.n_groups;
    const struct planes_shape *s = m->format->shape;
    size_t chunk = A_BLOCKS / rows.n_groups / B_BLOCKS * B_BLOCKS;
    tiles_begin(m->n_rows <= ROWS_FEW ? ROWS_FEW : TILE_ROWS, QUANT_BLOCK / s->parts);
    if (chunk >= n_blocks) {
        rows.n = n_blocks;
        pack_rows(&rows, x, s, m->n_rows, n_blocks);
        for (size_t first = from; first < to; first += PANELS_MAX)
            multiply_chunk(m, &rows, first, smaller(first + PANELS_MAX, to), &results);
        tiles_end();
        return;
    }
    for (; from < to; from += n_panels)
        for (rows.first = 0; rows.first < n_blocks; rows.first += rows.n) {
            rows.n = smaller(chunk, n_blocks - rows.first);
            pack_rows(&rows, x, s, m->n_rows, n_blocks);
            multiply_chunk(m, &rows, from, smaller(from + n_panels, to), &results);
        }
    tiles_end();
}

static void product(const struct block_format *format, const struct panels *w, size_t from,
                    size_t to, const struct activations *x, size_t n_rows, float *y,
                    size_t y_stride)
{
    for (size_t r = 0; r < n_rows; r += ROWS_MAX) {
        struct block_product m = {.format = format,
                                  .w = w,
                                  .n_rows = smaller(n_rows - r, ROWS_MAX),
                                  .y_stride = y_stride,
                                  .y = y + r * y_stride};
        size_t blocks = w->n_in / QUANT_BLOCK;
        struct activations some = {
            .q8 = x->q8 + r * w->n_in, .scale = x->scale + r * blocks, .sum = x->sum + r * blocks};
        if (m.n_rows < ROWS_MIN)
            format->few_rows(w, from, to, &some, m.n_rows, m.y, y_stride);
        else
            multiply_rows(&m, from, to, &some);
    }
}

#define DEFINE_MATMUL(suffix, levels, scales)                                                      \
    static void unpack_##suffix(const uint8_t *group, uint8_t *steps)                              \
    {                                                                                              \
        unpack_group(group, planes_shape_##suffix, levels, scales, steps);                         \
    }                                                                                              \
    KERNEL_MATMUL(matmul_##suffix##_amx)                                                           \
    {                                                                                              \
        static const struct block_format format = {                                                \
            .shape = &planes_shape_##suffix,                                                       \
            .unpack = unpack_##suffix,                                                             \
            .few_rows = matmul_##suffix##_avx512,                                                  \
        };                                                                                         \
        product(&format, w, from, to, x, n_rows, y, y_stride);                                     \
    }

DEFINE_MATMUL(q8_0, levels_8, scales_one)
DEFINE_MATMUL(q4_0, levels_4, scales_one)
PLANES_READERS(DEFINE_MATMUL)
