/* link_local - the link between threads of one process: the whole line without mpirun.
 *
 * Every direction is a ring of preallocated slots with one sender and one receiver (two counters,
 * no lock). The receiver reads a frame in the sender's slot; the slot is free again when it is
 * done, so a frame under way and a frame at work both hold one. A sleeping endpoint waits on its
 * bell (a futex), which every frame and every freed slot rings: nothing is missed, because the bell
 * counts and the sleeper compares.
 * Stations: link.c above; the endpoint of another thread on the other side. */
#include "proto/link_internal.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CONTROL_SLOTS = 8, WEIGHTS_SLOTS = 4, ENDPOINTS_MAX = 1024 };

struct ring {
    uint8_t *slots; /* [n_slots][stride] */
    size_t *lens;   /* [n_slots] */
    size_t frame_max, stride;
    unsigned n_slots;
    bool begun;                                   /* the sender's */
    atomic_bool open;                             /* all above but begun is set */
    _Alignas(LINK_SLOT_ALIGN) atomic_ullong sent; /* written by the sender */
    _Alignas(LINK_SLOT_ALIGN) atomic_ullong done; /* written by the receiver */
};

/* For link_raw_pingpong(): one message to an endpoint, which copies it out of the
 * sender's memory. */
struct mailbox {
    const uint8_t *bytes;
    size_t n;
    _Alignas(LINK_SLOT_ALIGN) atomic_bool full; /* set by the sender, cleared by the receiver */
};

struct local {
    struct link link;
    struct world *world;
    size_t in_max;                    /* of data */
    struct ring *held[LINK_CHANNELS]; /* whose frame is at work */
    int held_from[LINK_CHANNELS];
    int turn;           /* the coordinator: the worker that it listened to last */
    uint32_t bell_seen; /* as it was before the caller last looked for frames */
    _Alignas(LINK_SLOT_ALIGN) atomic_uint bell;
    atomic_bool asleep;
    atomic_bool closed;
    struct mailbox mailbox;
};

struct world {
    int size;
    atomic_int open_endpoints;
    struct local *endpoint;      /* [size] */
    struct ring *data;           /* [size] from r to r + 1 */
    struct ring *to_worker;      /* [size] from the coordinator; 0 is not used */
    struct ring *weights;        /* [size] from the coordinator to each worker; 0 is not used */
    struct ring *to_coordinator; /* [size] from each worker; 0 is not used */
};

static struct local *as_local(struct link *l)
{
    return (struct local *)l;
}

/* ---- the bell ---- */

/* The kernel's own comparison of the bell with its expected value closes the gap between look and
 * sleep. */
static long futex(atomic_uint *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

static void ring_bell(struct local *e)
{
    atomic_fetch_add(&e->bell, 1);
    if (atomic_load(&e->asleep)) futex(&e->bell, FUTEX_WAKE, 1, NULL);
}

/* Sleeps only if the bell has not rung since the caller's looks before; what rang in between makes
 * it return at once, to look again. */
static void local_sleep(struct link *l, uint32_t step_us, uint32_t timeout_us)
{
    (void)step_us;
    struct local *e = as_local(l);
    uint32_t bell = atomic_load(&e->bell);
    if (bell != e->bell_seen) {
        e->bell_seen = bell;
        return;
    }
    struct timespec timeout = {timeout_us / 1000000, (long)(timeout_us % 1000000) * 1000};
    atomic_store(&e->asleep, true);
    if (atomic_load(&e->bell) == bell) futex(&e->bell, FUTEX_WAIT, bell, &timeout);
    atomic_store(&e->asleep, false);
}

/* ---- rings ---- */

static int ring_open(struct ring *r, size_t frame_max, unsigned n_slots, struct err *err)
{
    r->frame_max = frame_max;
    r->stride = link_slot_stride(frame_max);
    r->n_slots = n_slots;
    r->lens = calloc(n_slots, sizeof *r->lens);
    r->slots = link_take(n_slots, r->stride);
    CHECK(r->lens != NULL && r->slots != NULL, err, ERR_MEMORY,
          "no memory for %u frames of %zu bytes", n_slots, frame_max);
    atomic_store_explicit(&r->open, true, memory_order_release);
    return ERR_NONE;
}

static void ring_free(struct ring *r)
{
    atomic_store_explicit(&r->open, false, memory_order_release);
    free(r->slots);
    free(r->lens);
    r->slots = NULL;
    r->lens = NULL;
}

static uint64_t ring_under_way(struct ring *r)
{
    return atomic_load_explicit(&r->sent, memory_order_relaxed) -
           atomic_load_explicit(&r->done, memory_order_acquire);
}

static struct ring *ring_to(struct local *e, enum link_channel channel, int to)
{
    if (channel == LINK_DATA) return &e->world->data[e->link.rank];
    if (channel == LINK_WEIGHTS) return &e->world->weights[to];
    return e->link.rank == 0 ? &e->world->to_worker[to] : &e->world->to_coordinator[e->link.rank];
}

static uint8_t *local_send_begin(struct link *l, enum link_channel channel, int to,
                                 size_t *capacity)
{
    struct ring *r = ring_to(as_local(l), channel, to);
    if (ring_under_way(r) == r->n_slots) return NULL;
    r->begun = true;
    *capacity = r->frame_max;
    uint64_t slot = atomic_load_explicit(&r->sent, memory_order_relaxed) % r->n_slots;
    return r->slots + slot * r->stride;
}

static int local_send(struct link *l, enum link_channel channel, int to, size_t len,
                      struct err *err)
{
    (void)err;
    struct local *e = as_local(l);
    struct ring *r = ring_to(e, channel, to);
    BUG_IF(!r->begun, "link_send without link_send_begin");
    BUG_IF(len > r->frame_max, "link_send of more than the buffer holds");
    r->begun = false;
    uint64_t sent = atomic_load_explicit(&r->sent, memory_order_relaxed);
    r->lens[sent % r->n_slots] = len;
    atomic_store_explicit(&r->sent, sent + 1, memory_order_release);
    ring_bell(&e->world->endpoint[channel == LINK_DATA ? l->next : to]);
    return ERR_NONE;
}

/* The oldest frame of a ring, left in its slot; false when it is empty or not open yet. */
static bool ring_peek(struct ring *r, const uint8_t **frame, size_t *len)
{
    if (!atomic_load_explicit(&r->open, memory_order_acquire)) return false;
    uint64_t done = atomic_load_explicit(&r->done, memory_order_relaxed);
    if (atomic_load_explicit(&r->sent, memory_order_acquire) == done) return false;
    *frame = r->slots + done % r->n_slots * r->stride;
    *len = r->lens[done % r->n_slots];
    return true;
}

/* The coordinator listens to its workers in turn, so that none drowns another. */
static struct ring *next_control_ring(struct local *e, int *from)
{
    struct world *w = e->world;
    *from = 0;
    if (e->link.rank != 0) return &w->to_worker[e->link.rank];
    e->turn = e->turn % (w->size - 1) + 1;
    *from = e->turn;
    return &w->to_coordinator[e->turn];
}

static int local_receive(struct link *l, enum link_channel channel, int *from,
                         const uint8_t **frame, size_t *len, struct err *err)
{
    struct local *e = as_local(l);
    int peers = channel == LINK_CONTROL && l->rank == 0 ? l->size - 1 : 1;
    for (int i = 0; i < peers; i++) {
        struct ring *r = &e->world->data[l->previous];
        *from = l->previous;
        if (channel == LINK_CONTROL) r = next_control_ring(e, from);
        if (channel == LINK_WEIGHTS) r = &e->world->weights[l->rank];
        if (channel == LINK_WEIGHTS) *from = 0;
        if (!ring_peek(r, frame, len)) continue;
        if (channel == LINK_DATA && *len > e->in_max) {
            size_t bytes = *len;
            *frame = NULL;
            return err_set(err, ERR_PEER,
                           "a data frame of %zu bytes from %d, at most %zu were agreed", bytes,
                           *from, e->in_max);
        }
        e->held[channel] = r;
        e->held_from[channel] = *from;
        return ERR_NONE;
    }
    return ERR_NONE;
}

static void local_receive_done(struct link *l, enum link_channel channel)
{
    struct local *e = as_local(l);
    struct ring *r = e->held[channel];
    uint64_t done = atomic_load_explicit(&r->done, memory_order_relaxed);
    atomic_store_explicit(&r->done, done + 1, memory_order_release);
    ring_bell(&e->world->endpoint[e->held_from[channel]]);
}

/* ---- a plain memory copy, for comparison ---- */

/* Spins, and lets others run where that takes long: there may be fewer cores than endpoints. */
static int await_mailbox(struct local *e, struct mailbox *box, bool full, int peer, struct err *err)
{
    for (unsigned looks = 0; atomic_load_explicit(&box->full, memory_order_acquire) != full;) {
        if (++looks % 1024 != 0) continue;
        CHECK(!atomic_load(&e->world->endpoint[peer].closed), err, ERR_RANK, "endpoint %d has left",
              peer);
        sched_yield();
    }
    return ERR_NONE;
}

static int local_raw_send(struct link *l, int to, const uint8_t *bytes, size_t n, struct err *err)
{
    struct local *e = as_local(l);
    struct mailbox *box = &e->world->endpoint[to].mailbox;
    box->bytes = bytes;
    box->n = n;
    atomic_store_explicit(&box->full, true, memory_order_release);
    return await_mailbox(e, box, false, to, err);
}

static int local_raw_receive(struct link *l, int from, uint8_t *bytes, size_t capacity, size_t *n,
                             struct err *err)
{
    struct local *e = as_local(l);
    struct mailbox *box = &e->mailbox;
    TRY(await_mailbox(e, box, true, from, err));
    CHECK(box->n <= capacity, err, ERR_PEER, "a message of %zu bytes from %d, want at most %zu",
          box->n, from, capacity);
    *n = box->n;
    memcpy(bytes, box->bytes, box->n);
    atomic_store_explicit(&box->full, false, memory_order_release);
    return ERR_NONE;
}

static int local_raw_has_arrived(struct link *l, int from, bool *arrived, struct err *err)
{
    struct local *e = as_local(l);
    *arrived = atomic_load_explicit(&e->mailbox.full, memory_order_acquire);
    CHECK(*arrived || !atomic_load(&e->world->endpoint[from].closed), err, ERR_RANK,
          "endpoint %d has left", from);
    return ERR_NONE;
}

/* ---- open and close ---- */

static int local_open_data(struct link *l, size_t in_max, size_t out_max, unsigned in_slots,
                           unsigned out_slots, struct err *err)
{
    (void)in_slots; /* a frame stays in its sender's slot */
    struct local *e = as_local(l);
    e->in_max = in_max;
    return ring_open(&e->world->data[l->rank], out_max, out_slots, err);
}

/* The sender's rings: a receiver finds its own when it is open. */
static int local_open_weights(struct link *l, struct err *err)
{
    for (int i = 1; l->rank == 0 && i < l->size; i++)
        TRY(ring_open(&as_local(l)->world->weights[i], LINK_WEIGHTS_FRAME_MAX, WEIGHTS_SLOTS, err));
    return ERR_NONE;
}

static void local_close_weights(struct link *l)
{
    for (int i = 1; l->rank == 0 && i < l->size; i++) ring_free(&as_local(l)->world->weights[i]);
}

/* Frames to an endpoint that has closed will never be done; nobody need wait for them. */
static unsigned count_pending(struct local *e, enum link_channel channel, int to)
{
    if (atomic_load(&e->world->endpoint[to].closed)) return 0;
    return (unsigned)ring_under_way(ring_to(e, channel, to));
}

static unsigned local_pending_sends(struct link *l)
{
    struct local *e = as_local(l);
    unsigned n = l->data_open ? count_pending(e, LINK_DATA, l->next) : 0;
    if (l->rank != 0) return n + count_pending(e, LINK_CONTROL, 0);
    for (int to = 1; to < l->size; to++)
        n += count_pending(e, LINK_CONTROL, to) + count_pending(e, LINK_WEIGHTS, to);
    return n;
}

static void free_rings(struct ring *rings, int n)
{
    for (int i = 0; rings != NULL && i < n; i++) ring_free(&rings[i]);
    free(rings);
}

static void free_world(struct world *w)
{
    if (w == NULL) return;
    free_rings(w->data, w->size);
    free_rings(w->to_worker, w->size);
    free_rings(w->weights, w->size);
    free_rings(w->to_coordinator, w->size);
    free(w->endpoint);
    free(w);
}

static void local_close(struct link *l, bool abandon)
{
    (void)abandon; /* nothing is ever waited for */
    struct world *w = as_local(l)->world;
    atomic_store(&as_local(l)->closed, true);
    for (int i = 0; i < w->size; i++) ring_bell(&w->endpoint[i]);
    if (atomic_fetch_sub(&w->open_endpoints, 1) == 1) free_world(w);
}

static const struct link_ops local_ops = {
    .open_data = local_open_data,
    .open_weights = local_open_weights,
    .close_weights = local_close_weights,
    .send_begin = local_send_begin,
    .send = local_send,
    .receive = local_receive,
    .receive_done = local_receive_done,
    .sleep = local_sleep,
    .pending_sends = local_pending_sends,
    .raw_send = local_raw_send,
    .raw_receive = local_raw_receive,
    .raw_has_arrived = local_raw_has_arrived,
    .close = local_close,
};

/* Zeroed, and aligned as their counters want it. */
static void *take_structs(int n, size_t size)
{
    void *p = link_take((size_t)n, size);
    if (p != NULL) memset(p, 0, (size_t)n * size);
    return p;
}

static int take_world(struct world **out, int size, struct err *err)
{
    struct world *w = calloc(1, sizeof *w);
    CHECK(w != NULL, err, ERR_MEMORY, "no memory for a line of %d endpoints", size);
    *out = w;
    w->size = size;
    w->endpoint = take_structs(size, sizeof *w->endpoint);
    w->data = take_structs(size, sizeof *w->data);
    w->to_worker = take_structs(size, sizeof *w->to_worker);
    w->weights = take_structs(size, sizeof *w->weights);
    w->to_coordinator = take_structs(size, sizeof *w->to_coordinator);
    CHECK(w->endpoint && w->data && w->to_worker && w->weights && w->to_coordinator, err,
          ERR_MEMORY, "no memory for a line of %d endpoints", size);
    for (int i = 1; i < size; i++) {
        TRY(ring_open(&w->to_worker[i], LINK_CONTROL_FRAME_MAX, CONTROL_SLOTS, err));
        TRY(ring_open(&w->to_coordinator[i], LINK_CONTROL_FRAME_MAX, CONTROL_SLOTS, err));
    }
    return ERR_NONE;
}

int link_local_open(struct link **endpoints, int size, enum link_idle idle, struct err *err)
{
    CHECK(size >= 2 && size <= ENDPOINTS_MAX, err, ERR_CAPACITY,
          "a line of %d endpoints in one process, want 2 to %d", size, ENDPOINTS_MAX);
    struct world *w = NULL;
    int rc = take_world(&w, size, err);
    if (rc != ERR_NONE) {
        free_world(w);
        return rc;
    }
    atomic_init(&w->open_endpoints, size);
    for (int i = 0; i < size; i++) {
        struct local *e = &w->endpoint[i];
        e->link = (struct link){.ops = &local_ops, .rank = i, .size = size, .idle = idle};
        link_set_neighbours(&e->link, (i + size - 1) % size, (i + 1) % size);
        e->world = w;
        endpoints[i] = &e->link;
    }
    return ERR_NONE;
}
