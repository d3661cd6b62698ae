/* short_conv - see short_conv.h.
 *
 * Regions of buffers.wide: [rows][B C X], then [rows][n_embd] for the results. */
#include "engine/short_conv.h"

#include <string.h>

/* block_at() - the cache's block of a position of a row's sequence: u stands in it as a value. */
static uint8_t *block_at(const struct pass *p, uint32_t layer, size_t row, uint32_t pos)
{
    return kv_cache_block(p->kv, layer - p->first_layer, p->batch->seq[row],
                          pos / KV_BLOCK_POSITIONS, 0);
}

static void store_columns(const struct pass *p, struct team *t, uint32_t layer, float *bcx)
{
    size_t from, to, n = p->model->hp.n_embd;
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) {
        float *b = bcx + row * 3 * n, *x = b + 2 * n;
        for (size_t i = 0; i < n; i++) x[i] *= b[i];
        uint32_t pos = p->batch->pos[row];
        p->kernels->store[p->kv->format](x, n, block_at(p, layer, row, pos),
                                         pos % KV_BLOCK_POSITIONS, false);
    }
    team_wait(t);
}

/* convolve() - u comes back from the cache for each position that the row sees, so that a batch's
 * own rows count as all others do. B and X are done with: they hold y and one u. */
static void convolve(const struct pass *p, struct team *t, uint32_t layer, float *bcx, float *out)
{
    const float *kernel = weights_values(p->weights, TENSOR_CONV_KERNEL, layer);
    size_t from, to, n = p->model->hp.n_embd;
    uint32_t width = p->model->hp.conv_width;
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) {
        float *y = bcx + row * 3 * n, *c = y + n, *u = c + n;
        uint32_t pos = p->batch->pos[row];
        uint32_t missing = pos + 1 < width ? width - 1 - pos : 0;
        memset(y, 0, n * sizeof *y);
        for (uint32_t j = missing; j < width; j++) {
            uint32_t seen = pos + 1 + j - width;
            p->kernels->load[p->kv->format](block_at(p, layer, row, seen), n,
                                            seen % KV_BLOCK_POSITIONS, u);
            for (size_t i = 0; i < n; i++) y[i] += kernel[i * width + j] * u[i];
        }
        for (size_t i = 0; i < n; i++) out[row * n + i] = c[i] * y[i];
    }
    team_wait(t);
}

void short_conv_forward(const struct pass *p, struct team *t, uint32_t layer,
                        const struct input *in)
{
    static const struct way_back way = {TENSOR_CONV_OUT, TENSOR_NONE, TENSOR_ATTN_POST_NORM};
    size_t n = p->model->hp.n_embd;
    float *bcx = p->buffers->wide, *out = bcx + p->n_rows * 3 * n;
    pass_project(p, t, layer, TENSOR_CONV_IN, TENSOR_NONE, in, bcx, 3 * n);
    team_wait(t);
    store_columns(p, t, layer, bcx);
    convolve(p, t, layer, bcx, out);
    struct input mixed = {.rows = out, .n = p->n_rows, .n_in = n};
    pass_rejoin(p, t, layer, &way, &mixed);
}
