/* pour - see pour.h. */
#include "worker/pour.h"

#include "engine/quant_formats.h"
#include "worker/quantise.h"

#include <omp.h>
#include <stdlib.h>

/* Values of a piece: a whole number of blocks of any format, small enough for a core's
 * own cache. */
enum { PIECE = 1 << 16 };

/* What one thread works in. */
struct desk {
    float *values;  /* [PIECE] */
    uint8_t *bytes; /* PIECE values in any format */
};

static int pour_piece(const struct pouring *p, const struct desk *desk, uint64_t first,
                      struct err *err)
{
    const struct format *format = format_find(p->format);
    const uint64_t left = p->n_values - first;
    const size_t n = left < PIECE ? (size_t)left : PIECE;
    CHECK(desk->values != NULL && desk->bytes != NULL, err, ERR_MEMORY,
          "no memory for a piece of %d values", PIECE);
    TRY(p->fill(p->ctx, first, n, desk->values, err));
    quantise_find(p->format)(desk->values, desk->bytes, n);
    return gguf_writer_write(p->writer, p->tensor, format_row_bytes(format, first), desk->bytes,
                             format_row_bytes(format, n), err);
}

int pour_tensor(const struct pouring *p, struct err *err)
{
    BUG_IF(quantise_find(p->format) == NULL, "a number format without a quantiser");
    const uint64_t n_pieces = (p->n_values + PIECE - 1) / PIECE;
    uint64_t n_threads = p->n_threads != 0 ? p->n_threads : (uint64_t)omp_get_max_threads();
    if (n_threads > n_pieces) n_threads = n_pieces;
    int code = ERR_NONE;
#pragma omp parallel num_threads((int)n_threads) if (n_threads > 1)
    {
        const struct desk desk = {malloc(PIECE * sizeof(float)), malloc(PIECE * sizeof(float))};
#pragma omp for schedule(dynamic)
        for (uint64_t i = 0; i < n_pieces; i++) {
            int before;
#pragma omp atomic read
            before = code;
            if (before != ERR_NONE) continue;
            struct err own;
            const int rc = pour_piece(p, &desk, i * PIECE, &own);
            if (rc == ERR_NONE) continue;
#pragma omp critical
            if (code == ERR_NONE) {
                *err = own;
#pragma omp atomic write
                code = rc;
            }
        }
        free(desk.values);
        free(desk.bytes);
    }
    return code;
}
