/* head_scan - the walk. The format is protobuf's: a varint key (number << 3 | kind), then the
 * value. https://protobuf.dev/programming-guides/encoding Stations: frame before, codec after. */
#include "proto/head_scan.h"

#include <inttypes.h>
#include <stdbool.h>

enum { KIND_VARINT = 0, KIND_64BIT = 1, KIND_LENGTH = 2, KIND_32BIT = 5 };

/* A varint at *at: false where it is cut or longer than 10 bytes. */
static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Skips the value of a field: false where it is cut or of a kind that no field of ours has. */
static bool skip_value(const uint8_t **at, const uint8_t *end, unsigned kind)
{
    uint64_t n = 0;
    if (kind == KIND_VARINT) return read_varint(at, end, &n);
    if (kind == KIND_64BIT)
        n = 8;
    else if (kind == KIND_32BIT)
        n = 4;
    else if (kind != KIND_LENGTH || !read_varint(at, end, &n))
        return false;
    if (n > (uint64_t)(end - *at)) return false;
    *at += n;
    return true;
}

int head_scan(const char *name, uint32_t known, const uint8_t *head, size_t n, struct err *err)
{
    const uint8_t *at = head, *end = head + n;
    uint32_t seen = 0;
    while (at < end) {
        size_t offset = (size_t)(at - head);
        uint64_t key = 0;
        CHECK(read_varint(&at, end, &key), err, ERR_PEER, "%s head is cut at byte %zu of %zu", name,
              offset, n);
        uint64_t number = key >> 3;
        CHECK(number < 32 && (known & 1u << number) != 0, err, ERR_PEER,
              "%s head has the unknown field %" PRIu64, name, number);
        CHECK((seen & 1u << number) == 0, err, ERR_PEER, "%s head has field %" PRIu64 " twice",
              name, number);
        seen |= 1u << number;
        CHECK(skip_value(&at, end, (unsigned)(key & 7)), err, ERR_PEER,
              "%s head is malformed at byte %zu of %zu", name, offset, n);
    }
    return ERR_NONE;
}
