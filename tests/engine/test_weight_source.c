/* test_weight_source - tensors are read in the order of their files, once and whole; a header alone
 * is a model without data; and an error of a source names the tensor and the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/model.h"
#include "engine/stage.h"
#include "engine/weight_source.h"
#include "tests/engine/open_model.h"
#include "tests/engine/parts_folder.h"
#include "tests/engine/stage_from.h"
#include "tests/test_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a source that watches, and fails where it is told to ---- */

struct watch {
    struct weight_source files;
    struct weight_file_state state;
    const struct weight_extent *extents;
    size_t n;
    uint64_t read, fail_at; /* bytes; fail_at 0: never */
};

static int watch_begin(void *ctx, const struct weight_extent *extents, size_t n, struct err *err)
{
    struct watch *w = ctx;
    w->extents = extents;
    w->n = n;
    for (size_t i = 1; i < n; i++) {
        const struct weight_extent *a = &extents[i - 1], *b = &extents[i];
        assert_true(a->part < b->part || (a->part == b->part && a->offset + a->bytes <= b->offset));
    }
    return w->files.begin(w->files.ctx, extents, n, err);
}

static int watch_read(void *ctx, uint8_t *out, size_t n, struct err *err)
{
    struct watch *w = ctx;
    if (w->fail_at > 0 && w->read + n >= w->fail_at)
        return err_set(err, ERR_FILE, "the source ends here");
    w->read += n;
    return w->files.read(w->files.ctx, out, n, err);
}

static int open_watched(const struct model *m, struct watch *w, struct err *err)
{
    w->files = weight_source_file(&w->state, m->file);
    const struct weight_source source = {watch_begin, watch_read, w};
    struct stage *stage;
    TRY(stage_from(&stage, m, (struct layer_range){0, m->hp.n_layer}, 1, &source, err));
    stage_close(stage);
    return ERR_NONE;
}

/* Of both shapes of attention, tied and not, and with experts. */
static const char *const models[] = {"families/llama.gguf", "families/gpt2.gguf",
                                     "families/deepseek2.gguf", "families/deepseek2-lite.gguf",
                                     "families/qwen3moe.gguf"};
enum { MODELS = sizeof models / sizeof models[0] };

static void every_byte_is_read_once_in_the_order_of_the_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        SKIP_WITHOUT(path, models[i]);
        struct model *m = open_model(path);
        struct watch w = {0};
        struct err err;
        uint64_t bytes = 0;
        if (open_watched(m, &w, &err) != ERR_NONE) fail_msg("%s: %s", models[i], err.text);
        for (uint64_t k = 0; k < gguf_tensor_count(m->file); k++)
            bytes += gguf_tensor_at(m->file, k)->bytes;
        assert_int_equal(w.read, bytes);
        assert_int_equal(weight_cursor_left(&w.state.next), 0);
        model_close(m);
    }
}

static void an_error_of_the_source_names_tensor_and_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        SKIP_WITHOUT(path, models[i]);
        struct model *m = open_model(path);
        struct watch all = {0};
        struct err err;
        assert_int_equal(open_watched(m, &all, &err), ERR_NONE);
        for (uint64_t at = 1; at <= all.read; at += 1 + all.read / 50) {
            struct watch w = {.fail_at = at};
            assert_int_equal(open_watched(m, &w, &err), ERR_FILE);
            char name[96], place[64];
            assert_int_equal(sscanf(err.text, "tensor %95[^,], byte %63[0-9] of", name, place), 2);
            const struct gguf_tensor *t = gguf_find_tensor(m->file, name);
            assert_non_null(t);
            assert_true(strtoull(place, NULL, 10) < t->bytes);
            assert_non_null(strstr(err.text, ": the source ends here"));
        }
        model_close(m);
    }
}

static void a_file_that_was_cut_meanwhile_is_named(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    char copy[] = "/tmp/tandem-test-XXXXXX", command[512];
    close(mkstemp(copy));
    snprintf(command, sizeof command, "cp %s %s", path, copy);
    assert_int_equal(system(command), 0);
    struct model *m = open_model(copy);
    assert_int_equal(truncate(copy, (off_t)(gguf_file_bytes(m->file) - 1)), 0);
    struct watch w = {0};
    struct err err;
    assert_int_equal(open_watched(m, &w, &err), ERR_FILE);
    assert_non_null(strstr(err.text, "the file ends at byte"));
    model_close(m);
    unlink(copy);
}

/* ---- headers alone ---- */

static void headers_alone_are_the_same_model_without_data(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct parts p;
    parts_begin(&p, path);
    struct err err;
    struct model *here = open_model(p.path[0]), *there;
    struct gguf_header headers[PARTS];
    assert_int_equal(gguf_part_count(here->file), PARTS);
    for (uint32_t i = 0; i < PARTS; i++) headers[i] = gguf_part_header(here->file, i);
    if (model_open_headers(&there, p.path[0], headers, PARTS, &err) != ERR_NONE)
        fail_msg("%s", err.text);
    assert_int_equal(there->digest, here->digest);
    assert_int_equal(there->sample, 0);
    assert_int_equal(gguf_file_bytes(there->file), gguf_file_bytes(here->file));
    for (uint64_t i = 0; i < gguf_tensor_count(here->file); i++) {
        const struct gguf_tensor *a = gguf_tensor_at(here->file, i);
        const struct gguf_tensor *b = gguf_tensor_at(there->file, i);
        assert_int_equal(a->part, b->part);
        assert_int_equal(a->offset, b->offset);
        assert_null(b->data);
    }
    model_close(there);
    assert_int_equal(model_open_headers(&there, p.path[0], headers, PARTS - 1, &err), ERR_PEER);
    model_close(here);
    parts_end(&p);
}

static void a_header_that_is_cut_anywhere_is_refused(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct gguf *g, *cut;
    struct err err;
    assert_int_equal(gguf_open(&g, path, &err), ERR_NONE);
    const struct gguf_header whole = gguf_part_header(g, 0);
    for (uint64_t n = 0; n < whole.n_bytes; n += 1 + n / 64) {
        uint8_t *bytes = malloc(n + 1); /* the sanitizers watch its end */
        memcpy(bytes, whole.bytes, n);
        const struct gguf_header h = {bytes, n, whole.file_bytes, 0};
        int rc = gguf_open_header(&cut, "cut", &h, &err);
        assert_true(rc == ERR_FILE || rc == ERR_UNSUPPORTED);
        free(bytes);
    }
    const struct gguf_header longer = {whole.bytes, whole.n_bytes, whole.n_bytes - 1, 0};
    assert_int_equal(gguf_open_header(&cut, "long", &longer, &err), ERR_FILE);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_read_once_in_the_order_of_the_file),
        cmocka_unit_test(an_error_of_the_source_names_tensor_and_byte),
        cmocka_unit_test(a_file_that_was_cut_meanwhile_is_named),
        cmocka_unit_test(headers_alone_are_the_same_model_without_data),
        cmocka_unit_test(a_header_that_is_cut_anywhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
