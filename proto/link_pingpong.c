/* link_pingpong - what a hop costs without the link: plain messages between neighbours, there and
 * back.
 *
 * A baton goes round the ring, beginning at the coordinator: who has it measures its own hop, adds
 * its row to the table and hands both on. So one hop is measured at a time, between two busy
 * neighbours, while all others sleep.
 * Stations: the bench above; the transport's raw messages below. */
#include "engine/clock.h"
#include "proto/link_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP_SHARE = 8, WARM_UP_MIN = 4, SIZE_MS_MAX = 200, TURN_MS = 250, TURN_BASE_MS = 10000 };

struct raw {
    struct link *link;
    uint8_t *out, *in; /* [capacity] each */
    size_t capacity;
    uint64_t *trips; /* [rounds] nanoseconds */
};

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The median round trip of one size, halved. Rounds end early where they take long. */
static int ping(struct raw *r, size_t bytes, uint32_t rounds, double *us, struct err *err)
{
    struct link *l = r->link;
    const int to = l->next;
    const uint32_t warm_up = rounds / WARM_UP_SHARE + WARM_UP_MIN;
    const uint64_t begin = clock_now_ns();
    uint32_t timed = 0;
    for (uint32_t i = 0; i < warm_up + rounds; i++) {
        size_t n = 0;
        uint64_t sent = clock_now_ns();
        if (timed > 0 && sent - begin > SIZE_MS_MAX * 1000000u) break;
        TRY(l->ops->raw_send(l, to, r->out, bytes, err));
        TRY(l->ops->raw_receive(l, to, r->in, r->capacity, &n, err));
        CHECK(n == bytes, err, ERR_PEER, "%zu raw bytes from %d, want %zu", n, to, bytes);
        if (i >= warm_up) r->trips[timed++] = clock_now_ns() - sent;
    }
    qsort(r->trips, timed, sizeof *r->trips, compare_u64);
    *us = (double)r->trips[timed / 2] / 2000;
    return ERR_NONE;
}

/* Answers with as many bytes, until an empty message ends the hop. They leave from memory that was
 * not written to just now: the fastest that plain messages can be. */
static int pong(struct raw *r, struct err *err)
{
    struct link *l = r->link;
    const int from = l->previous;
    for (;;) {
        size_t n = 0;
        TRY(l->ops->raw_receive(l, from, r->in, r->capacity, &n, err));
        if (n == 0) return ERR_NONE;
        TRY(l->ops->raw_send(l, from, r->out, n, err));
    }
}

/* Asleep until the first message of the hop to this endpoint. */
static int await_turn(struct raw *r, size_t n, struct err *err)
{
    struct link *l = r->link;
    const uint64_t limit_ms = TURN_BASE_MS + (uint64_t)l->size * n * TURN_MS;
    const uint64_t begin = clock_now_ns();
    bool arrived = false;
    for (;;) {
        TRY(l->ops->raw_has_arrived(l, l->previous, &arrived, err));
        if (arrived) return ERR_NONE;
        CHECK(clock_now_ns() - begin < limit_ms * 1000000u, err, ERR_STALL,
              "no raw message from %d within %.1f s", l->previous, (double)limit_ms / 1000);
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
}

static int receive_baton(struct raw *r, size_t n, double *us, struct err *err)
{
    struct link *l = r->link;
    const size_t table = (size_t)l->size * n * sizeof *us;
    size_t got = 0;
    TRY(await_turn(r, n, err));
    TRY(pong(r, err));
    TRY(l->ops->raw_receive(l, l->previous, (uint8_t *)us, table, &got, err));
    CHECK(got == table, err, ERR_PEER, "a table of %zu bytes from %d, want %zu", got, l->previous,
          table);
    return ERR_NONE;
}

static int measure_hop(struct raw *r, const size_t *bytes, size_t n, uint32_t rounds, double *us,
                       struct err *err)
{
    struct link *l = r->link;
    for (size_t i = 0; i < n; i++)
        TRY(ping(r, bytes[i], rounds, &us[(size_t)l->rank * n + i], err));
    TRY(l->ops->raw_send(l, l->next, r->out, 0, err));
    return l->ops->raw_send(l, l->next, (const uint8_t *)us, (size_t)l->size * n * sizeof *us, err);
}

static int go_round(struct raw *r, const size_t *bytes, size_t n, uint32_t rounds, double *us,
                    struct err *err)
{
    if (r->link->rank != 0) TRY(receive_baton(r, n, us, err));
    TRY(measure_hop(r, bytes, n, rounds, us, err));
    return r->link->rank == 0 ? receive_baton(r, n, us, err) : ERR_NONE;
}

int link_raw_pingpong(struct link *l, const size_t *bytes, size_t n, uint32_t rounds, double *us,
                      struct err *err)
{
    CHECK(n > 0 && n <= LINK_RAW_SIZES_MAX && rounds > 0 && rounds <= LINK_RAW_ROUNDS_MAX, err,
          ERR_CAPACITY, "%zu sizes and %u rounds of raw messages, want 1 to %d and 1 to %d", n,
          rounds, LINK_RAW_SIZES_MAX, LINK_RAW_ROUNDS_MAX);
    struct raw r = {.link = l, .capacity = 1};
    for (size_t i = 0; i < n; i++) {
        CHECK(bytes[i] > 0 && bytes[i] <= INT_MAX, err, ERR_CAPACITY,
              "a raw message of %zu bytes, want 1 to %d", bytes[i], INT_MAX);
        if (bytes[i] > r.capacity) r.capacity = bytes[i];
    }
    const size_t table = (size_t)l->size * n;
    for (size_t i = 0; i < table; i++) us[i] = 0;
    r.out = link_take(1, r.capacity);
    r.in = link_take(1, r.capacity);
    r.trips = calloc(rounds, sizeof *r.trips);
    int rc = ERR_MEMORY;
    if (r.out == NULL || r.in == NULL || r.trips == NULL) {
        err_set(err, ERR_MEMORY, "no memory for raw messages of %zu bytes", r.capacity);
    } else {
        memset(r.out, 1, r.capacity);
        rc = go_round(&r, bytes, n, rounds, us, err);
    }
    free(r.out);
    free(r.in);
    free(r.trips);
    return rc;
}
