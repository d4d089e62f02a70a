/* kept.h - requests of remote objects answered from the disk cache, and kept there; internal to source/.
 *
 * Only what an ETag names is kept: another version of an object is another entry. */
#ifndef STK_SOURCE_KEPT_H
#define STK_SOURCE_KEPT_H

#include "source/cache.h"
#include "source/url.h"

/* endpoint: where s3:// leads; NULL for a URL.
 *
 * STK_OK                the request is answered
 * STK_ERR_MEDIA_LIMIT   it does not fit: total_bytes says how large the object is
 * STK_AGAIN             it is not there, or not to be had from this address */
stk_status stk_kept_read(stk_cache *cache, const stk_endpoint *endpoint, stk_request *request);

/* A request that the store has answered. */
void stk_kept_write(stk_cache *cache, const stk_endpoint *endpoint, const stk_request *request);

#endif
