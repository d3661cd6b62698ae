/* weights - the tensors of one layer range, packed as the kernels want them.
 *
 * Matrices become panels in the file's number format (kernels.h), vectors and position rows f32.
 * The bytes are read once, in the order in which the files have them, into buffers of a few
 * megabytes, and packed from there: the peak is what is held and those buffers. What stands outside
 * of layers, so that other stages may hold it, too, is digested as it is read.
 *
 * Stations before: model (which tensors), weight_source (their bytes), kernels (pack).
 * Stations after: layer and stage. */
#ifndef TANDEM_ENGINE_WEIGHTS_H
#define TANDEM_ENGINE_WEIGHTS_H

#include "engine/digest.h"
#include "engine/kernels/kernels.h"
#include "engine/model.h"
#include "engine/weight_source.h"

/* One tensor as held. Either panels (kernels is set) or values. Several matrices stand one behind
 * the other: panels is the first of them. */
struct weight {
    const struct format_kernels *kernels;
    struct panels panels;
    size_t n_matrices, matrix_bytes;
    float *values; /* [rows][n_in] of panels.n_out rows; a vector is one row */
};

struct weights {
    struct layer_range range;
    struct weight *slots; /* [1 + layers of the range][TENSOR_COUNT]; outside of layers first */
    uint64_t bytes;
    struct tensor_digest digests[TENSOR_DIGESTS_MAX];
    uint32_t n_digests;
};

/* Called while loading, by the calling thread. done: bytes held so far. */
typedef void weights_progress_fn(void *ctx, uint32_t layer, uint64_t done);

struct weights_order {
    const struct model *model;
    struct layer_range range;
    const struct kernels *kernels;      /* outlives the weights */
    const struct weight_source *source; /* NULL: the model's own files */
    uint32_t threads;
    weights_progress_fn *progress; /* may be NULL; at most 512 KiB is read between two calls */
    void *progress_ctx;
};

/* weights_load() - read and pack the tensors of a range with a team of threads. On success the
 * caller owns *w (weights_free); after an error there is nothing to free. Returns ERR_MEMORY
 * (tensor and bytes), ERR_UNSUPPORTED (a format without kernels), ERR_FILE (a vector holds a value
 * that is not finite), and what the source returns: the text names the tensor and the byte. */
int weights_load(struct weights *w, const struct weights_order *order, struct err *err);
void weights_free(struct weights *w); /* a zeroed struct is allowed */

/* weights_get() - a tensor of a layer (any layer of the range for tensors outside of layers); NULL
 * where absent. */
const struct weight *weights_get(const struct weights *w, enum tensor_id id, uint32_t layer);

/* weight_matrix() - one of a tensor's matrices; its data belongs to the tensor. */
static inline struct weight weight_matrix(const struct weight *w, size_t index)
{
    struct weight one = *w;
    one.n_matrices = 1;
    one.panels.data += index * w->matrix_bytes;
    return one;
}

/* weights_values() - the f32 values of a vector or of position rows; NULL where absent. */
const float *weights_values(const struct weights *w, enum tensor_id id, uint32_t layer);

/* weights_output() - the output head: its own matrix, or the embedding that this stage holds
 * anyway. */
const struct weight *weights_output(const struct weights *w);

#endif
