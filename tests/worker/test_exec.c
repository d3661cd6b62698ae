/* exec takes what proto/stage_bytes.h has promised to the coordinator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/stage_bytes.h"
#include "worker/exec.h"

static void a_worker_takes_what_was_promised(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_vocab, wanted_max, credits;
        bool is_last;
    } cases[] = {{32000, 1, 2, true},  {320, 8, 4, true}, {50257, 30, 6, true},
                 {128256, 4, 3, true}, {1, 1, 1, true},   {32000, 1, 2, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct exec_config config = {
            .limits = {.wanted_max = cases[i].wanted_max, .credits = cases[i].credits},
            .n_vocab = cases[i].n_vocab,
            .is_last = cases[i].is_last};
        struct stage_sizes sizes = {.is_last = cases[i].is_last,
                                    .n_vocab = cases[i].n_vocab,
                                    .wanted_max = cases[i].wanted_max,
                                    .credits = cases[i].credits};
        struct exec *x;
        struct err err;
        assert_int_equal(exec_open(&x, &config, &err), ERR_NONE);
        uint64_t promised = stage_score_bytes(&sizes), taken = exec_bytes(x);
        assert_in_range(taken, promised > 4096 ? promised - 4096 : 0, promised + 4096);
        assert_int_equal(taken == 0, !cases[i].is_last);
        exec_close(x);
    }
}

static void frames_grow_with_what_travels(void **state)
{
    (void)state;
    struct stage_sizes s = {.is_first = true,
                            .n_embd = 64,
                            .n_vocab = 1000,
                            .rows_max = 16,
                            .wanted_max = 2,
                            .credits = 2};
    assert_int_equal(stage_in_bytes_max(&s), frame_batch_bytes_max(16, 0));
    assert_int_equal(stage_out_bytes_max(&s), frame_batch_bytes_max(16, 64));
    uint64_t first = stage_frame_bytes(&s);
    s.is_first = false;
    assert_int_equal(stage_frame_bytes(&s) - first,
                     2 * (stage_in_bytes_max(&s) - frame_batch_bytes_max(16, 0)));
    s.is_last = true;
    assert_int_equal(stage_out_bytes_max(&s), frame_result_bytes_max(4, 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_takes_what_was_promised),
        cmocka_unit_test(frames_grow_with_what_travels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
