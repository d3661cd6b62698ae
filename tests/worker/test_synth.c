/* test_synth - model files made from nothing, and made smaller. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/log.h"
#include "engine/model.h"
#include "engine/quant_formats.h"
#include "tests/test_data.h"
#include "worker/requantize.h"
#include "worker/synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], path[96], other_path[96];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tandem-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    snprintf(other_path, sizeof other_path, "%s/b.gguf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    unlink(other_path);
    return rmdir(folder); /* fails where a .part was left */
}

/* A tokenizer of 320 tokens; and a model with more. */
static struct synth_order small_order(const char *tokenizer)
{
    return (struct synth_order){
        .shape = {.family = "llama",
                  .n_layer = 3,
                  .n_embd = 256,
                  .n_head = 4,
                  .n_head_kv = 2,
                  .n_ff = 512,
                  .n_ctx = 64,
                  .n_vocab = 500},
        .name = "small",
        .format = FORMAT_F32,
        .seed = 1,
        .tokenizer = tokenizer,
        .out = path,
    };
}

static void make(const struct synth_order *order)
{
    struct err err = {0};
    struct made_file made;
    if (synth_write(order, &made, &err) != ERR_NONE) fail_msg("%s", err.text);
}

static struct model *open_model(const char *name)
{
    struct err err;
    struct model *m;
    if (model_open(&m, name, &err) != ERR_NONE) fail_msg("%s", err.text);
    return m;
}

static void assert_same_files(const char *a, const char *b, bool same)
{
    struct err err;
    struct gguf *x, *y;
    assert_int_equal(gguf_open(&x, a, &err), ERR_NONE);
    assert_int_equal(gguf_open(&y, b, &err), ERR_NONE);
    assert_int_equal(gguf_tensor_count(x), gguf_tensor_count(y));
    for (uint64_t i = 0; i < gguf_tensor_count(x); i++) {
        const struct gguf_tensor *s = gguf_tensor_at(x, i), *t = gguf_tensor_at(y, i);
        assert_int_equal(s->bytes, t->bytes);
        assert_int_equal(memcmp(s->data, t->data, s->bytes) == 0, same);
    }
    gguf_close(x);
    gguf_close(y);
}

static void the_numbers_of_a_shape_are_those_of_the_model(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    struct synth_order order = small_order(tokenizer);
    order.shape.head_dim = 32;
    order.shape.rope_base = 5000;
    make(&order);
    struct model *m = open_model(path);
    const struct hparams *hp = &m->hp;
    assert_string_equal(m->family->name, "llama");
    assert_int_equal(hp->n_layer, 3);
    assert_int_equal(hp->n_embd, 256);
    assert_int_equal(hp->layer[2].n_head, 4);
    assert_int_equal(hp->layer[2].n_head_kv, 2);
    assert_int_equal(hp->layer[2].n_ff, 512);
    assert_int_equal(hp->head_dim_k, 32);
    assert_int_equal(hp->n_ctx_train, 64);
    assert_int_equal(hp->n_vocab, 500);
    assert_true(hp->rope_base == 5000);
    assert_non_null(model_tensor(m, TENSOR_OUTPUT, 0));
    model_close(m);
}

static void a_tied_model_has_no_output(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    struct synth_order order = small_order(tokenizer);
    order.shape.tied = true;
    make(&order);
    struct model *m = open_model(path);
    assert_null(gguf_find_tensor(m->file, "output.weight"));
    model_close(m);
}

static void gpt2_has_its_biases_and_positions(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    struct synth_order order = small_order(tokenizer);
    order.shape.family = "gpt2";
    order.shape.n_head_kv = 0;
    order.format = FORMAT_Q4_0;
    make(&order);
    struct model *m = open_model(path);
    const struct gguf_tensor *qkv = gguf_find_tensor(m->file, "blk.2.attn_qkv.weight");
    assert_non_null(qkv);
    assert_int_equal(qkv->format, FORMAT_Q4_0);
    assert_non_null(gguf_find_tensor(m->file, "blk.2.ffn_down.bias"));
    assert_int_equal(gguf_find_tensor(m->file, "position_embd.weight")->format, FORMAT_F32);
    model_close(m);
}

static void experts_stand_in_the_feed_forwards_place(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    struct synth_order order = small_order(tokenizer);
    order.shape.n_expert = 4;
    order.shape.n_expert_used = 2;
    order.format = FORMAT_Q8_0;
    make(&order);
    struct model *m = open_model(path);
    const struct gguf_tensor *down = gguf_find_tensor(m->file, "blk.2.ffn_down_exps.weight");
    assert_non_null(down);
    assert_int_equal(down->n_dims, 3);
    assert_int_equal(down->shape[0], 512);
    assert_int_equal(down->shape[1], 256);
    assert_int_equal(down->shape[2], 4);
    assert_int_equal(down->format, FORMAT_Q8_0);
    assert_int_equal(gguf_find_tensor(m->file, "blk.2.ffn_gate_inp.weight")->format, FORMAT_F32);
    assert_null(gguf_find_tensor(m->file, "blk.2.ffn_down.weight"));
    model_close(m);
}

static void unused_tokens_fill_the_vocabulary(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    struct synth_order order = small_order(tokenizer);
    make(&order);
    struct model *m = open_model(path), *from = open_model(tokenizer);
    const struct gguf_kv *tokens = gguf_find(m->file, "tokenizer.ggml.tokens");
    const struct gguf_kv *types = gguf_find(m->file, "tokenizer.ggml.token_type");
    const struct gguf_kv *theirs = gguf_find(from->file, "tokenizer.ggml.tokens");
    const uint64_t n = gguf_array_length(theirs);
    assert_true(n > 0 && n < 500);
    assert_int_equal(gguf_array_length(tokens), 500);
    assert_int_equal(gguf_array_length(types), 500);
    for (uint64_t i = 0; i < n; i++) {
        const struct gguf_str a = gguf_array_str(tokens, i), b = gguf_array_str(theirs, i);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.data, b.data, a.len);
        assert_int_not_equal(gguf_array_int(types, i), 5);
    }
    assert_memory_equal(gguf_array_str(tokens, 499).data, "<|unused499|>", 13);
    assert_int_equal(gguf_array_int(types, 499), 5);
    assert_non_null(gguf_find(m->file, "tokenizer.ggml.merges"));
    model_close(m);
    model_close(from);
}

static void the_same_seed_makes_the_same_file_on_any_number_of_threads(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    struct synth_order order = small_order(tokenizer);
    order.format = FORMAT_Q8_0;
    order.how.n_threads = 1;
    make(&order);
    order.how.n_threads = 3;
    order.out = other_path;
    make(&order);
    assert_same_files(path, other_path, true);
    order.seed = 2;
    make(&order);
    assert_same_files(path, other_path, false);
}

static void weights_are_as_wide_as_their_inputs_ask(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    const struct synth_order order = small_order(tokenizer);
    make(&order);
    struct model *m = open_model(path);
    for (uint64_t i = 0; i < gguf_tensor_count(m->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->file, i);
        const float *x = (const float *)(const void *)t->data;
        const uint64_t n = t->shape[0] * t->shape[1];
        double sum = 0, squares = 0;
        for (uint64_t k = 0; k < n; k++) {
            sum += (double)x[k];
            squares += (double)x[k] * (double)x[k];
        }
        const double mean = sum / (double)n, sd = sqrt(squares / (double)n - mean * mean);
        const double want_mean = t->n_dims == 1 ? 1 : 0;
        const double want_sd = t->n_dims == 1 ? 0.1 : 1 / sqrt((double)t->shape[0]);
        if (fabs(mean - want_mean) > 6 * want_sd / sqrt((double)n) || fabs(sd / want_sd - 1) > 0.15)
            fail_msg("%.*s: mean %g, standard deviation %g, want %g, %g", (int)t->name.len,
                     t->name.data, mean, sd, want_mean, want_sd);
    }
    model_close(m);
}

static void shapes_that_make_no_model_are_named(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    static const struct {
        const char *text;
        struct model_shape change; /* 1: take it away */
        uint32_t format;
    } cases[] = {
        {"--family is needed", {.family = ""}, FORMAT_F32},
        {"'nonsense' is no family", {.family = "nonsense"}, FORMAT_F32},
        {"--layers is needed", {.n_layer = 1}, FORMAT_F32},
        {"--ff is needed", {.n_ff = 1}, FORMAT_F32},
        {"--vocab 100 is less than the 320 tokens", {.n_vocab = 100}, FORMAT_F32},
        {"--heads 7 do not divide --embd 256", {.n_head = 7}, FORMAT_F32},
        {"no whole blocks of 32 in Q8_0", {.n_ff = 500}, FORMAT_Q8_0},
        {"make no model of family llama: ", {.n_head_kv = 3}, FORMAT_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct synth_order order = small_order(tokenizer);
        struct model_shape *s = &order.shape;
        model_shape_overlay(s, &cases[i].change);
        if (s->n_layer == 1) s->n_layer = 0;
        if (s->n_ff == 1) s->n_ff = 0;
        if (s->family[0] == '\0') s->family = NULL;
        order.format = cases[i].format;
        struct err err = {0};
        struct made_file made;
        assert_int_not_equal(synth_write(&order, &made, &err), ERR_NONE);
        if (strstr(err.text, cases[i].text) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, cases[i].text);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void every_preset_is_complete(void **state)
{
    (void)state;
    size_t n = 0;
    for (; model_preset_name(n) != NULL; n++) {
        const struct model_shape *s = model_preset_find(model_preset_name(n));
        assert_non_null(s);
        assert_non_null(family_find(s->family, strlen(s->family)));
        assert_true(s->n_layer > 0 && s->n_embd > 0 && s->n_head > 0 && s->n_ff > 0);
        assert_true(s->n_ctx > 0 && s->n_vocab > 0 && s->n_embd % s->n_head == 0);
    }
    assert_int_equal(n, 5);
    assert_null(model_preset_find("nonsense"));
}

/* ---- requantize ---- */

static void quantize(const char *in, const char *out, uint32_t format)
{
    struct err err = {0};
    struct made_file made;
    const struct quantize_order order = {
        .in = in, .out = out, .format = format, .how = {.n_threads = 2}};
    if (requantize_file(&order, &made, &err) != ERR_NONE) fail_msg("%s", err.text);
}

static uint32_t format_of(const struct gguf *g, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    return t->format;
}

static void each_tensor_gets_the_format_of_the_mixture(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    static const struct {
        uint32_t target, head, value_first, value_last, gate;
    } cases[] = {
        {FORMAT_Q8_0, FORMAT_Q8_0, FORMAT_Q8_0, FORMAT_Q8_0, FORMAT_Q8_0},
        {FORMAT_Q4_0, FORMAT_Q6_K, FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q4_0},
        {FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_Q4_K},
        {FORMAT_Q6_K, FORMAT_Q6_K, FORMAT_Q6_K, FORMAT_Q6_K, FORMAT_Q6_K},
    };
    struct synth_order order = small_order(tokenizer);
    order.format = FORMAT_F16;
    make(&order);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err;
        struct gguf *g;
        quantize(path, other_path, cases[i].target);
        assert_int_equal(gguf_open(&g, other_path, &err), ERR_NONE);
        assert_int_equal(format_of(g, "token_embd.weight"), cases[i].head);
        assert_int_equal(format_of(g, "output.weight"), cases[i].head);
        assert_int_equal(format_of(g, "blk.0.attn_v.weight"), cases[i].value_first);
        assert_int_equal(format_of(g, "blk.2.attn_v.weight"), cases[i].value_last);
        assert_int_equal(format_of(g, "blk.0.ffn_down.weight"), cases[i].value_first);
        assert_int_equal(format_of(g, "blk.2.ffn_down.weight"), cases[i].value_last);
        assert_int_equal(format_of(g, "blk.2.ffn_gate.weight"), cases[i].gate);
        assert_int_equal(format_of(g, "blk.2.attn_norm.weight"), FORMAT_F32);
        struct gguf_str name;
        assert_int_equal(gguf_get_str(g, "general.name", &name, &err), ERR_NONE);
        assert_memory_equal(name.data, "small", 5);
        assert_int_equal(gguf_array_length(gguf_find(g, "tokenizer.ggml.tokens")), 500);
        gguf_close(g);
    }
}

static void rows_that_are_no_whole_blocks_get_a_format_that_fits(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    struct synth_order order = small_order(tokenizer);
    struct err err;
    struct gguf *g;
    order.shape.n_embd = 320;
    order.shape.n_ff = 250;
    make(&order);
    quantize(path, other_path, FORMAT_Q4_K);
    assert_int_equal(gguf_open(&g, other_path, &err), ERR_NONE);
    assert_int_equal(format_of(g, "blk.0.ffn_up.weight"), FORMAT_Q8_0);
    assert_int_equal(format_of(g, "blk.0.ffn_down.weight"), FORMAT_F16);
    gguf_close(g);
}

static void a_tensor_that_keeps_its_format_keeps_its_bytes(void **state)
{
    (void)state;
    SKIP_WITHOUT(tokenizer, "families/llama.gguf");
    struct synth_order order = small_order(tokenizer);
    order.format = FORMAT_Q8_0;
    make(&order);
    quantize(path, other_path, FORMAT_Q8_0);
    assert_same_files(path, other_path, true);
}

static void a_weight_that_is_not_finite_is_named(void **state)
{
    (void)state;
    SKIP_WITHOUT(damaged, "malformed/gguf/weight_nan.gguf");
    struct err err = {0};
    struct made_file made;
    const struct quantize_order order = {.in = damaged, .out = path, .format = FORMAT_Q8_0};
    assert_int_equal(requantize_file(&order, &made, &err), ERR_NUMERIC);
    assert_non_null(strstr(err.text, "is not finite"));
    assert_int_not_equal(access(path, F_OK), 0);
}

/* rms_error() - of the tensors that both files have in the same format, against the source. */
static double rms_error(const struct gguf *source, const struct gguf *g, const struct gguf *other)
{
    double sum = 0, count = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[80];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        const struct gguf_tensor *s = gguf_find_tensor(source, name);
        if (t->format == FORMAT_F32 || gguf_find_tensor(other, name)->format != t->format) continue;
        const size_t n = t->shape[0] * t->shape[1];
        const float *want = (const float *)(const void *)s->data;
        float *got = malloc(n * sizeof *got);
        assert_non_null(got);
        format_find(t->format)->decode(t->data, got, n);
        for (size_t k = 0; k < n; k++)
            sum += ((double)got[k] - (double)want[k]) * ((double)got[k] - (double)want[k]);
        count += (double)n;
        free(got);
    }
    assert_true(count > 100000);
    return sqrt(sum / count);
}

static void errors_are_not_larger_than_in_the_references_files(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t format;
    } cases[] = {{"families-quantised/q-llama-Q8_0.gguf", FORMAT_Q8_0},
                 {"families-quantised/q-llama-Q4_0.gguf", FORMAT_Q4_0},
                 {"families-quantised/q-llama-Q4_K_M.gguf", FORMAT_Q4_K},
                 {"families-quantised/q-llama-Q6_K.gguf", FORMAT_Q6_K}};
    SKIP_WITHOUT(found, "families-quantised/q-llama-F32.gguf");
    char source_path[1024]; /* what test_data_path() gives lives for four calls only */
    snprintf(source_path, sizeof source_path, "%s", found);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        SKIP_WITHOUT(their_path, cases[i].name);
        struct err err;
        struct gguf *source, *theirs, *ours;
        quantize(source_path, path, cases[i].format);
        assert_int_equal(gguf_open(&source, source_path, &err), ERR_NONE);
        assert_int_equal(gguf_open(&theirs, their_path, &err), ERR_NONE);
        assert_int_equal(gguf_open(&ours, path, &err), ERR_NONE);
        const double want = rms_error(source, theirs, ours), got = rms_error(source, ours, theirs);
        print_message("%s: rms error %.5g, the reference's %.5g\n", cases[i].name, got, want);
        assert_true(got <= 1.05 * want);
        gguf_close(source);
        gguf_close(theirs);
        gguf_close(ours);
    }
}

int main(void)
{
#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        FILE_TEST(the_numbers_of_a_shape_are_those_of_the_model),
        FILE_TEST(a_tied_model_has_no_output),
        FILE_TEST(gpt2_has_its_biases_and_positions),
        FILE_TEST(experts_stand_in_the_feed_forwards_place),
        FILE_TEST(unused_tokens_fill_the_vocabulary),
        FILE_TEST(the_same_seed_makes_the_same_file_on_any_number_of_threads),
        FILE_TEST(weights_are_as_wide_as_their_inputs_ask),
        FILE_TEST(shapes_that_make_no_model_are_named),
        cmocka_unit_test(every_preset_is_complete),
        FILE_TEST(each_tensor_gets_the_format_of_the_mixture),
        FILE_TEST(rows_that_are_no_whole_blocks_get_a_format_that_fits),
        FILE_TEST(a_tensor_that_keeps_its_format_keeps_its_bytes),
        FILE_TEST(a_weight_that_is_not_finite_is_named),
        FILE_TEST(errors_are_not_larger_than_in_the_references_files),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
