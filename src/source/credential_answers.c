/* credential_answers.c - what the services say, in JSON and XML, taken apart; and credentials made of it.
 *
 * An answer is hostile until proven otherwise: sizes are bounded by ask.c, parts are checked before they can reach a
 * header, and words of the service are repeated in messages only when they repeat no secret. */
#include <expat.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <time.h>

#include "source/credential_chain.h"

enum { PART_BYTES = 16 * 1024, ECHO_BYTES = 12 };

/* One set, shared: the strings stand behind it. */
typedef struct shared_set {
    stk_credentials credentials;
    atomic_uint references;
    size_t text_bytes;
    char text[];
} shared_set;

static atomic_uint_fast64_t last_generation;

static stk_str trimmed(const char *text)
{
    stk_str t = stk_str_of(text ? text : "");
    while (t.size_bytes && (unsigned char)t.data[0] <= ' ') t = (stk_str){t.data + 1, t.size_bytes - 1};
    while (t.size_bytes && (unsigned char)t.data[t.size_bytes - 1] <= ' ') t.size_bytes--;
    return t;
}

static bool can_be_sent(stk_str text)
{
    for (size_t i = 0; i < text.size_bytes; i++)
        if (text.data[i] <= ' ' || text.data[i] == 0x7f) return false;
    return true;
}

static const char *place(shared_set *set, stk_str part)
{
    char *const at = set->text + set->text_bytes;
    if (part.size_bytes) memcpy(at, part.data, part.size_bytes);
    at[part.size_bytes] = 0;
    set->text_bytes += part.size_bytes + 1;
    return at;
}

stk_status stk_credentials_make(const stk_credentials **out, const char *access_key, const char *secret_key,
                                const char *token, int64_t expires_at, const char *from, stk_error *err)
{
    const stk_str access = trimmed(access_key), secret = trimmed(secret_key), session = trimmed(token);
    *out = NULL;
    if (!access.size_bytes || !secret.size_bytes)
        return stk_fail(err, STK_ERR_OPTION, "%s: %s", from,
                        access.size_bytes ? "there is an access key, but no secret key" : "there is no access key");
    if (access.size_bytes > PART_BYTES || secret.size_bytes > PART_BYTES || session.size_bytes > PART_BYTES)
        return stk_fail(err, STK_ERR_OPTION, "%s: a key or token has more than %d KiB", from, PART_BYTES / 1024);
    if (!can_be_sent(access) || !can_be_sent(session))
        return stk_fail(err, STK_ERR_OPTION,
                        "%s: the access key or the token holds a blank, a control character or no ASCII",
                        from);
    shared_set *const set = stk_alloc(STK_TAG_SOURCE, sizeof *set + access.size_bytes + secret.size_bytes +
                                                          session.size_bytes + 3);
    if (!set) return stk_fail(err, STK_ERR_NOMEM, "out of memory: credentials");
    atomic_init(&set->references, 1);
    set->credentials =
        (stk_credentials){.generation = atomic_fetch_add(&last_generation, 1) + 1, .expires_at = expires_at};
    set->credentials.access_key = place(set, access);
    set->credentials.secret_key = place(set, secret);
    set->credentials.session_token = place(set, session);
    *out = &set->credentials;
    return STK_OK;
}

stk_status stk_credentials_nobody(const stk_credentials **out, stk_error *err)
{
    *out = NULL;
    shared_set *const set = stk_alloc(STK_TAG_SOURCE, sizeof *set);
    if (!set) return stk_fail(err, STK_ERR_NOMEM, "out of memory: credentials");
    atomic_init(&set->references, 1);
    set->credentials = (stk_credentials){.generation = atomic_fetch_add(&last_generation, 1) + 1, .anonymous = true,
                                         .access_key = "", .secret_key = "", .session_token = ""};
    *out = &set->credentials;
    return STK_OK;
}

void stk_credentials_retain(const stk_credentials *credentials)
{
    shared_set *const set = (shared_set *)(uintptr_t)credentials; /* its first member */
    atomic_fetch_add_explicit(&set->references, 1, memory_order_relaxed);
}

void stk_credentials_release(const stk_credentials *credentials)
{
    shared_set *const set = (shared_set *)(uintptr_t)credentials;
    if (!set || atomic_fetch_sub_explicit(&set->references, 1, memory_order_acq_rel) > 1) return;
    OPENSSL_cleanse(set, sizeof *set + set->text_bytes);
    stk_free(set);
}

bool stk_credentials_time(int64_t *out, const char *text)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest) return false;
    int64_t seconds = timegm(&tm);
    if (*rest == '.')
        for (rest++; *rest >= '0' && *rest <= '9'; rest++) {}
    if (*rest == '+' || *rest == '-') {
        struct tm offset = {0};
        const int sign = *rest == '+' ? -1 : 1;
        rest = strptime(rest + 1, "%H:%M", &offset);
        if (!rest) return false;
        seconds += sign * (offset.tm_hour * 3600 + offset.tm_min * 60);
    } else if (*rest == 'Z') {
        rest++;
    }
    *out = seconds;
    return *rest == 0;
}

/* Whether words repeat a piece of a secret. */
static bool repeats(const char *words, const char *secret)
{
    const size_t length = strlen(words), secret_length = secret ? strlen(secret) : 0;
    for (size_t i = 0; secret_length >= ECHO_BYTES && i + ECHO_BYTES <= length; i++)
        if (memmem(secret, secret_length, words + i, ECHO_BYTES)) return true;
    return false;
}

/* --- JSON --- */

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* jansson frees its strings as they are. */
static void wipe(json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (json_is_string(value))
            OPENSSL_cleanse((char *)(uintptr_t)json_string_value(value), json_string_length(value));
    }
}

static stk_status from_object(const stk_credentials **out, const json_t *object, const char *from, stk_error *err)
{
    const char *const code = text_at(object, "Code");
    const char *const expiration = text_at(object, "Expiration");
    const char *const token = text_at(object, "Token") ? text_at(object, "Token") : text_at(object, "SessionToken");
    int64_t expires_at = 0;
    if (code && strcmp(code, "Success") != 0)
        return stk_fail(err, STK_ERR_NETWORK, "%s has no credentials: it says %.40s", from,
                        repeats(code, text_at(object, "SecretAccessKey")) || repeats(code, token) ? "so" : code);
    const json_t *const version = json_object_get(object, "Version");
    if (version && json_integer_value(version) != 1)
        return stk_fail(err, STK_ERR_NETWORK, "%s gives credentials of a version that is not 1", from);
    if (expiration && !stk_credentials_time(&expires_at, expiration))
        return stk_fail(err, STK_ERR_NETWORK, "%s gives credentials whose Expiration is no time", from);
    const stk_status status =
        stk_credentials_make(out, text_at(object, "AccessKeyId"), text_at(object, "SecretAccessKey"), token,
                             expires_at, from, err);
    if (status == STK_ERR_OPTION && err) err->status = STK_ERR_NETWORK;
    return status == STK_ERR_OPTION ? STK_ERR_NETWORK : status;
}

stk_status stk_credentials_of_json(const stk_credentials **out, const char *text, size_t size_bytes,
                                   const char *from, stk_error *err)
{
    *out = NULL;
    json_t *const object = json_loadb(text, size_bytes, 0, NULL); /* no json_error_t: it would quote the text */
    stk_status status;
    if (json_is_object(object)) status = from_object(out, object, from, err);
    else status = stk_fail(err, STK_ERR_NETWORK, "%s does not answer with a JSON object", from);
    if (json_is_object(object)) wipe(object);
    json_decref(object);
    return status;
}

/* --- XML --- */

/* The elements of the answer that matter, by their names; the first of each counts. */
enum { ACCESS_KEY, SECRET_KEY, TOKEN, EXPIRATION, CODE, MESSAGE, ELEMENT_COUNT };

typedef struct elements {
    char text[ELEMENT_COUNT][PART_BYTES + 2]; /* room for one byte too many: a longer part is refused, not cut */
    size_t length[ELEMENT_COUNT];
    bool seen[ELEMENT_COUNT];
    int open; /* -1: none */
} elements;

static void begin_element(void *context, const char *name, const char **attribute)
{
    static const char *const known[ELEMENT_COUNT] = {"AccessKeyId", "SecretAccessKey", "SessionToken",
                                                     "Expiration",  "Code",            "Message"};
    elements *const e = context;
    e->open = -1;
    for (int i = 0; i < ELEMENT_COUNT; i++)
        if (strcmp(name, known[i]) == 0 && !e->seen[i]) e->open = i;
    if (e->open >= 0) e->seen[e->open] = true;
}

static void end_element(void *context, const char *name)
{
    ((elements *)context)->open = -1;
}

static void add_text(void *context, const char *text, int length)
{
    elements *const e = context;
    if (e->open < 0 || length < 0) return;
    const size_t room = PART_BYTES + 1 - e->length[e->open];
    const size_t taken = (size_t)length < room ? (size_t)length : room;
    memcpy(e->text[e->open] + e->length[e->open], text, taken);
    e->length[e->open] += taken;
}

static bool parse_xml(elements *e, const char *text, size_t size_bytes)
{
    const XML_Parser parser = XML_ParserCreate(NULL);
    if (!parser) return false;
    e->open = -1;
    XML_SetUserData(parser, e);
    XML_SetElementHandler(parser, begin_element, end_element);
    XML_SetCharacterDataHandler(parser, add_text);
    const bool fine = XML_Parse(parser, text, (int)size_bytes, 1) == XML_STATUS_OK;
    XML_ParserFree(parser);
    return fine;
}

static stk_status from_elements(const stk_credentials **out, const elements *e, bool parsed, int http_status,
                                const char *token, stk_error *err)
{
    int64_t expires_at = 0;
    if (http_status != 200) {
        const bool quotable =
            parsed && e->text[CODE][0] && !repeats(e->text[CODE], token) && !repeats(e->text[MESSAGE], token);
        return stk_fail(err, STK_ERR_NETWORK,
                        "STS refuses the web identity (HTTP %d%s%.40s%s%.100s): check role_arn and the "
                        "role's trust policy",
                        http_status, quotable ? ", " : "", quotable ? e->text[CODE] : "",
                        quotable && e->text[MESSAGE][0] ? ": " : "", quotable ? e->text[MESSAGE] : "");
    }
    if (!parsed) return stk_fail(err, STK_ERR_NETWORK, "STS does not answer with XML");
    if (!stk_credentials_time(&expires_at, e->text[EXPIRATION]))
        return stk_fail(err, STK_ERR_NETWORK, "STS gives credentials without a time of Expiration");
    return stk_credentials_make(out, e->text[ACCESS_KEY], e->text[SECRET_KEY], e->text[TOKEN], expires_at,
                                "STS", err);
}

stk_status stk_credentials_of_sts(const stk_credentials **out, int http_status, const char *text,
                                  size_t size_bytes, const char *token, stk_error *err)
{
    *out = NULL;
    elements *const e = stk_alloc(STK_TAG_SOURCE, sizeof *e);
    if (!e) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the answer of STS");
    const bool parsed = size_bytes <= INT32_MAX && parse_xml(e, text, size_bytes);
    const stk_status status = from_elements(out, e, parsed, http_status, token, err);
    OPENSSL_cleanse(e, sizeof *e);
    stk_free(e);
    return status;
}
