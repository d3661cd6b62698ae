/* bench_report - see bench_report.h; the table for people is in bench_table.c. */
#include "coordinator/front/bench_report.h"

#include "coordinator/front/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, COUNT, REAL };

struct column {
    enum kind kind;
    const char *name;
    size_t offset; /* in its row */
};

struct table {
    const char *member; /* in JSON: an array of objects */
    bool is_one;        /* or one object */
    const char *row;    /* in CSV, under "table" */
    const struct column *columns;
    size_t n_columns, row_bytes;
    size_t rows_offset, n_offset; /* in struct bench_results */
};

#define COLUMN_OF_STAGE(kind, name) {kind, #name, offsetof(struct bench_stage, name)},
#define COLUMN_OF_HOP(kind, name) {kind, #name, offsetof(struct bench_hop, name)},
#define COLUMN_OF_RUN(kind, name) {kind, #name, offsetof(struct bench_run, name)},
#define COLUMN_OF_LIMIT(kind, name) {kind, #name, offsetof(struct bench_limit, name)},
#define COLUMN_OF_WIRE(kind, name) {kind, #name, offsetof(struct bench_wire, name)},
static const struct column stage_columns[] = {BENCH_STAGE(COLUMN_OF_STAGE)};
static const struct column hop_columns[] = {BENCH_HOP(COLUMN_OF_HOP)};
static const struct column run_columns[] = {BENCH_RUN(COLUMN_OF_RUN)};
static const struct column limit_columns[] = {BENCH_LIMIT(COLUMN_OF_LIMIT)};
static const struct column wire_columns[] = {BENCH_WIRE(COLUMN_OF_WIRE)};

#define TABLE(row, plural, is_one)                                                                 \
    {                                                                                              \
#plural, is_one, #row, row##_columns,                                                      \
            sizeof row##_columns / sizeof row##_columns[0], sizeof(struct bench_##row),            \
                                                        offsetof(struct bench_results, plural),    \
                                                        offsetof(struct bench_results, n_##plural) \
    }
static const struct table tables[] = {
    TABLE(stage, stages, false), TABLE(hop, hops, false), TABLE(run, runs, false),
    TABLE(limit, limit, false),  TABLE(wire, wire, true),
};
enum { N_TABLES = sizeof tables / sizeof tables[0] };

static size_t count_rows(const struct bench_results *r, const struct table *t)
{
    size_t n;
    memcpy(&n, (const char *)r + t->n_offset, sizeof n);
    return n;
}

static const char *row_at(const struct bench_results *r, const struct table *t, size_t i)
{
    const char *rows;
    memcpy(&rows, (const char *)r + t->rows_offset, sizeof rows);
    return rows + i * t->row_bytes;
}

/* A member of a row. */
union value {
    bench_TEXT text;
    bench_COUNT count;
    bench_REAL real;
};

static union value value_of(const char *row, const struct column *c)
{
    union value v = {0};
    switch (c->kind) {
    case TEXT:
        memcpy(&v.text, row + c->offset, sizeof v.text);
        break;
    case COUNT:
        memcpy(&v.count, row + c->offset, sizeof v.count);
        break;
    case REAL:
        memcpy(&v.real, row + c->offset, sizeof v.real);
        break;
    }
    return v;
}

/* ---- JSON ---- */

static json_t *value_json(const char *row, const struct column *c)
{
    const union value v = value_of(row, c);
    if (c->kind == TEXT) return output_json_text(v.text, strlen(v.text));
    if (c->kind == COUNT) return json_integer((json_int_t)v.count);
    return isnan(v.real) ? json_null() : json_real(v.real);
}

static json_t *row_json(const char *row, const struct table *t)
{
    json_t *object = json_object();
    int failed = object == NULL;
    for (size_t i = 0; i < t->n_columns; i++)
        failed |= json_object_set_new(object, t->columns[i].name, value_json(row, &t->columns[i]));
    if (failed == 0) return object;
    json_decref(object);
    return NULL;
}

static json_t *table_json(const struct bench_results *r, const struct table *t)
{
    if (t->is_one) return row_json(row_at(r, t, 0), t);
    json_t *array = json_array();
    int failed = array == NULL;
    for (size_t i = 0; i < count_rows(r, t); i++)
        failed |= json_array_append_new(array, row_json(row_at(r, t, i), t));
    if (failed == 0) return array;
    json_decref(array);
    return NULL;
}

int bench_write_json(FILE *out, const struct bench_results *r, struct err *err)
{
    json_t *root = json_object();
    int failed = root == NULL;
    failed |= json_object_set_new(root, "version", json_string(r->version));
    failed |= json_object_set_new(root, "model", output_json_text(r->model, strlen(r->model)));
    failed |= json_object_set_new(root, "ranks", json_integer((json_int_t)r->ranks));
    for (size_t i = 0; i < N_TABLES; i++)
        failed |= json_object_set_new(root, tables[i].member, table_json(r, &tables[i]));
    char *text = failed != 0 ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    CHECK(text != NULL, err, ERR_MEMORY, "no memory for the JSON object");
    fprintf(out, "%s\n", text);
    free(text);
    return ERR_NONE;
}

/* ---- CSV ---- */

static void write_text(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static const struct column *find_column(const struct table *t, const char *name)
{
    for (size_t i = 0; i < t->n_columns; i++)
        if (strcmp(t->columns[i].name, name) == 0) return &t->columns[i];
    return NULL;
}

/* Two tables may have a column of the same name: it stands once, where it comes first. */
static bool is_first(size_t table, const char *name)
{
    for (size_t i = 0; i < table; i++)
        if (find_column(&tables[i], name) != NULL) return false;
    return true;
}

static void write_value(FILE *out, const char *row, const struct column *c)
{
    const union value v = value_of(row, c);
    if (c->kind == TEXT)
        write_text(out, v.text);
    else if (c->kind == COUNT)
        fprintf(out, "%" PRIu64, v.count);
    else if (!isnan(v.real))
        fprintf(out, "%.9g", v.real);
}

/* The header (t is NULL), or a row of t. */
static void write_line(FILE *out, const struct table *t, const char *row)
{
    for (size_t i = 0; i < N_TABLES; i++) {
        for (size_t k = 0; k < tables[i].n_columns; k++) {
            const char *name = tables[i].columns[k].name;
            if (!is_first(i, name)) continue;
            fputc(',', out);
            const struct column *c = t == NULL ? NULL : find_column(t, name);
            if (t == NULL)
                fputs(name, out);
            else if (c != NULL)
                write_value(out, row, c);
        }
    }
    fputc('\n', out);
}

void bench_write_csv(FILE *out, const struct bench_results *r)
{
    fputs("table,version,model,ranks", out);
    write_line(out, NULL, NULL);
    for (size_t i = 0; i < N_TABLES; i++) {
        for (size_t k = 0; k < count_rows(r, &tables[i]); k++) {
            fprintf(out, "%s,%s,", tables[i].row, r->version);
            write_text(out, r->model);
            fprintf(out, ",%" PRIu64, r->ranks);
            write_line(out, &tables[i], row_at(r, &tables[i], k));
        }
    }
}
