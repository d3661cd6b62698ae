/* barrier - where the threads of a forward pass wait for each other.
 *
 * Made for waits of microseconds between threads that have a CPU each, and for the day when they
 * do not: a thread looks for a few microseconds, then it sleeps until it is woken. OpenMP's own
 * barrier looks for so long that beside a busy neighbour, who has the CPU of the thread that is
 * waited for, the waiting one uses up its share of time and falls behind itself.
 *
 * Station before: stage (one barrier a pass). Used by pass. */
#ifndef TANDEM_ENGINE_BARRIER_H
#define TANDEM_ENGINE_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

/* The two words stand in cache lines of their own: each thread writes the first, all look at the
 * second. */
struct barrier {
    _Alignas(64) _Atomic uint32_t arrived; /* of this round */
    _Alignas(64) _Atomic uint32_t round;
    _Atomic uint32_t sleepers;
};

/* barrier_init() - nothing is to be freed. */
void barrier_init(struct barrier *b);

/* barrier_wait() - returns when size threads have called it; all of them say the same size. What
 * they wrote before is seen after. May be used again at once. */
void barrier_wait(struct barrier *b, uint32_t size);

#endif
