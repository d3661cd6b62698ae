/* requantize - a model file again, in another number format.
 *
 * Station before: coordinator/front/quantize, through main. Next stations: mixture (which format
 * where), pour (the values), gguf_write. */
#ifndef TANDEM_WORKER_REQUANTIZE_H
#define TANDEM_WORKER_REQUANTIZE_H

#include "engine/err.h"
#include "engine/recipe.h"

/* requantize_file() - order->out from order->in, which may be of any family; metadata is kept. A
 * tensor whose format does not change, or that this program does not decode, is copied. The file
 * appears when it is complete. ERR_FILE, ERR_UNSUPPORTED (the file), ERR_NUMERIC (a weight is not
 * finite: named), ERR_MEMORY. */
int requantize_file(const struct quantize_order *order, struct made_file *made, struct err *err);

#endif
