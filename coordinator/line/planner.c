/* planner - see planner.h. */
#include "coordinator/line/planner.h"

#include "coordinator/line/cpu_share.h"
#include "coordinator/line/scheduler.h"
#include "engine/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINK_US = 25,      /* that a hop takes besides the wire: packing, noticing, waking up */
    SCORE_BYTES = 64,  /* that come home for a row */
    FRAME_BYTES = 128, /* of a message besides its rows */
};

const struct planner_rank planner_usual = {
    .threads = 1, .may = UINT64_MAX, .busy = {1, 1}, .away = {50, 1e8}, .local = {2, 5e9}};

/* How many stages work at the same time: of the line, and of each rank's host. */
struct lanes {
    uint32_t n;
    uint32_t *of_host; /* [n_ranks] */
};

struct planner {
    struct capacity_wish wish; /* with the context and the number of stages that are judged now */
    const struct planner_rank *ranks;
    uint32_t n_ranks, n_layer;
    struct plan_model_work work;
    struct line_limits limits;
    struct plan_batch batch;         /* of decoding rows, by which a cut is judged */
    uint64_t *weights;               /* [n_layer][n_layer + 1] of a range; 0: not asked for yet */
    uint64_t *needs;                 /* the same of all memory, for the limits of now */
    uint64_t *before;                /* [n_ranks][n_layer + 1] picoseconds of the layers before */
    uint64_t *head;                  /* [n_ranks] */
    struct lanes all, used;          /* of all ranks; of those that a prediction is about */
    struct msg_hello *hello;         /* [n_ranks] what cpu_share asks for */
    const struct msg_hello **hellos; /* [n_ranks] some of them */
    uint32_t *threads;               /* [n_ranks] theirs */
    double *host_share;              /* [n_ranks] that the ranks of its host are of all */
    /* [n_ranks] of a prediction: */
    double *free_at; /* seconds, of a prompt's chunks */
    double *worked;  /* seconds that the rank's stage works */
    double *at_once; /* stages of the rank's host that work, where it does; on average */
};

static uint64_t picoseconds(double seconds)
{
    return seconds < 1e6 ? (uint64_t)(seconds * 1e12 + 0.5) : (uint64_t)1000000000000000000U;
}

/* ---- hops ---- */

/* hop_seconds() - from a rank to another; n_ranks: home, beside the first rank. */
static double hop_seconds(const struct planner *p, uint32_t from, uint32_t to, double bytes)
{
    const struct planner_rank *a = &p->ranks[from == p->n_ranks ? 0 : from];
    const struct planner_rank *b = &p->ranks[to == p->n_ranks ? 0 : to];
    const bool same = strcmp(a->host, b->host) == 0;
    const struct planner_link *x = same ? &a->local : &a->away, *y = same ? &b->local : &b->away;
    return (LINK_US + fmax(x->us, y->us)) * 1e-6 + bytes / fmin(x->bytes_s, y->bytes_s);
}

static double batch_bytes(const struct planner *p, const struct plan_batch *b, uint32_t to)
{
    const double row =
        to == p->n_ranks ? SCORE_BYTES : sizeof(float) * (double)p->wish.model->hp.n_embd;
    return FRAME_BYTES + row * (to == p->n_ranks ? b->wanted : b->rows);
}

/* ---- who works at the same time ---- */

static bool same_host(const struct planner *p, uint32_t a, uint32_t b)
{
    return strcmp(p->ranks[a].host, p->ranks[b].host) == 0;
}

static bool has_layers(const struct layer_range *ranges, uint32_t rank)
{
    return ranges == NULL || ranges[rank].end > ranges[rank].first;
}

/* count_lanes() - of the ranks that have layers (ranges NULL: all), on the host of rank `beside`;
 * n_ranks: on all hosts. */
static uint32_t count_lanes(const struct planner *p, const struct layer_range *ranges,
                            uint32_t beside)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        if (!has_layers(ranges, i) || (beside < p->n_ranks && !same_host(p, i, beside))) continue;
        p->hellos[n] = &p->hello[i];
        p->threads[n++] = p->ranks[i].threads;
    }
    return cpu_share_lanes(p->hellos, p->threads, n);
}

/* find_lanes() - a host's are counted once. */
static void find_lanes(const struct planner *p, const struct layer_range *ranges, struct lanes *out)
{
    out->n = count_lanes(p, ranges, p->n_ranks);
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        uint32_t first = 0;
        while (!same_host(p, first, i)) first++;
        out->of_host[i] = first < i ? out->of_host[first] : count_lanes(p, ranges, i);
    }
}

/* introduce() - the ranks to cpu_share: each may run on all CPUs of its host. */
static void introduce(struct planner *p)
{
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        uint32_t n = 0, threads = 0;
        for (uint32_t k = 0; k < p->n_ranks; k++) {
            if (!same_host(p, i, k)) continue;
            threads += p->ranks[k].threads;
            n++;
        }
        const uint32_t cpus = p->ranks[i].cpus > 0 ? p->ranks[i].cpus : threads;
        p->host_share[i] = (double)n / p->n_ranks;
        p->hello[i] =
            (struct msg_hello){.host = p->ranks[i].host, .cpus = cpus, .cpus_online = cpus};
    }
    find_lanes(p, NULL, &p->all);
}

/* speed_at() - of a rank, where so many of the stages of its host that can work at once do. */
static struct plan_speed speed_at(const struct planner_rank *r, uint32_t lanes, double at_once)
{
    double crowd = lanes > 1 ? (at_once - 1) / (lanes - 1) : 0;
    crowd = fmin(fmax(crowd, 0), 1);
    const double reads = 1 / (1 + crowd * (1 / r->busy.read - 1));
    const double computes = 1 / (1 + crowd * (1 / r->busy.ops - 1));
    return (struct plan_speed){r->speed.read_bytes_s * reads, r->speed.ops_s * computes,
                               r->speed.few_ops_s * computes};
}

/* host_worked() - seconds of all stages of a rank's host. */
static double host_worked(const struct planner *p, uint32_t rank)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++) sum += same_host(p, i, rank) ? p->worked[i] : 0;
    return sum;
}

/* busiest_host() - the seconds that no host can do its work in less than. */
static double busiest_host(const struct planner *p)
{
    double most = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (p->worked[i] > 0) most = fmax(most, host_worked(p, i) / p->used.of_host[i]);
    return most;
}

/* crowd() - what was worked within so many seconds says how many did so at the same time. */
static void crowd(const struct planner *p, double seconds)
{
    for (uint32_t i = 0; i < p->n_ranks; i++) p->at_once[i] = host_worked(p, i) / seconds;
}

/* disperse() - nobody works beside another, and nothing was worked: as a prediction begins. */
static void disperse(struct planner *p, const struct layer_range *ranges)
{
    find_lanes(p, ranges, &p->used);
    for (uint32_t i = 0; i < p->n_ranks; i++) p->at_once[i] = 1;
}

/* ---- the limits and times of now ---- */

/* speed_for_cut() - with as many batches under way as the line will have, spread over all ranks. */
static struct plan_speed speed_for_cut(const struct planner *p, uint32_t rank)
{
    const double groups = scheduler_groups(p->all.n, p->limits.n_seqs);
    return speed_at(&p->ranks[rank], p->all.of_host[rank], groups * p->host_share[rank]);
}

static void settle_times(struct planner *p)
{
    for (uint32_t rank = 0; rank < p->n_ranks; rank++) {
        const struct plan_speed speed = speed_for_cut(p, rank);
        uint64_t *before = p->before + (size_t)rank * (p->n_layer + 1);
        for (uint32_t i = 0; i < p->n_layer; i++)
            before[i + 1] =
                before[i] + picoseconds(plan_layer_seconds(&p->work, i, &p->batch, &speed));
        p->head[rank] = picoseconds(plan_head_seconds(&p->work, &p->batch, &speed));
    }
}

/* decode_batch() - of so many sequences, as the scheduler deals them out. */
static struct plan_batch decode_batch(uint32_t n_lanes, uint32_t n_seqs, double context)
{
    const double rows = ceil((double)n_seqs / scheduler_groups(n_lanes, n_seqs));
    return (struct plan_batch){.rows = rows, .n_seqs = rows, .wanted = rows, .context = context};
}

/* settle() - limits and times for the context of now. */
static int settle(struct planner *p, struct err *err)
{
    const uint32_t lanes = p->all.n < p->wish.n_stages ? p->all.n : p->wish.n_stages;
    TRY(capacity_settle(&p->wish, &p->limits, err));
    p->batch = decode_batch(lanes, p->limits.n_seqs, p->limits.n_ctx / 2.0);
    memset(p->needs, 0, (size_t)p->n_layer * (p->n_layer + 1) * sizeof *p->needs);
    settle_times(p);
    return ERR_NONE;
}

const struct line_limits *planner_limits(const struct planner *p)
{
    return &p->limits;
}

/* ---- open ---- */

static int take_tables(struct planner *p, struct err *err)
{
    const size_t ranges = (size_t)p->n_layer * (p->n_layer + 1);
    p->weights = calloc(ranges, sizeof *p->weights);
    p->needs = calloc(ranges, sizeof *p->needs);
    p->before = calloc((size_t)p->n_ranks * (p->n_layer + 1), sizeof *p->before);
    p->head = calloc(p->n_ranks, sizeof *p->head);
    CHECK(p->weights != NULL && p->needs != NULL && p->before != NULL && p->head != NULL, err,
          ERR_MEMORY, "no memory to plan %u layers for %u ranks", p->n_layer, p->n_ranks);
    return ERR_NONE;
}

/* take_ranks() - what is kept of each for a prediction. */
static int take_ranks(struct planner *p, struct err *err)
{
    const size_t n = p->n_ranks;
    p->all.of_host = calloc(n, sizeof *p->all.of_host);
    p->used.of_host = calloc(n, sizeof *p->used.of_host);
    p->hello = calloc(n, sizeof *p->hello);
    p->hellos = calloc(n, sizeof *p->hellos);
    p->threads = calloc(n, sizeof *p->threads);
    p->host_share = calloc(n, sizeof *p->host_share);
    p->free_at = calloc(n, sizeof *p->free_at);
    p->worked = calloc(n, sizeof *p->worked);
    p->at_once = calloc(n, sizeof *p->at_once);
    CHECK(p->all.of_host != NULL && p->used.of_host != NULL && p->hello != NULL &&
              p->hellos != NULL && p->threads != NULL && p->free_at != NULL && p->worked != NULL &&
              p->at_once != NULL && p->host_share != NULL,
          err, ERR_MEMORY, "no memory to plan for %u ranks", p->n_ranks);
    introduce(p);
    return ERR_NONE;
}

int planner_open(struct planner **out, const struct capacity_wish *wish,
                 const struct planner_rank *ranks, uint32_t n_ranks, struct err *err)
{
    const uint32_t n_layer = wish->model->hp.n_layer;
    CHECK(n_layer <= PLANNER_LAYERS_MAX, err, ERR_CAPACITY,
          "%u layers are more than the %d that can be planned: cut them by hand (--split)", n_layer,
          PLANNER_LAYERS_MAX);
    struct planner *p = calloc(1, sizeof *p);
    CHECK(p != NULL, err, ERR_MEMORY, "no memory for a plan");
    *p = (struct planner){.wish = *wish, .ranks = ranks, .n_ranks = n_ranks, .n_layer = n_layer};
    p->wish.n_stages = n_ranks < n_layer ? n_ranks : n_layer;
    int rc = plan_work_read(&p->work, wish->model, wish->kv, err);
    if (rc == ERR_NONE) rc = take_tables(p, err);
    if (rc == ERR_NONE) rc = take_ranks(p, err);
    if (rc == ERR_NONE) rc = settle(p, err);
    if (rc == ERR_NONE)
        *out = p;
    else
        planner_close(p);
    return rc;
}

void planner_close(struct planner *p)
{
    if (p == NULL) return;
    plan_work_free(&p->work);
    free(p->weights);
    free(p->needs);
    free(p->before);
    free(p->head);
    free(p->all.of_host);
    free(p->used.of_host);
    free(p->hello);
    free(p->hellos);
    free(p->threads);
    free(p->host_share);
    free(p->free_at);
    free(p->worked);
    free(p->at_once);
    free(p);
}

/* ---- what a stage needs and costs ---- */

static uint64_t weights_of(struct planner *p, struct layer_range range)
{
    uint64_t *bytes = &p->weights[(size_t)range.first * (p->n_layer + 1) + range.end];
    if (*bytes == 0) *bytes = plan_stage_bytes(p->wish.model, range);
    return *bytes;
}

struct footprint planner_need(struct planner *p, struct layer_range range)
{
    struct footprint f = capacity_working(p->wish.model, range, &p->limits);
    f.weights = weights_of(p, range);
    return f;
}

static uint64_t total_need(struct planner *p, struct layer_range range)
{
    uint64_t *bytes = &p->needs[(size_t)range.first * (p->n_layer + 1) + range.end];
    if (*bytes == 0) {
        const struct footprint f = planner_need(p, range);
        *bytes = capacity_total(&f) + CAPACITY_PROGRAM_BYTES;
    }
    return *bytes;
}

uint64_t planner_cost(struct planner *p, uint32_t rank, uint32_t next, struct layer_range range)
{
    if (total_need(p, range) > p->ranks[rank].may) return PLAN_NEVER;
    const uint64_t *before = p->before + (size_t)rank * (p->n_layer + 1);
    uint64_t cost = before[range.end] - before[range.first];
    if (range.end == p->n_layer) cost += p->head[rank];
    return cost + picoseconds(hop_seconds(p, rank, next, batch_bytes(p, &p->batch, next)));
}

bool planner_holds_any(struct planner *p, uint32_t rank)
{
    for (uint32_t i = 0; i < p->n_layer; i++)
        if (total_need(p, (struct layer_range){i, i + 1}) <= p->ranks[rank].may) return true;
    return false;
}

static uint64_t cost_for_plan(const void *ctx, uint32_t rank, uint32_t next,
                              struct layer_range range)
{
    return planner_cost((struct planner *)(uintptr_t)ctx, rank, next, range);
}

/* ---- the cut ---- */

uint32_t planner_count_stages(const struct planner *p, const struct layer_range *ranges)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++) n += ranges[i].end > ranges[i].first;
    return n;
}

/* solve() - under the limits of a line of all ranks, which do for a shorter one. */
static int solve(struct planner *p, struct layer_range *ranges, struct err *err)
{
    const struct plan_question question = {
        .n_layer = p->n_layer, .n_ranks = p->n_ranks, .cost = cost_for_plan, .ctx = p};
    TRY(settle(p, err));
    return plan_best(&question, ranges, err);
}

static unsigned long long mib(double bytes)
{
    return (unsigned long long)(bytes / (1 << 20));
}

/* refuse() - what all layers need, beside what all ranks may take. */
static int refuse(struct planner *p, struct err *err)
{
    const struct layer_range all = {0, p->n_layer};
    double may = 0;
    char hint[64] = "more hosts, or a smaller number format, would help";
    uint32_t n_ctx;
    for (uint32_t i = 0; i < p->n_ranks; i++) may += (double)p->ranks[i].may;
    TRY(settle(p, err));
    const uint32_t asked = p->limits.n_ctx;
    const struct footprint f = planner_need(p, all);
    TRY(planner_largest_context(p, &n_ctx, err));
    if (n_ctx > 0) snprintf(hint, sizeof hint, "what fits is --ctx %u", n_ctx);
    return err_set(
        err, ERR_CAPACITY,
        "the model with %u sequence%s of %u tokens needs %llu MiB and more (tensors %llu, "
        "KV %llu), and no cut of it fits %u rank%s, which may use %llu MiB together: %s",
        p->limits.n_seqs, p->limits.n_seqs == 1 ? "" : "s", asked, mib((double)(f.weights + f.kv)),
        mib((double)f.weights), mib((double)f.kv), p->n_ranks, p->n_ranks == 1 ? "" : "s", mib(may),
        hint);
}

int planner_split(struct planner *p, struct layer_range *ranges, struct err *err)
{
    int rc = solve(p, ranges, err);
    return rc == ERR_CAPACITY ? refuse(p, err) : rc;
}

/* fits() - would this context? *rc: an error that is none of fitting. */
static bool fits(struct planner *p, uint32_t n_ctx, struct layer_range *ranges, int *rc,
                 struct err *err)
{
    if (*rc != ERR_NONE) return false;
    p->wish.n_ctx = n_ctx;
    const int solved = solve(p, ranges, err);
    if (solved != ERR_NONE && solved != ERR_CAPACITY) *rc = solved;
    return solved == ERR_NONE;
}

int planner_largest_context(struct planner *p, uint32_t *n_ctx, struct err *err)
{
    const struct capacity_wish asked = p->wish;
    const uint32_t step = KV_BLOCK_POSITIONS, trained = p->wish.model->hp.n_ctx_train;
    struct layer_range *ranges = calloc(p->n_ranks, sizeof *ranges);
    CHECK(ranges != NULL, err, ERR_MEMORY, "no memory to plan %u ranks", p->n_ranks);
    uint32_t low = 0, high = (trained + step - 1) / step;
    int rc = ERR_NONE;
    if (fits(p, trained, ranges, &rc, err)) low = high;
    while (low < high && rc == ERR_NONE) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (fits(p, middle < high ? middle * step : trained, ranges, &rc, err))
            low = middle;
        else
            high = middle - 1;
    }
    *n_ctx = low * step < trained ? low * step : trained;
    free(ranges);
    p->wish = asked;
    TRY(rc);
    return settle(p, err);
}

/* ---- how fast it will be ---- */

static double seconds_at(const struct planner *p, const struct plan_speed *speed,
                         struct layer_range range, const struct plan_batch *b)
{
    double seconds = 0;
    for (uint32_t i = range.first; i < range.end; i++)
        seconds += plan_layer_seconds(&p->work, i, b, speed);
    return range.end == p->n_layer ? seconds + plan_head_seconds(&p->work, b, speed) : seconds;
}

double planner_stage_seconds(const struct planner *p, uint32_t rank, struct layer_range range,
                             const struct plan_batch *b)
{
    return seconds_at(p, &p->ranks[rank].speed, range, b);
}

/* stage_seconds() - beside as many others as the prediction at hand has it. */
static double stage_seconds(const struct planner *p, uint32_t rank, struct layer_range range,
                            const struct plan_batch *b)
{
    const struct plan_speed speed =
        speed_at(&p->ranks[rank], p->used.of_host[rank], p->at_once[rank]);
    return seconds_at(p, &speed, range, b);
}

/* next_rank() - the one behind a rank that has layers; n_ranks: home. from n_ranks: the first. */
static uint32_t next_rank(const struct planner *p, const struct layer_range *ranges, uint32_t from)
{
    uint32_t next = from == p->n_ranks ? 0 : from + 1;
    while (next < p->n_ranks && ranges[next].end == ranges[next].first) next++;
    return next;
}

/* decode() - with the stages at work at the same time that are noted. */
static struct planner_decode decode(const struct planner *p, const struct layer_range *ranges,
                                    uint32_t n_seqs, double context)
{
    const struct plan_batch b = decode_batch(p->used.n, n_seqs, context);
    const double groups = scheduler_groups(p->used.n, n_seqs);
    struct planner_decode d = {0};
    double slowest = 0, work = 0, way = 0;
    uint32_t rank = next_rank(p, ranges, p->n_ranks);
    memset(p->worked, 0, p->n_ranks * sizeof *p->worked);
    if (rank < p->n_ranks) way = hop_seconds(p, p->n_ranks, rank, FRAME_BYTES);
    while (rank < p->n_ranks) {
        const uint32_t next = next_rank(p, ranges, rank);
        const double stage = stage_seconds(p, rank, ranges[rank], &b);
        const double hop = hop_seconds(p, rank, next, batch_bytes(p, &b, next));
        p->worked[rank] = groups * stage;
        work += stage;
        way += stage + hop;
        if (stage + hop > slowest) {
            slowest = stage + hop;
            d.slowest = rank;
        }
        rank = next;
    }
    d.token_s = fmax(fmax(way, groups * slowest), busiest_host(p));
    d.tok_s = n_seqs / d.token_s;
    d.bubble = 1 - groups * work / (planner_count_stages(p, ranges) * d.token_s);
    return d;
}

struct planner_decode planner_predict_decode(struct planner *p, const struct layer_range *ranges,
                                             uint32_t n_seqs, double context)
{
    disperse(p, ranges);
    crowd(p, decode(p, ranges, n_seqs, context).token_s);
    return decode(p, ranges, n_seqs, context);
}

/* in_chunks() - a prompt chunk by chunk along the line: a stage begins one when it has arrived and
 * the one before is done. */
static double in_chunks(const struct planner *p, const struct layer_range *ranges, uint32_t n,
                        uint32_t chunk_max)
{
    double *free_at = p->free_at, arrived = 0;
    memset(free_at, 0, p->n_ranks * sizeof *free_at);
    memset(p->worked, 0, p->n_ranks * sizeof *p->worked);
    for (uint32_t done = 0; done < n;) {
        const uint32_t chunk = chunk_max < n - done ? chunk_max : n - done;
        const struct plan_batch b = {.rows = (double)chunk,
                                     .n_seqs = 1,
                                     .wanted = done + chunk == n,
                                     .context = done + (double)chunk / 2};
        uint32_t rank = next_rank(p, ranges, p->n_ranks);
        for (arrived = 0; rank < p->n_ranks;) {
            const uint32_t next = next_rank(p, ranges, rank);
            const double stage = stage_seconds(p, rank, ranges[rank], &b);
            free_at[rank] = fmax(arrived, free_at[rank]) + stage;
            arrived = free_at[rank] + hop_seconds(p, rank, next, batch_bytes(p, &b, next));
            p->worked[rank] += stage;
            rank = next;
        }
        done += chunk;
    }
    return fmax(arrived, busiest_host(p));
}

static double prompt_seconds(struct planner *p, const struct layer_range *ranges, uint32_t n,
                             uint32_t chunk)
{
    disperse(p, ranges);
    crowd(p, in_chunks(p, ranges, n, chunk));
    return in_chunks(p, ranges, n, chunk);
}

/* planner_predict_prompt() - with the chunk that is asked for, or the best one, which the scheduler
 * looks for, too. */
double planner_predict_prompt(struct planner *p, const struct layer_range *ranges, uint32_t n)
{
    const uint32_t most = p->limits.rows_max;
    if (p->wish.chunk != 0)
        return prompt_seconds(p, ranges, n, p->wish.chunk < most ? p->wish.chunk : most);
    double best = prompt_seconds(p, ranges, n, most);
    for (uint32_t chunk = 32; chunk < most && chunk < n; chunk *= 2)
        best = fmin(best, prompt_seconds(p, ranges, n, chunk));
    return best;
}
