/* cache_folder - see cache_folder.h. */
#include "worker/cache_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* What a look into the folder found. */
struct look {
    uint64_t bytes;   /* of all files */
    char oldest[256]; /* the slice that was not used for the longest time; "": none */
    uint64_t oldest_bytes;
    struct timespec oldest_used;
};

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* is_left_over() - a .part whose writer has ended: nobody holds its lock. */
static bool is_left_over(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool free_lock = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return free_lock;
}

/* is_ours() - by its name: 16 hex digits and a dash, as weights_cache names a slice and what is on
 * the way to be one. What else lies in the folder is somebody else's. */
static bool is_ours(const char *name)
{
    return strspn(name, "0123456789abcdef") == 16 && name[16] == '-';
}

static bool is_before(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

static void count_file(struct look *look, int folder, const char *name)
{
    const bool is_slice = ends_in(name, ".slice"), is_part = ends_in(name, ".part");
    struct stat st;
    if (!is_ours(name)) return;
    if ((!is_slice && !is_part) || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (is_part && is_left_over(folder, name) && unlinkat(folder, name, 0) == 0) return;
    look->bytes += (uint64_t)st.st_size;
    if (!is_slice || (look->oldest[0] != '\0' && !is_before(st.st_mtim, look->oldest_used))) return;
    snprintf(look->oldest, sizeof look->oldest, "%s", name);
    look->oldest_bytes = (uint64_t)st.st_size;
    look->oldest_used = st.st_mtim;
}

static int look_into(const char *path, int folder, struct look *look, struct err *err)
{
    *look = (struct look){0};
    DIR *d = opendir(path);
    CHECK(d != NULL, err, ERR_FILE, "%s: cannot be listed: %s", path, strerror(errno));
    const struct dirent *e;
    while ((e = readdir(d)) != NULL) count_file(look, folder, e->d_name);
    closedir(d);
    return ERR_NONE;
}

/* make_room() - with the folder locked. */
static int make_room(const char *path, int folder, uint64_t bytes, uint64_t limit_bytes,
                     struct err *err)
{
    CHECK(bytes <= limit_bytes, err, ERR_CAPACITY,
          "it takes %" PRIu64 " MiB and --cache-size is %" PRIu64, bytes >> 20, limit_bytes >> 20);
    for (;;) {
        struct look look;
        TRY(look_into(path, folder, &look, err));
        if (look.bytes <= limit_bytes - bytes) break;
        CHECK(look.oldest[0] != '\0' && unlinkat(folder, look.oldest, 0) == 0, err, ERR_CAPACITY,
              "it takes %" PRIu64 " MiB, other workers are writing %" PRIu64
              " into %s, and --cache-size is %" PRIu64,
              bytes >> 20, look.bytes >> 20, path, limit_bytes >> 20);
    }
    struct statvfs disk;
    const bool known = fstatvfs(folder, &disk) == 0;
    CHECK(!known || (uint64_t)disk.f_bavail * disk.f_frsize > bytes, err, ERR_CAPACITY,
          "it takes %" PRIu64 " MiB and the disk of %s has %" PRIu64 " left", bytes >> 20, path,
          (uint64_t)disk.f_bavail * disk.f_frsize >> 20);
    return ERR_NONE;
}

/* create_part() - full length at once, so that others count it as what it will be. */
static int create_part(const char *path, uint64_t bytes, int *fd, char **part_path, struct err *err)
{
    CHECK(asprintf(part_path, "%s.XXXXXX.part", path) >= 0, err, ERR_MEMORY,
          "no memory for a name");
    *fd = mkostemps(*part_path, sizeof ".part" - 1, O_CLOEXEC);
    if (*fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) == 0 && ftruncate(*fd, (off_t)bytes) == 0)
        return ERR_NONE;
    const int why = errno;
    if (*fd >= 0) {
        close(*fd);
        unlink(*part_path);
    }
    int rc = err_set(err, ERR_FILE, "%s cannot be written: %s", *part_path, strerror(why));
    *fd = -1;
    free(*part_path);
    *part_path = NULL;
    return rc;
}

int cache_folder_create(const char *folder, const char *path, uint64_t bytes, uint64_t limit_bytes,
                        int *fd, char **part_path, struct err *err)
{
    if (mkdir(folder, 0700) != 0)
        CHECK(errno == EEXIST, err, ERR_FILE, "the folder %s cannot be made: %s", folder,
              strerror(errno));
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(lock >= 0 && flock(lock, LOCK_EX) == 0, err, ERR_FILE, "the folder %s cannot be used: %s",
          folder, strerror(errno));
    int rc = make_room(folder, lock, bytes, limit_bytes, err);
    if (rc == ERR_NONE) rc = create_part(path, bytes, fd, part_path, err);
    close(lock);
    return rc;
}
