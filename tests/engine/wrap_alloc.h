/* wrap_alloc - see every allocation of our own code, and let the k-th fail.
 *
 * The test is linked with -Wl,--wrap=malloc,--wrap=calloc. */
#ifndef TANDEM_TESTS_ENGINE_WRAP_ALLOC_H
#define TANDEM_TESTS_ENGINE_WRAP_ALLOC_H

#include <stddef.h>
#include <stdint.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

static uint64_t alloc_bytes;   /* asked for since it was last set to 0 */
static uint64_t alloc_fail_at; /* the allocation that fails, counted from 1; 0: none */

static int alloc_fails(size_t bytes)
{
    alloc_bytes += bytes;
    return alloc_fail_at > 0 && --alloc_fail_at == 0;
}

void *__wrap_malloc(size_t n)
{
    return alloc_fails(n) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return alloc_fails(n * size) ? NULL : __real_calloc(n, size);
}

#endif
