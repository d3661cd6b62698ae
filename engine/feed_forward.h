/* feed_forward - the two or three products of a layer's second half.
 *
 *   x += W_down (act(W_gate in) * (W_up in)), or without a gate x += W_down act(W_up in)
 *
 * Station before: layer, experts. Stations inside: pass, kernels. */
#ifndef TANDEM_ENGINE_FEED_FORWARD_H
#define TANDEM_ENGINE_FEED_FORWARD_H

#include "engine/pass.h"

/* feed_forward() - in: complete for all threads, as p->x is on return. */
void feed_forward(const struct pass *p, struct team *t, uint32_t layer, const struct input *in);

/* feed_forward_reads_q8() - does any product of the layer's feed-forward, or of its experts that
 * every row meets, want its input quantised? */
bool feed_forward_reads_q8(const struct pass *p, uint32_t layer);

/* ---- for experts ---- */

/* The tensors of a feed-forward. */
struct ffn_tensors {
    enum tensor_id gate, gate_bias, up, up_bias;
};

/* feed_forward_hidden() - the activated hidden rows, gapless in the first half of hidden, which has
 * room for two rows each; complete for all threads on return. */
struct input feed_forward_hidden(const struct pass *p, struct team *t, uint32_t layer,
                                 const struct ffn_tensors *tensors, const struct input *in,
                                 float *hidden);

/* feed_forward_activate() - act(gate) * up in place of gate, or act(gate) for up NULL, in the
 * columns of n_ff that this thread's share of a product is. */
void feed_forward_activate(const struct pass *p, const struct team *t, size_t n_ff, size_t n_rows,
                           float *gate, const float *up);

#endif
