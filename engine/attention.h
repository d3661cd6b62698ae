/* attention - the rows of a batch read the positions before them.
 *
 *   x += W_o attend(rope(norm(W_qkv in)))
 *
 * Every key and value is read back from the cache, where it was rounded, also those of the batch
 * itself: so it does not matter how a sequence was cut into batches.
 * Station before: layer. Stations inside: pass, kv_cache, attend, kernels. */
#ifndef TANDEM_ENGINE_ATTENTION_H
#define TANDEM_ENGINE_ATTENTION_H

#include "engine/pass.h"

/* attention_forward() - in: the rows that attention reads, complete for all threads. On return the
 * rows' keys and values are in the cache and p->x is complete for all threads. */
void attention_forward(const struct pass *p, struct team *t, uint32_t layer,
                       const struct input *in);

/* attention_reads_q8() - does any product of a layer's attention, or of what stands in its place,
 * want its input quantised? */
bool attention_reads_q8(const struct pass *p, uint32_t layer);

/* The way back from attention to the residual stream. */
extern const struct way_back attention_way_back;

/* ---- for the forms of attention ---- */

/* What attention reads and writes: query h of a row at q + row q_row + h dim_k, its result at
 * out + row out_row + h out_head. Keys and values are in the cache. */
struct attention {
    uint32_t layer, local; /* its number in the model and in the stage */
    uint32_t n_head, n_head_kv;
    size_t dim_k, dim_v;
    bool values_in_keys; /* the front of a key is the value */
    const float *q;
    float *out;
    size_t q_row, out_row, out_head;
};

/* attention_store() - keys and values of one row, [n_head_kv][dim_k] and [n_head_kv][dim_v], to the
 * cache, rounded to its number format there. v NULL: values are in the keys. */
void attention_store(const struct pass *p, const struct attention *a, uint32_t row, const float *k,
                     const float *v);

/* attention_attend() - a share of the work each; complete for all threads on return (attend.c). */
void attention_attend(const struct pass *p, struct team *t, const struct attention *a);

/* attention_rotate() - n heads of a row in place, stride floats apart, as the layer rotates. */
void attention_rotate(const struct pass *p, uint32_t layer, size_t row, float *head, uint32_t n,
                      size_t stride);

#endif
