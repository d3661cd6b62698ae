/* test_pretokenize - texts are cut as the models were trained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/text/pretokenize.h"

static void texts_are_cut_as_the_pretokenizer_says(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *cuts;
    } cases[] = {
        {"gpt-2", "I'll go  home, 'LL 123!\n\nok ", "I|'ll| go| | home|,| '|LL| 123|!|\n|\n|ok| "},
        {"llama-bpe", "I'LL go  home 12345!\n\nok ", "I|'LL| go| | home| |123|45|!\n\n|ok| "},
        {"qwen2", "a 123\r\n  b", "a| |1|2|3|\r\n| | b"},
        {"starcoder", "ab12 3", "ab|1|2| |3"},
        {"falcon", "a=b 1234", "a|=|b| |123|4"},
        {"default", "a=b 1234", "a|=|b| |123|4"},
        {"gpt-4o", "fooBar's HTTPServer/\n", "foo|Bar's| HTTPServer|/\n"},
        {"tekken", "fooBar12", "foo|Bar|1|2"},
        {"qwen35", "e\xCC\x81x", "e\xCC\x81x"},
        {"qwen2", "e\xCC\x81x", "e|\xCC\x81x"},
        {"deepseek-v3", "x 1234\xE4\xB8\x80\xE4\xB8\x80z", "x| |123|4|\xE4\xB8\x80\xE4\xB8\x80|z"},
        {"deepseek-llm", "ab\n 12  ", "ab|\n| |12|  "},
        {"deepseek-coder", "ab, 12", "ab|,| |1|2"},
        {"bloom", "one, two", "one|,| two"},
        {"viking", "a12", "a|1|2"},
        {"kimi-k2", "a\xE4\xB8\x80\xE4\xB8\x80z", "a|\xE4\xB8\x80\xE4\xB8\x80|z"},
        {"seed-coder", "a!\nb", "a|!|\n|b"},
        {"laguna", "a\n\n b", "a|\n\n| b"},
        {"minicpm5", "a 1234", "a| |123|4"},
        {"jais-2", "a   b", "a|  | b"},
        {"exaone-moe", "ab cd!", "ab cd|!"},
        {"bailingmoe", "it'S 12", "it|'S| |1|2"},
        {"ufakzeka", "it's", "it|'s"},
        /* U+180E is no white space; an invalid byte is neither letter nor space. */
        {"gpt-2", "a\xE1\xA0\x8E\x62", "a|\xE1\xA0\x8E|b"},
        {"gpt-2", "a\xFF\x62 \xE2\x82", "a|\xFF|b| \xE2\x82"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pretokenizer *p;
        struct split_list cuts = {0};
        struct err err = {0};
        char got[256];
        size_t n = 0, begin = 0, len = strlen(cases[i].text);
        assert_int_equal(pretokenizer_open(&p, cases[i].name, &err), ERR_NONE);
        assert_int_equal(pretokenizer_split(p, cases[i].text, len, &cuts, &err), ERR_NONE);
        for (size_t k = 0; k < cuts.n; k++) {
            if (k > 0) got[n++] = '|';
            memcpy(got + n, cases[i].text + begin, cuts.end[k] - begin);
            n += cuts.end[k] - begin;
            begin = cuts.end[k];
        }
        got[n] = '\0';
        assert_string_equal(got, cases[i].cuts);
        split_list_free(&cuts);
        pretokenizer_close(p);
    }
}

static void every_published_name_is_known_and_compiles(void **state)
{
    (void)state;
    static const char *const names[] = {
        "default",
        "gpt-2",
        "phi-2",
        "mpt",
        "olmo",
        "starcoder",
        "refact",
        "command-r",
        "smollm",
        "falcon",
        "llama3",
        "llama-v3",
        "llama-bpe",
        "dbrx",
        "smaug-bpe",
        "glm4",
        "chatglm-bpe",
        "minicpm5",
        "jais-2",
        "qwen2",
        "stablelm2",
        "ufakzeka",
        "qwen35",
        "laguna",
        "seed-coder",
        "bailingmoe",
        "exaone",
        "exaone4",
        "exaone-moe",
        "gpt-4o",
        "llama4",
        "tekken",
        "kimi-k2",
        "hunyuan",
        "deepseek-llm",
        "deepseek-coder",
        "deepseek-v3",
        "bloom",
        "poro-chat",
        "viking",
        "lfm2",
        "granite-docling",
        "deepseek-r1-qwen",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct pretokenizer *p;
        struct err err = {0};
        int rc = pretokenizer_open(&p, names[i], &err);
        if (rc != ERR_NONE) print_error("%s: %s\n", names[i], err.text);
        assert_int_equal(rc, ERR_NONE);
        pretokenizer_close(p);
    }
}

static void a_pattern_that_would_take_too_long_is_an_error(void **state)
{
    (void)state;
    struct pretokenizer *p;
    struct split_list cuts = {0};
    struct err err = {0};
    size_t len = 4 * 1024 * 1024;
    char *text = malloc(len);
    assert_non_null(text);
    memset(text, 'a', len);
    assert_int_equal(pretokenizer_open(&p, "exaone-moe", &err), ERR_NONE);
    assert_int_equal(pretokenizer_split(p, text, len, &cuts, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "gave up at byte 0"));
    pretokenizer_close(p);
    assert_int_equal(pretokenizer_open(&p, "gpt-2", &err), ERR_NONE);
    assert_int_equal(pretokenizer_split(p, text, len, &cuts, &err), ERR_NONE);
    assert_int_equal(cuts.n, 1);
    pretokenizer_close(p);
    split_list_free(&cuts);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_as_the_pretokenizer_says),
        cmocka_unit_test(every_published_name_is_known_and_compiles),
        cmocka_unit_test(a_pattern_that_would_take_too_long_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
