/* batch_request - see batch_request.h. */
#include "coordinator/front/batch_request.h"

#include "engine/digest.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field of a line: where its value goes, and how it is read. */
struct field {
    const char *name;
    int (*take)(struct batch_request *r, const struct field *f, const json_t *v, struct err *err);
    size_t offset; /* of the target in struct batch_request, where take asks for it */
};

static void *target(struct batch_request *r, const struct field *f)
{
    return (char *)r + f->offset;
}

/* ---- one value each ---- */

static int take_float(struct batch_request *r, const struct field *f, const json_t *v,
                      struct err *err)
{
    const double x = json_number_value(v);
    CHECK(json_is_number(v) && fabs(x) <= 1e30, err, ERR_USAGE, "%s: want a number", f->name);
    *(float *)target(r, f) = (float)x;
    return ERR_NONE;
}

static int take_count(struct batch_request *r, const struct field *f, const json_t *v,
                      struct err *err)
{
    const json_int_t x = json_integer_value(v);
    CHECK(json_is_integer(v) && x >= 0 && x <= INT32_MAX, err, ERR_USAGE,
          "%s: want a whole number from 0 on", f->name);
    *(uint32_t *)target(r, f) = (uint32_t)x;
    return ERR_NONE;
}

static int take_max_tokens(struct batch_request *r, const struct field *f, const json_t *v,
                           struct err *err)
{
    const json_int_t x = json_integer_value(v);
    CHECK(json_is_integer(v) && x >= -1 && x <= INT32_MAX, err, ERR_USAGE,
          "%s: want a whole number from 0 on, or -1: until the context is full", f->name);
    r->n_tokens = (int32_t)x;
    return ERR_NONE;
}

static int take_flag(struct batch_request *r, const struct field *f, const json_t *v,
                     struct err *err)
{
    CHECK(json_is_boolean(v), err, ERR_USAGE, "%s: want true or false", f->name);
    *(bool *)target(r, f) = json_is_true(v);
    return ERR_NONE;
}

static int take_seed(struct batch_request *r, const struct field *f, const json_t *v,
                     struct err *err)
{
    CHECK(json_is_integer(v) && json_integer_value(v) >= 0, err, ERR_USAGE,
          "%s: want a whole number from 0 on", f->name);
    r->sampling.seed = (uint64_t)json_integer_value(v);
    r->seed_given = true;
    return ERR_NONE;
}

/* take_id() - an id that can be used is noted before anything else is looked at: see
 * batch_request_read(). */
static int take_id(struct batch_request *r, const struct field *f, const json_t *v, struct err *err)
{
    CHECK(json_is_integer(v) || json_is_string(v), err, ERR_USAGE,
          "%s: want a string or a whole number", f->name);
    CHECK(json_is_integer(v) || json_string_length(v) <= BATCH_ID_BYTES_MAX, err, ERR_USAGE,
          "%s: %zu bytes are more than the limit of %d", f->name, json_string_length(v),
          BATCH_ID_BYTES_MAX);
    r->id = v;
    return ERR_NONE;
}

static int take_prompt(struct batch_request *r, const struct field *f, const json_t *v,
                       struct err *err)
{
    CHECK(json_is_string(v), err, ERR_USAGE, "%s: want a string", f->name);
    r->text = json_string_value(v);
    r->text_len = json_string_length(v);
    return ERR_NONE;
}

static int take_ids(struct batch_request *r, const struct field *f, const json_t *v,
                    struct err *err)
{
    CHECK(json_is_array(v) && json_array_size(v) > 0, err, ERR_USAGE,
          "%s: want an array of one token id at least", f->name);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        const json_int_t x = json_integer_value(id);
        CHECK(json_is_integer(id) && x >= 0 && x <= INT32_MAX, err, ERR_USAGE,
              "%s: value %zu is no token id", f->name, i);
        TRY(token_list_push(&r->ids, (int32_t)x, err));
    }
    return ERR_NONE;
}

static int add_stop(struct batch_request *r, const struct field *f, const json_t *v,
                    struct err *err)
{
    CHECK(json_is_string(v), err, ERR_USAGE, "%s: want a string or an array of strings", f->name);
    const char *text = json_string_value(v);
    CHECK(text[0] != '\0' && strlen(text) == json_string_length(v), err, ERR_USAGE,
          "%s: a text to stop at is empty, or has a NUL in it", f->name);
    CHECK(r->n_stops < BATCH_STOPS_MAX, err, ERR_USAGE, "%s: more than %d texts to stop at",
          f->name, BATCH_STOPS_MAX);
    r->stops[r->n_stops++] = text;
    return ERR_NONE;
}

/* take_stops() - in place of those of the command line. */
static int take_stops(struct batch_request *r, const struct field *f, const json_t *v,
                      struct err *err)
{
    r->n_stops = 0;
    if (!json_is_array(v)) return add_stop(r, f, v, err);
    for (size_t i = 0; i < json_array_size(v); i++) TRY(add_stop(r, f, json_array_get(v, i), err));
    return ERR_NONE;
}

static int read_bias(const char *id_text, const json_t *v, struct logit_bias *b)
{
    char *end;
    errno = 0;
    const long id = strtol(id_text, &end, 10);
    const double bias = json_is_string(v) && strcmp(json_string_value(v), "-inf") == 0 ? -INFINITY
                        : json_is_number(v) ? json_number_value(v)
                                            : (double)NAN;
    if (id_text[0] < '0' || id_text[0] > '9' || *end != '\0' || errno != 0 || id > INT32_MAX)
        return -1;
    if (!(bias <= 1e30)) return -1;
    *b = (struct logit_bias){(int32_t)id, (float)bias};
    return 0;
}

/* take_biases() - behind those of the command line, because the last word on a token holds. */
static int take_biases(struct batch_request *r, const struct field *f, const json_t *v,
                       struct err *err)
{
    CHECK(json_is_object(v), err, ERR_USAGE, "%s: want an object, {\"ID\": BIAS}", f->name);
    struct logit_bias *more =
        realloc(r->bias, (r->sampling.n_bias + json_object_size(v) + 1) * sizeof *more);
    CHECK(more != NULL, err, ERR_MEMORY, "no memory for %zu logit biases", json_object_size(v));
    r->bias = more;
    const char *id;
    json_t *bias;
    json_object_foreach((json_t *)(uintptr_t)v, id, bias)
        CHECK(read_bias(id, bias, &r->bias[r->sampling.n_bias++]) == 0, err, ERR_USAGE,
              "%s: want {\"ID\": BIAS} with a number or \"-inf\" for token '%.40s'", f->name, id);
    return ERR_NONE;
}

/* ---- the line ---- */

#define AT(member) offsetof(struct batch_request, member)

static const struct field fields[] = {
    {"id", take_id, 0},
    {"prompt", take_prompt, 0},
    {"ids", take_ids, 0},
    {"max_tokens", take_max_tokens, 0},
    {"stop", take_stops, 0},
    {"ignore_eos", take_flag, AT(ignore_eos)},
    {"seed", take_seed, 0},
    {"temperature", take_float, AT(sampling.temperature)},
    {"top_k", take_count, AT(sampling.top_k)},
    {"top_p", take_float, AT(sampling.top_p)},
    {"min_p", take_float, AT(sampling.min_p)},
    {"typical_p", take_float, AT(sampling.typical_p)},
    {"repeat_penalty", take_float, AT(sampling.repeat_penalty)},
    {"frequency_penalty", take_float, AT(sampling.frequency_penalty)},
    {"presence_penalty", take_float, AT(sampling.presence_penalty)},
    {"repeat_last_n", take_count, AT(sampling.penalty_last_n)},
    {"logit_bias", take_biases, 0},
};

static const struct field *find_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

static int begin(struct batch_request *r, const struct settings *s, const struct logit_bias *base,
                 uint32_t n_base, struct err *err)
{
    *r = (struct batch_request){.sampling = s->sampling,
                                .seed_given = s->seed_given,
                                .ignore_eos = s->ignore_eos,
                                .n_tokens = s->n_tokens};
    CHECK(s->stops.n <= BATCH_STOPS_MAX, err, ERR_USAGE, "more than %d --stop", BATCH_STOPS_MAX);
    for (uint32_t i = 0; i < s->stops.n; i++) r->stops[r->n_stops++] = s->stops.items[i];
    r->bias = calloc((size_t)n_base + 1, sizeof *r->bias);
    CHECK(r->bias != NULL, err, ERR_MEMORY, "no memory for %u logit biases", n_base);
    if (n_base > 0) memcpy(r->bias, base, n_base * sizeof *base);
    r->sampling.n_bias = n_base;
    return ERR_NONE;
}

static int take_fields(struct batch_request *r, struct err *err)
{
    const char *name;
    json_t *value;
    const json_t *id = json_object_get(r->root, fields[0].name);
    if (id != NULL) TRY(take_id(r, &fields[0], id, err));
    json_object_foreach(r->root, name, value)
    {
        const struct field *f = find_field(name);
        CHECK(f != NULL, err, ERR_USAGE, "unknown field '%.40s'", name);
        TRY(f->take(r, f, value, err));
    }
    CHECK((r->text != NULL) != (r->ids.n > 0), err, ERR_USAGE,
          "want a prompt or ids, one of the two");
    r->sampling.bias = r->bias;
    return ERR_NONE;
}

int batch_request_read(struct batch_request *r, const char *line, size_t len,
                       const struct settings *settings, const struct logit_bias *base,
                       uint32_t n_base, struct err *err)
{
    json_error_t why;
    TRY(begin(r, settings, base, n_base, err));
    r->root = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    CHECK(r->root != NULL || json_error_code(&why) != json_error_out_of_memory, err, ERR_MEMORY,
          "no memory for a line of %zu bytes", len);
    CHECK(r->root != NULL, err, ERR_USAGE, "no JSON at byte %d: %s", why.position, why.text);
    CHECK(json_is_object(r->root), err, ERR_USAGE, "want a JSON object");
    return take_fields(r, err);
}

/* ---- the digest ---- */

/* spell() - every value with its length or its count, so that no two requests are spelled alike. */
static void spell(const struct batch_request *r, uint32_t tokens_max, uint32_t n_ctx, FILE *f)
{
    const struct sampling *p = &r->sampling;
    fprintf(f, "%u %u %d", tokens_max, n_ctx, r->ignore_eos);
    fprintf(f, " %a %a %a %a %a %a %a", (double)p->temperature, (double)p->top_p, (double)p->min_p,
            (double)p->typical_p, (double)p->repeat_penalty, (double)p->frequency_penalty,
            (double)p->presence_penalty);
    fprintf(f, " %u %u", p->top_k, p->penalty_last_n);
    if (r->seed_given && p->temperature > 0) fprintf(f, " seed %llu", (unsigned long long)p->seed);
    fprintf(f, " bias %u", p->n_bias);
    for (uint32_t i = 0; i < p->n_bias; i++)
        fprintf(f, " %d %a", p->bias[i].id, (double)p->bias[i].bias);
    fprintf(f, " stop %u", r->n_stops);
    for (uint32_t i = 0; i < r->n_stops; i++)
        fprintf(f, " %zu %s", strlen(r->stops[i]), r->stops[i]);
    fprintf(f, " ids %zu", r->ids.n);
    for (size_t i = 0; i < r->ids.n; i++) fprintf(f, " %d", r->ids.ids[i]);
}

int batch_request_digest(const struct batch_request *r, uint32_t tokens_max, uint32_t n_ctx,
                         uint64_t *digest, struct err *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (f != NULL) spell(r, tokens_max, n_ctx, f);
    const bool whole = f != NULL && !ferror(f);
    const bool closed = f != NULL && fclose(f) == 0;
    if (whole && closed) *digest = digest_bytes(text, len);
    free(text);
    CHECK(whole && closed, err, ERR_MEMORY, "no memory for the digest of a request");
    return ERR_NONE;
}

void batch_request_free(struct batch_request *r)
{
    json_decref(r->root);
    token_list_free(&r->ids);
    free(r->bias);
    *r = (struct batch_request){0};
}
