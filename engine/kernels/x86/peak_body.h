/* peak_body - what a core can multiply at best, written once for every vector width: products of
 * registers with registers, so many at once that none waits for another.
 * Station before: bench --kernels, which shows the products as a share of it. */
#include "engine/kernels/kernels.h"

/* As many as hide the latency of an instruction, and fit into the registers beside its operands. */
enum { PEAK_SUMS = 10 };

KERNEL_PEAK(KERNEL_NAME(peak_float))
{
    vf sums[PEAK_SUMS], x = v_set1(1e-9F), w = v_set1(1.5F);
    for (int i = 0; i < PEAK_SUMS; i++) sums[i] = v_zero();
    for (uint64_t step = 0; step < n_steps; step++) {
        UNROLL_FOR (i, PEAK_SUMS) sums[i] = v_fma(w, x, sums[i]);
        __asm__ volatile("" : "+x"(x), "+x"(w));
    }
    float rest = 0;
    for (int i = 0; i < PEAK_SUMS; i++) rest += v_first(sums[i]);
    __asm__ volatile("" : : "x"(rest));
    return n_steps * PEAK_SUMS * V_LANES;
}

KERNEL_PEAK(KERNEL_NAME(peak_block))
{
    vi sums[PEAK_SUMS], x = vi_set1(0x01010101), w = vi_set1(0x02020202);
    for (int i = 0; i < PEAK_SUMS; i++) sums[i] = vi_set1(0);
    for (uint64_t step = 0; step < n_steps; step++) {
        UNROLL_FOR (i, PEAK_SUMS) sums[i] = dot_4(4, sums[i], w, x);
        __asm__ volatile("" : "+x"(x), "+x"(w));
    }
    vi rest = sums[0];
    for (int i = 1; i < PEAK_SUMS; i++) rest = vi_and(rest, sums[i]);
    __asm__ volatile("" : : "x"(rest));
    return n_steps * PEAK_SUMS * V_LANES * 4;
}
