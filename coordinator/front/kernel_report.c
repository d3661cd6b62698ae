/* kernel_report - `tandem bench --kernels`: the speed of each kernel by itself, as a table or JSON.
 *
 * Station before: bench. Station after: worker/kernel_bench, through main. */
#include "coordinator/front/kernel_report.h"

#include "coordinator/front/output.h"

#include <math.h>
#include <string.h>

struct report {
    struct kernel_limits limits;
    json_t *figures; /* NULL: a table */
    const char *isa; /* of the figure before */
};

static void percent_text(double share, char *text, size_t size)
{
    if (isnan(share))
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%.0f%%", 100 * share);
}

static void number_text(double x, char *text, size_t size)
{
    if (isnan(x))
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%.1f", x);
}

static int print_head(const struct report *r, const struct kernel_figure *f, struct err *err)
{
    if (r->isa == NULL)
        TRY(output_printf(err, "one thread, which reads %.1f GB/s from memory\n",
                          r->limits.read_gb_s));
    return output_printf(err, "\n%s\n%-11s %-8s %6s %6s %5s %10s %8s %8s %8s %8s %10s\n", f->isa,
                         "kernel", "format", "n_in", "n_out", "rows", "us", "GB/s", "of read",
                         "GOP/s", "of peak", "BLAS GOP/s");
}

static int print_row(struct report *r, const struct kernel_figure *f, struct err *err)
{
    char reading[16], peak[16], gop[24], blas[24];
    if (r->isa == NULL || strcmp(r->isa, f->isa) != 0) TRY(print_head(r, f, err));
    r->isa = f->isa;
    percent_text(f->share_of_reading, reading, sizeof reading);
    percent_text(f->share_of_peak, peak, sizeof peak);
    number_text(f->gop_s, gop, sizeof gop);
    number_text(f->blas_gop_s, blas, sizeof blas);
    return output_printf(err, "%-11s %-8s %6u %6u %5u %10.1f %8.1f %8s %8s %8s %10s\n", f->kernel,
                         f->format, f->n_in, f->n_out, f->rows, f->seconds * 1e6, f->gb_s, reading,
                         gop, peak, blas);
}

/* number_json() - null for what does not apply. */
static json_t *number_json(double x)
{
    return isnan(x) ? json_null() : json_real(x);
}

static int add_json(struct report *r, const struct kernel_figure *f, struct err *err)
{
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:o, s:o, s:o, s:o}", "isa", f->isa, "kernel",
        f->kernel, "format", f->format, "n_in", (int)f->n_in, "n_out", (int)f->n_out, "rows",
        (int)f->rows, "seconds", f->seconds, "gb_s", f->gb_s, "gop_s", number_json(f->gop_s),
        "share_of_reading", number_json(f->share_of_reading), "share_of_peak",
        number_json(f->share_of_peak), "blas_gop_s", number_json(f->blas_gop_s));
    CHECK(json_array_append_new(r->figures, row) == 0, err, ERR_MEMORY,
          "no memory for the figures");
    return ERR_NONE;
}

static int on_figure(void *ctx, const struct kernel_figure *f, struct err *err)
{
    struct report *r = ctx;
    return r->figures != NULL ? add_json(r, f, err) : print_row(r, f, err);
}

int kernel_report_run(const struct settings *s, const struct line_starter *starter, struct err *err)
{
    struct report r = {0};
    const bool json = s->json_file != NULL;
    CHECK(!json || strcmp(s->json_file, "-") == 0, err, ERR_USAGE,
          "--kernels writes its JSON to standard output only: --json -");
    if (json) r.figures = json_array();
    int rc = starter->bench_kernels(&r.limits, on_figure, &r, err);
    if (rc != ERR_NONE || !json) {
        json_decref(r.figures);
        return rc != ERR_NONE ? rc : output_flush(err);
    }
    return output_json(json_pack("{s:s, s:f, s:o}", "version", TANDEM_VERSION, "read_gb_s",
                                 r.limits.read_gb_s, "kernels", r.figures),
                       true, err);
}
