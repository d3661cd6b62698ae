/* avx_vnni - the products of bytes for a CPU with AVX2 and AVX-VNNI. The sums are whole numbers, so
 * they have the bits of those in avx2.c: this is AVX2, faster, and no instruction set of its own.
 *
 * Compiled with the flags of this instruction set; called only where isa_has_avx_vnni(). */
#include "engine/kernels/x86/simd_avx2.h"

#include "engine/kernels/x86/dot_avx_vnni.h"

#include "engine/kernels/x86/matmul_body.h"

#include "engine/kernels/x86/block_body.h"
#include "engine/kernels/x86/planes_body.h"

#include "engine/kernels/x86/peak_body.h"
