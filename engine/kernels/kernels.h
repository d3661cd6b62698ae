/* kernels - the inner loops of a forward pass, behind one table that an instruction set fills.
 *
 * generic/ is complete and is the oracle; x86/ overrides entries. Each kernel's prototype is
 * written once, as a macro that makes the type, the table's field and every declaration. The table
 * is filled at start: generic first, then what the instruction set has (kernels.c).
 *
 * Panels. A weight matrix [n_out, n_in] is kept as panels of PANEL_ROWS = 16 output rows, the last
 * one padded with zeros. One layout a format, for every instruction set, so that one vector load
 * brings the next values along k of all 16 rows:
 *
 *   F32    [n_in][16] f32
 *
 *   F16    [n_in][16] f16
 *
 *   BF16   [n_in / 2][16][2] bf16, pairs along k; where n_in is odd, the last k stands alone: [16]
 *
 *   Q8_0   for each block of 32 k: 16 f16 scales, then [8][16][4] bytes q + 128: four k of a row
 *          side by side
 *
 *   Q4_0   for each block of 32 k: 16 f16 scales, then [4][16][4] bytes: byte b of group j has
 *          q + 8 of k = 4j + b in its low half, and of k = 16 + 4j + b in its high half
 *
 *   bit planes: for each block of the file, what it says of scales, each number 16 times, row by
 *            row (the head), and then for each 32 k their lower and their upper bits. A plane of n
 *            bits is [n][16][4] bytes: four k of a row side by side, k = 4j .. 4j + 3 at bit
 *            n * (j / n) of the bytes of vector j % n; so that of Q4_0 is one too
 *
 *              format  head                         lower  upper  value
 *              Q4_1    d, m                         4             d code + m
 *              Q5_0    d                            4      1      d (code - 16)
 *              Q5_1    d, m                         4      1      d code + m
 *              IQ4_NL  d                            4             d (table - 128)
 *              MXFP4   e (8 bits)                   4             2^(e - 128) (table - 12)
 *              Q2_K    d, m, 16 scale bytes         2             d a code - m b, for 16 k
 *              Q3_K    d, 3 words of scales         2      1      d a (code - 4), for 16 k
 *              Q4_K    d, m, 3 words of scales      4             d a code - m b, for 32 k
 *              Q5_K    d, m, 3 words of scales      4      1      d a code - m b, for 32 k
 *              Q6_K    d, 16 scale bytes            4      2      d a (code - 32), for 16 k
 *              IQ4_XS  d, 16 bits and 32 of scales  4             d a (table - 128), for 32 k
 *              TQ2_0   d                            2             d (code - 1)
 *
 *            d and m are f16; scale bytes and words stand as in the file (quant_decode.c)
 *
 *   IQ1, IQ2, IQ3 and TQ1 formats: for each block of the file, the 16 rows' blocks as they are
 *
 * A panel is exactly 16 times the bytes of a row in the file.
 *
 * Order. Each lane is one output row and walks k in ascending order with one accumulator, whatever
 * the number of rows of activations: so a result does not depend on batch, chunk or thread.
 * Float formats, and those that are decoded on the way: acc = fma(w, x, acc). Block formats: the
 * activations are quantised to int8 in blocks of 32; isum, the sum of q_w * q_x over the block, is
 * exact; acc = fma(scale_w * scale_x, isum, acc), block by block. Where the weights have a scale
 * for 16 k, the block is two such sums, one after the other. Where they have a minimum, too, acc =
 * fma(minimum, scale_x * sum_x, acc) follows, sum_x being the sum of the same q_x; scales and
 * minimums are f32 as the reference's decoder has them. The generic kernels multiply and add with
 * two roundings, because a machine without a fused instruction would crawl otherwise; so
 * instruction sets may differ in the last bits.
 *
 * A value that is not finite stays so: quantising gives such a block a scale that is not finite,
 * and exp gives NaN for NaN.
 *
 * Stations before: weights (packs), layer and stage (call). */
#ifndef TANDEM_ENGINE_KERNELS_H
#define TANDEM_ENGINE_KERNELS_H

#include "engine/batch.h"
#include "engine/families.h"
#include "engine/isa.h"
#include "engine/model.h"
#include "engine/quant_formats.h"

#include <stddef.h>
#include <stdint.h>

enum {
    QUANT_BLOCK = 32,      /* activations that share a scale; block formats agree with it */
    ATTENTION_QUERIES = 8, /* queries that walk a tile together */
    TILE_BLOCKS = ATTENTION_TILE / KV_BLOCK_POSITIONS,
    ACTIVATION_COUNT = ACT_SWIGLU_CLAMPED + 1,
    NORM_COUNT = NORM_LAYER + 1,
    ROPE_COUNT = ROPE_HALF + 1,
    BLAS_SHARE_PANELS = 8, /* what OpenBLAS multiplies at once */
};

/* Of GELU, see KERNEL_ACTIVATE: sqrt(2 / pi), and what stands before the cube. */
#define GELU_SCALE 0.7978845608028654F
#define GELU_CUBE 0.044715F

/* Of the clamped SwiGLU, see KERNEL_ACTIVATE. */
#define SWIGLU_SLOPE 1.702F
#define SWIGLU_LIMIT 7.0F

/* A block of activations below this is quantised to zeros: 127 / max must not overflow. */
#define QUANT_TINY 1e-30F

/* A packed matrix. data is 64-byte aligned. */
struct panels {
    const uint8_t *data;
    size_t n_in, n_out;
};

/* Rows of activations as a product reads them, row-major and gapless. The q8 half is there where a
 * block format reads it; n_in is a multiple of QUANT_BLOCK then. */
struct activations {
    const float *f32;   /* [n_rows][n_in] */
    const int8_t *q8;   /* [n_rows][n_in], -127 .. 127 */
    const float *scale; /* [n_rows][n_in / 32] */
    const int32_t *sum; /* [n_rows][n_in / 32]: the sum of the block's q8 */
};

/* Up to ATTENTION_QUERIES queries of one sequence and one key/value head on their way along the
 * tiles. Before the first tile: max = -INFINITY, sum = 0, acc all 0. After the last one: result =
 * acc / sum. Tiles may be taken apart from each other, each from such a beginning, and joined in
 * ascending order afterwards (join): that gives the same bits. */
struct attention_queries {
    uint32_t n;
    const float *q[ATTENTION_QUERIES]; /* [dim_k] */
    float *acc[ATTENTION_QUERIES];     /* [dim_v] */
    float max[ATTENTION_QUERIES];
    float sum[ATTENTION_QUERIES];
};

/* One tile: up to 256 positions of a key/value head. A block is K as [dim_k][32] (lanes are
 * positions), then V as [32][dim_v] (lanes are value dimensions), in the cache's number format. In
 * Q8_0 the scales stand behind each of the two: [dim / 32, rounded up][32 positions] f16. */
struct attention_tile {
    const uint8_t *block[TILE_BLOCKS]; /* NULL where no query sees any of it */
    const uint8_t *ahead[TILE_BLOCKS]; /* brought nearer meanwhile: what is read next; or NULL */
    size_t dim_k, dim_v;
    bool values_in_keys; /* the first dim_v rows of K are V too, and no V stands behind it */
    float scale;         /* multiplies q . k */
    float softcap;       /* 0: none */
    /* A query sees positions [first, n_valid) of the tile, 0 .. 256. Both ascend from query to
     * query, but a tile that lies before a query's window has first 256 and n_valid 0 for it. */
    uint32_t first[ATTENTION_QUERIES];
    uint32_t n_valid[ATTENTION_QUERIES];
    float slope[ATTENTION_QUERIES];      /* of a linear bias; 0: none */
    int32_t distance[ATTENTION_QUERIES]; /* the query's position, counted from the tile's first */
};

/* pack: n_rows <= 16 rows of the file's format, side by side at rows, to one panel. */
#define KERNEL_PACK(name) void name(const uint8_t *rows, size_t n_rows, size_t n_in, uint8_t *panel)

/* matmul: y[r][o] = sum over k of W[o][k] * x[r][k], for the outputs o of panels [from, to) and
 * rows r < n_rows. y points at output 0 of row 0; rows are y_stride floats apart; nothing but the
 * outputs named is written. */
#define KERNEL_MATMUL(name)                                                                        \
    void name(const struct panels *w, size_t from, size_t to, const struct activations *x,         \
              size_t n_rows, float *y, size_t y_stride)

/* look-up: out[k] = W[row][k], decoded. */
#define KERNEL_LOOKUP(name) void name(const struct panels *w, size_t row, float *out)

/* quantise: for each block of 32 values of x: scale = max|x| / 127, q = nearest even of x / scale,
 * sum = sum of q. */
#define KERNEL_QUANTISE(name)                                                                      \
    void name(const float *x, size_t n_blocks, int8_t *q, float *scale, int32_t *sum)

/* norm: RMS x / sqrt(mean(x^2) + eps) * w, layer (x - mean) / sqrt(var + eps) * w; + b unless b is
 * NULL. y may be x. */
#define KERNEL_NORM(name)                                                                          \
    void name(const float *x, const float *w, const float *b, size_t n, float eps, float *y)

/* rope: rotate n_rot / 2 pairs of one head in place: (a, b) -> (a cos - b sin, a sin + b cos).
 * Pairs are (2i, 2i + 1) (interleaved) or (i, i + n_rot / 2) (half). cos, sin: [n_rot / 2]. */
#define KERNEL_ROPE(name) void name(float *head, const float *cos, const float *sin, size_t n_rot)

/* activate: x[i] = act(x[i]) * up[i]; up == NULL: x[i] = act(x[i]).
 * SiLU: x / (1 + exp(-x)). GELU, tanh form: x / (1 + exp(-2 y)), y = SCALE (x + CUBE x^3), which is
 * 0.5 x (1 + tanh(y)). ReLU squared: max(0, x)^2. Clamped SwiGLU:
 * g / (1 + exp(-1.702 g)), g = min(x, 7), times u + 1 in place of up, u = up clamped to -7 .. 7. */
#define KERNEL_ACTIVATE(name) void name(float *x, const float *up, size_t n)

/* attention: take one tile; tiles come in ascending order. For each query, over the positions that
 * it sees:
 *
 *   s[p] = scale * (q . K[p]), then if softcap: softcap * tanh(s / softcap), then if slope:
 *          - slope * (distance - p)
 *   m = max s;  e[p] = exp(s[p] - m);  t = sum e;  a = sum e[p] V[p]
 *
 * and then, with M = max(max, m):
 *
 *   sum = sum exp(max - M) + t exp(m - M);  acc = acc exp(max - M) + a exp(m - M);  max = M
 *
 * A query that sees none of the tile is left alone. */
#define KERNEL_ATTENTION(name)                                                                     \
    void name(struct attention_queries *queries, const struct attention_tile *tile)

/* attention_join: the same for queries whose part of a tile, or of several, is known: whole = whole
 * and then part. A part whose sum is 0 has seen nothing. */
#define KERNEL_ATTENTION_JOIN(name)                                                                \
    void name(struct attention_queries *whole, const struct attention_queries *part, size_t dim_v)

/* store: n values of position at, 0 .. 31, to the K (across: [n][32]) or V ([32][n]) of a block, in
 * the cache's number format. */
#define KERNEL_STORE(name)                                                                         \
    void name(const float *src, size_t n, uint8_t *block, size_t at, bool across)

/* load: the way back, from V. */
#define KERNEL_LOAD(name) void name(const uint8_t *block, size_t n, size_t at, float *dst)

/* softcap: x[i] = cap * tanh(x[i] / cap), as cap * (1 - 2 / (1 + exp(2 x / cap))). */
#define KERNEL_SOFTCAP(name) void name(float *x, size_t n, float cap)

/* add_scaled: x[i] += scale * y[i]. */
#define KERNEL_ADD_SCALED(name) void name(float *x, const float *y, float scale, size_t n)

/* add: x[i] += y[i]. */
#define KERNEL_ADD(name) void name(float *x, const float *y, size_t n)

/* peak: multiply-adds of registers, n_steps times some; returns how many. */
#define KERNEL_PEAK(name) uint64_t name(uint64_t n_steps)

typedef KERNEL_PACK(kernel_pack_fn);
typedef KERNEL_MATMUL(kernel_matmul_fn);
typedef KERNEL_LOOKUP(kernel_lookup_fn);
typedef KERNEL_QUANTISE(kernel_quantise_fn);
typedef KERNEL_NORM(kernel_norm_fn);
typedef KERNEL_ROPE(kernel_rope_fn);
typedef KERNEL_ACTIVATE(kernel_activate_fn);
typedef KERNEL_ATTENTION(kernel_attention_fn);
typedef KERNEL_ATTENTION_JOIN(kernel_attention_join_fn);
typedef KERNEL_STORE(kernel_store_fn);
typedef KERNEL_LOAD(kernel_load_fn);
typedef KERNEL_SOFTCAP(kernel_softcap_fn);
typedef KERNEL_ADD(kernel_add_fn);
typedef KERNEL_ADD_SCALED(kernel_add_scaled_fn);
typedef KERNEL_PEAK(kernel_peak_fn);

/* The number formats that there are kernels for: X(ID, suffix, activations are quantised). A new
 * one is a row here and its pack_, matmul_ and lookup_ kernels in generic/; an instruction set may
 * have a matmul of its own. */
#define KERNEL_FORMATS(X)                                                                          \
    X(F32, f32, false)                                                                             \
    X(F16, f16, false)                                                                             \
    X(BF16, bf16, false)                                                                           \
    KERNEL_BLOCK_FORMATS(X)                                                                        \
    KERNEL_DECODED_FORMATS(X)

/* Formats whose products are sums of bytes times bytes. */
#define KERNEL_BLOCK_FORMATS(X)                                                                    \
    X(Q8_0, q8_0, true)                                                                            \
    X(Q4_0, q4_0, true)                                                                            \
    KERNEL_PLANES_FORMATS(X)

/* Formats whose panels are bit planes: see generic/planes.h. */
#define KERNEL_PLANES_FORMATS(X)                                                                   \
    X(Q4_1, q4_1, true)                                                                            \
    X(Q5_0, q5_0, true)                                                                            \
    X(Q5_1, q5_1, true)                                                                            \
    X(IQ4_NL, iq4_nl, true)                                                                        \
    X(MXFP4, mxfp4, true)                                                                          \
    X(Q2_K, q2_k, true)                                                                            \
    X(Q3_K, q3_k, true)                                                                            \
    X(Q4_K, q4_k, true)                                                                            \
    X(Q5_K, q5_k, true)                                                                            \
    X(Q6_K, q6_k, true)                                                                            \
    X(IQ4_XS, iq4_xs, true)                                                                        \
    X(TQ2_0, tq2_0, true)

/* Formats whose panels keep the file's blocks: see generic/decoded.h. */
#define KERNEL_DECODED_FORMATS(X)                                                                  \
    X(IQ2_XXS, iq2_xxs, false)                                                                     \
    X(IQ2_XS, iq2_xs, false)                                                                       \
    X(IQ2_S, iq2_s, false)                                                                         \
    X(IQ3_XXS, iq3_xxs, false)                                                                     \
    X(IQ3_S, iq3_s, false)                                                                         \
    X(IQ1_S, iq1_s, false)                                                                         \
    X(IQ1_M, iq1_m, false)                                                                         \
    X(TQ1_0, tq1_0, false)

/* Formats that OpenBLAS can multiply. */
#define KERNEL_BLAS_FORMATS(X)                                                                     \
    X(F32, f32)                                                                                    \
    X(F16, f16)                                                                                    \
    X(BF16, bf16)

/* Formats that have products on AMX tiles. The others run as on AVX-512. */
#define KERNEL_AMX_FORMATS(X)                                                                      \
    X(F16, f16, false)                                                                             \
    X(BF16, bf16, false)                                                                           \
    KERNEL_BLOCK_FORMATS(X)

enum kernel_format {
#define KERNEL_FORMAT_ENUM(id, suffix, q8) KERNEL_FORMAT_##id,
    KERNEL_FORMATS(KERNEL_FORMAT_ENUM)
#undef KERNEL_FORMAT_ENUM
        KERNEL_FORMAT_COUNT
};

struct format_kernels {
    uint32_t format; /* enum format_id */
    bool reads_q8;
    kernel_pack_fn *pack;
    kernel_matmul_fn *matmul;
    kernel_lookup_fn *lookup;
};

struct kernels {
    enum isa isa;
    /* What a product is best cut into: so few that progress() is never far, and that what is read
     * again stays in the cache. */
    size_t bite_rows, bite_panels;
    size_t share_panels; /* threads take whole groups of so many panels; divides bite_panels */
    struct format_kernels format[KERNEL_FORMAT_COUNT];
    kernel_quantise_fn *quantise;
    kernel_norm_fn *norm[NORM_COUNT];
    kernel_rope_fn *rope[ROPE_COUNT]; /* NULL for ROPE_NONE */
    kernel_activate_fn *activate[ACTIVATION_COUNT];
    kernel_attention_fn *attention[KV_FORMAT_COUNT];
    kernel_attention_join_fn *attention_join;
    kernel_store_fn *store[KV_FORMAT_COUNT];
    kernel_load_fn *load[KV_FORMAT_COUNT];
    kernel_softcap_fn *softcap;
    kernel_add_fn *add;
    kernel_add_scaled_fn *add_scaled;
    kernel_peak_fn *peak_float, *peak_block; /* the fastest for such formats; NULL: unknown */
};

/* kernels_init() - fill the table for an instruction set, which the caller knows this CPU to have
 * (isa_detect). On AVX2 it takes AVX-VNNI where this CPU has that. */
void kernels_init(struct kernels *k, enum isa isa);

/* kernels_forgo_vnni() - right after kernels_init(): on AVX2, back to the products that a CPU
 * without AVX-VNNI takes. For tests on one that has it; the results are the same. */
void kernels_forgo_vnni(struct kernels *k);

/* kernels_choose_matmul() - who does the products of float formats from now on. MATMUL_AUTO takes
 * OpenBLAS where the vector units that the packed kernels are written for are missing: a rule of
 * instruction set and format, never of a measurement or of the number of rows. Under OpenBLAS a
 * product does not depend on threads, but it depends on the number of rows. */
void kernels_choose_matmul(struct kernels *k, enum matmul_choice choice);

/* kernels_find_format() - the kernels of a number format; NULL where there are none. */
const struct format_kernels *kernels_find_format(const struct kernels *k, uint32_t format);

/* panels_count() - panels of a matrix. */
static inline size_t panels_count(size_t n_out)
{
    return (n_out + PANEL_ROWS - 1) / PANEL_ROWS;
}

#define KERNEL_DECLARE(id, suffix, q8)                                                             \
    KERNEL_PACK(pack_##suffix##_generic);                                                          \
    KERNEL_MATMUL(matmul_##suffix##_generic);                                                      \
    KERNEL_LOOKUP(lookup_##suffix##_generic);                                                      \
    KERNEL_MATMUL(matmul_##suffix##_avx2);                                                         \
    KERNEL_MATMUL(matmul_##suffix##_avx512);
KERNEL_FORMATS(KERNEL_DECLARE)
#undef KERNEL_DECLARE

#define KERNEL_DECLARE_AVX_VNNI(id, suffix, q8) KERNEL_MATMUL(matmul_##suffix##_avx_vnni);
KERNEL_BLOCK_FORMATS(KERNEL_DECLARE_AVX_VNNI)
#undef KERNEL_DECLARE_AVX_VNNI

#define KERNEL_DECLARE_AMX(id, suffix, q8) KERNEL_MATMUL(matmul_##suffix##_amx);
KERNEL_AMX_FORMATS(KERNEL_DECLARE_AMX)
#undef KERNEL_DECLARE_AMX

#define KERNEL_DECLARE_BLAS(id, suffix) KERNEL_MATMUL(matmul_##suffix##_blas);
KERNEL_BLAS_FORMATS(KERNEL_DECLARE_BLAS)
#undef KERNEL_DECLARE_BLAS
void blas_begin(void); /* before the first of them */

/* Kernels that are not per format: each instruction set that has one declares it here. */
#define KERNEL_DECLARE_VECTOR(isa)                                                                 \
    KERNEL_QUANTISE(quantise_##isa);                                                               \
    KERNEL_NORM(norm_rms_##isa);                                                                   \
    KERNEL_NORM(norm_layer_##isa);                                                                 \
    KERNEL_ROPE(rope_interleaved_##isa);                                                           \
    KERNEL_ROPE(rope_half_##isa);                                                                  \
    KERNEL_ADD(add_##isa);                                                                         \
    KERNEL_ADD_SCALED(add_scaled_##isa);                                                           \
    KERNEL_ACTIVATE(silu_##isa);                                                                   \
    KERNEL_ACTIVATE(gelu_##isa);                                                                   \
    KERNEL_ACTIVATE(relu_squared_##isa);                                                           \
    KERNEL_ACTIVATE(swiglu_clamped_##isa);                                                         \
    KERNEL_SOFTCAP(softcap_##isa);                                                                 \
    KERNEL_ATTENTION(attention_f16_##isa);                                                         \
    KERNEL_ATTENTION(attention_f32_##isa);                                                         \
    KERNEL_ATTENTION(attention_q8_0_##isa);                                                        \
    KERNEL_ATTENTION_JOIN(attention_join_##isa);                                                   \
    KERNEL_STORE(store_f16_##isa);                                                                 \
    KERNEL_PEAK(peak_float_##isa);                                                                 \
    KERNEL_PEAK(peak_block_##isa);
KERNEL_DECLARE_VECTOR(generic)
KERNEL_DECLARE_VECTOR(avx2)
KERNEL_DECLARE_VECTOR(avx512)
#undef KERNEL_DECLARE_VECTOR

KERNEL_PEAK(peak_float_avx_vnni);
KERNEL_PEAK(peak_block_avx_vnni);
KERNEL_PEAK(peak_float_amx);
KERNEL_PEAK(peak_block_amx);
KERNEL_STORE(store_f32_generic);
KERNEL_STORE(store_q8_0_generic);
KERNEL_LOAD(load_f16_generic);
KERNEL_LOAD(load_f32_generic);
KERNEL_LOAD(load_q8_0_generic);

#endif
