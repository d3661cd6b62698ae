/* short_conv - a gated convolution over a few positions, in attention's place (LFM2).
 *
 *   (B, C, X) = W_in in;  u = B * X;  y_t = sum_j kernel_j * u_(t - n + 1 + j);  x += W_out (C * y)
 *
 * All by channel, without bias; before position 0 u is 0. What is kept of a position is u, in the
 * cache as a value: a convolution sees a window of n positions and has no other state, so cutting,
 * trimming and sharing sequences mean the same to it as to attention.
 * Station before: layer. Stations inside: pass, kv_cache, kernels. */
#ifndef TANDEM_ENGINE_SHORT_CONV_H
#define TANDEM_ENGINE_SHORT_CONV_H

#include "engine/pass.h"

/* short_conv_forward() - as attention_forward(). */
void short_conv_forward(const struct pass *p, struct team *t, uint32_t layer,
                        const struct input *in);

#endif
