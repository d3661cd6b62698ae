/* test_detokenizer - text that comes token by token is always whole characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/text/detokenizer.h"
#include "tests/coordinator/vocab_fixture.h"
#include "tests/test_data.h"

enum { BYTE = 3, SPACE_A = 259, A, SHOWN, HIDDEN, EURO };

struct opened {
    struct gguf *g;
    struct tokenizer *t;
};

/* open_spm() - <unk> <s> </s>, 256 bytes, " a", "a", a user-defined, a control token, "€". */
static struct opened open_spm(void)
{
    struct fixture f;
    struct opened o;
    struct err err = {0};
    fixture_begin(&f, "llama", "default");
    fixture_token(&f, "<unk>", 0.0f, TOKEN_UNKNOWN);
    fixture_token(&f, "<s>", 0.0f, TOKEN_CONTROL);
    fixture_token(&f, "</s>", 0.0f, TOKEN_CONTROL);
    fixture_spm_bytes(&f);
    fixture_token(&f,
                  "\xE2\x96\x81"
                  "a",
                  0.0f, TOKEN_NORMAL);
    fixture_token(&f, "a", 0.0f, TOKEN_NORMAL);
    fixture_token(&f, " <user>", 0.0f, TOKEN_USER_DEFINED);
    fixture_token(&f, "<hidden>", 0.0f, TOKEN_CONTROL);
    fixture_token(&f, "\xE2\x82\xAC", 0.0f, TOKEN_NORMAL);
    fixture_open(&f, &o.g);
    assert_int_equal(tokenizer_open(&o.t, o.g, NULL, &err), ERR_NONE);
    return o;
}

static void close_both(struct opened o)
{
    tokenizer_close(o.t);
    gguf_close(o.g);
}

static void assert_pushes(struct detokenizer *d, int32_t id, const char *want)
{
    const char *text;
    size_t len;
    struct err err = {0};
    assert_int_equal(detokenizer_push(d, id, &text, &len, &err), ERR_NONE);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(text, want, len);
}

static void assert_finishes(struct detokenizer *d, const char *want)
{
    const char *text;
    size_t len;
    struct err err = {0};
    assert_int_equal(detokenizer_finish(d, &text, &len, &err), ERR_NONE);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(text, want, len);
}

static void a_character_comes_when_its_last_byte_has_come(void **state)
{
    (void)state;
    struct opened o = open_spm();
    struct detokenizer *d;
    struct err err = {0};
    assert_int_equal(detokenizer_open(&d, o.t, false, false, &err), ERR_NONE);
    assert_pushes(d, BYTE + 0xF0, "");
    assert_pushes(d, BYTE + 0x9F, "");
    assert_pushes(d, BYTE + 0x98, "");
    assert_pushes(d, BYTE + 0x80, "\xF0\x9F\x98\x80");
    assert_pushes(d, EURO, "\xE2\x82\xAC");
    assert_finishes(d, "");
    detokenizer_close(d);
    close_both(o);
}

static void bytes_that_can_never_be_valid_are_replaced_at_once(void **state)
{
    (void)state;
    struct opened o = open_spm();
    struct detokenizer *d;
    struct err err = {0};
    assert_int_equal(detokenizer_open(&d, o.t, false, false, &err), ERR_NONE);
    assert_pushes(d, BYTE + 0xFF, "\xEF\xBF\xBD");
    assert_pushes(d, BYTE + 0xE2, "");
    assert_pushes(d, BYTE + 0x82, "");
    assert_pushes(d, A,
                  "\xEF\xBF\xBD"
                  "a"); /* one for the cut-off character */
    assert_pushes(d, BYTE + 0xED, "");
    assert_pushes(d, BYTE + 0xA0, "\xEF\xBF\xBD\xEF\xBF\xBD"); /* a surrogate */
    assert_pushes(d, BYTE + 0xC3, "");
    assert_finishes(d, "\xEF\xBF\xBD");
    assert_finishes(d, ""); /* nothing is held any more */
    detokenizer_close(d);
    close_both(o);
}

static void the_first_words_added_space_is_dropped_where_asked(void **state)
{
    (void)state;
    struct opened o = open_spm();
    struct detokenizer *d;
    struct err err = {0};
    for (int strip = 0; strip < 2; strip++) {
        assert_int_equal(detokenizer_open(&d, o.t, false, strip == 1, &err), ERR_NONE);
        assert_pushes(d, 1, ""); /* BOS is no text */
        assert_pushes(d, SPACE_A, strip == 1 ? "a" : " a");
        assert_pushes(d, SPACE_A, " a");
        detokenizer_close(d);
    }
    assert_int_equal(detokenizer_open(&d, o.t, false, true, &err), ERR_NONE);
    assert_pushes(d, SHOWN, " <user>"); /* this space is the token's own */
    assert_pushes(d, SPACE_A, " a");
    detokenizer_close(d);
    close_both(o);
}

static void control_tokens_are_shown_only_when_asked(void **state)
{
    (void)state;
    struct opened o = open_spm();
    struct detokenizer *d;
    struct err err = {0};
    for (int shown = 0; shown < 2; shown++) {
        assert_int_equal(detokenizer_open(&d, o.t, shown == 1, false, &err), ERR_NONE);
        assert_pushes(d, HIDDEN, shown == 1 ? "<hidden>" : "");
        assert_pushes(d, SHOWN, " <user>");
        detokenizer_close(d);
    }
    close_both(o);
}

static void an_id_outside_of_the_vocabulary_is_an_error(void **state)
{
    (void)state;
    struct opened o = open_spm();
    struct detokenizer *d;
    struct err err = {0};
    const char *text;
    size_t len;
    assert_int_equal(detokenizer_open(&d, o.t, false, false, &err), ERR_NONE);
    static const int32_t ids[] = {-1, EURO + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(detokenizer_push(d, ids[i], &text, &len, &err), ERR_USAGE);
    assert_pushes(d, A, "a");
    detokenizer_close(d);
    close_both(o);
}

/* assert_whole() - a second opinion on UTF-8, by code points: each is the shortest way to write a
 * number that is no surrogate and not above U+10FFFF. */
static void assert_whole(const char *text, size_t len)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *b = (const unsigned char *)text;
    for (size_t at = 0; at < len;) {
        size_t n = b[at] < 0x80 ? 1 : b[at] >> 5 == 6 ? 2 : b[at] >> 4 == 14 ? 3 : 4;
        assert_true(n < 4 || b[at] >> 3 == 30);
        assert_true(n <= len - at);
        uint32_t c = n == 1 ? b[at] : b[at] & (0x7Fu >> n);
        for (size_t i = 1; i < n; i++) {
            assert_int_equal(b[at + i] >> 6, 2);
            c = c << 6 | (b[at + i] & 0x3Fu);
        }
        assert_true(c >= least[n] && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF));
        at += n;
    }
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void random_bytes_never_give_half_a_character(void **state)
{
    (void)state;
    struct opened o = open_spm();
    struct err err = {0};
    uint32_t random = 7;
    for (int round = 0; round < 2000; round++) {
        struct detokenizer *d;
        const char *text;
        size_t len;
        assert_int_equal(detokenizer_open(&d, o.t, false, false, &err), ERR_NONE);
        for (int i = 0; i < 40; i++) {
            uint32_t r = next_random(&random);
            int32_t byte = (int32_t)(r >> 4 & 0xFF);
            if (r % 3 != 0) byte = 0x80 | (byte & 0x3F); /* continuation bytes are common, */
            if (r % 5 == 0) byte = 0xC0 | (byte & 0x3F); /* and beginnings too */
            assert_int_equal(detokenizer_push(d, BYTE + byte, &text, &len, &err), ERR_NONE);
            assert_whole(text, len);
        }
        assert_int_equal(detokenizer_finish(d, &text, &len, &err), ERR_NONE);
        assert_whole(text, len);
        detokenizer_close(d);
    }
    close_both(o);
}

static void a_text_written_in_bytes_comes_back_whatever_the_cuts(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "vocab/ggml-vocab-gpt-2.gguf");
    static const char text[] =
        " \xF0\x9F\x9A\x80 (normal) \xE1\x9E\x80\xE1\x9E\xB6 caf\xC3\xA9 \xE6\x97\xA5\n";
    struct gguf *g;
    struct tokenizer *t;
    struct detokenizer *d;
    struct token_list ids = {0};
    struct err err = {0};
    char got[sizeof text] = "";
    size_t n = 0;
    assert_int_equal(gguf_open(&g, path, &err), ERR_NONE);
    assert_int_equal(tokenizer_open(&t, g, NULL, &err), ERR_NONE);
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, false, false, &ids, &err),
                     ERR_NONE);
    assert_int_equal(detokenizer_open(&d, t, false, true, &err), ERR_NONE);
    for (size_t i = 0; i < ids.n; i++) {
        const char *piece;
        size_t len;
        assert_int_equal(detokenizer_push(d, ids.ids[i], &piece, &len, &err), ERR_NONE);
        assert_whole(piece, len);
        assert_true(n + len < sizeof got);
        memcpy(got + n, piece, len);
        n += len;
    }
    assert_string_equal(got, text);
    token_list_free(&ids);
    detokenizer_close(d);
    tokenizer_close(t);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_comes_when_its_last_byte_has_come),
        cmocka_unit_test(bytes_that_can_never_be_valid_are_replaced_at_once),
        cmocka_unit_test(the_first_words_added_space_is_dropped_where_asked),
        cmocka_unit_test(control_tokens_are_shown_only_when_asked),
        cmocka_unit_test(an_id_outside_of_the_vocabulary_is_an_error),
        cmocka_unit_test(random_bytes_never_give_half_a_character),
        cmocka_unit_test(a_text_written_in_bytes_comes_back_whatever_the_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
