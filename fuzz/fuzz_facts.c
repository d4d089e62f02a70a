/* fuzz_facts.c - hostile bytes as a facts file: a line that is taken has a size in range, and a record that names its path gets that
 * size; a line that is passed over has a path that no record can use; what is refused is refused with words. */
#include <stdlib.h>

#include "manifest/split.h"
#include "manifest/stated_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

/* A record with the path of a line; the caller's (free). */
static char *record_of(stk_str line)
{
    json_t *const read = json_loadb(line.data, line.size_bytes, JSON_ALLOW_NUL, NULL);
    json_t *const path = json_object_get(read, "path");
    require(path != NULL);
    json_t *const record = json_pack("{s:[{s:O}], s:[{s:s, s:s}, {s:s, s:s}]}", "images", "path", path, "messages", "role", "user", "content",
                                     "<image>", "role", "assistant", "content", "A");
    char *const text = json_dumps(record, 0);
    json_decref(record);
    json_decref(read);
    require(text != NULL);
    return text;
}

static void check_line(stk_str line, stk_record_rules rules, stk_sample *sample)
{
    stk_error err = {0};
    stk_stated_size size;
    const stk_status status = stk_stated_read(&size, sample, &rules, line, &err);
    if (status < 0) {
        require(status == STK_ERR_RECORD && err.message[0]);
        return;
    }
    const bool surrogates = sample->notes & STK_NOTE_LONE_SURROGATE; /* mended by us, refused by the library itself */
    if (surrogates) return;
    char *const record = record_of(line);
    const stk_stated_sizes one = {.size = &size, .count = 1};
    stk_reason reason;
    rules.stated = status == STK_OK ? &one : NULL;
    const stk_status parsed = stk_record_parse(sample, &rules, stk_str_of(record), &reason, &err);
    require((parsed == STK_OK) == (status == STK_OK) || reason == STK_REASON_RECORD_LIMIT);
    if (parsed == STK_OK) {
        require(size.width_px >= 1 && size.width_px <= INT32_MAX && size.height_px >= 1 && size.height_px <= INT32_MAX);
        require(sample->media[0].width_px == size.width_px && sample->media[0].height_px == size.height_px);
    }
    free(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const stk_limits limits = {.media_bytes = 1 << 20, .media_px = 1 << 20, .record_bytes = 1 << 16, .json_depth = 16,
                                      .media_per_record = 8, .text_bytes = 1 << 16, .jpeg_scans = 16};
    static const stk_str allow[] = {{"/other", 6}, {"s3://bucket", 11}};
    const stk_record_rules rules = {.media_root = {"/m", 2}, .allow = {allow, 2}, .limits = &limits};
    stk_split split;
    stk_record_at at;
    stk_sample sample;
    if (stk_split_open(&split, data, size, NULL) < 0) return 0;
    stk_sample_init(&sample);
    while (stk_split_next(&split, &at, NULL) == STK_OK) check_line(at.text, rules, &sample);
    stk_sample_deinit(&sample);
    return 0;
}
