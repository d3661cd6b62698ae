/* test_line_no_alloc - from the first batch to the last nobody takes memory or a lock: the
 * coordinator schedules, packs, sends, receives and chooses tokens, with a KV pool that is too
 * small for all; workers and their teams of threads receive, compute and send.
 *
 * The coordinator is counted alone, beside fake stages, and then all threads of a line of real
 * ones. Under a sanitizer, which has the allocator and the locks, there is nothing to count. */
#include "../test_data.h"
#include "fake_stages.h"
#include "line_jobs.h"
#include "real_stages.h"
#include "tests/count_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { JOBS = 24 };

static struct job jobs[JOBS];

/* What was taken since counts_begin(). */
struct counts {
    unsigned long taken, taken_all, locked_all;
};

static struct counts counts_begin(void)
{
    return (struct counts){n_taken, n_taken_all, n_locked_all};
}

static struct counts counts_end(struct counts begun)
{
    return (struct counts){n_taken - begun.taken, n_taken_all - begun.taken_all,
                           n_locked_all - begun.locked_all};
}

/* The counting works: this takes one of each, in a thread of its own. */
static void *take_one_of_each(void *arg)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    void *volatile taken = malloc(100);
    free(taken);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return arg;
}

static void a_lock_and_an_allocation_of_another_thread_are_counted(void **state)
{
    (void)state;
    pthread_t thread;
    const struct counts begun = counts_begin();
    pthread_create(&thread, NULL, take_one_of_each, NULL);
    pthread_join(thread, NULL);
    const struct counts c = counts_end(begun);
    if (!COUNTED) skip();
    assert_true(c.taken_all > c.taken);
    assert_true(c.locked_all > 0);
}

static struct model *open_model(const char *path)
{
    struct model *m;
    struct err err;
    if (model_open(&m, path, &err) != ERR_NONE) fail_msg("%s", err.text);
    return m;
}

static struct line_config config_of(const struct model *m)
{
    return (struct line_config){.model = m,
                                .n_ctx = 128,
                                .n_seqs = 8,
                                .kv_tokens = 256,
                                .share_prefixes = true,
                                .threads = 2};
}

/* run_jobs() - JOBS new ones, numbered from first; what was taken from the first batch to the last.
 */
static struct counts run_jobs(struct line *ln, uint32_t first)
{
    struct line_event ev;
    struct err err;
    bool none = false;
    for (uint32_t i = 0; i < JOBS; i++) {
        make_job(&jobs[i], 1 + roll(40), 1 + roll(TEXT_MAX), 128);
        vary_sampling(&jobs[i].sampling);
        submit_job(ln, &jobs[i], first + i);
    }
    const struct counts begun = counts_begin();
    while (!none && line_next(ln, &ev, &none, &err) == ERR_NONE) continue;
    const struct counts c = counts_end(begun);
    assert_true(none);
    return c;
}

static void a_token_takes_no_memory_and_no_lock_in_the_coordinator(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct model *m = open_model(path);
    struct fake_stages stages;
    struct line *ln;
    struct err err;
    fake_stages_start(&stages, 2, m, &(struct fake_options){.short_heads = true});
    const struct line_config config = config_of(m);
    if (line_open(&ln, stages.link[0], &config, &err) != ERR_NONE) fail_msg("%s", err.text);
    const struct counts c = run_jobs(ln, 0);
    assert_true(line_counts(ln).preemptions > 0);
    assert_int_equal(line_stop(ln, &err), ERR_NONE);
    line_close(ln);
    fake_stages_join(&stages);
    model_close(m);
    if (!COUNTED) {
        print_message("skipped: a sanitizer has the allocator\n");
        skip();
    }
    assert_int_equal(c.taken, 0);
    assert_int_equal(c.locked_all, 0); /* fake stages take none either */
}

/* count_line() - of all threads of a line; its teams of threads are complete after the first jobs.
 */
static void count_line(const char *path, int n_stages)
{
    struct model *m = open_model(path);
    struct real_stages stages;
    struct line *ln;
    struct err err;
    real_stages_start(&stages, n_stages, path);
    const struct line_config config = config_of(m);
    if (line_open(&ln, stages.link[0], &config, &err) != ERR_NONE) fail_msg("%s", err.text);
    run_jobs(ln, 0);
    const struct counts c = run_jobs(ln, JOBS);
    assert_int_equal(line_stop(ln, &err), ERR_NONE);
    line_close(ln);
    real_stages_join(&stages);
    model_close(m);
    if (c.taken_all != 0 || c.locked_all != 0)
        fail_msg("%s on %d stages: %lu allocations, %lu locks", path, n_stages, c.taken_all,
                 c.locked_all);
}

static void a_token_takes_no_memory_and_no_lock_in_workers_and_their_threads(void **state)
{
    (void)state;
    static const char *const files[] = {"families/llama.gguf", "families/gemma2.gguf",
                                        "families/deepseek2-lite.gguf"};
    if (!COUNTED) {
        print_message("skipped: a sanitizer has the allocator\n");
        skip();
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        SKIP_WITHOUT(path, files[i]);
        for (int n_stages = 1; n_stages <= 2; n_stages++) count_line(path, n_stages);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_and_an_allocation_of_another_thread_are_counted),
        cmocka_unit_test(a_token_takes_no_memory_and_no_lock_in_the_coordinator),
        cmocka_unit_test(a_token_takes_no_memory_and_no_lock_in_workers_and_their_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
