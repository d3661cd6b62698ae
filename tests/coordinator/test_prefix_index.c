/* test_prefix_index - what is found is what was put in, behind the same tokens only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/line/prefix_index.h"

enum { BLOCKS = 64, N = KV_BLOCK_POSITIONS };

static struct prefix_index *open_index(uint32_t n_classes)
{
    static const uint32_t n_blocks[] = {BLOCKS, BLOCKS};
    struct prefix_index *px;
    struct err err;
    assert_int_equal(prefix_index_open(&px, n_blocks, n_classes, &err), ERR_NONE);
    return px;
}

/* tokens_of() - 32 tokens; of two seeds the first `same` are equal. */
static const int32_t *tokens_of(int32_t seed, uint32_t same)
{
    static int32_t tokens[4][N];
    static unsigned turn;
    int32_t *t = tokens[turn++ % 4];
    for (uint32_t i = 0; i < N; i++) t[i] = (int32_t)i + (i < same ? 0 : 100 * seed);
    return t;
}

static void a_node_is_found_by_its_tokens_and_its_parent(void **state)
{
    (void)state;
    struct prefix_index *px = open_index(1);
    prefix_index_add(px, PREFIX_NONE, tokens_of(1, 0), 7, 1);
    prefix_index_add(px, 7, tokens_of(2, 0), 3, 1);
    prefix_index_add(px, 3, tokens_of(1, 0), 4, 1); /* the tokens of the first, elsewhere */
    assert_int_equal(prefix_index_find(px, PREFIX_NONE, tokens_of(1, 0)), 7);
    assert_int_equal(prefix_index_find(px, 7, tokens_of(2, 0)), 3);
    assert_int_equal(prefix_index_find(px, 3, tokens_of(1, 0)), 4);
    assert_int_equal(prefix_index_parent(px, 4), 3);
    assert_int_equal(prefix_index_find(px, PREFIX_NONE, tokens_of(2, 0)), PREFIX_NONE);
    assert_int_equal(prefix_index_find(px, 7, tokens_of(1, 0)), PREFIX_NONE);
    assert_int_equal(prefix_index_find(px, PREFIX_NONE, tokens_of(1, 31)), PREFIX_NONE);
    prefix_index_close(px);
}

static void what_is_removed_is_not_found_and_the_others_are(void **state)
{
    (void)state;
    struct prefix_index *px = open_index(1);
    for (uint32_t b = 0; b < BLOCKS; b++)
        prefix_index_add(px, PREFIX_NONE, tokens_of((int32_t)b, 4), b, 1);
    for (uint32_t b = 0; b < BLOCKS; b += 3) prefix_index_remove(px, b);
    for (uint32_t b = 0; b < BLOCKS; b++)
        assert_int_equal(prefix_index_find(px, PREFIX_NONE, tokens_of((int32_t)b, 4)),
                         b % 3 == 0 ? PREFIX_NONE : b);
    prefix_index_close(px);
}

static void the_most_alike_of_earlier_batches_is_found(void **state)
{
    (void)state;
    struct prefix_index *px = open_index(1);
    uint32_t n_like;
    prefix_index_add(px, PREFIX_NONE, tokens_of(1, 5), 0, 1);
    prefix_index_add(px, PREFIX_NONE, tokens_of(2, 20), 1, 1);
    prefix_index_add(px, PREFIX_NONE, tokens_of(3, 25), 2, 2);
    const int32_t *want = tokens_of(0, N);
    assert_int_equal(prefix_index_find_like(px, PREFIX_NONE, want, N, 3, &n_like), 2);
    assert_int_equal(n_like, 25);
    assert_int_equal(prefix_index_find_like(px, PREFIX_NONE, want, N, 2, &n_like), 1);
    assert_int_equal(n_like, 20);
    assert_int_equal(prefix_index_find_like(px, PREFIX_NONE, want, N, 1, &n_like), PREFIX_NONE);
    prefix_index_find_like(px, PREFIX_NONE, want, 10, 3, &n_like);
    assert_int_equal(n_like, 10); /* more is not asked for */
    prefix_index_remove(px, 2);
    assert_int_equal(prefix_index_find_like(px, PREFIX_NONE, want, N, 3, &n_like), 1);
    assert_int_equal(prefix_index_find_like(px, 0, want, N, 3, &n_like), PREFIX_NONE);
    prefix_index_close(px);
}

static void a_block_of_another_class_knows_its_node(void **state)
{
    (void)state;
    struct prefix_index *px = open_index(2);
    prefix_index_add(px, PREFIX_NONE, tokens_of(1, 0), 9, 1);
    assert_int_equal(prefix_index_block(px, 9, 1), PREFIX_NONE);
    prefix_index_set_block(px, 9, 1, 40);
    assert_int_equal(prefix_index_block(px, 9, 1), 40);
    assert_int_equal(prefix_index_owner(px, 1, 40), 9);
    prefix_index_set_block(px, 9, 1, PREFIX_NONE);
    assert_int_equal(prefix_index_block(px, 9, 1), PREFIX_NONE);
    prefix_index_close(px);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_is_found_by_its_tokens_and_its_parent),
        cmocka_unit_test(what_is_removed_is_not_found_and_the_others_are),
        cmocka_unit_test(the_most_alike_of_earlier_batches_is_found),
        cmocka_unit_test(a_block_of_another_class_knows_its_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
