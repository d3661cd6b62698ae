/* exec takes what proto/stage_bytes.h has promised to the coordinator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/stage_bytes.h"
#include "worker/exec.h"

#include <string.h>

static void a_worker_takes_what_was_promised(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_vocab, wanted_max, credits;
        bool is_last;
        enum wire_format wire;
    } cases[] = {{32000, 1, 2, true, WIRE_F32},   {320, 8, 4, true, WIRE_F32},
                 {50257, 30, 6, true, WIRE_F32},  {128256, 4, 3, true, WIRE_BF16},
                 {1, 1, 1, true, WIRE_F32},       {32000, 1, 2, false, WIRE_F32},
                 {32000, 1, 2, false, WIRE_Q8_0}, {32000, 1, 2, true, WIRE_Q8_0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct exec_config config = {.limits = {.rows_max = 64,
                                                .wanted_max = cases[i].wanted_max,
                                                .credits = cases[i].credits},
                                     .n_embd = 2048,
                                     .n_vocab = cases[i].n_vocab,
                                     .is_last = cases[i].is_last,
                                     .wire = cases[i].wire};
        struct stage_sizes sizes = {.is_last = cases[i].is_last,
                                    .n_embd = 2048,
                                    .n_vocab = cases[i].n_vocab,
                                    .rows_max = 64,
                                    .wire = cases[i].wire,
                                    .wanted_max = cases[i].wanted_max,
                                    .credits = cases[i].credits};
        struct exec *x;
        struct err err;
        assert_int_equal(exec_open(&x, &config, &err), ERR_NONE);
        uint64_t promised = stage_score_bytes(&sizes) + stage_row_bytes(&sizes),
                 taken = exec_bytes(x);
        assert_in_range(taken, promised > 4096 ? promised - 4096 : 0, promised + 4096);
        assert_int_equal(taken == 0, !cases[i].is_last && cases[i].wire == WIRE_F32);
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
    assert_int_equal(stage_in_bytes_max(&s), frame_batch_bytes_max(16, 0, WIRE_F32));
    assert_int_equal(stage_out_bytes_max(&s), frame_batch_bytes_max(16, 64, WIRE_F32));
    uint64_t first = stage_frame_bytes(&s);
    s.is_first = false;
    assert_int_equal(stage_frame_bytes(&s) - first,
                     2 * (stage_in_bytes_max(&s) - frame_batch_bytes_max(16, 0, WIRE_F32)));
    uint64_t exact = stage_frame_bytes(&s);
    assert_int_equal(stage_row_bytes(&s), 0);
    s.wire = WIRE_Q8_0; /* 2 scales and 64 bytes a row; and both sides keep their floats */
    assert_int_equal(exact - stage_frame_bytes(&s), 2 * 2 * 16 * (64 * 4 - 72));
    assert_int_equal(stage_row_bytes(&s), 2 * 16 * 64 * 4);
    s.is_last = true;
    assert_int_equal(stage_out_bytes_max(&s), frame_result_bytes_max(4, 1000));
}

static void a_line_of_any_form_has_room_for_rows_as_f32(void **state)
{
    (void)state;
    for (int wire = 0; wire < WIRE_FORMAT_COUNT; wire++)
        for (uint32_t n_embd = 1; n_embd <= 100; n_embd += 9)
            for (uint32_t rows_max = 1; rows_max <= 64; rows_max++) {
                const enum wire_format form = (enum wire_format)wire;
                const uint32_t n = frame_f32_rows_max(rows_max, n_embd, form);
                assert_in_range(n, 1, rows_max);
                assert_true(frame_batch_bytes_max(n, n_embd, WIRE_F32) <=
                            frame_batch_bytes_max(rows_max, n_embd, form));
                if (form == WIRE_F32) assert_int_equal(n, rows_max);
            }
}

static void rows_of_another_form_or_a_cut_one_are_refused(void **state)
{
    (void)state;
    static const struct {
        enum wire_format wire;
        uint32_t as_f32;
        uint64_t bytes;
        const char *text;
    } cases[] = {{WIRE_Q8_0, 0, 2 * 64 * 4, "came with 512 bytes of rows, want 144"},
                 {WIRE_Q8_0, 0, 2 * 72 - 2, "came with 142 bytes of rows, want 144"},
                 {WIRE_Q8_0, 1, 2 * 72, "came with 144 bytes of rows, want 512"},
                 {WIRE_BF16, 0, 2 * 72, "came with 144 bytes of rows, want 256"},
                 {WIRE_F32, 0, 2 * 128, "came with 256 bytes of rows, want 512"}};
    static uint8_t rows[1024], out[4096] __attribute__((aligned(64)));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct exec_config config = {.limits = {.rows_max = 4, .wanted_max = 1, .credits = 1},
                                     .n_embd = 64,
                                     .n_vocab = 10,
                                     .wire = cases[i].wire};
        const struct msg_batch b = {.id = 1, .as_f32 = cases[i].as_f32, .batch = {.n_rows = 2}};
        const struct frame_view view = {.rows = rows, .row_bytes = cases[i].bytes};
        struct exec *x;
        struct err err;
        size_t len;
        assert_int_equal(exec_open(&x, &config, &err), ERR_NONE);
        assert_int_equal(exec_batch(x, &b, &view, out, sizeof out, &len, &err), ERR_PEER);
        assert_non_null(strstr(err.text, cases[i].text));
        exec_close(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_takes_what_was_promised),
        cmocka_unit_test(frames_grow_with_what_travels),
        cmocka_unit_test(a_line_of_any_form_has_room_for_rows_as_f32),
        cmocka_unit_test(rows_of_another_form_or_a_cut_one_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
