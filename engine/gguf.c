/* gguf - see gguf.h.
 *
 * One pass over the header with a bounds-checked reader: counts, metadata, tensor directory.
 * Strings, numbers and arrays stay in the map; only the two directories, their sorted name indexes
 * and one pointer per string of an array are allocated, each bounded by bytes that were really
 * there. Names are found by binary search in a sorted index, so that no choice of names can make
 * look-ups slow.
 * Station before: the file. Next stations: families, model, coordinator/text/tokenizer. */
#include "engine/gguf.h"

#include "engine/digest.h"

#include "engine/gguf_kv.h"
#include "engine/quant_formats.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read in the file's order");

enum {
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MIN = 8, /* the specification: a multiple of 8 */
    KEY_LEN_MAX = 65535,
    NAME_LEN_MAX = 64,
    DIMS_MAX = 4,
    KEYS_MAX = 1 << 16,
    TENSORS_MAX = 1 << 20,
    STRINGS_MAX = 1 << 24, /* elements of one array of strings */
};

/* One entry of a sorted index. */
struct name_ref {
    struct gguf_str name;
    uint64_t at;
};

struct gguf {
    char *path;
    int fd; /* -1: only the header is here */
    const uint8_t *map;
    uint64_t map_bytes; /* of the file, what is here: all, or the header */
    uint64_t bytes;     /* of the whole file */
    uint64_t changed_ns;
    uint64_t header_bytes; /* up to the end of the tensor directory */
    uint64_t alignment;
    uint64_t n_kv, n_tensors; /* as parsed so far */
    struct gguf_kv *kv;
    struct gguf_tensor *tensors;
    struct name_ref *kv_index, *tensor_index;
    struct gguf **parts; /* [n_parts] of a split model, this one not among them; owned */
    uint32_t n_parts;
};

/* The reading position. Every read goes through read_bytes(), which is the only bounds check. */
struct reader {
    struct gguf *g;
    uint64_t pos;
    struct err *err;
};

static int read_bytes(struct reader *r, uint64_t n, const char *what, const uint8_t **out)
{
    uint64_t left = r->g->map_bytes - r->pos;
    CHECK(n <= left, r->err, ERR_FILE,
          "%s: the file ends inside %s at byte %" PRIu64 ": it needs %" PRIu64 " bytes, %" PRIu64
          " are left: the file is cut or damaged, copy it again",
          r->g->path, what, r->pos, n, left);
    *out = r->g->map + r->pos;
    r->pos += n;
    return ERR_NONE;
}

static int read_u32(struct reader *r, const char *what, uint32_t *out)
{
    const uint8_t *p = NULL;
    TRY(read_bytes(r, sizeof *out, what, &p));
    memcpy(out, p, sizeof *out);
    return ERR_NONE;
}

static int read_u64(struct reader *r, const char *what, uint64_t *out)
{
    const uint8_t *p = NULL;
    TRY(read_bytes(r, sizeof *out, what, &p));
    memcpy(out, p, sizeof *out);
    return ERR_NONE;
}

static int read_str(struct reader *r, const char *what, struct gguf_str *out)
{
    uint64_t len;
    const uint8_t *p = NULL;
    TRY(read_u64(r, what, &len));
    TRY(read_bytes(r, len, what, &p));
    *out = (struct gguf_str){(const char *)p, len};
    return ERR_NONE;
}

/* Names of keys and tensors: printable ASCII, so that they can stand in any message. */
static int read_name(struct reader *r, const char *what, size_t len_max, struct gguf_str *out)
{
    uint64_t at = r->pos;
    TRY(read_str(r, what, out));
    CHECK(out->len > 0 && out->len <= len_max, r->err, ERR_FILE,
          "%s: %s at byte %" PRIu64 " has %zu bytes, want 1 to %zu: the file is damaged",
          r->g->path, what, at, out->len, len_max);
    for (size_t i = 0; i < out->len; i++) {
        unsigned char c = (unsigned char)out->data[i];
        CHECK(c >= 0x20 && c < 0x7f, r->err, ERR_FILE,
              "%s: %s at byte %" PRIu64 " has the byte 0x%02x, want printable ASCII: "
              "the file is damaged",
              r->g->path, what, at, c);
    }
    return ERR_NONE;
}

/* A count that the file claims must be possible in the bytes that are left, before anything is
 * taken for it. */
static int check_count(const struct reader *r, const char *what, uint64_t count, uint64_t item_min,
                       uint64_t count_max)
{
    uint64_t left = r->g->map_bytes - r->pos;
    CHECK(count <= left / item_min, r->err, ERR_FILE,
          "%s: %s before byte %" PRIu64 " is %" PRIu64 ", but only %" PRIu64
          " bytes follow: the file is cut or damaged",
          r->g->path, what, r->pos, count, left);
    CHECK(count <= count_max, r->err, ERR_UNSUPPORTED,
          "%s: %s is %" PRIu64 ", the limit is %" PRIu64, r->g->path, what, count, count_max);
    return ERR_NONE;
}

static int no_memory(const struct gguf *g, uint64_t count, const char *what, struct err *err)
{
    return err_set(err, ERR_MEMORY, "%s: no memory for the directory of %" PRIu64 " %s", g->path,
                   count, what);
}

static int read_string_array(struct reader *r, struct gguf_kv *kv)
{
    kv->strings = malloc((kv->count > 0 ? kv->count : 1) * sizeof *kv->strings);
    if (kv->strings == NULL) return no_memory(r->g, kv->count, "strings", r->err);
    for (uint64_t i = 0; i < kv->count; i++) {
        struct gguf_str s;
        kv->strings[i] = r->g->map + r->pos;
        TRY(read_str(r, "a string of an array", &s));
    }
    return ERR_NONE;
}

static int read_type(struct reader *r, const struct gguf_kv *kv, enum gguf_type *out)
{
    uint32_t id;
    TRY(read_u32(r, "a value type", &id));
    CHECK(id < GGUF_TYPE_COUNT, r->err, ERR_FILE,
          "%s: key %.*s has value type %" PRIu32 ", want 0 to %d: the file is damaged", r->g->path,
          gguf_shown(kv->key), kv->key.data, id, GGUF_TYPE_COUNT - 1);
    *out = (enum gguf_type)id;
    return ERR_NONE;
}

static int read_array_header(struct reader *r, struct gguf_kv *kv)
{
    kv->is_array = true;
    TRY(read_type(r, kv, &kv->type));
    CHECK(kv->type != GGUF_ARRAY, r->err, ERR_UNSUPPORTED,
          "%s: key %.*s is an array of arrays, which no model needs: the file is damaged",
          r->g->path, gguf_shown(kv->key), kv->key.data);
    TRY(read_u64(r, "an array length", &kv->count));
    bool strings = kv->type == GGUF_STRING;
    return check_count(r, "the length of an array", kv->count,
                       strings ? sizeof(uint64_t) : gguf_type_bytes(kv->type),
                       strings ? STRINGS_MAX : UINT64_MAX);
}

static int read_kv(struct reader *r, struct gguf_kv *kv)
{
    *kv = (struct gguf_kv){.count = 1};
    TRY(read_name(r, "a key", KEY_LEN_MAX, &kv->key));
    TRY(read_type(r, kv, &kv->type));
    if (kv->type == GGUF_ARRAY) TRY(read_array_header(r, kv));
    kv->value = r->g->map + r->pos;
    if (kv->type != GGUF_STRING)
        return read_bytes(r, kv->count * gguf_type_bytes(kv->type), "a value", &kv->value);
    if (kv->is_array) return read_string_array(r, kv);
    struct gguf_str ignored;
    return read_str(r, "a string", &ignored);
}

/* shape, number format and size of one tensor, each multiplication checked. */
static int check_tensor_size(const struct reader *r, struct gguf_tensor *t)
{
    const struct format *f = format_find(t->format);
    CHECK(f != NULL, r->err, ERR_UNSUPPORTED,
          "%s: tensor %.*s has number format %" PRIu32 ", which is not known: the file is damaged "
          "or newer than this program",
          r->g->path, (int)t->name.len, t->name.data, t->format);
    uint64_t values = 1;
    for (uint32_t i = 0; i < DIMS_MAX; i++)
        CHECK(t->shape[i] > 0 && !__builtin_mul_overflow(values, t->shape[i], &values), r->err,
              ERR_FILE, "%s: tensor %.*s has %" PRIu64 " in axis %" PRIu32 ": the file is damaged",
              r->g->path, (int)t->name.len, t->name.data, t->shape[i], i);
    CHECK(t->shape[0] % f->block_values == 0, r->err, ERR_FILE,
          "%s: tensor %.*s has rows of %" PRIu64 " values, want a multiple of %" PRIu32
          " (format %s): the file is damaged",
          r->g->path, (int)t->name.len, t->name.data, t->shape[0], f->block_values, f->name);
    CHECK(!__builtin_mul_overflow(values / f->block_values, (uint64_t)f->block_bytes, &t->bytes) &&
              t->bytes <= r->g->bytes,
          r->err, ERR_FILE,
          "%s: tensor %.*s has %" PRIu64 " values, more than a file of %" PRIu64
          " bytes can hold: the file is cut or damaged",
          r->g->path, (int)t->name.len, t->name.data, values, r->g->bytes);
    return ERR_NONE;
}

/* *end is where the data of the tensors so far ends, counted from the start of the data. */
static int read_tensor(struct reader *r, struct gguf_tensor *t, uint64_t *end)
{
    *t = (struct gguf_tensor){.shape = {1, 1, 1, 1}};
    uint64_t offset;
    TRY(read_name(r, "a tensor name", NAME_LEN_MAX, &t->name));
    TRY(read_u32(r, "a number of axes", &t->n_dims));
    CHECK(t->n_dims >= 1 && t->n_dims <= DIMS_MAX, r->err, ERR_FILE,
          "%s: tensor %.*s has %" PRIu32 " axes, want 1 to %d: the file is damaged", r->g->path,
          (int)t->name.len, t->name.data, t->n_dims, DIMS_MAX);
    for (uint32_t i = 0; i < t->n_dims; i++) TRY(read_u64(r, "a tensor shape", &t->shape[i]));
    TRY(read_u32(r, "a number format", &t->format));
    TRY(read_u64(r, "a tensor offset", &offset));
    TRY(check_tensor_size(r, t));

    /* No gaps and no overlaps: each tensor starts where the one before ends, rounded up. The sum
     * stays far from 2^64, as no tensor is larger than the file and TENSORS_MAX is small. */
    uint64_t align = r->g->alignment;
    uint64_t want = (*end + align - 1) / align * align;
    CHECK(offset == want, r->err, ERR_FILE,
          "%s: tensor %.*s has offset %" PRIu64 ", want %" PRIu64
          " (behind the tensor before it): the file is damaged",
          r->g->path, (int)t->name.len, t->name.data, offset, want);
    *end = offset + t->bytes;
    CHECK(*end <= r->g->bytes, r->err, ERR_FILE,
          "%s: tensor %.*s ends at data byte %" PRIu64 ", but the whole file has %" PRIu64
          " bytes: the file is cut or damaged, copy it again",
          r->g->path, (int)t->name.len, t->name.data, *end, r->g->bytes);
    return ERR_NONE;
}

/* Order of an index: bytes first, then length. */
static int compare_names(const void *a, const void *b)
{
    const struct gguf_str *x = &((const struct name_ref *)a)->name;
    const struct gguf_str *y = &((const struct name_ref *)b)->name;
    size_t shorter = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->data, y->data, shorter);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

/* Sort an index and refuse a name that is there twice. */
static int sort_index(const struct gguf *g, struct name_ref *index, uint64_t n, const char *what,
                      struct err *err)
{
    qsort(index, n, sizeof *index, compare_names);
    for (uint64_t i = 1; i < n; i++)
        CHECK(compare_names(&index[i - 1], &index[i]) != 0, err, ERR_FILE,
              "%s: the %s %.*s is there twice: the file is damaged", g->path, what,
              gguf_shown(index[i].name), index[i].name.data);
    return ERR_NONE;
}

static const struct name_ref *find_name(const struct name_ref *index, uint64_t n, const char *name)
{
    struct name_ref key = {.name = {name, strlen(name)}};
    if (n == 0) return NULL;
    return bsearch(&key, index, n, sizeof *index, compare_names);
}

static int read_alignment(struct gguf *g, struct err *err)
{
    g->alignment = ALIGNMENT_DEFAULT;
    const struct gguf_kv *kv = gguf_find(g, "general.alignment");
    if (kv == NULL) return ERR_NONE;
    CHECK(!kv->is_array && kv->type == GGUF_U32, err, ERR_FILE,
          "%s: general.alignment is %s, want u32: the file is damaged", g->path,
          gguf_type_name(gguf_kv_type(kv)));
    uint32_t value;
    memcpy(&value, kv->value, sizeof value);
    CHECK(value >= ALIGNMENT_MIN && (value & (value - 1)) == 0, err, ERR_FILE,
          "%s: general.alignment is %" PRIu32
          ", want a power of two from %d on: the file is damaged",
          g->path, value, ALIGNMENT_MIN);
    g->alignment = value;
    return ERR_NONE;
}

static int read_metadata(struct reader *r, uint64_t count)
{
    enum { KV_BYTES_MIN = 8 + 1 + 4 + 1 }; /* key length, key, type, value */
    struct gguf *g = r->g;
    TRY(check_count(r, "the number of keys", count, KV_BYTES_MIN, KEYS_MAX));
    g->kv = calloc(count + 1, sizeof *g->kv);
    g->kv_index = calloc(count + 1, sizeof *g->kv_index);
    if (g->kv == NULL || g->kv_index == NULL) return no_memory(g, count, "keys", r->err);
    while (g->n_kv < count) {
        uint64_t i = g->n_kv++; /* counted first: gguf_close() frees what a failed read took */
        TRY(read_kv(r, &g->kv[i]));
        g->kv_index[i] = (struct name_ref){g->kv[i].key, i};
    }
    TRY(sort_index(g, g->kv_index, count, "key", r->err));
    return read_alignment(g, r->err);
}

static int read_directory(struct reader *r, uint64_t count)
{
    enum { TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8 }; /* name, axes, one axis, format, offset */
    struct gguf *g = r->g;
    TRY(check_count(r, "the number of tensors", count, TENSOR_BYTES_MIN, TENSORS_MAX));
    g->tensors = calloc(count + 1, sizeof *g->tensors);
    g->tensor_index = calloc(count + 1, sizeof *g->tensor_index);
    if (g->tensors == NULL || g->tensor_index == NULL)
        return no_memory(g, count, "tensors", r->err);
    uint64_t end = 0;
    for (uint64_t i = 0; i < count; i++) {
        TRY(read_tensor(r, &g->tensors[i], &end));
        g->tensor_index[i] = (struct name_ref){g->tensors[i].name, i};
    }
    g->n_tensors = count;
    return sort_index(g, g->tensor_index, count, "tensor", r->err);
}

/* The data starts behind the header, aligned; with the header read, every tensor gets its place. */
static int place_tensors(struct gguf *g, struct err *err)
{
    uint64_t at = g->header_bytes;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        at = (at + g->alignment - 1) / g->alignment * g->alignment;
        CHECK(at <= g->bytes && t->bytes <= g->bytes - at, err, ERR_FILE,
              "%s: tensor %.*s ends at byte %" PRIu64 ", the file has %" PRIu64
              " bytes: it is cut, copy it again",
              g->path, (int)t->name.len, t->name.data, at + t->bytes, g->bytes);
        t->offset = at;
        t->data = g->fd >= 0 ? g->map + at : NULL;
        at += t->bytes;
    }
    return ERR_NONE;
}

static int read_header(struct gguf *g, struct err *err)
{
    struct reader r = {.g = g, .err = err};
    const uint8_t *magic = NULL;
    uint32_t version;
    uint64_t n_tensors, n_kv;
    TRY(read_bytes(&r, 4, "the magic number", &magic));
    CHECK(memcmp(magic, "GGUF", 4) == 0, err, ERR_FILE,
          "%s: not a GGUF file: it starts with %02x %02x %02x %02x, want 47 47 55 46", g->path,
          magic[0], magic[1], magic[2], magic[3]);
    TRY(read_u32(&r, "the version", &version));
    CHECK((version & 0xffff) != 0 || version == 0, err, ERR_UNSUPPORTED,
          "%s: GGUF of the other byte order (version field 0x%08" PRIx32
          "): convert it to little-endian",
          g->path, version);
    CHECK(version == 2 || version == 3, err, ERR_UNSUPPORTED,
          "%s: GGUF version %" PRIu32 ", this program reads versions 2 and 3: convert the file",
          g->path, version);
    TRY(read_u64(&r, "the number of tensors", &n_tensors));
    TRY(read_u64(&r, "the number of keys", &n_kv));
    TRY(read_metadata(&r, n_kv));
    TRY(read_directory(&r, n_tensors));
    g->header_bytes = r.pos;
    return place_tensors(g, err);
}

static int map_file(struct gguf *g, struct err *err)
{
    struct stat st;
    CHECK(fstat(g->fd, &st) == 0, err, ERR_FILE, "%s: cannot be read: %s", g->path,
          strerror(errno));
    CHECK(S_ISREG(st.st_mode), err, ERR_FILE, "%s: not a regular file: give one GGUF file",
          g->path);
    CHECK(st.st_size > 0, err, ERR_FILE, "%s: the file is empty: copy it again", g->path);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, g->fd, 0);
    CHECK(map != MAP_FAILED, err, errno == ENOMEM ? ERR_MEMORY : ERR_FILE,
          "%s: %" PRIu64 " bytes cannot be mapped: %s", g->path, (uint64_t)st.st_size,
          strerror(errno));
    g->map = map;
    g->bytes = g->map_bytes = (uint64_t)st.st_size;
    g->changed_ns = (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec;
    return ERR_NONE;
}

/* The copy is a map, too: one way to give it back. */
static int copy_header(struct gguf *g, const struct gguf_header *h, struct err *err)
{
    CHECK(h->n_bytes > 0 && h->n_bytes <= h->file_bytes, err, ERR_FILE,
          "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64, g->path, h->n_bytes,
          h->file_bytes);
    void *map = mmap(NULL, h->n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED, err, ERR_MEMORY, "%s: no memory for its header of %" PRIu64 " bytes",
          g->path, h->n_bytes);
    memcpy(map, h->bytes, h->n_bytes);
    g->map = map;
    g->map_bytes = h->n_bytes;
    g->bytes = h->file_bytes;
    g->changed_ns = h->changed_ns;
    return ERR_NONE;
}

static int open_and_read(struct gguf *g, const struct gguf_header *h, struct err *err)
{
    if (h != NULL) {
        TRY(copy_header(g, h, err));
        return read_header(g, err);
    }
    /* O_NONBLOCK: a FIFO by that name must not hold us up. */
    g->fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    CHECK(g->fd >= 0, err, ERR_ABSENT, "%s: cannot be opened: %s", g->path, strerror(errno));
    TRY(map_file(g, err));
    return read_header(g, err);
}

int gguf_open_header(struct gguf **out, const char *path, const struct gguf_header *h,
                     struct err *err)
{
    *out = NULL;
    struct gguf *g = calloc(1, sizeof *g);
    CHECK(g != NULL, err, ERR_MEMORY, "%s: no memory to open it", path);
    g->fd = -1;
    g->path = strdup(path);
    int rc = g->path != NULL ? open_and_read(g, h, err)
                             : err_set(err, ERR_MEMORY, "%s: no memory to open it", path);
    if (rc != ERR_NONE) {
        gguf_close(g);
        return rc;
    }
    *out = g;
    return ERR_NONE;
}

int gguf_open(struct gguf **out, const char *path, struct err *err)
{
    return gguf_open_header(out, path, NULL, err);
}

void gguf_close(struct gguf *g)
{
    if (g == NULL) return;
    for (uint32_t i = 0; i < g->n_parts; i++) gguf_close(g->parts[i]);
    free(g->parts);
    for (uint64_t i = 0; i < g->n_kv; i++) free(g->kv[i].strings);
    free(g->kv);
    free(g->kv_index);
    free(g->tensors);
    free(g->tensor_index);
    if (g->map != NULL) munmap((void *)(uintptr_t)g->map, g->map_bytes);
    if (g->fd >= 0) close(g->fd);
    free(g->path);
    free(g);
}

void gguf_adopt(struct gguf *g, struct gguf **parts, uint32_t n_parts)
{
    BUG_IF(g->parts != NULL, "a split model gets its parts twice");
    g->parts = parts;
    g->n_parts = n_parts;
}

int gguf_join(struct gguf *g, struct err *err)
{
    uint64_t total = g->n_tensors;
    for (uint32_t i = 0; i < g->n_parts; i++) total += g->parts[i]->n_tensors;
    CHECK(total <= TENSORS_MAX, err, ERR_UNSUPPORTED,
          "%s: its parts have %" PRIu64 " tensors, the limit is %d", g->path, total, TENSORS_MAX);
    struct gguf_tensor *tensors = realloc(g->tensors, (total + 1) * sizeof *tensors);
    if (tensors == NULL) return no_memory(g, total, "tensors", err);
    g->tensors = tensors;
    struct name_ref *index = realloc(g->tensor_index, (total + 1) * sizeof *index);
    if (index == NULL) return no_memory(g, total, "tensors", err);
    g->tensor_index = index;

    uint64_t n = g->n_tensors;
    for (uint32_t i = 0; i < g->n_parts; i++)
        for (uint64_t k = 0; k < g->parts[i]->n_tensors; k++) {
            tensors[n] = g->parts[i]->tensors[k];
            tensors[n++].part = i + 1;
        }
    for (uint64_t i = 0; i < n; i++) index[i] = (struct name_ref){tensors[i].name, i};
    g->n_tensors = n;
    return sort_index(g, index, n, "tensor", err);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t bytes = g->bytes;
    for (uint32_t i = 0; i < g->n_parts; i++) bytes += g->parts[i]->bytes;
    return bytes;
}

static const struct gguf *part_at(const struct gguf *g, uint32_t part)
{
    BUG_IF(part > g->n_parts, "a part that the model does not have");
    return part == 0 ? g : g->parts[part - 1];
}

uint32_t gguf_part_count(const struct gguf *g)
{
    return 1 + g->n_parts;
}

struct gguf_header gguf_part_header(const struct gguf *g, uint32_t part)
{
    const struct gguf *p = part_at(g, part);
    return (struct gguf_header){p->map, p->header_bytes, p->bytes, p->changed_ns};
}

int gguf_read(const struct gguf *g, uint32_t part, uint64_t offset, void *out, size_t n,
              struct err *err)
{
    const struct gguf *p = part_at(g, part);
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(p->fd, (uint8_t *)out + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        CHECK(got >= 0, err, ERR_FILE, "%s: byte %" PRIu64 " cannot be read: %s", p->path,
              offset + done, strerror(errno));
        CHECK(got > 0, err, ERR_FILE,
              "%s: the file ends at byte %" PRIu64 " and had %" PRIu64
              " when it was opened: it was changed meanwhile",
              p->path, offset + done, p->bytes);
        done += (size_t)got;
    }
    return ERR_NONE;
}

void gguf_read_ahead(const struct gguf *g, uint32_t part, uint64_t offset, uint64_t n)
{
    posix_fadvise(part_at(g, part)->fd, (off_t)offset, (off_t)n, POSIX_FADV_WILLNEED);
}

/* FNV-1a, 64 bits: over the header, then the length. */
static uint64_t digest_file(const struct gguf *g, uint64_t hash)
{
    for (uint64_t i = 0; i < g->header_bytes; i++) hash = (hash ^ g->map[i]) * 0x100000001b3u;
    for (unsigned shift = 0; shift < 64; shift += 8)
        hash = (hash ^ (g->bytes >> shift & 0xff)) * 0x100000001b3u;
    return hash;
}

uint64_t gguf_digest(const struct gguf *g)
{
    uint64_t hash = digest_file(g, 0xcbf29ce484222325u);
    for (uint32_t i = 0; i < g->n_parts; i++) hash = digest_file(g->parts[i], hash);
    return hash;
}

int gguf_sample(const struct gguf *g, uint64_t *out, struct err *err)
{
    enum { PLACES = 64, PLACE_BYTES = 256 };
    uint8_t bytes[PLACES * PLACE_BYTES];
    size_t n = 0;
    *out = 0;
    if (g->fd < 0) return ERR_NONE;
    for (uint64_t i = 0; i < PLACES && i < g->n_tensors; i++) {
        uint64_t at = g->n_tensors <= PLACES ? i : i * g->n_tensors / PLACES;
        const struct gguf_tensor *t = &g->tensors[at];
        size_t some = t->bytes < PLACE_BYTES ? (size_t)t->bytes : PLACE_BYTES;
        TRY(gguf_read(g, t->part, t->offset, bytes + n, some, err));
        n += some;
    }
    *out = digest_bytes(bytes, n);
    return ERR_NONE;
}

uint64_t gguf_tensor_count(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t index)
{
    BUG_IF(index >= g->n_tensors, "tensor index beyond the directory");
    return &g->tensors[index];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    const struct name_ref *ref = find_name(g->tensor_index, g->n_tensors, name);
    return ref != NULL ? &g->tensors[ref->at] : NULL;
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    const struct name_ref *ref = find_name(g->kv_index, g->n_kv, key);
    return ref != NULL ? &g->kv[ref->at] : NULL;
}

uint64_t gguf_kv_count(const struct gguf *g)
{
    return g->n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, uint64_t index)
{
    BUG_IF(index >= g->n_kv, "key index beyond the metadata");
    return &g->kv[index];
}
