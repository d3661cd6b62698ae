/* A model in several files: the same scores as in one, nothing read of a part that a stage does not
 * need, and every way in which parts can fail to belong together is told by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/gguf_parts.h"
#include "tests/engine/golden.h"
#include "tests/engine/parts_folder.h"
#include "tests/engine/stage_from.h"
#include "tests/engine/stage_line.h"
#include "tests/test_data.h"

enum { IDS = 24 };

static float *score(const struct model *m, uint32_t stages)
{
    int32_t ids[IDS];
    for (int i = 0; i < IDS; i++) ids[i] = (i * 37 + 11) % (int)m->hp.n_vocab;
    float *scores = line_take((size_t)IDS * m->hp.n_vocab);
    struct line l;
    line_open(&l, m, (struct line_way){.stages = stages, .kv = KV_F32});
    line_score(&l, ids, 0, IDS, scores);
    line_close(&l);
    return scores;
}

static void a_split_model_scores_bit_for_bit_like_the_whole(void **state)
{
    (void)state;
    static const char *const models[] = {"families/llama.gguf", "families/gpt2.gguf"};
    for (size_t i = 0; i < 2; i++) {
        SKIP_WITHOUT(path, models[i]);
        struct parts p;
        parts_begin(&p, path);
        struct model *whole = open_model(path), *split = open_model(p.path[0]);
        size_t bytes = (size_t)IDS * whole->hp.n_vocab * sizeof(float);
        float *want = score(whole, 1);
        for (uint32_t stages = 1; stages <= 2; stages++) {
            float *got = score(split, stages);
            assert_memory_equal(got, want, bytes);
            free(got);
        }
        free(want);
        model_close(whole);
        model_close(split);
        parts_end(&p);
    }
}

static void the_directory_covers_all_parts_in_order(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct parts p;
    struct gguf *g;
    struct err err;
    parts_begin(&p, path);
    assert_int_equal(gguf_parts_open(&g, p.path[0], &err), ERR_NONE);
    assert_int_equal(gguf_tensor_count(g), gguf_tensor_count(p.whole));
    assert_true(gguf_file_bytes(g) > gguf_file_bytes(p.whole));
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *got = gguf_tensor_at(g, i), *want = gguf_tensor_at(p.whole, i);
        char name[96];
        snprintf(name, sizeof name, "%.*s", (int)want->name.len, want->name.data);
        assert_ptr_equal(gguf_find_tensor(g, name), got);
        assert_int_equal(got->bytes, want->bytes);
        assert_memory_equal(got->data, want->data, want->bytes);
    }
    gguf_close(g);
    parts_end(&p);
}

static uint64_t digest_of(const struct parts *p)
{
    struct model *m = open_model(p->path[0]);
    uint64_t digest = m->digest;
    model_close(m);
    return digest;
}

static void the_digest_sees_every_part(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct parts p;
    parts_begin(&p, path);
    uint64_t before = digest_of(&p);
    assert_int_equal(digest_of(&p), before);
    p.part[2].architecture = "llama"; /* another header of the last part, the same tensors */
    write_part(&p, 2);
    assert_true(digest_of(&p) != before);
    parts_end(&p);
}

struct touched {
    const struct gguf *file;
    const struct parts *parts;
    bool part[PARTS];
    struct weight_source files;
};

static int note_part(void *ctx, const struct tensor_row *row, uint32_t layer,
                     const struct gguf_tensor *tensor, struct err *err)
{
    (void)row;
    (void)layer;
    (void)err;
    struct touched *t = ctx;
    uint64_t at = (uint64_t)(tensor - gguf_tensor_at(t->file, 0));
    for (int i = 0; i < PARTS; i++)
        if (at >= t->parts->part[i].first && at < t->parts->part[i].end) t->part[i] = true;
    return ERR_NONE;
}

/* The files, as long as nothing is asked of a part that holds nothing of the range. */
static int begin_touched(void *ctx, const struct weight_extent *extents, size_t n, struct err *err)
{
    const struct touched *t = ctx;
    for (size_t i = 0; i < n; i++) assert_true(t->part[extents[i].part]);
    return t->files.begin(t->files.ctx, extents, n, err);
}

static int read_touched(void *ctx, uint8_t *out, size_t n, struct err *err)
{
    const struct touched *t = ctx;
    return t->files.read(t->files.ctx, out, n, err);
}

static void a_stage_touches_no_data_of_parts_that_hold_nothing_of_it(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct parts p;
    parts_begin(&p, path);
    uint32_t spared = 0;
    struct model *whole = open_model(path);
    const uint32_t n_layer = whole->hp.n_layer;
    model_close(whole);
    for (uint32_t layer = 0; layer < n_layer; layer++) {
        struct model *m = open_model(p.path[0]);
        struct layer_range range = {layer, layer + 1};
        struct touched touched = {.file = m->file, .parts = &p};
        struct err err;
        assert_int_equal(model_visit_range(m, range, note_part, &touched, &err), ERR_NONE);
        for (int i = 0; i < PARTS; i++) spared += !touched.part[i];
        struct weight_file_state files;
        touched.files = weight_source_file(&files, m->file);
        const struct weight_source source = {begin_touched, read_touched, &touched};
        struct stage *stage;
        if (stage_from(&stage, m, range, 1, &source, &err) != ERR_NONE) fail_msg("%s", err.text);
        stage_close(stage);
        model_close(m);
    }
    assert_true(spared > 0);
    parts_end(&p);
}

/* ---- parts that do not belong together ---- */

/* The parts are as they should be, then one is written again with something else in it. */
struct fault {
    const char *what;
    uint32_t rewrite;
    struct split_part lie; /* 0: as it should be; first is added */
    const char *text[2];   /* both must be in the error */
};

static const struct fault faults[] = {
    {"another number", 1, {.no = 2}, {"-00002-of-00003.gguf: split.no is 2", "want 1 and 3"}},
    {"another count", 2, {.count = 4}, {"-00003-of-00003.gguf:", "split.count 4, want 2 and 3"}},
    {"another model's part",
     1,
     {.n_tensors = 77},
     {"-00002-of-00003.gguf: split.tensors.count is 77", "another model"}},
    {"another family",
     1,
     {.architecture = "gpt2"},
     {"-00002-of-00003.gguf: general.architecture", "another model"}},
    {"a tensor twice", 1, {.first = (uint64_t)-1}, {"is there twice", "tensor"}},
    {"a tensor too few", 2, {.first = 1}, {"split.tensors.count is ", "3 parts have "}},
    {"no part's keys", 1, {.count = (uint32_t)-1}, {"-00002-of-00003.gguf: split.no", "want 1"}},
    {"a first part that says it is the second", 0, {.no = 1}, {"part 2 of 3", "first part"}},
    {"a first part of another count", 0, {.count = 2}, {"must end in -00001-of-00002.gguf", ""}},
    {"a first part of too many", 0, {.count = 100000}, {"split.count 100000", "at most 99999"}},
};

static void plant(struct parts *p, const struct fault *f)
{
    struct split_part *part = &p->part[f->rewrite];
    if (f->lie.no != 0) part->no = f->lie.no;
    if (f->lie.count != 0) part->count = f->lie.count;
    if (f->lie.n_tensors != 0) part->n_tensors = f->lie.n_tensors;
    if (f->lie.architecture != NULL) part->architecture = f->lie.architecture;
    part->first += f->lie.first;
    struct err err;
    if (split_write(p->path[f->rewrite], p->whole, part, &err) != ERR_NONE)
        fail_msg("%s", err.text);
}

static void expect_refused(const char *path, const char *what, const char *const text[2])
{
    struct model *m;
    struct err err;
    if (model_open(&m, path, &err) == ERR_NONE) fail_msg("%s: accepted", what);
    for (int i = 0; i < 2; i++)
        if (strstr(err.text, text[i]) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", what, err.text, text[i]);
    assert_null(strchr(err.text, '\n'));
}

static void parts_that_do_not_belong_together_are_refused(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct parts p;
        parts_begin(&p, path);
        /* Number 0 cannot be rewritten with 1 and keep its metadata, so it is cut from the whole.
         */
        plant(&p, &faults[i]);
        expect_refused(p.path[0], faults[i].what, faults[i].text);
        parts_end(&p);
    }
}

static void a_missing_part_is_named(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    for (int i = 1; i < PARTS; i++) {
        struct parts p;
        parts_begin(&p, path);
        unlink(p.path[i]);
        expect_refused(p.path[0], "a missing part",
                       (const char *[]){p.path[i], "cannot be opened"});
        parts_end(&p);
    }
}

static void a_later_part_or_a_renamed_first_one_is_refused(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct parts p;
    parts_begin(&p, path);
    expect_refused(p.path[1], "a later part", (const char *[]){"part 2 of 3", "give the first"});
    char renamed[SPLIT_PATH_MAX];
    snprintf(renamed, sizeof renamed, "%s/x.gguf", p.folder);
    assert_int_equal(rename(p.path[0], renamed), 0);
    expect_refused(renamed, "renamed", (const char *[]){"must end in -00001-of-00003.gguf", "3"});
    unlink(renamed);
    parts_end(&p);
}

static void a_cut_part_is_named(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct parts p;
    parts_begin(&p, path);
    for (off_t bytes = 0; bytes < 1000; bytes += 100) {
        assert_int_equal(truncate(p.path[2], bytes), 0);
        expect_refused(p.path[0], "a cut part", (const char *[]){p.path[2], ": "});
    }
    parts_end(&p);
}

static void one_part_of_one_is_a_whole_file(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct parts p;
    struct err err;
    parts_begin(&p, path);
    char alone[SPLIT_PATH_MAX];
    snprintf(alone, sizeof alone, "%s/alone.gguf", p.folder);
    struct split_part all = split_plan(p.whole, 0, 1);
    assert_int_equal(split_write(alone, p.whole, &all, &err), ERR_NONE);
    model_close(open_model(alone));
    unlink(alone);
    parts_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_model_scores_bit_for_bit_like_the_whole),
        cmocka_unit_test(the_directory_covers_all_parts_in_order),
        cmocka_unit_test(the_digest_sees_every_part),
        cmocka_unit_test(a_stage_touches_no_data_of_parts_that_hold_nothing_of_it),
        cmocka_unit_test(parts_that_do_not_belong_together_are_refused),
        cmocka_unit_test(a_missing_part_is_named),
        cmocka_unit_test(a_later_part_or_a_renamed_first_one_is_refused),
        cmocka_unit_test(a_cut_part_is_named),
        cmocka_unit_test(one_part_of_one_is_a_whole_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
