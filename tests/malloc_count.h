/* malloc_count.h - every allocation of the process, those of libraries too: malloc and its kin, interposed.
 *
 * For one C file of a test, built without sanitizers, on glibc. */
#ifndef STK_MALLOC_COUNT_H
#define STK_MALLOC_COUNT_H

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

/* The build hides symbols by default, and the libraries must find these. */
#pragma GCC visibility push(default)

static atomic_size_t live_bytes, peak_bytes;

static void *count_in(void *memory)
{
    if (!memory) return NULL;
    const size_t now = atomic_fetch_add(&live_bytes, malloc_usable_size(memory)) + malloc_usable_size(memory);
    size_t peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {}
    return memory;
}

static void count_out(void *memory)
{
    if (memory) atomic_fetch_sub(&live_bytes, malloc_usable_size(memory));
}

void *malloc(size_t size)
{
    return count_in(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return count_in(__libc_calloc(count, size));
}

void *realloc(void *memory, size_t size)
{
    const size_t before = memory ? malloc_usable_size(memory) : 0;
    void *const moved = __libc_realloc(memory, size);
    if (!moved && size) return NULL; /* memory is as it was */
    atomic_fetch_sub(&live_bytes, before);
    return count_in(moved);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return count_in(__libc_memalign(alignment, size));
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    *out = count_in(__libc_memalign(alignment, size));
    return *out ? 0 : ENOMEM;
}

void free(void *memory)
{
    count_out(memory);
    __libc_free(memory);
}

#pragma GCC visibility pop

#endif
