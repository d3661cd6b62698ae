/* ledger - where a stage's time went, in nanoseconds of the monotonic clock.
 *
 * A stage's work is a chain of sections, each booked into a column when it ends: wait or idle,
 * control, send, compute, send, control, wait ... What is done in between (a heartbeat from inside
 * a forward pass) is a section inside a section, and counts once, as control. No column is what is
 * left over of another: time that nobody books is missing from the sum, and shows as "other" in the
 * report.
 * Station before: worker. Stations after: HEARTBEAT (the account of each batch) and REPORT (the
 * totals). */
#ifndef TANDEM_WORKER_LEDGER_H
#define TANDEM_WORKER_LEDGER_H

#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>

enum ledger_column {
    LEDGER_COMPUTE, /* a forward pass */
    LEDGER_WAIT,    /* from being ready for a frame to having one, while the line had work */
    LEDGER_SEND,    /* from a filled frame to link_send() having taken it, free slot included */
    LEDGER_CONTROL, /* reading messages, heartbeats, answers */
    LEDGER_IDLE,    /* as LEDGER_WAIT, while the line had no request; and probes */
    LEDGER_COLUMNS
};

/* Accounts that have not left yet: a few heartbeats' worth. */
enum { LEDGER_ACCOUNTS = 4 * MESSAGE_ACCOUNTS_MAX, LEDGER_MARKS = 8 * MESSAGE_MARKS_MAX };

struct ledger {
    uint64_t batches, rows;
    uint64_t total_ns[LEDGER_COLUMNS];
    uint64_t closed_ns[LEDGER_COLUMNS]; /* of total_ns: what is in accounts */
    uint64_t opened_ns, mark_ns;        /* the section at hand began at mark_ns */
    uint64_t inner_ns;                  /* booked inside the section at hand */
    uint64_t gap_ns;                    /* the last section of LEDGER_WAIT, until it is split */
    struct msg_account accounts[LEDGER_ACCOUNTS]; /* rings: number i is at i % their size */
    struct msg_layer_mark marks[LEDGER_MARKS];
    uint64_t first_account, next_account; /* what has not left */
    uint64_t first_mark, next_mark;
    uint64_t lost; /* accounts that were overwritten */
};

/* ledger_open() - everything is 0, and the first section begins. */
void ledger_open(struct ledger *g);

/* ledger_book() - the section at hand ends now and was this column's; the next one begins. Returns
 * now. */
uint64_t ledger_book(struct ledger *g, enum ledger_column column);

/* ledger_split_wait() - of the last section of LEDGER_WAIT the first idle_ns, at most all of it,
 * was idle. Once each: what a gap was is only known when the message that ended it has
 * been read. */
void ledger_split_wait(struct ledger *g, uint64_t idle_ns);

/* ledger_book_inner() - what was done since begin_ns, inside whatever section is at hand, was this
 * column's. */
void ledger_book_inner(struct ledger *g, enum ledger_column column, uint64_t begin_ns);

/* ledger_close_batch() - all that was booked since the last batch is this one's. a: id, rows, bytes
 * and instants. */
void ledger_close_batch(struct ledger *g, const struct msg_account *a);

/* ledger_mark_layer() - a layer of a batch begins now. The same one again, or one too many:
 * nothing. */
void ledger_mark_layer(struct ledger *g, uint64_t batch_id, uint32_t layer);

/* ledger_load() - the oldest accounts and marks that have not left, as many as a heartbeat takes,
 * into it. ledger_unload() - they have left. ledger_is_due(): a heartbeat is full. */
void ledger_load(const struct ledger *g, struct msg_heartbeat *beat);
void ledger_unload(struct ledger *g, const struct msg_heartbeat *beat);
bool ledger_is_due(const struct ledger *g);
bool ledger_is_empty(const struct ledger *g);

#endif
