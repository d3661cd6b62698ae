/* The KV cache: commands are obeyed in order, refused as a whole where one is wrong, and blocks
 * never overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/kv_cache.h"

#include <string.h>

enum { LAYERS = 3, BLOCKS = 5, SEQS = 2 };

/* Three layers with 2, 4 and 1 key/value heads; the stage holds the last two. */
static const struct layer_hparams layers[LAYERS] = {
    {.n_head_kv = 2}, {.n_head_kv = 4}, {.n_head_kv = 1}};
static const struct model model = {
    .hp = {
        .n_layer = LAYERS, .head_dim_k = 6, .head_dim_v = 10, .layer = layers, .n_kv_classes = 1}};
static const struct layer_range range = {1, 3};
static const struct line_limits limits = {
    .n_ctx = 3 * KV_BLOCK_POSITIONS, .n_seqs = SEQS, .n_blocks = {BLOCKS}, .kv = KV_F16};

static struct kv_cache kv;
static struct err err;

static int open_cache(void **state)
{
    (void)state;
    return kv_cache_open(&kv, &model, range, &limits, &err);
}

static int close_cache(void **state)
{
    (void)state;
    kv_cache_close(&kv);
    return 0;
}

static int run(const struct kv_command *commands, uint32_t n)
{
    int rc = kv_cache_check(&kv, commands, n, &err);
    if (rc == ERR_NONE) kv_cache_obey(&kv, commands, n);
    return rc;
}

static void every_place_of_every_block_is_its_own(void **state)
{
    (void)state;
    size_t head_bytes = KV_BLOCK_POSITIONS * (6 + 10) * 2;
    assert_int_equal(kv.pool_bytes, BLOCKS * (4 + 1) * head_bytes);
    uint8_t value = 0;
    for (int reading = 0; reading < 2; reading++) {
        value = 0;
        for (uint32_t block = 0; block < BLOCKS; block++) {
            struct kv_command map = {.op = KV_MAP, .seq = 1, .index = 0, .block = block};
            assert_int_equal(run(&map, 1), ERR_NONE);
            for (uint32_t layer = 0; layer < 2; layer++)
                for (uint32_t head = 0; head < layers[1 + layer].n_head_kv; head++) {
                    uint8_t *p = kv_cache_block(&kv, layer, 1, 0, head);
                    value++;
                    assert_true(p >= kv.pool && p + head_bytes <= kv.pool + kv.pool_bytes);
                    if (!reading) memset(p, value, head_bytes);
                    for (size_t i = 0; i < head_bytes; i++) assert_int_equal(p[i], value);
                }
        }
    }
}

static void a_copy_takes_a_block_along_in_every_layer_and_head(void **state)
{
    (void)state;
    struct kv_command map[] = {{KV_MAP, 0, 0, 3, 0}, {KV_MAP, 0, 1, 1, 0}};
    assert_int_equal(run(map, 2), ERR_NONE);
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint32_t head = 0; head < layers[1 + layer].n_head_kv; head++) {
            *kv_cache_block(&kv, layer, 0, 0, head) = (uint8_t)(7 * layer + head + 1);
            *kv_cache_block(&kv, layer, 0, 1, head) = 0;
        }
    struct kv_command copy[] = {{KV_COPY, 0, 3, 1, 0}, {KV_COPY, 0, 1, 1, 0}};
    assert_int_equal(run(copy, 2), ERR_NONE);
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint32_t head = 0; head < layers[1 + layer].n_head_kv; head++)
            assert_int_equal(*kv_cache_block(&kv, layer, 0, 1, head), 7 * layer + head + 1);
}

static void tables_grow_shrink_and_are_remapped_by_commands(void **state)
{
    (void)state;
    struct kv_command grow[] = {{KV_MAP, 0, 0, 4, 0}, {KV_MAP, 0, 1, 0, 0}, {KV_MAP, 0, 0, 2, 0}};
    assert_int_equal(run(grow, 3), ERR_NONE);
    assert_true(kv_cache_is_covered(&kv, 0, 63));
    assert_false(kv_cache_is_covered(&kv, 0, 64));
    assert_false(kv_cache_is_covered(&kv, 1, 0));
    assert_int_equal(kv.table[0], 2);

    struct kv_command trim[] = {{KV_TRIM, 0, 1, 0, 0}, {KV_TRIM, 1, 9, 0, 0}};
    assert_int_equal(run(trim, 2), ERR_NONE);
    assert_true(kv_cache_is_covered(&kv, 0, 31));
    assert_false(kv_cache_is_covered(&kv, 0, 32));
    assert_int_equal(kv.mapped[1], 0);
}

static void a_wrong_command_is_named_and_nothing_changes(void **state)
{
    (void)state;
    static const struct {
        struct kv_command command;
        const char *names;
    } cases[] = {
        {{KV_MAP, 0, 0, BLOCKS, 0}, "block 5"},
        {{KV_MAP, SEQS, 0, 0, 0}, "sequence 2"},
        {{KV_MAP, 0, 2, 0, 0},
         "entry 2"}, /* a gap: the command before it in the batch maps entry 0 */
        {{KV_MAP, 0, UINT32_MAX, 0, 0}, "entry 4294967295"},
        {{KV_COPY, 0, BLOCKS, 0, 0}, "block 5"},
        {{KV_COPY, 0, 0, UINT32_MAX, 0}, "block 4294967295"},
        {{KV_TRIM, UINT32_MAX, 0, 0, 0}, "sequence 4294967295"},
        {{(enum kv_op)7, 0, 0, 0, 0}, "kind 7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kv_command batch[] = {{KV_MAP, 0, 0, 1, 0}, cases[i].command};
        assert_int_equal(run(batch, 2), ERR_PEER);
        if (strstr(err.text, cases[i].names) == NULL || strstr(err.text, "command 1") == NULL)
            fail_msg("\"%s\" does not name %s", err.text, cases[i].names);
        assert_int_equal(kv.mapped[0], 0);
    }
}

static void a_table_never_outgrows_the_context(void **state)
{
    (void)state;
    struct kv_command grow[] = {
        {KV_MAP, 0, 0, 0, 0}, {KV_MAP, 0, 1, 1, 0}, {KV_MAP, 0, 2, 2, 0}, {KV_MAP, 0, 3, 3, 0}};
    assert_int_equal(run(grow, 3), ERR_NONE);
    assert_int_equal(run(grow + 3, 1), ERR_PEER);
}

static void a_pool_that_cannot_be_is_an_error_with_its_size(void **state)
{
    (void)state;
    struct kv_cache big;
    struct line_limits huge = limits;
    huge.n_blocks[0] = UINT32_MAX;
    huge.kv = KV_F32;
    static const struct layer_hparams wide[] = {{.n_head_kv = 1 << 24}};
    static const struct model wide_model = {
        .hp = {.n_layer = 1, .head_dim_k = 1 << 24, .head_dim_v = 1 << 24, .layer = wide}};
    assert_int_equal(kv_cache_open(&big, &wide_model, (struct layer_range){0, 1}, &huge, &err),
                     ERR_CAPACITY);
    assert_non_null(strstr(err.text, "4294967295 blocks"));
    static const struct layer_hparams fits[] = {{.n_head_kv = 1 << 10}};
    static const struct model fits_model = {
        .hp = {.n_layer = 1, .head_dim_k = 1 << 8, .head_dim_v = 1 << 8, .layer = fits}};
    assert_int_equal(kv_cache_open(&big, &fits_model, (struct layer_range){0, 1}, &huge, &err),
                     ERR_MEMORY);
    kv_cache_close(&big);
}

int main(void)
{
#define WITH_CACHE(test) cmocka_unit_test_setup_teardown(test, open_cache, close_cache)
    const struct CMUnitTest tests[] = {
        WITH_CACHE(every_place_of_every_block_is_its_own),
        WITH_CACHE(a_copy_takes_a_block_along_in_every_layer_and_head),
        WITH_CACHE(tables_grow_shrink_and_are_remapped_by_commands),
        WITH_CACHE(a_wrong_command_is_named_and_nothing_changes),
        WITH_CACHE(a_table_never_outgrows_the_context),
        cmocka_unit_test(a_pool_that_cannot_be_is_an_error_with_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
