/* test_watch - a coordinator that is stopped or gone is named, one that only says nothing is left
 * alone. */
#include "worker/watch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t ms = 1000000;

static pid_t start_child(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        for (;;) pause();
    return pid;
}

/* until() - the kernel may take a moment. */
static void until(pid_t pid, enum process_state want)
{
    for (int i = 0; i < 5000 && process_look((uint32_t)pid) != want; i++) usleep(1000);
    assert_int_equal(process_look((uint32_t)pid), want);
}

static struct watch watch_of(pid_t pid)
{
    const struct msg_watch who = {.pid = (uint32_t)pid, .host = "here"};
    struct watch w;
    watch_open(&w, &who, "here", 2000);
    return w;
}

/* look_on() - every 100 ms from `from` to `to`; the first answer that is no ERR_NONE, and when. */
static int look_on(struct watch *w, uint64_t from_ms, uint64_t to_ms, uint64_t *at_ms,
                   struct err *err)
{
    for (*at_ms = from_ms; *at_ms < to_ms; *at_ms += 100) {
        int rc = watch_look(w, *at_ms * ms, err);
        if (rc != ERR_NONE) return rc;
    }
    return ERR_NONE;
}

static void a_process_that_runs_is_well_however_long(void **state)
{
    (void)state;
    struct err err;
    uint64_t at;
    pid_t pid = start_child();
    struct watch w = watch_of(pid);
    assert_true(w.on);
    assert_int_equal(look_on(&w, 100000, 110000, &at, &err), ERR_NONE);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void a_stopped_one_is_named_after_its_time(void **state)
{
    (void)state;
    struct err err;
    uint64_t at;
    pid_t pid = start_child();
    struct watch w = watch_of(pid);
    assert_int_equal(look_on(&w, 100000, 101000, &at, &err), ERR_NONE);
    kill(pid, SIGSTOP);
    until(pid, PROCESS_STOPPED);
    assert_int_equal(look_on(&w, 101000, 110000, &at, &err), ERR_STALL);
    assert_in_range(at, 103000, 103100);
    assert_string_equal(err.who, "coordinator @here");
    assert_non_null(strstr(err.text, "2.0 s"));

    /* The watcher was away for as long: a line that is stopped and continued as a whole. */
    w = watch_of(pid);
    assert_int_equal(look_on(&w, 200000, 201000, &at, &err), ERR_NONE);
    assert_int_equal(watch_look(&w, 260000 * ms, &err), ERR_NONE);
    kill(pid, SIGCONT);
    until(pid, PROCESS_RUNS);
    assert_int_equal(look_on(&w, 260100, 270000, &at, &err), ERR_NONE);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void one_that_is_gone_is_named_at_once(void **state)
{
    (void)state;
    struct err err;
    uint64_t at;
    pid_t pid = start_child();
    struct watch w = watch_of(pid);
    assert_int_equal(look_on(&w, 100000, 101000, &at, &err), ERR_NONE);
    kill(pid, SIGKILL);
    until(pid, PROCESS_GONE); /* a zombie still */
    assert_int_equal(look_on(&w, 101000, 110000, &at, &err), ERR_RANK);
    assert_in_range(at, 101000, 101500);
    waitpid(pid, NULL, 0);
    assert_int_equal(process_look((uint32_t)pid), PROCESS_GONE);
}

static void nobody_watches_himself_or_another_host(void **state)
{
    (void)state;
    struct watch w = watch_of(getpid());
    assert_false(w.on);
    const struct msg_watch far = {.pid = (uint32_t)getppid(), .host = "there"};
    watch_open(&w, &far, "here", 2000);
    assert_false(w.on);
    struct watch none = {0};
    struct err err;
    assert_int_equal(watch_look(&none, 1000 * ms, &err), ERR_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_runs_is_well_however_long),
        cmocka_unit_test(a_stopped_one_is_named_after_its_time),
        cmocka_unit_test(one_that_is_gone_is_named_at_once),
        cmocka_unit_test(nobody_watches_himself_or_another_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
