/* message - the plain structs of everything that travels between ranks.
 *
 * codec turns them into frames and back; tandem.proto has the same shapes on the wire.
 *
 *   control: a star around the coordinator
 *
 *     worker ◄─ WATCH ───────────── coordinator   to the first worker alone, before all else
 *     worker ── HELLO ────────────► coordinator
 *     worker ◄─ MODEL ───────────── coordinator   where there is no model file; then, as long as
 *     worker ── PULL ─────────────► coordinator   it loads, many of these ...
 *     worker ◄─ PIECE ───────────── coordinator   ... and those, on a channel of their own
 *     worker ◄─ LOAD ────────────── coordinator
 *     worker ── READY ────────────► coordinator
 *     worker ── HEARTBEAT, ERROR ─► coordinator   at any time
 *     worker ◄─ CLOCK ────────────► coordinator   question and answer
 *     worker ◄─ PROBE, PROBED ────► coordinator   question and answer
 *     worker ◄─ STOP, REPORT ─────► coordinator   question and answer
 *
 *   data: down the line and home
 *
 *     coordinator ─ BATCH ─► stage 1 ─ BATCH + rows ─► … ─► stage P ─ RESULT ─► coordinator */
#ifndef TANDEM_PROTO_MESSAGE_H
#define TANDEM_PROTO_MESSAGE_H

#include "engine/batch.h"
#include "engine/digest.h"
#include "proto/scores.h"

#include <stdint.h>

enum message_type {
    MESSAGE_HELLO = 1,
    MESSAGE_WATCH,
    MESSAGE_LOAD,
    MESSAGE_READY,
    MESSAGE_HEARTBEAT,
    MESSAGE_ERROR,
    MESSAGE_STOP,
    MESSAGE_REPORT,
    MESSAGE_PROBE,
    MESSAGE_PROBED,
    MESSAGE_CLOCK,
    MESSAGE_MODEL,
    MESSAGE_PULL,
    MESSAGE_PIECE,
    MESSAGE_BATCH,
    MESSAGE_RESULT,
};

/* Strings are NUL-terminated, at most MESSAGE_TEXT_MAX bytes with the NUL, checked by the codec. */
enum { MESSAGE_TEXT_MAX = 512, MESSAGE_RANKS_MAX = 4096 };

/* A worker introduces itself. Disagreement with the coordinator is an error before any weight is
 * read. */
struct msg_hello {
    const char *version; /* of the program */
    const char *host;
    uint32_t pid;
    const char *family;
    uint64_t model_digest; /* metadata, tensor directory, file length */
    uint32_t isa;          /* best instruction set of this rank, enum isa */
    uint32_t cpus;         /* CPUs this rank may use */
    /* CPUs that it could be given, its host's or container's; cpus < cpus_online: it is bound. */
    uint32_t cpus_online;
    /* Memory this rank may still take, and who limits it; 0: no limit known. The first two are
     * shared with the other processes of the host or the group. engine/memory says what is what. */
    uint64_t memory_bytes; /* of its host */
    uint64_t cgroup_bytes;
    const char *cgroup; /* "cgroup /x/y" */
    uint64_t ulimit_bytes;
    const char *ulimit; /* "ulimit -v" */
    /* 0 or 1: its host has no model file; family is "" and model_digest 0, and MODEL must come. */
    uint32_t wants_model;
    uint64_t model_sample; /* some of the weights (gguf_sample) */
};

/* Look after me, where you share my host: who is killed or stopped says nothing himself. The first
 * thing that the coordinator says at all. */
struct msg_watch {
    uint32_t pid;
    const char *host;
};

/* The coordinator tells a worker its share and the sizes of the line. */
struct msg_load {
    uint32_t stage, n_stages; /* stage 0 .. n_stages-1 */
    uint32_t layer_first, layer_end;
    uint32_t isa;
    uint32_t matmul; /* enum matmul_choice */
    uint32_t kv_format;
    uint32_t n_blocks[KV_CLASSES_MAX]; /* of each cache class */
    uint32_t n_ctx, n_seqs, rows_max, wanted_max, credits;
    uint32_t threads;
    uint32_t trace_layers; /* 0 or 1: mark when each layer of a batch begins */
    uint32_t wire_format;  /* enum wire_format: how rows travel between stages */
    /* The neighbours on the data channel; ranks without a share are passed over. */
    uint32_t from_rank, to_rank;
};

struct msg_ready {
    uint64_t weight_bytes, kv_bytes, buffer_bytes;
    uint64_t load_ns;
    uint32_t threads;
    uint64_t rss_bytes; /* resident in its process now; stages of one process say the same */
    /* Of what it has read outside of layers: no two ranks may have different bytes of a tensor. */
    const struct tensor_digest *digests; /* [n_digests] */
    uint32_t n_digests;                  /* <= TENSOR_DIGESTS_MAX */
};

enum worker_state { WORKER_LOADING = 1, WORKER_IDLE, WORKER_FORWARD, WORKER_MEASURING };

/* One batch in a stage's ledger. Instants are of the stage's monotonic clock; the columns count
 * what was booked since the batch before it, so that they add up to the totals.
 *
 *      wait | received: control | send (a free slot) | begin: compute | sent: send | done */
struct msg_account {
    uint64_t batch_id;
    uint32_t rows;
    uint32_t sent_bytes;  /* of the frame that went on */
    uint64_t received_ns; /* the frame was at hand */
    uint64_t begin_ns;    /* the forward pass began */
    uint64_t sent_ns;     /* the filled frame was handed to the link */
    uint64_t done_ns;     /* the link had taken it */
    uint64_t compute_ns, wait_ns, send_ns, control_ns, idle_ns; /* wait, idle 0: it lay there */
};

/* When a layer of a batch began; layer n_layer is the output head. */
struct msg_layer_mark {
    uint64_t batch_id;
    uint32_t layer;
    uint64_t begin_ns;
};

enum { MESSAGE_ACCOUNTS_MAX = 128, MESSAGE_MARKS_MAX = 128 };

/* At most HEARTBEAT_MS apart, whatever the worker does. The accounts of finished batches ride
 * along, each once. */
enum { HEARTBEAT_MS = 200 };
struct msg_heartbeat {
    uint32_t state;                     /* enum worker_state */
    uint64_t batch_id;                  /* in WORKER_FORWARD */
    uint32_t layer;                     /* at work, absolute */
    uint64_t done, total;               /* bytes, in WORKER_LOADING */
    const struct msg_account *accounts; /* [n_accounts] */
    uint32_t n_accounts;
    const struct msg_layer_mark *marks; /* [n_marks] */
    uint32_t n_marks;
};

/* A worker cannot go on; text is its error line without the "who". */
struct msg_error {
    uint32_t code; /* enum err_code */
    const char *text;
};

/* Go home. idle_ns: how long the line has had no request. */
struct msg_stop {
    uint64_t idle_ns;
};

/* Totals of a stage from READY to STOP. Each column is measured by itself; what they leave of
 * wall_ns is nobody's. */
struct msg_report {
    uint64_t batches, rows;
    uint64_t wall_ns;
    uint64_t compute_ns; /* forward passes */
    uint64_t wait_ns;    /* for a frame, while the line had work */
    uint64_t send_ns;    /* from a filled frame to the link having taken it, free slot included */
    uint64_t control_ns; /* reading messages, heartbeats, answers */
    uint64_t idle_ns;    /* for a frame, while the line had no request */
    uint64_t sent_bytes, sent_messages; /* on data, to the next station */
    uint64_t accounts_lost;             /* batches whose account never left */
    uint64_t rss_bytes; /* resident in its process at most; stages of one process say the same */
};

/* Measure something besides the model, while no batch is under way. With sizes: take part in
 * link_raw_pingpong(). With threads: how fast are products here (engine/speed)? That needs no
 * stage, so it may come before LOAD. With neither: how fast can this stage read its weights? */
struct msg_probe {
    const uint32_t *bytes; /* [n_bytes] sizes of raw messages, each 1 .. INT32_MAX */
    uint32_t n_bytes;      /* <= LINK_RAW_SIZES_MAX */
    uint32_t rounds;       /* 1 .. LINK_RAW_ROUNDS_MAX; 0 without sizes */
    uint32_t threads;      /* of products; 0 with sizes */
    uint32_t format, isa;  /* of their weights; kernels of this set, which the rank has */
    uint64_t weight_bytes; /* to go through */
};

/* The probe is over. The accounts of all batches have left before. */
struct msg_probed {
    uint64_t read_bytes_s; /* weights, with all threads; 0 where the question was another */
    uint64_t ops_s;        /* of products; 0 where nobody asked for them */
    uint64_t few_ops_s;    /* the same of products with few rows */
};

/* What does your clock say? The coordinator asks, the worker answers with the same asked_ns. */
struct msg_clock {
    uint64_t asked_ns; /* the coordinator's clock when it asked */
    uint64_t told_ns;  /* the worker's when it answered; 0 in the question */
};

/* The files of the model, for a worker that has none. Their headers and tensors it pulls. */
enum { MESSAGE_PARTS_MAX = 512 };
struct msg_model {
    uint64_t digest; /* as in HELLO */
    /* Another one when a file was written again: the digest does not see the tensors. */
    uint64_t stamp;
    uint32_t n_parts;
    const uint64_t *header_bytes, *file_bytes; /* [n_parts]; 1 <= header <= file */
};

/* Send me these bytes of a file of the model. They come as PIECEs, in order; those of several PULLs
 * in the order of the PULLs. At most MESSAGE_PULLS_MAX may be unanswered: that bounds what is under
 * way. */
enum { MESSAGE_PULLS_MAX = 32, MESSAGE_PULL_BYTES_MAX = 1 << 20 };
struct msg_pull {
    uint32_t part;
    uint64_t offset;
    uint32_t bytes; /* 1 .. MESSAGE_PULL_BYTES_MAX */
};

/* Some of them; on the weights channel. */
enum { MESSAGE_PIECE_BYTES_MAX = (1 << 18) - 128 };
struct msg_piece {
    uint32_t part;
    uint64_t offset;
    uint64_t digest;      /* digest_bytes() of them, as they were read */
    const uint8_t *bytes; /* [n_bytes], behind the head */
    uint32_t n_bytes;     /* 1 .. MESSAGE_PIECE_BYTES_MAX */
};

/* More of the scores of an earlier batch. */
struct msg_fetch {
    uint64_t batch_id; /* an earlier, unreleased batch */
    uint32_t wanted;   /* which of its wanted rows */
    struct score_need need;
};

/* One forward pass. needs[k] belongs to the k-th wanted row. */
struct msg_batch {
    uint64_t id;             /* 1, 2, 3 … */
    uint64_t release_before; /* score rows of batches with smaller ids are no longer needed */
    uint64_t idle_ns; /* that the line had no request before this batch; 0 while it is at work */
    uint32_t as_f32;  /* 0 or 1: its rows travel as floats, whatever LOAD.wire_format says */
    struct batch batch;
    const struct score_need *needs; /* [batch.n_wanted] */
    const struct msg_fetch *fetches;
    uint32_t n_fetches; /* <= credits */
};

/* The last stage's answer: heads of the wanted rows in order, then of the fetches. Raw rows travel
 * behind the message, in the order of the heads that have one. */
struct msg_result {
    uint64_t id;
    uint32_t n_heads;
    const struct score_head *heads; /* [n_heads] */
};

struct message {
    enum message_type type;
    union {
        struct msg_hello hello;
        struct msg_watch watch;
        struct msg_load load;
        struct msg_ready ready;
        struct msg_heartbeat heartbeat;
        struct msg_error error;
        struct msg_stop stop;
        struct msg_report report;
        struct msg_probe probe;
        struct msg_probed probed;
        struct msg_clock clock;
        struct msg_model model;
        struct msg_pull pull;
        struct msg_piece piece;
        struct msg_batch batch;
        struct msg_result result;
    } u;
};

#endif
