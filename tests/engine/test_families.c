/* test_families - the tables are consistent in themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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
        assert_null(family_find(f->name, len - 1));
        assert_null(family_find(f->name, len + 1)); /* with its NUL */
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

static void tensor_names_differ(void **state)
{
    (void)state;
    for (int i = 0; i < TENSOR_COUNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(tensor_suffix((enum tensor_id)i),
                                    tensor_suffix((enum tensor_id)j));
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
            const struct tensor_row *other = find_row(f, row->other);
            assert_non_null(other);
            if (row->need == NEED_OR_TIED) {
                assert_int_equal(other->scope, SCOPE_INPUT);
                assert_memory_equal(row->shape, other->shape, sizeof row->shape);
            } else {
                assert_int_equal(other->scope, row->scope);
            }
        }
    }
}

static void roles_agree_with_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        for (size_t j = 0; j < f->n_tensors; j++) {
            const struct tensor_row *row = &f->tensors[j];
            assert_int_not_equal(row->shape[0], DIM_NONE);
            assert_int_equal(row->shape[1] == DIM_NONE, row->role == ROLE_VECTOR);
        }
    }
}

static void every_family_has_what_the_stage_counts_on(void **state)
{
    (void)state;
    static const enum tensor_id always[] = {TENSOR_TOKEN_EMBD, TENSOR_OUTPUT_NORM, TENSOR_OUTPUT,
                                            TENSOR_ATTN_OUT,   TENSOR_FFN_UP,      TENSOR_FFN_DOWN};
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        for (size_t j = 0; j < sizeof always / sizeof always[0]; j++)
            assert_non_null(find_row(f, always[j]));
        assert_true(find_row(f, TENSOR_ATTN_QKV) != NULL || find_row(f, TENSOR_ATTN_Q) != NULL);
        assert_int_equal(f->ctx_is_hard, find_row(f, TENSOR_POSITION_EMBD) != NULL);
        if (f->norm == NORM_RMS) assert_null(find_row(f, TENSOR_ATTN_NORM_BIAS));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_found_by_their_whole_name),
        cmocka_unit_test(each_family_has_a_tensor_once),
        cmocka_unit_test(tensor_names_differ),
        cmocka_unit_test(the_other_tensor_of_a_row_is_there),
        cmocka_unit_test(roles_agree_with_shapes),
        cmocka_unit_test(every_family_has_what_the_stage_counts_on),
    };
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
