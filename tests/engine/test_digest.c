/* test_digest - a digest depends on the bytes alone: not on how they come, on threads, layer
 * ranges or parts of a file; and a stage digests all that it holds outside of layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/digest.h"
#include "engine/stage.h"
#include "tests/engine/open_model.h"
#include "tests/engine/parts_folder.h"
#include "tests/engine/stage_from.h"
#include "tests/splitmix.h"
#include "tests/test_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void however_bytes_come_the_digest_is_that_of_all(void **state)
{
    (void)state;
    enum { BYTES = 5000 };
    static uint8_t bytes[BYTES];
    uint64_t random = 1;
    for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)splitmix_next(&random);
    struct digest_run *run = digest_open();
    assert_non_null(run);
    for (int round = 0; round < 200; round++) {
        const size_t n = splitmix_next(&random) % (BYTES + 1);
        digest_begin(run);
        for (size_t done = 0, step; done < n; done += step) {
            step = 1 + splitmix_next(&random) % (n - done);
            digest_add(run, bytes + done, step);
        }
        assert_int_equal(digest_end(run), digest_bytes(bytes, n));
    }
    digest_close(run);
}

/* ---- of a stage ---- */

/* The model's own file, but for one byte of one tensor. */
struct other_byte {
    struct weight_source files;
    struct weight_file_state state;
    const struct gguf_tensor *tensor; /* NULL: none */
    uint64_t at;
};

static int begin_other(void *ctx, const struct weight_extent *extents, size_t n, struct err *err)
{
    struct other_byte *o = ctx;
    return o->files.begin(o->files.ctx, extents, n, err);
}

static int read_other(void *ctx, uint8_t *out, size_t n, struct err *err)
{
    struct other_byte *o = ctx;
    const struct weight_cursor *c = &o->state.next;
    const bool is_it = c->extents[c->at].tensor == o->tensor;
    const uint64_t from = c->inside;
    TRY(o->files.read(o->files.ctx, out, n, err));
    if (is_it && o->at >= from && o->at - from < n) out[o->at - from] ^= 1;
    return ERR_NONE;
}

static struct stage *open_stage(const struct model *m, struct layer_range range, uint32_t threads,
                                struct other_byte *o)
{
    o->files = weight_source_file(&o->state, m->file);
    const struct weight_source source = {begin_other, read_other, o};
    struct stage *stage;
    struct err err;
    if (stage_from(&stage, m, range, threads, &source, &err) != ERR_NONE) fail_msg("%s", err.text);
    return stage;
}

/* Each digest is that of the tensor's bytes, but for the one that has another byte. Returns the
 * tensors digested, a bit each. */
static uint64_t check_stage(const struct model *m, struct layer_range range, uint32_t threads,
                            const struct gguf_tensor *spoiled, uint64_t at)
{
    struct other_byte o = {.tensor = spoiled, .at = at};
    struct stage *stage = open_stage(m, range, threads, &o);
    uint32_t n;
    uint64_t seen = 0;
    const struct tensor_digest *digests = stage_digests(stage, &n);
    for (uint32_t i = 0; i < n; i++) {
        assert_in_range(digests[i].tensor, 0, TENSOR_COUNT - 1);
        const struct gguf_tensor *t = model_tensor(m, (enum tensor_id)digests[i].tensor, 0);
        assert_non_null(t);
        assert_int_equal(digests[i].digest == digest_bytes(t->data, t->bytes), t != spoiled);
        seen |= UINT64_C(1) << digests[i].tensor;
    }
    stage_close(stage);
    return seen;
}

static void check_model(const struct model *m)
{
    const uint32_t n = m->hp.n_layer;
    const bool is_tied = model_tensor(m, TENSOR_OUTPUT, 0) == NULL;
    const uint64_t embedding = UINT64_C(1) << TENSOR_TOKEN_EMBD;
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        const uint64_t all = check_stage(m, (struct layer_range){0, n}, threads, NULL, 0);
        const uint64_t first = check_stage(m, (struct layer_range){0, 1}, threads, NULL, 0);
        const uint64_t last = check_stage(m, (struct layer_range){n - 1, n}, threads, NULL, 0);
        assert_int_equal(all, first | last);
        assert_int_equal(first & embedding, embedding);
        assert_int_equal((last & embedding) != 0, is_tied);
    }
}

/* Tied and not, with factors that every stage holds, position rows, and formats of all kinds. */
static const char *const models[] = {"families/llama.gguf",
                                     "families/llama-tied.gguf",
                                     "families/llama-rope-freqs.gguf",
                                     "families/gpt2.gguf",
                                     "families/phi3-longrope.gguf",
                                     "families-quantised/q-gpt2-F16.gguf",
                                     "families-quantised/q-gpt2-Q8_0.gguf",
                                     "families-quantised/q-gpt2-Q4_K_M.gguf",
                                     "families-quantised/q-llama-Q6_K.gguf"};
enum { MODELS = sizeof models / sizeof models[0] };

static void a_stage_digests_the_bytes_of_the_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        const char *path = test_data_path(models[i]);
        if (path == NULL) {
            print_message("%s is absent (TANDEM_TEST_DATA): not looked at\n", models[i]);
            continue;
        }
        struct model *m = open_model(path);
        check_model(m);
        model_close(m);
    }
}

static void each_stage_digests_what_every_stage_holds(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama-rope-freqs.gguf");
    struct model *m = open_model(path);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const uint64_t seen = check_stage(m, (struct layer_range){i, i + 1}, 1, NULL, 0);
        assert_true(seen >> TENSOR_ROPE_FREQS & 1);
    }
    model_close(m);
}

static void one_other_byte_changes_the_digest_of_its_tensor_alone(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama-tied.gguf");
    struct model *m = open_model(path);
    const struct layer_range all = {0, m->hp.n_layer}, last = {m->hp.n_layer - 1, m->hp.n_layer};
    const struct gguf_tensor *t = model_tensor(m, TENSOR_TOKEN_EMBD, 0);
    const uint64_t places[] = {0, 1, t->bytes / 2, t->bytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        check_stage(m, all, 2, t, places[i]);
        check_stage(m, last, 1, t, places[i]);
    }
    model_close(m);
}

static void a_model_in_parts_has_the_digests_of_the_whole(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama-tied.gguf");
    struct parts p;
    parts_begin(&p, path);
    struct model *whole = open_model(path), *m = open_model(p.path[0]);
    check_model(m);
    const struct gguf_tensor *a = model_tensor(whole, TENSOR_TOKEN_EMBD, 0);
    const struct gguf_tensor *b = model_tensor(m, TENSOR_TOKEN_EMBD, 0);
    assert_int_equal(digest_bytes(a->data, a->bytes), digest_bytes(b->data, b->bytes));
    model_close(m);
    model_close(whole);
    parts_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(however_bytes_come_the_digest_is_that_of_all),
        cmocka_unit_test(a_stage_digests_the_bytes_of_the_file),
        cmocka_unit_test(each_stage_digests_what_every_stage_holds),
        cmocka_unit_test(one_other_byte_changes_the_digest_of_its_tensor_alone),
        cmocka_unit_test(a_model_in_parts_has_the_digests_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
