/* state.c - a state as text: one `key value` a line in fixed order, first the format, last a checksum. */
#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/file.h"
#include "batch/batch_object.h"

static const char *const part_names[] = {
#define PART_NAME(id, name) name,
    STK_FINGERPRINT_PART_MAP(PART_NAME)
#undef PART_NAME
};

static const char *const option_names[] = {
#define OPTION_NAME(id, name, part) name,
    STK_STREAM_OPTION_MAP(OPTION_NAME)
#undef OPTION_NAME
};

const char *stk_stream_option_name(stk_stream_option option)
{
    return (unsigned)option < STK_STREAM_OPTIONS ? option_names[option] : NULL;
}

/* --- changes --- */

bool stk_fingerprint_difference(const stk_fingerprint *was, const stk_fingerprint *is, stk_stream_option option, char words[160])
{
    const char *const before = was->value[option], *const now = is->value[option];
    if (strcmp(before, now) == 0) return false;
    if (option == STK_STREAM_DATA) snprintf(words, 160, "data (the manifests or their media) has changed");
    else if (*before == '#' || *now == '#') snprintf(words, 160, "%s has changed", option_names[option]);
    else snprintf(words, 160, "%s was %s and is %s", option_names[option], before, now);
    return true;
}

stk_status stk_state_allow_changes(stk_state *state, const char *names, stk_error *err)
{
    bool allowed[STK_STREAM_OPTIONS];
    memcpy(allowed, state->allowed, sizeof allowed);
    for (const char *at = names, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        const size_t length = (size_t)(end - at);
        int i = 0;
        while (i < STK_STREAM_OPTIONS && (strlen(option_names[i]) != length || memcmp(option_names[i], at, length) != 0)) i++;
        if (i == STK_STREAM_OPTIONS)
            return stk_fail(err, STK_ERR_OPTION,
                            "a change of \"%.*s\" cannot be allowed: it is none of the options that a state names (docs/checkpoint-format.md)",
                            (int)(length < 60 ? length : 60), at);
        allowed[i] = true;
    }
    memcpy(state->allowed, allowed, sizeof allowed);
    return STK_OK;
}

/* --- a step alone --- */

void stk_state_at_step(stk_state *state, uint64_t step)
{
    *state = (stk_state){.step = step};
}

bool stk_state_is_step(const stk_state *state)
{
    return !state->fingerprint.whole[0];
}

/* --- text --- */

static uint64_t checksum(const char *text, size_t size_bytes)
{
    return XXH3_64bits(text, size_bytes);
}

stk_status stk_state_write(const stk_state *state, char *text, size_t capacity, stk_error *err)
{
    size_t at = 0;
#define LINE(...)                                                                                            \
    do {                                                                                                     \
        const int length_ = snprintf(text + at, capacity - at, __VA_ARGS__);                                 \
        if (length_ < 0 || (size_t)length_ >= capacity - at)                                                 \
            return stk_fail(err, STK_ERR_USAGE, "a state needs %d bytes of room", STK_STATE_TEXT_MAX);       \
        at += (size_t)length_;                                                                               \
    } while (0)
    LINE("stoker-state 2\n");
    if (!stk_state_is_step(state)) {
        LINE("fingerprint %s\n", state->fingerprint.whole);
        for (int i = 0; i < STK_FINGERPRINT_PARTS; i++) LINE("%s %s\n", part_names[i], state->fingerprint.part[i]);
        LINE("plan_version %" PRIu32 "\n", state->plan_version);
        for (int i = 0; i < STK_STREAM_OPTIONS; i++) LINE("option %s %s\n", option_names[i], state->fingerprint.value[i]);
        for (int i = 0; i < STK_STREAM_OPTIONS; i++)
            if (state->changed[i]) LINE("changed %s\n", option_names[i]);
        LINE("epoch %" PRIu64 "\n", state->epoch);
        LINE("rows %" PRIu64 "\n", state->rows);
    }
    LINE("step %" PRIu64 "\n", state->step);
    if (state->micro) {
        LINE("micro %" PRIu32 "\n", state->micro);
        LINE("world %" PRIu32 "\n", state->world);
        LINE("micro_rows %" PRIu32 "\n", state->micro_rows);
    }
    LINE("checksum %016" PRIx64 "\n", checksum(text, at));
#undef LINE
    return STK_OK;
}

/* --- parsing: exactly what write writes --- */

typedef struct cursor {
    const char *at, *end;
    uint64_t line;
    stk_error *err;
} cursor;

/* The value of the next line, whose key must be this one, into value (NUL-terminated). */
static stk_status next_value(cursor *c, const char *key, char *value, size_t capacity)
{
    c->line++;
    const char *const stop = c->at < c->end ? memchr(c->at, '\n', (size_t)(c->end - c->at)) : NULL;
    const size_t key_length = strlen(key), length = stop ? (size_t)(stop - c->at) : 0;
    if (!stop) return stk_fail(c->err, STK_ERR_STATE, "the state ends where %s is expected: it was cut", key);
    if (length <= key_length || memcmp(c->at, key, key_length) != 0 || c->at[key_length] != ' ')
        return stk_fail(c->err, STK_ERR_STATE,
                        "line %" PRIu64 " of the state is \"%.*s\", and %s is expected", c->line,
                        (int)(length > 60 ? 60 : length), c->at, key);
    const size_t size = length - key_length - 1;
    if (size == 0 || size >= capacity || memchr(c->at, 0, length))
        return stk_fail(c->err, STK_ERR_STATE, "line %" PRIu64 " of the state: the value of %s cannot be",
                        c->line, key);
    memcpy(value, c->at + key_length + 1, size);
    value[size] = 0;
    c->at = stop + 1;
    return STK_OK;
}

static stk_status next_number(cursor *c, const char *key, uint64_t max, uint64_t *number)
{
    char value[24], *end = value;
    STK_TRY(next_value(c, key, value, sizeof value));
    *number = strtoull(value, &end, 10);
    const bool digits =
        strspn(value, "0123456789") == strlen(value) && strlen(value) < 20 && (value[0] != '0' || !value[1]);
    if (!digits || *number > max)
        return stk_fail(c->err, STK_ERR_STATE, "line %" PRIu64 " of the state: %s is no number that can be",
                        c->line, key);
    return STK_OK;
}

static stk_status next_hex(cursor *c, const char *key, char *value, size_t digits)
{
    STK_TRY(next_value(c, key, value, digits + 1));
    if (strlen(value) != digits || strspn(value, "0123456789abcdef") != digits)
        return stk_fail(c->err, STK_ERR_STATE, "line %" PRIu64 " of the state: %s is not %zu hex digits",
                        c->line, key, digits);
    return STK_OK;
}

static stk_status next_option(cursor *c, int option, char value[STK_STREAM_VALUE_BYTES])
{
    char key[64];
    snprintf(key, sizeof key, "option %s", option_names[option]);
    STK_TRY(next_value(c, key, value, STK_STREAM_VALUE_BYTES));
    for (const char *at = value; *at; at++)
        if (*at < ' ' || *at > '~')
            return stk_fail(c->err, STK_ERR_STATE, "line %" PRIu64 " of the state: the value of %s is no printable text", c->line, key);
    return STK_OK;
}

/* Whether the next line is this one, which is then behind us. */
static bool take_line(cursor *c, const char *line)
{
    const size_t length = strlen(line);
    if ((size_t)(c->end - c->at) <= length || memcmp(c->at, line, length) != 0 || c->at[length] != '\n') return false;
    c->at += length + 1;
    c->line++;
    return true;
}

static bool next_is(const cursor *c, const char *words)
{
    const size_t length = strlen(words);
    return (size_t)(c->end - c->at) >= length && memcmp(c->at, words, length) == 0;
}

/* Whose run it is, and where in that: all of a state but its format, step and checksum. */
static stk_status parse_run(cursor *c, stk_state *state)
{
    uint64_t number;
    STK_TRY(next_hex(c, "fingerprint", state->fingerprint.whole, 32));
    for (int i = 0; i < STK_FINGERPRINT_PARTS; i++)
        STK_TRY(next_hex(c, part_names[i], state->fingerprint.part[i], 16));
    STK_TRY(next_number(c, "plan_version", UINT32_MAX, &number));
    state->plan_version = (uint32_t)number;
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) STK_TRY(next_option(c, i, state->fingerprint.value[i]));
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) {
        char line[64];
        snprintf(line, sizeof line, "changed %s", option_names[i]);
        state->changed[i] = take_line(c, line);
    }
    STK_TRY(next_number(c, "epoch", INT64_MAX, &state->epoch));
    return next_number(c, "rows", INT64_MAX, &state->rows);
}

static stk_status parse(cursor *c, stk_state *state)
{
    const char *const text = c->at;
    char value[40];
    uint64_t number;
    STK_TRY(next_value(c, "stoker-state", value, sizeof value));
    if (strcmp(value, "1") == 0)
        return stk_fail(c->err, STK_ERR_STATE,
                        "a state of format 1, which does not tell its options: this release reads format 2, so go on with the release that "
                        "wrote it");
    if (strcmp(value, "2") != 0)
        return stk_fail(c->err, STK_ERR_STATE, "a state of format %s, and this release reads format 2: use the release that wrote it", value);
    if (!next_is(c, "step ")) STK_TRY(parse_run(c, state));
    STK_TRY(next_number(c, "step", INT64_MAX, &state->step));
    if (!stk_state_is_step(state) && next_is(c, "micro ")) {
        STK_TRY(next_number(c, "micro", UINT32_MAX, &number));
        state->micro = (uint32_t)number;
        STK_TRY(next_number(c, "world", UINT32_MAX, &number));
        state->world = (uint32_t)number;
        STK_TRY(next_number(c, "micro_rows", UINT32_MAX, &number));
        state->micro_rows = (uint32_t)number;
        if (!state->micro || !state->world || !state->micro_rows)
            return stk_fail(c->err, STK_ERR_STATE,
                            "a state inside a step has micro, world and micro_rows above 0");
    }
    const size_t checked = (size_t)(c->at - text);
    STK_TRY(next_hex(c, "checksum", value, 16));
    if (strtoull(value, NULL, 16) != checksum(text, checked))
        return stk_fail(c->err, STK_ERR_STATE,
                        "the state's checksum does not fit its text: it was changed or damaged");
    if (c->at != c->end) return stk_fail(c->err, STK_ERR_STATE, "something follows the state's checksum");
    return STK_OK;
}

stk_status stk_state_parse(stk_state *state, const char *text, size_t size_bytes, stk_error *err)
{
    *state = (stk_state){0};
    cursor c = {.at = text, .end = text + size_bytes, .err = err};
    const stk_status status = parse(&c, state);
    if (status < 0) {
        *state = (stk_state){0};
        stk_error_stage(err, STK_STAGE_STATE);
    }
    return status;
}

stk_status stk_state_save(const stk_state *state, const char *path, stk_error *err)
{
    char text[STK_STATE_TEXT_MAX];
    STK_TRY(stk_state_write(state, text, sizeof text, err));
    return stk_file_save(path, text, strlen(text), err);
}

stk_status stk_state_load(stk_state *state, const char *path, stk_error *err)
{
    *state = (stk_state){0};
    char *text;
    size_t size_bytes;
    stk_status status = stk_file_read(&text, &size_bytes, path, STK_STATE_TEXT_MAX, STK_TAG_ENGINE, err);
    if (status == STK_OK) status = stk_state_parse(state, text, size_bytes, err);
    stk_free(text);
    if (status < 0) {
        stk_error_file(err, path, 0);
        stk_error_stage(err, STK_STAGE_STATE);
    }
    return status;
}
