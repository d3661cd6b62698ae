/* log - see log.h. */
#include "engine/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static enum log_level level_max = LOG_WARN;
static _Thread_local char who[ERR_WHO_MAX] = "tandem";

void log_set_level(enum log_level level)
{
    level_max = level;
}

enum log_level log_get_level(void)
{
    return level_max;
}

void log_set_who(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(who, sizeof who, fmt, args);
    va_end(args);
}

const char *log_who(void)
{
    return who;
}

static void write_line(const char *name, const char *fmt, va_list args)
{
    char line[ERR_TEXT_MAX + sizeof who + 8];
    int head = snprintf(line, sizeof line, "%s: ", name);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, fmt, args);
    size_t len = (size_t)head + (body < 0 ? 0 : (size_t)body);
    if (len > sizeof line - 2) len = sizeof line - 2;
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* There is nowhere left to report a lost error line. */
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (level > level_max) return;
    va_list args;
    va_start(args, fmt);
    write_line(who, fmt, args);
    va_end(args);
}

static void write_text(const char *name, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    write_line(name, fmt, args);
    va_end(args);
}

void log_error(const struct err *err)
{
    write_text(err->who[0] != '\0' ? err->who : who, "%s", err->text);
}
