/* count_alloc - every allocation that this program makes is counted, and every lock of the C
 * library that it takes, the libraries' too: the C library's own names are taken over. Include it
 * in one file of a program.
 *
 * COUNTED is 0 under a sanitizer, which has these names; then nothing is counted. */
#ifndef TANDEM_TESTS_COUNT_ALLOC_H
#define TANDEM_TESTS_COUNT_ALLOC_H

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
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

static _Thread_local unsigned long n_taken; /* allocations of the calling thread */
__attribute__((unused)) static atomic_ulong n_taken_all, n_locked_all; /* of all threads */

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void count_taken(void)
{
    n_taken++;
    n_taken_all++;
}

void *malloc(size_t n)
{
    count_taken();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count_taken();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count_taken();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count_taken();
    return __libc_memalign(align, n);
}

#define COUNT_LOCK(name, type)                                                                     \
    int name(type *lock)                                                                           \
    {                                                                                              \
        int (*real)(type *) = (int (*)(type *))dlsym(RTLD_NEXT, #name);                            \
        n_locked_all++;                                                                            \
        return real(lock);                                                                         \
    }
COUNT_LOCK(pthread_mutex_lock, pthread_mutex_t)
COUNT_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
COUNT_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
COUNT_LOCK(sem_wait, sem_t)
#endif

#endif
