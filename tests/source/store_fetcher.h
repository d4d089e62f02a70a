/* store_fetcher.h - a store that asks a server of a test, with short patience, and the requests that it has finished. */
#ifndef STK_STORE_FETCHER_H
#define STK_STORE_FETCHER_H

#include "store_server.h"

#include "source/store.h"

/* Short waits, or the tests of patience would take minutes. */
static stk_patience quick;

static inline void make_quick(void)
{
    quick = stk_patience_default;
    quick.pause_ns = STK_MS;
    quick.most_pause_ns = 8 * STK_MS;
    quick.first_byte_ns = 20 * STK_S;
    quick.stall_ns = 20 * STK_S;
}

/* --- a store and its finished requests --- */

typedef struct fetcher {
    stk_store *store;
    pthread_mutex_t lock;
    pthread_cond_t change;
    stk_request *first, *last;
    char endpoint[64];
} fetcher;

static inline void finished(void *context, stk_request *chain)
{
    fetcher *const f = context;
    pthread_mutex_lock(&f->lock);
    while (chain) {
        stk_request *const r = chain;
        chain = r->next;
        r->next = NULL;
        *(f->last ? &f->last->next : &f->first) = r;
        f->last = r;
    }
    pthread_cond_broadcast(&f->change);
    pthread_mutex_unlock(&f->lock);
}

static inline stk_request *reap(fetcher *f)
{
    pthread_mutex_lock(&f->lock);
    while (!f->first) pthread_cond_wait(&f->change, &f->lock);
    stk_request *const r = f->first;
    f->first = r->next;
    if (!f->first) f->last = NULL;
    pthread_mutex_unlock(&f->lock);
    return r;
}

static inline void open_fetcher(fetcher *f, const server *s, stk_source_config config)
{
    stk_error err;
    *f = (fetcher){0};
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->change, NULL);
    snprintf(f->endpoint, sizeof f->endpoint, "http://127.0.0.1:%d", s->port);
    config.endpoint = f->endpoint;
    config.anonymous = true;
    CHECK_OK(stk_store_open(&f->store, &config, &quick, finished, f, &err), err);
}

static inline void close_fetcher(fetcher *f)
{
    stk_store_close(&f->store);
    CHECK(f->store == NULL && f->first == NULL);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->change);
}

/* A request with its own buffer; capacity as given. */
static inline stk_request *make(const char *address, uint64_t offset, uint64_t size, size_t capacity)
{
    stk_request *const r = calloc(1, sizeof *r);
    r->address = stk_str_of(strdup(address));
    r->offset = offset;
    r->size_bytes = size;
    r->buffer = malloc(capacity + STK_PAD_BYTES);
    r->capacity_bytes = capacity;
    return r;
}

static inline void unmake(stk_request *r)
{
    free((char *)(uintptr_t)r->address.data);
    free(r->buffer);
    free(r);
}

/* The bytes are those of the object: path as the server sees it. */
static inline void check_bytes(const stk_request *r)
{
    char path[4200];
    const char *const slash = memchr(r->address.data + 5, '/', r->address.size_bytes - 5);
    CHECK(slash);
    snprintf(path, sizeof path, "/%.*s", (int)r->address.size_bytes - 5, r->address.data + 5);
    const unsigned seed = object_seed(path);
    CHECK_INT(r->status, STK_OK);
    CHECK_INT(r->total_bytes, object_size(path));
    for (size_t i = 0; i < r->got_bytes; i++)
        CHECK_MSG(r->buffer[i] == object_byte(seed, r->offset + i), "byte %zu of %s", i, path);
}

static inline stk_source_metrics metrics_of(fetcher *f)
{
    stk_source_metrics m;
    stk_store_get_metrics(f->store, &m);
    return m;
}

#endif
