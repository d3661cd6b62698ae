/* batch_plan - what a batch has to do: which requests there are, which are bad, and which are done
 * already.
 *
 * Stations before: batch_input (the requests), batch_output (what an earlier start wrote). Station
 * after: batch. */
#ifndef TANDEM_COORDINATOR_FRONT_BATCH_PLAN_H
#define TANDEM_COORDINATOR_FRONT_BATCH_PLAN_H

#include "coordinator/front/batch_input.h"
#include "coordinator/front/batch_output.h"

enum batch_state {
    BATCH_TO_DO,
    BATCH_BAD,  /* it will have an error record */
    BATCH_DONE, /* its record is in the output */
};

struct batch_entry {
    struct batch_place place;
    enum batch_state state;
    uint32_t n_prompt;
    int32_t n_tokens; /* as in struct batch_request */
    uint64_t digest;  /* batch_request_digest() */
    /* of a bad one */
    enum err_code code;
    char *why;  /* NULL: of no bad one; stays when that is done */
    json_t *id; /* NULL: none, or none that can be used */
};

struct batch_plan {
    struct batch_entry *entries; /* [n], in the order of their lines */
    uint32_t n, capacity;
    json_t *by_id;      /* id as JSON text → index of its entry */
    uint32_t n_strange; /* records in the output that no request has */
    uint64_t shared;    /* of what decides all results alike: batch_plan_share() */
    const char *out;    /* the output's name, for batch_plan_note(); the caller's to set */
};

/* batch_plan_read() - all of in. batch_plan_free() afterwards, also after an error. Returns
 * ERR_FILE, ERR_MEMORY, ERR_CAPACITY: what is wrong with one request is no error. */
int batch_plan_read(struct batch_plan *p, struct batch_input *in, struct err *err);
void batch_plan_free(struct batch_plan *p);

/* batch_plan_judge() - is what went wrong with a request its own fault? Else the whole batch ends.
 */
bool batch_plan_judge(int code);

/* batch_plan_refuse() - entry i is bad, for this reason; id may be NULL. ERR_MEMORY. */
int batch_plan_refuse(struct batch_plan *p, uint32_t i, const json_t *id, const struct err *why,
                      struct err *err);

/* batch_plan_share() - before batch_plan_note() and batch_plan_key(): what decides the results
 * beside the requests, which is the model, the settings that change numbers, and n_ctx where the
 * model turns positions otherwise in a long context. */
void batch_plan_share(struct batch_plan *p, const struct session *s, uint32_t n_ctx);

/* batch_plan_key() - what decides the result of e, as 16 hex digits and a NUL. */
enum { BATCH_KEY_BYTES = 17 };
void batch_plan_key(const struct batch_plan *p, const struct batch_entry *e,
                    char key[BATCH_KEY_BYTES]);

/* batch_plan_note() - a batch_record_fn: the entry of this record is done. A result counts for its
 * id, and must have the key of its request: else ERR_USAGE. An error record counts for its line,
 * and only while that is bad in the same way: who mends the line gets it run. ctx: the plan. */
int batch_plan_note(void *ctx, const json_t *record, uint32_t number, struct err *err);

/* batch_plan_need() - positions that the longest request asks for, text and all; until_full: what
 * -1 counts. */
uint64_t batch_plan_need(const struct batch_plan *p, uint32_t until_full);
uint32_t batch_plan_count(const struct batch_plan *p, enum batch_state state);

/* batch_plan_check() - of all requests, none that could be run is an error, with the code of the
 * first one's: a batch without a single result is no success. One without requests is in order.
 * path: the batch's name. */
int batch_plan_check(const struct batch_plan *p, const char *path, struct err *err);

/* batch_plan_error() - the error record of a bad entry. NULL: no memory. batch_plan_id(): the id
 * that the records of a request have: its own, or the number of its line; a new reference. */
json_t *batch_plan_error(const struct batch_entry *e);
json_t *batch_plan_id(const json_t *id, const struct batch_place *place);

#endif
