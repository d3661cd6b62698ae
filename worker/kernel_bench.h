/* kernel_bench - the speed of each kernel by itself, on one thread, for each instruction set that
 * this CPU has, at shapes of real models.
 *
 * Station before: coordinator/front/kernel_report, through main. Next station: engine/kernels. */
#ifndef TANDEM_WORKER_KERNEL_BENCH_H
#define TANDEM_WORKER_KERNEL_BENCH_H

#include "engine/kernel_figures.h"

/* kernel_bench_run() - limits is filled before the first figure. Takes about half a second a
 * figure, and 512 MiB of memory. ERR_MEMORY; what on_figure() returns. */
int kernel_bench_run(struct kernel_limits *limits, kernel_figure_fn *on_figure, void *ctx,
                     struct err *err);

#endif
