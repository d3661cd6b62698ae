/* sampling_settings - the sampling that the command line asks for, checked against a model.
 *
 * Station before: settings. Stations after: generate, sample/sampler. */
#ifndef TANDEM_COORDINATOR_FRONT_SAMPLING_SETTINGS_H
#define TANDEM_COORDINATOR_FRONT_SAMPLING_SETTINGS_H

#include "coordinator/sample/sampler.h"
#include "coordinator/settings.h"
#include "coordinator/text/tokenizer.h"

/* sampling_settings_read() - *out from settings: the list of biases is built (with a ban of every
 * end token under --ignore-eos), and a seed is drawn where one is needed and none is given. *bias:
 * what out->bias points to, the caller's to free(), also after an error. Returns ERR_USAGE
 * (--logit-bias malformed; anything out of its range), ERR_MEMORY. */
int sampling_settings_read(const struct settings *s, const struct tokenizer *t, int32_t n_vocab,
                           struct sampling *out, struct logit_bias **bias, struct err *err);

/* sampling_settings_draw_seed() - 53 bits, so that it survives every JSON reader. ERR_UNSUPPORTED:
 * the system gives none. */
int sampling_settings_draw_seed(uint64_t *seed, struct err *err);

#endif
