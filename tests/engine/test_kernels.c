/* Kernels: every instruction set that this CPU has against formulas in double and against plain C,
 * over random shapes with tails, with guard words around what is written; and the promise that
 * neighbours never change a bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/fmath.h"
#include "engine/kernels/kernels.h"
#include "tests/engine/random_blocks.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 16 };
static const float GUARD_VALUE = -12345.5F;

static struct kernels tables[ISA_COUNT];
static int n_tables; /* instruction sets of this CPU, ascending */

/* ---- random numbers and memory ---- */

static uint64_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(random_state >> 33) ^ (uint32_t)(random_state >> 20);
}

static size_t random_below(size_t n)
{
    return random_u32() % n;
}

static float random_float(void) /* -1 .. 1 */
{
    return (float)((int32_t)(random_u32() & 0xffffff) - 0x800000) / 0x800000;
}

/* Exactly n bytes, so that a sanitizer sees the first byte too far. */
static void *take(size_t n)
{
    void *p = malloc(n > 0 ? n : 1);
    assert_non_null(p);
    return p;
}

static float *random_floats(size_t n)
{
    float *x = take(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_float();
    return x;
}

static void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]) != 0)
            fail_msg("%s: value %zu is %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}

static void assert_near(double got, double want, double tolerance, const char *what, size_t at)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: value %zu is %.9g, want %.9g within %.3g", what, at, got, want, tolerance);
}

/* n floats between two guards. */
struct guarded {
    float *all, *x;
    size_t n;
};

static struct guarded guarded_new(size_t n)
{
    struct guarded g = {.all = take((n + 2 * GUARD) * sizeof(float)), .n = n};
    g.x = g.all + GUARD;
    for (size_t i = 0; i < n + 2 * GUARD; i++) g.all[i] = GUARD_VALUE;
    return g;
}

static void guarded_free(struct guarded g)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_true(g.all[i] == GUARD_VALUE);
        assert_true(g.x[g.n + i] == GUARD_VALUE);
    }
    free(g.all);
}

/* ---- matrices ---- */

struct matrix {
    uint8_t *rows;  /* as in the file */
    float *decoded; /* [n_out][n_in] */
    uint8_t *panels;
    struct panels packed;
    const struct format *format;
};

/* Values that the format holds, small enough for f16 scales. */
static void random_row(uint32_t format, uint8_t *row, size_t n_in)
{
    const struct format *f = format_find(format);
    for (size_t k = 0; k < n_in; k += f->block_values, row += f->block_bytes) {
        float value = random_float();
        uint16_t half = format == FORMAT_F16 ? f32_to_f16(value) : f32_to_bf16(value);
        for (size_t i = 0; f->block_values > 1 && i < f->block_bytes; i++)
            row[i] = (uint8_t)random_u32();
        if (f->block_values > 1)
            block_set_scales(f, row, f32_to_f16(value * 0.01F));
        else
            memcpy(row, format == FORMAT_F32 ? (const void *)&value : &half, f->block_bytes);
    }
}

/* A width of a few blocks; of few values where the format has no blocks. */
static size_t random_width(const struct format_kernels *k)
{
    switch (format_find(k->format)->block_values) {
    case 1:
        return 1 + random_below(150);
    case 32:
        return 32 * (1 + random_below(5));
    default:
        return 256 * (1 + random_below(2));
    }
}

static void matrix_pack(struct matrix *m, const struct format_kernels *k)
{
    size_t n_in = m->packed.n_in, n_out = m->packed.n_out;
    size_t row_bytes = format_row_bytes(m->format, n_in);
    for (size_t o = 0; o < n_out; o++)
        m->format->decode(m->rows + o * row_bytes, m->decoded + o * n_in, n_in);
    for (size_t p = 0; p < panels_count(n_out); p++) {
        size_t left = n_out - p * PANEL_ROWS;
        k->pack(m->rows + p * PANEL_ROWS * row_bytes, left < PANEL_ROWS ? left : PANEL_ROWS, n_in,
                m->panels + p * PANEL_ROWS * row_bytes);
    }
}

static struct matrix matrix_new(const struct format_kernels *k, size_t n_in, size_t n_out)
{
    struct matrix m = {.format = format_find(k->format)};
    size_t row_bytes = format_row_bytes(m.format, n_in);
    m.rows = take(row_bytes * n_out);
    m.decoded = take(n_in * n_out * sizeof(float));
    m.panels = take(row_bytes * panels_count(n_out) * PANEL_ROWS);
    m.packed = (struct panels){.data = m.panels, .n_in = n_in, .n_out = n_out};
    for (size_t o = 0; o < n_out; o++) random_row(k->format, m.rows + o * row_bytes, n_in);
    matrix_pack(&m, k);
    return m;
}

static void matrix_free(struct matrix m)
{
    free(m.rows);
    free(m.decoded);
    free(m.panels);
}

struct rows {
    float *f32;
    int8_t *q8;
    float *scale;
    int32_t *sum;
    size_t n, n_in;
};

static struct rows rows_new(const struct kernels *k, size_t n, size_t n_in)
{
    size_t blocks = n * (n_in / QUANT_BLOCK);
    struct rows r = {.f32 = random_floats(n * n_in),
                     .q8 = take(blocks * QUANT_BLOCK),
                     .scale = take(blocks * sizeof(float)),
                     .sum = take(blocks * sizeof(int32_t)),
                     .n = n,
                     .n_in = n_in};
    if (n_in % QUANT_BLOCK == 0) k->quantise(r.f32, blocks, r.q8, r.scale, r.sum);
    return r;
}

static void rows_free(struct rows r)
{
    free(r.f32);
    free(r.q8);
    free(r.scale);
    free(r.sum);
}

static struct activations rows_from(const struct rows *r, size_t row)
{
    size_t blocks = r->n_in / QUANT_BLOCK;
    return (struct activations){.f32 = r->f32 + row * r->n_in,
                                .q8 = r->q8 + row * blocks * QUANT_BLOCK,
                                .scale = r->scale + row * blocks,
                                .sum = r->sum + row * blocks};
}

/* What the product reads: the activation itself, or what is left of it after quantising. */
static double read_value(const struct rows *r, bool q8, size_t row, size_t k)
{
    size_t at = row * r->n_in + k;
    return q8 ? (double)r->scale[at / QUANT_BLOCK] * r->q8[at] : (double)r->f32[at];
}

/* On tiles an activation has 16 bits for these formats, and is within 2^-17 of itself. */
static bool splits_activations(enum isa isa, uint32_t format)
{
    return isa == ISA_AMX && (format == FORMAT_F16 || format == FORMAT_BF16);
}

static void check_product(const struct matrix *m, const struct rows *r, bool q8, double slack,
                          size_t from, size_t to, const float *y, size_t stride, const char *what)
{
    size_t n_out = m->packed.n_out, n_in = m->packed.n_in;
    for (size_t row = 0; row < r->n; row++)
        for (size_t o = 0; o < stride; o++) {
            float got = y[row * stride + o];
            if (o < from * PANEL_ROWS || o >= to * PANEL_ROWS || o >= n_out) {
                assert_true(got == GUARD_VALUE);
                continue;
            }
            double want = 0, magnitude = 0;
            for (size_t k = 0; k < n_in; k++) {
                double term = m->decoded[o * n_in + k] * read_value(r, q8, row, k);
                want += term;
                magnitude += fabs(term);
            }
            assert_near(got, want, magnitude * (1e-6 * (1 + sqrt((double)n_in)) + slack) + 1e-30,
                        what, row * stride + o);
        }
}

/* ---- tests of products ---- */

static void packing_and_looking_up_gives_the_decoded_rows_back(void **state)
{
    (void)state;
    for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++)
        for (int i = 0; i < 20; i++) {
            const struct format_kernels *k = &tables[0].format[f];
            size_t n_in = random_width(k), n_out = 1 + random_below(50);
            struct matrix m = matrix_new(k, n_in, n_out);
            struct guarded out = guarded_new(n_in);
            for (size_t o = 0; o < n_out; o++) {
                k->lookup(&m.packed, o, out.x);
                assert_same_bits(out.x, m.decoded + o * n_in, n_in, m.format->name);
            }
            guarded_free(out);
            matrix_free(m);
        }
}

/* Every instruction set, format, a random shape, a random share of panels. */
static void products_agree_with_the_decoded_weights_in_double(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++)
            for (int i = 0; i < 40; i++) {
                const struct format_kernels *k = &tables[isa].format[f];
                size_t n_in = random_width(k);
                size_t n_out = 1 + random_below(120);
                size_t n_rows = i % 8 == 0 ? 20 + random_below(30) : 1 + random_below(14);
                size_t n_panels = panels_count(n_out), from = random_below(n_panels);
                size_t to = from + 1 + random_below(n_panels - from),
                       stride = n_out + random_below(9);
                struct matrix m = matrix_new(k, n_in, n_out);
                struct rows r = rows_new(&tables[isa], n_rows, n_in);
                struct guarded y = guarded_new(n_rows * stride);
                struct activations x = rows_from(&r, 0);
                char what[96];
                snprintf(what, sizeof what, "%s %s [%zu,%zu] x %zu", isa_name(tables[isa].isa),
                         m.format->name, n_in, n_out, n_rows);
                k->matmul(&m.packed, from, to, &x, n_rows, y.x, stride);
                double slack = splits_activations(tables[isa].isa, k->format) ? 0x1p-17 : 0;
                check_product(&m, &r, k->reads_q8, slack, from, to, y.x, stride, what);
                guarded_free(y);
                rows_free(r);
                matrix_free(m);
            }
}

static void a_row_alone_gives_the_same_bits_as_among_others(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++)
            for (size_t n_rows = 2; n_rows <= 13; n_rows++) {
                const struct format_kernels *k = &tables[isa].format[f];
                size_t block = format_find(k->format)->block_values;
                size_t n_in = block == 1 ? 95 : block == 32 ? 96 : 256;
                size_t n_out = 133, n_panels = panels_count(n_out);
                struct matrix m = matrix_new(k, n_in, n_out);
                struct rows r = rows_new(&tables[isa], n_rows, n_in);
                struct guarded together = guarded_new(n_rows * n_out), alone = guarded_new(n_out);
                struct activations x = rows_from(&r, 0);
                k->matmul(&m.packed, 0, n_panels, &x, n_rows, together.x, n_out);
                for (size_t row = 0; row < n_rows; row++) {
                    struct activations one = rows_from(&r, row);
                    size_t cut = random_below(n_panels + 1);
                    k->matmul(&m.packed, 0, cut, &one, 1, alone.x, n_out);
                    k->matmul(&m.packed, cut, n_panels, &one, 1, alone.x, n_out);
                    assert_same_bits(alone.x, together.x + row * n_out, n_out, m.format->name);
                }
                guarded_free(alone);
                guarded_free(together);
                rows_free(r);
                matrix_free(m);
            }
}

/* Blocks whose bytes are all one, or random ones where byte is negative, with scales of 1. */
static void fill_rows(struct matrix *m, int byte)
{
    size_t bytes = m->format->block_bytes;
    size_t n = m->packed.n_out * format_row_bytes(m->format, m->packed.n_in) / bytes;
    for (size_t i = 0; i < n; i++) {
        uint8_t *block = m->rows + i * bytes;
        for (size_t j = 0; j < bytes; j++)
            block[j] = (uint8_t)(byte < 0 ? (int)random_u32() : byte);
        block_set_scales(m->format, block, f32_to_f16(1));
    }
}

/* Activations of one value, or random ones where it is -128; only block b counts. */
static void fill_activations(struct rows *r, int value, size_t b)
{
    for (size_t i = 0; i < r->n * (r->n_in / QUANT_BLOCK); i++) {
        r->sum[i] = 0;
        for (size_t k = 0; k < QUANT_BLOCK; k++) {
            int q = value == -128 ? (int)random_below(255) - 127 : value;
            r->q8[i * QUANT_BLOCK + k] = (int8_t)q;
            r->sum[i] += q;
        }
        r->scale[i] = i % (r->n_in / QUANT_BLOCK) == b;
    }
}

/* A width that no stretch of k of the tiles divides, where the format allows it. */
static size_t tile_width(const struct format_kernels *k)
{
    size_t block = format_find(k->format)->block_values;
    return block == 1 ? 1111 : block == 32 ? 1248 : 1536;
}

/* Tiles take many rows and a stretch of k at a time, and leave few rows to other code: row counts
 * around each of these edges, widths beyond one stretch, activations down to where floats vanish.
 */
static void many_rows_give_the_same_bits_as_each_alone(void **state)
{
    (void)state;
    static const size_t counts[] = {2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 250, 515};
    const struct kernels *table = &tables[n_tables - 1];
    if (table->isa != ISA_AMX) skip();
    for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const struct format_kernels *k = &table->format[f];
            size_t n_in = tile_width(k), n_out = 45;
            if (k->matmul == tables[ISA_AVX512].format[f].matmul) continue;
            struct matrix m = matrix_new(k, n_in, n_out);
            struct rows r = rows_new(table, counts[c], n_in);
            struct guarded y = guarded_new(counts[c] * n_out), alone = guarded_new(n_out);
            if (!k->reads_q8)
                for (size_t i = 0; i < counts[c] * n_in; i += 3) r.f32[i] *= 1e-37F;
            struct activations x = rows_from(&r, 0);
            k->matmul(&m.packed, 0, 3, &x, counts[c], y.x, n_out);
            for (int i = 0; i < 6; i++) {
                size_t row = i == 0 ? counts[c] - 1 : random_below(counts[c]);
                struct activations one = rows_from(&r, row);
                k->matmul(&m.packed, 0, 3, &one, 1, alone.x, n_out);
                assert_same_bits(alone.x, y.x + row * n_out, n_out, m.format->name);
            }
            guarded_free(alone);
            guarded_free(y);
            rows_free(r);
            matrix_free(m);
        }
}

/* Block formats on tiles have the bits of AVX-512. */
static void tiles_of_whole_numbers_give_the_bits_of_vectors(void **state)
{
    (void)state;
    enum { N_OUT = 33, N_ROWS = 40 };
    if (n_tables <= ISA_AMX) skip();
    for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++) {
        const struct format_kernels *k = &tables[ISA_AMX].format[f];
        if (!k->reads_q8 || k->matmul == tables[ISA_AVX512].format[f].matmul) continue;
        struct matrix m = matrix_new(k, tile_width(k), N_OUT);
        struct rows r = rows_new(&tables[ISA_AMX], N_ROWS, tile_width(k));
        struct activations x = rows_from(&r, 0);
        float got[N_ROWS * N_OUT], want[N_ROWS * N_OUT];
        k->matmul(&m.packed, 0, 3, &x, N_ROWS, got, N_OUT);
        tables[ISA_AVX512].format[f].matmul(&m.packed, 0, 3, &x, N_ROWS, want, N_OUT);
        assert_same_bits(got, want, N_ROWS * N_OUT, m.format->name);
        rows_free(r);
        matrix_free(m);
    }
}

/* With scales of 1 every number on the way is exact in f32, so every instruction set must give the
 * integer itself. */
static void check_exact_sum(const struct kernels *table, const struct format_kernels *k,
                            int activation, int byte, size_t n_rows)
{
    size_t n_in = format_find(k->format)->block_values;
    for (size_t b = 0; b < n_in / QUANT_BLOCK; b++) {
        struct matrix m = matrix_new(k, n_in, PANEL_ROWS);
        struct rows r = rows_new(table, n_rows, n_in);
        struct guarded y = guarded_new(n_rows * PANEL_ROWS);
        struct activations x = rows_from(&r, 0);
        fill_rows(&m, byte);
        matrix_pack(&m, k);
        fill_activations(&r, activation, b);
        k->matmul(&m.packed, 0, 1, &x, n_rows, y.x, PANEL_ROWS);
        for (size_t at = 0; at < n_rows * PANEL_ROWS; at++) {
            size_t o = at % PANEL_ROWS;
            double want = 0;
            for (size_t i = b * QUANT_BLOCK; i < (b + 1) * QUANT_BLOCK; i++)
                want += (double)m.decoded[o * n_in + i] * r.q8[at / PANEL_ROWS * n_in + i];
            if ((double)y.x[at] != want)
                fail_msg("%s %s: %.9g, want %.9g", isa_name(table->isa), m.format->name,
                         (double)y.x[at], want);
        }
        guarded_free(y);
        rows_free(r);
        matrix_free(m);
    }
}

static void block_sums_are_exact_at_the_extremes(void **state)
{
    (void)state;
    static const int activations[] = {127, -127, 1, 0, -128};
    static const int bytes[] = {0x80, 0x7f, 0x81, 0x00, 0xff, 0x0f, 0xf0, -1};
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++) {
            const struct format_kernels *k = &tables[isa].format[f];
            for (size_t a = 0; k->reads_q8 && a < sizeof activations / sizeof *activations; a++)
                for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
                    check_exact_sum(&tables[isa], k, activations[a], bytes[i], 1);
                    if (tables[isa].isa == ISA_AMX)
                        check_exact_sum(&tables[isa], k, activations[a], bytes[i], 24);
                }
        }
}

/* Vectors round once where plain C rounds twice: at most one unit in the last place for each of the
 * sums that a block or half of it adds. */
static void instruction_sets_differ_by_a_rounding_a_block_at_most(void **state)
{
    (void)state;
    enum { N_OUT = 40, N_ROWS = 3 };
    for (int isa = 1; isa < n_tables; isa++)
        for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++)
            for (int i = 0; i < 5; i++) {
                const struct format_kernels *k = &tables[isa].format[f];
                size_t n_in = random_width(k);
                if (!k->reads_q8) continue;
                struct matrix m = matrix_new(k, n_in, N_OUT);
                struct rows r = rows_new(&tables[isa], N_ROWS, n_in);
                struct activations x = rows_from(&r, 0);
                float got[N_ROWS * N_OUT], plain[N_ROWS * N_OUT];
                k->matmul(&m.packed, 0, 3, &x, N_ROWS, got, N_OUT);
                tables[0].format[f].matmul(&m.packed, 0, 3, &x, N_ROWS, plain, N_OUT);
                for (size_t o = 0; o < N_ROWS * N_OUT; o++) {
                    double magnitude = 0;
                    for (size_t j = 0; j < n_in; j++)
                        magnitude += fabs(m.decoded[o % N_OUT * n_in + j] *
                                          read_value(&r, true, o / N_OUT, j));
                    assert_near(got[o], plain[o], magnitude * FLT_EPSILON * (double)(n_in / 16),
                                m.format->name, o);
                }
                rows_free(r);
                matrix_free(m);
            }
}

static void weights_that_are_not_numbers_spoil_their_own_output_only(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t i = 0; i < 2 * KERNEL_FORMAT_COUNT; i++) {
            const struct format_kernels *k = &tables[isa].format[i / 2];
            size_t n_rows = i % 2 == 0 ? 3 : 24;     /* few, and enough for tiles */
            if (k->format == FORMAT_MXFP4) continue; /* all its scales are finite */
            size_t n_in = format_find(k->format)->block_values == 256 ? 256 : 64;
            struct matrix m = matrix_new(k, n_in, 40);
            struct rows r = rows_new(&tables[isa], n_rows, n_in);
            size_t bytes = format_row_bytes(m.format, n_in);
            uint16_t half = k->format == FORMAT_BF16 ? 0x7fc0 : 0x7e00;
            if (k->format == FORMAT_F32)
                memcpy(m.rows + 21 * bytes, &(float){NAN}, 4);
            else if (m.format->block_values == 1)
                memcpy(m.rows + 21 * bytes, &half, 2);
            else
                block_set_scales(m.format, m.rows + 21 * bytes, half);
            matrix_pack(&m, k);
            struct guarded y = guarded_new(n_rows * 40);
            struct activations x = rows_from(&r, 0);
            k->matmul(&m.packed, 0, 3, &x, n_rows, y.x, 40);
            for (size_t o = 0; o < n_rows * 40; o++)
                assert_int_equal(isnan(y.x[o]) != 0, o % 40 == 21);
            guarded_free(y);
            rows_free(r);
            matrix_free(m);
        }
}

/* A format that is decoded on the way has the bits that its values would give as F32 panels. */
static void decoded_formats_multiply_like_their_values_in_f32(void **state)
{
    (void)state;
    static const uint32_t decoded[] = {
#define ID_OF(id, suffix, q8) FORMAT_##id,
        KERNEL_DECODED_FORMATS(ID_OF)
#undef ID_OF
    };
    enum { N_OUT = 37, N_ROWS = 71 };
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t f = 0; f < sizeof decoded / sizeof *decoded; f++) {
            const struct format_kernels *k = kernels_find_format(&tables[isa], decoded[f]);
            const struct format_kernels *plain = kernels_find_format(&tables[isa], FORMAT_F32);
            struct matrix m = matrix_new(k, 512, N_OUT), p = matrix_new(plain, 512, N_OUT);
            struct rows r = rows_new(&tables[isa], N_ROWS, 512);
            struct activations x = rows_from(&r, 0);
            struct guarded got = guarded_new(N_ROWS * N_OUT), want = guarded_new(N_ROWS * N_OUT);
            memcpy(p.rows, m.decoded, (size_t)512 * N_OUT * sizeof(float));
            matrix_pack(&p, plain);
            k->matmul(&m.packed, 0, 3, &x, N_ROWS, got.x, N_OUT);
            plain->matmul(&p.packed, 0, 3, &x, N_ROWS, want.x, N_OUT);
            assert_same_bits(got.x, want.x, (size_t)N_ROWS * N_OUT, m.format->name);
            guarded_free(got);
            guarded_free(want);
            rows_free(r);
            matrix_free(p);
            matrix_free(m);
        }
}

/* ---- tests of rows ---- */

static void quantising_rounds_to_nearest_within_half_a_step(void **state)
{
    (void)state;
    static const float magnitudes[] = {1, 1e-3F, 1e4F, 1e30F, 1e-20F, 1e-36F, 0};
    enum { BLOCKS = 5, N = BLOCKS * QUANT_BLOCK };
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t m = 0; m < sizeof magnitudes / sizeof *magnitudes; m++) {
            float *x = random_floats(N);
            int8_t *q = take(N), *plain_q = take(N);
            float scale[BLOCKS], plain_scale[BLOCKS];
            int32_t sum[BLOCKS], plain_sum[BLOCKS];
            for (size_t i = 0; i < N; i++) x[i] *= magnitudes[m];
            tables[isa].quantise(x, BLOCKS, q, scale, sum);
            tables[0].quantise(x, BLOCKS, plain_q, plain_scale, plain_sum);
            assert_memory_equal(q, plain_q, N);
            assert_memory_equal(scale, plain_scale, sizeof scale);
            assert_memory_equal(sum, plain_sum, sizeof sum);
            for (size_t i = 0; i < N; i++) {
                double step = scale[i / QUANT_BLOCK];
                if (fabsf(magnitudes[m]) > 1e-30F)
                    assert_near(step * q[i], x[i], step * 0.50001, "quantise", i);
                assert_in_range(q[i] + 127, 0, 254);
            }
            for (size_t b = 0; b < BLOCKS; b++) {
                int32_t total = 0;
                for (size_t i = 0; i < QUANT_BLOCK; i++) total += q[b * QUANT_BLOCK + i];
                assert_int_equal(total, sum[b]);
            }
            free(plain_q);
            free(q);
            free(x);
        }
}

static void a_block_with_a_value_that_is_not_finite_gets_such_a_scale(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t b = 0; b < 3; b++)
            for (size_t at = 0; at < QUANT_BLOCK; at++) {
                float *x = random_floats(QUANT_BLOCK), scale;
                int8_t q[QUANT_BLOCK];
                int32_t sum;
                x[at] = bad[b];
                tables[isa].quantise(x, 1, q, &scale, &sum);
                assert_true(isfinite(scale) == 0);
                free(x);
            }
}

/* up NULL: there is none. */
static double exact_activation(enum activation act, double x, const float *up)
{
    double factor = up != NULL ? *up : 1;
    switch (act) {
    case ACT_SILU:
        return x / (1 + fmath_exp(-x)) * factor;
    case ACT_GELU:
        return x / (1 + fmath_exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x))) *
               factor;
    case ACT_RELU_SQUARED:
        return (x > 0 ? x * x : 0) * factor;
    case ACT_SWIGLU_CLAMPED:
        x = fmin(x, 7);
        return x / (1 + fmath_exp(-1.702F * x)) * (up != NULL ? fmax(-7, fmin(7, *up)) + 1 : 1);
    }
    return 0;
}

static void activations_agree_with_the_formula_in_double(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (int act = 0; act < ACTIVATION_COUNT; act++)
            for (size_t n = 1; n < 70; n++)
                for (int gated = 0; gated < 2; gated++) {
                    struct guarded x = guarded_new(n);
                    float *up = random_floats(n);
                    double want[70];
                    for (size_t i = 0; i < n; i += 4) up[i] *= 20; /* some beyond the clamps */
                    for (size_t i = 0; i < n; i++) {
                        x.x[i] = random_float() * (i % 3 == 0 ? 30 : 3);
                        want[i] =
                            exact_activation((enum activation)act, x.x[i], gated ? &up[i] : NULL);
                    }
                    tables[isa].activate[act](x.x, gated ? up : NULL, n);
                    for (size_t i = 0; i < n; i++)
                        assert_near(x.x[i], want[i], fabs(want[i]) * 4e-6 + 1e-11,
                                    isa_name(tables[isa].isa), i);
                    free(up);
                    guarded_free(x);
                }
}

static void activations_keep_what_is_not_a_number_and_survive_extremes(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (int act = 0; act < ACTIVATION_COUNT; act++) {
            float x[] = {NAN, 1e30F, -1e30F, 200, -200, 0, 3e38F, -3e38F, INFINITY};
            tables[isa].activate[act](x, NULL, sizeof x / sizeof *x);
            assert_true(isnan(x[0]));
            bool is_clamped = act == ACT_SWIGLU_CLAMPED;
            double top = exact_activation((enum activation)act, 200, NULL);
            assert_near(x[3], top, top * 1e-6, "act(200)", 3);
            assert_near(x[4], 0, 1e-30, "act(-200)", 4);
            assert_true(x[5] == 0);
            assert_int_equal(isfinite(x[8]) != 0, is_clamped);
        }
}

static void activations_do_not_feel_where_a_slice_begins(void **state)
{
    (void)state;
    enum { N = 77 };
    for (int isa = 0; isa < n_tables; isa++)
        for (int act = 0; act < ACTIVATION_COUNT; act++)
            for (size_t cut = 1; cut < N; cut++) {
                float *whole = random_floats(N), *sliced = take(N * sizeof(float));
                memcpy(sliced, whole, N * sizeof(float));
                tables[isa].activate[act](whole, NULL, N);
                tables[isa].activate[act](sliced, NULL, cut);
                tables[isa].activate[act](sliced + cut, NULL, N - cut);
                assert_same_bits(whole, sliced, N, "slice");
                free(whole);
                free(sliced);
            }
}

static void norms_agree_with_the_formula_in_double(void **state)
{
    (void)state;
    for (size_t n = 1; n < 100; n++)
        for (int kind = 0; kind < NORM_COUNT; kind++)
            for (int biased = 0; biased < 2; biased++) {
                float *x = random_floats(n), *w = random_floats(n), *b = random_floats(n);
                struct guarded y = guarded_new(n);
                double mean = 0, square = 0;
                for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
                if (kind == NORM_RMS) mean = 0;
                for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n;
                tables[0].norm[kind](x, w, biased ? b : NULL, n, 1e-5F, y.x);
                for (size_t i = 0; i < n; i++) {
                    double want = (x[i] - mean) / sqrt(square + 1e-5F) * w[i] + (biased ? b[i] : 0);
                    assert_near(y.x[i], want, 2e-6 * (fabs(want) + 1), "norm", i);
                }
                guarded_free(y);
                free(b);
                free(w);
                free(x);
            }
}

static void rotation_turns_the_pairs_of_each_style_and_nothing_else(void **state)
{
    (void)state;
    enum { PAIRS = 5, DIM = 13 };
    float cos[PAIRS], sin[PAIRS];
    for (size_t i = 0; i < PAIRS; i++) {
        cos[i] = (float)fmath_cos((double)i + 1);
        sin[i] = (float)fmath_sin((double)i + 1);
    }
    for (int style = ROPE_INTERLEAVED; style < ROPE_COUNT; style++) {
        float head[DIM], before[DIM];
        for (size_t i = 0; i < DIM; i++) head[i] = before[i] = random_float();
        tables[0].rope[style](head, cos, sin, 2 * PAIRS);
        for (size_t i = 0; i < PAIRS; i++) {
            size_t a = style == ROPE_HALF ? i : 2 * i, b = style == ROPE_HALF ? i + PAIRS : a + 1;
            assert_near(head[a], before[a] * cos[i] - before[b] * sin[i], 1e-6, "rope", a);
            assert_near(head[b], before[a] * sin[i] + before[b] * cos[i], 1e-6, "rope", b);
        }
        for (size_t i = 2 * PAIRS; i < DIM; i++) assert_true(head[i] == before[i]);
    }
}

static void storing_rounds_like_the_reference_and_keeps_to_its_places(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t n = 1; n < 40; n++)
            for (size_t step = 1; step < 4; step++) {
                float *x = random_floats(n);
                uint16_t *half = take(n * step * 2);
                float *whole = take(n * step * 4);
                memset(half, 0xee, n * step * 2);
                memset(whole, 0xee, n * step * 4);
                x[0] = 1e-7F; /* a subnormal of f16 */
                tables[isa].store[KV_F16](x, n, (uint8_t *)half, step);
                tables[isa].store[KV_F32](x, n, (uint8_t *)whole, step);
                for (size_t i = 0; i < n * step; i++) {
                    uint32_t bits;
                    memcpy(&bits, &whole[i], 4);
                    assert_int_equal(half[i], i % step == 0 ? f32_to_f16(x[i / step]) : 0xeeee);
                    if (i % step == 0)
                        assert_true(whole[i] == x[i / step]);
                    else
                        assert_int_equal(bits, 0xeeeeeeee);
                }
                free(whole);
                free(half);
                free(x);
            }
}

static void soft_caps_agree_with_the_formula_in_double(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t n = 1; n < 40; n++) {
            struct guarded x = guarded_new(n);
            double want[40];
            for (size_t i = 0; i < n; i++) {
                x.x[i] = random_float() * (i % 5 == 0 ? 1e4F : 30);
                want[i] = 6 * fmath_tanh(x.x[i] / 6.0);
            }
            tables[isa].softcap(x.x, n, 6);
            for (size_t i = 0; i < n; i++) assert_near(x.x[i], want[i], 3e-6, "softcap", i);
            guarded_free(x);
            float bad[] = {NAN, INFINITY};
            tables[isa].softcap(bad, 2, 6);
            assert_true(isnan(bad[0]) && bad[1] == 6);
        }
}

static void loading_gives_back_what_was_stored(void **state)
{
    (void)state;
    enum { N = 37 };
    for (int isa = 0; isa < n_tables; isa++)
        for (int format = 0; format < KV_FORMAT_COUNT; format++) {
            float *x = random_floats(N);
            uint8_t stored[4 * N];
            struct guarded back = guarded_new(N);
            tables[isa].store[format](x, N, stored, 1);
            tables[isa].load[format](stored, N, back.x);
            for (size_t i = 0; format == KV_F16 && i < N; i++) x[i] = f16_to_f32(f32_to_f16(x[i]));
            assert_same_bits(back.x, x, N, "load");
            tables[isa].add_scaled(back.x, x, -1, N);
            for (size_t i = 0; i < N; i++) assert_true(back.x[i] == 0);
            guarded_free(back);
            free(x);
        }
}

/* ---- attention ---- */

/* Beyond the plain form: what lies between a product and the softmax, and what is seen. */
struct manner {
    size_t window; /* 0: all */
    float softcap, slope;
    bool values_in_keys;
};
static const struct manner manners[] = {
    {0},
    {.window = 20},
    {.window = 300},
    {.softcap = 2},
    {.slope = 0.05F},
    {.values_in_keys = true},
    {.window = 40, .softcap = 3, .slope = 0.02F},
};

/* One key/value head of a sequence: values as the cache holds them, and decoded. Positions from n
 * on are NaN. */
struct history {
    enum kv_format format;
    size_t dim_k, dim_v, n, n_blocks, value_bytes;
    struct manner manner;
    size_t block_bytes;
    uint8_t *blocks; /* [n_blocks][32 * (dim_k + dim_v)], or without V */
    float *k, *v;    /* [n][dim] */
};

static struct history history_new(const struct kernels *table, enum kv_format format, size_t n,
                                  size_t dim_k, size_t dim_v)
{
    struct history h = {.format = format, .dim_k = dim_k, .dim_v = dim_v, .n = n};
    h.block_bytes = KV_BLOCK_POSITIONS * (dim_k + dim_v) * (format == KV_F16 ? 2 : 4);
    h.value_bytes = format == KV_F16 ? 2 : 4;
    h.n_blocks = (n + KV_BLOCK_POSITIONS - 1) / KV_BLOCK_POSITIONS;
    size_t block = KV_BLOCK_POSITIONS * (dim_k + dim_v) * h.value_bytes;
    h.blocks = take(h.n_blocks * block);
    memset(h.blocks, 0xff, h.n_blocks * block); /* NaN in both formats */
    h.k = random_floats(n * dim_k);
    h.v = random_floats(n * dim_v);
    for (size_t p = 0; p < n; p++) {
        uint8_t *keys = h.blocks + p / KV_BLOCK_POSITIONS * block;
        uint8_t *values = keys + KV_BLOCK_POSITIONS * dim_k * h.value_bytes;
        size_t within = p % KV_BLOCK_POSITIONS;
        table->store[format](h.k + p * dim_k, dim_k, keys + within * h.value_bytes,
                             KV_BLOCK_POSITIONS);
        table->store[format](h.v + p * dim_v, dim_v, values + within * dim_v * h.value_bytes, 1);
    }
    for (size_t i = 0; format == KV_F16 && i < n * dim_k; i++)
        h.k[i] = f16_to_f32(f32_to_f16(h.k[i]));
    for (size_t i = 0; format == KV_F16 && i < n * dim_v; i++)
        h.v[i] = f16_to_f32(f32_to_f16(h.v[i]));
    return h;
}

/* The same, where the front of each key is its value, too. */
static struct history history_new_shared(const struct kernels *table, enum kv_format format,
                                         size_t n, size_t dim_k, size_t dim_v)
{
    struct history h = history_new(table, format, n, dim_k, 0);
    free(h.v);
    h.dim_v = dim_v;
    h.v = take(n * dim_v * sizeof *h.v);
    for (size_t p = 0; p < n; p++) memcpy(h.v + p * dim_v, h.k + p * dim_k, dim_v * sizeof *h.v);
    return h;
}

static size_t first_seen(const struct history *h, size_t seen)
{
    size_t window = h->manner.window;
    return window > 0 && seen > window ? seen - window : 0;
}

static void history_free(struct history h)
{
    free(h.blocks);
    free(h.k);
    free(h.v);
}

/* n queries, of which query i sees seen[i] positions; out: [n][dim_v]. */
static void attend(const struct kernels *table, const struct history *h, const float *q, uint32_t n,
                   const size_t *seen, float *out)
{
    struct attention_queries queries = {.n = n};
    struct attention_tile tile = {.dim_k = h->dim_k,
                                  .dim_v = h->dim_v,
                                  .scale = 0.7F,
                                  .softcap = h->manner.softcap,
                                  .values_in_keys = h->manner.values_in_keys};
    for (uint32_t i = 0; i < n; i++) {
        queries.q[i] = q + i * h->dim_k;
        queries.acc[i] = out + i * h->dim_v;
        queries.max[i] = -INFINITY;
        for (size_t d = 0; d < h->dim_v; d++) queries.acc[i][d] = 0;
    }
    for (size_t start = 0; start < seen[n - 1]; start += ATTENTION_TILE) {
        for (uint32_t i = 0; i < n; i++) {
            size_t left = seen[i] > start ? seen[i] - start : 0, from = first_seen(h, seen[i]);
            size_t skipped = from > start ? from - start : 0;
            tile.n_valid[i] = (uint32_t)(left < ATTENTION_TILE ? left : ATTENTION_TILE);
            tile.first[i] = (uint32_t)(skipped < ATTENTION_TILE ? skipped : ATTENTION_TILE);
            if (skipped >= ATTENTION_TILE) tile.n_valid[i] = 0;
            tile.slope[i] = h->manner.slope;
            tile.distance[i] = (int32_t)seen[i] - 1 - (int32_t)start;
        }
        /* Blocks before the first window are not there. */
        for (size_t b = 0; b < TILE_BLOCKS; b++) {
            size_t at = start / KV_BLOCK_POSITIONS + b, block = KV_BLOCK_POSITIONS;
            bool is_there = at < h->n_blocks && (at + 1) * block > first_seen(h, seen[0]);
            tile.block[b] = is_there ? h->blocks + at * h->block_bytes : NULL;
        }
        table->attention[h->format](&queries, &tile);
    }
    for (uint32_t i = 0; i < n; i++)
        for (size_t d = 0; d < h->dim_v; d++) queries.acc[i][d] /= queries.sum[i];
}

static void check_attention(const struct history *h, const float *q, size_t seen, const float *got,
                            const char *what)
{
    double *e = take(seen * sizeof *e), max = -INFINITY, sum = 0;
    size_t from = first_seen(h, seen);
    for (size_t p = from; p < seen; p++) {
        e[p] = 0;
        for (size_t d = 0; d < h->dim_k; d++) e[p] += (double)q[d] * h->k[p * h->dim_k + d];
        e[p] *= 0.7F;
        if (h->manner.softcap > 0) e[p] = h->manner.softcap * fmath_tanh(e[p] / h->manner.softcap);
        e[p] -= h->manner.slope * (double)(seen - 1 - p);
        max = e[p] > max ? e[p] : max;
    }
    for (size_t p = from; p < seen; p++) sum += e[p] = fmath_exp(e[p] - max);
    for (size_t d = 0; d < h->dim_v; d++) {
        double want = 0;
        for (size_t p = from; p < seen; p++) want += e[p] / sum * h->v[p * h->dim_v + d];
        assert_near(got[d], want, 3e-6, what, d);
    }
    free(e);
}

/* Key and value widths, tails included, and histories around the edges of vectors, blocks and
 * tiles. */
static const struct {
    size_t dim_k, dim_v;
} head_dims[] = {{1, 1},   {3, 5},   {8, 8},     {16, 16}, {20, 24},
                 {64, 64}, {96, 80}, {128, 128}, {80, 37}};
static const size_t lengths[] = {1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 300, 513, 600};

static void check_history(const struct kernels *table, const struct history *h)
{
    uint32_t n = 1 + (uint32_t)random_below(ATTENTION_QUERIES);
    float *q = random_floats(n * h->dim_k);
    struct guarded out = guarded_new(n * h->dim_v), alone = guarded_new(h->dim_v);
    size_t seen[ATTENTION_QUERIES];
    for (uint32_t i = 0; i < n; i++) /* the last sees all, each one before a little less */
        seen[i] = h->n > 2 * (n - 1 - i) ? h->n - 2 * (n - 1 - i) : 1;
    attend(table, h, q, n, seen, out.x);
    for (uint32_t i = 0; i < n; i++) {
        check_attention(h, q + i * h->dim_k, seen[i], out.x + i * h->dim_v, isa_name(table->isa));
        attend(table, h, q + i * h->dim_k, 1, &seen[i], alone.x);
        assert_same_bits(alone.x, out.x + i * h->dim_v, h->dim_v, "alone");
    }
    guarded_free(alone);
    guarded_free(out);
    free(q);
}

static void attention_agrees_with_the_formula_whatever_stands_beside_it(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t m = 0; m < sizeof manners / sizeof *manners; m++)
            for (size_t s = 0; s < sizeof head_dims / sizeof *head_dims; s++)
                for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
                    for (int format = 0; format < KV_FORMAT_COUNT; format++) {
                        size_t dim_k = head_dims[s].dim_k, dim_v = head_dims[s].dim_v;
                        bool shared = manners[m].values_in_keys;
                        struct history h =
                            shared ? history_new_shared(&tables[isa], (enum kv_format)format,
                                                        lengths[l], dim_k,
                                                        dim_v < dim_k ? dim_v : dim_k)
                                   : history_new(&tables[isa], (enum kv_format)format, lengths[l],
                                                 dim_k, dim_v);
                        h.manner = manners[m];
                        check_history(&tables[isa], &h);
                        history_free(h);
                    }
}

static void very_different_scores_neither_overflow_nor_vanish(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++) {
        struct history h = history_new(&tables[isa], KV_F32, 520, 8, 8);
        float q[8], out[8];
        size_t seen = 520;
        for (size_t d = 0; d < 8; d++) q[d] = random_float() * 1e4F;
        attend(&tables[isa], &h, q, 1, &seen, out);
        for (size_t d = 0; d < 8; d++) assert_true(isfinite(out[d]));
        history_free(h);
    }
}

static void the_table_is_complete_for_every_instruction_set(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++) {
        const struct kernels *k = &tables[isa];
        for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++) {
            assert_ptr_equal(kernels_find_format(k, k->format[f].format), &k->format[f]);
            assert_non_null(k->format[f].pack);
            assert_non_null(k->format[f].matmul);
            assert_non_null(k->format[f].lookup);
        }
        for (uint32_t id = 0; id < 256; id++) {
            const struct format *format = format_find(id);
            bool runs = format != NULL && format->runs;
            assert_int_equal(runs, kernels_find_format(k, id) != NULL);
        }
        assert_int_equal(isa_find(isa_name(k->isa)), k->isa);
        for (int style = ROPE_INTERLEAVED; style < ROPE_COUNT; style++)
            assert_non_null(k->rope[style]);
        assert_true(isa == 0 || k->format[0].matmul != tables[0].format[0].matmul);
    }
}

static void a_forced_instruction_set_is_obeyed_or_refused_by_name(void **state)
{
    (void)state;
    enum isa found;
    struct err err;
    setenv("TANDEM_ISA", "generic", 1);
    assert_int_equal(isa_detect(&found, &err), ERR_NONE);
    assert_int_equal(found, ISA_GENERIC);
    setenv("TANDEM_ISA", "sse9", 1);
    assert_int_equal(isa_detect(&found, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "sse9"));
    unsetenv("TANDEM_ISA");
    assert_int_equal(isa_find("nothing"), -1);
}

int main(void)
{
    enum isa best;
    struct err err;
    unsetenv("TANDEM_ISA");
    if (isa_detect(&best, &err) != ERR_NONE) return 1;
    for (n_tables = 0; n_tables <= (int)best; n_tables++)
        kernels_init(&tables[n_tables], (enum isa)n_tables);
    print_message("instruction sets up to %s\n", isa_name(best));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_complete_for_every_instruction_set),
        cmocka_unit_test(a_forced_instruction_set_is_obeyed_or_refused_by_name),
        cmocka_unit_test(packing_and_looking_up_gives_the_decoded_rows_back),
        cmocka_unit_test(products_agree_with_the_decoded_weights_in_double),
        cmocka_unit_test(a_row_alone_gives_the_same_bits_as_among_others),
        cmocka_unit_test(many_rows_give_the_same_bits_as_each_alone),
        cmocka_unit_test(tiles_of_whole_numbers_give_the_bits_of_vectors),
        cmocka_unit_test(block_sums_are_exact_at_the_extremes),
        cmocka_unit_test(instruction_sets_differ_by_a_rounding_a_block_at_most),
        cmocka_unit_test(weights_that_are_not_numbers_spoil_their_own_output_only),
        cmocka_unit_test(decoded_formats_multiply_like_their_values_in_f32),
        cmocka_unit_test(quantising_rounds_to_nearest_within_half_a_step),
        cmocka_unit_test(a_block_with_a_value_that_is_not_finite_gets_such_a_scale),
        cmocka_unit_test(activations_agree_with_the_formula_in_double),
        cmocka_unit_test(activations_keep_what_is_not_a_number_and_survive_extremes),
        cmocka_unit_test(activations_do_not_feel_where_a_slice_begins),
        cmocka_unit_test(norms_agree_with_the_formula_in_double),
        cmocka_unit_test(rotation_turns_the_pairs_of_each_style_and_nothing_else),
        cmocka_unit_test(storing_rounds_like_the_reference_and_keeps_to_its_places),
        cmocka_unit_test(soft_caps_agree_with_the_formula_in_double),
        cmocka_unit_test(loading_gives_back_what_was_stored),
        cmocka_unit_test(attention_agrees_with_the_formula_whatever_stands_beside_it),
        cmocka_unit_test(very_different_scores_neither_overflow_nor_vanish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
