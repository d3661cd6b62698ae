/* golden - reference results of a model (shared/data/README.md has their form), and the comparison
 * of a line's scores and greedy text with them. */
#ifndef TANDEM_TESTS_ENGINE_GOLDEN_H
#define TANDEM_TESTS_ENGINE_GOLDEN_H

#include "tests/engine/open_model.h"
#include "tests/engine/stage_line.h"

#include <jansson.h>
#include <math.h>

static inline json_t *read_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL) fail_msg("%s: %s", path, error.text);
    return root;
}

static inline uint32_t read_ids(const json_t *array, int32_t *out, uint32_t max)
{
    uint32_t n = (uint32_t)json_array_size(array);
    assert_in_range(n, 1, max);
    for (uint32_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return n;
}

/* The largest distance from a reference that assert_score() has let pass, relative above 1. */
static double golden_worst;

static inline void assert_score(float got, double want, const char *what, uint32_t row, uint32_t id)
{
    double distance = fabs(got - want) / fmax(1, fabs(want));
    if (!(distance <= 2e-4))
        fail_msg("%s: row %u, token %u: score %.7g, want %.7g", what, row, id, (double)got, want);
    golden_worst = fmax(golden_worst, distance);
}

static inline float *read_scores(const char *path, size_t n)
{
    float *scores = line_take(n);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(scores, sizeof *scores, n, f), n);
    fclose(f);
    return scores;
}

/* The reference says, for each row, the best few scores, and all of the last row's. */
static inline void check_record(const json_t *record, const float *scores, uint32_t n_vocab,
                                const char *what)
{
    const json_t *rows = json_object_get(record, "top8"),
                 *last = json_object_get(record, "last_logits");
    uint32_t n = (uint32_t)json_array_size(rows);
    for (uint32_t row = 0; row < n; row++)
        for (uint32_t i = 0; i < 8; i++) {
            const json_t *pair = json_array_get(json_array_get(rows, row), i);
            uint32_t id = (uint32_t)json_integer_value(json_array_get(pair, 0));
            assert_score(scores[(size_t)row * n_vocab + id],
                         json_number_value(json_array_get(pair, 1)), what, row, id);
        }
    for (uint32_t id = 0; id < n_vocab; id++)
        assert_score(scores[(size_t)(n - 1) * n_vocab + id],
                     json_number_value(json_array_get(last, id)), what, n - 1, id);
}

/* Score the record's prompt, then go on greedily; compare both. */
static inline void check_prompt(const struct model *m, const json_t *record, struct line_way way,
                                const float *all_scores, const char *what)
{
    int32_t prompt[LINE_CTX], greedy[LINE_CTX];
    uint32_t n = read_ids(json_object_get(record, "prompt"), prompt, LINE_CTX);
    uint32_t n_greedy = read_ids(json_object_get(record, "greedy"), greedy, LINE_CTX);
    uint32_t n_vocab = m->hp.n_vocab;
    float *scores = line_take((size_t)n * n_vocab);
    struct line l;
    line_open(&l, m, way);
    line_score(&l, prompt, 0, n, scores);
    if (json_object_get(record, "last_logits") != NULL) check_record(record, scores, n_vocab, what);
    for (size_t i = 0; all_scores != NULL && i < (size_t)n * n_vocab; i++)
        assert_score(scores[i], all_scores[i], what, (uint32_t)(i / n_vocab),
                     (uint32_t)(i % n_vocab));
    const float *last = scores + (size_t)(n - 1) * n_vocab;
    for (uint32_t i = 0; i < n_greedy; i++) {
        int32_t id = line_best(last, n_vocab);
        if (id != greedy[i]) fail_msg("%s: greedy token %u is %d, want %d", what, i, id, greedy[i]);
        line_score(&l, &id, n + i, 1, scores);
        last = scores;
    }
    line_close(&l);
    free(scores);
}

#endif
