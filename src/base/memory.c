/* memory.c - tagged allocation, bump pools, growing buffers. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/fault.h"

/* Stands before each allocation; its size keeps the alignment of what follows. */
typedef struct header {
    size_t size_bytes;
    stk_tag tag;
} header;

static atomic_size_t held_bytes[STK_TAG_COUNT];
static atomic_uint_fast64_t allocation_count;

void *stk_alloc(stk_tag tag, size_t size_bytes)
{
    if (stk_fault(STK_FAULT_ALLOC)) return NULL;
    size_t total_bytes;
    if (stk_add_overflows(&total_bytes, size_bytes, STK_ALIGN_BYTES + STK_PAD_BYTES + STK_ALIGN_BYTES - 1)) return NULL;
    total_bytes &= ~(STK_ALIGN_BYTES - 1);
    uint8_t *const base = aligned_alloc(STK_ALIGN_BYTES, total_bytes);
    if (!base) return NULL;
    memset(base, 0, total_bytes);
    header *const h = (header *)base;
    h->size_bytes = total_bytes;
    h->tag = tag;
    atomic_fetch_add_explicit(&held_bytes[tag], total_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
    return base + STK_ALIGN_BYTES;
}

void *stk_alloc_array(stk_tag tag, size_t count, size_t each_bytes)
{
    size_t size_bytes;
    return stk_mul_overflows(&size_bytes, count, each_bytes) ? NULL : stk_alloc(tag, size_bytes);
}

char *stk_strdup(stk_tag tag, const char *text)
{
    return stk_strndup(tag, stk_str_of(text));
}

char *stk_strndup(stk_tag tag, stk_str text)
{
    char *const copy = stk_alloc(tag, text.size_bytes + 1);
    if (copy && text.size_bytes) memcpy(copy, text.data, text.size_bytes);
    return copy;
}

void stk_free(void *memory)
{
    if (!memory) return;
    header *const h = (header *)((uint8_t *)memory - STK_ALIGN_BYTES);
    atomic_fetch_sub_explicit(&held_bytes[h->tag], h->size_bytes, memory_order_relaxed);
    free(h);
}

size_t stk_alloc_bytes(stk_tag tag)
{
    return atomic_load_explicit(&held_bytes[tag], memory_order_relaxed);
}

uint64_t stk_alloc_count(void)
{
    return atomic_load_explicit(&allocation_count, memory_order_relaxed);
}

/* --- pool --- */

enum { POOL_BLOCK_BYTES = 16 * 1024 };

struct stk_pool_block {
    struct stk_pool_block *next;
    size_t capacity_bytes;
    _Alignas(16) uint8_t bytes[];
};

void stk_pool_init(stk_pool *pool, stk_tag tag)
{
    *pool = (stk_pool){.tag = tag};
}

void *stk_pool_take(stk_pool *pool, size_t size_bytes)
{
    if (size_bytes > SIZE_MAX / 2) return NULL;
    const size_t need_bytes = stk_round_up(size_bytes ? size_bytes : 1, 16);
    while (pool->current && pool->used_bytes + need_bytes > pool->current->capacity_bytes) {
        if (!pool->current->next) break;
        pool->current = pool->current->next;
        pool->used_bytes = 0;
    }
    if (!pool->current || pool->used_bytes + need_bytes > pool->current->capacity_bytes) {
        const size_t capacity_bytes = need_bytes > POOL_BLOCK_BYTES ? need_bytes : POOL_BLOCK_BYTES;
        struct stk_pool_block *const block = stk_alloc(pool->tag, sizeof *block + capacity_bytes);
        if (!block) return NULL;
        block->capacity_bytes = capacity_bytes;
        if (pool->current) pool->current->next = block;
        else pool->first = block;
        pool->current = block;
        pool->used_bytes = 0;
    }
    uint8_t *const taken = pool->current->bytes + pool->used_bytes;
    pool->used_bytes += need_bytes;
    memset(taken, 0, need_bytes);
    return taken;
}

void stk_pool_reset(stk_pool *pool)
{
    pool->current = pool->first;
    pool->used_bytes = 0;
}

void stk_pool_deinit(stk_pool *pool)
{
    for (struct stk_pool_block *block = pool->first, *next; block; block = next) {
        next = block->next;
        stk_free(block);
    }
    *pool = (stk_pool){.tag = pool->tag};
}

/* --- buffer --- */

void stk_buffer_init(stk_buffer *buffer, stk_tag tag, size_t max_bytes)
{
    *buffer = (stk_buffer){.tag = tag, .max_bytes = max_bytes};
}

stk_status stk_buffer_reserve(stk_buffer *buffer, size_t size_bytes, stk_error *err)
{
    size_t need_bytes;
    if (stk_add_overflows(&need_bytes, buffer->size_bytes, size_bytes) || need_bytes > buffer->max_bytes)
        return stk_fail(err, STK_ERR_NOMEM, "a buffer of at most %zu bytes would need more", buffer->max_bytes);
    if (need_bytes <= buffer->capacity_bytes) return STK_OK;
    size_t capacity_bytes = buffer->capacity_bytes ? buffer->capacity_bytes : 256;
    while (capacity_bytes < need_bytes) capacity_bytes += capacity_bytes / 2 + 1;
    if (capacity_bytes > buffer->max_bytes) capacity_bytes = buffer->max_bytes;
    uint8_t *const data = stk_alloc(buffer->tag, capacity_bytes);
    if (!data) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a buffer of %zu bytes", capacity_bytes);
    if (buffer->size_bytes) memcpy(data, buffer->data, buffer->size_bytes);
    stk_free(buffer->data);
    buffer->data = data;
    buffer->capacity_bytes = capacity_bytes;
    return STK_OK;
}

stk_status stk_buffer_append(stk_buffer *buffer, const void *data, size_t size_bytes, stk_error *err)
{
    STK_TRY(stk_buffer_reserve(buffer, size_bytes, err));
    if (size_bytes) memcpy(buffer->data + buffer->size_bytes, data, size_bytes);
    buffer->size_bytes += size_bytes;
    return STK_OK;
}

stk_status stk_buffer_printf(stk_buffer *buffer, stk_error *err, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    stk_status status = length < 0 ? stk_fail(err, STK_ERR_SYSTEM, "vsnprintf failed")
                                   : stk_buffer_reserve(buffer, (size_t)length + 1, err);
    if (status == STK_OK) {
        vsnprintf((char *)buffer->data + buffer->size_bytes, (size_t)length + 1, format, again);
        buffer->size_bytes += (size_t)length;
    }
    va_end(again);
    return status;
}

void stk_buffer_clear(stk_buffer *buffer)
{
    buffer->size_bytes = 0;
}

void stk_buffer_deinit(stk_buffer *buffer)
{
    stk_free(buffer->data);
    *buffer = (stk_buffer){.tag = buffer->tag, .max_bytes = buffer->max_bytes};
}
