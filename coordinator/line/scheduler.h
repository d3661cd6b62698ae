/* scheduler - which rows go next, so that every stage has work, and whose KV blocks make room.
 *
 * A simple policy: decode rows first, then prompt chunks in the rest of the row budget. Sequences
 * that decode are dealt evenly into groups, one for each stage that can compute at the same time
 * as the others: stages that share cores would only read their weights more often. Whoever waits
 * comes in when its tokens fit (request_queue). When one in the line needs a block and none is
 * left, the youngest goes back to the queue; the oldest is never sent away, so it finishes, and so
 * does everybody in the end.
 * Station before: line (submitted requests). Station after: pipeline (sends the flight). */
#ifndef TANDEM_COORDINATOR_LINE_SCHEDULER_H
#define TANDEM_COORDINATOR_LINE_SCHEDULER_H

#include "coordinator/line/block_tables.h"
#include "coordinator/line/cost_model.h"
#include "coordinator/line/flight.h"

/* scheduler_chunk_max() - prompt rows of a batch at most, where none are asked for: as many as
 * leave something to do for every stage. waiting: prompt rows that wait at most. */
uint64_t scheduler_chunk_max(uint32_t n_stages, uint64_t waiting);

/* scheduler_groups() - batches under way at once, where so many sequences decode and so many stages
 * compute at the same time. */
uint32_t scheduler_groups(uint32_t n_lanes, uint32_t n_decoding);

struct scheduler;

struct scheduler_config {
    uint32_t n_stages;
    uint32_t n_lanes; /* stages that compute at the same time; 0: all of them */
    uint32_t n_seqs;
    uint32_t rows_max;              /* of a batch */
    uint32_t chunk;                 /* prompt rows of a batch; 0: by what they cost */
    const struct cost_model *costs; /* outlives the scheduler */
    uint32_t wanted_max;
    uint32_t credits;
    uint32_t n_vocab;
    uint32_t n_kv_classes;
    struct block_tables *tables; /* outlives the scheduler */
};

int scheduler_open(struct scheduler **out, const struct scheduler_config *config, struct err *err);
void scheduler_close(struct scheduler *sc); /* NULL is allowed; closes its sequences */

/* scheduler_add() - take over a queued sequence. Its request number must be scheduler_count(). */
int scheduler_add(struct scheduler *sc, struct sequence *s, struct err *err);
uint32_t scheduler_count(const struct scheduler *sc);

/* scheduler_find() - by request number; NULL for one that was never added or is gone. */
struct sequence *scheduler_find(struct scheduler *sc, uint32_t request);

/* scheduler_limits() - the sizes that a flight of this scheduler needs. */
struct flight_limits scheduler_limits(const struct scheduler *sc);

/* scheduler_fill() - put what should go next into f (cleared); false when nothing should go now.
 * in_air: flights under way; decode_in_air: those of them that hold decode rows. */
bool scheduler_fill(struct scheduler *sc, struct flight *f, uint32_t in_air,
                    uint32_t decode_in_air);

/* scheduler_limit_rows() - from now on a batch has so many rows at most: 1 .. config.rows_max. */
void scheduler_limit_rows(struct scheduler *sc, uint32_t rows);

/* scheduler_land() - f is home and its answers are handed out. */
void scheduler_land(struct scheduler *sc, struct flight *f);

/* scheduler_finish() - s has ended: it leaves the line, and waits to be told to the front end. Once
 * a sequence. */
void scheduler_finish(struct scheduler *sc, struct sequence *s, enum line_finish how);

/* scheduler_next_done() - take the next finished sequence to be told, oldest first; NULL where none
 * is. It stays valid until scheduler_tell_done(), which gives it back. */
struct sequence *scheduler_next_done(struct scheduler *sc);
void scheduler_tell_done(struct scheduler *sc, struct sequence *s);

/* scheduler_oldest_held() - the smallest batch id that a sequence still needs score rows of;
 * UINT64_MAX: none. */
uint64_t scheduler_oldest_held(const struct scheduler *sc);

/* scheduler_preemptions() - how often a sequence had to leave the line to make room. */
uint64_t scheduler_preemptions(const struct scheduler *sc);

/* scheduler_idle() - every request that was added is finished and told. */
bool scheduler_idle(const struct scheduler *sc);

/* scheduler_has_work() - a request that was added is not finished. */
bool scheduler_has_work(const struct scheduler *sc);

#endif
