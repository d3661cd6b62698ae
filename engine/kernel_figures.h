/* kernel_figures - what a measurement of the kernels finds: plain data, so that the front can print
 * what the worker room measures.
 * Stations: worker/kernel_bench (fills), front/kernel_report. */
#ifndef TANDEM_ENGINE_KERNEL_FIGURES_H
#define TANDEM_ENGINE_KERNEL_FIGURES_H

#include "engine/err.h"

#include <stdint.h>

/* One kernel at one shape, on one thread; a figure that does not apply is NAN. */
struct kernel_figure {
    const char *isa, *kernel, *format; /* static storage */
    uint32_t n_in, n_out, rows;        /* of a product; else n_in values, rows times, and n_out 0 */
    double seconds;                    /* of one such call */
    double gb_s;                       /* what it reads of weights or rows, 1e9 bytes a second */
    double gop_s;                      /* multiplications and additions, 1e9 a second */
    double share_of_reading;           /* of how fast this core reads memory */
    double share_of_peak;              /* of what this core multiplies from registers */
    double blas_gop_s;                 /* the same product by OpenBLAS */
};

/* What the figures are measured against, for one thread. */
struct kernel_limits {
    double read_gb_s;
};

/* Called for each figure as it is found. */
typedef int kernel_figure_fn(void *ctx, const struct kernel_figure *figure, struct err *err);

#endif
