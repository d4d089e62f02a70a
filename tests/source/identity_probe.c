/* identity_probe.c - for tests only: what the environment and the shared files give.
 *
 *     identity_probe get [PROFILE [REGION [ENDPOINT]]]   credentials, region, endpoint or the failure, as a JSON line
 *     identity_probe watch                               the same; then "refresh" on standard input asks for new ones, "next"
 *                                                        waits for the next change; each answers with a line
 *     identity_probe ini CONFIG CREDENTIALS              "FILE\tPROFILE\tBLOCK\tKEY" lines in, JSON strings or null out */
#include <jansson.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "source/aws_files.h"
#include "source/credentials.h"
#include "test.h"

static stk_error err;

static void notify(void *context)
{
    eventfd_write(*(int *)context, 1);
}

static void wait_for_change(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    eventfd_t value;
    CHECK(poll(&wait, 1, 60 * 1000) == 1);
    eventfd_read(fd, &value);
}

static void print(json_t *out)
{
    json_dumpf(out, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(out);
}

static json_t *failure(void)
{
    return json_pack("{s:i, s:s, s:s}", "status", (int)err.status, "message", err.message, "file", err.file);
}

static json_t *now_given(stk_provider *provider, int fd)
{
    const stk_credentials *c;
    stk_status status;
    while ((status = stk_provider_get(provider, &c, &err)) == STK_AGAIN) wait_for_change(fd);
    if (status < 0) return failure();
    const stk_endpoint *const e = stk_provider_endpoint(provider);
    json_t *const out =
        json_pack("{s:i, s:s, s:s, s:s, s:I, s:b, s:s, s:s, s:i, s:b, s:i, s:s?, s:I, s:I}", "status", 0,
                  "access", c->access_key, "secret", c->secret_key, "token", c->session_token, "expires_at",
                  (json_int_t)c->expires_at, "anonymous", c->anonymous, "region", e->region, "host", e->host,
                  "port", (int)e->port, "tls", e->tls, "addressing", (int)e->addressing, "ca",
                  stk_provider_ca(provider), "generation", (json_int_t)c->generation, "refreshes",
                  (json_int_t)stk_provider_refresh_count(provider));
    stk_credentials_release(c);
    return out;
}

static const char *argument(int argc, char **argv, int i)
{
    return argc > i && argv[i][0] ? argv[i] : NULL;
}

static int get(int argc, char **argv, bool watch)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    stk_provider *provider;
    const stk_provider_config config = {.profile_name = argument(argc, argv, 2),
                                        .region = argument(argc, argv, 3),
                                        .endpoint = argument(argc, argv, 4),
                                        .anonymous = getenv("PROBE_ANONYMOUS") != NULL};
    if (stk_provider_open(&provider, &config, &err) < 0) {
        print(failure());
        return 0;
    }
    stk_provider_on_change(provider, notify, &fd);
    json_t *out = now_given(provider, fd);
    json_dumpf(out, stdout, JSON_COMPACT);
    for (char line[32]; watch && puts("") >= 0 && fflush(stdout) == 0 && fgets(line, sizeof line, stdin);) {
        if (strcmp(line, "refresh\n") == 0)
            stk_provider_refresh(provider, (uint64_t)json_integer_value(json_object_get(out, "generation")));
        else
            wait_for_change(fd);
        json_decref(out);
        out = now_given(provider, fd);
        json_dumpf(out, stdout, JSON_COMPACT);
    }
    json_decref(out);
    stk_provider_close(&provider);
    close(fd);
    return 0;
}

static int ini(const char *config, const char *credentials)
{
    stk_aws_files *files;
    char line[1024], *field[4];
    if (stk_aws_files_open(&files, config, credentials, &err) < 0) {
        print(json_pack("{s:s, s:I}", "message", err.message, "line", (json_int_t)err.line));
        return 0;
    }
    print(json_pack("{s:n}", "message"));
    while (fgets(line, sizeof line, stdin)) {
        char *rest = line;
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; i < 4; i++) field[i] = strsep(&rest, "\t");
        CHECK(field[3] != NULL);
        const char *const block = field[2][0] ? field[2] : NULL;
        const char *const value =
            strcmp(field[0], "service") == 0
                ? stk_aws_files_service(files, field[1], field[2], field[3])
                : stk_aws_files_get(files,
                                    strcmp(field[0], "config") == 0        ? STK_AWS_CONFIG
                                    : strcmp(field[0], "credentials") == 0 ? STK_AWS_CREDENTIALS
                                                                           : STK_AWS_EITHER,
                                    field[1], block, field[3]);
        print(json_pack("[s?]", value));
    }
    stk_aws_files_close(&files);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "ini") == 0) return ini(argv[2], argv[3]);
    if (argc > 1 && strcmp(argv[1], "get") == 0) return get(argc, argv, false);
    if (argc > 1 && strcmp(argv[1], "watch") == 0) return get(argc, argv, true);
    fprintf(stderr, "usage: identity_probe get|watch [PROFILE [REGION [ENDPOINT]]], or ini CONFIG CREDENTIALS\n");
    return 2;
}
