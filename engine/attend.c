/* attend - queries walk along the tiles of the cache; declared in attention.h.
 *
 * Tiles are 256 absolute positions. Each gives a query a maximum, a sum and an accumulator, which
 * join those of the tiles before in ascending order. So threads may share the work in any way: a
 * thread takes whole walks, or, where there are few of them and a long past, tiles of walks, whose
 * parts wait in buffers.parts to be joined. Both give the same bits.
 *
 * Station before: attention, latent_attention. Stations after: kv_cache, kernels. */
#include "engine/attention.h"
#include "engine/fmath.h"

#include <math.h>

enum {
    WALK_CHUNKS = 16,   /* of ATTENTION_QUERIES, that walk together: one tile serves all */
    TURNS_MIN = 4,      /* walks for each thread, or tiles are shared out */
    WAVE_TILES_MIN = 4, /* where the buffer holds fewer, sharing them is not worth its barriers */
};

/* The queries of some rows of a group and one kv head, in the order row by row, head by head. What
 * they see are positions [from, end). */
struct walk {
    uint32_t kv_head, seq, n, n_chunks;
    struct attention_queries chunk[WALK_CHUNKS];
    struct {
        uint32_t row, head, from, end;
        float slope;
    } query[WALK_CHUNKS * ATTENTION_QUERIES];
};

/* How a batch is cut into walks. */
struct cut {
    uint32_t heads_per_kv;
    uint32_t walk_max; /* queries of a walk */
};

/* Where in a batch a walk begins. */
struct place {
    uint32_t group, kv_head, query;
};

/* ---- walks ---- */

/* The slope of a head's linear bias: powers of 2^(-max_bias / n2), n2 the largest power of two that
 * is not above n_head; heads beyond it take the odd powers of that number's root (Press et al.,
 * "Train short, test long", 2021). */
static float alibi_slope(float max_bias, uint32_t head, uint32_t n_head)
{
    uint32_t n2 = 1;
    while (n2 * 2 <= n_head) n2 *= 2;
    double power = head < n2 ? head + 1.0 : (2.0 * (head - n2) + 1) / 2;
    return (float)fmath_pow(2, -max_bias * power / n2);
}

static float *result_at(const struct attention *a, uint32_t row, uint32_t head)
{
    return a->out + row * a->out_row + head * a->out_head;
}

/* start_query() - query i of the walk, before its first tile. */
static void start_query(const struct pass *p, const struct attention *a, struct walk *w, uint32_t i)
{
    const struct hparams *hp = &p->model->hp;
    struct attention_queries *queries = &w->chunk[i / ATTENTION_QUERIES];
    uint32_t row = w->query[i].row, head = w->query[i].head, slot = i % ATTENTION_QUERIES;
    uint32_t window = hp->layer[a->layer].window, end = p->batch->pos[row] + 1;
    queries->n = slot + 1;
    queries->q[slot] = a->q + row * a->q_row + head * a->dim_k;
    queries->acc[slot] = result_at(a, row, head);
    queries->max[slot] = -INFINITY;
    queries->sum[slot] = 0;
    w->query[i].end = end;
    w->query[i].from = window > 0 && end > window ? end - window : 0;
    w->query[i].slope =
        hp->alibi_max_bias > 0 ? alibi_slope(hp->alibi_max_bias, head, a->n_head) : 0;
}

/* begin() - a query's result so far is nothing, or a sink: a score that brings no value. */
static void begin(const struct pass *p, const struct attention *a,
                  struct attention_queries *queries, uint32_t slot, uint32_t head)
{
    const float *sinks = weights_values(p->weights, TENSOR_ATTN_SINKS, a->layer);
    queries->max[slot] = sinks != NULL ? sinks[head] : -INFINITY;
    queries->sum[slot] = sinks != NULL ? 1 : 0;
    for (size_t d = 0; d < a->dim_v; d++) queries->acc[slot][d] = 0;
}

static void start_walk(const struct pass *p, const struct attention *a, const struct cut *cut,
                       const struct place *at, struct walk *w)
{
    const struct row_group *group = &p->buffers->groups[at->group];
    uint32_t left = group->n * cut->heads_per_kv - at->query;
    w->kv_head = at->kv_head;
    w->seq = p->batch->seq[group->first];
    w->n = left < cut->walk_max ? left : cut->walk_max;
    w->n_chunks = (w->n + ATTENTION_QUERIES - 1) / ATTENTION_QUERIES;
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t query = at->query + i;
        w->query[i].row = group->first + query / cut->heads_per_kv;
        w->query[i].head = at->kv_head * cut->heads_per_kv + query % cut->heads_per_kv;
        start_query(p, a, w, i);
    }
}

/* next_place() - where the walk after it begins; at->group is p->n_groups at the end. */
static void next_place(const struct pass *p, const struct attention *a, const struct cut *cut,
                       struct place *at)
{
    at->query += cut->walk_max;
    if (at->query < p->buffers->groups[at->group].n * cut->heads_per_kv) return;
    at->query = 0;
    if (++at->kv_head < a->n_head_kv) return;
    at->kv_head = 0;
    at->group++;
}

/* Positions ascend from query to query. */
static uint32_t walk_from(const struct walk *w)
{
    return w->query[0].from / ATTENTION_TILE * ATTENTION_TILE;
}

static uint32_t walk_end(const struct walk *w)
{
    return w->query[w->n - 1].end;
}

/* ---- tiles ---- */

/* find_blocks() - those of the tile at start that the walk sees any of; NULL for the others. */
static void find_blocks(const struct pass *p, const struct attention *a, const struct walk *w,
                        uint32_t start, const uint8_t *block[TILE_BLOCKS])
{
    for (uint32_t b = 0; b < TILE_BLOCKS; b++) {
        uint32_t at = start + b * KV_BLOCK_POSITIONS;
        bool seen = at < walk_end(w) && at + KV_BLOCK_POSITIONS > w->query[0].from;
        block[b] =
            !seen ? NULL
                  : kv_cache_block(p->kv, a->local, w->seq, at / KV_BLOCK_POSITIONS, w->kv_head);
    }
}

/* look_at_tile() - what each query of a chunk sees of the tile at start. */
static void look_at_tile(const struct walk *w, uint32_t chunk, uint32_t start,
                         struct attention_tile *tile)
{
    for (uint32_t i = 0; i < w->chunk[chunk].n; i++) {
        uint32_t from = w->query[chunk * ATTENTION_QUERIES + i].from;
        uint32_t end = w->query[chunk * ATTENTION_QUERIES + i].end;
        uint32_t skipped = from > start ? from - start : 0, left = end > start ? end - start : 0;
        tile->first[i] = skipped < ATTENTION_TILE ? skipped : ATTENTION_TILE;
        tile->n_valid[i] = left < ATTENTION_TILE ? left : ATTENTION_TILE;
        if (tile->first[i] == ATTENTION_TILE) tile->n_valid[i] = 0;
        tile->distance[i] = (int32_t)(end - 1) - (int32_t)start;
        tile->slope[i] = w->query[chunk * ATTENTION_QUERIES + i].slope;
    }
}

/* take_tile() - all queries of a walk take the tile at start. */
static void take_tile(const struct pass *p, struct team *t, const struct attention *a,
                      struct walk *w, uint32_t start)
{
    struct attention_tile tile = {.dim_k = a->dim_k,
                                  .dim_v = a->dim_v,
                                  .values_in_keys = a->values_in_keys,
                                  .scale = p->model->hp.attn_scale,
                                  .softcap = p->model->hp.attn_softcap};
    find_blocks(p, a, w, start, tile.block);
    find_blocks(p, a, w, start + ATTENTION_TILE, tile.ahead);
    for (uint32_t c = 0; c < w->n_chunks; c++) {
        look_at_tile(w, c, start, &tile);
        p->kernels->attention[p->kv->format](&w->chunk[c], &tile);
        for (uint32_t b = 0; c == 0 && b < TILE_BLOCKS; b++) tile.ahead[b] = NULL;
    }
    team_tick(t, p, (uint64_t)w->n * ATTENTION_TILE * (a->dim_k + a->dim_v));
}

static void divide(const struct attention *a, float *acc, float sum)
{
    for (size_t d = 0; d < a->dim_v; d++) acc[d] /= sum;
}

/* ---- whole walks ---- */

static void walk_all(const struct pass *p, struct team *t, const struct attention *a,
                     struct walk *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        begin(p, a, &w->chunk[i / ATTENTION_QUERIES], i % ATTENTION_QUERIES, w->query[i].head);
    for (uint32_t start = walk_from(w); start < walk_end(w); start += ATTENTION_TILE)
        take_tile(p, t, a, w, start);
    for (uint32_t c = 0; c < w->n_chunks; c++)
        for (uint32_t i = 0; i < w->chunk[c].n; i++)
            divide(a, w->chunk[c].acc[i], w->chunk[c].sum[i]);
}

/* ---- tiles of walks ---- */

/* Tiles [first, first + n) of all walks, so few that their parts fit in the buffer. A query has
 * places there: first its result so far (whose accumulator is at home), then a tile each. A place
 * is an accumulator, a maximum and a sum. */
struct wave {
    uint32_t first, n, places;
    bool is_first, is_last;
};

static float *part_at(const struct pass *p, const struct attention *a, const struct wave *wave,
                      uint32_t row, uint32_t head, uint32_t place)
{
    size_t query = (size_t)row * a->n_head + head;
    return p->buffers->parts + (query * wave->places + place) * (a->dim_v + 2);
}

/* walk_tile() - one tile of a walk, apart from all others. */
static void walk_tile(const struct pass *p, struct team *t, const struct attention *a,
                      const struct wave *wave, uint32_t place, struct walk *w)
{
    uint32_t start = (wave->first + place) * ATTENTION_TILE;
    bool is_seen = start + ATTENTION_TILE > w->query[0].from && start < walk_end(w);
    for (uint32_t i = 0; i < w->n; i++) {
        struct attention_queries *queries = &w->chunk[i / ATTENTION_QUERIES];
        float *part = part_at(p, a, wave, w->query[i].row, w->query[i].head, place + 1);
        queries->acc[i % ATTENTION_QUERIES] = part;
        for (size_t d = 0; is_seen && d < a->dim_v; d++) part[d] = 0;
    }
    if (is_seen) take_tile(p, t, a, w, start);
    for (uint32_t i = 0; i < w->n; i++) {
        const struct attention_queries *queries = &w->chunk[i / ATTENTION_QUERIES];
        uint32_t slot = i % ATTENTION_QUERIES;
        queries->acc[slot][a->dim_v] = queries->max[slot];
        queries->acc[slot][a->dim_v + 1] = queries->sum[slot];
    }
}

/* join_parts() - of one query, to its result so far. */
static void join_parts(const struct pass *p, const struct attention *a, const struct wave *wave,
                       uint32_t row, uint32_t head)
{
    float *sums = part_at(p, a, wave, row, head, 0) + a->dim_v;
    struct attention_queries whole = {.n = 1, .acc = {result_at(a, row, head)}};
    whole.max[0] = sums[0];
    whole.sum[0] = sums[1];
    if (wave->is_first) begin(p, a, &whole, 0, head);
    for (uint32_t place = 1; place <= wave->n; place++) {
        float *acc = part_at(p, a, wave, row, head, place);
        struct attention_queries part = {
            .n = 1, .acc = {acc}, .max = {acc[a->dim_v]}, .sum = {acc[a->dim_v + 1]}};
        p->kernels->attention_join(&whole, &part, a->dim_v);
    }
    sums[0] = whole.max[0];
    sums[1] = whole.sum[0];
    if (wave->is_last) divide(a, whole.acc[0], whole.sum[0]);
}

/* attend_in_waves() - tiles [first, end) of all walks, some tiles at a time. */
static void attend_in_waves(const struct pass *p, struct team *t, const struct attention *a,
                            const struct cut *cut, uint32_t first, uint32_t end, uint32_t tiles)
{
    for (uint32_t tile = first; tile < end; tile += tiles) {
        struct wave wave = {.first = tile,
                            .n = end - tile < tiles ? end - tile : tiles,
                            .places = tiles + 1,
                            .is_first = tile == first,
                            .is_last = end - tile <= tiles};
        uint32_t turn = 0;
        for (struct place at = {0}; at.group < p->n_groups; next_place(p, a, cut, &at))
            for (uint32_t i = 0; i < wave.n; i++) {
                struct walk w;
                if (turn++ % t->size != t->id) continue;
                start_walk(p, a, cut, &at, &w);
                walk_tile(p, t, a, &wave, i, &w);
            }
        team_wait(t);
        size_t from, to;
        team_share(t, (size_t)p->n_rows * a->n_head, &from, &to);
        for (size_t i = from; i < to; i++)
            join_parts(p, a, &wave, (uint32_t)(i / a->n_head), (uint32_t)(i % a->n_head));
        team_wait(t);
    }
}

/* ---- who does what ---- */

static void attend_whole(const struct pass *p, struct team *t, const struct attention *a,
                         const struct cut *cut)
{
    uint64_t turn = 0;
    for (struct place at = {0}; at.group < p->n_groups; next_place(p, a, cut, &at)) {
        struct walk w;
        if (turn++ % t->size != t->id) continue;
        start_walk(p, a, cut, &at, &w);
        walk_all(p, t, a, &w);
    }
    team_wait(t);
}

static uint64_t count_walks(const struct pass *p, const struct attention *a, const struct cut *cut)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < p->n_groups; g++)
        n += (p->buffers->groups[g].n * cut->heads_per_kv + cut->walk_max - 1) / cut->walk_max;
    return n * a->n_head_kv;
}

/* find_tiles() - those that any row sees any of: [*first, *end). */
static void find_tiles(const struct pass *p, const struct attention *a, uint32_t *first,
                       uint32_t *end)
{
    uint32_t window = p->model->hp.layer[a->layer].window;
    *first = UINT32_MAX;
    *end = 0;
    for (uint32_t row = 0; row < p->n_rows; row++) {
        uint32_t seen = p->batch->pos[row] + 1;
        uint32_t from = window > 0 && seen > window ? seen - window : 0;
        if (from / ATTENTION_TILE < *first) *first = from / ATTENTION_TILE;
        if ((seen - 1) / ATTENTION_TILE + 1 > *end) *end = (seen - 1) / ATTENTION_TILE + 1;
    }
}

/* tiles_of_wave() - how many tiles of every query the buffer has room for. */
static uint32_t tiles_of_wave(const struct pass *p, const struct attention *a)
{
    uint64_t places = p->buffers->n_parts / ((uint64_t)p->n_rows * a->n_head * (a->dim_v + 2));
    return places > 0 ? (uint32_t)places - 1 : 0;
}

void attention_attend(const struct pass *p, struct team *t, const struct attention *a)
{
    struct cut cut = {.heads_per_kv = a->n_head / a->n_head_kv,
                      .walk_max = WALK_CHUNKS * ATTENTION_QUERIES};
    uint32_t first, end, tiles = tiles_of_wave(p, a);
    uint64_t n = count_walks(p, a, &cut), enough = (uint64_t)TURNS_MIN * t->size;
    bool is_even = t->size == 1 || (p->n_groups == 1 && n % t->size == 0);
    find_tiles(p, a, &first, &end);
    bool is_roomy = tiles >= WAVE_TILES_MIN || tiles >= end - first;
    if (n < enough && !is_even && end - first > 1 && is_roomy) {
        attend_in_waves(p, t, a, &cut, first, end, tiles);
        return;
    }
    while (count_walks(p, a, &cut) < enough && t->size > 1 && cut.walk_max > ATTENTION_QUERIES)
        cut.walk_max /= 2;
    attend_whole(p, t, a, &cut);
}
