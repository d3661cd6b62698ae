/* input - see input.h. */
#include "coordinator/front/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* read_all() - from f to the end; on error *text may be set, and is the caller's all the same. */
static int read_all(FILE *f, const char *name, char **text, size_t *len, struct err *err)
{
    size_t capacity = 0;
    for (;;) {
        if (capacity - *len < 2) {
            capacity = capacity == 0 ? 1 << 16 : capacity * 2;
            char *more = realloc(*text, capacity);
            CHECK(more != NULL, err, ERR_MEMORY, "%s: no memory for %zu bytes of text", name,
                  capacity);
            *text = more;
        }
        size_t got = fread(*text + *len, 1, capacity - *len - 1, f);
        *len += got;
        CHECK(*len <= INPUT_BYTES_MAX, err, ERR_CAPACITY, "%s is longer than %d bytes: cut it",
              name, INPUT_BYTES_MAX);
        CHECK(!ferror(f), err, ERR_FILE, "%s: %s", name, strerror(errno));
        if (got == 0) break;
    }
    (*text)[*len] = '\0';
    return ERR_NONE;
}

int input_read(const char *path, char **text, size_t *len, struct err *err)
{
    *text = NULL;
    *len = 0;
    const bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    FILE *f = standard ? stdin : fopen(path, "rb");
    CHECK(f != NULL, err, ERR_FILE, "%s: %s", name, strerror(errno));
    int rc = read_all(f, name, text, len, err);
    if (!standard) fclose(f);
    if (rc != ERR_NONE) {
        free(*text);
        *text = NULL;
    }
    return rc;
}

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r';
}

static size_t word_length(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && !is_separator(text[n]) && text[n] != '#') n++;
    return n;
}

int input_parse_ids(const char *text, size_t len, const char *what, struct token_list *ids,
                    struct err *err)
{
    for (size_t i = 0; i < len;) {
        if (text[i] == '#') {
            while (i < len && text[i] != '\n') i++;
            continue;
        }
        if (is_separator(text[i])) {
            i++;
            continue;
        }
        size_t n = word_length(text + i, len - i);
        int64_t id = 0;
        for (size_t k = 0; k < n; k++) {
            const char c = text[i + k];
            bool fits = c >= '0' && c <= '9';
            if (fits) id = id * 10 + (c - '0');
            CHECK(fits && id <= INT32_MAX, err, ERR_USAGE, "%s: '%.*s' is no token id", what,
                  (int)(n > 40 ? 40 : n), text + i);
        }
        TRY(token_list_push(ids, (int32_t)id, err));
        i += n;
    }
    return ERR_NONE;
}
