/* split_gguf - cut a GGUF file into parts, for tests. Returns what gguf_write returns. */
#ifndef TANDEM_TESTS_ENGINE_SPLIT_GGUF_H
#define TANDEM_TESTS_ENGINE_SPLIT_GGUF_H

#include "engine/gguf.h"
#include "worker/gguf_write.h"

#include <stdio.h>

enum { SPLIT_PATH_MAX = 512 };

/* One part as it is written; tests lie in the fields. */
struct split_part {
    uint32_t no, count, n_tensors;
    uint64_t first, end;      /* tensors of the whole */
    const char *architecture; /* of a later part, NULL: none */
};

static inline void split_path(char out[SPLIT_PATH_MAX], const char *stem, uint32_t no,
                              uint32_t count)
{
    snprintf(out, SPLIT_PATH_MAX, "%s-%05u-of-%05u.gguf", stem, no + 1, count);
}

/* Tensors in equal numbers. */
static inline struct split_part split_plan(const struct gguf *whole, uint32_t no, uint32_t count)
{
    uint64_t n = gguf_tensor_count(whole);
    return (struct split_part){.no = no,
                               .count = count,
                               .n_tensors = (uint32_t)n,
                               .first = n * no / count,
                               .end = n * (no + 1) / count};
}

static inline int split_fill(struct gguf_writer *w, const struct gguf *whole,
                             const struct split_part *p, struct err *err)
{
    for (uint64_t i = 0; p->no == 0 && i < gguf_kv_count(whole); i++)
        gguf_writer_put_kv(w, gguf_kv_at(whole, i));
    if (p->architecture != NULL) gguf_writer_put_str(w, "general.architecture", p->architecture);
    gguf_writer_put_u32(w, "split.no", p->no);
    gguf_writer_put_u32(w, "split.count", p->count);
    gguf_writer_put_u32(w, "split.tensors.count", p->n_tensors);
    for (uint64_t i = p->first; i < p->end; i++)
        gguf_writer_add_tensor(w, gguf_tensor_at(whole, i));
    TRY(gguf_writer_begin(w, err));
    for (uint64_t i = p->first; i < p->end; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(whole, i);
        TRY(gguf_writer_write(w, i - p->first, 0, t->data, t->bytes, err));
    }
    return gguf_writer_finish(w, err);
}

static inline int split_write(const char *path, const struct gguf *whole,
                              const struct split_part *part, struct err *err)
{
    struct gguf_writer *w;
    TRY(gguf_writer_open(&w, path, err));
    int rc = split_fill(w, whole, part, err);
    gguf_writer_close(w);
    return rc;
}

#endif
