/* gguf_write - see gguf_write.h. */
#include "worker/gguf_write.h"

#include "engine/quant_formats.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they are");

enum { VERSION = 3, ALIGNMENT = 32, HEAD_BYTES = 24 };

/* Text that grows; stdio remembers an error for begin(). */
struct growing {
    FILE *stream;
    char *bytes;
    size_t n;
};

/* Where a tensor's data lies, from the beginning of all data. */
struct place {
    uint64_t offset, bytes;
};

struct gguf_writer {
    char *path, *part;
    int fd;             /* of part; -1: closed */
    bool exists;        /* part is there, and not yet path */
    bool out_of_memory; /* places did not grow */
    struct growing kv, directory;
    uint64_t n_kv, n_tensors, places_max;
    struct place *places; /* [n_tensors] */
    uint64_t data_start, data_bytes;
};

static uint64_t align_up(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- opening and closing ---- */

static int prepare(struct gguf_writer *w, const char *path, struct err *err)
{
    w->path = strdup(path);
    if (asprintf(&w->part, "%s.part", path) < 0) w->part = NULL;
    w->kv.stream = open_memstream(&w->kv.bytes, &w->kv.n);
    w->directory.stream = open_memstream(&w->directory.bytes, &w->directory.n);
    CHECK(w->path != NULL && w->part != NULL && w->kv.stream != NULL && w->directory.stream != NULL,
          err, ERR_MEMORY, "%s: no memory to write it", path);
    w->fd = open(w->part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    CHECK(w->fd >= 0, err, ERR_FILE, "%s: cannot be created: %s", w->part, strerror(errno));
    w->exists = true;
    return ERR_NONE;
}

int gguf_writer_open(struct gguf_writer **out, const char *path, struct err *err)
{
    *out = NULL;
    struct gguf_writer *w = calloc(1, sizeof *w);
    CHECK(w != NULL, err, ERR_MEMORY, "%s: no memory to write it", path);
    w->fd = -1;
    int rc = prepare(w, path, err);
    if (rc != ERR_NONE) {
        gguf_writer_close(w);
        return rc;
    }
    *out = w;
    return ERR_NONE;
}

static void free_growing(struct growing *g)
{
    if (g->stream != NULL) fclose(g->stream);
    free(g->bytes);
}

void gguf_writer_close(struct gguf_writer *w)
{
    if (w == NULL) return;
    if (w->fd >= 0) close(w->fd);
    if (w->exists) unlink(w->part);
    free_growing(&w->kv);
    free_growing(&w->directory);
    free(w->places);
    free(w->path);
    free(w->part);
    free(w);
}

/* ---- metadata ---- */

static void put(struct growing *to, const void *bytes, size_t n)
{
    if (n > 0) fwrite(bytes, 1, n, to->stream);
}

static void put_u32(struct growing *to, uint32_t value)
{
    put(to, &value, sizeof value);
}

static void put_u64(struct growing *to, uint64_t value)
{
    put(to, &value, sizeof value);
}

static void put_str(struct growing *to, const char *data, size_t len)
{
    put_u64(to, len);
    put(to, data, len);
}

static void put_key(struct gguf_writer *w, const char *key, size_t len, enum gguf_type type)
{
    w->n_kv++;
    put_str(&w->kv, key, len);
    put_u32(&w->kv, type);
}

void gguf_writer_put_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, key, strlen(key), GGUF_U32);
    put_u32(&w->kv, value);
}

void gguf_writer_put_f32(struct gguf_writer *w, const char *key, float value)
{
    put_key(w, key, strlen(key), GGUF_F32);
    put(&w->kv, &value, sizeof value);
}

void gguf_writer_put_str(struct gguf_writer *w, const char *key, const char *value)
{
    put_key(w, key, strlen(key), GGUF_STRING);
    put_str(&w->kv, value, strlen(value));
}

void gguf_writer_put_kv(struct gguf_writer *w, const struct gguf_kv *kv)
{
    const struct gguf_str key = gguf_kv_key(kv);
    const struct gguf_str value = gguf_kv_value(kv);
    put_key(w, key.data, key.len, gguf_kv_type(kv));
    if (gguf_kv_type(kv) == GGUF_ARRAY) {
        put_u32(&w->kv, gguf_kv_element_type(kv));
        put_u64(&w->kv, gguf_array_length(kv));
    }
    put(&w->kv, value.data, value.len);
}

void gguf_writer_put_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                           uint64_t count)
{
    put_key(w, key, strlen(key), GGUF_ARRAY);
    put_u32(&w->kv, element);
    put_u64(&w->kv, count);
}

void gguf_writer_element_i32(struct gguf_writer *w, int32_t value)
{
    put(&w->kv, &value, sizeof value);
}

void gguf_writer_element_f32(struct gguf_writer *w, float value)
{
    put(&w->kv, &value, sizeof value);
}

void gguf_writer_element_str(struct gguf_writer *w, const char *data, size_t len)
{
    put_str(&w->kv, data, len);
}

/* ---- tensors ---- */

static struct place *new_place(struct gguf_writer *w)
{
    if (w->n_tensors == w->places_max) {
        const uint64_t more = w->places_max == 0 ? 256 : 2 * w->places_max;
        struct place *places = realloc(w->places, more * sizeof *places);
        if (places == NULL) return NULL;
        w->places = places;
        w->places_max = more;
    }
    return &w->places[w->n_tensors++];
}

void gguf_writer_add_tensor(struct gguf_writer *w, const struct gguf_tensor *t)
{
    const struct format *format = format_find(t->format);
    BUG_IF(format == NULL, "a tensor of a number format that does not exist");
    struct place *place = new_place(w);
    if (place == NULL) {
        w->out_of_memory = true;
        return;
    }
    uint64_t rows = 1;
    for (uint32_t i = 1; i < t->n_dims; i++) rows *= t->shape[i];
    *place = (struct place){.offset = align_up(w->data_bytes),
                            .bytes = rows * format_row_bytes(format, t->shape[0])};
    w->data_bytes = place->offset + place->bytes;

    put_str(&w->directory, t->name.data, t->name.len);
    put_u32(&w->directory, t->n_dims);
    for (uint32_t i = 0; i < t->n_dims; i++) put_u64(&w->directory, t->shape[i]);
    put_u32(&w->directory, t->format);
    put_u64(&w->directory, place->offset);
}

/* ---- the file ---- */

static int write_at(const struct gguf_writer *w, uint64_t at, const void *bytes, size_t n,
                    struct err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t step = pwrite(w->fd, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (step < 0 && errno == EINTR) continue;
        CHECK(step > 0, err, ERR_FILE, "%s: cannot be written at byte %" PRIu64 ": %s", w->part,
              at + done, step < 0 ? strerror(errno) : "nothing was taken");
        done += (size_t)step;
    }
    return ERR_NONE;
}

/* set_length() - with the blocks of the disk where the file system can promise them. */
static int set_length(const struct gguf_writer *w, struct err *err)
{
    const uint64_t bytes = gguf_writer_file_bytes(w);
    int rc = fallocate(w->fd, 0, 0, (off_t)bytes);
    if (rc != 0 && errno != ENOSPC && errno != EFBIG) rc = ftruncate(w->fd, (off_t)bytes);
    CHECK(rc == 0, err, ERR_FILE, "%s: no room for %" PRIu64 " bytes: %s", w->part, bytes,
          strerror(errno));
    return ERR_NONE;
}

int gguf_writer_begin(struct gguf_writer *w, struct err *err)
{
    const bool whole = fflush(w->kv.stream) == 0 && fflush(w->directory.stream) == 0 &&
                       !ferror(w->kv.stream) && !ferror(w->directory.stream);
    CHECK(whole && !w->out_of_memory, err, ERR_MEMORY,
          "%s: no memory for its metadata and %" PRIu64 " tensors", w->part, w->n_tensors);
    w->data_start = align_up(HEAD_BYTES + w->kv.n + w->directory.n);
    TRY(set_length(w, err));

    char head[HEAD_BYTES] = "GGUF";
    const uint32_t version = VERSION;
    memcpy(head + 4, &version, sizeof version);
    memcpy(head + 8, &w->n_tensors, sizeof w->n_tensors);
    memcpy(head + 16, &w->n_kv, sizeof w->n_kv);
    TRY(write_at(w, 0, head, HEAD_BYTES, err));
    TRY(write_at(w, HEAD_BYTES, w->kv.bytes, w->kv.n, err));
    return write_at(w, HEAD_BYTES + w->kv.n, w->directory.bytes, w->directory.n, err);
}

const char *gguf_writer_part_path(const struct gguf_writer *w)
{
    return w->part;
}

uint64_t gguf_writer_file_bytes(const struct gguf_writer *w)
{
    return w->data_start + align_up(w->data_bytes);
}

int gguf_writer_write(const struct gguf_writer *w, uint64_t tensor, uint64_t offset,
                      const void *bytes, size_t n, struct err *err)
{
    BUG_IF(tensor >= w->n_tensors, "data of a tensor that is not in the directory");
    const struct place *place = &w->places[tensor];
    BUG_IF(offset > place->bytes || n > place->bytes - offset, "data beyond its tensor");
    return write_at(w, w->data_start + place->offset + offset, bytes, n, err);
}

int gguf_writer_finish(struct gguf_writer *w, struct err *err)
{
    const int rc = close(w->fd);
    w->fd = -1;
    CHECK(rc == 0, err, ERR_FILE, "%s: cannot be written: %s", w->part, strerror(errno));
    CHECK(rename(w->part, w->path) == 0, err, ERR_FILE, "%s: cannot get its name %s: %s", w->part,
          w->path, strerror(errno));
    w->exists = false;
    return ERR_NONE;
}
