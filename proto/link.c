/* link - what both transports share: the order of calls, the counts, and how waiting backs off.
 * Stations: pipeline and worker above; link_mpi or link_local below. */
#include "proto/link_internal.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

/* Waiting: spin while an answer of the next station may be on its way, then let other threads of an
 * oversubscribed machine run, then sleep in steps that double. */
enum { SPIN_US = 20, YIELD_US = 1000, SLEEP_FIRST_US = 50, SLEEP_LAST_US = 1000, SPIN_PAUSES = 16 };

int link_rank(const struct link *l)
{
    return l->rank;
}

int link_size(const struct link *l)
{
    return l->size;
}

void *link_take(size_t n, size_t stride)
{
    if (stride != 0 && n > SIZE_MAX / 2 / stride) return NULL;
    return aligned_alloc(LINK_SLOT_ALIGN, link_slot_stride(n * stride > 0 ? n * stride : 1));
}

int link_open_data(struct link *l, size_t in_max, size_t out_max, unsigned in_slots,
                   unsigned out_slots, struct err *err)
{
    BUG_IF(l->data_open, "link_open_data called twice");
    BUG_IF(in_slots == 0 || out_slots == 0, "a data channel without slots");
    size_t most = in_max > out_max ? in_max : out_max;
    CHECK(most <= INT_MAX, err, ERR_CAPACITY,
          "a frame of %zu bytes, at most %d can travel: use smaller batches", most, INT_MAX);
    TRY(l->ops->open_data(l, in_max, out_max, in_slots, out_slots, err));
    l->data_open = true;
    return ERR_NONE;
}

/* Control goes from the coordinator to a worker, or from a worker to the coordinator. */
static bool is_addressee(const struct link *l, enum link_channel channel, int to)
{
    if (channel == LINK_DATA) return l->data_open;
    return l->rank == 0 ? to > 0 && to < l->size : to == 0;
}

uint8_t *link_send_begin(struct link *l, enum link_channel channel, int to, size_t *capacity)
{
    BUG_IF(!is_addressee(l, channel, to), "link_send_begin to an endpoint that cannot be sent to");
    return l->ops->send_begin(l, channel, to, capacity);
}

int link_send(struct link *l, enum link_channel channel, int to, size_t len, struct err *err)
{
    BUG_IF(!is_addressee(l, channel, to), "link_send to an endpoint that cannot be sent to");
    TRY(l->ops->send(l, channel, to, len, err));
    l->counts[channel].sent_messages++;
    l->counts[channel].sent_bytes += len;
    return ERR_NONE;
}

int link_receive(struct link *l, enum link_channel channel, int *from, const uint8_t **frame,
                 size_t *len, struct err *err)
{
    BUG_IF(l->held[channel], "link_receive before link_receive_done");
    *frame = NULL;
    *len = 0;
    if (channel == LINK_DATA && !l->data_open) return ERR_NONE;
    TRY(l->ops->receive(l, channel, from, frame, len, err));
    if (*frame == NULL) return ERR_NONE;
    l->held[channel] = true;
    l->counts[channel].received_messages++;
    l->counts[channel].received_bytes += *len;
    return ERR_NONE;
}

void link_receive_done(struct link *l, enum link_channel channel)
{
    BUG_IF(!l->held[channel], "link_receive_done without a frame");
    l->held[channel] = false;
    l->ops->receive_done(l, channel);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void spin_briefly(void)
{
    for (int i = 0; i < SPIN_PAUSES; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#else
        __asm__ volatile("" ::: "memory");
#endif
    }
}

/* The first step of a sleep. Linux wakes a thread up to 50 us late unless it asks for better: as
 * long as a short hop takes. */
static void begin_sleeping(struct link *l)
{
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    l->sleep_us = SLEEP_FIRST_US;
}

void link_wait(struct link *l, uint32_t timeout_us)
{
    if (timeout_us == 0) return;
    uint64_t now = now_ns();
    if (l->idle_since_ns == 0) l->idle_since_ns = now;
    uint64_t idle_us = (now - l->idle_since_ns) / 1000;
    if (l->idle == LINK_IDLE_SPIN || idle_us < SPIN_US) {
        spin_briefly();
        return;
    }
    if (l->idle == LINK_IDLE_YIELD || idle_us < YIELD_US) {
        sched_yield();
        return;
    }
    if (l->sleep_us == 0)
        begin_sleeping(l);
    else if (l->sleep_us < SLEEP_LAST_US)
        l->sleep_us = 2 * l->sleep_us < SLEEP_LAST_US ? 2 * l->sleep_us : SLEEP_LAST_US;
    l->ops->sleep(l, l->sleep_us < timeout_us ? l->sleep_us : timeout_us, timeout_us);
}

void link_made_progress(struct link *l)
{
    l->idle_since_ns = 0;
    l->sleep_us = 0;
}

unsigned link_pending_sends(struct link *l)
{
    return l->ops->pending_sends(l);
}

struct link_counts link_counts(const struct link *l, enum link_channel channel)
{
    return l->counts[channel];
}

void link_close(struct link *l, bool abandon)
{
    if (l != NULL) l->ops->close(l, abandon);
}
