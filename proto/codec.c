/* codec - plain structs to frames and back.
 *
 * The table of messages, and the two ways through it; codec_control.c and codec_data.c have what is
 * different for each message. Packing and unpacking take their memory from an arena each, so that a
 * batch that was unpacked can be packed again for the next station.
 *
 * Why the arenas are large enough: messages are flat, and head_scan() refuses a head in which a
 * field is unknown or stands twice, before protobuf-c sees it. So each byte of the head belongs to
 * one list. For a byte of the wire, protobuf-c's arrays take at most CODEC_ARRAY_GROWTH bytes (a
 * uint32 from a varint of one byte; lists of 64 bits have a fixed size), and our structs at most
 * CODEC_STRUCT_GROWTH (static assertions beside their codecs). The rest, the message's own struct,
 * protobuf-c's notes of fewer than 32 fields and alignment, is below CODEC_ARENA_FIXED.
 *
 * Stations before and after: line/pipeline and worker/exec on one side, frame and link on the
 * other. */
#include "proto/codec_wire.h"
#include "proto/head_scan.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw rows are little-endian f32");

/* ---- memory ---- */

int codec_open(struct codec **out, size_t head_max, uint32_t n_vocab, struct err *err)
{
    CHECK(head_max <= INT_MAX, err, ERR_CAPACITY,
          "a message head of %zu bytes, at most %d can travel", head_max, INT_MAX);
    struct codec *c = calloc(1, sizeof *c);
    CHECK(c != NULL, err, ERR_MEMORY, "no memory for a codec");
    c->head_max = head_max;
    c->n_vocab = n_vocab;
    c->out.size = CODEC_ARENA_FIXED + CODEC_ARRAY_GROWTH * head_max;
    c->in.size = CODEC_ARENA_FIXED + (CODEC_ARRAY_GROWTH + CODEC_STRUCT_GROWTH) * head_max;
    c->out.base = malloc(c->out.size);
    c->in.base = malloc(c->in.size);
    if (c->out.base == NULL || c->in.base == NULL) {
        size_t bytes = c->in.size + c->out.size;
        codec_close(c);
        return err_set(err, ERR_MEMORY, "no memory for a codec of %zu bytes", bytes);
    }
    *out = c;
    return ERR_NONE;
}

void codec_close(struct codec *c)
{
    if (c == NULL) return;
    free(c->in.base);
    free(c->out.base);
    free(c);
}

/* ---- the table, and the two ways through it ---- */

struct kind {
    const char *name;
    const ProtobufCMessageDescriptor *form;
    int (*to_wire)(struct codec *c, const struct message *m, void *wire, struct err *err);
    int (*from_wire)(struct codec *c, void *wire, struct message *m, struct err *err);
    bool has_rows;
};

#define KIND(TYPE, name, rows)                                                                     \
    [MESSAGE_##TYPE] = {#TYPE, &wire__##name##__descriptor, codec_##name##_to_wire,                \
                        codec_##name##_from_wire, rows},
static const struct kind kinds[] = {CODEC_MESSAGES(KIND)};

/* Copies the raw rows of a RESULT that has any, in the order of their heads. */
static void copy_raw_rows(const struct msg_result *r, uint32_t n_vocab, uint8_t *rows)
{
    size_t bytes = (size_t)n_vocab * sizeof(float);
    for (uint32_t k = 0; k < r->n_heads; k++) {
        if (r->heads[k].raw == NULL) continue;
        memcpy(rows, r->heads[k].raw, bytes);
        rows += bytes;
    }
}

static uint64_t count_raw_bytes(const struct msg_result *r, uint32_t n_vocab)
{
    uint64_t rows = 0;
    for (uint32_t k = 0; k < r->n_heads; k++) rows += r->heads[k].raw != NULL;
    return rows * n_vocab * sizeof(float);
}

int codec_pack(struct codec *c, const struct message *m, uint64_t row_bytes, uint8_t *frame,
               size_t capacity, size_t *len, struct err *err)
{
    BUG_IF(m->type < MESSAGE_HELLO || m->type > MESSAGE_RESULT, "a message of an unknown type");
    BUG_IF((uintptr_t)frame % FRAME_ALIGN != 0, "a frame that is not aligned");
    const struct kind *kind = &kinds[m->type];
    BUG_IF(row_bytes > 0 && !kind->has_rows, "rows behind a message that has none");
    if (m->type == MESSAGE_RESULT) row_bytes = count_raw_bytes(&m->u.result, c->n_vocab);
    if (m->type == MESSAGE_PIECE) row_bytes = m->u.piece.n_bytes;

    arena_reset(&c->out);
    ProtobufCMessage *wire = arena_take(&c->out, 1, kind->form->sizeof_message);
    BUG_IF(wire == NULL, "an arena that cannot hold a message");
    kind->form->message_init(wire);
    TRY(kind->to_wire(c, m, wire, err));

    size_t head_bytes = protobuf_c_message_get_packed_size(wire);
    CHECK(head_bytes <= capacity && row_bytes <= capacity &&
              frame_total_bytes((uint32_t)head_bytes, row_bytes) <= capacity,
          err, ERR_CAPACITY,
          "%s has a head of %zu bytes and rows of %" PRIu64 ", the frame holds %zu", kind->name,
          head_bytes, row_bytes, capacity);
    protobuf_c_message_pack(wire, frame + FRAME_HEADER_BYTES);
    frame_write_header(frame, m->type, (uint32_t)head_bytes, row_bytes);
    if (m->type == MESSAGE_RESULT && row_bytes > 0)
        copy_raw_rows(&m->u.result, c->n_vocab, frame_rows(frame, (uint32_t)head_bytes));
    if (m->type == MESSAGE_PIECE)
        memcpy(frame_rows(frame, (uint32_t)head_bytes), m->u.piece.bytes, row_bytes);
    *len = frame_total_bytes((uint32_t)head_bytes, row_bytes);
    return ERR_NONE;
}

/* What protobuf-c allocates with. */
static void *arena_alloc(void *arena, size_t size)
{
    return arena_take(arena, 1, size);
}

static void arena_free(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

/* One bit for each field of a message; their numbers are below 32. */
static uint32_t known_fields(const ProtobufCMessageDescriptor *form)
{
    uint32_t known = 0;
    for (unsigned i = 0; i < form->n_fields; i++) known |= 1u << form->fields[i].id;
    return known;
}

int codec_unpack(struct codec *c, const uint8_t *frame, size_t len, struct message *out,
                 struct frame_view *view, struct err *err)
{
    BUG_IF((uintptr_t)frame % FRAME_ALIGN != 0, "a frame that is not aligned");
    TRY(frame_read(frame, len, view, err));
    const struct kind *kind = &kinds[view->type];
    CHECK(view->head_bytes <= c->head_max, err, ERR_PEER,
          "%s has a head of %" PRIu32 " bytes, the line's limit is %zu", kind->name,
          view->head_bytes, c->head_max);
    CHECK(view->row_bytes == 0 || kind->has_rows, err, ERR_PEER,
          "%s has %" PRIu64 " bytes of rows, want none", kind->name, view->row_bytes);
    TRY(head_scan(kind->name, known_fields(kind->form), view->head, view->head_bytes, err));

    arena_reset(&c->in);
    c->view = view;
    ProtobufCAllocator allocator = {arena_alloc, arena_free, &c->in};
    ProtobufCMessage *wire =
        protobuf_c_message_unpack(kind->form, &allocator, view->head_bytes, view->head);
    CHECK(wire != NULL, err, ERR_PEER, "%s head of %" PRIu32 " bytes is malformed", kind->name,
          view->head_bytes);
    *out = (struct message){.type = view->type};
    return kind->from_wire(c, wire, out, err);
}

/* ---- the bound of a head ---- */

/* The longest forms: a varint of 32 bits takes 5 bytes, of 64 bits 10; a list costs a key of at
 * most 2 and a length of at most 5. The constant holds those of all fields. */
enum { VARINT = 5, FLOAT = 4, BOUND_FIXED = 256 };

size_t codec_batch_head_bound(size_t n_rows, size_t n_commands, size_t n_wanted, size_t n_adjust,
                              size_t n_ids, size_t n_fetches)
{
    size_t row = 3 * VARINT + 1;
    size_t command = 2 + 3 * VARINT;
    size_t need = 3 * FLOAT + 1 + 3 * VARINT;
    size_t adjust = VARINT + 2 * FLOAT;
    size_t fetch = 8 + VARINT;
    return BOUND_FIXED + n_rows * row + n_commands * command + (n_wanted + n_fetches) * need +
           n_adjust * adjust + n_ids * VARINT + n_fetches * fetch;
}
