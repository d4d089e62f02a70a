/* store_call.c - reads, lists and puts that wait: blocking calls made of the same jobs. */
#include "source/store_core.h"

#include "base/thread.h"

static const stk_ns LOOK_NS = 100 * STK_MS; /* how soon a call that waits notices that it should stop */
enum { PAGE_BYTES = 8 << 20, QUERY_BYTES = 8192, PAGES = 1 << 20 };

/* Until it is done.  Who should not wait any longer calls it back, and it is done soon. */
static void wait_for(stk_store *s, stk_call *call, stk_request *r)
{
    bool (*const stopped)(void *context) = s->config.stopped;
    pthread_mutex_lock(&call->lock);
    while (!call->done) {
        const struct timespec until = stk_timespec(stk_now() + LOOK_NS);
        if (!stopped || stk_request_cancelled(r)) pthread_cond_wait(&call->change, &call->lock);
        else pthread_cond_timedwait(&call->change, &call->lock, &until);
        if (call->done || !stopped || stk_request_cancelled(r)) continue;
        pthread_mutex_unlock(&call->lock);
        if (stopped(s->config.stopped_context)) {
            __atomic_store_n(&r->cancelled, 1, __ATOMIC_RELAXED);
            stk_store_cancel(s);
        }
        pthread_mutex_lock(&call->lock);
    }
    pthread_mutex_unlock(&call->lock);
}

static stk_status call_store(stk_store *s, stk_call *call, stk_request *r)
{
    r->work = call;
    r->error.status = STK_OK;
    pthread_mutex_init(&call->lock, NULL);
    stk_condition_init(&call->change);
    call->done = false;
    stk_store_submit(s, r);
    wait_for(s, call, r);
    pthread_cond_destroy(&call->change);
    pthread_mutex_destroy(&call->lock);
    r->work = NULL;
    return r->status;
}

stk_status stk_store_read(stk_store *s, stk_request *r)
{
    stk_call call = {.kind = r->size_bytes == 0 ? STK_JOB_LOOK : STK_JOB_GET};
    return call_store(s, &call, r);
}

/* The query of a page.  0: it does not fit. */
static size_t write_query(char *out, size_t capacity, stk_str prefix, const stk_list_page *page)
{
    stk_query_pair pair[4] = {{stk_str_of("list-type"), stk_str_of("2")}, {stk_str_of("encoding-type"), stk_str_of("url")},
                              {stk_str_of("prefix"), prefix}};
    size_t count = 3;
    if (page->next.size_bytes)
        pair[count++] = (stk_query_pair){stk_str_of("continuation-token"), {(const char *)page->next.data, page->next.size_bytes}};
    const size_t length = stk_url_query(out, capacity, pair, count);
    return length < capacity ? length : 0;
}

static stk_status read_pages(stk_store *s, stk_request *r, stk_str prefix, stk_list_page *page,
                             bool (*found)(void *context, const stk_source_entry *entry), void *context, stk_error *err)
{
    char query[QUERY_BYTES];
    stk_call call = {.kind = STK_JOB_LIST};
    for (int i = 0; i < PAGES; i++) {
        const size_t length = write_query(query, sizeof query, prefix, page);
        if (length == 0) return stk_fail(err, STK_ERR_NETWORK, "the store's token for the next page of a list is too long");
        call.query = (stk_str){query, length};
        if (call_store(s, &call, r) < 0) {
            if (err) *err = r->error;
            return r->status;
        }
        STK_TRY(stk_list_parse(page, (stk_bytes){r->buffer, r->got_bytes}, found, context, err));
        if (!page->truncated) return STK_OK;
    }
    return stk_fail(err, STK_ERR_NETWORK, "the list has no end");
}

stk_status stk_store_list(stk_store *s, stk_str address, bool (*found)(void *context, const stk_source_entry *entry),
                          void *context, stk_error *err)
{
    stk_url url;
    STK_TRY(stk_url_parse(&url, address, err));
    if (url.kind != STK_URL_S3) return stk_fail(err, STK_ERR_OPTION, "only s3:// can be listed");
    uint8_t *const room = stk_alloc(STK_TAG_SOURCE, PAGE_BYTES);
    if (!room) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list");
    stk_request request = {.address = address, .size_bytes = UINT64_MAX, .buffer = room, .capacity_bytes = PAGE_BYTES};
    stk_list_page page = {0};
    stk_buffer_init(&page.next, STK_TAG_SOURCE, QUERY_BYTES);
    const stk_status status = read_pages(s, &request, url.key, &page, found, context, err);
    stk_buffer_deinit(&page.next);
    stk_free(room);
    return status;
}

stk_status stk_store_put(stk_store *s, stk_str address, stk_bytes bytes, stk_error *err)
{
    stk_url url;
    STK_TRY(stk_url_parse(&url, address, err));
    if (url.kind != STK_URL_S3 || url.key.size_bytes == 0)
        return stk_fail(err, STK_ERR_OPTION, "only a key of s3:// can be written: s3://bucket/key");
    if (bytes.size_bytes > STK_PUT_BYTES_MAX)
        return stk_fail(err, STK_ERR_OPTION, "%zu bytes are more than the 5 GiB that one request may store", bytes.size_bytes);
    stk_call call = {.kind = STK_JOB_PUT, .upload = bytes};
    stk_request request = {.address = address, .size_bytes = UINT64_MAX};
    stk_signer *signer;
    STK_TRY(stk_signer_create(&signer, err));
    const stk_status status = stk_signer_sha256(signer, call.sha256, bytes.data, bytes.size_bytes, err);
    stk_signer_destroy(signer);
    STK_TRY(status);
    if (call_store(s, &call, &request) < 0 && err) *err = request.error;
    return request.status;
}
