/* journal - what is known of each batch: when the coordinator sent it and had its answer, and what
 * every stage booked.
 *
 * Batches are numbered 1, 2, 3 ... and each passes every stage, so a record is found by its number;
 * the latest `capacity` batches are kept. Stages before: pipeline (flights), roster (accounts,
 * layer marks and clocks, as they come with the heartbeats). Stages after: overlap, line_stats, the
 * trace. All memory is taken at open and touched only as batches come. */
#ifndef TANDEM_COORDINATOR_LINE_JOURNAL_H
#define TANDEM_COORDINATOR_LINE_JOURNAL_H

#include "coordinator/line/clock_pair.h"
#include "engine/err.h"
#include "proto/message.h"

/* A batch as the coordinator saw it, by its own clock. */
struct journal_flight {
    uint64_t id;
    uint32_t rows;
    uint64_t seen;                   /* positions that its rows see, added up */
    uint32_t sent_bytes, home_bytes; /* of the frames that left and came home */
    bool decodes;                    /* holds rows of sequences that decode */
    bool waited;                     /* the coordinator was waiting when the answer came */
    uint64_t begun_ns;               /* it began to fill the batch */
    uint64_t sent_ns;                /* the frame was handed to the link */
    uint64_t done_ns;                /* the link had taken it */
    uint64_t home_ns;                /* the answer was at hand; 0: not yet */
    uint64_t landed_ns;              /* the tokens were chosen; 0: not yet */
};

struct journal;

enum journal_depth {
    JOURNAL_SHORT,  /* the latest few hundred batches */
    JOURNAL_LONG,   /* tens of thousands */
    JOURNAL_LAYERS, /* and the layer marks */
};
int journal_open(struct journal **out, uint32_t n_stages, enum journal_depth depth,
                 struct err *err);
void journal_close(struct journal *j); /* NULL is allowed */

/* journal_add_flight() - a new batch. journal_flight(): NULL where it is not kept. */
void journal_add_flight(struct journal *j, const struct journal_flight *f);
struct journal_flight *journal_flight(struct journal *j, uint64_t id);
const struct journal_flight *journal_find_flight(const struct journal *j, uint64_t id);

/* journal_note() - the accounts and marks of a heartbeat from a stage. */
void journal_note(struct journal *j, uint32_t stage, const struct msg_heartbeat *beat);

/* journal_account() - of a batch; NULL where it is not kept. Its instants are of the stage's clock:
 * journal_clock(). */
const struct msg_account *journal_account(const struct journal *j, uint32_t stage, uint64_t id);

/* journal_first(), journal_last() - the numbers of the batches that may be kept; last is 0 before
 * the first one. */
uint64_t journal_first(const struct journal *j);
uint64_t journal_last(const struct journal *j);

/* The layer marks of a stage, oldest first. */
uint64_t journal_mark_count(const struct journal *j, uint32_t stage);
const struct msg_layer_mark *journal_mark_at(const struct journal *j, uint32_t stage, uint64_t i);

/* journal_clock_pair() - how the stage's clock and the coordinator's compare; all 0 where nobody
 * measured. journal_clock() - an instant of the stage's clock on the coordinator's. */
struct clock_pair *journal_clock_pair(struct journal *j, uint32_t stage);
const struct clock_pair *journal_find_clock_pair(const struct journal *j, uint32_t stage);
uint64_t journal_clock(const struct journal *j, uint32_t stage, uint64_t stage_ns);

#endif
