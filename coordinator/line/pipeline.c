/* pipeline - see pipeline.h. */
#include "coordinator/line/pipeline.h"

#include "engine/clock.h"
#include "proto/codec.h"
#include "proto/frame_sizes.h"

#include <stdlib.h>

struct pipeline {
    struct link *link;
    struct codec *out, *home;
    struct flight_limits limits;
    struct flight *flights; /* [credits], a ring: first is the oldest in the air */
    uint32_t first, in_air;
    uint64_t next_id;
    struct message message; /* the RESULT at hand */
    struct journal *journal;
    bool waiting; /* no RESULT was there at the last look */
};

int pipeline_open(struct pipeline **out, struct link *l, const struct flight_limits *limits,
                  struct journal *journal, struct err *err)
{
    struct pipeline *p = calloc(1, sizeof *p);
    CHECK(p != NULL, err, ERR_MEMORY, "no memory for the batches in flight");
    p->link = l;
    p->journal = journal;
    p->limits = *limits;
    p->next_id = 1;
    p->flights = calloc(limits->credits, sizeof *p->flights);
    int rc = p->flights != NULL ? ERR_NONE
                                : err_set(err, ERR_MEMORY, "no memory for the batches in flight");
    for (uint32_t i = 0; rc == ERR_NONE && i < limits->credits; i++)
        rc = flight_open(&p->flights[i], limits, err);
    uint32_t head_max =
        frame_result_head_max(limits->wanted_max + limits->credits, limits->n_vocab);
    if (rc == ERR_NONE) rc = codec_open(&p->home, head_max, limits->n_vocab, err);
    if (rc == ERR_NONE) rc = codec_open(&p->out, BATCH_HEAD_MAX, 0, err);
    if (rc != ERR_NONE) {
        pipeline_close(p);
        return rc;
    }
    *out = p;
    return ERR_NONE;
}

void pipeline_close(struct pipeline *p)
{
    if (p == NULL) return;
    if (p->flights != NULL)
        for (uint32_t i = 0; i < p->limits.credits; i++) flight_close(&p->flights[i]);
    free(p->flights);
    codec_close(p->out);
    codec_close(p->home);
    free(p);
}

struct flight *pipeline_free_flight(struct pipeline *p)
{
    if (p->in_air == p->limits.credits) return NULL;
    struct flight *f = &p->flights[(p->first + p->in_air) % p->limits.credits];
    flight_clear(f, p->next_id);
    f->begun_ns = clock_now_ns();
    return f;
}

int pipeline_send(struct pipeline *p, struct flight *f, uint64_t oldest_held, struct err *err)
{
    uint64_t oldest = p->in_air > 0 ? p->flights[p->first].id : f->id;
    struct message m = {.type = MESSAGE_BATCH,
                        .u.batch = {.id = f->id,
                                    .release_before = oldest < oldest_held ? oldest : oldest_held,
                                    .idle_ns = f->idle_ns,
                                    .as_f32 = f->as_f32,
                                    .batch = {.n_rows = f->n_rows,
                                              .n_wanted = f->n_wanted,
                                              .n_commands = f->n_commands,
                                              .token = f->token,
                                              .seq = f->seq,
                                              .pos = f->pos,
                                              .wanted = f->wanted,
                                              .commands = f->commands},
                                    .needs = f->needs,
                                    .fetches = f->fetches,
                                    .n_fetches = f->n_fetches}};
    size_t capacity, len;
    uint8_t *frame;
    while ((frame = link_send_begin(p->link, LINK_DATA, 0, &capacity)) == NULL)
        link_wait(p->link, 1000);
    TRY(codec_pack(p->out, &m, 0, frame, capacity, &len, err));
    const uint64_t sent_ns = clock_now_ns();
    TRY(link_send(p->link, LINK_DATA, 0, len, err));
    journal_add_flight(p->journal, &(struct journal_flight){.id = f->id,
                                                            .rows = f->n_rows,
                                                            .seen = f->seen,
                                                            .sent_bytes = (uint32_t)len,
                                                            .decodes = f->decodes,
                                                            .begun_ns = f->begun_ns,
                                                            .sent_ns = sent_ns,
                                                            .done_ns = clock_now_ns()});
    p->in_air++;
    p->next_id++;
    return ERR_NONE;
}

static int check_result(const struct pipeline *p, const struct flight *f, struct err *err)
{
    const struct msg_result *r = &p->message.u.result;
    CHECK(p->message.type == MESSAGE_RESULT, err, ERR_PEER,
          "message type %d came home, want a result", (int)p->message.type);
    CHECK(p->in_air > 0 && r->id == f->id, err, ERR_PEER,
          "the result of batch %llu came home, want batch %llu", (unsigned long long)r->id,
          (unsigned long long)f->id);
    CHECK(r->n_heads == f->n_wanted + f->n_fetches, err, ERR_PEER,
          "batch %llu came home with %u answers, want %u", (unsigned long long)r->id, r->n_heads,
          f->n_wanted + f->n_fetches);
    for (uint32_t k = 0; k < r->n_heads; k++)
        for (uint32_t i = 0; i < r->heads[k].n; i++)
            CHECK(r->heads[k].ids[i] >= 0 && (uint32_t)r->heads[k].ids[i] < p->limits.n_vocab, err,
                  ERR_PEER, "batch %llu came home with token %d, the vocabulary has %u",
                  (unsigned long long)r->id, r->heads[k].ids[i], p->limits.n_vocab);
    return ERR_NONE;
}

int pipeline_receive(struct pipeline *p, struct flight **f, const struct msg_result **result,
                     struct err *err)
{
    *f = NULL;
    int from;
    const uint8_t *frame;
    size_t len;
    TRY(link_receive(p->link, LINK_DATA, &from, &frame, &len, err));
    const bool waited = p->waiting;
    p->waiting = frame == NULL;
    if (frame == NULL) return ERR_NONE;
    const uint64_t home_ns = clock_now_ns();
    link_made_progress(p->link);
    struct frame_view view;
    TRY(codec_unpack(p->home, frame, len, &p->message, &view, err));
    TRY(check_result(p, &p->flights[p->first], err));
    *f = &p->flights[p->first];
    struct journal_flight *noted = journal_flight(p->journal, (*f)->id);
    noted->waited = waited;
    noted->home_bytes = (uint32_t)len;
    noted->home_ns = home_ns;
    *result = &p->message.u.result;
    return ERR_NONE;
}

void pipeline_land(struct pipeline *p)
{
    journal_flight(p->journal, p->message.u.result.id)->landed_ns = clock_now_ns();
    p->first = (p->first + 1) % p->limits.credits;
    p->in_air--;
}

void pipeline_release(struct pipeline *p)
{
    link_receive_done(p->link, LINK_DATA);
}

uint32_t pipeline_in_air(const struct pipeline *p)
{
    return p->in_air;
}

uint32_t pipeline_decode_in_air(const struct pipeline *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->in_air; i++)
        n += p->flights[(p->first + i) % p->limits.credits].decodes;
    return n;
}
