/* output - see output.h. */
#include "coordinator/front/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_output(struct err *err)
{
    CHECK(!ferror(stdout), err, ERR_FILE, "standard output cannot be written: %s", strerror(errno));
    return ERR_NONE;
}

int output_flush(struct err *err)
{
    TRY(check_output(err));
    fflush(stdout);
    return check_output(err);
}

int output_write(const char *text, size_t len, struct err *err)
{
    fwrite(text, 1, len, stdout);
    return output_flush(err);
}

int output_printf(struct err *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    return check_output(err);
}

int output_json(json_t *root, bool pretty, struct err *err)
{
    const size_t layout = (pretty ? JSON_INDENT(2) : JSON_COMPACT) | JSON_REAL_PRECISION(12);
    char *text = root == NULL ? NULL : json_dumps(root, layout);
    json_decref(root);
    CHECK(text != NULL, err, ERR_MEMORY, "no memory for the JSON object");
    fputs(text, stdout);
    fputc('\n', stdout);
    free(text);
    return output_flush(err);
}

json_t *output_json_text(const char *text, size_t len)
{
    json_t *whole = json_stringn(text, len);
    if (whole != NULL) return whole;
    char *safe = malloc(len + 1);
    if (safe == NULL) return NULL;
    for (size_t i = 0; i < len; i++) safe[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    whole = json_stringn(safe, len);
    free(safe);
    return whole;
}

json_t *output_json_ids(const int32_t *ids, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(array, json_integer(ids[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* utf8_length() - bytes of the valid character at text, 0 where there is none. */
static size_t utf8_length(const unsigned char *text, size_t len)
{
    const unsigned char c = text[0];
    if (c < 0x80) return 1;
    size_t n = c >= 0xF0 && c <= 0xF4  ? 4
               : c >= 0xE0 && c < 0xF0 ? 3
               : c >= 0xC2 && c < 0xE0 ? 2
                                       : 0;
    if (n == 0 || n > len) return 0;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    /* Overlong forms, surrogates and what lies beyond U+10FFFF are no characters. */
    if (c == 0xE0 && text[1] < 0xA0) return 0;
    if (c == 0xED && text[1] >= 0xA0) return 0;
    if (c == 0xF0 && text[1] < 0x90) return 0;
    if (c == 0xF4 && text[1] >= 0x90) return 0;
    return n;
}

static void quote_one(const unsigned char *c, size_t n, char *to, size_t size)
{
    if (*c == '\n')
        snprintf(to, size, "\\n");
    else if (*c == '\t')
        snprintf(to, size, "\\t");
    else if (*c == '"' || *c == '\\')
        snprintf(to, size, "\\%c", *c);
    else if (n == 0 || *c < 0x20 || *c == 0x7F)
        snprintf(to, size, "\\x%02X", *c);
    else
        snprintf(to, size, "%.*s", (int)n, (const char *)c);
}

const char *output_quote(const char *text, size_t len, char *out, size_t size)
{
    size_t n = 0;
    out[n++] = '"';
    for (size_t i = 0; i < len;) {
        const unsigned char *c = (const unsigned char *)text + i;
        size_t step = utf8_length(c, len - i);
        char one[8];
        quote_one(c, step, one, sizeof one);
        if (n + strlen(one) + 2 > size) break;
        memcpy(out + n, one, strlen(one));
        n += strlen(one);
        i += step == 0 ? 1 : step;
    }
    out[n++] = '"';
    out[n] = '\0';
    return out;
}

const char *output_bytes(uint64_t bytes, char out[OUTPUT_BYTES_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    size_t unit = 0;
    while (x >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        x /= 1024;
        unit++;
    }
    snprintf(out, OUTPUT_BYTES_TEXT, unit == 0 ? "%.0f %s" : "%.1f %s", x, units[unit]);
    return out;
}
