/* line_stats - see line_stats.h. */
#include "coordinator/line/line_stats.h"

#include "coordinator/line/journal.h"

#include <stdlib.h>
#include <string.h>

struct range {
    uint64_t first, last; /* batches, none missing at the ends but those no longer kept */
    bool whole;           /* the line's whole life */
};

static struct range clip(const struct journal *j, uint64_t first, uint64_t last)
{
    struct range r = {.first = first, .last = last, .whole = first <= 1 && last == UINT64_MAX};
    if (r.first < journal_first(j)) r.first = journal_first(j);
    if (r.last > journal_last(j)) r.last = journal_last(j);
    return r;
}

/* ---- stages ---- */

static void add_accounts(struct line_stats_stage *s, const struct journal *j, uint32_t stage,
                         struct range r)
{
    for (uint64_t id = r.first; id <= r.last; id++) {
        const struct msg_account *a = journal_account(j, stage, id);
        if (a == NULL) continue;
        s->batches++;
        s->rows += a->rows;
        s->compute_ns += a->compute_ns;
        s->wait_ns += a->wait_ns;
        s->send_ns += a->send_ns;
        s->control_ns += a->control_ns;
        s->idle_ns += a->idle_ns;
    }
    s->wall_ns = s->compute_ns + s->wait_ns + s->send_ns + s->control_ns + s->idle_ns;
}

static void take_report(struct line_stats_stage *s, const struct msg_report *r)
{
    s->batches = r->batches;
    s->rows = r->rows;
    s->wall_ns = r->wall_ns;
    s->compute_ns = r->compute_ns;
    s->wait_ns = r->wait_ns;
    s->send_ns = r->send_ns;
    s->control_ns = r->control_ns;
    s->idle_ns = r->idle_ns;
    uint64_t booked = r->compute_ns + r->wait_ns + r->send_ns + r->control_ns + r->idle_ns;
    s->other_ns = r->wall_ns > booked ? r->wall_ns - booked : 0;
}

static void read_stage(struct line_stats_stage *s, const struct line *ln, uint32_t stage,
                       struct range r)
{
    const struct journal *j = line_journal(ln);
    s->stage = line_stage_at(ln, stage);
    if (r.whole)
        take_report(s, &s->stage->report);
    else
        add_accounts(s, j, stage, r);
    if (s->wall_ns > s->idle_ns)
        s->occupancy = (double)s->compute_ns / (double)(s->wall_ns - s->idle_ns);
}

/* ---- hops ---- */

/* One batch on one hop, by the coordinator's clock. */
struct crossing {
    uint64_t sent_ns, received_ns;
    uint32_t bytes;
    bool waited; /* the receiver was waiting for it */
};

static bool find_crossing(const struct journal *j, uint32_t n_stages, uint32_t hop, uint64_t id,
                          struct crossing *c)
{
    const struct journal_flight *f = journal_find_flight(j, id);
    const struct msg_account *from = hop > 0 ? journal_account(j, hop - 1, id) : NULL;
    const struct msg_account *to = hop < n_stages ? journal_account(j, hop, id) : NULL;
    if (f == NULL || f->home_ns == 0 || (hop > 0 && from == NULL) || (hop < n_stages && to == NULL))
        return false;
    c->sent_ns = from != NULL ? journal_clock(j, hop - 1, from->sent_ns) : f->sent_ns;
    c->bytes = from != NULL ? from->sent_bytes : f->sent_bytes;
    c->received_ns = to != NULL ? journal_clock(j, hop, to->received_ns) : f->home_ns;
    c->waited = to != NULL ? to->wait_ns + to->idle_ns > 0 : f->waited;
    return true;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void read_hop(struct line_stats_hop *h, const struct line *ln, uint32_t hop, struct range r,
                     double *us)
{
    const struct journal *j = line_journal(ln);
    const uint32_t n_stages = line_stage_count(ln);
    h->from = hop > 0 ? line_stage_at(ln, hop - 1)->rank : 0;
    h->to = hop < n_stages ? line_stage_at(ln, hop)->rank : 0;
    if (hop > 0)
        h->us_error += (double)clock_pair_error_ns(journal_find_clock_pair(j, hop - 1)) * 1e-3;
    if (hop < n_stages)
        h->us_error += (double)clock_pair_error_ns(journal_find_clock_pair(j, hop)) * 1e-3;
    for (uint64_t id = r.first; id <= r.last; id++) {
        struct crossing c;
        if (!find_crossing(j, n_stages, hop, id, &c)) continue;
        h->messages++;
        h->bytes += c.bytes;
        /* Clocks that are off may put the arrival before the departure. */
        if (c.waited)
            us[h->timed++] =
                c.received_ns > c.sent_ns ? (double)(c.received_ns - c.sent_ns) * 1e-3 : 0;
    }
    if (h->timed > 0) {
        qsort(us, h->timed, sizeof *us, compare);
        h->us_median = us[h->timed / 2];
        h->us_p99 = us[(h->timed * 99) / 100];
    }
    if (!r.whole) return;
    const struct line_counts counts = line_counts(ln);
    h->messages = hop > 0 ? line_stage_at(ln, hop - 1)->report.sent_messages : counts.batches;
    h->bytes = hop > 0 ? line_stage_at(ln, hop - 1)->report.sent_bytes : counts.sent_bytes;
}

static int read_hops(struct line_stats *s, const struct line *ln, struct range r, struct err *err)
{
    size_t n = r.last >= r.first ? (size_t)(r.last - r.first + 1) : 1;
    double *us = malloc(n * sizeof *us);
    CHECK(us != NULL, err, ERR_MEMORY, "no memory for the latencies of %zu batches", n);
    for (uint32_t hop = 0; hop <= s->n_stages; hop++) read_hop(&s->hops[hop], ln, hop, r, us);
    free(us);
    return ERR_NONE;
}

/* ---- costs ---- */

/* add_batch() - false where a record of it is missing. A crossing that was not waited for counts as
 * the hop's median. */
static bool add_batch(struct line_stats *s, const struct journal *j, uint64_t id)
{
    const struct journal_flight *f = journal_find_flight(j, id);
    if (f == NULL || f->landed_ns == 0) return false;
    struct line_stats_cost c = {.batches = 1, .rows = f->rows};
    c.coordinator_ns = (double)(f->done_ns - f->begun_ns) + (double)(f->landed_ns - f->home_ns);
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const struct msg_account *a = journal_account(j, i, id);
        if (a == NULL) return false;
        c.compute_ns += (double)a->compute_ns;
        c.send_ns += (double)a->send_ns;
        c.control_ns += (double)a->control_ns;
    }
    for (uint32_t hop = 0; hop <= s->n_stages; hop++) {
        struct crossing x;
        if (!find_crossing(j, s->n_stages, hop, id, &x)) return false;
        c.hops_ns += x.waited && x.received_ns > x.sent_ns ? (double)(x.received_ns - x.sent_ns)
                                                           : s->hops[hop].us_median * 1e3;
    }
    struct line_stats_cost *to = f->decodes ? &s->text : &s->prompt;
    to->batches += c.batches;
    to->rows += c.rows;
    to->compute_ns += c.compute_ns;
    to->hops_ns += c.hops_ns;
    to->send_ns += c.send_ns;
    to->control_ns += c.control_ns;
    to->coordinator_ns += c.coordinator_ns;
    return true;
}

int line_stats_read(struct line_stats *out, const struct line *ln, uint64_t first, uint64_t last,
                    struct err *err)
{
    const struct journal *j = line_journal(ln);
    *out = (struct line_stats){.n_stages = line_stage_count(ln)};
    out->stages = calloc(out->n_stages, sizeof *out->stages);
    out->hops = calloc(out->n_stages + 1, sizeof *out->hops);
    CHECK(out->stages != NULL && out->hops != NULL, err, ERR_MEMORY,
          "no memory for the numbers of %u stages", out->n_stages);
    const struct range r = clip(j, first, last);
    uint64_t wait_ns = 0, busy_ns = 0;
    for (uint32_t i = 0; i < out->n_stages; i++) {
        struct line_stats_stage *s = &out->stages[i];
        read_stage(s, ln, i, r);
        wait_ns += s->wait_ns;
        busy_ns += s->wall_ns - s->idle_ns;
    }
    if (busy_ns > 0) out->bubble = (double)wait_ns / (double)busy_ns;
    TRY(read_hops(out, ln, r, err));
    uint64_t wanted_last = last < journal_last(j) ? last : journal_last(j);
    if (first <= wanted_last) out->missing = wanted_last - first + 1;
    for (uint64_t id = r.first; id <= r.last; id++) out->missing -= add_batch(out, j, id);
    return ERR_NONE;
}

void line_stats_free(struct line_stats *s)
{
    free(s->stages);
    free(s->hops);
    *s = (struct line_stats){0};
}

/* ---- sizes ---- */

enum { SIZE_SPAN_BYTES = 8, SIZE_SPAN_SHARE = 16 }; /* sizes that count as one: 8 bytes and 1/16 */

/* One message on a hop. */
struct passage {
    uint32_t bytes;
    double us; /* below 0: nobody waited for it */
};

static int compare_bytes(const void *a, const void *b)
{
    const struct passage *x = a, *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int compare_us(const void *a, const void *b)
{
    const struct passage *x = a, *y = b;
    return compare(&x->us, &y->us);
}

static size_t read_passages(struct passage *to, const struct line *ln, uint32_t hop, struct range r)
{
    const struct journal *j = line_journal(ln);
    size_t n = 0;
    for (uint64_t id = r.first; id <= r.last; id++) {
        struct crossing c;
        if (!find_crossing(j, line_stage_count(ln), hop, id, &c)) continue;
        /* As in read_hop(): an arrival before the departure is the clocks' error. */
        double us = c.received_ns > c.sent_ns ? (double)(c.received_ns - c.sent_ns) * 1e-3 : 0;
        to[n++] = (struct passage){c.bytes, c.waited ? us : -1};
    }
    qsort(to, n, sizeof *to, compare_bytes);
    return n;
}

/* sum_size() - of n passages, the smallest first. */
static void sum_size(struct line_stats_size *s, struct passage *of, size_t n)
{
    size_t skipped = 0;
    s->bytes = of[n / 2].bytes;
    s->messages = n;
    qsort(of, n, sizeof *of, compare_us);
    while (skipped < n && of[skipped].us < 0) skipped++;
    s->timed = n - skipped;
    if (s->timed == 0) return;
    s->us_median = of[skipped + s->timed / 2].us;
    s->us_p99 = of[skipped + s->timed * 99 / 100].us;
}

static void drop_rarest(struct line_stats_size *sizes, uint32_t *n)
{
    uint32_t rarest = 0;
    for (uint32_t i = 1; i < *n; i++)
        if (sizes[i].messages < sizes[rarest].messages) rarest = i;
    memmove(&sizes[rarest], &sizes[rarest + 1], (*n - rarest - 1) * sizeof *sizes);
    (*n)--;
}

/* sizes: room for one more than are kept. Returns how many. */
static uint32_t sum_sizes(struct line_stats_size *sizes, const struct line *ln, uint32_t hop,
                          struct passage *all, size_t n_all)
{
    const int from = hop > 0 ? line_stage_at(ln, hop - 1)->rank : 0;
    const int to = hop < line_stage_count(ln) ? line_stage_at(ln, hop)->rank : 0;
    uint32_t n = 0;
    for (size_t first = 0, end; first < n_all; first = end) {
        const uint64_t least = all[first].bytes;
        const uint64_t most = least + SIZE_SPAN_BYTES + least / SIZE_SPAN_SHARE;
        for (end = first; end < n_all && all[end].bytes <= most;) end++;
        sizes[n] = (struct line_stats_size){.hop = hop, .from = from, .to = to};
        sum_size(&sizes[n++], &all[first], end - first);
        if (n > LINE_STATS_SIZES_MAX) drop_rarest(sizes, &n);
    }
    return n;
}

int line_stats_read_sizes(struct line_stats_size **out, uint32_t *n, const struct line *ln,
                          uint64_t last, struct err *err)
{
    const struct range r = clip(line_journal(ln), 1, last);
    const size_t n_hops = (size_t)line_stage_count(ln) + 1;
    const size_t n_batches = r.last >= r.first ? (size_t)(r.last - r.first + 1) : 1;
    struct passage *passages = malloc(n_batches * sizeof *passages);
    *n = 0;
    *out = calloc(n_hops * LINE_STATS_SIZES_MAX + 1, sizeof **out);
    if (passages == NULL || *out == NULL) {
        free(passages);
        return err_set(err, ERR_MEMORY, "no memory for the latencies of %zu batches", n_batches);
    }
    for (uint32_t hop = 0; hop < n_hops; hop++) {
        size_t n_passages = read_passages(passages, ln, hop, r);
        *n += sum_sizes(*out + *n, ln, hop, passages, n_passages);
    }
    free(passages);
    return ERR_NONE;
}
