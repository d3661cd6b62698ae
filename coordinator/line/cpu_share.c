/* cpu_share - see cpu_share.h. */
#include "coordinator/line/cpu_share.h"

#include <stdio.h>
#include <string.h>

static bool is_bound(const struct msg_hello *h)
{
    return h->cpus < h->cpus_online;
}

uint32_t cpu_share_threads(const struct msg_hello *const *hellos, uint32_t n, uint32_t worker)
{
    const struct msg_hello *own = hellos[worker];
    if (is_bound(own)) return own->cpus > 0 ? own->cpus : 1;
    uint32_t sharers = 0;
    for (uint32_t i = 0; i < n; i++)
        sharers += strcmp(hellos[i]->host, own->host) == 0 && !is_bound(hellos[i]);
    return own->cpus > sharers ? own->cpus / sharers : 1;
}

uint32_t cpu_share_cpus(const struct msg_hello *const *hellos, uint32_t n, uint32_t worker)
{
    uint64_t cpus = 0;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(hellos[i]->host, hellos[worker]->host) == 0) cpus += hellos[i]->cpus;
    return cpus < hellos[worker]->cpus_online ? (uint32_t)cpus : hellos[worker]->cpus_online;
}

/* What the workers of one host have together. */
struct host_sum {
    uint32_t first, workers;
    uint64_t threads;
    uint64_t cpus; /* that they can run on: all, as soon as one is unbound */
    bool one_process;
};

static struct host_sum sum_host(const struct msg_hello *const *hellos, const uint32_t *threads,
                                uint32_t n, uint32_t worker)
{
    const struct msg_hello *own = hellos[worker];
    struct host_sum s = {
        .first = n, .one_process = true, .cpus = cpu_share_cpus(hellos, n, worker)};
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(hellos[i]->host, own->host) != 0) continue;
        if (s.first == n) s.first = i;
        s.workers++;
        s.threads += threads[i];
        s.one_process &= hellos[i]->pid == own->pid;
    }
    return s;
}

uint32_t cpu_share_lanes(const struct msg_hello *const *hellos, const uint32_t *threads, uint32_t n)
{
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct host_sum s = sum_host(hellos, threads, n, i);
        if (s.first != i) continue;
        const uint64_t at_once = s.threads > 0 ? s.cpus * s.workers / s.threads : 1;
        lanes += at_once < 1 ? 1 : at_once < s.workers ? (uint32_t)at_once : s.workers;
    }
    return lanes;
}

enum cpu_share_verdict cpu_share_judge(const struct msg_hello *const *hellos,
                                       const uint32_t *threads, uint32_t n, uint32_t worker,
                                       char text[CPU_SHARE_TEXT_MAX])
{
    const struct msg_hello *own = hellos[worker];
    const struct host_sum s = sum_host(hellos, threads, n, worker);
    const uint32_t share = own->cpus_online / s.workers;
    if (is_bound(own) && own->cpus < share) {
        snprintf(text, CPU_SHARE_TEXT_MAX,
                 "is bound to %u of %u CPUs, and its share is %u: start with mpirun --bind-to "
                 "none, or with cluster/tandem-run",
                 own->cpus, own->cpus_online, share);
        return CPU_SHARE_WRONG;
    }
    if (s.workers > 1 && !s.one_process && s.first == worker && s.threads > s.cpus) {
        snprintf(
            text, CPU_SHARE_TEXT_MAX,
            "and %u more workers of its host run %llu threads on %llu CPUs and take turns: fewer "
            "workers there, or fewer --threads, would be faster",
            s.workers - 1, (unsigned long long)s.threads, (unsigned long long)s.cpus);
        return s.threads > s.workers ? CPU_SHARE_WRONG : CPU_SHARE_CROWDED;
    }
    return CPU_SHARE_FINE;
}
