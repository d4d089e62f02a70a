/* Signatures that AWS published: the requests of its SigV4 test suite and of the S3 documentation, written anew with
 * the signatures as facts.  test_sigv4_botocore.py compares thousands of random requests with botocore. */
#include "source/sigv4.h"

#include "test.h"

#define SUITE_KEY "AKIDEXAMPLE"
#define SUITE_SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define S3_KEY "AKIAIOSFODNN7EXAMPLE"
#define S3_SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

static stk_error err;
static stk_signer *signer;
static char buffer[STK_SIGN_BYTES];
static stk_signed result;

static stk_str str(const char *text)
{
    return stk_str_of(text);
}

static const char *line_of(const char *name)
{
    for (size_t i = 0; i < result.count; i++)
        if (strncmp(result.line[i], name, strlen(name)) == 0 && result.line[i][strlen(name)] == ':')
            return result.line[i] + strlen(name) + 2;
    return "";
}

static const char *signature_of(const stk_sign_request *request)
{
    CHECK_OK(stk_sign(signer, &result, buffer, sizeof buffer, request, &err), err);
    const char *const at = strstr(line_of("Authorization"), "Signature=");
    CHECK(at != NULL);
    return at + strlen("Signature=");
}

/* 2015-08-30T12:36:00Z, host example.amazonaws.com, service "service": the suite's setting. */
static stk_sign_request suite(const char *method, const char *path, const char *query)
{
    static const stk_credentials who = {
        .generation = 1, .access_key = SUITE_KEY, .secret_key = SUITE_SECRET, .session_token = ""};
    return (stk_sign_request){.method = method,
                              .host = str("example.amazonaws.com"),
                              .path = str(path),
                              .query = str(query),
                              .region = "us-east-1",
                              .service = "service",
                              .credentials = &who,
                              .unix_seconds = 1440938160};
}

static void the_suite_signs(const char *method, const char *path, const char *query, const char *signature)
{
    const stk_sign_request request = suite(method, path, query);
    CHECK_STR(signature_of(&request), signature);
}

static void the_published_suite(void)
{
    the_suite_signs("GET", "/", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    the_suite_signs("POST", "/", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    the_suite_signs("GET", "/", "Param1=value1&Param2=value2",
                    "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
    the_suite_signs("GET", "/", "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz="
                                "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                    "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197");
    the_suite_signs("GET", "/", "%E1%88%B4=bar",
                    "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04");
    the_suite_signs("GET", "/%E1%88%B4", "", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
    the_suite_signs("GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "",
                    "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f");
}

static void headers_are_sorted_and_trimmed(void)
{
    stk_sign_request request = suite("GET", "/", "");
    const stk_header trimmed[] = {{"my-header1", str(" value1")}, {"my-header2", str(" \"a   b   c\"")}};
    request.header = trimmed;
    request.header_count = 2;
    CHECK_STR(signature_of(&request), "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
    const stk_header turned[] = {trimmed[1], trimmed[0]};
    request.header = turned;
    CHECK_STR(signature_of(&request), "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
}

/* The examples of "Signature Calculations for the Authorization Header", bucket examplebucket, 2013-05-24T00:00:00Z. */
static stk_sign_request s3(const char *method, const char *path, const char *query)
{
    static const stk_credentials who = {
        .generation = 2, .access_key = S3_KEY, .secret_key = S3_SECRET, .session_token = ""};
    return (stk_sign_request){.method = method,
                              .host = str("examplebucket.s3.amazonaws.com"),
                              .path = str(path),
                              .query = str(query),
                              .region = "us-east-1",
                              .service = "s3",
                              .credentials = &who,
                              .unix_seconds = 1369353600};
}

static void the_examples_of_the_s3_documentation(void)
{
    stk_sign_request request = s3("GET", "/test.txt", "");
    const stk_header range = {"range", str("bytes=0-9")};
    request.header = &range;
    request.header_count = 1;
    CHECK_STR(signature_of(&request), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    CHECK_STR(line_of("Authorization"),
              "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
              "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
              "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    CHECK_STR(line_of("x-amz-date"), "20130524T000000Z");
    CHECK_STR(line_of("x-amz-content-sha256"), STK_SHA256_EMPTY);
    CHECK_STR(line_of("host"), "examplebucket.s3.amazonaws.com");
    CHECK_STR(line_of("range"), "bytes=0-9");

    char payload[65];
    request = s3("PUT", "/test%24file.text", "");
    const stk_header put[] = {{"date", str("Fri, 24 May 2013 00:00:00 GMT")},
                              {"x-amz-storage-class", str("REDUCED_REDUNDANCY")}};
    CHECK_OK(stk_signer_sha256(signer, payload, "Welcome to Amazon S3.", 21, &err), err);
    request.header = put;
    request.header_count = 2;
    request.payload_sha256 = payload;
    CHECK_STR(signature_of(&request), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");

    request = s3("GET", "/", "lifecycle=");
    CHECK_STR(signature_of(&request), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    request = s3("GET", "/", "max-keys=2&prefix=J");
    CHECK_STR(signature_of(&request), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

/* Nine regions through a cache of eight keys, and a generation that changes under the same date. */
static void keys_are_found_again_and_made_anew(void)
{
    char first[9][65], region[16];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 9; i++) {
            stk_sign_request request = s3("GET", "/k", "");
            snprintf(region, sizeof region, "region-%d", i);
            request.region = region;
            const char *const signature = signature_of(&request);
            if (round == 0) snprintf(first[i], sizeof first[i], "%s", signature);
            else CHECK_STR(signature, first[i]);
            for (int j = 0; j < i; j++) CHECK(strcmp(first[i], first[j]) != 0);
        }
    stk_sign_request request = s3("GET", "/k", "");
    request.region = "region-8";
    stk_credentials other = *request.credentials;
    other.secret_key = "another";
    other.generation = 3;
    request.credentials = &other;
    CHECK(strcmp(signature_of(&request), first[8]) != 0);
}

static void a_long_token_is_sent_and_signed(void)
{
    static char token[16 * 1024 + 1];
    memset(token, 'T', sizeof token - 1);
    stk_sign_request request = s3("GET", "/k", "");
    char without[65];
    snprintf(without, sizeof without, "%s", signature_of(&request));
    CHECK_STR(line_of("x-amz-security-token"), "");
    stk_credentials temporary = *request.credentials;
    temporary.session_token = token;
    request.credentials = &temporary;
    CHECK(strcmp(signature_of(&request), without) != 0);
    CHECK_STR(line_of("x-amz-security-token"), token);
    CHECK_HAS(line_of("Authorization"), "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,");
}

static void anonymous_requests_are_not_signed(void)
{
    stk_sign_request request = s3("GET", "/k", "");
    const stk_credentials nobody = {
        .generation = 4, .anonymous = true, .access_key = "", .secret_key = "", .session_token = ""};
    const stk_header payer = {"x-amz-request-payer", str("requester")};
    request.credentials = &nobody;
    request.header = &payer;
    request.header_count = 1;
    CHECK_OK(stk_sign(signer, &result, buffer, sizeof buffer, &request, &err), err);
    CHECK_INT(result.count, 2);
    CHECK_STR(result.line[0], "host: examplebucket.s3.amazonaws.com");
    CHECK_STR(result.line[1], "x-amz-request-payer: requester");
}

static void what_cannot_be_signed_is_refused(void)
{
    stk_sign_request request = s3("GET", "/k", "");
    CHECK_OK(stk_sign(signer, &result, buffer, sizeof buffer, &request, &err), err);
    size_t need = 0;
    for (size_t i = 0; i < result.count; i++) need += strlen(result.line[i]) + 1;
    for (size_t capacity = 0; capacity < need; capacity++)
        CHECK_INT(stk_sign(signer, &result, buffer, capacity, &request, &err), STK_ERR_USAGE);
    CHECK_OK(stk_sign(signer, &result, buffer, need, &request, &err), err);
    const stk_header evil = {"x-amz-meta-a", str("b\r\nX-Evil: 1")};
    request.header = &evil;
    request.header_count = 1;
    CHECK_INT(stk_sign(signer, &result, buffer, sizeof buffer, &request, &err), STK_ERR_USAGE);
    request = s3("GET", "/k\r\n", "");
    CHECK_INT(stk_sign(signer, &result, buffer, sizeof buffer, &request, &err), STK_ERR_USAGE);
    request = s3("GET", "/k", "");
    request.region = "no region";
    CHECK_INT(stk_sign(signer, &result, buffer, sizeof buffer, &request, &err), STK_ERR_USAGE);
    request = s3("GET", "/k", "");
    request.header_count = STK_SIGN_HEADERS + 1;
    CHECK_INT(stk_sign(signer, &result, buffer, sizeof buffer, &request, &err), STK_ERR_USAGE);
    request = s3("GET", "/k", "");
    request.unix_seconds = INT64_MAX;
    CHECK_INT(stk_sign(signer, &result, buffer, sizeof buffer, &request, &err), STK_ERR_USAGE);
    CHECK_HAS(err.message, "clock");
}

int main(int argc, char **argv)
{
    CHECK_OK(stk_signer_create(&signer, &err), err);
    const test_entry entries[] = {TEST(the_published_suite),
                                  TEST(headers_are_sorted_and_trimmed),
                                  TEST(the_examples_of_the_s3_documentation),
                                  TEST(keys_are_found_again_and_made_anew),
                                  TEST(a_long_token_is_sent_and_signed),
                                  TEST(anonymous_requests_are_not_signed),
                                  TEST(what_cannot_be_signed_is_refused)};
    const int status = test_run(entries, sizeof entries / sizeof *entries, argc, argv);
    stk_signer_destroy(signer);
    return status;
}
