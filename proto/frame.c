/* frame - writes and checks the envelope. The layout is in frame.h.
 * Stations: codec before and after; nothing here looks into the head. */
#include "proto/frame.h"

#include <inttypes.h>
#include <string.h>

/* "TNDM" as the bytes stand in the frame. */
static const uint8_t magic[4] = {'T', 'N', 'D', 'M'};

enum { CHECKED_BYTES = 20 };

static void put_bytes(uint8_t *at, uint64_t value, unsigned n)
{
    for (unsigned i = 0; i < n; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_bytes(const uint8_t *at, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* FNV-1a, 32 bits: http://www.isthe.com/chongo/tech/comp/fnv */
static uint32_t checksum(const uint8_t *bytes, size_t n)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

/* Where the rows begin. No overflow: 24 + 2^32 + 63 fits a size_t of 64 bits. */
static size_t rows_offset(uint32_t head_bytes)
{
    size_t end = FRAME_HEADER_BYTES + (size_t)head_bytes;
    return (end + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN;
}

void frame_write_header(uint8_t *frame, enum message_type type, uint32_t head_bytes,
                        uint64_t row_bytes)
{
    memcpy(frame, magic, sizeof magic);
    put_bytes(frame + 4, FRAME_VERSION, 2);
    put_bytes(frame + 6, type, 2);
    put_bytes(frame + 8, head_bytes, 4);
    put_bytes(frame + 12, row_bytes, 8);
    put_bytes(frame + CHECKED_BYTES, checksum(frame, CHECKED_BYTES), 4);
    if (row_bytes > 0) {
        size_t end = FRAME_HEADER_BYTES + (size_t)head_bytes;
        memset(frame + end, 0, rows_offset(head_bytes) - end);
    }
}

size_t frame_total_bytes(uint32_t head_bytes, uint64_t row_bytes)
{
    if (row_bytes == 0) return FRAME_HEADER_BYTES + (size_t)head_bytes;
    return rows_offset(head_bytes) + (size_t)row_bytes;
}

uint8_t *frame_rows(uint8_t *frame, uint32_t head_bytes)
{
    return frame + rows_offset(head_bytes);
}

/* The header is sound by itself: magic, version, checksum, type. */
static int check_header(const uint8_t *frame, size_t len, struct err *err)
{
    CHECK(len >= FRAME_HEADER_BYTES, err, ERR_PEER, "frame of %zu bytes, want at least %d", len,
          FRAME_HEADER_BYTES);
    CHECK(memcmp(frame, magic, sizeof magic) == 0, err, ERR_PEER,
          "frame begins with %02x %02x %02x %02x, want \"TNDM\"", frame[0], frame[1], frame[2],
          frame[3]);
    unsigned version = (unsigned)get_bytes(frame + 4, 2);
    CHECK(version == FRAME_VERSION, err, ERR_DISAGREE,
          "frame version %u, want %d: all ranks must run the same program", version, FRAME_VERSION);
    uint32_t stated = (uint32_t)get_bytes(frame + CHECKED_BYTES, 4);
    uint32_t counted = checksum(frame, CHECKED_BYTES);
    CHECK(stated == counted, err, ERR_PEER,
          "frame header checksum is %08" PRIx32 ", want %08" PRIx32, stated, counted);
    unsigned type = (unsigned)get_bytes(frame + 6, 2);
    CHECK(type >= MESSAGE_HELLO && type <= MESSAGE_RESULT, err, ERR_PEER,
          "frame has the unknown message type %u", type);
    return ERR_NONE;
}

int frame_read(const uint8_t *frame, size_t len, struct frame_view *out, struct err *err)
{
    TRY(check_header(frame, len, err));
    uint32_t head_bytes = (uint32_t)get_bytes(frame + 8, 4);
    uint64_t row_bytes = get_bytes(frame + 12, 8);
    /* row_bytes first: after it the sum cannot overflow. */
    CHECK(row_bytes <= len && frame_total_bytes(head_bytes, row_bytes) == len, err, ERR_PEER,
          "frame of %zu bytes says that it has a head of %" PRIu32 " and rows of %" PRIu64 " bytes",
          len, head_bytes, row_bytes);

    const uint8_t *head = frame + FRAME_HEADER_BYTES;
    const uint8_t *rows = row_bytes > 0 ? frame + rows_offset(head_bytes) : NULL;
    for (const uint8_t *p = head + head_bytes; rows != NULL && p < rows; p++)
        CHECK(*p == 0, err, ERR_PEER, "frame padding at offset %td is not zero", p - frame);

    *out = (struct frame_view){
        .type = (enum message_type)get_bytes(frame + 6, 2),
        .head = head,
        .head_bytes = head_bytes,
        .rows = rows,
        .row_bytes = row_bytes,
    };
    return ERR_NONE;
}
