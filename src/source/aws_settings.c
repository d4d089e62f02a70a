/* aws_settings.c - precedence, and nothing else. */
#include "source/aws_settings.h"

#include <openssl/crypto.h>
#include <pwd.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

static stk_status no_memory(stk_error *err)
{
    return stk_fail(err, STK_ERR_NOMEM, "out of memory: the settings of a store");
}

/* Copy text to *out, NULL and "" as NULL; false: no memory. */
static bool keep(char **out, const char *text)
{
    *out = text && text[0] ? stk_strdup(STK_TAG_SOURCE, text) : NULL;
    return *out || !text || !text[0];
}

static bool read_environment(stk_aws_settings *s)
{
    static const char *const name[] = {
#define VARIABLE_NAME(name) "AWS_" #name,
        STK_AWS_VARIABLE_MAP(VARIABLE_NAME)
#undef VARIABLE_NAME
    };
    for (int i = 0; i < STK_AWS_VARIABLE_COUNT; i++)
        if (!keep(&s->variable[i], getenv(name[i]))) return false;
    if (!keep(&s->home, getenv("HOME"))) return false;
    if (s->home) return true;
    struct passwd entry, *found = NULL;
    char text[4096];
    if (getpwuid_r(getuid(), &entry, text, sizeof text, &found) || !found) return true;
    return keep(&s->home, found->pw_dir);
}

/* path as named, with ~/ for the home folder; else home/otherwise. */
static stk_status place_file(const stk_aws_settings *s, char **out, const char *path, const char *otherwise,
                             stk_error *err)
{
    stk_buffer text;
    stk_buffer_init(&text, STK_TAG_SOURCE, 8192);
    stk_status status = STK_OK;
    if (path && (path[0] != '~' || path[1] != '/')) status = stk_buffer_printf(&text, err, "%s", path);
    else if (s->home) status = stk_buffer_printf(&text, err, "%s/%s", s->home, path ? path + 2 : otherwise);
    if (status == STK_OK && text.data && !keep(out, (const char *)text.data)) status = no_memory(err);
    stk_buffer_deinit(&text);
    return status;
}

const char *stk_aws_setting(const stk_aws_settings *s, stk_aws_variable variable, const char *key)
{
    return s->variable[variable] ? s->variable[variable]
                                 : stk_aws_files_get(s->files, STK_AWS_EITHER, s->profile, NULL, key);
}

bool stk_aws_setting_is(const stk_aws_settings *s, stk_aws_variable variable, const char *key, const char *value)
{
    const char *const found = stk_aws_setting(s, variable, key);
    return found && strcasecmp(found, value) == 0;
}

static stk_status find_profile(stk_aws_settings *s, const char *explicit_name, stk_error *err)
{
    const char *const named = explicit_name                    ? explicit_name
                              : s->variable[STK_AWS_PROFILE] ? s->variable[STK_AWS_PROFILE]
                                                               : s->variable[STK_AWS_DEFAULT_PROFILE];
    s->profile_is_named = explicit_name != NULL;
    if (!keep(&s->profile, named ? named : "default")) return no_memory(err);
    if (named && !stk_aws_files_has_profile(s->files, named))
        return stk_fail_at(
            err, STK_ERR_OPTION, s->config_path ? s->config_path : "~/.aws/config", 0,
            "the profile \"%.60s\" is neither here nor in the credentials file: check its name", named);
    return STK_OK;
}

static stk_status find_region(stk_aws_settings *s, const char *explicit_region, stk_error *err)
{
    const char *region = explicit_region;
    if (!region) region = s->variable[STK_AWS_REGION];
    if (!region) region = stk_aws_setting(s, STK_AWS_DEFAULT_REGION, "region");
    if (!region) region = "us-east-1";
    if (!stk_region_is_valid(stk_str_of(region)))
        return stk_fail(err, STK_ERR_OPTION, "\"%.80s\" is no region: write one like eu-central-1", region);
    snprintf(s->region, sizeof s->region, "%s", region);
    return STK_OK;
}

/* The endpoint of a service by variable, shared variable, services section, profile; NULL: AWS's own. */
static const char *find_endpoint(const stk_aws_settings *s, stk_aws_variable variable, const char *service)
{
    if (stk_aws_setting_is(s, STK_AWS_IGNORE_CONFIGURED_ENDPOINT_URLS, "ignore_configured_endpoint_urls",
                           "true"))
        return NULL;
    if (s->variable[variable]) return s->variable[variable];
    if (s->variable[STK_AWS_ENDPOINT_URL]) return s->variable[STK_AWS_ENDPOINT_URL];
    const char *const of_service = stk_aws_files_service(s->files, s->profile, service, "endpoint_url");
    return of_service ? of_service : stk_aws_files_get(s->files, STK_AWS_EITHER, s->profile, NULL, "endpoint_url");
}

static stk_status find_addressing(const stk_aws_settings *s, stk_addressing *out, stk_error *err)
{
    const char *const style = stk_aws_files_get(s->files, STK_AWS_EITHER, s->profile, "s3", "addressing_style");
    if (*out != STK_ADDRESSING_AUTO || !style || strcasecmp(style, "auto") == 0) return STK_OK;
    if (strcasecmp(style, "path") == 0) *out = STK_ADDRESSING_PATH;
    else if (strcasecmp(style, "virtual") == 0) *out = STK_ADDRESSING_VIRTUAL;
    else
        return stk_fail(err, STK_ERR_OPTION,
                        "addressing_style of the profile \"%.60s\" must be auto, path or virtual",
                        s->profile);
    return STK_OK;
}

static stk_status find_endpoints(stk_aws_settings *s, const stk_provider_config *config, stk_error *err)
{
    const char *const s3 = config->endpoint ? config->endpoint : find_endpoint(s, STK_AWS_ENDPOINT_URL_S3, "s3");
    const char *const sts = find_endpoint(s, STK_AWS_ENDPOINT_URL_STS, "sts");
    stk_addressing addressing = config->addressing;
    STK_TRY(find_addressing(s, &addressing, err));
    STK_TRY(stk_endpoint_init(&s->endpoint, s3, s->region, addressing, err));
    const int length = sts ? snprintf(s->sts_url, sizeof s->sts_url, "%s", sts)
                           : snprintf(s->sts_url, sizeof s->sts_url, "https://sts.%s.%s/", s->region,
                                      stk_aws_domain(s->region));
    if (length < 0 || (size_t)length >= sizeof s->sts_url)
        return stk_fail(err, STK_ERR_OPTION, "the endpoint of STS is too long");
    return STK_OK;
}

stk_status stk_aws_settings_reload(stk_aws_settings *s, stk_error *err)
{
    stk_aws_files *files;
    STK_TRY(stk_aws_files_open(&files, s->config_path, s->credentials_path, err));
    stk_aws_files_close(&s->files);
    s->files = files;
    return STK_OK;
}

static stk_status find_all(stk_aws_settings *s, const stk_provider_config *config, stk_error *err)
{
    if (!read_environment(s)) return no_memory(err);
    STK_TRY(place_file(s, &s->config_path, s->variable[STK_AWS_CONFIG_FILE], ".aws/config", err));
    STK_TRY(place_file(s, &s->credentials_path, s->variable[STK_AWS_SHARED_CREDENTIALS_FILE],
                       ".aws/credentials", err));
    STK_TRY(stk_aws_files_open(&s->files, s->config_path, s->credentials_path, err));
    STK_TRY(find_profile(s, config->profile_name, err));
    STK_TRY(find_region(s, config->region, err));
    STK_TRY(find_endpoints(s, config, err));
    if (!keep(&s->ca, config->ca ? config->ca : stk_aws_setting(s, STK_AWS_CA_BUNDLE, "ca_bundle")))
        return no_memory(err);
    return STK_OK;
}

stk_status stk_aws_settings_open(stk_aws_settings **out, const stk_provider_config *config, stk_error *err)
{
    *out = NULL;
    stk_aws_settings *s = stk_alloc(STK_TAG_SOURCE, sizeof *s);
    if (!s) return no_memory(err);
    const stk_status status = find_all(s, config, err);
    if (status < 0) stk_aws_settings_close(&s);
    else *out = s;
    return status;
}

void stk_aws_settings_close(stk_aws_settings **settings)
{
    stk_aws_settings *const s = *settings;
    if (!s) return;
    for (int i = 0; i < STK_AWS_VARIABLE_COUNT; i++) {
        if (s->variable[i]) OPENSSL_cleanse(s->variable[i], strlen(s->variable[i]));
        stk_free(s->variable[i]);
    }
    stk_free(s->home);
    stk_free(s->profile);
    stk_free(s->config_path);
    stk_free(s->credentials_path);
    stk_free(s->ca);
    stk_aws_files_close(&s->files);
    stk_free(s);
    *settings = NULL;
}
