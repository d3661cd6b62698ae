/* sequence - one request on its way through the line: its tokens, how far they are, its sampler and
 * blocks.
 *
 *   QUEUED ── it fits ──► PROMPT ── all its tokens sent ──► DECODE ──► DONE
 *      ▲                    │                                 │
 *      └──────────── others need its KV blocks ───────────────┘
 *
 * A decoding sequence is in at most one batch; the chunks of a prompt follow each other without
 * waiting. Who had to leave the line comes back with all its tokens as its prompt: the cache that
 * they give, and the sampler, which stayed, are the same as before. */
#ifndef TANDEM_COORDINATOR_LINE_SEQUENCE_H
#define TANDEM_COORDINATOR_LINE_SEQUENCE_H

#include "coordinator/line/line.h"

enum sequence_state { SEQUENCE_QUEUED, SEQUENCE_PROMPT, SEQUENCE_DECODE, SEQUENCE_DONE };

enum { SEQUENCE_NO_SLOT = UINT32_MAX };

/* A block table: entries first .. n-1 are held, those before have left the window; the stages know
 * the first `told` of them. */
struct sequence_blocks {
    uint32_t *block; /* [capacity / 32 + 1] */
    uint32_t first, n, told;
    /* Where sequence.copies: held until the stages are told to copy it to the last block. */
    uint32_t copy_from;
};

struct sequence {
    uint32_t request;
    enum sequence_state state;
    enum line_finish finish;      /* in DONE */
    int32_t end_token;            /* of LINE_FINISH_STOP */
    bool told;                    /* the front end has had LINE_EVENT_FINISHED */
    struct sequence *next_done;   /* scheduler's list of those to be told */
    struct sequence *next_queued; /* request_queue's */
    uint32_t overtaken;           /* in the queue, by others */

    int32_t *tokens; /* [capacity] prompt, then what was chosen */
    uint32_t n_prompt, n_tokens, capacity;
    uint32_t n_sent;    /* positions that are in the line's cache, or on their way there */
    uint32_t n_begun;   /* the first of them that it had to send, since it came into the line */
    uint32_t n_home;    /* positions whose batches have come home once */
    uint32_t n_cached;  /* positions of the prompt that were in the cache already */
    bool copies;        /* its last block begins as a copy of what another has */
    uint32_t n_chained; /* full blocks that the prefix index knows */
    uint32_t in_flight; /* batches under way that hold rows of it */
    uint32_t slot;      /* its number on the stages */
    struct sequence_blocks blocks[KV_CLASSES_MAX]; /* its tables, one a cache class */

    struct sampler *sampler; /* NULL when no token will be chosen */
    float temperature;
    enum line_scores scores;
    bool (*is_end)(const void *ctx, int32_t token);
    const void *is_end_ctx;

    /* A head proved too short: ask for the whole row again, from this batch. */
    bool fetch;
    uint64_t fetch_batch;
    uint32_t fetch_wanted;
    uint64_t held_batch; /* 0, or the batch whose score rows it may still need */
};

/* sequence_open() - copy and check the request; QUEUED. n_ctx: tokens at most. */
int sequence_open(struct sequence **out, const struct line_request *r, uint32_t request,
                  uint32_t n_ctx, int32_t n_vocab, struct err *err);
void sequence_close(struct sequence *s); /* NULL is allowed; its blocks must have been given back */

/* sequence_add_token() - the token that was chosen for position n_tokens. Returns what that means:
 * it goes on, or the token is an end token (not kept, see end_token), or it was the last
 * that fits. */
enum sequence_step { SEQUENCE_GOES_ON, SEQUENCE_ENDS, SEQUENCE_FULL };
enum sequence_step sequence_add_token(struct sequence *s, int32_t token);

#endif
