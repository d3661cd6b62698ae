/* synth - a model of a given shape whose weights are random, for work on speed without a download.
 *
 * Station before: coordinator/front/synth, through main. Next stations: engine/families (which
 * tensors a family has), pour (the values), gguf_write. */
#ifndef TANDEM_WORKER_SYNTH_H
#define TANDEM_WORKER_SYNTH_H

#include "engine/err.h"
#include "engine/recipe.h"

/* synth_write() - order->out: weights of about 1 / sqrt(inputs), so that activations stay of
 * ordinary size; each is a function of the seed, its tensor's name and its place alone. The
 * tokenizer is order->tokenizer's, padded with unused tokens. The file appears when it is complete.
 * ERR_USAGE (a shape that is no model's: named), ERR_FILE, ERR_UNSUPPORTED (a family that needs
 * more than such a shape), ERR_MEMORY. */
int synth_write(const struct synth_order *order, struct made_file *made, struct err *err);

#endif
