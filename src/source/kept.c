/* kept.c - what of a request makes the key of its entry. */
#include "source/kept.h"

#include <stdio.h>

enum { ENDPOINT_BYTES = 640 };

/* AWS has each bucket's name once in a partition; any other store is told by its address. */
static void name_endpoint(char out[ENDPOINT_BYTES], const stk_endpoint *endpoint)
{
    if (endpoint->is_aws) snprintf(out, ENDPOINT_BYTES, "%s", stk_aws_domain(endpoint->region));
    else snprintf(out, ENDPOINT_BYTES, "%s:%u%s", endpoint->host, endpoint->port, endpoint->path);
}

/* False: nothing is kept of such a request.  The key's texts lie in name and in the request. */
static bool key_of(stk_cache_key *key, char name[ENDPOINT_BYTES], const stk_endpoint *endpoint, const stk_request *r)
{
    stk_url url;
    stk_error unused;
    *key = (stk_cache_key){.key = r->address, .etag = r->etag, .offset = r->offset, .size_bytes = r->size_bytes};
    if (!endpoint) return true;
    if (stk_url_parse(&url, r->address, &unused) < 0) return false;
    name_endpoint(name, endpoint);
    key->endpoint = stk_str_of(name);
    key->bucket = url.bucket;
    key->key = url.key;
    return true;
}

stk_status stk_kept_read(stk_cache *cache, const stk_endpoint *endpoint, stk_request *r)
{
    char name[ENDPOINT_BYTES];
    stk_cache_key key;
    stk_cache_found found;
    if (r->places && !stk_places_hold_address(r->places, r->address)) return STK_AGAIN; /* the store says so in words */
    if (!key_of(&key, name, endpoint, r)) return STK_AGAIN;
    const stk_status status = stk_cache_read(cache, &key, r->cache_value, r->buffer, r->capacity_bytes, &found);
    if (status == STK_AGAIN) return status;
    r->total_bytes = found.total_bytes;
    if (status < 0)
        return stk_fail(&r->error, status, "an object of %llu bytes, and there is room for %zu",
                        (unsigned long long)found.total_bytes, r->capacity_bytes);
    r->got_bytes = found.got_bytes;
    r->mtime_ns = 0;
    memcpy(r->etag_is, found.etag, sizeof r->etag_is);
    return STK_OK;
}

void stk_kept_write(stk_cache *cache, const stk_endpoint *endpoint, const stk_request *r)
{
    char name[ENDPOINT_BYTES];
    stk_cache_key key;
    if (!stk_str_is(r->etag, r->etag_is) || !key_of(&key, name, endpoint, r)) return; /* only what carries the ETag that names its entry */
    stk_cache_write(cache, &key, r->cache_value, (stk_bytes){r->buffer, r->got_bytes}, r->total_bytes, stk_str_of(r->etag_is));
}
