/* arena - memory that is handed out in a row and taken back all at once.
 *
 * codec's unpacking and packing live in one each, so that neither allocates. Not thread-safe. */
#ifndef TANDEM_PROTO_ARENA_H
#define TANDEM_PROTO_ARENA_H

#include <stddef.h>
#include <stdint.h>

enum { ARENA_ALIGN = 16 };

struct arena {
    uint8_t *base; /* owned by whoever set it, malloc-aligned */
    size_t size, used;
};

/* arena_take() - n things of size bytes each, uninitialised; NULL when they do not fit. Never NULL
 * for nothing while the arena has memory. */
static inline void *arena_take(struct arena *a, size_t n, size_t size)
{
    size_t left = a->size - a->used;
    if (size != 0 && n > left / size) return NULL;
    size_t bytes = (n * size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (bytes > left) return NULL;
    void *p = a->base + a->used;
    a->used += bytes;
    return p;
}

static inline void arena_reset(struct arena *a)
{
    a->used = 0;
}

#endif
