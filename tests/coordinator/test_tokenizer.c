/* test_tokenizer - the tokenizer against published vocabularies, small ones of its own, and hostile
 * files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/coordinator/vocab_fixture.h"
#include "tests/test_data.h"

/* --- helpers --- */

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*len + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *len, f), *len);
    text[*len] = '\0';
    fclose(f);
    return text;
}

static struct tokenizer *open_path(const char *path, struct gguf **g)
{
    struct tokenizer *t = NULL;
    struct err err = {0};
    int rc = gguf_open(g, path, &err);
    if (rc == ERR_NONE) rc = tokenizer_open(&t, *g, NULL, &err);
    if (rc != ERR_NONE) print_error("%s\n", err.text);
    assert_int_equal(rc, ERR_NONE);
    return t;
}

static struct tokenizer *open_fixture(struct fixture *f, struct gguf **g)
{
    struct tokenizer *t = NULL;
    struct err err = {0};
    fixture_open(f, g);
    int rc = tokenizer_open(&t, *g, NULL, &err);
    if (rc != ERR_NONE) print_error("%s\n", err.text);
    assert_int_equal(rc, ERR_NONE);
    return t;
}

static void close_both(struct tokenizer *t, struct gguf *g)
{
    tokenizer_close(t);
    gguf_close(g);
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t len,
                                bool add_special, bool parse_special)
{
    struct token_list list = {0};
    struct err err = {0};
    int rc = tokenizer_encode(t, text, len, add_special, parse_special, &list, &err);
    if (rc != ERR_NONE) print_error("%s\n", err.text);
    assert_int_equal(rc, ERR_NONE);
    return list;
}

static void assert_ids(const struct token_list *got, const int32_t *want, size_t n)
{
    assert_int_equal(got->n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(got->ids[i], want[i]);
}

static void assert_encodes(const struct tokenizer *t, const char *text, bool add_special,
                           bool parse_special, const int32_t *want, size_t n)
{
    struct token_list got = encode(t, text, strlen(text), add_special, parse_special);
    assert_ids(&got, want, n);
    token_list_free(&got);
}
#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

/* assert_decodes() - the pieces of ids, one after the other, are text[0..len). */
static void assert_decodes(const struct tokenizer *t, const struct token_list *ids,
                           const char *text, size_t len)
{
    char piece[4096];
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = tokenizer_piece(t, ids->ids[i], false, piece, sizeof piece);
        const char *from = piece;
        if (i == 0 && n > 0 && tokenizer_adds_space_prefix(t)) {
            assert_int_equal(piece[0], ' ');
            from++, n--;
        }
        assert_true(n <= len - at);
        assert_memory_equal(from, text + at, n);
        at += n;
    }
    assert_int_equal(at, len);
}

/* --- published vocabularies --- */

static size_t parse_ids(const char *line, int32_t *ids, size_t max)
{
    size_t n = 0;
    char *end;
    for (long id = strtol(line, &end, 10); end != line; id = strtol(line, &end, 10)) {
        assert_true(n < max);
        ids[n++] = (int32_t)id;
        line = end;
    }
    return n;
}

/* compare_texts() - texts and lines of ids beside each other; returns how many pairs. */
static size_t compare_texts(const struct tokenizer *t, char *texts, const char *separator,
                            char *lines, size_t n_max)
{
    static int32_t want[8192];
    size_t n = 0;
    while (texts != NULL && n < n_max) {
        char *text_end = strstr(texts, separator), *line_end = strchr(lines, '\n');
        if (text_end != NULL) *text_end = '\0';
        if (line_end != NULL) *line_end = '\0';
        size_t n_want = parse_ids(lines, want, sizeof want / sizeof want[0]);
        struct token_list got = encode(t, texts, strlen(texts), false, false);
        if (got.n != n_want || (n_want > 0 && memcmp(got.ids, want, 4 * n_want) != 0))
            print_error("text %zu: \"%.80s\"\n", n + 1, texts);
        assert_ids(&got, want, n_want);
        token_list_free(&got);
        n++;
        texts = text_end != NULL ? text_end + strlen(separator) : NULL;
        lines = line_end != NULL ? line_end + 1 : lines + strlen(lines);
    }
    return n;
}

static void a_published_vocabulary_gives_the_reference_ids(void **state)
{
    const char *name = *state;
    char file[128];
    size_t len;
    snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf", name);
    SKIP_WITHOUT(path, file);
    struct gguf *g;
    struct tokenizer *t = open_path(path, &g);

    snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf.inp", name);
    const char *inp = test_data_path(file);
    snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf.out", name);
    const char *out = test_data_path(file);
    if (inp != NULL && out != NULL) {
        char *texts = read_file(inp, &len), *lines = read_file(out, &len);
        assert_int_equal(compare_texts(t, texts, "\n__ggml_vocab_test__\n", lines, 1000), 47);
        free(texts);
        free(lines);
    }

    snprintf(file, sizeof file, "vocab/wiki.%s.ids", name);
    const char *ids = test_data_path(file), *wiki = test_data_path("text/wiki.test.raw");
    assert_non_null(ids);
    assert_non_null(wiki);
    char *texts = read_file(wiki, &len), *lines = read_file(ids, &len);
    assert_int_equal(compare_texts(t, texts, "\n", lines, 300), 300);
    free(texts);
    free(lines);
    close_both(t, g);
}

static void a_whole_book_comes_back_as_it_was(void **state)
{
    char file[128];
    snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf", (const char *)*state);
    SKIP_WITHOUT(path, file);
    SKIP_WITHOUT(wiki, "text/wiki.test.raw");
    struct gguf *g;
    struct tokenizer *t = open_path(path, &g);
    size_t len;
    char *text = read_file(wiki, &len);
    struct token_list ids = encode(t, text, len, false, false);
    assert_decodes(t, &ids, text, len);
    token_list_free(&ids);
    free(text);
    close_both(t, g);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static size_t random_utf8(uint32_t *random, char *out, size_t n_chars)
{
    size_t n = 0;
    for (size_t i = 0; i < n_chars; i++) {
        static const uint32_t below[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
        uint32_t c = next_random(random) % below[next_random(random) % 5];
        if (c >= 0xD800 && c < 0xE000) c = ' ';
        if (c == 0x2581) c = '_'; /* "llama" reads its own mark for a space as one */
        if (c == 0) c = '\n';
        if (c < 0x80) {
            out[n++] = (char)c;
        } else if (c < 0x800) {
            out[n++] = (char)(0xC0 | c >> 6);
            out[n++] = (char)(0x80 | (c & 0x3F));
        } else {
            if (c >= 0x10000) {
                out[n++] = (char)(0xF0 | c >> 18);
                out[n++] = (char)(0x80 | (c >> 12 & 0x3F));
            } else {
                out[n++] = (char)(0xE0 | c >> 12);
            }
            out[n++] = (char)(0x80 | (c >> 6 & 0x3F));
            out[n++] = (char)(0x80 | (c & 0x3F));
        }
    }
    return n;
}

static void any_bytes_come_back_as_they_were(void **state)
{
    char file[128], text[600];
    snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf", (const char *)*state);
    SKIP_WITHOUT(path, file);
    struct gguf *g;
    struct tokenizer *t = open_path(path, &g);
    uint32_t random = 1;
    for (int i = 0; i < 2000; i++) {
        size_t len = random_utf8(&random, text, next_random(&random) % 100);
        if (i % 2 == 1) /* half of the texts are broken in a few places */
            for (size_t k = 0; k < len / 8; k++)
                text[next_random(&random) % len] = (char)next_random(&random);
        struct token_list ids = encode(t, text, len, false, false);
        assert_decodes(t, &ids, text, len);
        token_list_free(&ids);
    }
    close_both(t, g);
}

/* --- goldens of whole models --- */

static json_t *load_json(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static struct token_list json_ids(const json_t *array)
{
    struct token_list list = {0};
    size_t i;
    json_t *id;
    json_array_foreach(array, i, id)
        assert_int_equal(token_list_push(&list, (int32_t)json_integer_value(id), NULL), ERR_NONE);
    return list;
}

static void stories260K_prompt_and_answer_are_the_golden_ones(void **state)
{
    (void)state;
    SKIP_WITHOUT(model, "models/stories260K/stories260K-f32.gguf");
    SKIP_WITHOUT(golden, "models/stories260K/stories260K.json");
    struct gguf *g;
    struct tokenizer *t = open_path(model, &g);
    json_t *root = load_json(golden);

    const char *prompt = json_string_value(json_object_get(root, "prompt_text"));
    struct token_list want = json_ids(json_object_get(root, "prompt"));
    assert_encodes(t, prompt, true, false, want.ids, want.n);
    token_list_free(&want);

    const char *answer = json_string_value(json_object_get(root, "greedy_text"));
    struct token_list ids = json_ids(json_object_get(root, "greedy"));
    char text[4096] = "";
    size_t n = 0;
    for (size_t i = 0; i < ids.n; i++)
        n += tokenizer_piece(t, ids.ids[i], false, text + n, sizeof text - n);
    assert_string_equal(text, answer);
    token_list_free(&ids);
    json_decref(root);
    close_both(t, g);
}

static void the_demo_prompt_is_the_golden_one(void **state)
{
    (void)state;
    SKIP_WITHOUT(model, "models/demo/demo-q8_0.gguf");
    struct gguf *g;
    struct tokenizer *t = open_path(model, &g);
    assert_true(tokenizer_adds_bos(t));
    assert_encodes(t, "Once upon a time", true, false, IDS(2043, 408, 433, 258, 382));
    close_both(t, g);
}

static void the_families_vocabulary_gives_the_reference_ids(void **state)
{
    (void)state;
    SKIP_WITHOUT(model, "families/llama.gguf");
    SKIP_WITHOUT(golden, "families/tokenizer320.vocab.json");
    struct gguf *g;
    struct tokenizer *t = open_path(model, &g);
    json_t *root = load_json(golden), *one;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        json_t *text = json_object_get(one, "text");
        struct token_list want = json_ids(json_object_get(one, "ids"));
        struct token_list got = encode(t, json_string_value(text), json_string_length(text), false,
                                       json_is_true(json_object_get(one, "parse_special")));
        assert_ids(&got, want.ids, want.n);
        token_list_free(&got);
        token_list_free(&want);
    }
    assert_int_equal(i, 36);
    json_decref(root);
    close_both(t, g);
}

/* --- hostile vocabularies --- */

static const struct {
    const char *file;
    int code;
    const char *names; /* what the error names; NULL: the file is accepted */
} hostile[] = {
    {"ok_base", ERR_NONE, NULL},
    {"vocab_tokens_missing", ERR_FILE, "tokenizer.ggml.tokens"},
    {"vocab_tokens_empty", ERR_FILE, "tokenizer.ggml.tokens"},
    {"vocab_tokens_u32", ERR_FILE, "tokenizer.ggml.tokens"},
    {"vocab_tokens_string", ERR_FILE, "tokenizer.ggml.tokens"},
    {"vocab_scores_i32", ERR_NONE, NULL},
    {"vocab_scores_short", ERR_FILE, "tokenizer.ggml.scores has 100"},
    {"vocab_types_short", ERR_FILE, "tokenizer.ggml.token_type has 100"},
    {"vocab_types_float", ERR_FILE, "tokenizer.ggml.token_type"},
    {"vocab_type_value_99", ERR_NONE, NULL},
    {"bos_id_out_of_range", ERR_FILE, "tokenizer.ggml.bos_token_id is 259"},
    {"bos_id_string", ERR_FILE, "tokenizer.ggml.bos_token_id"},
    {"merges_missing", ERR_FILE, "tokenizer.ggml.merges"},
    {"merges_u32", ERR_FILE, "tokenizer.ggml.merges"},
    {"merge_without_space", ERR_FILE, "tokenizer.ggml.merges[0] is \"he\""},
    {"merge_empty", ERR_FILE, "tokenizer.ggml.merges[1]"},
    {"merge_unknown_token", ERR_NONE, NULL},
    {"tokenizer_model_unknown", ERR_UNSUPPORTED, "\"nosuch\""},
    {"tokenizer_pre_unknown", ERR_UNSUPPORTED, "--pretokenizer NAME"},
    {"token_non_utf8", ERR_NONE, NULL},
    {"token_duplicate", ERR_NONE, NULL},
    {"token_empty", ERR_NONE, NULL},
    {"token_1mb", ERR_NONE, NULL},
    {"vocab_byte_missing", ERR_NONE, NULL},
};

/* use_everything() - a vocabulary that was accepted must stand all questions. */
static void use_everything(const struct tokenizer *t)
{
    static const char text[] = "he ABC <|endoftext|> \xFF\xFE \xE2\x82";
    struct token_list ids = encode(t, text, sizeof text - 1, true, true);
    assert_true(ids.n > 0);
    token_list_free(&ids);
    for (int32_t id = -1; id <= tokenizer_vocab_size(t); id++) {
        char piece[8];
        tokenizer_piece(t, id, true, piece, sizeof piece);
        tokenizer_is_end(t, id);
        tokenizer_kind(t, id);
    }
}

static void hostile_vocabularies_are_named_or_survived(void **state)
{
    (void)state;
    SKIP_WITHOUT(manifest, "malformed/MANIFEST.json");
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        char file[128];
        snprintf(file, sizeof file, "malformed/gguf/%s.gguf", hostile[i].file);
        const char *path = test_data_path(file);
        struct gguf *g = NULL;
        struct tokenizer *t = NULL;
        struct err err = {0};
        assert_non_null(path);
        assert_int_equal(gguf_open(&g, path, &err), ERR_NONE);
        int rc = tokenizer_open(&t, g, NULL, &err);
        if (rc != hostile[i].code) print_error("%s: %s\n", hostile[i].file, err.text);
        assert_int_equal(rc, hostile[i].code);
        if (hostile[i].names != NULL) {
            if (strstr(err.text, hostile[i].names) == NULL) print_error("%s\n", err.text);
            assert_non_null(strstr(err.text, hostile[i].names));
            assert_null(t);
        } else {
            use_everything(t);
        }
        close_both(t, g);
    }
}

/* --- small vocabularies: "llama" --- */

#define SPACE "\xE2\x96\x81"
enum {
    SPM_BYTE = 3,
    SPM_SPACE = 259,
    SPM_A,
    SPM_B,
    SPM_AA,
    SPM_AB,
    SPM_SPACE_A,
    SPM_USER,
    SPM_END
};

static void begin_spm(struct fixture *f)
{
    fixture_begin(f, "llama", "default");
    fixture_token(f, "<unk>", 0.0f, TOKEN_UNKNOWN);
    fixture_token(f, "<s>", 0.0f, TOKEN_CONTROL);
    fixture_token(f, "</s>", 0.0f, TOKEN_CONTROL);
    fixture_spm_bytes(f);
    fixture_token(f, SPACE, -9.0f, TOKEN_NORMAL);
    fixture_token(f, "a", -8.0f, TOKEN_NORMAL);
    fixture_token(f, "b", -7.0f, TOKEN_NORMAL);
    fixture_token(f, "aa", -2.0f, TOKEN_NORMAL);
    fixture_token(f, "ab", -1.0f, TOKEN_NORMAL);
    fixture_token(f, SPACE "a", -3.0f, TOKEN_NORMAL);
    fixture_token(f, "<user>", 0.0f, TOKEN_USER_DEFINED);
    fixture_token(f, "<|end|>", 0.0f, TOKEN_CONTROL);
}

static void spm_merges_the_best_pair_and_of_equals_the_leftmost(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_spm(&f);
    fixture_bool(&f, "tokenizer.ggml.add_space_prefix", false);
    struct tokenizer *t = open_fixture(&f, &g);
    assert_encodes(t, "aab", false, false, IDS(SPM_A, SPM_AB)); /* -1 before -2 */
    assert_encodes(t, "aaa", false, false, IDS(SPM_AA, SPM_A)); /* a tie */
    assert_encodes(t, "aaaaa", false, false, IDS(SPM_AA, SPM_AA, SPM_A));
    assert_encodes(t, " a", false, false, IDS(SPM_SPACE_A));
    close_both(t, g);
}

static void spm_writes_what_is_no_piece_byte_by_byte(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_spm(&f);
    fixture_bool(&f, "tokenizer.ggml.add_space_prefix", false);
    struct tokenizer *t = open_fixture(&f, &g);
    assert_encodes(t, "a\xC3\xA9", false, false, IDS(SPM_A, SPM_BYTE + 0xC3, SPM_BYTE + 0xA9));
    assert_encodes(t,
                   "\xE2"
                   "ab",
                   false, false, IDS(SPM_BYTE + 0xE2, SPM_AB));
    close_both(t, g);
}

static void spm_puts_a_space_before_the_first_word_and_after_special_tokens(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_spm(&f);
    struct tokenizer *t = open_fixture(&f, &g);
    assert_encodes(t, "", true, false, IDS(1));
    assert_encodes(t, "a", true, false, IDS(1, SPM_SPACE_A));
    assert_encodes(t, "a<user>a", false, false, IDS(SPM_SPACE_A, SPM_USER, SPM_SPACE_A));
    assert_encodes(t, "<|end|>a", false, true, IDS(SPM_END, SPM_SPACE_A));
    assert_encodes(t, "<user><user>", false, false, IDS(SPM_USER, SPM_USER));
    close_both(t, g);
}

static void spm_ids_have_the_defaults_of_sentencepiece(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_spm(&f);
    struct tokenizer *t = open_fixture(&f, &g);
    assert_string_equal(tokenizer_model_name(t), "llama");
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_true(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_kind(t, SPM_BYTE), TOKEN_BYTE);
    assert_true(tokenizer_is_end(t, 2));
    assert_true(tokenizer_is_end(t, SPM_END));
    assert_false(tokenizer_is_end(t, SPM_USER));
    assert_false(tokenizer_is_end(t, -1));
    assert_false(tokenizer_is_end(t, SPM_END + 1));
    close_both(t, g);
}

static void an_override_has_no_meaning_for_llama(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    struct tokenizer *t;
    struct err err = {0};
    begin_spm(&f);
    fixture_open(&f, &g);
    assert_int_equal(tokenizer_open(&t, g, "gpt-2", &err), ERR_USAGE);
    assert_null(t);
    gguf_close(g);
}

/* --- small vocabularies: "gpt2" --- */

static const char *const abc_merges[] = {"a b", "b c", "ab c"};

static int32_t begin_bpe(struct fixture *f, const char *pre, int without_byte)
{
    fixture_begin(f, "gpt2", pre);
    fixture_strs(f, "tokenizer.ggml.merges", abc_merges, 3);
    return fixture_bpe_bytes(f, without_byte);
}

static void bpe_merges_by_rank(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_bpe(&f, "gpt-2", -1);
    int32_t ab = fixture_token(&f, "ab", 0, TOKEN_NORMAL),
            bc = fixture_token(&f, "bc", 0, TOKEN_NORMAL);
    int32_t abc = fixture_token(&f, "abc", 0, TOKEN_NORMAL);
    struct tokenizer *t = open_fixture(&f, &g);
    assert_encodes(t, "abcbc", false, false, IDS(abc, bc));
    assert_encodes(t, "abab", false, false, IDS(ab, ab));
    assert_encodes(t, "a b", false, false, IDS('a', ' ', 'b')); /* " b" is a word of its own */
    close_both(t, g);
}

static void a_merge_that_makes_no_piece_is_written_byte_by_byte(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_bpe(&f, "gpt-2", -1);
    struct tokenizer *t = open_fixture(&f, &g);
    assert_encodes(t, "abc", false, false, IDS('a', 'b', 'c'));
    close_both(t, g);
}

static void whole_words_come_first_only_where_the_pretokenizer_says_so(void **state)
{
    (void)state;
    static const char *const pre[] = {"gpt-2", "llama-bpe"};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        struct gguf *g;
        begin_bpe(&f, pre[i], -1);
        int32_t cab = fixture_token(&f, "cab", 0, TOKEN_NORMAL);
        int32_t ab = fixture_token(&f, "ab", 0, TOKEN_NORMAL);
        struct tokenizer *t = open_fixture(&f, &g);
        if (i == 0)
            assert_encodes(t, "cab", false, false, IDS('c', ab));
        else
            assert_encodes(t, "cab", false, false, IDS(cab));
        close_both(t, g);
    }
}

static void a_byte_without_a_token_becomes_the_replacement_character(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_bpe(&f, "gpt-2", 'x');
    struct tokenizer *t = open_fixture(&f, &g);
    assert_encodes(t, "ax", false, false, IDS('a', 0xEF, 0xBF, 0xBD));
    close_both(t, g);

    struct token_list list = {0};
    struct err err = {0};
    begin_bpe(&f, "gpt-2", 0xBD); /* now U+FFFD itself cannot be written */
    t = open_fixture(&f, &g);
    assert_int_equal(token_list_push(&list, 7, &err), ERR_NONE);
    assert_int_equal(tokenizer_encode(t, "a\xBD", 2, false, false, &list, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "0xBD"));
    assert_int_equal(list.n, 1); /* as it was */
    token_list_free(&list);
    close_both(t, g);
}

static void special_tokens_match_longest_first_and_control_only_when_asked(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_bpe(&f, "gpt-2", -1);
    int32_t one = fixture_token(&f, "::", 0, TOKEN_USER_DEFINED);
    int32_t two = fixture_token(&f, ":::", 0, TOKEN_USER_DEFINED);
    int32_t control = fixture_token(&f, ":::x", 0, TOKEN_CONTROL);
    struct tokenizer *t = open_fixture(&f, &g);
    char piece[8];
    assert_encodes(t, "::::", false, false, IDS(two, ':'));
    assert_encodes(t, ":: :::::", false, false, IDS(one, ' ', two, one));
    assert_encodes(t, ":::x", false, false, IDS(two, 'x'));
    assert_encodes(t, ":::x", false, true, IDS(control));
    assert_int_equal(tokenizer_piece(t, control, false, piece, sizeof piece), 0);
    assert_int_equal(tokenizer_piece(t, control, true, piece, sizeof piece), 4);
    assert_memory_equal(piece, ":::x", 4);
    assert_int_equal(tokenizer_piece(t, two, false, piece, 1), 3); /* the full length */
    close_both(t, g);
}

static void bos_and_eos_are_added_as_the_file_says(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        int add_bos, add_eos; /* -1: the key is absent */
        bool bos, eos;
    } cases[] = {
        {"gpt-2", -1, -1, false, false},    {"gpt-2", 1, -1, true, false},
        {"gpt-2", 0, 1, false, true},       {"gpt-2", 1, 1, true, true},
        {"llama-bpe", -1, -1, true, false}, {"llama-bpe", 0, -1, false, false},
        {"tekken", -1, 1, true, true},      {"qwen2", -1, -1, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        struct gguf *g;
        begin_bpe(&f, cases[i].pre, -1);
        int32_t bos = fixture_token(&f, "<bos>", 0, TOKEN_CONTROL);
        int32_t eos = fixture_token(&f, "<eos>", 0, TOKEN_CONTROL);
        fixture_u32(&f, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
        fixture_u32(&f, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
        if (cases[i].add_bos >= 0)
            fixture_bool(&f, "tokenizer.ggml.add_bos_token", cases[i].add_bos == 1);
        if (cases[i].add_eos >= 0)
            fixture_bool(&f, "tokenizer.ggml.add_eos_token", cases[i].add_eos == 1);
        struct tokenizer *t = open_fixture(&f, &g);
        int32_t want[3];
        size_t n = 0;
        if (cases[i].bos) want[n++] = bos;
        want[n++] = 'x';
        if (cases[i].eos) want[n++] = eos;
        assert_encodes(t, "x", true, false, want, n);
        assert_encodes(t, "x", false, false, IDS('x'));
        assert_int_equal(tokenizer_adds_bos(t), cases[i].bos);
        close_both(t, g);
    }
}

static void an_added_bos_without_an_id_is_named(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    struct tokenizer *t;
    struct err err = {0};
    begin_bpe(&f, "gpt-2", -1);
    fixture_bool(&f, "tokenizer.ggml.add_bos_token", true);
    fixture_open(&f, &g);
    assert_int_equal(tokenizer_open(&t, g, NULL, &err), ERR_FILE);
    assert_non_null(strstr(err.text, "tokenizer.ggml.bos_token_id"));
    gguf_close(g);
}

static void the_usual_texts_end_an_answer_when_they_are_no_plain_words(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    begin_bpe(&f, "gpt-2", -1);
    int32_t control = fixture_token(&f, "<|im_end|>", 0, TOKEN_CONTROL);
    int32_t user = fixture_token(&f, "<end_of_turn>", 0, TOKEN_USER_DEFINED);
    int32_t plain = fixture_token(&f, "</s>", 0, TOKEN_NORMAL);
    int32_t eot = fixture_token(&f, "<bye>", 0, TOKEN_CONTROL);
    int32_t end = fixture_token(&f, "<|end|>", 0, TOKEN_CONTROL);
    int32_t back = fixture_token(&f, "<|return|>", 0, TOKEN_CONTROL);
    int32_t call = fixture_token(&f, "<|call|>", 0, TOKEN_CONTROL);
    fixture_u32(&f, "tokenizer.ggml.eot_token_id", (uint32_t)eot);
    fixture_u32(&f, "tokenizer.ggml.eos_token_id", UINT32_MAX); /* "none" */
    struct tokenizer *t = open_fixture(&f, &g);
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_eos(t), -1);
    assert_true(tokenizer_is_end(t, control));
    assert_true(tokenizer_is_end(t, user));
    assert_false(tokenizer_is_end(t, plain));
    assert_true(tokenizer_is_end(t, eot));
    assert_true(tokenizer_is_end(t, back));
    assert_true(tokenizer_is_end(t, call));
    assert_false(tokenizer_is_end(t, end)); /* one of several messages */
    assert_int_equal(tokenizer_kind(t, user), TOKEN_CONTROL);
    close_both(t, g);
}

static void an_override_replaces_the_name_in_the_file(void **state)
{
    (void)state;
    struct fixture f;
    struct gguf *g;
    struct tokenizer *t;
    struct err err = {0};
    begin_bpe(&f, "nosuch", -1);
    fixture_open(&f, &g);
    assert_int_equal(tokenizer_open(&t, g, NULL, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"nosuch\""));
    assert_int_equal(tokenizer_open(&t, g, "qwen2", &err), ERR_NONE);
    assert_string_equal(tokenizer_pre_name(t), "qwen2");
    tokenizer_close(t);
    assert_int_equal(tokenizer_open(&t, g, "phi-2 mpt", &err), ERR_UNSUPPORTED);
    gguf_close(g);
}

#define WITH(test, name)                                                                           \
    {                                                                                              \
#test " (" name ")", test, NULL, NULL, (void *)(uintptr_t)name                             \
    }
#define PUBLISHED(name) WITH(a_published_vocabulary_gives_the_reference_ids, name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PUBLISHED("gpt-2"),
        PUBLISHED("llama-spm"),
        PUBLISHED("deepseek-llm"),
        PUBLISHED("falcon"),
        PUBLISHED("gpt-neox"),
        PUBLISHED("llama-bpe"),
        PUBLISHED("mpt"),
        PUBLISHED("phi-3"),
        PUBLISHED("qwen2"),
        PUBLISHED("starcoder"),
        WITH(a_whole_book_comes_back_as_it_was, "gpt-2"),
        WITH(a_whole_book_comes_back_as_it_was, "llama-spm"),
        WITH(any_bytes_come_back_as_they_were, "gpt-2"),
        WITH(any_bytes_come_back_as_they_were, "llama-spm"),
        WITH(any_bytes_come_back_as_they_were, "llama-bpe"),
        cmocka_unit_test(stories260K_prompt_and_answer_are_the_golden_ones),
        cmocka_unit_test(the_demo_prompt_is_the_golden_one),
        cmocka_unit_test(the_families_vocabulary_gives_the_reference_ids),
        cmocka_unit_test(hostile_vocabularies_are_named_or_survived),
        cmocka_unit_test(spm_merges_the_best_pair_and_of_equals_the_leftmost),
        cmocka_unit_test(spm_writes_what_is_no_piece_byte_by_byte),
        cmocka_unit_test(spm_puts_a_space_before_the_first_word_and_after_special_tokens),
        cmocka_unit_test(spm_ids_have_the_defaults_of_sentencepiece),
        cmocka_unit_test(an_override_has_no_meaning_for_llama),
        cmocka_unit_test(bpe_merges_by_rank),
        cmocka_unit_test(a_merge_that_makes_no_piece_is_written_byte_by_byte),
        cmocka_unit_test(whole_words_come_first_only_where_the_pretokenizer_says_so),
        cmocka_unit_test(a_byte_without_a_token_becomes_the_replacement_character),
        cmocka_unit_test(special_tokens_match_longest_first_and_control_only_when_asked),
        cmocka_unit_test(bos_and_eos_are_added_as_the_file_says),
        cmocka_unit_test(an_added_bos_without_an_id_is_named),
        cmocka_unit_test(the_usual_texts_end_an_answer_when_they_are_no_plain_words),
        cmocka_unit_test(an_override_replaces_the_name_in_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
