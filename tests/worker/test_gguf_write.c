/* test_gguf_write - what the writer writes, the reader reads; and no half file is ever seen. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/gguf.h"
#include "engine/quant_formats.h"
#include "tests/test_data.h"
#include "worker/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[96], part[104];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tandem-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    snprintf(part, sizeof part, "%s.part", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    unlink(part);
    return rmdir(folder);
}

static bool exists(const char *name)
{
    return access(name, F_OK) == 0;
}

static struct gguf_writer *begin_writing(void)
{
    struct gguf_writer *w;
    struct err err;
    assert_int_equal(gguf_writer_open(&w, path, &err), ERR_NONE);
    return w;
}

static void add(struct gguf_writer *w, const char *name, uint32_t format, uint32_t n_dims,
                uint64_t a, uint64_t b, uint64_t c)
{
    const struct gguf_tensor t = {
        .name = {name, strlen(name)}, .format = format, .n_dims = n_dims, .shape = {a, b, c, 1}};
    gguf_writer_add_tensor(w, &t);
}

static struct gguf *finish_and_read(struct gguf_writer *w)
{
    struct err err;
    struct gguf *g;
    assert_int_equal(gguf_writer_finish(w, &err), ERR_NONE);
    gguf_writer_close(w);
    assert_int_equal(gguf_open(&g, path, &err), ERR_NONE);
    return g;
}

static void metadata_comes_back(void **state)
{
    (void)state;
    struct err err;
    struct gguf_writer *w = begin_writing();
    gguf_writer_put_u32(w, "a.number", 4000000000U);
    gguf_writer_put_f32(w, "a.float", -0.25f);
    gguf_writer_put_str(w, "a.text", "caf\xc3\xa9");
    gguf_writer_put_array(w, "a.ints", GGUF_I32, 2);
    gguf_writer_element_i32(w, -7);
    gguf_writer_element_i32(w, 8);
    gguf_writer_put_array(w, "a.floats", GGUF_F32, 1);
    gguf_writer_element_f32(w, 1.5f);
    gguf_writer_put_array(w, "a.texts", GGUF_STRING, 2);
    gguf_writer_element_str(w, "", 0);
    gguf_writer_element_str(w, "x\0y", 3);
    assert_int_equal(gguf_writer_begin(w, &err), ERR_NONE);
    struct gguf *g = finish_and_read(w);

    uint32_t number = 0;
    float value = 0;
    struct gguf_str text;
    assert_int_equal(gguf_kv_count(g), 6);
    assert_int_equal(gguf_get_u32(g, "a.number", &number, &err), ERR_NONE);
    assert_int_equal(number, 4000000000U);
    assert_int_equal(gguf_get_f32(g, "a.float", &value, &err), ERR_NONE);
    assert_true(value == -0.25f);
    assert_int_equal(gguf_get_str(g, "a.text", &text, &err), ERR_NONE);
    assert_int_equal(text.len, 5);
    assert_memory_equal(text.data, "caf\xc3\xa9", 5);
    assert_int_equal(gguf_array_int(gguf_find(g, "a.ints"), 0), -7);
    assert_int_equal(gguf_array_int(gguf_find(g, "a.ints"), 1), 8);
    assert_true(gguf_array_f32(gguf_find(g, "a.floats"), 0) == 1.5f);
    assert_int_equal(gguf_array_str(gguf_find(g, "a.texts"), 0).len, 0);
    text = gguf_array_str(gguf_find(g, "a.texts"), 1);
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.data, "x\0y", 3);
    gguf_close(g);
}

/* Odd sizes, so that padding stands between; written last first, in two steps. */
static void tensors_come_back(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t format, n_dims;
        uint64_t a, b, c, bytes;
    } want[] = {
        {"one", FORMAT_F32, 1, 3, 1, 1, 12},
        {"two", FORMAT_Q8_0, 2, 64, 5, 1, 340},
        {"three", FORMAT_F16, 3, 7, 3, 2, 84},
        {"four", FORMAT_Q6_K, 2, 256, 1, 1, 210},
    };
    enum { N = sizeof want / sizeof want[0] };
    struct err err;
    struct gguf_writer *w = begin_writing();
    for (int i = 0; i < N; i++)
        add(w, want[i].name, want[i].format, want[i].n_dims, want[i].a, want[i].b, want[i].c);
    assert_int_equal(gguf_writer_begin(w, &err), ERR_NONE);
    for (int i = N - 1; i >= 0; i--) {
        uint8_t bytes[340];
        memset(bytes, 'a' + i, sizeof bytes);
        const size_t half = want[i].bytes / 2;
        assert_int_equal(gguf_writer_write(w, (uint64_t)i, half, bytes, want[i].bytes - half, &err),
                         ERR_NONE);
        assert_int_equal(gguf_writer_write(w, (uint64_t)i, 0, bytes, half, &err), ERR_NONE);
    }
    const uint64_t file_bytes = gguf_writer_file_bytes(w);
    struct gguf *g = finish_and_read(w);
    assert_int_equal(gguf_file_bytes(g), file_bytes);
    assert_int_equal(gguf_file_bytes(g) % 32, 0);
    assert_int_equal(gguf_tensor_count(g), N);
    for (int i = 0; i < N; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, (uint64_t)i);
        assert_int_equal(t->name.len, strlen(want[i].name));
        assert_memory_equal(t->name.data, want[i].name, t->name.len);
        assert_int_equal(t->format, want[i].format);
        assert_int_equal(t->n_dims, want[i].n_dims);
        assert_int_equal(t->shape[0], want[i].a);
        assert_int_equal(t->shape[1], want[i].b);
        assert_int_equal(t->shape[2], want[i].c);
        assert_int_equal(t->bytes, want[i].bytes);
        for (uint64_t k = 0; k < t->bytes; k++) assert_int_equal(t->data[k], 'a' + i);
    }
    gguf_close(g);
}

static void many_tensors_come_back(void **state)
{
    (void)state;
    struct err err;
    struct gguf_writer *w = begin_writing();
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        add(w, name, FORMAT_F32, 1, 1, 1, 1);
    }
    assert_int_equal(gguf_writer_begin(w, &err), ERR_NONE);
    for (int i = 0; i < 1000; i++) {
        const float value = (float)i;
        assert_int_equal(gguf_writer_write(w, (uint64_t)i, 0, &value, sizeof value, &err),
                         ERR_NONE);
    }
    struct gguf *g = finish_and_read(w);
    for (uint64_t i = 0; i < 1000; i++) {
        float value;
        memcpy(&value, gguf_tensor_at(g, i)->data, sizeof value);
        assert_true(value == (float)i);
    }
    gguf_close(g);
}

/* Of every entry of a real file: numbers, texts, arrays of both. */
static void entries_of_another_file_are_copied(void **state)
{
    (void)state;
    SKIP_WITHOUT(other, "families/llama.gguf");
    struct err err;
    struct gguf *from;
    assert_int_equal(gguf_open(&from, other, &err), ERR_NONE);
    struct gguf_writer *w = begin_writing();
    for (uint64_t i = 0; i < gguf_kv_count(from); i++) gguf_writer_put_kv(w, gguf_kv_at(from, i));
    assert_int_equal(gguf_writer_begin(w, &err), ERR_NONE);
    struct gguf *to = finish_and_read(w);
    assert_int_equal(gguf_kv_count(to), gguf_kv_count(from));
    assert_true(gguf_kv_count(to) > 10);
    for (uint64_t i = 0; i < gguf_kv_count(from); i++) {
        const struct gguf_kv *a = gguf_kv_at(from, i), *b = gguf_kv_at(to, i);
        const struct gguf_str x = gguf_kv_value(a), y = gguf_kv_value(b);
        assert_int_equal(gguf_kv_type(a), gguf_kv_type(b));
        assert_int_equal(gguf_kv_element_type(a), gguf_kv_element_type(b));
        assert_int_equal(gguf_array_length(a), gguf_array_length(b));
        assert_int_equal(x.len, y.len);
        assert_memory_equal(x.data, y.data, x.len);
    }
    gguf_close(from);
    gguf_close(to);
}

static void a_file_has_its_name_only_when_it_is_complete(void **state)
{
    (void)state;
    struct err err;
    struct gguf_writer *w = begin_writing();
    add(w, "x", FORMAT_F32, 1, 4, 1, 1);
    assert_int_equal(gguf_writer_begin(w, &err), ERR_NONE);
    assert_string_equal(gguf_writer_part_path(w), part);
    assert_true(exists(part));
    assert_false(exists(path));
    assert_int_equal(gguf_writer_finish(w, &err), ERR_NONE);
    assert_false(exists(part));
    assert_true(exists(path));
    gguf_writer_close(w);
    assert_true(exists(path));
}

static void an_unfinished_file_leaves_nothing_and_harms_nothing(void **state)
{
    (void)state;
    struct err err;
    FILE *old = fopen(path, "w");
    assert_non_null(old);
    fputs("old", old);
    fclose(old);
    struct gguf_writer *w = begin_writing();
    add(w, "x", FORMAT_F32, 1, 4, 1, 1);
    assert_int_equal(gguf_writer_begin(w, &err), ERR_NONE);
    gguf_writer_close(w);
    assert_false(exists(part));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 3);
}

static void a_place_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    struct err err;
    struct gguf_writer *w;
    assert_int_equal(gguf_writer_open(&w, "/nonexistent/x.gguf", &err), ERR_FILE);
    assert_null(w);
    assert_non_null(strstr(err.text, "/nonexistent/x.gguf.part"));
}

/* A limit on the size of files stands for a full disk. */
static void a_file_that_does_not_fit_is_refused_before_it_is_written(void **state)
{
    (void)state;
    struct err err;
    struct rlimit before, small;
    struct gguf_writer *w = begin_writing();
    add(w, "x", FORMAT_F32, 2, 1024, 1024, 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int rc = gguf_writer_begin(w, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, ERR_FILE);
    assert_non_null(strstr(err.text, "no room for 4194"));
    gguf_writer_close(w);
    assert_false(exists(part));
}

int main(void)
{
#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        FILE_TEST(metadata_comes_back),
        FILE_TEST(tensors_come_back),
        FILE_TEST(many_tensors_come_back),
        FILE_TEST(entries_of_another_file_are_copied),
        FILE_TEST(a_file_has_its_name_only_when_it_is_complete),
        FILE_TEST(an_unfinished_file_leaves_nothing_and_harms_nothing),
        cmocka_unit_test(a_place_that_cannot_be_written_is_named),
        FILE_TEST(a_file_that_does_not_fit_is_refused_before_it_is_written),
    };
    signal(SIGXFSZ, SIG_IGN); /* an error in place of an end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
