/* experts - a router sends each row to a few of many feed-forwards.
 *
 *   x += sum over the chosen, best first: weight * W_down[e] (act(W_gate[e] in) * (W_up[e] in))
 *
 * Rows of an expert are computed together, but what a row gets is added in the order of its own
 * ranking, so it does not matter who shares an expert with it. Only chosen experts are computed.
 * Station before: layer. Stations inside: feed_forward, pass. */
#ifndef TANDEM_ENGINE_EXPERTS_H
#define TANDEM_ENGINE_EXPERTS_H

#include "engine/pass.h"

/* experts_forward() - as feed_forward(). */
void experts_forward(const struct pass *p, struct team *t, uint32_t layer, const struct input *in);

#endif
