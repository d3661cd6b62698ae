/* gguf - one GGUF file (v2, v3): a checked directory of metadata and tensors over a read-only map.
 *
 * Every count, length and offset is checked against the file before it is used; nothing is
 * allocated in proportion to a number that the file merely claims. Opening reads the header
 * pages only; tensor data is touched by whoever uses it.
 * Source: the GGUF specification (ggml docs/gguf.md).
 * Next stations: families (which keys and tensors a family has), model (one opened model),
 * coordinator/text/tokenizer (the vocabulary), gguf_parts (a model in several files). */
#ifndef TANDEM_ENGINE_GGUF_H
#define TANDEM_ENGINE_GGUF_H

#include "engine/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

/* A string inside the map: not NUL-terminated, any bytes, lives as long as the gguf. */
struct gguf_str {
    const char *data;
    size_t len;
};

/* One tensor of the directory. shape[0] is the fastest axis (GGUF order); unused axes are 1.
 * bytes was checked: shape is a whole number of format blocks and offset + bytes lies in
 * the file. */
struct gguf_tensor {
    struct gguf_str name;
    uint32_t format; /* number format id as in the file; see quant_formats.h */
    uint32_t n_dims;
    uint64_t shape[4];
    uint64_t bytes;
    uint32_t part;       /* which file of the model holds it; 0: the first */
    uint64_t offset;     /* of its first byte in that file */
    const uint8_t *data; /* mapped, read only; NULL where the file itself is not here */
};

struct gguf;
struct gguf_kv; /* one metadata entry */

/* gguf_open() - map and check path. On success *out is owned by the caller (gguf_close).
 * Returns ERR_ABSENT (it cannot be opened), ERR_FILE (text names path, place and fault),
 * ERR_UNSUPPORTED (version, number format: named), ERR_MEMORY. */
int gguf_open(struct gguf **out, const char *path, struct err *err);
void gguf_close(struct gguf *g); /* NULL is allowed */

/* All of a file that stands before the data of its tensors. */
struct gguf_header {
    const uint8_t *bytes;
    uint64_t n_bytes, file_bytes;
    uint64_t changed_ns; /* when file or inode last changed; 0: unknown */
};

/* gguf_open_header() - the same of a file that another host has: h is copied, and path is what
 * errors call it. Its tensors have no data, and it cannot be read from. With h
 * NULL: gguf_open(). */
int gguf_open_header(struct gguf **out, const char *path, const struct gguf_header *h,
                     struct err *err);

/* gguf_adopt() - g owns the array and its files from now on: the other parts of a split model
 * (gguf_parts.h). Entries may be NULL until gguf_join(). Once at most.
 * gguf_join() - the directory of g becomes that of all parts, in order, and so do the bytes of the
 * file and the digest; metadata stays g's own. Returns ERR_FILE (a name is there twice),
 * ERR_UNSUPPORTED (too many tensors), ERR_MEMORY; g can then only be closed. */
void gguf_adopt(struct gguf *g, struct gguf **parts, uint32_t n_parts);
int gguf_join(struct gguf *g, struct err *err);

const char *gguf_path(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);
/* gguf_digest() - 64 bits over the metadata, the tensor directory and the file's length, of every
 * part. */
uint64_t gguf_digest(const struct gguf *g);
/* gguf_sample() - 64 bits over how the data of up to 64 tensors begins, evenly spread over the
 * directory: tells weights apart that stand behind equal headers, without reading them. 0 where the
 * files are not here. ERR_FILE. */
int gguf_sample(const struct gguf *g, uint64_t *out, struct err *err);

/* The files of the model: 1, or those of a split one. The header lives as long as g. */
uint32_t gguf_part_count(const struct gguf *g);
struct gguf_header gguf_part_header(const struct gguf *g, uint32_t part);

/* gguf_read() - n bytes of a part at an offset, past the map: nothing of them stays in the process,
 * and they come in one piece instead of page by page. From any thread. ERR_FILE.
 * gguf_read_ahead() - these will be asked for soon: the system may begin. */
int gguf_read(const struct gguf *g, uint32_t part, uint64_t offset, void *out, size_t n,
              struct err *err);
void gguf_read_ahead(const struct gguf *g, uint32_t part, uint64_t offset, uint64_t n);

/* The directory. Indexes are 0 .. count-1. gguf_find_tensor() returns NULL where absent. */
uint64_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t index);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Metadata by exact key; NULL where absent. */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
uint64_t gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, uint64_t index);
struct gguf_str gguf_kv_key(const struct gguf_kv *kv);
enum gguf_type gguf_kv_type(const struct gguf_kv *kv);         /* GGUF_ARRAY for arrays */
enum gguf_type gguf_kv_element_type(const struct gguf_kv *kv); /* the element type of an array */
/* gguf_kv_value() - the value's bytes as they stand in the file, of an array all elements (without
 * their type and count), so that an entry can be copied. */
struct gguf_str gguf_kv_value(const struct gguf_kv *kv);

/* Typed look-ups. Each returns ERR_FILE naming key, found and wanted type when the key is present
 * with another type or a value out of range; an absent key leaves *out unchanged (so set the
 * default first) and returns ERR_NONE. Unsigned and signed integers of any width are accepted for
 * u32/u64 when the value fits. */
int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct err *err);
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct err *err);
int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct err *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *err);
int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct err *err);

/* Arrays. Length 0 where kv is not an array. Elements are read by index (index < length and the
 * element type must match: anything else is a bug of the caller). String elements are O(1). */
uint64_t gguf_array_length(const struct gguf_kv *kv);
struct gguf_str gguf_array_str(const struct gguf_kv *kv, uint64_t index);
float gguf_array_f32(const struct gguf_kv *kv, uint64_t index);
int64_t gguf_array_int(const struct gguf_kv *kv, uint64_t index); /* any integer type or bool */

const char *gguf_type_name(enum gguf_type type); /* "u32", "string", ... */

#endif
