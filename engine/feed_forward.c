/* feed_forward - see feed_forward.h.
 *
 * Regions of buffers.wide: [rows][n_ff] for the gate, then [rows][n_ff] for what it
 * lets through. */
#include "engine/feed_forward.h"

bool feed_forward_reads_q8(const struct pass *p, uint32_t layer)
{
    static const enum tensor_id reads[] = {TENSOR_FFN_GATE,  TENSOR_FFN_UP,
                                           TENSOR_ROUTER,    TENSOR_SHARED_GATE,
                                           TENSOR_SHARED_UP, TENSOR_SHARED_ROUTER};
    bool quantised = false;
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++)
        quantised |= pass_reads_q8(weights_get(p->weights, reads[i], layer));
    return quantised;
}

void feed_forward_activate(const struct pass *p, const struct team *t, size_t n_ff, size_t n_rows,
                           float *gate, const float *up)
{
    size_t from, to;
    pass_share_panels(p, t, n_ff, &from, &to);
    from *= PANEL_ROWS;
    to = to * PANEL_ROWS < n_ff ? to * PANEL_ROWS : n_ff;
    kernel_activate_fn *act = p->kernels->activate[p->model->family->activation];
    for (size_t row = 0; from < to && row < n_rows; row++)
        act(gate + row * n_ff + from, up == NULL ? NULL : up + row * n_ff + from, to - from);
}

struct input feed_forward_hidden(const struct pass *p, struct team *t, uint32_t layer,
                                 const struct ffn_tensors *tensors, const struct input *in,
                                 float *hidden)
{
    const struct weight *up = weights_get(p->weights, tensors->up, layer);
    const struct weight *gate = weights_get(p->weights, tensors->gate, layer);
    struct weight halves[2];
    if (up->n_matrices == 2) { /* one tensor holds both */
        for (size_t i = 0; i < 2; i++) halves[i] = weight_matrix(up, i);
        gate = &halves[0];
        up = &halves[1];
    }
    size_t n_ff = up->panels.n_out;
    float *other = hidden + p->n_rows * n_ff;
    struct output to_gate = {
        .y = hidden, .stride = n_ff, .bias = weights_values(p->weights, tensors->gate_bias, layer)};
    struct output to_up = {.y = gate != NULL ? other : hidden,
                           .stride = n_ff,
                           .bias = weights_values(p->weights, tensors->up_bias, layer)};
    if (gate != NULL) pass_product(p, t, gate, in, &to_gate);
    pass_product(p, t, up, in, &to_up);
    feed_forward_activate(p, t, n_ff, p->n_rows, hidden, gate != NULL ? other : NULL);
    team_wait(t);
    return (struct input){.rows = hidden, .n = p->n_rows, .n_in = n_ff};
}

void feed_forward(const struct pass *p, struct team *t, uint32_t layer, const struct input *in)
{
    static const struct ffn_tensors tensors = {TENSOR_FFN_GATE, TENSOR_FFN_GATE_BIAS, TENSOR_FFN_UP,
                                               TENSOR_FFN_UP_BIAS};
    static const struct way_back way = {TENSOR_FFN_DOWN, TENSOR_FFN_DOWN_BIAS,
                                        TENSOR_FFN_POST_NORM};
    struct input down = feed_forward_hidden(p, t, layer, &tensors, in, p->buffers->wide);
    pass_rejoin(p, t, layer, &way, &down);
}
