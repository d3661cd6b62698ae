/* layer - attention and feed-forward of one layer, by feature and never by a family's name.
 *
 *   x += W_o attend(rope(W_qkv norm(x)));  x += W_down act(W_gate norm(x)) * (W_up norm(x))
 *
 * Station before: stage. Stations inside: pass (norms, products), kv_cache, kernels. */
#ifndef TANDEM_ENGINE_LAYER_H
#define TANDEM_ENGINE_LAYER_H

#include "engine/pass.h"

/* layer_forward() - run one layer (its number in the model) over the rows of p->x, with the whole
 * team: every thread calls it. The rows' keys and values are in the cache afterwards. On return
 * p->x is complete for all threads. */
void layer_forward(const struct pass *p, struct team *t, uint32_t layer);

/* layer_wide_values() - floats that a row needs of buffers.wide in a layer. layer_widest_input() -
 * of q8. */
uint64_t layer_wide_values(const struct model *m, uint32_t layer);
uint64_t layer_widest_input(const struct model *m, uint32_t layer);

#endif
