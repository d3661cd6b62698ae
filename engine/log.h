/* log - levelled lines on standard error that say who and where.
 *
 * A line reads "WHO: text". WHO is set once per thread ("worker 3 @node07, layers
 * 16..23", "coordinator"); in-process stages are threads, so it is thread-local. */
#ifndef TANDEM_ENGINE_LOG_H
#define TANDEM_ENGINE_LOG_H

#include "engine/err.h"

enum log_level { LOG_QUIET, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* log_set_level() - lines above this level are dropped; process-wide, default LOG_WARN. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/* log_set_who() - copies at most 95 bytes. Thread-local. log_who() is never NULL ("tandem" at first). */
void log_set_who(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *log_who(void);

/* log_line() - one whole line, written with one write(2) so that ranks do not mix. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* log_error() - the one line of an error: "WHO: text". Errors are always printed,
 * whatever the level. */
void log_error(const struct err *err);

#endif
