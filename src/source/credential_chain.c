/* credential_chain.c - each source in turn: whether it is configured, what it gives, and how its failure is put in words.
 *
 * A source that is not configured is passed over (STK_END).  One that is configured and fails ends the search, so that
 * nobody goes on as somebody else; only instance metadata, which is always tried last, may simply be absent. */
#include "source/credential_chain.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "source/ask.h"
#include "source/credential_process.h"

enum {
    TOKEN_FILE_BYTES = 16 * 1024,
    PROCESS_LIMIT_MS = 60 * 1000, /* single sign-on helpers ask servers of their own */
    STS_TIMEOUT_MS = 10 * 1000,
    CONTAINER_TIMEOUT_MS = 2 * 1000,
    ATTEMPTS = 3,
    PAUSE_MS = 200
};

/* One walk along the chain. */
typedef struct chain {
    stk_aws_settings *settings;
    int stop_fd;
    char absent[256]; /* why instance metadata gave nothing */
} chain;

static const char *variable_of(const chain *c, stk_aws_variable variable)
{
    return c->settings->variable[variable];
}

static const char *value_of(const chain *c, stk_aws_file file, const char *key)
{
    return stk_aws_files_get(c->settings->files, file, c->settings->profile, NULL, key);
}

const char *stk_credential_source_name(stk_credential_source source)
{
    static const char *const name[] = {
#define SOURCE_NAME(name, text) text,
        STK_CREDENTIAL_SOURCE_MAP(SOURCE_NAME)
#undef SOURCE_NAME
    };
    return source < STK_FROM_COUNT ? name[source] : "none";
}

/* Ask again a few times where the answer was none, or one of the server's own troubles. */
static stk_status ask_patiently(stk_answer_text *out, const stk_ask *ask, int attempts, stk_error *err)
{
    for (int i = 1;; i++) {
        const stk_status status = stk_ask_send(out, ask, err);
        const bool again =
            status == STK_ERR_NETWORK || (status == STK_OK && (out->status >= 500 || out->status == 429));
        if (!again || i >= attempts) return status;
        if (!stk_ask_pause(ask->stop_fd, PAUSE_MS << (i - 1)))
            return stk_fail(err, STK_ERR_INTERRUPTED, "asking for credentials was stopped");
        stk_ask_done(out);
    }
}

/* A small file with a token; *text is the caller's to wipe and free. */
static stk_status read_token(char **text, const char *path, const char *what, stk_error *err)
{
    size_t size_bytes;
    const stk_status status = stk_file_read(text, &size_bytes, path, TOKEN_FILE_BYTES, STK_TAG_SOURCE, err);
    if (status == STK_ERR_NOMEM) return status;
    if (status < 0) {
        const int code = err && status == STK_ERR_SYSTEM ? err->code : 0;
        return stk_fail_at(err, STK_ERR_OPTION, path, 0, "the token file of %s cannot be read%s%s", what,
                           code ? ": " : "",
                           code == ENOENT   ? "it is not there"
                           : code == EACCES ? "permission denied"
                                            : "");
    }
    while (size_bytes && (unsigned char)(*text)[size_bytes - 1] <= ' ') (*text)[--size_bytes] = 0;
    if (size_bytes && strlen(*text) == size_bytes) return STK_OK;
    OPENSSL_cleanse(*text, size_bytes);
    stk_free(*text);
    *text = NULL;
    return stk_fail_at(err, STK_ERR_OPTION, path, 0, "the token file of %s holds no token", what);
}

static void wipe_token(char *text)
{
    if (!text) return;
    OPENSSL_cleanse(text, strlen(text));
    stk_free(text);
}

/* --- environment, shared files, program --- */

static stk_status from_environment(const stk_credentials **out, chain *c, stk_error *err)
{
    const char *const key = variable_of(c, STK_AWS_ACCESS_KEY_ID);
    const char *const expiration = variable_of(c, STK_AWS_CREDENTIAL_EXPIRATION);
    const char *token = variable_of(c, STK_AWS_SESSION_TOKEN);
    int64_t expires_at = 0;
    if (!key || c->settings->profile_is_named) return STK_END;
    if (!token) token = variable_of(c, STK_AWS_SECURITY_TOKEN);
    if (!variable_of(c, STK_AWS_SECRET_ACCESS_KEY))
        return stk_fail(err, STK_ERR_OPTION,
                        "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not: set both, or neither");
    if (expiration && !stk_credentials_time(&expires_at, expiration))
        return stk_fail(err, STK_ERR_OPTION,
                        "AWS_CREDENTIAL_EXPIRATION is no time: write it like 2026-01-31T12:00:00Z");
    return stk_credentials_make(out, key, variable_of(c, STK_AWS_SECRET_ACCESS_KEY), token, expires_at,
                                "environment", err);
}

static stk_status from_file(const stk_credentials **out, chain *c, stk_aws_file file, const char *from,
                            stk_error *err)
{
    const char *const key = value_of(c, file, "aws_access_key_id");
    const char *token = value_of(c, file, "aws_session_token");
    if (!key) return STK_END;
    if (!token) token = value_of(c, file, "aws_security_token");
    return stk_credentials_make(out, key, value_of(c, file, "aws_secret_access_key"), token, 0, from, err);
}

static stk_status from_credentials_file(const stk_credentials **out, chain *c, stk_error *err)
{
    return from_file(out, c, STK_AWS_CREDENTIALS, "shared credentials file", err);
}

static stk_status from_config_file(const stk_credentials **out, chain *c, stk_error *err)
{
    return from_file(out, c, STK_AWS_CONFIG, "shared config file", err);
}

static stk_status from_process(const stk_credentials **out, chain *c, stk_error *err)
{
    const char *const command = value_of(c, STK_AWS_EITHER, "credential_process");
    if (!command) return STK_END;
    stk_buffer text;
    stk_buffer_init(&text, STK_TAG_SOURCE, STK_PROCESS_BYTES);
    stk_status status = stk_process_run(&text, command, PROCESS_LIMIT_MS, c->stop_fd, err);
    if (status == STK_OK)
        status = stk_credentials_of_json(out, (const char *)text.data, text.size_bytes, "credential_process", err);
    if (text.data) OPENSSL_cleanse(text.data, text.capacity_bytes);
    stk_buffer_deinit(&text);
    return status;
}

/* --- web identity --- */

static stk_status add_field(stk_buffer *body, const char *name, const char *value, stk_error *err)
{
    STK_TRY(stk_buffer_printf(body, err, "&%s=", name));
    const size_t length = stk_url_encode(NULL, 0, stk_str_of(value), false);
    STK_TRY(stk_buffer_reserve(body, length + 1, err));
    stk_url_encode((char *)body->data + body->size_bytes, length + 1, stk_str_of(value), false);
    body->size_bytes += length;
    return STK_OK;
}

static stk_status ask_sts(const stk_credentials **out, chain *c, const char *role, const char *session,
                          const char *token, stk_buffer *body, stk_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "stoker-%ld", (long)getpid());
    STK_TRY(stk_buffer_reserve(body, body->max_bytes, err)); /* growing would leave copies of the token */
    STK_TRY(stk_buffer_printf(body, err, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15"));
    STK_TRY(add_field(body, "RoleArn", role, err));
    STK_TRY(add_field(body, "RoleSessionName", session ? session : name, err));
    STK_TRY(add_field(body, "WebIdentityToken", token, err));
    const stk_ask ask = {.method = "POST",
                         .url = c->settings->sts_url,
                         .body = (const char *)body->data,
                         .ca = c->settings->ca,
                         .timeout_ms = STS_TIMEOUT_MS,
                         .stop_fd = c->stop_fd};
    stk_answer_text answer;
    stk_status status = ask_patiently(&answer, &ask, ATTEMPTS, err);
    if (status == STK_OK)
        status = stk_credentials_of_sts(out, answer.status, (const char *)answer.text.data,
                                        answer.text.size_bytes, token, err);
    stk_ask_done(&answer);
    return status;
}

static const char *identity_value(const chain *c, stk_aws_variable variable, const char *key)
{
    const char *const value = c->settings->profile_is_named ? NULL : variable_of(c, variable);
    return value ? value : value_of(c, STK_AWS_EITHER, key);
}

static stk_status from_web_identity(const stk_credentials **out, chain *c, stk_error *err)
{
    const char *const path = identity_value(c, STK_AWS_WEB_IDENTITY_TOKEN_FILE, "web_identity_token_file");
    const char *const role = identity_value(c, STK_AWS_ROLE_ARN, "role_arn");
    if (!path) return STK_END;
    if (!role)
        return stk_fail(err, STK_ERR_OPTION,
                        "a web identity needs a role too: set AWS_ROLE_ARN, or role_arn in the profile");
    char *token;
    STK_TRY(read_token(&token, path, "the web identity", err)); /* afresh each time: its writer turns it over */
    stk_buffer body;
    stk_buffer_init(&body, STK_TAG_SOURCE, 3 * TOKEN_FILE_BYTES + 16 * 1024);
    const stk_status status =
        ask_sts(out, c, role, identity_value(c, STK_AWS_ROLE_SESSION_NAME, "role_session_name"), token, &body, err);
    if (body.data) OPENSSL_cleanse(body.data, body.capacity_bytes);
    stk_buffer_deinit(&body);
    wipe_token(token);
    return status;
}

/* --- container --- */

static stk_status ask_container(const stk_credentials **out, chain *c, const char *url, const char *token,
                                stk_error *err)
{
    stk_buffer header;
    stk_buffer_init(&header, STK_TAG_SOURCE, TOKEN_FILE_BYTES + 64);
    stk_status status = stk_buffer_reserve(&header, TOKEN_FILE_BYTES + 64, err);
    if (status == STK_OK && token) status = stk_buffer_printf(&header, err, "Authorization: %s", token);
    const stk_ask ask = {.method = "GET",
                         .url = url,
                         .header = {token ? (const char *)header.data : NULL},
                         .ca = c->settings->ca,
                         .timeout_ms = CONTAINER_TIMEOUT_MS,
                         .stop_fd = c->stop_fd};
    if (status == STK_OK) {
        stk_answer_text answer;
        status = ask_patiently(&answer, &ask, ATTEMPTS, err);
        if (status == STK_OK && answer.status != 200)
            status =
                stk_fail(err, STK_ERR_NETWORK,
                         "the container's credentials are refused with HTTP %d: check its task or pod role",
                         answer.status);
        if (status == STK_OK)
            status = stk_credentials_of_json(out, (const char *)answer.text.data, answer.text.size_bytes,
                                             "container", err);
        stk_ask_done(&answer);
    }
    if (header.data) OPENSSL_cleanse(header.data, header.capacity_bytes);
    stk_buffer_deinit(&header);
    return status;
}

static bool is_header_value(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) return false;
    return true;
}

static stk_status from_container(const stk_credentials **out, chain *c, stk_error *err)
{
    const char *const relative = variable_of(c, STK_AWS_CONTAINER_CREDENTIALS_RELATIVE_URI);
    const char *const full = variable_of(c, STK_AWS_CONTAINER_CREDENTIALS_FULL_URI);
    const char *const path = variable_of(c, STK_AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE);
    char url[1024], *of_file = NULL;
    if (!relative && !full) return STK_END;
    if (relative && relative[0] != '/')
        return stk_fail(err, STK_ERR_OPTION, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with '/'");
    const int length =
        snprintf(url, sizeof url, "%s%s", relative ? "http://169.254.170.2" : full, relative ? relative : "");
    if (length < 0 || (size_t)length >= sizeof url)
        return stk_fail(err, STK_ERR_OPTION, "the address of the container's credentials is too long");
    if (path) STK_TRY(read_token(&of_file, path, "the container", err));
    const char *const token = of_file ? of_file : variable_of(c, STK_AWS_CONTAINER_AUTHORIZATION_TOKEN);
    const stk_status status =
        token && !is_header_value(token)
            ? stk_fail(err, STK_ERR_OPTION,
                       "the container's authorization token holds a line break or a control character")
            : ask_container(out, c, url, token, err);
    wipe_token(of_file);
    return status;
}

/* --- instance metadata --- */

#define METADATA_PATH "latest/meta-data/iam/security-credentials/"

/* A number of settings, within bounds. */
static int number_of(const chain *c, stk_aws_variable variable, const char *key, int otherwise, int most)
{
    const char *const text = stk_aws_setting(c->settings, variable, key);
    char *end;
    const long value = text ? strtol(text, &end, 10) : otherwise;
    if (text && (*end || end == text)) return otherwise;
    return value < 1 ? 1 : value > most ? most : (int)value;
}

/* GET (or PUT) below the metadata's address; *text is trimmed and lies in answer. */
static stk_status ask_metadata(stk_answer_text *answer, const chain *c, const char *method, const char *path,
                               const char *header, stk_error *err)
{
    char url[1024];
    const char *base =
        stk_aws_setting(c->settings, STK_AWS_EC2_METADATA_SERVICE_ENDPOINT, "ec2_metadata_service_endpoint");
    if (!base)
        base = stk_aws_setting_is(c->settings, STK_AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE,
                                  "ec2_metadata_service_endpoint_mode", "ipv6")
                   ? "http://[fd00:ec2::254]"
                   : "http://169.254.169.254";
    const size_t base_length = strlen(base);
    const int length = snprintf(url, sizeof url, "%s%s%s", base,
                                base_length && base[base_length - 1] == '/' ? "" : "/", path);
    *answer = (stk_answer_text){0};
    if (length < 0 || (size_t)length >= sizeof url)
        return stk_fail(err, STK_ERR_OPTION, "the endpoint of instance metadata is too long");
    const stk_ask ask = {.method = method,
                         .url = url,
                         .header = {header},
                         .stop_fd = c->stop_fd,
                         .timeout_ms = 1000 * number_of(c, STK_AWS_METADATA_SERVICE_TIMEOUT,
                                                        "metadata_service_timeout", 1, 60)};
    STK_TRY(ask_patiently(
        answer, &ask,
        number_of(c, STK_AWS_METADATA_SERVICE_NUM_ATTEMPTS, "metadata_service_num_attempts", ATTEMPTS, 10),
        err));
    for (stk_buffer *const t = &answer->text; t->size_bytes && t->data[t->size_bytes - 1] <= ' ';)
        t->data[--t->size_bytes] = 0;
    return STK_OK;
}

/* "X-aws-ec2-metadata-token: ..." of a session of version 2; "" where only version 1 is there, and allowed. */
static stk_status start_session(char header[2048], const chain *c, stk_error *err)
{
    stk_answer_text answer;
    header[0] = 0;
    stk_status status = ask_metadata(&answer, c, "PUT", "latest/api/token",
                                     "X-aws-ec2-metadata-token-ttl-seconds: 21600", err);
    const char *const token = status == STK_OK ? (const char *)answer.text.data : "";
    if (status == STK_OK && answer.status == 200 && token[0] && is_header_value(token) && strlen(token) < 1900)
        snprintf(header, 2048, "X-aws-ec2-metadata-token: %s", token);
    else if (status == STK_OK && !stk_aws_setting_is(c->settings, STK_AWS_EC2_METADATA_V1_DISABLED,
                                                     "ec2_metadata_v1_disabled", "false"))
        status = stk_fail(err, STK_ERR_NETWORK,
                          "no session token, HTTP %d; version 1 only with AWS_EC2_METADATA_V1_DISABLED=false",
                          answer.status);
    stk_ask_done(&answer);
    return status;
}

static stk_status metadata_refused(int status, stk_error *err)
{
    return stk_fail(err, STK_ERR_NETWORK,
                    "instance metadata answers with HTTP %d: check that the instance has a role", status);
}

/* The role's path: its name is one of IAM's, not a way elsewhere. */
static stk_status find_role(char path[512], const chain *c, const char *session, stk_error *err)
{
    stk_answer_text answer;
    stk_status status = ask_metadata(&answer, c, "GET", METADATA_PATH, session, err);
    if (status == STK_OK && answer.status != 200) status = metadata_refused(answer.status, err);
    if (status == STK_OK) {
        char *const name = (char *)answer.text.data, encoded[256];
        name[strcspn(name, "\r\n")] = 0;
        if (!name[0] || stk_url_encode(encoded, sizeof encoded, stk_str_of(name), false) >= sizeof encoded)
            status = stk_fail(err, STK_ERR_NETWORK, "instance metadata names no role: give the instance one");
        else
            snprintf(path, 512, METADATA_PATH "%s", encoded);
    }
    stk_ask_done(&answer);
    return status;
}

static stk_status ask_instance(const stk_credentials **out, const chain *c, const char *session, stk_error *err)
{
    char path[512];
    STK_TRY(find_role(path, c, session, err));
    stk_answer_text answer;
    stk_status status = ask_metadata(&answer, c, "GET", path, session, err);
    if (status == STK_OK && answer.status != 200) status = metadata_refused(answer.status, err);
    if (status == STK_OK)
        status = stk_credentials_of_json(out, (const char *)answer.text.data, answer.text.size_bytes,
                                         "instance metadata", err);
    stk_ask_done(&answer);
    return status;
}

static stk_status from_instance(const stk_credentials **out, chain *c, stk_error *err)
{
    char header[2048];
    if (stk_aws_setting_is(c->settings, STK_AWS_EC2_METADATA_DISABLED, "ec2_metadata_disabled", "true")) {
        snprintf(c->absent, sizeof c->absent, "switched off");
        return STK_END;
    }
    stk_error why;
    stk_status status = start_session(header, c, &why);
    if (status == STK_OK) status = ask_instance(out, c, header[0] ? header : NULL, &why);
    OPENSSL_cleanse(header, sizeof header);
    snprintf(c->absent, sizeof c->absent, "%s", status < 0 ? why.message : "");
    if (status < 0 && err) *err = why;
    return status;
}

/* --- the order --- */

/* A profile that only the AWS tools can turn into credentials: they do, when asked by credential_process. */
static stk_status check_profile(const chain *c, stk_error *err)
{
    const char *const profile = c->settings->profile;
    const char *what = NULL;
    if (value_of(c, STK_AWS_EITHER, "role_arn") && !value_of(c, STK_AWS_EITHER, "web_identity_token_file") &&
        (c->settings->profile_is_named || !variable_of(c, STK_AWS_WEB_IDENTITY_TOKEN_FILE)))
        what = "assumes a role by another one";
    else if (value_of(c, STK_AWS_EITHER, "sso_session") || value_of(c, STK_AWS_EITHER, "sso_start_url") ||
             value_of(c, STK_AWS_EITHER, "login_session"))
        what = value_of(c, STK_AWS_EITHER, "aws_access_key_id") || value_of(c, STK_AWS_EITHER, "credential_process")
                   ? NULL /* the user has done as we say */
                   : "uses single sign-on";
    if (!what) return STK_OK;
    return stk_fail(err, STK_ERR_OPTION,
                    "the profile \"%.40s\" %s; use a profile with this line: credential_process = aws "
                    "configure export-credentials "
                    "--profile %.40s",
                    profile, what, profile);
}

typedef stk_status from_fn(const stk_credentials **out, chain *c, stk_error *err);

static from_fn *const source_table[STK_FROM_COUNT] = {
    [STK_FROM_ENVIRONMENT] = from_environment,
    [STK_FROM_WEB_IDENTITY] = from_web_identity,
    [STK_FROM_CREDENTIALS_FILE] = from_credentials_file,
    [STK_FROM_PROCESS] = from_process,
    [STK_FROM_CONFIG_FILE] = from_config_file,
    [STK_FROM_CONTAINER] = from_container,
    [STK_FROM_INSTANCE] = from_instance,
};

/* The source that gave the first ones, again. */
static stk_status ask_again(const stk_credentials **out, stk_credential_source source, chain *c, stk_error *err)
{
    const bool in_files =
        source != STK_FROM_ENVIRONMENT && source != STK_FROM_CONTAINER && source != STK_FROM_INSTANCE;
    if (in_files) STK_TRY(stk_aws_settings_reload(c->settings, err));
    const stk_status status = source_table[source](out, c, err);
    if (status != STK_END) return status;
    return stk_fail(err, STK_ERR_OPTION, "the credentials came from %s, which has none any more",
                    stk_credential_source_name(source));
}

stk_status stk_credential_chain_ask(const stk_credentials **out, stk_credential_source *source,
                                    stk_aws_settings *settings, int stop_fd, stk_error *err)
{
    chain c = {.settings = settings, .stop_fd = stop_fd};
    *out = NULL;
    if (*source != STK_FROM_COUNT) return ask_again(out, *source, &c, err);
    for (int i = 0; i < STK_FROM_COUNT; i++) {
        if (i == STK_FROM_WEB_IDENTITY) STK_TRY(check_profile(&c, err));
        const stk_status status = source_table[i](out, &c, err);
        if (status == STK_OK) *source = (stk_credential_source)i;
        if (status == STK_ERR_NETWORK && i == STK_FROM_INSTANCE) break;
        if (status != STK_END) return status;
    }
    return stk_fail(err, STK_ERR_NETWORK,
                    "no credentials found in %sweb identity, shared files (profile %.20s), "
                    "credential_process, container, "
                    "instance metadata (%.96s): set some, or anonymous: true",
                    settings->profile_is_named ? "" : "environment, ", settings->profile, c.absent);
}
