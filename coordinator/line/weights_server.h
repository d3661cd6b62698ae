/* weights_server - reads the model's files for the workers that have none, as they ask.
 *
 * The coordinator serves, because it is the one rank that always has the files, already has a
 * channel to each worker and has nothing else to do while they load; a worker beside it would have
 * to pack its own slice meanwhile. It sees bytes of files only. Workers pull, so that what is under
 * way is bounded by what they asked for (proto/message.h), however slow one of them is, and each
 * gets what it needs in the order in which the files have it.
 * Stations before: roster (a PULL). Stations after: proto/link (PIECEs). */
#ifndef TANDEM_COORDINATOR_LINE_WEIGHTS_SERVER_H
#define TANDEM_COORDINATOR_LINE_WEIGHTS_SERVER_H

#include "engine/gguf.h"
#include "proto/codec.h"
#include "proto/link.h"
#include "proto/message.h"

struct weights_server;

/* weights_server_open() - for the workers of l; file, l and codec outlive it, and l's
 * weights channel is its. ERR_MEMORY, ERR_CAPACITY (a model of too many parts). */
int weights_server_open(struct weights_server **out, const struct gguf *file, struct link *l,
                        struct codec *codec, struct err *err);
void weights_server_close(struct weights_server *s); /* NULL is allowed */

/* weights_server_describe() - what MODEL says; its lists live as long as s. */
struct msg_model weights_server_describe(const struct weights_server *s);

/* weights_server_take() - note what a worker (rank 1 ..) wants. ERR_PEER: bytes that no file has,
 * or more PULLs than may be unanswered. */
int weights_server_take(struct weights_server *s, int rank, const struct msg_pull *pull,
                        struct err *err);

/* weights_server_work() - send pieces to all workers in turn, as many as the link takes without
 * waiting and 2 MiB at most. ERR_FILE (a file cannot be read: path and byte named), or what the
 * link returns. */
int weights_server_work(struct weights_server *s, struct err *err);

#endif
