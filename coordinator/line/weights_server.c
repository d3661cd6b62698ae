/* weights_server - see weights_server.h. */
#include "coordinator/line/weights_server.h"

#include "engine/digest.h"

#include <inttypes.h>
#include <stdlib.h>

enum { TURN_PIECES = 8 };

/* What one worker waits for: a ring of its PULLs. */
struct customer {
    struct msg_pull pulls[MESSAGE_PULLS_MAX];
    uint32_t first, n;
    uint32_t sent; /* bytes of the first */
};

struct weights_server {
    const struct gguf *file;
    struct link *link;
    struct codec *codec;
    uint64_t header_bytes[MESSAGE_PARTS_MAX], file_bytes[MESSAGE_PARTS_MAX];
    uint64_t stamp;
    uint32_t n_customers, turn;
    struct customer *customers; /* [n_customers], of rank 1 and so on */
    uint8_t piece[MESSAGE_PIECE_BYTES_MAX];
};

int weights_server_open(struct weights_server **out, const struct gguf *file, struct link *l,
                        struct codec *codec, struct err *err)
{
    const uint32_t n_parts = gguf_part_count(file);
    CHECK(n_parts <= MESSAGE_PARTS_MAX, err, ERR_CAPACITY,
          "%s: a model in %" PRIu32 " parts, at most %d can be streamed: join some of them",
          gguf_path(file), n_parts, MESSAGE_PARTS_MAX);
    struct weights_server *s = calloc(1, sizeof *s);
    CHECK(s != NULL, err, ERR_MEMORY, "no memory to stream weights");
    *s = (struct weights_server){
        .file = file, .link = l, .codec = codec, .n_customers = (uint32_t)link_size(l) - 1};
    s->customers = calloc(s->n_customers, sizeof *s->customers);
    if (s->customers == NULL) {
        weights_server_close(s);
        return err_set(err, ERR_MEMORY, "no memory to stream weights");
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct gguf_header h = gguf_part_header(file, i);
        s->header_bytes[i] = h.n_bytes;
        s->file_bytes[i] = h.file_bytes;
        const uint64_t both[2] = {s->stamp, h.changed_ns};
        s->stamp = digest_bytes(both, sizeof both);
    }
    int rc = link_open_weights(l, err);
    if (rc != ERR_NONE) {
        weights_server_close(s);
        return rc;
    }
    *out = s;
    return ERR_NONE;
}

void weights_server_close(struct weights_server *s)
{
    if (s == NULL) return;
    free(s->customers);
    free(s);
}

struct msg_model weights_server_describe(const struct weights_server *s)
{
    return (struct msg_model){.digest = gguf_digest(s->file),
                              .stamp = s->stamp,
                              .n_parts = gguf_part_count(s->file),
                              .header_bytes = s->header_bytes,
                              .file_bytes = s->file_bytes};
}

int weights_server_take(struct weights_server *s, int rank, const struct msg_pull *pull,
                        struct err *err)
{
    struct customer *c = &s->customers[rank - 1];
    CHECK(pull->part < gguf_part_count(s->file) && pull->offset <= s->file_bytes[pull->part] &&
              pull->bytes <= s->file_bytes[pull->part] - pull->offset,
          err, ERR_PEER,
          "asked for bytes %" PRIu64 " to %" PRIu64 " of part %" PRIu32 ", which no file has",
          pull->offset, pull->offset + pull->bytes, pull->part);
    CHECK(c->n < MESSAGE_PULLS_MAX, err, ERR_PEER,
          "asked for weights %d times without waiting for an answer", MESSAGE_PULLS_MAX + 1);
    c->pulls[(c->first + c->n++) % MESSAGE_PULLS_MAX] = *pull;
    gguf_read_ahead(s->file, pull->part, pull->offset, pull->bytes);
    return ERR_NONE;
}

/* send_piece() - of the worker's first PULL into frame, which the link has given. */
static int send_piece(struct weights_server *s, uint32_t index, uint8_t *frame, size_t capacity,
                      struct err *err)
{
    struct customer *c = &s->customers[index];
    const struct msg_pull *p = &c->pulls[c->first];
    const uint32_t left = p->bytes - c->sent;
    const uint32_t n = left < MESSAGE_PIECE_BYTES_MAX ? left : MESSAGE_PIECE_BYTES_MAX;
    const uint64_t offset = p->offset + c->sent;
    TRY(gguf_read(s->file, p->part, offset, s->piece, n, err));
    const struct message m = {.type = MESSAGE_PIECE,
                              .u.piece = {.part = p->part,
                                          .offset = offset,
                                          .digest = digest_bytes(s->piece, n),
                                          .bytes = s->piece,
                                          .n_bytes = n}};
    size_t len;
    TRY(codec_pack(s->codec, &m, 0, frame, capacity, &len, err));
    TRY(link_send(s->link, LINK_WEIGHTS, (int)index + 1, len, err));
    c->sent += n;
    if (c->sent < p->bytes) return ERR_NONE;
    c->sent = 0;
    c->first = (c->first + 1) % MESSAGE_PULLS_MAX;
    c->n--;
    return ERR_NONE;
}

int weights_server_work(struct weights_server *s, struct err *err)
{
    uint32_t sent = 0, idle = 0;
    while (sent < TURN_PIECES && idle < s->n_customers) {
        const uint32_t index = s->turn;
        size_t capacity;
        s->turn = (s->turn + 1) % s->n_customers;
        idle++;
        if (s->customers[index].n == 0) continue;
        uint8_t *frame = link_send_begin(s->link, LINK_WEIGHTS, (int)index + 1, &capacity);
        if (frame == NULL) continue;
        TRY(send_piece(s, index, frame, capacity, err));
        sent++;
        idle = 0;
    }
    if (sent > 0) link_made_progress(s->link);
    return ERR_NONE;
}
