/* test_line_no_alloc - from the first batch to the last the coordinator's thread takes no memory:
 * scheduling, packing, sending, receiving and choosing tokens, with a KV pool that is too small for
 * all.
 *
 * The allocator's entry points are defined here and count for each thread; a sanitizer has its own,
 * so there is nothing to count then. */
#include "../test_data.h"
#include "fake_stages.h"
#include "line_jobs.h"
#include "tests/count_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { JOBS = 24 };

static void a_token_takes_no_memory(void **state)
{
    (void)state;
    static struct job jobs[JOBS];
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct model *m;
    struct fake_stages stages;
    struct line *ln;
    struct line_event ev;
    struct err err;
    bool none = false;
    if (model_open(&m, path, &err) != ERR_NONE) fail_msg("%s", err.text);
    fake_stages_start(&stages, 2, m, &(struct fake_options){.short_heads = true});
    const struct line_config config = {
        .model = m, .n_ctx = 128, .n_seqs = 8, .kv_tokens = 256, .share_prefixes = true};
    if (line_open(&ln, stages.link[0], &config, &err) != ERR_NONE) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < JOBS; i++) {
        make_job(&jobs[i], 1 + roll(40), 1 + roll(TEXT_MAX), 128);
        vary_sampling(&jobs[i].sampling);
        submit_job(ln, &jobs[i], i);
    }
    unsigned long before = n_taken;
    while (!none && line_next(ln, &ev, &none, &err) == ERR_NONE) continue;
    unsigned long taken = n_taken - before;
    const struct line_counts counts = line_counts(ln);
    assert_int_equal(line_stop(ln, &err), ERR_NONE);
    line_close(ln);
    fake_stages_join(&stages);
    model_close(m);
    assert_true(none);
    assert_true(counts.preemptions > 0);
    if (!COUNTED) {
        print_message("skipped: a sanitizer has the allocator\n");
        skip();
    }
    assert_true(before > 0); /* the counting works */
    assert_int_equal(taken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_token_takes_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
