/* layer - see layer.h. */
#include "engine/layer.h"

#include "engine/attention.h"
#include "engine/experts.h"
#include "engine/feed_forward.h"
#include "engine/latent_attention.h"
#include "engine/short_conv.h"

/* A norm before a half of the layer. */
struct norm {
    enum tensor_id weight, bias;
};

/* read_rows() - the rows that a half reads: normed into rows, or, without a norm, the residual
 * stream itself. Quantised if asked; complete for all threads on return. */
static struct input read_rows(const struct pass *p, struct team *t, uint32_t layer,
                              const struct norm *norm, float *rows, bool quantised)
{
    const float *weight = weights_values(p->weights, norm->weight, layer);
    struct input in = {.rows = weight != NULL ? rows : p->x,
                       .n = p->n_rows,
                       .n_in = p->model->hp.n_embd,
                       .quantised = quantised};
    if (weight != NULL)
        pass_norm(p, t, &in, weight, weights_values(p->weights, norm->bias, layer), NULL);
    else
        pass_quantise(p, t, &in);
    team_wait(t);
    return in;
}

/* pick_norm() - the one of two norms that the layer has, the first rather. */
static const struct norm *pick_norm(const struct pass *p, uint32_t layer, const struct norm *first,
                                    const struct norm *second)
{
    return weights_get(p->weights, first->weight, layer) != NULL ? first : second;
}

static bool is_parallel(const struct pass *p, uint32_t layer)
{
    switch (p->model->hp.residual) {
    case RESIDUAL_PARALLEL:
        return true;
    case RESIDUAL_BY_FFN_NORM:
        return weights_get(p->weights, TENSOR_FFN_NORM, layer) == NULL;
    case RESIDUAL_SEQUENTIAL:
    case RESIDUAL_BY_KEY:
        return false;
    }
    return false;
}

static void mix(const struct pass *p, struct team *t, uint32_t layer, const struct input *in)
{
    if (p->model->hp.layer[layer].is_conv)
        short_conv_forward(p, t, layer, in);
    else if (p->model->hp.latent.width > 0)
        latent_attention_forward(p, t, layer, in);
    else
        attention_forward(p, t, layer, in);
}

static void feed(const struct pass *p, struct team *t, uint32_t layer, const struct input *in)
{
    if (p->model->hp.layer[layer].has_experts)
        experts_forward(p, t, layer, in);
    else
        feed_forward(p, t, layer, in);
}

void layer_forward(const struct pass *p, struct team *t, uint32_t layer)
{
    static const struct norm attn = {TENSOR_ATTN_NORM, TENSOR_ATTN_NORM_BIAS};
    static const struct norm attn_2 = {TENSOR_ATTN_NORM_2, TENSOR_ATTN_NORM_2_BIAS};
    static const struct norm ffn = {TENSOR_FFN_NORM, TENSOR_FFN_NORM_BIAS};
    const struct buffers *b = p->buffers;
    bool parallel = is_parallel(p, layer);
    struct input for_feed;

    if (parallel)
        for_feed = read_rows(p, t, layer, pick_norm(p, layer, &ffn, &attn), b->kept, false);
    const struct input for_mix = read_rows(p, t, layer, pick_norm(p, layer, &attn_2, &attn),
                                           b->normed, attention_reads_q8(p, layer));
    mix(p, t, layer, &for_mix);

    bool quantised = feed_forward_reads_q8(p, layer);
    if (!parallel) {
        for_feed = read_rows(p, t, layer, &ffn, b->normed, quantised);
    } else if (quantised) {
        for_feed.quantised = true;
        pass_quantise(p, t, &for_feed);
        team_wait(t);
    }
    feed(p, t, layer, &for_feed);
}
