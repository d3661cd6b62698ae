/* frame - the envelope: fixed header, packed protobuf, padding to 64 bytes, raw f32 rows.
 *
 *   offset  0  u32 magic "TNDM", u16 version, u16 type, u32 head bytes, u64 row bytes, u32 checksum
 *   offset 24  head: packed protobuf
 *   then, only where row bytes > 0: zero padding to a multiple of 64, and the rows
 *
 * All numbers little-endian. The checksum (FNV-1a, 32 bits) covers the 20 bytes before it.
 * Stations: codec fills and reads the head; exec writes rows in place; link carries the whole. */
#ifndef TANDEM_PROTO_FRAME_H
#define TANDEM_PROTO_FRAME_H

#include "engine/err.h"
#include "proto/message.h"

#include <stddef.h>
#include <stdint.h>

enum { FRAME_HEADER_BYTES = 24, FRAME_VERSION = 1, FRAME_ALIGN = 64 };

/* frame_write_header() - frame must be 64-byte aligned; the head is already in place behind the
 * header. */
void frame_write_header(uint8_t *frame, enum message_type type, uint32_t head_bytes,
                        uint64_t row_bytes);

/* frame_total_bytes() - header + head (+ padding + rows). */
size_t frame_total_bytes(uint32_t head_bytes, uint64_t row_bytes);

/* frame_rows() - where the rows of a frame with this head begin. */
uint8_t *frame_rows(uint8_t *frame, uint32_t head_bytes);

struct frame_view {
    enum message_type type;
    const uint8_t *head;
    uint32_t head_bytes;
    const uint8_t *rows; /* 64-byte aligned where the frame is; NULL without rows */
    uint64_t row_bytes;
};

/* frame_read() - check magic, version, type, checksum and that len is exactly what the header says.
 * ERR_PEER, or ERR_DISAGREE for another frame version. */
int frame_read(const uint8_t *frame, size_t len, struct frame_view *out, struct err *err);

#endif
