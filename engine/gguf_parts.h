/* gguf_parts - a model in one GGUF file or in several, NAME-00001-of-0000N.gguf and so on.
 *
 * The first part carries the metadata; each part has a directory of its own tensors and the keys
 * split.no (from 0), split.count and split.tensors.count (over all parts).
 * Station before: gguf (one file). Stations after: model, worker/requantize. */
#ifndef TANDEM_ENGINE_GGUF_PARTS_H
#define TANDEM_ENGINE_GGUF_PARTS_H

#include "engine/gguf.h"

/* gguf_parts_open() - open path and, when it is the first part of a split model, all others beside
 * it: *out is the first with the tensors of all. Reads of each part the header only; the data of a
 * part whose tensors nobody uses is never read. On success *out is owned by the caller
 * (gguf_close). Returns what gguf_open() returns; ERR_FILE also for a part of
 * another model, or where the parts together do not have the tensors that they promise. */
int gguf_parts_open(struct gguf **out, const char *path, struct err *err);

/* gguf_parts_open_headers() - the same of files that another host has (gguf_open_header): headers
 * [n], those of all parts in order. */
int gguf_parts_open_headers(struct gguf **out, const char *path, const struct gguf_header *headers,
                            uint32_t n, struct err *err);

#endif
