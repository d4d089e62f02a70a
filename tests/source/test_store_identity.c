/* test_store_identity.c - who asks, and who is asked: credentials that expire under way, private addresses behind redirects. */
#include "store_fetcher.h"

#include <sys/stat.h>

/* A profile whose program gives KEY1, then KEY2, and so on. */
static void make_profile(void)
{
    char text[1024], path[300];
    snprintf(path, sizeof path, "%s/config", test_folder());
    setenv("AWS_CONFIG_FILE", path, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    snprintf(text, sizeof text, "[default]\ncredential_process = %s/process\n", test_folder());
    test_write("config", text);
    snprintf(text, sizeof text,
             "#!/bin/sh\necho run >> %s/runs\n"
             "echo '{\"Version\": 1, \"AccessKeyId\": \"KEY'$(wc -l < %s/runs)'\", \"SecretAccessKey\": \"S\", \"SessionToken\": \"T\", "
             "\"Expiration\": \"2100-01-01T00:00:00Z\"}'\n",
             test_folder(), test_folder());
    CHECK(chmod(test_write("process", text), 0755) == 0);
    test_write("runs", "");
}

static void open_signing(fetcher *f, const server *s)
{
    stk_error err;
    *f = (fetcher){0};
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->change, NULL);
    snprintf(f->endpoint, sizeof f->endpoint, "http://127.0.0.1:%d", s->port);
    const stk_source_config config = {.endpoint = f->endpoint};
    CHECK_OK(stk_store_open(&f->store, &config, &quick, finished, f, &err), err);
}

/* --- credentials --- */

static bool first_key_expires(exchange *x)
{
    const char *const who = server_header(x, "Authorization");
    CHECK(who && server_header(x, "x-amz-security-token"));
    return strstr(who, "Credential=KEY1/") && x->request >= 3 ? server_error(x, 400, "ExpiredToken") : server_object(x);
}

static bool all_expired(exchange *x) { return server_error(x, 400, "ExpiredToken"); }

static void credentials_that_expire_are_replaced_once_for_all(void)
{
    enum { COUNT = 40 };
    stk_request *all[COUNT];
    make_profile();
    server *const s = server_start(first_key_expires, NULL);
    fetcher f;
    open_signing(&f, s);
    for (int i = 0; i < COUNT; i++) {
        char address[64];
        snprintf(address, sizeof address, "s3://bucket/%d-object", 1000 + i);
        stk_store_submit(f.store, all[i] = make(address, 0, UINT64_MAX, 2000));
    }
    for (int i = 0; i < COUNT; i++) check_bytes(reap(&f));
    const stk_source_metrics m = metrics_of(&f);
    CHECK(m.retries[STK_RETRY_CREDENTIALS] >= 1);
    CHECK_INT(m.credential_refreshes, 1); /* beside the first: one for all */
    close_fetcher(&f);
    server_stop(s);
    for (int i = 0; i < COUNT; i++) unmake(all[i]);
}

static void credentials_that_stay_expired_stop_the_run(void)
{
    make_profile();
    server *const s = server_start(all_expired, NULL);
    fetcher f;
    open_signing(&f, s);
    stk_request *const r = make("s3://bucket/100-a", 0, UINT64_MAX, 100);
    stk_store_submit(f.store, r);
    CHECK(reap(&f) == r);
    CHECK_INT(r->status, STK_ERR_NETWORK);
    CHECK_HAS(r->error.message, "expired");
    CHECK(!strstr(r->error.message, "KEY"));
    close_fetcher(&f);
    CHECK_INT(server_stop(s).requests, 2);
    unmake(r);
}

/* --- private addresses --- */

static bool leads_inside(exchange *x)
{
    char location[128];
    if (strcmp(x->path, "/here") != 0) return server_object(x);
    snprintf(location, sizeof location, "Location: http://127.0.0.2:%d/1000-x\r\n", x->server->port);
    return server_status(x, 302, location, "");
}

/* The first host may be private by name, and that does not hold for where it leads. */
static void a_redirect_to_a_private_address_is_refused(void)
{
    server *const s = server_start(leads_inside, NULL);
    char address[64];
    stk_error err;
    stk_places *places;
    fetcher f;
    snprintf(address, sizeof address, "http://127.0.0.1:%d", s->port);
    const stk_str text = stk_str_of(address);
    CHECK_OK(stk_places_create(&places, &text, 1, &err), err);
    open_fetcher(&f, s, (stk_source_config){.endpoints = places});
    snprintf(address, sizeof address, "http://127.0.0.1:%d/here", s->port);
    stk_request *const r = make(address, 0, UINT64_MAX, 1000);
    stk_store_submit(f.store, r);
    CHECK(reap(&f) == r);
    CHECK_INT(r->status, STK_ERR_MEDIA_DENIED);
    CHECK_HAS(r->error.message, "private");
    CHECK_HAS(r->error.message, "127.0.0.2");
    close_fetcher(&f);
    CHECK_INT(server_stop(s).requests, 1);
    stk_places_destroy(places);
    unmake(r);
}

/* A proxy, as the server of another port: it is asked for whole URLs. */
static bool answers_for_others(exchange *x)
{
    CHECK_MSG(strncmp(x->path, "http://127.0.0.1:", 17) == 0, "the proxy was asked for %s", x->path);
    return server_status(x, 200, "", "by the proxy");
}

/* What the configuration names goes through the proxy, whatever its address.  What it does not name is asked without, or nobody here would
 * see where a name leads: the address is looked at as ever. */
static void no_proxy_hides_a_private_address(void)
{
    server *const s = server_start(server_object, NULL), *const proxy = server_start(answers_for_others, NULL);
    char named[64], unnamed[64], proxy_url[64];
    stk_error err;
    stk_places *places;
    fetcher f;
    snprintf(named, sizeof named, "http://127.0.0.1:%d", s->port);
    const stk_str text = stk_str_of(named);
    CHECK_OK(stk_places_create(&places, &text, 1, &err), err);
    snprintf(proxy_url, sizeof proxy_url, "http://127.0.0.1:%d", proxy->port);
    unsetenv("no_proxy");
    setenv("http_proxy", proxy_url, 1);
    open_fetcher(&f, s, (stk_source_config){.endpoints = places});
    snprintf(named, sizeof named, "http://127.0.0.1:%d/1000-x", s->port);
    static const char *const hosts[] = {"127.0.0.2", "localhost", "2130706433", "[::1]", "169.254.169.254"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        stk_request *r = make(named, 0, UINT64_MAX, 1000);
        stk_store_submit(f.store, r);
        CHECK(reap(&f) == r);
        CHECK_MSG(r->status == STK_OK && r->got_bytes == 12 && memcmp(r->buffer, "by the proxy", 12) == 0, "%s", r->error.message);
        unmake(r);
        snprintf(unnamed, sizeof unnamed, "http://%s:%d/1000-x", hosts[i], s->port);
        r = make(unnamed, 0, UINT64_MAX, 1000);
        stk_store_submit(f.store, r);
        CHECK(reap(&f) == r);
        CHECK_MSG(r->status == STK_ERR_MEDIA_DENIED, "%s: %d %s", unnamed, r->status, r->error.message);
        CHECK_HAS(r->error.message, "private");
        unmake(r);
    }
    close_fetcher(&f);
    unsetenv("http_proxy");
    setenv("no_proxy", "*", 1);
    CHECK_INT(server_stop(proxy).requests, sizeof hosts / sizeof *hosts);
    CHECK_INT(server_stop(s).requests, 0);
    stk_places_destroy(places);
}

int main(int argc, char **argv)
{
    static const char *const unset[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"};
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++) unsetenv(unset[i]);
    setenv("no_proxy", "*", 1);
    make_quick();
    TEST_MAIN(argc, argv, TEST(credentials_that_expire_are_replaced_once_for_all), TEST(credentials_that_stay_expired_stop_the_run),
              TEST(a_redirect_to_a_private_address_is_refused), TEST(no_proxy_hides_a_private_address));
}
