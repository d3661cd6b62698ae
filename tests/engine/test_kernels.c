/* Kernels: the table, and products. Every instruction set that this CPU has against the decoded
 * weights in double and against plain C, over random shapes with tails, with guard words around
 * what is written; and the promise that neighbours never change a bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/kernel_tables.h"
#include "tests/engine/random_blocks.h"

#include <float.h>
#include <stdio.h>

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
    const struct kernels *table = &tables[tables_best];
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
    if (tables_best < ISA_AMX) skip();
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

/* Hosts that have AVX-VNNI share a line with hosts that do not. */
static void avx_vnni_gives_the_bits_of_avx2_without_it(void **state)
{
    (void)state;
    enum { N_OUT = 40, N_ROWS = 11 };
    if (n_tables == (int)tables_best + 1) skip();
    const struct kernels *with = &tables[ISA_AVX2], *without = &tables[n_tables - 1];
    for (size_t f = 0; f < KERNEL_FORMAT_COUNT; f++) {
        const struct format_kernels *k = &with->format[f], *other = &without->format[f];
        if (!k->reads_q8) continue;
        assert_ptr_not_equal(k->matmul, other->matmul);
        size_t n_in = random_width(k);
        struct matrix m = matrix_new(k, n_in, N_OUT);
        struct rows r = rows_new(with, N_ROWS, n_in);
        struct activations x = rows_from(&r, 0);
        float got[N_ROWS * N_OUT], want[N_ROWS * N_OUT];
        for (size_t n_rows = 1; n_rows <= N_ROWS; n_rows++) {
            k->matmul(&m.packed, 0, 3, &x, n_rows, got, N_OUT);
            other->matmul(&m.packed, 0, 3, &x, n_rows, want, N_OUT);
            assert_same_bits(got, want, n_rows * N_OUT, m.format->name);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_complete_for_every_instruction_set),
        cmocka_unit_test(a_forced_instruction_set_is_obeyed_or_refused_by_name),
        cmocka_unit_test(packing_and_looking_up_gives_the_decoded_rows_back),
        cmocka_unit_test(products_agree_with_the_decoded_weights_in_double),
        cmocka_unit_test(a_row_alone_gives_the_same_bits_as_among_others),
        cmocka_unit_test(many_rows_give_the_same_bits_as_each_alone),
        cmocka_unit_test(tiles_of_whole_numbers_give_the_bits_of_vectors),
        cmocka_unit_test(block_sums_are_exact_at_the_extremes),
        cmocka_unit_test(avx_vnni_gives_the_bits_of_avx2_without_it),
        cmocka_unit_test(instruction_sets_differ_by_a_rounding_a_block_at_most),
        cmocka_unit_test(weights_that_are_not_numbers_spoil_their_own_output_only),
        cmocka_unit_test(decoded_formats_multiply_like_their_values_in_f32),
    };
    return tables_init() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
