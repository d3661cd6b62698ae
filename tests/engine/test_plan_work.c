/* test_plan_work - what a batch asks of a model follows from its tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan_work.h"
#include "tests/engine/make_gguf.h"

#include <math.h>

static const struct make_llama shape = {.n_layer = 3,
                                        .n_embd = 64,
                                        .n_ff = 96,
                                        .n_head = 4,
                                        .n_head_kv = 2,
                                        .n_vocab = 48,
                                        .format = FORMAT_Q8_0};

struct made {
    struct make_gguf file;
    struct model *m;
    struct plan_model_work w;
};

static void make(struct made *k, const struct make_llama *s)
{
    struct err err;
    make_llama_begin(&k->file, s);
    if (model_open(&k->m, make_gguf_write(&k->file), &err) != ERR_NONE) fail_msg("%s", err.text);
    assert_int_equal(plan_work_read(&k->w, k->m, KV_F16, &err), ERR_NONE);
}

static void end(struct made *k)
{
    plan_work_free(&k->w);
    model_close(k->m);
    make_gguf_end(&k->file);
}

static void a_row_multiplies_every_matrix_of_a_layer_once(void **state)
{
    (void)state;
    struct made k;
    make(&k, &shape);
    const double matrices = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96;
    for (int i = 0; i < 3; i++) assert_true(k.w.layer[i].row_ops == 2 * matrices);
    /* Two norms are vectors of f32. */
    assert_true(k.w.layer[0].bytes == matrices / 32 * 34 + 2 * 64 * 4);
    assert_true(k.w.layer[0].expert_bytes == 0);
    assert_true(k.w.head.row_ops == 2.0 * 48 * 64);
    assert_int_equal(k.w.main_format, FORMAT_Q8_0);
    end(&k);
}

static void the_embedding_is_work_only_where_it_is_the_output_head(void **state)
{
    (void)state;
    struct made apart, tied;
    struct make_llama s = shape;
    make(&apart, &s);
    s.tied = true;
    make(&tied, &s);
    assert_true(apart.w.head.bytes == tied.w.head.bytes);
    assert_true(apart.w.head.row_ops == tied.w.head.row_ops);
    end(&apart);
    end(&tied);
}

static void a_row_reads_what_is_cached_of_each_position(void **state)
{
    (void)state;
    struct made k;
    make(&k, &shape);
    assert_true(k.w.layer[0].position_bytes == 2 * (16 + 16) * 2);
    assert_true(k.w.layer[0].position_ops == 2 * 4 * (16 + 16));
    end(&k);
}

static void seconds_add_up_what_is_read_and_what_is_computed(void **state)
{
    (void)state;
    struct made k;
    make(&k, &shape);
    const struct plan_speed s = {1e6, 1e9, 0};
    const struct plan_work *l = &k.w.layer[1];
    const struct plan_batch b = {.rows = 4, .n_seqs = 4, .wanted = 2, .context = 100};
    const double want = (l->bytes + 4 * 100 * l->position_bytes) / 1e6 +
                        4 * (l->row_ops + 100 * l->position_ops) / 1e9;
    assert_true(fabs(plan_layer_seconds(&k.w, 1, &b, &s) - want) < 1e-12);
    const double head = k.w.head.bytes / 1e6 + 2 * k.w.head.row_ops / 1e9;
    assert_true(fabs(plan_head_seconds(&k.w, &b, &s) - head) < 1e-12);
    const struct plan_batch silent = {.rows = 4, .n_seqs = 1, .context = 100};
    assert_true(plan_head_seconds(&k.w, &silent, &s) == 0);
    /* A window ends what is seen. */
    k.w.layer[1].window = 10;
    struct plan_batch near = b;
    near.context = 10;
    assert_true(plan_layer_seconds(&k.w, 1, &b, &s) == plan_layer_seconds(&k.w, 1, &near, &s));
    end(&k);
}

static void the_first_rows_of_a_product_go_at_a_speed_of_their_own(void **state)
{
    (void)state;
    struct made k;
    make(&k, &shape);
    const struct plan_speed s = {INFINITY, 1e9, 1e8};
    const double row_s = k.w.head.row_ops / 1e9;
    static const struct {
        double rows, times; /* of a row that is one of many */
    } cases[] = {{1, 10}, {PLAN_FEW_ROWS, 80}, {PLAN_FEW_ROWS + 100, 180}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct plan_batch b = {.rows = cases[i].rows, .wanted = cases[i].rows};
        const double seconds = plan_head_seconds(&k.w, &b, &s);
        assert_true(fabs(seconds / row_s / cases[i].times - 1) < 1e-9);
    }
    /* Of 32 rows each of 4 experts, of which a row takes one, has eight. */
    k.w.chosen_share = 0.25;
    k.w.layer[0] = (struct plan_work){.expert_ops = 1e6};
    const struct plan_batch spread = {.rows = 4 * PLAN_FEW_ROWS, .n_seqs = 1};
    const double want = PLAN_FEW_ROWS * 1e6 / 1e8;
    assert_true(fabs(plan_layer_seconds(&k.w, 0, &spread, &s) / want - 1) < 1e-9);
    end(&k);
}

static void experts_are_read_as_far_as_rows_choose_them(void **state)
{
    (void)state;
    struct made k;
    make(&k, &shape);
    const struct plan_speed s = {1, INFINITY, 0};
    k.w.chosen_share = 0.25;
    k.w.layer[0].expert_bytes = 1000;
    double before = 0;
    for (int rows = 1; rows <= 5; rows++) {
        const struct plan_batch b = {.rows = rows, .n_seqs = rows};
        const double seconds = plan_layer_seconds(&k.w, 0, &b, &s);
        assert_true(fabs(seconds - k.w.layer[0].bytes - (rows < 4 ? 250 * rows : 1000)) < 1e-6);
        assert_true(seconds >= before);
        before = seconds;
    }
    end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_multiplies_every_matrix_of_a_layer_once),
        cmocka_unit_test(the_embedding_is_work_only_where_it_is_the_output_head),
        cmocka_unit_test(a_row_reads_what_is_cached_of_each_position),
        cmocka_unit_test(seconds_add_up_what_is_read_and_what_is_computed),
        cmocka_unit_test(the_first_rows_of_a_product_go_at_a_speed_of_their_own),
        cmocka_unit_test(experts_are_read_as_far_as_rows_choose_them),
    };
    return cmocka_run_group_tests_name("plan_work", tests, NULL, NULL);
}
