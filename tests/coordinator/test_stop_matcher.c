/* test_stop_matcher - nothing of a stop string is shown, and nothing else is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "coordinator/text/stop_matcher.h"

enum { STOPS_MAX = 4, TEXT_MAX = 256 };

static const struct stop_case {
    const char *stops[STOPS_MAX];
    const char *text;
    const char *shown;
    bool stopped;
} cases[] = {
    {{NULL}, "any text", "any text", false},
    {{"END"}, "", "", false},
    {{"END"}, "abcENDdef", "abc", true},
    {{"END"}, "ENDdef", "", true},
    {{"END"}, "abcEN", "abcEN", false},
    {{"END"}, "abcENEND", "abcEN", true},
    {{"END"}, "EEEND", "EE", true},
    {{"aab"}, "aaab", "a", true},       /* the held text overlaps itself */
    {{"abab"}, "abaabab", "aba", true}, /* likewise */
    {{"x", "abc"}, "ab-x-abc", "ab-", true},
    {{"abcd", "c"}, "abcd", "ab", true}, /* "c" is complete first */
    {{"bc", "abc"}, "zabc", "z", true},  /* both are complete at once: the longest */
    {{"\n\n"}, "one\ntwo\n\nthree", "one\ntwo", true},
    {{"\xE2\x82\xAC"}, "5 \xE2\x82\xACuro", "5 ", true},
    {{"\xE2\x82\xAC"}, "5 \xE2\x82\xA9", "5 \xE2\x82\xA9", false},
};

static struct stop_matcher *open_case(const struct stop_case *c)
{
    struct stop_matcher *m;
    struct err err = {0};
    size_t n = 0;
    while (n < STOPS_MAX && c->stops[n] != NULL) n++;
    assert_int_equal(stop_matcher_open(&m, c->stops, n, &err), ERR_NONE);
    return m;
}

/* run() - push the text in pieces of `step` bytes; what is shown is checked as it comes. */
static void run(const struct stop_case *c, size_t step)
{
    struct stop_matcher *m = open_case(c);
    struct err err = {0};
    char shown[TEXT_MAX] = "";
    size_t n = 0, len = strlen(c->text), out_len;
    const char *out;
    bool stopped = false;
    for (size_t at = 0; at < len; at += step) {
        size_t piece = len - at < step ? len - at : step;
        assert_int_equal(stop_matcher_push(m, c->text + at, piece, &out, &out_len, &stopped, &err),
                         ERR_NONE);
        memcpy(shown + n, out, out_len);
        n += out_len;
        assert_true(n <= strlen(c->shown));
        assert_memory_equal(shown, c->shown, n);
    }
    assert_int_equal(stopped, c->stopped);
    assert_int_equal(stop_matcher_finish(m, &out, &out_len), ERR_NONE);
    memcpy(shown + n, out, out_len);
    assert_string_equal(shown, c->shown);
    assert_int_equal(stop_matcher_finish(m, &out, &out_len), ERR_NONE);
    assert_int_equal(out_len, 0);
    stop_matcher_close(m);
}

static void the_outcome_is_the_same_however_the_text_is_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t step = 1; step <= 20; step++) run(&cases[i], step);
}

static void text_that_cannot_become_a_stop_is_shown_at_once(void **state)
{
    (void)state;
    static const struct stop_case c = {{"END", "STOP"}, "", "", false};
    static const struct {
        const char *push, *shown;
    } steps[] = {{"abc", "abc"}, {"xE", "x"}, {"N", ""}, {"S", "EN"}, {"T", ""}, {"!", "ST!"}};
    struct stop_matcher *m = open_case(&c);
    struct err err = {0};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const char *out;
        size_t len;
        bool stopped;
        assert_int_equal(
            stop_matcher_push(m, steps[i].push, strlen(steps[i].push), &out, &len, &stopped, &err),
            ERR_NONE);
        assert_int_equal(len, strlen(steps[i].shown));
        assert_memory_equal(out, steps[i].shown, len);
        assert_false(stopped);
    }
    stop_matcher_close(m);
}

static void nothing_comes_after_a_stop(void **state)
{
    (void)state;
    static const struct stop_case c = {{"END"}, "", "", false};
    struct stop_matcher *m = open_case(&c);
    struct err err = {0};
    const char *out;
    size_t len;
    bool stopped;
    assert_int_equal(stop_matcher_push(m, "aENDb", 5, &out, &len, &stopped, &err), ERR_NONE);
    assert_int_equal(len, 1);
    assert_true(stopped);
    assert_int_equal(stop_matcher_push(m, "more", 4, &out, &len, &stopped, &err), ERR_NONE);
    assert_int_equal(len, 0);
    assert_true(stopped);
    assert_int_equal(stop_matcher_finish(m, &out, &len), ERR_NONE);
    assert_int_equal(len, 0);
    stop_matcher_close(m);
}

static void an_empty_stop_string_is_refused(void **state)
{
    (void)state;
    static const char *const stops[] = {"END", ""};
    struct stop_matcher *m;
    struct err err = {0};
    assert_int_equal(stop_matcher_open(&m, stops, 2, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "2 of 2"));
    assert_null(m);
    stop_matcher_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_outcome_is_the_same_however_the_text_is_cut),
        cmocka_unit_test(text_that_cannot_become_a_stop_is_shown_at_once),
        cmocka_unit_test(nothing_comes_after_a_stop),
        cmocka_unit_test(an_empty_stop_string_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
