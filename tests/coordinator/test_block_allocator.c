/* test_block_allocator - held, idle and free blocks, and in which order they are taken again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/line/block_allocator.h"

enum { BLOCKS = 8 };

static struct block_allocator *open_blocks(bool shuffle)
{
    struct block_allocator *a;
    struct err err;
    assert_int_equal(block_allocator_open(&a, BLOCKS, shuffle, 5, &err), ERR_NONE);
    return a;
}

static uint32_t take(struct block_allocator *a, bool want_kept)
{
    uint32_t block;
    bool was_kept;
    assert_true(block_allocator_take(a, &block, &was_kept));
    assert_int_equal(was_kept, want_kept);
    return block;
}

static void each_block_is_taken_once(void **state)
{
    (void)state;
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        struct block_allocator *a = open_blocks(shuffle);
        bool seen[BLOCKS] = {false}, was_kept;
        uint32_t block;
        for (int i = 0; i < BLOCKS; i++) {
            block = take(a, false);
            assert_in_range(block, 0, BLOCKS - 1);
            assert_false(seen[block]);
            seen[block] = true;
        }
        assert_false(block_allocator_take(a, &block, &was_kept));
        assert_int_equal(block_allocator_held(a), BLOCKS);
        block_allocator_close(a);
    }
}

static void a_block_is_free_when_its_last_holder_gives_it(void **state)
{
    (void)state;
    struct block_allocator *a = open_blocks(false);
    uint32_t block = take(a, false);
    block_allocator_share(a, block);
    block_allocator_give(a, block);
    assert_true(block_allocator_is_held(a, block));
    assert_int_equal(block_allocator_available(a), BLOCKS - 1);
    block_allocator_give(a, block);
    assert_false(block_allocator_is_held(a, block));
    assert_int_equal(block_allocator_available(a), BLOCKS);
    assert_int_equal(block_allocator_most(a), 1);
    block_allocator_close(a);
}

static void idle_blocks_go_last_and_the_oldest_of_them_first(void **state)
{
    (void)state;
    struct block_allocator *a = open_blocks(false);
    uint32_t kept[4];
    for (int i = 0; i < 4; i++) {
        kept[i] = take(a, false);
        block_allocator_keep(a, kept[i]);
    }
    for (int i = 0; i < 4; i++) block_allocator_give(a, kept[i]);
    assert_int_equal(block_allocator_held(a), 0);
    block_allocator_share(a, kept[0]); /* used again: now it is the latest */
    block_allocator_give(a, kept[0]);
    for (int i = 0; i < BLOCKS - 4; i++) take(a, false);
    assert_int_equal(take(a, true), kept[1]);
    assert_int_equal(take(a, true), kept[2]);
    assert_int_equal(take(a, true), kept[3]);
    assert_int_equal(take(a, true), kept[0]);
    block_allocator_close(a);
}

static void a_dropped_block_is_free_at_once_or_when_it_is_given(void **state)
{
    (void)state;
    struct block_allocator *a = open_blocks(false);
    uint32_t idle = take(a, false), held = take(a, false);
    block_allocator_keep(a, idle);
    block_allocator_keep(a, held);
    block_allocator_give(a, idle);
    block_allocator_drop(a, idle);
    block_allocator_drop(a, held);
    block_allocator_give(a, held);
    for (int i = 0; i < BLOCKS; i++) take(a, false); /* none of them is remembered */
    block_allocator_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_block_is_taken_once),
        cmocka_unit_test(a_block_is_free_when_its_last_holder_gives_it),
        cmocka_unit_test(idle_blocks_go_last_and_the_oldest_of_them_first),
        cmocka_unit_test(a_dropped_block_is_free_at_once_or_when_it_is_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
