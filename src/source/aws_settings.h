/* aws_settings.h - what configuration, environment and shared files say: read once, in the order of the AWS tools.
 *
 *     region     explicit, AWS_REGION, AWS_DEFAULT_REGION, the profile, us-east-1
 *     endpoint   explicit, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's services, the profile, AWS
 *     profile    explicit, AWS_PROFILE, AWS_DEFAULT_PROFILE, default
 *
 * The environment is copied at open, because a thread that refreshes must not read it while the host program writes it. */
#ifndef STK_SOURCE_AWS_SETTINGS_H
#define STK_SOURCE_AWS_SETTINGS_H

#include "source/aws_files.h"
#include "source/credentials.h"

#define STK_AWS_VARIABLE_MAP(X)                                                                            \
    X(ACCESS_KEY_ID) X(SECRET_ACCESS_KEY) X(SESSION_TOKEN) X(SECURITY_TOKEN) X(CREDENTIAL_EXPIRATION)      \
    X(PROFILE) X(DEFAULT_PROFILE) X(CONFIG_FILE) X(SHARED_CREDENTIALS_FILE)                                \
    X(REGION) X(DEFAULT_REGION) X(CA_BUNDLE)                                                               \
    X(ENDPOINT_URL) X(ENDPOINT_URL_S3) X(ENDPOINT_URL_STS) X(IGNORE_CONFIGURED_ENDPOINT_URLS)              \
    X(WEB_IDENTITY_TOKEN_FILE) X(ROLE_ARN) X(ROLE_SESSION_NAME)                                            \
    X(CONTAINER_CREDENTIALS_RELATIVE_URI) X(CONTAINER_CREDENTIALS_FULL_URI)                                \
    X(CONTAINER_AUTHORIZATION_TOKEN) X(CONTAINER_AUTHORIZATION_TOKEN_FILE)                                 \
    X(EC2_METADATA_DISABLED) X(EC2_METADATA_V1_DISABLED)                                                   \
    X(EC2_METADATA_SERVICE_ENDPOINT) X(EC2_METADATA_SERVICE_ENDPOINT_MODE)                                 \
    X(METADATA_SERVICE_TIMEOUT) X(METADATA_SERVICE_NUM_ATTEMPTS)

typedef enum stk_aws_variable { /* STK_AWS_PROFILE is AWS_PROFILE */
#define STK_AWS_VARIABLE_ENUM(name) STK_AWS_##name,
    STK_AWS_VARIABLE_MAP(STK_AWS_VARIABLE_ENUM)
#undef STK_AWS_VARIABLE_ENUM
    STK_AWS_VARIABLE_COUNT
} stk_aws_variable;

typedef struct stk_aws_settings {
    char *variable[STK_AWS_VARIABLE_COUNT]; /* NULL: not set, or empty */
    char *home;
    char *profile;          /* never NULL */
    bool profile_is_named;  /* by the configuration: then variables with credentials do not count */
    char *config_path, *credentials_path; /* NULL: there is no home folder */
    stk_aws_files *files;   /* as last read */
    char region[64];
    char sts_url[512];
    char *ca;               /* NULL: the system's */
    stk_endpoint endpoint;
} stk_aws_settings;

/* STK_ERR_OPTION: no such profile, or a value that cannot be used. */
stk_status stk_aws_settings_open(stk_aws_settings **out, const stk_provider_config *config,
                                 stk_error *err) STK_MUST_USE;
void stk_aws_settings_close(stk_aws_settings **settings);

/* Read the shared files again: their credentials may be newer. */
stk_status stk_aws_settings_reload(stk_aws_settings *settings, stk_error *err) STK_MUST_USE;

/* A variable, or else a value of the profile; NULL: neither. */
const char *stk_aws_setting(const stk_aws_settings *settings, stk_aws_variable variable, const char *key);

/* The same as yes or no: "true" in any case. */
bool stk_aws_setting_is(const stk_aws_settings *settings, stk_aws_variable variable, const char *key,
                        const char *value);

#endif
