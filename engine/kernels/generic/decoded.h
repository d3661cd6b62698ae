/* decoded - panels that keep the blocks of the file: for formats that are rare enough to be decoded
 * by their reference decoder, one block of the 16 rows at a time, just before they are multiplied.
 *
 * Station before: weights. Stations after: generic/decoded.c and x86/decoded_body.h. */
#ifndef TANDEM_ENGINE_KERNELS_DECODED_H
#define TANDEM_ENGINE_KERNELS_DECODED_H

#include "engine/kernels/kernels.h"

enum {
    DECODED_VALUES_MAX = 256, /* of a block, in any format */
    DECODED_ROWS = 64,        /* rows of activations for which a block is decoded once */
};

/* decoded_unpack() - a block of each of a panel's rows, side by side at blocks, to f32:
 * columns[k][row], for the values k of a block. */
void decoded_unpack(const struct format *f, const uint8_t *blocks,
                    float columns[DECODED_VALUES_MAX][PANEL_ROWS]);

#endif
