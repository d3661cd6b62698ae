/* making_report - see making_report.h. */
#include "coordinator/front/making_report.h"

#include "coordinator/front/output.h"
#include "engine/clock.h"

#include <inttypes.h>
#include <stdio.h>

static void show(void *ctx, uint64_t done, uint64_t total)
{
    struct making_report *report = ctx;
    progress_bar_show(&report->bar, "writing", done, total);
}

struct making making_report_begin(struct making_report *report, const struct settings *s)
{
    *report = (struct making_report){.start_ns = clock_now_ns(), .quiet = s->quiet};
    progress_bar_open(&report->bar, !s->quiet);
    return (struct making){.n_threads = s->threads, .progress = show, .progress_ctx = report};
}

void making_report_end(struct making_report *report, const char *path, const struct made_file *made)
{
    char bytes[OUTPUT_BYTES_TEXT];
    progress_bar_erase(&report->bar);
    if (made == NULL || report->quiet) return;
    const double s = (double)(clock_now_ns() - report->start_ns) * 1e-9;
    fprintf(stderr, "%s: %.1f million weights in %" PRIu64 " tensors, %s; %.1f s (%.0f MB/s)\n",
            path, (double)made->n_values * 1e-6, made->n_tensors, output_bytes(made->bytes, bytes),
            s, (double)made->bytes * 1e-6 / s);
}
