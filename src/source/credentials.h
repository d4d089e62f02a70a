/* credentials.h - who we are to a store: found once, in the order of the AWS tools, and refreshed before they expire.
 *
 *     explicit profile ─► environment ─► web identity ─► shared files ─► credential_process ─► container ─► instance metadata
 *                         (skipped when a profile is named)
 *
 * A provider asks on a thread of its own, one request at a time however many readers there are.  Readers never wait:
 * they get the credentials that are valid now, or STK_AGAIN and a call when there are some.  The source that gave the
 * first ones is the only one asked again, so that a run does not change its identity half way.
 *
 * Secrets stand in no error and no log, and are wiped when the last reader lets go. */
#ifndef STK_SOURCE_CREDENTIALS_H
#define STK_SOURCE_CREDENTIALS_H

#include "base/memory.h"
#include "source/url.h"

/* One set of credentials, shared and never changed: retain with stk_provider_get, let go with stk_credentials_release. */
typedef struct stk_credentials {
    uint64_t generation;     /* from 1, unique in the process, larger with each refresh */
    bool anonymous;          /* nothing is signed; all strings are "" */
    int64_t expires_at;      /* seconds since 1970; 0: never, or unknown */
    const char *access_key;  /* terminated; what the store may hear */
    const char *secret_key;  /* never leaves the process */
    const char *session_token; /* "" when the credentials are lasting ones; up to 16 KiB */
} stk_credentials;

/* Any thread. */
void stk_credentials_retain(const stk_credentials *credentials);
void stk_credentials_release(const stk_credentials *credentials); /* NULL is fine */

typedef struct stk_provider_config {
    /* NULL or zero: from the environment and the shared files, in the order of the AWS tools. */
    const char *profile_name, *region, *endpoint, *ca;
    stk_addressing addressing;
    bool anonymous;
} stk_provider_config;

typedef struct stk_provider stk_provider;

/* Reads the environment and the shared files, works out region, endpoint and CA, and starts to ask for credentials.
 * Does not wait for them.  STK_ERR_OPTION: the files, the profile or the endpoint cannot be used; err says how to mend it. */
stk_status stk_provider_open(stk_provider **out, const stk_provider_config *config, stk_error *err) STK_MUST_USE;

/* Stops what is under way and waits for the thread.  Credentials that were handed out stay valid until released. */
void stk_provider_close(stk_provider **provider);

/* Called, when set, by the provider's thread after new credentials or a failure, holding no lock.  Set it before the
 * first get; get may say otherwise from then on. */
void stk_provider_on_change(stk_provider *provider, void (*notify)(void *context), void *context);

/* Any thread; never waits.
 * STK_OK     *out is the caller's until stk_credentials_release.
 * STK_AGAIN  they are being asked for: come again after the call of on_change.
 * < 0        there are none (STK_ERR_NETWORK, STK_ERR_OPTION, STK_ERR_NOMEM); err says which sources were tried. */
stk_status stk_provider_get(stk_provider *provider, const stk_credentials **out, stk_error *err) STK_MUST_USE;

/* The store refused this generation as expired: ask again, unless newer ones are there.  Until then get says STK_AGAIN. */
void stk_provider_refresh(stk_provider *provider, uint64_t generation);

/* Refreshes that gave new credentials, the first set not counted. */
uint64_t stk_provider_refresh_count(stk_provider *provider);

/* The store's address as configured: explicit, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, profile, AWS; region likewise. */
const stk_endpoint *stk_provider_endpoint(const stk_provider *provider);

/* The file of certificate authorities: explicit, AWS_CA_BUNDLE, the profile's ca_bundle; NULL: the system's. */
const char *stk_provider_ca(const stk_provider *provider);

#endif
