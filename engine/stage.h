/* stage - one layer range of a model, opened for work: weights packed, KV pool and buffers taken.
 *
 * Everything is allocated at open; stage_forward() allocates nothing and does no I/O. One caller at
 * a time; inside, an OpenMP team of config.threads works in one parallel region per forward pass.
 * Bitwise promise: the result of a row depends on the weights, the instruction set, and the tokens
 * of its own sequence alone; not on the other rows, the split of layers or the number of threads.
 * Stations before: worker/exec (a batch). Stations inside: weights, kv_cache, layer, kernels. */
#ifndef TANDEM_ENGINE_STAGE_H
#define TANDEM_ENGINE_STAGE_H

#include "engine/batch.h"
#include "engine/digest.h"
#include "engine/isa.h"
#include "engine/model.h"
#include "engine/weight_source.h"

#include <stdbool.h>

struct stage;

/* progress() is called by the opening or forwarding thread at least every 50 ms where the work
 * allows it: between layers, between panels of a large product, between tensors of a load. It must
 * not call back into the stage. layer: the one at work; done/total: bytes of the load (total 0 in
 * forward). */
typedef void stage_progress_fn(void *ctx, uint32_t layer, uint64_t done, uint64_t total);

struct stage_config {
    const struct model *model; /* outlives the stage */
    struct layer_range range;
    struct line_limits limits;
    enum isa isa;
    enum matmul_choice matmul;
    /* Of the tensors' bytes, for stage_open(); NULL: the model's own files. */
    const struct weight_source *source;
    uint32_t threads;            /* >= 1 */
    stage_progress_fn *progress; /* may be NULL */
    void *progress_ctx;
    /* Call it, too, when each layer of a pass begins, and, as layer n_layer, the output head. */
    bool progress_layers;
};

/* stage_open() - read and pack the range's tensors, take the KV pool and the buffers.
 * Returns ERR_MEMORY (what was asked for, and how much), ERR_FILE (a tensor is cut or has a value
 * that is not finite where that shows at load), ERR_CAPACITY, and what the source returns. */
int stage_open(struct stage **out, const struct stage_config *config, struct err *err);
void stage_close(struct stage *st); /* NULL is allowed */

/* What was taken, in bytes, counted at the allocations. */
struct footprint stage_usage(const struct stage *st);

/* stage_digests() - [*n], of each tensor outside of layers that this stage has read. They live as
 * long as the stage. */
const struct tensor_digest *stage_digests(const struct stage *st, uint32_t *n);

/* stage_stream() - read the weights once, as fast as memory gives them, with the stage's threads:
 * the limit of decoding. Returns the bytes read, about max at most. */
uint64_t stage_stream(const struct stage *st, uint64_t max);

/* stage_forward() - obey the batch's commands, then run this stage's layers over its rows.
 *
 * in    first stage: NULL, rows are looked up from b->token;
 *       other stages: f32 [b->n_rows, n_embd], row-major, read only.
 * out   last stage: f32 [b->n_wanted, n_vocab], in row order;
 *       other stages: f32 [b->n_rows, n_embd].
 *       Caller-owned, 64-byte aligned, must not overlap in; undefined after an error.
 * Pre   b->n_rows <= limits.rows_max (0 rows: commands only).
 * Post  every row is in the KV cache; after an error the affected sequences must be trimmed by a
 *       command.
 * Cost  no allocation, no I/O.
 * Returns ERR_PEER for a batch that breaks its rules (an unmapped block, a token, sequence,
 * position or block out of range: named), else ERR_NONE. Checked completely before anything
 * changes. */
int stage_forward(struct stage *st, const struct batch *b, const float *in, float *out,
                  struct err *err);

#endif
