/* worker - see worker.h. */
#include "worker/worker.h"

#include "engine/clock.h"
#include "engine/fault.h"
#include "engine/isa.h"
#include "engine/log.h"
#include "engine/memory.h"
#include "engine/model.h"
#include "engine/stage.h"
#include "engine/state_dump.h"
#include "proto/beat_text.h"
#include "proto/codec.h"
#include "proto/stage_bytes.h"
#include "worker/exec.h"
#include "worker/ledger.h"
#include "worker/remote_model.h"
#include "worker/speed_probe.h"
#include "worker/watch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOP_WAIT_MS = 5000 };

struct worker {
    struct link *link;
    struct codec *control; /* small messages */
    struct codec *data;    /* batches and results */
    struct model *model;
    const struct worker_config *config;
    struct remote_model *remote; /* NULL: the model's file is here */
    struct stage *stage;
    struct exec *exec;
    struct stage_sizes sizes; /* of what is around the stage */
    struct fault_plan fault;
    struct watch watch; /* of the coordinator */
    char host[256];
    uint32_t layer_first;
    bool is_last;
    bool stopped;
    bool has_load; /* LOAD has come: */
    struct msg_load load;
    struct msg_heartbeat beat;
    uint64_t beat_ns; /* when the last one was sent */
    uint64_t began_ns;
    struct ledger ledger;
    bool trace_layers;
    uint64_t stop_idle_ns; /* what STOP said */
    uint64_t wall_ns;      /* of run_line() */
    unsigned dumps_seen;   /* see engine/state_dump */
};

static int send_control(struct worker *w, const struct message *m, struct err *err)
{
    size_t capacity, len;
    uint8_t *frame;
    while ((frame = link_send_begin(w->link, LINK_CONTROL, 0, &capacity)) == NULL)
        link_wait(w->link, 1000);
    TRY(codec_pack(w->control, m, 0, frame, capacity, &len, err));
    return link_send(w->link, LINK_CONTROL, 0, len, err);
}

/* doing() - what this worker does, and for how long. */
static const char *doing(const struct worker *w, char *text, size_t size)
{
    char beat[BEAT_TEXT_MAX];
    const uint64_t since_ns = w->ledger.mark_ns > 0 ? w->ledger.mark_ns : w->began_ns;
    snprintf(text, size, "%s, for %.2f s", beat_describe(&w->beat, beat),
             (double)(clock_now_ns() - since_ns) * 1e-9);
    return text;
}

static void log_state(const struct worker *w)
{
    char text[BEAT_TEXT_MAX + 32];
    const struct ledger *g = &w->ledger;
    log_event(LOG_ASKED, "state",
              "%s; %llu batches of %llu rows are done, %u messages leave, %llu accounts wait",
              doing(w, text, sizeof text), (unsigned long long)g->batches,
              (unsigned long long)g->rows, link_pending_sends(w->link),
              (unsigned long long)(g->next_account - g->first_account));
}

/* look_after_coordinator() - it can say nothing of its own end, so this worker says it, and ends
 * the job. */
static void look_after_coordinator(struct worker *w, uint64_t now)
{
    struct err err;
    const int rc = watch_look(&w->watch, now, &err);
    if (rc == ERR_NONE) return;
    log_error(&err);
    link_mpi_abort(err_exit_status((enum err_code)rc));
}

/* pulse() - a sign of life, where one is due, or where it is full of accounts. Losing one is no
 * error: what it carried goes with the next. */
static void pulse(struct worker *w)
{
    uint64_t now = clock_now_ns();
    if (state_dump_is_due(&w->dumps_seen)) log_state(w);
    look_after_coordinator(w, now);
    if (now - w->beat_ns < (uint64_t)HEARTBEAT_MS * 1000000u && !ledger_is_due(&w->ledger)) return;
    size_t capacity, len;
    uint8_t *frame = link_send_begin(w->link, LINK_CONTROL, 0, &capacity);
    if (frame == NULL) return;
    ledger_load(&w->ledger, &w->beat);
    struct message m = {.type = MESSAGE_HEARTBEAT, .u.heartbeat = w->beat};
    if (codec_pack(w->control, &m, 0, frame, capacity, &len, NULL) == ERR_NONE &&
        link_send(w->link, LINK_CONTROL, 0, len, NULL) == ERR_NONE) {
        ledger_unload(&w->ledger, &w->beat);
        w->beat_ns = now;
    }
    ledger_book_inner(&w->ledger, LEDGER_CONTROL, now);
}

static void on_progress(void *ctx, uint32_t layer, uint64_t done, uint64_t total)
{
    struct worker *w = ctx;
    w->beat.layer = layer;
    if (total > 0) {
        w->beat.done = done;
        w->beat.total = total;
    } else if (w->trace_layers) {
        ledger_mark_layer(&w->ledger, w->beat.batch_id, layer);
    }
    link_pending_sends(w->link); /* Messages under way move on while this thread computes. */
    pulse(w);
}

static void pulse_while_delayed(void *ctx)
{
    pulse(ctx);
}

/* tell_clock() - at once, because the coordinator takes the middle of its own two instants for this
 * one. */
static int tell_clock(struct worker *w, uint64_t asked_ns, struct err *err)
{
    struct message m = {.type = MESSAGE_CLOCK,
                        .u.clock = {.asked_ns = asked_ns, .told_ns = clock_now_ns()}};
    return send_control(w, &m, err);
}

/* send_accounts() - all that have not left. */
static int send_accounts(struct worker *w, struct err *err)
{
    while (!ledger_is_empty(&w->ledger)) {
        ledger_load(&w->ledger, &w->beat);
        struct message beat = {.type = MESSAGE_HEARTBEAT, .u.heartbeat = w->beat};
        TRY(send_control(w, &beat, err));
        ledger_unload(&w->ledger, &w->beat);
    }
    return ERR_NONE;
}

static int answer_probe(struct worker *w, const struct msg_probe *p, struct err *err)
{
    struct message m = {.type = MESSAGE_PROBED};
    const struct speed_probe probe = {w->link, w->stage, pulse_while_delayed, w};
    const uint32_t state = w->beat.state;
    TRY(send_accounts(w, err));
    w->beat.state = WORKER_MEASURING;
    TRY(fault_act(&w->fault, FAULT_MEASURE, pulse_while_delayed, w, err));
    TRY(speed_probe_answer(&probe, p, &m.u.probed, err));
    w->beat.state = state;
    return send_control(w, &m, err);
}

/* obey_control() - WATCH, MODEL (once, where the file is not here), LOAD (once), CLOCK, PROBE or
 * STOP. */
static int obey_control(struct worker *w, const struct message *m, struct err *err)
{
    if (m->type == MESSAGE_CLOCK) return tell_clock(w, m->u.clock.asked_ns, err);
    if (m->type == MESSAGE_PROBE) return answer_probe(w, &m->u.probe, err);
    if (m->type == MESSAGE_STOP) {
        w->stopped = true;
        w->stop_idle_ns = m->u.stop.idle_ns;
    } else if (m->type == MESSAGE_WATCH) {
        watch_open(&w->watch, &m->u.watch, w->host, w->config->stall_ms);
    } else if (m->type == MESSAGE_LOAD && !w->has_load) {
        w->load = m->u.load;
        w->has_load = true;
    } else if (m->type == MESSAGE_MODEL && w->remote != NULL && !remote_model_is_known(w->remote)) {
        remote_model_note(w->remote, &m->u.model);
    } else {
        return err_set(err, ERR_PEER, "the coordinator sent message type %d at the wrong time",
                       (int)m->type);
    }
    return ERR_NONE;
}

/* take_control() - one control message, where there is one. */
static int take_control(struct worker *w, struct err *err)
{
    int from;
    const uint8_t *frame;
    size_t len;
    uint64_t begin = clock_now_ns();
    TRY(link_receive(w->link, LINK_CONTROL, &from, &frame, &len, err));
    if (frame == NULL) return ERR_NONE;
    link_made_progress(w->link);
    struct message m = {0};
    struct frame_view view;
    int rc = codec_unpack(w->control, frame, len, &m, &view, err);
    if (rc == ERR_NONE) rc = obey_control(w, &m, err);
    link_receive_done(w->link, LINK_CONTROL);
    ledger_book_inner(&w->ledger, m.type == MESSAGE_PROBE ? LEDGER_IDLE : LEDGER_CONTROL, begin);
    return rc;
}

/* await_control() - one message, or a moment. */
static int await_control(struct worker *w, struct err *err)
{
    TRY(take_control(w, err));
    pulse(w);
    if (!w->stopped) link_wait(w->link, HEARTBEAT_MS * 1000);
    return ERR_NONE;
}

/* ---- the model ---- */

static int send_for_remote(void *ctx, const struct message *m, struct err *err)
{
    return send_control(ctx, m, err);
}

static int look_for_remote(void *ctx, struct err *err)
{
    struct worker *w = ctx;
    TRY(take_control(w, err));
    CHECK(!w->stopped, err, ERR_INTERRUPTED, "told to stop");
    pulse(w);
    return ERR_NONE;
}

/* open_model() - here, or not yet: then HELLO asks for it. */
static int open_model(struct worker *w, struct err *err)
{
    const struct worker_config *config = w->config;
    if (config->weights != WEIGHTS_STREAM) {
        int rc = model_open(&w->model, config->model_path, err);
        if (rc != ERR_ABSENT || config->weights == WEIGHTS_LOCAL) return rc;
    }
    const struct remote_port port = {w->link, w->control, send_for_remote, look_for_remote, w};
    return remote_model_open(&w->remote, &port, err);
}

/* read_remote() - the model's metadata, once the coordinator has said what it has. */
static int read_remote(struct worker *w, struct err *err)
{
    while (!remote_model_is_known(w->remote) && !w->stopped) TRY(await_control(w, err));
    if (w->stopped) return ERR_NONE;
    return remote_model_read(w->remote, w->config->model_path, &w->model, err);
}

/* ---- hello, load ---- */

/* count_cpus() - a rank may widen its own binding, but not its container's or its job's set of
 * CPUs: so trying tells the two apart. */
static void count_cpus(struct msg_hello *hello)
{
    cpu_set_t own, all;
    memset(&all, 0xff, sizeof all);
    hello->cpus = 1;
    hello->cpus_online = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof own, &own) != 0) return;
    hello->cpus = (uint32_t)CPU_COUNT(&own);
    if (sched_setaffinity(0, sizeof all, &all) != 0) return;
    if (sched_getaffinity(0, sizeof all, &all) == 0) hello->cpus_online = (uint32_t)CPU_COUNT(&all);
    sched_setaffinity(0, sizeof own, &own);
}

/* tell_memory() - 0 means that nothing is known, so an exhausted limit says 1. names outlives the
 * hello. */
static void tell_memory(struct msg_hello *hello, struct memory_limits *names)
{
    memory_read_limits(names, hello->cpus, "");
    const struct {
        uint64_t left, *told;
    } rows[] = {{names->physical, &hello->memory_bytes},
                {names->cgroup, &hello->cgroup_bytes},
                {names->process, &hello->ulimit_bytes}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].left != MEMORY_UNLIMITED) *rows[i].told = rows[i].left > 0 ? rows[i].left : 1;
    hello->cgroup = names->cgroup_name;
    hello->ulimit = names->process_name;
}

static int say_hello(struct worker *w, struct err *err)
{
    struct memory_limits limits;
    enum isa isa;
    TRY(isa_detect(&isa, err));
    struct message m = {.type = MESSAGE_HELLO,
                        .u.hello = {.version = TANDEM_VERSION,
                                    .host = w->host,
                                    .pid = (uint32_t)getpid(),
                                    .family = w->model != NULL ? w->model->family->name : "",
                                    .model_digest = w->model != NULL ? w->model->digest : 0,
                                    .model_sample = w->model != NULL ? w->model->sample : 0,
                                    .isa = isa,
                                    .wants_model = w->remote != NULL}};
    count_cpus(&m.u.hello);
    tell_memory(&m.u.hello, &limits);
    return send_control(w, &m, err);
}

static int check_load(const struct worker *w, const struct msg_load *load, struct err *err)
{
    CHECK(w->model != NULL, err, ERR_PEER, "asked to load, but it has no model");
    uint32_t n_layer = w->model->hp.n_layer;
    uint32_t size = (uint32_t)link_size(w->link), own = (uint32_t)link_rank(w->link);
    CHECK(load->from_rank < size && load->to_rank < size && load->from_rank != own &&
              load->to_rank != own,
          err, ERR_PEER, "asked to stand between ranks %u and %u of %u", load->from_rank,
          load->to_rank, size);
    CHECK(load->layer_first < load->layer_end && load->layer_end <= n_layer &&
              load->stage < load->n_stages,
          err, ERR_PEER, "asked to hold layers %u..%u of %u as stage %u of %u", load->layer_first,
          load->layer_end, n_layer, load->stage, load->n_stages);
    CHECK(load->threads >= 1 && load->rows_max >= 1 && load->wanted_max >= 1 && load->credits >= 1,
          err, ERR_PEER, "asked to run with %u threads, %u rows, %u wanted rows and %u credits",
          load->threads, load->rows_max, load->wanted_max, load->credits);
    CHECK(load->kv_format < KV_FORMAT_COUNT, err, ERR_PEER,
          "asked for number format %u of the KV cache, there are %d", load->kv_format,
          KV_FORMAT_COUNT);
    return ERR_NONE;
}

static int open_data(struct worker *w, const struct msg_load *load, struct err *err)
{
    w->sizes = (struct stage_sizes){.is_first = load->stage == 0,
                                    .is_last = w->is_last,
                                    .n_embd = w->model->hp.n_embd,
                                    .n_vocab = w->model->hp.n_vocab,
                                    .rows_max = load->rows_max,
                                    .wanted_max = load->wanted_max,
                                    .credits = load->credits,
                                    .wire = (enum wire_format)load->wire_format};
    TRY(codec_open(&w->data, BATCH_HEAD_MAX, w->model->hp.n_vocab, err));
    link_set_neighbours(w->link, (int)load->from_rank, (int)load->to_rank);
    return link_open_data(w->link, stage_in_bytes_max(&w->sizes), stage_out_bytes_max(&w->sizes),
                          STAGE_DATA_SLOTS, STAGE_DATA_SLOTS, err);
}

/* open_share() - open the stage and its buffers as the coordinator asked. */
static int open_share(struct worker *w, const struct msg_load *load, struct err *err)
{
    w->layer_first = load->layer_first;
    w->is_last = load->layer_end == w->model->hp.n_layer;
    w->trace_layers = load->trace_layers != 0;
    log_set_who("worker %d @%s, layers %u..%u", link_rank(w->link), w->host, load->layer_first,
                load->layer_end - 1);
    TRY(fault_act(&w->fault, FAULT_LOAD, pulse_while_delayed, w, err));
    const struct layer_range range = {load->layer_first, load->layer_end};
    struct weight_source source;
    if (w->remote != NULL)
        TRY(remote_model_source(w->remote, range, w->config->cache, w->config->cache_bytes, &source,
                                err));
    struct stage_config config = {
        .model = w->model,
        .range = range,
        .limits = {.n_ctx = load->n_ctx,
                   .n_seqs = load->n_seqs,
                   .rows_max = load->rows_max,
                   .wanted_max = load->wanted_max,
                   .credits = load->credits,
                   .kv = (enum kv_format)load->kv_format},
        .isa = (enum isa)load->isa,
        .matmul = (enum matmul_choice)load->matmul,
        .source = w->remote != NULL ? &source : NULL,
        .threads = load->threads,
        .progress = on_progress,
        .progress_ctx = w,
        .progress_layers = w->trace_layers,
    };
    memcpy(config.limits.n_blocks, load->n_blocks, sizeof load->n_blocks);
    TRY(stage_open(&w->stage, &config, err));
    remote_model_end(w->remote);
    TRY(open_data(w, load, err));
    struct exec_config exec = {.stage = w->stage,
                               .codec = w->data,
                               .limits = config.limits,
                               .n_embd = w->model->hp.n_embd,
                               .n_vocab = w->model->hp.n_vocab,
                               .is_first = load->stage == 0,
                               .is_last = w->is_last,
                               .wire = (enum wire_format)load->wire_format};
    return exec_open(&w->exec, &exec, err);
}

static int say_ready(struct worker *w, const struct msg_load *load, uint64_t load_ns,
                     struct err *err)
{
    struct footprint used = stage_usage(w->stage);
    struct message m = {.type = MESSAGE_READY,
                        .u.ready = {.weight_bytes = used.weights,
                                    .kv_bytes = used.kv,
                                    .buffer_bytes = used.buffers + stage_frame_bytes(&w->sizes) +
                                                    exec_bytes(w->exec),
                                    .rss_bytes = memory_resident(),
                                    .load_ns = load_ns,
                                    .threads = load->threads}};
    m.u.ready.digests = stage_digests(w->stage, &m.u.ready.n_digests);
    return send_control(w, &m, err);
}

static int await_send_buffer(struct worker *w, uint8_t **out, size_t *capacity, struct err *err)
{
    while ((*out = link_send_begin(w->link, LINK_DATA, 0, capacity)) == NULL) {
        TRY(take_control(w, err));
        if (w->stopped) return ERR_NONE;
        pulse(w);
        link_wait(w->link, HEARTBEAT_MS * 1000);
    }
    return ERR_NONE;
}

/* read_batch() - the frame as a BATCH. */
static int read_batch(struct worker *w, const uint8_t *frame, size_t len, struct message *m,
                      struct frame_view *view, struct err *err)
{
    TRY(codec_unpack(w->data, frame, len, m, view, err));
    CHECK(m->type == MESSAGE_BATCH, err, ERR_PEER,
          "message type %d came down the line, want a batch", (int)m->type);
    return fault_act(&w->fault, FAULT_CONTROL, pulse_while_delayed, w, err);
}

static int compute_batch(struct worker *w, const struct msg_batch *b, const struct frame_view *view,
                         uint8_t *out, size_t capacity, size_t *out_len, struct err *err)
{
    w->beat.state = WORKER_FORWARD;
    w->beat.batch_id = b->id;
    w->beat.layer = w->layer_first;
    TRY(fault_act(&w->fault, b->batch.n_rows > 1 ? FAULT_PREFILL : FAULT_DECODE,
                  pulse_while_delayed, w, err));
    TRY(fault_act(&w->fault, FAULT_COMPUTE, pulse_while_delayed, w, err));
    TRY(exec_batch(w->exec, b, view, out, capacity, out_len, err));
    w->beat.state = WORKER_IDLE;
    return ERR_NONE;
}

/* run_frame() - one batch, in the order of the ledger's sections. waited: the frame was not there
 * at the first look. */
static int run_frame(struct worker *w, const uint8_t *frame, size_t len, bool waited,
                     struct err *err)
{
    struct ledger *g = &w->ledger;
    struct msg_account a = {.received_ns = ledger_book(g, waited ? LEDGER_WAIT : LEDGER_CONTROL)};
    struct message m;
    struct frame_view view;
    TRY(read_batch(w, frame, len, &m, &view, err));
    const struct msg_batch *b = &m.u.batch;
    ledger_split_wait(g, b->idle_ns);
    ledger_book(g, LEDGER_CONTROL);

    size_t capacity, out_len;
    uint8_t *out;
    TRY(await_send_buffer(w, &out, &capacity, err));
    if (w->stopped) return ERR_NONE;
    a.begin_ns = ledger_book(g, LEDGER_SEND);

    TRY(compute_batch(w, b, &view, out, capacity, &out_len, err));
    a.sent_ns = ledger_book(g, LEDGER_COMPUTE);

    TRY(fault_act(&w->fault, FAULT_SEND, pulse_while_delayed, w, err));
    TRY(link_send(w->link, LINK_DATA, 0, out_len, err));
    a.done_ns = ledger_book(g, LEDGER_SEND);
    a.batch_id = b->id;
    a.rows = b->batch.n_rows;
    a.sent_bytes = (uint32_t)out_len; /* the link takes no frame beyond INT_MAX */
    ledger_close_batch(g, &a);
    return ERR_NONE;
}

static int wait_for_frame(struct worker *w, struct err *err)
{
    if (w->ledger.batches > 0) TRY(fault_act(&w->fault, FAULT_IDLE, pulse_while_delayed, w, err));
    link_wait(w->link, HEARTBEAT_MS * 500);
    return ERR_NONE;
}

/* run_line() - batches in, batches out, until STOP. */
static int run_line(struct worker *w, struct err *err)
{
    struct ledger *g = &w->ledger;
    w->beat.state = WORKER_IDLE;
    ledger_open(g);
    for (bool waited = false; !w->stopped;) {
        int from;
        const uint8_t *frame;
        size_t len;
        TRY(link_receive(w->link, LINK_DATA, &from, &frame, &len, err));
        if (frame != NULL) {
            link_made_progress(w->link);
            int rc = run_frame(w, frame, len, waited, err);
            link_receive_done(w->link, LINK_DATA);
            if (rc != ERR_NONE) return rc;
        }
        waited = frame == NULL;
        TRY(take_control(w, err));
        pulse(w);
        if (!waited)
            ledger_book(g, LEDGER_CONTROL);
        else if (!w->stopped)
            TRY(wait_for_frame(w, err));
    }
    ledger_book(g, LEDGER_WAIT);
    ledger_split_wait(g, w->stop_idle_ns);
    w->wall_ns = clock_now_ns() - g->opened_ns;
    return ERR_NONE;
}

/* say_report() - the accounts that have not left, then the totals. */
static int say_report(struct worker *w, struct err *err)
{
    const struct ledger *g = &w->ledger;
    TRY(send_accounts(w, err));
    struct link_counts sent = link_counts(w->link, LINK_DATA);
    struct message m = {.type = MESSAGE_REPORT,
                        .u.report = {.batches = g->batches,
                                     .rows = g->rows,
                                     .wall_ns = w->wall_ns,
                                     .compute_ns = g->total_ns[LEDGER_COMPUTE],
                                     .wait_ns = g->total_ns[LEDGER_WAIT],
                                     .send_ns = g->total_ns[LEDGER_SEND],
                                     .control_ns = g->total_ns[LEDGER_CONTROL],
                                     .idle_ns = g->total_ns[LEDGER_IDLE],
                                     .sent_bytes = sent.sent_bytes,
                                     .sent_messages = sent.sent_messages,
                                     .accounts_lost = g->lost,
                                     .rss_bytes = memory_resident_peak()}};
    return send_control(w, &m, err);
}

static int serve(struct worker *w, struct err *err)
{
    TRY(fault_plan_read(&w->fault, link_rank(w->link), err));
    TRY(codec_open(&w->control, LINK_CONTROL_FRAME_MAX, 0, err));
    if (w->config->model_path != NULL) TRY(open_model(w, err));
    w->beat.state = WORKER_LOADING;
    TRY(say_hello(w, err));
    if (w->remote != NULL) TRY(read_remote(w, err));
    while (!w->has_load && !w->stopped) TRY(await_control(w, err));
    if (w->stopped) return ERR_NONE;
    TRY(check_load(w, &w->load, err));
    uint64_t begin = clock_now_ns();
    TRY(open_share(w, &w->load, err));
    TRY(say_ready(w, &w->load, clock_now_ns() - begin, err));
    TRY(run_line(w, err));
    return say_report(w, err);
}

/* report_error() - tell the coordinator, which prints the line, and wait to be told to stop. */
static void report_error(struct worker *w, const struct err *err)
{
    if (w->control == NULL && codec_open(&w->control, LINK_CONTROL_FRAME_MAX, 0, NULL) != ERR_NONE)
        return;
    char text[ERR_TEXT_MAX], at_work[BEAT_TEXT_MAX + 32];
    if (w->beat.state == 0) /* before its HELLO */
        snprintf(text, sizeof text, "%.380s", err->text);
    else
        snprintf(text, sizeof text, "%.380s (%s)", err->text, doing(w, at_work, sizeof at_work));
    struct message m = {.type = MESSAGE_ERROR,
                        .u.error = {.code = (uint32_t)err->code, .text = text}};
    if (send_control(w, &m, NULL) != ERR_NONE) return;
    uint64_t begin = clock_now_ns();
    while (!w->stopped && clock_now_ns() - begin < (uint64_t)STOP_WAIT_MS * 1000000u) {
        if (take_control(w, NULL) != ERR_NONE) return;
        pulse(w);
        link_wait(w->link, 10000);
    }
}

/* drain() - let the last messages leave before the link is closed. */
static void drain(struct worker *w)
{
    uint64_t begin = clock_now_ns();
    while (link_pending_sends(w->link) > 0 && clock_now_ns() - begin < 1000000000u)
        link_wait(w->link, 1000);
}

int worker_run(struct link *l, const struct worker_config *config, struct err *err)
{
    struct worker *w = calloc(1, sizeof *w);
    CHECK(w != NULL, err, ERR_MEMORY, "no memory for a worker");
    w->link = l;
    w->config = config;
    w->began_ns = clock_now_ns();
    if (gethostname(w->host, sizeof w->host - 1) != 0) strcpy(w->host, "?");
    log_set_who("worker %d @%s", link_rank(l), w->host);

    int rc = serve(w, err);
    if (rc != ERR_NONE && !w->stopped) report_error(w, err);
    remote_model_end(w->remote);
    drain(w);
    exec_close(w->exec);
    stage_close(w->stage);
    remote_model_close(w->remote);
    model_close(w->model);
    codec_close(w->data);
    codec_close(w->control);
    free(w);
    return rc;
}
