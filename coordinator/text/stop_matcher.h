/* stop_matcher - holds back text that may be the beginning of a stop string.
 *
 * Station before: detokenizer (text as it comes). Station after: front/ (prints it). */
#ifndef TANDEM_COORDINATOR_TEXT_STOP_MATCHER_H
#define TANDEM_COORDINATOR_TEXT_STOP_MATCHER_H

#include "engine/err.h"

#include <stdbool.h>
#include <stddef.h>

struct stop_matcher;

/* stop_matcher_open() - stops[0..n) are copied; empty strings are ERR_USAGE. n may be 0. */
int stop_matcher_open(struct stop_matcher **out, const char *const *stops, size_t n,
                      struct err *err);
void stop_matcher_close(struct stop_matcher *m); /* NULL is allowed */

/* stop_matcher_push() - add text; *out, *out_len is what can be shown now, valid until the next
 * call. *stopped: a stop string is complete (the earliest one wins); it and all after it is never
 * shown, and later calls give nothing. stop_matcher_finish() gives what is still held back. */
int stop_matcher_push(struct stop_matcher *m, const char *text, size_t len, const char **out,
                      size_t *out_len, bool *stopped, struct err *err);
int stop_matcher_finish(struct stop_matcher *m, const char **out, size_t *out_len);

#endif
