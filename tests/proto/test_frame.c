/* test_frame - the envelope: what is written is read back, and anything else is refused. */
#include "proto/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    uint32_t head_bytes;
    uint64_t row_bytes;
    size_t total;
} sizes[] = {
    {0, 0, 24},   {1, 0, 25},      {40, 0, 64},      {41, 0, 65},      {0, 4, 68},    {40, 4, 68},
    {41, 4, 132}, {1000, 1, 1025}, {1000, 64, 1088}, {1001, 64, 1152}, {104, 0, 128}, {104, 9, 137},
};

/* A frame in exactly its bytes, so that a read beyond them is seen. */
static uint8_t *make_frame(uint32_t head_bytes, uint64_t row_bytes, size_t *len)
{
    void *frame = NULL;
    *len = frame_total_bytes(head_bytes, row_bytes);
    assert_int_equal(posix_memalign(&frame, FRAME_ALIGN, *len), 0);
    memset(frame, 0xa5, *len);
    frame_write_header(frame, MESSAGE_BATCH, head_bytes, row_bytes);
    return frame;
}

static void a_frame_is_read_back_as_it_was_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t len;
        uint8_t *frame = make_frame(sizes[i].head_bytes, sizes[i].row_bytes, &len);
        struct frame_view view;
        assert_int_equal(len, sizes[i].total);
        assert_int_equal(frame_read(frame, len, &view, NULL), ERR_NONE);
        assert_int_equal(view.type, MESSAGE_BATCH);
        assert_ptr_equal(view.head, frame + FRAME_HEADER_BYTES);
        assert_int_equal(view.head_bytes, sizes[i].head_bytes);
        assert_int_equal(view.row_bytes, sizes[i].row_bytes);
        if (sizes[i].row_bytes == 0) {
            assert_null(view.rows);
        } else {
            assert_ptr_equal(view.rows, frame_rows(frame, sizes[i].head_bytes));
            assert_int_equal((view.rows - frame) % FRAME_ALIGN, 0);
            assert_ptr_equal(view.rows + view.row_bytes, frame + len);
        }
        free(frame);
    }
}

static void the_header_is_little_endian_and_ends_with_its_checksum(void **state)
{
    (void)state;
    size_t len;
    uint8_t *frame = make_frame(0x0102, 3, &len);
    static const uint8_t want[20] = {'T', 'N', 'D', 'M', 1, 0, MESSAGE_BATCH, 0, 2, 1, 0, 0, 3, 0,
                                     0,   0,   0,   0,   0, 0};
    assert_memory_equal(frame, want, sizeof want);
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 20; i++) hash = (hash ^ want[i]) * 16777619u;
    uint8_t sum[4] = {(uint8_t)hash, (uint8_t)(hash >> 8), (uint8_t)(hash >> 16),
                      (uint8_t)(hash >> 24)};
    assert_memory_equal(frame + 20, sum, sizeof sum);
    free(frame);
}

static void a_cut_frame_is_refused_at_every_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t len;
        uint8_t *frame = make_frame(sizes[i].head_bytes, sizes[i].row_bytes, &len);
        struct frame_view view;
        for (size_t cut = 0; cut < len; cut++) {
            uint8_t *copy = malloc(cut > 0 ? cut : 1);
            memcpy(copy, frame, cut);
            assert_int_equal(frame_read(copy, cut, &view, NULL), ERR_PEER);
            free(copy);
        }
        frame = realloc(frame, len + 1);
        assert_int_equal(frame_read(frame, len + 1, &view, NULL), ERR_PEER);
        free(frame);
    }
}

static void every_changed_byte_of_header_and_padding_is_noticed(void **state)
{
    (void)state;
    size_t len;
    uint8_t *frame = make_frame(50, 12, &len);
    struct frame_view view;
    for (size_t at = 0; at < len; at++) {
        bool head_or_rows = (at >= 24 && at < 74) || at >= 128;
        for (unsigned bit = 0; bit < 8; bit++) {
            frame[at] ^= (uint8_t)(1u << bit);
            int rc = frame_read(frame, len, &view, NULL);
            if (head_or_rows)
                assert_int_equal(rc, ERR_NONE);
            else
                assert_int_equal(rc, at == 4 || at == 5 ? ERR_DISAGREE : ERR_PEER);
            frame[at] ^= (uint8_t)(1u << bit);
        }
    }
    free(frame);
}

/* Sound checksums over numbers that no frame can have. */
static void hostile_lengths_and_types_are_refused(void **state)
{
    (void)state;
    static const struct {
        unsigned type;
        uint32_t head_bytes;
        uint64_t row_bytes;
        const char *text;
    } cases[] = {
        {MESSAGE_BATCH, UINT32_MAX, 0, "says that it has"},
        {MESSAGE_BATCH, 0, UINT64_MAX, "says that it has"},
        {MESSAGE_BATCH, 40, UINT64_MAX - 63, "says that it has"},
        {MESSAGE_BATCH, UINT32_MAX, UINT64_MAX, "says that it has"},
        {MESSAGE_BATCH, 41, 0, "says that it has"},
        {0, 40, 0, "unknown message type 0"},
        {MESSAGE_RESULT + 1, 40, 0, "unknown message type "},
        {65535, 40, 0, "unknown message type 65535"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t frame[64] __attribute__((aligned(64))) = {0};
        struct frame_view view;
        struct err err = {0};
        /* No rows at first: padding would be written where the frame does not reach. */
        frame_write_header(frame, (enum message_type)cases[i].type, cases[i].head_bytes, 0);
        for (unsigned b = 0; b < 8; b++) frame[12 + b] = (uint8_t)(cases[i].row_bytes >> (8 * b));
        uint32_t hash = 2166136261u;
        for (int b = 0; b < 20; b++) hash = (hash ^ frame[b]) * 16777619u;
        for (unsigned b = 0; b < 4; b++) frame[20 + b] = (uint8_t)(hash >> (8 * b));
        assert_int_equal(frame_read(frame, sizeof frame, &view, &err), ERR_PEER);
        if (strstr(err.text, cases[i].text) == NULL) fail_msg("case %zu says: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_is_read_back_as_it_was_written),
        cmocka_unit_test(the_header_is_little_endian_and_ends_with_its_checksum),
        cmocka_unit_test(a_cut_frame_is_refused_at_every_length),
        cmocka_unit_test(every_changed_byte_of_header_and_padding_is_noticed),
        cmocka_unit_test(hostile_lengths_and_types_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
