/* err - see err.h. */
#include "engine/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int status;
} codes[ERR_CODE_COUNT] = {
#define ERR_ROW(name, status, text) {#name, status},
    ERR_LIST(ERR_ROW)
#undef ERR_ROW
};

static void (*bug_hook)(void);

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    if (err == NULL) return (int)code;
    err->code = code;
    err->who[0] = '\0';
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return (int)code;
}

void err_set_who(struct err *err, const char *fmt, ...)
{
    if (err == NULL) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->who, sizeof err->who, fmt, args);
    va_end(args);
}

int err_exit_status(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT ? codes[code].status : 1;
}

const char *err_code_name(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT ? codes[code].name : "?";
}

void err_set_bug_hook(void (*hook)(void))
{
    bug_hook = hook;
}

_Noreturn void err_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "tandem: bug at %s:%d: %s: please report this line\n", file, line, what);
    if (bug_hook != NULL) bug_hook();
    abort();
}
