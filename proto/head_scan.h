/* head_scan - walks the fields of a packed head before anything is unpacked from it.
 *
 * protobuf lets a peer repeat a field as often as it likes, and unpacking pays for each repetition.
 * Our heads have each field at most once, so this is checked first: then what unpacking takes is
 * bounded by the length.
 * Station before: frame_read(). Station after: codec_unpack(). */
#ifndef TANDEM_PROTO_HEAD_SCAN_H
#define TANDEM_PROTO_HEAD_SCAN_H

#include "engine/err.h"

#include <stddef.h>
#include <stdint.h>

/* head_scan() - every field of the n bytes is whole, known (bit number of known is set) and stands
 * once. name: of the message, for the text. Returns ERR_PEER. */
int head_scan(const char *name, uint32_t known, const uint8_t *head, size_t n, struct err *err);

#endif
