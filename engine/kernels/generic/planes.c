/* planes - see planes.h: from the blocks of a file to panels of bit planes, and back.
 *
 * The file's bits are moved, never changed. They are read four values at a time, as a 32-bit word
 * that has one value in each byte.
 * Station before: weights. Stations after: the products of generic/matmul_planes.c and
 * x86/planes_body.h; embedding look-up. */
#include "engine/kernels/generic/planes.h"

#include <string.h>

/* How the file has the bits of block c of 32 values. Byte k of a run has value k in its lowest
 * bits; what stands above them: */
enum file_bits {
    HALVES_16, /* 16 bytes for each block: value k + 16 */
    HALVES_32, /* 32 bytes for two blocks: value k + 32 */
    HALVES_64, /* 64 bytes for four blocks: value k + 64 */
    PAIRS_32,  /* 32 bytes for four blocks: values k + 32, k + 64, k + 96 */
    BITS_32,   /* 32 bytes for eight blocks: values k + 32, k + 64, ... */
    BITS_4,    /* 4 bytes for each block: bit i is value i */
};

/* Scale and minimum of part s of a row's group. */
typedef void scale_fn(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum);

struct planes_format {
    const struct planes_shape *shape;
    /* The head: runs of n numbers of so many bytes, which the file's block has from byte at on. In
     * a panel each number is there 16 times, row by row. */
    struct {
        uint8_t at, bytes, n;
    } run[3];
    struct {
        enum file_bits from;
        uint8_t at;
    } low, high;
    const uint8_t *levels; /* NULL: the code */
    scale_fn *scale;
};

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* ---- scales ---- */

static void scale_one(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum)
{
    (void)s;
    *scale = f16_to_f32(load_u16(head + 2 * row));
    *minimum = 0;
}

static void scale_two(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum)
{
    scale_one(head, row, s, scale, minimum);
    *minimum = f16_to_f32(load_u16(head + 2 * PANEL_ROWS + 2 * row));
}

/* Half of what the exponent stands for, because the levels are doubled: 2^(e - 128). */
static void scale_mxfp4(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum)
{
    (void)s;
    uint32_t e = head[row], bits = e < 2 ? UINT32_C(0x200000) << e : (e - 1) << 23;
    memcpy(scale, &bits, sizeof bits);
    *minimum = 0;
}

/* The head of a K format behind d, or behind d and m: byte i of the file's scales, in words. */
static unsigned scale_byte(const uint8_t *words, size_t row, size_t i)
{
    return words[(i / 4 * PANEL_ROWS + row) * 4 + i % 4];
}

static void scale_q2_k(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum)
{
    unsigned both = head[(4 + s) * PANEL_ROWS + row];
    scale_two(head, row, s, scale, minimum);
    *scale *= (float)(both & 0xf);
    *minimum *= -(float)(both >> 4);
}

static void scale_q3_k(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum)
{
    const uint8_t *words = head + 2 * PANEL_ROWS;
    unsigned low = scale_byte(words, row, s % 8) >> 4 * (s / 8) & 0xf;
    unsigned high = scale_byte(words, row, 8 + s % 4) >> 2 * (s / 4) & 3;
    scale_one(head, row, s, scale, minimum);
    *scale *= (float)(int)(low | high << 4) - 32;
}

static void scale_q4_k(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum)
{
    const uint8_t *words = head + 4 * PANEL_ROWS;
    unsigned a = scale_byte(words, row, s % 4), b = scale_byte(words, row, 4 + s % 4);
    unsigned c = scale_byte(words, row, 8 + s % 4);
    scale_two(head, row, s, scale, minimum);
    *scale *= (float)(s < 4 ? a & 0x3f : (c & 0xf) | a >> 6 << 4);
    *minimum *= -(float)(s < 4 ? b & 0x3f : c >> 4 | b >> 6 << 4);
}

static void scale_q6_k(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum)
{
    scale_one(head, row, s, scale, minimum);
    *scale *= (float)(int8_t)head[(2 + s) * PANEL_ROWS + row];
}

static void scale_iq4_xs(const uint8_t *head, size_t row, size_t s, float *scale, float *minimum)
{
    unsigned high = load_u16(head + 2 * PANEL_ROWS + 2 * row) >> 2 * s & 3;
    unsigned low = load_u32(head + 4 * PANEL_ROWS + 4 * row) >> 4 * s & 0xf;
    scale_one(head, row, s, scale, minimum);
    *scale *= (float)(int)(low | high << 4) - 32;
}

/* ---- formats ---- */

const struct planes_format planes_q4_1 = {
    .shape = &planes_shape_q4_1,
    .run = {{0, 2, 1}, {2, 2, 1}},
    .low = {HALVES_16, 4},
    .scale = scale_two,
};
const struct planes_format planes_q5_0 = {
    .shape = &planes_shape_q5_0,
    .run = {{0, 2, 1}},
    .low = {HALVES_16, 6},
    .high = {BITS_4, 2},
    .scale = scale_one,
};
const struct planes_format planes_q5_1 = {
    .shape = &planes_shape_q5_1,
    .run = {{0, 2, 1}, {2, 2, 1}},
    .low = {HALVES_16, 8},
    .high = {BITS_4, 4},
    .scale = scale_two,
};
const struct planes_format planes_iq4_nl = {
    .shape = &planes_shape_iq4_nl,
    .run = {{0, 2, 1}},
    .low = {HALVES_16, 2},
    .levels = planes_iq4_levels,
    .scale = scale_one,
};
const struct planes_format planes_mxfp4 = {
    .shape = &planes_shape_mxfp4,
    .run = {{0, 1, 1}},
    .low = {HALVES_16, 1},
    .levels = planes_mxfp4_levels,
    .scale = scale_mxfp4,
};
const struct planes_format planes_q2_k = {
    .shape = &planes_shape_q2_k,
    .run = {{80, 2, 1}, {82, 2, 1}, {0, 1, 16}},
    .low = {PAIRS_32, 16},
    .scale = scale_q2_k,
};
const struct planes_format planes_q3_k = {
    .shape = &planes_shape_q3_k,
    .run = {{108, 2, 1}, {96, 4, 3}},
    .low = {PAIRS_32, 32},
    .high = {BITS_32, 0},
    .scale = scale_q3_k,
};
const struct planes_format planes_q4_k = {
    .shape = &planes_shape_q4_k,
    .run = {{0, 2, 1}, {2, 2, 1}, {4, 4, 3}},
    .low = {HALVES_32, 16},
    .scale = scale_q4_k,
};
const struct planes_format planes_q5_k = {
    .shape = &planes_shape_q5_k,
    .run = {{0, 2, 1}, {2, 2, 1}, {4, 4, 3}},
    .low = {HALVES_32, 48},
    .high = {BITS_32, 16},
    .scale = scale_q4_k,
};
const struct planes_format planes_q6_k = {
    .shape = &planes_shape_q6_k,
    .run = {{208, 2, 1}, {192, 1, 16}},
    .low = {HALVES_64, 0},
    .high = {PAIRS_32, 128},
    .scale = scale_q6_k,
};
const struct planes_format planes_iq4_xs = {
    .shape = &planes_shape_iq4_xs,
    .run = {{0, 2, 1}, {2, 2, 1}, {4, 4, 1}},
    .low = {HALVES_16, 8},
    .levels = planes_iq4_levels,
    .scale = scale_iq4_xs,
};
const struct planes_format planes_tq2_0 = {
    .shape = &planes_shape_tq2_0,
    .run = {{64, 2, 1}},
    .low = {PAIRS_32, 0},
    .scale = scale_one,
};

const struct planes_shape *planes_shape(const struct planes_format *f)
{
    return f->shape;
}

/* ---- from the file ---- */

static inline __attribute__((always_inline)) uint32_t file_word(const uint8_t *bits,
                                                                enum file_bits from, size_t c,
                                                                size_t j)
{
    switch (from) {
    case HALVES_16:
        return load_u32(bits + 16 * c + 4 * (j % 4)) >> 4 * (j / 4) & 0x0f0f0f0f;
    case HALVES_32:
        return load_u32(bits + 32 * (c / 2) + 4 * j) >> 4 * (c % 2) & 0x0f0f0f0f;
    case HALVES_64:
        return load_u32(bits + 64 * (c / 4) + 32 * (c % 2) + 4 * j) >> 4 * (c / 2 % 2) & 0x0f0f0f0f;
    case PAIRS_32:
        return load_u32(bits + 32 * (c / 4) + 4 * j) >> 2 * (c % 4) & 0x03030303;
    case BITS_32:
        return load_u32(bits + 4 * j) >> c & 0x01010101;
    case BITS_4: /* four copies of the four bits, each moved so that another one is lowest */
        return (load_u32(bits) >> 4 * j & 0xf) * 0x00204081 & 0x01010101;
    }
    return 0;
}

/* The bits of block c of one row, to its place in a plane. */
static inline __attribute__((always_inline)) void pack_bits(const uint8_t *bits,
                                                            enum file_bits from, size_t n, size_t c,
                                                            uint8_t *place)
{
    uint32_t word[4] = {0};
#pragma GCC unroll 8
    for (size_t j = 0; j < QUANT_BLOCK / 4; j++)
        word[j % n] |= file_word(bits, from, c, j) << n * (j / n);
    for (size_t i = 0; i < n; i++) memcpy(place + i * PANEL_ROWS * 4, &word[i], 4);
}

static void pack_plane(const uint8_t *bits, enum file_bits from, size_t c, uint8_t *place)
{
    switch (from) { /* so that each case is compiled for itself */
    case HALVES_16:
        pack_bits(bits, HALVES_16, 4, c, place);
        break;
    case HALVES_32:
        pack_bits(bits, HALVES_32, 4, c, place);
        break;
    case HALVES_64:
        pack_bits(bits, HALVES_64, 4, c, place);
        break;
    case PAIRS_32:
        pack_bits(bits, PAIRS_32, 2, c, place);
        break;
    case BITS_32:
        pack_bits(bits, BITS_32, 1, c, place);
        break;
    case BITS_4:
        pack_bits(bits, BITS_4, 1, c, place);
        break;
    }
}

static void pack_head(const struct planes_format *f, const uint8_t *block, size_t row,
                      uint8_t *head)
{
    for (size_t i = 0; i < sizeof f->run / sizeof *f->run; i++) {
        size_t bytes = f->run[i].bytes;
        for (size_t n = 0; n < f->run[i].n; n++, head += PANEL_ROWS * bytes)
            memcpy(head + row * bytes, block + f->run[i].at + n * bytes, bytes);
    }
}

/* Rows that the last panel lacks are zeros. */
static void pack(const struct planes_format *f, const uint8_t *rows, size_t n_rows, size_t n_in,
                 uint8_t *panel)
{
    const struct planes_shape *s = f->shape;
    size_t group_bytes = planes_group_bytes(s), block_bytes = group_bytes / PANEL_ROWS;
    size_t n_groups = n_in / (s->blocks * QUANT_BLOCK);
    if (n_rows < PANEL_ROWS) memset(panel, 0, n_groups * group_bytes);
    for (size_t g = 0; g < n_groups; g++, panel += group_bytes)
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *block = rows + (r * n_groups + g) * block_bytes;
            uint8_t *place = panel + s->head * PANEL_ROWS + r * 4;
            pack_head(f, block, r, panel);
            for (size_t c = 0; c < s->blocks; c++, place += planes_step(s)) {
                pack_plane(block + f->low.at, f->low.from, c, place);
                if (s->high == 0) continue;
                pack_plane(block + f->high.at, f->high.from, c,
                           place + (size_t)s->low * PANEL_ROWS * 4);
            }
        }
}

/* ---- from the panel ---- */

/* plane_bits() - n bits of value k of a row. */
static unsigned plane_bits(const uint8_t *plane, size_t n, size_t k, size_t row)
{
    size_t j = k / 4;
    uint8_t byte = plane[((j % n) * PANEL_ROWS + row) * 4 + k % 4];
    return (unsigned)byte >> n * (j / n) & ((1U << n) - 1);
}

/* level() - of value k of a row, less zero. */
static int level(const struct planes_format *f, const uint8_t *planes, size_t k, size_t row)
{
    size_t low = (size_t)f->shape->low, high = (size_t)f->shape->high;
    unsigned code = plane_bits(planes, low, k, row);
    if (high > 0) code |= plane_bits(planes + low * PANEL_ROWS * 4, high, k, row) << low;
    return (int)(f->levels != NULL ? f->levels[code] : code) - f->shape->zero;
}

void planes_unpack(const struct planes_format *f, const uint8_t *group, size_t c,
                   struct planes_block *out)
{
    const struct planes_shape *s = f->shape;
    const uint8_t *planes = group + s->head * PANEL_ROWS + c * planes_step(s);
    for (size_t k = 0; k < QUANT_BLOCK; k++)
        for (size_t i = 0; i < PANEL_ROWS; i++) out->level[k][i] = (int8_t)level(f, planes, k, i);
    for (size_t part = 0; part < s->parts; part++)
        for (size_t i = 0; i < PANEL_ROWS; i++)
            f->scale(group, i, c * s->parts + part, &out->scale[part][i], &out->minimum[part][i]);
}

static void lookup(const struct planes_format *f, const struct panels *w, size_t row, float *out)
{
    const struct planes_shape *s = f->shape;
    size_t group_bytes = planes_group_bytes(s), n_groups = w->n_in / (s->blocks * QUANT_BLOCK);
    size_t per_part = QUANT_BLOCK / s->parts, r = row % PANEL_ROWS;
    const uint8_t *group = w->data + row / PANEL_ROWS * n_groups * group_bytes;
    for (size_t g = 0; g < n_groups; g++, group += group_bytes) {
        const uint8_t *planes = group + s->head * PANEL_ROWS;
        for (size_t c = 0; c < s->blocks; c++, planes += planes_step(s))
            for (size_t k = 0; k < QUANT_BLOCK; k++) {
                float scale, minimum;
                f->scale(group, r, c * s->parts + k / per_part, &scale, &minimum);
                float value = scale * (float)level(f, planes, k, r);
                *out++ = s->has_minimum ? value + minimum : value;
            }
    }
}

#define DEFINE_PLANES(id, suffix, ...)                                                             \
    KERNEL_PACK(pack_##suffix##_generic)                                                           \
    {                                                                                              \
        pack(&planes_##suffix, rows, n_rows, n_in, panel);                                         \
    }                                                                                              \
    KERNEL_LOOKUP(lookup_##suffix##_generic)                                                       \
    {                                                                                              \
        lookup(&planes_##suffix, w, row, out);                                                     \
    }
PLANES_SHAPES(DEFINE_PLANES)
