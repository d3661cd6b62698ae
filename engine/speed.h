/* speed - how fast products run here: measured with the kernels themselves on made-up weights.
 *
 * Three figures say how long a product of n rows takes, for one row, for few and for many:
 *     seconds = bytes of weights / read_bytes_s + operations of the first PLAN_FEW_ROWS / few_ops_s
 *             + operations of the others / ops_s
 * Station before: worker (a probe). Stations after: kernels. */
#ifndef TANDEM_ENGINE_SPEED_H
#define TANDEM_ENGINE_SPEED_H

#include "engine/err.h"
#include "engine/isa.h"
#include "engine/plan_work.h"

#include <stdint.h>

/* speed_measure() - of a team of threads (>= 1) on weights of a number format (enum format_id) with
 * the kernels of an instruction set that this CPU has. bytes: of weights to go through, as far as
 * SPEED_BYTES_MAX: as many as a token reads on this host, since what fits into its cache is faster.
 * Takes about half a second and that much memory, given back. progress (may be NULL) is called by
 * the calling thread about every 50 ms. Returns ERR_UNSUPPORTED (no kernels for the format),
 * ERR_MEMORY. */
#define SPEED_BYTES_MAX (UINT64_C(1) << 30)
int speed_measure(struct plan_speed *out, uint32_t format, enum isa isa, uint32_t threads,
                  uint64_t bytes, void (*progress)(void *ctx), void *ctx, struct err *err);

#endif
