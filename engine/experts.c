/* experts - see experts.h.
 *
 * Regions of buffers.wide, of which hidden serves the shared expert first:
 *   [rows][n]                  the router's logits, then its probabilities
 *   [rows]                     logits of the shared expert's gate
 *   [rows][n_embd]             the shared expert's results
 *   [rows used][n_embd]        inputs, those of an expert side by side; later their results
 *   [rows used][n_ff] twice    hidden */
#include "engine/experts.h"

#include "engine/feed_forward.h"
#include "engine/fmath.h"

#include <math.h>
#include <string.h>

/* The sum of the chosen weights is kept from vanishing when it divides. */
static const float sum_min = 0x1p-14F;

struct regions {
    float *logits, *shared_gate, *shared, *rows, *hidden;
    const struct expert_hparams *e;
    size_t n_embd;
};

static struct regions lay_out(const struct pass *p)
{
    struct regions r = {
        .logits = p->buffers->wide, .e = &p->model->hp.experts, .n_embd = p->model->hp.n_embd};
    r.shared_gate = r.logits + p->n_rows * r.e->n;
    r.shared = r.shared_gate + p->n_rows;
    r.rows = r.shared + p->n_rows * r.n_embd;
    r.hidden = r.rows + p->n_rows * r.e->n_used * r.n_embd;
    return r;
}

/* ---- choosing ---- */

static void to_probabilities(const struct expert_hparams *e, float *x)
{
    double max = x[0], sum = 0;
    for (uint32_t i = 1; i < e->n; i++) max = x[i] > max ? x[i] : max;
    if (e->is_sigmoid) {
        for (uint32_t i = 0; i < e->n; i++) x[i] = (float)(1 / (1 + fmath_exp(-(double)x[i])));
        return;
    }
    for (uint32_t i = 0; i < e->n; i++) sum += fmath_exp(x[i] - max);
    for (uint32_t i = 0; i < e->n; i++) x[i] = (float)(fmath_exp(x[i] - max) / sum);
}

/* best_after() - the best of [from, to) that comes after a score and index in the ranking, where
 * the lower index wins a tie; index `to`: after none. Gives `to` where there is no such one. */
static uint32_t best_after(const float *score, uint32_t from, uint32_t to, float last,
                           uint32_t index)
{
    uint32_t best = to;
    for (uint32_t i = from; i < to; i++) {
        bool later = index == to || score[i] < last || (score[i] == last && i > index);
        if (later && !isnan(score[i]) && (best == to || score[i] > score[best])) best = i;
    }
    return best;
}

/* close_groups() - experts outside the best groups get no chance. A group is as good as its two
 * best experts together. */
static void close_groups(const struct expert_hparams *e, float *score)
{
    float sum[EXPERTS_MAX];
    bool is_open[EXPERTS_MAX] = {false};
    uint32_t size = e->n / e->n_groups, at = e->n_groups;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        uint32_t from = g * size, to = from + size;
        uint32_t first = best_after(score, from, to, 0, to);
        uint32_t second = first < to ? best_after(score, from, to, score[first], first) : to;
        sum[g] = first < to ? score[first] : -INFINITY;
        if (second < to) sum[g] += score[second];
    }
    for (uint32_t i = 0; i < e->n_groups_used; i++) {
        at = best_after(sum, 0, e->n_groups, at < e->n_groups ? sum[at] : 0, at);
        if (at == e->n_groups) break;
        is_open[at] = true;
    }
    for (uint32_t i = 0; i < e->n; i++)
        if (!is_open[i / size]) score[i] = -INFINITY;
}

/* weigh() - from what the router gave the chosen experts to their weights, in place. */
static void weigh(const struct expert_hparams *e, float *w)
{
    float sum = 0;
    if (e->router == ROUTER_LOGITS) {
        float max = w[0]; /* the best comes first */
        for (uint32_t i = 0; i < e->n_used; i++) w[i] = (float)fmath_exp((double)w[i] - max);
    }
    for (uint32_t i = 0; i < e->n_used; i++) sum += w[i];
    if (sum < sum_min) sum = sum_min;
    bool divides = e->is_normed || e->router == ROUTER_LOGITS;
    for (uint32_t i = 0; i < e->n_used; i++) w[i] = (divides ? w[i] / sum : w[i]) * e->scale;
}

/* choose() - the experts of one row, the best first, and their weights. A row without numbers has
 * no best ones: it takes any, and their weights show what it is. */
static void choose(const struct pass *p, const float *bias, float *x, size_t row)
{
    const struct expert_hparams *e = &p->model->hp.experts;
    uint32_t *expert = p->buffers->routing.expert + row * e->n_used, at = e->n;
    float *weight = p->buffers->routing.weight + row * e->n_used;
    float score[EXPERTS_MAX];
    if (e->router != ROUTER_LOGITS) to_probabilities(e, x);
    for (uint32_t i = 0; i < e->n; i++) score[i] = bias != NULL ? x[i] + bias[i] : x[i];
    if (e->n_groups > 1) close_groups(e, score);
    for (uint32_t i = 0; i < e->n_used; i++) {
        at = best_after(score, 0, e->n, at < e->n ? score[at] : 0, at);
        expert[i] = at < e->n ? at : i;
        weight[i] = x[expert[i]];
    }
    weigh(e, weight);
}

static void choose_rows(const struct pass *p, struct team *t, uint32_t layer,
                        const struct regions *r)
{
    const float *bias = weights_values(p->weights, TENSOR_ROUTER_CHOICE_BIAS, layer);
    size_t from, to;
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) choose(p, bias, r->logits + row * r->e->n, row);
}

/* ---- grouping ---- */

/* group_items() - where each expert's rows begin, and in which place each item's row stands: rows
 * of an expert in the order of the batch. One thread's work. */
static void group_items(const struct pass *p, const struct expert_hparams *e)
{
    const struct routing *routing = &p->buffers->routing;
    size_t n_items = (size_t)p->n_rows * e->n_used;
    uint32_t *first = routing->first, at = 0;
    memset(first, 0, (e->n + (size_t)1) * sizeof *first);
    for (size_t i = 0; i < n_items; i++) first[routing->expert[i]]++;
    for (uint32_t i = 0; i <= e->n; i++) {
        uint32_t count = first[i];
        first[i] = at;
        at += count;
    }
    for (size_t i = 0; i < n_items; i++) routing->place[i] = first[routing->expert[i]]++;
    for (uint32_t i = e->n; i > 0; i--) first[i] = first[i - 1]; /* back to where they begin */
    first[0] = 0;
}

static void gather(const struct pass *p, const struct team *t, const struct regions *r,
                   const float *rows)
{
    size_t from, to, used = r->e->n_used;
    team_share(t, p->n_rows, &from, &to);
    for (size_t item = from * used; item < to * used; item++)
        memcpy(r->rows + p->buffers->routing.place[item] * r->n_embd,
               rows + item / used * r->n_embd, r->n_embd * sizeof *rows);
}

/* ---- products ---- */

/* quantise() - all gathered rows, if any of the weights that read them wants that. */
static struct input quantise(const struct pass *p, struct team *t, float *rows, size_t n,
                             size_t n_in, const struct weight *w, const struct weight *other)
{
    struct input in = {
        .rows = rows, .n = n, .n_in = n_in, .quantised = pass_reads_q8(w) || pass_reads_q8(other)};
    pass_quantise(p, t, &in);
    if (in.quantised) team_wait(t);
    return in;
}

/* expert_product() - the rows of one expert through its matrix; y has n_out values a
 * gathered row. */
static void expert_product(const struct pass *p, struct team *t, uint32_t expert,
                           const struct weight *w, const float *biases, const struct input *all,
                           float *y)
{
    const uint32_t *first = p->buffers->routing.first;
    struct weight matrix = weight_matrix(w, expert);
    size_t n_out = w->panels.n_out;
    struct input in = *all;
    in.q8_row = first[expert];
    in.rows = all->rows + in.q8_row * all->n_in;
    in.n = first[expert + 1] - first[expert];
    struct output out = {.y = y + in.q8_row * n_out,
                         .stride = n_out,
                         .bias = biases != NULL ? biases + expert * n_out : NULL};
    pass_product(p, t, &matrix, &in, &out);
}

static void run_chosen(const struct pass *p, struct team *t, uint32_t layer,
                       const struct regions *r)
{
    const struct weights *ws = p->weights;
    const struct weight *gate = weights_get(ws, TENSOR_EXPERT_GATE, layer);
    const struct weight *up = weights_get(ws, TENSOR_EXPERT_UP, layer);
    const struct weight *down = weights_get(ws, TENSOR_EXPERT_DOWN, layer);
    const float *gate_bias = weights_values(ws, TENSOR_EXPERT_GATE_BIAS, layer);
    const float *up_bias = weights_values(ws, TENSOR_EXPERT_UP_BIAS, layer);
    const float *down_bias = weights_values(ws, TENSOR_EXPERT_DOWN_BIAS, layer);
    const uint32_t *first = p->buffers->routing.first;
    size_t n_items = (size_t)p->n_rows * r->e->n_used, n_ff = r->e->n_ff;
    float *other = r->hidden + n_items * n_ff;

    struct input in = quantise(p, t, r->rows, n_items, r->n_embd, gate, up);
    for (uint32_t e = 0; e < r->e->n; e++) {
        size_t n = first[e + 1] - first[e], at = first[e] * n_ff;
        if (n == 0) continue;
        expert_product(p, t, e, gate, gate_bias, &in, r->hidden);
        expert_product(p, t, e, up, up_bias, &in, other);
        feed_forward_activate(p, t, n_ff, n, r->hidden + at, other + at);
    }
    team_wait(t);
    in = quantise(p, t, r->hidden, n_items, n_ff, down, NULL);
    for (uint32_t e = 0; e < r->e->n; e++)
        if (first[e + 1] > first[e]) expert_product(p, t, e, down, down_bias, &in, r->rows);
    team_wait(t);
}

/* run_shared() - the expert that every row passes through; nothing where there is none. */
static void run_shared(const struct pass *p, struct team *t, uint32_t layer, const struct input *in,
                       const struct regions *r)
{
    static const struct ffn_tensors tensors = {TENSOR_SHARED_GATE, TENSOR_NONE, TENSOR_SHARED_UP,
                                               TENSOR_NONE};
    const struct weight *down = weights_get(p->weights, TENSOR_SHARED_DOWN, layer);
    if (down == NULL) return;
    pass_project(p, t, layer, TENSOR_SHARED_ROUTER, TENSOR_NONE, in, r->shared_gate, 1);
    struct input hidden = feed_forward_hidden(p, t, layer, &tensors, in, r->hidden);
    hidden = quantise(p, t, hidden.rows, hidden.n, hidden.n_in, down, NULL);
    pass_product(p, t, down, &hidden, &(struct output){.y = r->shared, .stride = r->n_embd});
    team_wait(t);
}

/* combine() - the results of a row, added up in the order of its ranking; a share of rows each. */
static void combine(const struct pass *p, const struct team *t, uint32_t layer,
                    const struct regions *r)
{
    const struct routing *routing = &p->buffers->routing;
    bool has_shared = r->e->n_ff_shared > 0;
    bool is_gated = weights_get(p->weights, TENSOR_SHARED_ROUTER, layer) != NULL;
    size_t from, to, n = r->n_embd;
    team_share(t, p->n_rows, &from, &to);
    for (size_t row = from; row < to; row++) {
        float *y = p->buffers->normed + row * n;
        memset(y, 0, n * sizeof *y);
        for (size_t i = row * r->e->n_used; i < (row + 1) * r->e->n_used; i++)
            p->kernels->add_scaled(y, r->rows + routing->place[i] * n, routing->weight[i], n);
        if (!has_shared) continue;
        float weight = is_gated ? (float)(1 / (1 + fmath_exp(-(double)r->shared_gate[row]))) : 1;
        p->kernels->add_scaled(y, r->shared + row * n, weight, n);
    }
}

void experts_forward(const struct pass *p, struct team *t, uint32_t layer, const struct input *in)
{
    struct regions r = lay_out(p);
    pass_project(p, t, layer, TENSOR_ROUTER, TENSOR_ROUTER_BIAS, in, r.logits, r.e->n);
    run_shared(p, t, layer, in, &r);
    team_wait(t);
    choose_rows(p, t, layer, &r);
    team_wait(t);
    if (t->id == 0) group_items(p, r.e);
    team_wait(t);
    gather(p, t, &r, in->rows);
    team_wait(t);
    run_chosen(p, t, layer, &r);
    combine(p, t, layer, &r);
    pass_rejoin_rows(p, t, layer, TENSOR_FFN_POST_NORM);
}
