/* credentials.c - the provider: one thread that asks, any number of readers that look.
 *
 *     ASKING ──► VALID ──(before expiry, in the background)──► VALID, a new generation
 *        │         └──(the store says expired: refresh)──► ASKING
 *        └────► FAILED ──(refresh)──► ASKING
 *
 * What readers see changes under one lock, which is never held while anything is asked for. */
#include "source/credentials.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "source/credential_chain.h"

enum {
    AHEAD_S = 5 * 60,        /* refresh so long before expiry, */
    JITTER_S = 5 * 60,       /* and up to this earlier, so that a cluster does not ask in one moment, */
    AHEAD_SHARE = 4,         /* but not before three quarters of a short life */
    RETRY_S = 1, RETRY_MOST_S = 60
};

struct stk_provider {
    stk_aws_settings *settings; /* the thread's, but for what open made const: endpoint, ca */
    int stop_fd;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    void (*notify)(void *context);
    void *notify_context;
    const stk_credentials *current; /* NULL: asking, or failed */
    uint64_t expired_generation;    /* the store refused it, and all before */
    bool asked;                     /* refresh was called since the thread began to ask */
    bool failed, stopping;
    stk_error why;                  /* failed: what get says */
    uint64_t refresh_count;
};

static int64_t unix_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

/* When to ask for the next ones; INT64_MAX: never by itself. */
static int64_t due_at(const stk_credentials *credentials, int64_t now, unsigned *seed)
{
    if (!credentials->expires_at) return INT64_MAX;
    const int64_t left = credentials->expires_at - now;
    int64_t ahead = AHEAD_S + rand_r(seed) % JITTER_S;
    if (ahead > left / AHEAD_SHARE) ahead = left / AHEAD_SHARE;
    return left > 0 ? credentials->expires_at - ahead : now;
}

static bool is_same(const stk_credentials *a, const stk_credentials *b)
{
    return strcmp(a->access_key, b->access_key) == 0 && strcmp(a->secret_key, b->secret_key) == 0 &&
           strcmp(a->session_token, b->session_token) == 0;
}

/* The thread's own state. */
typedef struct asker {
    stk_provider *provider;
    stk_credential_source source;
    const stk_credentials *latest; /* retained; NULL before the first */
    int64_t due_at;
    int pause_s;
    unsigned seed;
} asker;

/* One walk to the source.  Expired ones are no credentials, but for those of instance metadata: when it has trouble of its
 * own, it hands them on and the store takes them. */
static stk_status ask_once(asker *a, const stk_credentials **out, uint64_t expired_generation, stk_error *err)
{
    stk_provider *const p = a->provider;
    STK_TRY(stk_credential_chain_ask(out, &a->source, p->settings, p->stop_fd, err));
    const char *const name = stk_credential_source_name(a->source);
    const bool refused = a->latest && a->latest->generation <= expired_generation;
    const bool over = (*out)->expires_at && (*out)->expires_at <= unix_now() && a->source != STK_FROM_INSTANCE;
    if (!over && !(refused && is_same(*out, a->latest))) return STK_OK;
    stk_credentials_release(*out);
    *out = NULL;
    return stk_fail(err, STK_ERR_NETWORK,
                    "the credentials of %s have expired, and it gives no newer ones: renew them there%s",
                    name, a->source == STK_FROM_ENVIRONMENT ? " and start again" : "");
}

/* What readers see from now on; fresh is NULL after a failure. */
static void show(asker *a, const stk_credentials *fresh, const stk_error *err)
{
    stk_provider *const p = a->provider;
    const stk_credentials *dropped = NULL;
    const int64_t now = unix_now();
    pthread_mutex_lock(&p->lock);
    if (fresh) {
        dropped = p->current;
        p->current = fresh;
        stk_credentials_retain(fresh);
        p->failed = false;
        if (fresh != a->latest) p->asked = false; /* newer than what anybody can have found expired */
        if (fresh != a->latest && a->latest) p->refresh_count++;
    } else if (!p->current || (p->current->expires_at && p->current->expires_at <= now)) {
        dropped = p->current;
        p->current = NULL;
        p->failed = true;
        p->why = *err;
    }
    void (*const notify)(void *) = p->notify;
    void *const context = p->notify_context;
    pthread_mutex_unlock(&p->lock);
    stk_credentials_release(dropped);
    if (notify) notify(context);
}

/* Takes over fresh, NULL after a failure. */
static void take_over(asker *a, const stk_credentials *fresh, const stk_error *err)
{
    const int64_t now = unix_now();
    const bool is_new = fresh && !(a->latest && is_same(fresh, a->latest));
    if (fresh && !is_new) { /* the source has no newer ones yet */
        stk_credentials_release(fresh);
        fresh = a->latest;
    }
    show(a, fresh, err);
    if (is_new) {
        stk_credentials_release(a->latest);
        a->latest = fresh;
        a->pause_s = RETRY_S;
        a->due_at = due_at(fresh, now, &a->seed);
    }
    if (!is_new || a->due_at <= now) {
        /* The first failure is for the user to mend; later ones pass, and what we have may still be good. */
        a->due_at = a->latest ? now + a->pause_s : INT64_MAX;
        a->pause_s = a->pause_s * 2 > RETRY_MOST_S ? RETRY_MOST_S : a->pause_s * 2;
    }
}

/* Wait until it is time, or somebody asks; false: the provider closes. */
static bool wait_for_work(asker *a, uint64_t *expired_generation)
{
    stk_provider *const p = a->provider;
    pthread_mutex_lock(&p->lock);
    while (!p->stopping && !p->asked && unix_now() < a->due_at) {
        /* By the wall clock, which expiry goes by; where it is never, a day will do. */
        const int64_t until = a->due_at == INT64_MAX ? unix_now() + 86400 : a->due_at;
        const struct timespec at = {.tv_sec = (time_t)until};
        pthread_cond_timedwait(&p->changed, &p->lock, &at);
    }
    const bool go_on = !p->stopping;
    *expired_generation = p->expired_generation;
    p->asked = false;
    pthread_mutex_unlock(&p->lock);
    return go_on;
}

static void *ask_for_ever(void *context)
{
    stk_provider *const p = context;
    asker a = {.provider = p,
               .source = STK_FROM_COUNT,
               .pause_s = RETRY_S,
               .seed = (unsigned)getpid() ^ (unsigned)unix_now()};
    uint64_t expired_generation;
    while (wait_for_work(&a, &expired_generation)) {
        const stk_credentials *fresh = NULL;
        stk_error err = {0};
        const stk_status status = ask_once(&a, &fresh, expired_generation, &err);
        if (status == STK_ERR_INTERRUPTED) continue; /* closing: wait_for_work says so */
        take_over(&a, fresh, &err);
    }
    stk_credentials_release(a.latest);
    return NULL;
}

/* --- open, close --- */

static stk_status start(stk_provider *p, stk_error *err)
{
    const int failed = stk_thread_start(&p->thread, ask_for_ever, p);
    p->has_thread = !failed;
    if (!failed) {
        pthread_setname_np(p->thread, "stk-credentials");
        return STK_OK;
    }
    errno = failed;
    return stk_fail_errno(err, "the thread for credentials");
}

stk_status stk_provider_open(stk_provider **out, const stk_provider_config *config, stk_error *err)
{
    *out = NULL;
    stk_provider *p = stk_alloc(STK_TAG_SOURCE, sizeof *p);
    if (!p) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a provider of credentials");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->asked = true; /* the first ones */
    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    stk_status status =
        p->stop_fd < 0 ? stk_fail_errno(err, "eventfd") : stk_aws_settings_open(&p->settings, config, err);
    if (status == STK_OK) status = config->anonymous ? stk_credentials_nobody(&p->current, err) : start(p, err);
    if (status < 0) stk_provider_close(&p);
    else *out = p;
    return status;
}

void stk_provider_close(stk_provider **provider)
{
    stk_provider *const p = *provider;
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->stop_fd >= 0) eventfd_write(p->stop_fd, 1);
    if (p->has_thread) pthread_join(p->thread, NULL);
    if (p->stop_fd >= 0) close(p->stop_fd);
    stk_credentials_release(p->current);
    stk_aws_settings_close(&p->settings);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    stk_free(p);
    *provider = NULL;
}

/* --- readers --- */

void stk_provider_on_change(stk_provider *p, void (*notify)(void *context), void *context)
{
    pthread_mutex_lock(&p->lock);
    p->notify_context = context;
    p->notify = notify;
    pthread_mutex_unlock(&p->lock);
}

stk_status stk_provider_get(stk_provider *p, const stk_credentials **out, stk_error *err)
{
    stk_status status = STK_OK;
    *out = NULL;
    pthread_mutex_lock(&p->lock);
    if (p->current) {
        stk_credentials_retain(p->current);
        *out = p->current;
    } else if (p->failed) {
        status = p->why.status;
        if (err) *err = p->why;
    } else {
        status = STK_AGAIN;
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

void stk_provider_refresh(stk_provider *p, uint64_t generation)
{
    const stk_credentials *dropped = NULL;
    pthread_mutex_lock(&p->lock);
    if (p->has_thread && (p->failed || (p->current && p->current->generation <= generation))) {
        if (p->current) p->expired_generation = p->current->generation;
        dropped = p->current;
        p->current = NULL;
        p->failed = false;
        p->asked = true;
        pthread_cond_signal(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    stk_credentials_release(dropped);
}

uint64_t stk_provider_refresh_count(stk_provider *p)
{
    pthread_mutex_lock(&p->lock);
    const uint64_t count = p->refresh_count;
    pthread_mutex_unlock(&p->lock);
    return count;
}

const stk_endpoint *stk_provider_endpoint(const stk_provider *p)
{
    return &p->settings->endpoint;
}

const char *stk_provider_ca(const stk_provider *p)
{
    return p->settings->ca;
}
