/* test_scheduler - who comes in, who makes room, what is shared; and that none of it takes memory
 * or a lock.
 *
 * Under a sanitizer, which has the allocator and the locks, there is nothing to count. */
#include "scheduler_rig.h"
#include "tests/count_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int32_t tokens[4096];

static void fill_tokens(int32_t begin)
{
    for (uint32_t i = 0; i < 4096; i++) tokens[i] = (int32_t)((uint32_t)begin + i) % RIG_VOCAB;
}

static void no_memory_and_no_lock_is_taken_for_a_token(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 4, 16, 40);
    for (int32_t i = 0; i < 64; i++) {
        fill_tokens(i % 5 == 0 ? 0 : 10 * i);
        rig_submit(&r, tokens, 20 + 3 * (uint32_t)i, 100);
    }
    unsigned long before = n_taken, locked = n_locked_all;
    rig_run(&r);
    unsigned long taken = n_taken - before;
    locked = n_locked_all - locked;
    const uint64_t preemptions = scheduler_preemptions(r.scheduler);
    rig_close(&r);
    if (!COUNTED) {
        print_message("skipped: a sanitizer has the allocator\n");
        skip();
    }
    assert_true(before > 0); /* the counting works */
    assert_true(preemptions > 0);
    assert_int_equal(taken, 0);
    assert_int_equal(locked, 0);
}

static void the_youngest_makes_room_and_comes_back(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 1, 4, 8);
    fill_tokens(0);
    rig_submit(&r, tokens, 60, 150);
    fill_tokens(500);
    rig_submit(&r, tokens, 60, 150);
    while (rig_launch(&r)) rig_land(&r);
    /* Both cannot be in the end: 7 blocks each of 8. The one has left, the other has all its
     * tokens. */
    assert_true(scheduler_idle(r.scheduler));
    assert_int_equal(block_tables_held(r.tables), 0);
    assert_true(scheduler_preemptions(r.scheduler) > 0);
    rig_close(&r);
}

/* run_batches() - n batches more at most, one in the air. */
static void run_batches(struct rig *r, uint64_t n)
{
    for (uint64_t end = r->n_batches + n; r->n_batches < end && !scheduler_idle(r->scheduler);) {
        if (!rig_launch(r)) fail();
        rig_land(r);
    }
}

static void a_limit_holds_for_prompts_and_for_decoding(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 2, 8, 64);
    scheduler_limit_rows(r.scheduler, 3);
    for (int32_t i = 0; i < 8; i++) {
        fill_tokens(100 * i);
        rig_submit(&r, tokens, 10, 5);
    }
    uint64_t most = 0;
    for (uint64_t before = 0; rig_launch(&r); before = r.n_rows) {
        if (r.n_rows - before > most) most = r.n_rows - before;
        rig_land(&r);
    }
    assert_true(scheduler_idle(r.scheduler));
    assert_int_equal(most, 3);
    rig_close(&r);
}

static void the_oldest_never_leaves(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 1, 4, 8);
    for (int32_t i = 0; i < 3; i++) {
        fill_tokens(300 * i);
        rig_submit(&r, tokens, 40, 200);
    }
    for (uint32_t first = 0; first < 3;) {
        struct sequence *s = scheduler_find(r.scheduler, first);
        if (s == NULL) {
            first++;
            continue;
        }
        run_batches(&r, 1);
        s = scheduler_find(r.scheduler, first);
        if (s != NULL) assert_int_not_equal(s->slot, SEQUENCE_NO_SLOT);
    }
    assert_true(scheduler_preemptions(r.scheduler) > 0);
    rig_close(&r);
}

static void a_small_request_goes_before_a_large_one_but_not_for_ever(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 1, 4, 16);
    fill_tokens(0);
    rig_submit(&r, tokens, 300, 150); /* leaves little */
    fill_tokens(100);
    rig_submit(&r, tokens, 400, 2); /* must wait for it */
    fill_tokens(200);
    for (int i = 0; i < 40; i++) rig_submit(&r, tokens + 7 * i, 5, 1);
    run_batches(&r, 2);
    assert_non_null(scheduler_find(r.scheduler, 1));
    assert_int_equal(scheduler_find(r.scheduler, 1)->slot, SEQUENCE_NO_SLOT);
    assert_null(scheduler_find(r.scheduler, 2)); /* done before */
    run_batches(&r, 60);
    uint32_t n_waiting = 0;
    for (uint32_t i = 2; i < 42; i++) n_waiting += scheduler_find(r.scheduler, i) != NULL;
    assert_in_range(n_waiting, 20, 26); /* they wait behind it now */
    rig_run(&r);
    assert_int_equal(block_tables_held(r.tables), 0);
    rig_close(&r);
}

static uint32_t cached_of(struct rig *r, const struct sequence *s)
{
    const uint32_t number = s->request;
    uint32_t cached = 0;
    while (scheduler_find(r->scheduler, number) != NULL) {
        cached = s->n_cached;
        run_batches(r, 1);
    }
    return cached;
}

static void equal_beginnings_are_computed_once(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 1, 4, 64);
    fill_tokens(0);
    assert_int_equal(cached_of(&r, rig_submit(&r, tokens, 100, 2)), 0);
    /* The last token is always sent; of a block that is like another's the beginning is copied. */
    assert_int_equal(cached_of(&r, rig_submit(&r, tokens, 100, 2)), 96);
    assert_int_equal(cached_of(&r, rig_submit(&r, tokens, 96, 2)), 95);
    assert_int_equal(cached_of(&r, rig_submit(&r, tokens, 97, 2)), 96);
    tokens[70] = 999;
    assert_int_equal(cached_of(&r, rig_submit(&r, tokens, 100, 2)), 70);
    tokens[0] = 999;
    assert_int_equal(cached_of(&r, rig_submit(&r, tokens, 100, 2)), 0);
    rig_close(&r);
}

static void a_beginning_is_shared_while_it_is_being_written(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 4, 4, 64);
    fill_tokens(0);
    const struct sequence *a = rig_submit(&r, tokens, 200, 40),
                          *b = rig_submit(&r, tokens, 200, 40);
    while (rig_launch(&r)) continue;
    assert_int_equal(a->n_cached, 0);
    assert_int_equal(b->n_cached, 192);
    assert_in_range(block_tables_held(r.tables), 8, 9);
    rig_run(&r);
    rig_close(&r);
}

static void what_was_used_last_is_kept_longest(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 1, 1, 12);
    static const int32_t begins[] = {0, 300, 0,
                                     600}; /* the third use of the pool renews the first */
    for (int i = 0; i < 4; i++) {
        fill_tokens(begins[i]);
        cached_of(&r, rig_submit(&r, tokens, 129, 2));
    }
    fill_tokens(0);
    assert_int_equal(cached_of(&r, rig_submit(&r, tokens, 129, 2)), 128);
    fill_tokens(300);
    assert_in_range(cached_of(&r, rig_submit(&r, tokens, 129, 2)), 0, 96);
    rig_close(&r);
}

static uint64_t dice;

static uint32_t roll(uint32_t n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice >> 33) % n;
}

/* submit_any() - one that fits into n_blocks; half of them begin alike. */
static void submit_any(struct rig *r, uint32_t n_blocks)
{
    const uint32_t room = n_blocks * KV_BLOCK_POSITIONS, n_text = 1 + roll(60);
    const uint32_t n_prompt = 1 + roll(room - n_text < 200 ? room - n_text : 200);
    const uint32_t family = 3 + roll(2), same = roll(200);
    for (uint32_t i = 0; i < n_prompt; i++)
        tokens[i] = (int32_t)(i < same ? i * family % RIG_VOCAB : roll(RIG_VOCAB));
    rig_submit(r, tokens, n_prompt, n_text);
}

static void cancel_any(struct rig *r)
{
    if (scheduler_count(r->scheduler) == 0) return;
    struct sequence *s = scheduler_find(r->scheduler, roll(scheduler_count(r->scheduler)));
    if (s != NULL && s->state != SEQUENCE_DONE)
        scheduler_finish(r->scheduler, s, LINE_FINISH_CANCELLED);
    rig_tell(r);
}

static void whatever_comes_is_finished_and_every_block_comes_back(void **state)
{
    (void)state;
    uint64_t preemptions = 0;
    for (uint32_t seed = 0; seed < 300; seed++) {
        struct rig r;
        dice = seed;
        const uint32_t n_blocks = 8 + roll(20), n_seqs = 1 + roll(8), window = 1 + roll(120);
        const uint32_t least = block_tables_count(window) + 1;
        const uint32_t window_blocks = least + roll(n_blocks - least + 1);
        rig_open_window(&r, 1 + roll(4), n_seqs, n_blocks, window, window_blocks);
        for (uint32_t n_left = 40; n_left > 0 || !scheduler_idle(r.scheduler);) {
            if (n_left > 0 && roll(3) == 0) {
                submit_any(&r, n_blocks);
                n_left--;
            }
            if (roll(60) == 0) cancel_any(&r);
            for (uint32_t n = roll(3); n > 0 && rig_launch(&r); n--) continue;
            if (r.in_air > 0 && roll(2) == 0) rig_land(&r);
        }
        preemptions += scheduler_preemptions(r.scheduler);
        assert_int_equal(block_tables_held(r.tables), 0);
        rig_close(&r);
    }
    assert_true(preemptions > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_and_no_lock_is_taken_for_a_token),
        cmocka_unit_test(the_youngest_makes_room_and_comes_back),
        cmocka_unit_test(a_limit_holds_for_prompts_and_for_decoding),
        cmocka_unit_test(the_oldest_never_leaves),
        cmocka_unit_test(a_small_request_goes_before_a_large_one_but_not_for_ever),
        cmocka_unit_test(equal_beginnings_are_computed_once),
        cmocka_unit_test(a_beginning_is_shared_while_it_is_being_written),
        cmocka_unit_test(what_was_used_last_is_kept_longest),
        cmocka_unit_test(whatever_comes_is_finished_and_every_block_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
