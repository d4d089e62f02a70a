/* fuzz_config.c - hostile bytes as a configuration and as a single value: refused with words, or held within
 * the bounds of the option table. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stoker/options.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static void check_refusal(stk_status status, const stk_error *err)
{
    require(status == STK_ERR_OPTION && err->message[0] && err->stage == STK_STAGE_OPTIONS);
}

/* The reader takes a path, so the bytes become a file in memory. */
static void try_file(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("fuzz-config", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    stk_error err = {0};
    stk_options options = STK_OPTIONS_INIT;
    const stk_status status = stk_options_read(&options, path, &err);
    close(fd);
    if (status < 0) {
        check_refusal(status, &err);
        require(options.data == NULL && options.model == NULL);
        return;
    }
    const stk_status checked = stk_options_check(&options, &err);
    if (checked < 0)
        check_refusal(checked, &err);
    else
        require(options.batch > 0 && options.model && options.data_count > 0 &&
                options.micro_batch <= options.batch);
    stk_options_deinit(&options);
}

/* "name\nvalue". */
static void try_value(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    char *const line_end = strchr(text, '\n');
    if (line_end) {
        *line_end = 0;
        stk_error err = {0};
        stk_options options = STK_OPTIONS_INIT;
        require(stk_options_defaults(&options, &err) == STK_OK);
        const stk_status status = stk_options_set(&options, text, line_end + 1, &err);
        if (status < 0) check_refusal(status, &err);
        stk_options_deinit(&options);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 << 16) return 0;
    try_file(data, size);
    try_value(data, size);
    return 0;
}
