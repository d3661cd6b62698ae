/* Barrier: nobody passes before the last has come, and what was written before is seen after; with
 * a thread for each CPU, with more than that, and beside one that comes late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/barrier.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

enum { THREADS_MAX = 5 };

struct meeting {
    struct barrier barrier;
    uint32_t size, rounds, late_every;
    uint32_t at[THREADS_MAX]; /* the round that each thread has come to; plain memory on purpose */
    bool is_wrong[THREADS_MAX];
};

struct guest {
    struct meeting *meeting;
    uint32_t id;
};

static void *attend(void *arg)
{
    const struct guest *g = arg;
    struct meeting *m = g->meeting;
    for (uint32_t round = 1; round <= m->rounds; round++) {
        const struct timespec late = {.tv_nsec = 2 * 1000 * 1000};
        if (m->late_every > 0 && round % m->late_every == 0 && g->id == round % m->size)
            nanosleep(&late, NULL);
        m->at[g->id] = round;
        barrier_wait(&m->barrier, m->size);
        for (uint32_t i = 0; i < m->size; i++) m->is_wrong[g->id] |= m->at[i] != round;
        barrier_wait(&m->barrier, m->size);
    }
    return NULL;
}

static void hold(uint32_t size, uint32_t rounds, uint32_t late_every)
{
    struct meeting m = {.size = size, .rounds = rounds, .late_every = late_every};
    struct guest guests[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    barrier_init(&m.barrier);
    for (uint32_t i = 0; i < size; i++) {
        guests[i] = (struct guest){.meeting = &m, .id = i};
        assert_int_equal(pthread_create(&threads[i], NULL, attend, &guests[i]), 0);
    }
    for (uint32_t i = 0; i < size; i++) pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < size; i++) assert_false(m.is_wrong[i]);
}

static void all_have_come_before_one_goes_on(void **state)
{
    (void)state;
    hold(1, 1000, 0);
    hold(2, 2000, 0);
    hold(THREADS_MAX, 300, 0);
}

static void a_late_one_wakes_those_who_went_to_sleep(void **state)
{
    (void)state;
    hold(2, 40, 2);
    hold(3, 40, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_have_come_before_one_goes_on),
        cmocka_unit_test(a_late_one_wakes_those_who_went_to_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
