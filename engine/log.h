/* log - levelled lines on standard error that say who and where.
 *
 * A line reads "WHO: text". WHO is set once per thread ("worker 3 @node07, layers
 * 16..23", "coordinator"); in-process stages are threads, so it is thread-local. With
 * log_set_json() a line is a JSON object instead: time (UTC), level, rank, host, who,
 * event, text. */
#ifndef TANDEM_ENGINE_LOG_H
#define TANDEM_ENGINE_LOG_H

#include "engine/err.h"

#include <stdbool.h>

/* LOG_ASKED is for what the user asked for: never dropped. */
enum log_level { LOG_ASKED, LOG_ERROR, LOG_WARN, LOG_INFO };

/* log_set_level() - lines above this level are dropped; process-wide, default LOG_WARN. */
void log_set_level(enum log_level level);

/* log_set_json() - from now on JSON lines; rank: this process's, where WHO does not say.
 * Process-wide. */
void log_set_json(int rank);
bool log_is_json(void);

/* log_set_who() - copies at most 95 bytes. Thread-local; "tandem" at first. */
void log_set_who(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* log_event() - one whole line, written with one write(2) so that ranks do not mix. event: one word
 * of what happened, for programs that read the lines. log_line(): its event is "note". */
void log_event(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* log_error() - the one line of an error: "WHO: text". Errors are always printed,
 * whatever the level. The event is the name of its code, in small letters. */
void log_error(const struct err *err);

#endif
