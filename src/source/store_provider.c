/* store_provider.c - the credentials of a store, which its loops share. */
#include "source/store_core.h"

static void credentials_changed(void *context)
{
    stk_store *const s = context;
    for (int i = 0; i < s->loop_count; i++) {
        stk_loop *const l = &s->loop[i];
        pthread_mutex_lock(&l->lock);
        l->credentials_changed = true;
        pthread_mutex_unlock(&l->lock);
        stk_http_wake(l->http);
    }
}

stk_provider *stk_store_provider(stk_store *s, stk_error *err)
{
    pthread_mutex_lock(&s->lock);
    if (!s->provider && !s->provider_failed) {
        const stk_source_config *const c = &s->config;
        const stk_provider_config config = {.profile_name = c->profile_name, .region = c->region, .endpoint = c->endpoint,
                                            .ca = c->ca, .addressing = c->addressing, .anonymous = c->anonymous};
        s->provider_failed = stk_provider_open(&s->provider, &config, &s->provider_error) < 0;
        if (s->provider) stk_provider_on_change(s->provider, credentials_changed, s);
    }
    stk_provider *const provider = s->provider;
    if (!provider) *err = s->provider_error;
    pthread_mutex_unlock(&s->lock);
    return provider;
}

const stk_endpoint *stk_store_endpoint(stk_store *s, stk_error *err)
{
    stk_provider *const provider = stk_store_provider(s, err);
    return provider ? stk_provider_endpoint(provider) : NULL;
}
