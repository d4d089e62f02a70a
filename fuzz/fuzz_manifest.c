/* fuzz_manifest.c - hostile bytes as a manifest: every record found lies in the file and in order, in chunks
 * as in one go; every record read has only valid text, media that its turns name once each, and addresses in
 * the allowed folder.
 *
 * A first line of one digit is the number of the stk_dialect to read with; without it the dialect is detected. */
#include <stdlib.h>

#include "manifest/json_check.h"
#include "manifest/record.h"
#include "manifest/split.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static void check_text(stk_str text)
{
    for (size_t i = 0; i < text.size_bytes;) {
        const size_t step = stk_utf8_size((const uint8_t *)text.data + i, text.size_bytes - i);
        require(step != 0);
        i += step;
    }
}

static void check_address(stk_str address)
{
    check_text(address);
    const bool is_data = address.size_bytes >= 5 && (address.data[0] | 0x20) == 'd';
    require(is_data || (address.size_bytes >= 2 && memcmp(address.data, "/m", 2) == 0));
    require(is_data || !memmem(address.data, address.size_bytes, "/../", 4));
}

static void check_sample(const stk_sample *sample)
{
    size_t media_count = 0;
    bool has_answer = false;
    for (size_t i = 0; i < sample->turn_count; i++) {
        const stk_turn *const turn = sample->turn + i;
        has_answer |= turn->role == STK_ROLE_ASSISTANT;
        check_text(turn->reasoning);
        for (size_t k = 0; k < turn->part_count; k++) {
            if (turn->part[k].kind == STK_PART_MEDIA)
                require(turn->part[k].media_index == media_count++);
            else
                require(turn->part[k].text.size_bytes != 0);
            check_text(turn->part[k].text);
        }
        require(turn->call_count == 0 || turn->role == STK_ROLE_ASSISTANT);
        for (size_t k = 0; k < turn->call_count; k++) {
            require(turn->call[k].arguments != NULL);
            check_text(turn->call[k].name);
        }
    }
    require(has_answer && media_count == sample->media_count);
    for (size_t i = 0; i < sample->media_count; i++) check_address(sample->media[i].address);
}

static void check_record(stk_sample *sample, stk_record_rules *rules, const stk_record_at *at)
{
    stk_reason reason;
    stk_error err = {0};
    char id[STK_SAMPLE_ID_BYTES];
    for (int strip = 0; strip < 2; strip++) {
        rules->tag_space = strip ? STK_TAG_SPACE_STRIP : STK_TAG_SPACE_KEEP;
        const stk_status status = stk_record_parse(sample, rules, at->text, &reason, &err);
        require((status == STK_OK) == (reason == STK_REASON_NONE));
        if (status == STK_OK)
            check_sample(sample);
        else
            require(status == STK_ERR_RECORD && err.message[0] && sample->turn_count == 0);
        stk_sample_id(id, "set", sample->id, at->line, false);
        check_text(stk_str_of(id));
    }
}

/* The lines that start before and from `at` are all lines. */
static void check_chunks(const uint8_t *data, size_t size, uint64_t at, const stk_split *whole)
{
    stk_split split;
    stk_record_at record;
    stk_error err;
    uint64_t records = 0, blank_lines = 0;
    for (int part = 0; part < 2; part++) {
        require(stk_split_open(&split, data, size, &err) == STK_OK);
        stk_split_chunk(&split, part ? at : 0, part ? size : at);
        while (stk_split_next(&split, &record, &err) == STK_OK) records++;
        blank_lines += split.at.blank_lines;
    }
    require(records == whole->at.records && blank_lines == whole->at.blank_lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static stk_sample sample;
    static const stk_limits limits = {.record_bytes = 1 << 16, .json_depth = 20, .media_per_record = 8};
    stk_record_rules rules = {.media_root = {"/m", 2}, .limits = &limits};
    static bool is_ready;
    if (!is_ready) stk_sample_init(&sample);
    is_ready = true;
    if (size > 2 && data[0] >= '0' && data[0] <= '0' + STK_DIALECT_SHAREGPT && data[1] == '\n') {
        rules.dialect = (stk_dialect)(data[0] - '0');
        data += 2;
        size -= 2;
    }

    stk_split split;
    stk_record_at at;
    stk_error err = {0};
    stk_status status = stk_split_open(&split, data, size, &err);
    if (status != STK_OK) return 0;
    uint64_t end = 0;
    while ((status = stk_split_next(&split, &at, &err)) == STK_OK) {
        require(at.text.size_bytes && at.offset >= end && at.offset + at.text.size_bytes <= size);
        require((const uint8_t *)at.text.data == data + at.offset);
        end = at.offset + at.text.size_bytes;
        check_record(&sample, &rules, &at);
    }
    require(status == STK_END || (split.form == STK_FORM_ARRAY && err.message[0]));
    if (split.form == STK_FORM_JSONL) check_chunks(data, size, size / 2, &split);
    return 0;
}
