/* continuation - what one sequence has said so far: its tokens, and their text as far as it may be
 * shown.
 *
 * Station before: line/line (a token). Stations inside: text/detokenizer, text/stop_matcher.
 * Stations after: generate (prints the text as it comes), batch_run (writes it when it
 * is whole). */
#ifndef TANDEM_COORDINATOR_FRONT_CONTINUATION_H
#define TANDEM_COORDINATOR_FRONT_CONTINUATION_H

#include "coordinator/line/line.h"
#include "coordinator/text/tokenizer.h"

struct continuation {
    struct detokenizer *detokenizer;
    struct stop_matcher *stops;
    struct token_list ids;
    char *text; /* [capacity], n bytes of it are there; not NUL-terminated */
    size_t n, capacity;
    bool stopped; /* by a stop string */
    bool finished;
    enum line_finish finish;
    uint32_t cached; /* prompt tokens that were in the cache; once it is finished */
};

/* continuation_open() - behind prompt[0 .. n_prompt); stops [n_stops] are copied. t must outlive
 * it. continuation_close() afterwards, also after an error and on one that is all zero. Returns
 * ERR_USAGE (an empty stop string), ERR_MEMORY. */
int continuation_open(struct continuation *c, const struct tokenizer *t, const int32_t *prompt,
                      size_t n_prompt, const char *const *stops, size_t n_stops, struct err *err);
void continuation_close(struct continuation *c);

/* continuation_push() - one more token. Once c->stopped is set the sequence should be cancelled;
 * tokens that still come are dropped. */
int continuation_push(struct continuation *c, int32_t token, struct err *err);

/* continuation_finish() - the last event of the sequence: text that was held back belongs to it
 * after all. */
int continuation_finish(struct continuation *c, const struct line_event *ev, struct err *err);

/* continuation_reason() - "stop" or "length". */
const char *continuation_reason(const struct continuation *c);

#endif
