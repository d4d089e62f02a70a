/* fuzz_aws_files.c - hostile shared files of AWS: a refusal names a line, what is taken has values that end, and the words of
 * a command line are those of the text, no longer than it.
 *
 * An input is the config file and, behind a line "---", the credentials file. */
#include <stdlib.h>

#include "source/aws_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static char *copy_of(const uint8_t *data, size_t size)
{
    char *const copy = malloc(size + 1);
    require(copy != NULL);
    if (size) memcpy(copy, data, size);
    copy[size] = 0;
    return copy;
}

static void check_value(const char *value, size_t most)
{
    require(!value || strlen(value) <= most);
}

static void check_words(const char *command)
{
    char *const text = strdup(command), *word[8];
    require(text != NULL);
    const size_t count = stk_shell_split(text, word, 8);
    size_t total = 0;
    for (size_t i = 0; count != SIZE_MAX && i < count && i < 8; i++) total += strlen(word[i]);
    require(total <= strlen(command));
    free(text);
}

static void check_files(const stk_aws_files *files, size_t size)
{
    static const char *const profile[] = {"default", "a", "with space", ""};
    static const char *const key[] = {"region", "credential_process", "k", ""};
    for (int p = 0; p < 4; p++) {
        (void)stk_aws_files_has_profile(files, profile[p]);
        for (int k = 0; k < 4; k++) {
            const char *const value = stk_aws_files_get(files, STK_AWS_EITHER, profile[p], NULL, key[k]);
            check_value(value, size);
            check_value(stk_aws_files_get(files, STK_AWS_EITHER, profile[p], "s3", key[k]), size);
            check_value(stk_aws_files_service(files, profile[p], "s3", key[k]), size);
            if (value) check_words(value);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *const mark = size ? memmem(data, size, "---\n", 4) : NULL;
    const size_t config_bytes = mark ? (size_t)(mark - data) : size, rest = mark ? size - config_bytes - 4 : 0;
    char *const config = copy_of(data, config_bytes), *const credentials = copy_of(mark ? mark + 4 : NULL, rest);
    stk_aws_files *files;
    stk_error err;
    memset(&err, 0, sizeof err);
    const stk_status status = stk_aws_files_parse(&files, config, config_bytes, credentials, rest, &err);
    if (status == STK_OK) check_files(files, size);
    else require(status == STK_ERR_OPTION && !files && err.line && err.message[0]);
    if (status == STK_OK) stk_aws_files_close(&files);
    free(config);
    free(credentials);
    return 0;
}
