/* continuation - see continuation.h. */
#include "coordinator/front/continuation.h"

#include "coordinator/text/detokenizer.h"
#include "coordinator/text/stop_matcher.h"

#include <stdlib.h>
#include <string.h>

/* A prompt without any text makes the first token the text's beginning, and an SPM vocabulary's
 * leading space then belongs to no word. */
int continuation_open(struct continuation *c, const struct tokenizer *t, const int32_t *prompt,
                      size_t n_prompt, const char *const *stops, size_t n_stops, struct err *err)
{
    *c = (struct continuation){0};
    bool from_start = true;
    for (size_t k = 0; k < n_prompt; k++)
        if (tokenizer_kind(t, prompt[k]) != TOKEN_CONTROL) from_start = false;
    TRY(detokenizer_open(&c->detokenizer, t, false, from_start, err));
    return stop_matcher_open(&c->stops, stops, n_stops, err);
}

void continuation_close(struct continuation *c)
{
    detokenizer_close(c->detokenizer);
    stop_matcher_close(c->stops);
    token_list_free(&c->ids);
    free(c->text);
    *c = (struct continuation){0};
}

static int append_text(struct continuation *c, const char *text, size_t len, struct err *err)
{
    if (c->capacity - c->n < len) {
        size_t capacity = (c->n + len) * 2 + 256;
        char *more = realloc(c->text, capacity);
        CHECK(more != NULL, err, ERR_MEMORY, "no memory for %zu bytes of text", capacity);
        c->text = more;
        c->capacity = capacity;
    }
    if (len > 0) memcpy(c->text + c->n, text, len);
    c->n += len;
    return ERR_NONE;
}

/* match_text() - text from the detokenizer through the stop strings. */
static int match_text(struct continuation *c, const char *text, size_t len, struct err *err)
{
    const char *out;
    size_t out_len;
    TRY(stop_matcher_push(c->stops, text, len, &out, &out_len, &c->stopped, err));
    return append_text(c, out, out_len, err);
}

int continuation_push(struct continuation *c, int32_t token, struct err *err)
{
    const char *text;
    size_t len;
    if (c->stopped) return ERR_NONE;
    TRY(token_list_push(&c->ids, token, err));
    TRY(detokenizer_push(c->detokenizer, token, &text, &len, err));
    return match_text(c, text, len, err);
}

int continuation_finish(struct continuation *c, const struct line_event *ev, struct err *err)
{
    const char *text;
    size_t len;
    c->finish = ev->finish;
    c->finished = true;
    c->cached = ev->cached;
    if (ev->token >= 0) TRY(token_list_push(&c->ids, ev->token, err));
    if (c->stopped) return ERR_NONE;
    TRY(detokenizer_finish(c->detokenizer, &text, &len, err));
    TRY(match_text(c, text, len, err));
    if (c->stopped) return ERR_NONE;
    TRY(stop_matcher_finish(c->stops, &text, &len));
    return append_text(c, text, len, err);
}

const char *continuation_reason(const struct continuation *c)
{
    return c->stopped || c->finish == LINE_FINISH_STOP ? "stop" : "length";
}
