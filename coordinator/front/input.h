/* input - what a front reads: whole files, and token ids written as text.
 *
 * Station before: the command line. Stations after: text/tokenizer (bytes), prompts (ids). */
#ifndef TANDEM_COORDINATOR_FRONT_INPUT_H
#define TANDEM_COORDINATOR_FRONT_INPUT_H

#include "coordinator/text/tokenizer.h"
#include "engine/err.h"

#include <stddef.h>

/* Longer input is refused. */
enum { INPUT_BYTES_MAX = 1 << 28 };

/* input_read() - all bytes of path; "-" is standard input. *text is NUL-terminated and the caller's
 * to free(); *len does not count the NUL. Returns ERR_FILE, ERR_CAPACITY (too long), ERR_MEMORY. */
int input_read(const char *path, char **text, size_t *len, struct err *err);

/* input_parse_ids() - append the ids in text[0..len), which stand between blanks, commas or
 * newlines; # begins a comment that ends with the line. what names the place in an error. Returns
 * ERR_USAGE (no id in 0 .. 2^31-1: named), ERR_MEMORY. */
int input_parse_ids(const char *text, size_t len, const char *what, struct token_list *ids,
                    struct err *err);

#endif
