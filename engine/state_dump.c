/* state_dump - see state_dump.h. */
#include "engine/state_dump.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

/* Read by all threads of this process; lock-free, so a handler may write it. */
static atomic_uint asked;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
}

void state_dump_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR2, &action, NULL);
}

bool state_dump_is_due(unsigned *seen)
{
    const unsigned now = atomic_load_explicit(&asked, memory_order_relaxed);
    const bool due = now != *seen;
    *seen = now;
    return due;
}
