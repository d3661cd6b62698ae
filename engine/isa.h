/* isa - the instruction sets that kernels exist for, by name and order; no kernel is known here.
 *
 * A rank states its best one in the handshake; the line runs the smallest of them. */
#ifndef TANDEM_ENGINE_ISA_H
#define TANDEM_ENGINE_ISA_H

#include "engine/err.h"

#include <stdbool.h>

enum isa { ISA_GENERIC, ISA_AVX2, ISA_AVX512, ISA_AMX, ISA_COUNT };

/* Who does the products of float weights: our packed kernels, OpenBLAS, or whoever is the better
 * choice for the instruction set (kernels.h). In the order of the words of --matmul. */
enum matmul_choice { MATMUL_PACKED, MATMUL_BLAS, MATMUL_AUTO, MATMUL_COUNT };

const char *isa_name(enum isa isa); /* "generic", "avx2", "avx512", "amx" */

/* isa_find() - by name; -1 where unknown. */
int isa_find(const char *name);

/* isa_detect() - the best that this CPU and system have, or the one that TANDEM_ISA forces.
 * Returns ERR_USAGE for an unknown name, ERR_UNSUPPORTED for one that this CPU does not have. */
int isa_detect(enum isa *out, struct err *err);

/* isa_has_avx_vnni() - whether this CPU, which has AVX2, multiplies bytes in one instruction of 256
 * bits (AVX-VNNI). It is no instruction set of its own, because no result depends on it. */
bool isa_has_avx_vnni(void);

#endif
