/* front - where each command begins: one function a command.
 *
 * A front reads its input, works the line (coordinator/line) where it needs one, and prints.
 * Station before: commands. Station after: line_session, which opens all that a front shares. */
#ifndef TANDEM_COORDINATOR_FRONT_FRONT_H
#define TANDEM_COORDINATOR_FRONT_FRONT_H

#include "coordinator/settings.h"
#include "engine/err.h"
#include "engine/kernel_figures.h"
#include "engine/plan_work.h"
#include "engine/recipe.h"
#include "proto/link.h"

/* What main lends to the fronts, since it alone knows the workers. How a front gets its line: main
 * knows whether the workers are other ranks or threads of this process. */
struct line_starter {
    /* start() - let the workers begin; *link: the coordinator's endpoint, which stays the
     * starter's. Called once, when all that can fail without a line has been tried. */
    int (*start)(void *ctx, const struct settings *settings, struct link **link, struct err *err);
    void *ctx;
    /* synth(), quantize() - make a model file; these compute, so the worker room has them. The
     * contracts are those of worker/synth.h and worker/requantize.h. */
    int (*synth)(const struct synth_order *order, struct made_file *made, struct err *err);
    int (*quantize)(const struct quantize_order *order, struct made_file *made, struct err *err);
    /* bench_kernels() - see worker/kernel_bench.h. */
    int (*bench_kernels)(struct kernel_limits *limits, kernel_figure_fn *on_figure, void *ctx,
                         struct err *err);
    /* measure() - how fast a rank of so many threads would be here (worker/speed_probe.h). */
    int (*measure)(struct plan_speed *out, uint32_t format, uint32_t threads, uint64_t bytes,
                   struct err *err);
};

/* A command from begin to end; results to standard output, all else to standard error. The caller
 * prints the error. */
typedef int front_run_fn(const struct settings *settings, const struct line_starter *starter,
                         struct err *err);

/* batch_run() is generate --batch. */
front_run_fn generate_run, batch_run, logits_run, perplexity_run, tokenize_run, detokenize_run,
    inspect_run, synth_run, quantize_run, bench_run, plan_run, probe_run;

#endif
