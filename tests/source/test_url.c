/* Addresses: keys reach the wire as they are, nothing injects a header, private networks are known. */
#include "source/url.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "test.h"

static stk_error err;

static stk_str str(const char *text)
{
    return stk_str_of(text);
}

/* A view as text: of the last call. */
static const char *text_of(stk_str view)
{
    static char text[STK_URL_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)view.size_bytes, view.data);
    return text;
}

static const char *encoded(const char *bytes, size_t size)
{
    static char out[8192];
    stk_url_encode(out, sizeof out, (stk_str){bytes, size}, true);
    return out;
}

static void a_key_keeps_its_bytes(void)
{
    stk_url url;
    const char address[] = "s3://my-bucket/a b/+%20/\xc3\xa4//./../?x=1#y&\r\nHost: evil/";
    CHECK_OK(stk_url_parse(&url, str(address), &err), err);
    CHECK_INT(url.kind, STK_URL_S3);
    CHECK_STR(text_of(url.bucket), "my-bucket");
    CHECK_STR(text_of(url.key), "a b/+%20/\xc3\xa4//./../?x=1#y&\r\nHost: evil/");
    CHECK_STR(encoded(url.key.data, url.key.size_bytes),
              "a%20b/%2B%2520/%C3%A4//./../%3Fx%3D1%23y%26%0D%0AHost%3A%20evil/");
}

static void keys_begin_after_the_first_slash(void)
{
    stk_url url;
    CHECK_OK(stk_url_parse(&url, str("s3://b//k"), &err), err);
    CHECK_STR(text_of(url.key), "/k");
    CHECK_OK(stk_url_parse(&url, str("s3://b"), &err), err);
    CHECK_INT(url.key.size_bytes, 0);
    CHECK_OK(stk_url_parse(&url, str("S3://b/"), &err), err);
    CHECK_INT(url.key.size_bytes, 0);
}

static void every_byte_is_encoded_as_sigv4_says(void)
{
    for (int c = 0; c < 256; c++) {
        const char byte = (char)c;
        char expected[4];
        const bool stays =
            c < 128 && c && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/", c);
        snprintf(expected, sizeof expected, stays ? "%c" : "%%%02X", c);
        CHECK_STR(encoded(&byte, 1), expected);
    }
    char out[4];
    CHECK_INT(stk_url_encode(out, sizeof out, str("/"), false), 3);
    CHECK_STR(out, "%2F");
    CHECK_INT(stk_url_encode(out, 3, str("/"), false), 3);
    CHECK_STR(out, "");
}

static void a_query_is_sorted_by_its_encoded_names(void)
{
    char out[200];
    stk_query_pair pair[] = {{str("prefix"), str("a b/c")}, {str("list-type"), str("2")},
                             {str("delimiter"), str("")},   {str("z"), str("")},
                             {str("{"), str("+")},          {str("z"), str("!")}};
    stk_url_query(out, sizeof out, pair, 6);
    CHECK_STR(out, "%7B=%2B&delimiter=&list-type=2&prefix=a%20b%2Fc&z=&z=%21");
}

static void refuse(const char *address, const char *words)
{
    stk_url url;
    memset(&err, 0, sizeof err);
    CHECK_MSG(stk_url_parse(&url, str(address), &err) == STK_ERR_OPTION, "%s", address);
    CHECK_HAS(err.message, words);
}

static void bad_addresses_are_refused_in_words(void)
{
    refuse("/a/b", "s3://");
    refuse("s3:///key", "without a bucket");
    refuse("s3://a:b/key", "no bucket name");
    refuse("s3://a\r\nb/key", "no bucket name");
    refuse("s3://arn:aws:s3:x/key", "no bucket name");
    refuse("s3://-a/key", "no bucket name");
    refuse("s3://fast--use1-az4--x-s3/key", "directory bucket");
    refuse("http://user:hunter2@host/", "user name");
    CHECK(!strstr(err.message, "hunter2"));
    refuse("https://@host/", "user name");
    refuse("http:///x", "host");
    refuse("http://a b/", "host");
    refuse("http://a\rb/", "host");
    refuse("http://allowed\\.evil/", "host");
    refuse("http://h%6fst/", "host");
    refuse("http://b\xc3\xbc" "cher.example/", "xn--");
    refuse("http://host:/", "port");
    refuse("http://host:0/", "port");
    refuse("http://host:65536/", "port");
    refuse("http://host:99999999999999999999/", "port");
    refuse("http://host:8o/", "port");
    refuse("http://[::1/", "IPv6");
    refuse("http://[::1%lo]/", "IPv6");
    refuse("http://[1.2.3.4]/", "IPv6");
    refuse("http://[::1]x/", "port");
    char long_key[5 + 2 + STK_URL_KEY_BYTES + 2];
    memset(long_key, 'k', sizeof long_key);
    memcpy(long_key, "s3://b/", 7);
    long_key[sizeof long_key - 1] = 0;
    refuse(long_key, "1024");
    long_key[sizeof long_key - 2] = 0;
    stk_url url;
    CHECK_OK(stk_url_parse(&url, str(long_key), &err), err);
}

static const char *wire_of(const char *address)
{
    static char buffer[STK_URL_BYTES];
    stk_url url;
    stk_wire wire;
    CHECK_OK(stk_url_parse(&url, str(address), &err), err);
    CHECK_OK(stk_url_wire(&wire, buffer, sizeof buffer, &url, &err), err);
    CHECK(wire.path.size_bytes && wire.path.data[0] == '/');
    return wire.url;
}

static void a_url_goes_out_as_written(void)
{
    CHECK_STR(wire_of("https://h.example"), "https://h.example/");
    CHECK_STR(wire_of("HTTPS://h.example:443/a%2Fb/./c?x=%20&y=a+b#part"),
              "https://h.example/a%2Fb/./c?x=%20&y=a+b");
    CHECK_STR(wire_of("http://h.example:8080?q"), "http://h.example:8080/?q");
    CHECK_STR(wire_of("http://[::1]:81/"), "http://[::1]:81/");
    CHECK_STR(wire_of("http://h/a b\xc3\xa4\r\nX: y?p\t"), "http://h/a%20b%C3%A4%0D%0AX:%20y?p%09");
    CHECK_STR(wire_of("http://h/x#?secret"), "http://h/x");
}

static void what_is_shown_holds_no_secret(void)
{
    char out[64];
    CHECK_STR(stk_url_show(out, sizeof out, str("https://u:p@w@h/a?X-Amz-Signature=1")), "https://h/a");
    CHECK_STR(stk_url_show(out, sizeof out, str("https://h/a#?b")), "https://h/a");
    CHECK_STR(stk_url_show(out, sizeof out, str("https://h?b")), "https://h");
    CHECK_STR(stk_url_show(out, sizeof out, str("s3://b/a?\n@b")), "s3://b/a??@b");
    CHECK_STR(stk_url_show(out, 8, str("s3://b/abc")), "s3://b/");
}

/* endpoint, region, addressing, bucket, key -> URL and Host */
static void expect_object(const char *endpoint, const char *region, stk_addressing addressing,
                          const char *bucket, const char *key, const char *url, const char *host)
{
    static char buffer[STK_URL_BYTES];
    stk_endpoint e;
    stk_wire wire;
    CHECK_OK(stk_endpoint_init(&e, endpoint, region, addressing, &err), err);
    CHECK_OK(stk_endpoint_wire(&wire, buffer, sizeof buffer, &e, str(bucket), str(key), str(""), &err), err);
    CHECK_STR(wire.url, url);
    CHECK_STR(text_of(wire.host), host);
    CHECK_STR(text_of(wire.path), strchr(strstr(url, "//") + 2, '/'));
    CHECK_INT(wire.query.size_bytes, 0);
}

static void objects_are_asked_for_in_the_right_style(void)
{
    const stk_addressing any = STK_ADDRESSING_AUTO, path = STK_ADDRESSING_PATH, host = STK_ADDRESSING_VIRTUAL;
    expect_object(NULL, "eu-central-1", any, "data", "a b", "https://data.s3.eu-central-1.amazonaws.com/a%20b",
                  "data.s3.eu-central-1.amazonaws.com");
    expect_object(NULL, "eu-central-1", path, "data", "k", "https://s3.eu-central-1.amazonaws.com/data/k",
                  "s3.eu-central-1.amazonaws.com");
    expect_object(NULL, "cn-north-1", any, "data", "k", "https://data.s3.cn-north-1.amazonaws.com.cn/k",
                  "data.s3.cn-north-1.amazonaws.com.cn");
    /* A name with dots breaks the certificate, one with upper case the host. */
    expect_object(NULL, "us-east-1", any, "my.data", "k", "https://s3.us-east-1.amazonaws.com/my.data/k",
                  "s3.us-east-1.amazonaws.com");
    expect_object(NULL, "us-east-1", any, "Data", "k", "https://s3.us-east-1.amazonaws.com/Data/k",
                  "s3.us-east-1.amazonaws.com");
    expect_object("http://127.0.0.1:9000/", "us-east-1", any, "data", "/./a//", "http://127.0.0.1:9000/data//./a//",
                  "127.0.0.1:9000");
    expect_object("http://127.0.0.1:9000", "us-east-1", host, "data", "k", "http://127.0.0.1:9000/data/k",
                  "127.0.0.1:9000");
    expect_object("http://[::1]:9000", "us-east-1", host, "data", "k", "http://[::1]:9000/data/k", "[::1]:9000");
    expect_object("https://store.example:443//", "us-east-1", any, "data", "", "https://store.example/data",
                  "store.example");
    expect_object("https://store.example", "us-east-1", host, "data", "", "https://data.store.example/",
                  "data.store.example");
    expect_object("https://store.example", "us-east-1", host, "my.data", "k",
                  "https://store.example/my.data/k", "store.example");
    expect_object("http://store.example", "us-east-1", host, "my.data", "k", "http://my.data.store.example/k",
                  "my.data.store.example");
    expect_object("https://x.example/storage/v1/s3/", "us-east-1", any, "data", "k",
                  "https://x.example/storage/v1/s3/data/k", "x.example");
}

static void no_key_can_inject_a_header(void)
{
    char key[STK_URL_KEY_BYTES], buffer[STK_URL_BYTES];
    for (size_t i = 0; i < sizeof key; i++) key[i] = (char)(i * 37);
    stk_endpoint e;
    stk_wire wire;
    CHECK_OK(stk_endpoint_init(&e, NULL, "us-east-1", STK_ADDRESSING_AUTO, &err), err);
    stk_query_pair pair = {str("a\r\nb"), str("c\0d")};
    char query[64];
    stk_url_query(query, sizeof query, &pair, 1);
    CHECK_OK(stk_endpoint_wire(&wire, buffer, sizeof buffer, &e, str("data"), (stk_str){key, sizeof key},
                               str(query), &err),
             err);
    CHECK_STR(text_of(wire.query), "a%0D%0Ab=c");
    for (const char *c = wire.url; *c; c++) CHECK_MSG(*c > 0x20 && *c < 0x7f, "byte %d", *c);
    CHECK_INT(
        stk_endpoint_wire(&wire, buffer, 100, &e, str("data"), (stk_str){key, sizeof key}, str(query), &err),
        STK_ERR_OPTION);
}

static void a_redirect_changes_the_region_only(void)
{
    char buffer[STK_URL_BYTES];
    stk_endpoint e;
    stk_wire wire;
    CHECK_OK(stk_endpoint_init(&e, NULL, "us-east-1", STK_ADDRESSING_AUTO, &err), err);
    CHECK_INT(stk_endpoint_set_region(&e, str("evil.example/"), &err), STK_ERR_NETWORK);
    CHECK_INT(stk_endpoint_set_region(&e, str("123"), &err), STK_ERR_NETWORK);
    CHECK_INT(stk_endpoint_set_region(&e, str("-x"), &err), STK_ERR_NETWORK);
    CHECK_INT(stk_endpoint_set_region(&e, str(""), &err), STK_ERR_NETWORK);
    CHECK_OK(stk_endpoint_set_region(&e, str("eu-west-3"), &err), err);
    CHECK_OK(stk_endpoint_wire(&wire, buffer, sizeof buffer, &e, str("data"), str("k"), str(""), &err), err);
    CHECK_STR(wire.url, "https://data.s3.eu-west-3.amazonaws.com/k");
    CHECK_OK(stk_endpoint_init(&e, "http://h:1", "us-east-1", STK_ADDRESSING_AUTO, &err), err);
    CHECK_OK(stk_endpoint_set_region(&e, str("eu-west-3"), &err), err);
    CHECK_OK(stk_endpoint_wire(&wire, buffer, sizeof buffer, &e, str("data"), str("k"), str(""), &err), err);
    CHECK_STR(wire.url, "http://h:1/data/k");
}

static void bad_endpoints_are_refused(void)
{
    stk_endpoint e;
    static const char *const bad[] = {"host:9000", "s3://b", "http://h/?x=1", "http://u@h", "", "http://h\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(stk_endpoint_init(&e, bad[i], "us-east-1", STK_ADDRESSING_AUTO, &err) == STK_ERR_OPTION,
                  "%s", bad[i]);
    CHECK_INT(stk_endpoint_init(&e, NULL, "us east", STK_ADDRESSING_AUTO, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "region");
}

static void bucket_names(void)
{
    CHECK(stk_bucket_is_hostable(str("abc"), false) && stk_bucket_is_hostable(str("1-a"), false));
    CHECK(!stk_bucket_is_hostable(str("ab"), false) && !stk_bucket_is_hostable(str("a_b"), false));
    CHECK(!stk_bucket_is_hostable(str("-ab"), false) && !stk_bucket_is_hostable(str("ab-"), false));
    CHECK(!stk_bucket_is_hostable(str("a.b"), false) && stk_bucket_is_hostable(str("a.b"), true));
    CHECK(!stk_bucket_is_hostable(str("a..b"), true) && !stk_bucket_is_hostable(str("a.-b"), true));
    CHECK(!stk_bucket_is_hostable(str("a-.b"), true) && !stk_bucket_is_hostable(str("10.0.0.1"), true));
    CHECK(stk_bucket_is_valid(str("A_b.c")) && !stk_bucket_is_valid(str("..")) && !stk_bucket_is_valid(str("")));
}

static const char *kind_of(const char *address)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    const char *kind;
    if (inet_pton(AF_INET, address, &in.sin_addr) == 1) kind = stk_address_private((struct sockaddr *)&in);
    else if (inet_pton(AF_INET6, address, &in6.sin6_addr) == 1) kind = stk_address_private((struct sockaddr *)&in6);
    else kind = "not an address";
    return kind ? kind : "public";
}

static void private_addresses_are_known(void)
{
    static const char *const known[][2] = {
        {"127.0.0.1", "loopback"},      {"127.255.255.254", "loopback"}, {"10.0.0.1", "private"},
        {"172.16.0.1", "private"},      {"172.31.255.255", "private"},   {"172.32.0.1", "public"},
        {"172.15.255.255", "public"},   {"192.168.1.1", "private"},      {"192.169.0.1", "public"},
        {"169.254.169.254", "metadata"}, {"169.254.170.2", "link-local"}, {"169.253.0.1", "public"},
        {"0.0.0.0", "unspecified"},     {"0.1.2.3", "unspecified"},      {"100.64.0.1", "shared"},
        {"100.127.255.255", "shared"},  {"100.128.0.1", "public"},       {"100.100.100.200", "metadata"},
        {"168.63.129.16", "metadata"},  {"168.63.129.17", "public"},     {"192.0.0.192", "reserved"},
        {"198.18.0.1", "reserved"},     {"198.20.0.1", "public"},        {"203.0.113.9", "reserved"},
        {"224.0.0.1", "multicast"},     {"255.255.255.255", "reserved"}, {"8.8.8.8", "public"},
        {"52.216.1.1", "public"},       {"11.0.0.1", "public"},          {"126.0.0.1", "public"},
        {"::1", "loopback"},            {"::", "unspecified"},           {"::ffff:127.0.0.1", "loopback"},
        {"::ffff:10.1.1.1", "private"}, {"::ffff:8.8.8.8", "public"},    {"::ffff:169.254.169.254", "metadata"},
        {"::127.0.0.1", "reserved"},    {"::ffff:0:10.0.0.1", "private"}, {"fe80::1", "link-local"},
        {"febf::1", "link-local"},      {"fec0::1", "private"},          {"fc00::1", "private"},
        {"fdff::1", "private"},         {"fd00:ec2::254", "metadata"},   {"fd00:ec2::23", "private"},
        {"ff02::1", "multicast"},       {"2001:db8::1", "reserved"},     {"2001::1", "tunnelled"},
        {"2002:7f00:1::", "loopback"},  {"2002:808:808::", "public"},    {"64:ff9b::a00:1", "private"},
        {"64:ff9b::808:808", "public"}, {"64:ff9b:1::808:808", "private"}, {"2600:1f18::1", "public"},
        {"100::1", "reserved"},         {"4000::1", "reserved"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK_MSG(strcmp(kind_of(known[i][0]), known[i][1]) == 0, "%s is %s", known[i][0], kind_of(known[i][0]));
    const struct sockaddr other = {.sa_family = AF_UNIX};
    CHECK_STR(stk_address_private(&other), "unknown");
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_key_keeps_its_bytes), TEST(keys_begin_after_the_first_slash),
              TEST(every_byte_is_encoded_as_sigv4_says), TEST(a_query_is_sorted_by_its_encoded_names),
              TEST(bad_addresses_are_refused_in_words), TEST(a_url_goes_out_as_written),
              TEST(what_is_shown_holds_no_secret), TEST(objects_are_asked_for_in_the_right_style),
              TEST(no_key_can_inject_a_header), TEST(a_redirect_changes_the_region_only),
              TEST(bad_endpoints_are_refused), TEST(bucket_names), TEST(private_addresses_are_known));
}
