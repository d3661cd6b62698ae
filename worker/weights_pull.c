/* weights_pull - see weights_pull.h. */
#include "worker/weights_pull.h"

#include "engine/clock.h"
#include "engine/digest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 4 << 20, SILENCE_S = 30 };

struct weights_pull {
    struct weights_port port;
    struct weight_cursor asked, due;       /* what to ask for next, and what must come next */
    uint64_t under_way;                    /* bytes between the two */
    uint32_t pull_left[MESSAGE_PULLS_MAX]; /* a ring: bytes of each PULL that have not come */
    uint32_t first_pull, n_pulls;
    const uint8_t *piece;
    uint32_t n_piece, n_used; /* bytes of the piece at hand, and how many of them are taken */
};

int weights_pull_open(struct weights_pull **out, const struct weights_port *port, struct err *err)
{
    struct weights_pull *p = calloc(1, sizeof *p);
    CHECK(p != NULL, err, ERR_MEMORY, "no memory to pull weights");
    p->port = *port;
    *out = p;
    return ERR_NONE;
}

void weights_pull_close(struct weights_pull *p)
{
    free(p);
}

/* ask_ahead() - as far as the window and the number of PULLs allow. */
static int ask_ahead(struct weights_pull *p, struct err *err)
{
    uint64_t left;
    while ((left = weight_cursor_left(&p->asked)) > 0 && p->n_pulls < MESSAGE_PULLS_MAX &&
           p->under_way < WINDOW_BYTES) {
        const struct weight_extent *e = &p->asked.extents[p->asked.at];
        const uint32_t n = left < MESSAGE_PULL_BYTES_MAX ? (uint32_t)left : MESSAGE_PULL_BYTES_MAX;
        const struct msg_pull pull = {e->part, e->offset + p->asked.inside, n};
        TRY(p->port.ask(p->port.ctx, &pull, err));
        p->pull_left[(p->first_pull + p->n_pulls++) % MESSAGE_PULLS_MAX] = n;
        p->under_way += n;
        weight_cursor_move(&p->asked, n);
    }
    return ERR_NONE;
}

static int begin_pulling(void *ctx, const struct weight_extent *extents, size_t n, struct err *err)
{
    struct weights_pull *p = ctx;
    BUG_IF(p->under_way > 0 || p->n_used < p->n_piece, "pulling anew while bytes are under way");
    weight_cursor_open(&p->asked, extents, n);
    weight_cursor_open(&p->due, extents, n);
    return ask_ahead(p, err);
}

int weights_pull_take(struct weights_pull *p, const struct msg_piece *piece, struct err *err)
{
    CHECK(p->under_way > 0 && p->n_used == p->n_piece, err, ERR_PEER,
          "%" PRIu32 " bytes of weights came that nobody asked for", piece->n_bytes);
    const struct weight_extent *e = &p->due.extents[p->due.at];
    const uint64_t offset = e->offset + p->due.inside;
    uint32_t *left = &p->pull_left[p->first_pull];
    CHECK(piece->part == e->part && piece->offset == offset && piece->n_bytes <= *left, err,
          ERR_PEER,
          "%" PRIu32 " bytes came from byte %" PRIu64 " of part %" PRIu32 ", want at most %" PRIu32
          " from byte %" PRIu64 " of part %" PRIu32,
          piece->n_bytes, piece->offset, piece->part, *left, offset, e->part);
    const uint64_t digest = digest_bytes(piece->bytes, piece->n_bytes);
    CHECK(digest == piece->digest, err, ERR_PEER,
          "%" PRIu32 " bytes from byte %" PRIu64 " of part %" PRIu32 " have digest %016" PRIx64
          ", want %016" PRIx64 ": they were damaged on the way from the coordinator; start again, "
          "and suspect the memory and the network cards of both hosts",
          piece->n_bytes, offset, e->part, digest, piece->digest);
    p->piece = piece->bytes;
    p->n_piece = piece->n_bytes;
    p->n_used = 0;
    p->under_way -= piece->n_bytes;
    *left -= piece->n_bytes;
    if (*left == 0) {
        p->first_pull = (p->first_pull + 1) % MESSAGE_PULLS_MAX;
        p->n_pulls--;
    }
    weight_cursor_move(&p->due, piece->n_bytes);
    return ERR_NONE;
}

static int await_piece(struct weights_pull *p, struct err *err)
{
    const uint64_t begin_ns = clock_now_ns();
    BUG_IF(p->under_way == 0, "a read beyond what was told");
    while (p->n_used == p->n_piece) {
        TRY(p->port.wait(p->port.ctx, err));
        CHECK(clock_now_ns() - begin_ns < (uint64_t)SILENCE_S * 1000000000, err, ERR_STALL,
              "no weights came from the coordinator (rank 0) for %d s", SILENCE_S);
    }
    return ERR_NONE;
}

static int read_pulled(void *ctx, uint8_t *out, size_t n, struct err *err)
{
    struct weights_pull *p = ctx;
    while (n > 0) {
        if (p->n_used == p->n_piece) TRY(await_piece(p, err));
        const uint32_t left = p->n_piece - p->n_used, step = n < left ? (uint32_t)n : left;
        memcpy(out, p->piece + p->n_used, step);
        p->n_used += step;
        out += step;
        n -= step;
        if (p->n_used == p->n_piece) TRY(ask_ahead(p, err));
    }
    return ERR_NONE;
}

struct weight_source weights_pull_source(struct weights_pull *p)
{
    return (struct weight_source){.begin = begin_pulling, .read = read_pulled, .ctx = p};
}
