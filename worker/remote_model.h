/* remote_model - a model whose file is not on this host: the coordinator reads it, and this worker
 * asks for what it needs.
 *
 * Order: remote_model_open, (MODEL comes:) remote_model_note, remote_model_read, then
 * remote_model_source for the weights, remote_model_end, remote_model_close.
 * Station before: worker. Stations inside: weights_pull (questions and pieces), weights_cache.
 * Stations after: engine/model, engine/weights. */
#ifndef TANDEM_WORKER_REMOTE_MODEL_H
#define TANDEM_WORKER_REMOTE_MODEL_H

#include "engine/model.h"
#include "engine/weight_source.h"
#include "proto/codec.h"
#include "proto/link.h"
#include "proto/message.h"

/* How it talks to the coordinator. All outlives it. */
struct remote_port {
    struct link *link;
    struct codec *codec; /* of small messages, pieces among them */
    int (*send)(void *ctx, const struct message *m, struct err *err); /* on control */
    /* look() - obey the control messages that have come, and give a sign of life. An error when
     * this worker is to stop. */
    int (*look)(void *ctx, struct err *err);
    void *ctx;
};

struct remote_model;

/* remote_model_open() - opens the link's weights channel; *out is the caller's. ERR_MEMORY. */
int remote_model_open(struct remote_model **out, const struct remote_port *port, struct err *err);
void remote_model_close(struct remote_model *r); /* NULL is allowed */

/* remote_model_note() - MODEL has come. Once: remote_model_is_known() says whether it has. */
void remote_model_note(struct remote_model *r, const struct msg_model *m);
bool remote_model_is_known(const struct remote_model *r);

/* remote_model_read() - the metadata, pulled from the coordinator; path is what errors call the
 * file. *out is the caller's (model_close). Returns what look() returns, ERR_DISAGREE (the digest
 * is another one), ERR_PEER, ERR_STALL, ERR_MEMORY, ERR_FILE. */
int remote_model_read(struct remote_model *r, const char *path, struct model **out,
                      struct err *err);

/* remote_model_source() - of the tensors of a layer range: the coordinator, behind a cache where
 * folder is not NULL, which holds limit_bytes at most. Valid until remote_model_end(). ERR_MEMORY. */
int remote_model_source(struct remote_model *r, struct layer_range range, const char *folder,
                        uint64_t limit_bytes, struct weight_source *out, struct err *err);

/* remote_model_end() - all weights are here, or never will be: the channel and the cache are
 * closed. Again: nothing. NULL is allowed. */
void remote_model_end(struct remote_model *r);

#endif
