/* plan_work - what a batch asks of each layer and of the output head: bytes to read, operations to
 * do; and how long that takes at a given speed. Pure.
 *
 * A stage reads its weights once a batch, and multiplies every row with them; a row reads what is
 * cached of the positions that it sees. Work is a time when it is divided by two speeds, that of
 * reading and that of computing, which add up: engine/speed measures them so.
 * Station before: model. Station after: coordinator/line/planner. */
#ifndef TANDEM_ENGINE_PLAN_WORK_H
#define TANDEM_ENGINE_PLAN_WORK_H

#include "engine/model.h"

/* Of a layer, or of the output head. */
struct plan_work {
    double bytes;          /* of weights, packed, read by every batch */
    double row_ops;        /* of a row; a multiplication and an addition are two */
    double expert_bytes;   /* of all experts: read as far as the rows choose them */
    double expert_ops;     /* of a row that goes through all of them */
    double position_bytes; /* cached, of a position */
    double position_ops;   /* of a row that sees it */
    uint32_t window;       /* positions that a row sees at most; 0: all */
};

struct plan_model_work {
    uint32_t n_layer;
    double chosen_share;     /* of the experts, by one row; 0: there are none */
    struct plan_work *layer; /* [n_layer] */
    struct plan_work head;   /* final norm and output head, on rows that want scores */
    uint32_t main_format;    /* the number format with most bytes */
};

/* plan_work_read() - of a model. On success the caller owns *out: plan_work_free(). ERR_MEMORY. */
int plan_work_read(struct plan_model_work *out, const struct model *m, enum kv_format kv,
                   struct err *err);
void plan_work_free(struct plan_model_work *w); /* a zeroed struct is allowed */

/* Rows of a batch: of n_seqs sequences, each row seeing `context` positions. */
struct plan_batch {
    double rows, n_seqs, wanted; /* wanted: rows that want scores */
    double context;
};

/* How fast a rank is; engine/speed measures it. */
enum { PLAN_FEW_ROWS = 8 }; /* kernels do less in a second with so many than with many */
struct plan_speed {
    double read_bytes_s; /* packed weights that come in, and are worked off, in a second */
    double ops_s;        /* a multiplication and an addition are two */
    double few_ops_s;    /* of the first PLAN_FEW_ROWS rows of a product; 0: as ops_s */
};

/* plan_layer_seconds(), plan_head_seconds() - of one batch. */
double plan_layer_seconds(const struct plan_model_work *w, uint32_t layer,
                          const struct plan_batch *b, const struct plan_speed *s);
double plan_head_seconds(const struct plan_model_work *w, const struct plan_batch *b,
                         const struct plan_speed *s);

#endif
