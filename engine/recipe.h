/* recipe - what a model file that is still to be made shall be: the orders of `tandem synth` and
 * `tandem quantize`, and the shapes of well-known models.
 *
 * Plain data, without compute, so that the fronts can fill it in and the worker room can carry it
 * out.
 * Stations before: coordinator/front/synth_order, quantize.
 * Next stations: worker/synth, worker/requantize. */
#ifndef TANDEM_ENGINE_RECIPE_H
#define TANDEM_ENGINE_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers of a model. 0 or NULL: not given. */
struct model_shape {
    const char *family; /* general.architecture */
    uint32_t n_layer, n_embd, n_head, n_head_kv, n_ff;
    uint32_t head_dim; /* not given: n_embd / n_head */
    uint32_t n_expert, n_expert_used;
    uint32_t n_ctx, n_vocab;
    float rope_base;
    bool tied; /* no output matrix: the token embedding serves */
};

/* model_preset_find() - the shape of a published model; NULL where no preset has that name.
 * model_preset_name() - of index 0, 1, ...; NULL behind the last. Static storage. */
const struct model_shape *model_preset_find(const char *name);
const char *model_preset_name(size_t index);

/* model_shape_overlay() - what is given in over replaces what *shape has. */
void model_shape_overlay(struct model_shape *shape, const struct model_shape *over);

/* How the work is done, and who hears of it. */
struct making {
    uint32_t n_threads; /* 0: OpenMP's default */
    /* progress() - done of total bytes are written; NULL: nobody asks. Called by the caller's
     * thread. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
};

/* A model of random weights. */
struct synth_order {
    struct model_shape shape;
    const char *name;      /* general.name */
    uint32_t format;       /* of the matrices: FORMAT_F32, F16, BF16, Q8_0 or Q4_0 */
    uint64_t seed;         /* the same order and seed make the same file */
    const char *tokenizer; /* a GGUF file, whose tokenizer the model gets */
    const char *out;
    struct making how;
};

/* The same model in another number format. */
struct quantize_order {
    const char *in, *out;
    uint32_t format; /* FORMAT_Q8_0, Q4_0, Q4_K or Q6_K */
    struct making how;
};

/* What was made. */
struct made_file {
    uint64_t n_tensors, n_values, bytes;
};

#endif
