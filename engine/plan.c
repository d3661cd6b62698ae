/* plan - see plan.h.
 *
 * The cut by bytes is exact: the smallest possible largest stage is found by bisection, since "can
 * every stage stay under this bound?" is answered by filling stages from the front. Many cuts share
 * that largest stage; of them, each stage in turn takes as many layers as fit under the best bound
 * for the layers and stages that are left, so that what follows is as even as it can be. */
#include "engine/plan.h"

#include <inttypes.h>
#include <stdlib.h>

/* Tensor bytes by where they go. */
struct cost {
    const struct model *m;
    uint64_t *layer; /* [n_layer] */
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
        cost->layer[layer] += bytes;
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
}

/* The end of the longest stage from first on that stays under bound and leaves later_stages layers;
 * first itself where not even one layer fits. With no later stage it is all or nothing. */
static uint32_t fill_stage(const struct cost *cost, uint32_t first, uint32_t later_stages,
                           uint64_t bound)
{
    uint64_t bytes = cost->every + (first == 0 ? cost->input : 0);
    uint32_t end = first, limit = cost->n_layer - later_stages;
    if (later_stages == 0) bytes += cost->output;
    while (end < limit && bytes <= bound && cost->layer[end] <= bound - bytes)
        bytes += cost->layer[end++];
    return later_stages == 0 && end < limit ? first : end;
}

static bool fits(const struct cost *cost, uint32_t first, uint32_t n_stages, uint64_t bound)
{
    for (uint32_t later = n_stages; later-- > 0;) {
        uint32_t end = fill_stage(cost, first, later, bound);
        if (end == first) return false;
        first = end;
    }
    return true;
}

/* The smallest bound under which the layers from first on fit n_stages stages. */
static uint64_t best_bound(const struct cost *cost, uint32_t first, uint32_t n_stages)
{
    uint64_t low = 0, high = cost->input + cost->every + cost->output;
    for (uint32_t i = first; i < cost->n_layer; i++) high += cost->layer[i];
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (fits(cost, first, n_stages, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return high;
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

    struct cost cost = {.m = m, .layer = calloc(n_layer, sizeof *cost.layer), .n_layer = n_layer};
    CHECK(cost.layer != NULL, err, ERR_MEMORY, "no memory to plan %" PRIu32 " layers", n_layer);
    read_cost(m, &cost);
    uint32_t first = 0;
    for (uint32_t i = 0; i < n_stages; i++) {
        uint32_t left = n_stages - i;
        uint32_t end = fill_stage(&cost, first, left - 1, best_bound(&cost, first, left));
        ranges[i] = (struct layer_range){first, end};
        first = end;
    }
    free(cost.layer);
    return ERR_NONE;
}

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
