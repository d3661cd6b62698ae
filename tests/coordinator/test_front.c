/* test_front - the parts of the front ends that need no line: ids, files, safe
 * printing, inspect. */
#include "coordinator/front/front.h"
#include "coordinator/front/input.h"
#include "coordinator/front/output.h"
#include "coordinator/front/sampling_settings.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/test_data.h"

/* ---- input ---- */

static void ids_stand_between_blanks_commas_and_newlines(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        int32_t ids[4];
    } cases[] = {
        {"", 0, {0}},
        {" \n,", 0, {0}},
        {"# 7 8\n", 0, {0}},
        {"1,2,3", 3, {1, 2, 3}},
        {"1 2\t3\r\n4", 4, {1, 2, 3, 4}},
        {"1, # one\n2# two\n3", 3, {1, 2, 3}},
        {"2147483647", 1, {INT32_MAX}},
        {"007", 1, {7}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct token_list ids = {0};
        struct err err;
        const char *text = cases[i].text;
        assert_int_equal(input_parse_ids(text, strlen(text), "here", &ids, &err), ERR_NONE);
        assert_int_equal(ids.n, cases[i].n);
        if (ids.n > 0) assert_memory_equal(ids.ids, cases[i].ids, ids.n * sizeof *ids.ids);
        token_list_free(&ids);
    }
}

static void what_is_no_id_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const bad[] = {"x",   "1,-2", "1.5", "2147483648", "99999999999999999999999",
                                      "1 2x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct token_list ids = {0};
        struct err err;
        assert_int_equal(input_parse_ids(bad[i], strlen(bad[i]), "here", &ids, &err), ERR_USAGE);
        assert_non_null(strstr(err.text, "here: '"));
        token_list_free(&ids);
    }
}

static void a_file_is_read_to_its_last_byte(void **state)
{
    (void)state;
    enum { N = 200001 }; /* more than one buffer */
    char path[] = "/tmp/test_front_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    char *want = malloc(N);
    for (int i = 0; i < N; i++) want[i] = (char)(i * 7);
    assert_int_equal(write(fd, want, N), N);
    close(fd);
    char *text;
    size_t len;
    struct err err;
    assert_int_equal(input_read(path, &text, &len, &err), ERR_NONE);
    assert_int_equal(len, N);
    assert_memory_equal(text, want, N);
    free(text);
    free(want);
    unlink(path);
    assert_int_equal(input_read(path, &text, &len, &err), ERR_FILE);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(input_read("/", &text, &len, &err), ERR_FILE);
    assert_null(text);
}

/* ---- output ---- */

static void quoted_text_is_one_safe_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *want;
    } cases[] = {
        {"", 0, "\"\""},
        {" the", 4, "\" the\""},
        {"a\n\t\"\\", 5, "\"a\\n\\t\\\"\\\\\""},
        {"\0\x1b[0m\x7f", 6, "\"\\x00\\x1B[0m\\x7F\""},
        {"\xc3\xa9", 2, "\"\xc3\xa9\""},
        {"\xc3", 1, "\"\\xC3\""},
        {"\xff\xc0\x80", 3, "\"\\xFF\\xC0\\x80\""},
        {"\xf0\x9f\x98\x80", 4, "\"\xf0\x9f\x98\x80\""},
        {"\xed\xa0\x80", 3, "\"\\xED\\xA0\\x80\""},
        {"\xe0\x80\x80", 3, "\"\\xE0\\x80\\x80\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[64];
        assert_string_equal(output_quote(cases[i].text, cases[i].len, out, sizeof out),
                            cases[i].want);
    }
}

static void quoted_text_is_cut_to_its_room(void **state)
{
    (void)state;
    char text[100];
    memset(text, '\n', sizeof text);
    for (size_t size = 3; size < 40; size++) {
        char out[40];
        memset(out, 'G', sizeof out);
        output_quote(text, sizeof text, out, size);
        assert_true(strlen(out) < size);
        assert_int_equal(out[strlen(out) - 1], '"');
        assert_true(size == sizeof out || out[size] == 'G');
    }
}

static void bytes_have_a_unit(void **state)
{
    (void)state;
    char out[OUTPUT_BYTES_TEXT];
    assert_string_equal(output_bytes(0, out), "0 B");
    assert_string_equal(output_bytes(1023, out), "1023 B");
    assert_string_equal(output_bytes(1536, out), "1.5 KiB");
    assert_string_equal(output_bytes(UINT64_MAX, out), "16777216.0 TiB");
}

/* ---- sampling ---- */

/* read_sampling() - with the given biases and --ignore-eos, over the demo model's vocabulary. */
static int read_sampling(struct settings *s, struct sampling *out, struct logit_bias **bias,
                         struct err *err)
{
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    assert_int_equal(gguf_open(&g, test_data_path("families/llama.gguf"), err), ERR_NONE);
    assert_int_equal(tokenizer_open(&t, g, NULL, err), ERR_NONE);
    int rc = sampling_settings_read(s, t, 320, out, bias, err);
    tokenizer_close(t);
    gguf_close(g);
    return rc;
}

static void the_last_word_on_a_bias_holds_and_end_tokens_are_banned(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct settings s = settings_default();
    struct err err;
    struct sampling sampling;
    struct logit_bias *bias = NULL;
    assert_int_equal(option_list_push(&s.biases, "5=1.5", &err), ERR_NONE);
    assert_int_equal(option_list_push(&s.biases, "316=9", &err), ERR_NONE);
    assert_int_equal(option_list_push(&s.biases, "5=-inf", &err), ERR_NONE);
    s.ignore_eos = true;
    assert_int_equal(read_sampling(&s, &sampling, &bias, &err), ERR_NONE);
    assert_true(sampling.n_bias >= 2);
    assert_int_equal(sampling.bias[0].id, 5);
    assert_true(isinf(sampling.bias[0].bias) && sampling.bias[0].bias < 0);
    assert_int_equal(sampling.bias[1].id, 316); /* EOS */
    assert_true(isinf(sampling.bias[1].bias) && sampling.bias[1].bias < 0);
    free(bias);
    settings_free(&s);
}

static void malformed_biases_are_refused(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    static const char *const bad[] = {"",    "5",     "5=",    "=1",   "-1=1", "x=1",
                                      "5=x", "5=inf", "5=nan", "5=1x", "320=1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct settings s = settings_default();
        struct err err;
        struct sampling sampling;
        struct logit_bias *bias = NULL;
        assert_int_equal(option_list_push(&s.biases, bad[i], &err), ERR_NONE);
        if (read_sampling(&s, &sampling, &bias, &err) != ERR_USAGE)
            fail_msg("'%s' was accepted", bad[i]);
        free(bias);
        settings_free(&s);
    }
}

static void a_seed_is_drawn_only_where_one_is_needed(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct settings s = settings_default();
    struct err err;
    struct sampling first, second;
    struct logit_bias *bias = NULL;
    s.sampling.temperature = 1;
    assert_int_equal(read_sampling(&s, &first, &bias, &err), ERR_NONE);
    free(bias);
    assert_int_equal(read_sampling(&s, &second, &bias, &err), ERR_NONE);
    free(bias);
    assert_true(first.seed != second.seed);
    assert_true(first.seed < 1ULL << 53 && second.seed < 1ULL << 53);
    s.seed_given = true;
    s.sampling.seed = 7;
    assert_int_equal(read_sampling(&s, &second, &bias, &err), ERR_NONE);
    free(bias);
    assert_true(second.seed == 7);
}

/* ---- inspect ---- */

/* run_inspect() - its standard output as text, the caller's to free(). */
static char *run_inspect(struct settings *s, int *rc, struct err *err)
{
    char path[] = "/tmp/test_front_XXXXXX";
    int fd = mkstemp(path), kept = dup(STDOUT_FILENO);
    assert_true(fd >= 0 && kept >= 0);
    fflush(stdout);
    dup2(fd, STDOUT_FILENO);
    *rc = inspect_run(s, NULL, err);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(fd);
    char *text;
    size_t len;
    assert_int_equal(input_read(path, &text, &len, err), ERR_NONE);
    unlink(path);
    return text;
}

static json_int_t number(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

static void inspect_counts_every_tensor_once_and_shares_all_layers_out(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct settings s = settings_default();
    struct err err;
    int rc;
    s.json = s.tensors = true;
    s.ranks = 4;
    assert_int_equal(option_list_push(&s.operands, path, &err), ERR_NONE);
    char *text = run_inspect(&s, &rc, &err);
    assert_int_equal(rc, ERR_NONE);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "family")), "llama");

    json_int_t bytes = number(json_object_get(root, "input"), "bytes") +
                       number(json_object_get(root, "output"), "bytes") +
                       number(json_object_get(root, "every_rank"), "bytes");
    const json_t *layers = json_object_get(root, "layers");
    assert_int_equal(json_array_size(layers), 4);
    for (size_t i = 0; i < 4; i++) bytes += number(json_array_get(layers, i), "bytes");
    assert_int_equal(bytes, number(json_object_get(root, "total"), "bytes"));
    json_int_t listed = 0;
    const json_t *tensors = json_object_get(root, "tensors");
    for (size_t i = 0; i < json_array_size(tensors); i++)
        listed += number(json_array_get(tensors, i), "bytes");
    assert_int_equal(bytes, listed);

    const json_t *ranks = json_object_get(root, "ranks");
    assert_int_equal(json_array_size(ranks), 3);
    json_int_t next = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(number(json_array_get(ranks, i), "rank"), (json_int_t)i + 1);
        assert_int_equal(number(json_array_get(ranks, i), "first_layer"), next);
        next = number(json_array_get(ranks, i), "end_layer");
    }
    assert_int_equal(next, 4);
    json_decref(root);
    free(text);
    settings_free(&s);
}

static void inspect_refuses_what_it_cannot_share_out(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct settings s = settings_default();
    struct err err;
    int rc;
    assert_int_equal(option_list_push(&s.operands, path, &err), ERR_NONE);
    s.ranks = 6;
    free(run_inspect(&s, &rc, &err));
    assert_int_equal(rc, ERR_CAPACITY);
    s.ranks = 0;
    s.split = "1,2";
    free(run_inspect(&s, &rc, &err));
    assert_int_equal(rc, ERR_USAGE);
    settings_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_stand_between_blanks_commas_and_newlines),
        cmocka_unit_test(what_is_no_id_is_refused_by_name),
        cmocka_unit_test(a_file_is_read_to_its_last_byte),
        cmocka_unit_test(quoted_text_is_one_safe_line),
        cmocka_unit_test(quoted_text_is_cut_to_its_room),
        cmocka_unit_test(bytes_have_a_unit),
        cmocka_unit_test(the_last_word_on_a_bias_holds_and_end_tokens_are_banned),
        cmocka_unit_test(malformed_biases_are_refused),
        cmocka_unit_test(a_seed_is_drawn_only_where_one_is_needed),
        cmocka_unit_test(inspect_counts_every_tensor_once_and_shares_all_layers_out),
        cmocka_unit_test(inspect_refuses_what_it_cannot_share_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
