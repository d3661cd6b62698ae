/* stage - see stage.h.
 *
 * Open: kernels, weights, KV pool, buffers. Forward: check the whole batch, obey its commands, then
 * one parallel region in which every thread walks embedding, layers and output head together
 * (pass.h). */
#include "engine/stage.h"

#include "engine/layer.h"
#include "engine/pass.h"
#include "engine/weights_stream.h"

#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

struct stage {
    struct stage_config config;
    struct kernels kernels;
    struct weights weights;
    struct kv_cache kv;
    struct rope rope;
    struct buffers buffers;
    bool has_input, has_output;
    uint64_t load_total; /* bytes */
};

/* ---- open and close ---- */

/* take() - one array of the buffers, counted and noted for close_buffers(). */
static int take(struct buffers *b, void *out, uint64_t n, size_t value_bytes, const char *what,
                struct err *err)
{
    uint64_t bytes = n * value_bytes;
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    CHECK(memory != NULL, err, ERR_MEMORY,
          "%s need %" PRIu64 " bytes and the system has no memory left: ask for fewer rows a batch",
          what, bytes);
    BUG_IF(b->n_taken == STAGE_BUFFERS_MAX, "more buffers than there is room to note");
    b->taken[b->n_taken++] = memory;
    b->bytes += bytes;
    memcpy(out, &memory, sizeof memory);
    return ERR_NONE;
}

static int open_routing(struct buffers *b, uint64_t rows, uint64_t chosen, uint64_t experts,
                        struct err *err)
{
    struct routing *r = &b->routing;
    TRY(take(b, &r->expert, rows * chosen, sizeof *r->expert, "experts of rows", err));
    TRY(take(b, &r->weight, rows * chosen, sizeof *r->weight, "experts' weights", err));
    TRY(take(b, &r->place, rows * chosen, sizeof *r->place, "experts' places", err));
    return take(b, &r->first, experts + 1, sizeof *r->first, "experts' rows", err);
}

static int open_buffers(struct stage *st, struct err *err)
{
    const struct stage_config *c = &st->config;
    struct buffers *b = &st->buffers;
    struct row_sizes sizes = model_row_sizes(c->model, c->range);
    uint64_t rows = c->limits.rows_max, embd = c->model->hp.n_embd;
    if (st->has_output) TRY(take(b, &b->x, rows * embd, sizeof *b->x, "activations", err));
    TRY(take(b, &b->normed, rows * embd, sizeof *b->normed, "normed activations", err));
    TRY(take(b, &b->kept, rows * sizes.kept, sizeof *b->kept, "kept activations", err));
    TRY(take(b, &b->wide, rows * sizes.wide, sizeof *b->wide, "hidden activations", err));
    TRY(take(b, &b->q8, rows * sizes.blocks * QUANT_BLOCK, 1, "quantised activations", err));
    TRY(take(b, &b->q8_scale, rows * sizes.blocks, sizeof *b->q8_scale, "scales", err));
    TRY(take(b, &b->q8_sum, rows * sizes.blocks, sizeof *b->q8_sum, "block sums", err));
    TRY(take(b, &b->cos, rows * sizes.angles, sizeof *b->cos, "rotary cosines", err));
    TRY(take(b, &b->sin, rows * sizes.angles, sizeof *b->sin, "rotary sines", err));
    TRY(open_routing(b, rows, sizes.chosen, c->model->hp.experts.n, err));
    TRY(take(b, &b->groups, rows, sizeof *b->groups, "row groups", err));
    b->n_parts = model_attention_parts(c->model, c->range, &c->limits);
    TRY(take(b, &b->parts, b->n_parts, sizeof *b->parts, "parts of attention", err));
    TRY(take(b, &b->wanted, c->limits.wanted_max, sizeof *b->wanted, "wanted rows", err));
    return take(b, &b->seen, c->limits.n_seqs, sizeof *b->seen, "sequence marks", err);
}

static void close_buffers(const struct buffers *b)
{
    for (uint32_t i = 0; i < b->n_taken; i++) free(b->taken[i]);
}

static void report_load(void *ctx, uint32_t layer, uint64_t done)
{
    const struct stage *st = ctx;
    if (st->config.progress != NULL)
        st->config.progress(st->config.progress_ctx, layer, done, st->load_total);
}

static int open_parts(struct stage *st, struct err *err)
{
    const struct stage_config *c = &st->config;
    st->load_total = model_footprint(c->model, c->range, &c->limits).weights;
    kernels_init(&st->kernels, c->isa);
    kernels_choose_matmul(&st->kernels, c->matmul);
    TRY(kv_cache_open(&st->kv, c->model, c->range, &c->limits, err));
    const struct weights_order order = {.model = c->model,
                                        .range = c->range,
                                        .kernels = &st->kernels,
                                        .source = c->source,
                                        .threads = c->threads,
                                        .progress = report_load,
                                        .progress_ctx = st};
    TRY(weights_load(&st->weights, &order, err));
    const struct weights *w = &st->weights;
    const struct rope_factors factors = {
        .all = weights_values(w, TENSOR_ROPE_FREQS, c->range.first),
        .long_ctx = weights_values(w, TENSOR_ROPE_FACTORS_LONG, c->range.first),
        .short_ctx = weights_values(w, TENSOR_ROPE_FACTORS_SHORT, c->range.first)};
    TRY(rope_open(&st->rope, c->model, &factors, c->limits.n_ctx, err));
    return open_buffers(st, err);
}

int stage_open(struct stage **out, const struct stage_config *config, struct err *err)
{
    BUG_IF(config->threads == 0, "a stage without threads");
    BUG_IF(config->range.first >= config->range.end ||
               config->range.end > config->model->hp.n_layer,
           "a stage without layers");
    *out = NULL;
    struct stage *st = calloc(1, sizeof *st);
    CHECK(st != NULL, err, ERR_MEMORY, "no memory for a stage");
    st->config = *config;
    st->has_input = config->range.first == 0;
    st->has_output = config->range.end == config->model->hp.n_layer;
    int rc = open_parts(st, err);
    if (rc != ERR_NONE) {
        stage_close(st);
        return rc;
    }
    *out = st;
    return ERR_NONE;
}

void stage_close(struct stage *st)
{
    if (st == NULL) return;
    close_buffers(&st->buffers);
    rope_close(&st->rope);
    kv_cache_close(&st->kv);
    weights_free(&st->weights);
    free(st);
}

struct footprint stage_usage(const struct stage *st)
{
    return (struct footprint){.weights = st->weights.bytes,
                              .kv = st->kv.pool_bytes,
                              .buffers = st->buffers.bytes + st->kv.table_bytes};
}

const struct tensor_digest *stage_digests(const struct stage *st, uint32_t *n)
{
    *n = st->weights.n_digests;
    return st->weights.digests;
}

uint64_t stage_stream(const struct stage *st, uint64_t max)
{
    return weights_stream(&st->weights, st->config.threads, max);
}

/* ---- checking a batch ---- */

static int check_counts(const struct stage *st, const struct batch *b, struct err *err)
{
    const struct line_limits *l = &st->config.limits;
    CHECK(b->n_rows <= l->rows_max, err, ERR_PEER,
          "a batch of %" PRIu32 " rows, the limit is %" PRIu32, b->n_rows, l->rows_max);
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) wanted += b->wanted[i] != 0;
    CHECK(wanted == b->n_wanted && wanted <= l->wanted_max, err, ERR_PEER,
          "a batch says that %" PRIu32 " rows want scores and marks %" PRIu32
          ", the limit is %" PRIu32,
          b->n_wanted, wanted, l->wanted_max);
    return ERR_NONE;
}

static int check_row(const struct stage *st, const struct batch *b, uint32_t i, struct err *err)
{
    const struct hparams *hp = &st->config.model->hp;
    const struct line_limits *l = &st->config.limits;
    uint32_t n_ctx = l->n_ctx;
    if (st->config.model->family->ctx_is_hard && n_ctx > hp->n_ctx_train) n_ctx = hp->n_ctx_train;
    CHECK(b->token[i] >= 0 && (uint32_t)b->token[i] < hp->n_vocab, err, ERR_PEER,
          "row %" PRIu32 " has token %" PRId32 ", the vocabulary has %" PRIu32, i, b->token[i],
          hp->n_vocab);
    CHECK(b->seq[i] < l->n_seqs, err, ERR_PEER,
          "row %" PRIu32 " is of sequence %" PRIu32 ", there are %" PRIu32, i, b->seq[i],
          l->n_seqs);
    CHECK(b->pos[i] < n_ctx, err, ERR_PEER,
          "row %" PRIu32 " of sequence %" PRIu32 " has position %" PRIu32
          ", the context has %" PRIu32,
          i, b->seq[i], b->pos[i], n_ctx);
    CHECK(kv_cache_is_covered(&st->kv, b->seq[i], b->pos[i]), err, ERR_PEER,
          "row %" PRIu32 " has position %" PRIu32 " of sequence %" PRIu32
          ", where no KV block is mapped",
          i, b->pos[i], b->seq[i]);
    return ERR_NONE;
}

/* Rows of a sequence stand side by side, gapless and ascending. */
static int check_neighbour(struct stage *st, const struct batch *b, uint32_t i, struct err *err)
{
    uint8_t *seen = &st->buffers.seen[b->seq[i]];
    if (i > 0 && b->seq[i] == b->seq[i - 1]) {
        CHECK(b->pos[i] == b->pos[i - 1] + 1, err, ERR_PEER,
              "row %" PRIu32 " of sequence %" PRIu32 " has position %" PRIu32 " after %" PRIu32, i,
              b->seq[i], b->pos[i], b->pos[i - 1]);
        return ERR_NONE;
    }
    CHECK(*seen == 0, err, ERR_PEER,
          "row %" PRIu32 " is of sequence %" PRIu32 ", whose rows stand elsewhere in the batch", i,
          b->seq[i]);
    *seen = 1;
    return ERR_NONE;
}

static int check_batch(struct stage *st, const struct batch *b, struct err *err)
{
    TRY(check_counts(st, b, err));
    TRY(kv_cache_check(&st->kv, b->commands, b->n_commands, err));
    memset(st->buffers.seen, 0, st->config.limits.n_seqs);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        TRY(check_row(st, b, i, err));
        TRY(check_neighbour(st, b, i, err));
    }
    return ERR_NONE;
}

/* ---- forward ---- */

/* group_rows() - cut the batch into groups that attend together; returns how many. */
static uint32_t group_rows(const struct batch *b, struct row_group *groups)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        bool joins = i > 0 && b->seq[i] == b->seq[i - 1] && groups[n - 1].n < GROUP_ROWS;
        if (joins)
            groups[n - 1].n++;
        else
            groups[n++] = (struct row_group){.first = i, .n = 1};
    }
    return n;
}

/* look_up() - the embedding of a row, with what the family does to it. */
static void look_up(const struct stage *st, const struct pass *p, size_t row, float *x)
{
    const struct hparams *hp = &p->model->hp;
    const struct weights *w = &st->weights;
    const struct weight *embd = weights_get(w, TENSOR_TOKEN_EMBD, p->first_layer);
    const float *positions = weights_values(w, TENSOR_POSITION_EMBD, p->first_layer);
    const float *norm = weights_values(w, TENSOR_TOKEN_EMBD_NORM, p->first_layer);
    const float *bias = weights_values(w, TENSOR_TOKEN_EMBD_NORM_BIAS, p->first_layer);
    size_t n = hp->n_embd;
    embd->kernels->lookup(&embd->panels, (size_t)p->batch->token[row], x);
    for (size_t i = 0; hp->embd_scale != 1 && i < n; i++) x[i] *= hp->embd_scale;
    if (positions != NULL) p->kernels->add(x, positions + p->batch->pos[row] * n, n);
    if (norm != NULL) p->kernels->norm[p->model->family->norm](x, norm, bias, n, hp->norm_eps, x);
}

/* enter_rows() - a share of rows each: look them up or take them over, and work out their rotary
 * angles. */
static void enter_rows(const struct stage *st, const struct pass *p, const struct team *t,
                       const float *in)
{
    const struct buffers *b = &st->buffers;
    size_t from, to, n_embd = p->model->hp.n_embd;
    size_t angles = (size_t)st->rope.n_tables * st->rope.n_pairs;
    team_share(t, p->n_rows, &from, &to);
    for (size_t i = from; i < to; i++) {
        float *x = p->x + i * n_embd;
        if (st->has_input)
            look_up(st, p, i, x);
        else
            memcpy(x, in + i * n_embd, n_embd * sizeof *x);
        rope_fill(&st->rope, p->batch->pos[i], b->cos + i * angles, b->sin + i * angles);
    }
    team_wait(t);
}

/* scale_scores() - the last factor and the soft cap; a share of all scores each. */
static void scale_scores(const struct pass *p, const struct team *t, float *out)
{
    const struct hparams *hp = &p->model->hp;
    size_t from, to;
    if (hp->logit_scale == 1 && hp->final_softcap == 0) return;
    team_share(t, (size_t)p->batch->n_wanted * hp->n_vocab, &from, &to);
    for (size_t i = from; i < to; i++) out[i] *= hp->logit_scale;
    if (hp->final_softcap > 0) p->kernels->softcap(out + from, to - from, hp->final_softcap);
}

/* score_rows() - final norm and output head, for the rows that want scores. */
static void score_rows(const struct stage *st, const struct pass *p, struct team *t, float *out)
{
    const struct weights *w = &st->weights;
    const struct weight *head = weights_output(w);
    size_t n_vocab = p->model->hp.n_vocab;
    struct input in = {.rows = st->buffers.normed,
                       .n = p->batch->n_wanted,
                       .n_in = p->model->hp.n_embd,
                       .quantised = pass_reads_q8(head)};
    pass_norm(p, t, &in, weights_values(w, TENSOR_OUTPUT_NORM, p->first_layer),
              weights_values(w, TENSOR_OUTPUT_NORM_BIAS, p->first_layer), st->buffers.wanted);
    team_wait(t);
    struct output to_out = {
        .y = out, .stride = n_vocab, .bias = weights_values(w, TENSOR_OUTPUT_BIAS, p->first_layer)};
    pass_product(p, t, head, &in, &to_out);
    team_wait(t);
    scale_scores(p, t, out);
}

/* report_layer() - what is at work from now on; a layer, or as layer n_layer the output head. */
static void report_layer(const struct stage *st, struct team *t, uint32_t layer)
{
    t->layer = layer;
    if (!st->config.progress_layers || st->config.progress == NULL || t->id != 0) return;
    st->config.progress(st->config.progress_ctx, layer, 0, 0);
}

static void run(const struct stage *st, const struct pass *p, struct team *t, const float *in,
                float *out)
{
    enter_rows(st, p, t, in);
    for (uint32_t layer = st->config.range.first; layer < st->config.range.end; layer++) {
        report_layer(st, t, layer);
        layer_forward(p, t, layer);
    }
    if (!st->has_output || p->batch->n_wanted == 0) return;
    report_layer(st, t, st->config.range.end);
    score_rows(st, p, t, out);
}

int stage_forward(struct stage *st, const struct batch *b, const float *in, float *out,
                  struct err *err)
{
    TRY(check_batch(st, b, err));
    kv_cache_obey(&st->kv, b->commands, b->n_commands);
    if (b->n_rows == 0) return ERR_NONE;

    uint32_t n_wanted = 0;
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (b->wanted[i] != 0) st->buffers.wanted[n_wanted++] = i;
    const struct pass pass = {
        .model = st->config.model,
        .kernels = &st->kernels,
        .weights = &st->weights,
        .kv = &st->kv,
        .rope = &st->rope,
        .buffers = &st->buffers,
        .batch = b,
        .first_layer = st->config.range.first,
        .n_rows = b->n_rows,
        .n_groups = group_rows(b, st->buffers.groups),
        .x = st->has_output ? st->buffers.x : out,
        .progress = st->config.progress,
        .progress_ctx = st->config.progress_ctx,
    };
    struct barrier barrier;
    barrier_init(&barrier);
#pragma omp parallel num_threads(st->config.threads)
    {
        struct team team = {.id = (uint32_t)omp_get_thread_num(),
                            .size = (uint32_t)omp_get_num_threads(),
                            .barrier = &barrier};
        run(st, &pass, &team, in, out);
    }
    return ERR_NONE;
}
