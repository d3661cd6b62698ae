/* test_log - lines and JSON lines say who, where and what; a dump is asked for by a signal. */
#include "engine/log.h"
#include "engine/state_dump.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int caught, before;

static void catch_errors(void)
{
    char path[] = "/tmp/test_log_XXXXXX";
    caught = mkstemp(path);
    assert_true(caught >= 0);
    unlink(path);
    before = dup(STDERR_FILENO);
    dup2(caught, STDERR_FILENO);
}

static size_t release_errors(char *text, size_t size)
{
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t n = pread(caught, text, size - 1, 0);
    close(caught);
    assert_true(n >= 0);
    text[n] = '\0';
    return (size_t)n;
}

static void a_line_says_who_and_what(void **state)
{
    (void)state;
    char text[4096], want[1024], longest[2000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    struct err err;
    catch_errors();
    log_set_who("coordinator");
    log_line(LOG_WARN, "%d of %d", 1, 2);
    log_line(LOG_INFO, "dropped");
    log_event(LOG_ASKED, "state", "%s", longest);
    err_set(&err, ERR_STALL, "silent");
    err_set_who(&err, "worker 2 @n");
    log_error(&err);
    release_errors(text, sizeof text);
    snprintf(want, sizeof want, "coordinator: 1 of 2\ncoordinator: %.*s\nworker 2 @n: silent\n",
             ERR_TEXT_MAX - 1, longest);
    assert_string_equal(text, want);
}

static void expect(const char *text, const char *key, const char *want)
{
    json_t *line = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, key)), want);
    json_decref(line);
}

static int rank_in(const char *text)
{
    json_t *line = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    const int rank = (int)json_integer_value(json_object_get(line, "rank"));
    json_decref(line);
    return rank;
}

/* It is the last test: nothing turns JSON off again. */
static void a_json_line_says_where_and_survives_any_bytes(void **state)
{
    (void)state;
    char text[4096];
    struct err err;
    log_set_json(5);
    catch_errors();
    log_set_who("tandem");
    log_event(LOG_WARN, "finish", "a \"b\"\n\\ \xc3\xa9");
    release_errors(text, sizeof text);
    assert_int_equal(strcspn(text, "\n") + 1, strlen(text));
    expect(text, "text", "a \"b\"\n\\ \xc3\xa9");
    expect(text, "level", "warn");
    expect(text, "event", "finish");
    assert_int_equal(rank_in(text), 5);

    catch_errors();
    err_set(&err, ERR_STALL, "bad \xff byte");
    err_set_who(&err, "worker 12 @node07, layers 3..5");
    log_error(&err);
    release_errors(text, sizeof text);
    expect(text, "text", "bad ? byte");
    expect(text, "host", "node07");
    expect(text, "event", "stall");
    expect(text, "who", "worker 12 @node07, layers 3..5");
    assert_int_equal(rank_in(text), 12);

    catch_errors();
    err_set_who(&err, "coordinator @node01");
    log_error(&err);
    release_errors(text, sizeof text);
    expect(text, "host", "node01");
    assert_int_equal(rank_in(text), 0);
    assert_true(log_is_json());
}

static void a_dump_is_due_once_for_each_who_looks(void **state)
{
    (void)state;
    unsigned first = 0, second = 0;
    state_dump_catch();
    assert_false(state_dump_is_due(&first));
    raise(SIGUSR2);
    raise(SIGUSR2);
    assert_true(state_dump_is_due(&first));
    assert_false(state_dump_is_due(&first));
    assert_true(state_dump_is_due(&second));
    raise(SIGUSR2);
    assert_true(state_dump_is_due(&first));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_says_who_and_what),
        cmocka_unit_test(a_dump_is_due_once_for_each_who_looks),
        cmocka_unit_test(a_json_line_says_where_and_survives_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
