/* scheduler_rig - a scheduler by itself: no link, no stages. Flights land in order, at once or when
 * the caller likes, and every wanted row gets a token that follows from its sequence
 * and position. */
#ifndef TANDEM_TESTS_COORDINATOR_SCHEDULER_RIG_H
#define TANDEM_TESTS_COORDINATOR_SCHEDULER_RIG_H

#include "coordinator/line/scheduler.h"

#include <stdlib.h>

enum { RIG_VOCAB = 1000, RIG_CREDITS_MAX = 8, RIG_ROWS_MAX = 512 };

struct rig {
    struct scheduler_config config;
    struct block_tables *tables;
    struct cost_model *costs;
    struct scheduler *scheduler;
    struct flight flights[RIG_CREDITS_MAX];
    uint64_t next_id;
    uint32_t first, in_air;
    uint64_t n_batches, n_rows;
};

/* rig_open_window() - n_blocks in the class that keeps everything, n_window_blocks in one with a
 * window; 0: there is no such class. Aborts where memory is missing. */
static inline void rig_open_window(struct rig *r, uint32_t n_stages, uint32_t n_seqs,
                                   uint32_t n_blocks, uint32_t window, uint32_t n_window_blocks)
{
    struct err err;
    *r = (struct rig){.next_id = 1};
    const struct block_tables_config tables = {.n_classes = n_window_blocks > 0 ? 2 : 1,
                                               .window = {0, window},
                                               .n_blocks = {n_blocks, n_window_blocks},
                                               .share = true};
    if (block_tables_open(&r->tables, &tables, &err) != ERR_NONE) abort();
    if (cost_model_open(&r->costs, n_stages, &err) != ERR_NONE) abort();
    r->config = (struct scheduler_config){.n_stages = n_stages,
                                          .n_seqs = n_seqs,
                                          .rows_max = RIG_ROWS_MAX,
                                          .costs = r->costs,
                                          .wanted_max = n_seqs,
                                          .credits = n_stages + 1,
                                          .n_vocab = RIG_VOCAB,
                                          .n_kv_classes = tables.n_classes,
                                          .tables = r->tables};
    if (scheduler_open(&r->scheduler, &r->config, &err) != ERR_NONE) abort();
    const struct flight_limits limits = scheduler_limits(r->scheduler);
    for (uint32_t i = 0; i < r->config.credits; i++)
        if (flight_open(&r->flights[i], &limits, &err) != ERR_NONE) abort();
}

static inline void rig_open(struct rig *r, uint32_t n_stages, uint32_t n_seqs, uint32_t n_blocks)
{
    rig_open_window(r, n_stages, n_seqs, n_blocks, 0, 0);
}

static inline void rig_close(struct rig *r)
{
    for (uint32_t i = 0; i < r->config.credits; i++) flight_close(&r->flights[i]);
    scheduler_close(r->scheduler);
    cost_model_close(r->costs);
    block_tables_close(r->tables);
}

static inline struct sequence *rig_submit(struct rig *r, const int32_t *prompt, uint32_t n_prompt,
                                          uint32_t max_tokens)
{
    struct err err;
    struct sequence *s;
    const struct line_request request = {.prompt = prompt,
                                         .n_prompt = n_prompt,
                                         .sampling = sampling_default(),
                                         .max_tokens = max_tokens};
    const uint32_t number = scheduler_count(r->scheduler);
    if (sequence_open(&s, &request, number, 1U << 20, RIG_VOCAB, &err) != ERR_NONE) abort();
    if (scheduler_add(r->scheduler, s, &err) != ERR_NONE) abort();
    return s;
}

/* rig_launch() - fill one flight; false where nothing should go now. */
static inline bool rig_launch(struct rig *r)
{
    if (r->in_air == r->config.credits) return false;
    uint32_t decode_in_air = 0;
    for (uint32_t i = 0; i < r->in_air; i++)
        decode_in_air += r->flights[(r->first + i) % r->config.credits].decodes;
    struct flight *f = &r->flights[(r->first + r->in_air) % r->config.credits];
    flight_clear(f, r->next_id);
    if (!scheduler_fill(r->scheduler, f, r->in_air, decode_in_air)) return false;
    r->next_id++;
    r->in_air++;
    r->n_batches++;
    r->n_rows += f->n_rows;
    return true;
}

static inline void rig_tell(struct rig *r)
{
    for (struct sequence *s; (s = scheduler_next_done(r->scheduler)) != NULL;)
        scheduler_tell_done(r->scheduler, s);
}

/* rig_land() - the oldest flight comes home. Finished sequences are told. */
static inline void rig_land(struct rig *r)
{
    struct flight *f = &r->flights[r->first];
    for (uint32_t k = 0; k < f->n_wanted; k++) {
        struct sequence *s = f->heads[k].sequence;
        if (s->state == SEQUENCE_DONE) continue;
        const uint64_t token = (s->request * 7919U + f->heads[k].position) % RIG_VOCAB;
        if (sequence_add_token(s, (int32_t)token) == SEQUENCE_FULL)
            scheduler_finish(r->scheduler, s, LINE_FINISH_LENGTH);
    }
    scheduler_land(r->scheduler, f);
    r->first = (r->first + 1) % r->config.credits;
    r->in_air--;
    rig_tell(r);
}

/* rig_run() - until everybody is finished. */
static inline void rig_run(struct rig *r)
{
    while (!scheduler_idle(r->scheduler)) {
        while (rig_launch(r)) continue;
        rig_land(r);
    }
}

#endif
