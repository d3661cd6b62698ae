/* codec_wire - what the files of codec share: generated protobuf code, the arenas, and the two
 * functions that each message has. The only file that includes generated code.
 *
 * X_to_wire() lays a struct of message.h into the generated struct, X_from_wire() checks a
 * generated struct and fills ours. codec_control.c has those of the control channel, codec_data.c
 * those of the data channel; codec.c has the table of them and the two ways through it. */
#ifndef TANDEM_PROTO_CODEC_WIRE_H
#define TANDEM_PROTO_CODEC_WIRE_H

#include "proto/arena.h"
#include "proto/codec.h"
#include "proto/field_check.h"
#include "tandem.pb-c.h"

enum {
    CODEC_ARENA_FIXED = 8192,
    CODEC_ARRAY_GROWTH = 4,
    CODEC_STRUCT_GROWTH = 6,
    CODEC_NUMBER_MAX = 1 << 30, /* of what a line is sized by: positions, sequences, blocks, rows */
};

/* CODEC_GROWTH_HOLDS(type, bytes) - a struct outgrows the wire no further than the arena allows;
 * bytes: what one entry takes there at least (see the lists in tandem.proto). */
#define CODEC_GROWTH_HOLDS(type, wire_min)                                                         \
    _Static_assert(sizeof(type) <= (size_t)CODEC_STRUCT_GROWTH * (wire_min),                       \
                   #type " outgrows the arena")

struct codec {
    size_t head_max;
    struct arena out;              /* of codec_pack() */
    struct arena in;               /* of codec_unpack() */
    const struct frame_view *view; /* of the frame that is being unpacked */
    uint32_t n_vocab;              /* scores of a raw row */
};

/* TAKE(p, arena, n) - p := an array of n of what p points to. */
#define TAKE(p, arena, n)                                                                          \
    do {                                                                                           \
        (p) = arena_take((arena), (n), sizeof *(p));                                               \
        CHECK((p) != NULL, err, ERR_CAPACITY,                                                      \
              "a message outgrows the codec's buffer of %zu bytes", (arena)->size);                \
    } while (0)

/* Members that are plain numbers are listed once and copied both ways. */
#define PUT(field) w->field = s->field;
#define GET(field) s->field = w->field;

/* X(TYPE, name, whether rows may travel behind it) */
#define CODEC_MESSAGES(X)                                                                          \
    X(HELLO, hello, false)                                                                         \
    X(WATCH, watch, false)                                                                         \
    X(LOAD, load, false)                                                                           \
    X(READY, ready, false)                                                                         \
    X(HEARTBEAT, heartbeat, false)                                                                 \
    X(ERROR, error, false)                                                                         \
    X(STOP, stop, false)                                                                           \
    X(REPORT, report, false)                                                                       \
    X(PROBE, probe, false)                                                                         \
    X(PROBED, probed, false)                                                                       \
    X(CLOCK, clock, false)                                                                         \
    X(MODEL, model, false)                                                                         \
    X(PULL, pull, false)                                                                           \
    X(PIECE, piece, true)                                                                          \
    X(BATCH, batch, true)                                                                          \
    X(RESULT, result, true)

#define CODEC_UNUSED __attribute__((unused))
#define TO_WIRE(name)                                                                              \
    int codec_##name##_to_wire(CODEC_UNUSED struct codec *c, const struct message *m, void *wire,  \
                               CODEC_UNUSED struct err *err)
#define FROM_WIRE(name)                                                                            \
    int codec_##name##_from_wire(CODEC_UNUSED struct codec *c, void *wire, struct message *m,      \
                                 CODEC_UNUSED struct err *err)

#define CODEC_DECLARE(TYPE, name, rows)                                                            \
    TO_WIRE(name);                                                                                 \
    FROM_WIRE(name);
CODEC_MESSAGES(CODEC_DECLARE)
#undef CODEC_DECLARE

#endif
