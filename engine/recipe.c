/* recipe - see recipe.h. */
#include "engine/recipe.h"

#include <string.h>

static const struct {
    const char *name;
    struct model_shape shape;
} presets[] = {
    {"tinyllama-1.1b",
     {.family = "llama",
      .n_layer = 22,
      .n_embd = 2048,
      .n_head = 32,
      .n_head_kv = 4,
      .n_ff = 5632,
      .n_ctx = 2048,
      .n_vocab = 32000}},
    {"llama-3.2-1b",
     {.family = "llama",
      .n_layer = 16,
      .n_embd = 2048,
      .n_head = 32,
      .n_head_kv = 8,
      .n_ff = 8192,
      .n_ctx = 131072,
      .n_vocab = 128256,
      .rope_base = 500000,
      .tied = true}},
    {"llama-2-7b",
     {.family = "llama",
      .n_layer = 32,
      .n_embd = 4096,
      .n_head = 32,
      .n_head_kv = 32,
      .n_ff = 11008,
      .n_ctx = 4096,
      .n_vocab = 32000}},
    {"gpt2-124m",
     {.family = "gpt2",
      .n_layer = 12,
      .n_embd = 768,
      .n_head = 12,
      .n_ff = 3072,
      .n_ctx = 1024,
      .n_vocab = 50257,
      .tied = true}},
    /* TinyLlama with eight experts in each layer, as Mixtral is to Mistral. */
    {"moe-8x1b",
     {.family = "llama",
      .n_layer = 22,
      .n_embd = 2048,
      .n_head = 32,
      .n_head_kv = 4,
      .n_ff = 5632,
      .n_expert = 8,
      .n_expert_used = 2,
      .n_ctx = 2048,
      .n_vocab = 32000}},
};
enum { PRESET_COUNT = sizeof presets / sizeof presets[0] };

const struct model_shape *model_preset_find(const char *name)
{
    for (size_t i = 0; i < PRESET_COUNT; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i].shape;
    return NULL;
}

const char *model_preset_name(size_t index)
{
    return index < PRESET_COUNT ? presets[index].name : NULL;
}

void model_shape_overlay(struct model_shape *shape, const struct model_shape *over)
{
#define OVERLAY(member)                                                                            \
    if (over->member) shape->member = over->member
    OVERLAY(family);
    OVERLAY(n_layer);
    OVERLAY(n_embd);
    OVERLAY(n_head);
    OVERLAY(n_head_kv);
    OVERLAY(n_ff);
    OVERLAY(head_dim);
    OVERLAY(n_expert);
    OVERLAY(n_expert_used);
    OVERLAY(n_ctx);
    OVERLAY(n_vocab);
    OVERLAY(tied);
#undef OVERLAY
    if (over->rope_base > 0) shape->rope_base = over->rope_base;
}
