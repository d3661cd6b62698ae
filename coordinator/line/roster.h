/* roster - who works in this line: what each worker said, when it was last heard of, and whether it
 * is well.
 *
 * The coordinator's end of the control channel.
 * Stations: proto/link; line opens, asks and stops through it. */
#ifndef TANDEM_COORDINATOR_LINE_ROSTER_H
#define TANDEM_COORDINATOR_LINE_ROSTER_H

#include "coordinator/line/journal.h"
#include "engine/isa.h"
#include "engine/model.h"
#include "proto/link.h"
#include "proto/message.h"

enum roster_answer { ROSTER_HELLO, ROSTER_READY, ROSTER_REPORT, ROSTER_ANSWERS };

/* One worker. Strings inside the messages are copies that live as long as the roster. */
struct member {
    int rank;
    bool answered[ROSTER_ANSWERS];
    struct msg_hello hello;
    struct msg_ready ready;
    struct msg_report report;
    struct msg_heartbeat beat; /* without its accounts and marks: the journal has them */
    struct clock_round clock;  /* the latest answer */
    bool is_probing;           /* a PROBE is not answered yet */
    struct msg_probed probed;  /* the latest answer */
    uint64_t heard_ns;
    uint32_t stage; /* its index in the roster */
    bool has_range;
    struct layer_range range;
    struct tensor_digest digests[TENSOR_DIGESTS_MAX]; /* those of ready */
    char host[256], version[64], family[64], cgroup[256], ulimit[32];
};

struct roster;

/* roster_open() - accounts go into journal, which must outlive the roster. stall_ms: how long a
 * worker may be silent; 0: STALL_MS_DEFAULT. Asks the first worker to look after this process
 * (WATCH). */
int roster_open(struct roster **out, struct link *l, struct journal *journal, uint32_t stall_ms,
                struct err *err);
void roster_close(struct roster *r); /* NULL is allowed */

/* Those who have a part in the line, in its order: at first all, by rank. */
uint32_t roster_size(const struct roster *r);
struct member *roster_at(struct roster *r, uint32_t index);

/* After all have said HELLO. roster_hellos() - what they said, in the order of the line: fills
 * hellos[roster_size]. roster_isa() - the best instruction set that all have. */
void roster_hellos(const struct roster *r, const struct msg_hello *hellos[]);
enum isa roster_isa(struct roster *r);

/* roster_leave_out() - this one has no part in the line: the others close up. It is looked after as
 * they are, and told to stop with them. Before anybody is asked to load. */
void roster_leave_out(struct roster *r, uint32_t index);

/* roster_poll() - take what came in, and look after everybody.
 * Returns ERR_RANK (a worker reported an error, with its code in its place; or one is dead),
 * ERR_STALL (one was silent for too long), ERR_INTERRUPTED (a signal came), ERR_FILE (weights
 * cannot be read for a worker). The error's who names the worker. On SIGUSR2 (engine/state_dump) it
 * says of each worker what it last heard. */
int roster_poll(struct roster *r, struct err *err);

/* roster_await() - poll until everybody has given this answer. on_load may be NULL. */
int roster_await(struct roster *r, enum roster_answer answer,
                 void (*on_load)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                 struct err *err);

/* roster_serve_weights() - send MODEL to every worker whose HELLO wants it, and from now on
 * whatever bytes of the model's files they ask for, whenever the roster is polled. file outlives
 * that. ERR_MEMORY, ERR_CAPACITY (too many parts). */
int roster_serve_weights(struct roster *r, const struct gguf *file, struct err *err);
/* roster_end_weights() - every worker is ready, and has all it needs. */
void roster_end_weights(struct roster *r);

/* roster_send() - to one worker. */
int roster_send(struct roster *r, uint32_t index, const struct message *m, struct err *err);

/* roster_read_clock() - ask a worker for its clock a few times; *reading: the best round. */
int roster_read_clock(struct roster *r, uint32_t index, struct clock_reading *reading,
                      struct err *err);

/* roster_probe() - PROBE to one worker; roster_await_probed() - poll until it has answered. */
int roster_probe(struct roster *r, uint32_t index, const struct msg_probe *probe, struct err *err);
int roster_await_probed(struct roster *r, uint32_t index, struct err *err);

/* roster_raw_hops() - what link_raw_pingpong() says of those with a part in the line: us
 * [roster_size + 1][n], hop i ends at stage i, the last one at the coordinator. */
int roster_raw_hops(struct roster *r, const uint32_t *bytes, uint32_t n, uint32_t rounds,
                    double *us, struct err *err);

/* roster_stop() - STOP to everybody, as far as they can be reached. idle_ns: how long the line has
 * had no request. */
void roster_stop(struct roster *r, uint64_t idle_ns);

#endif
