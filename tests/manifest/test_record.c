/* One record to turns, parts and media: dialects, tags, addresses, and every way in which a record is
 * refused. */
#include "test.h"

#include "base/fault.h"
#include "manifest/record.h"

static stk_limits limits;
static stk_record_rules rules;
static stk_sample sample;
static stk_reason reason;
static stk_error err;

#define STR(text) ((stk_str){"" text, sizeof(text) - 1})

/* Each test starts from the defaults. */
static void reset(void)
{
    limits = STK_LIMITS_DEFAULT;
    rules = (stk_record_rules){.media_root = STR("/m"), .limits = &limits};
}

static stk_status parse_bytes(const char *text, size_t size_bytes)
{
    return stk_record_parse(&sample, &rules, (stk_str){text, size_bytes}, &reason, &err);
}

static stk_status parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

/* The sample in one line: `U'text'<0>` per turn, its train key, calls and reasoning, then the media. */
static const char *show(void)
{
    static char out[4096];
    size_t n = 0;
#define PUT(...) n += (size_t)snprintf(out + n, sizeof out - n, __VA_ARGS__)
    out[0] = 0;
    for (size_t i = 0; i < sample.turn_count; i++) {
        const stk_turn *const turn = sample.turn + i;
        PUT("%s%c", i ? " " : "", "SUAT"[turn->role]);
        if (turn->train != STK_TRAIN_BY_RULE) PUT("%c", turn->train == STK_TRAIN_YES ? '+' : '-');
        if (turn->reasoning.data) PUT("(%.*s)", STK_STR_ARGS(turn->reasoning));
        for (size_t k = 0; k < turn->part_count; k++) {
            const stk_turn_part *const part = turn->part + k;
            if (part->kind == STK_PART_MEDIA)
                PUT("<%u>", part->media_index);
            else
                PUT("'%.*s'", STK_STR_ARGS(part->text));
            CHECK(part->kind == STK_PART_MEDIA || part->text.size_bytes);
        }
        for (size_t k = 0; k < turn->call_count; k++) {
            char *const arguments = json_dumps(turn->call[k].arguments, JSON_ENCODE_ANY | JSON_COMPACT);
            PUT("{%.*s %s}", STK_STR_ARGS(turn->call[k].name), arguments);
            free(arguments);
        }
    }
    for (size_t i = 0; i < sample.media_count; i++) {
        PUT(" %.*s", STK_STR_ARGS(sample.media[i].address));
        if (sample.media[i].width_px) PUT(":%ux%u", sample.media[i].width_px, sample.media[i].height_px);
    }
#undef PUT
    return out;
}

static void expect(const char *record, const char *shown)
{
    CHECK_MSG(parse(record) == STK_OK, "%s: %s", record, err.message);
    CHECK_INT(reason, STK_REASON_NONE);
    CHECK_STR(show(), shown);
}

static void refuse_bytes(const char *record, size_t size_bytes, stk_reason why, const char *words)
{
    CHECK_MSG(parse_bytes(record, size_bytes) == STK_ERR_RECORD, "%s", record);
    CHECK_MSG(reason == why, "%s: reason %d, not %d: %s", record, (int)reason, (int)why, err.message);
    CHECK_HAS(err.message, words);
    CHECK_INT(err.stage, STK_STAGE_MANIFEST);
    CHECK_INT(sample.turn_count, 0);
    CHECK_INT(sample.media_count, 0);
    CHECK(!sample.tools);
}

static void refuse(const char *record, stk_reason why, const char *words)
{
    refuse_bytes(record, strlen(record), why, words);
}

/* One user turn of the given JSON content, an answer, and more keys. */
static const char *chat(const char *content, const char *more)
{
    static char record[8192];
    snprintf(
        record, sizeof record,
        "{\"messages\":[{\"role\":\"user\",\"content\":%s},{\"role\":\"assistant\",\"content\":\"ok\"}]%s}",
        content, more);
    return record;
}

static const char *llava(const char *value, const char *more)
{
    static char record[8192];
    snprintf(record, sizeof record,
             "{\"conversations\":[{\"from\":\"human\",\"value\":%s},{\"from\":\"gpt\",\"value\":\"ok\"}]%s}",
             value, more);
    return record;
}

/* --- dialects --- */

static void llava_records(void)
{
    reset();
    expect(
        "{\"id\":7,\"image\":\"a.jpg\",\"conversations\":[{\"from\":\"human\",\"value\":\"<image>\\nWhat?\"},"
        "{\"from\":\"gpt\",\"value\":\"A <image> "
        "cat\"},{\"from\":\"human\",\"value\":\"Sure?\"},{\"from\":\"gpt\",\"value\":\"\"}]}",
        "U<0>'\nWhat?' A'A <image> cat' U'Sure?' A /m/a.jpg");
    CHECK(stk_str_is(sample.id, "7"));
    expect(llava("\"x<image>y <image><image>\"", ",\"images\":[\"1\",\"2\",\"3\"]"),
           "U'x'<0>'y '<1><2> A'ok' /m/1 /m/2 /m/3");
    expect("{\"conversations\":[{\"from\":\"system\",\"value\":\"s<image>\"},{\"from\":\"human\",\"value\":"
           "\"u\"},"
           "{\"from\":\"observation\",\"value\":\"o\"},{\"from\":\"function_response\",\"value\":\"r\"},"
           "{\"from\":\"gpt\",\"value\":\"a\"}]}",
           "S's<image>' U'u' T'o' T'r' A'a'");
    CHECK_INT(sample.notes, STK_NOTE_TOOL_ROLE);
    /* Only the exact tag is a tag. */
    expect(llava("\"< image><Image><image ><imag\"", ""), "U'< image><Image><image ><imag' A'ok'");
    refuse(llava("[]", ""), STK_REASON_DIALECT, "turn 1: not a usable `value`");
    refuse(llava("null", ""), STK_REASON_DIALECT, "turn 1: no `value`");
}

static void openai_records(void)
{
    reset();
    expect(
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":"
        "\"text\",\"text\":\"a\"},"
        "{\"type\":\"image\",\"image\":\"1.png\"},{\"type\":\"text\",\"text\":\"\"},{\"type\":\"image_url\","
        "\"image_url\":"
        "{\"url\":\"2.png\"}}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}]}",
        "S's' U'a'<0><1> A'b' /m/1.png /m/2.png");
    /* As ms-swift and TRL: the record's images, taken by tags in text and by parts without an address. */
    expect(chat("\"<image>a<image>\"", ",\"images\":[{\"path\":\"1\"},{\"url\":\"2\"}]"),
           "U<0>'a'<1> A'ok' /m/1 /m/2");
    expect(chat("[{\"type\":\"image\"},{\"type\":\"image\",\"url\":\"own\"},{\"type\":\"text\",\"text\":\"<"
                "image>\"}]",
                ",\"images\":[\"1\",\"2\"]"),
           "U<0><1><2> A'ok' /m/1 /m/own /m/2");
    expect(chat("[{\"image\":\"1\"},{\"text\":\"t\"},{\"image_url\":\"2\"}]", ""),
           "U<0>'t'<1> A'ok' /m/1 /m/2");
    expect(chat("[{\"type\":\"image\",\"path\":\"1\"},{\"type\":\"image\",\"image\":{\"url\":\"2\"}},{"
                "\"type\":\"image\",\"base64\":\"QUJD\"}]",
                ""),
           "U<0><1><2> A'ok' /m/1 /m/2 data:;base64,QUJD");
    /* A tool may answer with pictures. */
    expect("{\"image\":\"1\",\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"tool\","
           "\"content\":\"<image>t\"},"
           "{\"role\":\"assistant\",\"content\":\"a\"}]}",
           "U'u' T<0>'t' A'a' /m/1");
    refuse(chat("[\"a\"]", ""), STK_REASON_DIALECT, "turn 1: a part of `content` is no object");
    refuse(chat("{\"type\":\"text\",\"text\":\"a\"}", ""), STK_REASON_DIALECT,
           "turn 1: not a usable `content`");
    refuse(chat("[{\"type\":\"picture\"}]", ""), STK_REASON_DIALECT, "unknown type \"picture\"");
    refuse(chat("[{\"type\":\"text\"}]", ""), STK_REASON_DIALECT, "a text part without text");
    refuse(chat("[{\"text\":\"a\",\"image\":\"b\"}]", ""), STK_REASON_DIALECT, "kind is not clear");
    refuse(chat("[{\"type\":\"text\",\"text\":\"a\",\"image\":\"b\"}]", ""), STK_REASON_DIALECT,
           "a text part that has also `image`");
    refuse("{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"image\",\"image\":\"a\"}]}]}",
           STK_REASON_TAGS, "turn 1: an image in a turn of the assistant");
    refuse("{\"messages\":[{\"role\":\"assistant\"}]}", STK_REASON_DIALECT, "turn 1: no `content`");
}

static void dialect_is_told_by_the_first_turn_or_given(void)
{
    reset();
    expect("{\"messages\":[{\"from\":\"human\",\"value\":\"u\"},{\"from\":\"gpt\",\"value\":\"a\"}]}",
           "U'u' A'a'");
    expect("{\"conversations\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":"
           "\"a\"}]}",
           "U'u' A'a'");
    refuse("{\"messages\":[{\"text\":\"u\"}]}", STK_REASON_DIALECT,
           "neither `from` (llava) nor `role` (openai)");
    refuse("{\"messages\":[{\"from\":\"u\",\"role\":\"u\"}]}", STK_REASON_DIALECT, "both `from` and `role`");
    refuse("{\"messages\":[],\"conversations\":[]}", STK_REASON_DIALECT,
           "both `conversations` and `messages`");
    refuse("{\"messages\":[]}", STK_REASON_NO_ANSWER, "no turns");
    refuse("{\"messages\":{}}", STK_REASON_DIALECT, "no list of turns");
    refuse("{\"messages\":[1]}", STK_REASON_DIALECT, "neither");
    refuse("{\"text\":\"a\"}", STK_REASON_DIALECT, "columns: {messages: KEY}");
    refuse("[]", STK_REASON_DIALECT, "no object");
    rules.dialect = STK_DIALECT_LLAVA;
    refuse(chat("\"u\"", ""), STK_REASON_DIALECT, "turn 1: no `from`");
    rules.dialect = STK_DIALECT_OPENAI;
    refuse(llava("\"u\"", ""), STK_REASON_DIALECT, "turn 1: no `role`");
    refuse("{\"messages\":[1]}", STK_REASON_DIALECT, "turn 1: the turn is no object");
}

static void columns_and_roles(void)
{
    reset();
    const stk_role_mapping roles[] = {{STR("Doctor"), STK_ROLE_ASSISTANT},
                                      {STR("function_call"), STK_ROLE_ASSISTANT},
                                      {STR("user"), STK_ROLE_TOOL}};
    refuse("{\"messages\":[{\"role\":\"Doctor\",\"content\":\"a\"}]}", STK_REASON_ROLE,
           "turn 1: no mapping for the role \"Doctor\": add roles: {\"Doctor\": user, assistant, system or tool}");
    expect("{\"messages\":[{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},"
           "{\"role\":\"tool_response\",\"content\":\"t\"},{\"role\":\"bot\",\"content\":\"a\"}]}",
           "S's' U'u' T't' A'a'");
    rules.role = roles;
    rules.role_count = 3;
    expect("{\"messages\":[{\"role\":\"user\",\"content\":\"t\"},{\"role\":\"human\",\"content\":\"u\"},{"
           "\"role\":\"Doctor\",\"content\":\"a\"}]}",
           "T't' U'u' A'a'");
    /* A role of the configuration is that, and no turn of calls. */
    expect("{\"conversations\":[{\"from\":\"function_call\",\"value\":\"a\"}]}", "A'a'");
    reset();
    rules.id_column = STR("key");
    rules.messages_column = STR("dialog");
    rules.images_column = STR("pics");
    rules.tools_column = STR("api");
    rules.system_column = STR("sys");
    /* A mapped name is the only one looked at. */
    expect("{\"key\":\"k\",\"id\":\"no\",\"pics\":\"a\",\"image\":\"no\",\"sys\":\"s\",\"system\":\"no\","
           "\"api\":[{}],\"tools\":3,\"messages\":1,"
           "\"dialog\":[{\"role\":\"user\",\"content\":\"<image>\"},{\"role\":\"assistant\",\"content\":"
           "\"a\"}]}",
           "S's' U<0> A'a' /m/a");
    CHECK(stk_str_is(sample.id, "k"));
    CHECK_INT(json_array_size(sample.tools), 1);
    refuse(chat("\"u\"", ""), STK_REASON_DIALECT, "no `dialog`, where columns says");
    reset();
    rules.videos_column = STR("clips");
    refuse(chat("\"<video>\"", ",\"clips\":[\"a.mp4\"]"), STK_REASON_VIDEO, "video is not supported yet");
    rules.audios_column = STR("sounds");
    refuse(chat("\"u\"", ",\"sounds\":\"a.wav\""), STK_REASON_AUDIO, "audio is not supported yet");
}

static void ids_are_text_or_numbers(void)
{
    reset();
    static const struct {
        const char *json, *text;
    } ids[] = {{"\"a b\"", "a b"},      {"12", "12"}, {"-9223372036854775808", "-9223372036854775808"},
               {"1.5", "1.5"},          {"null", ""}, {"\"\"", ""},
               {"{\"$oid\":\"x\"}", ""}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char more[100];
        snprintf(more, sizeof more, ",\"id\":%s", ids[i].json);
        CHECK_OK(parse(chat("\"u\"", more)), err);
        CHECK(stk_str_is(sample.id, ids[i].text));
        CHECK_INT(sample.id.data != NULL, ids[i].text[0] != 0);
    }
    refuse(chat("\"u\"", ",\"id\":123456789012345678901234567890"), STK_REASON_JSON,
           "write the number as a text");
    /* A record that fails later still has its id. */
    refuse(chat("\"<image>\"", ",\"id\":\"me\""), STK_REASON_TAGS, "1 <image> tag and 0 images");
    CHECK(stk_str_is(sample.id, "me"));
}

static void system_key_is_a_first_turn(void)
{
    reset();
    expect(chat("\"u\"", ",\"system\":\"be <image> kind\""), "S'be <image> kind' U'u' A'ok'");
    expect(chat("\"u\"", ",\"system\":\"\""), "U'u' A'ok'");
    refuse(chat("\"u\"", ",\"system\":1"), STK_REASON_DIALECT, "`system` is no text");
    refuse("{\"system\":\"a\",\"messages\":[{\"role\":\"system\",\"content\":\"b\"}]}", STK_REASON_DIALECT,
           "beside a first turn");
    CHECK_INT(sample.notes & STK_NOTE_LATER_SYSTEM, 0);
}

static void train_and_loss_keys(void)
{
    reset();
    expect("{\"messages\":[{\"role\":\"user\",\"content\":\"u\",\"train\":null},{\"role\":\"assistant\","
           "\"content\":\"1\",\"train\":true},"
           "{\"role\":\"assistant\",\"content\":\"2\",\"loss\":0},{\"role\":\"assistant\",\"content\":\"3\","
           "\"loss\":1.0},"
           "{\"role\":\"assistant\",\"content\":\"4\",\"loss\":false},{\"role\":\"assistant\",\"content\":"
           "\"5\",\"train\":false,\"loss\":0}]}",
           "U'u' A+'1' A-'2' A+'3' A-'4' A-'5'");
    expect("{\"conversations\":[{\"from\":\"gpt\",\"value\":\"a\",\"train\":false}]}", "A-'a'");
    static const char *const wrong[] = {"\"train\":2",   "\"train\":\"yes\"", "\"loss\":-1",       "\"loss\":0.5",
                                        "\"loss\":\"1\"", "\"loss\":[]",       "\"loss_scale\":0.3", "\"weight\":{}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char record[200];
        snprintf(record, sizeof record, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",%s}]}",
                 wrong[i]);
        refuse(record, STK_REASON_TURN_LOSS, "that is not true, false, 0 or 1: a turn is trained as a whole");
    }
    CHECK_HAS(err.message, "turn 1: a `weight`");
    refuse("{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"train\":true,\"loss\":0}]}",
           STK_REASON_TURN_LOSS, "turn 1: `loss` says the opposite");
    refuse("{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"train_detail\":[{\"train\":false}]}]}",
           STK_REASON_TURN_LOSS, "pieces of a turn");
    /* axolotl trains any turn that says so; OpenAI's weight and ms-swift's loss_scale are of answers. */
    expect("{\"messages\":[{\"role\":\"user\",\"content\":\"u\",\"train\":1,\"weight\":0},{\"role\":\"assistant\","
           "\"content\":\"a\",\"weight\":0,\"train_detail\":[]},{\"role\":\"user\",\"content\":\"u\",\"weight\":1,"
           "\"loss_scale\":1},{\"role\":\"assistant\",\"content\":\"b\",\"loss_scale\":1.0,\"weight\":1}]}",
           "U+'u' A-'a' U'u' A+'b'");
    rules.dialect = STK_DIALECT_MS_SWIFT;
    expect("{\"messages\":[{\"role\":\"user\",\"content\":\"u\",\"loss\":true},{\"role\":\"assistant\",\"content\":"
           "\"a\",\"loss\":true}]}",
           "U'u' A+'a'");
}

/* A conversation u, a, u, a, a with more keys. */
static const char *five_turns(const char *more)
{
    static char record[1000];
    snprintf(record, sizeof record,
             "{%s\"conversations\":[{\"from\":\"human\",\"value\":\"1\"},{\"from\":\"gpt\",\"value\":\"2\"},{\"from\":"
             "\"human\",\"value\":\"3\"},{\"from\":\"gpt\",\"value\":\"4\",\"train\":null},{\"from\":\"gpt\",\"value\":"
             "\"5\",\"train\":true}]}",
             more);
    return record;
}

/* C14: a record's list of weights has one entry for each turn or one for each answer; any other length is an error. */
static void lists_of_weights_fit_the_turns(void)
{
    reset();
    expect(five_turns(""), "U'1' A'2' U'3' A'4' A+'5'");
    expect(five_turns("\"weights\":[0,1,null],"), "U'1' A-'2' U'3' A+'4' A+'5'");
    expect(five_turns("\"loss\":[0,false,1,0.0,true],"), "U-'1' A-'2' U+'3' A-'4' A+'5'");
    expect(five_turns("\"loss\":0.7,\"weights\":null,"), "U'1' A'2' U'3' A'4' A+'5'");
    expect(five_turns("\"system\":\"s\",\"loss\":[1,0,1],"), "S's' U'1' A+'2' U'3' A-'4' A+'5'");
    refuse(five_turns("\"weights\":[0,1],"), STK_REASON_TURN_LOSS,
           "2 entries in `weights` for 5 turns, 3 of them the assistant's");
    refuse(five_turns("\"loss\":[],"), STK_REASON_TURN_LOSS, "0 entries in `loss`");
    refuse(five_turns("\"loss\":[1,1,0.5],"), STK_REASON_TURN_LOSS, "turn 5: a `loss` 0.5 that is not");
    refuse(five_turns("\"loss\":[1,1,0],"), STK_REASON_TURN_LOSS, "turn 5: `loss` says the opposite");
    refuse(five_turns("\"loss\":[1,1,1],\"weights\":[0,1,1],"), STK_REASON_TURN_LOSS,
           "turn 2: `weights` says the opposite");
    rules.dialect = STK_DIALECT_MS_SWIFT;
    expect(five_turns("\"loss\":[1,1,1,1,1],"), "U'1' A+'2' U'3' A+'4' A+'5'");
}

static void tools_calls_and_reasoning(void)
{
    reset();
    expect("{\"tools\":[{\"type\":\"function\"}],\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{"
           "\"role\":\"assistant\",\"content\":null,"
           "\"reasoning_content\":\"hm\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
           "\"arguments\":{\"b\":1,\"a\":2}}},"
           "{\"name\":\"g\",\"arguments\":\"{}\"}]},{\"role\":\"tool\",\"content\":\"r\"},{\"role\":"
           "\"assistant\",\"content\":\"a\","
           "\"reasoning_content\":null,\"tool_calls\":[]}]}",
           "U'u' A(hm){f {\"b\":1,\"a\":2}}{g \"{}\"} T'r' A'a'");
    CHECK_INT(json_array_size(sample.tools), 1);
    CHECK_INT(sample.notes, STK_NOTE_TOOL_ROLE);
    /* A list as text, with half a surrogate pair inside that text. */
    expect(chat("\"u\"", ",\"tools\":\"[{\\\"a\\\": \\\"\\\\ud83d\\\"}, {}]\""), "U'u' A'ok'");
    CHECK_INT(json_array_size(sample.tools), 2);
    CHECK_STR(json_string_value(json_object_get(json_array_get(sample.tools, 0), "a")), "\xEF\xBF\xBD");
    CHECK_INT(sample.notes, STK_NOTE_LONE_SURROGATE);
    static const char *const none[] = {"[]", "\"\"", "\"[]\"", "null"};
    for (size_t i = 0; i < 4; i++) {
        char more[40];
        snprintf(more, sizeof more, ",\"tools\":%s", none[i]);
        CHECK_OK(parse(chat("\"u\"", more)), err);
        CHECK(!sample.tools);
    }
    /* One key for two things is nonsense, but no harm. */
    rules.id_column = STR("tools");
    CHECK_OK(parse(chat("\"u\"", ",\"tools\":\"[{}]\"")), err);
    CHECK(stk_str_is(sample.id, "[{}]"));
    rules.id_column = (stk_str){0};
    refuse(chat("\"u\"", ",\"tools\":{}"), STK_REASON_DIALECT, "`tools` is no list");
    refuse(chat("\"u\"", ",\"tools\":[1]"), STK_REASON_DIALECT, "tool 1 is no object");
    refuse(chat("\"u\"", ",\"tools\":\"[{]\""), STK_REASON_JSON, "of the text of `tools`");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[{\"name\":\"f\","
           "\"arguments\":{}}]}]}",
           STK_REASON_DIALECT, "not the assistant's");
    refuse("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\"}]}]}", STK_REASON_DIALECT,
           "without name or arguments");
    refuse("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[3]}]}", STK_REASON_DIALECT,
           "without name or arguments");
    refuse("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":3}]}", STK_REASON_DIALECT,
           "`tool_calls` is no list");
    refuse("{\"messages\":[{\"role\":\"assistant\",\"function_call\":{}}]}", STK_REASON_DIALECT,
           "write it as tool_calls");
    refuse("{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":1}]}", STK_REASON_DIALECT,
           "`reasoning_content` is no text");
}

static void tag_space_strip_as_finetune(void)
{
    reset();
    rules.tag_space = STK_TAG_SPACE_STRIP;
    /* What Python's str.strip takes away, U+001C and the wide spaces among it, and nothing else (U+200B
     * stays). */
    expect(llava("\" \\u001c\\u2003\\u00a0<image>\\n\\u3000 Wh at? \\u0085<image>\\u1680\\u2028 \\u200b\"",
                 ",\"image\":[\"1\",\"2\"]"),
           "U<0>'Wh at?'<1>'\xE2\x80\x8B' A'ok' /m/1 /m/2");
    expect("{\"conversations\":[{\"from\":\"human\",\"value\":\" \\n\"},{\"from\":\"gpt\",\"value\":\" a "
           "\"},{\"from\":\"tool\",\"value\":\" t \"}]}",
           "U A' a ' T' t '");
    expect(chat("[{\"type\":\"text\",\"text\":\" a \"}]", ""), "U'a' A'ok'");
    /* Where the rule would change a record is noted under either. */
    reset();
    expect(llava("\"<image>\\nWhat?\"", ",\"image\":\"1\""), "U<0>'\nWhat?' A'ok' /m/1");
    CHECK_INT(sample.notes, STK_NOTE_TAG_SPACE);
    expect(llava("\"<image>What?\"", ",\"image\":\"1\""), "U<0>'What?' A'ok' /m/1");
    CHECK_INT(sample.notes, 0);
}

/* --- ms-swift --- */

static void ms_swift_reads_both_keys_in_any_mixture(void)
{
    reset();
    rules.dialect = STK_DIALECT_MS_SWIFT;
    static const char mixed[] =
        "{\"conversation\":[{\"from\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"u\"}]},{\"role\":\"gpt\","
        "\"value\":\"a\"},{\"role\":\"human\",\"from\":null,\"value\":\"v\",\"content\":\"v\"},{\"from\":\"bot\","
        "\"value\":\"b\"}],\"system_prompt\":\"s\"}";
    expect(mixed, "S's' U'u' A'a' U'v' A'b'");
    refuse("{\"messages\":[{\"role\":\"user\",\"from\":\"gpt\",\"value\":\"a\"}]}", STK_REASON_DIALECT,
           "turn 1: both `role` and `from`: take one out");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"value\":\"b\"}]}", STK_REASON_DIALECT,
           "turn 1: both `content` and `value`: take one out");
    refuse("{\"messages\":[{\"content\":\"a\"}]}", STK_REASON_DIALECT, "turn 1: no `role`");
    rules.dialect = STK_DIALECT_DETECT;
    refuse(mixed, STK_REASON_DIALECT, "turn 1: no `value`, but `content`: say format: ms-swift");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"value\":\"b\"}]}",
           STK_REASON_DIALECT, "turn 2: no `content`, but `value`: say format: ms-swift, which reads both");
}

static void ms_swift_puts_missing_tags_first(void)
{
    reset();
    rules.dialect = STK_DIALECT_MS_SWIFT;
    expect(chat("\"u\"", ",\"images\":[\"1\",\"2\"]"), "U<0><1>'u' A'ok' /m/1 /m/2");
    CHECK_INT(sample.notes, STK_NOTE_TAGS_ADDED);
    expect(chat("\"x<image>\"", ",\"images\":[\"1\",\"2\"]"), "U<0>'x'<1> A'ok' /m/1 /m/2");
    expect(chat("[{\"type\":\"text\",\"text\":\"u\"},{\"type\":\"image\",\"image\":\"own\"}]", ",\"image\":\"1\""),
           "U<0>'u'<1> A'ok' /m/1 /m/own");
    expect("{\"system\":\"s\",\"images\":[\"1\",\"2\"],\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":"
           "\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"v<image>\"},{\"role\":\"assistant\","
           "\"content\":\"b\"}]}",
           "S's' U<0>'u' A'a' U'v'<1> A'b' /m/1 /m/2");
    /* An <image> of the assistant is text: harmless where no tag is missing, and else a question of what was meant. */
    static const char verbatim[] = "{\"images\":[\"1\"],\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},{\"role\":"
                                   "\"assistant\",\"content\":\"an <image>\"}]}";
    char record[400];
    snprintf(record, sizeof record, verbatim, "<image>");
    expect(record, "U<0> A'an <image>' /m/1");
    CHECK_INT(sample.notes, 0);
    snprintf(record, sizeof record, verbatim, "u");
    refuse(record, STK_REASON_TAGS, "an <image> in a turn of the system or the assistant, where it is text");
    refuse("{\"images\":[\"1\"],\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}", STK_REASON_TAGS,
           "turn 1: images without tags belong before the first turn, but it is the assistant's");
    refuse("{\"images\":[\"1\"],\"messages\":[{\"role\":\"tool_call\",\"content\":{\"name\":\"f\",\"arguments\":{}}}]}",
           STK_REASON_TAGS, "but it is the assistant's");
    /* Surplus tags only warn there; here they are an error as everywhere. */
    refuse(chat("\"<image><image>\"", ",\"images\":[\"1\"]"), STK_REASON_TAGS, "2 <image> tags and 1 image: each tag");
    refuse(chat("\"<video>\"", ",\"images\":[\"1\"]"), STK_REASON_TAGS, "1 <video> tag and 0 videos");
}

static void ms_swift_images_inside_the_text(void)
{
    reset();
    static const char legacy[] = "\"Picture 1:<img>a/b.jpg</img>\\nand<img>c</img> <img></img><img>d\\n</img>?\"";
    rules.dialect = STK_DIALECT_MS_SWIFT;
    expect(chat(legacy, ""), "U'Picture 1:'<0>'\nand'<1>' <img></img><img>d\n</img>?' A'ok' /m/a/b.jpg /m/c");
    /* As there: with images of its own a record has no such pictures. */
    expect(chat("\"<image><img>c</img>\"", ",\"images\":[\"1\"]"), "U<0>'<img>c</img>' A'ok' /m/1");
    expect(chat("[{\"type\":\"text\",\"text\":\"<img>c</img>\"}]", ",\"images\":[]"), "U<0> A'ok' /m/c");
    refuse(chat("\"<img>/etc/passwd</img>\"", ""), STK_REASON_DENIED, "outside media_root");
    rules.dialect = STK_DIALECT_DETECT;
    refuse(chat(legacy, ""), STK_REASON_TAGS, "turn 1: <img>a/b.jpg</img> is a picture for ms-swift");
    rules.dialect = STK_DIALECT_OPENAI;
    expect(chat("\"<img>c</img>\"", ""), "U'<img>c</img>' A'ok'");
}

/* Calls in turns of their own, as ms-swift and LLaMA-Factory write them. */
static void calls_in_turns_of_their_own(void)
{
    reset();
    static const char calls[] =
        "{\"conversations\":[{\"from\":\"human\",\"value\":\"u\"},{\"from\":\"function_call\",\"value\":\"%s\"},{"
        "\"from\":\"observation\",\"value\":\"r\"},{\"from\":\"gpt\",\"value\":\"a\"}]}";
    static const struct {
        const char *value, *shown;
    } known[] = {
        {"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"b\\\": 1, \\\"a\\\": [2.50]}}", "{f {\"b\":1,\"a\":[2.5]}}"},
        {" [{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":\\\"x\\\"},{\\\"function\\\":{\\\"name\\\":\\\"g\\\",\\\"arguments\\\":{}}}]\\n",
         "{f \"x\"}{g {}}"},
    };
    static const struct {
        const char *value;
        stk_reason reason;
        const char *words;
    } wrong[] = {
        {"I call f.", STK_REASON_JSON, "turn 2: byte 1 of the text of a tool call: '[' or '{' expected"},
        {"", STK_REASON_JSON, "of the text of a tool call"},
        {"[]", STK_REASON_DIALECT, "turn 2: a turn of calls holds none"},
        {"{\\\"name\\\": \\\"f\\\"}", STK_REASON_DIALECT, "turn 2: a tool call without name or arguments"},
        {"[1]", STK_REASON_DIALECT, "without name or arguments"},
        {"{\\\"name\\\": \\\"f\\\", \\\"name\\\": \\\"g\\\"}", STK_REASON_DUPLICATE_KEY, "of the text of a tool call"},
    };
    const stk_dialect dialects[] = {STK_DIALECT_DETECT, STK_DIALECT_SHAREGPT, STK_DIALECT_MS_SWIFT};
    char record[800], shown[200];
    for (size_t d = 0; d < sizeof dialects / sizeof *dialects; d++) {
        rules.dialect = dialects[d];
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            snprintf(record, sizeof record, calls, known[i].value);
            snprintf(shown, sizeof shown, "U'u' A%s T'r' A'a'", known[i].shown);
            expect(record, shown);
        }
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            snprintf(record, sizeof record, calls, wrong[i].value);
            refuse(record, wrong[i].reason, wrong[i].words);
        }
    }
    /* Calls in a row are one turn's; weights count the turns as written. */
    static const char row[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"tool_call\",\"content\":{\"name\":\"f\","
        "\"arguments\":{}}%s},{\"role\":\"tool_call\",\"content\":\"{\\\"name\\\":\\\"g\\\",\\\"arguments\\\":{}}\"},{"
        "\"role\":\"tool\",\"content\":\"1\"},{\"role\":\"tool_call\",\"content\":[{\"name\":\"h\",\"arguments\":{}}]}]%s}";
    snprintf(record, sizeof record, row, "", "");
    expect(record, "U'u' A{f {}}{g {}} T'1' A{h {}}");
    snprintf(record, sizeof record, row, "", ",\"loss\":[0,0,1]");
    expect(record, "U'u' A-{f {}}{g {}} T'1' A+{h {}}");
    snprintf(record, sizeof record, row, ",\"loss\":0", "");
    refuse(record, STK_REASON_TURN_LOSS, "turn 3: its calls belong to the turn before");
}

static void boxes_have_to_be_in_the_text(void)
{
    reset();
    static const char objects[] = ",\"objects\":{\"ref\":[\"cat\"],\"bbox\":[[1,2,3,4]]}";
    expect(chat("\"u\"", objects), "U'u' A'ok'");
    expect(chat("\"<bbox>\"", ",\"objects\":{}"), "U'<bbox>' A'ok'");
    expect(chat("\"<bbox>\"", ",\"objects\":null"), "U'<bbox>' A'ok'");
    const stk_dialect dialects[] = {STK_DIALECT_DETECT, STK_DIALECT_MS_SWIFT};
    for (int d = 0; d < 2; d++) {
        rules.dialect = dialects[d];
        refuse(chat("\"where is <ref-object>?\"", objects), STK_REASON_GROUNDING,
               "turn 1: <ref-object> stands for one of `objects`: write the names and boxes into the text");
        refuse("{\"objects\":[1],\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":"
               "[{\"type\":\"text\",\"text\":\"at <bbox>\"}]}]}",
               STK_REASON_GROUNDING, "turn 2: <bbox>");
    }
}

static void keys_without_bearing_are_passed_over(void)
{
    reset();
    rules.dialect = STK_DIALECT_MS_SWIFT;
    expect(chat("\"u\"", ",\"rejected_response\":\"<image>\",\"rejected_images\":[\"x\"],\"label\":true,\"channel\":\"c\","
                         "\"chat_template_kwargs\":{\"a\":1},\"margin\":0.5"),
           "U'u' A'ok'");
}

/* --- TRL --- */

static void trl_prompt_and_completion(void)
{
    reset();
    expect("{\"prompt\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":"
           "\"user\",\"content\":[{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"v\"}]}],\"completion\":[{\"role\":"
           "\"assistant\",\"content\":\"b\"}],\"images\":[\"1\"]}",
           "U'u' A-'a' U<0>'v' A'b' /m/1");
    refuse("{\"prompt\":\"u\",\"completion\":\"a\"}", STK_REASON_DIALECT,
           "`prompt` and `completion` are no lists of turns");
    refuse("{\"prompt\":[{\"role\":\"user\",\"content\":\"u\"}]}", STK_REASON_DIALECT, "columns: {messages: KEY}");
    /* Beside a conversation they are some other data. */
    expect(chat("\"u\"", ",\"prompt\":\"p\",\"completion\":\"c\""), "U'u' A'ok'");
    rules.dialect = STK_DIALECT_MS_SWIFT;
    expect("{\"prompt\":[{\"role\":\"user\",\"content\":\"u\"}],\"completion\":[{\"role\":\"assistant\",\"content\":\"a\"}],"
           "\"images\":[\"1\"]}",
           "U<0>'u' A'a' /m/1");
}

/* --- field reports --- */

/* A08: a null key is an absent key, and the kind of a part comes from its type. */
static void null_keys_are_absent(void)
{
    reset();
    expect(chat("\"hi\"", ""), "U'hi' A'ok'");
    expect(chat("[{\"type\":\"text\",\"text\":\"hi\"}]", ""), "U'hi' A'ok'");
    expect(chat("[{\"type\":\"text\",\"text\":\"hi\",\"image\":null,\"video\":null,\"image_url\":\"\"}]",
                ",\"image\":null,\"images\":null,\"video\":null,\"audios\":null,\"tools\":null,\"system\":"
                "null,\"id\":null,\"conversations\":null"),
           "U'hi' A'ok'");
    expect(chat("[{\"type\":\"image\",\"image\":null,\"text\":null,\"url\":\"1\"}]", ""), "U<0> A'ok' /m/1");
}

/* A10: tags and media are never made to fit. */
static void counts_of_tags_and_media_must_match(void)
{
    reset();
    refuse("{\"image\":\"1\",\"conversations\":[{\"from\":\"human\",\"value\":\"<image>\"},{\"from\":\"gpt\","
           "\"value\":\"a\"},"
           "{\"from\":\"human\",\"value\":\"<image>\"},{\"from\":\"gpt\",\"value\":\"a\"}]}",
           STK_REASON_TAGS, "2 <image> tags and 1 image:");
    refuse("{\"images\":[\"1\",\"2\",\"3\",\"4\",\"5\"],\"messages\":[{\"role\":\"user\",\"content\":\"<"
           "image><image><image><image><image>\"},"
           "{\"role\":\"user\",\"content\":\"<image><image><image><image><image>\"},{\"role\":\"user\","
           "\"content\":\"<image><image><image><image><image>\"},"
           "{\"role\":\"user\",\"content\":\"<image><image><image><image><image>\"},{\"role\":\"assistant\","
           "\"content\":\"a\"}]}",
           STK_REASON_TAGS, "20 <image> tags and 5 images");
    refuse(llava("\"no tag\"", ",\"image\":\"1\""), STK_REASON_TAGS,
           "0 <image> tags and 1 image: write the tags, or say format: ms-swift to show them before the first turn's text");
    refuse(chat("[{\"type\":\"image\"}]", ""), STK_REASON_TAGS, "1 <image> tag and 0 images");
    refuse(llava("\"<video>\"", ""), STK_REASON_TAGS, "1 <video> tag and 0 videos");
    refuse(llava("\"<audio><audio>\"", ""), STK_REASON_TAGS, "2 <audio> tags and 0 audios");
}

/* A12: a text is one path. */
static void one_path_may_be_a_text(void)
{
    reset();
    expect(llava("\"<image>\"", ",\"image\":\"dir/x.jpg\""), "U<0> A'ok' /m/dir/x.jpg");
    expect(llava("\"<image>\"", ",\"images\":\"dir/x.jpg\""), "U<0> A'ok' /m/dir/x.jpg");
    expect(llava("\"<image>\"", ",\"image\":{\"path\":\"x\",\"width\":3,\"height\":4}"),
           "U<0> A'ok' /m/x:3x4");
    expect(llava("\"u\"", ",\"image\":\"\",\"images\":[]"), "U'u' A'ok'");
    expect(llava("\"<image>\"", ",\"image\":\"a\",\"images\":[]"), "U<0> A'ok' /m/a");
    expect(llava("\"<image>\"", ",\"image\":\"a\",\"images\":\"a\""), "U<0> A'ok' /m/a");
    refuse(llava("\"<image>\"", ",\"image\":\"a\",\"images\":[\"b\"]"), STK_REASON_DIALECT,
           "both `image` and `images`");
    refuse(llava("\"<image>\"", ",\"image\":[\"\"]"), STK_REASON_DIALECT, "empty address");
    refuse(llava("\"<image>\"", ",\"image\":[null]"), STK_REASON_DIALECT, "neither an address nor an object");
    refuse(llava("\"<image>\"", ",\"image\":7"), STK_REASON_DIALECT, "neither an address nor an object");
    refuse(llava("\"<image>\"", ",\"image\":[[\"a\"]]"), STK_REASON_DIALECT,
           "neither an address nor an object");
    refuse(llava("\"<image>\"", ",\"image\":{\"bytes\":null}"), STK_REASON_DIALECT, "without an address");
}

/* A14: roles may repeat; what cannot be learnt from is counted or refused. */
static void roles_in_any_order(void)
{
    reset();
    static const struct {
        const char *roles;
        uint32_t notes;
        bool refused;
    } orders[] = {{"uua", 0, false}, {"uauu", STK_NOTE_NO_FINAL_ANSWER, false},
                  {"aua", 0, false}, {"suasua", STK_NOTE_LATER_SYSTEM, false},
                  {"uu", 0, true},   {"s", 0, true}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        char record[1000] = "{\"messages\":[";
        for (const char *c = orders[i].roles; *c; c++)
            sprintf(record + strlen(record), "%s{\"role\":\"%s\",\"content\":\"x\"}",
                    c == orders[i].roles ? "" : ",",
                    *c == 'u'   ? "user"
                    : *c == 'a' ? "assistant"
                                : "system");
        strcat(record, "]}");
        if (orders[i].refused) {
            refuse(record, STK_REASON_NO_ANSWER, "no turn of the assistant");
            continue;
        }
        CHECK_OK(parse(record), err);
        CHECK_INT(sample.turn_count, strlen(orders[i].roles));
        CHECK_INT(sample.notes, orders[i].notes);
    }
}

/* A16: a pair of escapes is one character, half of one is U+FFFD and counted; other escapes and raw text
 * stay. */
static void half_surrogate_pairs_become_replacement_characters(void)
{
    reset();
    expect(chat("\"\\ud83c\\udf78\"", ""), "U'\xF0\x9F\x8D\xB8' A'ok'");
    CHECK_INT(sample.notes, 0);
    expect(chat("\"\\ud83d\"", ""), "U'\xEF\xBF\xBD' A'ok'");
    CHECK_INT(sample.notes, STK_NOTE_LONE_SURROGATE);
    expect(chat("\"a\\uDF78b\\ud83d\\ud83c\\udf78\\\\ud83d\\u00e9\\ud83d\\\\\"", ""),
           "U'a\xEF\xBF\xBD"
           "b\xEF\xBF\xBD\xF0\x9F\x8D\xB8\\ud83d\xC3\xA9\xEF\xBF\xBD\\' A'ok'");
    CHECK_INT(sample.notes, STK_NOTE_LONE_SURROGATE);
    refuse(chat("\"\\ud83\"", ""), STK_REASON_JSON, "byte");
    refuse(chat("\"\\ud83d", ""), STK_REASON_JSON, "byte");
}

/* A19, A21: addresses, and names with dots and blanks, which are nobody's business. */
static void addresses(void)
{
    reset();
    static const struct {
        const char *address, *resolved;
    } known[] = {
        {"a.png", "/m/a.png"},
        {"./a.png", "/m/a.png"},
        {"b/../a.png", "/m/a.png"},
        {"b//./c/a.png", "/m/b/c/a.png"},
        {"/m/a.png", "/m/a.png"},
        {"//m//a.png", "/m/a.png"},
        {"a%20b.png", "/m/a%20b.png"},
        {"file:///m/a%20b.png", "/m/a b.png"},
        {"file:///m/%C3%A9#?.png", "/m/\xC3\xA9#?.png"},
        {"file://localhost/m/a.png", "/m/a.png"},
        {"file:/m/a.png", "/m/a.png"},
        {"~/a.png", "/m/~/a.png"},
        {"C:\\\\data\\\\a.png", "/m/C:\\data\\a.png"},
        {"22.0/1.1.png", "/m/22.0/1.1.png"},
        {"Track 2.0 (x).mp3", "/m/Track 2.0 (x).mp3"},
        {"...", "/m/..."},
        {"data:image/png;base64,AA==", "data:image/png;base64,AA=="},
        {"/other/x/a.png", "/other/x/a.png"},
    };
    const stk_str allow[] = {STR("bucket"), STR("/other/./y/../x/")};
    rules.allow = (stk_str_list){allow, 2};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char more[300];
        snprintf(more, sizeof more, ",\"image\":\"%s\"", known[i].address);
        CHECK_MSG(parse(llava("\"<image>\"", more)) == STK_OK, "%s: %s", known[i].address, err.message);
        CHECK_MSG(stk_str_is(sample.media[0].address, known[i].resolved), "%s", known[i].address);
    }
    static const struct {
        const char *address;
        stk_reason reason;
        const char *words;
    } refused[] = {
        {"/abs/a.png", STK_REASON_DENIED, "add to the configuration: allow: [/abs] to read a.png"},
        {"../a.png", STK_REASON_DENIED, "allow: [/]"},
        {"../mm/a.png", STK_REASON_DENIED, "allow: [/mm]"},
        {"b/../../m2/a", STK_REASON_DENIED, "allow: [/m2]"},
        {"file:///abs/a%20b/c.png", STK_REASON_DENIED, "allow: ['/abs/a b']"},
        {"file:///m/%2e%2e/it's, x/c.png", STK_REASON_DENIED, "allow: ['/it''s, x']"},
        {"/other/xy/a.png", STK_REASON_DENIED, "allow: [/other/xy]"},
        {"s3://other/a.png", STK_REASON_DENIED, "allow: ['s3://other'] to read /a.png"},
        {"https://x/a.png?X-Amz-Signature=secret", STK_REASON_DENIED, "allow: ['https://x'] to read /a.png"},
        {"gs://x/a.png", STK_REASON_UNSUPPORTED, "only files"},
        {"file://host/a.png", STK_REASON_UNSUPPORTED, "no file of this machine"},
        {"file:///m/a%2", STK_REASON_DIALECT, "%25"},
        {"file:///m/a%zz", STK_REASON_DIALECT, "%25"},
        {"file:///m/%FF", STK_REASON_UTF8, "not UTF-8 once decoded"},
        {"file:///m/a%00b", STK_REASON_DIALECT, "a NUL in the address"},
        {"a\\u0000b", STK_REASON_DIALECT, "a NUL in the address"},
        {"DATA:VIDEO/mp4;base64,AA==", STK_REASON_VIDEO, "video is not supported yet"},
        {"data:audio/wav;base64,AA==", STK_REASON_AUDIO, "audio is not supported yet"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char more[300];
        snprintf(more, sizeof more, ",\"image\":\"%s\"", refused[i].address);
        refuse(llava("\"<image>\"", more), refused[i].reason, refused[i].words);
    }
    rules.media_root = STR("/a/b/../");
    expect(llava("\"<image>\"", ",\"image\":\"x\""), "U<0> A'ok' /a/x");
    rules.media_root = STR("/");
    expect(llava("\"<image>\"", ",\"image\":\"/x/../y\""), "U<0> A'ok' /y");
}

/* Keys and URLs are what the record says, byte by byte; a set that is copied to a bucket stays the same set. */
static void addresses_of_objects(void)
{
    reset();
    static const struct {
        const char *address, *resolved;
    } known[] = {
        {"s3://bucket/a b+%20\xC3\xA9//./../c.png", "s3://bucket/a b+%20\xC3\xA9//./../c.png"},
        {"S3://bucket/Key", "s3://bucket/Key"},
        {"s3://other/in/x", "s3://other/in/x"},
        {"HTTPS://H.example:443/a%20b?sig=x#y", "https://H.example:443/a%20b?sig=x#y"},
        {"a.png", "s3://bucket/sets/one/a.png"},
        {"./a//b%2F c.png", "s3://bucket/sets/one/a//b%2F c.png"},
        {"../two/a.png", "s3://bucket/sets/two/a.png"},
        {"x/./../../../a.png", "s3://bucket/a.png"},
        {"a/..b/...c", "s3://bucket/sets/one/a/..b/...c"},
    };
    static const struct {
        const char *address;
        stk_reason reason;
        const char *words;
    } refused[] = {
        {"s3://other/inside/x", STK_REASON_DENIED, "allow: ['s3://other'] to read /inside/x"},
        {"s3://buckets/x", STK_REASON_DENIED, "allow: ['s3://buckets']"},
        {"/sets/one/a.png", STK_REASON_DENIED, "allow: [/sets/one]"},
        {"file:///etc/passwd", STK_REASON_DENIED, "allow: [/etc]"},
        {"http://h.example/a", STK_REASON_DENIED, "allow: ['http://h.example']"},
        {"https://h.example.evil/a?sig=secret", STK_REASON_DENIED, "allow: ['https://h.example.evil'] to read /a"},
        {"https://h.example@evil/a?sig=secret", STK_REASON_DIALECT, "a name or password"},
        {"https://h.example\\\\.evil/a", STK_REASON_DIALECT, "its host is no name"},
        {"https:///a", STK_REASON_DIALECT, "names no host"},
        {"https://h.example/a b", STK_REASON_DIALECT, "%20"},
        {"https://h.example/a\\r\\nX: y", STK_REASON_DIALECT, "%20"},
        {"s3://bucket", STK_REASON_DIALECT, "s3://BUCKET/KEY"},
        {"s3://bucket/", STK_REASON_DIALECT, "s3://BUCKET/KEY"},
        {"s3:///key", STK_REASON_DIALECT, "s3://BUCKET/KEY"},
        {"s3://evil:80/key", STK_REASON_DIALECT, "s3://BUCKET/KEY"},
        {"../../../a.png", STK_REASON_DIALECT, "out of the bucket"},
        {"../..", STK_REASON_DIALECT, "no address of an object"},
        /* Only what lies behind the prefix is allowed by itself. */
        {"../two/a.png", STK_REASON_DENIED, "allow: ['s3://bucket'] to read /sets/two/a.png"},
    };
    const stk_str allow[] = {STR("https://h.example"), STR("s3://other/in/"), STR("s3://bucket")};
    char more[300];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        rules.media_root = i % 2 ? STR("s3://bucket/sets/one/") : STR("s3://bucket/sets/one");
        rules.allow = (stk_str_list){allow, 3};
        snprintf(more, sizeof more, ",\"image\":\"%s\"", known[i].address);
        CHECK_MSG(parse(llava("\"<image>\"", more)) == STK_OK, "%s: %s", known[i].address, err.message);
        CHECK_MSG(stk_str_is(sample.media[0].address, known[i].resolved), "%s", known[i].address);
    }
    rules.allow = (stk_str_list){allow, 2};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(more, sizeof more, ",\"image\":\"%s\"", refused[i].address);
        refuse(llava("\"<image>\"", more), refused[i].reason, refused[i].words);
        CHECK_MSG(!strstr(err.message, "secret"), "%s", err.message);
    }
}

static void addresses_in_tars(void)
{
    reset();
    static const struct {
        const char *image, *resolved;
    } known[] = {
        {"\"tar://a/./b c.jpg::x/../y.tar\"", "tar://a/./b c.jpg::/m/y.tar"},
        {"\"TAR://a::/m//y.tar\"", "tar://a::/m/y.tar"},
        {"\"tar://a::s3://bucket/x::y/../z.tar\"", "tar://a::s3://bucket/x::y/../z.tar"},
        {"\"tar:512+1024::y.tar\"", "tar:512+1024::/m/y.tar"},
        {"{\"tar\": \"y.tar\", \"member\": \"a/b.jpg\"}", "tar://a/b.jpg::/m/y.tar"},
        {"{\"tar\": \"y.tar\", \"offset\": 512, \"size\": 7, \"path\": \"a.jpg\", \"width\": 3, \"height\": 4}", "tar:512+7::/m/y.tar"},
        {"{\"tar\": \"file:///m/y%20z.tar\", \"member\": \"1+2\"}", "tar://1+2::/m/y z.tar"},
    };
    static const struct {
        const char *image;
        stk_reason reason;
        const char *words;
    } refused[] = {
        {"\"tar://a.jpg\"", STK_REASON_DIALECT, "tar://NAME::TAR"},
        {"\"tar://::y.tar\"", STK_REASON_DIALECT, "tar://NAME::TAR"},
        {"\"tar:12::y.tar\"", STK_REASON_DIALECT, "tar:OFFSET+BYTES::TAR"},
        {"\"tar:+12::y.tar\"", STK_REASON_DIALECT, "tar:OFFSET+BYTES::TAR"},
        {"\"tar:12+::y.tar\"", STK_REASON_DIALECT, "tar:OFFSET+BYTES::TAR"},
        {"\"tar:1+2+3::y.tar\"", STK_REASON_DIALECT, "tar:OFFSET+BYTES::TAR"},
        {"\"tar:1234567890123456789+2::y.tar\"", STK_REASON_DIALECT, "tar:OFFSET+BYTES::TAR"},
        {"\"tar://a::tar://b::y.tar\"", STK_REASON_DIALECT, "tar://NAME::TAR"},
        {"\"tar://a::data:image/png;base64,AA==\"", STK_REASON_DIALECT, "tar://NAME::TAR"},
        {"\"tar://a::\"", STK_REASON_DIALECT, "an empty address"},
        {"\"tar://a::../y.tar\"", STK_REASON_DENIED, "allow: [/] to read y.tar"},
        {"\"tar://a::https://x/y.tar?sig=secret\"", STK_REASON_DENIED, "allow: ['https://x'] to read /y.tar"},
        {"\"tar://a\\u0000::y.tar\"", STK_REASON_DIALECT, "tar://NAME::TAR"},
        {"{\"tar\": \"y.tar\"}", STK_REASON_DIALECT, "its member, or its offset and size"},
        {"{\"tar\": \"y.tar\", \"offset\": 1}", STK_REASON_DIALECT, "its member, or its offset and size"},
        {"{\"tar\": \"y.tar\", \"offset\": -1, \"size\": 1}", STK_REASON_DIALECT, "its member, or its offset and size"},
        {"{\"tar\": \"y.tar\", \"member\": \"\"}", STK_REASON_DIALECT, "its member, or its offset and size"},
        {"{\"tar\": 7, \"member\": \"a\"}", STK_REASON_DIALECT, "its member, or its offset and size"},
    };
    const stk_str allow[] = {STR("s3://bucket")};
    rules.allow = (stk_str_list){allow, 1};
    char more[300];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(more, sizeof more, ",\"image\":%s", known[i].image);
        CHECK_MSG(parse(llava("\"<image>\"", more)) == STK_OK, "%s: %s", known[i].image, err.message);
        CHECK_MSG(stk_str_is(sample.media[0].address, known[i].resolved), "%s", known[i].image);
    }
    CHECK_INT(sample.media[0].width_px, 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(more, sizeof more, ",\"image\":%s", refused[i].image);
        refuse(llava("\"<image>\"", more), refused[i].reason, refused[i].words);
        CHECK_MSG(!strstr(err.message, "secret"), "%s", err.message);
    }
    /* A part of content is such an object, too. */
    CHECK(parse("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"tar\":\"y.tar\",\"member\":\"a\"}]},"
                "{\"role\":\"assistant\",\"content\":\"ok\"}]}") == STK_OK);
    CHECK(stk_str_is(sample.media[0].address, "tar://a::/m/y.tar"));
    rules.media_root = STR("s3://bucket/sets");
    CHECK(parse(llava("\"<image>\"", ",\"image\":\"tar://a::../y.tar\"")) == STK_OK);
    CHECK(stk_str_is(sample.media[0].address, "tar://a::s3://bucket/y.tar"));
}

/* An image in place of its address: by the alphabet of base64 and a length that no path has. */
static void images_in_base64(void)
{
    reset();
    char text[300], more[400];
    memset(text, 'A', sizeof text);
    memcpy(text, "/9j/+0==", 8);
    rules.media_root = STR("/");
    for (int i = 0; i < 2; i++) {
        snprintf(more, sizeof more, ",\"image\":\"%.*s\"", 200 + i, text);
        CHECK_OK(parse(llava("\"<image>\"", more)), err);
        CHECK_INT(strncmp(sample.media[0].address.data, i ? "data:;base64,/9j/+0==A" : "/9j/+0==A", i ? 22 : 9), 0);
    }
    /* A name has a dot. */
    snprintf(more, sizeof more, ",\"image\":\"%.*s.jpg\"", 250, text);
    CHECK_OK(parse(llava("\"<image>\"", more)), err);
    CHECK_INT(sample.media[0].address.data[0], '/');
    reset();
    expect(llava("\"<image><image>\"", ",\"images\":[{\"bytes\":\"QUJD\",\"path\":\"x\",\"width\":3,\"height\":4},{"
                                        "\"bytes\":null,\"path\":\"y\"}]"),
           "U<0><1> A'ok' data:;base64,QUJD:3x4 /m/y");
    expect(chat("[{\"type\":\"image\",\"bytes\":\"QUJD\"},{\"type\":\"image\",\"image\":{\"bytes\":\"QQ==\"}}]", ""),
           "U<0><1> A'ok' data:;base64,QUJD data:;base64,QQ==");
    refuse(chat("[{\"type\":\"image\",\"bytes\":[65]}]", ""), STK_REASON_DIALECT,
           "the bytes of an image are no text in base64");
}

/* A20: image_url as a text and as an object; detail is ignored, and counted. */
static void image_url_flat_or_nested(void)
{
    reset();
    expect(chat("[{\"type\":\"image_url\",\"image_url\":{\"url\":\"1\",\"detail\":\"low\"}}]", ""),
           "U<0> A'ok' /m/1");
    CHECK_INT(sample.notes, STK_NOTE_DETAIL_IGNORED);
    expect(chat("[{\"type\":\"image_url\",\"image_url\":\"1\"}]", ""), "U<0> A'ok' /m/1");
    CHECK_INT(sample.notes, 0);
    static const char *const wrong[] = {"{\"uri\":\"1\"}", "7", "[\"1\"]", "{\"url\":7}", "null"};
    for (size_t i = 0; i < 5; i++) {
        char content[100];
        snprintf(content, sizeof content, "[{\"type\":\"image_url\",\"image_url\":%s}]", wrong[i]);
        refuse(chat(content, ""), STK_REASON_DIALECT,
               "turn 1: image_url is neither a text nor an object with url");
    }
}

/* qwen_vl_utils' limits of one image would change its size: refused, not passed over. */
static void limits_of_a_single_image_are_refused(void)
{
    reset();
    refuse(chat("[{\"type\":\"image\",\"image\":\"1\",\"max_pixels\":50176}]", ""), STK_REASON_UNSUPPORTED,
           "turn 1: max_pixels of a single image is not supported: set min_pixels and max_pixels of the data set");
    expect(chat("[{\"type\":\"image\",\"image\":\"1\",\"min_pixels\":null}]", ""), "U<0> A'ok' /m/1");
}

/* Video and audio are errors of the record wherever they stand, never left out. */
static void video_and_audio_are_not_supported_yet(void)
{
    reset();
    static const struct {
        const char *content, *more;
        stk_reason reason;
    } records[] = {
        {"\"<video>\"", ",\"video\":\"a.mp4\"", STK_REASON_VIDEO},
        {"\"u\"", ",\"videos\":[\"a.mp4\"]", STK_REASON_VIDEO},
        {"\"u\"", ",\"audio\":\"a.wav\"", STK_REASON_AUDIO},
        {"\"u\"", ",\"audios\":[{\"path\":\"a.wav\"}]", STK_REASON_AUDIO},
        {"[{\"type\":\"video\",\"video\":\"a.mp4\"}]", "", STK_REASON_VIDEO},
        {"[{\"type\":\"video\",\"video\":[\"1.jpg\",\"2.jpg\"]}]", "", STK_REASON_VIDEO},
        {"[{\"type\":\"video_url\",\"video_url\":{\"url\":\"a.mp4\"}}]", "", STK_REASON_VIDEO},
        {"[{\"video\":\"a.mp4\"}]", "", STK_REASON_VIDEO},
        {"[{\"type\":\"audio\",\"audio\":\"a.wav\"}]", "", STK_REASON_AUDIO},
        {"[{\"type\":\"input_audio\",\"input_audio\":{}}]", "", STK_REASON_AUDIO},
        {"[{\"audio\":\"a.wav\"}]", "", STK_REASON_AUDIO},
    };
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        refuse(chat(records[i].content, records[i].more), records[i].reason, "is not supported yet");
    expect(chat("\"u\"", ",\"video\":\"\",\"videos\":[],\"audio\":null"), "U'u' A'ok'");
}

static void stated_sizes(void)
{
    reset();
    expect(chat("\"<image><image>\"", ",\"images\":[{\"path\":\"1\",\"width\":640,\"height\":480},\"2\"]"),
           "U<0><1> A'ok' /m/1:640x480 /m/2");
    expect(chat("[{\"type\":\"image\",\"image\":\"1\",\"width\":9,\"height\":8},{\"type\":\"image_url\","
                "\"image_url\":{\"url\":\"2\",\"width\":7,\"height\":6}},"
                "{\"type\":\"image\",\"image\":{\"url\":\"3\",\"width\":5,\"height\":4}}]",
                ""),
           "U<0><1><2> A'ok' /m/1:9x8 /m/2:7x6 /m/3:5x4");
    static const char *const wrong[] = {"\"width\":0,\"height\":1",          "\"width\":-1,\"height\":1",
                                        "\"width\":\"640\",\"height\":1",    "\"width\":1.5,\"height\":1",
                                        "\"width\":2147483648,\"height\":1", "\"width\":1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char more[100];
        snprintf(more, sizeof more, ",\"image\":{\"path\":\"1\",%s}", wrong[i]);
        refuse(llava("\"<image>\"", more), STK_REASON_DIALECT,
               i == 5 ? "a height alone" : "whole number of pixels");
    }
}

/* --- hostile bytes --- */

static void hostile_json(void)
{
    reset();
    refuse("\xEF\xBB\xBF{}", STK_REASON_JSON, "byte 0 of the record: a byte-order mark"); /* A01 */
    refuse_bytes("{\"a\":\0}", 7, STK_REASON_JSON, "byte 5 of the record: a NUL byte");
    refuse_bytes("{\"a\":\"\0\"}", 9, STK_REASON_JSON, "byte 6 of the record: a NUL byte");
    refuse_bytes("{\"a\":\"\\\0\"}", 10, STK_REASON_JSON, "a NUL byte");
    refuse("{\"a\":1,\"a\":2}", STK_REASON_DUPLICATE_KEY, "duplicate object key");
    refuse("{\"messages\":[{\"role\":\"user\",\"role\":\"user\"}]}", STK_REASON_DUPLICATE_KEY,
           "byte 34 of the record");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":\"cut", STK_REASON_JSON, "byte 42 of the record");
    refuse("{} {}", STK_REASON_JSON, "end of file expected");
    refuse("{\"a\":NaN}", STK_REASON_JSON, "byte");
    refuse("{'a':1}", STK_REASON_JSON, "byte");
    refuse("{\"a\":1e999}", STK_REASON_JSON, "write the number as a text");
    refuse("nonsense", STK_REASON_JSON, "byte");
    refuse("", STK_REASON_JSON, "byte");
    refuse("{\"a\\u0000\":1}", STK_REASON_JSON, "byte");
    static const char *const invalid[] = {
        "\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
        "\xFF", "\\\xFF"};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        char record[40];
        snprintf(record, sizeof record, "{\"a\":\"%s\"}", invalid[i]);
        refuse(record, STK_REASON_UTF8,
               invalid[i][0] == '\\' ? "byte 7 of" : "byte 6 of the record: not valid UTF-8");
    }
    refuse("{\"a\":\"\xE2\x82", STK_REASON_UTF8, "byte 6");
}

/* An escaped NUL is legal text, and everything beside it arrives. */
static void escaped_nul_is_text(void)
{
    reset();
    CHECK_OK(parse(chat("\"a\\u0000b<image>\"", ",\"image\":\"1\"")), err);
    CHECK_INT(sample.turn[0].part_count, 2);
    CHECK(stk_str_equal(sample.turn[0].part[0].text, STR("a\0b")));
}

static void limits_are_kept(void)
{
    reset();
    limits.json_depth = 5;
    expect(chat("\"[[[[[[{{{\"", ""), "U'[[[[[[{{{' A'ok'");
    expect(chat("[{\"type\":\"text\",\"text\":\"a\"}]", ",\"more\":[[{}]]"), "U'a' A'ok'");
    refuse(chat("[{\"type\":\"image_url\",\"image_url\":{\"url\":\"a\"}}]", ""), STK_REASON_RECORD_LIMIT,
           "deeper than limits.json_depth");
    limits.json_depth = 5000;
    static char deep[7000];
    memset(deep, '[', 3000);
    memset(deep + 3000, ']', 3000);
    refuse(deep, STK_REASON_RECORD_LIMIT, "maximum parsing depth");
    reset();
    limits.record_bytes = 20;
    refuse("{\"aaaaaaaaaaaaaaaaa\":1}", STK_REASON_RECORD_LIMIT, "23 bytes, and limits.record_bytes is 20");
    reset();
    limits.media_per_record = 2;
    expect(llava("\"<image><image>\"", ",\"images\":[\"1\",\"2\"]"), "U<0><1> A'ok' /m/1 /m/2");
    refuse(llava("\"<image><image><image>\"", ",\"images\":[\"1\",\"2\",\"3\"]"), STK_REASON_RECORD_LIMIT,
           "limits.media_per_record");
}

/* A message is cut between characters, however long the names in it are. */
static void long_names_in_messages_stay_utf8(void)
{
    reset();
    char name[400] = "";
    for (int i = 0; i < 100; i++) strcat(name, "\xC3\xA9");
    for (int odd = 0; odd < 4; odd++) {
        char more[600];
        snprintf(more, sizeof more, ",\"image\":\"/%.*s%s/%s\"", odd, "xxx", name, name);
        refuse(llava("\"<image>\"", more), STK_REASON_DENIED, "allow: [/");
        const size_t length = strlen(err.message);
        CHECK(length < sizeof err.message);
        json_t *const text = json_string(err.message); /* NULL unless it is UTF-8 */
        CHECK(text);
        json_decref(text);
    }
}

/* --- steady state --- */

/* Invariant 10: nothing of ours is allocated once a sample has seen its largest record. */
static void no_allocation_in_steady_state(void)
{
    reset();
    char big[8192];
    snprintf(big, sizeof big, "%s",
             llava("\"<image>\\ud83d<image>\"", ",\"images\":[\"1\",\"2\"],\"tools\":\"[{}]\""));
    for (int round = 0; round < 3; round++) {
        CHECK_OK(parse(big), err);
        CHECK_OK(parse(chat("\"u\"", "")), err);
    }
    const uint64_t before = stk_alloc_count();
    for (int round = 0; round < 100; round++) {
        CHECK_OK(parse(big), err);
        CHECK_INT(parse("{"), STK_ERR_RECORD);
        CHECK_OK(parse(chat("\"u\"", "")), err);
    }
    CHECK_INT(stk_alloc_count(), before);
}

/* Without memory for one of its pieces a record is no record error, nothing leaks, and the next try is fine.
 * A build without faults runs it once. */
static void every_allocation_may_fail(void)
{
    enum { IMAGES = 1500 };
    static char record[80000];
    reset();
    size_t n = (size_t)sprintf(record, "{\"images\":[\"x\"");
    for (int i = 1; i < IMAGES; i++) n += (size_t)sprintf(record + n, ",\"a/../b/%d\"", i);
    n += (size_t)sprintf(record + n,
                         "],\"tools\":\"[{}]\",\"conversations\":[{\"from\":\"human\",\"value\":\"\\ud83d");
    for (int i = 0; i < IMAGES; i++) n += (size_t)sprintf(record + n, "<image>");
    sprintf(record + n, "\"},{\"from\":\"gpt\",\"value\":\"a\"}]}");
    unsigned long nth = 0;
    stk_status status;
    do {
        stk_sample fresh;
        stk_sample_init(&fresh);
#ifdef STK_FAULTS
        stk_fault_set(STK_FAULT_ALLOC, ++nth, false);
#endif
        status = stk_record_parse(&fresh, &rules, stk_str_of(record), &reason, &err);
#ifdef STK_FAULTS
        stk_fault_set(STK_FAULT_ALLOC, 0, false);
#endif
        CHECK_MSG(status == STK_OK || status == STK_ERR_NOMEM, "allocation %lu: %s", nth, err.message);
        CHECK_INT(reason, STK_REASON_NONE);
        CHECK_INT(fresh.media_count, status == STK_OK ? IMAGES : 0);
        if (status < 0) CHECK_OK(stk_record_parse(&fresh, &rules, stk_str_of(record), &reason, &err), err);
        stk_sample_deinit(&fresh);
    } while (status != STK_OK);
#ifdef STK_FAULTS
    CHECK(nth > 5);
#endif
}

static void errors_may_be_ignored(void)
{
    reset();
    CHECK_INT(stk_record_parse(&sample, &rules, STR("{\"messages\":[{}]}"), &reason, NULL), STK_ERR_RECORD);
    CHECK_INT(stk_record_parse(&sample, &rules, STR("{"), &reason, NULL), STK_ERR_RECORD);
}

/* --- sample ids --- */

static void expect_id(const char *set, stk_str id, uint64_t line, bool repeated, const char *shown)
{
    char out[STK_SAMPLE_ID_BYTES];
    stk_sample_id(out, set, id, line, repeated);
    CHECK_STR(out, shown);
}

static void sample_ids(void)
{
    expect_id("chatvqa", STR("33471"), 9, false, "chatvqa/33471");
    expect_id("docs", (stk_str){0}, 118, false, "docs#118");
    expect_id("docs", STR("a"), 118, true, "docs#118");
    expect_id("d", STR("a\nb\tc\x1b[0m\x7f\xC2\x85\0\xC3\xA9\xFF"), 1, false,
              "d/a\\nb\\tc\\x1b[0m\\x7f\\u0085\\x00\xC3\xA9?");
    char id[97];
    memset(id, 'x', 96);
    char shown[99] = "d/";
    memset(shown + 2, 'x', 93);
    shown[95] = 0;
    expect_id("d", (stk_str){id, 93}, 5, false, shown);
    /* A cut id might be another record's: the line is not. */
    expect_id("d", (stk_str){id, 94}, 5, false, "d#5");
    id[96] = 0;
    snprintf(shown, sizeof shown, "%.74s#18446744073709551615", id);
    expect_id(id, STR("a"), UINT64_MAX, false, shown);
}

int main(int argc, char **argv)
{
    stk_sample_init(&sample);
    const test_entry entries[] = {
        TEST(llava_records),
        TEST(openai_records),
        TEST(limits_of_a_single_image_are_refused),
        TEST(dialect_is_told_by_the_first_turn_or_given),
        TEST(columns_and_roles),
        TEST(ids_are_text_or_numbers),
        TEST(system_key_is_a_first_turn),
        TEST(train_and_loss_keys),
        TEST(lists_of_weights_fit_the_turns),
        TEST(tools_calls_and_reasoning),
        TEST(tag_space_strip_as_finetune),
        TEST(ms_swift_reads_both_keys_in_any_mixture),
        TEST(ms_swift_puts_missing_tags_first),
        TEST(ms_swift_images_inside_the_text),
        TEST(calls_in_turns_of_their_own),
        TEST(boxes_have_to_be_in_the_text),
        TEST(keys_without_bearing_are_passed_over),
        TEST(trl_prompt_and_completion),
        TEST(null_keys_are_absent),
        TEST(counts_of_tags_and_media_must_match),
        TEST(one_path_may_be_a_text),
        TEST(roles_in_any_order),
        TEST(half_surrogate_pairs_become_replacement_characters),
        TEST(addresses),
        TEST(addresses_of_objects),
        TEST(addresses_in_tars),
        TEST(images_in_base64),
        TEST(image_url_flat_or_nested),
        TEST(video_and_audio_are_not_supported_yet),
        TEST(stated_sizes),
        TEST(hostile_json),
        TEST(escaped_nul_is_text),
        TEST(limits_are_kept),
        TEST(long_names_in_messages_stay_utf8),
        TEST(no_allocation_in_steady_state),
        TEST(every_allocation_may_fail),
        TEST(errors_may_be_ignored),
        TEST(sample_ids),
    };
    const int status = test_run(entries, sizeof entries / sizeof *entries, argc, argv);
    stk_sample_deinit(&sample);
    return status;
}
