/* barrier - see barrier.h. */
#include "engine/barrier.h"
#include "engine/clock.h"

#include <limits.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sched.h>
#endif

enum {
    SPIN_NS = 20 * 1000, /* about what it takes to be put to sleep and woken */
    LOOKS = 16,          /* between two looks at the clock */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* sleep_while() - until *word is not value any more; it may return earlier. */
static void sleep_while(_Atomic uint32_t *word, uint32_t value)
{
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#else
    (void)word;
    (void)value;
    sched_yield();
#endif
}

static void wake_all(_Atomic uint32_t *word)
{
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#else
    (void)word;
#endif
}

void barrier_init(struct barrier *b)
{
    atomic_init(&b->arrived, 0);
    atomic_init(&b->round, 0);
    atomic_init(&b->sleepers, 0);
}

static void await_round(struct barrier *b, uint32_t round)
{
    uint64_t start = clock_now_ns();
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&b->round, memory_order_acquire) != round) return;
            relax();
        }
    } while (clock_now_ns() - start < SPIN_NS);
    /* The last thread changes the round first and asks for sleepers then; so it sees this one, or
     * the system sees a new round and does not let it sleep. */
    atomic_fetch_add(&b->sleepers, 1);
    while (atomic_load(&b->round) == round) sleep_while(&b->round, round);
    atomic_fetch_sub(&b->sleepers, 1);
}

void barrier_wait(struct barrier *b, uint32_t size)
{
    uint32_t round = atomic_load_explicit(&b->round, memory_order_relaxed);
    if (atomic_fetch_add(&b->arrived, 1) + 1 < size) {
        await_round(b, round);
        return;
    }
    atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
    atomic_store(&b->round, round + 1);
    if (atomic_load(&b->sleepers) > 0) wake_all(&b->round);
}
