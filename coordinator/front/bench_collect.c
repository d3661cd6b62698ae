/* bench_collect - see bench_collect.h. */
#include "coordinator/front/bench_collect.h"

#include "coordinator/line/line_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RAW_ROUNDS = 300 };

/* ---- before the line stops ---- */

/* Of what a stage holds, the bytes that a token of one sequence reads. */
struct token_bytes {
    const struct model *model;
    bool embedding_is_output;
    double bytes;
};

/* add_tensor() - rows are looked up one by one, and of the experts a token takes some. */
static int add_tensor(void *ctx, const struct tensor_row *row, uint32_t layer,
                      const struct gguf_tensor *tensor, struct err *err)
{
    (void)layer;
    (void)err;
    struct token_bytes *t = ctx;
    const struct hparams *hp = &t->model->hp;
    double share = 1;
    switch (row->id) {
    case TENSOR_POSITION_EMBD:
        share = 0;
        break;
    case TENSOR_TOKEN_EMBD:
        share = t->embedding_is_output ? 1 : 0;
        break;
    case TENSOR_EXPERT_GATE:
    case TENSOR_EXPERT_UP:
    case TENSOR_EXPERT_DOWN:
        share = (double)hp->experts.n_used / (double)hp->experts.n;
        break;
    default:
        break;
    }
    t->bytes += share * (double)model_held_bytes(t->model, row, tensor);
    return ERR_NONE;
}

/* limit_tok_s() - one sequence, were reading weights all there is to do. */
static int limit_tok_s(const struct line *ln, const struct model *m, const uint64_t *bytes_s,
                       double *tok_s, struct err *err)
{
    double seconds = 0;
    for (uint32_t i = 0; i < line_stage_count(ln); i++) {
        const struct layer_range range = line_stage_at(ln, i)->range;
        struct token_bytes t = {.model = m,
                                .embedding_is_output = range.end == m->hp.n_layer &&
                                                       model_tensor(m, TENSOR_OUTPUT, 0) == NULL};
        TRY(model_visit_range(m, range, add_tensor, &t, err));
        seconds += t.bytes / (double)(bytes_s[i] > 0 ? bytes_s[i] : 1);
    }
    *tok_s = seconds > 0 ? 1 / seconds : NAN;
    return ERR_NONE;
}

static int collect_speeds(struct bench_results *r, struct line *ln, const struct model *m,
                          uint64_t *bytes_s, struct err *err)
{
    double tok_s;
    TRY(line_read_speeds(ln, bytes_s, err));
    TRY(limit_tok_s(ln, m, bytes_s, &tok_s, err));
    for (uint32_t i = 0; i < r->n_limit; i++)
        r->limit[i] =
            (struct bench_limit){(uint64_t)line_stage_at(ln, i)->rank, (double)bytes_s[i] * 1e-9};
    for (size_t i = 0; i < r->n_runs; i++) {
        const bool alone = strcmp(r->runs[i].kind, "tg") == 0 && r->runs[i].seqs == 1;
        r->run_notes[i].limit_tok_s = alone ? tok_s : NAN;
    }
    return ERR_NONE;
}

/* gather_sizes() - each size of any hop once; returns how many. What is beyond LINK_RAW_SIZES_MAX
 * is left out. */
static uint32_t gather_sizes(const struct line_stats_size *of, uint32_t n_of,
                             uint32_t sizes[LINK_RAW_SIZES_MAX])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_of; i++) {
        uint32_t k = 0;
        while (k < n && sizes[k] != of[i].bytes) k++;
        if (k == n && n < LINK_RAW_SIZES_MAX) sizes[n++] = of[i].bytes;
    }
    return n;
}

/* collect_raw() - plain messages for each hop and size in `of`. */
static int collect_raw(struct bench_results *r, struct line *ln, const struct line_stats_size *of,
                       struct err *err)
{
    uint32_t sizes[LINK_RAW_SIZES_MAX];
    const uint32_t n = gather_sizes(of, (uint32_t)r->n_hops, sizes);
    double *us = calloc(((size_t)line_stage_count(ln) + 1) * n + 1, sizeof *us);
    CHECK(us != NULL, err, ERR_MEMORY, "no memory for the latencies of %u sizes", n);
    int rc = n > 0 ? line_raw_hops(ln, sizes, n, RAW_ROUNDS, us, err) : ERR_NONE;
    for (size_t i = 0; rc == ERR_NONE && i < r->n_hops; i++) {
        uint32_t k = 0;
        while (k < n && sizes[k] != of[i].bytes) k++;
        r->hops[i] = (struct bench_hop){.from = (uint64_t)of[i].from,
                                        .to = (uint64_t)of[i].to,
                                        .bytes = of[i].bytes,
                                        .raw_mpi_us = k < n ? us[of[i].hop * n + k] : NAN};
    }
    free(us);
    return rc;
}

/* last_batch() - of the runs. */
static uint64_t last_batch(const struct bench_results *r, const struct bench_span *spans)
{
    return spans[r->n_runs - 1].last;
}

static int collect_hops(struct bench_results *r, struct line *ln, const struct bench_span *spans,
                        struct err *err)
{
    struct line_stats_size *sizes;
    uint32_t n;
    TRY(line_stats_read_sizes(&sizes, &n, ln, last_batch(r, spans), err));
    r->n_hops = n;
    r->hops = calloc((size_t)n + 1, sizeof *r->hops);
    r->hop_notes = calloc((size_t)n + 1, sizeof *r->hop_notes);
    int rc = r->hops != NULL && r->hop_notes != NULL
                 ? collect_raw(r, ln, sizes, err)
                 : err_set(err, ERR_MEMORY, "no memory for the numbers of %u sizes", n);
    free(sizes);
    return rc;
}

int bench_collect_limits(struct bench_results *r, struct line *ln, const struct model *m,
                         const struct bench_span *spans, struct err *err)
{
    r->n_limit = line_stage_count(ln);
    r->limit = calloc(r->n_limit, sizeof *r->limit);
    uint64_t *bytes_s = calloc(r->n_limit, sizeof *bytes_s);
    int rc = r->limit != NULL && bytes_s != NULL
                 ? collect_speeds(r, ln, m, bytes_s, err)
                 : err_set(err, ERR_MEMORY, "no memory for the limits of %zu stages", r->n_limit);
    free(bytes_s);
    return rc == ERR_NONE ? collect_hops(r, ln, spans, err) : rc;
}

/* ---- after it has stopped ---- */

static struct bench_stage stage_row(const struct line_stats_stage *s, struct line *ln,
                                    const char *layers)
{
    const double second = 1e-9;
    const struct layer_range *ranges;
    const struct footprint need = planner_need(line_planner(ln, &ranges), s->stage->range);
    return (struct bench_stage){.rank = (uint64_t)s->stage->rank,
                                .host = s->stage->host,
                                .isa = isa_name(line_isa(ln)),
                                .threads = s->stage->threads,
                                .layers = layers,
                                .weight_bytes = s->stage->bytes.weights,
                                .kv_bytes = s->stage->bytes.kv,
                                .need_bytes = capacity_total(&need) + CAPACITY_PROGRAM_BYTES,
                                .rss_bytes = s->stage->report.rss_bytes,
                                .load_s = (double)s->stage->load_ns * second,
                                .compute_s = (double)s->compute_ns * second,
                                .wait_s = (double)s->wait_ns * second,
                                .send_s = (double)s->send_ns * second,
                                .control_s = (double)s->control_ns * second,
                                .idle_s = (double)s->idle_ns * second,
                                .other_s = (double)s->other_ns * second,
                                .wall_s = (double)s->wall_ns * second};
}

static int collect_stages(struct bench_results *r, struct line *ln, struct err *err)
{
    struct line_stats stats;
    int rc = line_stats_read(&stats, ln, 1, UINT64_MAX, err);
    for (uint32_t i = 0; rc == ERR_NONE && i < r->n_stages; i++) {
        const struct layer_range range = line_stage_at(ln, i)->range;
        snprintf(r->layers[i], sizeof r->layers[i], "%u..%u", range.first, range.end - 1);
        r->stages[i] = stage_row(&stats.stages[i], ln, r->layers[i]);
    }
    line_stats_free(&stats);
    return rc;
}

/* collect_latencies() - now that the clocks have been compared for the last time. The runs had
 * ended when the sizes were read, so that they are the same. */
static int collect_latencies(struct bench_results *r, const struct line *ln,
                             const struct bench_span *spans, struct err *err)
{
    struct line_stats_size *sizes;
    uint32_t n;
    TRY(line_stats_read_sizes(&sizes, &n, ln, last_batch(r, spans), err));
    BUG_IF(n != r->n_hops, "bench: sizes of messages came after the last batch");
    for (uint32_t i = 0; i < n; i++) {
        r->hops[i].us_median = sizes[i].timed > 0 ? sizes[i].us_median : NAN;
        r->hops[i].us_p99 = sizes[i].timed > 0 ? sizes[i].us_p99 : NAN;
        r->hop_notes[i] = (struct bench_hop_note){sizes[i].messages, sizes[i].timed};
    }
    free(sizes);
    return ERR_NONE;
}

/* collect_bubbles() - not known where not all of the run's batches are on record. */
static int collect_bubbles(struct bench_results *r, const struct line *ln,
                           const struct bench_span *spans, struct err *err)
{
    for (size_t i = 0; i < r->n_runs; i++) {
        struct line_stats stats;
        int rc = line_stats_read(&stats, ln, spans[i].first, spans[i].last, err);
        if (rc == ERR_NONE) r->runs[i].bubble = stats.missing == 0 ? stats.bubble : NAN;
        line_stats_free(&stats);
        TRY(rc);
    }
    return ERR_NONE;
}

int bench_collect_times(struct bench_results *r, struct line *ln, const struct bench_span *spans,
                        struct err *err)
{
    r->n_stages = line_stage_count(ln);
    r->ranks = r->n_stages + 1;
    r->stages = calloc(r->n_stages, sizeof *r->stages);
    r->layers = calloc(r->n_stages, sizeof *r->layers);
    CHECK(r->stages != NULL && r->layers != NULL, err, ERR_MEMORY,
          "no memory for the numbers of %zu stages", r->n_stages);
    TRY(collect_stages(r, ln, err));
    TRY(collect_latencies(r, ln, spans, err));
    return collect_bubbles(r, ln, spans, err);
}

void bench_collect_free(struct bench_results *r)
{
    free(r->stages);
    free(r->hops);
    free(r->runs);
    free(r->limit);
    free(r->hop_notes);
    free(r->run_notes);
    free(r->layers);
}
