/* codec_control - the messages of the control channel on their way to the wire and back.
 * Stations: codec.c before and after; message.h has what the numbers mean. */
#include "engine/isa.h"
#include "proto/codec_wire.h"
#include "proto/link.h"
#include "proto/wire_rows.h"

#include <string.h>

enum { LAYERS_MAX = 65536, THREADS_MAX = 65536, MODEL_HEADER_MAX = 1 << 30 };

/* Bytes of one entry on the wire: ten numbers of 64 bits and two varints; two and one; one and
 * one. */
CODEC_GROWTH_HOLDS(struct msg_account, 82);
CODEC_GROWTH_HOLDS(struct msg_layer_mark, 17);
CODEC_GROWTH_HOLDS(struct tensor_digest, 9);
/* At most; besides the lists a heartbeat has less than 256 bytes. */
_Static_assert(FRAME_HEADER_BYTES + 256 + MESSAGE_ACCOUNTS_MAX * 90 + MESSAGE_MARKS_MAX * 21 <=
                   LINK_CONTROL_FRAME_MAX,
               "a full heartbeat outgrows a control frame");
_Static_assert(FRAME_HEADER_BYTES + 64 + MESSAGE_PARTS_MAX * 16 <= LINK_CONTROL_FRAME_MAX,
               "a model in many parts outgrows a control frame");
/* The head of a PIECE has at most 26 bytes. */
_Static_assert(2 * FRAME_ALIGN + MESSAGE_PIECE_BYTES_MAX <= LINK_WEIGHTS_FRAME_MAX,
               "a full piece outgrows its frame");

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

/* clang-format off */
#define HELLO_NUMBERS(X)                                                                           \
    X(pid) X(model_digest) X(isa) X(cpus) X(cpus_online) X(memory_bytes) X(cgroup_bytes)           \
    X(ulimit_bytes) X(wants_model) X(model_sample)
/* clang-format on */

TO_WIRE(hello)
{
    const struct msg_hello *s = &m->u.hello;
    Wire__Hello *w = wire;
    HELLO_NUMBERS(PUT)
    TRY(give_text("HELLO.version", s->version, &w->version, err));
    TRY(give_text("HELLO.host", s->host, &w->host, err));
    TRY(give_text("HELLO.cgroup", s->cgroup, &w->cgroup, err));
    TRY(give_text("HELLO.ulimit", s->ulimit, &w->ulimit, err));
    return give_text("HELLO.family", s->family, &w->family, err);
}

FROM_WIRE(hello)
{
    struct msg_hello *s = &m->u.hello;
    const Wire__Hello *w = wire;
    HELLO_NUMBERS(GET)
    TRY(check_number("HELLO.isa", s->isa, 0, ISA_COUNT - 1, err));
    TRY(check_number("HELLO.wants_model", s->wants_model, 0, 1, err));
    TRY(take_text("HELLO.version", w->version, &s->version, err));
    TRY(take_text("HELLO.host", w->host, &s->host, err));
    TRY(take_text("HELLO.cgroup", w->cgroup, &s->cgroup, err));
    TRY(take_text("HELLO.ulimit", w->ulimit, &s->ulimit, err));
    return take_text("HELLO.family", w->family, &s->family, err);
}

TO_WIRE(watch)
{
    const struct msg_watch *s = &m->u.watch;
    Wire__Watch *w = wire;
    w->pid = s->pid;
    return give_text("WATCH.host", s->host, &w->host, err);
}

FROM_WIRE(watch)
{
    struct msg_watch *s = &m->u.watch;
    const Wire__Watch *w = wire;
    s->pid = w->pid;
    return take_text("WATCH.host", w->host, &s->host, err);
}

/* clang-format off */
#define LOAD_NUMBERS(X)                                                                            \
    X(stage) X(n_stages) X(layer_first) X(layer_end) X(isa) X(matmul) X(kv_format) X(n_ctx)        \
    X(n_seqs) X(rows_max) X(wanted_max) X(credits) X(threads)                   \
    X(trace_layers) X(from_rank) X(to_rank) X(wire_format)
/* clang-format on */

TO_WIRE(load)
{
    const struct msg_load *s = &m->u.load;
    Wire__Load *w = wire;
    LOAD_NUMBERS(PUT)
    w->n_n_blocks = KV_CLASSES_MAX;
    w->n_blocks = (uint32_t *)s->n_blocks;
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
    TRY(check_number("LOAD.matmul", s->matmul, 0, MATMUL_COUNT - 1, err));
    TRY(check_number("LOAD.n_ctx", s->n_ctx, 1, CODEC_NUMBER_MAX, err));
    TRY(check_number("LOAD.n_seqs", s->n_seqs, 1, CODEC_NUMBER_MAX, err));
    TRY(check_entries("LOAD.n_blocks", w->n_n_blocks, KV_CLASSES_MAX, err));
    memcpy(s->n_blocks, w->n_blocks, sizeof s->n_blocks);
    TRY(check_number("LOAD.rows_max", s->rows_max, 1, CODEC_NUMBER_MAX, err));
    TRY(check_number("LOAD.wanted_max", s->wanted_max, 1, CODEC_NUMBER_MAX, err));
    TRY(check_number("LOAD.credits", s->credits, 1, MESSAGE_RANKS_MAX, err));
    TRY(check_number("LOAD.trace_layers", w->trace_layers, 0, 1, err));
    TRY(check_number("LOAD.from_rank", w->from_rank, 0, MESSAGE_RANKS_MAX - 1, err));
    TRY(check_number("LOAD.to_rank", w->to_rank, 0, MESSAGE_RANKS_MAX - 1, err));
    TRY(check_number("LOAD.wire_format", w->wire_format, 0, WIRE_FORMAT_COUNT - 1, err));
    return check_number("LOAD.threads", s->threads, 0, THREADS_MAX, err);
}

/* clang-format off */
#define READY_NUMBERS(X)                                                                           \
    X(weight_bytes) X(kv_bytes) X(buffer_bytes) X(load_ns) X(threads) X(rss_bytes)
/* clang-format on */

TO_WIRE(ready)
{
    const struct msg_ready *s = &m->u.ready;
    Wire__Ready *w = wire;
    READY_NUMBERS(PUT)
    TAKE(w->digest_tensor, &c->out, s->n_digests);
    TAKE(w->digest, &c->out, s->n_digests);
    for (uint32_t i = 0; i < s->n_digests; i++) {
        w->digest_tensor[i] = s->digests[i].tensor;
        w->digest[i] = s->digests[i].digest;
    }
    w->n_digest_tensor = w->n_digest = s->n_digests;
    return ERR_NONE;
}

/* Which tensors there are is the engine's own enum, out of reach here: who compares them looks. */
static int digests_from_wire(struct arena *a, const Wire__Ready *w, struct msg_ready *s,
                             struct err *err)
{
    const size_t n = w->n_digest_tensor;
    struct tensor_digest *digests;
    TRY(check_number("READY.digest_tensor entries", n, 0, TENSOR_DIGESTS_MAX, err));
    TRY(check_entries("READY.digest", w->n_digest, n, err));
    TAKE(digests, a, n);
    for (size_t i = 0; i < n; i++)
        digests[i] = (struct tensor_digest){w->digest_tensor[i], w->digest[i]};
    s->digests = digests;
    s->n_digests = (uint32_t)n;
    return ERR_NONE;
}

FROM_WIRE(ready)
{
    struct msg_ready *s = &m->u.ready;
    const Wire__Ready *w = wire;
    READY_NUMBERS(GET)
    TRY(digests_from_wire(&c->in, w, s, err));
    return check_number("READY.threads", s->threads, 0, THREADS_MAX, err);
}

#define HEARTBEAT_NUMBERS(X) X(state) X(batch_id) X(layer) X(done) X(total)

/* clang-format off */
#define ACCOUNT_LONGS(X)                                                                           \
    X(batch_id) X(received_ns) X(begin_ns) X(sent_ns) X(done_ns) X(compute_ns) X(wait_ns)          \
    X(send_ns) X(control_ns) X(idle_ns)
/* clang-format on */

static int accounts_to_wire(struct arena *a, const struct msg_heartbeat *s, Wire__Heartbeat *w,
                            struct err *err)
{
    size_t n = s->n_accounts;
#define TAKE_LIST(field)                                                                           \
    TAKE(w->account_##field, a, n);                                                                \
    w->n_account_##field = n;
#define PUT_ENTRY(field) w->account_##field[i] = s->accounts[i].field;
    ACCOUNT_LONGS(TAKE_LIST)
    TAKE_LIST(rows)
    TAKE_LIST(sent_bytes)
    for (size_t i = 0; i < n; i++) {
        ACCOUNT_LONGS(PUT_ENTRY)
        PUT_ENTRY(rows)
        PUT_ENTRY(sent_bytes)
    }
    return ERR_NONE;
}

static int accounts_from_wire(struct arena *a, const Wire__Heartbeat *w, struct msg_heartbeat *s,
                              struct err *err)
{
    size_t n = w->n_account_batch_id;
    struct msg_account *accounts;
    TRY(check_number("HEARTBEAT.account_batch_id entries", n, 0, MESSAGE_ACCOUNTS_MAX, err));
#define CHECK_LIST(field)                                                                          \
    TRY(check_entries("HEARTBEAT.account_" #field, w->n_account_##field, n, err));
#define GET_ENTRY(field) accounts[i].field = w->account_##field[i];
    ACCOUNT_LONGS(CHECK_LIST)
    CHECK_LIST(rows)
    CHECK_LIST(sent_bytes)
    TAKE(accounts, a, n);
    for (size_t i = 0; i < n; i++) {
        ACCOUNT_LONGS(GET_ENTRY)
        GET_ENTRY(rows)
        GET_ENTRY(sent_bytes)
    }
    s->accounts = accounts;
    s->n_accounts = (uint32_t)n;
    return ERR_NONE;
}

static int marks_to_wire(struct arena *a, const struct msg_heartbeat *s, Wire__Heartbeat *w,
                         struct err *err)
{
    size_t n = s->n_marks;
    TAKE(w->mark_batch_id, a, n);
    TAKE(w->mark_layer, a, n);
    TAKE(w->mark_begin_ns, a, n);
    for (size_t i = 0; i < n; i++) {
        w->mark_batch_id[i] = s->marks[i].batch_id;
        w->mark_layer[i] = s->marks[i].layer;
        w->mark_begin_ns[i] = s->marks[i].begin_ns;
    }
    w->n_mark_batch_id = w->n_mark_layer = w->n_mark_begin_ns = n;
    return ERR_NONE;
}

static int marks_from_wire(struct arena *a, const Wire__Heartbeat *w, struct msg_heartbeat *s,
                           struct err *err)
{
    size_t n = w->n_mark_batch_id;
    struct msg_layer_mark *marks;
    TRY(check_number("HEARTBEAT.mark_batch_id entries", n, 0, MESSAGE_MARKS_MAX, err));
    TRY(check_entries("HEARTBEAT.mark_layer", w->n_mark_layer, n, err));
    TRY(check_entries("HEARTBEAT.mark_begin_ns", w->n_mark_begin_ns, n, err));
    TRY(check_numbers("HEARTBEAT.mark_layer", w->mark_layer, n, LAYERS_MAX, err));
    TAKE(marks, a, n);
    for (size_t i = 0; i < n; i++)
        marks[i] = (struct msg_layer_mark){
            .batch_id = w->mark_batch_id[i],
            .layer = w->mark_layer[i],
            .begin_ns = w->mark_begin_ns[i],
        };
    s->marks = marks;
    s->n_marks = (uint32_t)n;
    return ERR_NONE;
}

TO_WIRE(heartbeat)
{
    const struct msg_heartbeat *s = &m->u.heartbeat;
    Wire__Heartbeat *w = wire;
    HEARTBEAT_NUMBERS(PUT)
    TRY(accounts_to_wire(&c->out, s, w, err));
    return marks_to_wire(&c->out, s, w, err);
}

FROM_WIRE(heartbeat)
{
    struct msg_heartbeat *s = &m->u.heartbeat;
    const Wire__Heartbeat *w = wire;
    HEARTBEAT_NUMBERS(GET)
    TRY(check_number("HEARTBEAT.state", s->state, WORKER_LOADING, WORKER_MEASURING, err));
    TRY(check_number("HEARTBEAT.layer", s->layer, 0, LAYERS_MAX, err));
    TRY(accounts_from_wire(&c->in, w, s, err));
    return marks_from_wire(&c->in, w, s, err);
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
    Wire__Stop *w = wire;
    w->idle_ns = m->u.stop.idle_ns;
    return ERR_NONE;
}

FROM_WIRE(stop)
{
    const Wire__Stop *w = wire;
    m->u.stop.idle_ns = w->idle_ns;
    return ERR_NONE;
}

/* clang-format off */
#define REPORT_NUMBERS(X)                                                                          \
    X(batches) X(rows) X(wall_ns) X(compute_ns) X(wait_ns) X(send_ns) X(control_ns) X(idle_ns)     \
    X(sent_bytes) X(sent_messages) X(accounts_lost) X(rss_bytes)
/* clang-format on */

TO_WIRE(report)
{
    const struct msg_report *s = &m->u.report;
    Wire__Report *w = wire;
    REPORT_NUMBERS(PUT)
    return ERR_NONE;
}

FROM_WIRE(report)
{
    struct msg_report *s = &m->u.report;
    const Wire__Report *w = wire;
    REPORT_NUMBERS(GET)
    return ERR_NONE;
}

#define PROBE_NUMBERS(X) X(rounds) X(threads) X(format) X(isa) X(weight_bytes)

TO_WIRE(probe)
{
    const struct msg_probe *s = &m->u.probe;
    Wire__Probe *w = wire;
    PROBE_NUMBERS(PUT)
    TAKE(w->bytes, &c->out, s->n_bytes);
    for (uint32_t i = 0; i < s->n_bytes; i++) w->bytes[i] = s->bytes[i];
    w->n_bytes = s->n_bytes;
    return ERR_NONE;
}

FROM_WIRE(probe)
{
    struct msg_probe *s = &m->u.probe;
    const Wire__Probe *w = wire;
    const bool asks_raw = w->n_bytes > 0;
    TRY(check_number("PROBE.bytes entries", w->n_bytes, 0, LINK_RAW_SIZES_MAX, err));
    PROBE_NUMBERS(GET)
    TRY(check_number("PROBE.rounds", w->rounds, asks_raw, asks_raw ? LINK_RAW_ROUNDS_MAX : 0, err));
    TRY(check_number("PROBE.threads", w->threads, 0, asks_raw ? 0 : THREADS_MAX, err));
    TRY(check_number("PROBE.isa", w->isa, 0, ISA_COUNT - 1, err));
    for (size_t i = 0; i < w->n_bytes; i++)
        TRY(check_number("PROBE.bytes", w->bytes[i], 1, INT32_MAX, err));
    s->bytes = w->bytes;
    s->n_bytes = (uint32_t)w->n_bytes;
    return ERR_NONE;
}

TO_WIRE(probed)
{
    Wire__Probed *w = wire;
    w->read_bytes_s = m->u.probed.read_bytes_s;
    w->ops_s = m->u.probed.ops_s;
    w->few_ops_s = m->u.probed.few_ops_s;
    return ERR_NONE;
}

FROM_WIRE(probed)
{
    const Wire__Probed *w = wire;
    m->u.probed.read_bytes_s = w->read_bytes_s;
    m->u.probed.ops_s = w->ops_s;
    m->u.probed.few_ops_s = w->few_ops_s;
    return ERR_NONE;
}

#define CLOCK_NUMBERS(X) X(asked_ns) X(told_ns)

TO_WIRE(clock)
{
    const struct msg_clock *s = &m->u.clock;
    Wire__Clock *w = wire;
    CLOCK_NUMBERS(PUT)
    return ERR_NONE;
}

FROM_WIRE(clock)
{
    struct msg_clock *s = &m->u.clock;
    const Wire__Clock *w = wire;
    CLOCK_NUMBERS(GET)
    return ERR_NONE;
}

/* ---- weights for hosts without the file ---- */

TO_WIRE(model)
{
    const struct msg_model *s = &m->u.model;
    Wire__Model *w = wire;
    w->digest = s->digest;
    w->stamp = s->stamp;
    w->n_header_bytes = w->n_file_bytes = s->n_parts;
    w->header_bytes = (uint64_t *)s->header_bytes;
    w->file_bytes = (uint64_t *)s->file_bytes;
    return ERR_NONE;
}

FROM_WIRE(model)
{
    struct msg_model *s = &m->u.model;
    const Wire__Model *w = wire;
    const size_t n = w->n_header_bytes;
    TRY(check_number("MODEL.header_bytes entries", n, 1, MESSAGE_PARTS_MAX, err));
    TRY(check_entries("MODEL.file_bytes", w->n_file_bytes, n, err));
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        TRY(check_number("MODEL.file_bytes", w->file_bytes[i], 1, INT64_MAX, err));
        TRY(check_number("MODEL.header_bytes", w->header_bytes[i], 1, w->file_bytes[i], err));
        TRY(check_number("MODEL.header_bytes", w->header_bytes[i], 1, MODEL_HEADER_MAX - sum, err));
        sum += w->header_bytes[i];
    }
    *s = (struct msg_model){w->digest, w->stamp, (uint32_t)n, w->header_bytes, w->file_bytes};
    return ERR_NONE;
}

#define PULL_NUMBERS(X) X(part) X(offset) X(bytes)

TO_WIRE(pull)
{
    const struct msg_pull *s = &m->u.pull;
    Wire__Pull *w = wire;
    PULL_NUMBERS(PUT)
    return ERR_NONE;
}

FROM_WIRE(pull)
{
    struct msg_pull *s = &m->u.pull;
    const Wire__Pull *w = wire;
    PULL_NUMBERS(GET)
    TRY(check_number("PULL.part", s->part, 0, MESSAGE_PARTS_MAX - 1, err));
    TRY(check_number("PULL.offset", s->offset, 0, INT64_MAX, err));
    return check_number("PULL.bytes", s->bytes, 1, MESSAGE_PULL_BYTES_MAX, err);
}

#define PIECE_NUMBERS(X) X(part) X(offset) X(digest)

TO_WIRE(piece)
{
    const struct msg_piece *s = &m->u.piece;
    Wire__Piece *w = wire;
    PIECE_NUMBERS(PUT)
    return ERR_NONE;
}

FROM_WIRE(piece)
{
    struct msg_piece *s = &m->u.piece;
    const Wire__Piece *w = wire;
    PIECE_NUMBERS(GET)
    TRY(check_number("PIECE.part", s->part, 0, MESSAGE_PARTS_MAX - 1, err));
    TRY(check_number("PIECE.offset", s->offset, 0, INT64_MAX, err));
    TRY(check_number("PIECE bytes", c->view->row_bytes, 1, MESSAGE_PIECE_BYTES_MAX, err));
    s->bytes = c->view->rows;
    s->n_bytes = (uint32_t)c->view->row_bytes;
    return ERR_NONE;
}
