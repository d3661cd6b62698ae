/* make_gguf - GGUF files for tests, written key by key and tensor by tensor.
 *
 * Tensor data is a hole in the file (zeros), so that a model of any size costs nothing. The file is
 * removed by make_gguf_end(). Every function asserts; there are no errors to handle. */
#ifndef TANDEM_TESTS_ENGINE_MAKE_GGUF_H
#define TANDEM_TESTS_ENGINE_MAKE_GGUF_H

#include "engine/gguf.h"
#include "engine/quant_formats.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct make_gguf {
    FILE *kv, *tensors;
    char *kv_bytes, *tensor_bytes;
    size_t kv_size, tensor_size;
    uint64_t n_kv, n_tensors, data_end;
    char path[64];
};

static inline void make_gguf_begin(struct make_gguf *g)
{
    memset(g, 0, sizeof *g);
    g->kv = open_memstream(&g->kv_bytes, &g->kv_size);
    g->tensors = open_memstream(&g->tensor_bytes, &g->tensor_size);
    assert_non_null(g->kv);
    assert_non_null(g->tensors);
}

static inline void make_put(FILE *f, const void *bytes, size_t n)
{
    if (n > 0) assert_int_equal(fwrite(bytes, n, 1, f), 1);
}

static inline void make_put_u32(FILE *f, uint32_t value)
{
    make_put(f, &value, sizeof value);
}

static inline void make_put_str(FILE *f, const char *s)
{
    uint64_t len = strlen(s);
    make_put(f, &len, sizeof len);
    make_put(f, s, len);
}

static inline void make_kv(struct make_gguf *g, const char *key, enum gguf_type type,
                           const void *value, size_t n)
{
    g->n_kv++;
    make_put_str(g->kv, key);
    make_put_u32(g->kv, type);
    make_put(g->kv, value, n);
}

static inline void make_u32(struct make_gguf *g, const char *key, uint32_t value)
{
    make_kv(g, key, GGUF_U32, &value, sizeof value);
}

static inline void make_f32(struct make_gguf *g, const char *key, float value)
{
    make_kv(g, key, GGUF_F32, &value, sizeof value);
}

static inline void make_str(struct make_gguf *g, const char *key, const char *value)
{
    make_kv(g, key, GGUF_STRING, NULL, 0);
    make_put_str(g->kv, value);
}

static inline void make_array(struct make_gguf *g, const char *key, enum gguf_type element,
                              const void *values, size_t bytes, uint64_t count)
{
    make_kv(g, key, GGUF_ARRAY, NULL, 0);
    make_put_u32(g->kv, element);
    make_put(g->kv, &count, sizeof count);
    make_put(g->kv, values, bytes);
}

static inline void make_tensor(struct make_gguf *g, uint32_t format, uint64_t n_in, uint64_t n_out,
                               const char *name, ...)
{
    char text[80];
    va_list args;
    va_start(args, name);
    vsnprintf(text, sizeof text, name, args);
    va_end(args);
    uint64_t offset = (g->data_end + 31) / 32 * 32;
    g->n_tensors++;
    make_put_str(g->tensors, text);
    make_put_u32(g->tensors, n_out == 0 ? 1 : 2);
    make_put(g->tensors, &n_in, sizeof n_in);
    if (n_out != 0) make_put(g->tensors, &n_out, sizeof n_out);
    make_put_u32(g->tensors, format);
    make_put(g->tensors, &offset, sizeof offset);
    g->data_end = offset + format_row_bytes(format_find(format), n_in) * (n_out == 0 ? 1 : n_out);
}

/* make_gguf_write() - the file; its path stays valid until make_gguf_end(). */
static inline const char *make_gguf_write(struct make_gguf *g)
{
    fclose(g->kv);
    fclose(g->tensors);
    strcpy(g->path, "/tmp/tandem-test-XXXXXX");
    int fd = mkstemp(g->path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "wb");
    assert_non_null(f);
    make_put(f, "GGUF", 4);
    make_put_u32(f, 3);
    make_put(f, &g->n_tensors, sizeof g->n_tensors);
    make_put(f, &g->n_kv, sizeof g->n_kv);
    make_put(f, g->kv_bytes, g->kv_size);
    make_put(f, g->tensor_bytes, g->tensor_size);
    uint64_t header = (24 + g->kv_size + g->tensor_size + 31) / 32 * 32;
    assert_int_equal(fflush(f), 0);
    assert_int_equal(ftruncate(fileno(f), (off_t)(header + g->data_end)), 0);
    assert_int_equal(fclose(f), 0);
    free(g->kv_bytes);
    free(g->tensor_bytes);
    return g->path;
}

static inline void make_gguf_end(struct make_gguf *g)
{
    unlink(g->path);
}

/* A llama model. n_head_kv 0: no such key. n_ctx 0: 128. */
struct make_llama {
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, n_vocab, n_ctx, format;
    const uint32_t *layer_ff; /* [n_layer] in place of n_ff, or NULL */
    bool tied, fused, biases, rope_freqs;
};

static inline void make_llama_keys(struct make_gguf *g, const struct make_llama *s)
{
    make_str(g, "general.architecture", "llama");
    make_u32(g, "llama.block_count", s->n_layer);
    make_u32(g, "llama.context_length", s->n_ctx != 0 ? s->n_ctx : 128);
    make_u32(g, "llama.embedding_length", s->n_embd);
    make_u32(g, "llama.vocab_size", s->n_vocab);
    make_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    make_u32(g, "llama.attention.head_count", s->n_head);
    if (s->layer_ff == NULL)
        make_u32(g, "llama.feed_forward_length", s->n_ff);
    else
        make_array(g, "llama.feed_forward_length", GGUF_U32, s->layer_ff,
                   s->n_layer * sizeof *s->layer_ff, s->n_layer);
    if (s->n_head_kv != 0) make_u32(g, "llama.attention.head_count_kv", s->n_head_kv);
}

static inline void make_llama_layer(struct make_gguf *g, const struct make_llama *s, uint32_t i)
{
    uint64_t kv = s->n_embd / s->n_head * (s->n_head_kv != 0 ? s->n_head_kv : s->n_head);
    uint64_t ff = s->layer_ff != NULL ? s->layer_ff[i] : s->n_ff;
    make_tensor(g, FORMAT_F32, s->n_embd, 0, "blk.%u.attn_norm.weight", i);
    if (s->fused) {
        make_tensor(g, s->format, s->n_embd, s->n_embd + 2 * kv, "blk.%u.attn_qkv.weight", i);
    } else {
        make_tensor(g, s->format, s->n_embd, s->n_embd, "blk.%u.attn_q.weight", i);
        make_tensor(g, s->format, s->n_embd, kv, "blk.%u.attn_k.weight", i);
        make_tensor(g, s->format, s->n_embd, kv, "blk.%u.attn_v.weight", i);
    }
    if (s->biases && s->fused)
        make_tensor(g, FORMAT_F32, s->n_embd + 2 * kv, 0, "blk.%u.attn_qkv.bias", i);
    if (s->biases && !s->fused) {
        make_tensor(g, FORMAT_F32, s->n_embd, 0, "blk.%u.attn_q.bias", i);
        make_tensor(g, FORMAT_F32, kv, 0, "blk.%u.attn_k.bias", i);
        make_tensor(g, FORMAT_F32, kv, 0, "blk.%u.attn_v.bias", i);
    }
    if (s->biases) {
        make_tensor(g, FORMAT_F32, s->n_embd, 0, "blk.%u.attn_output.bias", i);
        make_tensor(g, FORMAT_F32, ff, 0, "blk.%u.ffn_gate.bias", i);
        make_tensor(g, FORMAT_F32, ff, 0, "blk.%u.ffn_up.bias", i);
        make_tensor(g, FORMAT_F32, s->n_embd, 0, "blk.%u.ffn_down.bias", i);
    }
    make_tensor(g, s->format, s->n_embd, s->n_embd, "blk.%u.attn_output.weight", i);
    make_tensor(g, FORMAT_F32, s->n_embd, 0, "blk.%u.ffn_norm.weight", i);
    make_tensor(g, s->format, s->n_embd, ff, "blk.%u.ffn_gate.weight", i);
    make_tensor(g, s->format, s->n_embd, ff, "blk.%u.ffn_up.weight", i);
    make_tensor(g, s->format, ff, s->n_embd, "blk.%u.ffn_down.weight", i);
}

static inline void make_llama_tensors(struct make_gguf *g, const struct make_llama *s)
{
    make_tensor(g, s->format, s->n_embd, s->n_vocab, "token_embd.weight");
    if (s->rope_freqs)
        make_tensor(g, FORMAT_F32, s->n_embd / s->n_head / 2, 0, "rope_freqs.weight");
    for (uint32_t i = 0; i < s->n_layer; i++) make_llama_layer(g, s, i);
    make_tensor(g, FORMAT_F32, s->n_embd, 0, "output_norm.weight");
    if (!s->tied) make_tensor(g, s->format, s->n_embd, s->n_vocab, "output.weight");
}

static inline void make_llama_begin(struct make_gguf *g, const struct make_llama *s)
{
    make_gguf_begin(g);
    make_llama_keys(g, s);
    make_llama_tensors(g, s);
}

#endif
