/* avx512 - the vector kernels for AVX-512 F, BW, VL, DQ with VNNI: the shared bodies at this width.
 *
 * Compiled with the flags of this instruction set; called only where isa_detect() found it. */
#include "engine/kernels/x86/simd_avx512.h"

#include "engine/kernels/x86/matmul_body.h"

#include "engine/kernels/x86/block_body.h"
#include "engine/kernels/x86/decoded_body.h"
#include "engine/kernels/x86/float_body.h"
#include "engine/kernels/x86/planes_body.h"
#include "engine/kernels/x86/rows_body.h"

#include "engine/kernels/generic/rows_plain.h"

#include "engine/kernels/x86/attention_body.h"

#include "engine/kernels/x86/peak_body.h"
