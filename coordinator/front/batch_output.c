/* batch_output - see batch_output.h. */
#include "coordinator/front/batch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every record begins so; what else is in a file is not ours to cut. */
static const char record_start[] = "{\"id\":";

static int check_torn(const struct batch_output *out, const char *line, size_t len, struct err *err)
{
    const size_t n = len < sizeof record_start - 1 ? len : sizeof record_start - 1;
    CHECK(memcmp(line, record_start, n) == 0, err, ERR_FILE,
          "%s: its last line is no beginning of a result: name another file with -o", out->path);
    return ERR_NONE;
}

static int tell_record(const struct batch_output *out, const char *line, size_t len,
                       uint32_t number, batch_record_fn *there, void *ctx, struct err *err)
{
    json_t *record = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
    const bool is_record =
        json_object_get(record, "id") != NULL && json_is_integer(json_object_get(record, "line"));
    int rc = is_record ? there(ctx, record, number, err)
                       : err_set(err, ERR_FILE,
                                 "%s: line %u is no result of a batch: name another file with -o",
                                 out->path, number);
    json_decref(record);
    return rc;
}

static int read_records(struct batch_output *out, FILE *f, batch_record_fn *there, void *ctx,
                        struct err *err)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t len;
    int rc = ERR_NONE;
    for (uint32_t number = 1; rc == ERR_NONE && (len = getline(&line, &capacity, f)) > 0;
         number++) {
        const bool whole = line[len - 1] == '\n';
        if (whole)
            rc = tell_record(out, line, (size_t)len, number, there, ctx, err);
        else
            rc = check_torn(out, line, (size_t)len, err);
        if (whole && rc == ERR_NONE) out->bytes += (uint64_t)len;
    }
    free(line);
    if (rc == ERR_NONE && ferror(f))
        rc = err_set(err, ERR_FILE, "%s: %s", out->path, strerror(errno));
    return rc;
}

/* cut() - to the whole lines; what is written next goes behind them. */
static int cut(struct batch_output *out, struct err *err)
{
    CHECK(ftruncate(out->fd, (off_t)out->bytes) == 0, err, ERR_FILE, "%s: %s", out->path,
          strerror(errno));
    return ERR_NONE;
}

static int take_up(struct batch_output *out, off_t size, batch_record_fn *there, void *ctx,
                   struct err *err)
{
    /* A file system without locks is no reason to stop. */
    CHECK(flock(out->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, err, ERR_FILE,
          "%s: another process is writing it", out->path);
    FILE *f = fopen(out->path, "rb");
    CHECK(f != NULL, err, ERR_FILE, "%s: %s", out->path, strerror(errno));
    int rc = read_records(out, f, there, ctx, err);
    fclose(f);
    if (rc != ERR_NONE || (uint64_t)size == out->bytes) return rc;
    return cut(out, err);
}

int batch_output_open(struct batch_output *out, const char *path, batch_record_fn *there, void *ctx,
                      struct err *err)
{
    struct stat st;
    *out = (struct batch_output){.path = path};
    if (strcmp(path, "-") == 0) {
        out->path = "standard output";
        out->fd = dup(STDOUT_FILENO);
        CHECK(out->fd >= 0, err, ERR_FILE, "%s: %s", out->path, strerror(errno));
        return ERR_NONE;
    }
    out->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    CHECK(out->fd >= 0 && fstat(out->fd, &st) == 0, err, ERR_FILE, "%s: %s", path, strerror(errno));
    out->regular = S_ISREG(st.st_mode);
    return out->regular ? take_up(out, st.st_size, there, ctx, err) : ERR_NONE;
}

void batch_output_close(struct batch_output *out)
{
    if (out->fd >= 0) close(out->fd);
    out->fd = -1;
}

static int write_whole(struct batch_output *out, const char *line, size_t len, struct err *err)
{
    for (size_t done = 0; done < len;) {
        const ssize_t n = write(out->fd, line + done, len - done);
        if (n < 0 && errno == EINTR) continue;
        if (n >= 0) {
            done += (size_t)n;
            continue;
        }
        const int why = errno;
        if (out->regular) cut(out, NULL);
        return err_set(err, ERR_FILE, "%s cannot be written: %s", out->path, strerror(why));
    }
    out->bytes += len;
    return ERR_NONE;
}

int batch_output_write(struct batch_output *out, json_t *record, struct err *err)
{
    char *line = record == NULL ? NULL : json_dumps(record, JSON_COMPACT);
    json_decref(record);
    CHECK(line != NULL, err, ERR_MEMORY, "no memory for a result");
    const size_t len = strlen(line);
    line[len] = '\n'; /* in place of the NUL: a line leaves with one write() */
    int rc = write_whole(out, line, len + 1, err);
    free(line);
    return rc;
}
