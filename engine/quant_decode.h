/* quant_decode - from the blocks of a file to f32, one function a number format.
 *
 * Private to the quant_* files: everybody else decodes through the table of quant_formats.h, whose
 * contract each decoder here has. The lattice formats (IQ1, IQ2, IQ3) are in quant_iq.c, all others
 * in quant_decode.c. A decoder reads every byte of its blocks as data: there is no block that it
 * cannot decode.
 * Station before: the file. Next station: quant_formats, which lists them. */
#ifndef TANDEM_ENGINE_QUANT_DECODE_H
#define TANDEM_ENGINE_QUANT_DECODE_H

#include "engine/quant_formats.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Values in a block of the K, IQ and TQ formats. */
enum { SUPER_BLOCK = 256 };

/* QUANT_DECODER() - the prototype of a decoder. */
#define QUANT_DECODER(suffix) void quant_decode_##suffix(const void *src, float *dst, size_t n)

/* QUANT_DECODE_BLOCKS() - a decoder from decode_block(block, out), which decodes one block. */
#define QUANT_DECODE_BLOCKS(suffix, block_values, block_bytes, decode_block)                       \
    QUANT_DECODER(suffix)                                                                          \
    {                                                                                              \
        const uint8_t *block = src;                                                                \
        for (size_t i = 0; i < n; i += (block_values), block += (block_bytes))                     \
            decode_block(block, dst + i);                                                          \
    }

QUANT_DECODER(f32);
QUANT_DECODER(f16);
QUANT_DECODER(bf16);
QUANT_DECODER(q4_0);
QUANT_DECODER(q4_1);
QUANT_DECODER(q5_0);
QUANT_DECODER(q5_1);
QUANT_DECODER(q8_0);
QUANT_DECODER(q2_k);
QUANT_DECODER(q3_k);
QUANT_DECODER(q4_k);
QUANT_DECODER(q5_k);
QUANT_DECODER(q6_k);
QUANT_DECODER(iq4_nl);
QUANT_DECODER(iq4_xs);
QUANT_DECODER(mxfp4);
QUANT_DECODER(tq1_0);
QUANT_DECODER(tq2_0);

QUANT_DECODER(iq2_xxs);
QUANT_DECODER(iq2_xs);
QUANT_DECODER(iq2_s);
QUANT_DECODER(iq3_xxs);
QUANT_DECODER(iq3_s);
QUANT_DECODER(iq1_s);
QUANT_DECODER(iq1_m);

/* Little-endian numbers at any address. */
static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline float load_f16(const uint8_t *p)
{
    return f16_to_f32(load_u16(p));
}

/* nibble() - number i of halves packed two a byte, the low half first. */
static inline int nibble(const uint8_t *p, size_t i)
{
    return p[i / 2] >> 4 * (i % 2) & 0xf;
}

#endif
