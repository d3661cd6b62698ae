/* quant_iq - see quant_decode.h: the lattice formats IQ1, IQ2 and IQ3.
 *
 * Groups of eight (IQ1, IQ2) or four (IQ3) values are points of a grid, and the file has each
 * point's number in its list (quant_iq_tables.h). IQ2 and IQ3 grids hold magnitudes, the signs come
 * beside; IQ1 grids hold -1, 0 and 1, and are shifted by an eighth. Above each decoder stands its
 * block, byte ranges first; d is f16; numbers of more than a byte are little-endian. */
#include "engine/quant_decode.h"
#include "engine/quant_iq_tables.h"

static const float iq2_levels[4] = {8, 25, 43};
static const float iq3_xxs_levels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const float iq3_s_levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/* Eight sign bits from seven: the number of minus signs is even. */
static unsigned eight_signs(unsigned seven)
{
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

static float sign_of(unsigned signs, size_t i)
{
    return signs >> i & 1 ? -1.0f : 1.0f;
}

/* Eight values: factor * level * sign. */
static void decode_iq2_group(uint16_t point, unsigned signs, float factor, float *out)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = factor * iq2_levels[point >> 2 * i & 3] * sign_of(signs, i);
}

/* The same for two points of four values. */
static void decode_iq3_group(const uint16_t point[2], const float levels[8], unsigned signs,
                             float factor, float *out)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = factor * levels[point[i / 4] >> 4 * (i % 4) & 7] * sign_of(signs, i);
}

/*   0 d | 2 eight times { point[4], 8 bits each | 32 bits: signs[4], 7 each, and scale, 4 }
 * value = d * (scale + 1/2) / 4 * level * sign, a scale for 32 values */
static void decode_iq2_xxs_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t group = 0; group < SUPER_BLOCK / 8; group++) {
        const uint8_t *part = block + 2 + group / 4 * 8;
        uint32_t word = load_u32(part + 4);
        unsigned signs = eight_signs(word >> 7 * (group % 4) & 0x7f);
        float factor = d * (0.5f + (float)(word >> 28)) * 0.25f;
        decode_iq2_group(iq2_xxs_grid[part[group % 4]], signs, factor, out + 8 * group);
    }
}
QUANT_DECODE_BLOCKS(iq2_xxs, SUPER_BLOCK, 66, decode_iq2_xxs_block)

/*   0 d | 2 (point, 9 bits, and signs, 7 bits)[32] | 66 scale[16] halves
 * value = d * (scale + 1/2) / 4 * level * sign, a scale for 16 values */
static void decode_iq2_xs_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t group = 0; group < SUPER_BLOCK / 8; group++) {
        uint16_t word = load_u16(block + 2 + 2 * group);
        float factor = d * (0.5f + (float)nibble(block + 66, group / 2)) * 0.25f;
        decode_iq2_group(iq2_xs_grid[word & 0x1ff], eight_signs(word >> 9), factor,
                         out + 8 * group);
    }
}
QUANT_DECODE_BLOCKS(iq2_xs, SUPER_BLOCK, 74, decode_iq2_xs_block)

/*   0 d | 2 bits 0..7 of point[32] | 34 signs[32], 8 bits each | 66 bits 8..9 of point[32]
 *   | 74 scale[16] halves
 * value = d * (scale + 1/2) / 4 * level * sign, a scale for 16 values */
static void decode_iq2_s_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t group = 0; group < SUPER_BLOCK / 8; group++) {
        int high = block[66 + group / 4] >> 2 * (group % 4) & 3;
        uint16_t point = iq2_s_grid[block[2 + group] | high << 8];
        float factor = d * (0.5f + (float)nibble(block + 74, group / 2)) * 0.25f;
        decode_iq2_group(point, block[34 + group], factor, out + 8 * group);
    }
}
QUANT_DECODE_BLOCKS(iq2_s, SUPER_BLOCK, 82, decode_iq2_s_block)

/*   0 d | 2 point[64], 8 bits each | 66 eight times 32 bits: signs[4], 7 each, and scale, 4
 * value = d * (scale + 1/2) / 2 * level * sign, a scale for 32 values */
static void decode_iq3_xxs_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t group = 0; group < SUPER_BLOCK / 8; group++) {
        const uint8_t *index = block + 2 + 2 * group;
        const uint16_t point[2] = {iq3_xxs_grid[index[0]], iq3_xxs_grid[index[1]]};
        uint32_t word = load_u32(block + 66 + group / 4 * 4);
        unsigned signs = eight_signs(word >> 7 * (group % 4) & 0x7f);
        float factor = d * (0.5f + (float)(word >> 28)) * 0.5f;
        decode_iq3_group(point, iq3_xxs_levels, signs, factor, out + 8 * group);
    }
}
QUANT_DECODE_BLOCKS(iq3_xxs, SUPER_BLOCK, 98, decode_iq3_xxs_block)

/*   0 d | 2 bits 0..7 of point[64] | 66 bit 8 of point[64] | 74 signs[32], 8 bits each
 *   | 106 scale[8] halves
 * value = d * (2 * scale + 1) * level * sign, a scale for 32 values */
static void decode_iq3_s_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t group = 0; group < SUPER_BLOCK / 8; group++) {
        const uint8_t *index = block + 2 + 2 * group;
        int high = block[66 + group / 4] >> 2 * (group % 4);
        const uint16_t point[2] = {iq3_s_grid[index[0] | (high & 1) << 8],
                                   iq3_s_grid[index[1] | (high & 2) << 7]};
        float factor = d * (float)(1 + 2 * nibble(block + 106, group / 4));
        decode_iq3_group(point, iq3_s_levels, block[74 + group], factor, out + 8 * group);
    }
}
QUANT_DECODE_BLOCKS(iq3_s, SUPER_BLOCK, 110, decode_iq3_s_block)

/* Eight values: factor * (level + shift). */
static void decode_iq1_group(uint16_t point, float shift, float factor, float *out)
{
    for (size_t i = 0; i < 8; i++) {
        int level = (point >> 2 * i & 3) - 1;
        out[i] = factor * ((float)level + shift);
    }
}

/*   0 d | 2 bits 0..7 of point[32]
 *   | 34 eight times 16 bits: bits 8..10 of point[4], scale, 3 bits, shift down, 1 bit
 * value = d * (2 * scale + 1) * (level +- 1/8), a scale and a shift for 32 values */
static void decode_iq1_s_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t group = 0; group < SUPER_BLOCK / 8; group++) {
        uint16_t word = load_u16(block + 34 + group / 4 * 2);
        int high = word >> 3 * (group % 4) & 7;
        float shift = word & 0x8000 ? -0.125f : 0.125f;
        float factor = d * (float)(2 * (word >> 12 & 7) + 1);
        decode_iq1_group(iq1_grid[block[2 + group] | high << 8], shift, factor, out + 8 * group);
    }
}
QUANT_DECODE_BLOCKS(iq1_s, SUPER_BLOCK, 50, decode_iq1_s_block)

/* d of an IQ1_M block: half k of it is the top of 16-bit word k. */
static float load_iq1_m_scale(const uint8_t *words)
{
    unsigned bits = 0;
    for (size_t k = 0; k < 4; k++) bits |= (unsigned)(load_u16(words + 2 * k) >> 12) << 4 * k;
    return f16_to_f32((uint16_t)bits);
}

/*   0 bits 0..7 of point[32] | 32 halves[32]: bits 8..10 of point, shift down, 1 bit
 *   | 48 four times 16 bits: scale[4], 3 bits each, and a half of d
 * value = d * (2 * scale + 1) * (level +- 1/8), a scale for 16 values, a shift for 8 */
static void decode_iq1_m_block(const uint8_t *block, float *out)
{
    float d = load_iq1_m_scale(block + 48);
    for (size_t group = 0; group < SUPER_BLOCK / 8; group++) {
        int high = nibble(block + 32, group);
        float shift = high & 8 ? -0.125f : 0.125f;
        int scale = load_u16(block + 48 + group / 8 * 2) >> 3 * (group / 2 % 4) & 7;
        float factor = d * (float)(2 * scale + 1);
        uint16_t point = iq1_grid[block[group] | (high & 7) << 8];
        decode_iq1_group(point, shift, factor, out + 8 * group);
    }
}
QUANT_DECODE_BLOCKS(iq1_m, SUPER_BLOCK, 56, decode_iq1_m_block)
