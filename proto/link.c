/* link - what both transports share: the order of calls, the counts, and how waiting backs off.
 * Stations: pipeline and worker above; link_mpi or link_local below. */
#include "engine/clock.h"
#include "proto/link_internal.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Waiting: spin while an answer of the next station may be on its way, then let other threads of an
 * oversubscribed machine run, then sleep in steps that are a small share of the time waited so far,
 * so that a frame is late by that share at most. A frame that is due at a known time is slept for,
 * and spun for at the very end. */
enum {
    SPIN_US = 20,
    YIELD_US = 1000,
    SLEEP_FIRST_US = 50,
    SLEEP_LAST_US = 1000,
    SLEEP_SHARE = 128,
    WAKE_EARLY_US = 60,
    SPIN_PAUSES = 16
};

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

void link_set_neighbours(struct link *l, int from, int to)
{
    BUG_IF(l->data_open, "link_set_neighbours after link_open_data");
    l->previous = from;
    l->next = to;
}

void link_set_emulation(struct link *l, const struct link_emulation *e)
{
    BUG_IF(l->data_open, "link_set_emulation after link_open_data");
    l->emulates = link_emulation_is_on(e);
    link_wire_open(&l->wire, e);
}

struct link_emulation link_emulation_of(const struct link *l)
{
    return l->wire.emulation;
}

/* What travels behind each data frame. */
static size_t stamp_bytes(const struct link *l)
{
    return l->emulates ? sizeof(struct link_stamp) : 0;
}

int link_open_data(struct link *l, size_t in_max, size_t out_max, unsigned in_slots,
                   unsigned out_slots, struct err *err)
{
    BUG_IF(l->data_open, "link_open_data called twice");
    BUG_IF(in_slots == 0 || out_slots == 0, "a data channel without slots");
    const size_t most = in_max > out_max ? in_max : out_max, stamp = stamp_bytes(l);
    CHECK(most <= INT_MAX - stamp, err, ERR_CAPACITY,
          "a frame of %zu bytes, at most %d can travel: use smaller batches", most, INT_MAX);
    TRY(l->ops->open_data(l, in_max + stamp, out_max + stamp, in_slots, out_slots, err));
    l->data_open = true;
    return ERR_NONE;
}

int link_open_weights(struct link *l, struct err *err)
{
    BUG_IF(l->weights_open, "link_open_weights called twice");
    TRY(l->ops->open_weights(l, err));
    l->weights_open = true;
    return ERR_NONE;
}

void link_close_weights(struct link *l)
{
    BUG_IF(l->held[LINK_WEIGHTS], "link_close_weights before link_receive_done");
    if (l->weights_open) l->ops->close_weights(l);
    l->weights_open = false;
}

/* Control goes from the coordinator to a worker, or from a worker to the coordinator; weights never
 * come back. */
static bool is_addressee(const struct link *l, enum link_channel channel, int to)
{
    if (channel == LINK_DATA) return l->data_open;
    if (channel == LINK_WEIGHTS && (l->rank != 0 || !l->weights_open)) return false;
    return l->rank == 0 ? to > 0 && to < l->size : to == 0;
}

uint8_t *link_send_begin(struct link *l, enum link_channel channel, int to, size_t *capacity)
{
    BUG_IF(!is_addressee(l, channel, to), "link_send_begin to an endpoint that cannot be sent to");
    uint8_t *buffer = l->ops->send_begin(l, channel, to, capacity);
    if (buffer == NULL || channel != LINK_DATA) return buffer;
    *capacity -= stamp_bytes(l);
    l->begun = buffer;
    return buffer;
}

static void stamp_frame(struct link *l, size_t len)
{
    BUG_IF(l->begun == NULL, "link_send without link_send_begin");
    struct link_stamp stamp = {l->wire.clock, clock_now_ns()};
    memcpy(l->begun + len, &stamp, sizeof stamp);
}

int link_send(struct link *l, enum link_channel channel, int to, size_t len, struct err *err)
{
    BUG_IF(!is_addressee(l, channel, to), "link_send to an endpoint that cannot be sent to");
    size_t stamp = channel == LINK_DATA ? stamp_bytes(l) : 0;
    if (stamp > 0) stamp_frame(l, len);
    TRY(l->ops->send(l, channel, to, len + stamp, err));
    l->counts[channel].sent_messages++;
    l->counts[channel].sent_bytes += len;
    return ERR_NONE;
}

/* The frame that has arrived, once it is due. */
static int receive_emulated(struct link *l, int *from, const uint8_t **frame, size_t *len,
                            struct err *err)
{
    struct late_frame *late = &l->late;
    struct link_stamp stamp;
    if (late->frame == NULL) {
        TRY(l->ops->receive(l, LINK_DATA, &late->from, &late->frame, &late->len, err));
        if (late->frame == NULL) return ERR_NONE;
        CHECK(late->len >= sizeof stamp, err, ERR_PEER,
              "a data frame of %zu bytes from %d has no stamp: give every rank the same "
              "--link-emulate",
              late->len, late->from);
        late->len -= sizeof stamp;
        memcpy(&stamp, late->frame + late->len, sizeof stamp);
        /* The clock is read when the frame is here: before, its stamp may still lie ahead. */
        late->due_ns = link_wire_due(&l->wire, &stamp, late->len, clock_now_ns());
    }
    if (clock_now_ns() < late->due_ns) return ERR_NONE;
    *from = late->from;
    *frame = late->frame;
    *len = late->len;
    late->frame = NULL;
    return ERR_NONE;
}

int link_receive(struct link *l, enum link_channel channel, int *from, const uint8_t **frame,
                 size_t *len, struct err *err)
{
    BUG_IF(l->held[channel], "link_receive before link_receive_done");
    *frame = NULL;
    *len = 0;
    if (channel == LINK_DATA && !l->data_open) return ERR_NONE;
    if (channel == LINK_WEIGHTS && (l->rank == 0 || !l->weights_open)) return ERR_NONE;
    if (channel == LINK_DATA && l->emulates)
        TRY(receive_emulated(l, from, frame, len, err));
    else
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

/* For a step where the transport cannot be woken, else until it is woken or timeout_us. Linux wakes
 * a thread up to 50 us late unless it asks for better: as long as a short hop takes. */
static void sleep_at_most(struct link *l, uint64_t step_us, uint64_t timeout_us)
{
    if (!l->wakes_promptly) prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    l->wakes_promptly = true;
    if (step_us < SLEEP_FIRST_US) step_us = SLEEP_FIRST_US;
    if (step_us > SLEEP_LAST_US) step_us = SLEEP_LAST_US;
    if (step_us > timeout_us) step_us = timeout_us;
    l->ops->sleep(l, (uint32_t)step_us, (uint32_t)timeout_us);
}

/* Until the frame that is held back is due: nothing else will come on data before it. */
static void wait_for_late(struct link *l, uint64_t now, uint32_t timeout_us)
{
    if (now >= l->late.due_ns) return;
    uint64_t left_us = (l->late.due_ns - now) / 1000;
    if (l->idle == LINK_IDLE_SPIN || left_us <= WAKE_EARLY_US) {
        spin_briefly();
    } else if (l->idle == LINK_IDLE_YIELD) {
        sched_yield();
    } else {
        uint64_t sleep_us = left_us - WAKE_EARLY_US;
        sleep_at_most(l, sleep_us, sleep_us < timeout_us ? sleep_us : timeout_us);
    }
}

void link_wait(struct link *l, uint32_t timeout_us)
{
    if (timeout_us == 0) return;
    uint64_t now = clock_now_ns();
    if (l->late.frame != NULL) {
        wait_for_late(l, now, timeout_us);
        return;
    }
    if (l->idle_since_ns == 0) l->idle_since_ns = now;
    uint64_t idle_us = (now - l->idle_since_ns) / 1000;
    if (l->idle == LINK_IDLE_SPIN || idle_us < SPIN_US)
        spin_briefly();
    else if (l->idle == LINK_IDLE_YIELD || idle_us < YIELD_US)
        sched_yield();
    else
        sleep_at_most(l, idle_us / SLEEP_SHARE, timeout_us);
}

void link_made_progress(struct link *l)
{
    l->idle_since_ns = 0;
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
