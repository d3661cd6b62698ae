/* same_bits - the bitwise promise, for tests: the same scores through every way of cutting and
 * feeding a line. Included after cmocka. */
#ifndef TANDEM_TESTS_ENGINE_SAME_BITS_H
#define TANDEM_TESTS_ENGINE_SAME_BITS_H

#include "tests/engine/stage_line.h"

#include <math.h>

static const char *const kv_names[KV_FORMAT_COUNT] = {"f16", "f32", "q8_0"};

static inline void make_prompt(int32_t *ids, uint32_t n, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 37 + i * i / 5 + 3) % n_vocab);
}

/* score_alone() - in a line of its own. */
static inline void score_alone(const struct model *m, struct line_way way, const int32_t *ids,
                               uint32_t n, float *out)
{
    struct line l;
    line_open(&l, m, way);
    line_score(&l, ids, 0, n, out);
    line_close(&l);
}

/* assert_same_rows() - [n][n_vocab] each; what: whose they are. */
static inline void assert_same_rows(const float *got, const float *want, uint32_t n,
                                    uint32_t n_vocab, const char *what)
{
    for (size_t i = 0; i < (size_t)n * n_vocab; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: row %zu differs first: %.9g for %.9g", what, i / n_vocab, (double)got[i],
                     (double)want[i]);
}

/* A list of ways; each takes the instruction set and the number format of the cache from the first
 * way, to which it is compared. */
struct ways {
    struct line_way first;
    const struct line_way *others;
    size_t n_others;
};

/* check_promise() - a prompt of n ids. Ways of more stages than layers are passed over. */
static inline void check_promise(const struct model *m, const struct ways *ways, uint32_t n,
                                 const char *name)
{
    int32_t ids[LINE_CTX];
    const size_t values = (size_t)n * m->hp.n_vocab;
    float *want = line_take(values), *got = line_take(values);
    make_prompt(ids, n, m->hp.n_vocab);
    score_alone(m, ways->first, ids, n, want);
    for (size_t i = 0; i < values; i++) assert_true(isfinite(want[i]) != 0);
    for (size_t w = 0; w < ways->n_others; w++) {
        char what[160];
        struct line_way way = ways->others[w];
        if (way.stages > m->hp.n_layer) continue;
        way.isa = ways->first.isa;
        way.kv = ways->first.kv;
        memset(got, 0, values * sizeof *got);
        score_alone(m, way, ids, n, got);
        snprintf(what, sizeof what, "%s, %s, %s: way %zu", name, isa_name(way.isa),
                 kv_names[way.kv], w);
        assert_same_rows(got, want, n, m->hp.n_vocab, what);
    }
    free(got);
    free(want);
}

#endif
