/* cost_model - see cost_model.h.
 *
 * Batches are put into classes by their number of rows, and a class is worth one point of the fit,
 * so that a thousand small batches do not outweigh the few large ones that the chunk is about. */
#include "coordinator/line/cost_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CLASSES = 16,      /* of sizes, by powers of two */
    CLASS_MEMORY = 16, /* a class forgets what is so many batches old, and weighs so much at most */
    ROWS_LEAST = 16,   /* smaller batches rather wait for memory: hardly the same law */
    SMALL_DIVISOR = 8, /* so they count that much less */
    USUAL_FIXED_ROWS = 32,  /* the fixed part is worth so many rows */
    CHUNK_STEP = 16,        /* rows that kernels take at once */
    TRIED_ROWS_MAX = 16384, /* over all stages */
    SLOWER_MAX = 4,         /* times that prompts may slow down text */
    PARTS = 3,
};

/* The means of one class. */
struct size_class {
    double weight, rows, seen, ns;
};

struct stage_costs {
    uint64_t next_id; /* the account to read next */
    struct size_class classes[CLASSES];
    struct cost cost;
    bool is_known; /* by a batch */
};

struct cost_model {
    uint32_t n_stages;
    struct stage_costs *stages;
    double *done_ns; /* [n_stages] for time_line() */
};

/* ---- the fit ---- */

/* solve() - m x = y for the first n parts, by elimination; m is positive definite. */
static void solve(double m[PARTS][PARTS], double y[PARTS], int n, double x[PARTS])
{
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) {
            const double f = m[k][i] / m[i][i];
            for (int l = i; l < n; l++) m[k][l] -= f * m[i][l];
            y[k] -= f * y[i];
        }
    memset(x, 0, PARTS * sizeof *x);
    for (int i = n; i-- > 0;) {
        x[i] = y[i];
        for (int l = i + 1; l < n; l++) x[i] -= m[i][l] * x[l];
        x[i] /= m[i][i];
    }
}

static double trust(const struct size_class *c)
{
    return c->rows < ROWS_LEAST ? c->weight / SMALL_DIVISOR : c->weight;
}

/* least_squares() - the parts x, in units of `unit`, whose sums miss the classes' costs least, as
 * shares of these; the usual x, 1 1 0, counts far less than any batch. */
static void least_squares(const struct size_class *classes, const struct cost *unit, int n,
                          double x[PARTS])
{
    const double usual = 0.002;
    double m[PARTS][PARTS] = {{usual, 0, 0}, {0, usual, 0}, {0, 0, usual}};
    double y[PARTS] = {usual, usual, 0};
    for (uint32_t k = 0; k < CLASSES; k++) {
        const struct size_class *c = &classes[k];
        if (c->weight == 0) continue;
        const double part[PARTS] = {unit->fixed_ns / c->ns, unit->row_ns * c->rows / c->ns,
                                    unit->seen_ns * c->seen / c->ns};
        for (int i = 0; i < PARTS; i++) {
            for (int l = 0; l < PARTS; l++) m[i][l] += trust(c) * part[i] * part[l];
            y[i] += trust(c) * part[i];
        }
    }
    solve(m, y, n, x);
}

/* usual_costs() - by the usual ratio: what a row costs, and a position seen as much as the row
 * itself. */
static struct cost usual_costs(const struct size_class *classes)
{
    double weight = 0, row_ns = 0, rows = 0, seen = 0;
    for (uint32_t k = 0; k < CLASSES; k++) {
        const struct size_class *c = &classes[k];
        weight += trust(c);
        row_ns += trust(c) * c->ns / (USUAL_FIXED_ROWS + c->rows);
        rows += trust(c) * c->rows;
        seen += trust(c) * c->seen;
    }
    if (weight == 0) return (struct cost){USUAL_FIXED_ROWS, 1, 0};
    row_ns /= weight;
    return (struct cost){USUAL_FIXED_ROWS * row_ns, row_ns, row_ns * rows / seen};
}

static struct cost fit(const struct size_class *classes)
{
    const double least = 0.02; /* of the usual: no part is nothing */
    const struct cost unit = usual_costs(classes);
    double x[PARTS];
    least_squares(classes, &unit, PARTS, x);
    if (x[2] < 0) least_squares(classes, &unit, PARTS - 1, x);
    for (int i = 0; i < PARTS - 1; i++)
        if (x[i] < least) x[i] = least;
    return (struct cost){x[0] * unit.fixed_ns, x[1] * unit.row_ns, x[2] * unit.seen_ns};
}

/* ---- learning ---- */

int cost_model_open(struct cost_model **out, uint32_t n_stages, struct err *err)
{
    struct cost_model *cm = calloc(1, sizeof *cm);
    struct stage_costs *stages = calloc(n_stages, sizeof *stages);
    double *done_ns = calloc(n_stages, sizeof *done_ns);
    if (cm == NULL || stages == NULL || done_ns == NULL) {
        free(cm);
        free(stages);
        free(done_ns);
        return err_set(err, ERR_MEMORY, "no memory for the costs of %u stages", n_stages);
    }
    *cm = (struct cost_model){.n_stages = n_stages, .stages = stages, .done_ns = done_ns};
    for (uint32_t i = 0; i < n_stages; i++) {
        stages[i].next_id = 1;
        stages[i].cost = usual_costs(stages[i].classes);
    }
    *out = cm;
    return ERR_NONE;
}

void cost_model_close(struct cost_model *cm)
{
    if (cm == NULL) return;
    free(cm->stages);
    free(cm->done_ns);
    free(cm);
}

void cost_model_add(struct cost_model *cm, uint32_t stage, uint32_t rows, uint64_t seen,
                    uint64_t ns)
{
    if (rows == 0 || ns == 0) return;
    uint32_t k = 31 - (uint32_t)__builtin_clz(rows);
    struct size_class *c = &cm->stages[stage].classes[k < CLASSES ? k : CLASSES - 1];
    if (c->weight < CLASS_MEMORY) c->weight++;
    c->rows += (rows - c->rows) / c->weight;
    c->seen += ((double)seen - c->seen) / c->weight;
    c->ns += ((double)ns - c->ns) / c->weight;
    cm->stages[stage].cost = fit(cm->stages[stage].classes);
    cm->stages[stage].is_known = true;
}

bool cost_model_stage(const struct cost_model *cm, uint32_t stage, struct cost *cost)
{
    const struct stage_costs *s = &cm->stages[stage];
    if (s->is_known) *cost = s->cost;
    return s->is_known;
}

void cost_model_learn(struct cost_model *cm, const struct journal *j)
{
    for (uint32_t i = 0; i < cm->n_stages; i++) {
        struct stage_costs *s = &cm->stages[i];
        if (s->next_id < journal_first(j)) s->next_id = journal_first(j);
        for (; s->next_id <= journal_last(j); s->next_id++) {
            const struct msg_account *a = journal_account(j, i, s->next_id);
            const struct journal_flight *f = journal_find_flight(j, s->next_id);
            if (a != NULL && f != NULL)
                cost_model_add(cm, i, f->rows, f->seen, a->compute_ns);
            else if (journal_account(j, i, s->next_id + 1) == NULL)
                break; /* not lost on the way, but to come */
        }
    }
}

/* ---- the chunk ---- */

/* What the number of chunks decides. n rows in k chunks: each chunk holds up the slowest stage, and
 * one chunk passes the others:
 *
 *   k fixed + n / k others + what does not depend on k,    least at k = sqrt(n others / fixed) */
struct trade {
    double fixed;  /* of the slowest stage, a chunk */
    double others; /* of the other stages, a row */
};

static struct trade find_trade(const struct cost_model *cm, uint64_t rows, double seen)
{
    const double guess = (double)rows / cm->n_stages;
    struct trade t = {0};
    double slowest_ns = 0, slowest_row = 0;
    for (uint32_t i = 0; i < cm->n_stages; i++) {
        const struct cost *c = &cm->stages[i].cost;
        const double row = c->row_ns + c->seen_ns * seen, ns = c->fixed_ns + row * guess;
        t.others += row;
        if (ns <= slowest_ns) continue;
        slowest_ns = ns;
        slowest_row = row;
        t.fixed = c->fixed_ns;
    }
    t.others -= slowest_row;
    return t;
}

static double trade_cost(const struct trade *t, double rows, double n_chunks)
{
    return n_chunks * t->fixed + rows / n_chunks * t->others;
}

/* even_chunk() - from the trade alone. */
static uint64_t even_chunk(const struct cost_model *cm, uint64_t rows, double seen)
{
    const struct trade t = find_trade(cm, rows, seen);
    const double n = (double)rows;
    double n_chunks = floor(sqrt(n * t.others / t.fixed));
    if (n_chunks < 1) n_chunks = 1;
    if (trade_cost(&t, n, n_chunks + 1) < trade_cost(&t, n, n_chunks)) n_chunks++;
    return (uint64_t)ceil(n / n_chunks);
}

/* time_line() - when the last of these rows, in chunks of so many, would be through: a chunk begins
 * at a stage when the one before it there, and itself at the stage before, are done. */
static double time_line(const struct cost_model *cm, uint64_t rows, double seen, uint64_t chunk)
{
    const double begin = seen - (double)rows / 2;
    memset(cm->done_ns, 0, cm->n_stages * sizeof *cm->done_ns);
    for (uint64_t first = 0; first < rows; first += chunk) {
        const double n = (double)(rows - first < chunk ? rows - first : chunk);
        const double all_seen = n * (begin + (double)first + n / 2);
        double done_ns = 0;
        for (uint32_t i = 0; i < cm->n_stages; i++) {
            const struct cost *c = &cm->stages[i].cost;
            if (done_ns < cm->done_ns[i]) done_ns = cm->done_ns[i];
            done_ns += c->fixed_ns + c->row_ns * n + c->seen_ns * all_seen;
            cm->done_ns[i] = done_ns;
        }
    }
    return cm->done_ns[cm->n_stages - 1];
}

/* A few sizes around the even one are tried: where the slowest stage is among the first, a small
 * last chunk is good. A large number of chunks makes no difference, and takes long. */
uint64_t cost_model_chunk(const struct cost_model *cm, uint64_t rows, double seen)
{
    if (cm->n_stages == 1 || rows <= CHUNK_STEP) return rows;
    const uint64_t even = (even_chunk(cm, rows, seen) + CHUNK_STEP - 1) / CHUNK_STEP * CHUNK_STEP;
    if (rows * cm->n_stages > TRIED_ROWS_MAX) return even;
    uint64_t best = even;
    double best_ns = time_line(cm, rows, seen, even);
    for (uint64_t chunk = (even / 2 + CHUNK_STEP - 1) / CHUNK_STEP * CHUNK_STEP; chunk <= 2 * even;
         chunk += CHUNK_STEP) {
        const double ns = time_line(cm, rows, seen, chunk);
        if (ns >= best_ns) continue;
        best_ns = ns;
        best = chunk;
    }
    return best;
}

uint64_t cost_model_beside(const struct cost_model *cm, uint64_t n_decode, double seen)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < cm->n_stages; i++) {
        const struct cost *c = &cm->stages[i].cost;
        const double row = c->row_ns + c->seen_ns * seen;
        const double more = (SLOWER_MAX - 1) * (c->fixed_ns / row + (double)n_decode);
        if (more < (double)least) least = (uint64_t)more;
    }
    return least > CHUNK_STEP ? least / CHUNK_STEP * CHUNK_STEP : CHUNK_STEP;
}
