/* quant_formats - see quant_formats.h. */
#include "engine/quant_formats.h"

#include "engine/err.h"
#include "engine/quant_decode.h"

#include <string.h>
#include <strings.h>

static uint32_t float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 0x1f;
    uint32_t mantissa = h & 0x3ff;
    if (exponent == 0x1f) return bits_float(sign | 0x7f800000 | mantissa << 13);
    if (exponent != 0) return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
    /* Zero or subnormal: mantissa * 2^-24, which is exact in f32. */
    float magnitude = (float)mantissa * 0x1p-24f;
    return bits_float(sign | float_bits(magnitude));
}

uint16_t f32_to_f16(float f)
{
    uint32_t bits = float_bits(f);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN: keep what fits, and quiet it */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more: infinity */
    if (magnitude < 0x38800000) {
        /* Below 2^-14: adding 0.5 moves the value to where one step of f32 is 2^-24, the step of
         * f16 subnormals, and the addition rounds to nearest even. */
        return (uint16_t)(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000));
    }
    uint32_t even = magnitude >> 13 & 1;
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + even) >> 13));
}

float bf16_to_f32(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float f)
{
    uint32_t bits = float_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN, quiet */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Ids that are missing were withdrawn. */
static const struct format formats[] = {
    {FORMAT_F32, "F32", 1, 4, true, quant_decode_f32},
    {FORMAT_F16, "F16", 1, 2, true, quant_decode_f16},
    {FORMAT_Q4_0, "Q4_0", 32, 18, true, quant_decode_q4_0},
    {FORMAT_Q4_1, "Q4_1", 32, 20, true, quant_decode_q4_1},
    {FORMAT_Q5_0, "Q5_0", 32, 22, true, quant_decode_q5_0},
    {FORMAT_Q5_1, "Q5_1", 32, 24, true, quant_decode_q5_1},
    {FORMAT_Q8_0, "Q8_0", 32, 34, true, quant_decode_q8_0},
    {9, "Q8_1", 32, 36, false, NULL},
    {FORMAT_Q2_K, "Q2_K", 256, 84, true, quant_decode_q2_k},
    {FORMAT_Q3_K, "Q3_K", 256, 110, true, quant_decode_q3_k},
    {FORMAT_Q4_K, "Q4_K", 256, 144, true, quant_decode_q4_k},
    {FORMAT_Q5_K, "Q5_K", 256, 176, true, quant_decode_q5_k},
    {FORMAT_Q6_K, "Q6_K", 256, 210, true, quant_decode_q6_k},
    {15, "Q8_K", 256, 292, false, NULL},
    {FORMAT_IQ2_XXS, "IQ2_XXS", 256, 66, true, quant_decode_iq2_xxs},
    {FORMAT_IQ2_XS, "IQ2_XS", 256, 74, true, quant_decode_iq2_xs},
    {FORMAT_IQ3_XXS, "IQ3_XXS", 256, 98, true, quant_decode_iq3_xxs},
    {FORMAT_IQ1_S, "IQ1_S", 256, 50, true, quant_decode_iq1_s},
    {FORMAT_IQ4_NL, "IQ4_NL", 32, 18, true, quant_decode_iq4_nl},
    {FORMAT_IQ3_S, "IQ3_S", 256, 110, true, quant_decode_iq3_s},
    {FORMAT_IQ2_S, "IQ2_S", 256, 82, true, quant_decode_iq2_s},
    {FORMAT_IQ4_XS, "IQ4_XS", 256, 136, true, quant_decode_iq4_xs},
    {24, "I8", 1, 1, false, NULL},
    {25, "I16", 1, 2, false, NULL},
    {26, "I32", 1, 4, false, NULL},
    {27, "I64", 1, 8, false, NULL},
    {28, "F64", 1, 8, false, NULL},
    {FORMAT_IQ1_M, "IQ1_M", 256, 56, true, quant_decode_iq1_m},
    {FORMAT_BF16, "BF16", 1, 2, true, quant_decode_bf16},
    {FORMAT_TQ1_0, "TQ1_0", 256, 54, true, quant_decode_tq1_0},
    {FORMAT_TQ2_0, "TQ2_0", 256, 66, true, quant_decode_tq2_0},
    {FORMAT_MXFP4, "MXFP4", 32, 17, true, quant_decode_mxfp4},
    {40, "NVFP4", 64, 36, false, NULL},
    {41, "Q1_0", 128, 18, false, NULL},
    {42, "Q2_0", 64, 18, false, NULL},
};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

const struct format *format_find(uint32_t id)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (formats[i].id == id) return &formats[i];
    return NULL;
}

const struct format *format_find_name(const char *name)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (strcasecmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

size_t format_row_bytes(const struct format *f, uint64_t n)
{
    BUG_IF(n % f->block_values != 0, "a row that is not a whole number of blocks");
    return n / f->block_values * f->block_bytes;
}
