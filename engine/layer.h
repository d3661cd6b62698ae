/* layer - one layer: what mixes positions, then what works on each alone, and how both join the
 * residual stream; by feature and never by a family's name.
 *
 *   in turn:      x += post(mix(norm(x)));  x += post(feed(norm(x)))
 *   in parallel:  x += mix(norm(x)) + feed(norm(x))
 *
 * Any of the norms may be absent.
 * Station before: stage. Stations inside: attention, latent_attention, short_conv; feed_forward,
 * experts. */
#ifndef TANDEM_ENGINE_LAYER_H
#define TANDEM_ENGINE_LAYER_H

#include "engine/pass.h"

/* layer_forward() - run one layer (its number in the model) over the rows of p->x, with the whole
 * team: every thread calls it. What the cache keeps of the rows is there afterwards. On return p->x
 * is complete for all threads. */
void layer_forward(const struct pass *p, struct team *t, uint32_t layer);

#endif
