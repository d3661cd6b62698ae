/* batch_input - a file with one request a line: walks over its lines, and makes requests of them.
 *
 * Lines are read one at a time, and again when their turn comes, so a file may be larger than
 * memory. Station before: the file. Stations inside: batch_request, text/tokenizer. Station after:
 * batch_plan, batch. */
#ifndef TANDEM_COORDINATOR_FRONT_BATCH_INPUT_H
#define TANDEM_COORDINATOR_FRONT_BATCH_INPUT_H

#include "coordinator/front/batch_request.h"
#include "coordinator/front/line_session.h"

#include <stdio.h>

enum { BATCH_LINE_BYTES_MAX = 1 << 24 }; /* a longer line is skipped, and its request refused */

/* Where a line is. */
struct batch_place {
    uint64_t offset, len; /* without its newline */
    uint32_t line;        /* from 1 on */
};

struct batch_input {
    const struct session *session;
    FILE *file;
    const char *path;
    uint64_t offset; /* of what is read next */
    uint32_t line;
    char *text; /* the line at hand, as far as the limit goes */
    size_t capacity;
    struct logit_bias *base, *ends; /* those of the command line; a ban of every end token */
    uint32_t n_base, n_ends;
};

/* batch_input_open() - s: opened, and outlives the input. The file must be one that can be read
 * twice. batch_input_close() afterwards, also after an error. Returns ERR_FILE, ERR_USAGE (the
 * command line's sampling), ERR_MEMORY. */
int batch_input_open(struct batch_input *in, const char *path, const struct session *s,
                     struct err *err);
void batch_input_close(struct batch_input *in);

/* batch_input_next() - the next line that is not blank; *end: there is none. ERR_FILE, ERR_MEMORY,
 * ERR_CAPACITY (more lines than can be numbered). batch_input_again(): a line that was there
 * before; ERR_FILE, when it is not. */
int batch_input_next(struct batch_input *in, struct batch_place *place, bool *end, struct err *err);
int batch_input_again(struct batch_input *in, const struct batch_place *place, struct err *err);

/* batch_input_prepare() - the line at hand as a request that only its length can keep from running:
 * r->ids is the prompt. batch_request_free() afterwards in every case. Returns what
 * batch_request_read() does, and ERR_USAGE, ERR_CAPACITY for what the model or a limit forbids. */
int batch_input_prepare(struct batch_input *in, const struct batch_place *place,
                        struct batch_request *r, struct err *err);

#endif
