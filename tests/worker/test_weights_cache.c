/* test_weights_cache - the second load comes from the disk; damage anywhere is seen and does no
 * harm; the folder stays below its limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/log.h"
#include "worker/cache_folder.h"
#include "worker/weights_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Three blocks and a bit. */
enum { SLICE_BYTES = (3 << 20) + 12345, DATA_AT = 4096 };

static const struct weight_extent extents[] = {
    {NULL, 0, 4096, 1000}, {NULL, 0, 8192, 2 << 20}, {NULL, 1, 64, SLICE_BYTES - 1000 - (2 << 20)}};
enum { EXTENTS = 3 };

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tandem-test-XXXXXX");
    return mkdtemp(folder) == NULL;
}

/* first_of() - the first file that ends so, or NULL; *n: how many there are. */
static const char *first_of(const char *end, int *n)
{
    static char path[512];
    DIR *d = opendir(folder);
    assert_non_null(d);
    *n = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        size_t len = strlen(e->d_name), m = strlen(end);
        if (len < m || strcmp(e->d_name + len - m, end) != 0) continue;
        if ((*n)++ == 0) snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    }
    closedir(d);
    return *n > 0 ? path : NULL;
}

static int count(const char *end)
{
    int n;
    first_of(end, &n);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- the source behind the cache ---- */

struct origin {
    struct weight_cursor next;
    uint64_t read, fail_at;
    uint32_t begun;
};

static uint8_t byte_at(uint32_t part, uint64_t offset)
{
    return (uint8_t)(part * 77 + offset * 13 + (offset >> 9));
}

static int begin_origin(void *ctx, const struct weight_extent *list, size_t n, struct err *err)
{
    struct origin *o = ctx;
    (void)err;
    weight_cursor_open(&o->next, list, n);
    o->begun++;
    return ERR_NONE;
}

static int read_origin(void *ctx, uint8_t *out, size_t n, struct err *err)
{
    struct origin *o = ctx;
    if (o->fail_at > 0 && o->read + n > o->fail_at) return err_set(err, ERR_STALL, "no more");
    assert_true(n <= weight_cursor_left(&o->next));
    const struct weight_extent *e = &o->next.extents[o->next.at];
    for (size_t i = 0; i < n; i++) out[i] = byte_at(e->part, e->offset + o->next.inside + i);
    weight_cursor_move(&o->next, n);
    o->read += n;
    return ERR_NONE;
}

struct use {
    uint64_t limit, stamp;
    uint32_t first;
    const char *folder;
};

/* load() - all bytes through the cache, checked; how many came from the origin. */
static uint64_t load(struct use use, uint64_t fail_at)
{
    struct origin o = {.fail_at = fail_at};
    const struct weights_cache_config config = {.folder = use.folder != NULL ? use.folder : folder,
                                                .limit_bytes = use.limit,
                                                .digest = 1,
                                                .stamp = use.stamp,
                                                .first = use.first,
                                                .end = use.first + 2,
                                                .from = {begin_origin, read_origin, &o}};
    struct weights_cache *c;
    struct err err;
    assert_int_equal(weights_cache_open(&c, &config, &err), ERR_NONE);
    const struct weight_source s = weights_cache_source(c);
    assert_int_equal(s.begin(s.ctx, extents, EXTENTS, &err), ERR_NONE);
    static uint8_t got[300007];
    int rc = ERR_NONE;
    for (size_t i = 0; i < EXTENTS && rc == ERR_NONE; i++)
        for (uint64_t at = 0; at < extents[i].bytes && rc == ERR_NONE;) {
            const uint64_t left = extents[i].bytes - at;
            const size_t n = left < sizeof got ? (size_t)left : sizeof got;
            rc = s.read(s.ctx, got, n, &err);
            for (size_t k = 0; k < n && rc == ERR_NONE; k++)
                if (got[k] != byte_at(extents[i].part, extents[i].offset + at + k))
                    fail_msg("byte %zu of extent %zu", (size_t)at + k, i);
            at += n;
        }
    assert_int_equal(rc, fail_at > 0 ? ERR_STALL : ERR_NONE);
    weights_cache_close(c);
    return o.read;
}

static const struct use usual = {.limit = 100 << 20};

static void the_second_load_reads_nothing_of_the_source(void **state)
{
    (void)state;
    assert_int_equal(load(usual, 0), SLICE_BYTES);
    assert_int_equal(count(".slice"), 1);
    assert_int_equal(count(".part"), 0);
    assert_int_equal(load(usual, 0), 0);
    assert_int_equal(load(usual, 0), 0);
}

static void other_layers_and_other_files_are_other_slices(void **state)
{
    (void)state;
    struct use other_layers = usual, other_file = usual;
    other_layers.first = 7;
    other_file.stamp = 8;
    load(usual, 0);
    assert_int_equal(load(other_layers, 0), SLICE_BYTES);
    assert_int_equal(load(other_file, 0), SLICE_BYTES);
    assert_int_equal(count(".slice"), 3);
    assert_int_equal(load(usual, 0) + load(other_layers, 0) + load(other_file, 0), 0);
}

static void flip(uint64_t offset)
{
    int n;
    int fd = open(first_of(".slice", &n), O_RDWR);
    uint8_t byte;
    assert_int_equal(n, 1);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

/* From a damaged block on, the source is read; before the first one, nothing is. */
static void a_damaged_byte_anywhere_is_seen(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset, read;
    } cases[] = {{0, SLICE_BYTES},
                 {30, SLICE_BYTES},
                 {63, SLICE_BYTES},
                 {64, SLICE_BYTES},
                 {64 + 3 * 8 + 7, SLICE_BYTES},
                 {DATA_AT, SLICE_BYTES},
                 {DATA_AT + (1 << 20), SLICE_BYTES - (1 << 20)},
                 {DATA_AT + (3 << 20) - 1, SLICE_BYTES - (2 << 20)},
                 {DATA_AT + SLICE_BYTES - 1, SLICE_BYTES - (3 << 20)}};
    load(usual, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flip(cases[i].offset);
        assert_int_equal(load(usual, 0), cases[i].read);
        load(usual, 0); /* at the latest now it is kept anew */
        assert_int_equal(load(usual, 0), 0);
    }
}

static void a_cut_or_longer_file_is_seen(void **state)
{
    (void)state;
    static const off_t sizes[] = {
        0, 10, 64, 4000, DATA_AT + 100, DATA_AT + SLICE_BYTES - 1, DATA_AT + SLICE_BYTES + 1};
    load(usual, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int n;
        assert_int_equal(truncate(first_of(".slice", &n), sizes[i]), 0);
        assert_int_equal(load(usual, 0), SLICE_BYTES);
        assert_int_equal(load(usual, 0), 0);
    }
}

static void a_load_that_fails_leaves_nothing(void **state)
{
    (void)state;
    load(usual, SLICE_BYTES / 2);
    assert_int_equal(count(".slice") + count(".part"), 0);
}

static void the_slice_that_was_not_used_for_longest_goes_first(void **state)
{
    (void)state;
    struct use u[3] = {usual, usual, usual};
    for (uint32_t i = 0; i < 3; i++) {
        u[i].first = 10 * i;
        u[i].limit = 2 * (DATA_AT + SLICE_BYTES);
    }
    load(u[0], 0);
    usleep(20000);
    load(u[1], 0);
    usleep(20000);
    assert_int_equal(load(u[0], 0), 0); /* used: the other one is older now */
    usleep(20000);
    load(u[2], 0);
    assert_int_equal(count(".slice"), 2);
    assert_int_equal(load(u[0], 0), 0);
    assert_int_equal(load(u[2], 0), 0);
    assert_int_equal(load(u[1], 0), SLICE_BYTES);
    struct use tight = usual;
    tight.limit = SLICE_BYTES; /* without room for the head */
    tight.first = 50;
    assert_int_equal(load(tight, 0), SLICE_BYTES);
    assert_int_equal(load(tight, 0), SLICE_BYTES);
    assert_int_equal(count(".slice"), 2);
}

/* Whatever it is called, and however old it is. */
static void what_is_not_ours_stays_and_does_not_count(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/notes.slice", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), 64 << 20), 0);
    fclose(f);
    struct use u = usual;
    u.limit = DATA_AT + SLICE_BYTES;
    load(u, 0);
    u.first = 10;
    load(u, 0);
    assert_int_equal(load(u, 0), 0); /* so it was kept, and the first one has gone */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(count(".slice"), 2);
}

/* What another worker is writing counts, and stays; what a dead one left goes. */
static void two_writers_share_a_limit(void **state)
{
    (void)state;
    char path[128], *part;
    int fd;
    struct err err;
    snprintf(path, sizeof path, "%s/0123456789abcdef-other.slice", folder);
    assert_int_equal(cache_folder_create(folder, path, 5 << 20, 6 << 20, &fd, &part, &err),
                     ERR_NONE);
    struct use u = usual;
    u.limit = 6 << 20;
    assert_int_equal(load(u, 0), SLICE_BYTES);
    assert_int_equal(count(".slice"), 0);
    assert_int_equal(access(part, F_OK), 0);
    close(fd);
    load(u, 0);
    assert_int_equal(count(".slice"), 1);
    assert_int_equal(access(part, F_OK), -1);
    free(part);
}

static void a_folder_that_cannot_be_used_does_no_harm(void **state)
{
    (void)state;
    struct use u = usual;
    u.folder = "/proc/nowhere";
    assert_int_equal(load(u, 0), SLICE_BYTES);
    u.folder = "/dev/null";
    assert_int_equal(load(u, 0), SLICE_BYTES);
}

int main(void)
{
    log_set_level(LOG_ERROR);
#define CASE(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        CASE(the_second_load_reads_nothing_of_the_source),
        CASE(other_layers_and_other_files_are_other_slices),
        CASE(a_damaged_byte_anywhere_is_seen),
        CASE(a_cut_or_longer_file_is_seen),
        CASE(a_load_that_fails_leaves_nothing),
        CASE(the_slice_that_was_not_used_for_longest_goes_first),
        CASE(what_is_not_ours_stays_and_does_not_count),
        CASE(two_writers_share_a_limit),
        CASE(a_folder_that_cannot_be_used_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
