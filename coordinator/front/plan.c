/* plan - who would hold what, and how fast the line would be: said before anything is loaded.
 *
 * Reads metadata only.
 * Stations: cluster_file or this host (what the ranks are), line/planner (the cut and what follows
 * from it), plan_report. */
#include "coordinator/front/front.h"

#include "coordinator/front/cluster_file.h"
#include "coordinator/front/output.h"
#include "coordinator/front/plan_report.h"
#include "engine/memory.h"
#include "engine/plan.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct planning {
    const struct settings *settings;
    const struct line_starter *starter;
    struct model *model;
    struct cluster cluster;
    struct planner *planner;
    struct layer_range *ranges; /* [cluster.n] */
};

/* ---- this host ---- */

static uint32_t count_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* share_memory() - limits of host and group are shared by all, that of a process is not. */
static uint64_t share_memory(uint32_t threads, uint32_t n)
{
    struct memory_limits l;
    memory_read_limits(&l, threads, "");
    uint64_t shared = l.physical < l.cgroup ? l.physical : l.cgroup;
    if (shared != MEMORY_UNLIMITED) shared /= n;
    return shared < l.process ? shared : l.process;
}

/* measure_rank() - one worker of this host, and then as many as can compute at the same time, as
 * one team. */
static int measure_rank(const struct planning *k, uint32_t n, struct planner_rank *rank,
                        struct err *err)
{
    struct plan_model_work work;
    struct plan_speed all;
    TRY(plan_work_read(&work, k->model, (enum kv_format)k->settings->kv, err));
    const uint32_t format = work.main_format;
    plan_work_free(&work);
    const uint64_t bytes = plan_stage_bytes(k->model, (struct layer_range){0, work.n_layer});
    TRY(k->starter->measure(&rank->speed, format, rank->threads, bytes, err));
    const uint32_t fit = rank->cpus / rank->threads, lanes = fit < n ? fit : n;
    if (lanes < 2) return ERR_NONE;
    TRY(k->starter->measure(&all, format, lanes * rank->threads, bytes, err));
    rank->busy.read = fmin(all.read_bytes_s / lanes / rank->speed.read_bytes_s, 1);
    rank->busy.ops = fmin(all.ops_s / lanes / rank->speed.ops_s, 1);
    return ERR_NONE;
}

/* take_this_host() - as n equal workers; to measure one takes half a second, and as long again. */
static int take_this_host(struct planning *k, uint32_t n, struct err *err)
{
    struct cluster *c = &k->cluster;
    const uint32_t cpus = count_cpus(), threads = cpus > n ? cpus / n : 1;
    const uint32_t n_layer = k->model->hp.n_layer, holders = n < n_layer ? n : n_layer;
    c->text = calloc(1, HOST_NAME_MAX + 1);
    c->ranks = calloc(n, sizeof *c->ranks);
    CHECK(c->text != NULL && c->ranks != NULL, err, ERR_MEMORY, "no memory for %u ranks", n);
    if (gethostname(c->text, HOST_NAME_MAX) != 0) strcpy(c->text, "here");
    struct planner_rank rank = planner_usual;
    rank.host = c->text;
    rank.threads = threads;
    rank.cpus = cpus;
    rank.may = share_memory(threads, holders);
    TRY(measure_rank(k, n, &rank, err));
    for (c->n = 0; c->n < n; c->n++) c->ranks[c->n] = rank;
    return ERR_NONE;
}

/* ---- the command ---- */

static int take_ranks(struct planning *k, struct err *err)
{
    const struct settings *s = k->settings;
    CHECK((s->ranks > 0) != (s->cluster != NULL), err, ERR_USAGE,
          "one of --ranks N and --cluster FILE is needed");
    if (s->cluster != NULL) return cluster_file_read(&k->cluster, s->cluster, STAGES_MAX, err);
    return take_this_host(k, s->ranks > 1 ? s->ranks - 1 : 1, err);
}

static int report(struct planning *k, struct err *err)
{
    struct plan_report r = {.model = k->model,
                            .name = gguf_path(k->model->file),
                            .planner = k->planner,
                            .ranks = k->cluster.ranks,
                            .ranges = k->ranges,
                            .n_ranks = k->cluster.n,
                            .first_rank = k->settings->ranks == 1 ? 0 : 1};
    TRY(planner_largest_context(k->planner, &r.largest_ctx, err));
    if (k->settings->json) return output_json(plan_report_json(&r), true, err);
    plan_report_print(stdout, &r);
    return output_flush(err);
}

static int plan(struct planning *k, struct err *err)
{
    const struct settings *s = k->settings;
    TRY(model_open(&k->model, s->model, err));
    TRY(take_ranks(k, err));
    const struct capacity_wish wish = {.model = k->model,
                                       .n_ctx = s->ctx,
                                       .n_seqs = s->slots,
                                       .kv = (enum kv_format)s->kv,
                                       .tokens_only = true};
    TRY(planner_open(&k->planner, &wish, k->cluster.ranks, k->cluster.n, err));
    capacity_warn_of_context(k->model, planner_limits(k->planner));
    k->ranges = calloc(k->cluster.n, sizeof *k->ranges);
    CHECK(k->ranges != NULL, err, ERR_MEMORY, "no memory for %u ranks", k->cluster.n);
    TRY(planner_split(k->planner, k->ranges, err));
    return report(k, err);
}

int plan_run(const struct settings *settings, const struct line_starter *starter, struct err *err)
{
    struct planning k = {.settings = settings, .starter = starter};
    const int rc = plan(&k, err);
    free(k.ranges);
    planner_close(k.planner);
    cluster_free(&k.cluster);
    model_close(k.model);
    return rc;
}
