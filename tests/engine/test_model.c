/* test_model - numbers and tensors of a model file are found, or what is wrong with them
 * is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/batch.h"
#include "engine/model.h"
#include "tests/engine/make_gguf.h"
#include "tests/engine/wrap_alloc.h"
#include "tests/test_data.h"

static const struct make_llama small = {
    .n_layer = 3,
    .n_embd = 64,
    .n_ff = 96,
    .n_head = 4,
    .n_head_kv = 2,
    .n_vocab = 40,
    .format = FORMAT_Q8_0,
};

static void open_or_fail(struct model **out, const char *path)
{
    struct err err = {0};
    if (model_open(out, path, &err) != ERR_NONE) fail_msg("%s", err.text);
}

static struct model *open_made(struct make_gguf *file)
{
    struct model *m;
    open_or_fail(&m, make_gguf_write(file));
    return m;
}

static void close_made(struct model *m, struct make_gguf *file)
{
    model_close(m);
    make_gguf_end(file);
}

static void assert_refused(struct make_gguf *file, enum err_code code, const char *text)
{
    struct model *m;
    struct err err = {0};
    int rc = model_open(&m, make_gguf_write(file), &err);
    if (rc != (int)code || strstr(err.text, text) == NULL)
        fail_msg("want %s \"%s\", got %s \"%s\"", err_code_name(code), text,
                 err_code_name((enum err_code)rc), err.text);
    assert_null(m);
    make_gguf_end(file);
}

static void numbers_and_defaults_of_a_llama_are_read(void **state)
{
    (void)state;
    struct make_gguf file;
    make_llama_begin(&file, &small);
    struct model *m = open_made(&file);
    assert_string_equal(m->family->name, "llama");
    const struct hparams *hp = &m->hp;
    assert_int_equal(hp->n_vocab, 40);
    assert_int_equal(hp->n_embd, 64);
    assert_int_equal(hp->n_layer, 3);
    assert_int_equal(hp->n_ctx_train, 128);
    assert_int_equal(hp->head_dim_k, 16);
    assert_int_equal(hp->head_dim_v, 16);
    assert_int_equal(hp->n_rot, 16);
    assert_true(hp->norm_eps == 1e-5f);
    assert_int_equal(hp->rope_scaling, ROPE_SCALING_NONE);
    assert_true(hp->rope_base == 10000 && hp->rope_factor == 1 && hp->rope_attn_factor == 1);
    assert_int_equal(hp->layer[2].n_head, 4);
    assert_int_equal(hp->layer[2].n_head_kv, 2);
    assert_int_equal(hp->layer[2].n_ff, 96);
    assert_int_equal(model_dim(m, DIM_QKV, 0), 64 + 32 + 32);
    assert_int_equal(model_dim(m, DIM_HEADS, 0), 64);
    assert_int_equal(model_dim(m, DIM_ROT_HALF, 0), 8);
    close_made(m, &file);
}

static void missing_kv_heads_mean_as_many_as_heads(void **state)
{
    (void)state;
    struct make_llama s = small;
    s.n_head_kv = 0;
    struct make_gguf file;
    make_llama_begin(&file, &s);
    struct model *m = open_made(&file);
    assert_int_equal(m->hp.layer[0].n_head_kv, 4);
    close_made(m, &file);
}

static void rope_scaling_follows_its_keys(void **state)
{
    (void)state;
    static const struct {
        const char *type, *factor_key;
        float factor;
        enum rope_scaling want;
        float want_factor;
    } cases[] = {
        {NULL, NULL, 0, ROPE_SCALING_NONE, 1},
        {NULL, "llama.rope.scaling.factor", 4, ROPE_SCALING_LINEAR, 4},
        {NULL, "llama.rope.scale_linear", 2, ROPE_SCALING_LINEAR, 2},
        {"linear", "llama.rope.scaling.factor", 8, ROPE_SCALING_LINEAR, 8},
        {"linear", NULL, 0, ROPE_SCALING_NONE, 1},
        {"linear", "llama.rope.scaling.factor", 0, ROPE_SCALING_NONE, 1},
        {"none", "llama.rope.scaling.factor", 4, ROPE_SCALING_NONE, 1},
        {"yarn", "llama.rope.scaling.factor", 4, ROPE_SCALING_YARN, 4},
        {"yarn", NULL, 0, ROPE_SCALING_YARN, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct make_gguf file;
        make_llama_begin(&file, &small);
        if (cases[i].type != NULL) make_str(&file, "llama.rope.scaling.type", cases[i].type);
        if (cases[i].factor_key != NULL) make_f32(&file, cases[i].factor_key, cases[i].factor);
        struct model *m = open_made(&file);
        assert_int_equal(m->hp.rope_scaling, cases[i].want);
        assert_true(m->hp.rope_factor == cases[i].want_factor);
        assert_int_equal(m->hp.rope_ctx_orig, 128); /* default: the context length */
        close_made(m, &file);
    }
}

static void optional_tensors_may_be_there_or_not(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 16; bits++) {
        struct make_llama s = small;
        s.tied = bits & 1;
        s.fused = bits & 2;
        s.biases = bits & 4;
        s.rope_freqs = bits & 8;
        struct make_gguf file;
        make_llama_begin(&file, &s);
        struct model *m = open_made(&file);
        assert_int_equal(model_tensor(m, TENSOR_OUTPUT, 0) == NULL, s.tied);
        assert_int_equal(model_tensor(m, TENSOR_ATTN_QKV, 2) != NULL, s.fused);
        assert_int_equal(model_tensor(m, TENSOR_ATTN_Q, 2) == NULL, s.fused);
        assert_int_equal(model_tensor(m, TENSOR_ATTN_QKV_BIAS, 1) != NULL, s.fused && s.biases);
        assert_int_equal(model_tensor(m, TENSOR_ATTN_V_BIAS, 1) != NULL, !s.fused && s.biases);
        assert_int_equal(model_tensor(m, TENSOR_FFN_DOWN_BIAS, 0) != NULL, s.biases);
        assert_int_equal(model_tensor(m, TENSOR_ROPE_FREQS, 1) != NULL, s.rope_freqs);
        assert_null(model_tensor(m, TENSOR_ATTN_OUT, 3)); /* there are layers 0 to 2 */
        close_made(m, &file);
    }
}

static void extra_tensors_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t n_in, n_out;
        const char *text;
    } cases[] = {
        {"blk.3.attn_norm.weight", 64, 0, "blk.3.attn_norm.weight has no place"},
        {"blk.01.attn_norm.weight", 64, 0, "blk.01.attn_norm.weight has no place"},
        {"blk.4294967296.attn_norm.weight", 64, 0, "has no place"},
        {"blk..attn_norm.weight", 64, 0, "has no place"},
        {"blk.1", 64, 0, "has no place"},
        {"attn_norm.weight", 64, 0, "has no place"},
        {"blk.0.output_norm.weight", 64, 0, "has no place"},
        {"blk.0.attn_q.scale", 1, 0, "has no place"},
        {"position_embd.weight", 64, 128, "has no place"},
        {"blk.1.attn_qkv.weight", 64, 128, "has no use beside attn_qkv.weight"},
        {"blk.1.attn_qkv.bias", 128, 0, "has no use without attn_qkv.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct make_gguf file;
        make_llama_begin(&file, &small);
        make_tensor(&file, FORMAT_F32, cases[i].n_in, cases[i].n_out, "%s", cases[i].name);
        assert_refused(&file, ERR_UNSUPPORTED, cases[i].text);
    }
}

/* What make_llama writes for one layer and the rest, with one tensor left out or changed. */
static void one_wrong_tensor_is_named_with_both_shapes(void **state)
{
    (void)state;
    struct make_llama s = small;
    struct make_gguf file;
    make_gguf_begin(&file);
    make_llama_keys(&file, &s);
    s.n_ff = 128;
    make_llama_tensors(&file, &s);
    assert_refused(&file, ERR_SHAPE,
                   "tensor blk.0.ffn_gate.weight is [64,128], want [64,96]: the file is damaged or "
                   "not of family llama");
    s = small;
    make_gguf_begin(&file);
    make_llama_keys(&file, &s);
    s.n_layer = 2;
    make_llama_tensors(&file, &s);
    assert_refused(&file, ERR_FILE, "tensor blk.2.attn_norm.weight is missing");
    s = small;
    s.n_embd = 256;
    s.n_ff = 256;
    s.format = 41;
    make_llama_begin(&file, &s);
    assert_refused(&file, ERR_UNSUPPORTED, "tensor token_embd.weight has number format Q1_0");
}

static void wrong_numbers_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        float value;
        bool is_float;
        enum err_code code;
        const char *text;
    } cases[] = {
        {"llama.rope.dimension_count", 8, false, ERR_FILE, "dimension_count is 8"},
        {"llama.rope.freq_base", 0, true, ERR_FILE, "freq_base is 0"},
        {"llama.rope.scaling.factor", -1, true, ERR_FILE, "factor is -1"},
        {"llama.rope.scaling.attn_factor", 0, true, ERR_FILE, "attn_factor is 0"},
        {"llama.attention.key_length", 0, false, ERR_FILE, "key_length is 0"},
        {"llama.attention.key_length", 32, false, ERR_SHAPE, "attn_q.weight is [64,64]"},
        {"llama.attention.value_length", 32, false, ERR_SHAPE, "attn_v.weight is [64,32]"},
        {"llama.expert_count", 8, false, ERR_FILE, "expert_used_count is missing"},
        {"llama.expert_count", 5000, false, ERR_FILE, "expert_count is 5000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct make_gguf file;
        make_llama_begin(&file, &small);
        if (cases[i].is_float)
            make_f32(&file, cases[i].key, cases[i].value);
        else
            make_u32(&file, cases[i].key, (uint32_t)cases[i].value);
        if (strstr(cases[i].key, "key_length") != NULL && cases[i].value > 0)
            make_u32(&file, "llama.rope.dimension_count", (uint32_t)cases[i].value);
        assert_refused(&file, cases[i].code, cases[i].text);
    }
}

static void an_array_may_give_each_layer_its_number(void **state)
{
    (void)state;
    static const uint32_t ff[] = {32, 96, 64};
    struct make_llama s = small;
    s.layer_ff = ff;
    struct make_gguf file;
    make_llama_begin(&file, &s);
    struct model *m = open_made(&file);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(model_dim(m, DIM_FF, i), ff[i]);
    close_made(m, &file);
}

static void a_family_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct make_gguf file;
    make_gguf_begin(&file);
    make_str(&file, "general.architecture", "no\nsuch");
    assert_refused(&file, ERR_UNSUPPORTED,
                   "family \"no?such\" is not supported: tandem inspect --families lists");
}

static void the_tiny_models_of_the_families_open(void **state)
{
    (void)state;
    static const struct {
        const char *name, *family;
        enum rope_scaling scaling;
        uint32_t ctx_orig, n_rot;
    } cases[] = {
        {"families/llama.gguf", "llama", ROPE_SCALING_NONE, 256, 16},
        {"families/llama-tied.gguf", "llama", ROPE_SCALING_NONE, 256, 16},
        {"families/llama-yarn.gguf", "llama", ROPE_SCALING_YARN, 64, 16},
        {"families/llama-linear.gguf", "llama", ROPE_SCALING_LINEAR, 256, 16},
        {"families/llama-rope-freqs.gguf", "llama", ROPE_SCALING_NONE, 256, 16},
        {"families/mistral.gguf", "llama", ROPE_SCALING_NONE, 256, 16},
        {"families/gpt2.gguf", "gpt2", ROPE_SCALING_NONE, 256, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        SKIP_WITHOUT(path, cases[i].name);
        struct model *m;
        open_or_fail(&m, path);
        assert_string_equal(m->family->name, cases[i].family);
        assert_int_equal(m->hp.n_vocab, 320);
        assert_int_equal(m->hp.rope_scaling, cases[i].scaling);
        assert_int_equal(m->hp.rope_ctx_orig, cases[i].ctx_orig);
        assert_int_equal(m->hp.n_rot, cases[i].n_rot);
        model_close(m);
    }
}

/* What a line of stages visits, counted by tensor of the file. */
struct visits {
    const struct model *m;
    uint32_t count[128];
    uint32_t total, tied;
    uint32_t last_layer;
};

static int count_visit(void *ctx, const struct tensor_row *row, uint32_t layer,
                       const struct gguf_tensor *tensor, struct err *err)
{
    (void)err;
    struct visits *v = ctx;
    for (uint64_t i = 0; i < gguf_tensor_count(v->m->file); i++)
        if (gguf_tensor_at(v->m->file, i) == tensor) v->count[i]++;
    v->total++;
    if (row->id == TENSOR_OUTPUT && tensor == model_tensor(v->m, TENSOR_TOKEN_EMBD, 0)) v->tied++;
    if (row->scope == SCOPE_LAYER) {
        assert_true(layer >= v->last_layer);
        v->last_layer = layer;
    }
    return ERR_NONE;
}

static void stages_together_hold_every_tensor_once(void **state)
{
    (void)state;
    for (unsigned tied = 0; tied < 2; tied++) {
        struct make_llama s = small;
        s.tied = tied;
        struct make_gguf file;
        make_llama_begin(&file, &s);
        struct model *m = open_made(&file);
        struct visits v = {.m = m};
        for (uint32_t i = 0; i < 3; i++)
            model_visit_range(m, (struct layer_range){i, i + 1}, count_visit, &v, NULL);
        assert_int_equal(v.tied, tied);
        assert_int_equal(v.total, gguf_tensor_count(m->file) + tied);
        for (uint64_t i = 0; i < gguf_tensor_count(m->file); i++)
            assert_int_equal(v.count[i], i == 0 ? 1 + tied : 1); /* the embedding comes first */
        close_made(m, &file);
    }
}

static void one_stage_holds_a_tied_embedding_once(void **state)
{
    (void)state;
    struct make_llama s = small;
    s.tied = true;
    s.rope_freqs = true;
    struct make_gguf file;
    make_llama_begin(&file, &s);
    struct model *m = open_made(&file);
    struct visits v = {.m = m};
    model_visit_range(m, (struct layer_range){0, 3}, count_visit, &v, NULL);
    assert_int_equal(v.total, gguf_tensor_count(m->file));
    assert_int_equal(v.tied, 0);
    close_made(m, &file);
}

static int stop_at_second(void *ctx, const struct tensor_row *row, uint32_t layer,
                          const struct gguf_tensor *tensor, struct err *err)
{
    (void)row;
    (void)layer;
    (void)tensor;
    (void)err;
    return ++*(int *)ctx == 2 ? ERR_MEMORY : ERR_NONE;
}

static void a_visit_stops_at_the_first_error(void **state)
{
    (void)state;
    struct make_gguf file;
    make_llama_begin(&file, &small);
    struct model *m = open_made(&file);
    int calls = 0;
    struct layer_range all = {0, 3};
    assert_int_equal(model_visit_range(m, all, stop_at_second, &calls, NULL), ERR_MEMORY);
    assert_int_equal(calls, 2);
    close_made(m, &file);
}

static void packed_matrices_are_whole_panels(void **state)
{
    (void)state;
    assert_int_equal(model_matrix_bytes(FORMAT_F32, 10, 16), 16 * 40);
    assert_int_equal(model_matrix_bytes(FORMAT_F32, 10, 17), 32 * 40);
    assert_int_equal(model_matrix_bytes(FORMAT_Q8_0, 64, 1), 16 * 68);
    assert_int_equal(model_matrix_bytes(FORMAT_Q4_0, 64, 32), 32 * 36);
}

static void the_footprint_is_what_the_numbers_say(void **state)
{
    (void)state;
    struct make_gguf file;
    make_llama_begin(&file, &small);
    struct model *m = open_made(&file);
    struct line_limits limits = {
        .n_blocks = {5, 5, 5, 5}, .rows_max = 8, .wanted_max = 3, .credits = 2};
    uint64_t embd = 48 * 68, norm = 64 * 4; /* 40 rows of 64 values in three panels */
    uint64_t layer = (64 + 32 + 32 + 64 + 96 + 96) * UINT64_C(68) + 64 * UINT64_C(102) + 2 * norm;
    struct footprint f = model_footprint(m, (struct layer_range){1, 2}, &limits);
    assert_int_equal(f.weights, layer);
    assert_int_equal(f.kv, 5 * KV_BLOCK_POSITIONS * 64 * 2);
    f = model_footprint(m, (struct layer_range){0, 2}, &limits);
    assert_int_equal(f.weights, embd + 2 * layer);
    uint64_t buffers = f.buffers;
    limits.kv = KV_F32;
    f = model_footprint(m, (struct layer_range){1, 3}, &limits);
    assert_int_equal(f.weights, 2 * layer + norm + embd);
    assert_int_equal(f.kv, 2 * 5 * KV_BLOCK_POSITIONS * 64 * 4);
    assert_int_equal(f.buffers, buffers + 8 * 64 * 4); /* the last stage keeps its residual */
    close_made(m, &file);
}

static void each_failing_allocation_is_an_error(void **state)
{
    (void)state;
    struct make_gguf file;
    make_llama_begin(&file, &small);
    const char *path = make_gguf_write(&file);
    struct model *m = NULL;
    uint64_t failures = 0;
    for (;; failures++) {
        struct err err = {0};
        alloc_fail_at = failures + 1;
        int rc = model_open(&m, path, &err);
        alloc_fail_at = 0;
        if (rc == ERR_NONE) break;
        assert_int_equal(rc, ERR_MEMORY);
        assert_null(m);
    }
    assert_true(failures >= 8);
    close_made(m, &file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_defaults_of_a_llama_are_read),
        cmocka_unit_test(missing_kv_heads_mean_as_many_as_heads),
        cmocka_unit_test(rope_scaling_follows_its_keys),
        cmocka_unit_test(optional_tensors_may_be_there_or_not),
        cmocka_unit_test(extra_tensors_are_refused_by_name),
        cmocka_unit_test(one_wrong_tensor_is_named_with_both_shapes),
        cmocka_unit_test(wrong_numbers_are_named),
        cmocka_unit_test(an_array_may_give_each_layer_its_number),
        cmocka_unit_test(a_family_that_is_not_there_is_named),
        cmocka_unit_test(the_tiny_models_of_the_families_open),
        cmocka_unit_test(stages_together_hold_every_tensor_once),
        cmocka_unit_test(one_stage_holds_a_tied_embedding_once),
        cmocka_unit_test(a_visit_stops_at_the_first_error),
        cmocka_unit_test(packed_matrices_are_whole_panels),
        cmocka_unit_test(the_footprint_is_what_the_numbers_say),
        cmocka_unit_test(each_failing_allocation_is_an_error),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
