/* test_quant_formats - block sizes and decoders against the reference's own files, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/gguf.h"
#include "engine/quant_formats.h"
#include "tests/test_data.h"

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static struct gguf *open_quant(const char *path)
{
    struct gguf *g;
    struct err err = {0};
    if (gguf_open(&g, path, &err) != ERR_NONE) fail_msg("%s", err.text);
    return g;
}

/* Tensor packed of the file decodes to tensor exact. The source is moved by one byte: it need not
 * be aligned. */
static void check_decoder(const struct gguf *g, const char *packed, const char *exact)
{
    const struct gguf_tensor *x = gguf_find_tensor(g, packed);
    const struct gguf_tensor *want = gguf_find_tensor(g, exact);
    assert_non_null(x);
    assert_non_null(want);
    const struct format *f = format_find(x->format);
    size_t n = x->shape[0] * x->shape[1];
    uint8_t *moved = malloc(x->bytes + 1);
    float *got = malloc(n * sizeof *got);
    assert_non_null(moved);
    assert_non_null(got);
    memcpy(moved + 1, x->data, x->bytes);
    f->decode(moved + 1, got, n);
    for (size_t i = 0; i < n; i++) {
        float w;
        memcpy(&w, want->data + i * sizeof w, sizeof w);
        if (bits_of(got[i]) != bits_of(w))
            fail_msg("%s %s[%zu] is %a, want %a", f->name, packed, i, (double)got[i], (double)w);
    }
    free(moved);
    free(got);
}

static void decoders_give_the_reference_values(void **state)
{
    (void)state;
    static const char *const files[] = {"quants/F16.gguf", "quants/BF16.gguf", "quants/Q8_0.gguf",
                                        "quants/Q4_0.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        SKIP_WITHOUT(path, files[i]);
        struct gguf *g = open_quant(path);
        check_decoder(g, "x", "x_f32");
        check_decoder(g, "edge", "edge_f32");
        check_decoder(g, "x_f32", "x_f32");
        gguf_close(g);
    }
}

/* Each file says its format's block, and has a tensor of that format. */
static void block_sizes_are_those_of_the_files(void **state)
{
    (void)state;
    static const char *const names[] = {
        "F16",   "BF16",   "Q8_0",   "Q4_0",    "Q4_1",   "Q5_0",  "Q5_1",    "Q2_K",  "Q3_K",
        "Q4_K",  "Q5_K",   "Q6_K",   "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S",
        "IQ1_M", "IQ4_NL", "IQ4_XS", "TQ1_0",   "TQ2_0",  "MXFP4", "NVFP4",   "Q1_0",  "Q2_0"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[64];
        struct err err;
        uint32_t values = 0, bytes = 0;
        snprintf(file, sizeof file, "quants/%s.gguf", names[i]);
        SKIP_WITHOUT(path, file);
        struct gguf *g = open_quant(path);
        assert_int_equal(gguf_get_u32(g, "quant.block_size", &values, &err), ERR_NONE);
        assert_int_equal(gguf_get_u32(g, "quant.type_size", &bytes, &err), ERR_NONE);
        const struct format *f = format_find_name(names[i]);
        assert_non_null(f);
        assert_int_equal(f->block_values, values);
        assert_int_equal(f->block_bytes, bytes);
        assert_int_equal(gguf_find_tensor(g, "x")->format, f->id);
        gguf_close(g);
    }
}

static void formats_are_found_by_id_and_name(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        const char *name;
    } cases[] = {{FORMAT_F32, "f32"},   {FORMAT_F16, "F16"},   {FORMAT_BF16, "bf16"},
                 {FORMAT_Q8_0, "q8_0"}, {FORMAT_Q4_0, "Q4_0"}, {14, "q6_k"}};
    static const uint32_t unknown[] = {4, 5, 31, 32, 33, 36, 37, 38, 200, UINT32_MAX};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_non_null(format_find(cases[i].id));
        assert_ptr_equal(format_find(cases[i].id), format_find_name(cases[i].name));
    }
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_null(format_find(unknown[i]));
    assert_null(format_find_name("Q8"));
    assert_null(format_find_name(""));
    assert_int_equal(format_row_bytes(format_find(FORMAT_Q4_0), 4096), 2304);
    assert_int_equal(format_row_bytes(format_find(FORMAT_BF16), 7), 14);
}

static void every_f16_survives_the_way_to_f32_and_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= UINT16_MAX; h++) {
        float f = f16_to_f32((uint16_t)h);
        bool nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0;
        assert_int_equal(isnan(f) != 0, nan);
        assert_int_equal(f32_to_f16(f), nan ? h | 0x200 : h);
        if (!nan && (h & 0x7c00) != 0x7c00) {
            uint32_t exponent = h >> 10 & 0x1f;
            double want = exponent == 0 ? ldexp(h & 0x3ff, -24)
                                        : ldexp(1024 + (h & 0x3ff), (int)exponent - 25);
            assert_true((double)f == (h & 0x8000 ? -want : want));
        }
    }
}

/* Between each number and the next: below the middle goes down, the middle to the even one, above
 * it up. */
static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = f16_to_f32((uint16_t)h), high = f16_to_f32((uint16_t)(h + 1));
        float middle = (low + high) / 2;
        uint32_t even = h + (h & 1);
        assert_int_equal(f32_to_f16(middle), even);
        assert_int_equal(f32_to_f16(-middle), even | 0x8000);
        assert_int_equal(f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    for (uint32_t h = 0; h < 0x7f7f; h++) {
        float middle = from_bits(h << 16 | 0x8000);
        uint32_t even = h + (h & 1);
        assert_int_equal(f32_to_bf16(middle), even);
        assert_int_equal(f32_to_bf16(-middle), even | 0x8000);
        assert_int_equal(f32_to_bf16(from_bits(h << 16 | 0x7fff)), h);
        assert_int_equal(f32_to_bf16(from_bits(h << 16 | 0x8001)), h + 1);
    }
}

static void the_edges_of_the_ranges_hold(void **state)
{
    (void)state;
    static const struct {
        float from;
        uint16_t f16, bf16;
    } cases[] = {
        {0.0f, 0, 0},
        {-0.0f, 0x8000, 0x8000},
        {65504.0f, 0x7bff, 0x4780},
        {65519.996f, 0x7bff, 0x4780},
        {65520.0f, 0x7c00, 0x4780},
        {1e30f, 0x7c00, 0x714a},
        {3.4028235e38f, 0x7c00, 0x7f80},
        {0x1p-24f, 1, 0x3380},
        {0x1p-25f, 0, 0x3300},
        {0x1.000002p-25f, 1, 0x3300},
        {1e-30f, 0, 0x0da2},
        {INFINITY, 0x7c00, 0x7f80},
        {-INFINITY, 0xfc00, 0xff80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(f32_to_f16(cases[i].from), cases[i].f16);
        assert_int_equal(f32_to_bf16(cases[i].from), cases[i].bf16);
    }
    assert_true(isnan(f16_to_f32(f32_to_f16(NAN))));
    assert_true(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    /* A NaN whose set bits would all be cut off stays one. */
    assert_true(isnan(f16_to_f32(f32_to_f16(from_bits(0x7f800001)))));
    assert_true(isnan(bf16_to_f32(f32_to_bf16(from_bits(0xff800001)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders_give_the_reference_values),
        cmocka_unit_test(block_sizes_are_those_of_the_files),
        cmocka_unit_test(formats_are_found_by_id_and_name),
        cmocka_unit_test(every_f16_survives_the_way_to_f32_and_back),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(the_edges_of_the_ranges_hold),
    };
    return cmocka_run_group_tests_name("quant_formats", tests, NULL, NULL);
}
