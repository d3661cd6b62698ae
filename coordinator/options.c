/* options - see options.h. */
#include "coordinator/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int option_list_push(struct option_list *list, const char *item, struct err *err)
{
    /* Grown one at a time: a command line has few of them. */
    const char **items = realloc(list->items, (list->n + 1) * sizeof *items);
    CHECK(items != NULL, err, ERR_MEMORY, "no memory for the command line's arguments");
    list->items = items;
    list->items[list->n++] = item;
    return ERR_NONE;
}

void option_list_free(struct option_list *list)
{
    free(list->items);
    *list = (struct option_list){0};
}

static void *target(void *settings, size_t offset)
{
    return (char *)settings + offset;
}

static const void *default_of(const void *defaults, size_t offset)
{
    return (const char *)defaults + offset;
}

/* ---- parsing ---- */

static const struct option *find_long(const struct option_group *const *groups, const char *name,
                                      size_t len)
{
    for (; *groups != NULL; groups++)
        for (size_t i = 0; i < (*groups)->n; i++) {
            const struct option *o = &(*groups)->rows[i];
            if (strlen(o->name) == len && memcmp(o->name, name, len) == 0) return o;
        }
    return NULL;
}

static const struct option *find_letter(const struct option_group *const *groups, char letter)
{
    for (; *groups != NULL; groups++)
        for (size_t i = 0; i < (*groups)->n; i++)
            if ((*groups)->rows[i].letter == letter) return &(*groups)->rows[i];
    return NULL;
}

/* describe_range() - "a number >= 0 and <= 1". */
static void describe_range(const struct option *o, char *text, size_t size)
{
    const char *what = o->kind == OPTION_F32 ? "a number" : "a whole number";
    const char *least = o->above_min ? ">" : ">=";
    if (isinf(o->min) && isinf(o->max))
        snprintf(text, size, "%s", what);
    else if (isinf(o->max))
        snprintf(text, size, "%s %s %.10g", what, least, o->min);
    else
        snprintf(text, size, "%s %s %.10g and <= %.10g", what, least, o->min, o->max);
}

static bool in_range(const struct option *o, double x)
{
    return (o->above_min ? x > o->min : x >= o->min) && x <= o->max;
}

static int set_number(const struct option *o, const char *value, void *to, struct err *err)
{
    char range[80];
    describe_range(o, range, sizeof range);
    char *end = NULL;
    errno = 0;
    if (o->kind == OPTION_F32) {
        float x = strtof(value, &end);
        CHECK(end != value && *end == '\0' && isfinite(x) && in_range(o, (double)x), err, ERR_USAGE,
              "--%s wants %s, got '%s'", o->name, range, value);
        *(float *)to = x;
        return ERR_NONE;
    }
    long long x = strtoll(value, &end, 10);
    CHECK(end != value && *end == '\0' && errno == 0 && in_range(o, (double)x), err, ERR_USAGE,
          "--%s wants %s, got '%s'", o->name, range, value);
    if (o->kind == OPTION_I32)
        *(int32_t *)to = (int32_t)x;
    else
        *(uint32_t *)to = (uint32_t)x;
    return ERR_NONE;
}

static int set_u64(const struct option *o, const char *value, uint64_t *to, struct err *err)
{
    char *end = NULL;
    errno = 0;
    unsigned long long x = strtoull(value, &end, 10);
    CHECK(value[0] >= '0' && value[0] <= '9' && *end == '\0' && errno == 0 && x <= INT64_MAX, err,
          ERR_USAGE, "--%s wants a whole number from 0 to %lld, got '%s'", o->name,
          (long long)INT64_MAX, value);
    *to = x;
    return ERR_NONE;
}

static int set_choice(const struct option *o, const char *value, int *to, struct err *err)
{
    size_t len = strlen(value);
    int index = 0;
    for (const char *word = o->value; word != NULL; index++) {
        const char *bar = strchr(word, '|');
        size_t word_len = bar == NULL ? strlen(word) : (size_t)(bar - word);
        if (word_len == len && memcmp(word, value, len) == 0) {
            *to = index;
            return ERR_NONE;
        }
        word = bar == NULL ? NULL : bar + 1;
    }
    return err_set(err, ERR_USAGE, "--%s wants one of %s, got '%s'", o->name, o->value, value);
}

static int set_value(const struct option *o, const char *value, void *settings, struct err *err)
{
    if (o->given_offset != 0) *(bool *)target(settings, o->given_offset) = true;
    void *to = target(settings, o->offset);
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)to = true;
        return ERR_NONE;
    case OPTION_TEXT:
        *(const char **)to = value;
        return ERR_NONE;
    case OPTION_LIST:
        return option_list_push(to, value, err);
    case OPTION_U32:
    case OPTION_I32:
    case OPTION_F32:
        return set_number(o, value, to, err);
    case OPTION_U64:
        return set_u64(o, value, to, err);
    case OPTION_CHOICE:
        return set_choice(o, value, to, err);
    }
    return ERR_NONE;
}

/* parse_flag() - one flag at argv[*i], with its value, which may be the next argument. */
static int parse_flag(const struct option_group *const *groups, int argc, char *const *argv, int *i,
                      void *settings, struct err *err)
{
    const char *arg = argv[*i];
    const char *value = NULL;
    const struct option *o;
    if (arg[1] == '-') {
        const char *equals = strchr(arg, '=');
        size_t len = equals == NULL ? strlen(arg + 2) : (size_t)(equals - arg - 2);
        o = find_long(groups, arg + 2, len);
        if (equals != NULL) value = equals + 1;
        CHECK(o == NULL || o->kind != OPTION_FLAG || value == NULL, err, ERR_USAGE,
              "--%s takes no value, got '%s'", o->name, value);
    } else {
        o = find_letter(groups, arg[1]);
        if (arg[2] != '\0') value = arg + 2;
        if (o != NULL && o->kind == OPTION_FLAG && value != NULL) o = NULL;
    }
    CHECK(o != NULL, err, ERR_USAGE, "'%s' is no flag of this command", arg);
    if (o->kind != OPTION_FLAG && value == NULL) {
        CHECK(*i + 1 < argc, err, ERR_USAGE, "%s wants a value: %s", arg, o->value);
        value = argv[++*i];
    }
    return set_value(o, value, settings, err);
}

int options_parse(const struct option_group *const *groups, int argc, char *const *argv,
                  void *settings, struct option_list *operands, struct err *err)
{
    bool flags = true;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (flags && strcmp(arg, "--") == 0)
            flags = false;
        else if (flags && arg[0] == '-' && arg[1] != '\0')
            TRY(parse_flag(groups, argc, argv, &i, settings, err));
        else
            TRY(option_list_push(operands, arg, err));
    }
    return ERR_NONE;
}

/* ---- help ---- */

void options_print_wrapped(FILE *out, const char *text, int column, int indent)
{
    bool first = true;
    while (*text != '\0') {
        if (*text == '\n') {
            fprintf(out, "\n%*s", text[1] == '\n' ? 0 : indent, "");
            column = indent;
            first = true;
            text++;
            continue;
        }
        size_t len = strcspn(text, " \n");
        if (!first && column + 1 + (int)len > OPTIONS_HELP_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        column += fprintf(out, "%s%.*s", first ? "" : " ", (int)len, text);
        first = false;
        text += len;
        while (*text == ' ') text++;
    }
    fputc('\n', out);
}

/* word_at() - the index-th word of "f16|f32"; *len: its length. */
static const char *word_at(const char *words, int index, int *len)
{
    while (index-- > 0) words = strchr(words, '|') + 1;
    *len = (int)strcspn(words, "|");
    return words;
}

/* describe_default() - " (default: 0.8)", or nothing where there is nothing to say. */
static void describe_default(const struct option *o, const void *defaults, char *text, size_t size)
{
    text[0] = '\0';
    if (o->unset != NULL) {
        if (o->unset[0] != '\0') snprintf(text, size, " (default: %s)", o->unset);
        return;
    }
    const void *at = default_of(defaults, o->offset);
    int len;
    const char *word;
    switch (o->kind) {
    case OPTION_FLAG:
    case OPTION_TEXT:
    case OPTION_LIST:
        break;
    case OPTION_U32:
        snprintf(text, size, " (default: %u)", *(const uint32_t *)at);
        break;
    case OPTION_I32:
        snprintf(text, size, " (default: %d)", *(const int32_t *)at);
        break;
    case OPTION_U64:
        snprintf(text, size, " (default: %llu)", (unsigned long long)*(const uint64_t *)at);
        break;
    case OPTION_F32:
        snprintf(text, size, " (default: %g)", (double)*(const float *)at);
        break;
    case OPTION_CHOICE:
        word = word_at(o->value, *(const int *)at, &len);
        snprintf(text, size, " (default: %.*s)", len, word);
        break;
    }
}

void options_print_help(FILE *out, const struct option_group *group, const void *defaults)
{
    enum { COLUMN = 30 };
    fprintf(out, "\n%s:\n", group->title);
    for (size_t i = 0; i < group->n; i++) {
        const struct option *o = &group->rows[i];
        int column = o->letter == 0 ? fprintf(out, "      --%s", o->name)
                                    : fprintf(out, "  -%c, --%s", o->letter, o->name);
        if (o->kind != OPTION_FLAG) column += fprintf(out, " %s", o->value);
        if (column + 2 > COLUMN)
            fprintf(out, "\n%*s", COLUMN, "");
        else
            fprintf(out, "%*s", COLUMN - column, "");
        char text[512], note[128];
        describe_default(o, defaults, note, sizeof note);
        snprintf(text, sizeof text, "%s%s", o->help, note);
        options_print_wrapped(out, text, COLUMN, COLUMN);
    }
}
