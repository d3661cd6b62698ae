/* scheduler_cost - what the scheduler does for a batch, in microseconds: filling it, and taking
 * note of what came home.
 *
 *   scheduler_cost [SEQUENCES] [STAGES]      64 and 4 where they are not given
 *
 * Without stages and link. First all prompts at once, then text; and then a KV pool that is too
 * small for it. */
#include "../coordinator/scheduler_rig.h"
#include "times.h"

#include <stdio.h>

enum { PROMPT = 512, TEXT = 256, REQUESTS_PER_SEQUENCE = 4, TIMES_MAX = 1 << 20 };

static double times_us[TIMES_MAX];

static void measure(const char *name, uint32_t n_stages, uint32_t n_seqs, uint32_t n_blocks)
{
    static int32_t tokens[PROMPT];
    struct rig r;
    uint32_t n = 0;
    rig_open(&r, n_stages, n_seqs, n_blocks);
    for (uint32_t i = 0; i < REQUESTS_PER_SEQUENCE * n_seqs; i++) {
        for (uint32_t k = 0; k < PROMPT; k++)
            tokens[k] = (int32_t)((k < PROMPT / 2 ? k : (i + 1) * k) % RIG_VOCAB);
        rig_submit(&r, tokens, PROMPT, TEXT);
    }
    while (!scheduler_idle(r.scheduler) && n < TIMES_MAX) {
        const double begun = now_us();
        const uint64_t before = r.n_batches;
        while (rig_launch(&r)) continue;
        rig_land(&r);
        const uint64_t filled = r.n_batches > before ? r.n_batches - before : 1;
        times_us[n++] = (now_us() - begun) / (double)filled;
    }
    times_sort(times_us, n);
    printf("%-14s %3u sequences, %2u stages: %7.2f us a batch, median; %7.2f for 99 of 100; %7.2f "
           "at most; "
           "%.1f rows, %llu preemptions\n",
           name, n_seqs, n_stages, times_us[n / 2], times_us[(size_t)n * 99 / 100], times_us[n - 1],
           (double)r.n_rows / (double)r.n_batches,
           (unsigned long long)scheduler_preemptions(r.scheduler));
    rig_close(&r);
}

int main(int argc, char **argv)
{
    const uint32_t n_seqs = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64;
    const uint32_t n_stages = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 4;
    if (n_seqs < 1 || n_seqs > 1024 || n_stages < 1 || n_stages >= RIG_CREDITS_MAX) {
        fprintf(stderr, "scheduler_cost [SEQUENCES, 1 to 1024] [STAGES, 1 to %d]\n",
                RIG_CREDITS_MAX - 1);
        return 1;
    }
    const uint32_t whole = (PROMPT + TEXT) / KV_BLOCK_POSITIONS;
    measure("a large pool", n_stages, n_seqs, n_seqs * whole);
    measure("a small pool", n_stages, n_seqs,
            n_seqs * whole / 2 > whole ? n_seqs * whole / 2 : whole);
    return 0;
}
