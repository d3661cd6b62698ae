/* flight - one batch on its way through the line: what was put in, and for whom the answers are.
 *
 * Stations: scheduler fills it, pipeline sends it and brings it back, line hands out
 * its answers. */
#ifndef TANDEM_COORDINATOR_LINE_FLIGHT_H
#define TANDEM_COORDINATOR_LINE_FLIGHT_H

#include "coordinator/line/sequence.h"

/* The rows of one sequence in a batch: rows first .. first+n_rows-1 of the flight. */
struct flight_part {
    struct sequence *sequence;
    uint32_t first, n_rows;
};

/* For whom a head of the RESULT is. */
struct flight_head {
    struct sequence *sequence;
    uint32_t position; /* of the row whose scores these are */
};

struct flight {
    uint64_t id;       /* 0: free */
    bool decodes;      /* holds decode rows */
    bool as_f32;       /* its rows travel as floats, whatever the line's form */
    uint64_t begun_ns; /* when filling began */
    uint64_t idle_ns;  /* how long the line had no request before this */
    uint32_t n_rows, n_wanted, n_commands, n_fetches, n_parts;
    uint64_t seen;                   /* positions that its rows see, added up */
    int32_t *token;                  /* [rows_max] */
    uint32_t *seq;                   /* [rows_max] */
    uint32_t *pos;                   /* [rows_max] */
    uint8_t *wanted;                 /* [rows_max] */
    struct kv_command *commands;     /* [commands_max] */
    struct score_need *needs;        /* [wanted_max] */
    struct msg_fetch *fetches;       /* [credits] */
    struct flight_head *heads;       /* [wanted_max] */
    struct flight_head *fetch_heads; /* [credits] */
    struct flight_part *parts;       /* [rows_max] */
    /* What the answer may take, so that it stays inside the frame. */
    uint32_t n_pairs, n_raw_rows, n_adjusts;
};

struct flight_limits {
    uint32_t rows_max, wanted_max, commands_max, credits, n_vocab;
};

int flight_open(struct flight *f, const struct flight_limits *limits, struct err *err);
void flight_close(struct flight *f); /* a zeroed flight is allowed */

/* flight_head_at() - for whom the k-th head of the RESULT is: wanted rows first, then fetches. */
const struct flight_head *flight_head_at(const struct flight *f, uint32_t k);

/* flight_clear() - empty it for the next batch. */
void flight_clear(struct flight *f, uint64_t id);

#endif
