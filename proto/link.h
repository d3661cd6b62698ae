/* link - how frames travel: one interface, two transports (link_mpi between ranks, link_local
 * between threads).
 *
 * Endpoints are numbered like MPI ranks: 0 is the coordinator, 1 .. size-1 the stages in the order
 * of the line. Three channels:
 *
 *   LINK_DATA     a ring: endpoint r sends to r+1, the last one to 0. FIFO.
 *   LINK_CONTROL  a star: the coordinator to each worker and back. FIFO per pair.
 *   LINK_WEIGHTS  a star: the coordinator to each worker, for the bytes of a model's files, while
 *                 they load.
 *
 * Receives are posted ahead, sends are nonblocking. Nothing here blocks but link_wait(). All memory
 * is taken at open. One thread per endpoint.
 * Every function is "not collective" unless it says otherwise. */
#ifndef TANDEM_PROTO_LINK_H
#define TANDEM_PROTO_LINK_H

#include "engine/err.h"
#include "proto/link_emulate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum link_channel { LINK_DATA, LINK_CONTROL, LINK_WEIGHTS, LINK_CHANNELS };

enum { LINK_CONTROL_FRAME_MAX = 16384, LINK_WEIGHTS_FRAME_MAX = 1 << 18 };

/* How far waiting may back off. */
enum link_idle { LINK_IDLE_SLEEP, LINK_IDLE_YIELD, LINK_IDLE_SPIN };

struct link_counts {
    uint64_t sent_messages, sent_bytes, received_messages, received_bytes;
};

struct link;

int link_rank(const struct link *l);
int link_size(const struct link *l);

/* link_set_emulation() - frames of the data channel travel as on a wire of this delay and rate (see
 * link_emulate.h); control stays as fast as it is. The same on every endpoint, before
 * link_open_data(). */
void link_set_emulation(struct link *l, const struct link_emulation *e);
struct link_emulation link_emulation_of(const struct link *l);

/* link_set_neighbours() - data comes from and goes to these endpoints, and not to the next ones by
 * number: so that those between do not take part, in raw messages neither. Before
 * link_open_data(). */
void link_set_neighbours(struct link *l, int from, int to);

/* link_open_data() - take the buffers of the data channel and post its receives. Called once, when
 * the sizes of the line are settled. in_max, out_max: largest frame from the previous and to the
 * next endpoint; slots: frames that may be under way in each direction. ERR_MEMORY, ERR_CAPACITY (a
 * frame beyond INT_MAX). */
int link_open_data(struct link *l, size_t in_max, size_t out_max, unsigned in_slots,
                   unsigned out_slots, struct err *err);

/* link_open_weights() - take the buffers of the weights channel, a few of LINK_WEIGHTS_FRAME_MAX
 * each. Called once, by the coordinator and by each worker that is to receive. ERR_MEMORY.
 * link_close_weights() - give them back: a worker when it has all its frames, the coordinator when
 * all workers have theirs. */
int link_open_weights(struct link *l, struct err *err);
void link_close_weights(struct link *l);

/* link_send_begin() - a free, 64-byte aligned send buffer, *capacity bytes; NULL while all are
 * under way. Calling it again before link_send() gives the same buffer. to: ignored on data. */
uint8_t *link_send_begin(struct link *l, enum link_channel channel, int to, size_t *capacity);

/* link_send() - send the begun buffer's first len bytes. The buffer belongs to the link again. */
int link_send(struct link *l, enum link_channel channel, int to, size_t len, struct err *err);

/* link_receive() - the next frame that has arrived: returns ERR_NONE with *frame NULL when there is
 * none. The frame (64-byte aligned) stays valid until link_receive_done() on the same channel,
 * which must come before the next link_receive() on that channel. *from: who sent it. */
int link_receive(struct link *l, enum link_channel channel, int *from, const uint8_t **frame,
                 size_t *len, struct err *err);
void link_receive_done(struct link *l, enum link_channel channel);

/* link_wait() - back off until a frame may have arrived, a send slot may have become free, or
 * timeout_us passed. Spins briefly, then yields, then sleeps in short steps; an idle endpoint uses
 * < 5% of a core. May return early for no reason. link_made_progress() restarts the spinning: call
 * it when work was done. */
void link_wait(struct link *l, uint32_t timeout_us);
void link_made_progress(struct link *l);

/* link_pending_sends() - sends not yet complete, over all channels; 0 before a clean close. */
unsigned link_pending_sends(struct link *l);

struct link_counts link_counts(const struct link *l, enum link_channel channel);

/* link_raw_pingpong() - what a hop costs without this link: half the median round trip of plain
 * MPI_Send and MPI_Recv between neighbours (in one process: of a memory copy and a flag), hop by
 * hop, never emulated.
 *
 * bytes   [n] message sizes, n <= LINK_RAW_SIZES_MAX, each 1 .. INT_MAX.
 * rounds  timed round trips of each size at most, 1 .. LINK_RAW_ROUNDS_MAX, behind untimed ones.
 * us      [link_size][n] microseconds from r to its next endpoint; whole on the coordinator,
 *         scratch on the others.
 * Collective, with the same bytes, n and rounds everywhere, while no data frame is under way; those
 * whose hop is not being measured sleep. Takes up to 0.25 s a hop and size, and sends no
 * heartbeats.
 * Returns ERR_MEMORY, ERR_CAPACITY, ERR_RANK, ERR_PEER, ERR_STALL (nobody came). */
enum { LINK_RAW_SIZES_MAX = 64, LINK_RAW_ROUNDS_MAX = 10000 };
int link_raw_pingpong(struct link *l, const size_t *bytes, size_t n, uint32_t rounds, double *us,
                      struct err *err);

/* link_close() - MPI: collective (frees communicators, finalises). With abandon, it is not: pending
 * requests are dropped, nothing is waited for, and the caller ends the process. */
void link_close(struct link *l, bool abandon);

/* link_mpi_open() - collective. MPI_Init_thread(FUNNELED), two duplicated communicators, errors
 * returned. *out of a size-1 world is NULL: there is no line.
 * link_mpi_launched() - started by mpirun, srun or the like? (environment only) */
bool link_mpi_launched(void);
int link_mpi_open(struct link **out, enum link_idle idle, struct err *err);

/* link_mpi_abort() - end the whole job now with this status; does not return. Callable from any
 * rank. */
_Noreturn void link_mpi_abort(int status);

/* link_local_open() - size endpoints inside this process, endpoints[size] is filled; each is closed
 * by its own thread (link_close); memory goes with the last. */
int link_local_open(struct link **endpoints, int size, enum link_idle idle, struct err *err);

#endif
