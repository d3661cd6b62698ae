/* line - see line.h. */
#include "coordinator/line/line.h"

#include "coordinator/line/agreement.h"
#include "coordinator/line/capacity.h"
#include "coordinator/line/cpu_share.h"
#include "coordinator/line/journal.h"
#include "coordinator/line/line_state.h"
#include "coordinator/line/measure.h"
#include "coordinator/line/overlap.h"
#include "coordinator/line/pipeline.h"
#include "coordinator/line/roster.h"
#include "coordinator/line/scheduler.h"
#include "engine/clock.h"
#include "engine/fault.h"
#include "engine/log.h"
#include "engine/plan.h"
#include "engine/state_dump.h"
#include "proto/frame_sizes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HOME_SLOTS = 2,
    ADJUSTS_MAX = 32768, /* penalties and biases of one sequence: they must fit one batch */
};

struct line {
    struct link *link;
    const struct model *model;
    struct journal *journal;
    struct roster *roster;
    struct block_tables *tables;
    struct cost_model *costs;
    struct scheduler *scheduler;
    struct pipeline *pipeline;
    uint32_t n_stages;
    uint32_t n_lanes; /* stages that compute at the same time */
    struct layer_range *ranges;
    struct line_stage *stages;
    struct planner_rank *ranks;  /* of all workers, as measured; NULL: nobody asked */
    struct layer_range *planned; /* of all workers; empty for those that were left out */
    struct planner *planner;     /* NULL as ranks */
    struct capacity_wish wish;
    struct line_limits limits;
    enum isa isa;
    bool stopped, measure, as_f32;
    unsigned dumps_seen; /* see engine/state_dump */
    struct fault_plan fault;
    uint64_t opened_ns, stopped_ns;
    uint64_t idle_since_ns; /* 0: a request is there */
    struct line_counts counts;
    /* What the RESULT at hand means for the front end, handed out one by one. */
    struct line_event *events;
    uint32_t n_events, next_event;
    bool holds_result;
};

static bool is_auto(const struct line_config *c)
{
    return c->split != NULL && strcmp(c->split, "auto") == 0;
}

/* settle_limits() - the sizes of this line. */
static int settle_limits(struct line *ln, const struct line_config *c, struct err *err)
{
    ln->wish = (struct capacity_wish){.model = c->model,
                                      .n_stages = ln->n_stages,
                                      .n_stages_max = ln->n_stages,
                                      .n_ctx = c->n_ctx,
                                      .n_ctx_min = c->n_ctx_min,
                                      .n_seqs = c->n_seqs,
                                      .kv_tokens = c->kv_tokens,
                                      .chunk = c->chunk,
                                      .kv = c->kv,
                                      .wire = c->wire,
                                      .tokens_only = c->tokens_only};
    TRY(capacity_settle(&ln->wish, &ln->limits, err));
    capacity_warn_of_context(c->model, &ln->limits);
    return ERR_NONE;
}

static int settle_split(struct line *ln, const struct line_config *c, struct err *err)
{
    ln->ranges = calloc(ln->n_stages, sizeof *ln->ranges);
    CHECK(ln->ranges != NULL, err, ERR_MEMORY, "no memory for the plan");
    CHECK(ln->n_stages <= c->model->hp.n_layer, err, ERR_CAPACITY,
          "%u workers for %u layers: a worker needs a layer, so the limit is %u workers (mpirun -n "
          "%u)",
          ln->n_stages, c->model->hp.n_layer, c->model->hp.n_layer, c->model->hp.n_layer + 1);
    if (c->split == NULL) return plan_by_bytes(c->model, ln->n_stages, ln->ranges, err);
    uint32_t n = ln->n_stages;
    TRY(plan_by_hand(c->model, c->split, &n, ln->ranges, err));
    CHECK(n == ln->n_stages, err, ERR_USAGE, "--split %s names %u stages, the line has %u workers",
          c->split, n, ln->n_stages);
    return ERR_NONE;
}

/* rank_of_stage() - before the first stage and behind the last one is the coordinator. */
static uint32_t rank_of_stage(const struct line *ln, int64_t stage)
{
    if (stage < 0 || stage >= (int64_t)ln->n_stages) return 0;
    return (uint32_t)roster_at(ln->roster, (uint32_t)stage)->rank;
}

static int send_load(struct line *ln, uint32_t stage, uint32_t threads, const struct line_config *c,
                     struct err *err)
{
    const struct line_limits *lim = &ln->limits;
    struct member *m = roster_at(ln->roster, stage);
    m->range = ln->ranges[stage];
    m->has_range = true;
    struct message load = {.type = MESSAGE_LOAD,
                           .u.load = {.stage = stage,
                                      .n_stages = ln->n_stages,
                                      .layer_first = m->range.first,
                                      .layer_end = m->range.end,
                                      .isa = ln->isa,
                                      .matmul = c->matmul,
                                      .kv_format = lim->kv,
                                      .wire_format = lim->wire,
                                      .n_ctx = lim->n_ctx,
                                      .n_seqs = lim->n_seqs,
                                      .rows_max = lim->rows_max,
                                      .wanted_max = lim->wanted_max,
                                      .credits = lim->credits,
                                      .threads = threads,
                                      .trace_layers = c->trace_layers,
                                      .from_rank = rank_of_stage(ln, (int64_t)stage - 1),
                                      .to_rank = rank_of_stage(ln, (int64_t)stage + 1)}};
    memcpy(load.u.load.n_blocks, lim->n_blocks, sizeof lim->n_blocks);
    return roster_send(ln->roster, stage, &load, err);
}

static int note_stages(struct line *ln, struct err *err)
{
    ln->stages = calloc(ln->n_stages, sizeof *ln->stages);
    CHECK(ln->stages != NULL, err, ERR_MEMORY, "no memory for the plan");
    for (uint32_t i = 0; i < ln->n_stages; i++) {
        const struct member *m = roster_at(ln->roster, i);
        ln->stages[i] = (struct line_stage){
            .rank = m->rank,
            .host = m->host,
            .pid = m->hello.pid,
            .range = m->range,
            .threads = m->ready.threads,
            .bytes = {m->ready.weight_bytes, m->ready.kv_bytes, m->ready.buffer_bytes},
            .load_ns = m->ready.load_ns};
    }
    return ERR_NONE;
}

/* ---- by speed ---- */

/* measure_line() - all ranks, and a planner that knows them. */
static int measure_line(struct line *ln, const struct line_config *c, struct err *err)
{
    struct plan_model_work work;
    const struct layer_range all = {0, ln->model->hp.n_layer};
    const uint32_t n = ln->n_stages;
    ln->ranks = calloc(n, sizeof *ln->ranks);
    ln->planned = calloc(n, sizeof *ln->planned);
    CHECK(ln->ranks != NULL && ln->planned != NULL, err, ERR_MEMORY, "no memory for the plan");
    TRY(plan_work_read(&work, ln->model, c->kv, err));
    const struct measure_wish wish = {.format = work.main_format,
                                      .weight_bytes = plan_stage_bytes(ln->model, all),
                                      .threads = c->threads};
    plan_work_free(&work);
    TRY(fault_act(&ln->fault, FAULT_MEASURE, NULL, NULL, err));
    TRY(measure_ranks(ln->roster, ln->link, &wish, &planner_usual, ln->ranks, err));
    for (uint32_t i = 0; i < n; i++)
        log_line(LOG_INFO, "worker %d @%s: reads weights at %.1f GB/s, computes %.0f GOP/s",
                 roster_at(ln->roster, i)->rank, ln->ranks[i].host,
                 ln->ranks[i].speed.read_bytes_s * 1e-9, ln->ranks[i].speed.ops_s * 1e-9);
    if (ln->ranges != NULL) memcpy(ln->planned, ln->ranges, n * sizeof *ln->planned);
    return planner_open(&ln->planner, &ln->wish, ln->ranks, n, err);
}

/* split_by_speed() - the best cut; ranks without a part in it leave the line. */
static int split_by_speed(struct line *ln, struct err *err)
{
    const uint32_t n = ln->n_stages;
    TRY(planner_split(ln->planner, ln->planned, err));
    ln->ranges = calloc(n, sizeof *ln->ranges);
    CHECK(ln->ranges != NULL, err, ERR_MEMORY, "no memory for the plan");
    uint32_t stage = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct member *m = roster_at(ln->roster, stage);
        if (ln->planned[i].end > ln->planned[i].first) {
            ln->ranges[stage++] = ln->planned[i];
            continue;
        }
        log_line(LOG_WARN, "worker %d @%s is left out: it would only slow the line", m->rank,
                 m->host);
        roster_leave_out(ln->roster, stage);
    }
    ln->n_stages = ln->wish.n_stages = stage;
    return ERR_NONE;
}

static void tell_memory(struct line *ln, uint32_t stage)
{
    const struct member *m = roster_at(ln->roster, stage);
    struct footprint need = capacity_need(ln->model, ln->ranges[stage], &ln->limits);
    const char *name;
    uint64_t may = capacity_bound(&m->hello, &name);
    log_event(LOG_INFO, "memory",
              "worker %d @%s, layers %u..%u: needs %.1f MiB (tensors %.1f, KV %.1f, buffers %.1f), "
              "may use %.1f (%s)",
              m->rank, m->host, ln->ranges[stage].first, ln->ranges[stage].end - 1,
              (double)capacity_total(&need) / (1 << 20), (double)need.weights / (1 << 20),
              (double)need.kv / (1 << 20), (double)need.buffers / (1 << 20),
              (double)may / (1 << 20), name);
}

/* check_memory() - nobody is asked to load what does not fit. */
static int check_memory(struct line *ln, struct err *err)
{
    const struct msg_hello *hellos[MESSAGE_RANKS_MAX];
    roster_hellos(ln->roster, hellos);
    TRY(capacity_check(&ln->wish, ln->ranges, hellos, err));
    for (uint32_t i = 0; i < ln->n_stages; i++) tell_memory(ln, i);
    return ERR_NONE;
}

static void warn_of_cpus(struct line *ln, const struct msg_hello *const *hellos,
                         const uint32_t *threads)
{
    char text[CPU_SHARE_TEXT_MAX];
    for (uint32_t i = 0; i < ln->n_stages; i++) {
        enum cpu_share_verdict verdict = cpu_share_judge(hellos, threads, ln->n_stages, i, text);
        if (verdict != CPU_SHARE_FINE && hellos[i]->pid != (uint32_t)getpid())
            log_event(verdict == CPU_SHARE_WRONG ? LOG_WARN : LOG_INFO, "cpus", "worker %d @%s %s",
                      roster_at(ln->roster, i)->rank, hellos[i]->host, text);
    }
}

/* send_loads() - threads: what was asked for, or a share of the host's CPUs. */
static int send_loads(struct line *ln, const struct line_config *c, struct err *err)
{
    const struct msg_hello *hellos[MESSAGE_RANKS_MAX];
    uint32_t threads[MESSAGE_RANKS_MAX];
    roster_hellos(ln->roster, hellos);
    for (uint32_t i = 0; i < ln->n_stages; i++) {
        threads[i] = c->threads > 0 ? c->threads : cpu_share_threads(hellos, ln->n_stages, i);
        TRY(send_load(ln, i, threads[i], c, err));
    }
    ln->n_lanes = cpu_share_lanes(hellos, threads, ln->n_stages);
    warn_of_cpus(ln, hellos, threads);
    return ERR_NONE;
}

/* serve_weights() - where somebody has no model file. */
static int serve_weights(struct line *ln, struct err *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ln->n_stages; i++) {
        const struct member *m = roster_at(ln->roster, i);
        if (!m->hello.wants_model) continue;
        log_line(LOG_INFO, "worker %d @%s: its weights are streamed from here", m->rank, m->host);
        n++;
    }
    return n > 0 ? roster_serve_weights(ln->roster, ln->model->file, err) : ERR_NONE;
}

/* hello, measure, plan, check, load, ready. What can be refused without the workers is refused
 * first. */
static int assemble(struct line *ln, const struct line_config *c, struct err *err)
{
    if (!is_auto(c)) TRY(settle_split(ln, c, err));
    TRY(settle_limits(ln, c, err));
    TRY(roster_await(ln->roster, ROSTER_HELLO, NULL, NULL, err));
    TRY(agreement_check_hellos(ln->roster, ln->model, err));
    ln->isa = roster_isa(ln->roster);
    if (is_auto(c) || c->measure_speed) TRY(measure_line(ln, c, err));
    if (is_auto(c)) TRY(split_by_speed(ln, err));
    TRY(check_memory(ln, err));
    TRY(serve_weights(ln, err));
    TRY(send_loads(ln, c, err));
    TRY(fault_act(&ln->fault, FAULT_LOAD, NULL, NULL, err));
    TRY(roster_await(ln->roster, ROSTER_READY, c->on_load, c->ctx, err));
    roster_end_weights(ln->roster);
    TRY(agreement_check_tensors(ln->roster, ln->model, err));
    for (uint32_t i = 0; ln->measure && i < ln->n_stages; i++)
        TRY(roster_read_clock(ln->roster, i, &journal_clock_pair(ln->journal, i)->begin, err));
    return note_stages(ln, err);
}

static int open_stations(struct line *ln, const struct line_config *c, struct err *err)
{
    const struct line_limits *lim = &ln->limits;
    const struct hparams *hp = &c->model->hp;
    const uint32_t n_vocab = hp->n_vocab;
    struct block_tables_config tables = {.n_classes = hp->n_kv_classes,
                                         .share = c->share_prefixes,
                                         .shuffle = c->shuffle_blocks,
                                         .shuffle_seed = c->shuffle_seed};
    memcpy(tables.window, hp->kv_class_window, sizeof tables.window);
    memcpy(tables.n_blocks, lim->n_blocks, sizeof tables.n_blocks);
    TRY(block_tables_open(&ln->tables, &tables, err));
    TRY(cost_model_open(&ln->costs, ln->n_stages, err));
    struct scheduler_config sc = {.n_stages = ln->n_stages,
                                  .n_lanes = ln->n_lanes,
                                  .n_seqs = lim->n_seqs,
                                  .rows_max = lim->rows_max,
                                  .chunk = c->chunk,
                                  .costs = ln->costs,
                                  .wanted_max = lim->wanted_max,
                                  .credits = lim->credits,
                                  .n_vocab = n_vocab,
                                  .n_kv_classes = hp->n_kv_classes,
                                  .tables = ln->tables};
    TRY(scheduler_open(&ln->scheduler, &sc, err));
    link_set_neighbours(ln->link, (int)rank_of_stage(ln, (int64_t)ln->n_stages - 1),
                        (int)rank_of_stage(ln, 0));
    TRY(link_open_data(ln->link, frame_result_bytes_max(lim->wanted_max + lim->credits, n_vocab),
                       frame_batch_bytes_max(lim->rows_max, 0, WIRE_F32), HOME_SLOTS, lim->credits,
                       err));
    struct flight_limits flights = scheduler_limits(ln->scheduler);
    TRY(pipeline_open(&ln->pipeline, ln->link, &flights, ln->journal, err));
    ln->events = calloc((size_t)lim->wanted_max + lim->credits + lim->rows_max, sizeof *ln->events);
    CHECK(ln->events != NULL, err, ERR_MEMORY, "no memory for events");
    return ERR_NONE;
}

int line_open(struct line **out, struct link *l, const struct line_config *config, struct err *err)
{
    struct line *ln = calloc(1, sizeof *ln);
    CHECK(ln != NULL, err, ERR_MEMORY, "no memory for a line");
    ln->link = l;
    ln->model = config->model;
    ln->n_stages = (uint32_t)link_size(l) - 1;
    ln->measure = config->measure;
    ln->opened_ns = ln->idle_since_ns = clock_now_ns();
    enum journal_depth depth = config->measure ? JOURNAL_LONG : JOURNAL_SHORT;
    if (config->trace_layers) depth = JOURNAL_LAYERS;
    int rc = journal_open(&ln->journal, ln->n_stages, depth, err);
    if (rc == ERR_NONE) rc = fault_plan_read(&ln->fault, 0, err);
    if (rc == ERR_NONE) rc = roster_open(&ln->roster, l, ln->journal, config->stall_ms, err);
    if (rc == ERR_NONE) rc = assemble(ln, config, err);
    if (rc == ERR_NONE) rc = open_stations(ln, config, err);
    if (rc != ERR_NONE) {
        line_close(ln);
        return rc;
    }
    *out = ln;
    return ERR_NONE;
}

/* check_room() - a request that the KV pool could not hold by itself would wait for ever. */
static int check_room(const struct line *ln, const struct line_request *r, uint32_t *n_ctx,
                      struct err *err)
{
    const uint64_t room = (uint64_t)ln->limits.n_blocks[0] * KV_BLOCK_POSITIONS;
    *n_ctx = ln->limits.n_ctx;
    if (room >= *n_ctx || r->n_prompt > *n_ctx) return ERR_NONE;
    *n_ctx = (uint32_t)room;
    const uint64_t wanted =
        (uint64_t)r->n_prompt + (r->max_tokens == UINT32_MAX ? 0 : r->max_tokens);
    CHECK(wanted <= room, err, ERR_CAPACITY,
          "a request of %u prompt tokens and %llu more never fits into a KV pool of %u tokens: ask "
          "for less, or raise --kv-tokens",
          r->n_prompt, (unsigned long long)(wanted - r->n_prompt), *n_ctx);
    return ERR_NONE;
}

int line_submit(struct line *ln, const struct line_request *r, uint32_t *request, struct err *err)
{
    CHECK((uint64_t)r->sampling.n_bias + r->sampling.penalty_last_n <= ADJUSTS_MAX, err, ERR_USAGE,
          "%u logit biases and penalties over %u tokens are more than the limit of %d",
          r->sampling.n_bias, r->sampling.penalty_last_n, ADJUSTS_MAX);
    struct sequence *s;
    uint32_t n_ctx;
    TRY(check_room(ln, r, &n_ctx, err));
    *request = scheduler_count(ln->scheduler);
    TRY(sequence_open(&s, r, *request, n_ctx, (int32_t)ln->model->hp.n_vocab, err));
    int rc = scheduler_add(ln->scheduler, s, err);
    if (rc != ERR_NONE) sequence_close(s);
    return rc;
}

/* begin_idling() - from the moment on in which the last request finished. */
static void begin_idling(struct line *ln)
{
    if (ln->idle_since_ns == 0 && !scheduler_has_work(ln->scheduler))
        ln->idle_since_ns = clock_now_ns();
}

/* end_idling() - a batch leaves, or the line ends: how long there was no request. */
static uint64_t end_idling(struct line *ln)
{
    if (ln->idle_since_ns == 0) return 0;
    uint64_t idle_ns = clock_now_ns() - ln->idle_since_ns;
    ln->counts.idle_ns += idle_ns;
    ln->idle_since_ns = 0;
    return idle_ns;
}

void line_send_as_f32(struct line *ln, bool as_f32)
{
    const struct line_limits *lim = &ln->limits;
    ln->as_f32 = as_f32;
    scheduler_limit_rows(ln->scheduler,
                         as_f32 ? frame_f32_rows_max(lim->rows_max, ln->model->hp.n_embd,
                                                     (enum wire_format)lim->wire)
                                : lim->rows_max);
}

void line_cancel(struct line *ln, uint32_t request)
{
    struct sequence *s = scheduler_find(ln->scheduler, request);
    if (s != NULL && s->state != SEQUENCE_DONE)
        scheduler_finish(ln->scheduler, s, LINE_FINISH_CANCELLED);
    begin_idling(ln);
}

static struct line_event *add_event(struct line *ln, enum line_event_kind kind,
                                    const struct sequence *s, uint32_t position)
{
    struct line_event *ev = &ln->events[ln->n_events++];
    *ev = (struct line_event){.kind = kind,
                              .request = s->request,
                              .position = position,
                              .token = -1,
                              .temperature = s->temperature};
    return ev;
}

/* choose_token() - the scores of s's last token are home: pick what follows. */
static int choose_token(struct line *ln, const struct flight *f, uint32_t k,
                        const struct score_head *head, struct err *err)
{
    struct sequence *s = flight_head_at(f, k)->sequence;
    uint32_t position = flight_head_at(f, k)->position + 1;
    int32_t token;
    int rc = sampler_pick(s->sampler, head, position, &token, err);
    if (rc == SAMPLER_MORE) {
        CHECK(k < f->n_wanted, err, ERR_PEER, "a whole row of scores came home too short");
        if (s->slot == SEQUENCE_NO_SLOT) return ERR_NONE; /* it comes back, and so does this row */
        s->fetch = true;
        s->fetch_batch = s->held_batch = f->id;
        s->fetch_wanted = k;
        return ERR_NONE;
    }
    TRY(rc);
    s->held_batch = 0;
    enum sequence_step step = sequence_add_token(s, token);
    if (step != SEQUENCE_ENDS) {
        ln->counts.tokens++;
        struct line_event *ev = add_event(ln, LINE_EVENT_TOKEN, s, position);
        ev->token = token;
        ev->head = head;
    }
    if (step != SEQUENCE_GOES_ON)
        scheduler_finish(ln->scheduler, s,
                         step == SEQUENCE_ENDS ? LINE_FINISH_STOP : LINE_FINISH_LENGTH);
    return ERR_NONE;
}

/* tell_prefill() - progress of a prompt, but not of one that is rebuilt. */
static void tell_prefill(struct line *ln, const struct flight *f, const struct flight_part *part)
{
    const struct sequence *s = part->sequence;
    const uint32_t first = f->pos[part->first], end = first + part->n_rows;
    const uint32_t known = first > s->n_home ? first : s->n_home;
    const uint32_t until = end < s->n_prompt ? end : s->n_prompt;
    if (until <= known) return;
    ln->counts.prompt_tokens += until - known;
    if (part->n_rows < s->n_prompt && s->state != SEQUENCE_DONE)
        add_event(ln, LINE_EVENT_PREFILL, s, until);
}

static int take_answers(struct line *ln, const struct flight *f, const struct msg_result *result,
                        struct err *err)
{
    ln->n_events = ln->next_event = 0;
    for (uint32_t k = 0; k < result->n_heads; k++) {
        const struct flight_head *to = flight_head_at(f, k);
        if (to->sequence->state == SEQUENCE_DONE) continue;
        if (to->sequence->scores != LINE_SCORES_NONE)
            add_event(ln, LINE_EVENT_SCORES, to->sequence, to->position)->head = &result->heads[k];
        else
            TRY(choose_token(ln, f, k, &result->heads[k], err));
    }
    for (uint32_t i = 0; i < f->n_parts; i++) tell_prefill(ln, f, &f->parts[i]);
    ln->counts.home_rows += result->n_heads;
    return ERR_NONE;
}

/* launch() - send whatever should go now, up to the credits. */
static int launch(struct line *ln, struct err *err)
{
    struct flight *f;
    while ((f = pipeline_free_flight(ln->pipeline)) != NULL &&
           scheduler_fill(ln->scheduler, f, pipeline_in_air(ln->pipeline),
                          pipeline_decode_in_air(ln->pipeline))) {
        f->idle_ns = end_idling(ln);
        f->as_f32 = ln->as_f32;
        TRY(pipeline_send(ln->pipeline, f, scheduler_oldest_held(ln->scheduler), err));
        TRY(fault_act(&ln->fault, f->n_rows > 1 ? FAULT_PREFILL : FAULT_DECODE, NULL, NULL, err));
        ln->counts.batches++;
        ln->counts.rows += f->n_rows;
    }
    return ERR_NONE;
}

/* receive() - a RESULT, where one has come home: choose tokens, and send the next batches before
 * anybody is told. */
static int receive(struct line *ln, struct err *err)
{
    struct flight *f;
    const struct msg_result *result;
    TRY(pipeline_receive(ln->pipeline, &f, &result, err));
    if (f == NULL) return ERR_NONE;
    ln->holds_result = true;
    TRY(take_answers(ln, f, result, err));
    scheduler_land(ln->scheduler, f);
    pipeline_land(ln->pipeline);
    begin_idling(ln);
    return launch(ln, err);
}

static void release_result(struct line *ln)
{
    if (!ln->holds_result) return;
    pipeline_release(ln->pipeline);
    ln->holds_result = false;
}

static bool next_finished(struct line *ln, struct line_event *ev)
{
    struct sequence *s = scheduler_next_done(ln->scheduler);
    if (s == NULL) return false;
    *ev = (struct line_event){.kind = LINE_EVENT_FINISHED,
                              .request = s->request,
                              .position = s->n_tokens,
                              .token = s->finish == LINE_FINISH_STOP ? s->end_token : -1,
                              .temperature = s->temperature,
                              .finish = s->finish,
                              .cached = s->n_cached};
    ln->counts.cached_tokens += s->n_cached;
    scheduler_tell_done(ln->scheduler, s);
    return true;
}

static void log_state(const struct line *ln)
{
    const struct line_counts counts = line_counts(ln);
    line_state_log(ln->scheduler, ln->pipeline, &counts);
}

int line_next(struct line *ln, struct line_event *ev, bool *none, struct err *err)
{
    enum { WAIT_US = 50000 };
    *none = false;
    for (;;) {
        if (ln->next_event < ln->n_events) {
            *ev = ln->events[ln->next_event++];
            return ERR_NONE;
        }
        release_result(ln);
        if (next_finished(ln, ev)) return ERR_NONE;
        if (scheduler_idle(ln->scheduler)) {
            *none = true;
            return ERR_NONE;
        }
        TRY(roster_poll(ln->roster, err));
        if (state_dump_is_due(&ln->dumps_seen)) log_state(ln);
        cost_model_learn(ln->costs, ln->journal);
        TRY(launch(ln, err));
        TRY(receive(ln, err));
        if (ln->holds_result) continue;
        TRY(fault_act(&ln->fault, FAULT_IDLE, NULL, NULL, err));
        link_wait(ln->link, WAIT_US);
    }
}

uint32_t line_stage_count(const struct line *ln)
{
    return ln->n_stages;
}

const struct line_stage *line_stage_at(const struct line *ln, uint32_t stage)
{
    return &ln->stages[stage];
}

struct planner *line_planner(struct line *ln, const struct layer_range **ranges)
{
    *ranges = ln->planned;
    return ln->planner;
}

enum isa line_isa(const struct line *ln)
{
    return ln->isa;
}

const struct journal *line_journal(const struct line *ln)
{
    return ln->journal;
}

uint32_t line_n_ctx(const struct line *ln)
{
    return ln->limits.n_ctx;
}

struct line_counts line_counts(const struct line *ln)
{
    struct line_counts counts = ln->counts;
    counts.sent_bytes = link_counts(ln->link, LINK_DATA).sent_bytes;
    counts.home_bytes = link_counts(ln->link, LINK_DATA).received_bytes;
    counts.wall_ns = (ln->stopped ? ln->stopped_ns : clock_now_ns()) - ln->opened_ns;
    counts.preemptions = scheduler_preemptions(ln->scheduler);
    counts.blocks_used = block_tables_held(ln->tables);
    for (uint32_t k = 0; k < ln->model->hp.n_kv_classes; k++)
        counts.blocks_most[k] = block_tables_most(ln->tables, k);
    return counts;
}

/* land_all() - batches of cancelled sequences may still be under way. */
static int land_all(struct line *ln, struct err *err)
{
    while (pipeline_in_air(ln->pipeline) > 0) {
        TRY(roster_poll(ln->roster, err));
        TRY(receive(ln, err));
        if (ln->holds_result)
            release_result(ln);
        else
            link_wait(ln->link, 1000);
    }
    return ERR_NONE;
}

int line_read_speeds(struct line *ln, uint64_t *bytes_s, struct err *err)
{
    release_result(ln);
    TRY(land_all(ln, err));
    for (uint32_t i = 0; i < ln->n_stages; i++) {
        TRY(roster_probe(ln->roster, i, &(struct msg_probe){0}, err));
        TRY(roster_await_probed(ln->roster, i, err));
        bytes_s[i] = roster_at(ln->roster, i)->probed.read_bytes_s;
    }
    return ERR_NONE;
}

int line_raw_hops(struct line *ln, const uint32_t *bytes, uint32_t n, uint32_t rounds, double *us,
                  struct err *err)
{
    release_result(ln);
    TRY(land_all(ln, err));
    return roster_raw_hops(ln->roster, bytes, n, rounds, us, err);
}

/* tell_costs() - what decided the chunk, where it is known; a small model's parts are tiny. */
static void tell_costs(const struct line *ln)
{
    for (uint32_t i = 0; i < ln->n_stages; i++) {
        struct cost c;
        if (!cost_model_stage(ln->costs, i, &c)) continue;
        log_line(LOG_INFO,
                 "worker %d @%s: a batch costs %.4g ms, and %.4g us a row, and %.4g us a row and "
                 "1000 positions",
                 ln->stages[i].rank, ln->stages[i].host, c.fixed_ns * 1e-6, c.row_ns * 1e-3,
                 c.seen_ns);
    }
}

int line_stop(struct line *ln, struct err *err)
{
    release_result(ln);
    TRY(land_all(ln, err));
    for (uint32_t i = 0; ln->measure && i < ln->n_stages; i++)
        TRY(roster_read_clock(ln->roster, i, &journal_clock_pair(ln->journal, i)->end, err));
    roster_stop(ln->roster, end_idling(ln));
    ln->stopped_ns = clock_now_ns();
    ln->stopped = true;
    TRY(roster_await(ln->roster, ROSTER_REPORT, NULL, NULL, err));
    for (uint32_t i = 0; i < ln->n_stages; i++)
        ln->stages[i].report = roster_at(ln->roster, i)->report;
    tell_costs(ln);
    ln->counts.overlapped = overlap_count(ln->journal, ln->stages, ln->n_stages);
    return ERR_NONE;
}

void line_close(struct line *ln)
{
    if (ln == NULL) return;
    if (ln->roster != NULL && !ln->stopped) roster_stop(ln->roster, 0);
    pipeline_close(ln->pipeline);
    scheduler_close(ln->scheduler);
    block_tables_close(ln->tables);
    cost_model_close(ln->costs);
    roster_close(ln->roster);
    journal_close(ln->journal);
    planner_close(ln->planner);
    free(ln->ranks);
    free(ln->planned);
    free(ln->events);
    free(ln->stages);
    free(ln->ranges);
    free(ln);
}
