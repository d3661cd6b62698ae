/* amx_peak - what a core can multiply at best on AMX tiles: see peak_body.h. */
#include "engine/kernels/x86/amx_tiles.h"

/* Four sums of two tiles of A and two of B, as the products hold them. */
#define FOUR_PRODUCTS(multiply)                                                                    \
    do {                                                                                           \
        multiply(0, 4, 6);                                                                         \
        multiply(1, 4, 7);                                                                         \
        multiply(2, 5, 6);                                                                         \
        multiply(3, 5, 7);                                                                         \
    } while (0)

static void zero_tiles(void)
{
    tiles_begin(TILE_ROWS, TILE_STRIDE);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

KERNEL_PEAK(peak_float_amx)
{
    zero_tiles();
    for (uint64_t step = 0; step < n_steps; step++) FOUR_PRODUCTS(_tile_dpbf16ps);
    tiles_end();
    return n_steps * 4 * RESULT_VALUES * (TILE_STRIDE / 2);
}

KERNEL_PEAK(peak_block_amx)
{
    zero_tiles();
    for (uint64_t step = 0; step < n_steps; step++) FOUR_PRODUCTS(_tile_dpbsud);
    tiles_end();
    return n_steps * 4 * RESULT_VALUES * TILE_STRIDE;
}
