/* link_emulate - a slower wire than the real one: a delay and a rate for every hop of the ring.
 *
 * A frame of n bytes that is sent at t leaves its hop's wire at max(t, wire free) + 8 n / rate, and
 * is there `delay` later: frames queue behind each other, and delays overlap. The sender stamps the
 * frame behind its last byte; the receiver alone keeps the book of the wire and hands a frame out
 * when it is due, or when it is really there, whichever comes later. So the wire goes on while
 * either end computes.
 *
 * Clocks: ranks of one host share the monotonic clock, and the stamp is taken as it is. Between
 * hosts the smallest difference between arrival and stamp stands in for the difference of their
 * clocks, and the real hop comes on top of the emulated one.
 * Stations: settings (the text), link.c (stamps, and holds frames back). */
#ifndef TANDEM_PROTO_LINK_EMULATE_H
#define TANDEM_PROTO_LINK_EMULATE_H

#include "engine/err.h"

#include <stdbool.h>
#include <stdint.h>

struct link_emulation {
    uint64_t delay_ns;
    uint64_t rate_bit_s; /* 0: as fast as the real wire */
};

/* link_emulation_parse() - "DELAY,RATE": 50us,1gbit or 50us or ,1gbit. DELAY is a number with ns,
 * us, ms or s, at most 10 s; RATE a number with kbit, mbit or gbit (a second, decimal), 1 kbit to
 * 1000 gbit. NULL gives no emulation. ERR_USAGE says what was wrong. */
int link_emulation_parse(const char *text, struct link_emulation *e, struct err *err);

static inline bool link_emulation_is_on(const struct link_emulation *e)
{
    return e->delay_ns > 0 || e->rate_bit_s > 0;
}

/* What travels behind an emulated frame, in the sender's byte order: ranks of one line share it. */
struct link_stamp {
    uint64_t clock; /* whose clock; 0: unknown, shared with nobody */
    uint64_t sent_ns;
};

/* One end of one hop: the sender uses clock alone. Zero-initialise, then link_wire_open(). */
struct link_wire {
    struct link_emulation emulation;
    uint64_t clock;
    uint64_t free_ns; /* when the last frame has left */
    bool offset_known;
    uint64_t offset_ns; /* of our clock from a foreign sender's, the real hop included; wraps */
    uint64_t offset_at_ns;
};

void link_wire_open(struct link_wire *w, const struct link_emulation *e);

/* link_wire_due() - book the next frame, of n bytes, seen now_ns; when it may be handed out. Frames
 * must be booked in order, each once. Not before a stamp that is later than now: a sender cannot
 * hold its receiver up. */
uint64_t link_wire_due(struct link_wire *w, const struct link_stamp *stamp, uint64_t n,
                       uint64_t now_ns);

#endif
