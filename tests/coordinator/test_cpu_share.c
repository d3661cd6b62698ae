/* test_cpu_share - a host's CPUs are dealt to its workers, and what is wrong with their binding is
 * said. */
#include "coordinator/line/cpu_share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS_MAX = 4 };

/* host: a letter; cpus of online; pid 0: a process of its own. */
struct case_worker {
    const char *host;
    uint32_t cpus, online, pid;
    uint32_t threads; /* wanted */
    enum cpu_share_verdict verdict;
    const char *says; /* a part of it; NULL: nothing */
};

static const struct share_case {
    const char *name;
    uint32_t given; /* --threads */
    struct case_worker workers[WORKERS_MAX];
} cases[] = {
    {"an unbound worker has all", 0, {{"a", 8, 8, 0, 8, CPU_SHARE_FINE, NULL}}},
    {"two unbound workers share",
     0,
     {{"a", 8, 8, 0, 4, CPU_SHARE_FINE, NULL}, {"a", 8, 8, 0, 4, CPU_SHARE_FINE, NULL}}},
    {"hosts do not share",
     0,
     {{"a", 8, 8, 0, 8, CPU_SHARE_FINE, NULL}, {"b", 4, 4, 0, 4, CPU_SHARE_FINE, NULL}}},
    {"bound to its share",
     0,
     {{"a", 4, 8, 0, 4, CPU_SHARE_FINE, NULL}, {"a", 4, 8, 0, 4, CPU_SHARE_FINE, NULL}}},
    {"bound to a core",
     0,
     {{"a", 1, 8, 0, 1, CPU_SHARE_WRONG, "bound to 1 of 8 CPUs, and its share is 8"}}},
    {"each bound to a core",
     0,
     {{"a", 1, 8, 0, 1, CPU_SHARE_WRONG, "bound to 1 of 8 CPUs, and its share is 4"},
      {"a", 1, 8, 0, 1, CPU_SHARE_WRONG, "bound to 1 of 8 CPUs, and its share is 4"}}},
    {"a bound one and a free one",
     0,
     {{"a", 4, 8, 0, 4, CPU_SHARE_WRONG, "and 1 more workers of its host run 12 threads on 8 CPUs"},
      {"a", 8, 8, 0, 8, CPU_SHARE_FINE, NULL}}},
    {"more workers than CPUs",
     0,
     {{"a", 2, 2, 0, 1, CPU_SHARE_CROWDED,
       "and 2 more workers of its host run 3 threads on 2 CPUs"},
      {"a", 2, 2, 0, 1, CPU_SHARE_FINE, NULL},
      {"a", 2, 2, 0, 1, CPU_SHARE_FINE, NULL}}},
    {"too many threads asked for",
     4,
     {{"b", 8, 8, 0, 4, CPU_SHARE_FINE, NULL},
      {"a", 4, 4, 0, 4, CPU_SHARE_WRONG, "and 1 more workers of its host run 8 threads on 4 CPUs"},
      {"a", 4, 4, 0, 4, CPU_SHARE_FINE, NULL}}},
    {"stages of one process are not judged",
     0,
     {{"a", 2, 2, 7, 1, CPU_SHARE_FINE, NULL},
      {"a", 2, 2, 7, 1, CPU_SHARE_FINE, NULL},
      {"a", 2, 2, 7, 1, CPU_SHARE_FINE, NULL}}},
    {"no CPU known is one", 0, {{"a", 0, 2, 0, 1, CPU_SHARE_WRONG, "bound to 0 of 2"}}},
};

static void check_case(const struct share_case *c)
{
    struct msg_hello hellos[WORKERS_MAX];
    const struct msg_hello *rows[WORKERS_MAX];
    uint32_t threads[WORKERS_MAX], n = 0;
    for (; n < WORKERS_MAX && c->workers[n].host != NULL; n++) {
        const struct case_worker *w = &c->workers[n];
        hellos[n] = (struct msg_hello){.host = w->host,
                                       .cpus = w->cpus,
                                       .cpus_online = w->online,
                                       .pid = w->pid > 0 ? w->pid : 100 + n};
        rows[n] = &hellos[n];
    }
    for (uint32_t i = 0; i < n; i++) {
        threads[i] = c->given > 0 ? c->given : cpu_share_threads(rows, n, i);
        if (threads[i] != c->workers[i].threads)
            fail_msg("%s: worker %u gets %u threads, want %u", c->name, i, threads[i],
                     c->workers[i].threads);
    }
    for (uint32_t i = 0; i < n; i++) {
        char text[CPU_SHARE_TEXT_MAX] = "";
        const enum cpu_share_verdict verdict = cpu_share_judge(rows, threads, n, i, text);
        const char *wanted = c->workers[i].says;
        if (verdict != c->workers[i].verdict || (wanted != NULL && strstr(text, wanted) == NULL))
            fail_msg("%s: worker %u says '%s' (verdict %d), want '%s'", c->name, i, text,
                     (int)verdict, wanted != NULL ? wanted : "");
    }
}

static void cpus_are_dealt_and_judged(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_case(&cases[i]);
}

/* Workers of one thread on hosts of so many CPUs, or of threads on one host. */
static void workers_compute_at_once_as_far_as_the_cpus_go(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, per_host, cpus, threads, lanes;
    } lanes[] = {
        {1, 1, 8, 8, 1}, {4, 1, 1, 1, 4}, {4, 4, 2, 1, 2}, {4, 4, 8, 2, 4},
        {4, 4, 8, 4, 2}, {4, 2, 1, 1, 2}, {3, 3, 1, 1, 1}, {2, 2, 4, 8, 1},
    };
    static const char *const hosts[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++) {
        struct msg_hello hellos[WORKERS_MAX];
        const struct msg_hello *rows[WORKERS_MAX];
        uint32_t threads[WORKERS_MAX];
        for (uint32_t k = 0; k < lanes[i].n; k++) {
            hellos[k] = (struct msg_hello){.host = hosts[k / lanes[i].per_host],
                                           .cpus = lanes[i].cpus,
                                           .cpus_online = lanes[i].cpus,
                                           .pid = 100 + k};
            rows[k] = &hellos[k];
            threads[k] = lanes[i].threads;
        }
        if (cpu_share_lanes(rows, threads, lanes[i].n) != lanes[i].lanes)
            fail_msg("case %zu: %u lanes, want %u", i, cpu_share_lanes(rows, threads, lanes[i].n),
                     lanes[i].lanes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_are_dealt_and_judged),
        cmocka_unit_test(workers_compute_at_once_as_far_as_the_cpus_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
