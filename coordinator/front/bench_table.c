/* bench_table - what a bench found, for people.
 * Station before: bench. */
#include "coordinator/front/bench_report.h"

#include "coordinator/front/output.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Sizes of a hop that are shown; JSON and CSV have all. */
enum { SIZES_SHOWN = 4 };

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* Shares are of the time in which there was work. */
static void print_stages(FILE *out, const struct bench_results *r)
{
    int width = 4;
    for (size_t i = 0; i < r->n_stages; i++)
        if ((int)strlen(r->stages[i].host) > width) width = (int)strlen(r->stages[i].host);
    fprintf(out, "%4s  %-*s  %-9s  %7s  %10s  %10s  %10s  %10s  %7s | %7s %6s %6s %7s %6s | %9s\n",
            "rank", width, "host", "layers", "threads", "weights", "kv", "planned", "resident",
            "load s", "compute", "wait", "send", "control", "other", "read GB/s");
    for (size_t i = 0; i < r->n_stages; i++) {
        const struct bench_stage *s = &r->stages[i];
        const double work_s = s->wall_s - s->idle_s;
        char weights[OUTPUT_BYTES_TEXT], kv[OUTPUT_BYTES_TEXT], need[OUTPUT_BYTES_TEXT],
            rss[OUTPUT_BYTES_TEXT];
        fprintf(out,
                "%4" PRIu64 "  %-*s  %-9s  %7" PRIu64
                "  %10s  %10s  %10s  %10s  %7.2f | %6.1f%% %5.1f%% "
                "%5.1f%% %6.1f%% %5.1f%% | %9.1f\n",
                s->rank, width, s->host, s->layers, s->threads,
                output_bytes(s->weight_bytes, weights), output_bytes(s->kv_bytes, kv),
                output_bytes(s->need_bytes, need), output_bytes(s->rss_bytes, rss), s->load_s,
                percent(s->compute_s, work_s), percent(s->wait_s, work_s),
                percent(s->send_s, work_s), percent(s->control_s, work_s),
                percent(s->other_s, work_s), r->limit[i].read_gb_s);
    }
}

/* How many sizes of the same hop came more often? */
static size_t rank_size(const struct bench_results *r, size_t hop)
{
    size_t before = 0;
    for (size_t i = 0; i < r->n_hops; i++) {
        const uint64_t n = r->hop_notes[i].messages, own = r->hop_notes[hop].messages;
        before += r->hops[i].from == r->hops[hop].from && (n > own || (n == own && i < hop));
    }
    return before;
}

/* A dash where it is not known. */
static void print_us(FILE *out, double us)
{
    if (isnan(us))
        fprintf(out, "  %11s", "-");
    else
        fprintf(out, "  %11.1f", us);
}

static void print_hops(FILE *out, const struct bench_results *r)
{
    size_t hidden = 0;
    fprintf(out, "\n%-9s  %10s  %8s  %8s  %11s  %11s  %11s  %5s\n", "hop", "bytes", "messages",
            "timed", "median us", "p99 us", "raw MPI us", "ratio");
    for (size_t i = 0; i < r->n_hops; i++) {
        const struct bench_hop *h = &r->hops[i];
        if (rank_size(r, i) >= SIZES_SHOWN) {
            hidden++;
            continue;
        }
        char name[48], bytes[OUTPUT_BYTES_TEXT];
        snprintf(name, sizeof name, "%" PRIu64 " -> %" PRIu64, h->from, h->to);
        fprintf(out, "%-9s  %10s  %8" PRIu64 "  %8" PRIu64, name, output_bytes(h->bytes, bytes),
                r->hop_notes[i].messages, r->hop_notes[i].timed);
        print_us(out, h->us_median);
        print_us(out, h->us_p99);
        print_us(out, h->raw_mpi_us);
        if (!isnan(h->us_median) && h->raw_mpi_us > 0)
            fprintf(out, "  %5.1f\n", h->us_median / h->raw_mpi_us);
        else
            fprintf(out, "  %5s\n", "-");
    }
    if (hidden > 0) fprintf(out, "(%zu sizes that came less often: see --json)\n", hidden);
}

static void print_runs(FILE *out, const struct bench_results *r)
{
    fprintf(out, "\n%-8s  %4s  %10s  %8s  %10s  %10s  %9s  %7s  %10s  %12s\n", "test", "seqs",
            "tokens/s", "IQR", "least", "most", "ttft ms", "bubble", "predicted", "of its limit");
    for (size_t i = 0; i < r->n_runs; i++) {
        const struct bench_run *run = &r->runs[i];
        char name[32];
        snprintf(name, sizeof name, "%s%" PRIu64, run->kind, run->n);
        fprintf(out, "%-8s  %4" PRIu64 "  %10.1f  %8.1f  %10.1f  %10.1f  %9.2f", name, run->seqs,
                run->tok_s_median, r->run_notes[i].iqr, run->tok_s_min, run->tok_s_max,
                run->ttft_ms);
        if (isnan(run->bubble))
            fprintf(out, "  %7s", "-");
        else
            fprintf(out, "  %6.1f%%", 100 * run->bubble);
        fprintf(out, "  %10.1f", run->predicted_tok_s);
        if (isnan(r->run_notes[i].limit_tok_s))
            fprintf(out, "  %12s\n", "-");
        else
            fprintf(out, "  %11.1f%%\n", percent(run->tok_s_median, r->run_notes[i].limit_tok_s));
    }
}

static void print_wire(FILE *out, const struct bench_results *r)
{
    const struct bench_wire *w = r->wire;
    if (w->bytes_per_token == 0) return;
    fprintf(out, "\nbetween stages a token travels in %" PRIu64 " bytes (%s)", w->bytes_per_token,
            w->format);
    if (w->positions > 0)
        fprintf(out,
                "; against f32 the scores change by %.3g%% of their spread (rms), and the first "
                "token at %" PRIu64 " of %" PRIu64 " positions",
                100 * w->rms, w->first_differs, w->positions);
    fprintf(out, "\n");
}

void bench_print_table(FILE *out, const struct bench_results *r)
{
    fprintf(out, "%s: %" PRIu64 " ranks, kernels %s\n\n", r->model, r->ranks,
            r->n_stages > 0 ? r->stages[0].isa : "none");
    print_stages(out, r);
    print_hops(out, r);
    print_wire(out, r);
    print_runs(out, r);
}
