/* batch_output - the file of a batch's results: one JSON object a line, only ever whole lines.
 *
 * A file that is there already is continued: its whole lines are kept and told, a torn last one is
 * dropped. No two processes write the same one. Stations before: batch_plan (what is done already),
 * batch_run (results as they come). */
#ifndef TANDEM_COORDINATOR_FRONT_BATCH_OUTPUT_H
#define TANDEM_COORDINATOR_FRONT_BATCH_OUTPUT_H

#include "engine/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct batch_output {
    const char *path;
    int fd;         /* -1: closed */
    bool regular;   /* a plain file: it may be continued, and cut */
    uint64_t bytes; /* of whole lines */
};

/* A record that is there already, in this line of the file; it stays the caller's. An error ends
 * batch_output_open(), and is what that returns. */
typedef int batch_record_fn(void *ctx, const json_t *record, uint32_t number, struct err *err);

/* batch_output_open() - path: "-" is standard output. batch_output_close() afterwards, also after
 * an error. Returns ERR_FILE (cannot be written; in use by another process; holds a line that is no
 * record, or ends otherwise than with a torn one), ERR_MEMORY, what there() does. A file is left
 * alone after all of these. */
int batch_output_open(struct batch_output *out, const char *path, batch_record_fn *there, void *ctx,
                      struct err *err);
void batch_output_close(struct batch_output *out);

/* batch_output_write() - record as one line, which has left this process on return. Takes record
 * over; NULL is ERR_MEMORY. ERR_FILE: nothing of it stays in a plain file. */
int batch_output_write(struct batch_output *out, json_t *record, struct err *err);

#endif
