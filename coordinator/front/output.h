/* output - standard output, where every write is checked, and texts made safe to print.
 *
 * Stations before: the fronts. A closed pipe or a full disk is one error, at the write that meets
 * it. */
#ifndef TANDEM_COORDINATOR_FRONT_OUTPUT_H
#define TANDEM_COORDINATOR_FRONT_OUTPUT_H

#include "engine/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each writes through at once or says ERR_FILE. */
int output_write(const char *text, size_t len, struct err *err);
int output_printf(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int output_flush(struct err *err);

/* output_json() - root as text, and a newline; pretty: many lines. Takes root over. NULL is
 * ERR_MEMORY. */
int output_json(json_t *root, bool pretty, struct err *err);

/* output_json_text() - a JSON string of any bytes: what is no UTF-8 becomes '?'. NULL:
 * no memory. */
json_t *output_json_text(const char *text, size_t len);

/* output_json_ids() - a JSON array of numbers. NULL: no memory. */
json_t *output_json_ids(const int32_t *ids, size_t n);

/* output_quote() - text[0..len) in quotes, with control characters, quotes, backslashes and stray
 * bytes escaped. Cut to fit into out[size]; returns out. */
const char *output_quote(const char *text, size_t len, char *out, size_t size);

/* output_bytes() - "3.4 MiB". Returns out. */
enum { OUTPUT_BYTES_TEXT = 24 };
const char *output_bytes(uint64_t bytes, char out[OUTPUT_BYTES_TEXT]);

#endif
