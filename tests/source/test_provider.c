/* The provider under many threads: one request at a time, readers that never wait, and what was handed out
 * stays valid. */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "source/credential_chain.h"
#include "test.h"

enum { THREADS = 16, ROUNDS = 5 };

static stk_error err;

/* A credential_process that leaves a mark for each time it runs, takes its time, and gives new credentials
 * each time. */
static void set_up(void)
{
    char text[1024];
    setenv("HOME", test_folder(), 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_CONFIG_FILE", "~/config", 1);
    snprintf(text, sizeof text, "[default]\ncredential_process = %s/process\n", test_folder());
    test_write("config", text);
    snprintf(text, sizeof text,
             "#!/bin/sh\necho run >> %s/runs\nsleep 0.05\n"
             "echo '{\"Version\": 1, \"AccessKeyId\": \"A'$$'\", \"SecretAccessKey\": \"S\", \"Expiration\": "
             "\"2100-01-01T00:00:00Z\"}'\n",
             test_folder());
    CHECK(chmod(test_write("process", text), 0755) == 0);
    test_write("runs", "");
}

static size_t runs(void)
{
    char path[300], line[16];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/runs", test_folder());
    FILE *const file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) count++;
    fclose(file);
    return count;
}

static atomic_uint changes;

static void count_change(void *context)
{
    atomic_fetch_add(&changes, 1);
    eventfd_write(*(int *)context, 1);
}

static const stk_credentials *wait_for(stk_provider *provider)
{
    const stk_credentials *c;
    stk_status status;
    while ((status = stk_provider_get(provider, &c, &err)) == STK_AGAIN) usleep(1000);
    CHECK_OK(status, err);
    return c;
}

/* Each sees the store refuse the same generation at the same moment. */
static pthread_barrier_t barrier;

static void *refuse_and_wait(void *context)
{
    stk_provider *const provider = context;
    for (int i = 0; i < ROUNDS; i++) {
        const stk_credentials *const old = wait_for(provider);
        const uint64_t generation = old->generation;
        pthread_barrier_wait(&barrier);
        stk_provider_refresh(provider, generation);
        const stk_credentials *const fresh = wait_for(provider);
        CHECK(fresh->generation > generation && strcmp(fresh->access_key, old->access_key) != 0);
        CHECK_STR(old->secret_key, "S"); /* still whole, however long ago it was replaced */
        stk_credentials_release(old);
        stk_credentials_release(fresh);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void one_request_for_all_readers(void)
{
    set_up();
    stk_provider *provider;
    const stk_provider_config config = {0};
    pthread_t thread[THREADS];
    int fd = eventfd(0, EFD_CLOEXEC);
    CHECK_OK(stk_provider_open(&provider, &config, &err), err);
    stk_provider_on_change(provider, count_change, &fd);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, refuse_and_wait, provider) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&barrier);
    CHECK_INT(runs(), 1 + ROUNDS);
    CHECK_INT(stk_provider_refresh_count(provider), ROUNDS);
    const stk_credentials *const last = wait_for(provider);
    stk_provider_close(&provider);
    CHECK(provider == NULL && atomic_load(&changes) >= ROUNDS);
    CHECK_STR(last->secret_key, "S");
    stk_credentials_release(last);
    close(fd);
}

static void a_refused_generation_that_is_past_asks_nobody(void)
{
    set_up();
    stk_provider *provider;
    const stk_provider_config config = {0};
    CHECK_OK(stk_provider_open(&provider, &config, &err), err);
    const stk_credentials *c = wait_for(provider);
    stk_provider_refresh(provider, c->generation - 1);
    stk_provider_refresh(provider, 0);
    const stk_credentials *again;
    CHECK_INT(stk_provider_get(provider, &again, &err), STK_OK);
    CHECK(again == c);
    stk_credentials_release(again);
    stk_credentials_release(c);
    stk_provider_close(&provider);
    CHECK_INT(runs(), 1);
}

static void closing_at_once_is_fine(void)
{
    set_up();
    for (int i = 0; i < 10; i++) {
        stk_provider *provider;
        const stk_provider_config config = {0};
        CHECK_OK(stk_provider_open(&provider, &config, &err), err);
        usleep((useconds_t)(i * 5000));
        stk_provider_close(&provider);
    }
    stk_provider *none = NULL;
    stk_provider_close(&none);
}

static void times(void)
{
    int64_t t;
    CHECK(stk_credentials_time(&t, "1970-01-02T00:00:01Z") && t == 86401);
    CHECK(stk_credentials_time(&t, "1970-01-02T00:00:01.999Z") && t == 86401);
    CHECK(stk_credentials_time(&t, "1970-01-02T02:00:01+02:00") && t == 86401);
    CHECK(stk_credentials_time(&t, "1970-01-01T22:30:00-01:30") && t == 86400);
    CHECK(stk_credentials_time(&t, "2038-01-19T03:14:08Z") && t == 2147483648);
    CHECK(!stk_credentials_time(&t, "tomorrow") && !stk_credentials_time(&t, "2030-01-01T00:00:00Zx"));
    CHECK(!stk_credentials_time(&t, "2030-13-01T00:00:00Z") && !stk_credentials_time(&t, ""));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* A secret that stands nowhere in the program: made at run time, on the stack. */
enum { SECRET_BYTES = 24 };

static void make_secret(char secret[SECRET_BYTES + 1])
{
    for (int i = 0; i < SECRET_BYTES; i++) secret[i] = (char)('a' + (i * 7 + 3) % 26);
    secret[SECRET_BYTES] = 0;
}

static bool is_secret(const char *at)
{
    for (int i = 0; i < SECRET_BYTES; i++)
        if (at[i] != (char)('a' + (i * 7 + 3) % 26)) return false;
    return true;
}

/* Whether the heap holds the secret: what is in use and what was freed. */
static bool heap_holds_secret(void)
{
    char line[512];
    unsigned long from = 0, to = 0;
    FILE *const maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) && !strstr(line, "[heap]")) {
    }
    fclose(maps);
    CHECK(sscanf(line, "%lx-%lx", &from, &to) == 2);
    for (const char *at = (const char *)from; at + SECRET_BYTES <= (const char *)to; at++)
        if (is_secret(at)) return true;
    return false;
}

static void no_secret_is_left_in_freed_memory(void)
{
    char path[300], text[128], secret[SECRET_BYTES + 1];
    make_secret(secret);
    snprintf(path, sizeof path, "%s/credentials", test_folder());
    const int length =
        snprintf(text, sizeof text, "[default]\naws_access_key_id = A\naws_secret_access_key = %s\n", secret);
    FILE *const file = fopen(path, "w");
    CHECK(file && setvbuf(file, NULL, _IONBF, 0) == 0 &&
          fwrite(text, 1, (size_t)length, file) == (size_t)length);
    fclose(file);
    setenv("HOME", test_folder(), 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    CHECK(!heap_holds_secret());

    stk_provider *provider;
    const stk_provider_config config = {0};
    CHECK_OK(stk_provider_open(&provider, &config, &err), err);
    const stk_credentials *const c = wait_for(provider);
    CHECK_STR(c->secret_key, secret);
    CHECK(heap_holds_secret());
    stk_provider_close(&provider);
    stk_credentials_release(c);
    CHECK(!heap_holds_secret());
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
}
#else
static void no_secret_is_left_in_freed_memory(void)
{
} /* the heap of a sanitizer is another */
#endif

/* The N-th allocation fails, N = 1, 2, ...: out of memory is said, nothing leaks, and the next provider is
 * fine. */
static void memory_that_runs_out(void)
{
#ifdef STK_FAULTS
    set_up();
    const size_t before = stk_alloc_bytes(STK_TAG_SOURCE);
    unsigned long failed = 0;
    bool fired = true;
    for (unsigned long nth = 1; fired; nth++) {
        stk_provider *provider;
        const stk_credentials *c = NULL;
        const stk_provider_config config = {0};
        stk_fault_set(STK_FAULT_ALLOC, nth, false);
        stk_status status = stk_provider_open(&provider, &config, &err);
        while (status >= 0 && (status = stk_provider_get(provider, &c, &err)) == STK_AGAIN) usleep(1000);
        CHECK_MSG(status == STK_OK || status == STK_ERR_NOMEM, "%lu: %s", nth, err.message);
        failed += status == STK_ERR_NOMEM;
        stk_credentials_release(c);
        stk_provider_close(&provider);
        fired = stk_fault_seen(STK_FAULT_ALLOC) >= nth;
        stk_fault_set(STK_FAULT_ALLOC, 0, false);
        CHECK_INT(stk_alloc_bytes(STK_TAG_SOURCE), before);
    }
    CHECK(failed > 5);
#else
    fprintf(stderr, "%s: needs -Dfaults=true\n", test_name);
#endif
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(times), TEST(no_secret_is_left_in_freed_memory),
              TEST(one_request_for_all_readers), TEST(a_refused_generation_that_is_past_asks_nobody),
              TEST(closing_at_once_is_fine), TEST(memory_that_runs_out));
}
