/* memory.h - allocations with a tag, a bump pool, and a growing buffer with a maximum.
 *
 * Every allocation of ours goes through stk_alloc, so that metrics can say who holds what and a test can
 * count them.  In steady state none happens per batch (invariant 10). */
#ifndef STK_BASE_MEMORY_H
#define STK_BASE_MEMORY_H

#include "base/bytes.h"
#include "base/error.h"

#define STK_ALIGN_BYTES ((size_t)64)
#define STK_PAD_BYTES ((size_t)64) /* readable past the end of what stk_alloc hands out */

typedef enum stk_tag {
    STK_TAG_OPTIONS,
    STK_TAG_MODEL,
    STK_TAG_MANIFEST,
    STK_TAG_INDEX,
    STK_TAG_PLAN,
    STK_TAG_SOURCE,
    STK_TAG_IMAGE,
    STK_TAG_TEXT,
    STK_TAG_BATCH,
    STK_TAG_ENGINE,
    STK_TAG_ARENA,
    STK_TAG_COUNT
} stk_tag;

/* Zeroed, 64-byte aligned, padded by 64 readable bytes; NULL when there is no memory.  Free with stk_free. */
void *stk_alloc(stk_tag tag, size_t size_bytes) STK_MUST_USE;

/* count * each_bytes, checked; NULL on overflow too. */
void *stk_alloc_array(stk_tag tag, size_t count, size_t each_bytes) STK_MUST_USE;

/* A copy of text with a NUL behind it. */
char *stk_strdup(stk_tag tag, const char *text) STK_MUST_USE;
char *stk_strndup(stk_tag tag, stk_str text) STK_MUST_USE;

void stk_free(void *memory); /* NULL is fine */

/* Bytes that a tag holds now, and the number of allocations made since the start of the process. */
size_t stk_alloc_bytes(stk_tag tag);
uint64_t stk_alloc_count(void);

static inline bool stk_mul_overflows(size_t *out, size_t a, size_t b)
{
    return __builtin_mul_overflow(a, b, out);
}

static inline bool stk_add_overflows(size_t *out, size_t a, size_t b)
{
    return __builtin_add_overflow(a, b, out);
}

static inline size_t stk_round_up(size_t value, size_t to) /* to: a power of two; the sum must not overflow */
{
    return (value + to - 1) & ~(to - 1);
}

/* A bump pool: many small pieces that die together.  One owner, one thread.  Blocks are kept by reset, so that a
 * pool in steady state allocates nothing. */
typedef struct stk_pool {
    stk_tag tag;
    struct stk_pool_block *first, *current;
    size_t used_bytes; /* in current */
} stk_pool;

void stk_pool_init(stk_pool *pool, stk_tag tag);
void *stk_pool_take(stk_pool *pool, size_t size_bytes) STK_MUST_USE; /* zeroed, aligned to 16; NULL: no memory */
void stk_pool_reset(stk_pool *pool);                                 /* what was taken is gone; the blocks stay */
void stk_pool_deinit(stk_pool *pool);

/* A buffer that grows up to a maximum which its creator states. */
typedef struct stk_buffer {
    uint8_t *data; /* NULL before the first append */
    size_t size_bytes, capacity_bytes, max_bytes;
    stk_tag tag;
} stk_buffer;

void stk_buffer_init(stk_buffer *buffer, stk_tag tag, size_t max_bytes);
stk_status stk_buffer_append(stk_buffer *buffer, const void *data, size_t size_bytes, stk_error *err) STK_MUST_USE;
stk_status stk_buffer_printf(stk_buffer *buffer, stk_error *err, const char *format, ...) STK_PRINTF(3, 4);
/* Make room for size_bytes more behind the end, without changing the size. */
stk_status stk_buffer_reserve(stk_buffer *buffer, size_t size_bytes, stk_error *err) STK_MUST_USE;
void stk_buffer_clear(stk_buffer *buffer); /* keeps the capacity */
void stk_buffer_deinit(stk_buffer *buffer);

#endif
