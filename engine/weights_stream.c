/* weights_stream - see weights_stream.h. */
#include "engine/weights_stream.h"

#include <omp.h>

/* Read side by side, so that no sum waits for the one before it. */
enum { WORDS = 16, LINE_BYTES = WORDS * sizeof(uint64_t) };

static uint64_t sum_words(const uint64_t *words, size_t n_lines)
{
    uint64_t sums[WORDS] = {0}, sum = 0;
    for (size_t i = 0; i < n_lines; i++)
        for (size_t k = 0; k < WORDS; k++) sums[k] += words[i * WORDS + k];
    for (size_t k = 0; k < WORDS; k++) sum += sums[k];
    return sum;
}

/* Both are 64-byte aligned. */
static const void *data_of(const struct weight *w, size_t *bytes)
{
    *bytes = w->values != NULL ? w->panels.n_in * w->panels.n_out * sizeof *w->values
                               : w->n_matrices * w->matrix_bytes;
    return w->values != NULL ? (const void *)w->values : (const void *)w->panels.data;
}

uint64_t weights_stream(const struct weights *w, uint32_t threads, uint64_t max)
{
    const size_t n = (1 + (size_t)(w->range.end - w->range.first)) * TENSOR_COUNT;
    uint64_t read = 0, sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        const size_t id = (size_t)omp_get_thread_num(), size = (size_t)omp_get_num_threads();
        uint64_t before = 0;
        for (size_t i = 0; i < n && before < max; i++) {
            size_t bytes;
            const uint64_t *words = data_of(&w->slots[i], &bytes);
            const size_t lines = bytes / LINE_BYTES;
            const size_t from = lines * id / size, to = lines * (id + 1) / size;
            sum += sum_words(words + from * WORDS, to - from);
            before += lines * LINE_BYTES;
        }
        if (id == 0) read = before;
    }
    /* The sum keeps the compiler from leaving the reading out. */
    __asm__ volatile("" : : "r"(sum));
    return read;
}
