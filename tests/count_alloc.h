/* count_alloc - every allocation that this program makes in the calling thread is counted, the
 * libraries' too: the C library's own names are taken over. Include it in one file of a program.
 *
 * COUNTED is 0 under a sanitizer, which has the allocator; then nothing is counted. */
#ifndef TANDEM_TESTS_COUNT_ALLOC_H
#define TANDEM_TESTS_COUNT_ALLOC_H

#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(SANITIZED)
#define COUNTED 0
#else
#define COUNTED 1
#endif

static _Thread_local unsigned long n_taken;

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    n_taken++;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    n_taken++;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    n_taken++;
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    n_taken++;
    return __libc_memalign(align, n);
}
#endif

#endif
