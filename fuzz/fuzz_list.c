/* fuzz_list.c - hostile pages of a list: entries are whole, a page that goes on says where. */
#include <stdlib.h>

#include "source/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static bool look(void *context, const stk_source_entry *entry)
{
    size_t *const sum = context;
    for (size_t i = 0; i < entry->key.size_bytes; i++) *sum += (uint8_t)entry->key.data[i];
    require(entry->etag.size_bytes < STK_ETAG_BYTES);
    require(entry->etag.size_bytes == 0 || (entry->etag.size_bytes >= 2 && entry->etag.data[0] == '"'));
    return *sum % 1000 != 999;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stk_error err = {0};
    size_t sum = 0;
    stk_list_page page = {0};
    stk_buffer_init(&page.next, STK_TAG_SOURCE, 2048);
    const stk_status status = stk_list_parse(&page, (stk_bytes){data, size}, look, &sum, &err);
    if (status == STK_OK) require(!page.truncated || page.next.size_bytes > 0);
    else require(err.status == status && err.message[0]);
    stk_buffer_deinit(&page.next);
    require(stk_alloc_bytes(STK_TAG_SOURCE) == 0);
    return 0;
}
