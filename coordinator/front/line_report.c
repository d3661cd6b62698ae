/* line_report - see line_report.h. */
#include "coordinator/front/line_report.h"

#include "coordinator/front/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double ms(uint64_t ns)
{
    return (double)ns * 1e-6;
}

static double per(double total, uint64_t n)
{
    return n == 0 ? 0.0 : total / (double)n;
}

static double per_second(uint64_t n, uint64_t ns)
{
    return ns == 0 ? 0.0 : (double)n * 1e9 / (double)ns;
}

static int host_width(const struct line *ln)
{
    size_t width = strlen("host");
    for (uint32_t i = 0; i < line_stage_count(ln); i++) {
        size_t len = strlen(line_stage_at(ln, i)->host);
        if (len > width) width = len;
    }
    return (int)width;
}

static void print_stage(const struct line_stage *st, int width)
{
    char layers[32], weights[OUTPUT_BYTES_TEXT], kv[OUTPUT_BYTES_TEXT], buffers[OUTPUT_BYTES_TEXT];
    snprintf(layers, sizeof layers, "%u..%u", st->range.first, st->range.end - 1);
    fprintf(stderr, "%4d  %-*s  %-9s  %10s  %10s  %10s  %7u  %8" PRIu64 "  %10.3f\n", st->rank,
            width, st->host, layers, output_bytes(st->bytes.weights, weights),
            output_bytes(st->bytes.kv, kv), output_bytes(st->bytes.buffers, buffers), st->threads,
            st->report.batches, per(ms(st->report.compute_ns), st->report.rows));
}

static void print_stage_times(const struct line_stage *st)
{
    char sent[OUTPUT_BYTES_TEXT], resident[OUTPUT_BYTES_TEXT];
    fprintf(stderr,
            "rank %d: %" PRIu64 " rows, computed %.1f ms, waited %.1f ms, sent %s in %" PRIu64
            " messages in %.1f ms, loaded in %.1f ms, resident at most %s\n",
            st->rank, st->report.rows, ms(st->report.compute_ns), ms(st->report.wait_ns),
            output_bytes(st->report.sent_bytes, sent), st->report.sent_messages,
            ms(st->report.send_ns), ms(st->load_ns), output_bytes(st->report.rss_bytes, resident));
}

static void print_totals(const struct line_counts *c, const struct line_times *t)
{
    const uint64_t prompt_end_ns = t->prompts_done_ns != 0 ? t->prompts_done_ns : t->done_ns;
    const uint64_t prompt_ns = prompt_end_ns - t->ready_ns;
    fprintf(stderr, "loaded in %.1f ms; prompt: %" PRIu64 " tokens in %.1f ms (%.1f tokens/s)",
            ms(t->load_ns), c->prompt_tokens, ms(prompt_ns),
            per_second(c->prompt_tokens, prompt_ns));
    /* The first token belongs to the prompt's time: it comes with the last prompt row. */
    if (c->tokens > 1 && t->first_token_ns != 0) {
        const uint64_t text_ns = t->done_ns - t->first_token_ns;
        fprintf(stderr, "; text: %" PRIu64 " tokens in %.1f ms (%.1f tokens/s)", c->tokens,
                ms(text_ns), per_second(c->tokens - 1, text_ns));
    }
    fputc('\n', stderr);
}

static void print_counts(const struct line *ln, const struct line_counts *c)
{
    fprintf(stderr, "kernels %s, context %u\n", isa_name(line_isa(ln)), line_n_ctx(ln));
    fprintf(stderr,
            "counts: batches %" PRIu64 ", rows %" PRIu64 ", home %" PRIu64 " bytes for %" PRIu64
            " score rows, overlapped %" PRIu64 "\n",
            c->batches, c->rows, c->home_bytes, c->home_rows, c->overlapped);
    fprintf(stderr, "cache: %" PRIu64 " prompt tokens were in it, %" PRIu64 " preemptions\n",
            c->cached_tokens, c->preemptions);
}

void line_report_print(const struct line *ln, const struct line_times *times, bool verbose)
{
    const struct line_counts counts = line_counts(ln);
    const int width = host_width(ln);
    fprintf(stderr, "\n%4s  %-*s  %-9s  %10s  %10s  %10s  %7s  %8s  %10s\n", "rank", width, "host",
            "layers", "weights", "kv", "buffers", "threads", "batches", "ms/token");
    for (uint32_t i = 0; i < line_stage_count(ln); i++) print_stage(line_stage_at(ln, i), width);
    if (verbose) {
        for (uint32_t i = 0; i < line_stage_count(ln); i++) print_stage_times(line_stage_at(ln, i));
        print_counts(ln, &counts);
    }
    print_totals(&counts, times);
}
