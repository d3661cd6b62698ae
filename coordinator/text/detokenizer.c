/* detokenizer - token ids to text as they come, never half a UTF-8 character.
 *
 * Station before: sample/sampler (a token). Station after: front/ (prints the text). */
#include "coordinator/text/detokenizer.h"

#include "coordinator/text/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
enum { REPLACEMENT_LEN = 3, HELD_MAX = 3 };

struct detokenizer {
    const struct tokenizer *t;
    bool with_special;
    bool strip_space;    /* still to be done: nothing of the text was seen yet */
    char held[HELD_MAX]; /* the beginning of a character whose end has not come */
    size_t n_held;
    char *raw; /* held bytes and the new piece */
    size_t raw_capacity;
    char *shown;
    size_t shown_capacity;
};

int detokenizer_open(struct detokenizer **out, const struct tokenizer *t, bool with_special,
                     bool strip_space, struct err *err)
{
    *out = calloc(1, sizeof **out);
    CHECK(*out != NULL, err, ERR_MEMORY, "no memory for a detokenizer");
    (*out)->t = t;
    (*out)->with_special = with_special;
    (*out)->strip_space = strip_space && tokenizer_adds_space_prefix(t);
    return ERR_NONE;
}

void detokenizer_close(struct detokenizer *d)
{
    if (d == NULL) return;
    free(d->raw);
    free(d->shown);
    free(d);
}

static int grow(char **buffer, size_t *capacity, size_t want, struct err *err)
{
    if (want <= *capacity) return ERR_NONE;
    char *grown = realloc(*buffer, 2 * want);
    CHECK(grown != NULL, err, ERR_MEMORY, "no memory for a piece of %zu bytes", want);
    *buffer = grown;
    *capacity = 2 * want;
    return ERR_NONE;
}

/* show() - turn raw[0..n) into whole characters; a character that is not yet whole is held back,
 * or replaced at the end of the text. */
static int show(struct detokenizer *d, size_t n, bool at_end, const char **text, size_t *len,
                struct err *err)
{
    TRY(grow(&d->shown, &d->shown_capacity, REPLACEMENT_LEN * n + 1, err));
    char *to = d->shown;
    size_t at = 0;
    while (at < n) {
        int step = utf8_step(d->raw + at, n - at);
        if (step > 0) {
            to = mempcpy(to, d->raw + at, (size_t)step);
            at += (size_t)step;
            continue;
        }
        if (step == 0 && !at_end) break;
        to = mempcpy(to, replacement, REPLACEMENT_LEN);
        at += step == 0 ? n - at : (size_t)-step;
    }
    d->n_held = n - at;
    BUG_IF(d->n_held > HELD_MAX, "more than the beginning of a character is held back");
    if (d->n_held > 0) memcpy(d->held, d->raw + at, d->n_held);
    *text = d->shown;
    *len = (size_t)(to - d->shown);
    return ERR_NONE;
}

/* strip_first_space() - raw[from..from+n) is the text's first piece: drop SPM's space. */
static size_t strip_first_space(struct detokenizer *d, int32_t id, size_t from, size_t n)
{
    if (!d->strip_space || n == 0) return n;
    d->strip_space = false;
    if (tokenizer_kind(d->t, id) != TOKEN_NORMAL || d->raw[from] != ' ') return n;
    memmove(d->raw + from, d->raw + from + 1, n - 1);
    return n - 1;
}

int detokenizer_push(struct detokenizer *d, int32_t id, const char **text, size_t *len,
                     struct err *err)
{
    int32_t n_vocab = tokenizer_vocab_size(d->t);
    CHECK(id >= 0 && id < n_vocab, err, ERR_USAGE, "token %d is outside of the vocabulary 0..%d",
          id, n_vocab - 1);
    size_t n = tokenizer_piece(d->t, id, d->with_special, NULL, 0);
    TRY(grow(&d->raw, &d->raw_capacity, HELD_MAX + n, err));
    if (d->n_held > 0) memcpy(d->raw, d->held, d->n_held);
    tokenizer_piece(d->t, id, d->with_special, d->raw + d->n_held, n);
    n = strip_first_space(d, id, d->n_held, n);
    return show(d, d->n_held + n, false, text, len, err);
}

int detokenizer_finish(struct detokenizer *d, const char **text, size_t *len, struct err *err)
{
    TRY(grow(&d->raw, &d->raw_capacity, HELD_MAX, err));
    if (d->n_held > 0) memcpy(d->raw, d->held, d->n_held);
    return show(d, d->n_held, true, text, len, err);
}
