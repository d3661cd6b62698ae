/* gguf_write - a GGUF v3 file: metadata, the directory of tensors, then their data.
 *
 * Order: gguf_writer_open, put metadata, add tensors, gguf_writer_begin, gguf_writer_write,
 * gguf_writer_finish; gguf_writer_close in every case. Only metadata and directory are kept in
 * memory. The file grows as PATH.part and gets its name when it is complete, so that nobody ever
 * sees half a model. Source: the GGUF specification (ggml docs/gguf.md).
 * Stations before: synth, requantize. Next station: the file, and engine/gguf, which reads it. */
#ifndef TANDEM_WORKER_GGUF_WRITE_H
#define TANDEM_WORKER_GGUF_WRITE_H

#include "engine/err.h"
#include "engine/gguf.h"

#include <stddef.h>
#include <stdint.h>

struct gguf_writer;

/* gguf_writer_open() - creates PATH.part, over an older one. *out is the caller's
 * (gguf_writer_close). ERR_FILE, ERR_MEMORY. */
int gguf_writer_open(struct gguf_writer **out, const char *path, struct err *err);

/* gguf_writer_close() - frees; a file that is not finished is removed. NULL is allowed. */
void gguf_writer_close(struct gguf_writer *w);

/* Metadata, in the order of the calls; keys are the caller's to keep unique. Lack of memory is
 * remembered, and gguf_writer_begin() tells it. */
void gguf_writer_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_put_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_put_str(struct gguf_writer *w, const char *key, const char *value);
/* gguf_writer_put_kv() - an entry of another file, byte for byte. */
void gguf_writer_put_kv(struct gguf_writer *w, const struct gguf_kv *kv);
/* gguf_writer_put_array() - the head of an array; count elements of that type must follow. */
void gguf_writer_put_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                           uint64_t count);
void gguf_writer_element_i32(struct gguf_writer *w, int32_t value);
void gguf_writer_element_f32(struct gguf_writer *w, float value);
void gguf_writer_element_str(struct gguf_writer *w, const char *data, size_t len);

/* gguf_writer_add_tensor() - t's name, format, n_dims and shape; the rest is not read. Tensors are
 * numbered 0, 1, ... in the order of the calls. shape[0] must be a whole number of blocks. */
void gguf_writer_add_tensor(struct gguf_writer *w, const struct gguf_tensor *t);

/* gguf_writer_begin() - write the header and give the file its full length, so that a disk that is
 * too small says so now. Until data is written, tensors read as zeros. ERR_FILE, ERR_MEMORY. */
int gguf_writer_begin(struct gguf_writer *w, struct err *err);
const char *gguf_writer_part_path(const struct gguf_writer *w);
uint64_t gguf_writer_file_bytes(const struct gguf_writer *w); /* after begin */

/* gguf_writer_write() - n bytes of a tensor's data, at an offset from its first byte. In any order
 * and from any thread. ERR_FILE. */
int gguf_writer_write(const struct gguf_writer *w, uint64_t tensor, uint64_t offset,
                      const void *bytes, size_t n, struct err *err);

/* gguf_writer_finish() - all data is written: PATH.part becomes PATH. ERR_FILE. */
int gguf_writer_finish(struct gguf_writer *w, struct err *err);

#endif
