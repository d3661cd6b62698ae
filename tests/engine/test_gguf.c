/* test_gguf - files are read as they are written, and damaged ones are refused in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/model.h"
#include "tests/engine/make_gguf.h"
#include "tests/engine/wrap_alloc.h"
#include "tests/test_data.h"

static void open_or_fail(struct gguf **out, const char *path)
{
    struct err err = {0};
    if (gguf_open(out, path, &err) != ERR_NONE) fail_msg("%s", err.text);
}

static void assert_one_line(const struct err *err)
{
    assert_int_not_equal(err->code, ERR_NONE);
    assert_true(strlen(err->text) > 10);
    assert_null(strpbrk(err->text, "\n\r"));
}

static void make_all_types(struct make_gguf *g)
{
    static const int16_t shorts[] = {-3, 0, 32767};
    static const float floats[] = {0.5f, -2};
    make_gguf_begin(g);
    make_kv(g, "u8", GGUF_U8, &(uint8_t){200}, 1);
    make_kv(g, "i8", GGUF_I8, &(int8_t){-7}, 1);
    make_kv(g, "u16", GGUF_U16, &(uint16_t){60000}, 2);
    make_kv(g, "i16", GGUF_I16, &(int16_t){1234}, 2);
    make_u32(g, "u32", 4000000000u);
    make_kv(g, "i32", GGUF_I32, &(int32_t){-1}, 4);
    make_kv(g, "u64", GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    make_kv(g, "i64", GGUF_I64, &(int64_t){5}, 8);
    make_f32(g, "f32", 1.5f);
    make_kv(g, "f64", GGUF_F64, &(double){0.25}, 8);
    make_kv(g, "bool", GGUF_BOOL, &(uint8_t){1}, 1);
    make_kv(g, "bool.2", GGUF_BOOL, &(uint8_t){2}, 1);
    make_str(g, "string", "hello");
    make_str(g, "string.empty", "");
    make_array(g, "array.i16", GGUF_I16, shorts, sizeof shorts, 3);
    make_array(g, "array.f32", GGUF_F32, floats, sizeof floats, 2);
    make_array(g, "array.string", GGUF_STRING,
               "\1\0\0\0\0\0\0\0a\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0xyz", 28, 3);
    make_array(g, "array.none", GGUF_STRING, NULL, 0, 0);
    make_tensor(g, FORMAT_F32, 5, 3, "first");
    make_tensor(g, FORMAT_Q8_0, 64, 2, "second");
    make_tensor(g, FORMAT_F16, 7, 0, "third");
}

static void assert_str(struct gguf_str s, const char *want)
{
    assert_int_equal(s.len, strlen(want));
    assert_memory_equal(s.data, want, s.len);
}

static void values_of_every_type_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint64_t value;
    } integers[] = {{"u8", 200},         {"u16", 60000}, {"i16", 1234},
                    {"u32", 4000000000}, {"i64", 5},     {"u64", UINT64_MAX}};
    struct make_gguf file;
    struct gguf *g;
    struct err err;
    make_all_types(&file);
    open_or_fail(&g, make_gguf_write(&file));
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        uint64_t value = 0;
        assert_int_equal(gguf_get_u64(g, integers[i].key, &value, &err), ERR_NONE);
        assert_true(value == integers[i].value);
    }
    float f = 0;
    assert_int_equal(gguf_get_f32(g, "f32", &f, &err), ERR_NONE);
    assert_true(f == 1.5f);
    assert_int_equal(gguf_get_f32(g, "f64", &f, &err), ERR_NONE);
    assert_true(f == 0.25f);
    bool b = false;
    assert_int_equal(gguf_get_bool(g, "bool", &b, &err), ERR_NONE);
    assert_true(b);
    struct gguf_str s;
    assert_int_equal(gguf_get_str(g, "string", &s, &err), ERR_NONE);
    assert_str(s, "hello");
    assert_int_equal(gguf_get_str(g, "string.empty", &s, &err), ERR_NONE);
    assert_int_equal(s.len, 0);
    gguf_close(g);
    make_gguf_end(&file);
}

static void arrays_read_back_element_by_element(void **state)
{
    (void)state;
    struct make_gguf file;
    struct gguf *g;
    make_all_types(&file);
    open_or_fail(&g, make_gguf_write(&file));
    const struct gguf_kv *kv = gguf_find(g, "array.i16");
    assert_int_equal(gguf_kv_type(kv), GGUF_ARRAY);
    assert_int_equal(gguf_kv_element_type(kv), GGUF_I16);
    assert_int_equal(gguf_array_length(kv), 3);
    assert_int_equal(gguf_array_int(kv, 0), -3);
    assert_int_equal(gguf_array_int(kv, 2), 32767);
    kv = gguf_find(g, "array.f32");
    assert_true(gguf_array_f32(kv, 1) == -2);
    kv = gguf_find(g, "array.string");
    assert_int_equal(gguf_array_length(kv), 3);
    assert_str(gguf_array_str(kv, 0), "a");
    assert_str(gguf_array_str(kv, 1), "");
    assert_str(gguf_array_str(kv, 2), "xyz");
    assert_int_equal(gguf_array_length(gguf_find(g, "array.none")), 0);
    assert_int_equal(gguf_array_length(gguf_find(g, "u32")), 0);
    gguf_close(g);
    make_gguf_end(&file);
}

static void absent_keys_leave_the_default(void **state)
{
    (void)state;
    struct make_gguf file;
    struct gguf *g;
    struct err err;
    make_all_types(&file);
    open_or_fail(&g, make_gguf_write(&file));
    uint32_t u = 42;
    assert_int_equal(gguf_get_u32(g, "nosuch", &u, &err), ERR_NONE);
    assert_int_equal(u, 42);
    assert_null(gguf_find(g, "u3"));
    assert_null(gguf_find(g, "u322"));
    assert_null(gguf_find(g, ""));
    assert_null(gguf_find_tensor(g, "firs"));
    gguf_close(g);
    make_gguf_end(&file);
}

static void wrong_types_and_ranges_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        enum gguf_type want; /* which getter */
        const char *text;
    } cases[] = {
        {"i8", GGUF_U32, "key i8 is -7"},
        {"i32", GGUF_U64, "key i32 is -1"},
        {"u64", GGUF_U32, "key u64 is 18446744073709551615"},
        {"f32", GGUF_U32, "key f32 is f32"},
        {"bool", GGUF_U32, "key bool is bool"},
        {"array.i16", GGUF_U32, "key array.i16 is an array of i16"},
        {"u32", GGUF_F32, "key u32 is u32, want f32"},
        {"u8", GGUF_BOOL, "key u8 is u8, want bool"},
        {"bool.2", GGUF_BOOL, "key bool.2 is the bool 2"},
        {"u8", GGUF_STRING, "key u8 is u8, want string"},
        {"array.string", GGUF_STRING, "key array.string is an array of string"},
    };
    struct make_gguf file;
    struct gguf *g;
    make_all_types(&file);
    open_or_fail(&g, make_gguf_write(&file));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        union {
            uint32_t u32;
            uint64_t u64;
            float f32;
            bool b;
            struct gguf_str s;
        } out;
        memset(&out, 0, sizeof out);
        const char *key = cases[i].key;
        int rc = cases[i].want == GGUF_U32    ? gguf_get_u32(g, key, &out.u32, &err)
                 : cases[i].want == GGUF_U64  ? gguf_get_u64(g, key, &out.u64, &err)
                 : cases[i].want == GGUF_F32  ? gguf_get_f32(g, key, &out.f32, &err)
                 : cases[i].want == GGUF_BOOL ? gguf_get_bool(g, key, &out.b, &err)
                                              : gguf_get_str(g, key, &out.s, &err);
        assert_int_equal(rc, ERR_FILE);
        if (strstr(err.text, cases[i].text) == NULL) fail_msg("%s: %s", key, err.text);
    }
    gguf_close(g);
    make_gguf_end(&file);
}

static void tensors_have_shape_bytes_and_place(void **state)
{
    (void)state;
    struct make_gguf file;
    struct gguf *g;
    make_all_types(&file);
    open_or_fail(&g, make_gguf_write(&file));
    assert_int_equal(gguf_tensor_count(g), 3);
    const struct gguf_tensor *t = gguf_find_tensor(g, "first");
    assert_ptr_equal(t, gguf_tensor_at(g, 0));
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 5);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->shape[2], 1);
    assert_int_equal(t->bytes, 60);
    const struct gguf_tensor *next = gguf_find_tensor(g, "second");
    assert_int_equal(next->bytes, 2 * 2 * 34);
    assert_int_equal(next->data - t->data, 64);
    assert_int_equal(gguf_find_tensor(g, "third")->bytes, 14);
    assert_int_equal((uintptr_t)t->data % 32, 0);
    gguf_close(g);
    make_gguf_end(&file);
}

static uint64_t digest_of(const char *value, uint64_t extra_bytes)
{
    struct make_gguf file;
    struct gguf *g;
    make_gguf_begin(&file);
    make_str(&file, "general.name", value);
    make_tensor(&file, FORMAT_F32, 8, 0, "t");
    const char *path = make_gguf_write(&file);
    open_or_fail(&g, path);
    uint64_t bytes = gguf_file_bytes(g);
    gguf_close(g);
    assert_int_equal(truncate(path, (off_t)(bytes + extra_bytes)), 0);
    open_or_fail(&g, path);
    uint64_t digest = gguf_digest(g);
    gguf_close(g);
    make_gguf_end(&file);
    return digest;
}

static void the_sample_tells_data_apart_behind_one_header(void **state)
{
    (void)state;
    struct make_gguf file;
    struct gguf *g;
    struct err err;
    uint64_t digest[2], sample[2];
    make_gguf_begin(&file);
    make_tensor(&file, FORMAT_F32, 8, 0, "first");
    make_tensor(&file, FORMAT_F32, 8, 32, "second");
    const char *path = make_gguf_write(&file);
    for (int i = 0; i < 2; i++) {
        open_or_fail(&g, path);
        digest[i] = gguf_digest(g);
        assert_int_equal(gguf_sample(g, &sample[i], &err), ERR_NONE);
        const struct gguf_tensor *t = gguf_find_tensor(g, "second");
        const uint8_t other = t->data[3] ^ 1;
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        assert_int_equal(fseek(f, (long)t->offset + 3, SEEK_SET), 0);
        assert_int_equal(fputc(other, f), other);
        assert_int_equal(fclose(f), 0);
        gguf_close(g);
    }
    assert_int_equal(digest[0], digest[1]);
    assert_int_not_equal(sample[0], sample[1]);
    make_gguf_end(&file);
}

static void the_digest_covers_header_and_length(void **state)
{
    (void)state;
    uint64_t base = digest_of("one", 0);
    assert_true(base == digest_of("one", 0));
    assert_true(base != digest_of("two", 0));
    assert_true(base != digest_of("one", 1));
}

static void every_cut_of_a_file_is_refused(void **state)
{
    (void)state;
    struct make_gguf file;
    struct gguf *g;
    make_all_types(&file);
    const char *path = make_gguf_write(&file);
    open_or_fail(&g, path);
    uint64_t bytes = gguf_file_bytes(g);
    gguf_close(g);
    while (bytes-- > 0) {
        struct err err = {0};
        assert_int_equal(truncate(path, (off_t)bytes), 0);
        assert_int_equal(gguf_open(&g, path, &err), ERR_FILE);
        assert_null(g);
        assert_one_line(&err);
    }
    make_gguf_end(&file);
}

/* Any change of any header byte may open or be refused, but never read outside the file: the
 * sanitizers watch. Whatever opens is walked through, and all its strings are read. */
static void touch_everything(const struct gguf *g)
{
    volatile size_t sum = 0;
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        sum += gguf_kv_key(kv).len;
        for (uint64_t j = 0; j < gguf_array_length(kv); j++) {
            if (gguf_kv_element_type(kv) != GGUF_STRING) continue;
            struct gguf_str s = gguf_array_str(kv, j);
            for (size_t k = 0; k < s.len; k++) sum += (unsigned char)s.data[k];
        }
    }
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        sum += t->data[0] + t->data[t->bytes - 1];
    }
    (void)sum;
}

static void no_changed_byte_leads_outside_the_file(void **state)
{
    (void)state;
    static const uint8_t changes[] = {0x01, 0x80, 0xff};
    struct make_gguf file;
    struct gguf *g;
    make_all_types(&file);
    const char *path = make_gguf_write(&file);
    open_or_fail(&g, path);
    uint64_t bytes = gguf_file_bytes(g);
    gguf_close(g);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    for (uint64_t at = 0; at < bytes; at++) {
        fseek(f, (long)at, SEEK_SET);
        int old = fgetc(f);
        for (size_t i = 0; i <= sizeof changes; i++) { /* the last turn puts the byte back */
            fseek(f, (long)at, SEEK_SET);
            fputc(i < sizeof changes ? old ^ changes[i] : old, f);
            fflush(f);
            struct err err = {0};
            alloc_bytes = 0;
            if (gguf_open(&g, path, &err) == ERR_NONE)
                touch_everything(g);
            else
                assert_one_line(&err);
            gguf_close(g);
            assert_true(alloc_bytes < 16 * bytes + 4096);
        }
    }
    fclose(f);
    make_gguf_end(&file);
}

static void each_failing_allocation_is_an_error(void **state)
{
    (void)state;
    struct make_gguf file;
    struct gguf *g = NULL;
    make_all_types(&file);
    const char *path = make_gguf_write(&file);
    uint64_t failures = 0;
    for (;; failures++) {
        struct err err = {0};
        alloc_fail_at = failures + 1;
        int rc = gguf_open(&g, path, &err);
        alloc_fail_at = 0;
        if (rc == ERR_NONE) break;
        assert_int_equal(rc, ERR_MEMORY);
        assert_null(g);
        assert_one_line(&err);
    }
    assert_true(failures >= 5);
    gguf_close(g);
    make_gguf_end(&file);
}

static void paths_that_are_no_file_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int rc;
    } cases[] = {{"/nosuch/file.gguf", ERR_ABSENT},
                 {"", ERR_ABSENT},
                 {"/tmp", ERR_FILE},
                 {"/dev/null", ERR_FILE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf *g;
        struct err err = {0};
        assert_int_equal(gguf_open(&g, cases[i].path, &err), cases[i].rc);
        assert_one_line(&err);
    }
}

/* Faults of the vocabulary's content, which the tokenizer finds: its own test has them. */
static bool is_for_the_tokenizer(const char *name)
{
    static const char *const prefixes[] = {
        "gguf/bos_id_string",           /* type of a special token's id */
        "gguf/merges_missing",          /* needed by the kind of tokenizer */
        "gguf/merges_u32",              /* type of the merges */
        "gguf/tokenizer_model_unknown", /* which kinds there are */
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

/* False where the file is absent. */
static bool check_malformed(const char *name, const char *expect)
{
    char file[256];
    snprintf(file, sizeof file, "malformed/%s", name);
    const char *path = test_data_path(file);
    if (path == NULL) return false;
    struct model *m = NULL;
    struct err err = {0};
    alloc_bytes = 0;
    int rc = model_open(&m, path, &err);
    uint64_t bytes_max = 64 << 20;
    assert_true(alloc_bytes < bytes_max);
    if (rc == ERR_NONE && strcmp(expect, "reject") == 0 && !is_for_the_tokenizer(name))
        fail_msg("%s was accepted", name);
    if (rc != ERR_NONE && strcmp(expect, "accept") == 0)
        fail_msg("%s was refused: %s", name, err.text);
    if (rc != ERR_NONE) {
        assert_one_line(&err);
        assert_true(strncmp(err.text, path, strlen(path)) == 0);
    }
    model_close(m);
    return true;
}

static void malformed_files_come_out_as_the_manifest_says(void **state)
{
    (void)state;
    SKIP_WITHOUT(manifest, "malformed/MANIFEST.json");
    json_error_t error;
    json_t *cases = json_load_file(manifest, 0, &error);
    if (cases == NULL) fail_msg("%s:%d: %s", manifest, error.line, error.text);
    size_t i, listed = 0, seen = 0;
    json_t *entry;
    json_array_foreach(cases, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "file"));
        const char *expect = json_string_value(json_object_get(entry, "expect"));
        assert_non_null(name);
        assert_non_null(expect);
        if (strncmp(name, "gguf/", 5) != 0) continue;
        listed++;
        if (check_malformed(name, expect)) seen++;
    }
    json_decref(cases);
    assert_true(seen > 0);
    if (seen < listed)
        print_message("%zu of %zu malformed files are absent (TANDEM_TEST_DATA)\n", listed - seen,
                      listed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_type_read_back),
        cmocka_unit_test(arrays_read_back_element_by_element),
        cmocka_unit_test(absent_keys_leave_the_default),
        cmocka_unit_test(wrong_types_and_ranges_are_named),
        cmocka_unit_test(tensors_have_shape_bytes_and_place),
        cmocka_unit_test(the_digest_covers_header_and_length),
        cmocka_unit_test(the_sample_tells_data_apart_behind_one_header),
        cmocka_unit_test(every_cut_of_a_file_is_refused),
        cmocka_unit_test(no_changed_byte_leads_outside_the_file),
        cmocka_unit_test(each_failing_allocation_is_an_error),
        cmocka_unit_test(paths_that_are_no_file_are_refused),
        cmocka_unit_test(malformed_files_come_out_as_the_manifest_says),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
