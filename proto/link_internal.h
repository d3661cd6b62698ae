/* link_internal - what the transports share behind link.h; included by link*.c alone.
 *
 * A transport embeds struct link as its first member and fills ops. link.c counts, checks the order
 * of calls and backs off; the transports only move frames. */
#ifndef TANDEM_PROTO_LINK_INTERNAL_H
#define TANDEM_PROTO_LINK_INTERNAL_H

#include "proto/link.h"
#include "proto/link_emulate.h"

/* As in link.h, where the function of the same name says more. */
struct link_ops {
    int (*open_data)(struct link *l, size_t in_max, size_t out_max, unsigned in_slots,
                     unsigned out_slots, struct err *err);
    int (*open_weights)(struct link *l, struct err *err);
    void (*close_weights)(struct link *l);
    uint8_t *(*send_begin)(struct link *l, enum link_channel channel, int to, size_t *capacity);
    int (*send)(struct link *l, enum link_channel channel, int to, size_t len, struct err *err);
    int (*receive)(struct link *l, enum link_channel channel, int *from, const uint8_t **frame,
                   size_t *len, struct err *err);
    void (*receive_done)(struct link *l, enum link_channel channel);
    /* Sleep until something may have happened: step_us where the transport cannot be woken,
     * timeout_us where it can. */
    void (*sleep)(struct link *l, uint32_t step_us, uint32_t timeout_us);
    unsigned (*pending_sends)(struct link *l);
    /* For link_raw_pingpong() alone: block, without backing off. to, from: a neighbour.
     * raw_has_arrived does not block: a raw_receive would now find its message. */
    int (*raw_send)(struct link *l, int to, const uint8_t *bytes, size_t n, struct err *err);
    int (*raw_receive)(struct link *l, int from, uint8_t *bytes, size_t capacity, size_t *n,
                       struct err *err);
    int (*raw_has_arrived)(struct link *l, int from, bool *arrived, struct err *err);
    void (*close)(struct link *l, bool abandon);
};

struct link {
    const struct link_ops *ops;
    int rank, size;
    int previous, next; /* the neighbours on the ring; link_set_neighbours() changes them */
    enum link_idle idle;
    uint64_t idle_since_ns; /* 0: at work */
    bool wakes_promptly;    /* the thread's timers are as exact as they can be */
    bool data_open, weights_open;
    bool held[LINK_CHANNELS]; /* a frame was received and is not done */
    struct link_counts counts[LINK_CHANNELS];

    /* The emulated wire, of data alone. */
    bool emulates;
    struct link_wire wire;    /* from the previous endpoint */
    uint8_t *begun;           /* the send buffer that the caller is filling */
    struct late_frame {       /* arrived, and not due yet */
        const uint8_t *frame; /* NULL: none */
        size_t len;
        int from;
        uint64_t due_ns;
    } late;
};

/* Slots are whole cache lines, so that each begins aligned. */
enum { LINK_SLOT_ALIGN = 64 };

static inline size_t link_slot_stride(size_t frame_max)
{
    return (frame_max + LINK_SLOT_ALIGN - 1) / LINK_SLOT_ALIGN * LINK_SLOT_ALIGN;
}

/* link_take() - n slots of stride bytes, 64-byte aligned, uninitialised; NULL without memory or
 * beyond SIZE_MAX. free() gives them back. */
void *link_take(size_t n, size_t stride);

#endif
