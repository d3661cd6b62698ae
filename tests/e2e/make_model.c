/* make_model - write a GGUF model of any size with random weights, for tests that need one that is
 * not at hand.
 *
 *   make_model OUT.gguf [KEY=VALUE ...]
 *
 * Keys and defaults: family=llama (or gpt2), type=F32 (F16, BF16, Q8_0, Q4_0, Q4_K; of the
 * matrices), layers=4, embd=64, ff=96, heads=4, kv=2, vocab=320, ctx=512, seed=1, tied=0, zero=0.
 * tied=1 leaves the output matrix out; the token embedding serves. zero=1 leaves all weights zero
 * and the file sparse, so that a model of gigabytes costs no disk. The tokenizer is byte-level BPE
 * with one merge; the last id ends a text. Station after: tandem, as any other model file. The
 * format: the GGUF specification, version 3. */
#include "../splitmix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGNMENT = 32, TENSORS_MAX = 4096, BLOCK = 32, SUPERBLOCK = 256, UNIT_MAX = 144 };
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };

/* Number formats: id in the file, bytes of `per` values. */
struct format {
    const char *name;
    uint32_t id;
    uint64_t bytes, per;
};
static const struct format formats[] = {
    {"F32", 0, 4, 1},       {"F16", 1, 2, 1},       {"BF16", 30, 2, 1},
    {"Q8_0", 8, 34, BLOCK}, {"Q4_0", 2, 18, BLOCK}, {"Q4_K", 12, UNIT_MAX, SUPERBLOCK},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

struct tensor {
    char name[64];
    uint64_t dims[2]; /* dims[0] is the row length; dims[1] is 0 for a vector */
    const struct format *format;
    int is_scale; /* norm weights: between 1 and 2 */
};

struct options {
    const char *family;
    const struct format *type;
    uint64_t layers, embd, ff, heads, kv, vocab, ctx, seed, tied, zero;
};

static FILE *out;
static struct tensor tensors[TENSORS_MAX];
static size_t n_tensors;
static uint64_t random_state;

static void give_up(const char *what, const char *arg)
{
    fprintf(stderr, "make_model: %s %s\n", what, arg);
    exit(1);
}

static void put(const void *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, out) != n) give_up("cannot write", "the file");
}

static void put_u32(uint32_t v)
{
    put(&v, sizeof v);
}

static void put_u64(uint64_t v)
{
    put(&v, sizeof v);
}

static void put_string(const char *s)
{
    put_u64(strlen(s));
    put(s, strlen(s));
}

/* Keys of the family are written "F.name" here. */
static void put_key(const struct options *o, const char *key, uint32_t type)
{
    char full[128];
    if (strncmp(key, "F.", 2) == 0) {
        snprintf(full, sizeof full, "%s.%s", o->family, key + 2);
        key = full;
    }
    put_string(key);
    put_u32(type);
}

static void put_key_u32(const struct options *o, const char *key, uint64_t v)
{
    put_key(o, key, TYPE_U32);
    put_u32((uint32_t)v);
}

static void put_key_f32(const struct options *o, const char *key, float v)
{
    put_key(o, key, TYPE_F32);
    put(&v, sizeof v);
}

static void put_key_string(const struct options *o, const char *key, const char *v)
{
    put_key(o, key, TYPE_STRING);
    put_string(v);
}

/* The character that stands for a byte in byte-level BPE (GPT-2): itself where it is visible, else
 * the next one from 256 on. */
static void byte_character(unsigned byte, char text[4])
{
    static unsigned shown[256];
    if (shown['!'] == 0) {
        for (unsigned b = 0, next = 256; b < 256; b++) {
            int visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            shown[b] = visible ? b : next++;
        }
    }
    unsigned c = shown[byte];
    if (c < 128) {
        snprintf(text, 4, "%c", (char)c);
    } else {
        snprintf(text, 4, "%c%c", (char)(0xc0 | (c >> 6)), (char)(0x80 | (c & 63)));
    }
}

static void put_tokens(const struct options *o)
{
    put_key(o, "tokenizer.ggml.tokens", TYPE_ARRAY);
    put_u32(TYPE_STRING);
    put_u64(o->vocab);
    for (uint64_t id = 0; id < o->vocab; id++) {
        char text[32];
        if (id < 256) {
            byte_character((unsigned)id, text);
        } else if (id == 256) {
            snprintf(text, sizeof text, "he");
        } else if (id + 1 == o->vocab) {
            snprintf(text, sizeof text, "<|end|>");
        } else {
            snprintf(text, sizeof text, "word%u", (unsigned)id);
        }
        put_string(text);
    }
    put_key(o, "tokenizer.ggml.token_type", TYPE_ARRAY);
    put_u32(TYPE_I32);
    put_u64(o->vocab);
    for (uint64_t id = 0; id < o->vocab; id++) put_u32(id + 1 == o->vocab ? 3 : 1);
    put_key(o, "tokenizer.ggml.merges", TYPE_ARRAY);
    put_u32(TYPE_STRING);
    put_u64(1);
    put_string("h e");
}

/* Counts its own keys: the number stands before them in the file, so the caller patches it. */
static uint64_t put_metadata(const struct options *o)
{
    int is_llama = strcmp(o->family, "llama") == 0;
    put_key_string(o, "general.architecture", o->family);
    put_key_u32(o, "F.context_length", o->ctx);
    put_key_u32(o, "F.embedding_length", o->embd);
    put_key_u32(o, "F.block_count", o->layers);
    put_key_u32(o, "F.feed_forward_length", o->ff);
    put_key_u32(o, "F.attention.head_count", o->heads);
    put_key_u32(o, "F.vocab_size", o->vocab);
    put_key_f32(o,
                is_llama ? "F.attention.layer_norm_rms_epsilon" : "F.attention.layer_norm_epsilon",
                1e-5f);
    put_key_string(o, "tokenizer.ggml.model", "gpt2");
    put_key_string(o, "tokenizer.ggml.pre", "gpt-2");
    put_tokens(o);
    put_key_u32(o, "tokenizer.ggml.bos_token_id", o->vocab - 1);
    put_key_u32(o, "tokenizer.ggml.eos_token_id", o->vocab - 1);
    if (!is_llama) return 15;
    put_key_u32(o, "F.attention.head_count_kv", o->kv);
    put_key_u32(o, "F.rope.dimension_count", o->embd / o->heads);
    put_key_f32(o, "F.rope.freq_base", 10000.0f);
    return 18;
}

static void add(const struct format *format, int is_scale, uint64_t row, uint64_t rows,
                const char *name)
{
    if (n_tensors == TENSORS_MAX) give_up("too many tensors at", name);
    struct tensor *t = &tensors[n_tensors++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->dims[0] = row;
    t->dims[1] = rows;
    t->format = format;
    t->is_scale = is_scale;
}

static void add_to_layer(uint64_t layer, const struct format *format, int is_scale, uint64_t row,
                         uint64_t rows, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", (unsigned)layer, name);
    add(format, is_scale, row, rows, full);
}

static void list_llama(const struct options *o)
{
    const struct format *f32 = &formats[0], *q = o->type;
    uint64_t e = o->embd, kv = e / o->heads * o->kv;
    add(q, 0, e, o->vocab, "token_embd.weight");
    for (uint64_t l = 0; l < o->layers; l++) {
        add_to_layer(l, f32, 1, e, 0, "attn_norm.weight");
        add_to_layer(l, q, 0, e, e, "attn_q.weight");
        add_to_layer(l, q, 0, e, kv, "attn_k.weight");
        add_to_layer(l, q, 0, e, kv, "attn_v.weight");
        add_to_layer(l, q, 0, e, e, "attn_output.weight");
        add_to_layer(l, f32, 1, e, 0, "ffn_norm.weight");
        add_to_layer(l, q, 0, e, o->ff, "ffn_gate.weight");
        add_to_layer(l, q, 0, e, o->ff, "ffn_up.weight");
        add_to_layer(l, q, 0, o->ff, e, "ffn_down.weight");
    }
    add(f32, 1, e, 0, "output_norm.weight");
    if (!o->tied) add(q, 0, e, o->vocab, "output.weight");
}

static void list_gpt2(const struct options *o)
{
    const struct format *f32 = &formats[0], *q = o->type;
    uint64_t e = o->embd;
    add(q, 0, e, o->vocab, "token_embd.weight");
    add(f32, 0, e, o->ctx, "position_embd.weight");
    for (uint64_t l = 0; l < o->layers; l++) {
        add_to_layer(l, f32, 1, e, 0, "attn_norm.weight");
        add_to_layer(l, f32, 0, e, 0, "attn_norm.bias");
        add_to_layer(l, q, 0, e, 3 * e, "attn_qkv.weight");
        add_to_layer(l, f32, 0, 3 * e, 0, "attn_qkv.bias");
        add_to_layer(l, q, 0, e, e, "attn_output.weight");
        add_to_layer(l, f32, 0, e, 0, "attn_output.bias");
        add_to_layer(l, f32, 1, e, 0, "ffn_norm.weight");
        add_to_layer(l, f32, 0, e, 0, "ffn_norm.bias");
        add_to_layer(l, q, 0, e, o->ff, "ffn_up.weight");
        add_to_layer(l, f32, 0, o->ff, 0, "ffn_up.bias");
        add_to_layer(l, q, 0, o->ff, e, "ffn_down.weight");
        add_to_layer(l, f32, 0, e, 0, "ffn_down.bias");
    }
    add(f32, 1, e, 0, "output_norm.weight");
    add(f32, 0, e, 0, "output_norm.bias");
}

static uint64_t tensor_bytes(const struct tensor *t)
{
    uint64_t rows = t->dims[1] > 0 ? t->dims[1] : 1;
    if (t->dims[0] % t->format->per != 0) give_up("the rows are no whole blocks in", t->name);
    return t->dims[0] / t->format->per * t->format->bytes * rows;
}

static uint64_t align_up(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t put_directory(void)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        const struct tensor *t = &tensors[i];
        uint32_t n_dims = t->dims[1] > 0 ? 2 : 1;
        put_string(t->name);
        put_u32(n_dims);
        for (uint32_t d = 0; d < n_dims; d++) put_u64(t->dims[d]);
        put_u32(t->format->id);
        put_u64(offset);
        offset = align_up(offset + tensor_bytes(t));
    }
    return offset;
}

/* One unit of a format. Values are ± [1/16, 1/8), scales [1, 2): a sign, a fixed exponent, random
 * fraction bits; block scales put the block's values into ± 1/8 or a little more. */
static void fill_unit(const struct tensor *t, uint8_t *unit)
{
    uint64_t r = splitmix_next(&random_state);
    uint32_t word;
    for (uint64_t i = 0; i < t->format->bytes; i++)
        unit[i] = (uint8_t)(splitmix_next(&random_state) >> 56);
    switch (t->format->id) {
    case 0:
        word = (uint32_t)(r >> 41) | (t->is_scale ? 127u : 123u) << 23;
        if (!t->is_scale) word |= (uint32_t)(r & 1) << 31;
        memcpy(unit, &word, 4);
        return;
    case 1:
        word = (uint32_t)(r >> 54) | 11u << 10 | (uint32_t)(r & 1) << 15;
        break;
    case 30:
        word = (uint32_t)(r >> 57) | 123u << 7 | (uint32_t)(r & 1) << 15;
        break;
    case 12: /* the scales have 6 bits of their own; next to them, the least values' */
        word = (uint32_t)(r >> 54) | 5u << 10;
        memcpy(unit + 2, &(uint16_t){(uint16_t)word}, 2);
        word = (uint32_t)(r >> 54) | 2u << 10;
        break;
    case 8:
        word = (uint32_t)(r >> 54) | 5u << 10;
        break;
    default:
        word = (uint32_t)(r >> 54) | 9u << 10;
        break;
    }
    unit[0] = (uint8_t)word;
    unit[1] = (uint8_t)(word >> 8);
}

static void put_padding(void)
{
    long at = ftell(out);
    if (at < 0) give_up("cannot tell where in", "the file");
    for (uint64_t n = (uint64_t)at; n < align_up((uint64_t)at); n++) put("", 1);
}

static void put_data(void)
{
    for (size_t i = 0; i < n_tensors; i++) {
        const struct tensor *t = &tensors[i];
        uint8_t unit[UNIT_MAX];
        for (uint64_t n = tensor_bytes(t); n > 0; n -= t->format->bytes) {
            fill_unit(t, unit);
            put(unit, t->format->bytes);
        }
        put_padding();
    }
}

static void read_option(struct options *o, const char *arg)
{
    const struct {
        const char *key;
        uint64_t *value;
    } numbers[] = {
        {"layers=", &o->layers}, {"embd=", &o->embd},   {"ff=", &o->ff},   {"heads=", &o->heads},
        {"kv=", &o->kv},         {"vocab=", &o->vocab}, {"ctx=", &o->ctx}, {"seed=", &o->seed},
        {"zero=", &o->zero},     {"tied=", &o->tied},
    };
    const char *value = strchr(arg, '=');
    if (value == NULL) give_up("unknown option", arg);
    value++;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strncmp(arg, numbers[i].key, (size_t)(value - arg)) != 0) continue;
        *numbers[i].value = strtoull(value, NULL, 10);
        return;
    }
    if (strncmp(arg, "family=", 7) == 0 &&
        (strcmp(value, "llama") == 0 || strcmp(value, "gpt2") == 0)) {
        o->family = value;
        return;
    }
    for (size_t i = 0; i < FORMATS; i++) {
        if (strncmp(arg, "type=", 5) != 0 || strcmp(value, formats[i].name) != 0) continue;
        o->type = &formats[i];
        return;
    }
    give_up("unknown option", arg);
}

int main(int argc, char **argv)
{
    struct options o = {"llama", &formats[0], 4, 64, 96, 4, 2, 320, 512, 1, 0, 0};
    if (argc < 2) give_up("usage:", "make_model OUT.gguf [KEY=VALUE ...]");
    for (int i = 2; i < argc; i++) read_option(&o, argv[i]);
    if (o.vocab < 258 || o.heads == 0) give_up("want", "vocab of at least 258, and a head");
    out = fopen(argv[1], "wb");
    if (out == NULL) give_up("cannot open", argv[1]);
    random_state = o.seed;
    if (strcmp(o.family, "llama") == 0) {
        list_llama(&o);
    } else {
        list_gpt2(&o);
    }

    enum { N_KEYS_AT = 16 };
    put("GGUF", 4);
    put_u32(3);
    put_u64(n_tensors);
    put_u64(0);
    uint64_t n_keys = put_metadata(&o);
    uint64_t data_bytes = put_directory();
    put_padding();
    if (o.zero) {
        long at = ftell(out);
        if (at < 0 || fflush(out) != 0 || ftruncate(fileno(out), at + (off_t)data_bytes) != 0)
            give_up("cannot make room in", argv[1]);
    } else {
        put_data();
    }
    if (fseek(out, N_KEYS_AT, SEEK_SET) != 0) give_up("cannot seek in", argv[1]);
    put_u64(n_keys);
    if (fclose(out) != 0) give_up("cannot write", argv[1]);
    return 0;
}
