/* schema_check - does a JSON document on standard input keep to a JSON Schema?
 *
 *   schema_check SCHEMA.json <document
 *
 * Knows the keywords type, enum, const, minimum, required, properties, additionalProperties
 * (false), items, minItems and anyOf (https://json-schema.org/draft/2020-12), and title and
 * description. Any other keyword is an error, so that no schema is believed to check more than it
 * does. Prints the first place that does not keep to it, and ends with 1. Stations before: the
 * end-to-end tests. */
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 512 };

/* Where the check is, as a path; quiet inside anyOf, where one failure is none yet. */
struct place {
    char path[PATH_MAX_BYTES];
    bool quiet;
};

static bool wrong(const struct place *at, const char *fmt, ...)
{
    if (at->quiet) return false;
    va_list args;
    va_start(args, fmt);
    printf("%s: ", at->path[0] == '\0' ? "the document" : at->path);
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
    return false;
}

_Noreturn static void die(const char *what, const char *which)
{
    fprintf(stderr, "schema_check: %s%s\n", what, which);
    exit(2);
}

static bool check(const json_t *schema, const json_t *value, const struct place *at);

static bool check_inside(const json_t *schema, const json_t *value, const struct place *at,
                         const char *fmt, ...)
{
    struct place inside = *at;
    size_t used = strlen(inside.path);
    va_list args;
    va_start(args, fmt);
    vsnprintf(inside.path + used, sizeof inside.path - used, fmt, args);
    va_end(args);
    return check(schema, value, &inside);
}

static bool has_type(const json_t *value, const char *type)
{
    if (strcmp(type, "object") == 0) return json_is_object(value);
    if (strcmp(type, "array") == 0) return json_is_array(value);
    if (strcmp(type, "string") == 0) return json_is_string(value);
    if (strcmp(type, "integer") == 0) return json_is_integer(value);
    if (strcmp(type, "number") == 0) return json_is_number(value);
    if (strcmp(type, "boolean") == 0) return json_is_boolean(value);
    if (strcmp(type, "null") == 0) return json_is_null(value);
    die("unknown type ", type);
}

static bool check_type(const json_t *types, const json_t *value, const struct place *at)
{
    if (json_is_string(types))
        return has_type(value, json_string_value(types)) ||
               wrong(at, "is no %s", json_string_value(types));
    size_t i;
    json_t *type;
    json_array_foreach(types, i, type) if (has_type(value, json_string_value(type))) return true;
    return wrong(at, "is of none of the %zu types", json_array_size(types));
}

static bool check_enum(const json_t *values, const json_t *value, const struct place *at)
{
    size_t i;
    json_t *one;
    json_array_foreach(values, i, one) if (json_equal(one, value)) return true;
    return wrong(at, "is none of the values that are allowed");
}

static bool check_required(const json_t *names, const json_t *value, const struct place *at)
{
    size_t i;
    json_t *name;
    json_array_foreach(names, i, name) if (json_is_object(value) &&
                                           json_object_get(value, json_string_value(name)) ==
                                               NULL) return wrong(at, "has no \"%s\"",
                                                                  json_string_value(name));
    return true;
}

static bool check_properties(const json_t *schema, const json_t *value, const struct place *at)
{
    const json_t *properties = json_object_get(schema, "properties");
    bool closed = json_is_false(json_object_get(schema, "additionalProperties"));
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, name, member)
    {
        const json_t *of = json_object_get(properties, name);
        if (of == NULL && closed) return wrong(at, "has an unknown \"%s\"", name);
        if (of != NULL && !check_inside(of, member, at, ".%s", name)) return false;
    }
    return true;
}

static bool check_items(const json_t *schema, const json_t *value, const struct place *at)
{
    size_t i;
    json_t *item;
    json_array_foreach(value, i,
                       item) if (!check_inside(schema, item, at, "[%zu]", i)) return false;
    return true;
}

static bool check_any(const json_t *schemas, const json_t *value, const struct place *at)
{
    struct place quiet = *at;
    quiet.quiet = true;
    size_t i;
    json_t *one;
    json_array_foreach(schemas, i, one) if (check(one, value, &quiet)) return true;
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    wrong(at, "keeps to none of %zu schemas: %.300s", json_array_size(schemas), text);
    free(text);
    return false;
}

static bool check_keyword(const char *keyword, const json_t *schema, const json_t *is,
                          const json_t *value, const struct place *at)
{
    if (strcmp(keyword, "type") == 0) return check_type(is, value, at);
    if (strcmp(keyword, "enum") == 0) return check_enum(is, value, at);
    if (strcmp(keyword, "const") == 0)
        return json_equal(is, value) || wrong(at, "is not the one allowed value");
    if (strcmp(keyword, "required") == 0) return check_required(is, value, at);
    if (strcmp(keyword, "properties") == 0) return check_properties(schema, value, at);
    if (strcmp(keyword, "items") == 0) return check_items(is, value, at);
    if (strcmp(keyword, "anyOf") == 0) return check_any(is, value, at);
    if (strcmp(keyword, "minimum") == 0)
        return !json_is_number(value) || json_number_value(value) >= json_number_value(is) ||
               wrong(at, "is %g, below %g", json_number_value(value), json_number_value(is));
    if (strcmp(keyword, "minItems") == 0)
        return !json_is_array(value) ||
               (json_int_t)json_array_size(value) >= json_integer_value(is) ||
               wrong(at, "has %zu items, too few", json_array_size(value));
    if (strcmp(keyword, "additionalProperties") == 0 || strcmp(keyword, "title") == 0 ||
        strcmp(keyword, "description") == 0 || keyword[0] == '$')
        return true;
    die("unknown keyword ", keyword);
}

static bool check(const json_t *schema, const json_t *value, const struct place *at)
{
    const char *keyword;
    json_t *is;
    json_object_foreach((json_t *)(uintptr_t)schema, keyword,
                        is) if (!check_keyword(keyword, schema, is, value, at)) return false;
    return true;
}

int main(int argc, char **argv)
{
    json_error_t error;
    if (argc != 2) die("usage: schema_check SCHEMA.json", " <document");
    json_t *schema = json_load_file(argv[1], 0, &error);
    if (schema == NULL) die("the schema: ", error.text);
    json_t *value = json_loadf(stdin, 0, &error);
    if (value == NULL) {
        printf("the document is no JSON: line %d: %s\n", error.line, error.text);
        return 1;
    }
    bool good = check(schema, value, &(struct place){.path = ""});
    json_decref(schema);
    json_decref(value);
    return good ? 0 : 1;
}
