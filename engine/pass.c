/* pass - see pass.h. */
#include "engine/pass.h"

#include "engine/clock.h"

enum {
    /* A large message on its way moves only while its sender looks after it, and the next stage
     * waits for it. */
    TICK_NS = 200 * 1000,
    /* Multiply-adds between two looks at the clock: 4 ms in plain C, less elsewhere. */
    TICK_WORK = 1 << 22,
};

void team_tick(struct team *t, const struct pass *p, uint64_t work)
{
    if (t->id != 0 || p->progress == NULL) return;
    t->work += work;
    if (t->work < TICK_WORK) return;
    t->work = 0;
    uint64_t now = clock_now_ns();
    if (now - t->last_tick_ns < TICK_NS) return;
    t->last_tick_ns = now;
    p->progress(p->progress_ctx, t->layer, 0, 0);
}

static void quantise_blocks(const struct pass *p, const struct input *in, size_t from, size_t to)
{
    const struct buffers *b = p->buffers;
    p->kernels->quantise(in->rows + from * QUANT_BLOCK, to - from, b->q8 + from * QUANT_BLOCK,
                         b->q8_scale + from, b->q8_sum + from);
}

void pass_norm(const struct pass *p, struct team *t, const struct input *in, const float *weight,
               const float *bias, const uint32_t *index)
{
    size_t from, to, blocks = in->n_in / QUANT_BLOCK;
    team_share(t, in->n, &from, &to);
    kernel_norm_fn *norm = p->kernels->norm[p->model->family->norm];
    for (size_t i = from; i < to; i++) {
        size_t row = index != NULL ? index[i] : i;
        norm(p->x + row * in->n_in, weight, bias, in->n_in, p->model->hp.norm_eps,
             in->rows + i * in->n_in);
    }
    if (in->quantised) quantise_blocks(p, in, from * blocks, to * blocks);
    team_tick(t, p, (to - from) * in->n_in);
}

void pass_quantise(const struct pass *p, struct team *t, const struct input *in)
{
    if (!in->quantised) return;
    size_t from, to;
    team_share(t, in->n * (in->n_in / QUANT_BLOCK), &from, &to);
    quantise_blocks(p, in, from, to);
    team_tick(t, p, 4 * (to - from) * QUANT_BLOCK);
}

/* finish() - bias and residual of the columns [first, first + n) that were just computed. */
static void finish(const struct pass *p, const struct output *out, size_t from_row, size_t to_row,
                   size_t first, size_t n)
{
    for (size_t r = from_row; r < to_row; r++) {
        float *y = out->y + r * out->stride + first;
        if (out->bias != NULL) p->kernels->add(y, out->bias + first, n);
        if (out->residual != NULL)
            p->kernels->add_scaled(out->residual + r * out->residual_stride + first, y,
                                   out->residual_scale, n);
    }
}

/* bite() - panels [from, to) for all rows, bite_rows at a time: the panels stay in the cache
 * between. */
static void bite(const struct pass *p, struct team *t, const struct weight *w,
                 const struct input *in, const struct output *out, size_t from, size_t to)
{
    const struct buffers *b = p->buffers;
    size_t n_out = w->panels.n_out, n_in = w->panels.n_in, blocks = n_in / QUANT_BLOCK;
    size_t first = from * PANEL_ROWS;
    size_t columns = (to * PANEL_ROWS < n_out ? to * PANEL_ROWS : n_out) - first;
    for (size_t r = 0; r < in->n; r += p->kernels->bite_rows) {
        size_t end = in->n - r < p->kernels->bite_rows ? in->n : r + p->kernels->bite_rows;
        struct activations x = {.f32 = in->rows + r * n_in};
        if (w->kernels->reads_q8) {
            size_t at = in->q8_row + r;
            x.q8 = b->q8 + at * n_in;
            x.scale = b->q8_scale + at * blocks;
            x.sum = b->q8_sum + at * blocks;
        }
        w->kernels->matmul(&w->panels, from, to, &x, end - r, out->y + r * out->stride,
                           out->stride);
        finish(p, out, r, end, first, columns);
        team_tick(t, p, (end - r) * columns * n_in);
    }
}

static void product_panels(const struct pass *p, struct team *t, const struct weight *w,
                           const struct input *in, const struct output *out, size_t from, size_t to)
{
    size_t step = p->kernels->bite_panels;
    for (size_t panel = from; panel < to; panel += step)
        bite(p, t, w, in, out, panel, to - panel < step ? to : panel + step);
}

void pass_share_panels(const struct pass *p, const struct team *t, size_t n_out, size_t *from,
                       size_t *to)
{
    const size_t n = panels_count(n_out), step = p->kernels->share_panels;
    team_share(t, (n + step - 1) / step, from, to);
    *from *= step;
    *to = *to * step < n ? *to * step : n;
}

void pass_product(const struct pass *p, struct team *t, const struct weight *w,
                  const struct input *in, const struct output *out)
{
    size_t from, to;
    pass_share_panels(p, t, w->panels.n_out, &from, &to);
    product_panels(p, t, w, in, out, from, to);
}

void pass_whole_product(const struct pass *p, struct team *t, const struct weight *w,
                        const struct input *in, const struct output *out)
{
    product_panels(p, t, w, in, out, 0, panels_count(w->panels.n_out));
}

void pass_project(const struct pass *p, struct team *t, uint32_t layer, enum tensor_id id,
                  enum tensor_id bias, const struct input *in, float *y, size_t stride)
{
    const struct weight *w = weights_get(p->weights, id, layer);
    if (w == NULL) return;
    struct output out = {.y = y, .stride = stride, .bias = weights_values(p->weights, bias, layer)};
    pass_product(p, t, w, in, &out);
}

void pass_rejoin_rows(const struct pass *p, struct team *t, uint32_t layer,
                      enum tensor_id post_norm)
{
    const struct hparams *hp = &p->model->hp;
    const float *weight = weights_values(p->weights, post_norm, layer);
    kernel_norm_fn *norm = p->kernels->norm[p->model->family->norm];
    size_t from, to, n = hp->n_embd;
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) {
        float *y = p->buffers->normed + row * n;
        if (weight != NULL) norm(y, weight, NULL, n, hp->norm_eps, y);
        p->kernels->add_scaled(p->x + row * n, y, hp->residual_scale, n);
    }
    team_wait(t);
}

void pass_rejoin(const struct pass *p, struct team *t, uint32_t layer, const struct way_back *way,
                 struct input *in)
{
    const struct weight *w = weights_get(p->weights, way->weight, layer);
    bool is_normed = weights_values(p->weights, way->post_norm, layer) != NULL;
    size_t n_embd = p->model->hp.n_embd;
    struct output out = {.y = p->buffers->normed,
                         .stride = n_embd,
                         .bias = weights_values(p->weights, way->bias, layer),
                         .residual = is_normed ? NULL : p->x,
                         .residual_stride = n_embd,
                         .residual_scale = p->model->hp.residual_scale};
    in->quantised = pass_reads_q8(w);
    if (in->quantised) {
        pass_quantise(p, t, in);
        team_wait(t);
    }
    pass_product(p, t, w, in, &out);
    team_wait(t);
    if (is_normed) pass_rejoin_rows(p, t, layer, way->post_norm);
}
