/* pass - one forward pass in flight: what its threads share, and the operations that every layer is
 * made of.
 *
 * All threads of the team walk the same code. An operation takes its share of rows or panels and
 * returns without waiting; team_wait() stands where another thread's result is needed. How work is
 * shared never changes an order of sums.
 *
 * Station before: stage. Stations after: kernels. Used by layer and stage. */
#ifndef TANDEM_ENGINE_PASS_H
#define TANDEM_ENGINE_PASS_H

#include "engine/barrier.h"
#include "engine/kernels/kernels.h"
#include "engine/kv_cache.h"
#include "engine/rope.h"
#include "engine/stage.h"
#include "engine/weights.h"

enum {
    GROUP_ROWS = 16,        /* rows of a sequence that attend together */
    STAGE_BUFFERS_MAX = 20, /* arrays of struct buffers */
};

/* Rows [first, first + n) of the batch: one sequence, ascending positions. */
struct row_group {
    uint32_t first, n;
};

/* Which experts the rows of a batch go to: items (row, rank), the best first in rank. */
struct routing {
    uint32_t *expert; /* [rows][used] */
    float *weight;    /* [rows][used] */
    uint32_t *place;  /* [rows][used] where the item's row stands among those of all experts */
    uint32_t *first;  /* [experts + 1] where each expert's rows begin */
};

/* Everything that rows need on their way; sized at open for limits.rows_max rows and the widest
 * layer (model_row_sizes). */
struct buffers {
    float *x;      /* [rows][n_embd] the residual stream; NULL where the caller's out serves */
    float *normed; /* [rows][n_embd] */
    float *kept; /* [rows][n_embd] the feed-forward's input where that is not attention's result */
    float *wide; /* the regions of attention, feed-forward, experts, ...: each lays out its own */
    int8_t *q8;  /* [rows][widest input] quantised activations */
    float *q8_scale;  /* [rows][widest input / 32] */
    int32_t *q8_sum;  /* [rows][widest input / 32] */
    float *cos, *sin; /* [rows][rotary tables][n_rot / 2] */
    struct routing routing;
    struct row_group *groups; /* [rows] */
    float *parts;             /* [n_parts] results of tiles that threads share: see attend.c */
    uint64_t n_parts;
    uint32_t *wanted;               /* [wanted_max] rows whose scores are wanted */
    uint8_t *seen;                  /* [n_seqs] sequences met while checking a batch */
    uint64_t bytes;                 /* of all of these */
    void *taken[STAGE_BUFFERS_MAX]; /* all of these, to be freed */
    uint32_t n_taken;
};

struct pass {
    const struct model *model;
    const struct kernels *kernels;
    const struct weights *weights;
    const struct kv_cache *kv;
    const struct rope *rope;
    const struct buffers *buffers;
    const struct batch *batch;
    uint32_t first_layer; /* of the stage */
    uint32_t n_rows, n_groups;
    float *x; /* [n_rows][n_embd] */
    stage_progress_fn *progress;
    void *progress_ctx;
};

/* One thread's view of the team. */
struct team {
    uint32_t id, size;
    struct barrier *barrier; /* the team's */
    uint32_t layer;          /* at work, for progress() */
    uint64_t work;           /* multiply-adds since the clock was read; thread 0 */
    uint64_t last_tick_ns;   /* when progress() was called last; thread 0 */
};

/* team_share() - this thread's part of n items: [*from, *to). */
static inline void team_share(const struct team *t, size_t n, size_t *from, size_t *to)
{
    *from = n * t->id / t->size;
    *to = n * (t->id + 1) / t->size;
}

/* team_wait() - until every thread of the team has come here. */
static inline void team_wait(const struct team *t)
{
    if (t->size > 1) barrier_wait(t->barrier, t->size);
}

/* team_tick() - work was done, in multiply-adds or what takes as long: thread 0 calls progress()
 * when it is due. */
void team_tick(struct team *t, const struct pass *p, uint64_t work);

/* A product's input: rows of f32 and, where quantised is set, their q8 form in the
 * pass's buffers. */
struct input {
    float *rows; /* [n][n_in] gapless */
    size_t n, n_in;
    bool quantised;
    size_t q8_row; /* of the buffers, where the q8 form of the first row is */
};

/* What a product gives: y[r] = W x[r] (+ bias), rows stride apart; and where residual is set,
 * residual[r] += residual_scale y[r], rows residual_stride apart. */
struct output {
    float *y;
    size_t stride;
    const float *bias;
    float *residual;
    size_t residual_stride;
    float residual_scale;
};

/* pass_norm() - in.rows[i] = norm(x[index ? index[i] : i]), quantised if in.quantised. A share of
 * rows each. */
void pass_norm(const struct pass *p, struct team *t, const struct input *in, const float *weight,
               const float *bias, const uint32_t *index);

/* pass_quantise() - the q8 form of an input that is f32 so far. A share of blocks each. No-op
 * unless in.quantised. */
void pass_quantise(const struct pass *p, struct team *t, const struct input *in);

/* pass_share_panels() - the panels of a product of n_out columns that are this thread's:
 * [*from, *to). */
void pass_share_panels(const struct pass *p, const struct team *t, size_t n_out, size_t *from,
                       size_t *to);

/* pass_product() - a share of panels each; thread-local in its columns: the same thread may use
 * them without waiting. pass_whole_product() - all panels by this thread: for many small products
 * of which each thread takes some. */
void pass_product(const struct pass *p, struct team *t, const struct weight *w,
                  const struct input *in, const struct output *out);
void pass_whole_product(const struct pass *p, struct team *t, const struct weight *w,
                        const struct input *in, const struct output *out);

/* pass_project() - the product of a layer's tensor and its bias, columns of y from 0 on; nothing
 * where the tensor is absent. */
void pass_project(const struct pass *p, struct team *t, uint32_t layer, enum tensor_id id,
                  enum tensor_id bias, const struct input *in, float *y, size_t stride);

/* What leads back to the residual stream: a product, its bias, and a norm of the result. */
struct way_back {
    enum tensor_id weight, bias, post_norm;
};

/* pass_rejoin() - x += residual_scale * norm(W in), complete for all threads on return. The input
 * must be complete; it is quantised here if the weight wants that. */
void pass_rejoin(const struct pass *p, struct team *t, uint32_t layer, const struct way_back *way,
                 struct input *in);

/* pass_rejoin_rows() - the same for results that stand in buffers.normed, of which this thread
 * needs its share of rows only. */
void pass_rejoin_rows(const struct pass *p, struct team *t, uint32_t layer,
                      enum tensor_id post_norm);

/* pass_reads_q8() - does the weight (NULL: no) read quantised activations? */
static inline bool pass_reads_q8(const struct weight *w)
{
    return w != NULL && w->kernels->reads_q8;
}

#endif
