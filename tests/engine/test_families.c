/* test_families - the tables are consistent in themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/digest.h"
#include "engine/families.h"

static const struct tensor_row *find_row(const struct family *f, enum tensor_id id)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].id == id) return &f->tensors[i];
    return NULL;
}

static void families_are_found_by_their_whole_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        size_t len = strlen(f->name);
        assert_ptr_equal(family_find(f->name, len), f);
        assert_ptr_not_equal(family_find(f->name, len - 1), f); /* gemma, gemma2 */
        assert_null(family_find(f->name, len + 1));             /* with its NUL */
    }
    assert_null(family_find("", 0));
    assert_null(family_find("nosuch", 6));
    assert_null(family_at(family_count()));
}

static void each_family_has_a_tensor_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        for (size_t j = 0; j < f->n_tensors; j++)
            assert_ptr_equal(find_row(f, f->tensors[j].id), &f->tensors[j]);
    }
}

static void no_family_has_more_tensors_outside_of_layers_than_are_digested(void **state)
{
    (void)state;
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        size_t n = 0;
        for (size_t j = 0; j < f->n_tensors; j++) n += f->tensors[j].scope != SCOPE_LAYER;
        assert_in_range(n, 1, TENSOR_DIGESTS_MAX);
    }
}

static void tensor_names_differ(void **state)
{
    (void)state;
    for (int i = 0; i < TENSOR_COUNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(tensor_suffix((enum tensor_id)i),
                                    tensor_suffix((enum tensor_id)j));
}

static bool uses_other(const struct tensor_row *row)
{
    return row->need != NEED_ALWAYS && row->need != NEED_OPTIONAL;
}

static bool is_tied(const struct tensor_row *row)
{
    return row->need == NEED_OR_TIED || row->need == NEED_TIED;
}

/* The other tensor of a row stands in the same layer; of a tied output, in the input, with the same
 * shape. */
static void the_other_tensor_of_a_row_is_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        for (size_t j = 0; j < f->n_tensors; j++) {
            const struct tensor_row *row = &f->tensors[j];
            if (!uses_other(row)) continue;
            const struct tensor_row *other = find_row(f, row->other);
            assert_non_null(other);
            assert_ptr_not_equal(other, row);
            if (is_tied(row)) {
                assert_int_equal(other->scope, SCOPE_INPUT);
                assert_memory_equal(row->shape, other->shape, sizeof row->shape);
            } else {
                assert_int_equal(other->scope, row->scope);
                assert_int_equal(other->part, row->part);
            }
        }
    }
}

static void roles_and_parts_agree_with_shapes_and_scopes(void **state)
{
    (void)state;
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        for (size_t j = 0; j < f->n_tensors; j++) {
            const struct tensor_row *row = &f->tensors[j];
            assert_int_not_equal(row->shape[0], DIM_NONE);
            if (row->role == ROLE_HALVES) assert_int_equal(row->shape[1], DIM_FF_TWICE);
            if (row->role == ROLE_LATENT) assert_int_equal(row->shape[1], DIM_KEYS_VALUES);
            if (row->scope != SCOPE_LAYER) assert_int_equal(row->part, PART_EVERY);
        }
    }
}

/* In one family no two tensors have the same name, also where a family has a name of its own. */
static void names_within_a_family_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        for (size_t j = 0; j < f->n_tensors; j++)
            for (size_t k = 0; k < j; k++)
                assert_string_not_equal(tensor_row_suffix(&f->tensors[j]),
                                        tensor_row_suffix(&f->tensors[k]));
    }
}

/* Is a tensor always there, or one of two? */
static bool has(const struct family *f, enum tensor_id id)
{
    return find_row(f, id) != NULL;
}

static void every_family_has_what_the_stage_counts_on(void **state)
{
    (void)state;
    static const enum tensor_id always[] = {TENSOR_TOKEN_EMBD, TENSOR_OUTPUT_NORM, TENSOR_OUTPUT,
                                            TENSOR_ATTN_OUT};
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        for (size_t j = 0; j < sizeof always / sizeof always[0]; j++)
            assert_true(has(f, always[j]));
        assert_true(has(f, TENSOR_ATTN_QKV) || has(f, TENSOR_ATTN_Q));
        assert_int_equal(f->ctx_is_hard, has(f, TENSOR_POSITION_EMBD));
        if (f->norm == NORM_RMS) assert_false(has(f, TENSOR_ATTN_NORM_BIAS));
        if (f->experts.use != EXPERTS_ALWAYS)
            assert_true(has(f, TENSOR_FFN_UP) && has(f, TENSOR_FFN_DOWN));
        if (f->experts.use != EXPERTS_NEVER)
            assert_true(has(f, TENSOR_ROUTER) && has(f, TENSOR_EXPERT_GATE) &&
                        has(f, TENSOR_EXPERT_UP) && has(f, TENSOR_EXPERT_DOWN));
        if (f->experts.shared != SHARED_NONE) assert_true(has(f, TENSOR_SHARED_DOWN));
        assert_int_equal(f->has_convs, has(f, TENSOR_CONV_KERNEL));
        assert_int_equal(f->is_latent, has(f, TENSOR_ATTN_KV_A));
        if (f->residual == RESIDUAL_SEQUENTIAL)
            assert_true(has(f, TENSOR_FFN_NORM) || has(f, TENSOR_FFN_POST_NORM));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_found_by_their_whole_name),
        cmocka_unit_test(each_family_has_a_tensor_once),
        cmocka_unit_test(no_family_has_more_tensors_outside_of_layers_than_are_digested),
        cmocka_unit_test(tensor_names_differ),
        cmocka_unit_test(the_other_tensor_of_a_row_is_there),
        cmocka_unit_test(roles_and_parts_agree_with_shapes_and_scopes),
        cmocka_unit_test(names_within_a_family_differ),
        cmocka_unit_test(every_family_has_what_the_stage_counts_on),
    };
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
