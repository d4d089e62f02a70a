/* ask.c - libcurl's easy interface with everything optional switched off. */
#include "source/ask.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>

#include "source/url.h"

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_status;

static void start_curl(void)
{
    curl_status = curl_global_init(CURL_GLOBAL_DEFAULT);
}

bool stk_ask_pause(int stop_fd, int ms)
{
    struct pollfd wait = {.fd = stop_fd, .events = POLLIN};
    return poll(&wait, 1, ms) <= 0; /* a signal only makes the pause shorter */
}

/* Addresses that answer without encryption: the own machine, and the metadata services inside it. */
static bool answers_plainly(const struct sockaddr *address)
{
    static const char *const fixed[] = {"169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254",
                                        "fd00:ec2::23"};
    const char *const kind = stk_address_private(address);
    char text[INET6_ADDRSTRLEN] = "";
    if (!kind) return false;
    if (strcmp(kind, "loopback") == 0) return true;
    const void *const in =
        address->sa_family == AF_INET6
            ? (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr
            : (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
    if (!inet_ntop(address->sa_family, in, text, sizeof text)) return false;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (strcmp(text, fixed[i]) == 0) return true;
    return false;
}

/* One request under way. */
typedef struct transfer {
    const stk_ask *ask;
    stk_answer_text *answer;
    bool plain, refused, too_large;
} transfer;

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    transfer *const t = context;
    if (t->plain && !answers_plainly(&address->addr)) {
        t->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t take_bytes(char *data, size_t one, size_t size_bytes, void *context)
{
    transfer *const t = context;
    if (stk_buffer_append(&t->answer->text, data, size_bytes, NULL) == STK_OK) return size_bytes;
    t->too_large = true;
    return 0;
}

static int look_for_stop(void *context, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
    const transfer *const t = context;
    return !stk_ask_pause(t->ask->stop_fd, 0);
}

static bool set_options(CURL *curl, transfer *t, const char *url, const struct curl_slist *header)
{
    const stk_ask *const ask = t->ask;
    int bad = 0;
#define SET(option, value) bad |= curl_easy_setopt(curl, option, value) != CURLE_OK
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_CUSTOMREQUEST, ask->method);
    if (ask->body) SET(CURLOPT_POSTFIELDS, ask->body);
    if (header) SET(CURLOPT_HTTPHEADER, header);
    if (ask->ca) SET(CURLOPT_CAINFO, ask->ca);
    if (t->plain) SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_TIMEOUT_MS, (long)ask->timeout_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)ask->timeout_ms);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, t);
    SET(CURLOPT_WRITEFUNCTION, take_bytes);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, look_for_stop);
    SET(CURLOPT_XFERINFODATA, t);
#undef SET
    return !bad;
}

static stk_status explain(const transfer *t, CURLcode code, stk_error *err)
{
    char shown[128];
    stk_url_show(shown, sizeof shown, stk_str_of(t->ask->url));
    if (t->refused)
        return stk_fail(err, STK_ERR_OPTION,
                        "%s is not asked for credentials: plain http is for this machine and the fixed "
                        "metadata addresses; use https",
                        shown);
    if (t->too_large)
        return stk_fail(err, STK_ERR_NETWORK, "%s answered with more than %d KiB", shown,
                        STK_ASK_BYTES / 1024);
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return stk_fail(err, STK_ERR_INTERRUPTED, "asking %s was stopped", shown);
    if (code == CURLE_OUT_OF_MEMORY) return stk_fail(err, STK_ERR_NOMEM, "out of memory: asking %s", shown);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return stk_fail(err, STK_ERR_NETWORK, "%s did not answer within %d ms", shown, t->ask->timeout_ms);
    return stk_fail(err, STK_ERR_NETWORK, "%s did not answer: %s", shown, curl_easy_strerror(code));
}

stk_status stk_ask_send(stk_answer_text *out, const stk_ask *ask, stk_error *err)
{
    *out = (stk_answer_text){0};
    stk_buffer_init(&out->text, STK_TAG_SOURCE, STK_ASK_BYTES);
    STK_TRY(stk_buffer_reserve(&out->text, STK_ASK_BYTES, err)); /* growing would leave copies of secrets */
    stk_url url;
    stk_wire wire;
    char buffer[STK_URL_BYTES];
    STK_TRY(stk_url_parse(&url, stk_str_of(ask->url), err));
    if (url.kind == STK_URL_S3) return stk_fail(err, STK_ERR_OPTION, "credentials are asked for by http or https");
    STK_TRY(stk_url_wire(&wire, buffer, sizeof buffer, &url, err));
    pthread_once(&curl_once, start_curl);

    transfer t = {.ask = ask, .answer = out, .plain = url.kind == STK_URL_HTTP};
    struct curl_slist *header = NULL;
    CURL *const curl = curl_status == CURLE_OK ? curl_easy_init() : NULL;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    bool ready = curl != NULL;
    for (int i = 0; ready && i < STK_ASK_HEADERS && ask->header[i]; i++) {
        struct curl_slist *const longer = curl_slist_append(header, ask->header[i]);
        ready = longer != NULL;
        if (longer) header = longer;
    }
    if (ready && set_options(curl, &t, wire.url, header)) code = curl_easy_perform(curl);
    long status = 0;
    if (code == CURLE_OK) curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    out->status = (int)status;
    curl_easy_cleanup(curl);
    for (struct curl_slist *h = header; h; h = h->next) OPENSSL_cleanse(h->data, strlen(h->data)); /* tokens */
    curl_slist_free_all(header);
    if (code == CURLE_OK && stk_buffer_append(&out->text, "", 1, err) == STK_OK) {
        out->text.size_bytes--;
        return STK_OK;
    }
    return code == CURLE_OK ? STK_ERR_NETWORK : explain(&t, code, err);
}

void stk_ask_done(stk_answer_text *answer)
{
    if (answer->text.data) OPENSSL_cleanse(answer->text.data, answer->text.capacity_bytes);
    stk_buffer_deinit(&answer->text);
}
