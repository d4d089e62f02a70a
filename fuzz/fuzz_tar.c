/* fuzz_tar.c - hostile bytes as a tar: refused, or files that lie within it, the same ones however much is read at once.
 *
 * Checksums of what says ustar are made right, so that what stands behind them is reached. */
#include <stdlib.h>

#include "source/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

typedef struct bytes_of_tar {
    const uint8_t *data;
    size_t size_bytes;
    uint64_t end; /* of the last file */
    uint64_t sum; /* of all that was seen */
} bytes_of_tar;

static stk_status read_range(void *context, uint64_t offset, uint8_t *buffer, size_t size_bytes, stk_error *err)
{
    const bytes_of_tar *const t = context;
    require(offset <= t->size_bytes && size_bytes <= t->size_bytes - offset);
    memcpy(buffer, t->data + offset, size_bytes);
    return STK_OK;
}

static stk_status see(void *context, const stk_tar_entry *entry, stk_error *err)
{
    bytes_of_tar *const t = context;
    require(entry->name.size_bytes > 0 && entry->offset >= t->end && entry->offset <= t->size_bytes);
    require((entry->size_bytes > t->size_bytes - entry->offset) == (entry->kind == STK_TAR_CUT));
    t->end = entry->kind == STK_TAR_CUT ? t->size_bytes : entry->offset + entry->size_bytes;
    for (size_t i = 0; i < entry->name.size_bytes; i++) t->sum = t->sum * 31 + (uint8_t)entry->name.data[i];
    t->sum = (t->sum * 31 + entry->offset) * 31 + entry->size_bytes;
    return STK_OK;
}

static void seal(uint8_t *header)
{
    unsigned sum = 0;
    char text[8];
    if (memcmp(header + 257, "ustar", 5) != 0) return;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += header[i];
    snprintf(text, sizeof text, "%06o", sum);
    memcpy(header + 148, text, 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t windows[] = {512, 4096, 1 << 20};
    if (size > 1 << 18) return 0;
    uint8_t *const copy = malloc(size + 1);
    require(copy != NULL);
    memcpy(copy, data, size);
    for (size_t at = 0; at + 512 <= size; at += 512) seal(copy + at);
    uint64_t sum = 0, damaged = 0;
    stk_status status = STK_OK;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        stk_error err = {0};
        bytes_of_tar t = {.data = copy, .size_bytes = size};
        const stk_tar_input input = {.context = &t, .read = read_range, .total_bytes = size, .window_bytes = windows[i]};
        uint64_t damaged_at;
        const stk_status now = stk_tar_scan(&input, see, &t, &damaged_at, &err);
        require(now == STK_OK || err.message[0]);
        require(damaged_at == UINT64_MAX || damaged_at < size);
        if (i) require(now == status && t.sum == sum && damaged_at == damaged);
        status = now;
        sum = t.sum;
        damaged = damaged_at;
    }
    free(copy);
    return 0;
}
