/* capacity - the sizes of a line, what each worker needs for them, and whether it may have that.
 *
 * Pure but for a warning: no ranks, no clock. Stations before: line (what is asked for; what the
 * workers said in HELLO), front/inspect. Station after: line, which loads only what fits. */
#ifndef TANDEM_COORDINATOR_LINE_CAPACITY_H
#define TANDEM_COORDINATOR_LINE_CAPACITY_H

#include "engine/model.h"
#include "proto/message.h"
#include "proto/wire_rows.h"

/* What a line is asked for. */
struct capacity_wish {
    const struct model *model;
    uint32_t n_stages;
    /* Stages that the sizes shall do for, where some may still be left out; 0: n_stages. */
    uint32_t n_stages_max;
    uint32_t n_ctx;         /* positions of a sequence; 0: a default */
    uint32_t n_ctx_min;     /* below so many the work would fail; 0: unknown */
    uint32_t n_seqs, chunk; /* chunk 0: a default */
    uint32_t kv_tokens;     /* positions of the KV pool, over all sequences; 0: all they may have */
    enum kv_format kv;
    enum wire_format wire;
    bool tokens_only; /* one wanted row a sequence and batch is enough */
};

/* capacity_settle() - the limits that follow from it. ERR_CAPACITY: beyond what the model has
 * positions for, or more blocks than can be numbered. */
int capacity_settle(const struct capacity_wish *w, struct line_limits *out, struct err *err);

/* capacity_warn_of_context() - in the log, where sequences may become longer than the model was
 * trained for. */
void capacity_warn_of_context(const struct model *m, const struct line_limits *l);

/* capacity_need() - what the worker of a range takes: buffers are the stage's and the worker's own.
 * Besides it every process takes about CAPACITY_PROGRAM_BYTES: the program, MPI, small messages.
 * Advice counts with CAPACITY_ADVICE_BYTES instead, because a little more may be in use at the next
 * start. */
enum { CAPACITY_PROGRAM_BYTES = 16 << 20, CAPACITY_ADVICE_BYTES = 2 * CAPACITY_PROGRAM_BYTES };
struct footprint capacity_need(const struct model *m, struct layer_range range,
                               const struct line_limits *l);
/* capacity_working() - the same without weights, as model_working_bytes(). */
struct footprint capacity_working(const struct model *m, struct layer_range range,
                                  const struct line_limits *l);
uint64_t capacity_total(const struct footprint *f);

/* capacity_bound() - the least of what a worker may have, were it alone on its host, and the name
 * of the limit, which lives as long as h; UINT64_MAX and "no limit" where none is known. */
uint64_t capacity_bound(const struct msg_hello *h, const char **name);

/* capacity_share() - what worker i of n may have, when those that share a limit share it evenly;
 * UINT64_MAX where none is known. */
uint64_t capacity_share(const struct msg_hello *const *hellos, uint32_t n, uint32_t i);

/* capacity_check() - may every worker have what its range needs? Workers of one host share its
 * memory, those of one control group its limit, stages of one process its ulimit. hellos
 * [n_stages], in the order of the line. Returns ERR_CAPACITY, saying who needs what for what, who
 * limits it, and the smallest changes of which each alone would fit; err's who is
 * set. ERR_MEMORY. */
int capacity_check(const struct capacity_wish *w, const struct layer_range *ranges,
                   const struct msg_hello *const *hellos, struct err *err);

#endif
