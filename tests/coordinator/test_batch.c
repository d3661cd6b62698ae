/* test_batch - the ends of a batch: lines that become requests or say why not, and an output of
 * whole lines.
 */
#include "coordinator/front/batch_output.h"
#include "coordinator/front/batch_request.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int read_line(struct batch_request *r, const char *line, size_t len, struct err *err)
{
    static const struct logit_bias base[] = {{3, 1.5F}};
    const struct settings s = settings_default();
    return batch_request_read(r, line, len, &s, base, 1, err);
}

/* ---- lines ---- */

static void a_line_changes_what_it_says_and_nothing_else(void **state)
{
    (void)state;
    static const char line[] =
        "{\"id\":\"a\",\"prompt\":\"x\\u0000y\",\"max_tokens\":7,\"temperature\":0.5,\"top_k\":4,"
        "\"top_p\":0.9,\"min_p\":0.1,\"typical_p\":0.8,\"repeat_penalty\":1.1,"
        "\"frequency_penalty\":-1,\"presence_penalty\":2,\"repeat_last_n\":9,\"seed\":11,"
        "\"stop\":[\"a\",\"b\"],\"logit_bias\":{\"5\":-2,\"6\":\"-inf\"},\"ignore_eos\":true}\r";
    struct batch_request r;
    struct err err;
    assert_int_equal(read_line(&r, line, sizeof line - 1, &err), ERR_NONE);
    assert_string_equal(json_string_value(r.id), "a");
    assert_int_equal(r.text_len, 3);
    assert_memory_equal(r.text, "x\0y", 3);
    assert_int_equal(r.n_tokens, 7);
    const struct sampling *p = &r.sampling;
    assert_true(p->temperature == 0.5F && p->top_p == 0.9F && p->min_p == 0.1F &&
                p->typical_p == 0.8F);
    assert_true(p->repeat_penalty == 1.1F && p->frequency_penalty == -1 &&
                p->presence_penalty == 2);
    assert_true(p->top_k == 4 && p->penalty_last_n == 9 && p->seed == 11 && r.seed_given &&
                r.ignore_eos);
    assert_int_equal(r.n_stops, 2);
    assert_string_equal(r.stops[1], "b");
    assert_int_equal(p->n_bias, 3);
    assert_true(p->bias[0].id == 3 && p->bias[1].id == 5 && p->bias[1].bias == -2 &&
                p->bias[2].bias == -INFINITY);
    batch_request_free(&r);

    assert_int_equal(read_line(&r, "{\"ids\":[1,2]}", 13, &err), ERR_NONE);
    const struct settings s = settings_default();
    assert_null(r.id);
    assert_null(r.text);
    assert_true(r.ids.n == 2 && r.ids.ids[1] == 2);
    assert_true(r.n_tokens == s.n_tokens && !r.seed_given && r.n_stops == 0 &&
                r.sampling.n_bias == 1);
    batch_request_free(&r);
}

static void what_is_wrong_with_a_line_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        size_t len; /* 0: to the NUL */
        const char *says;
        const char *id; /* still known */
    } cases[] = {
        {"", 0, "no JSON", NULL},
        {"nonsense", 0, "no JSON", NULL},
        {"[1]", 0, "JSON object", NULL},
        {"{\"prompt\":\"a\"} x", 0, "no JSON", NULL},
        {"{\"prompt\":\"a", 0, "no JSON", NULL},
        {"{\"prompt\":\"a\0b\"}", 16, "no JSON at byte", NULL},
        {"{\"prompt\":\"a\xff\"}", 0, "no JSON at byte", NULL},
        {"{\"prompt\":\"a\",\"prompt\":\"b\"}", 0, "no JSON", NULL},
        {"{}", 0, "a prompt or ids", NULL},
        {"{\"id\":\"k\"}", 0, "a prompt or ids", "k"},
        {"{\"prompt\":\"a\",\"ids\":[1]}", 0, "a prompt or ids", NULL},
        {"{\"bogus\":1,\"prompt\":\"a\",\"id\":\"k\"}", 0, "unknown field 'bogus'", "k"},
        {"{\"prompt\":7}", 0, "prompt: want a string", NULL},
        {"{\"prompt\":\"a\",\"id\":1.5}", 0, "id: want", NULL},
        {"{\"prompt\":\"a\",\"id\":null}", 0, "id: want", NULL},
        {"{\"ids\":[]}", 0, "ids: want", NULL},
        {"{\"ids\":[1,-1]}", 0, "ids: value 1", NULL},
        {"{\"ids\":[2147483648]}", 0, "ids: value 0", NULL},
        {"{\"prompt\":\"a\",\"temperature\":\"1\"}", 0, "temperature: want a number", NULL},
        {"{\"prompt\":\"a\",\"temperature\":1e99}", 0, "temperature: want a number", NULL},
        {"{\"prompt\":\"a\",\"top_k\":-1}", 0, "top_k: want", NULL},
        {"{\"prompt\":\"a\",\"max_tokens\":-2}", 0, "max_tokens: want", NULL},
        {"{\"prompt\":\"a\",\"max_tokens\":1.0}", 0, "max_tokens: want", NULL},
        {"{\"prompt\":\"a\",\"seed\":-1}", 0, "seed: want", NULL},
        {"{\"prompt\":\"a\",\"seed\":99999999999999999999}", 0, "no JSON", NULL},
        {"{\"prompt\":\"a\",\"stop\":\"\"}", 0, "stop: a text", NULL},
        {"{\"prompt\":\"a\",\"stop\":\"x\\u0000y\"}", 0, "stop: a text", NULL},
        {"{\"prompt\":\"a\",\"stop\":[1]}", 0, "stop: want", NULL},
        {"{\"prompt\":\"a\",\"logit_bias\":[1]}", 0, "logit_bias: want", NULL},
        {"{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", 0, "logit_bias: want", NULL},
        {"{\"prompt\":\"a\",\"logit_bias\":{\"1\":\"inf\"}}", 0, "logit_bias: want", NULL},
        {"{\"prompt\":\"a\",\"ignore_eos\":1}", 0, "ignore_eos: want", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct batch_request r;
        struct err err;
        const size_t len = cases[i].len != 0 ? cases[i].len : strlen(cases[i].line);
        assert_int_equal(read_line(&r, cases[i].line, len, &err), ERR_USAGE);
        if (strstr(err.text, cases[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        if (cases[i].id == NULL)
            assert_null(r.id);
        else
            assert_string_equal(json_string_value(r.id), cases[i].id);
        batch_request_free(&r);
    }
}

static uint64_t digest_of(const char *line, uint32_t tokens_max, uint32_t n_ctx)
{
    struct batch_request r;
    struct err err;
    uint64_t digest = 0;
    if (read_line(&r, line, strlen(line), &err) != ERR_NONE) fail_msg("%s", err.text);
    assert_int_equal(batch_request_digest(&r, tokens_max, n_ctx, &digest, &err), ERR_NONE);
    batch_request_free(&r);
    return digest;
}

static void a_digest_tells_requests_apart_and_no_more(void **state)
{
    (void)state;
    static const char plain[] = "{\"ids\":[1,2],\"temperature\":0.5}";
    static const char *const same[] = {"{\"temperature\":0.5,\"ids\":[1,2]}",
                                       "{\"id\":7,\"ids\":[1,2],\"temperature\":0.5}",
                                       "{\"ids\":[1,2],\"temperature\":5e-1,\"top_k\":0}"};
    static const char *const others[] = {
        plain,
        "{\"ids\":[12],\"temperature\":0.5}",
        "{\"ids\":[1,3],\"temperature\":0.5}",
        "{\"ids\":[1,2],\"temperature\":0.6}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"top_k\":3}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"top_p\":0.5}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"min_p\":0.5}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"typical_p\":0.5}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"repeat_penalty\":0.5}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"frequency_penalty\":0.5}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"presence_penalty\":0.5}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"repeat_last_n\":3}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"logit_bias\":{\"5\":1}}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"logit_bias\":{\"5\":\"-inf\"}}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"ignore_eos\":true}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"seed\":0}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"seed\":1}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"stop\":\"a 1 b\"}",
        "{\"ids\":[1,2],\"temperature\":0.5,\"stop\":[\"a\",\"b\"]}",
        "{\"ids\":[1,2],\"temperature\":0}",
    };
    enum { N = sizeof others / sizeof others[0] };
    uint64_t digests[N + 2];
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_true(digest_of(same[i], 8, 0) == digest_of(plain, 8, 0));
    assert_true(digest_of("{\"ids\":[1],\"temperature\":0,\"seed\":1}", 8, 0) ==
                digest_of("{\"ids\":[1],\"temperature\":0,\"seed\":2}", 8, 0));
    for (size_t i = 0; i < N; i++) digests[i] = digest_of(others[i], 8, 0);
    digests[N] = digest_of(plain, 9, 0);
    digests[N + 1] = digest_of(plain, 8, 9);
    for (size_t i = 0; i < N + 2; i++)
        for (size_t k = 0; k < i; k++)
            if (digests[i] == digests[k]) fail_msg("case %zu has the digest of case %zu", i, k);
}

static void depth_without_end_is_refused(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *line = malloc(N);
    memset(line, '[', N);
    memcpy(line, "{\"id\":", 6);
    struct batch_request r;
    struct err err;
    assert_int_equal(read_line(&r, line, N, &err), ERR_USAGE);
    batch_request_free(&r);
    free(line);
}

/* ---- output ---- */

static char path[64];

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect_file(const char *want)
{
    char got[256] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, want);
}

static int count(void *ctx, const json_t *record, uint32_t number, struct err *err)
{
    (void)err;
    assert_non_null(json_object_get(record, "id"));
    assert_int_equal(number, ++*(int *)ctx);
    return ERR_NONE;
}

static int refuse(void *ctx, const json_t *record, uint32_t number, struct err *err)
{
    (void)ctx;
    (void)record;
    return err_set(err, ERR_USAGE, "line %u", number);
}

static int reopen(struct batch_output *out, int *n, struct err *err)
{
    *n = 0;
    return batch_output_open(out, path, count, n, err);
}

#define ONE "{\"id\":\"a\",\"line\":1,\"text\":\"x\"}\n"
#define TWO "{\"id\":2,\"line\":2,\"text\":\"y\"}\n"

static void whole_lines_are_kept_and_a_torn_one_is_dropped(void **state)
{
    (void)state;
    static const struct {
        const char *before;
        int n;
        const char *kept;
    } cases[] = {{"", 0, ""},
                 {ONE, 1, ONE},
                 {ONE "{\"id\":2,\"li", 1, ONE},
                 {ONE "{", 1, ONE},
                 {"{\"id\":\"a\"", 0, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct batch_output out;
        struct err err;
        int n;
        char want[256];
        put(cases[i].before);
        assert_int_equal(reopen(&out, &n, &err), ERR_NONE);
        assert_int_equal(n, cases[i].n);
        json_t *record = json_pack("{s:i,s:i,s:s}", "id", 2, "line", 2, "text", "y");
        assert_int_equal(batch_output_write(&out, record, &err), ERR_NONE);
        snprintf(want, sizeof want, "%s%s", cases[i].kept, TWO);
        expect_file(want);
        batch_output_close(&out);
    }
}

static void a_file_that_is_not_ours_is_left_alone(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "notes", "notes\n", ONE "notes", ONE "notes\n", ONE "{\"id\":1}\n", "\n", "[]\n"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct batch_output out;
        struct err err;
        int n;
        put(cases[i]);
        assert_int_equal(reopen(&out, &n, &err), ERR_FILE);
        assert_non_null(strstr(err.text, path));
        batch_output_close(&out);
        expect_file(cases[i]);
    }
}

static void a_refused_record_leaves_the_file_alone(void **state)
{
    (void)state;
    struct batch_output out;
    struct err err;
    put(ONE TWO "{\"id\":");
    assert_int_equal(batch_output_open(&out, path, refuse, NULL, &err), ERR_USAGE);
    assert_string_equal(err.text, "line 1");
    batch_output_close(&out);
    expect_file(ONE TWO "{\"id\":");
}

static void two_cannot_write_one_file(void **state)
{
    (void)state;
    struct batch_output first, second;
    struct err err;
    int n;
    put("");
    assert_int_equal(reopen(&first, &n, &err), ERR_NONE);
    assert_int_equal(reopen(&second, &n, &err), ERR_FILE);
    assert_non_null(strstr(err.text, "another process"));
    batch_output_close(&second);
    batch_output_close(&first);
    assert_int_equal(reopen(&second, &n, &err), ERR_NONE);
    batch_output_close(&second);
}

static void what_cannot_be_written_is_said(void **state)
{
    (void)state;
    struct batch_output out;
    struct err err;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(batch_output_open(&out, "/dev/full", count, NULL, &err), ERR_NONE);
    assert_int_equal(batch_output_write(&out, json_integer(1), &err), ERR_MEMORY);
    assert_int_equal(batch_output_write(&out, json_object(), &err), ERR_FILE);
    batch_output_close(&out);
    assert_int_equal(batch_output_open(&out, "/no/such/folder/out", count, NULL, &err), ERR_FILE);
    batch_output_close(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_changes_what_it_says_and_nothing_else),
        cmocka_unit_test(what_is_wrong_with_a_line_is_said),
        cmocka_unit_test(a_digest_tells_requests_apart_and_no_more),
        cmocka_unit_test(depth_without_end_is_refused),
        cmocka_unit_test(whole_lines_are_kept_and_a_torn_one_is_dropped),
        cmocka_unit_test(a_file_that_is_not_ours_is_left_alone),
        cmocka_unit_test(a_refused_record_leaves_the_file_alone),
        cmocka_unit_test(two_cannot_write_one_file),
        cmocka_unit_test(what_cannot_be_written_is_said),
    };
    snprintf(path, sizeof path, "/tmp/test_batch_%ld", (long)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
