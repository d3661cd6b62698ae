/* mixture - see mixture.h. Source: the tensors of published files, and what ggml's tools choose. */
#include "worker/mixture.h"

#include "engine/err.h"
#include "engine/quant_formats.h"

#include <string.h>

static bool equals(struct gguf_str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static bool contains(struct gguf_str s, const char *text)
{
    return memmem(s.data, s.len, text, strlen(text)) != NULL;
}

bool mixture_layer(const struct gguf_tensor *t, uint32_t *layer, struct gguf_str *suffix)
{
    static const char prefix[] = "blk.";
    const size_t start = sizeof prefix - 1;
    const struct gguf_str name = t->name;
    if (name.len <= start || memcmp(name.data, prefix, start) != 0) return false;
    size_t at = start;
    uint64_t n = 0;
    for (; at < name.len && name.data[at] >= '0' && name.data[at] <= '9' && n < 100000; at++)
        n = 10 * n + (uint64_t)(name.data[at] - '0');
    if (at == start || at == name.len || name.data[at] != '.') return false;
    *layer = (uint32_t)n;
    *suffix = (struct gguf_str){name.data + at + 1, name.len - at - 1};
    return true;
}

bool mixture_is_small(const struct gguf_tensor *t)
{
    static const char *const parts[] = {"_norm.", ".bias", "position_embd.", "ffn_gate_inp.",
                                        "shortconv.conv."};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (contains(t->name, parts[i])) return true;
    return t->n_dims < 2;
}

/* The first and the last eighth of the layers and every third between weigh more. */
static bool is_heavy_layer(uint32_t layer, uint32_t n_layer)
{
    const uint32_t eighth = n_layer / 8;
    return layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2;
}

/* wants_more() - token embedding and output; and, where four bits are the rule, values and the way
 * down of some layers. */
static bool wants_more(const struct gguf_tensor *t, uint32_t target, uint32_t n_layer)
{
    static const char *const heavy[] = {"attn_v.weight", "attn_qkv.weight", "ffn_down.weight",
                                        "ffn_down_exps.weight"};
    if (equals(t->name, "token_embd.weight") || equals(t->name, "output.weight")) return true;
    uint32_t layer;
    struct gguf_str suffix;
    if (target != FORMAT_Q4_K || !mixture_layer(t, &layer, &suffix)) return false;
    for (size_t i = 0; i < sizeof heavy / sizeof heavy[0]; i++)
        if (equals(suffix, heavy[i])) return is_heavy_layer(layer, n_layer);
    return false;
}

uint32_t mixture_choose(const struct gguf_tensor *t, uint32_t target, uint32_t n_layer)
{
    if (mixture_is_small(t)) return FORMAT_F32;
    const bool four_bits = target == FORMAT_Q4_0 || target == FORMAT_Q4_K;
    const uint32_t wanted = four_bits && wants_more(t, target, n_layer) ? FORMAT_Q6_K : target;
    const uint32_t choices[] = {wanted, FORMAT_Q8_0, FORMAT_F16};
    size_t i = 0;
    while (t->shape[0] % format_find(choices[i])->block_values != 0) i++;
    return choices[i];
}

uint32_t mixture_file_type(uint32_t target)
{
    static const struct {
        uint32_t format, file_type;
    } types[] = {
        {FORMAT_F32, 0},   {FORMAT_F16, 1},   {FORMAT_Q4_0, 2},  {FORMAT_Q8_0, 7},
        {FORMAT_Q4_K, 15}, {FORMAT_Q6_K, 18}, {FORMAT_BF16, 32},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].format == target) return types[i].file_type;
    BUG_IF(true, "a kind of file that has no number");
    return 0;
}
