/* fuzz_identity.c - hostile answers of the services that give credentials, and hostile addresses: what is taken can stand
 * in a header or a request line, what is refused says so and repeats no secret.
 *
 * An input is a letter that chooses the parser, and the text. */
#include <stdlib.h>

#include "source/credential_chain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char token[] = "eyJhbGciOiJSUzI1NiJ9.a-web-identity-token-that-no-message-may-repeat";

static void require(bool condition)
{
    if (!condition) abort();
}

static void check_sent(const char *text)
{
    for (; *text; text++) require(*text > 0x20 && *text < 0x7f);
}

static void check_credentials(stk_status status, const stk_credentials *c, const stk_error *err)
{
    require((status == STK_OK) == (c != NULL));
    if (!c) {
        require(status < 0 && err->status == status && err->message[0] && !strstr(err->message, "token-that-no"));
        return;
    }
    require(c->access_key[0] && c->secret_key[0] && c->generation && !c->anonymous);
    check_sent(c->access_key);
    check_sent(c->session_token);
    stk_credentials_release(c);
}

static void check_url(stk_str address)
{
    static const char *const endpoint[] = {NULL, "http://[::1]:9000/base/"};
    char buffer[STK_URL_BYTES], shown[64];
    stk_url url;
    stk_wire wire;
    stk_error err;
    require(strlen(stk_url_show(shown, sizeof shown, address)) < sizeof shown);
    if (stk_url_parse(&url, address, &err) < 0) return;
    if (url.kind != STK_URL_S3) {
        if (stk_url_wire(&wire, buffer, sizeof buffer, &url, &err) == STK_OK) check_sent(wire.url);
        return;
    }
    for (int i = 0; i < 2; i++) {
        stk_endpoint e;
        require(stk_endpoint_init(&e, endpoint[i], "us-east-1", (stk_addressing)(address.size_bytes % 3),
                                  &err) == STK_OK);
        require(stk_endpoint_wire(&wire, buffer, sizeof buffer, &e, url.bucket, url.key, (stk_str){"", 0},
                                  &err) == STK_OK);
        check_sent(wire.url);
        require(wire.path.data[0] == '/' && wire.path.data + wire.path.size_bytes <= wire.url + strlen(wire.url));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const stk_credentials *c = NULL;
    stk_error err;
    memset(&err, 0, sizeof err);
    if (!size) return 0;
    char *const text = malloc(size);
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    int64_t time;
    stk_status status = STK_AGAIN;
    switch (data[0]) {
    case 'j': status = stk_credentials_of_json(&c, text, size - 1, "a program", &err); break;
    case 'x': status = stk_credentials_of_sts(&c, 200, text, size - 1, token, &err); break;
    case 'e': status = stk_credentials_of_sts(&c, 400, text, size - 1, token, &err); break;
    case 't': (void)stk_credentials_time(&time, text); break;
    default: check_url((stk_str){text, size - 1}); break;
    }
    if (status != STK_AGAIN) check_credentials(status, c, &err);
    free(text);
    return 0;
}
