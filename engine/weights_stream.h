/* weights_stream - read weights and do nothing else: how fast does memory give them?
 *
 * Decoding a token reads every weight of the stage once, so that this is its limit. Weights that
 * fit into a cache are read from there, as decoding reads them.
 * Station before: stage (a probe of the bench). */
#ifndef TANDEM_ENGINE_WEIGHTS_STREAM_H
#define TANDEM_ENGINE_WEIGHTS_STREAM_H

#include "engine/weights.h"

/* weights_stream() - read all tensors, one behind the other, or as many of them as max bytes hold
 * and one more. Each thread reads a share of each tensor, as in a product. Returns the
 * bytes read. */
uint64_t weights_stream(const struct weights *w, uint32_t threads, uint64_t max);

#endif
