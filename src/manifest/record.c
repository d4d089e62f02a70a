/* record.c - one record: its columns, its turns; the media of all turns against the record's own. */
#include "manifest/record.h"

#include <inttypes.h>

#include "manifest/json_check.h"
#include "manifest/record_reader.h"
#include "schema/place.h"

/* --- columns --- */

/* The value under the name of the configuration, else under the one of the usual names that has one. */
static stk_status find_column(stk_record_reader *reader, json_t **value, stk_str mapped, const char *usual,
                              const char *other)
{
    *value = NULL;
    if (mapped.data) {
        const char *key;
        json_t *item;
        json_object_foreach(reader->record, key,
                            item) if (stk_str_is(mapped, key) && !json_is_null(item)) *value = item;
        return STK_OK;
    }
    json_t *const first = stk_json_get(reader->record, usual);
    json_t *const second = other ? stk_json_get(reader->record, other) : NULL;
    if (first && second && !json_equal(first, second))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               "both `%s` and `%s`: say in `columns` which one holds", usual, other);
    *value = first ? first : second;
    return STK_OK;
}

/* How many media a column holds: nothing and empty text are none, a text or an object is one. */
static size_t count_media(const json_t *value)
{
    if (!value || (json_is_string(value) && json_string_length(value) == 0)) return 0;
    return json_is_array(value) ? json_array_size(value) : 1;
}

/* Empty under one name is no contradiction to media under the other. */
static stk_status find_media(stk_record_reader *reader, json_t **value, stk_str mapped, const char *usual,
                             const char *other)
{
    json_t *const first = stk_json_get(reader->record, usual);
    json_t *const second = stk_json_get(reader->record, other);
    if (!mapped.data && (count_media(first) == 0 || count_media(second) == 0)) {
        *value = count_media(first) ? first : second;
        return STK_OK;
    }
    return find_column(reader, value, mapped, usual, other);
}

static stk_status read_shelf(stk_record_reader *reader)
{
    const stk_record_rules *const rules = reader->rules;
    json_t *videos, *audios, *images;
    STK_TRY(find_media(reader, &videos, rules->videos_column, "video", "videos"));
    STK_TRY(find_media(reader, &audios, rules->audios_column, "audio", "audios"));
    STK_TRY(find_media(reader, &images, rules->images_column, "image", "images"));
    if (count_media(videos)) return stk_record_reader_fail(reader, STK_REASON_VIDEO, "video is not supported yet");
    if (count_media(audios)) return stk_record_reader_fail(reader, STK_REASON_AUDIO, "audio is not supported yet");
    reader->shelf = images;
    reader->shelf_count = count_media(images);
    const json_t *const objects = stk_json_get(reader->record, "objects");
    reader->has_objects = json_object_size(objects) || json_array_size(objects) || json_string_length(objects);
    return STK_OK;
}

static stk_status read_id(stk_record_reader *reader)
{
    json_t *id;
    STK_TRY(find_column(reader, &id, reader->rules->id_column, "id", NULL));
    if (json_is_string(id) && json_string_length(id)) reader->sample->id = stk_json_text(id);
    if (!json_is_number(id)) return STK_OK;
    char *const text = stk_record_reader_take(reader, 32);
    if (!text) return stk_record_reader_nomem(reader);
    int length;
    if (json_is_integer(id))
        length = snprintf(text, 32, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
    else
        length = snprintf(text, 32, "%.17g", json_real_value(id));
    reader->sample->id = (stk_str){text, (size_t)length};
    return STK_OK;
}

/* A list, or a text that holds the JSON of one. */
static stk_status read_tools(stk_record_reader *reader)
{
    json_t *tools;
    STK_TRY(find_column(reader, &tools, reader->rules->tools_column, "tools", NULL));
    if (json_is_string(tools)) {
        if (json_string_length(tools) == 0) return STK_OK;
        json_t *parsed;
        STK_TRY(stk_record_reader_json(reader, &parsed, stk_json_text(tools), "text of `tools`"));
        tools = parsed;
    }
    if (!tools) return STK_OK;
    if (!json_is_array(tools)) return stk_record_reader_fail(reader, STK_REASON_DIALECT, "`tools` is no list");
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!json_is_object(json_array_get(tools, i)))
            return stk_record_reader_fail(reader, STK_REASON_DIALECT, "tool %zu is no object", i + 1);
    if (json_array_size(tools)) reader->sample->tools = tools;
    return STK_OK;
}

/* --- turns --- */

/* A usual name of the column that has a value; a second one that has one too is a question for the user. */
static stk_status find_usual(stk_record_reader *reader, const json_t **messages)
{
    static const char *const names[] = {"conversations", "conversation", "messages"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *const value = stk_json_get(reader->record, names[i]);
        if (!value) continue;
        if (found)
            return stk_record_reader_fail(
                reader, STK_REASON_DIALECT,
                "both `%s` and `%s`: say in the data set which one holds, columns: {messages: ...}", found,
                names[i]);
        found = names[i];
        *messages = value;
    }
    return STK_OK;
}

/* TRL's `prompt` and `completion`, two lists of turns, as one. */
static stk_status join_prompt(stk_record_reader *reader, const json_t **messages)
{
    json_t *const prompt = stk_json_get(reader->record, "prompt");
    json_t *const completion = stk_json_get(reader->record, "completion");
    if (!prompt || !completion) return STK_OK;
    if (!json_is_array(prompt) || !json_is_array(completion))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                                      "`prompt` and `completion` are no lists of turns: write each as a list of "
                                      "{\"role\", \"content\"}");
    json_t *joined;
    STK_TRY(stk_record_reader_own(reader, &joined, json_array()));
    if (json_array_extend(joined, prompt) || json_array_extend(joined, completion))
        return stk_record_reader_nomem(reader);
    reader->prompt_count = json_array_size(prompt);
    *messages = joined;
    return STK_OK;
}

static stk_status find_messages(stk_record_reader *reader, const json_t **messages)
{
    const stk_str mapped = reader->rules->messages_column;
    *messages = NULL;
    if (mapped.data) {
        json_t *value;
        STK_TRY(find_column(reader, &value, mapped, NULL, NULL));
        *messages = value;
    } else {
        STK_TRY(find_usual(reader, messages));
        if (!*messages) STK_TRY(join_prompt(reader, messages));
    }
    if (json_is_array(*messages)) return STK_OK;
    if (*messages) return stk_record_reader_fail(reader, STK_REASON_DIALECT, "the conversation is no list of turns");
    if (mapped.data)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "no `%.*s`, where columns says the messages are",
                               STK_STR_ARGS(stk_utf8_cut(mapped, 60)));
    return stk_record_reader_fail(
        reader, STK_REASON_DIALECT,
        "no `conversations` and no `messages`: name the key that holds them, columns: {messages: KEY}");
}

static stk_status detect(stk_record_reader *reader, stk_dialect *dialect, const json_t *messages)
{
    *dialect = reader->rules->dialect;
    if (*dialect != STK_DIALECT_DETECT) return STK_OK;
    const json_t *const first = json_array_get(messages, 0);
    const bool has_from = stk_json_get(first, "from") != NULL, has_role = stk_json_get(first, "role") != NULL;
    if (has_from == has_role)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               has_from
                                   ? "the first turn has both `from` and `role`: say format: llava or openai"
                                   : "the first turn has neither `from` (llava) nor `role` (openai)");
    *dialect = has_from ? STK_DIALECT_LLAVA : STK_DIALECT_OPENAI;
    return STK_OK;
}

/* `system` of the record becomes a first turn. */
static stk_status read_system(stk_record_reader *reader, stk_turn *turn, bool *given)
{
    json_t *system;
    const char *const other = reader->rules->dialect == STK_DIALECT_MS_SWIFT ? "system_prompt" : NULL;
    STK_TRY(find_column(reader, &system, reader->rules->system_column, "system", other));
    *given = system && !(json_is_string(system) && json_string_length(system) == 0);
    if (!*given) return STK_OK;
    if (!json_is_string(system)) return stk_record_reader_fail(reader, STK_REASON_DIALECT, "`system` is no text");
    stk_turn_part *const part = stk_record_reader_take(reader, sizeof *part);
    if (!part) return stk_record_reader_nomem(reader);
    *part = (stk_turn_part){.kind = STK_PART_TEXT, .text = stk_json_text(system)};
    *turn = (stk_turn){.role = STK_ROLE_SYSTEM, .part = part, .part_count = 1};
    return STK_OK;
}

/* Calls that stand in turns of their own, one after the other, are the calls of one turn. */
static stk_status join_calls(stk_record_reader *reader, stk_turn *turn, const stk_turn *next)
{
    if (turn->train != next->train)
        return stk_record_reader_fail(reader, STK_REASON_TURN_LOSS,
                                      "its calls belong to the turn before, which is trained otherwise: give both "
                                      "the same loss");
    const size_t count = turn->call_count + next->call_count;
    stk_tool_call *const call = stk_record_reader_take(reader, count * sizeof *call);
    if (!call) return stk_record_reader_nomem(reader);
    memcpy(call, turn->call, turn->call_count * sizeof *call);
    memcpy(call + turn->call_count, next->call, next->call_count * sizeof *call);
    turn->call = call;
    turn->call_count = count;
    return STK_OK;
}

/* The turns of the messages behind *turn_count others. */
static stk_status place_turns(stk_record_reader *reader, const stk_message *message, size_t count, stk_turn *turn,
                              size_t *turn_count)
{
    for (size_t i = 0; i < count; i++) {
        reader->turn_number = i + 1;
        if (i && message[i].is_call && message[i - 1].is_call)
            STK_TRY(join_calls(reader, turn + *turn_count - 1, &message[i].turn));
        else
            turn[(*turn_count)++] = message[i].turn;
    }
    reader->turn_number = 0;
    return STK_OK;
}

static stk_status read_turns(stk_record_reader *reader, const json_t *messages, stk_turn **turns, size_t *turn_count)
{
    stk_dialect dialect;
    const size_t count = json_array_size(messages);
    if (count == 0) return stk_record_reader_fail(reader, STK_REASON_NO_ANSWER, "the conversation has no turns");
    STK_TRY(detect(reader, &dialect, messages));
    stk_turn *const turn = stk_record_reader_take(reader, (count + 1) * sizeof *turn);
    stk_message *const message = stk_record_reader_take(reader, count * sizeof *message);
    if (!turn || !message) return stk_record_reader_nomem(reader);
    bool has_system;
    STK_TRY(read_system(reader, turn, &has_system));
    for (size_t i = 0; i < count; i++) {
        reader->turn_number = i + 1;
        STK_TRY(stk_record_reader_turn(reader, message + i, json_array_get(messages, i), dialect));
    }
    reader->turn_number = 0;
    if (has_system && message[0].turn.role == STK_ROLE_SYSTEM)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               "a `system` beside a first turn of the system: take one out");
    STK_TRY(stk_record_reader_loss_list(reader, message, count));
    *turns = turn;
    *turn_count = has_system;
    return place_turns(reader, message, count, turn, turn_count);
}

static stk_status note_turns(stk_record_reader *reader, const stk_turn *turn, size_t count)
{
    bool has_answer = false;
    for (size_t i = 0; i < count; i++) {
        has_answer |= turn[i].role == STK_ROLE_ASSISTANT;
        if (turn[i].role == STK_ROLE_TOOL) reader->sample->notes |= STK_NOTE_TOOL_ROLE;
        if (turn[i].role == STK_ROLE_SYSTEM && i) reader->sample->notes |= STK_NOTE_LATER_SYSTEM;
    }
    if (!has_answer) return stk_record_reader_fail(reader, STK_REASON_NO_ANSWER, "no turn of the assistant");
    if (turn[count - 1].role != STK_ROLE_ASSISTANT) reader->sample->notes |= STK_NOTE_NO_FINAL_ANSWER;
    return STK_OK;
}

/* --- tags and media --- */

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

/* Every tag has its medium, every medium its tag. */
static stk_status compare_counts(stk_record_reader *reader)
{
    const struct {
        const char *noun;
        size_t tags, media;
    } kinds[] = {
        {"image", reader->tag_count, reader->shelf_count},
        {"video", reader->video_tag_count, 0},
        {"audio", reader->audio_tag_count, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].tags == kinds[i].media) continue;
        const char *const advice = kinds[i].tags ? "each tag needs one"
                                                 : "write the tags, or say format: ms-swift to show them before the "
                                                   "first turn's text";
        return stk_record_reader_fail(reader, STK_REASON_TAGS, "%zu <%s> tag%s and %zu %s%s: %s", kinds[i].tags,
                                      kinds[i].noun, plural(kinds[i].tags), kinds[i].media, kinds[i].noun,
                                      plural(kinds[i].media), advice);
    }
    return STK_OK;
}

/* As ms-swift: images that no tag takes are shown before the text of the first turn that is not the system's, ahead of
 * those that have tags.  It counts tags of all roles; one that Stoker reads as text would make another picture here. */
static stk_status add_missing_tags(stk_record_reader *reader, const json_t *messages, stk_turn **turn, size_t *turn_count)
{
    if (reader->rules->dialect != STK_DIALECT_MS_SWIFT || reader->tag_count >= reader->shelf_count) return STK_OK;
    if (reader->verbatim_tag_count)
        return stk_record_reader_fail(reader, STK_REASON_TAGS,
                                      "more images than <image> tags, and an <image> in a turn of the system or the "
                                      "assistant, where it is text: write all tags into turns of the user");
    reader->lead_tag_count = reader->shelf_count - reader->tag_count;
    reader->sample->notes |= STK_NOTE_TAGS_ADDED;
    reader->media_count = reader->tag_count = reader->video_tag_count = reader->audio_tag_count = 0;
    return read_turns(reader, messages, turn, turn_count);
}

static stk_status read_record(stk_record_reader *reader, stk_str text)
{
    stk_sample *const sample = reader->sample;
    if (text.size_bytes > reader->rules->limits->record_bytes)
        return stk_record_reader_fail(reader, STK_REASON_RECORD_LIMIT,
                               "%zu bytes, and limits.record_bytes is %" PRIu64, text.size_bytes,
                               reader->rules->limits->record_bytes);
    json_t *record;
    STK_TRY(stk_record_reader_json(reader, &record, text, "record"));
    if (!json_is_object(record))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "the record is no object");
    reader->record = record;
    STK_TRY(read_id(reader));
    STK_TRY(read_shelf(reader));
    STK_TRY(read_tools(reader));

    const json_t *messages = NULL;
    stk_turn *turn = NULL;
    size_t turn_count = 0;
    STK_TRY(find_messages(reader, &messages));
    STK_TRY(read_turns(reader, messages, &turn, &turn_count));
    STK_TRY(add_missing_tags(reader, messages, &turn, &turn_count));
    STK_TRY(compare_counts(reader));
    STK_TRY(note_turns(reader, turn, turn_count));
    sample->turn = turn;
    sample->turn_count = turn_count;
    sample->media = reader->media;
    sample->media_count = reader->media_count;
    return STK_OK;
}

static stk_status take_root(stk_record_reader *reader)
{
    const stk_str root = reader->rules->media_root;
    if (root.data && stk_address_is_remote(root)) {
        /* "prefix/" and "prefix" are one. */
        reader->root = (stk_str){root.data, root.size_bytes - (root.data[root.size_bytes - 1] == '/')};
        return STK_OK;
    }
    if (!root.data || root.size_bytes == 0 || root.data[0] != '/')
        return STK_OK; /* then no relative path is allowed */
    char *const copy = stk_record_reader_take(reader, root.size_bytes);
    if (!copy) return stk_record_reader_nomem(reader);
    memcpy(copy, root.data, root.size_bytes);
    reader->root = (stk_str){copy, stk_path_normalise(copy, root.size_bytes)};
    return STK_OK;
}

static void clear(stk_sample *sample)
{
    json_decref(sample->root);
    stk_pool_reset(&sample->pool);
    *sample = (stk_sample){.pool = sample->pool};
}

void stk_sample_init(stk_sample *sample)
{
    *sample = (stk_sample){0};
    stk_pool_init(&sample->pool, STK_TAG_MANIFEST);
}

void stk_sample_deinit(stk_sample *sample)
{
    clear(sample);
    stk_pool_deinit(&sample->pool);
}

stk_status stk_record_reader_open(stk_record_reader *reader, stk_sample *sample, const stk_record_rules *rules, stk_reason *reason,
                                  stk_error *err)
{
    clear(sample);
    *reason = STK_REASON_NONE;
    *reader = (stk_record_reader){.sample = sample, .rules = rules, .reason = reason, .err = err};
    return take_root(reader);
}

stk_status stk_record_parse(stk_sample *sample, const stk_record_rules *rules, stk_str record,
                            stk_reason *reason, stk_error *err)
{
    stk_record_reader reader;
    stk_status status = stk_record_reader_open(&reader, sample, rules, reason, err);
    if (status == STK_OK) status = read_record(&reader, record);
    if (status < 0) {
        sample->tools = NULL;
        stk_error_stage(err, STK_STAGE_MANIFEST);
    }
    return status;
}

/* --- sample id --- */

/* Append one character, escaped if it is a control character; false: no room. */
static bool put_character(char *out, size_t *used, size_t room, const char *at, size_t size)
{
    const uint8_t first = (uint8_t)at[0];
    char escaped[8];
    if (first == '\n' || first == '\r' || first == '\t') {
        snprintf(escaped, sizeof escaped, "\\%c", first == '\n' ? 'n' : first == '\r' ? 'r' : 't');
    } else if (first < 0x20 || first == 0x7F) {
        snprintf(escaped, sizeof escaped, "\\x%02x", first);
    } else if (size == 2 && first == 0xC2 && (uint8_t)at[1] < 0xA0) {
        snprintf(escaped, sizeof escaped, "\\u%04x", (uint8_t)at[1]);
    } else {
        if (*used + size > room) return false;
        memcpy(out + *used, at, size);
        *used += size;
        return true;
    }
    const size_t length = strlen(escaped);
    if (*used + length > room) return false;
    memcpy(out + *used, escaped, length);
    *used += length;
    return true;
}

/* Append text up to room bytes; false: it did not all fit.  What is no UTF-8 becomes a question mark. */
static bool put_text(char *out, size_t *used, size_t room, stk_str text)
{
    for (size_t i = 0; i < text.size_bytes;) {
        const size_t size = stk_utf8_size((const uint8_t *)text.data + i, text.size_bytes - i);
        if (!put_character(out, used, room, size ? text.data + i : "?", size ? size : 1)) return false;
        i += size ? size : 1;
    }
    return true;
}

void stk_sample_id(char out[STK_SAMPLE_ID_BYTES], const char *set, stk_str id, uint64_t line, bool repeated)
{
    const stk_str name = stk_str_of(set);
    size_t used = 0;
    if (id.data && id.size_bytes && !repeated && put_text(out, &used, STK_SAMPLE_ID_BYTES - 1, name) &&
        put_text(out, &used, STK_SAMPLE_ID_BYTES - 1, (stk_str){"/", 1}) &&
        put_text(out, &used, STK_SAMPLE_ID_BYTES - 1, id)) {
        out[used] = 0;
        return;
    }
    char number[24];
    const int length = snprintf(number, sizeof number, "#%" PRIu64, line);
    used = 0;
    (void)put_text(out, &used, STK_SAMPLE_ID_BYTES - 1 - (size_t)length, name);
    memcpy(out + used, number, (size_t)length + 1);
}
