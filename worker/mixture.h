/* mixture - which number format each tensor of a file gets, so that what matters more is kept
 * better.
 *
 * Goes by names and shapes, not by the family, so that a file of any family can be made smaller.
 * Stations before: synth, requantize. */
#ifndef TANDEM_WORKER_MIXTURE_H
#define TANDEM_WORKER_MIXTURE_H

#include "engine/gguf.h"

#include <stdbool.h>
#include <stdint.h>

/* mixture_is_small() - what is f32 whatever the target: vectors, norms, biases, positions, the
 * choice of experts, the kernels of short convolutions. */
bool mixture_is_small(const struct gguf_tensor *t);

/* mixture_choose() - the format of t in a file whose matrices are to be of format target, which has
 * n_layer layers. A row that is no whole number of the target's blocks gets the nearest larger
 * format that fits it: Q8_0, else F16. */
uint32_t mixture_choose(const struct gguf_tensor *t, uint32_t target, uint32_t n_layer);

/* mixture_layer() - N of a tensor "blk.N.name"; false for any other. *suffix: the name behind. */
bool mixture_layer(const struct gguf_tensor *t, uint32_t *layer, struct gguf_str *suffix);

/* mixture_file_type() - the number that general.file_type has for such a file. */
uint32_t mixture_file_type(uint32_t target);

#endif
