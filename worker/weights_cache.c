/* weights_cache - see weights_cache.h.
 *
 *   offset 0   struct slice_head
 *   offset 64  u64 digest[n_blocks]
 *   then, at a multiple of 4096, the bytes: blocks of BLOCK_BYTES, the last one shorter
 *
 * Nothing is forced to the disk: a file that a crash of the host leaves without its bytes has the
 * wrong digests. Numbers are in the order of the host: the disk is its own. */
#include "worker/weights_cache.h"

#include "engine/digest.h"
#include "engine/log.h"
#include "worker/cache_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, DATA_ALIGN = 4096 };

static const char magic[8] = "TNDMSLC1";

struct slice_head {
    char magic[8];
    uint64_t digest, stamp;
    uint32_t first, end;
    uint64_t data_bytes;
    uint64_t table_digest; /* of the blocks' digests */
    uint64_t zero;
    uint64_t head_digest; /* of all before it */
};
_Static_assert(sizeof(struct slice_head) == 64, "the head of a slice has padding");

struct weights_cache {
    struct weights_cache_config config;
    char *path; /* of the slice */
    enum { CACHE_OFF, CACHE_READS, CACHE_WRITES } mode;
    int fd;
    char *part_path; /* while it is being written */
    struct weight_cursor next;
    struct weight_extent *rest; /* what is left for the other source after a damaged block */
    uint64_t total, at;         /* bytes of the slice, and of it behind us */
    uint8_t *block;             /* [BLOCK_BYTES] */
    size_t n_block, n_used;     /* bytes in it; CACHE_READS: how many of them are taken */
    uint64_t *digests;          /* [n_blocks] */
    size_t n_blocks;
};

static uint64_t data_offset(const struct weights_cache *c)
{
    const uint64_t end = sizeof(struct slice_head) + c->n_blocks * sizeof *c->digests;
    return (end + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
}

static struct slice_head make_head(const struct weights_cache *c)
{
    struct slice_head h = {.digest = c->config.digest,
                           .stamp = c->config.stamp,
                           .first = c->config.first,
                           .end = c->config.end,
                           .data_bytes = c->total,
                           .table_digest =
                               digest_bytes(c->digests, c->n_blocks * sizeof *c->digests)};
    memcpy(h.magic, magic, sizeof h.magic);
    h.head_digest = digest_bytes(&h, offsetof(struct slice_head, head_digest));
    return h;
}

static bool read_at(int fd, void *out, size_t n, uint64_t offset)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (uint8_t *)out + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static bool write_at(int fd, const void *bytes, size_t n, uint64_t offset)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const uint8_t *)bytes + done, n - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

/* leave() - the other source alone from now on, and the next time. */
static void leave(struct weights_cache *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    if (c->mode == CACHE_WRITES) unlink(c->part_path);
    c->mode = CACHE_OFF;
}

/* ---- reading ---- */

/* Is this the slice, whole as far as its head tells? */
static bool head_fits(struct weights_cache *c)
{
    struct slice_head found;
    struct stat st;
    if (fstat(c->fd, &st) != 0 || (uint64_t)st.st_size != data_offset(c) + c->total) return false;
    if (!read_at(c->fd, &found, sizeof found, 0)) return false;
    if (!read_at(c->fd, c->digests, c->n_blocks * sizeof *c->digests, sizeof found)) return false;
    const struct slice_head want = make_head(c);
    return memcmp(&found, &want, sizeof want) == 0;
}

/* open_slice() - where it is there; a damaged one is removed. */
static void open_slice(struct weights_cache *c)
{
    c->fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (c->fd < 0) return;
    if (head_fits(c)) {
        futimens(c->fd, NULL); /* used now */
        c->mode = CACHE_READS;
        log_line(LOG_INFO, "weights come from the cache: %s", c->path);
        return;
    }
    log_line(LOG_WARN, "cache file %s is damaged in its head: it is streamed anew", c->path);
    unlink(c->path);
    leave(c);
}

static bool load_block(struct weights_cache *c)
{
    const uint64_t index = c->at / BLOCK_BYTES, left = c->total - c->at;
    const size_t n = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
    const uint64_t offset = data_offset(c) + c->at;
    if (!read_at(c->fd, c->block, n, offset)) return false;
    posix_fadvise(c->fd, (off_t)(offset + n), 8 * BLOCK_BYTES, POSIX_FADV_WILLNEED);
    if (digest_bytes(c->block, n) != c->digests[index]) return false;
    c->n_block = n;
    c->n_used = 0;
    return true;
}

/* resume_elsewhere() - a block is damaged: all from there on comes from the other source. */
static int resume_elsewhere(struct weights_cache *c, struct err *err)
{
    log_line(LOG_WARN, "cache file %s is damaged at byte %" PRIu64 ": streamed anew from there",
             c->path, data_offset(c) + c->at);
    unlink(c->path);
    leave(c);
    const struct weight_cursor *next = &c->next;
    const size_t n = next->n - next->at;
    c->rest = calloc(n, sizeof *c->rest);
    CHECK(c->rest != NULL, err, ERR_MEMORY, "no memory for a list of %zu tensors", n);
    memcpy(c->rest, next->extents + next->at, n * sizeof *c->rest);
    c->rest[0].offset += next->inside;
    c->rest[0].bytes -= next->inside;
    return c->config.from.begin(c->config.from.ctx, c->rest, n, err);
}

static int read_slice(struct weights_cache *c, uint8_t *out, size_t n, struct err *err)
{
    while (n > 0) {
        if (c->n_used == c->n_block && !load_block(c)) {
            TRY(resume_elsewhere(c, err));
            return c->config.from.read(c->config.from.ctx, out, n, err);
        }
        const size_t left = c->n_block - c->n_used, step = n < left ? n : left;
        memcpy(out, c->block + c->n_used, step);
        c->n_used += step;
        c->at += step;
        weight_cursor_move(&c->next, step);
        out += step;
        n -= step;
    }
    return ERR_NONE;
}

/* ---- writing ---- */

static void create_slice(struct weights_cache *c)
{
    const uint64_t bytes = data_offset(c) + c->total;
    struct err why;
    int rc = cache_folder_create(c->config.folder, c->path, bytes, c->config.limit_bytes, &c->fd,
                                 &c->part_path, &why);
    if (rc == ERR_NONE)
        c->mode = CACHE_WRITES;
    else
        log_line(LOG_WARN, "this slice is not cached: %s", why.text);
}

static void fail_writing(struct weights_cache *c)
{
    log_line(LOG_WARN, "this slice is not cached: %s cannot be written: %s", c->part_path,
             strerror(errno));
    leave(c);
}

/* complete_slice() - digests and head last, then the name. */
static void complete_slice(struct weights_cache *c)
{
    const struct slice_head head = make_head(c);
    if (!write_at(c->fd, c->digests, c->n_blocks * sizeof *c->digests, sizeof head) ||
        !write_at(c->fd, &head, sizeof head, 0) || rename(c->part_path, c->path) != 0) {
        fail_writing(c);
        return;
    }
    close(c->fd);
    c->fd = -1;
    c->mode = CACHE_OFF;
    log_line(LOG_INFO, "weights are cached for the next start: %s", c->path);
}

static void store_block(struct weights_cache *c)
{
    const uint64_t from = c->at - c->n_block;
    c->digests[from / BLOCK_BYTES] = digest_bytes(c->block, c->n_block);
    if (!write_at(c->fd, c->block, c->n_block, data_offset(c) + from)) {
        fail_writing(c);
        return;
    }
    c->n_block = 0;
    if (c->at == c->total) complete_slice(c);
}

static void append(struct weights_cache *c, const uint8_t *bytes, size_t n)
{
    while (n > 0 && c->mode == CACHE_WRITES) {
        const size_t left = BLOCK_BYTES - c->n_block, step = n < left ? n : left;
        memcpy(c->block + c->n_block, bytes, step);
        c->n_block += step;
        c->at += step;
        bytes += step;
        n -= step;
        if (c->n_block == BLOCK_BYTES || c->at == c->total) store_block(c);
    }
}

/* ---- the source ---- */

static int begin_cached(void *ctx, const struct weight_extent *extents, size_t n, struct err *err)
{
    struct weights_cache *c = ctx;
    BUG_IF(c->digests != NULL, "a cache is for one load");
    for (size_t i = 0; i < n; i++) c->total += extents[i].bytes;
    c->n_blocks = (c->total + BLOCK_BYTES - 1) / BLOCK_BYTES;
    c->digests = calloc(c->n_blocks + 1, sizeof *c->digests);
    c->block = malloc(BLOCK_BYTES);
    CHECK(c->digests != NULL && c->block != NULL, err, ERR_MEMORY, "no memory for a cache");
    weight_cursor_open(&c->next, extents, n);
    open_slice(c);
    if (c->mode == CACHE_READS) return ERR_NONE;
    create_slice(c);
    return c->config.from.begin(c->config.from.ctx, extents, n, err);
}

static int read_cached(void *ctx, uint8_t *out, size_t n, struct err *err)
{
    struct weights_cache *c = ctx;
    if (c->mode == CACHE_READS) return read_slice(c, out, n, err);
    TRY(c->config.from.read(c->config.from.ctx, out, n, err));
    append(c, out, n);
    return ERR_NONE;
}

struct weight_source weights_cache_source(struct weights_cache *c)
{
    return (struct weight_source){.begin = begin_cached, .read = read_cached, .ctx = c};
}

int weights_cache_open(struct weights_cache **out, const struct weights_cache_config *config,
                       struct err *err)
{
    struct weights_cache *c = calloc(1, sizeof *c);
    CHECK(c != NULL, err, ERR_MEMORY, "no memory for a cache");
    c->config = *config;
    c->fd = -1;
    const uint64_t key[2] = {config->digest, config->stamp};
    if (asprintf(&c->path, "%s/%016" PRIx64 "-%" PRIu32 "-%" PRIu32 ".v1.slice", config->folder,
                 digest_bytes(key, sizeof key), config->first, config->end) < 0) {
        free(c);
        return err_set(err, ERR_MEMORY, "no memory for a cache");
    }
    *out = c;
    return ERR_NONE;
}

void weights_cache_close(struct weights_cache *c)
{
    if (c == NULL) return;
    leave(c);
    free(c->path);
    free(c->part_path);
    free(c->rest);
    free(c->block);
    free(c->digests);
    free(c);
}
