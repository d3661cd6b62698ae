/* huge_pages - memory for what is large and read as a whole: weights. In huge pages, as far as whole
 * ones fit and the system has them: a product that waits for memory would wait for page tables, too.
 *
 * Stations: weights and speed, which measures with memory of the same kind. */
#ifndef TANDEM_ENGINE_HUGE_PAGES_H
#define TANDEM_ENGINE_HUGE_PAGES_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

/* huge_pages_take() - 64-byte aligned at least, not cleared; the caller's, to be freed with free().
 * NULL: no memory. */
static inline void *huge_pages_take(size_t bytes)
{
    const size_t huge = 2 << 20, align = bytes < huge ? 64 : huge;
    void *memory;
    if (posix_memalign(&memory, align, bytes) != 0) return NULL;
    if (align == huge) madvise(memory, bytes / huge * huge, MADV_HUGEPAGE); /* a wish */
    return memory;
}

#endif
