/* test_net.c - the parts of the client by themselves: heads, error bodies, lists, checksums, pace, peers. */
#include "test.h"

#include "source/answer.h"
#include "source/pace.h"
#include "source/peers.h"

/* --- heads --- */

static stk_answer head_of(const char *text)
{
    stk_answer a;
    stk_answer_begin(&a);
    while (*text) {
        const size_t length = strcspn(text, "\n");
        stk_answer_line(&a, (stk_str){text, length});
        text += length + (text[length] == '\n');
    }
    return a;
}

static void a_head_says_what_it_says(void)
{
    stk_answer a = head_of("HTTP/1.1 206 Partial Content\nContent-Length: 100\ncontent-range:  bytes 0-99/5000 \nETAG: \"x\"\n"
                           "Date: Mon, 30 Nov 2026 11:33:17 GMT\nRetry-After: 7\nx-amz-bucket-region: eu-west-1\n");
    CHECK(a.status == 206 && a.has_length && a.has_range && !a.malformed);
    CHECK(a.length_bytes == 100 && a.first == 0 && a.last == 99 && a.total_bytes == 5000);
    CHECK_STR(a.etag, "\"x\"");
    CHECK_STR(a.region, "eu-west-1");
    CHECK_INT(a.date_s, 1796038397);
    CHECK_INT(a.retry_after_s, 7);
    /* Another head starts over. */
    a = head_of("HTTP/1.1 100 Continue\nETag: \"old\"\nHTTP/1.1 200 OK\nContent-Length: 5\n");
    CHECK(a.status == 200 && a.etag[0] == 0 && a.length_bytes == 5 && a.retry_after_s == -1);
    a = head_of("HTTP/1.1 416 x\nContent-Range: bytes */77\n");
    CHECK(a.has_range && a.first > a.last && a.total_bytes == 77);
    a = head_of("HTTP/1.1 206 x\nContent-Range: bytes 5-9/*\n");
    CHECK(a.has_range && a.total_bytes == STK_UNKNOWN_BYTES);
    a = head_of("HTTP/1.1 503 x\nDate: Mon, 30 Nov 2026 11:33:17 GMT\nRetry-After: Mon, 30 Nov 2026 11:33:27 GMT\n");
    CHECK_INT(a.retry_after_s, 10);
    a = head_of("HTTP/1.1 503 x\nRetry-After: 99999999\n");
    CHECK_INT(a.retry_after_s, 3600);
}

static void what_contradicts_itself_is_malformed(void)
{
    static const char *const heads[] = {
        "HTTP/1.1 200 OK\nContent-Length: 5x\n",           "HTTP/1.1 200 OK\nContent-Length: -5\n",
        "HTTP/1.1 200 OK\nContent-Length: 99999999999999999999999\n", "HTTP/1.1 206 OK\nContent-Range: bytes 9-5/10\n",
        "HTTP/1.1 206 OK\nContent-Range: bytes 0-10/10\n", "HTTP/1.1 206 OK\nContent-Range: bytes 0-18446744073709551615/*\n",
        "HTTP/1.1 206 OK\nContent-Range: lines 0-9/10\n",  "HTTP/1.1 206 OK\nContent-Range: bytes 0-9/10 or so\n",
        "HTTP/1.1 206 OK\nContent-Range: bytes 0-9\n",     "HTTP/1.1 two hundred\n", "HTTP/1.1\n", "HTTP/1.1 99999999999999999999 x\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const stk_answer a = head_of(heads[i]);
        CHECK_MSG(a.malformed, "%s", heads[i]);
        CHECK_INT(stk_answer_verdict(&a, true, false), STK_VERDICT_TRANSIENT);
    }
}

static stk_verdict verdict(int status, const char *body, bool checksums)
{
    stk_answer a;
    stk_answer_begin(&a);
    a.status = status;
    stk_answer_body(&a, (stk_bytes){(const uint8_t *)body, strlen(body)});
    return stk_answer_verdict(&a, true, checksums);
}

static void each_answer_has_its_verdict(void)
{
    static const struct { int status; const char *code; stk_verdict verdict; } answers[] = {
        {500, "InternalError", STK_VERDICT_TRANSIENT},   {502, NULL, STK_VERDICT_TRANSIENT},      {503, "SlowDown", STK_VERDICT_THROTTLE},
        {429, NULL, STK_VERDICT_THROTTLE},               {400, "RequestTimeout", STK_VERDICT_TRANSIENT}, {400, "ExpiredToken", STK_VERDICT_EXPIRED},
        {403, "RequestTimeTooSkewed", STK_VERDICT_CLOCK}, {403, "AccessDenied", STK_VERDICT_DENIED}, {403, NULL, STK_VERDICT_BARE},
        {400, NULL, STK_VERDICT_BARE},                   {403, "SignatureDoesNotMatch", STK_VERDICT_CREDENTIALS},
        {404, "NoSuchKey", STK_VERDICT_MISSING},         {404, "NoSuchBucket", STK_VERDICT_NO_BUCKET}, {404, NULL, STK_VERDICT_UNSAID},
        {404, "NotHere", STK_VERDICT_MISSING},           {404, "InternalError", STK_VERDICT_TRANSIENT},
        {400, "KeyTooLongError", STK_VERDICT_MISSING},    {400, "XMinioInvalidResourceName", STK_VERDICT_MISSING},
        {412, NULL, STK_VERDICT_CHANGED},                {416, NULL, STK_VERDICT_PAST_END},        {301, "PermanentRedirect", STK_VERDICT_REGION},
        {307, NULL, STK_VERDICT_REGION},                 {400, "InvalidRequest", STK_VERDICT_FATAL}, {200, NULL, STK_VERDICT_GOOD}};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        char body[256] = "";
        if (answers[i].code)
            snprintf(body, sizeof body, "<?xml version=\"1.0\"?>\n<Error>\n <Code>%s</Code><Message>a\nb</Message></Error>", answers[i].code);
        CHECK_MSG(verdict(answers[i].status, body, false) == answers[i].verdict, "%d %s", answers[i].status, body);
    }
    CHECK_INT(verdict(400, "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>", false), STK_VERDICT_REGION);
    CHECK_INT(verdict(400, "<Error><Code>AuthorizationHeaderMalformed</Code></Error>", false), STK_VERDICT_FATAL);
    CHECK_INT(verdict(501, "<Error><Code>NotImplemented</Code></Error>", true), STK_VERDICT_NO_CHECKSUMS);
    CHECK_INT(verdict(501, "<Error><Code>NotImplemented</Code></Error>", false), STK_VERDICT_FATAL);
    /* Cut in the middle: what stood before the cut counts. */
    CHECK_INT(verdict(403, "<Error><Code>RequestTimeTooSkewed</Code><Messa", false), STK_VERDICT_CLOCK);
    /* Not XML, or XML that wants to expand. */
    CHECK_INT(verdict(403, "<!DOCTYPE x [<!ENTITY e \"SlowDown\">]><Error><Code>&e;</Code></Error>", false), STK_VERDICT_BARE);
    CHECK_INT(verdict(403, "forbidden", false), STK_VERDICT_BARE);
}

/* --- lists --- */

static int entries;
static bool count_entry(void *context, const stk_source_entry *entry)
{
    entries++;
    return true;
}

static stk_status parse(const char *xml)
{
    stk_error err;
    stk_list_page page = {0};
    stk_buffer_init(&page.next, STK_TAG_SOURCE, 4096);
    entries = 0;
    const stk_status status = stk_list_parse(&page, (stk_bytes){(const uint8_t *)xml, strlen(xml)}, count_entry, NULL, &err);
    stk_buffer_deinit(&page.next);
    return status;
}

static void broken_lists_are_refused(void)
{
    CHECK_INT(parse("<ListBucketResult></ListBucketResult>"), STK_OK);
    CHECK_INT(entries, 0);
    static const char *const broken[] = {
        "", "no", "<ListBucketResult>", "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<!DOCTYPE a><ListBucketResult></ListBucketResult>",
        "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a>"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) CHECK_MSG(parse(broken[i]) == STK_ERR_NETWORK, "%s", broken[i]);
}

/* --- checksums: the check values of their catalogues --- */

static void checksums_have_their_known_values(void)
{
    const stk_bytes digits = {(const uint8_t *)"123456789", 9};
    CHECK(stk_crc32c(digits) == 0xe3069283u);
    CHECK(stk_crc64nvme(digits) == 0xae8b14860a799888u);
    /* By pieces of all lengths: the tables agree with their own first one. */
    uint8_t bytes[100];
    for (int i = 0; i < 100; i++) bytes[i] = (uint8_t)(i * 37);
    for (size_t n = 0; n <= 100; n++) {
        uint32_t c32 = UINT32_MAX;
        uint64_t c64 = UINT64_MAX;
        for (size_t i = 0; i < n; i++) {
            c32 ^= bytes[i];
            c64 ^= bytes[i];
            for (int b = 0; b < 8; b++) {
                c32 = c32 & 1 ? c32 >> 1 ^ 0x82f63b78u : c32 >> 1;
                c64 = c64 & 1 ? c64 >> 1 ^ 0x9a6c9329ac4bc9b5u : c64 >> 1;
            }
        }
        CHECK(stk_crc32c((stk_bytes){bytes, n}) == ~c32);
        CHECK(stk_crc64nvme((stk_bytes){bytes, n}) == ~c64);
    }
    CHECK(stk_checksum_holds(STK_CHECKSUM_CRC64NVME, "rosUhgp5mIg=", digits));
    CHECK(!stk_checksum_holds(STK_CHECKSUM_CRC64NVME, "rosUhgp5mIk=", digits));
    CHECK(!stk_checksum_holds(STK_CHECKSUM_SHA256, "", digits));
    CHECK(stk_checksum_holds(STK_CHECKSUM_NONE, "", digits));
}

/* --- pace --- */

static void the_window_grows_until_it_is_cut_and_then_slowly(void)
{
    stk_patience patience = stk_patience_default;
    patience.start = 64;
    patience.limit = 100;
    stk_pace pace;
    stk_pace_init(&pace, &patience);
    CHECK_INT(stk_pace_window(&pace), 64);
    for (int i = 0; i < 10; i++) stk_pace_good(&pace, 30 * STK_MS, true);
    CHECK_INT(stk_pace_window(&pace), 74); /* one more for each answer */
    for (int i = 0; i < 1000; i++) stk_pace_good(&pace, 30 * STK_MS, false);
    CHECK_INT(stk_pace_window(&pace), 74); /* nobody wanted more */
    for (int i = 0; i < 1000; i++) stk_pace_good(&pace, 30 * STK_MS, true);
    CHECK_INT(stk_pace_window(&pace), 100);
    stk_pace_throttled(&pace, STK_S, 2 * STK_S);
    CHECK_INT(stk_pace_window(&pace), 50);
    for (int i = 0; i < 52; i++) stk_pace_good(&pace, 30 * STK_MS, true);
    CHECK_INT(stk_pace_window(&pace), 51); /* one more for each window of answers */

    stk_pace_init(&pace, &patience);
    for (int i = 0; i < 1000; i++) stk_pace_good(&pace, 30 * STK_MS, true);
    CHECK(stk_pace_is_calm(&pace, 50 * STK_S));
    for (int i = 0; i < 100; i++) stk_pace_throttled(&pace, 99 * STK_S, 100 * STK_S + i); /* all were under way together */
    CHECK_INT(stk_pace_window(&pace), 50);
    CHECK(!stk_pace_is_calm(&pace, 101 * STK_S));
    stk_pace_throttled(&pace, 101 * STK_S, 102 * STK_S);
    CHECK_INT(stk_pace_window(&pace), 25);
    for (int i = 0; i < 100; i++) stk_pace_throttled(&pace, (200 + i) * STK_S, (200 + i) * STK_S);
    CHECK(stk_pace_window(&pace) >= 1);
    CHECK(stk_pace_is_calm(&pace, 1000 * STK_S));

    /* Answers that only wait for each other. */
    stk_pace_init(&pace, &patience);
    for (int i = 0; i < 640; i++) stk_pace_good(&pace, 10 * STK_MS, true);
    const int before = stk_pace_window(&pace);
    for (int i = 0; i < 640; i++) stk_pace_good(&pace, 500 * STK_MS, true);
    CHECK(stk_pace_window(&pace) < before && stk_pace_window(&pace) >= 16);
}

/* A second of a store that is asked as much as the window lets: `refused` of `of` answers are throttles.  The time behind it. */
static stk_ns ask_for_a_second(stk_pace *pace, stk_ns now, stk_ns trip_ns, int refused, int of)
{
    for (const stk_ns end = now + STK_S; now < end; now += trip_ns) {
        const int window = stk_pace_window(pace);
        for (int i = 0; i < window; i++) {
            if (i % of < refused) stk_pace_throttled(pace, now, now + trip_ns);
            else stk_pace_good(pace, trip_ns, true);
        }
    }
    return now;
}

/* Field report E01: half of all answers are throttles for 30 s; 30 s later nine tenths of what was under way before are again. */
static void after_a_storm_the_window_comes_back(void)
{
    static const stk_ns trips[] = {30 * STK_MS, 100 * STK_MS};
    for (size_t t = 0; t < sizeof trips / sizeof *trips; t++) {
        stk_pace pace;
        stk_pace_init(&pace, &stk_patience_default);
        const int before = stk_pace_window(&pace);
        stk_ns now = STK_S;
        for (int s = 0; s < 30; s++) now = ask_for_a_second(&pace, now, trips[t], 1, 2);
        CHECK_MSG(stk_pace_window(&pace) <= before / 16, "%d in the storm", stk_pace_window(&pace));
        for (int s = 0; s < 30; s++) now = ask_for_a_second(&pace, now, trips[t], 0, 1);
        CHECK_MSG(stk_pace_window(&pace) * 10 >= before * 9, "%d after it, of %d", stk_pace_window(&pace), before);
    }
}

static void pauses_grow_and_have_a_bound(void)
{
    uint64_t random = 1;
    stk_ns largest[16] = {0};
    for (int attempt = 0; attempt < 16; attempt++)
        for (int i = 0; i < 1000; i++) {
            const stk_ns pause = stk_pause(&stk_patience_default, attempt, &random);
            CHECK(pause >= 0 && pause < 20 * STK_S);
            if (pause > largest[attempt]) largest[attempt] = pause;
        }
    CHECK(largest[0] < 100 * STK_MS && largest[0] > 80 * STK_MS);
    CHECK(largest[3] > 600 * STK_MS && largest[15] > 16 * STK_S);
}

static void retries_without_tokens_wait(void)
{
    stk_tokens tokens = {0};
    for (int i = 0; i < 50; i++) CHECK_INT(stk_tokens_take(&tokens, 10, STK_S), 0);
    CHECK(stk_tokens_take(&tokens, 10, STK_S) > 0);
    stk_tokens_give(&tokens, 30);
    CHECK_INT(stk_tokens_take(&tokens, 10, STK_S), 0);
    CHECK_INT(stk_tokens_take(&tokens, 400, 20 * STK_S), 0); /* time fills it */
}

static void lateness_is_known_after_enough_observations(void)
{
    stk_lateness lateness = {0};
    CHECK_INT(stk_first_byte_limit(&lateness, &stk_patience_default), 10 * STK_S);
    for (int i = 0; i < 199; i++) stk_lateness_add(&lateness, i % 50 ? 30 * STK_MS : STK_S, &stk_patience_default);
    CHECK_INT(lateness.p97_ns, 0);
    stk_lateness_add(&lateness, 30 * STK_MS, &stk_patience_default);
    CHECK(lateness.p97_ns > 30 * STK_MS && lateness.p97_ns < 40 * STK_MS);
    CHECK(lateness.p99_ns >= STK_S);
    CHECK(stk_first_byte_limit(&lateness, &stk_patience_default) >= 4 * STK_S);
    for (int i = 0; i < 100000; i++) stk_lateness_add(&lateness, STK_MS, &stk_patience_default);
    CHECK(lateness.times.count < 10000); /* it forgets */
    CHECK_INT(stk_first_byte_limit(&lateness, &stk_patience_default), 2 * STK_S);
}

/* --- peers --- */

static void peers_are_kept_while_there_is_room(void)
{
    stk_error err;
    stk_peers *peers;
    CHECK_OK(stk_peers_create(&peers, 4, &err), err);
    stk_peer *const bucket = stk_peers_take(peers, stk_str_of("bucket"));
    CHECK(bucket && stk_peers_take(peers, stk_str_of("bucket")) == bucket && bucket->users == 2);
    bucket->read_at = 1;
    stk_peers_give_back(peers, bucket);
    stk_peers_give_back(peers, bucket);
    CHECK(stk_peers_take(peers, stk_str_of("bucket"))->read_at); /* remembered */
    char name[400];
    for (int i = 0; i < 1000; i++) { /* in use, it stays, whatever comes and goes */
        snprintf(name, sizeof name, "https://host%d:443", i);
        stk_peer *const other = stk_peers_take(peers, stk_str_of(name));
        CHECK(other && other != bucket && !other->read_at);
        CHECK_STR(other->name, name);
        other->read_at = 1;
        stk_peers_give_back(peers, other);
    }
    CHECK(stk_peers_take(peers, stk_str_of("bucket")) == bucket && bucket->read_at);
    memset(name, 'a', sizeof name);
    CHECK(stk_peers_take(peers, (stk_str){name, sizeof name}) == NULL);
    stk_peer *taken[200];
    int count = 0;
    for (; count < 200; count++) {
        snprintf(name, sizeof name, "https://more%d:443", count);
        taken[count] = stk_peers_take(peers, stk_str_of(name));
        if (!taken[count]) break;
    }
    CHECK(count >= 4 && count < 200);
    stk_peers_destroy(peers);
    CHECK_INT(stk_alloc_bytes(STK_TAG_SOURCE), 0);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_head_says_what_it_says), TEST(what_contradicts_itself_is_malformed), TEST(each_answer_has_its_verdict),
              TEST(broken_lists_are_refused), TEST(checksums_have_their_known_values), TEST(the_window_grows_until_it_is_cut_and_then_slowly),
              TEST(after_a_storm_the_window_comes_back),
              TEST(pauses_grow_and_have_a_bound), TEST(retries_without_tokens_wait), TEST(lateness_is_known_after_enough_observations),
              TEST(peers_are_kept_while_there_is_room));
}
