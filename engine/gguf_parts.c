/* gguf_parts - see gguf_parts.h.
 *
 * The name of the first part gives the names of the others, and its keys say how many there are;
 * each is opened and checked against the first, and then the directories become one.
 * Station before: gguf. Stations after: model, worker/requantize. */
#include "engine/gguf_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARTS_MAX = 99999,                              /* five digits */
    SUFFIX_LEN = sizeof "-00001-of-00001.gguf" - 1, /* behind the name that all parts share */
};

/* Where the files are: here, or (headers is set) elsewhere. */
struct place {
    const char *path; /* of the first */
    const struct gguf_header *headers;
    uint32_t n_headers;
};

/* What a part says of itself. */
struct split {
    uint32_t no, count;
    uint64_t n_tensors; /* of all parts */
};

static int read_split(const struct gguf *g, struct split *out, struct err *err)
{
    *out = (struct split){0};
    TRY(gguf_get_u32(g, "split.no", &out->no, err));
    TRY(gguf_get_u32(g, "split.count", &out->count, err));
    return gguf_get_u64(g, "split.tensors.count", &out->n_tensors, err);
}

static void put_suffix(char out[SUFFIX_LEN + 1], uint32_t no, uint32_t count)
{
    snprintf(out, SUFFIX_LEN + 1, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", no + 1, count);
}

/* The first part by its keys must be the first by its name, too: the others are found by it. */
static int check_first(const char *path, const struct split *split, struct err *err)
{
    char suffix[SUFFIX_LEN + 1];
    CHECK(split->count <= PARTS_MAX && split->no < split->count, err, ERR_FILE,
          "%s: split.no is %" PRIu32 " and split.count %" PRIu32
          ", want a number below a count of at most %d: the file is damaged",
          path, split->no, split->count, PARTS_MAX);
    CHECK(split->no == 0, err, ERR_FILE,
          "%s: this is part %" PRIu32 " of %" PRIu32 " of a split model: give the first part", path,
          split->no + 1, split->count);
    put_suffix(suffix, 0, split->count);
    size_t len = strlen(path);
    CHECK(len >= SUFFIX_LEN && strcmp(path + len - SUFFIX_LEN, suffix) == 0, err, ERR_FILE,
          "%s: the first of %" PRIu32
          " parts of a split model, whose name must end in %s so that the others are found: "
          "rename it",
          path, split->count, suffix);
    return ERR_NONE;
}

/* Most writers put no architecture into later parts; where there is one, it is the first's. */
static int check_family(const struct gguf *first, const struct gguf *part, struct err *err)
{
    const char *key = "general.architecture";
    struct gguf_str want = {"", 0}, found = want;
    TRY(gguf_get_str(first, key, &want, err));
    found = want;
    TRY(gguf_get_str(part, key, &found, err));
    CHECK(found.len == want.len && memcmp(found.data, want.data, want.len) == 0, err, ERR_FILE,
          "%s: %s is not that of %s: the part is of another model", gguf_path(part), key,
          gguf_path(first));
    return ERR_NONE;
}

static int check_part(const struct gguf *first, const struct gguf *part, uint32_t no,
                      const struct split *want, struct err *err)
{
    struct split found;
    TRY(read_split(part, &found, err));
    CHECK(found.count == want->count && found.no == no, err, ERR_FILE,
          "%s: split.no is %" PRIu32 " and split.count %" PRIu32 ", want %" PRIu32 " and %" PRIu32
          ": the part is of another model or has another's name",
          gguf_path(part), found.no, found.count, no, want->count);
    CHECK(found.n_tensors == want->n_tensors, err, ERR_FILE,
          "%s: split.tensors.count is %" PRIu64 ", but %" PRIu64
          " in %s: the part is of another model",
          gguf_path(part), found.n_tensors, want->n_tensors, gguf_path(first));
    return check_family(first, part, err);
}

/* The first part's own path, with another number. */
static int open_part(const struct place *place, const struct gguf *first, const struct split *split,
                     uint32_t no, struct gguf **out, struct err *err)
{
    char *path = strdup(gguf_path(first));
    CHECK(path != NULL, err, ERR_MEMORY, "%s: no memory to open its parts", gguf_path(first));
    put_suffix(path + strlen(path) - SUFFIX_LEN, no, split->count);
    int rc = gguf_open_header(out, path, place->headers == NULL ? NULL : &place->headers[no], err);
    free(path);
    TRY(rc);
    return check_part(first, *out, no, split, err);
}

static int open_others(const struct place *place, struct gguf *first, const struct split *split,
                       struct err *err)
{
    uint32_t n = split->count - 1;
    CHECK(place->headers == NULL || place->n_headers == split->count, err, ERR_PEER,
          "%s: has %" PRIu32 " parts, and %" PRIu32 " headers came", place->path, split->count,
          place->n_headers);
    struct gguf **parts = calloc(n, sizeof(struct gguf *));
    CHECK(parts != NULL, err, ERR_MEMORY, "%s: no memory for %" PRIu32 " parts", gguf_path(first),
          n);
    int rc = ERR_NONE;
    for (uint32_t i = 0; i < n && rc == ERR_NONE; i++)
        rc = open_part(place, first, split, i + 1, &parts[i], err);
    gguf_adopt(first, parts, n);
    TRY(rc);
    TRY(gguf_join(first, err));
    CHECK(gguf_tensor_count(first) == split->n_tensors, err, ERR_FILE,
          "%s: split.tensors.count is %" PRIu64 ", but the %" PRIu32 " parts have %" PRIu64
          ": a part is of another model",
          gguf_path(first), split->n_tensors, split->count, gguf_tensor_count(first));
    return ERR_NONE;
}

static int open_and_join(const struct place *place, struct gguf *first, struct err *err)
{
    struct split split;
    TRY(read_split(first, &split, err));
    if (split.count <= 1 && split.no == 0) return ERR_NONE; /* not split */
    TRY(check_first(gguf_path(first), &split, err));
    return open_others(place, first, &split, err);
}

static int open_place(struct gguf **out, const struct place *place, struct err *err)
{
    struct gguf *first;
    *out = NULL;
    TRY(gguf_open_header(&first, place->path, place->headers, err));
    int rc = open_and_join(place, first, err);
    if (rc != ERR_NONE) {
        gguf_close(first);
        return rc;
    }
    *out = first;
    return ERR_NONE;
}

int gguf_parts_open(struct gguf **out, const char *path, struct err *err)
{
    return open_place(out, &(struct place){.path = path}, err);
}

int gguf_parts_open_headers(struct gguf **out, const char *path, const struct gguf_header *headers,
                            uint32_t n, struct err *err)
{
    BUG_IF(n == 0, "a model without a header");
    return open_place(out, &(struct place){path, headers, n}, err);
}
