/* codec - plain structs to frames and back; only its own files (codec_wire.h) know generated code.
 *
 * Every message is validated on the way in: lengths of arrays agree, strings are short and
 * terminated, enums are known, numbers are in the limits of the line. A peer's bytes cannot crash
 * or grow a rank.
 * Stations: line/ and worker/ on either side, frame and link below. */
#ifndef TANDEM_PROTO_CODEC_H
#define TANDEM_PROTO_CODEC_H

#include "engine/err.h"
#include "proto/frame.h"
#include "proto/message.h"

struct codec;

/* codec_open() - head_max: the largest head it will unpack, and pack, in bytes; takes all memory
 * that this will ever need (two arenas, 14 times head_max and touched only as far as messages go),
 * so that codec_pack() and codec_unpack() do not allocate. n_vocab: scores of a RESULT's raw row; 0
 * where no RESULT with one comes or goes. Only a RESULT may be packed with a larger head:
 * where the ids, scores and id_scores of its heads follow each other in memory, its pairs need no
 * room in the arena. ERR_MEMORY, ERR_CAPACITY (a head beyond INT_MAX). */
int codec_open(struct codec **out, size_t head_max, uint32_t n_vocab, struct err *err);
void codec_close(struct codec *c); /* NULL is allowed */

/* codec_pack() - write header and head of m into frame (64-byte aligned, capacity bytes) for
 * row_bytes of rows to come behind it; *len is the whole frame's length, the rows included, which
 * must fit too. The caller writes the rows at frame_rows(). The raw rows of a RESULT
 * and the bytes of a PIECE are copied by codec_pack itself; row_bytes is then ignored. Returns ERR_CAPACITY when it does not fit. */
int codec_pack(struct codec *c, const struct message *m, uint64_t row_bytes, uint8_t *frame,
               size_t capacity, size_t *len, struct err *err);

/* codec_unpack() - read and validate a frame (64-byte aligned). *out and all it points to live in
 * the codec's arena and the frame, until the next unpack. *view gets the frame's parts (rows of a
 * BATCH). Returns ERR_PEER (what is wrong with which message), ERR_DISAGREE (frame version). */
int codec_unpack(struct codec *c, const uint8_t *frame, size_t len, struct message *out,
                 struct frame_view *view, struct err *err);

/* codec_batch_head_bound() - bytes of a BATCH's packed head at most, so that a batch can be kept
 * inside BATCH_HEAD_MAX: adjustments and ids are those of all needs, fetches included. */
size_t codec_batch_head_bound(size_t n_rows, size_t n_commands, size_t n_wanted, size_t n_adjust,
                              size_t n_ids, size_t n_fetches);

#endif
