/* roster - see roster.h. */
#include "coordinator/line/roster.h"

#include "coordinator/line/line.h"
#include "coordinator/line/weights_server.h"
#include "engine/clock.h"
#include "engine/log.h"
#include "engine/process_look.h"
#include "engine/state_dump.h"
#include "proto/beat_text.h"
#include "proto/codec.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HELLO_WAIT_MS = 60000, /* a worker that opens a model on a slow disk cannot speak meanwhile */
    SUSPECT_MS = 2 * HEARTBEAT_MS + 50, /* silent for so long: worth a look */
    ABSENCE_MS = 1000, /* the coordinator itself was away: nobody is to blame for that time */
};

#define NO_STAGE UINT32_MAX

struct roster {
    struct link *link;
    struct journal *journal;
    struct codec *codec;
    struct weights_server *server; /* NULL: every worker has the model's file */
    uint32_t n;
    struct member *members; /* [n] by rank */
    uint32_t n_stages;
    struct member **stages; /* [n_stages] those with a part in the line */
    char host[256];
    uint32_t stall_ms;
    unsigned dumps_seen; /* see engine/state_dump */
    uint64_t opened_ns, polled_ns;
    uint64_t away_ns; /* how long before the latest poll nobody polled */
};

static volatile sig_atomic_t signal_caught, finish_asked;

static void on_signal(int number)
{
    signal_caught = number;
}

void line_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void on_finish(int number)
{
    (void)number;
    finish_asked = 1;
}

void line_catch_finish(void)
{
    struct sigaction action = {.sa_handler = on_finish, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
}

bool line_should_finish(void)
{
    return finish_asked != 0;
}

/* ask_to_watch() - the first worker, after this process. */
static int ask_to_watch(struct roster *r, struct err *err)
{
    const struct message m = {.type = MESSAGE_WATCH,
                              .u.watch = {.pid = (uint32_t)getpid(), .host = r->host}};
    return roster_send(r, 0, &m, err);
}

int roster_open(struct roster **out, struct link *l, struct journal *journal, uint32_t stall_ms,
                struct err *err)
{
    struct roster *r = calloc(1, sizeof *r);
    CHECK(r != NULL, err, ERR_MEMORY, "no memory for the roster");
    r->link = l;
    r->journal = journal;
    r->stall_ms = stall_ms > 0 ? stall_ms : STALL_MS_DEFAULT;
    r->n = (uint32_t)link_size(l) - 1;
    r->n_stages = r->n;
    r->members = calloc(r->n, sizeof *r->members);
    r->stages = calloc(r->n, sizeof(struct member *));
    int rc = r->members != NULL && r->stages != NULL
                 ? codec_open(&r->codec, LINK_CONTROL_FRAME_MAX, 0, err)
                 : err_set(err, ERR_MEMORY, "no memory for %u workers", r->n);
    if (rc != ERR_NONE) {
        roster_close(r);
        return rc;
    }
    if (gethostname(r->host, sizeof r->host - 1) != 0) r->host[0] = '\0';
    r->opened_ns = r->polled_ns = clock_now_ns();
    for (uint32_t i = 0; i < r->n; i++) {
        r->members[i].rank = (int)i + 1;
        r->members[i].heard_ns = r->opened_ns;
        r->members[i].stage = i;
        r->stages[i] = &r->members[i];
    }
    rc = ask_to_watch(r, err);
    if (rc != ERR_NONE)
        roster_close(r);
    else
        *out = r;
    return rc;
}

void roster_close(struct roster *r)
{
    if (r == NULL) return;
    weights_server_close(r->server);
    codec_close(r->codec);
    free(r->members);
    free(r->stages);
    free(r);
}

uint32_t roster_size(const struct roster *r)
{
    return r->n_stages;
}

struct member *roster_at(struct roster *r, uint32_t index)
{
    return r->stages[index];
}

void roster_hellos(const struct roster *r, const struct msg_hello *hellos[])
{
    for (uint32_t i = 0; i < r->n_stages; i++) hellos[i] = &r->stages[i]->hello;
}

enum isa roster_isa(struct roster *r)
{
    uint32_t isa = ISA_COUNT - 1;
    for (uint32_t i = 0; i < r->n_stages; i++)
        if (r->stages[i]->hello.isa < isa) isa = r->stages[i]->hello.isa;
    return (enum isa)isa;
}

void roster_leave_out(struct roster *r, uint32_t index)
{
    r->stages[index]->stage = NO_STAGE;
    r->n_stages--;
    for (uint32_t i = index; i < r->n_stages; i++) {
        r->stages[i] = r->stages[i + 1];
        r->stages[i]->stage = i;
    }
}

static void name_member(const struct member *m, struct err *err)
{
    if (m->has_range)
        err_set_who(err, "worker %d @%.32s, layers %u..%u", m->rank, m->host, m->range.first,
                    m->range.end - 1);
    else
        err_set_who(err, "worker %d @%.32s", m->rank, m->host[0] != '\0' ? m->host : "?");
}

static int blame(const struct member *m, enum err_code code, const char *text, struct err *err)
{
    int rc = err_set(err, code, "%s", text);
    name_member(m, err);
    return rc;
}

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

static void note_hello(struct member *m, const struct msg_hello *hello)
{
    m->hello = *hello;
    copy_text(m->host, sizeof m->host, hello->host);
    copy_text(m->version, sizeof m->version, hello->version);
    copy_text(m->family, sizeof m->family, hello->family);
    copy_text(m->cgroup, sizeof m->cgroup, hello->cgroup);
    copy_text(m->ulimit, sizeof m->ulimit, hello->ulimit);
    m->hello.cgroup = m->cgroup;
    m->hello.ulimit = m->ulimit;
    m->hello.host = m->host;
    m->hello.version = m->version;
    m->hello.family = m->family;
}

static void note_ready(struct member *m, const struct msg_ready *ready)
{
    m->ready = *ready;
    for (uint32_t i = 0; i < ready->n_digests; i++) m->digests[i] = ready->digests[i];
    m->ready.digests = m->digests;
    m->beat.state = WORKER_IDLE; /* until its next heartbeat says more */
}

static void note_beat(struct roster *r, struct member *m, const struct msg_heartbeat *beat)
{
    if (m->stage != NO_STAGE) journal_note(r->journal, m->stage, beat);
    m->beat = *beat;
    m->beat.accounts = NULL;
    m->beat.marks = NULL;
    m->beat.n_accounts = m->beat.n_marks = 0;
}

static int note_pull(struct roster *r, struct member *m, const struct msg_pull *pull,
                     struct err *err)
{
    if (r->server == NULL) return blame(m, ERR_PEER, "asked for weights that nobody offered", err);
    int rc = weights_server_take(r->server, m->rank, pull, err);
    if (rc != ERR_NONE) name_member(m, err);
    return rc;
}

static int note_message(struct roster *r, struct member *m, const struct message *msg,
                        struct err *err)
{
    switch (msg->type) {
    case MESSAGE_HELLO:
        note_hello(m, &msg->u.hello);
        m->answered[ROSTER_HELLO] = true;
        return ERR_NONE;
    case MESSAGE_READY:
        note_ready(m, &msg->u.ready);
        m->answered[ROSTER_READY] = true;
        return ERR_NONE;
    case MESSAGE_REPORT:
        m->report = msg->u.report;
        m->answered[ROSTER_REPORT] = true;
        return ERR_NONE;
    case MESSAGE_HEARTBEAT:
        note_beat(r, m, &msg->u.heartbeat);
        return ERR_NONE;
    case MESSAGE_CLOCK:
        m->clock = (struct clock_round){msg->u.clock.asked_ns, msg->u.clock.told_ns, m->heard_ns};
        return ERR_NONE;
    case MESSAGE_PULL:
        return note_pull(r, m, &msg->u.pull, err);
    case MESSAGE_PROBED:
        m->probed = msg->u.probed;
        m->is_probing = false;
        m->beat.state = WORKER_IDLE; /* likewise */
        return ERR_NONE;
    case MESSAGE_ERROR:
        return blame(m, (enum err_code)msg->u.error.code, msg->u.error.text, err);
    default:
        return blame(m, ERR_PEER, "sent a message that workers do not send", err);
    }
}

static int take_messages(struct roster *r, struct err *err)
{
    for (;;) {
        int from;
        const uint8_t *frame;
        size_t len;
        TRY(link_receive(r->link, LINK_CONTROL, &from, &frame, &len, err));
        if (frame == NULL) return ERR_NONE;
        struct member *m = &r->members[from - 1];
        m->heard_ns = clock_now_ns();
        struct message msg;
        struct frame_view view;
        int rc = codec_unpack(r->codec, frame, len, &msg, &view, err);
        if (rc == ERR_NONE)
            rc = note_message(r, m, &msg, err);
        else
            name_member(m, err);
        link_receive_done(r->link, LINK_CONTROL);
        if (rc != ERR_NONE) return rc;
        if (msg.type != MESSAGE_HEARTBEAT)
            link_made_progress(r->link); /* A heartbeat is no work. */
    }
}

/* describe() - what was asked of a worker is known for sure; its latest heartbeat may be of an
 * earlier state. */
static const char *describe(const struct member *m, char text[BEAT_TEXT_MAX])
{
    struct msg_heartbeat beat = m->beat;
    if (m->is_probing)
        beat.state = WORKER_MEASURING;
    else if (!m->answered[ROSTER_READY])
        beat.state = m->has_range ? WORKER_LOADING : 0;
    return beat_describe(&beat, text);
}

static void log_members(const struct roster *r, uint64_t now)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const struct member *m = &r->members[i];
        char doing[BEAT_TEXT_MAX];
        log_event(LOG_ASKED, "state", "worker %d @%.32s was heard of %.2f s ago, %s", m->rank,
                  m->host[0] != '\0' ? m->host : "?", (double)(now - m->heard_ns) / 1e9,
                  describe(m, doing));
    }
}

static int say_dead(const struct member *m, double silence_s, struct err *err)
{
    char doing[BEAT_TEXT_MAX], text[256];
    snprintf(text, sizeof text,
             "died %s, last heard of %.1f s ago: its process was killed or crashed (memory? see "
             "its host)",
             describe(m, doing), silence_s);
    return blame(m, ERR_RANK, text, err);
}

static int judge_silence(const struct roster *r, uint64_t now, struct err *err)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const struct member *m = &r->members[i];
        if (m->answered[ROSTER_REPORT]) continue;
        uint64_t silence_ms = (now - m->heard_ns) / 1000000u;
        if (silence_ms < SUSPECT_MS) continue;
        bool here = m->answered[ROSTER_HELLO] && strcmp(m->host, r->host) == 0 &&
                    m->hello.pid != (uint32_t)getpid();
        const enum process_state process = here ? process_look(m->hello.pid) : PROCESS_RUNS;
        if (process == PROCESS_GONE) return say_dead(m, (double)silence_ms / 1e3, err);
        uint64_t limit = m->answered[ROSTER_HELLO] ? r->stall_ms : HELLO_WAIT_MS;
        if (silence_ms < limit) continue;
        char doing[BEAT_TEXT_MAX], text[256];
        snprintf(text, sizeof text, "stopped answering, silent for %.1f s, last heard of %s: %s",
                 (double)silence_ms / 1e3, describe(m, doing),
                 process == PROCESS_STOPPED ? "its process is stopped (SIGSTOP)"
                                            : "is its host overloaded or cut off?");
        return blame(m, ERR_STALL, text, err);
    }
    return ERR_NONE;
}

/* judge_signal() - SIGTERM from mpirun means that a worker died a second ago: the one that went
 * silent first. */
static int judge_signal(const struct roster *r, uint64_t now, struct err *err)
{
    const struct member *worst = NULL;
    for (uint32_t i = 0; i < r->n; i++)
        if (worst == NULL || r->members[i].heard_ns < worst->heard_ns) worst = &r->members[i];
    uint64_t silence_ms = (now - worst->heard_ns) / 1000000u;
    if (signal_caught == SIGTERM && silence_ms >= SUSPECT_MS)
        return say_dead(worst, (double)silence_ms / 1e3, err);
    if (r->away_ns >= (uint64_t)ABSENCE_MS * 1000000u)
        return err_set(err, ERR_STALL, "was stopped for %.1f s, and then told to end by signal %d",
                       (double)r->away_ns / 1e9, (int)signal_caught);
    return err_set(err, ERR_INTERRUPTED, "interrupted by signal %d", (int)signal_caught);
}

/* forgive_absence() - an absence of our own is nobody's silence. Who was heard of when it began,
 * behind the poll's first look at the clock, is heard of now, and no later. */
static void forgive_absence(struct roster *r, uint64_t away, uint64_t now)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct member *m = &r->members[i];
        m->heard_ns = m->heard_ns + away < now ? m->heard_ns + away : now;
    }
}

int roster_poll(struct roster *r, struct err *err)
{
    uint64_t now = clock_now_ns(), away = now - r->polled_ns;
    if (away >= (uint64_t)ABSENCE_MS * 1000000u) forgive_absence(r, away, now);
    r->polled_ns = now;
    r->away_ns = away;
    TRY(take_messages(r, err));
    if (r->server != NULL) TRY(weights_server_work(r->server, err));
    now = clock_now_ns();
    if (state_dump_is_due(&r->dumps_seen)) log_members(r, now);
    if (signal_caught != 0) return judge_signal(r, now, err);
    return judge_silence(r, now, err);
}

int roster_await(struct roster *r, enum roster_answer answer,
                 void (*on_load)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                 struct err *err)
{
    for (;;) {
        TRY(roster_poll(r, err));
        uint32_t n_answered = 0;
        uint64_t done = 0, total = 0;
        for (uint32_t i = 0; i < r->n_stages; i++) {
            n_answered += r->stages[i]->answered[answer];
            done += r->stages[i]->beat.done;
            total += r->stages[i]->beat.total;
        }
        if (n_answered == r->n_stages) return ERR_NONE;
        if (on_load != NULL && total > 0) on_load(ctx, done, total);
        link_wait(r->link, 50000);
    }
}

int roster_send(struct roster *r, uint32_t index, const struct message *m, struct err *err)
{
    int rank = r->stages[index]->rank;
    size_t capacity, len;
    uint8_t *frame;
    while ((frame = link_send_begin(r->link, LINK_CONTROL, rank, &capacity)) == NULL) {
        TRY(roster_poll(r, err));
        link_wait(r->link, 1000);
    }
    TRY(codec_pack(r->codec, m, 0, frame, capacity, &len, err));
    return link_send(r->link, LINK_CONTROL, rank, len, err);
}

int roster_serve_weights(struct roster *r, const struct gguf *file, struct err *err)
{
    TRY(weights_server_open(&r->server, file, r->link, r->codec, err));
    const struct message model = {.type = MESSAGE_MODEL,
                                  .u.model = weights_server_describe(r->server)};
    for (uint32_t i = 0; i < r->n; i++)
        if (r->members[i].hello.wants_model) TRY(roster_send(r, i, &model, err));
    return ERR_NONE;
}

void roster_end_weights(struct roster *r)
{
    if (r->server == NULL) return;
    weights_server_close(r->server);
    r->server = NULL;
    link_close_weights(r->link);
}

int roster_read_clock(struct roster *r, uint32_t index, struct clock_reading *reading,
                      struct err *err)
{
    enum { ROUNDS = 16 };
    struct member *m = r->stages[index];
    bool same_host = strcmp(m->host, r->host) == 0;
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t asked = clock_now_ns();
        TRY(roster_send(r, index,
                        &(struct message){.type = MESSAGE_CLOCK, .u.clock = {.asked_ns = asked}},
                        err));
        while (m->clock.asked_ns != asked) {
            if (clock_now_ns() - asked > (uint64_t)r->stall_ms * 1000000u)
                return blame(m, ERR_STALL, "does not say what its clock shows", err);
            link_wait(r->link, 1000);
            TRY(roster_poll(r, err));
        }
        clock_reading_take(reading, &m->clock, same_host);
    }
    return ERR_NONE;
}

int roster_probe(struct roster *r, uint32_t index, const struct msg_probe *probe, struct err *err)
{
    r->stages[index]->is_probing = true;
    return roster_send(r, index, &(struct message){.type = MESSAGE_PROBE, .u.probe = *probe}, err);
}

int roster_await_probed(struct roster *r, uint32_t index, struct err *err)
{
    while (r->stages[index]->is_probing) {
        link_wait(r->link, 1000);
        TRY(roster_poll(r, err));
    }
    return ERR_NONE;
}

/* excuse_all() - nobody was silent up to now: neither the workers nor this poll. */
static void excuse_all(struct roster *r)
{
    r->polled_ns = clock_now_ns();
    for (uint32_t i = 0; i < r->n; i++) r->members[i].heard_ns = r->polled_ns;
}

/* ping_all() - table [link_size][n]. A worker takes part as soon as it has read the message, which
 * it holds until the end. */
static int ping_all(struct roster *r, const uint32_t *bytes, uint32_t n, uint32_t rounds,
                    double *table, struct err *err)
{
    size_t sizes[LINK_RAW_SIZES_MAX];
    BUG_IF(n > LINK_RAW_SIZES_MAX, "more sizes of raw messages than there may be");
    for (uint32_t i = 0; i < n; i++) sizes[i] = bytes[i];
    const struct msg_probe probe = {.bytes = bytes, .n_bytes = n, .rounds = rounds};
    for (uint32_t i = 0; i < r->n_stages; i++) TRY(roster_probe(r, i, &probe, err));
    TRY(link_raw_pingpong(r->link, sizes, n, rounds, table, err));
    excuse_all(r);
    for (uint32_t i = 0; i < r->n_stages; i++) TRY(roster_await_probed(r, i, err));
    return ERR_NONE;
}

int roster_raw_hops(struct roster *r, const uint32_t *bytes, uint32_t n, uint32_t rounds,
                    double *us, struct err *err)
{
    double *table = calloc((size_t)link_size(r->link) * n, sizeof *table);
    CHECK(table != NULL, err, ERR_MEMORY, "no memory for the latencies of %u sizes", n);
    int rc = ping_all(r, bytes, n, rounds, table, err);
    for (uint32_t hop = 0; hop <= r->n_stages; hop++) {
        const int from = hop == 0 ? 0 : r->stages[hop - 1]->rank;
        memcpy(us + (size_t)hop * n, table + (size_t)from * n, n * sizeof *us);
    }
    free(table);
    return rc;
}

void roster_stop(struct roster *r, uint64_t idle_ns)
{
    const struct message stop = {.type = MESSAGE_STOP, .u.stop = {.idle_ns = idle_ns}};
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->members[i].stage == NO_STAGE)
            r->members[i].answered[ROSTER_REPORT] = true; /* has none */
        size_t capacity, len;
        uint8_t *frame = link_send_begin(r->link, LINK_CONTROL, r->members[i].rank, &capacity);
        if (frame == NULL ||
            codec_pack(r->codec, &stop, 0, frame, capacity, &len, NULL) != ERR_NONE)
            continue;
        link_send(r->link, LINK_CONTROL, r->members[i].rank, len, NULL);
    }
    for (uint64_t begin = clock_now_ns();
         link_pending_sends(r->link) > 0 && clock_now_ns() - begin < 500000000u;)
        link_wait(r->link, 1000);
}

/* A worker must be heard of before it is told to stop: until then it may still be on its way into
 * the line. */
int line_dismiss(struct link *l, struct err *err)
{
    struct journal *journal;
    struct roster *r = NULL;
    TRY(journal_open(&journal, (uint32_t)link_size(l) - 1, JOURNAL_SHORT, err));
    int rc = roster_open(&r, l, journal, 0, err);
    if (rc == ERR_NONE) rc = roster_await(r, ROSTER_HELLO, NULL, NULL, err);
    if (r != NULL) roster_stop(r, 0);
    roster_close(r);
    journal_close(journal);
    return rc;
}
