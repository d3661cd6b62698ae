/* message - the plain structs of everything that travels between ranks.
 *
 * codec turns them into frames and back; tandem.proto has the same shapes on the wire.
 *
 *   control (star around the coordinator)          data (down the line and home)
 *   worker ─ HELLO ─► coordinator                  coordinator ─ BATCH ─► stage 1 ─ BATCH + rows ─► …
 *   worker ◄─ LOAD ── coordinator                  … ─► stage P ─ RESULT ─► coordinator
 *   worker ─ READY ─► coordinator
 *   worker ─ HEARTBEAT, ERROR ─► coordinator
 *   worker ◄─ STOP ── coordinator;  worker ─ REPORT ─► coordinator
 */
#ifndef TANDEM_PROTO_MESSAGE_H
#define TANDEM_PROTO_MESSAGE_H

#include "engine/batch.h"
#include "proto/scores.h"

#include <stdbool.h>
#include <stdint.h>

enum message_type {
    MESSAGE_HELLO = 1,
    MESSAGE_LOAD,
    MESSAGE_READY,
    MESSAGE_HEARTBEAT,
    MESSAGE_ERROR,
    MESSAGE_STOP,
    MESSAGE_REPORT,
    MESSAGE_BATCH,
    MESSAGE_RESULT,
};

/* Strings are NUL-terminated, at most MESSAGE_TEXT_MAX bytes with the NUL, checked by the codec. */
enum { MESSAGE_TEXT_MAX = 512, MESSAGE_RANKS_MAX = 4096 };

/* A worker introduces itself. Disagreement with the coordinator is an error before any weight is read. */
struct msg_hello {
    const char *version; /* of the program */
    const char *host;
    uint32_t pid;
    const char *family;
    uint64_t model_digest; /* metadata, tensor directory, file length */
    uint32_t isa;          /* best instruction set of this rank, enum isa */
    uint32_t cpus;         /* CPUs this rank may use */
    uint32_t cpus_online;  /* of its host; cpus < cpus_online: the rank is bound */
    uint64_t memory_bytes; /* memory this rank may use; 0: unknown */
};

/* The coordinator tells a worker its share and the sizes of the line. */
struct msg_load {
    uint32_t stage, n_stages; /* stage 0 .. n_stages-1 */
    uint32_t layer_first, layer_end;
    uint32_t isa;
    uint32_t kv_format;
    uint32_t n_ctx, n_seqs, n_blocks, rows_max, wanted_max, credits;
    uint32_t threads;
};

struct msg_ready {
    uint64_t weight_bytes, kv_bytes, buffer_bytes;
    uint64_t load_ns;
    uint32_t threads;
    uint64_t embedding_digest; /* of the packed token embedding, 0 where not held: stages that share it compare */
};

enum worker_state { WORKER_LOADING = 1, WORKER_IDLE, WORKER_FORWARD };

/* At most HEARTBEAT_MS apart, whatever the worker does. */
enum { HEARTBEAT_MS = 200 };
struct msg_heartbeat {
    uint32_t state;    /* enum worker_state */
    uint64_t batch_id; /* in WORKER_FORWARD */
    uint32_t layer;    /* at work, absolute */
    uint64_t done, total; /* bytes, in WORKER_LOADING */
};

/* A worker cannot go on; text is its error line without the "who". */
struct msg_error {
    uint32_t code; /* enum err_code */
    const char *text;
};

/* When a stage's forward pass of a batch ran, on the monotonic clock of its host. */
struct msg_span {
    uint64_t batch_id;
    uint64_t begin_ns, end_ns;
};
enum { MESSAGE_SPANS_MAX = 256 };

/* Totals of a stage since READY, in answer to STOP, and its latest spans in any order. */
struct msg_report {
    uint64_t batches, rows;
    uint64_t compute_ns, wait_ns, send_ns;
    uint64_t sent_bytes, sent_messages; /* on data, to the next station */
    const struct msg_span *spans;
    uint32_t n_spans; /* <= MESSAGE_SPANS_MAX */
};

/* One forward pass. needs[k] belongs to the k-th wanted row. */
struct msg_fetch {
    uint64_t batch_id; /* an earlier, unreleased batch */
    uint32_t wanted;   /* which of its wanted rows */
    struct score_need need;
};

struct msg_batch {
    uint64_t id;             /* 1, 2, 3 … */
    uint64_t release_before; /* score rows of batches with smaller ids are no longer needed */
    struct batch batch;
    const struct score_need *needs; /* [batch.n_wanted] */
    const struct msg_fetch *fetches;
    uint32_t n_fetches; /* <= credits */
};

/* The last stage's answer: heads of the wanted rows in order, then of the fetches. Raw rows travel behind
 * the message, in the order of the heads that have one. */
struct msg_result {
    uint64_t id;
    uint32_t n_heads;
    const struct score_head *heads; /* [n_heads] */
};

struct message {
    enum message_type type;
    union {
        struct msg_hello hello;
        struct msg_load load;
        struct msg_ready ready;
        struct msg_heartbeat heartbeat;
        struct msg_error error;
        struct msg_report report;
        struct msg_batch batch;
        struct msg_result result;
    } u;
};

#endif
