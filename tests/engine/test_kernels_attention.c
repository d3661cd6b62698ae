/* Kernels of attention: every instruction set that this CPU has against the formula in double, in
 * each manner, and alone against among others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/fmath.h"
#include "tests/engine/kernel_tables.h"

/* Beyond the plain form: what lies between a product and the softmax, and what is seen. */
struct manner {
    size_t window; /* 0: all */
    float softcap, slope;
    bool values_in_keys;
};
static const struct manner manners[] = {
    {0},
    {.window = 20},
    {.window = 300},
    {.softcap = 2},
    {.slope = 0.05F},
    {.values_in_keys = true},
    {.window = 40, .softcap = 3, .slope = 0.02F},
};

/* One key/value head of a sequence: values as the cache holds them, and decoded. Positions from n
 * on are NaN. */
struct history {
    enum kv_format format;
    size_t dim_k, dim_v, n, n_blocks;
    struct manner manner;
    size_t block_bytes;
    uint8_t *blocks; /* [n_blocks][32 * (dim_k + dim_v)], or without V */
    float *k, *v;    /* [n][dim] */
};

static struct history history_new(const struct kernels *table, enum kv_format format, size_t n,
                                  size_t dim_k, size_t dim_v)
{
    struct history h = {.format = format, .dim_k = dim_k, .dim_v = dim_v, .n = n};
    size_t keys_bytes = kv_part_bytes(format, dim_k);
    h.block_bytes = keys_bytes + kv_part_bytes(format, dim_v);
    h.n_blocks = (n + KV_BLOCK_POSITIONS - 1) / KV_BLOCK_POSITIONS;
    h.blocks = take(h.n_blocks * h.block_bytes);
    memset(h.blocks, 0xff, h.n_blocks * h.block_bytes); /* NaN, or a scale that is */
    h.k = random_floats(n * dim_k);
    h.v = random_floats(n * dim_v);
    for (size_t p = 0; p < n; p++) {
        uint8_t *block = h.blocks + p / KV_BLOCK_POSITIONS * h.block_bytes;
        float *k = h.k + p * dim_k, *v = h.v + p * dim_v;
        table->store[format](k, dim_k, block, p % KV_BLOCK_POSITIONS, true);
        table->store[format](v, dim_v, block + keys_bytes, p % KV_BLOCK_POSITIONS, false);
        as_cached(format, k, dim_k, k);
        as_cached(format, v, dim_v, v);
    }
    return h;
}

/* The same, where the front of each key is its value, too. */
static struct history history_new_shared(const struct kernels *table, enum kv_format format,
                                         size_t n, size_t dim_k, size_t dim_v)
{
    struct history h = history_new(table, format, n, dim_k, 0);
    free(h.v);
    h.dim_v = dim_v;
    h.v = take(n * dim_v * sizeof *h.v);
    for (size_t p = 0; p < n; p++) memcpy(h.v + p * dim_v, h.k + p * dim_k, dim_v * sizeof *h.v);
    return h;
}

static size_t first_seen(const struct history *h, size_t seen)
{
    size_t window = h->manner.window;
    return window > 0 && seen > window ? seen - window : 0;
}

static void history_free(struct history h)
{
    free(h.blocks);
    free(h.k);
    free(h.v);
}

/* n queries, of which query i sees seen[i] positions; out: [n][dim_v]. */
static void attend_as(const struct kernels *table, const struct history *h, bool apart,
                      const float *q, uint32_t n, const size_t *seen, float *out)
{
    float *parts = take(n * (h->dim_v + 1) * sizeof *parts);
    struct attention_queries queries = {.n = n};
    struct attention_tile tile = {.dim_k = h->dim_k,
                                  .dim_v = h->dim_v,
                                  .scale = 0.7F,
                                  .softcap = h->manner.softcap,
                                  .values_in_keys = h->manner.values_in_keys};
    for (uint32_t i = 0; i < n; i++) {
        queries.q[i] = q + i * h->dim_k;
        queries.acc[i] = out + i * h->dim_v;
        queries.max[i] = -INFINITY;
        for (size_t d = 0; d < h->dim_v; d++) queries.acc[i][d] = 0;
    }
    for (size_t start = 0; start < seen[n - 1]; start += ATTENTION_TILE) {
        for (uint32_t i = 0; i < n; i++) {
            size_t left = seen[i] > start ? seen[i] - start : 0, from = first_seen(h, seen[i]);
            size_t skipped = from > start ? from - start : 0;
            tile.n_valid[i] = (uint32_t)(left < ATTENTION_TILE ? left : ATTENTION_TILE);
            tile.first[i] = (uint32_t)(skipped < ATTENTION_TILE ? skipped : ATTENTION_TILE);
            if (skipped >= ATTENTION_TILE) tile.n_valid[i] = 0;
            tile.slope[i] = h->manner.slope;
            tile.distance[i] = (int32_t)seen[i] - 1 - (int32_t)start;
        }
        /* Blocks before the first window are not there. */
        for (size_t b = 0; b < TILE_BLOCKS; b++) {
            size_t at = start / KV_BLOCK_POSITIONS + b, block = KV_BLOCK_POSITIONS;
            bool is_there = at < h->n_blocks && (at + 1) * block > first_seen(h, seen[0]);
            tile.block[b] = is_there ? h->blocks + at * h->block_bytes : NULL;
        }
        if (!apart) {
            for (uint32_t b = 0; b < TILE_BLOCKS; b++) /* what is next does not change a bit */
                tile.ahead[b] = random_below(2) > 0 ? h->blocks : NULL;
            table->attention[h->format](&queries, &tile);
            continue;
        }
        struct attention_queries part = {.n = n};
        for (uint32_t i = 0; i < n; i++) {
            part.q[i] = queries.q[i];
            part.acc[i] = parts + i * h->dim_v;
            part.max[i] = -INFINITY;
            for (size_t d = 0; d < h->dim_v; d++) part.acc[i][d] = 0;
        }
        table->attention[h->format](&part, &tile);
        table->attention_join(&queries, &part, h->dim_v);
    }
    for (uint32_t i = 0; i < n; i++)
        for (size_t d = 0; d < h->dim_v; d++) queries.acc[i][d] /= queries.sum[i];
    free(parts);
}

static void attend(const struct kernels *table, const struct history *h, const float *q, uint32_t n,
                   const size_t *seen, float *out)
{
    attend_as(table, h, false, q, n, seen, out);
}

static void check_attention(const struct history *h, const float *q, size_t seen, const float *got,
                            const char *what)
{
    double *e = take(seen * sizeof *e), max = -INFINITY, sum = 0;
    size_t from = first_seen(h, seen);
    for (size_t p = from; p < seen; p++) {
        e[p] = 0;
        for (size_t d = 0; d < h->dim_k; d++) e[p] += (double)q[d] * h->k[p * h->dim_k + d];
        e[p] *= 0.7F;
        if (h->manner.softcap > 0) e[p] = h->manner.softcap * fmath_tanh(e[p] / h->manner.softcap);
        e[p] -= h->manner.slope * (double)(seen - 1 - p);
        max = e[p] > max ? e[p] : max;
    }
    for (size_t p = from; p < seen; p++) sum += e[p] = fmath_exp(e[p] - max);
    for (size_t d = 0; d < h->dim_v; d++) {
        double want = 0;
        for (size_t p = from; p < seen; p++) want += e[p] / sum * h->v[p * h->dim_v + d];
        assert_near(got[d], want, 3e-6, what, d);
    }
    free(e);
}

/* Key and value widths, tails included, and histories around the edges of vectors, blocks and
 * tiles. */
static const struct {
    size_t dim_k, dim_v;
} head_dims[] = {{1, 1},   {3, 5},   {8, 8},     {16, 16}, {20, 24},
                 {64, 64}, {96, 80}, {128, 128}, {80, 37}};
static const size_t lengths[] = {1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 300, 513, 600};

static void check_history(const struct kernels *table, const struct history *h)
{
    uint32_t n = 1 + (uint32_t)random_below(ATTENTION_QUERIES);
    float *q = random_floats(n * h->dim_k);
    struct guarded out = guarded_new(n * h->dim_v), alone = guarded_new(h->dim_v);
    size_t seen[ATTENTION_QUERIES];
    for (uint32_t i = 0; i < n; i++) /* the last sees all, each one before a little less */
        seen[i] = h->n > 2 * (n - 1 - i) ? h->n - 2 * (n - 1 - i) : 1;
    attend(table, h, q, n, seen, out.x);
    for (uint32_t i = 0; i < n; i++) {
        check_attention(h, q + i * h->dim_k, seen[i], out.x + i * h->dim_v, isa_name(table->isa));
        attend(table, h, q + i * h->dim_k, 1, &seen[i], alone.x);
        assert_same_bits(alone.x, out.x + i * h->dim_v, h->dim_v, "alone");
    }
    guarded_free(alone);
    guarded_free(out);
    free(q);
}

static void attention_agrees_with_the_formula_whatever_stands_beside_it(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t m = 0; m < sizeof manners / sizeof *manners; m++)
            for (size_t s = 0; s < sizeof head_dims / sizeof *head_dims; s++)
                for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
                    for (int format = 0; format < KV_FORMAT_COUNT; format++) {
                        size_t dim_k = head_dims[s].dim_k, dim_v = head_dims[s].dim_v;
                        bool shared = manners[m].values_in_keys;
                        struct history h =
                            shared ? history_new_shared(&tables[isa], (enum kv_format)format,
                                                        lengths[l], dim_k,
                                                        dim_v < dim_k ? dim_v : dim_k)
                                   : history_new(&tables[isa], (enum kv_format)format, lengths[l],
                                                 dim_k, dim_v);
                        h.manner = manners[m];
                        check_history(&tables[isa], &h);
                        history_free(h);
                    }
}

static void tiles_apart_and_joined_give_the_same_bits(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++)
        for (size_t m = 0; m < sizeof manners / sizeof *manners; m++)
            for (int format = 0; format < KV_FORMAT_COUNT; format++) {
                enum { N = 900, WIDE_K = 48, WIDE_V = 37 };
                struct history h =
                    manners[m].values_in_keys
                        ? history_new_shared(&tables[isa], (enum kv_format)format, N, WIDE_K,
                                             WIDE_V)
                        : history_new(&tables[isa], (enum kv_format)format, N, WIDE_K, WIDE_V);
                h.manner = manners[m];
                const size_t seen[ATTENTION_QUERIES] = {250, 256, 257, 511, 512, 513, 899, 900};
                float *q = random_floats(ATTENTION_QUERIES * WIDE_K);
                float whole[ATTENTION_QUERIES * WIDE_V], joined[ATTENTION_QUERIES * WIDE_V];
                attend(&tables[isa], &h, q, ATTENTION_QUERIES, seen, whole);
                attend_as(&tables[isa], &h, true, q, ATTENTION_QUERIES, seen, joined);
                assert_same_bits(joined, whole, ATTENTION_QUERIES * WIDE_V, "joined");
                free(q);
                history_free(h);
            }
}

static void very_different_scores_neither_overflow_nor_vanish(void **state)
{
    (void)state;
    for (int isa = 0; isa < n_tables; isa++) {
        struct history h = history_new(&tables[isa], KV_F32, 520, 8, 8);
        float q[8], out[8];
        size_t seen = 520;
        for (size_t d = 0; d < 8; d++) q[d] = random_float() * 1e4F;
        attend(&tables[isa], &h, q, 1, &seen, out);
        for (size_t d = 0; d < 8; d++) assert_true(isfinite(out[d]));
        history_free(h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees_with_the_formula_whatever_stands_beside_it),
        cmocka_unit_test(tiles_apart_and_joined_give_the_same_bits),
        cmocka_unit_test(very_different_scores_neither_overflow_nor_vanish),
    };
    return tables_init() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
