/* stats_report - see stats_report.h. */
#include "coordinator/front/stats_report.h"

#include "coordinator/front/output.h"
#include "coordinator/line/line_stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double percent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : 100 * (double)part / (double)whole;
}

static void print_stages(const struct line_stats *s)
{
    int width = 4;
    for (uint32_t i = 0; i < s->n_stages; i++) {
        int len = (int)strlen(s->stages[i].stage->host);
        if (len > width) width = len;
    }
    fprintf(stderr, "\n%4s  %-*s  %-9s  %10s  %8s  %9s | %7s %7s %7s %7s %7s %7s | %9s\n", "rank",
            width, "host", "layers", "memory", "rows", "wall ms", "compute", "wait", "send",
            "control", "idle", "other", "occupancy");
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const struct line_stats_stage *st = &s->stages[i];
        char layers[32], memory[OUTPUT_BYTES_TEXT];
        const struct footprint *b = &st->stage->bytes;
        snprintf(layers, sizeof layers, "%u..%u", st->stage->range.first, st->stage->range.end - 1);
        fprintf(stderr,
                "%4d  %-*s  %-9s  %10s  %8" PRIu64
                "  %9.1f | %6.1f%% %6.1f%% %6.1f%% %6.1f%% %6.1f%% %6.1f%% | %8.1f%%\n",
                st->stage->rank, width, st->stage->host, layers,
                output_bytes(b->weights + b->kv + b->buffers, memory), st->rows,
                (double)st->wall_ns * 1e-6, percent(st->compute_ns, st->wall_ns),
                percent(st->wait_ns, st->wall_ns), percent(st->send_ns, st->wall_ns),
                percent(st->control_ns, st->wall_ns), percent(st->idle_ns, st->wall_ns),
                percent(st->other_ns, st->wall_ns), 100 * st->occupancy);
    }
}

/* print_latency() - a dash where no frame was waited for: the hop was never what the line waited
 * for. */
static void print_latency(const struct line_stats_hop *h)
{
    if (h->timed == 0)
        fprintf(stderr, "  %11s  %11s", "-", "-");
    else
        fprintf(stderr, "  %11.1f  %11.1f", h->us_median, h->us_p99);
    fprintf(stderr, "  %8" PRIu64, h->timed);
    if (h->us_error > 0) fprintf(stderr, "  (clocks: +-%.1f us)", h->us_error);
    fputc('\n', stderr);
}

static void print_hops(const struct line_stats *s)
{
    fprintf(stderr, "\n%-11s  %8s  %10s  %10s  %11s  %11s  %8s\n", "hop", "messages", "bytes",
            "each", "median us", "p99 us", "timed");
    for (uint32_t i = 0; i <= s->n_stages; i++) {
        const struct line_stats_hop *h = &s->hops[i];
        char name[32], bytes[OUTPUT_BYTES_TEXT], each[OUTPUT_BYTES_TEXT];
        snprintf(name, sizeof name, "%d -> %d", h->from, h->to);
        fprintf(stderr, "%-11s  %8" PRIu64 "  %10s  %10s", name, h->messages,
                output_bytes(h->bytes, bytes),
                output_bytes(h->messages == 0 ? 0 : h->bytes / h->messages, each));
        print_latency(h);
    }
}

static void print_cost(const char *what, const struct line_stats_cost *c)
{
    if (c->rows == 0) return;
    const double ms = 1e-6 / (double)c->rows;
    const double total =
        c->compute_ns + c->hops_ns + c->send_ns + c->control_ns + c->coordinator_ns;
    fprintf(stderr,
            "%-12s  %8" PRIu64 "  %8" PRIu64 "  %9.4f = %9.4f + %9.4f + %9.4f + %9.4f + %11.4f\n",
            what, c->batches, c->rows, total * ms, c->compute_ns * ms, c->hops_ns * ms,
            c->send_ns * ms, c->control_ns * ms, c->coordinator_ns * ms);
}

static void print_costs(const struct line_stats *s)
{
    fprintf(stderr, "\n%-12s  %8s  %8s  %9s = %9s + %9s + %9s + %9s + %11s\n", "ms a token",
            "batches", "tokens", "total", "compute", "hops", "send", "control", "coordinator");
    print_cost("prompt", &s->prompt);
    print_cost("text", &s->text);
    fprintf(stderr, "bubble: %.1f%% of the stages' time at work went by waiting for input\n",
            100 * s->bubble);
    if (s->missing > 0)
        fprintf(stderr,
                "hops and costs leave out %" PRIu64 " batches, whose records are not kept\n",
                s->missing);
}

int stats_report_print(const struct line *ln, struct err *err)
{
    struct line_stats s;
    int rc = line_stats_read(&s, ln, 1, UINT64_MAX, err);
    if (rc == ERR_NONE) {
        print_stages(&s);
        print_hops(&s);
        print_costs(&s);
    }
    line_stats_free(&s);
    return rc;
}
