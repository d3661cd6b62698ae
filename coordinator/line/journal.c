/* journal - see journal.h. */
#include "coordinator/line/journal.h"

#include <stdlib.h>

enum {
    RECORDS_SHORT = 256,       /* of each stage */
    RECORDS_LONG = 65536,      /* of each stage at most, */
    RECORDS_LINE_MAX = 1 << 20 /* and so many in all */
};

struct stage_pages {
    struct msg_account *accounts; /* [capacity], batch id at id % capacity */
    struct msg_layer_mark *marks; /* [marks_max], a ring */
    uint64_t n_marks;             /* that ever came */
    struct clock_pair clock;
};

struct journal {
    uint32_t n_stages;
    uint64_t capacity, marks_max;
    uint64_t last;                  /* batch that was added */
    struct journal_flight *flights; /* [capacity], batch id at id % capacity */
    struct stage_pages *stages;     /* [n_stages] */
};

static bool take_pages(struct journal *j)
{
    j->flights = calloc(j->capacity, sizeof *j->flights);
    j->stages = calloc(j->n_stages, sizeof *j->stages);
    if (j->flights == NULL || j->stages == NULL) return false;
    for (uint32_t i = 0; i < j->n_stages; i++) {
        struct stage_pages *s = &j->stages[i];
        s->accounts = calloc(j->capacity, sizeof *s->accounts);
        if (j->marks_max > 0) s->marks = calloc(j->marks_max, sizeof *s->marks);
        if (s->accounts == NULL || (j->marks_max > 0 && s->marks == NULL)) return false;
    }
    return true;
}

int journal_open(struct journal **out, uint32_t n_stages, enum journal_depth depth, struct err *err)
{
    struct journal *j = calloc(1, sizeof *j);
    CHECK(j != NULL, err, ERR_MEMORY, "no memory for the journal");
    j->n_stages = n_stages;
    uint64_t share = RECORDS_LINE_MAX / (n_stages + 1);
    if (share > RECORDS_LONG) share = RECORDS_LONG;
    if (share < RECORDS_SHORT || depth == JOURNAL_SHORT) share = RECORDS_SHORT;
    j->capacity = share;
    if (depth == JOURNAL_LAYERS) j->marks_max = 4 * share;
    if (!take_pages(j)) {
        journal_close(j);
        return err_set(err, ERR_MEMORY, "no memory for the journal of %u stages", n_stages);
    }
    *out = j;
    return ERR_NONE;
}

void journal_close(struct journal *j)
{
    if (j == NULL) return;
    for (uint32_t i = 0; j->stages != NULL && i < j->n_stages; i++) {
        free(j->stages[i].accounts);
        free(j->stages[i].marks);
    }
    free(j->stages);
    free(j->flights);
    free(j);
}

void journal_add_flight(struct journal *j, const struct journal_flight *f)
{
    j->flights[f->id % j->capacity] = *f;
    j->last = f->id;
}

const struct journal_flight *journal_find_flight(const struct journal *j, uint64_t id)
{
    const struct journal_flight *f = &j->flights[id % j->capacity];
    return id != 0 && f->id == id ? f : NULL;
}

struct journal_flight *journal_flight(struct journal *j, uint64_t id)
{
    struct journal_flight *f = &j->flights[id % j->capacity];
    return id != 0 && f->id == id ? f : NULL;
}

void journal_note(struct journal *j, uint32_t stage, const struct msg_heartbeat *beat)
{
    struct stage_pages *s = &j->stages[stage];
    for (uint32_t i = 0; i < beat->n_accounts; i++)
        s->accounts[beat->accounts[i].batch_id % j->capacity] = beat->accounts[i];
    for (uint32_t i = 0; i < beat->n_marks && j->marks_max > 0; i++)
        s->marks[s->n_marks++ % j->marks_max] = beat->marks[i];
}

const struct msg_account *journal_account(const struct journal *j, uint32_t stage, uint64_t id)
{
    const struct msg_account *a = &j->stages[stage].accounts[id % j->capacity];
    return id != 0 && a->batch_id == id ? a : NULL;
}

uint64_t journal_first(const struct journal *j)
{
    return j->last > j->capacity ? j->last - j->capacity + 1 : 1;
}

uint64_t journal_last(const struct journal *j)
{
    return j->last;
}

uint64_t journal_mark_count(const struct journal *j, uint32_t stage)
{
    uint64_t n = j->stages[stage].n_marks;
    return n < j->marks_max ? n : j->marks_max;
}

const struct msg_layer_mark *journal_mark_at(const struct journal *j, uint32_t stage, uint64_t i)
{
    const struct stage_pages *s = &j->stages[stage];
    return &s->marks[(s->n_marks - journal_mark_count(j, stage) + i) % j->marks_max];
}

struct clock_pair *journal_clock_pair(struct journal *j, uint32_t stage)
{
    return &j->stages[stage].clock;
}

const struct clock_pair *journal_find_clock_pair(const struct journal *j, uint32_t stage)
{
    return &j->stages[stage].clock;
}

uint64_t journal_clock(const struct journal *j, uint32_t stage, uint64_t stage_ns)
{
    return clock_pair_convert(&j->stages[stage].clock, stage_ns);
}
