/* test_options - the command line: what is accepted, what it sets, and what is refused with which
 * words. */
#include "coordinator/commands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ARGS_MAX = 16 };

/* parse() - words as argv behind "tandem"; settings is the caller's to free. */
static int parse(const char *const words[ARGS_MAX], const struct command **command,
                 struct settings *settings, struct err *err)
{
    char *argv[ARGS_MAX + 2] = {(char *)"tandem"};
    int argc = 1;
    for (; argc <= ARGS_MAX && words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)words[argc - 1];
    return commands_parse(argc, argv, command, settings, err);
}

/* ---- what is refused ---- */

static const struct refused {
    const char *words[ARGS_MAX];
    const char *says; /* a part of the error */
} refused[] = {
    {{NULL}, "which command? see tandem --help"},
    {{"sing"}, "'sing' is no command; see tandem --help"},
    {{"--sing"}, "'--sing' is no flag of this command; see tandem --help"},
    {{"-v"}, "the command comes first"},
    {{"generate"}, "-m MODEL is needed; see tandem generate --help"},
    {{"generate", "-m"}, "-m wants a value: MODEL"},
    {{"generate", "--model"}, "--model wants a value: MODEL"},
    {{"generate", "-m", "a", "b"}, "'b' is one argument too many"},
    {{"generate", "-m", "a", "--", "-p"}, "'-p' is one argument too many"},
    {{"generate", "-m", "a", "--sing"}, "'--sing' is no flag of this command; see tandem generate"},
    {{"generate", "-m", "a", "-Z"}, "'-Z' is no flag"},
    {{"generate", "-m", "a", "-vq"}, "'-vq' is no flag"},
    {{"generate", "-m", "a", "--json=1"}, "--json takes no value, got '1'"},
    {{"generate", "-m", "a", "--hash"}, "'--hash' is no flag of this command"},
    {{"generate", "-m", "a", "--temp", "x"}, "--temp wants a number >= 0, got 'x'"},
    {{"generate", "-m", "a", "--temp", "-1"}, "--temp wants a number >= 0, got '-1'"},
    {{"generate", "-m", "a", "--temp", "nan"}, "--temp wants a number >= 0, got 'nan'"},
    {{"generate", "-m", "a", "--temp", "inf"}, "--temp wants a number >= 0, got 'inf'"},
    {{"generate", "-m", "a", "--temp", "1e99"}, "--temp wants a number >= 0, got '1e99'"},
    {{"generate", "-m", "a", "--temp", ""}, "--temp wants a number >= 0, got ''"},
    {{"generate", "-m", "a", "--temp", "1x"}, "got '1x'"},
    {{"generate", "-m", "a", "--top-p", "0"}, "--top-p wants a number > 0 and <= 1, got '0'"},
    {{"generate", "-m", "a", "--top-p", "1.01"}, "--top-p wants a number > 0 and <= 1"},
    {{"generate", "-m", "a", "--min-p", "-0.1"}, "--min-p wants a number >= 0 and <= 1"},
    {{"generate", "-m", "a", "--repeat-penalty", "0"}, "--repeat-penalty wants a number > 0, got"},
    {{"generate", "-m", "a", "--top-k", "-1"}, "--top-k wants a whole number >= 0"},
    {{"generate", "-m", "a", "--top-k", "1.5"}, "--top-k wants a whole number >= 0"},
    {{"generate", "-m", "a", "-n", "-2"}, "--predict wants a whole number >= -1"},
    {{"generate", "-m", "a", "-n", "99999999999"}, "--predict wants a whole number >= -1"},
    {{"generate", "-m", "a", "-n", "99999999999999999999"}, "--predict wants a whole number"},
    {{"generate", "-m", "a", "--ctx", "1"}, "--ctx wants a whole number >= 2 and <= 16777216"},
    {{"generate", "-m", "a", "--seed", "-1"}, "--seed wants a whole number from 0 to"},
    {{"generate", "-m", "a", "--seed", "9223372036854775808"},
     "--seed wants a whole number from 0"},
    {{"generate", "-m", "a", "--kv", "q8"}, "--kv wants one of f16|f32|q8_0, got 'q8'"},
    {{"generate", "-m", "a", "--kv", "f1"}, "--kv wants one of f16|f32|q8_0, got 'f1'"},
    {{"generate", "-m", "a", "--stages", "0"}, "--stages wants a whole number >= 1"},
    {{"tokenize", "-m", "a", "--temp", "1"}, "'--temp' is no flag of this command"},
    {{"inspect"}, "a file name is needed; see tandem inspect --help"},
    {{"inspect", "a", "b"}, "'b' is one argument too many"},
    {{"inspect", "-m", "a"}, "'-m' is no flag of this command"},
};

static void wrong_use_is_refused_with_a_reason_and_a_hint(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const struct command *command;
        struct settings s;
        struct err err = {0};
        int rc = parse(refused[i].words, &command, &s, &err);
        settings_free(&s);
        if (rc != ERR_USAGE || strstr(err.text, refused[i].says) == NULL ||
            (strstr(err.text, "see tandem") == NULL))
            fail_msg("case %zu: code %d, '%s', want '%s' and a hint", i, rc, err.text,
                     refused[i].says);
    }
}

/* ---- what is accepted ---- */

static void nothing_given_is_the_default(void **state)
{
    (void)state;
    const struct command *command;
    struct settings s;
    struct err err;
    const char *const words[ARGS_MAX] = {"generate", "-m", "a.gguf"};
    assert_int_equal(parse(words, &command, &s, &err), ERR_NONE);
    assert_string_equal(command->name, "generate");
    assert_string_equal(s.model, "a.gguf");
    assert_int_equal(s.n_tokens, 128);
    assert_true(s.sampling.temperature == 0);
    assert_false(s.seed_given || s.json || s.help || s.quiet || s.verbose);
    assert_int_equal(s.ctx + s.chunk + s.threads + s.stages, 0);
    assert_null(s.split);
    settings_free(&s);
}

static void every_form_of_a_value_is_read(void **state)
{
    (void)state;
    static const char *const forms[][ARGS_MAX] = {
        {"generate", "-m", "a", "--predict", "7"}, {"generate", "-m", "a", "--predict=7"},
        {"generate", "-m", "a", "-n", "7"},        {"generate", "-m", "a", "-n7"},
        {"generate", "-n7", "--model=a"},          {"generate", "-n", "3", "-ma", "-n", "7"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct command *command;
        struct settings s;
        struct err err;
        assert_int_equal(parse(forms[i], &command, &s, &err), ERR_NONE);
        assert_int_equal(s.n_tokens, 7);
        assert_string_equal(s.model, "a");
        settings_free(&s);
    }
}

static void values_land_in_their_settings(void **state)
{
    (void)state;
    const struct command *command;
    struct settings s;
    struct err err;
    const char *const sampling[ARGS_MAX] = {"generate",
                                            "-m",
                                            "a",
                                            "--temp=0.5",
                                            "--top-k=40",
                                            "--top-p=0.9",
                                            "--min-p=0.05",
                                            "--typical=0.7",
                                            "--repeat-penalty=1.1",
                                            "--frequency-penalty=-0.5",
                                            "--presence-penalty=2",
                                            "--seed=9223372036854775807",
                                            "--repeat-last-n=0"};
    assert_int_equal(parse(sampling, &command, &s, &err), ERR_NONE);
    assert_true(s.sampling.temperature == 0.5F && s.sampling.top_p == 0.9F);
    assert_true(s.sampling.min_p == 0.05F && s.sampling.typical_p == 0.7F);
    assert_true(s.sampling.repeat_penalty == 1.1F && s.sampling.frequency_penalty == -0.5F);
    assert_true(s.sampling.presence_penalty == 2 && s.sampling.top_k == 40);
    assert_true(s.sampling.seed == INT64_MAX && s.seed_given);
    assert_int_equal(s.sampling.penalty_last_n, 0);
    settings_free(&s);

    const char *const line[ARGS_MAX] = {"logits",        "-m",          "a",         "--kv=f32",
                                        "--idle=spin",   "--threads=2", "--chunk=7", "--stages=3",
                                        "--split=3,3,2", "--ctx=64",    "--ids=1,2", "--hash"};
    assert_int_equal(parse(line, &command, &s, &err), ERR_NONE);
    assert_int_equal(s.kv, 1);
    assert_int_equal(s.idle, 2);
    assert_true(s.threads == 2 && s.chunk == 7 && s.stages == 3 && s.ctx == 64 && s.hash);
    assert_string_equal(s.split, "3,3,2");
    assert_string_equal(s.ids.items[0], "1,2");
    settings_free(&s);
}

static void repeated_values_keep_their_order(void **state)
{
    (void)state;
    const struct command *command;
    struct settings s;
    struct err err;
    const char *const words[ARGS_MAX] = {"generate", "-m",  "a",  "-p", "one",    "--stop=x",
                                         "-p",       "two", "-p", "",   "--stop", "--json"};
    assert_int_equal(parse(words, &command, &s, &err), ERR_NONE);
    assert_int_equal(s.prompts.n, 3);
    assert_string_equal(s.prompts.items[0], "one");
    assert_string_equal(s.prompts.items[1], "two");
    assert_string_equal(s.prompts.items[2], "");
    /* A value is a value, whatever it looks like. */
    assert_int_equal(s.stops.n, 2);
    assert_string_equal(s.stops.items[1], "--json");
    assert_false(s.json);
    settings_free(&s);
}

static void two_dashes_end_the_flags_and_one_is_an_operand(void **state)
{
    (void)state;
    const struct command *command;
    struct settings s;
    struct err err;
    const char *const words[ARGS_MAX] = {"detokenize", "5", "-m", "a", "-", "--", "-m", "6"};
    assert_int_equal(parse(words, &command, &s, &err), ERR_NONE);
    assert_int_equal(s.operands.n, 4);
    assert_string_equal(s.operands.items[1], "-");
    assert_string_equal(s.operands.items[2], "-m");
    settings_free(&s);
}

static void help_and_version_need_nothing_else(void **state)
{
    (void)state;
    static const char *const forms[][ARGS_MAX] = {
        {"--help"},        {"-h"},
        {"--version"},     {"generate", "--help"},
        {"inspect", "-h"}, {"logits", "--version"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct command *command;
        struct settings s;
        struct err err;
        assert_int_equal(parse(forms[i], &command, &s, &err), ERR_NONE);
        assert_true(s.help || s.version);
        assert_true((command != NULL) == (forms[i][1] != NULL));
        settings_free(&s);
    }
}

static void the_environment_of_tests_is_read_and_checked(void **state)
{
    (void)state;
    const struct command *command;
    struct settings s;
    struct err err;
    const char *const words[ARGS_MAX] = {"generate", "-m", "a"};
    setenv("TANDEM_BLOCK_SEED", "12", 1);
    assert_int_equal(parse(words, &command, &s, &err), ERR_NONE);
    assert_true(s.shuffle_blocks && s.shuffle_seed == 12);
    settings_free(&s);
    setenv("TANDEM_BLOCK_SEED", "12x", 1);
    assert_int_equal(parse(words, &command, &s, &err), ERR_USAGE);
    settings_free(&s);
    unsetenv("TANDEM_BLOCK_SEED");
    assert_int_equal(parse(words, &command, &s, &err), ERR_NONE);
    assert_false(s.shuffle_blocks);
    settings_free(&s);
}

/* ---- the tables themselves ---- */

static void no_command_has_a_flag_twice(void **state)
{
    (void)state;
    for (size_t c = 0; c < command_count(); c++) {
        const struct option *seen[64];
        size_t n = 0;
        for (const struct option_group *const *g = command_at(c)->groups; *g != NULL; g++)
            for (size_t i = 0; i < (*g)->n; i++) {
                const struct option *o = &(*g)->rows[i];
                for (size_t k = 0; k < n; k++) {
                    assert_string_not_equal(o->name, seen[k]->name);
                    assert_true(o->letter == 0 || o->letter != seen[k]->letter);
                }
                assert_true(n < sizeof seen / sizeof seen[0]);
                seen[n++] = o;
            }
        assert_true(n > 0);
    }
}

static void help_lists_every_flag_of_a_command_in_lines_that_fit(void **state)
{
    (void)state;
    for (size_t c = 0; c < command_count(); c++) {
        char *text = NULL;
        size_t len = 0;
        FILE *out = open_memstream(&text, &len);
        commands_print_help(out, command_at(c));
        fclose(out);
        for (const struct option_group *const *g = command_at(c)->groups; *g != NULL; g++)
            for (size_t i = 0; i < (*g)->n; i++) {
                char flag[64];
                snprintf(flag, sizeof flag, "--%s", (*g)->rows[i].name);
                assert_non_null(strstr(text, flag));
            }
        for (const char *at = text; *at != '\0'; at += strcspn(at, "\n") + 1)
            assert_true(strcspn(at, "\n") <= OPTIONS_HELP_WIDTH);
        free(text);
    }
}

static void help_says_the_defaults(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    const struct settings defaults = settings_default();
    options_print_help(out, &group_generate, &defaults);
    options_print_help(out, &group_sampling, &defaults);
    options_print_help(out, &group_line, &defaults);
    fclose(out);
    static const char *const parts[] = {"(default: 128)",   "(default: 0)",
                                        "(default: 64)",    "(default: f16)",
                                        "(default: sleep)", "(default: by bytes)"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_non_null(strstr(text, parts[i]));
    free(text);
}

int main(void)
{
    unsetenv("TANDEM_BLOCK_SEED");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_use_is_refused_with_a_reason_and_a_hint),
        cmocka_unit_test(nothing_given_is_the_default),
        cmocka_unit_test(every_form_of_a_value_is_read),
        cmocka_unit_test(values_land_in_their_settings),
        cmocka_unit_test(repeated_values_keep_their_order),
        cmocka_unit_test(two_dashes_end_the_flags_and_one_is_an_operand),
        cmocka_unit_test(help_and_version_need_nothing_else),
        cmocka_unit_test(the_environment_of_tests_is_read_and_checked),
        cmocka_unit_test(no_command_has_a_flag_twice),
        cmocka_unit_test(help_lists_every_flag_of_a_command_in_lines_that_fit),
        cmocka_unit_test(help_says_the_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
