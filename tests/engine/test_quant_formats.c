/* test_quant_formats - block sizes and decoders against the reference's own files, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/gguf.h"
#include "engine/kernels/kernels.h"
#include "engine/quant_formats.h"
#include "tests/test_data.h"

/* All ids of formats are below. */
enum { ID_END = 64 };

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

/* Every format that has a decoder, but for F32, has a file of its name. */
static void decoders_give_the_reference_values(void **state)
{
    (void)state;
    size_t n_decoders = 0;
    for (uint32_t id = 0; id < ID_END; id++) {
        const struct format *f = format_find(id);
        if (f == NULL || f->decode == NULL) continue;
        n_decoders++;
        if (id == FORMAT_F32) continue;
        char file[64];
        snprintf(file, sizeof file, "quants/%s.gguf", f->name);
        SKIP_WITHOUT(path, file);
        struct gguf *g = open_quant(path);
        assert_int_equal(gguf_find_tensor(g, "x")->format, id);
        check_decoder(g, "x", "x_f32");
        check_decoder(g, "edge", "edge_f32");
        check_decoder(g, "x_f32", "x_f32");
        gguf_close(g);
    }
    assert_int_equal(n_decoders, 25);
}

/* Memory between two pages that cannot be touched: against the first one, or against the second. */
struct guarded {
    uint8_t *map, *start, *end;
    size_t page;
};

enum { GUARDED_PAGES = 4 };

static struct guarded guarded_begin(void)
{
    struct guarded g = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    g.map = mmap(NULL, (GUARDED_PAGES + 2) * g.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    g.start = g.map + g.page;
    g.end = g.start + GUARDED_PAGES * g.page;
    assert_int_equal(mprotect(g.start, GUARDED_PAGES * g.page, PROT_READ | PROT_WRITE), 0);
    return g;
}

static void guarded_end(struct guarded *g)
{
    assert_int_equal(munmap(g->map, (GUARDED_PAGES + 2) * g->page), 0);
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Kind 0: zeros; 1: all bits set; others: random. */
static void fill_blocks(uint8_t *bytes, size_t n, int kind, uint64_t *random)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t any = (uint8_t)(random_next(random) >> 24);
        bytes[i] = kind == 0 ? 0 : kind == 1 ? 0xff : any;
    }
}

enum { BLOCKS = 3 };

/* A NaN with bits that no decoder makes: it marks what has not been written. */
static const uint32_t unwritten = 0x7fa5a5a5;

/* BLOCKS blocks at src, which has nothing behind it, to dst, which has not either; and then each
 * block alone. */
static void check_blocks(const struct format *f, const uint8_t *src, float *dst)
{
    size_t n = BLOCKS * f->block_values;
    float alone[256];
    for (size_t i = 0; i < n; i++) memcpy(&dst[i], &unwritten, sizeof unwritten);
    f->decode(src, dst, 0);
    for (size_t i = 0; i < n; i++) assert_int_equal(bits_of(dst[i]), unwritten);
    f->decode(src, dst, n);
    for (size_t i = 0; i < n; i++) assert_int_not_equal(bits_of(dst[i]), unwritten);
    for (size_t b = 0; b < BLOCKS; b++) {
        f->decode(src + b * f->block_bytes, alone, f->block_values);
        const float *block = dst + b * f->block_values;
        if (memcmp(alone, block, f->block_values * sizeof *block) != 0)
            fail_msg("%s: block %zu differs when it is decoded alone", f->name, b);
    }
}

static void any_bytes_are_decoded_and_none_beside_them(void **state)
{
    (void)state;
    uint64_t random = 0x9e3779b97f4a7c15;
    struct guarded src = guarded_begin(), dst = guarded_begin();
    for (uint32_t id = 0; id < ID_END; id++) {
        const struct format *f = format_find(id);
        if (f == NULL || f->decode == NULL) continue;
        size_t n_bytes = BLOCKS * f->block_bytes, n_values = BLOCKS * f->block_values;
        assert_true(n_bytes <= GUARDED_PAGES * src.page);
        assert_true(n_values * sizeof(float) <= GUARDED_PAGES * dst.page);
        for (int round = 0; round < 200; round++) {
            bool low = round % 2 == 0;
            uint8_t *at = low ? src.start : src.end - n_bytes;
            void *out = low ? dst.start : dst.end - n_values * sizeof(float);
            fill_blocks(at, n_bytes, round / 2, &random);
            check_blocks(f, at, out);
        }
    }
    guarded_end(&src);
    guarded_end(&dst);
}

/* A block that is zero but for its scale, 1, and the number of its first point, i. */
static void point_block(uint32_t id, size_t i, uint8_t block[110])
{
    memset(block, 0, 110);
    block[1] = 0x3c;
    block[2] = (uint8_t)i;
    switch (id) {
    case FORMAT_IQ2_XS:
        block[3] = (uint8_t)(i >> 8);
        break;
    case FORMAT_IQ2_S:
        block[66] = (uint8_t)(i >> 8);
        break;
    case FORMAT_IQ3_S:
        block[66] = (uint8_t)(i >> 8);
        break;
    case FORMAT_IQ1_S:
        block[34] = (uint8_t)(i >> 8);
        break;
    default:
        break;
    }
}

/* The reference's files reach only a part of each grid. All of it is known to ascend, last
 * coordinate first. */
static void the_points_of_a_grid_ascend(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        size_t n_points, n_coordinates;
    } cases[] = {{FORMAT_IQ2_XXS, 256, 8}, {FORMAT_IQ2_XS, 512, 8}, {FORMAT_IQ2_S, 1024, 8},
                 {FORMAT_IQ3_XXS, 256, 4}, {FORMAT_IQ3_S, 512, 4},  {FORMAT_IQ1_S, 2048, 8}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        float before[256], now[256];
        for (size_t i = 0; i < cases[c].n_points; i++) {
            uint8_t block[110];
            point_block(cases[c].id, i, block);
            format_find(cases[c].id)->decode(block, now, 256);
            size_t k = cases[c].n_coordinates - 1;
            while (i > 0 && k > 0 && now[k] == before[k]) k--;
            if (i > 0 && !(now[k] > before[k]))
                fail_msg("%s: point %zu is not above the one before",
                         format_find(cases[c].id)->name, i);
            memcpy(before, now, sizeof before);
        }
    }
}

/* A format may be used by a model exactly where there are kernels for it. */
static void the_formats_that_run_are_those_with_kernels(void **state)
{
    (void)state;
    static const uint32_t with_kernels[] = {
#define ID_OF(id, suffix, q8) FORMAT_##id,
        KERNEL_FORMATS(ID_OF)
#undef ID_OF
    };
    for (uint32_t id = 0; id < ID_END; id++) {
        const struct format *f = format_find(id);
        if (f == NULL) continue;
        bool want = false;
        for (size_t i = 0; i < sizeof with_kernels / sizeof with_kernels[0]; i++)
            want = want || with_kernels[i] == id;
        if (f->runs != want) fail_msg("%s: runs is %d, want %d", f->name, f->runs, want);
        assert_true(!f->runs || f->decode != NULL);
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
                 {FORMAT_Q8_0, "q8_0"}, {FORMAT_Q4_0, "Q4_0"}, {FORMAT_Q6_K, "q6_k"}};
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
        cmocka_unit_test(any_bytes_are_decoded_and_none_beside_them),
        cmocka_unit_test(the_points_of_a_grid_ascend),
        cmocka_unit_test(the_formats_that_run_are_those_with_kernels),
        cmocka_unit_test(block_sizes_are_those_of_the_files),
        cmocka_unit_test(formats_are_found_by_id_and_name),
        cmocka_unit_test(every_f16_survives_the_way_to_f32_and_back),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(the_edges_of_the_ranges_hold),
    };
    return cmocka_run_group_tests_name("quant_formats", tests, NULL, NULL);
}
