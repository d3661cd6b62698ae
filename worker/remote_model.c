/* remote_model - see remote_model.h. */
#include "worker/remote_model.h"

#include "worker/weights_cache.h"
#include "worker/weights_pull.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct remote_model {
    struct remote_port port;
    struct weights_pull *pull;
    struct weights_cache *cache; /* NULL: none */
    bool holds_piece;            /* its frame is at work */
    bool is_known;               /* MODEL has come: */
    uint64_t digest, stamp;
    uint32_t n_parts;
    uint64_t header_bytes[MESSAGE_PARTS_MAX], file_bytes[MESSAGE_PARTS_MAX];
};

/* ---- questions and pieces ---- */

static int ask(void *ctx, const struct msg_pull *pull, struct err *err)
{
    const struct remote_port *port = &((struct remote_model *)ctx)->port;
    const struct message m = {.type = MESSAGE_PULL, .u.pull = *pull};
    return port->send(port->ctx, &m, err);
}

static void release_piece(struct remote_model *r)
{
    if (r->holds_piece) link_receive_done(r->port.link, LINK_WEIGHTS);
    r->holds_piece = false;
}

/* take_piece() - one, where there is one; its frame is held until the next. */
static int take_piece(struct remote_model *r, struct err *err)
{
    struct link *l = r->port.link;
    int from;
    const uint8_t *frame;
    size_t len;
    struct message m;
    struct frame_view view;
    release_piece(r);
    TRY(link_receive(l, LINK_WEIGHTS, &from, &frame, &len, err));
    if (frame == NULL) return ERR_NONE;
    r->holds_piece = true;
    link_made_progress(l);
    TRY(codec_unpack(r->port.codec, frame, len, &m, &view, err));
    CHECK(m.type == MESSAGE_PIECE, err, ERR_PEER,
          "message type %d came where weights come, want a piece of them", (int)m.type);
    return weights_pull_take(r->pull, &m.u.piece, err);
}

static int await_piece(void *ctx, struct err *err)
{
    struct remote_model *r = ctx;
    TRY(take_piece(r, err));
    TRY(r->port.look(r->port.ctx, err));
    if (!r->holds_piece) link_wait(r->port.link, HEARTBEAT_MS * 1000);
    return ERR_NONE;
}

int remote_model_open(struct remote_model **out, const struct remote_port *port, struct err *err)
{
    struct remote_model *r = calloc(1, sizeof *r);
    CHECK(r != NULL, err, ERR_MEMORY, "no memory for a model that is elsewhere");
    r->port = *port;
    const struct weights_port pull = {ask, await_piece, r};
    int rc = weights_pull_open(&r->pull, &pull, err);
    if (rc == ERR_NONE) rc = link_open_weights(port->link, err);
    if (rc != ERR_NONE) {
        remote_model_close(r);
        return rc;
    }
    *out = r;
    return ERR_NONE;
}

void remote_model_end(struct remote_model *r)
{
    if (r == NULL) return;
    release_piece(r);
    link_close_weights(r->port.link);
    weights_cache_close(r->cache);
    r->cache = NULL;
}

void remote_model_close(struct remote_model *r)
{
    if (r == NULL) return;
    remote_model_end(r);
    weights_pull_close(r->pull);
    free(r);
}

/* ---- the metadata ---- */

void remote_model_note(struct remote_model *r, const struct msg_model *m)
{
    r->is_known = true;
    r->digest = m->digest;
    r->stamp = m->stamp;
    r->n_parts = m->n_parts;
    memcpy(r->header_bytes, m->header_bytes, m->n_parts * sizeof *m->header_bytes);
    memcpy(r->file_bytes, m->file_bytes, m->n_parts * sizeof *m->file_bytes);
}

bool remote_model_is_known(const struct remote_model *r)
{
    return r->is_known;
}

/* pull_headers() - of all parts, one behind the other. */
static int pull_headers(struct remote_model *r, uint8_t *bytes, struct err *err)
{
    const struct weight_source source = weights_pull_source(r->pull);
    for (uint32_t i = 0; i < r->n_parts; i++) {
        const struct weight_extent header = {.part = i, .bytes = r->header_bytes[i]};
        TRY(source.begin(source.ctx, &header, 1, err));
        TRY(source.read(source.ctx, bytes, r->header_bytes[i], err));
        bytes += r->header_bytes[i];
    }
    return ERR_NONE;
}

static int open_pulled(struct remote_model *r, const char *path, uint8_t *bytes, struct model **out,
                       struct err *err)
{
    struct gguf_header headers[MESSAGE_PARTS_MAX];
    TRY(pull_headers(r, bytes, err));
    for (uint32_t i = 0; i < r->n_parts; i++) {
        headers[i] = (struct gguf_header){bytes, r->header_bytes[i], r->file_bytes[i], 0};
        bytes += r->header_bytes[i];
    }
    TRY(model_open_headers(out, path, headers, r->n_parts, err));
    CHECK((*out)->digest == r->digest, err, ERR_DISAGREE,
          "the model's header has digest %016" PRIx64 " here and %016" PRIx64
          " at the coordinator: it was damaged on the way, or its file changed",
          (*out)->digest, r->digest);
    return ERR_NONE;
}

int remote_model_read(struct remote_model *r, const char *path, struct model **out, struct err *err)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < r->n_parts; i++) total += r->header_bytes[i];
    uint8_t *bytes = malloc(total);
    CHECK(bytes != NULL, err, ERR_MEMORY, "no memory for a header of %" PRIu64 " bytes", total);
    struct model *m = NULL;
    int rc = open_pulled(r, path, bytes, &m, err);
    free(bytes);
    if (rc != ERR_NONE) {
        model_close(m);
        return rc;
    }
    *out = m;
    return ERR_NONE;
}

/* ---- the weights ---- */

int remote_model_source(struct remote_model *r, struct layer_range range, const char *folder,
                        uint64_t limit_bytes, struct weight_source *out, struct err *err)
{
    *out = weights_pull_source(r->pull);
    if (folder == NULL) return ERR_NONE;
    const struct weights_cache_config config = {.folder = folder,
                                                .limit_bytes = limit_bytes,
                                                .digest = r->digest,
                                                .stamp = r->stamp,
                                                .first = range.first,
                                                .end = range.end,
                                                .from = *out};
    TRY(weights_cache_open(&r->cache, &config, err));
    *out = weights_cache_source(r->cache);
    return ERR_NONE;
}
