/* plan - see plan.h.
 *
 * The cut is found from the end of the line: once it is known what is best for the layers from
 * every layer on, beginning with every rank, the stage before them has only its own end and its
 * successor to choose. This is done twice: the first time only the slowest stage counts; the second
 * time no stage may be slower than that one, and the sum counts. */
#include "engine/plan.h"

#include <inttypes.h>
#include <stdlib.h>

/* Tensor bytes by where they go. */
struct cost {
    const struct model *m;
    uint64_t *before; /* [n_layer + 1] of the layers before it */
    uint32_t n_layer;
    uint64_t input, every, output; /* output: with the embedding where it is tied */
};

uint64_t plan_stage_bytes(const struct model *m, struct layer_range range)
{
    struct line_limits none = {0};
    return model_footprint(m, range, &none).weights;
}

static int add_cost(void *ctx, const struct tensor_row *row, uint32_t layer,
                    const struct gguf_tensor *tensor, struct err *err)
{
    (void)err;
    struct cost *cost = ctx;
    uint64_t bytes = model_held_bytes(cost->m, row, tensor);
    switch (row->scope) {
    case SCOPE_INPUT:
        cost->input += bytes;
        break;
    case SCOPE_LAYER:
        cost->before[layer + 1] += bytes;
        break;
    case SCOPE_OUTPUT:
        cost->output += bytes;
        break;
    case SCOPE_EVERY:
        cost->every += bytes;
        break;
    }
    return ERR_NONE;
}

/* Two ranges, so that a tied output counts as it does when first and last stage differ. */
static void read_cost(const struct model *m, struct cost *cost)
{
    uint32_t last = cost->n_layer - 1;
    model_visit_range(m, (struct layer_range){last, last + 1}, add_cost, cost, NULL);
    cost->every = 0;
    model_visit_range(m, (struct layer_range){0, last}, add_cost, cost, NULL);
    for (uint32_t i = 0; i < cost->n_layer; i++) cost->before[i + 1] += cost->before[i];
}

/* ---- the best cut ---- */

/* What the layers from some layer on cost at best. Compared as one number, the sum before the
 * slowest stage. */
struct value {
    uint64_t sum, slowest;
};

/* A stage that begins at some layer on some rank: how far it goes, and who follows. */
struct choice {
    uint32_t end, next;
    struct value value; /* of it and all that follows */
};

struct search {
    const struct plan_question *q;
    bool by_sum;
    uint64_t bound;      /* no stage may cost more */
    struct choice *best; /* [n_ranks][n_layer] */
};

static struct choice *choice_at(const struct search *s, uint32_t rank, uint32_t layer)
{
    return &s->best[(size_t)rank * s->q->n_layer + layer];
}

static bool is_less(struct value a, struct value b)
{
    return a.sum != b.sum ? a.sum < b.sum : a.slowest < b.slowest;
}

static bool is_equal(struct value a, struct value b)
{
    return a.sum == b.sum && a.slowest == b.slowest;
}

/* consider() - a stage of range, followed by next, for *best. false: no longer one can be better.
 */
static bool consider(const struct search *s, uint32_t rank, uint32_t next, struct layer_range range,
                     struct choice *best)
{
    const uint64_t cost = s->q->cost(s->q->ctx, rank, next, range);
    const uint64_t most = s->by_sum ? best->value.sum : best->value.slowest;
    if (cost == PLAN_NEVER || cost > s->bound || cost > most) return false;
    struct value rest = {0, 0};
    if (range.end < s->q->n_layer) rest = choice_at(s, next, range.end)->value;
    if (rest.slowest == PLAN_NEVER) return true;
    const struct value v = {.sum = s->by_sum ? rest.sum + cost : 0,
                            .slowest = rest.slowest > cost ? rest.slowest : cost};
    if (is_less(v, best->value) || (is_equal(v, best->value) && range.end > best->end))
        *best = (struct choice){range.end, next, v};
    return true;
}

/* choose() - the best stage that begins at first on rank. The last stage is tried by itself, since
 * a stage that ends the line may cost less than a shorter one. */
static void choose(const struct search *s, uint32_t rank, uint32_t first)
{
    const struct plan_question *q = s->q;
    struct choice *best = choice_at(s, rank, first);
    const uint32_t next_end = q->all_ranks && rank + 2 < q->n_ranks ? rank + 2 : q->n_ranks;
    *best = (struct choice){.value = {PLAN_NEVER, PLAN_NEVER}};
    if (!q->all_ranks || rank + 1 == q->n_ranks)
        consider(s, rank, q->n_ranks, (struct layer_range){first, q->n_layer}, best);
    bool goes_on = true;
    for (uint32_t end = first + 1; goes_on && end < q->n_layer; end++) {
        goes_on = false;
        for (uint32_t next = rank + 1; next < next_end; next++)
            goes_on |= consider(s, rank, next, (struct layer_range){first, end}, best);
    }
}

/* search() - fill best, from the last rank back; the rank that begins the best line. */
static uint32_t search(const struct search *s)
{
    const struct plan_question *q = s->q;
    for (uint32_t rank = q->n_ranks; rank-- > 0;)
        for (uint32_t first = 0; first < q->n_layer; first++) choose(s, rank, first);
    uint32_t start = 0;
    for (uint32_t rank = 1; rank < q->n_ranks && !q->all_ranks; rank++)
        if (is_less(choice_at(s, rank, 0)->value, choice_at(s, start, 0)->value)) start = rank;
    return start;
}

int plan_best(const struct plan_question *q, struct layer_range *ranges, struct err *err)
{
    BUG_IF(q->n_ranks == 0 || q->n_layer == 0, "a plan for nobody, or of nothing");
    struct search s = {.q = q, .bound = PLAN_NEVER - 1};
    s.best = calloc((size_t)q->n_ranks * q->n_layer, sizeof *s.best);
    CHECK(s.best != NULL, err, ERR_MEMORY,
          "no memory to plan %" PRIu32 " layers for %" PRIu32 " ranks", q->n_layer, q->n_ranks);
    for (uint32_t rank = 0; rank < q->n_ranks; rank++) ranges[rank] = (struct layer_range){0, 0};
    s.bound = choice_at(&s, search(&s), 0)->value.slowest;
    s.by_sum = true;
    uint32_t rank = search(&s), first = 0;
    const bool found = choice_at(&s, rank, 0)->value.slowest != PLAN_NEVER;
    while (found && first < q->n_layer) {
        const struct choice *c = choice_at(&s, rank, first);
        ranges[rank] = (struct layer_range){first, c->end};
        first = c->end;
        rank = c->next;
    }
    free(s.best);
    CHECK(found, err, ERR_CAPACITY, "no cut of %" PRIu32 " layers fits %" PRIu32 " ranks",
          q->n_layer, q->n_ranks);
    return ERR_NONE;
}

/* ---- by bytes ---- */

static uint64_t bytes_of_stage(const void *ctx, uint32_t rank, uint32_t next,
                               struct layer_range range)
{
    const struct cost *cost = ctx;
    (void)rank;
    (void)next;
    return cost->every + cost->before[range.end] - cost->before[range.first] +
           (range.first == 0 ? cost->input : 0) + (range.end == cost->n_layer ? cost->output : 0);
}

int plan_by_bytes(const struct model *m, uint32_t n_stages, struct layer_range *ranges,
                  struct err *err)
{
    uint32_t n_layer = m->hp.n_layer;
    BUG_IF(n_stages == 0, "a plan for no stage");
    CHECK(n_stages <= n_layer, err, ERR_CAPACITY,
          "%s: %" PRIu32 " stages for %" PRIu32 " layers: the limit is %" PRIu32
          " stages, so %" PRIu32 " ranks",
          gguf_path(m->file), n_stages, n_layer, n_layer, n_layer + 1);
    ranges[0] = (struct layer_range){0, n_layer};
    if (n_stages == 1) return ERR_NONE;

    struct cost cost = {
        .m = m, .before = calloc(n_layer + 1, sizeof *cost.before), .n_layer = n_layer};
    CHECK(cost.before != NULL, err, ERR_MEMORY, "no memory to plan %" PRIu32 " layers", n_layer);
    read_cost(m, &cost);
    const struct plan_question question = {.n_layer = n_layer,
                                           .n_ranks = n_stages,
                                           .all_ranks = true,
                                           .cost = bytes_of_stage,
                                           .ctx = &cost};
    int rc = plan_best(&question, ranges, err);
    free(cost.before);
    return rc;
}

/* ---- by hand ---- */

/* One number of the list, and the comma behind it; 0 for anything else. */
static uint32_t take_number(const char **text)
{
    uint64_t n = 0;
    const char *p = *text;
    while (*p >= '0' && *p <= '9' && n <= UINT32_MAX) n = n * 10 + (uint64_t)(*p++ - '0');
    bool more = *p == ',' && p[1] != '\0';
    if (n > UINT32_MAX || (*p != '\0' && !more)) return 0;
    *text = more ? p + 1 : p;
    return (uint32_t)n;
}

int plan_by_hand(const struct model *m, const char *split, uint32_t *n_stages,
                 struct layer_range *ranges, struct err *err)
{
    uint32_t capacity = *n_stages, count = 0;
    uint64_t sum = 0;
    const char *p = split;
    do {
        uint32_t layers = take_number(&p);
        CHECK(layers > 0, err, ERR_USAGE,
              "split \"%.64s\": part %" PRIu32 " is not a number of layers: write it like 3,3,2",
              split, count + 1);
        CHECK(count < capacity, err, ERR_USAGE,
              "split \"%.64s\": more than %" PRIu32 " parts, but there are only so many stages",
              split, capacity);
        if (sum + layers <= m->hp.n_layer)
            ranges[count] = (struct layer_range){(uint32_t)sum, (uint32_t)sum + layers};
        sum += layers;
        count++;
    } while (*p != '\0');
    CHECK(sum == m->hp.n_layer, err, ERR_USAGE,
          "split \"%.64s\": the parts add up to %" PRIu64 ", want %" PRIu32 ", the layers of %s",
          split, sum, m->hp.n_layer, gguf_path(m->file));
    *n_stages = count;
    return ERR_NONE;
}
