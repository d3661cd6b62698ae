/* flight - see flight.h. */
#include "coordinator/line/flight.h"

#include <stdlib.h>

int flight_open(struct flight *f, const struct flight_limits *lim, struct err *err)
{
    *f = (struct flight){
        .token = calloc(lim->rows_max, sizeof *f->token),
        .seq = calloc(lim->rows_max, sizeof *f->seq),
        .pos = calloc(lim->rows_max, sizeof *f->pos),
        .wanted = calloc(lim->rows_max, sizeof *f->wanted),
        .commands = calloc(lim->commands_max, sizeof *f->commands),
        .needs = calloc(lim->wanted_max, sizeof *f->needs),
        .fetches = calloc(lim->credits, sizeof *f->fetches),
        .heads = calloc(lim->wanted_max, sizeof *f->heads),
        .fetch_heads = calloc(lim->credits, sizeof *f->fetch_heads),
        .parts = calloc(lim->rows_max, sizeof *f->parts),
    };
    CHECK(f->token != NULL && f->seq != NULL && f->pos != NULL && f->wanted != NULL &&
              f->commands != NULL && f->needs != NULL && f->fetches != NULL && f->heads != NULL &&
              f->fetch_heads != NULL && f->parts != NULL,
          err, ERR_MEMORY, "no memory for a batch of %u rows", lim->rows_max);
    return ERR_NONE;
}

void flight_close(struct flight *f)
{
    free(f->token);
    free(f->seq);
    free(f->pos);
    free(f->wanted);
    free(f->commands);
    free(f->needs);
    free(f->fetches);
    free(f->heads);
    free(f->fetch_heads);
    free(f->parts);
    *f = (struct flight){0};
}

const struct flight_head *flight_head_at(const struct flight *f, uint32_t k)
{
    return k < f->n_wanted ? &f->heads[k] : &f->fetch_heads[k - f->n_wanted];
}

void flight_clear(struct flight *f, uint64_t id)
{
    f->id = id;
    f->decodes = f->as_f32 = false;
    f->begun_ns = f->idle_ns = f->seen = 0;
    f->n_rows = f->n_wanted = f->n_commands = f->n_fetches = f->n_parts = 0;
    f->n_pairs = f->n_raw_rows = f->n_adjusts = 0;
}
