/* planes - panels of bit planes: the layout of kernels.h that most block formats share, and how it
 * is taken apart in plain C.
 *
 * Station before: weights. Stations after: generic/planes.c, generic/matmul_planes.c and
 * x86/planes_body.h. */
#ifndef TANDEM_ENGINE_KERNELS_PLANES_H
#define TANDEM_ENGINE_KERNELS_PLANES_H

#include "engine/kernels/kernels.h"

/* What the sixteen codes of IQ4_NL and IQ4_XS stand for, and those of MXFP4, doubled; made unsigned
 * by adding 128 and 12. */
static const uint8_t planes_iq4_levels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                              129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t planes_mxfp4_levels[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                12, 11, 10, 9,  8,  6,  4,  0};

/* The layout of a format. A value is scale * (level - zero) + minimum; a level is the code
 * itself, or what a table says of it. */
struct planes_shape {
    size_t blocks;    /* of 32 values in a block of the file */
    size_t parts;     /* in a block of 32: each has its own scale */
    size_t head;      /* bytes of a row's scales */
    int low, high;    /* bits of the two planes; high: 0 where there is one */
    int zero;         /* what levels have too much */
    int bits;         /* that a level takes */
    bool has_minimum; /* else it is 0 */
};

/* X(ID, suffix, blocks, parts, head, low, high, zero, bits, has minimum) */
#define PLANES_SHAPES(X)                                                                           \
    X(Q4_1, q4_1, 1, 1, 4, 4, 0, 0, 4, true)                                                       \
    X(Q5_0, q5_0, 1, 1, 2, 4, 1, 16, 5, false)                                                     \
    X(Q5_1, q5_1, 1, 1, 4, 4, 1, 0, 5, true)                                                       \
    X(IQ4_NL, iq4_nl, 1, 1, 2, 4, 0, 128, 8, false)                                                \
    X(MXFP4, mxfp4, 1, 1, 1, 4, 0, 12, 5, false)                                                   \
    X(Q2_K, q2_k, 8, 2, 20, 2, 0, 0, 2, true)                                                      \
    X(Q3_K, q3_k, 8, 2, 14, 2, 1, 4, 3, false)                                                     \
    X(Q4_K, q4_k, 8, 1, 16, 4, 0, 0, 4, true)                                                      \
    X(Q5_K, q5_k, 8, 1, 16, 4, 1, 0, 5, true)                                                      \
    X(Q6_K, q6_k, 8, 2, 18, 4, 2, 32, 6, false)                                                    \
    X(IQ4_XS, iq4_xs, 8, 1, 8, 4, 0, 128, 8, false)                                                \
    X(TQ2_0, tq2_0, 8, 1, 2, 2, 0, 1, 2, false)

#define PLANES_SHAPE(id, suffix, ...)                                                              \
    static const struct planes_shape planes_shape_##suffix = {__VA_ARGS__};
PLANES_SHAPES(PLANES_SHAPE)
#undef PLANES_SHAPE

/* planes_step() - of the planes of 32 values, of the 16 rows of a panel. planes_group_bytes() - of
 * a block of the file, of the 16 rows: the heads, then the planes of each 32 values. */
static inline size_t planes_step(const struct planes_shape *s)
{
    return (size_t)(s->low + s->high) * PANEL_ROWS * 4;
}
static inline size_t planes_group_bytes(const struct planes_shape *s)
{
    return s->head * PANEL_ROWS + s->blocks * planes_step(s);
}

/* 32 values of the 16 rows of a panel. */
struct planes_block {
    int8_t level[QUANT_BLOCK][PANEL_ROWS]; /* less zero */
    float scale[2][PANEL_ROWS];            /* of each part */
    float minimum[2][PANEL_ROWS];
};

/* A format, with how the file has it. */
struct planes_format;
#define PLANES_DECLARE(id, suffix, ...) extern const struct planes_format planes_##suffix;
PLANES_SHAPES(PLANES_DECLARE)
#undef PLANES_DECLARE

const struct planes_shape *planes_shape(const struct planes_format *f);

/* planes_unpack() - block c of a group. */
void planes_unpack(const struct planes_format *f, const uint8_t *group, size_t c,
                   struct planes_block *out);

#endif
