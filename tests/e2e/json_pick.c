/* json_pick - print one value of a JSON text from standard input, for the shell tests.
 *
 *   json_pick PATH      PATH is like "q8_0.greedy" or "long.greedy.3"; "" is the whole text
 *
 * A string comes out as its bytes, an array of scalars joined by commas, anything else as JSON.
 * Status 1 when the path is absent or the text is not JSON. Station before: tandem --json.
 * Station after: lib.sh. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_t *step_into(const json_t *v, const char *key)
{
    if (json_is_array(v)) return json_array_get(v, strtoul(key, NULL, 10));
    return json_object_get(v, key);
}

static void print_scalar(const json_t *v)
{
    if (json_is_string(v)) {
        fwrite(json_string_value(v), 1, json_string_length(v), stdout);
    } else if (json_is_real(v)) {
        printf("%.9g", json_real_value(v));
    } else {
        json_dumpf(v, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
    }
}

static void print_value(const json_t *v)
{
    size_t i;
    const json_t *item;
    if (!json_is_array(v)) {
        print_scalar(v);
        return;
    }
    json_array_foreach(v, i, item)
    {
        if (i > 0) putchar(',');
        print_scalar(item);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: json_pick PATH < TEXT\n");
        return 1;
    }
    json_error_t why;
    json_t *text = json_loadf(stdin, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (text == NULL) {
        fprintf(stderr, "json_pick: line %d: %s\n", why.line, why.text);
        return 1;
    }
    const json_t *v = text;
    for (char *key = strtok(argv[1], "."); key != NULL && v != NULL; key = strtok(NULL, ".")) {
        v = step_into(v, key);
    }
    if (v != NULL) print_value(v);
    int status = v == NULL || ferror(stdout) != 0;
    json_decref(text);
    return status;
}
