/* batch_plan - see batch_plan.h. */
#include "coordinator/front/batch_plan.h"

#include "coordinator/front/output.h"
#include "engine/digest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void batch_plan_free(struct batch_plan *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        free(p->entries[i].why);
        json_decref(p->entries[i].id);
    }
    free(p->entries);
    json_decref(p->by_id);
}

bool batch_plan_judge(int code)
{
    return code == ERR_USAGE || code == ERR_CAPACITY;
}

json_t *batch_plan_id(const json_t *id, const struct batch_place *place)
{
    return id != NULL ? json_deep_copy(id) : json_integer(place->line);
}

int batch_plan_refuse(struct batch_plan *p, uint32_t i, const json_t *id, const struct err *why,
                      struct err *err)
{
    struct batch_entry *e = &p->entries[i];
    char *text = strdup(why->text);
    CHECK(text != NULL, err, ERR_MEMORY, "no memory for what is wrong with line %u", e->place.line);
    free(e->why);
    json_decref(e->id);
    e->state = BATCH_BAD;
    e->code = why->code;
    e->why = text;
    e->id = id == NULL ? NULL : json_deep_copy(id);
    return ERR_NONE;
}

static char *key_of(const json_t *id)
{
    return json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT);
}

/* claim_id() - the first line with an id has it. ERR_USAGE: another line does. */
static int claim_id(struct batch_plan *p, uint32_t i, const json_t *own_id, struct err *err)
{
    json_t *id = batch_plan_id(own_id, &p->entries[i].place);
    char *key = id == NULL ? NULL : key_of(id);
    json_decref(id);
    CHECK(key != NULL, err, ERR_MEMORY, "no memory for an id");
    int rc = ERR_NONE;
    const json_t *other = json_object_get(p->by_id, key);
    if (other != NULL)
        rc = err_set(err, ERR_USAGE, "the id %.100s is line %u's already", key,
                     p->entries[json_integer_value(other)].place.line);
    else if (json_object_set_new(p->by_id, key, json_integer(i)) != 0)
        rc = err_set(err, ERR_MEMORY, "no memory for an id");
    free(key);
    return rc;
}

static int add_entry(struct batch_plan *p, const struct batch_place *place, struct err *err)
{
    if (p->n == p->capacity) {
        const uint32_t capacity = p->capacity == 0 ? 64 : p->capacity * 2;
        struct batch_entry *more = realloc(p->entries, (size_t)capacity * sizeof *more);
        CHECK(more != NULL, err, ERR_MEMORY, "no memory for %u requests", capacity);
        p->entries = more;
        p->capacity = capacity;
    }
    p->entries[p->n++] = (struct batch_entry){.place = *place};
    return ERR_NONE;
}

/* check_length() - before anything is loaded. */
static int check_length(const struct session *s, const struct batch_request *r, struct err *err)
{
    const uint32_t most = session_context(s, UINT64_MAX);
    CHECK(r->ids.n <= most, err, ERR_CAPACITY, "the prompt has %zu tokens and the context holds %u",
          r->ids.n, most);
    return ERR_NONE;
}

/* digest_of() - the context that a request has when all its tokens fit is another's business. */
static int digest_of(const struct session *s, const struct batch_request *r, uint64_t *digest,
                     struct err *err)
{
    const uint32_t tokens_max = session_tokens_max(s, r->n_tokens);
    const uint64_t need = (uint64_t)r->ids.n + tokens_max;
    const uint32_t n_ctx = session_context(s, need);
    return batch_request_digest(r, tokens_max, n_ctx < need ? n_ctx : 0, digest, err);
}

/* plan_line() - the line at hand of in. */
static int plan_line(struct batch_plan *p, struct batch_input *in, const struct batch_place *place,
                     struct err *err)
{
    TRY(add_entry(p, place, err));
    const uint32_t i = p->n - 1;
    struct batch_request r;
    struct err why = {.code = ERR_NONE};
    int rc = batch_input_prepare(in, place, &r, &why);
    if (rc == ERR_NONE) rc = claim_id(p, i, r.id, &why);
    if (rc == ERR_NONE) rc = check_length(in->session, &r, &why);
    if (rc == ERR_NONE) rc = digest_of(in->session, &r, &p->entries[i].digest, &why);
    p->entries[i].n_prompt = (uint32_t)r.ids.n;
    p->entries[i].n_tokens = r.n_tokens;
    if (rc != ERR_NONE && batch_plan_judge(rc))
        rc = batch_plan_refuse(p, i, r.id, &why, err);
    else if (rc != ERR_NONE && err != NULL)
        *err = why;
    batch_request_free(&r);
    return rc;
}

int batch_plan_read(struct batch_plan *p, struct batch_input *in, struct err *err)
{
    *p = (struct batch_plan){.by_id = json_object()};
    CHECK(p->by_id != NULL, err, ERR_MEMORY, "no memory for a plan");
    for (;;) {
        struct batch_place place;
        bool end;
        TRY(batch_input_next(in, &place, &end, err));
        if (end) return ERR_NONE;
        TRY(plan_line(p, in, &place, err));
    }
}

/* find_line() - entries are in the order of their lines. */
static struct batch_entry *find_line(const struct batch_plan *p, json_int_t line)
{
    uint32_t low = 0, high = p->n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (p->entries[middle].place.line < line)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n && p->entries[low].place.line == line ? &p->entries[low] : NULL;
}

void batch_plan_share(struct batch_plan *p, const struct session *s, uint32_t n_ctx)
{
    const struct settings *set = s->settings;
    const bool is_long = n_ctx > s->model->hp.rope_ctx_orig &&
                         gguf_find_tensor(s->model->file, "rope_factors_long.weight") != NULL;
    const uint64_t shared[] = {s->model->digest,      s->model->sample,    (uint64_t)set->kv,
                               (uint64_t)set->matmul, (uint64_t)set->wire, is_long};
    p->shared = digest_bytes(shared, sizeof shared);
}

void batch_plan_key(const struct batch_plan *p, const struct batch_entry *e,
                    char key[BATCH_KEY_BYTES])
{
    const uint64_t both[] = {p->shared, e->digest};
    snprintf(key, BATCH_KEY_BYTES, "%016" PRIx64, digest_bytes(both, sizeof both));
}

static int note_error(struct batch_plan *p, const json_t *record, struct err *err)
{
    struct batch_entry *e = find_line(p, json_integer_value(json_object_get(record, "line")));
    if (e == NULL || e->state != BATCH_BAD) return ERR_NONE;
    json_t *now = batch_plan_error(e);
    CHECK(now != NULL, err, ERR_MEMORY, "no memory for an error record");
    if (json_equal(now, record)) e->state = BATCH_DONE;
    json_decref(now);
    return ERR_NONE;
}

int batch_plan_note(void *ctx, const json_t *record, uint32_t number, struct err *err)
{
    struct batch_plan *p = ctx;
    char want[BATCH_KEY_BYTES];
    if (json_object_get(record, "error") != NULL) return note_error(p, record, err);
    char *id = key_of(json_object_get(record, "id"));
    CHECK(id != NULL, err, ERR_MEMORY, "no memory for an id");
    const json_t *index = json_object_get(p->by_id, id);
    free(id);
    p->n_strange += index == NULL;
    if (index == NULL) return ERR_NONE;
    struct batch_entry *e = &p->entries[json_integer_value(index)];
    batch_plan_key(p, e, want);
    const char *key = json_string_value(json_object_get(record, "key"));
    CHECK(key != NULL && strcmp(key, want) == 0, err, ERR_USAGE,
          "%s: line %u is the result of another prompt, model or setting than line %u of the batch "
          "asks for (its key is not %s): name another file with -o",
          p->out, number, e->place.line, want);
    if (e->state == BATCH_TO_DO) e->state = BATCH_DONE;
    return ERR_NONE;
}

uint64_t batch_plan_need(const struct batch_plan *p, uint32_t until_full)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct batch_entry *e = &p->entries[i];
        const uint64_t need =
            (uint64_t)e->n_prompt + (e->n_tokens < 0 ? until_full : (uint32_t)e->n_tokens);
        if (e->state == BATCH_TO_DO && need > most) most = need;
    }
    return most;
}

uint32_t batch_plan_count(const struct batch_plan *p, enum batch_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) n += p->entries[i].state == state;
    return n;
}

int batch_plan_check(const struct batch_plan *p, const char *path, struct err *err)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->entries[i].why == NULL) return ERR_NONE;
    if (p->n == 0) return ERR_NONE;
    const struct batch_entry *e = &p->entries[0];
    return err_set(err, e->code, "%s: none of its %u requests can be run (line %u: %s): see %s",
                   path, p->n, e->place.line, e->why, p->out);
}

json_t *batch_plan_error(const struct batch_entry *e)
{
    return json_pack("{s:O?, s:I, s:{s:s, s:o}}", "id", e->id != NULL ? e->id : json_null(), "line",
                     (json_int_t)e->place.line, "error", "code", err_code_name(e->code), "message",
                     output_json_text(e->why, strlen(e->why)));
}
