/* wire_change - see wire_change.h. */
#include "coordinator/front/wire_change.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[WIRE_FORMAT_COUNT] = {"f32", "bf16", "q8_0"};

struct comparison {
    struct line *line;
    struct line_request request;
    uint32_t n_vocab;
    float *narrow; /* [n_prompt, n_vocab] scores of the narrow form */
    /* Squares, added up: of the differences, and of f32's scores around their mean. */
    double changed, spread;
    uint64_t first_differs;
};

/* find_first() - the best token; the lowest of equals, as a greedy sampler takes it. */
static uint32_t find_first(const float *row, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

/* compare_row() - f32's scores of a position with those of the narrow form. */
static void compare_row(struct comparison *c, const float *exact, const float *narrow)
{
    double mean = 0;
    for (uint32_t i = 0; i < c->n_vocab; i++) mean += (double)exact[i] / c->n_vocab;
    for (uint32_t i = 0; i < c->n_vocab; i++) {
        const double change = (double)narrow[i] - (double)exact[i], off = (double)exact[i] - mean;
        c->changed += change * change;
        c->spread += off * off;
    }
    c->first_differs += find_first(exact, c->n_vocab) != find_first(narrow, c->n_vocab);
}

/* run_prompt() - all its scores: kept, or compared with those that are. */
static int run_prompt(struct comparison *c, bool as_f32, struct err *err)
{
    uint32_t request, n_rows = 0;
    line_send_as_f32(c->line, as_f32);
    TRY(line_submit(c->line, &c->request, &request, err));
    for (bool none = false; !none;) {
        struct line_event ev;
        TRY(line_next(c->line, &ev, &none, err));
        if (none || ev.kind != LINE_EVENT_SCORES) continue;
        float *narrow = c->narrow + (size_t)ev.position * c->n_vocab;
        if (as_f32)
            compare_row(c, ev.head->raw, narrow);
        else
            memcpy(narrow, ev.head->raw, c->n_vocab * sizeof *narrow);
        n_rows++;
    }
    BUG_IF(n_rows != c->request.n_prompt, "bench: a row of scores is missing");
    return ERR_NONE;
}

static int compare_forms(struct comparison *c, struct err *err)
{
    TRY(run_prompt(c, false, err));
    TRY(run_prompt(c, true, err));
    line_send_as_f32(c->line, false);
    return ERR_NONE;
}

int wire_change_measure(struct bench_wire *out, struct line *ln, const struct model *m,
                        enum wire_format wire, const int32_t *prompt, uint32_t n, struct err *err)
{
    const bool has_hop = line_stage_count(ln) > 1;
    *out = (struct bench_wire){.format = names[wire],
                               .bytes_per_token = has_hop ? wire_row_bytes(wire, m->hp.n_embd) : 0};
    if (!has_hop || wire == WIRE_F32) return ERR_NONE;
    struct comparison c = {.line = ln,
                           .request = {.prompt = prompt,
                                       .n_prompt = n,
                                       .sampling = sampling_default(),
                                       .scores = LINE_SCORES_ROWS},
                           .n_vocab = m->hp.n_vocab};
    c.narrow = calloc((size_t)n * c.n_vocab, sizeof *c.narrow);
    CHECK(c.narrow != NULL, err, ERR_MEMORY, "no memory for the scores of %u positions", n);
    int rc = compare_forms(&c, err);
    free(c.narrow);
    out->rms = c.spread > 0 ? sqrt(c.changed / c.spread) : NAN;
    out->first_differs = c.first_differs;
    out->positions = n;
    return rc;
}
