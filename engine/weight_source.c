/* weight_source - see weight_source.h.
 *
 * Files are read in large pieces, never by touching a map page by page: network file systems and
 * disks give their full rate only so. While a piece is being packed, the system fetches
 * the next. */
#include "engine/weight_source.h"

enum { AHEAD_BYTES = 8 << 20 };

static void skip_empty(struct weight_cursor *c)
{
    while (c->at < c->n && c->inside == c->extents[c->at].bytes) {
        c->at++;
        c->inside = 0;
    }
}

void weight_cursor_open(struct weight_cursor *c, const struct weight_extent *extents, size_t n)
{
    *c = (struct weight_cursor){.extents = extents, .n = n};
    skip_empty(c);
}

uint64_t weight_cursor_left(const struct weight_cursor *c)
{
    return c->at < c->n ? c->extents[c->at].bytes - c->inside : 0;
}

void weight_cursor_move(struct weight_cursor *c, uint64_t n)
{
    BUG_IF(n > weight_cursor_left(c), "more bytes of an extent than it has");
    c->inside += n;
    skip_empty(c);
}

static int begin_file(void *ctx, const struct weight_extent *extents, size_t n, struct err *err)
{
    struct weight_file_state *s = ctx;
    (void)err;
    weight_cursor_open(&s->next, extents, n);
    return ERR_NONE;
}

static int read_file(void *ctx, uint8_t *out, size_t n, struct err *err)
{
    struct weight_file_state *s = ctx;
    BUG_IF(n > weight_cursor_left(&s->next), "a read beyond what was told");
    const struct weight_extent *e = &s->next.extents[s->next.at];
    const uint64_t from = e->offset + s->next.inside;
    TRY(gguf_read(s->file, e->part, from, out, n, err));
    gguf_read_ahead(s->file, e->part, from + n, AHEAD_BYTES);
    weight_cursor_move(&s->next, n);
    return ERR_NONE;
}

struct weight_source weight_source_file(struct weight_file_state *state, const struct gguf *file)
{
    *state = (struct weight_file_state){.file = file};
    return (struct weight_source){.begin = begin_file, .read = read_file, .ctx = state};
}
