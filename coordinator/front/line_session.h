/* line_session - what every front with a line shares: model, tokenizer, prompts, the line, and the
 * report at the end.
 *
 * Order: session_open, session_read_prompts, session_start, (line_submit, line_next),
 * session_finish, session_close.
 * Stations before: generate, logits, perplexity. Stations after: text/tokenizer, line/line. */
#ifndef TANDEM_COORDINATOR_FRONT_LINE_SESSION_H
#define TANDEM_COORDINATOR_FRONT_LINE_SESSION_H

#include "coordinator/front/front.h"
#include "coordinator/front/line_report.h"
#include "coordinator/front/progress_bar.h"
#include "coordinator/line/line.h"
#include "coordinator/text/tokenizer.h"

#include <stdio.h>

struct session {
    const struct settings *settings;
    const struct line_starter *starter;
    struct model *model;
    struct tokenizer *tokenizer;
    struct token_list *prompts; /* [n_prompts] */
    uint32_t n_prompts;
    bool tokens_only; /* the front's to set: it will not ask for scores */
    bool measures;    /* the front's to set: it reads the line's statistics and reports by itself */
    bool predicts;    /* the front's to set: it wants line_planner() */
    struct link *link; /* the starter's */
    struct line *line;
    FILE *trace; /* --trace, until it is written */
    struct progress_bar bar;
    struct line_times times; /* first_token_ns and prompts_done_ns are the front's to set */
};

/* session_open() - the model's metadata and its tokenizer. session_close() afterwards, also after
 * an error; it erases the progress bar, so that an error line stands alone. */
int session_open(struct session *s, const struct settings *settings,
                 const struct line_starter *starter, struct err *err);
void session_close(struct session *s);

/* session_read_prompts() - -p, --ids, -f or standard input to s->prompts, -p first. ERR_USAGE for
 * an empty one, or an id out of range. */
int session_read_prompts(struct session *s, struct err *err);

/* session_context() - positions for sequences of `needed` at most: --ctx, or what is needed, up to
 * what the model was trained for. session_check_prompts(): ERR_CAPACITY for a prompt that does not
 * fit into n_ctx. */
uint32_t session_context(const struct session *s, uint64_t needed);
int session_check_prompts(const struct session *s, uint32_t n_ctx, struct err *err);

/* session_tokens_max() - what -n N, or a request's own number, allows: for -1 as many as --ctx has
 * room for, or SESSION_UNTIL_FULL_MAX. */
enum { SESSION_UNTIL_FULL_MAX = 4096 };
uint32_t session_tokens_max(const struct session *s, int32_t n);

/* session_start() - let the workers begin and open the line, with a progress bar while
 * they load. */
int session_start(struct session *s, uint32_t n_ctx, uint32_t n_seqs, struct err *err);

/* session_dismiss() - in place of session_start(), where there is no work: the workers load
 * nothing. */
int session_dismiss(struct session *s, struct err *err);

/* session_finish() - stop the line; then, unless -q, who did what, and how fast; and what --stats
 * and --trace asked for. */
int session_finish(struct session *s, struct err *err);

#endif
