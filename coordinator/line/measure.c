/* measure - see measure.h. */
#include "coordinator/line/measure.h"

#include "coordinator/line/capacity.h"
#include "coordinator/line/cpu_share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 64, LARGE_BYTES = 256 << 10, ROUNDS = 40 };

static bool same_host(const struct member *a, const struct member *b)
{
    return strcmp(a->host, b->host) == 0;
}

/* ---- ranks ---- */

/* turn_of() - how many ranks of its host stand before it. */
static uint32_t turn_of(struct roster *r, uint32_t index)
{
    uint32_t turn = 0;
    for (uint32_t i = 0; i < index; i++) turn += same_host(roster_at(r, i), roster_at(r, index));
    return turn;
}

/* host_share() - of the weights, on the host of a rank. */
static uint64_t host_share(struct roster *r, uint32_t index, uint64_t bytes)
{
    uint64_t sharers = 0, n = roster_size(r);
    for (uint32_t i = 0; i < n; i++) sharers += same_host(roster_at(r, i), roster_at(r, index));
    return bytes / n * sharers;
}

/* lanes_beside() - how many ranks of a rank's host can compute at the same time. */
static uint32_t lanes_beside(struct roster *r, const struct msg_hello *const *hellos,
                             const struct planner_rank *ranks, uint32_t index)
{
    const struct msg_hello *own[MESSAGE_RANKS_MAX];
    uint32_t threads[MESSAGE_RANKS_MAX], n = 0;
    for (uint32_t i = 0; i < roster_size(r); i++) {
        if (!same_host(roster_at(r, i), roster_at(r, index))) continue;
        own[n] = hellos[i];
        threads[n++] = ranks[i].threads;
    }
    return cpu_share_lanes(own, threads, n);
}

/* Who is measured at the same time: chosen[roster_size]. */
struct turn {
    bool *chosen;
    struct plan_speed *found; /* [roster_size] of those */
};

static int take_answer(struct roster *r, uint32_t index, struct plan_speed *out, struct err *err)
{
    TRY(roster_await_probed(r, index, err));
    const struct member *m = roster_at(r, index);
    *out = (struct plan_speed){(double)m->probed.read_bytes_s, (double)m->probed.ops_s,
                               (double)m->probed.few_ops_s};
    if (out->read_bytes_s > 0 && out->ops_s > 0) return ERR_NONE;
    err_set(err, ERR_PEER, "measured itself and found no speed");
    err_set_who(err, "worker %d @%.32s", m->rank, m->host);
    return ERR_PEER;
}

static int measure_turn(struct roster *r, const struct measure_wish *wish,
                        const struct planner_rank *ranks, const struct turn *t, struct err *err)
{
    for (uint32_t i = 0; i < roster_size(r); i++) {
        const struct msg_probe probe = {.threads = ranks[i].threads,
                                        .format = wish->format,
                                        .isa = roster_isa(r),
                                        .weight_bytes = host_share(r, i, wish->weight_bytes)};
        if (t->chosen[i]) TRY(roster_probe(r, i, &probe, err));
    }
    for (uint32_t i = 0; i < roster_size(r); i++)
        if (t->chosen[i]) TRY(take_answer(r, i, &t->found[i], err));
    return ERR_NONE;
}

/* measure_each() - one rank of each host, all hosts at the same time; then the next of each. */
static int measure_each(struct roster *r, const struct measure_wish *wish, const struct turn *t,
                        struct planner_rank *out, struct err *err)
{
    const uint32_t n = roster_size(r);
    bool more = true;
    for (uint32_t turn = 0; more; turn++) {
        more = false;
        for (uint32_t i = 0; i < n; i++) {
            t->chosen[i] = turn_of(r, i) == turn;
            more |= turn_of(r, i) > turn;
        }
        TRY(measure_turn(r, wish, out, t, err));
        for (uint32_t i = 0; i < n; i++)
            if (t->chosen[i]) out[i].speed = t->found[i];
    }
    return ERR_NONE;
}

/* busy_share() - of a rank's host, from those that were measured at the same time. */
static struct planner_share busy_share(struct roster *r, const struct turn *t,
                                       const struct planner_rank *ranks, uint32_t index)
{
    struct plan_speed alone = {0, 0, 0}, together = {0, 0, 0};
    for (uint32_t i = 0; i < roster_size(r); i++) {
        if (!t->chosen[i] || !same_host(roster_at(r, i), roster_at(r, index))) continue;
        alone.read_bytes_s += ranks[i].speed.read_bytes_s;
        alone.ops_s += ranks[i].speed.ops_s;
        together.read_bytes_s += t->found[i].read_bytes_s;
        together.ops_s += t->found[i].ops_s;
    }
    if (alone.ops_s == 0) return (struct planner_share){1, 1};
    return (struct planner_share){fmin(together.read_bytes_s / alone.read_bytes_s, 1),
                                  fmin(together.ops_s / alone.ops_s, 1)};
}

/* measure_busy() - on each host as many of its ranks at the same time as can compute then, where
 * that is more than one. */
static int measure_busy(struct roster *r, const struct measure_wish *wish,
                        const struct msg_hello *const *hellos, const struct turn *t,
                        struct planner_rank *out, struct err *err)
{
    const uint32_t n = roster_size(r);
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t lanes = lanes_beside(r, hellos, out, i);
        t->chosen[i] = lanes > 1 && turn_of(r, i) < lanes;
        any |= t->chosen[i];
    }
    if (any) TRY(measure_turn(r, wish, out, t, err));
    for (uint32_t i = 0; i < n; i++) out[i].busy = busy_share(r, t, out, i);
    return ERR_NONE;
}

static int measure_speed(struct roster *r, const struct measure_wish *wish,
                         const struct msg_hello *const *hellos, struct planner_rank *out,
                         struct err *err)
{
    const uint32_t n = roster_size(r);
    const struct turn t = {calloc(n, sizeof *t.chosen), calloc(n, sizeof *t.found)};
    int rc = ERR_NONE;
    if (t.chosen == NULL || t.found == NULL)
        rc = err_set(err, ERR_MEMORY, "no memory to measure %u ranks", n);
    if (rc == ERR_NONE) rc = measure_each(r, wish, &t, out, err);
    if (rc == ERR_NONE) rc = measure_busy(r, wish, hellos, &t, out, err);
    free(t.chosen);
    free(t.found);
    return rc;
}

/* ---- hops ---- */

static void widen(struct planner_link *known, const struct planner_link *hop)
{
    known->us = fmax(known->us, hop->us);
    known->bytes_s = fmin(known->bytes_s, hop->bytes_s);
}

/* link_of() - from the times of a small and a large message. */
static struct planner_link link_of(const double us[2], const struct link_emulation *e)
{
    const double more_s = fmax(us[1] - us[0], 1e-3) * 1e-6;
    struct planner_link hop = {us[0], (LARGE_BYTES - SMALL_BYTES) / more_s};
    hop.us += (double)e->delay_ns * 1e-3;
    if (e->rate_bit_s > 0) hop.bytes_s = fmin(hop.bytes_s, (double)e->rate_bit_s / 8);
    return hop;
}

/* note_hop() - between two ranks: for each of them its slowest hop of that kind counts. */
static void note_hop(struct roster *r, uint32_t a, uint32_t b, const struct planner_link *hop,
                     struct planner_rank *out)
{
    const bool is_local = same_host(roster_at(r, a), roster_at(r, b));
    widen(is_local ? &out[a].local : &out[a].away, hop);
    widen(is_local ? &out[b].local : &out[b].away, hop);
}

static int measure_hops(struct roster *r, struct link *l, const struct planner_rank *usual,
                        struct planner_rank *out, struct err *err)
{
    static const uint32_t bytes[2] = {SMALL_BYTES, LARGE_BYTES};
    const struct planner_link none = {0, INFINITY};
    const uint32_t n = roster_size(r);
    const struct link_emulation emulation = link_emulation_of(l);
    double *us = calloc(((size_t)n + 1) * 2, sizeof *us);
    CHECK(us != NULL, err, ERR_MEMORY, "no memory for the latencies of %u hops", n + 1);
    int rc = roster_raw_hops(r, bytes, 2, ROUNDS, us, err);
    for (uint32_t i = 0; i < n; i++) out[i].away = out[i].local = none;
    for (uint32_t hop = 1; hop < n && rc == ERR_NONE; hop++) {
        const struct planner_link link = link_of(us + (size_t)hop * 2, &emulation);
        note_hop(r, hop - 1, hop, &link, out);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (isinf(out[i].away.bytes_s)) out[i].away = usual->away;
        if (isinf(out[i].local.bytes_s)) out[i].local = usual->local;
    }
    free(us);
    return rc;
}

int measure_ranks(struct roster *r, struct link *l, const struct measure_wish *wish,
                  const struct planner_rank *usual, struct planner_rank *out, struct err *err)
{
    const uint32_t n = roster_size(r);
    const struct msg_hello *hellos[MESSAGE_RANKS_MAX];
    roster_hellos(r, hellos);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct planner_rank){
            .host = roster_at(r, i)->host,
            .threads = wish->threads > 0 ? wish->threads : cpu_share_threads(hellos, n, i),
            .cpus = cpu_share_cpus(hellos, n, i),
            .may = capacity_share(hellos, n, i)};
    TRY(measure_speed(r, wish, hellos, out, err));
    return measure_hops(r, l, usual, out, err);
}
