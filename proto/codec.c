/* codec - plain structs to frames and back; the only file that knows generated protobuf code.
 *
 * Packing lays the members of a list side by side (parallel arrays, as tandem.proto has them) and
 * lets protobuf-c write them; a list that already lies so is written from where it is. Unpacking
 * does the reverse and checks everything. Both take their memory from an arena each, so that a
 * batch that was unpacked can be packed again for the next station.
 *
 * Why the arenas are large enough: messages are flat, and head_scan() refuses a head in which a
 * field is unknown or stands twice, before protobuf-c sees it. So each byte of the head belongs to
 * one list. For a byte of the wire, protobuf-c's arrays take at most ARRAY_GROWTH bytes (a uint32
 * from a varint of one byte; lists of 64 bits have a fixed size), and our structs at most
 * STRUCT_GROWTH (static assertions below). The rest, the message's own struct, protobuf-c's notes
 * of fewer than 32 fields and alignment, is below ARENA_FIXED.
 *
 * Stations before and after: line/pipeline and worker/exec on one side, frame and link on the
 * other. */
#include "proto/codec.h"

#include "engine/isa.h"
#include "proto/arena.h"
#include "proto/field_check.h"
#include "proto/head_scan.h"
#include "tandem.pb-c.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw rows are little-endian f32");

enum {
    ARENA_FIXED = 8192,
    ARRAY_GROWTH = 4,
    STRUCT_GROWTH = 6,
    /* Bytes that one entry takes on the wire at least: see the lists in tandem.proto. */
    WIRE_SPAN_MIN = 24,
    WIRE_COMMAND_MIN = 4,
    WIRE_NEED_MIN = 16,
    WIRE_ADJUST_MIN = 9,
    WIRE_FETCH_MIN = 9,
    WIRE_HEAD_MIN = 10,
    FLAG_WHOLE = 1,
    FLAG_RAW = 2,
    LAYERS_MAX = 65536,
    THREADS_MAX = 65536,
    NUMBER_MAX = 1 << 30, /* of what a line is sized by: positions, sequences, blocks, rows */
};

#define GROWTH_HOLDS(type, wire_min)                                                               \
    _Static_assert(sizeof(type) <= (size_t)STRUCT_GROWTH * (wire_min), #type " outgrows the "      \
                                                                             "arena")
GROWTH_HOLDS(struct msg_span, WIRE_SPAN_MIN);
GROWTH_HOLDS(struct kv_command, WIRE_COMMAND_MIN);
GROWTH_HOLDS(struct score_need, WIRE_NEED_MIN);
GROWTH_HOLDS(struct score_adjust, WIRE_ADJUST_MIN);
GROWTH_HOLDS(struct msg_fetch, WIRE_NEED_MIN + WIRE_FETCH_MIN);
GROWTH_HOLDS(struct score_head, WIRE_HEAD_MIN);

struct codec {
    size_t head_max;
    struct arena out;              /* of codec_pack() */
    struct arena in;               /* of codec_unpack() */
    const struct frame_view *view; /* of the frame that is being unpacked */
    uint32_t n_vocab;              /* of the raw rows in it */
};

/* ---- memory ---- */

/* TAKE(p, arena, n) - p := an array of n of what p points to. */
#define TAKE(p, arena, n)                                                                          \
    do {                                                                                           \
        (p) = arena_take((arena), (n), sizeof *(p));                                               \
        CHECK((p) != NULL, err, ERR_CAPACITY,                                                      \
              "a message outgrows the codec's buffer of %zu bytes", (arena)->size);                \
    } while (0)

int codec_open(struct codec **out, size_t head_max, struct err *err)
{
    CHECK(head_max <= INT_MAX, err, ERR_CAPACITY,
          "a message head of %zu bytes, at most %d can travel", head_max, INT_MAX);
    struct codec *c = calloc(1, sizeof *c);
    CHECK(c != NULL, err, ERR_MEMORY, "no memory for a codec");
    c->head_max = head_max;
    c->out.size = ARENA_FIXED + ARRAY_GROWTH * head_max;
    c->in.size = ARENA_FIXED + (ARRAY_GROWTH + STRUCT_GROWTH) * head_max;
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

/* ---- strings ---- */

/* A string of ours on its way out. protobuf-c reads only, its pointers are not const. */
static int give_text(const char *field, const char *text, char **out, struct err *err)
{
    if (text == NULL) text = "";
    CHECK(strnlen(text, MESSAGE_TEXT_MAX) < MESSAGE_TEXT_MAX, err, ERR_CAPACITY,
          "%s is longer than %d bytes", field, MESSAGE_TEXT_MAX - 1);
    *out = (char *)text;
    return ERR_NONE;
}

/* A peer's string: short, and one line when it is printed. */
static int take_text(const char *field, char *text, const char **out, struct err *err)
{
    CHECK(strnlen(text, MESSAGE_TEXT_MAX) < MESSAGE_TEXT_MAX, err, ERR_PEER,
          "%s is longer than %d bytes", field, MESSAGE_TEXT_MAX - 1);
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f) *p = '?';
    *out = text;
    return ERR_NONE;
}

/* ---- two functions a message ----
 *
 * X_to_wire() fills the generated struct, X_from_wire() checks it and fills ours. Members that are
 * plain numbers are listed once and copied both ways. */

#define PUT(field) w->field = s->field;
#define GET(field) s->field = w->field;
#define UNUSED __attribute__((unused))
#define TO_WIRE(name)                                                                              \
    static int name##_to_wire(UNUSED struct codec *c, const struct message *m, void *wire,         \
                              UNUSED struct err *err)
#define FROM_WIRE(name)                                                                            \
    static int name##_from_wire(UNUSED struct codec *c, void *wire, struct message *m,             \
                                UNUSED struct err *err)

#define HELLO_NUMBERS(X) X(pid) X(model_digest) X(isa) X(cpus) X(cpus_online) X(memory_bytes)

TO_WIRE(hello)
{
    const struct msg_hello *s = &m->u.hello;
    Wire__Hello *w = wire;
    HELLO_NUMBERS(PUT)
    TRY(give_text("HELLO.version", s->version, &w->version, err));
    TRY(give_text("HELLO.host", s->host, &w->host, err));
    return give_text("HELLO.family", s->family, &w->family, err);
}

FROM_WIRE(hello)
{
    struct msg_hello *s = &m->u.hello;
    const Wire__Hello *w = wire;
    HELLO_NUMBERS(GET)
    TRY(check_number("HELLO.isa", s->isa, 0, ISA_COUNT - 1, err));
    TRY(take_text("HELLO.version", w->version, &s->version, err));
    TRY(take_text("HELLO.host", w->host, &s->host, err));
    return take_text("HELLO.family", w->family, &s->family, err);
}

/* clang-format off */
#define LOAD_NUMBERS(X)                                                                            \
    X(stage) X(n_stages) X(layer_first) X(layer_end) X(isa) X(kv_format) X(n_ctx) X(n_seqs)        \
    X(n_blocks) X(rows_max) X(wanted_max) X(credits) X(threads)
/* clang-format on */

TO_WIRE(load)
{
    const struct msg_load *s = &m->u.load;
    Wire__Load *w = wire;
    LOAD_NUMBERS(PUT)
    return ERR_NONE;
}

/* kv_format is the engine's own enum, out of reach here: the worker checks it. */
FROM_WIRE(load)
{
    struct msg_load *s = &m->u.load;
    const Wire__Load *w = wire;
    LOAD_NUMBERS(GET)
    TRY(check_number("LOAD.n_stages", s->n_stages, 1, MESSAGE_RANKS_MAX - 1, err));
    TRY(check_number("LOAD.stage", s->stage, 0, s->n_stages - 1, err));
    TRY(check_number("LOAD.layer_end", s->layer_end, 1, LAYERS_MAX, err));
    TRY(check_number("LOAD.layer_first", s->layer_first, 0, s->layer_end - 1, err));
    TRY(check_number("LOAD.isa", s->isa, 0, ISA_COUNT - 1, err));
    TRY(check_number("LOAD.n_ctx", s->n_ctx, 1, NUMBER_MAX, err));
    TRY(check_number("LOAD.n_seqs", s->n_seqs, 1, NUMBER_MAX, err));
    TRY(check_number("LOAD.n_blocks", s->n_blocks, 1, NUMBER_MAX, err));
    TRY(check_number("LOAD.rows_max", s->rows_max, 1, NUMBER_MAX, err));
    TRY(check_number("LOAD.wanted_max", s->wanted_max, 1, NUMBER_MAX, err));
    TRY(check_number("LOAD.credits", s->credits, 1, MESSAGE_RANKS_MAX, err));
    return check_number("LOAD.threads", s->threads, 0, THREADS_MAX, err);
}

#define READY_NUMBERS(X)                                                                           \
    X(weight_bytes) X(kv_bytes) X(buffer_bytes) X(load_ns) X(threads) X(embedding_digest)

TO_WIRE(ready)
{
    const struct msg_ready *s = &m->u.ready;
    Wire__Ready *w = wire;
    READY_NUMBERS(PUT)
    return ERR_NONE;
}

FROM_WIRE(ready)
{
    struct msg_ready *s = &m->u.ready;
    const Wire__Ready *w = wire;
    READY_NUMBERS(GET)
    return check_number("READY.threads", s->threads, 0, THREADS_MAX, err);
}

#define HEARTBEAT_NUMBERS(X) X(state) X(batch_id) X(layer) X(done) X(total)

TO_WIRE(heartbeat)
{
    const struct msg_heartbeat *s = &m->u.heartbeat;
    Wire__Heartbeat *w = wire;
    HEARTBEAT_NUMBERS(PUT)
    return ERR_NONE;
}

FROM_WIRE(heartbeat)
{
    struct msg_heartbeat *s = &m->u.heartbeat;
    const Wire__Heartbeat *w = wire;
    HEARTBEAT_NUMBERS(GET)
    TRY(check_number("HEARTBEAT.state", s->state, WORKER_LOADING, WORKER_FORWARD, err));
    return check_number("HEARTBEAT.layer", s->layer, 0, LAYERS_MAX, err);
}

TO_WIRE(error)
{
    Wire__Error *w = wire;
    w->code = m->u.error.code;
    return give_text("ERROR.text", m->u.error.text, &w->text, err);
}

FROM_WIRE(error)
{
    const Wire__Error *w = wire;
    m->u.error.code = w->code;
    TRY(check_number("ERROR.code", w->code, ERR_NONE + 1, ERR_CODE_COUNT - 1, err));
    return take_text("ERROR.text", w->text, &m->u.error.text, err);
}

TO_WIRE(stop)
{
    (void)m;
    (void)wire;
    return ERR_NONE;
}

FROM_WIRE(stop)
{
    (void)m;
    (void)wire;
    return ERR_NONE;
}

#define REPORT_NUMBERS(X)                                                                          \
    X(batches) X(rows) X(compute_ns) X(wait_ns) X(send_ns) X(sent_bytes) X(sent_messages)

TO_WIRE(report)
{
    const struct msg_report *s = &m->u.report;
    Wire__Report *w = wire;
    REPORT_NUMBERS(PUT)
    TAKE(w->span_batch, &c->out, s->n_spans);
    TAKE(w->span_begin_ns, &c->out, s->n_spans);
    TAKE(w->span_end_ns, &c->out, s->n_spans);
    for (size_t i = 0; i < s->n_spans; i++) {
        w->span_batch[i] = s->spans[i].batch_id;
        w->span_begin_ns[i] = s->spans[i].begin_ns;
        w->span_end_ns[i] = s->spans[i].end_ns;
    }
    w->n_span_batch = w->n_span_begin_ns = w->n_span_end_ns = s->n_spans;
    return ERR_NONE;
}

FROM_WIRE(report)
{
    struct msg_report *s = &m->u.report;
    const Wire__Report *w = wire;
    size_t n = w->n_span_batch;
    struct msg_span *spans;
    REPORT_NUMBERS(GET)
    TRY(check_number("REPORT.span_batch entries", n, 0, MESSAGE_SPANS_MAX, err));
    TRY(check_entries("REPORT.span_begin_ns", w->n_span_begin_ns, n, err));
    TRY(check_entries("REPORT.span_end_ns", w->n_span_end_ns, n, err));
    TAKE(spans, &c->in, n);
    for (size_t i = 0; i < n; i++)
        spans[i] = (struct msg_span){w->span_batch[i], w->span_begin_ns[i], w->span_end_ns[i]};
    s->spans = spans;
    s->n_spans = (uint32_t)n;
    return ERR_NONE;
}

/* ---- BATCH ---- */

/* GIVE(w, field, p, n) - a parallel array of a generated struct. */
#define GIVE(w, field, p, n) ((w)->field = (p), (w)->n_##field = (n))

static int commands_to_wire(struct arena *a, const struct batch *b, Wire__Batch *w, struct err *err)
{
    size_t n = b->n_commands;
    TAKE(w->command_op, a, n);
    TAKE(w->command_seq, a, n);
    TAKE(w->command_index, a, n);
    TAKE(w->command_block, a, n);
    for (size_t i = 0; i < n; i++) {
        w->command_op[i] = b->commands[i].op;
        w->command_seq[i] = b->commands[i].seq;
        w->command_index[i] = b->commands[i].index;
        w->command_block[i] = b->commands[i].block;
    }
    w->n_command_op = w->n_command_seq = w->n_command_index = w->n_command_block = n;
    return ERR_NONE;
}

/* The k-th need of a batch: the wanted rows' come first, then the fetches'. */
static const struct score_need *need_at(const struct msg_batch *b, size_t k)
{
    size_t n_wanted = b->batch.n_wanted;
    return k < n_wanted ? &b->needs[k] : &b->fetches[k - n_wanted].need;
}

static int adjusts_to_wire(struct arena *a, const struct msg_batch *b, Wire__Batch *w,
                           struct err *err)
{
    size_t n_needs = (size_t)b->batch.n_wanted + b->n_fetches;
    size_t n_adjust = 0, n_ids = 0;
    for (size_t k = 0; k < n_needs; k++) {
        n_adjust += need_at(b, k)->n_adjust;
        n_ids += need_at(b, k)->n_ids;
    }
    TAKE(w->adjust_id, a, n_adjust);
    TAKE(w->adjust_repeat, a, n_adjust);
    TAKE(w->adjust_delta, a, n_adjust);
    TAKE(w->ids, a, n_ids);
    for (size_t k = 0; k < n_needs; k++) {
        const struct score_need *need = need_at(b, k);
        for (size_t i = 0; i < need->n_adjust; i++) {
            size_t at = w->n_adjust_id++;
            w->adjust_id[at] = (uint32_t)need->adjust[i].id;
            w->adjust_repeat[at] = need->adjust[i].repeat;
            w->adjust_delta[at] = need->adjust[i].delta;
        }
        for (size_t i = 0; i < need->n_ids; i++) w->ids[w->n_ids++] = (uint32_t)need->ids[i];
    }
    w->n_adjust_repeat = w->n_adjust_delta = w->n_adjust_id;
    return ERR_NONE;
}

static int needs_to_wire(struct arena *a, const struct msg_batch *b, Wire__Batch *w,
                         struct err *err)
{
    size_t n = (size_t)b->batch.n_wanted + b->n_fetches;
    TAKE(w->need_temperature, a, n);
    TAKE(w->need_count, a, n);
    TAKE(w->need_mass, a, n);
    TAKE(w->need_ratio, a, n);
    TAKE(w->need_raw, a, n);
    TAKE(w->need_n_adjust, a, n);
    TAKE(w->need_n_ids, a, n);
    for (size_t k = 0; k < n; k++) {
        const struct score_need *need = need_at(b, k);
        w->need_temperature[k] = need->temperature;
        w->need_count[k] = need->count;
        w->need_mass[k] = need->mass;
        w->need_ratio[k] = need->ratio;
        w->need_raw[k] = need->raw;
        w->need_n_adjust[k] = need->n_adjust;
        w->need_n_ids[k] = need->n_ids;
    }
    w->n_need_temperature = w->n_need_count = w->n_need_mass = w->n_need_ratio = n;
    w->n_need_raw = w->n_need_n_adjust = w->n_need_n_ids = n;
    return adjusts_to_wire(a, b, w, err);
}

TO_WIRE(batch)
{
    const struct msg_batch *b = &m->u.batch;
    const struct batch *rows = &b->batch;
    Wire__Batch *w = wire;
    w->id = b->id;
    w->release_before = b->release_before;
    GIVE(w, token, (uint32_t *)rows->token, rows->n_rows);
    GIVE(w, seq, (uint32_t *)rows->seq, rows->n_rows);
    GIVE(w, pos, (uint32_t *)rows->pos, rows->n_rows);
    w->wanted = (ProtobufCBinaryData){.len = rows->n_rows, .data = (uint8_t *)rows->wanted};
    TRY(commands_to_wire(&c->out, rows, w, err));
    TRY(needs_to_wire(&c->out, b, w, err));

    TAKE(w->fetch_batch, &c->out, b->n_fetches);
    TAKE(w->fetch_wanted, &c->out, b->n_fetches);
    for (size_t i = 0; i < b->n_fetches; i++) {
        w->fetch_batch[i] = b->fetches[i].batch_id;
        w->fetch_wanted[i] = b->fetches[i].wanted;
    }
    w->n_fetch_batch = w->n_fetch_wanted = b->n_fetches;
    return ERR_NONE;
}

/* Tokens, sequences, positions and blocks out of range are the stage's to refuse: it knows its
 * limits. */
static int rows_from_wire(const Wire__Batch *w, struct batch *b, struct err *err)
{
    size_t n = w->n_token;
    TRY(check_number("BATCH.token entries", n, 0, NUMBER_MAX, err));
    TRY(check_entries("BATCH.seq", w->n_seq, n, err));
    TRY(check_entries("BATCH.pos", w->n_pos, n, err));
    TRY(check_entries("BATCH.wanted", w->wanted.len, n, err));
    TRY(check_numbers("BATCH.token", w->token, n, INT32_MAX, err));
    for (size_t i = 0; i < n; i++) b->n_wanted += w->wanted.data[i] != 0;
    for (size_t i = 1; i < n; i++)
        CHECK(w->seq[i] != w->seq[i - 1] || w->pos[i] - w->pos[i - 1] == 1, err, ERR_PEER,
              "BATCH.pos[%zu] is %" PRIu32 " after %" PRIu32 " of the same sequence", i, w->pos[i],
              w->pos[i - 1]);
    b->n_rows = (uint32_t)n;
    b->token = (const int32_t *)w->token;
    b->seq = w->seq;
    b->pos = w->pos;
    b->wanted = w->wanted.data;
    return ERR_NONE;
}

static int commands_from_wire(struct arena *a, const Wire__Batch *w, struct batch *b,
                              struct err *err)
{
    size_t n = w->n_command_op;
    TRY(check_entries("BATCH.command_seq", w->n_command_seq, n, err));
    TRY(check_entries("BATCH.command_index", w->n_command_index, n, err));
    TRY(check_entries("BATCH.command_block", w->n_command_block, n, err));
    TRY(check_numbers("BATCH.command_op", w->command_op, n, KV_TRIM, err));
    struct kv_command *commands;
    TAKE(commands, a, n);
    for (size_t i = 0; i < n; i++)
        commands[i] = (struct kv_command){
            .op = (enum kv_op)w->command_op[i],
            .seq = w->command_seq[i],
            .index = w->command_index[i],
            .block = w->command_block[i],
        };
    b->commands = commands;
    b->n_commands = (uint32_t)n;
    return ERR_NONE;
}

/* Lengths of the parallel arrays of n needs, and what they cut. */
static int check_needs(const Wire__Batch *w, size_t n, struct err *err)
{
    TRY(check_entries("BATCH.need_temperature", w->n_need_temperature, n, err));
    TRY(check_entries("BATCH.need_count", w->n_need_count, n, err));
    TRY(check_entries("BATCH.need_mass", w->n_need_mass, n, err));
    TRY(check_entries("BATCH.need_ratio", w->n_need_ratio, n, err));
    TRY(check_entries("BATCH.need_raw", w->n_need_raw, n, err));
    TRY(check_entries("BATCH.need_n_adjust", w->n_need_n_adjust, n, err));
    TRY(check_entries("BATCH.need_n_ids", w->n_need_n_ids, n, err));
    TRY(check_numbers("BATCH.need_raw", w->need_raw, n, 1, err));
    TRY(check_entries("BATCH.adjust_repeat", w->n_adjust_repeat, w->n_adjust_id, err));
    TRY(check_entries("BATCH.adjust_delta", w->n_adjust_delta, w->n_adjust_id, err));
    TRY(check_sum("BATCH.adjust_id", w->n_adjust_id, w->need_n_adjust, n, err));
    TRY(check_sum("BATCH.ids", w->n_ids, w->need_n_ids, n, err));
    TRY(check_numbers("BATCH.adjust_id", w->adjust_id, w->n_adjust_id, INT32_MAX, err));
    TRY(check_numbers("BATCH.ids", w->ids, w->n_ids, INT32_MAX, err));
    TRY(check_scores("BATCH.adjust_delta", w->adjust_delta, w->n_adjust_delta, err));
    TRY(check_positive("BATCH.adjust_repeat", w->adjust_repeat, w->n_adjust_repeat, err));
    TRY(check_positive("BATCH.need_temperature", w->need_temperature, n, err));
    TRY(check_not_negative("BATCH.need_mass", w->need_mass, n, err));
    TRY(check_not_negative("BATCH.need_ratio", w->need_ratio, n, err));
    return ERR_NONE;
}

/* n needs, checked by check_needs(), as structs; the adjustments of each must ascend. */
static int needs_from_wire(struct arena *a, const Wire__Batch *w, size_t n, struct score_need **out,
                           struct err *err)
{
    struct score_need *needs;
    struct score_adjust *adjust;
    TAKE(needs, a, n);
    TAKE(adjust, a, w->n_adjust_id);
    size_t at_adjust = 0, at_ids = 0;
    for (size_t k = 0; k < n; k++) {
        needs[k] = (struct score_need){
            .temperature = w->need_temperature[k],
            .count = w->need_count[k],
            .mass = w->need_mass[k],
            .ratio = w->need_ratio[k],
            .raw = w->need_raw[k] != 0,
            .adjust = adjust + at_adjust,
            .n_adjust = w->need_n_adjust[k],
            .ids = w->n_ids > 0 ? (const int32_t *)w->ids + at_ids : NULL,
            .n_ids = w->need_n_ids[k],
        };
        for (size_t i = 0; i < needs[k].n_adjust; i++) {
            size_t at = at_adjust + i;
            CHECK(i == 0 || w->adjust_id[at] > w->adjust_id[at - 1], err, ERR_PEER,
                  "BATCH.adjust_id[%zu] is %" PRIu32 " after %" PRIu32 ", want ascending ids", at,
                  w->adjust_id[at], w->adjust_id[at - 1]);
            adjust[at] = (struct score_adjust){
                .id = (int32_t)w->adjust_id[at],
                .repeat = w->adjust_repeat[at],
                .delta = w->adjust_delta[at],
            };
        }
        at_adjust += needs[k].n_adjust;
        at_ids += needs[k].n_ids;
    }
    *out = needs;
    return ERR_NONE;
}

static int fetches_from_wire(struct arena *a, const Wire__Batch *w, const struct score_need *needs,
                             struct msg_batch *b, struct err *err)
{
    size_t n = w->n_fetch_batch;
    struct msg_fetch *fetches;
    TAKE(fetches, a, n);
    for (size_t i = 0; i < n; i++) {
        CHECK(w->fetch_batch[i] >= b->release_before && w->fetch_batch[i] < b->id, err, ERR_PEER,
              "BATCH.fetch_batch[%zu] is %" PRIu64 ", want %" PRIu64 " or later, before %" PRIu64,
              i, w->fetch_batch[i], b->release_before, b->id);
        fetches[i] = (struct msg_fetch){
            .batch_id = w->fetch_batch[i],
            .wanted = w->fetch_wanted[i],
            .need = needs[i],
        };
    }
    b->fetches = fetches;
    b->n_fetches = (uint32_t)n;
    return ERR_NONE;
}

FROM_WIRE(batch)
{
    const Wire__Batch *w = wire;
    struct msg_batch *b = &m->u.batch;
    *b = (struct msg_batch){.id = w->id, .release_before = w->release_before};
    TRY(check_number("BATCH.id", w->id, 1, UINT64_MAX, err));
    TRY(check_number("BATCH.release_before", w->release_before, 0, w->id, err));
    TRY(rows_from_wire(w, &b->batch, err));
    TRY(commands_from_wire(&c->in, w, &b->batch, err));

    TRY(check_entries("BATCH.fetch_wanted", w->n_fetch_wanted, w->n_fetch_batch, err));
    size_t n_needs = b->batch.n_wanted + w->n_fetch_batch;
    struct score_need *needs = NULL;
    TRY(check_needs(w, n_needs, err));
    TRY(needs_from_wire(&c->in, w, n_needs, &needs, err));
    b->needs = needs;
    TRY(fetches_from_wire(&c->in, w, needs + b->batch.n_wanted, b, err));

    uint64_t row_bytes = c->view->row_bytes;
    uint32_t n_rows = b->batch.n_rows;
    CHECK(n_rows == 0 ? row_bytes == 0 : row_bytes % n_rows == 0, err, ERR_PEER,
          "BATCH %" PRIu64 " of %" PRIu32 " rows has %" PRIu64 " bytes of rows behind it", b->id,
          n_rows, row_bytes);
    return ERR_NONE;
}

/* ---- RESULT ---- */

static bool follows(const void *next, const void *list, size_t bytes)
{
    return (uintptr_t)next == (uintptr_t)list + bytes;
}

/* The pairs and id scores of all heads follow each other in memory: what exec's buffers look like.
 */
static bool heads_are_joined(const struct msg_result *r, bool have_ids)
{
    for (uint32_t k = 1; k < r->n_heads; k++) {
        const struct score_head *a = &r->heads[k - 1], *b = &r->heads[k];
        if (!follows(b->ids, a->ids, a->n * sizeof *a->ids)) return false;
        if (!follows(b->scores, a->scores, a->n * sizeof *a->scores)) return false;
        if (have_ids && !follows(b->id_scores, a->id_scores, a->n_ids * sizeof *a->id_scores))
            return false;
    }
    return true;
}

/* The lists of all heads, one after the other. */
static int join_heads(struct arena *a, const struct msg_result *r, Wire__Result *w, struct err *err)
{
    TAKE(w->token, a, w->n_token);
    TAKE(w->score, a, w->n_score);
    TAKE(w->id_score, a, w->n_id_score);
    size_t pair = 0, id = 0;
    for (uint32_t k = 0; k < r->n_heads; k++) {
        const struct score_head *h = &r->heads[k];
        for (uint32_t i = 0; i < h->n; i++, pair++) {
            w->token[pair] = (uint32_t)h->ids[i];
            w->score[pair] = h->scores[i];
        }
        for (uint32_t i = 0; i < h->n_ids; i++, id++) w->id_score[id] = h->id_scores[i];
    }
    return ERR_NONE;
}

TO_WIRE(result)
{
    const struct msg_result *r = &m->u.result;
    Wire__Result *w = wire;
    size_t n = r->n_heads;
    w->id = r->id;
    TAKE(w->lse, &c->out, n);
    TAKE(w->pair_count, &c->out, n);
    TAKE(w->flags, &c->out, n);
    TAKE(w->id_count, &c->out, n);
    for (size_t k = 0; k < n; k++) {
        const struct score_head *h = &r->heads[k];
        w->lse[k] = h->lse;
        w->pair_count[k] = h->n;
        w->flags[k] = (h->whole ? FLAG_WHOLE : 0u) | (h->raw != NULL ? FLAG_RAW : 0u);
        w->id_count[k] = h->n_ids;
        w->n_token += h->n;
        w->n_id_score += h->n_ids;
    }
    w->n_score = w->n_token;
    w->n_lse = w->n_pair_count = w->n_flags = n;
    w->n_id_count = w->n_id_score > 0 ? n : 0;
    if (n == 0) return ERR_NONE;
    if (!heads_are_joined(r, w->n_id_score > 0)) return join_heads(&c->out, r, w, err);
    w->token = (uint32_t *)r->heads[0].ids;
    w->score = (float *)r->heads[0].scores;
    w->id_score = (float *)r->heads[0].id_scores;
    return ERR_NONE;
}

static int check_result(const Wire__Result *w, uint32_t n_vocab, struct err *err)
{
    size_t n = w->n_lse;
    TRY(check_number("RESULT.id", w->id, 1, UINT64_MAX, err));
    TRY(check_entries("RESULT.pair_count", w->n_pair_count, n, err));
    TRY(check_entries("RESULT.flags", w->n_flags, n, err));
    if (w->n_id_count > 0) TRY(check_entries("RESULT.id_count", w->n_id_count, n, err));
    TRY(check_numbers("RESULT.flags", w->flags, n, FLAG_WHOLE | FLAG_RAW, err));
    TRY(check_entries("RESULT.score", w->n_score, w->n_token, err));
    TRY(check_sum("RESULT.token", w->n_token, w->pair_count, n, err));
    TRY(check_sum("RESULT.id_score", w->n_id_score, w->id_count, w->n_id_count, err));
    TRY(check_numbers("RESULT.token", w->token, w->n_token,
                      n_vocab > 0 ? n_vocab - 1 : (uint32_t)INT32_MAX, err));
    TRY(check_scores("RESULT.score", w->score, w->n_score, err));
    TRY(check_scores("RESULT.id_score", w->id_score, w->n_id_score, err));
    for (size_t k = 0; k < n; k++)
        CHECK(w->lse[k] < INFINITY, err, ERR_PEER, "RESULT.lse[%zu] is %g, want a number", k,
              w->lse[k]);

    return ERR_NONE;
}

FROM_WIRE(result)
{
    const Wire__Result *w = wire;
    TRY(check_result(w, c->n_vocab, err));
    size_t n = w->n_lse, at_pairs = 0, at_ids = 0;
    const float *rows = (const float *)(const void *)c->view->rows;
    uint64_t raw_bytes = 0;
    struct score_head *heads;
    TAKE(heads, &c->in, n);
    for (size_t k = 0; k < n; k++) {
        struct score_head *h = &heads[k];
        *h = (struct score_head){
            .lse = w->lse[k],
            .whole = (w->flags[k] & FLAG_WHOLE) != 0,
            .n = w->pair_count[k],
            .n_ids = w->n_id_count > 0 ? w->id_count[k] : 0,
        };
        if (h->n > 0) h->ids = (const int32_t *)w->token + at_pairs;
        if (h->n > 0) h->scores = w->score + at_pairs;
        if (h->n_ids > 0) h->id_scores = w->id_score + at_ids;
        at_pairs += h->n;
        at_ids += h->n_ids;
        if ((w->flags[k] & FLAG_RAW) == 0) continue;
        raw_bytes += (uint64_t)c->n_vocab * sizeof(float);
        CHECK(c->n_vocab > 0 && raw_bytes <= c->view->row_bytes, err, ERR_PEER,
              "RESULT has %" PRIu64 " bytes of raw rows, too few for head %zu of a vocabulary of "
              "%" PRIu32,
              c->view->row_bytes, k, c->n_vocab);
        h->raw = rows;
        rows += c->n_vocab;
    }
    CHECK(raw_bytes == c->view->row_bytes, err, ERR_PEER,
          "RESULT has %" PRIu64 " bytes of raw rows, want %" PRIu64, c->view->row_bytes, raw_bytes);
    m->u.result = (struct msg_result){.id = w->id, .n_heads = (uint32_t)n, .heads = heads};
    return ERR_NONE;
}

/* ---- the table, and the two ways through it ---- */

struct kind {
    const char *name;
    const ProtobufCMessageDescriptor *form;
    int (*to_wire)(struct codec *c, const struct message *m, void *wire, struct err *err);
    int (*from_wire)(struct codec *c, void *wire, struct message *m, struct err *err);
    bool has_rows;
};

static const struct kind kinds[] = {
    [MESSAGE_HELLO] = {"HELLO", &wire__hello__descriptor, hello_to_wire, hello_from_wire, false},
    [MESSAGE_LOAD] = {"LOAD", &wire__load__descriptor, load_to_wire, load_from_wire, false},
    [MESSAGE_READY] = {"READY", &wire__ready__descriptor, ready_to_wire, ready_from_wire, false},
    [MESSAGE_HEARTBEAT] = {"HEARTBEAT", &wire__heartbeat__descriptor, heartbeat_to_wire,
                           heartbeat_from_wire, false},
    [MESSAGE_ERROR] = {"ERROR", &wire__error__descriptor, error_to_wire, error_from_wire, false},
    [MESSAGE_STOP] = {"STOP", &wire__stop__descriptor, stop_to_wire, stop_from_wire, false},
    [MESSAGE_REPORT] = {"REPORT", &wire__report__descriptor, report_to_wire, report_from_wire,
                        false},
    [MESSAGE_BATCH] = {"BATCH", &wire__batch__descriptor, batch_to_wire, batch_from_wire, true},
    [MESSAGE_RESULT] = {"RESULT", &wire__result__descriptor, result_to_wire, result_from_wire,
                        true},
};

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

int codec_pack(struct codec *c, const struct message *m, uint64_t row_bytes, uint32_t n_vocab,
               uint8_t *frame, size_t capacity, size_t *len, struct err *err)
{
    BUG_IF(m->type < MESSAGE_HELLO || m->type > MESSAGE_RESULT, "a message of an unknown type");
    BUG_IF((uintptr_t)frame % FRAME_ALIGN != 0, "a frame that is not aligned");
    const struct kind *kind = &kinds[m->type];
    BUG_IF(row_bytes > 0 && !kind->has_rows, "rows behind a message that has none");
    if (m->type == MESSAGE_RESULT) row_bytes = count_raw_bytes(&m->u.result, n_vocab);

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
        copy_raw_rows(&m->u.result, n_vocab, frame_rows(frame, (uint32_t)head_bytes));
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

int codec_unpack(struct codec *c, const uint8_t *frame, size_t len, uint32_t n_vocab,
                 struct message *out, struct frame_view *view, struct err *err)
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
    c->n_vocab = n_vocab;
    ProtobufCAllocator allocator = {arena_alloc, arena_free, &c->in};
    ProtobufCMessage *wire =
        protobuf_c_message_unpack(kind->form, &allocator, view->head_bytes, view->head);
    CHECK(wire != NULL, err, ERR_PEER, "%s head of %" PRIu32 " bytes is malformed", kind->name,
          view->head_bytes);
    *out = (struct message){.type = view->type};
    return kind->from_wire(c, wire, out, err);
}

/* ---- bounds ---- */

/* The longest forms: a varint of 32 bits takes 5 bytes, of 64 bits 10; a list costs a key of at
 * most 2 and a length of at most 5. The constant holds those of all fields. */
enum { VARINT = 5, FLOAT = 4, BOUND_FIXED = 256 };

size_t codec_batch_head_bound(size_t n_rows, size_t n_commands, size_t n_wanted, size_t n_adjust,
                              size_t n_ids, size_t n_fetches)
{
    size_t row = 3 * VARINT + 1;
    size_t command = 1 + 3 * VARINT;
    size_t need = 3 * FLOAT + 1 + 3 * VARINT;
    size_t adjust = VARINT + 2 * FLOAT;
    size_t fetch = 8 + VARINT;
    return BOUND_FIXED + n_rows * row + n_commands * command + (n_wanted + n_fetches) * need +
           n_adjust * adjust + n_ids * VARINT + n_fetches * fetch;
}

size_t codec_result_head_bound(size_t n_heads, size_t n_pairs, size_t n_ids)
{
    size_t head = 8 + 2 * VARINT + 1;
    return BOUND_FIXED + n_heads * head + n_pairs * (VARINT + FLOAT) + n_ids * FLOAT;
}
