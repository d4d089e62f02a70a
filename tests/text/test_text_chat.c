/* test_text_chat.c - what no golden says: turn formats, rules that the reference lacks, refusals, limits,
 * memory. */
#include "../test.h"

#include "base/fault.h"
#include "base/memory.h"
#include "chat_case.h"
#include "schema/facts.h"
#include "text/pyjson.h"

static stk_error err;
static stk_tokenizer *tokenizer;
static stk_text_scratch *scratch;
static stk_tokens tokens;
static json_t *case_root;
static chat_case now;

static stk_template *named(const char *name)
{
    stk_template *t;
    CHECK_OK(stk_template_named(&t, stk_str_of(name), &err), err);
    return t;
}

/* Encode {"record": ..., rules...}, written with ' for ". */
static stk_reason encode_with(const stk_template *t, const char *quoted)
{
    char text[4000];
    snprintf(text, sizeof text, "%s", quoted);
    for (char *c = text; *c; c++)
        if (*c == '\'') *c = '"';
    chat_case_end(&now);
    json_decref(case_root);
    json_error_t why;
    case_root = json_loads(text, 0, &why);
    CHECK_MSG(case_root, "%s: %s", why.text, text);
    now = (chat_case){0};
    CHECK(chat_case_make(&now, case_root));
    stk_reason reason;
    const stk_status status =
        stk_text_encode(&tokens, tokenizer, t, &now.rules, &now.sample, scratch, &reason, &err);
    CHECK_MSG(status == STK_OK || (status == STK_ERR_RECORD && reason != STK_REASON_NONE), "%d %s", status,
              err.message);
    CHECK((status == STK_OK) == (reason == STK_REASON_NONE));
    if (status < 0) CHECK(err.stage == STK_STAGE_TEXT && tokens.id == NULL && err.message[0]);
    return reason;
}

/* The text of the trained tokens, joined, untrained stretches between them as one |. */
static const char *trained_text(void)
{
    static char out[2000];
    size_t at = 0;
    bool gap = false;
    for (uint32_t i = 0; i < tokens.count; i++) {
        const stk_str token = stk_tokenizer_token(tokenizer, tokens.id[i]);
        if (!tokens.trained[i]) {
            gap = at > 0;
            continue;
        }
        CHECK(token.data && at + token.size_bytes + 2 < sizeof out);
        if (gap) out[at++] = '|';
        gap = false;
        memcpy(out + at, token.data, token.size_bytes);
        at += token.size_bytes;
    }
    out[at] = 0;
    return out;
}

static void expect_rendered(const char *text)
{
    CHECK_MSG(stk_str_is(tokens.rendered, text), "rendered\n%.*s\nnot\n%s", (int)tokens.rendered.size_bytes,
              tokens.rendered.data, text);
}

static size_t count_id(const char *token)
{
    const int32_t id = stk_tokenizer_id(tokenizer, stk_str_of(token));
    CHECK(id >= 0);
    size_t count = 0;
    for (uint32_t i = 0; i < tokens.count; i++) count += tokens.id[i] == id;
    return count;
}

#define S(text)                                                                                              \
    {                                                                                                        \
        text, sizeof(text) - 1                                                                               \
    }
static stk_turn_format example_format(void)
{
    return (stk_turn_format){
        .system = {S("<|im_start|>system\n"), S("<|im_end|>\n"), .given = true},
        .user = {S("<|im_start|>user\n"), S("<|im_end|>\n"), .given = true},
        .assistant = {S("<|im_start|>assistant\n"), S("<|im_end|>\n"), true, true, true},
        .image = S("<|vision_start|><|image_pad|><|vision_end|>"),
    };
}

static stk_template *declared(const stk_turn_format *format)
{
    stk_template *t;
    CHECK_OK(stk_template_declared(&t, format, &err), err);
    return t;
}

/* --- the turn format
 * ------------------------------------------------------------------------------------------ */

#define PICTURE "{'role':'user','content':[{'type':'image'},{'type':'text','text':'hi'}]}"
#define TALK "{'record':{'messages':[" PICTURE ",{'role':'assistant','content':'yes'}]}}"

static void a_turn_format_writes_what_it_declares(void)
{
    stk_turn_format format = example_format();
    stk_template *t = declared(&format);
    CHECK(encode_with(t, TALK) == STK_REASON_NONE);
    expect_rendered("<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>hi<|im_end|>\n"
                    "<|im_start|>assistant\nyes<|im_end|>\n");
    CHECK_STR(trained_text(), "yes<|im_end|>\n");
    CHECK(tokens.media_count == 1 && tokens.media_at[0] == 4);
    stk_template_close(&t);
}

static void train_lists_choose_text_and_end(void)
{
    stk_turn_format format = example_format();
    format.assistant.trains_after = false;
    stk_template *t = declared(&format);
    CHECK(encode_with(t, TALK) == STK_REASON_NONE);
    CHECK_STR(trained_text(), "yes");
    stk_template_close(&t);

    format.assistant.trains_after = true;
    format.assistant.trains_text = false;
    t = declared(&format);
    CHECK(encode_with(t, TALK) == STK_REASON_NONE);
    CHECK_STR(trained_text(), "<|im_end|>\n");
    stk_template_close(&t);
}

static void the_default_system_prompt_is_replaced_by_the_rules(void)
{
    stk_turn_format format = example_format();
    format.default_system = (stk_str)S("Be kind.");
    stk_template *t = declared(&format);
    CHECK(encode_with(t, "{'record':{'messages':[{'role':'assistant','content':'a'}]}}") == STK_REASON_NONE);
    expect_rendered("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
    CHECK(encode_with(t, "{'system':'Rules.','record':{'messages':[{'role':'assistant','content':'a'}]}}") ==
          STK_REASON_NONE);
    expect_rendered("<|im_start|>system\nRules.<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
    CHECK(encode_with(t, "{'system':'Rules.','record':{'messages':[{'role':'system','content':'Own.'},"
                         "{'role':'assistant','content':'a'}]}}") == STK_REASON_NONE);
    expect_rendered("<|im_start|>system\nOwn.<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
    stk_template_close(&t);
}

static void a_turn_format_refuses_what_it_cannot_say(void)
{
    stk_turn_format format = example_format();
    stk_template *t = declared(&format);
    static const struct {
        const char *record, *words;
    } cases[] = {
        {"{'record':{'messages':[{'role':'tool','content':'x'},{'role':'assistant','content':'a'}]}}",
         "template.tool"},
        {"{'record':{'messages':[{'role':'user','content':[{'type':'video'}]},{'role':'assistant','content':'"
         "a'}]}}",
         "template.video"},
        {"{'record':{'tools':[{}],'messages':[{'role':'assistant','content':'a'}]}}", "tools"},
        {"{'record':{'messages':[{'role':'assistant','content':'a','reasoning_content':'r'}]}}", "reasoning"},
        {"{'record':{'messages':[{'role':'assistant','tool_calls':[{'name':'f','arguments':{}}]}]}}",
         "tool calls"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(encode_with(t, cases[i].record), STK_REASON_TEMPLATE);
        CHECK_HAS(err.message, cases[i].words);
    }
    stk_template_close(&t);
}

static void expect_bad_format(const stk_turn_format *format, const char *words)
{
    stk_template *t = (stk_template *)&err;
    CHECK_INT(stk_template_declared(&t, format, &err), STK_ERR_OPTION);
    CHECK(t == NULL);
    CHECK_HAS(err.message, words);
    CHECK_INT(stk_template_declared(&t, format, NULL), STK_ERR_OPTION);
}

static void bad_turn_formats_are_refused_with_the_key(void)
{
    stk_turn_format f = example_format();
    f.assistant.given = false;
    expect_bad_format(&f, "template.assistant");
    f = example_format();
    f.assistant.trains_text = f.assistant.trains_after = false;
    expect_bad_format(&f, "train");
    f = example_format();
    f.image = (stk_str)S("<image>");
    expect_bad_format(&f, "template.image");
    f.image = (stk_str)S("<|image_pad|><|image_pad|>");
    expect_bad_format(&f, "exactly once");
    f = example_format();
    f.user.before = (stk_str)S("<|image_pad|>");
    expect_bad_format(&f, "template.user.before");
    f = example_format();
    f.tool.after = (stk_str)S("\xF3\xB0\x80\x81");
    expect_bad_format(&f, "template.tool.after");
    f = example_format();
    f.system.given = false;
    f.default_system = (stk_str)S("x");
    expect_bad_format(&f, "template.system");
}

static void digests_tell_templates_apart(void)
{
    uint8_t digest[14][16];
    size_t count = 0;
    static const char *const names[] = {"qwen3-vl",         "qwen2.5-vl", "qwen3.5",
                                        "qwen3.6",          "qwen3.8",    "qwen3-vl-thinking",
                                        "qwen3.5-training", "qwen3.6-training"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        stk_template *t = named(names[i]);
        CHECK_STR(stk_template_name(t), names[i]);
        stk_template_digest(t, digest[count++]);
        stk_template_close(&t);
    }
    stk_turn_format format = example_format();
    for (int change = 0; change < 5; change++) {
        if (change == 1) format.default_system = (stk_str){"", 0};
        if (change == 2) format.assistant.trains_after = false;
        if (change == 3) format.user.after.size_bytes--;
        if (change == 4) format.tool.given = true;
        stk_template *t = declared(&format);
        stk_template_digest(t, digest[count++]);
        stk_template_close(&t);
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++) CHECK(memcmp(digest[i], digest[k], 16) != 0);
    stk_template *t = named("qwen2-vl"); /* one text with Qwen2.5-VL */
    stk_template_digest(t, digest[count]);
    CHECK(memcmp(digest[count], digest[1], 16) == 0);
    stk_template_close(&t);
    CHECK_INT(stk_template_named(&t, stk_str_of("qwen4"), &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "qwen3-vl");
    CHECK(t == NULL);
}

/* --- a checkpoint's own template
 * ------------------------------------------------------------------------------- */

static void expect_no_template(const char *words)
{
    stk_template *t = (stk_template *)&err;
    CHECK_INT(stk_template_open(&t, test_folder(), &err), STK_ERR_MODEL);
    CHECK(t == NULL);
    CHECK_HAS(err.message, words);
    CHECK(err.file[0]);
    CHECK_INT(stk_template_open(&t, test_folder(), NULL), STK_ERR_MODEL);
}

/* (test_chat_reference.py opens the published ones.) */
static void an_unknown_template_is_refused_with_the_words_to_fix_it(void)
{
    expect_no_template("no chat template");
    test_write("tokenizer_config.json", "{\"chat_template\": \"{{ messages }}\"}");
    expect_no_template("declare its turn format");
    CHECK_HAS(err.file, "tokenizer_config.json");
    test_write("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}]}");
    expect_no_template("no chat template");
    test_write("tokenizer_config.json", "{\"chat_template\": 7}");
    expect_no_template("neither");
    test_write("tokenizer_config.json", "{\"chat_template\": ");
    expect_no_template("not valid JSON");
    test_write("chat_template.json", "{\"chat_template\": \"{{ other }}\"}");
    expect_no_template("sha256");
    CHECK_HAS(err.file, "chat_template.json");
    test_write("chat_template.jinja", "{{ third }}\n");
    expect_no_template("sha256");
    CHECK_HAS(err.file, "chat_template.jinja");
}

/* --- control tokens
 * ------------------------------------------------------------------------------------------- */

#define ASK(text)                                                                                            \
    "'record':{'messages':[{'role':'user','content':'" text "'},{'role':'assistant','content':'yes'}]}"
#define ANSWER(text)                                                                                         \
    "'record':{'messages':[{'role':'user','content':'say'},{'role':'assistant','content':'" text "'}]}"

static void plain_neutralises_turns_and_keeps_grounding_in_answers(void)
{
    stk_template *t = named("qwen3-vl");
    CHECK(encode_with(t, "{" ASK("a<|im_end|><|box_start|><tool_call>b") "}") == STK_REASON_NONE);
    CHECK_INT(count_id("<|im_end|>"), 2);
    CHECK_INT(count_id("<|box_start|>"), 0);
    CHECK_INT(count_id("<tool_call>"), 0);
    CHECK_INT(tokens.notes, STK_NOTE_CONTROL_TOKEN);
    CHECK(encode_with(t, "{" ANSWER("a<|im_end|><|box_start|><tool_call><|image_pad|><|video_pad|>b") "}") ==
          STK_REASON_NONE);
    CHECK_INT(count_id("<|im_end|>"), 2);
    CHECK_INT(count_id("<|box_start|>"), 1);
    CHECK_INT(count_id("<tool_call>"), 1);
    CHECK_INT(count_id("<|image_pad|>"), 0);
    CHECK_INT(tokens.notes, STK_NOTE_CONTROL_TOKEN_ANSWER);
    CHECK_STR(trained_text(), "a<|im_end|><|box_start|><tool_call><|image_pad|><|video_pad|>b<|im_end|>\n");
    CHECK(encode_with(t, "{'control_tokens':'sanitize'," ANSWER("<|box_start|>") "}") == STK_REASON_NONE);
    CHECK_INT(count_id("<|box_start|>"), 0);
    CHECK(encode_with(t, "{'allow_control_tokens':['<|box_start|>']," ASK("<|box_start|>") "}") ==
          STK_REASON_NONE);
    CHECK_INT(count_id("<|box_start|>"), 1);
    CHECK_INT(tokens.notes, 0);
    stk_template_close(&t);
}

/* The marks of a turn format that is not Qwen's are control tokens, too, in answers as well. */
static void the_marks_of_a_turn_format_cannot_be_forged(void)
{
    stk_turn_format format = example_format();
    format.assistant.after = (stk_str)S("<|file_sep|>");
    stk_template *t = declared(&format);
    CHECK(encode_with(t, "{" ANSWER("a<|file_sep|>b<|repo_name|>") "}") == STK_REASON_NONE);
    CHECK_INT(count_id("<|file_sep|>"), 1);
    CHECK_INT(count_id("<|repo_name|>"), 1);
    stk_template_close(&t);
}

/* Field report C03: the number of pads is always the number of media. */
static void typed_pads_never_stand_for_media(void)
{
    stk_template *t = named("qwen3-vl");
    static const char *const rules[] = {"plain", "sanitize", "reference"};
    for (size_t i = 0; i < 3; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{'control_tokens':'%s','record':{'messages':[" PICTURE
                 ",{'role':'assistant','content':'<|image_pad|>'}]}}",
                 rules[i]);
        CHECK_INT(encode_with(t, text), i == 2 ? STK_REASON_CONTROL : STK_REASON_NONE);
        if (i == 2)
            CHECK_HAS(err.message, "control_tokens: plain");
        else
            CHECK(tokens.media_count == 1 && count_id("<|image_pad|>") == 1);
        /* Joined from two parts it is live, and found. */
        snprintf(text, sizeof text,
                 "{'control_tokens':'%s','record':{'messages':[{'role':'user','content':[{'type':'text',"
                 "'text':'<|image_'},{'type':'text','text':'pad|>'}]},{'role':'assistant','content':'x'}]}}",
                 rules[i]);
        CHECK_INT(encode_with(t, text), STK_REASON_CONTROL);
    }
    stk_template_close(&t);
}

/* The private marks of the rules cannot be brought in by the data. */
static void marks_in_the_data_forge_nothing(void)
{
    stk_template *t = named("qwen3-vl");
    CHECK(encode_with(t, "{" ASK("a\xF3\xB0\x80\x80<|im_end|>\xF3\xB0\x80\x81 <|im_\xF3\xB0\x80\x80"
                                 "end|>\xF3\xB0\x80\x82") "}") == STK_REASON_NONE);
    CHECK_INT(count_id("<|im_end|>"), 2);
    expect_rendered("<|im_start|>user\na<|im_end|> <|im_end|>\xF3\xB0\x80\x82<|im_end|>\n"
                    "<|im_start|>assistant\nyes<|im_end|>\n");
    stk_template_close(&t);
}

/* --- labels
 * ---------------------------------------------------------------------------------------------------- */

static void a_turns_own_train_key_wins(void)
{
    stk_template *t = named("qwen3-vl");
#define FOUR(a, b, c, d)                                                                                     \
    "'record':{'messages':[{'role':'user','content':'q'" a "},{'role':'assistant','content':'r'" b           \
    "},{'role':'user','content':'s'" c "},{'role':'assistant','content':'t'" d "}]}}"
    CHECK(encode_with(t, "{" FOUR("", "", "", "")) == STK_REASON_NONE);
    CHECK_STR(trained_text(), "r<|im_end|>\n|t<|im_end|>\n");
    CHECK(encode_with(t, "{'labels':'last'," FOUR("", "", "", "")) == STK_REASON_NONE);
    CHECK_STR(trained_text(), "t<|im_end|>\n");
    CHECK(encode_with(t, "{" FOUR("", "", "", ",'train':false")) == STK_REASON_NONE);
    CHECK_STR(trained_text(), "r<|im_end|>\n");
    CHECK(encode_with(t, "{'labels':'last'," FOUR("", ",'train':true", "", ",'train':false")) ==
          STK_REASON_NONE);
    CHECK_STR(trained_text(), "r<|im_end|>\n");
    CHECK(encode_with(t, "{'labels':'last'," FOUR(",'train':true", "", ",'train':false", "")) ==
          STK_REASON_NONE);
    CHECK_STR(trained_text(), "q<|im_end|>\n|t<|im_end|>\n");
    CHECK_INT(encode_with(t, "{'labels':'last'," FOUR("", "", "", ",'train':false")), STK_REASON_UNTRAINED);
    stk_template_close(&t);
}

/* A system, user or tool turn can be trained where the record says so; its media never are (invariant 9). */
static void other_turns_can_be_trained_but_not_their_media(void)
{
    static const char *const names[] = {"qwen3-vl", "qwen2.5-vl", "qwen3.5"};
    for (size_t i = 0; i < 3; i++) {
        stk_template *t = named(names[i]);
        CHECK(encode_with(
                  t,
                  "{'record':{'messages':[{'role':'system','content':'s','train':true},{'role':'user','"
                  "content':"
                  "[{'type':'image'},{'type':'text','text':'u'}],'train':true},{'role':'assistant','content':"
                  "'a','train':false},{'role':'tool','content':'t','train':true}]}}") == STK_REASON_NONE);
        CHECK_STR(trained_text(),
                  i == 1 ? "s<|im_end|>\n|<|vision_start|>|<|vision_end|>u<|im_end|>\n|t<|im_end|>\n"
                         : "s<|im_end|>\n|<|vision_start|>|<|vision_end|>u<|im_end|>\n|t");
        stk_template_close(&t);
    }
}

/* Field report C01. */
static void finetune_copies_the_faults_of_the_scan(void)
{
    stk_template *t = named("qwen3-vl");
    CHECK(encode_with(t, "{" ASK("assistant: no") "}") == STK_REASON_NONE);
    CHECK_STR(trained_text(), "yes<|im_end|>\n");
    CHECK_INT(tokens.notes, STK_NOTE_ASSISTANT_TOKEN);
    CHECK(encode_with(t, "{'labels':'finetune'," ASK("assistant: no") "}") == STK_REASON_NONE);
    CHECK_STR(trained_text(), " no<|im_end|>\n|yes<|im_end|>\n");
    CHECK(encode_with(t, "{'labels':'finetune'," ANSWER("\\nyes") "}") == STK_REASON_NONE);
    CHECK_STR(trained_text(), "yes<|im_end|>\n"); /* the token of both line breaks is lost */
    CHECK_INT(tokens.notes, STK_NOTE_ANSWER_LINE_BREAK);
    CHECK(encode_with(t, "{" ANSWER("\\nyes") "}") == STK_REASON_NONE);
    CHECK_STR(trained_text(), "\n\nyes<|im_end|>\n");
    stk_template_close(&t);
}

static void rules_are_checked_at_open(void)
{
    stk_template *new_template = named("qwen3.5"), *t = named("qwen3-vl");
    stk_str token = stk_str_of("<|box_start|>");
    stk_text_rules rules = {.labels = STK_LABELS_FINETUNE, .allow_control_tokens = {&token, 1}};
    CHECK_OK(stk_text_rules_check(tokenizer, t, &rules, &err), err);
    CHECK_INT(stk_text_rules_check(tokenizer, new_template, &rules, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "labels: answers");
    rules.labels = STK_LABELS_LAST;
    CHECK_OK(stk_text_rules_check(tokenizer, new_template, &rules, &err), err);
    token = stk_str_of("<|bix_start|>");
    CHECK_INT(stk_text_rules_check(tokenizer, t, &rules, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "bix_start");
    stk_template_close(&t);
    stk_template_close(&new_template);
}

/* --- limits and memory
 * ----------------------------------------------------------------------------------------- */

static void long_texts_are_refused_at_the_limit(void)
{
    static const char *const names[] = {"qwen3-vl", "qwen2.5-vl", "qwen3.5"};
    stk_limits limits = STK_LIMITS_DEFAULT;
    stk_text_scratch *const large = scratch;
    for (size_t i = 0; i < 3; i++) {
        stk_template *t = named(names[i]);
        CHECK(encode_with(t, "{" ASK("<|im_end|><|im_end|><|im_end|> and more") "}") == STK_REASON_NONE);
        const size_t size_bytes = tokens.rendered.size_bytes;
        for (int less = 0; less < 2; less++) {
            limits.text_bytes = size_bytes - less;
            CHECK_OK(stk_text_scratch_create(&scratch, &limits, &err), err);
            CHECK_INT(encode_with(t, "{" ASK("<|im_end|><|im_end|><|im_end|> and more") "}"),
                      less ? STK_REASON_RECORD_LIMIT : STK_REASON_NONE);
            if (less) CHECK_HAS(err.message, "text_bytes");
            stk_text_scratch_destroy(scratch);
        }
        limits.text_bytes = 10; /* far below: the rendering itself stops */
        CHECK_OK(stk_text_scratch_create(&scratch, &limits, &err), err);
        CHECK_INT(encode_with(t, "{" ASK("hello") "}"), STK_REASON_RECORD_LIMIT);
        stk_text_scratch_destroy(scratch);
        scratch = large;
        stk_template_close(&t);
    }
    limits.text_bytes = 0;
    stk_text_scratch *none;
    CHECK_INT(stk_text_scratch_create(&none, &limits, &err), STK_ERR_OPTION);
    CHECK(none == NULL);
}

/* Invariant 10: nothing is allocated for a sample like those before; also when data sets with other rules
 * alternate. */
static void no_allocation_in_steady_state(void)
{
    stk_template *t = named("qwen3.5");
    uint64_t before = 0;
    for (int round = 0; round < 6; round++) {
        if (round == 2) before = stk_alloc_count();
        stk_reason reason;
        for (int rule = 0; rule < 3; rule++) {
            now.rules.control_tokens = (stk_control_rule)rule;
            CHECK_OK(stk_text_encode(&tokens, tokenizer, t, &now.rules, &now.sample, scratch, &reason, &err),
                     err);
        }
        if (round == 0)
            CHECK(encode_with(
                      t, "{'record':{'tools':[{'name':'f<|im_end|>'}],'messages':[{'role':'user','content':'a"
                         "<|im_end|>b'},{'role':'assistant','content':'c<think>d</"
                         "think>e','tool_calls':[{'name':'f',"
                         "'arguments':{'x':1.5}}]}]}}") == STK_REASON_NONE);
    }
    CHECK_INT(stk_alloc_count() - before, 0);
    stk_template_close(&t);
}

/* Without memory for one of its pieces nothing leaks, no record is blamed, and the next try is fine.  A build
 * without faults runs it once. */
static void every_allocation_may_fail(void)
{
    const stk_limits limits = STK_LIMITS_DEFAULT;
    const stk_turn_format format = example_format();
    stk_template *kept = named("qwen3.5");
    CHECK(encode_with(
              kept,
              "{'record':{'tools':[{'name':'f<|im_end|>'}],'messages':[{'role':'user','content':'a<|im_end|>"
              "b'},"
              "{'role':'assistant','content':'c','tool_calls':[{'name':'f','arguments':{'x':1.5}}]}]}}") ==
          STK_REASON_NONE);
    unsigned long nth = 0;
    stk_status status;
    do {
        stk_template *t = NULL;
        stk_text_scratch *fresh = NULL;
        stk_reason reason = STK_REASON_NONE;
#ifdef STK_FAULTS
        stk_fault_set(STK_FAULT_ALLOC, ++nth, false);
#endif
        status = stk_template_declared(&t, &format, &err);
        if (status == STK_OK) status = stk_text_scratch_create(&fresh, &limits, &err);
        if (status == STK_OK)
            status = stk_text_encode(&tokens, tokenizer, kept, &now.rules, &now.sample, fresh, &reason, &err);
#ifdef STK_FAULTS
        stk_fault_set(STK_FAULT_ALLOC, 0, false);
#endif
        CHECK_MSG(status == STK_OK || status == STK_ERR_NOMEM, "allocation %lu: %s", nth, err.message);
        CHECK_INT(reason, STK_REASON_NONE);
        if (fresh && status < 0)
            CHECK_OK(stk_text_encode(&tokens, tokenizer, kept, &now.rules, &now.sample, fresh, &reason, &err),
                     err);
        stk_text_scratch_destroy(fresh);
        stk_template_close(&t);
    } while (status != STK_OK);
#ifdef STK_FAULTS
    CHECK(nth > 10);
#endif
    stk_template_close(&kept);
}

/* --- Python's numbers
 * ------------------------------------------------------------------------------------------ */

static void floats_are_written_as_python_does(void)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1.0, "1.0"},
        {100.0, "100.0"},
        {0.1, "0.1"},
        {-2.5, "-2.5"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {1.5e16, "1.5e+16"},
        {9999999999999998.0, "9999999999999998.0"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {1e22, "1e+22"},
        {1e23, "1e+23"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {0.3, "0.3"},
        {0.1 + 0.2, "0.30000000000000004"},
        {5.684341886080802e-14,
         "5.684341886080802e-14"}, /* 2^-44: the nearest of 16 digits does not read back */
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {12345.678, "12345.678"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[STK_PYJSON_FLOAT_BYTES + 1];
        text[stk_pyjson_float(text, cases[i].value)] = 0;
        CHECK_STR(text, cases[i].text);
    }
}

int main(int argc, char **argv)
{
    char folder[600];
    const stk_limits limits = STK_LIMITS_DEFAULT;
    snprintf(folder, sizeof folder, "%s/../examples/sample/model", test_source_folder());
    CHECK_OK(stk_tokenizer_open(&tokenizer, folder, &err), err);
    CHECK_OK(stk_text_scratch_create(&scratch, &limits, &err), err);
    const test_entry entries[] = {
        TEST(a_turn_format_writes_what_it_declares),
        TEST(train_lists_choose_text_and_end),
        TEST(the_default_system_prompt_is_replaced_by_the_rules),
        TEST(a_turn_format_refuses_what_it_cannot_say),
        TEST(bad_turn_formats_are_refused_with_the_key),
        TEST(digests_tell_templates_apart),
        TEST(an_unknown_template_is_refused_with_the_words_to_fix_it),
        TEST(plain_neutralises_turns_and_keeps_grounding_in_answers),
        TEST(the_marks_of_a_turn_format_cannot_be_forged),
        TEST(typed_pads_never_stand_for_media),
        TEST(marks_in_the_data_forge_nothing),
        TEST(a_turns_own_train_key_wins),
        TEST(other_turns_can_be_trained_but_not_their_media),
        TEST(finetune_copies_the_faults_of_the_scan),
        TEST(rules_are_checked_at_open),
        TEST(long_texts_are_refused_at_the_limit),
        TEST(no_allocation_in_steady_state),
        TEST(every_allocation_may_fail),
        TEST(floats_are_written_as_python_does),
    };
    const int status = test_run(entries, sizeof entries / sizeof *entries, argc, argv);
    chat_case_end(&now);
    json_decref(case_root);
    stk_text_scratch_destroy(scratch);
    stk_tokenizer_close(&tokenizer);
    return status;
}
