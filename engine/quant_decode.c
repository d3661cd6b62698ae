/* quant_decode - see quant_decode.h: the plain, block and K formats.
 *
 * The decoders are the reference that kernels are tested against: plain, and exact. The order of
 * the float operations is the reference's, and so are all bits of the results. Above each decoder
 * stands its block, byte ranges first; d and m are f16. */
#include "engine/quant_decode.h"

/* ---- plain numbers ---- */

QUANT_DECODER(f32)
{
    if (n > 0) memcpy(dst, src, n * sizeof *dst);
}

QUANT_DECODER(f16)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = load_f16(p + 2 * i);
}

QUANT_DECODER(bf16)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = bf16_to_f32(load_u16(p + 2 * i));
}

/* ---- blocks of 32 ---- */

/* Number i of 32 halves of which byte k holds number k (low half) and k + 16 (high half). */
static int half_of_32(const uint8_t *p, size_t i)
{
    return p[i % 16] >> 4 * (i / 16) & 0xf;
}

/*   0 d | 2 q[32] int8
 * value = d * q */
static void decode_q8_0_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t i = 0; i < 32; i++) out[i] = d * (float)(int8_t)block[2 + i];
}
QUANT_DECODE_BLOCKS(q8_0, 32, 34, decode_q8_0_block)

/*   0 d | 2 q[32] halves
 * value = d * (q - 8) */
static void decode_q4_0_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t i = 0; i < 32; i++) out[i] = d * (float)(half_of_32(block + 2, i) - 8);
}
QUANT_DECODE_BLOCKS(q4_0, 32, 18, decode_q4_0_block)

/*   0 d | 2 m | 4 q[32] halves
 * value = d * q + m */
static void decode_q4_1_block(const uint8_t *block, float *out)
{
    float d = load_f16(block), m = load_f16(block + 2);
    for (size_t i = 0; i < 32; i++) out[i] = d * (float)half_of_32(block + 4, i) + m;
}
QUANT_DECODE_BLOCKS(q4_1, 32, 20, decode_q4_1_block)

/* Five bits: four among halves, the highest of number i is bit i of a 32-bit word. */
static int five_bits(const uint8_t *halves, const uint8_t *high, size_t i)
{
    return half_of_32(halves, i) | (int)(load_u32(high) >> i & 1) << 4;
}

/*   0 d | 2 bit 4 of q[32] | 6 bits 0..3 of q[32], halves
 * value = d * (q - 16) */
static void decode_q5_0_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t i = 0; i < 32; i++) out[i] = d * (float)(five_bits(block + 6, block + 2, i) - 16);
}
QUANT_DECODE_BLOCKS(q5_0, 32, 22, decode_q5_0_block)

/*   0 d | 2 m | 4 bit 4 of q[32] | 8 bits 0..3 of q[32], halves
 * value = d * q + m */
static void decode_q5_1_block(const uint8_t *block, float *out)
{
    float d = load_f16(block), m = load_f16(block + 2);
    for (size_t i = 0; i < 32; i++) out[i] = d * (float)five_bits(block + 8, block + 4, i) + m;
}
QUANT_DECODE_BLOCKS(q5_1, 32, 24, decode_q5_1_block)

/* What the sixteen codes of IQ4_NL and IQ4_XS stand for. */
static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/*   0 d | 2 q[32] halves
 * value = d * iq4_levels[q] */
static void decode_iq4_nl_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t i = 0; i < 32; i++) out[i] = d * (float)iq4_levels[half_of_32(block + 2, i)];
}
QUANT_DECODE_BLOCKS(iq4_nl, 32, 18, decode_iq4_nl_block)

/* The numbers of E2M1, doubled, so that they are whole; code 8 is 0, not -0. */
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128): half of what an E8M0 exponent stands for. The two lowest results are subnormal. */
static float half_of_e8m0(uint8_t e)
{
    uint32_t bits = e < 2 ? (uint32_t)0x200000 << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/*   0 e, E8M0 | 1 q[32] halves, E2M1
 * value = 2^(e - 127) * q */
static void decode_mxfp4_block(const uint8_t *block, float *out)
{
    float scale = half_of_e8m0(block[0]);
    for (size_t i = 0; i < 32; i++) out[i] = scale * (float)e2m1_doubled[half_of_32(block + 1, i)];
}
QUANT_DECODE_BLOCKS(mxfp4, 32, 17, decode_mxfp4_block)

/* ---- blocks of 256 ---- */

/* Number i of 256 two-bit numbers. Each 32 bytes hold 128: byte k has k, k + 32, k + 64, k + 96,
 * the lowest bits first. */
static int pair_of_256(const uint8_t *p, size_t i)
{
    return p[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
}

/* Number i of 256 halves. Each 32 bytes hold 64: byte k has k (low half) and k + 32 (high half). */
static int half_of_256(const uint8_t *p, size_t i)
{
    return p[i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 0xf;
}

/*   0 scale[16]: low half a, high half b | 16 q[256] pairs | 80 d | 82 m
 * value = d * a * q - m * b, a scale for 16 values */
static void decode_q2_k_block(const uint8_t *block, float *out)
{
    float d = load_f16(block + 80), m = load_f16(block + 82);
    for (size_t i = 0; i < SUPER_BLOCK; i++) {
        uint8_t scale = block[i / 16];
        float factor = d * (float)(scale & 0xf), offset = m * (float)(scale >> 4);
        out[i] = factor * (float)pair_of_256(block + 16, i) - offset;
    }
}
QUANT_DECODE_BLOCKS(q2_k, SUPER_BLOCK, 84, decode_q2_k_block)

/* Scale j of 16, six bits each: bits 0..3 are a half of bytes 0..7 (scale j and j + 8 share a
 * byte), bits 4..5 a pair of bytes 8..11 (scales j, j + 4, j + 8, j + 12 share one). */
static int q3_k_scale(const uint8_t *scales, size_t j)
{
    int low = scales[j % 8] >> 4 * (j / 8) & 0xf;
    int high = scales[8 + j % 4] >> 2 * (j / 4) & 3;
    return low | high << 4;
}

/*   0 bit 2 of q[256]: bit i / 32 of byte i % 32 | 32 bits 0..1 of q[256], pairs
 *   | 96 scale[16], 12 bytes | 108 d
 * value = d * (scale - 32) * (q - 4), a scale for 16 values */
static void decode_q3_k_block(const uint8_t *block, float *out)
{
    float d = load_f16(block + 108);
    for (size_t i = 0; i < SUPER_BLOCK; i++) {
        float factor = d * (float)(q3_k_scale(block + 96, i / 16) - 32);
        int q = pair_of_256(block + 32, i) | (block[i % 32] >> i / 32 & 1) << 2;
        out[i] = factor * (float)(q - 4);
    }
}
QUANT_DECODE_BLOCKS(q3_k, SUPER_BLOCK, 110, decode_q3_k_block)

/* Scale and minimum j of 8, six bits each, in 12 bytes. The first four of each are the low six bits
 * of bytes 0..3 and 4..7; the others have bits 0..3 in bytes 8..11 (low half: scale, high half:
 * minimum) and bits 4..5 at the top of bytes 0..3 and 4..7. */
static void q4_k_scale(const uint8_t *p, size_t j, int *scale, int *minimum)
{
    if (j < 4) {
        *scale = p[j] & 0x3f;
        *minimum = p[j + 4] & 0x3f;
    } else {
        *scale = (p[j + 4] & 0xf) | p[j - 4] >> 6 << 4;
        *minimum = p[j + 4] >> 4 | p[j] >> 6 << 4;
    }
}

/*   0 d | 2 m | 4 (scale, minimum)[8], 12 bytes | 16 q[256] halves
 * value = d * scale * q - m * minimum, a pair of them for 32 values */
static void decode_q4_k_block(const uint8_t *block, float *out)
{
    float d = load_f16(block), m = load_f16(block + 2);
    for (size_t i = 0; i < SUPER_BLOCK; i++) {
        int scale, minimum;
        q4_k_scale(block + 4, i / 32, &scale, &minimum);
        float factor = d * (float)scale, offset = m * (float)minimum;
        out[i] = factor * (float)half_of_256(block + 16, i) - offset;
    }
}
QUANT_DECODE_BLOCKS(q4_k, SUPER_BLOCK, 144, decode_q4_k_block)

/*   0 d | 2 m | 4 (scale, minimum)[8], 12 bytes | 16 bit 4 of q[256]: bit i / 32 of byte i % 32
 *   | 48 bits 0..3 of q[256], halves
 * value = d * scale * q - m * minimum, a pair of them for 32 values */
static void decode_q5_k_block(const uint8_t *block, float *out)
{
    float d = load_f16(block), m = load_f16(block + 2);
    for (size_t i = 0; i < SUPER_BLOCK; i++) {
        int scale, minimum;
        q4_k_scale(block + 4, i / 32, &scale, &minimum);
        float factor = d * (float)scale, offset = m * (float)minimum;
        int q = half_of_256(block + 48, i) | (block[16 + i % 32] >> i / 32 & 1) << 4;
        out[i] = factor * (float)q - offset;
    }
}
QUANT_DECODE_BLOCKS(q5_k, SUPER_BLOCK, 176, decode_q5_k_block)

/*   0 bits 0..3 of q[256]: each 64 bytes hold 128, byte k has k (low half) and k + 64 (high half)
 *   | 128 bits 4..5 of q[256], pairs | 192 scale[16] int8 | 208 d
 * value = d * scale * (q - 32), a scale for 16 values */
static void decode_q6_k_block(const uint8_t *block, float *out)
{
    float d = load_f16(block + 208);
    for (size_t i = 0; i < SUPER_BLOCK; i++) {
        float factor = d * (float)(int8_t)block[192 + i / 16];
        int low = block[i / 128 * 64 + i % 64] >> 4 * (i / 64 % 2) & 0xf;
        int q = low | pair_of_256(block + 128, i) << 4;
        out[i] = factor * (float)(q - 32);
    }
}
QUANT_DECODE_BLOCKS(q6_k, SUPER_BLOCK, 210, decode_q6_k_block)

/*   0 d | 2 bits 4..5 of scale[8], 16 bits | 4 bits 0..3 of scale[8] | 8 eight times q[32] halves
 * value = d * (scale - 32) * iq4_levels[q], a scale for 32 values */
static void decode_iq4_xs_block(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (size_t i = 0; i < SUPER_BLOCK; i++) {
        size_t j = i / 32;
        int scale = nibble(block + 4, j) | (load_u16(block + 2) >> 2 * j & 3) << 4;
        float factor = d * (float)(scale - 32);
        out[i] = factor * (float)iq4_levels[half_of_32(block + 8 + 16 * j, i % 32)];
    }
}
QUANT_DECODE_BLOCKS(iq4_xs, SUPER_BLOCK, 136, decode_iq4_xs_block)

/* Ternary digit k of a byte, as -1, 0 or 1. The byte is the fraction 0.d0 d1 d2 d3 d4 (base 3) in
 * 1/256: times 3^k, less its whole part, times 3, the whole part of that is digit k. */
static int ternary_digit(uint8_t byte, size_t k)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint8_t fraction = (uint8_t)(byte * power[k]);
    return (fraction * 3 >> 8) - 1;
}

/*   0 values 0..159: byte k has k, k + 32, ..., k + 128
 *   | 32 values 160..239: byte k has 160 + k, 160 + k + 16, ..., 160 + k + 64
 *   | 48 values 240..255: byte k has 240 + k, 240 + k + 4, ..., 240 + k + 12 | 52 d
 * value = d * digit */
static void decode_tq1_0_block(const uint8_t *block, float *out)
{
    float d = load_f16(block + 52);
    for (size_t i = 0; i < 160; i++) out[i] = d * (float)ternary_digit(block[i % 32], i / 32);
    for (size_t i = 0; i < 80; i++)
        out[160 + i] = d * (float)ternary_digit(block[32 + i % 16], i / 16);
    for (size_t i = 0; i < 16; i++)
        out[240 + i] = d * (float)ternary_digit(block[48 + i % 4], i / 4);
}
QUANT_DECODE_BLOCKS(tq1_0, SUPER_BLOCK, 54, decode_tq1_0_block)

/*   0 q[256] pairs | 64 d
 * value = d * (q - 1) */
static void decode_tq2_0_block(const uint8_t *block, float *out)
{
    float d = load_f16(block + 64);
    for (size_t i = 0; i < SUPER_BLOCK; i++) out[i] = d * (float)(pair_of_256(block, i) - 1);
}
QUANT_DECODE_BLOCKS(tq2_0, SUPER_BLOCK, 66, decode_tq2_0_block)
