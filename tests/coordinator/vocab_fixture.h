/* vocab_fixture - small vocabularies for tests, written as GGUF files and opened from there.
 *
 * Used by test_tokenizer and test_detokenizer. A fixture is: fixture_begin(),
 * keys, fixture_open(). */
#ifndef TANDEM_TESTS_COORDINATOR_VOCAB_FIXTURE_H
#define TANDEM_TESTS_COORDINATOR_VOCAB_FIXTURE_H

#include "coordinator/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIXTURE_TOKENS_MAX = 600 };

struct fixture_token {
    char text[48];
    float score;
    int32_t kind;
};

struct fixture {
    FILE *file;
    char path[64];
    uint64_t n_keys;
    struct fixture_token token[FIXTURE_TOKENS_MAX];
    size_t n_tokens;
};

static inline void fixture_put(struct fixture *f, const void *bytes, size_t n)
{
    assert_int_equal(fwrite(bytes, 1, n, f->file), n);
}

static inline void fixture_put_u32(struct fixture *f, uint32_t value)
{
    fixture_put(f, &value, sizeof value);
}

static inline void fixture_put_text(struct fixture *f, const char *text)
{
    uint64_t n = strlen(text);
    fixture_put(f, &n, sizeof n);
    fixture_put(f, text, n);
}

static inline void fixture_put_key(struct fixture *f, const char *key, enum gguf_type type)
{
    f->n_keys++;
    fixture_put_text(f, key);
    fixture_put_u32(f, (uint32_t)type);
}

static inline void fixture_put_array(struct fixture *f, const char *key, enum gguf_type type,
                                     uint64_t n)
{
    fixture_put_key(f, key, GGUF_ARRAY);
    fixture_put_u32(f, (uint32_t)type);
    fixture_put(f, &n, sizeof n);
}

static inline void fixture_str(struct fixture *f, const char *key, const char *value)
{
    fixture_put_key(f, key, GGUF_STRING);
    fixture_put_text(f, value);
}

static inline void fixture_u32(struct fixture *f, const char *key, uint32_t value)
{
    fixture_put_key(f, key, GGUF_U32);
    fixture_put_u32(f, value);
}

static inline void fixture_bool(struct fixture *f, const char *key, bool value)
{
    uint8_t byte = value;
    fixture_put_key(f, key, GGUF_BOOL);
    fixture_put(f, &byte, 1);
}

static inline void fixture_strs(struct fixture *f, const char *key, const char *const *strs,
                                size_t n)
{
    fixture_put_array(f, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) fixture_put_text(f, strs[i]);
}

/* fixture_begin() - an empty file for the tokenizer model ("llama", "gpt2") and pre-tokenizer. */
static inline void fixture_begin(struct fixture *f, const char *model, const char *pre)
{
    memset(f, 0, sizeof *f);
    strcpy(f->path, "/tmp/tandem-vocab-XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    f->file = fdopen(fd, "wb");
    assert_non_null(f->file);
    uint64_t none = 0; /* tensors, and keys until fixture_open() counts them */
    fixture_put(f, "GGUF\3\0\0\0", 8);
    fixture_put(f, &none, sizeof none);
    fixture_put(f, &none, sizeof none);
    fixture_str(f, "general.architecture", "llama");
    fixture_str(f, "tokenizer.ggml.model", model);
    fixture_str(f, "tokenizer.ggml.pre", pre);
}

/* fixture_token() - the next token of the vocabulary; returns its id. */
static inline int32_t fixture_token(struct fixture *f, const char *text, float score,
                                    enum token_kind kind)
{
    assert_true(f->n_tokens < FIXTURE_TOKENS_MAX);
    struct fixture_token *t = &f->token[f->n_tokens];
    snprintf(t->text, sizeof t->text, "%s", text);
    t->score = score;
    t->kind = (int32_t)kind;
    return (int32_t)f->n_tokens++;
}

/* fixture_spm_bytes() - <0x00> … <0xFF>; returns the first one's id. */
static inline int32_t fixture_spm_bytes(struct fixture *f)
{
    int32_t first = (int32_t)f->n_tokens;
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        fixture_token(f, name, 0.0f, TOKEN_BYTE);
    }
    return first;
}

/* fixture_bpe_bytes() - the 256 letters of byte-level BPE in order of their bytes, without the byte
 * `except` (-1: all); returns the first one's id. */
static inline int32_t fixture_bpe_bytes(struct fixture *f, int except)
{
    int32_t first = (int32_t)f->n_tokens;
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        unsigned letter = printable ? b : next++;
        char text[3] = {(char)letter, '\0', '\0'};
        if (letter >= 0x80) {
            text[0] = (char)(0xC0 | letter >> 6);
            text[1] = (char)(0x80 | (letter & 0x3F));
        }
        fixture_token(f, (int)b == except ? "(none)" : text, 0.0f, TOKEN_NORMAL);
    }
    return first;
}

/* fixture_open() - write the tokens, open the file; the caller closes *g. */
static inline void fixture_open(struct fixture *f, struct gguf **g)
{
    struct err err = {0};
    fixture_put_array(f, "tokenizer.ggml.tokens", GGUF_STRING, f->n_tokens);
    for (size_t i = 0; i < f->n_tokens; i++) fixture_put_text(f, f->token[i].text);
    fixture_put_array(f, "tokenizer.ggml.scores", GGUF_F32, f->n_tokens);
    for (size_t i = 0; i < f->n_tokens; i++) fixture_put(f, &f->token[i].score, 4);
    fixture_put_array(f, "tokenizer.ggml.token_type", GGUF_I32, f->n_tokens);
    for (size_t i = 0; i < f->n_tokens; i++) fixture_put(f, &f->token[i].kind, 4);
    char padding[64] = {0}; /* the (empty) data section begins at a multiple of 32 */
    fixture_put(f, padding, sizeof padding);
    assert_int_equal(fseek(f->file, 16, SEEK_SET), 0);
    fixture_put(f, &f->n_keys, sizeof f->n_keys);
    assert_int_equal(fclose(f->file), 0);
    int rc = gguf_open(g, f->path, &err);
    if (rc != ERR_NONE) print_error("%s\n", err.text);
    assert_int_equal(rc, ERR_NONE);
    unlink(f->path);
}

#endif
