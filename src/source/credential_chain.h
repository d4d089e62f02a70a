/* credential_chain.h - the sources of credentials, each asked once, in order; behind the provider of credentials.c. */
#ifndef STK_SOURCE_CREDENTIAL_CHAIN_H
#define STK_SOURCE_CREDENTIAL_CHAIN_H

#include "source/aws_settings.h"

/* In the order they are tried; the texts are those of messages. */
#define STK_CREDENTIAL_SOURCE_MAP(X)                                                                       \
    X(ENVIRONMENT, "environment")                                                                          \
    X(WEB_IDENTITY, "web identity")                                                                        \
    X(CREDENTIALS_FILE, "shared credentials file")                                                         \
    X(PROCESS, "credential_process")                                                                       \
    X(CONFIG_FILE, "shared config file")                                                                   \
    X(CONTAINER, "container")                                                                              \
    X(INSTANCE, "instance metadata")

typedef enum stk_credential_source {
#define STK_CREDENTIAL_SOURCE_ENUM(name, text) STK_FROM_##name,
    STK_CREDENTIAL_SOURCE_MAP(STK_CREDENTIAL_SOURCE_ENUM)
#undef STK_CREDENTIAL_SOURCE_ENUM
    STK_FROM_COUNT
} stk_credential_source;

const char *stk_credential_source_name(stk_credential_source source);

/* Try *source, or all in order when it is STK_FROM_COUNT; it then says which one gave them.  *out is the caller's.
 * Waits for input, seconds if need be; ends soon after stop_fd has become readable (STK_ERR_INTERRUPTED).
 * STK_ERR_NETWORK, STK_ERR_OPTION: none; err says which were tried, or how the one that is configured failed. */
stk_status stk_credential_chain_ask(const stk_credentials **out, stk_credential_source *source,
                                    stk_aws_settings *settings, int stop_fd, stk_error *err) STK_MUST_USE;

/* A set of credentials from its parts; blanks around them are dropped.  token: NULL or "" for lasting ones.
 * from: for messages.  STK_ERR_OPTION: a part is missing or cannot stand in a header. */
stk_status stk_credentials_make(const stk_credentials **out, const char *access_key, const char *secret_key,
                                const char *token, int64_t expires_at, const char *from,
                                stk_error *err) STK_MUST_USE;

/* The set that signs nothing. */
stk_status stk_credentials_nobody(const stk_credentials **out, stk_error *err) STK_MUST_USE;

/* "2026-01-31T12:00:00Z", with a fraction or an offset if need be, as seconds since 1970; false: it is none. */
bool stk_credentials_time(int64_t *out, const char *text);

/* Credentials from the JSON of a program, a container or instance metadata. */
stk_status stk_credentials_of_json(const stk_credentials **out, const char *text, size_t size_bytes,
                                   const char *from, stk_error *err) STK_MUST_USE;

/* Credentials from the answer of AssumeRoleWithWebIdentity; token: what was sent, which no message may repeat. */
stk_status stk_credentials_of_sts(const stk_credentials **out, int http_status, const char *text, size_t size_bytes,
                                  const char *token, stk_error *err) STK_MUST_USE;

#endif
