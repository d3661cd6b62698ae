/* gguf_kv - one key of a GGUF file, as gguf.c finds it and gguf_values.c reads it; for
 * these two. */
#ifndef TANDEM_ENGINE_GGUF_KV_H
#define TANDEM_ENGINE_GGUF_KV_H

#include "engine/gguf.h"

enum { GGUF_TYPE_COUNT = GGUF_F64 + 1 };

struct gguf_kv {
    struct gguf_str key;
    enum gguf_type type; /* of the element, for arrays */
    bool is_array;
    uint64_t count;          /* elements; 1 for a scalar */
    const uint8_t *value;    /* first element, in the map; strings start with their length */
    const uint8_t **strings; /* [count] where each string of an array starts; owned */
};

/* gguf_type_bytes() - of one value; 0: not a fixed size. */
uint32_t gguf_type_bytes(enum gguf_type type);

/* gguf_shown() - bytes of a name that an error shows. */
static inline int gguf_shown(struct gguf_str s)
{
    return s.len < 96 ? (int)s.len : 96;
}

#endif
