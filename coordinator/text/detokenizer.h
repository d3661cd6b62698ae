/* detokenizer - token ids to text as they come, never half a UTF-8 character.
 *
 * Station before: sample/sampler (a token). Station after: front/ (prints the text). */
#ifndef TANDEM_COORDINATOR_TEXT_DETOKENIZER_H
#define TANDEM_COORDINATOR_TEXT_DETOKENIZER_H

#include "coordinator/text/tokenizer.h"

struct detokenizer;

/* detokenizer_open() - start a text. with_special: control tokens are shown. t must outlive it.
 * strip_space: drop the one leading space that an SPM vocabulary adds to a text's first word (only
 * right for text that is decoded from its beginning). */
int detokenizer_open(struct detokenizer **out, const struct tokenizer *t, bool with_special,
                     bool strip_space, struct err *err);
void detokenizer_close(struct detokenizer *d); /* NULL is allowed */

/* detokenizer_push() - add one token; text and len are what can be shown now (maybe nothing): whole
 * characters only, bytes that can never become valid UTF-8 replaced by U+FFFD. Valid until the
 * next call. detokenizer_finish() gives what is still held back, replaced likewise. */
int detokenizer_push(struct detokenizer *d, int32_t id, const char **text, size_t *len,
                     struct err *err);
int detokenizer_finish(struct detokenizer *d, const char **text, size_t *len, struct err *err);

#endif
