/* avx2 - the vector kernels for AVX2 with FMA and F16C: the shared bodies at this width.
 *
 * Compiled with the flags of this instruction set; called only where isa_detect() found it. */
#include "engine/kernels/x86/simd_avx2.h"

#include "engine/kernels/x86/dot_avx2.h"

#include "engine/kernels/x86/matmul_body.h"

#include "engine/kernels/x86/block_body.h"
#include "engine/kernels/x86/decoded_body.h"
#include "engine/kernels/x86/float_body.h"
#include "engine/kernels/x86/planes_body.h"
#include "engine/kernels/x86/rows_body.h"

#include "engine/kernels/generic/rows_plain.h"

#include "engine/kernels/x86/attention_body.h"

#include "engine/kernels/x86/peak_body.h"
