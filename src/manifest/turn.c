/* turn.c - one turn of a conversation: its role, its text cut at tags, its parts. */
#include "manifest/record_reader.h"

#include "manifest/json_check.h"

static const stk_role_mapping usual_roles[] = {
    {{"user", 4}, STK_ROLE_USER},           {{"human", 5}, STK_ROLE_USER},
    {{"assistant", 9}, STK_ROLE_ASSISTANT}, {{"gpt", 3}, STK_ROLE_ASSISTANT},
    {{"bot", 3}, STK_ROLE_ASSISTANT},       {{"system", 6}, STK_ROLE_SYSTEM},
    {{"developer", 9}, STK_ROLE_SYSTEM},    {{"tool", 4}, STK_ROLE_TOOL},
    {{"tool_response", 13}, STK_ROLE_TOOL}, {{"observation", 11}, STK_ROLE_TOOL},
    {{"observations", 12}, STK_ROLE_TOOL},  {{"function_response", 17}, STK_ROLE_TOOL},
};

/* Turns of the assistant whose content is nothing but calls. */
static const stk_role_mapping call_roles[] = {
    {{"function_call", 13}, STK_ROLE_ASSISTANT},
    {{"tool_call", 9}, STK_ROLE_ASSISTANT},
};

static bool find_role(stk_role *role, const stk_role_mapping *mapping, size_t count, stk_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (!stk_str_equal(mapping[i].name, name)) continue;
        *role = mapping[i].role;
        return true;
    }
    return false;
}

static stk_status read_role(stk_record_reader *reader, stk_message *message, const json_t *json, const char *key)
{
    const json_t *const value = stk_json_get(json, key);
    if (!json_is_string(value))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "no `%s`, or it is no text", key);
    const stk_str name = stk_json_text(value);
    const stk_record_rules *const rules = reader->rules;
    stk_role *const role = &message->turn.role;
    if (find_role(role, rules->role, rules->role_count, name) ||
        find_role(role, usual_roles, sizeof usual_roles / sizeof *usual_roles, name))
        return STK_OK;
    message->is_call = find_role(role, call_roles, sizeof call_roles / sizeof *call_roles, name);
    if (message->is_call) return STK_OK;
    const stk_str shown = stk_utf8_cut(name, 60);
    return stk_record_reader_fail(
        reader, STK_REASON_ROLE,
        "no mapping for the role \"%.*s\": add roles: {\"%.*s\": user, assistant, system or tool} to its "
        "data set",
        STK_STR_ARGS(shown), STK_STR_ARGS(shown));
}

/* --- parts --- */

typedef struct part_list {
    stk_turn_part *part;
    size_t count, capacity;
} part_list;

static stk_status add_part(stk_record_reader *reader, part_list *list, stk_turn_part part)
{
    void *items = list->part;
    stk_turn_part *const to = stk_record_reader_grow(reader, &items, list->count, &list->capacity, sizeof *to);
    if (!to) return stk_record_reader_nomem(reader);
    list->part = items;
    *to = part;
    list->count++;
    return STK_OK;
}

/* Bytes of the white space character that starts at text: what Python's str.strip takes away. */
static size_t space_size(const char *text, size_t size_bytes)
{
    const unsigned char *const c = (const unsigned char *)text;
    if (size_bytes >= 1 && ((c[0] >= 0x09 && c[0] <= 0x0D) || (c[0] >= 0x1C && c[0] <= 0x20))) return 1;
    if (size_bytes >= 2 && c[0] == 0xC2 && (c[1] == 0x85 || c[1] == 0xA0)) return 2;
    if (size_bytes < 3) return 0;
    const uint32_t code = (uint32_t)(c[0] & 0x0F) << 12 | (uint32_t)(c[1] & 0x3F) << 6 | (c[2] & 0x3F);
    if ((c[0] & 0xF0) != 0xE0) return 0;
    const bool is_space = code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
                          code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
    return is_space ? 3 : 0;
}

static stk_str strip(stk_str text)
{
    for (size_t size; (size = space_size(text.data, text.size_bytes)) != 0;) {
        text.data += size;
        text.size_bytes -= size;
    }
    while (text.size_bytes) {
        size_t start = text.size_bytes - 1;
        while (start && ((uint8_t)text.data[start] & 0xC0) == 0x80) start--;
        if (space_size(text.data + start, text.size_bytes - start) != text.size_bytes - start) break;
        text.size_bytes = start;
    }
    return text;
}

static stk_status add_text(stk_record_reader *reader, part_list *list, stk_role role, stk_str text)
{
    const stk_str bare = role == STK_ROLE_USER ? strip(text) : text;
    if (bare.size_bytes != text.size_bytes) reader->sample->notes |= STK_NOTE_TAG_SPACE;
    if (reader->rules->tag_space == STK_TAG_SPACE_STRIP) text = bare;
    if (text.size_bytes == 0) return STK_OK;
    return add_part(reader, list, (stk_turn_part){.kind = STK_PART_TEXT, .text = text});
}

/* Add the part of the medium that the call before has added to reader->media. */
static stk_status add_last_medium(stk_record_reader *reader, part_list *list)
{
    return add_part(
        reader, list,
        (stk_turn_part){.kind = STK_PART_MEDIA, .media_index = (uint32_t)(reader->media_count - 1)});
}

static stk_status add_tag(stk_record_reader *reader, part_list *list, stk_media_kind kind)
{
    bool added = false;
    if (kind == STK_MEDIA_VIDEO)
        reader->video_tag_count++;
    else if (kind == STK_MEDIA_AUDIO)
        reader->audio_tag_count++;
    else
        STK_TRY(stk_record_reader_tag(reader, &added));
    return added ? add_last_medium(reader, list) : STK_OK;
}

/* Bytes of the tag at text, 0: there is none. */
static size_t tag_size(const char *text, size_t size_bytes, stk_media_kind *kind)
{
    static const stk_str tags[] = {[STK_MEDIA_IMAGE] = {"<image>", 7},
                                   [STK_MEDIA_VIDEO] = {"<video>", 7},
                                   [STK_MEDIA_AUDIO] = {"<audio>", 7}};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (size_bytes < tags[i].size_bytes || memcmp(text, tags[i].data, tags[i].size_bytes) != 0) continue;
        *kind = (stk_media_kind)i;
        return tags[i].size_bytes;
    }
    return 0;
}

static bool has_media(stk_role role)
{
    return role == STK_ROLE_USER || role == STK_ROLE_TOOL;
}

/* Bytes of the <img>PATH</img> at text, ms-swift's older way to show a picture; 0: there is none. */
static size_t img_size(const char *text, size_t size_bytes, stk_str *path)
{
    enum { OPEN = 5, CLOSE = 6 };
    if (size_bytes < OPEN + 1 + CLOSE || memcmp(text, "<img>", OPEN) != 0) return 0;
    const char *const close = memmem(text + OPEN + 1, size_bytes - OPEN - 1, "</img>", CLOSE);
    if (!close) return 0;
    *path = (stk_str){text + OPEN, (size_t)(close - text) - OPEN};
    return memchr(path->data, '\n', path->size_bytes) ? 0 : OPEN + path->size_bytes + CLOSE;
}

/* The picture of an <img> where a record has no others; *size 0: the text stays text. */
static stk_status read_img(stk_record_reader *reader, size_t *size, const char *text, size_t size_bytes, stk_str *path)
{
    const stk_dialect dialect = reader->rules->dialect;
    *size = 0;
    if (reader->shelf_count || (dialect != STK_DIALECT_MS_SWIFT && dialect != STK_DIALECT_DETECT)) return STK_OK;
    *size = img_size(text, size_bytes, path);
    if (*size == 0 || dialect == STK_DIALECT_MS_SWIFT) return STK_OK;
    return stk_record_reader_fail(reader, STK_REASON_TAGS,
                                  "<img>%.*s</img> is a picture for ms-swift and text for others: say format: ms-swift, "
                                  "or llava or openai to keep the text",
                                  STK_STR_ARGS(stk_utf8_cut(*path, 60)));
}

/* What ms-swift puts the boxes of `objects` for is no text. */
static stk_status check_boxes(stk_record_reader *reader, stk_str text)
{
    static const char *const marks[] = {"<bbox>", "<ref-object>"};
    for (size_t i = 0; reader->has_objects && i < sizeof marks / sizeof *marks; i++)
        if (memmem(text.data, text.size_bytes, marks[i], strlen(marks[i])))
            return stk_record_reader_fail(reader, STK_REASON_GROUNDING,
                                          "%s stands for one of `objects`: write the names and boxes into the text as "
                                          "the model is to see them, and take `objects` out",
                                          marks[i]);
    return STK_OK;
}

/* A text without tags: of the system and the assistant, where templates show no media. */
static stk_status read_verbatim(stk_record_reader *reader, part_list *list, stk_role role, stk_str text)
{
    if (reader->rules->dialect == STK_DIALECT_MS_SWIFT && memmem(text.data, text.size_bytes, "<image>", 7))
        reader->verbatim_tag_count++;
    return add_text(reader, list, role, text);
}

static stk_status read_text(stk_record_reader *reader, part_list *list, stk_role role, stk_str text)
{
    STK_TRY(check_boxes(reader, text));
    if (!has_media(role)) return read_verbatim(reader, list, role, text);
    size_t begin = 0;
    for (size_t at = 0; at < text.size_bytes;) {
        const char *const found = memchr(text.data + at, '<', text.size_bytes - at);
        if (!found) break;
        at = (size_t)(found - text.data);
        const size_t left = text.size_bytes - at;
        stk_media_kind kind = STK_MEDIA_IMAGE;
        stk_str path = {0};
        size_t size = tag_size(found, left, &kind);
        if (!size) STK_TRY(read_img(reader, &size, found, left, &path));
        if (size) {
            STK_TRY(add_text(reader, list, role, (stk_str){text.data + begin, at - begin}));
            if (path.data) {
                STK_TRY(stk_record_reader_address_image(reader, path));
                STK_TRY(add_last_medium(reader, list));
            } else
                STK_TRY(add_tag(reader, list, kind));
            begin = at + size;
        }
        at += size ? size : 1;
    }
    return add_text(reader, list, role, (stk_str){text.data + begin, text.size_bytes - begin});
}

typedef enum part_type {
    TYPE_TEXT,
    TYPE_IMAGE,
    TYPE_IMAGE_URL,
    TYPE_VIDEO,
    TYPE_AUDIO,
    TYPE_UNKNOWN
} part_type;

static part_type type_of_name(stk_str name)
{
    if (stk_str_is(name, "text")) return TYPE_TEXT;
    if (stk_str_is(name, "image")) return TYPE_IMAGE;
    if (stk_str_is(name, "image_url")) return TYPE_IMAGE_URL;
    if (stk_str_is(name, "video") || stk_str_is(name, "video_url")) return TYPE_VIDEO;
    if (stk_str_is(name, "audio") || stk_str_is(name, "audio_url") || stk_str_is(name, "input_audio"))
        return TYPE_AUDIO;
    return TYPE_UNKNOWN;
}

/* Keys that make a part what it is when it has no type, and that must not stand beside the text of a text
 * part. */
static const char *const part_keys[] = {"image", "image_url", "video",      "video_url",
                                        "audio", "audio_url", "input_audio"};

/* The kind comes from `type`; only without one, from the single key that is there. */
static stk_status find_type(stk_record_reader *reader, part_type *type, const json_t *part)
{
    const json_t *const name = stk_json_get(part, "type");
    if (json_is_string(name)) {
        *type = type_of_name(stk_json_text(name));
        if (*type != TYPE_UNKNOWN) return STK_OK;
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               "a part of the unknown type \"%.*s\": known are text, image and image_url",
                               STK_STR_ARGS(stk_utf8_cut(stk_json_text(name), 60)));
    }
    size_t count = stk_json_get(part, "text") != NULL;
    *type = TYPE_TEXT;
    for (size_t i = 0; i < sizeof part_keys / sizeof *part_keys; i++) {
        if (!stk_json_get(part, part_keys[i])) continue;
        *type = type_of_name(stk_str_of(part_keys[i]));
        count++;
    }
    if (name || count != 1)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               "a part whose kind is not clear: give it a type, such as \"text\"");
    return STK_OK;
}

static stk_status read_text_part(stk_record_reader *reader, part_list *list, stk_role role, const json_t *part)
{
    const json_t *const text = stk_json_get(part, "text");
    if (!json_is_string(text)) return stk_record_reader_fail(reader, STK_REASON_DIALECT, "a text part without text");
    for (size_t i = 0; i < sizeof part_keys / sizeof *part_keys; i++) {
        const json_t *const value = stk_json_get(part, part_keys[i]);
        /* Tables that give every part the same columns fill them with null or with nothing. */
        if (!value || (json_is_string(value) && json_string_length(value) == 0)) continue;
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               "a text part that has also `%s`: make it two parts", part_keys[i]);
    }
    return read_text(reader, list, role, stk_json_text(text));
}

static stk_status read_image_part(stk_record_reader *reader, part_list *list, stk_role role, const json_t *part,
                                  part_type type)
{
    if (!has_media(role))
        return stk_record_reader_fail(reader, STK_REASON_TAGS,
                               "an image in a turn of the %s, where templates show none: move it to a "
                               "turn of the user",
                               role == STK_ROLE_SYSTEM ? "system" : "assistant");
    bool added;
    STK_TRY(stk_record_reader_image_part(reader, part, type == TYPE_IMAGE_URL, &added));
    return added ? add_last_medium(reader, list) : STK_OK;
}

static stk_status read_part(stk_record_reader *reader, part_list *list, stk_role role, const json_t *part)
{
    if (!json_is_object(part))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "a part of `content` is no object");
    part_type type;
    STK_TRY(find_type(reader, &type, part));
    if (type == TYPE_VIDEO) return stk_record_reader_fail(reader, STK_REASON_VIDEO, "video is not supported yet");
    if (type == TYPE_AUDIO) return stk_record_reader_fail(reader, STK_REASON_AUDIO, "audio is not supported yet");
    if (type == TYPE_TEXT) return read_text_part(reader, list, role, part);
    return read_image_part(reader, list, role, part, type);
}

/* --- one message --- */

/* The key under which a turn has a thing: ms-swift knows both names, in any mixture. */
static stk_status find_key(stk_record_reader *reader, const char **key, const json_t *json, stk_dialect dialect,
                           const char *openai, const char *llava)
{
    *key = dialect == STK_DIALECT_LLAVA || dialect == STK_DIALECT_SHAREGPT ? llava : openai;
    const char *const other = *key == llava ? openai : llava;
    const json_t *const value = stk_json_get(json, *key), *const second = stk_json_get(json, other);
    if (dialect != STK_DIALECT_MS_SWIFT) {
        if (value || !second) return STK_OK;
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                                      "no `%s`, but `%s`: say format: ms-swift, which reads both", *key, other);
    }
    if (value && second && !json_equal(value, second))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "both `%s` and `%s`: take one out", *key, other);
    if (!value && second) *key = other;
    return STK_OK;
}

static stk_status add_lead_tags(stk_record_reader *reader, part_list *list, stk_role role)
{
    if (!has_media(role))
        return stk_record_reader_fail(reader, STK_REASON_TAGS,
                                      "images without tags belong before the first turn, but it is the assistant's, "
                                      "which shows none: write their <image> tags into a turn of the user");
    for (; reader->lead_tag_count; reader->lead_tag_count--) STK_TRY(add_tag(reader, list, STK_MEDIA_IMAGE));
    return STK_OK;
}

static stk_status read_content(stk_record_reader *reader, stk_turn *turn, const json_t *content)
{
    part_list list = {0};
    if (reader->lead_tag_count && turn->role != STK_ROLE_SYSTEM) STK_TRY(add_lead_tags(reader, &list, turn->role));
    if (json_is_string(content)) STK_TRY(read_text(reader, &list, turn->role, stk_json_text(content)));
    for (size_t i = 0; i < json_array_size(content); i++)
        STK_TRY(read_part(reader, &list, turn->role, json_array_get(content, i)));
    turn->part = list.part;
    turn->part_count = list.count;
    return STK_OK;
}

stk_status stk_record_reader_turn(stk_record_reader *reader, stk_message *message, const json_t *json,
                                  stk_dialect dialect)
{
    *message = (stk_message){0};
    stk_turn *const turn = &message->turn;
    if (!json_is_object(json)) return stk_record_reader_fail(reader, STK_REASON_DIALECT, "the turn is no object");
    const char *role_key, *content_key;
    STK_TRY(find_key(reader, &role_key, json, dialect, "role", "from"));
    STK_TRY(read_role(reader, message, json, role_key));
    STK_TRY(find_key(reader, &content_key, json, dialect, "content", "value"));
    STK_TRY(stk_record_reader_loss(reader, turn, json, dialect));
    const json_t *const content = stk_json_get(json, content_key);
    if (message->is_call) {
        if (reader->lead_tag_count) return add_lead_tags(reader, NULL, turn->role);
        return stk_record_reader_call_content(reader, turn, content);
    }
    const bool has_parts = dialect == STK_DIALECT_OPENAI || dialect == STK_DIALECT_MS_SWIFT;
    if (has_parts) {
        STK_TRY(stk_record_reader_calls(reader, turn, json));
        STK_TRY(stk_record_reader_reasoning(reader, turn, json));
    }
    if (content ? !json_is_string(content) && !(has_parts && json_is_array(content))
                : turn->call_count == 0 && !turn->reasoning.data)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "%s `%s`, or it is no text%s",
                                      content ? "not a usable" : "no", content_key,
                                      has_parts ? " and no list of parts" : "");
    return read_content(reader, turn, content);
}
