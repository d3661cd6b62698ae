/* log - see log.h. */
#include "engine/log.h"

#include <ctype.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum log_level level_max = LOG_WARN;
static bool as_json;
static int own_rank;
static _Thread_local char who[ERR_WHO_MAX] = "tandem";

void log_set_level(enum log_level level)
{
    level_max = level;
}

void log_set_json(int rank)
{
    as_json = true;
    own_rank = rank;
}

bool log_is_json(void)
{
    return as_json;
}

void log_set_who(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(who, sizeof who, fmt, args);
    va_end(args);
}

/* ---- JSON ---- */

/* text_json() - of any bytes: a file's name may be no UTF-8. */
static json_t *text_json(const char *text)
{
    char plain[ERR_TEXT_MAX];
    json_t *whole = json_string(text);
    if (whole != NULL) return whole;
    snprintf(plain, sizeof plain, "%s", text);
    for (char *c = plain; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    return json_string(plain);
}

static void time_text(char *text, size_t size)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(text, size, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, size - n, ".%03ldZ", now.tv_nsec / 1000000);
}

/* find_place() - rank and host of "worker 3 @node07, layers 16..23", "coordinator @node01" or
 * "coordinator"; or else of this process. */
static void find_place(const char *name, int *rank, char host[256])
{
    *rank = own_rank;
    if (strncmp(name, "coordinator", strlen("coordinator")) == 0) *rank = 0;
    if (sscanf(name, "worker %d @%255[^, :]", rank, host) == 2) return;
    if (sscanf(name, "coordinator @%255[^, :]", host) == 1) return;
    if (gethostname(host, 255) != 0) host[0] = '\0';
}

/* line_json() - NULL: no memory. */
static char *line_json(enum log_level level, const char *name, const char *event, const char *text)
{
    static const char *const levels[] = {"info", "error", "warn", "info"};
    int rank;
    char host[256] = "", when[48];
    time_text(when, sizeof when);
    find_place(name, &rank, host);
    json_t *root = json_pack("{s:s, s:s, s:i, s:o, s:o, s:s, s:o}", "time", when, "level",
                             levels[level], "rank", rank, "host", text_json(host), "who",
                             text_json(name), "event", event, "text", text_json(text));
    char *line = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return line;
}

/* ---- lines ---- */

static void write_line(enum log_level level, const char *name, const char *event, const char *text)
{
    char line[ERR_TEXT_MAX + sizeof who + 8],
        *json = as_json ? line_json(level, name, event, text) : NULL;
    size_t len = 0;
    if (json != NULL) {
        len = strlen(json);
        json[len++] = '\n'; /* in place of the NUL */
    } else {
        len = (size_t)snprintf(line, sizeof line - 1, "%.95s: %s", name, text);
        line[len++] = '\n';
    }
    ssize_t written = write(STDERR_FILENO, json != NULL ? json : line, len);
    (void)written; /* There is nowhere left to report a lost error line. */
    free(json);
}

static void format_line(enum log_level level, const char *event, const char *fmt, va_list args)
{
    char text[ERR_TEXT_MAX];
    if (level > level_max) return;
    vsnprintf(text, sizeof text, fmt, args);
    write_line(level, who, event, text);
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    format_line(level, event, fmt, args);
    va_end(args);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    format_line(level, "note", fmt, args);
    va_end(args);
}

void log_error(const struct err *err)
{
    char event[32];
    snprintf(event, sizeof event, "%s", err_code_name(err->code));
    for (char *c = event; *c != '\0'; c++) *c = (char)tolower(*c);
    write_line(LOG_ERROR, err->who[0] != '\0' ? err->who : who, event, err->text);
}
