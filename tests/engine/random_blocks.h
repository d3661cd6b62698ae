/* random_blocks - blocks of any number format with sane scales, for tests: all bytes but those of
 * the scales may be anything. */
#ifndef TANDEM_TESTS_ENGINE_RANDOM_BLOCKS_H
#define TANDEM_TESTS_ENGINE_RANDOM_BLOCKS_H

#include "engine/quant_formats.h"

#include <math.h>
#include <string.h>

/* block_set_scales() - the f16 scales of a block become half. An MXFP4 block has an exponent
 * instead, which becomes that of half; d of an IQ1_M block is spread over the tops of
 * four words. */
static inline void block_set_scales(const struct format *f, uint8_t *block, uint16_t half)
{
    static const struct {
        uint32_t format;
        int at[2]; /* -1: none */
    } places[] = {
        {FORMAT_Q8_0, {0, -1}},    {FORMAT_Q4_0, {0, -1}},   {FORMAT_Q4_1, {0, 2}},
        {FORMAT_Q5_0, {0, -1}},    {FORMAT_Q5_1, {0, 2}},    {FORMAT_IQ4_NL, {0, -1}},
        {FORMAT_Q2_K, {80, 82}},   {FORMAT_Q3_K, {108, -1}}, {FORMAT_Q4_K, {0, 2}},
        {FORMAT_Q5_K, {0, 2}},     {FORMAT_Q6_K, {208, -1}}, {FORMAT_IQ4_XS, {0, -1}},
        {FORMAT_IQ2_XXS, {0, -1}}, {FORMAT_IQ2_XS, {0, -1}}, {FORMAT_IQ2_S, {0, -1}},
        {FORMAT_IQ3_XXS, {0, -1}}, {FORMAT_IQ3_S, {0, -1}},  {FORMAT_IQ1_S, {0, -1}},
        {FORMAT_TQ1_0, {52, -1}},  {FORMAT_TQ2_0, {64, -1}},
    };
    if (f->id == FORMAT_MXFP4) block[0] = (uint8_t)((half >> 10 & 0x1f) + 112);
    for (size_t i = 0; f->id == FORMAT_IQ1_M && i < 4; i++) {
        uint8_t *top = &block[48 + 2 * i + 1];
        *top = (uint8_t)((*top & 0xf) | (half >> 4 * i & 0xf) << 4);
    }
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (size_t i = 0; places[p].format == f->id && i < 2; i++)
            if (places[p].at[i] >= 0) memcpy(block + places[p].at[i], &half, 2);
}

/* block_scale_to() - set the scales so that the largest value of the block is about so large. */
static inline void block_scale_to(const struct format *f, uint8_t *block, float largest)
{
    float values[256], max = 0;
    block_set_scales(f, block, f32_to_f16(1));
    f->decode(block, values, f->block_values);
    for (size_t i = 0; i < f->block_values; i++) max = fmaxf(max, fabsf(values[i]));
    if (max > 0) block_set_scales(f, block, f32_to_f16(largest / max));
}

#endif
