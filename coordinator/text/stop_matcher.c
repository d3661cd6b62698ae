/* stop_matcher - holds back text that may be the beginning of a stop string.
 *
 * Of several stop strings, the one that is complete first counts; so the outcome does not depend on
 * how the text is cut into pieces.
 * Station before: detokenizer (text as it comes). Station after: front/ (prints it). */
#include "coordinator/text/stop_matcher.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct stop_string {
    char *text;
    size_t len;
};

struct stop_matcher {
    struct stop_string *stop;
    size_t n;
    size_t len_max; /* of the longest stop string */
    bool stopped;
    /* text[0..shown) was handed out by the call before; text[shown..len) is held back. */
    char *text;
    size_t shown, len, capacity;
};

int stop_matcher_open(struct stop_matcher **out, const char *const *stops, size_t n,
                      struct err *err)
{
    *out = NULL;
    for (size_t i = 0; i < n; i++)
        CHECK(stops[i][0] != '\0', err, ERR_USAGE,
              "stop string %zu of %zu is empty: it would stop before the first character", i + 1,
              n);
    struct stop_matcher *m = calloc(1, sizeof *m);
    CHECK(m != NULL, err, ERR_MEMORY, "no memory for a stop matcher");
    m->stop = calloc(n + 1, sizeof *m->stop);
    bool ok = m->stop != NULL;
    for (size_t i = 0; i < n && ok; i++, m->n++) {
        m->stop[i] = (struct stop_string){strdup(stops[i]), strlen(stops[i])};
        if (m->stop[i].len > m->len_max) m->len_max = m->stop[i].len;
        ok = m->stop[i].text != NULL;
    }
    if (!ok) {
        stop_matcher_close(m);
        return err_set(err, ERR_MEMORY, "no memory for %zu stop strings", n);
    }
    *out = m;
    return ERR_NONE;
}

void stop_matcher_close(struct stop_matcher *m)
{
    if (m == NULL) return;
    for (size_t i = 0; i < m->n; i++) free(m->stop[i].text);
    free(m->stop);
    free(m->text);
    free(m);
}

/* find_stop() - where the stop string begins that is complete first; false where none is. Of those
 * that end at the same place, the longest counts. */
static bool find_stop(const struct stop_matcher *m, size_t *begin)
{
    size_t best_end = SIZE_MAX;
    for (size_t i = 0; i < m->n; i++) {
        const char *at = memmem(m->text, m->len, m->stop[i].text, m->stop[i].len);
        if (at == NULL) continue;
        size_t first = (size_t)(at - m->text), end = first + m->stop[i].len;
        if (end < best_end || (end == best_end && first < *begin)) {
            best_end = end;
            *begin = first;
        }
    }
    return best_end != SIZE_MAX;
}

/* held_length() - the length of the longest end of the text that is the beginning of a
 * stop string. */
static size_t held_length(const struct stop_matcher *m)
{
    size_t n = m->len < m->len_max ? m->len : m->len_max;
    for (; n > 0; n--)
        for (size_t i = 0; i < m->n; i++)
            if (n < m->stop[i].len && memcmp(m->text + m->len - n, m->stop[i].text, n) == 0)
                return n;
    return 0;
}

/* drop_shown() - forget what the call before handed out. */
static void drop_shown(struct stop_matcher *m)
{
    m->len -= m->shown;
    if (m->len > 0) memmove(m->text, m->text + m->shown, m->len);
    m->shown = 0;
}

static int append(struct stop_matcher *m, const char *text, size_t len, struct err *err)
{
    if (m->len + len + 1 > m->capacity) {
        size_t capacity = 2 * (m->len + len + 1);
        char *grown = realloc(m->text, capacity);
        CHECK(grown != NULL, err, ERR_MEMORY, "no memory for a text of %zu bytes", capacity);
        m->text = grown;
        m->capacity = capacity;
    }
    if (len > 0) memcpy(m->text + m->len, text, len);
    m->len += len;
    return ERR_NONE;
}

int stop_matcher_push(struct stop_matcher *m, const char *text, size_t len, const char **out,
                      size_t *out_len, bool *stopped, struct err *err)
{
    drop_shown(m);
    if (!m->stopped) {
        TRY(append(m, text, len, err));
        size_t begin = 0;
        m->stopped = find_stop(m, &begin);
        if (m->stopped) m->len = begin;
        m->shown = m->stopped ? m->len : m->len - held_length(m);
    }
    *stopped = m->stopped;
    *out = m->text != NULL ? m->text : "";
    *out_len = m->shown;
    return ERR_NONE;
}

int stop_matcher_finish(struct stop_matcher *m, const char **out, size_t *out_len)
{
    drop_shown(m);
    m->shown = m->len;
    *out = m->text != NULL ? m->text : "";
    *out_len = m->shown;
    return ERR_NONE;
}
