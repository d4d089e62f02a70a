/* sign_probe.c - for tests only: requests as JSON lines in, the URL and the headers that sign it as JSON lines out.
 *
 *     {"endpoint": null, "region": "us-east-1", "addressing": 0, "bucket": "b", "key_hex": "6b", "query": [["a", "b"]],
 *      "headers": [["x-amz-meta-a", "1"]], "method": "GET", "service": "s3", "payload": null, "time": 0,
 *      "access": "A", "secret": "S", "token": ""}
 *
 * test_sigv4_botocore.py compares what it prints with botocore. */
#include <jansson.h>

#include "source/sigv4.h"
#include "test.h"

static stk_error err;

static const char *text_at(const json_t *from, const char *key)
{
    return json_string_value(json_object_get(from, key));
}

/* The strings of a pair may hold any character but NUL. */
static size_t pairs_of(const json_t *list, stk_query_pair *pair, size_t most)
{
    size_t count = 0, i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        CHECK(count < most);
        pair[count++] = (stk_query_pair){stk_str_of(json_string_value(json_array_get(item, 0))),
                                         stk_str_of(json_string_value(json_array_get(item, 1)))};
    }
    return count;
}

static size_t bytes_of(char *out, size_t most, const char *hex)
{
    size_t count = 0;
    for (unsigned byte; sscanf(hex + 2 * count, "%2x", &byte) == 1 && count < most;) out[count++] = (char)byte;
    return count;
}

static json_t *sign(stk_signer *signer, const json_t *from)
{
    static char key[STK_URL_KEY_BYTES], query[65536], url[131072], buffer[131072];
    stk_query_pair pair[32], header_pair[STK_SIGN_HEADERS];
    stk_header header[STK_SIGN_HEADERS];
    const size_t pair_count = pairs_of(json_object_get(from, "query"), pair, 32);
    const size_t header_count = pairs_of(json_object_get(from, "headers"), header_pair, STK_SIGN_HEADERS);
    for (size_t i = 0; i < header_count; i++)
        header[i] = (stk_header){header_pair[i].name.data, header_pair[i].value};
    const stk_str key_text = {key, bytes_of(key, sizeof key, text_at(from, "key_hex"))};
    const size_t query_bytes = stk_url_query(query, sizeof query, pair, pair_count);
    CHECK(query_bytes < sizeof query);

    stk_endpoint endpoint;
    stk_wire wire;
    stk_signed lines;
    CHECK_OK(stk_endpoint_init(&endpoint, text_at(from, "endpoint"), text_at(from, "region"),
                               (stk_addressing)json_integer_value(json_object_get(from, "addressing")), &err), err);
    CHECK_OK(stk_endpoint_wire(&wire, url, sizeof url, &endpoint, stk_str_of(text_at(from, "bucket")), key_text,
                               (stk_str){query, query_bytes}, &err), err);
    static uint64_t generation; /* each request may have credentials of its own */
    const stk_credentials who = {.generation = ++generation, .access_key = text_at(from, "access"),
                                 .secret_key = text_at(from, "secret"), .session_token = text_at(from, "token")};
    const stk_sign_request request = {.method = text_at(from, "method"),
                                      .host = wire.host,
                                      .path = wire.path,
                                      .query = wire.query,
                                      .region = endpoint.region,
                                      .service = text_at(from, "service"),
                                      .credentials = &who,
                                      .payload_sha256 = text_at(from, "payload"),
                                      .header = header,
                                      .header_count = header_count,
                                      .unix_seconds = json_integer_value(json_object_get(from, "time"))};
    CHECK_OK(stk_sign(signer, &lines, buffer, sizeof buffer, &request, &err), err);
    json_t *const out = json_array();
    for (size_t i = 0; i < lines.count; i++) json_array_append_new(out, json_string(lines.line[i]));
    return json_pack("{s:s, s:o}", "url", wire.url, "lines", out);
}

int main(void)
{
    stk_signer *signer;
    char *line = NULL;
    size_t capacity = 0;
    CHECK_OK(stk_signer_create(&signer, &err), err);
    while (getline(&line, &capacity, stdin) > 0) {
        json_t *const from = json_loads(line, 0, NULL);
        CHECK(from != NULL);
        json_t *const out = sign(signer, from);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(out);
        json_decref(from);
    }
    free(line);
    stk_signer_destroy(signer);
    return 0;
}
