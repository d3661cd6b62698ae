/* trace_file - see trace_file.h. */
#include "coordinator/front/trace_file.h"

#include "coordinator/line/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct trace {
    FILE *file;
    const struct line *ln;
    const struct journal *j;
    uint64_t begin_ns; /* instant 0 of the trace */
    uint32_t n_layer;  /* of the model */
    const char *comma; /* before the next event */
};

int trace_file_open(FILE **out, const char *path, struct err *err)
{
    *out = fopen(path, "w");
    CHECK(*out != NULL, err, ERR_FILE, "--trace %s: %s", path, strerror(errno));
    return ERR_NONE;
}

/* ---- events ---- */

static double us(const struct trace *t, uint64_t ns)
{
    return (double)(int64_t)(ns - t->begin_ns) * 1e-3;
}

/* put_slice() - from begin to end on a rank's row. What ends before it begins (clocks that are off)
 * has no length. */
static void put_slice(struct trace *t, int rank, const char *name, const char *category,
                      uint64_t begin_ns, uint64_t end_ns, uint64_t batch, uint32_t rows)
{
    uint64_t ns = (int64_t)(end_ns - begin_ns) > 0 ? end_ns - begin_ns : 0;
    fprintf(t->file,
            "%s\n{\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\","
            "\"cat\":\"%s\",\"args\":{\"batch\":%" PRIu64 ",\"rows\":%" PRIu32 "}}",
            t->comma, rank, us(t, begin_ns), (double)ns * 1e-3, name, category, batch, rows);
    t->comma = ",";
}

/* flow_id() - of a batch on hop `hop`, which ends at stage hop or, the last one, at home. */
static uint64_t flow_id(const struct trace *t, uint64_t batch, uint32_t hop)
{
    return batch * (line_stage_count(t->ln) + 1) + hop;
}

/* put_departure(), put_arrival() - the two ends of a hop. Viewers tie each to the slice that begins
 * at its instant. */
static void put_departure(struct trace *t, int rank, uint64_t ns, uint64_t id, uint32_t bytes)
{
    fprintf(t->file,
            "%s\n{\"ph\":\"s\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"id\":%" PRIu64
            ",\"name\":\"hop\",\"cat\":\"hop\",\"args\":{\"bytes\":%" PRIu32 "}}",
            t->comma, rank, us(t, ns), id, bytes);
    t->comma = ",";
}

static void put_arrival(struct trace *t, int rank, uint64_t ns, uint64_t id)
{
    fprintf(t->file,
            "%s\n{\"ph\":\"f\",\"bp\":\"e\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"id\":%" PRIu64
            ",\"name\":\"hop\",\"cat\":\"hop\"}",
            t->comma, rank, us(t, ns), id);
    t->comma = ",";
}

/* ---- ranks ---- */

static void put_name(struct trace *t, int rank, const char *host, const char *what)
{
    char text[320];
    snprintf(text, sizeof text, "rank %d %s @%s", rank, what, host);
    json_t *name = json_string(text);
    char *quoted = name != NULL ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    fprintf(
        t->file,
        "%s\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":%s}}",
        t->comma, rank, quoted != NULL ? quoted : "\"?\"");
    t->comma = ",";
    free(quoted);
    json_decref(name);
}

static void put_coordinator(struct trace *t)
{
    const uint32_t n_stages = line_stage_count(t->ln);
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "?");
    put_name(t, 0, host, "coordinator");
    for (uint64_t id = journal_first(t->j); id <= journal_last(t->j); id++) {
        const struct journal_flight *f = journal_find_flight(t->j, id);
        if (f == NULL || f->landed_ns == 0) continue;
        put_slice(t, 0, "fill", "control", f->begun_ns, f->sent_ns, id, f->rows);
        put_slice(t, 0, "send", "send", f->sent_ns, f->done_ns, id, f->rows);
        put_departure(t, 0, f->sent_ns, flow_id(t, id, 0), f->sent_bytes);
        put_slice(t, 0, "choose", "control", f->home_ns, f->landed_ns, id, f->rows);
        put_arrival(t, 0, f->home_ns, flow_id(t, id, n_stages));
    }
}

static void put_account(struct trace *t, uint32_t stage, const struct msg_account *a)
{
    const int rank = line_stage_at(t->ln, stage)->rank;
    const uint64_t id = a->batch_id, sending = a->done_ns - a->sent_ns;
    const uint64_t slot_ns = a->send_ns > sending ? a->send_ns - sending : 0;
    const uint64_t received = journal_clock(t->j, stage, a->received_ns);
    const uint64_t begin = journal_clock(t->j, stage, a->begin_ns);
    const uint64_t sent = journal_clock(t->j, stage, a->sent_ns);
    const uint64_t done = journal_clock(t->j, stage, a->done_ns);

    if (a->wait_ns > 0)
        put_slice(t, rank, "wait", "wait", received - a->wait_ns, received, id, a->rows);
    put_arrival(t, rank, received, flow_id(t, id, stage));
    put_slice(t, rank, "read", "control", received, begin - slot_ns, id, a->rows);
    put_slice(t, rank, "slot", "send", begin - slot_ns, begin, id, a->rows);
    put_slice(t, rank, "compute", "compute", begin, sent, id, a->rows);
    put_departure(t, rank, sent, flow_id(t, id, stage + 1), a->sent_bytes);
    put_slice(t, rank, "send", "send", sent, done, id, a->rows);
}

/* put_layers() - a layer ends where the next one of its batch begins, the last one with the forward
 * pass. */
static void put_layers(struct trace *t, uint32_t stage)
{
    const int rank = line_stage_at(t->ln, stage)->rank;
    const uint64_t n = journal_mark_count(t->j, stage);
    for (uint64_t i = 0; i < n; i++) {
        const struct msg_layer_mark *m = journal_mark_at(t->j, stage, i);
        const struct msg_layer_mark *next = i + 1 < n ? journal_mark_at(t->j, stage, i + 1) : NULL;
        const struct msg_account *a = journal_account(t->j, stage, m->batch_id);
        if (a == NULL) continue;
        bool goes_on = next != NULL && next->batch_id == m->batch_id;
        char name[32];
        snprintf(name, sizeof name, "layer %" PRIu32, m->layer);
        put_slice(t, rank, m->layer < t->n_layer ? name : "head", "layer",
                  journal_clock(t->j, stage, m->begin_ns),
                  journal_clock(t->j, stage, goes_on ? next->begin_ns : a->sent_ns), m->batch_id,
                  a->rows);
    }
}

static void put_stage(struct trace *t, uint32_t stage)
{
    const struct line_stage *st = line_stage_at(t->ln, stage);
    char what[64];
    snprintf(what, sizeof what, "layers %u..%u", st->range.first, st->range.end - 1);
    put_name(t, st->rank, st->host, what);
    for (uint64_t id = journal_first(t->j); id <= journal_last(t->j); id++) {
        const struct msg_account *a = journal_account(t->j, stage, id);
        if (a != NULL) put_account(t, stage, a);
    }
    put_layers(t, stage);
}

/* ---- the file ---- */

/* find_begin() - the earliest instant of all: no event then has a negative one. */
static uint64_t find_begin(const struct line *ln)
{
    const struct journal *j = line_journal(ln);
    uint64_t begin = UINT64_MAX;
    for (uint64_t id = journal_first(j); id <= journal_last(j); id++) {
        const struct journal_flight *f = journal_find_flight(j, id);
        if (f != NULL && f->begun_ns < begin) begin = f->begun_ns;
        for (uint32_t i = 0; i < line_stage_count(ln); i++) {
            const struct msg_account *a = journal_account(j, i, id);
            if (a == NULL) continue;
            uint64_t from = journal_clock(j, i, a->received_ns - a->wait_ns);
            if (from < begin) begin = from;
        }
    }
    return begin;
}

/* describe_ranks() - hosts, and how their clocks compared. */
static json_t *describe_ranks(const struct line *ln)
{
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < line_stage_count(ln); i++) {
        const struct line_stage *st = line_stage_at(ln, i);
        const struct clock_pair *clock = journal_find_clock_pair(line_journal(ln), i);
        json_array_append_new(ranks,
                              json_pack("{s:i, s:s, s:i, s:i, s:I, s:I}", "rank", st->rank, "host",
                                        st->host, "layer_first", (int)st->range.first, "layer_last",
                                        (int)st->range.end - 1, "clock_offset_ns",
                                        (json_int_t)clock->begin.offset_ns, "clock_error_ns",
                                        (json_int_t)clock_pair_error_ns(clock)));
    }
    return ranks;
}

static int write_head(const struct trace *t, struct err *err)
{
    const uint64_t kept = journal_last(t->j) - journal_first(t->j) + 1;
    json_t *data = json_pack("{s:s, s:s, s:I, s:I, s:o}", "tandem", TANDEM_VERSION, "clock",
                             "CLOCK_MONOTONIC of rank 0", "batches", (json_int_t)journal_last(t->j),
                             "batches_traced", (json_int_t)kept, "ranks", describe_ranks(t->ln));
    char *text = data != NULL ? json_dumps(data, JSON_COMPACT) : NULL;
    json_decref(data);
    CHECK(text != NULL, err, ERR_MEMORY, "no memory for the head of the trace");
    fprintf(t->file, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[", text);
    free(text);
    return ERR_NONE;
}

static int write_events(struct trace *t, struct err *err)
{
    TRY(write_head(t, err));
    put_coordinator(t);
    for (uint32_t i = 0; i < line_stage_count(t->ln); i++) put_stage(t, i);
    fprintf(t->file, "\n]}\n");
    return ERR_NONE;
}

int trace_file_write(FILE *file, const char *path, const struct line *ln, uint32_t n_layer,
                     struct err *err)
{
    struct trace t = {.file = file,
                      .ln = ln,
                      .j = line_journal(ln),
                      .n_layer = n_layer,
                      .begin_ns = find_begin(ln),
                      .comma = ""};
    int rc = write_events(&t, err);
    bool failed = ferror(file) != 0;
    failed |= fclose(file) != 0;
    TRY(rc);
    CHECK(!failed, err, ERR_FILE, "--trace %s: %s", path, strerror(errno));
    return ERR_NONE;
}
