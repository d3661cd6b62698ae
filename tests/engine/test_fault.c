/* test_fault - a fault is read for the rank it is meant for, and done at its place alone. */
#include "engine/fault.h"
#include "engine/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int read_plan(const char *text, int rank, struct fault_plan *plan)
{
    struct err err;
    setenv("TANDEM_TEST_FAULT", text, 1);
    return fault_plan_read(plan, rank, &err);
}

static void a_fault_is_for_its_rank(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rank;
        enum fault_place place;
    } cases[] = {
        {"", 1, FAULT_NONE},
        {"decode:exit", 1, FAULT_DECODE},
        {"decode:exit", 0, FAULT_NONE}, /* without a rank: every worker */
        {"2:load:stop", 2, FAULT_LOAD},
        {"2:load:stop", 1, FAULT_NONE},
        {"0:idle:kill", 0, FAULT_IDLE},
        {"0:measure:kill", 0, FAULT_MEASURE},
        {"prefill:20", 3, FAULT_PREFILL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fault_plan plan;
        assert_int_equal(read_plan(cases[i].text, cases[i].rank, &plan), ERR_NONE);
        assert_int_equal(plan.place, cases[i].place);
    }
}

static void what_is_no_fault_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"x",         "decode",        "decode:", "decode:x",
                                      "decode:-1", "decode:600001", "1:1:exit"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fault_plan plan;
        assert_int_equal(read_plan(bad[i], 1, &plan), ERR_USAGE);
    }
}

static void count(void *ctx)
{
    ++*(int *)ctx;
}

/* end_of() - how a process ends, or stops, that meets the fault. */
static int end_of(const char *text)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct fault_plan plan;
        struct err err;
        if (read_plan(text, 1, &plan) != ERR_NONE ||
            fault_act(&plan, FAULT_LOAD, NULL, NULL, &err) != ERR_NONE)
            _exit(1);
        _exit(fault_act(&plan, FAULT_SEND, NULL, NULL, &err) == ERR_RANK ? 2 : 0);
    }
    waitpid(pid, &status, WUNTRACED);
    if (WIFSTOPPED(status)) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return status;
}

static void each_action_does_what_it_is_called(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    assert_int_equal(WEXITSTATUS(end_of("send:error")), 2);
    assert_int_equal(WEXITSTATUS(end_of("send:exit")), 7);
    assert_int_equal(WTERMSIG(end_of("send:kill")), SIGKILL);
    assert_true(WIFSTOPPED(end_of("send:stop")));
    assert_int_equal(WEXITSTATUS(end_of("send:1")), 0);
    struct fault_plan plan;
    struct err err;
    int n = 0;
    assert_int_equal(read_plan("send:20", 1, &plan), ERR_NONE);
    assert_int_equal(fault_act(&plan, FAULT_LOAD, count, &n, &err), ERR_NONE);
    assert_int_equal(n, 0);
    assert_int_equal(fault_act(&plan, FAULT_SEND, count, &n, &err), ERR_NONE);
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_is_for_its_rank),
        cmocka_unit_test(what_is_no_fault_is_refused),
        cmocka_unit_test(each_action_does_what_it_is_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
