/* wire_rows - see wire_rows.h. */
#include "proto/wire_rows.h"

#include <math.h>
#include <string.h>

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40); /* rounding could make it infinite */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void encode_bf16(const float *row, uint32_t n, uint8_t *wire)
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t half = to_bf16(row[i]);
        memcpy(wire + 2 * (size_t)i, &half, sizeof half);
    }
}

static void decode_bf16(const uint8_t *wire, uint32_t n, float *row)
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, wire + 2 * (size_t)i, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&row[i], &bits, sizeof bits);
    }
}

/* scale_of() - NaN where one of the values is. */
static float scale_of(const float *x, uint32_t n)
{
    float max = 0;
    for (uint32_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        if (isnan(size)) return size;
        if (size > max) max = size;
    }
    return max / 127.0F;
}

static void encode_q8_0(const float *row, uint32_t n, uint8_t *wire)
{
    uint8_t *values = wire + wire_row_bytes(WIRE_Q8_0, n) - n;
    for (uint32_t first = 0; first < n; first += WIRE_BLOCK, wire += sizeof(float)) {
        uint32_t end = n - first < WIRE_BLOCK ? n : first + WIRE_BLOCK;
        float scale = scale_of(row + first, end - first), inverse = 1 / scale;
        if (!(scale > 0) || isinf(inverse)) inverse = 0;
        memcpy(wire, &scale, sizeof scale);
        for (uint32_t i = first; i < end; i++) {
            float v = row[i] * inverse;
            long steps = v >= -127 && v <= 127 ? lrintf(v) : v > 0 ? 127 : -127;
            values[i] = (uint8_t)steps;
        }
    }
}

static void decode_q8_0(const uint8_t *wire, uint32_t n, float *row)
{
    const uint8_t *values = wire + wire_row_bytes(WIRE_Q8_0, n) - n;
    for (uint32_t i = 0; i < n; i++) {
        float scale;
        memcpy(&scale, wire + i / WIRE_BLOCK * sizeof scale, sizeof scale);
        row[i] = scale * (float)(int8_t)values[i];
    }
}

void wire_rows_encode(enum wire_format format, const float *rows, size_t n_rows, uint32_t n,
                      uint8_t *wire)
{
    uint64_t bytes = wire_row_bytes(format, n);
    for (size_t r = 0; r < n_rows; r++, rows += n, wire += bytes) {
        if (format == WIRE_F32) memcpy(wire, rows, bytes);
        if (format == WIRE_BF16) encode_bf16(rows, n, wire);
        if (format == WIRE_Q8_0) encode_q8_0(rows, n, wire);
    }
}

void wire_rows_decode(enum wire_format format, const uint8_t *wire, size_t n_rows, uint32_t n,
                      float *rows)
{
    uint64_t bytes = wire_row_bytes(format, n);
    for (size_t r = 0; r < n_rows; r++, rows += n, wire += bytes) {
        if (format == WIRE_F32) memcpy(rows, wire, bytes);
        if (format == WIRE_BF16) decode_bf16(wire, n, rows);
        if (format == WIRE_Q8_0) decode_q8_0(wire, n, rows);
    }
}
