/* findings.c - notes and flags of the facts to findings: counted, the first one located, put into words.
 *
 * One table of what there is, in the order in which people read it.  Once over the records; what is used
 * twice is found with sets of hashes, 16 to 32 bytes a medium, which live only as long as the report is made.
 *
 * Not here: what is unusable (index_api.c), what makes a run refuse (unusable.c). */
#include "engine/findings.h"

#include <inttypes.h>
#include <stdarg.h>

#include "manifest/index_ids.h"

typedef enum finding {
    IDS_REPEATED,
    CONTROL_IN_SYSTEM,
    CONTROL_IN_USER,
    CONTROL_IN_ANSWERS,
    CONTROL_IN_TOOLS,
    END_OF_TEXT_TYPED,
    PLACEHOLDER_TYPED,
    ASSISTANT_TOKEN,
    ANSWER_LINE_BREAKS,
    THINK_CLOSED,
    LATER_SYSTEM_TURNS,
    TOOL_TURNS,
    NO_FINAL_ANSWER,
    LONE_SURROGATES,
    WHITE_SPACE_AT_TAGS,
    TAGS_ADDED,
    DETAIL_IGNORED,
    OTHER_NOTES,
    TRANSPARENT,
    GREY_16_BIT,
    CMYK,
    ANIMATED,
    PARTS_SKIPPED,
    TURNED,
    SIZE_STATED,
    ADDRESS_REPEATED,
    CONTENT_REPEATED,
    FINDING_COUNT
} finding;
_Static_assert((int)FINDING_COUNT <= (int)STK_INDEX_FINDINGS, "a summary has room for all");

static const char *const names[FINDING_COUNT] = {
    [IDS_REPEATED] = "ids_repeated",
    [CONTROL_IN_SYSTEM] = "control_tokens_in_system",
    [CONTROL_IN_USER] = "control_tokens_in_user",
    [CONTROL_IN_ANSWERS] = "control_tokens_in_answers",
    [CONTROL_IN_TOOLS] = "control_tokens_in_tools",
    [END_OF_TEXT_TYPED] = "end_of_text_typed",
    [PLACEHOLDER_TYPED] = "placeholder_typed",
    [ASSISTANT_TOKEN] = "assistant_token",
    [ANSWER_LINE_BREAKS] = "answer_line_breaks",
    [THINK_CLOSED] = "think_closed",
    [LATER_SYSTEM_TURNS] = "later_system_turns",
    [TOOL_TURNS] = "tool_turns",
    [NO_FINAL_ANSWER] = "no_final_answer",
    [LONE_SURROGATES] = "lone_surrogates",
    [WHITE_SPACE_AT_TAGS] = "white_space_at_tags",
    [TAGS_ADDED] = "tags_added",
    [DETAIL_IGNORED] = "detail_ignored",
    [OTHER_NOTES] = "other_notes",
    [TRANSPARENT] = "transparent",
    [GREY_16_BIT] = "grey_16_bit",
    [CMYK] = "cmyk",
    [ANIMATED] = "animated",
    [PARTS_SKIPPED] = "parts_skipped",
    [TURNED] = "turned",
    [SIZE_STATED] = "size_stated",
    [ADDRESS_REPEATED] = "address_repeated",
    [CONTENT_REPEATED] = "content_repeated",
};

static const struct {
    uint32_t note;
    finding finding;
} of_notes[] = {
    {STK_NOTE_CONTROL_TOKEN_SYSTEM, CONTROL_IN_SYSTEM},
    {STK_NOTE_CONTROL_TOKEN, CONTROL_IN_USER},
    {STK_NOTE_CONTROL_TOKEN_ANSWER, CONTROL_IN_ANSWERS},
    {STK_NOTE_CONTROL_TOKEN_TOOL, CONTROL_IN_TOOLS},
    {STK_NOTE_END_OF_TEXT, END_OF_TEXT_TYPED},
    {STK_NOTE_PLACEHOLDER, PLACEHOLDER_TYPED},
    {STK_NOTE_ASSISTANT_TOKEN, ASSISTANT_TOKEN},
    {STK_NOTE_ANSWER_LINE_BREAK, ANSWER_LINE_BREAKS},
    {STK_NOTE_THINK_CLOSED, THINK_CLOSED},
    {STK_NOTE_LATER_SYSTEM, LATER_SYSTEM_TURNS},
    {STK_NOTE_TOOL_ROLE, TOOL_TURNS},
    {STK_NOTE_NO_FINAL_ANSWER, NO_FINAL_ANSWER},
    {STK_NOTE_LONE_SURROGATE, LONE_SURROGATES},
    {STK_NOTE_TAG_SPACE, WHITE_SPACE_AT_TAGS},
    {STK_NOTE_TAGS_ADDED, TAGS_ADDED},
    {STK_NOTE_DETAIL_IGNORED, DETAIL_IGNORED},
};

typedef struct audit {
    const stk_run *run;
    const stk_run_set *set;
    uint64_t count[FINDING_COUNT], first_record[FINDING_COUNT];
    uint64_t typed[64]; /* records, by bit of stk_text_facts.typed_tokens */
    stk_id_set addresses, contents;
} audit;

/* --- counting --- */

static void add(audit *a, finding what, uint64_t record_index)
{
    if (a->count[what]++ == 0) a->first_record[what] = record_index;
}

static void add_medium(audit *a, uint64_t r, const stk_media_facts *medium)
{
    if (medium->flags & STK_MEDIA_HAS_ALPHA) add(a, TRANSPARENT, r);
    if (medium->flags & STK_MEDIA_GREY16) add(a, GREY_16_BIT, r);
    if (medium->flags & STK_MEDIA_CMYK) add(a, CMYK, r);
    if (medium->flags & STK_MEDIA_ANIMATED) add(a, ANIMATED, r);
    if (medium->flags & STK_MEDIA_PARTS_SKIPPED) add(a, PARTS_SKIPPED, r);
    if (medium->orientation > 1) add(a, TURNED, r);
    if (medium->flags & STK_MEDIA_STATED) add(a, SIZE_STATED, r);
    if (medium->address_hash && stk_id_set_add(&a->addresses, medium->address_hash))
        add(a, ADDRESS_REPEATED, r);
    else if (medium->head_hash && stk_id_set_add(&a->contents, medium->head_hash))
        add(a, CONTENT_REPEATED, r);
}

static void add_record(audit *a, uint64_t r)
{
    const stk_set_facts *const facts = &a->set->facts;
    const stk_record_facts *const record = &facts->record[r];
    uint32_t notes = record->notes | facts->text[r].notes;
    for (size_t i = 0; i < sizeof of_notes / sizeof *of_notes; i++) {
        if (notes & of_notes[i].note) add(a, of_notes[i].finding, r);
        notes &= ~of_notes[i].note;
    }
    if (notes) add(a, OTHER_NOTES, r);
    if (record->flags & STK_RECORD_ID_REPEATED) add(a, IDS_REPEATED, r);
    for (uint64_t typed = facts->text[r].typed_tokens; typed; typed &= typed - 1)
        a->typed[__builtin_ctzll(typed)]++;
    for (uint32_t m = 0; m < record->media_count; m++)
        add_medium(a, r, &facts->media[record->first_media + m]);
}

/* --- words --- */

static void say(stk_index_finding *f, const char *format, ...) STK_PRINTF(2, 3);
static void say(stk_index_finding *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->words, sizeof f->words, format, arguments);
    va_end(arguments);
}

static void say_control(stk_index_finding *f, stk_control_rule rule, bool in_answers)
{
    if (rule == STK_CONTROL_REFERENCE)
        say(f, "typed control tokens stay tokens (control_tokens: reference), so data can forge a turn; "
               "plain makes them text");
    else if (rule == STK_CONTROL_SANITIZE)
        say(f, "typed control tokens become plain text (control_tokens: sanitize); allow_control_tokens "
               "names those to keep");
    else if (in_answers)
        say(f, "typed control tokens stay tokens in answers, but for turn marks and media pads, which become "
               "text "
               "(control_tokens: plain); sanitize makes all of them text");
    else
        say(f, "typed control tokens become plain text (control_tokens: plain); allow_control_tokens names "
               "those to keep, such as "
               "grounding tokens");
}

static const char *label_name(stk_label_rule rule)
{
    return rule == STK_LABELS_ANSWERS ? "answers" : rule == STK_LABELS_LAST ? "last" : "finetune";
}

static void say_text(const audit *a, finding what, stk_index_finding *f)
{
    const stk_text_rules *const rules = &a->set->rules->text;
    const bool finetune = rules->labels == STK_LABELS_FINETUNE;
    switch (what) {
    case CONTROL_IN_SYSTEM:
    case CONTROL_IN_USER:
    case CONTROL_IN_TOOLS: say_control(f, rules->control_tokens, false); return;
    case CONTROL_IN_ANSWERS: say_control(f, rules->control_tokens, true); return;
    case END_OF_TEXT_TYPED:
        say(f, "<|endoftext|> is typed, which is also the pad: where it stays a token (see control_tokens), "
               "code that finds padding by "
               "its id masks it: take it out of the text");
        return;
    case PLACEHOLDER_TYPED:
        say(f, "<|placeholder|> is typed: text here and in transformers 5, a media pad in transformers 4: "
               "take it out of the text");
        return;
    case ASSISTANT_TOKEN:
        if (finetune)
            say(f, "\"assistant\" is a token outside a header: labels: finetune trains from there to the end "
                   "of that turn, as its "
                   "reference does; labels: answers trains answers only");
        else
            say(f,
                "\"assistant\" is a token outside a header: of no effect under labels: %s; labels: finetune "
                "would train from there to the "
                "end of that turn",
                label_name(rules->labels));
        return;
    case ANSWER_LINE_BREAKS:
        if (finetune)
            say(f, "the answer begins with a line break: labels: finetune gives its first tokens no label, "
                   "as its reference does; "
                   "labels: answers trains them");
        else
            say(f,
                "the answer begins with a line break: trained under labels: %s; labels: finetune would lose "
                "its first tokens",
                label_name(rules->labels));
        return;
    case THINK_CLOSED:
        say(f,
            "an answer has </think> without <think>: rendered as the template (%.40s) does, and some put an "
            "empty think block before "
            "it: look with `stoker show`, or write the opening tag",
            stk_template_name(a->set->chat_template));
        return;
    default: return;
    }
}

static void say_turns(const audit *a, finding what, stk_index_finding *f)
{
    const char *const name = stk_template_name(a->set->chat_template);
    const bool strips = a->set->rules->record.tag_space == STK_TAG_SPACE_STRIP;
    switch (what) {
    case IDS_REPEATED: say(f, "an earlier record has the same id: these go by their line, SET#LINE"); return;
    case LATER_SYSTEM_TURNS:
        if (strcmp(name, "qwen3-vl") == 0)
            say(f, "a system turn that is not the first: the template (qwen3-vl) leaves it out; move it to "
                   "the front");
        else
            say(f,
                "a system turn that is not the first: written as the template (%.40s) does; look with "
                "`stoker show`",
                name);
        return;
    case TOOL_TURNS:
        say(f, "turns of a tool: written as the template (%.40s) does; look with `stoker show`", name);
        return;
    case NO_FINAL_ANSWER:
        say(f,
            "the last turn is no answer: it is read and not learned; look whether the conversation was cut");
        return;
    case LONE_SURROGATES:
        say(f,
            "half a character (a lone surrogate), which became U+FFFD: the text was cut when it was written");
        return;
    case WHITE_SPACE_AT_TAGS:
        if (strips)
            say(f, "white space around the text of the user, as at \"<image>\\n\", is taken away (tag_space: "
                   "strip), as "
                   "qwen-vl-finetune does; keep leaves it, as all others do");
        else
            say(f, "white space around the text of the user, as at \"<image>\\n\", stays; tag_space: strip "
                   "would take it away and change their "
                   "ids, as qwen-vl-finetune does");
        return;
    case TAGS_ADDED:
        say(f, "media without tags were put before the text of the first turn, as ms-swift does: write "
               "<image> where each belongs");
        return;
    case DETAIL_IGNORED:
        say(f, "an image's `detail` is ignored: min_pixels and max_pixels set its size");
        return;
    case OTHER_NOTES: say(f, "notes that docs/index-format.md lists"); return;
    default: return;
    }
}

static void say_images(const audit *a, finding what, stk_index_finding *f)
{
    const stk_pixel_rules *const pixels = &a->set->pixels;
    switch (what) {
    case TRANSPARENT:
        if (pixels->alpha == STK_ALPHA_WHITE)
            say(f, "transparency is blended on white (alpha: white)");
        else if (pixels->alpha == STK_ALPHA_WHITE_RGBA)
            say(f, "transparency of RGBA pictures is blended on white, that of palettes, grey and colour "
                   "keys is dropped (profile: "
                   "qwen-vl-utils); alpha: white treats all alike");
        else
            say(f, "transparency is dropped: what lies under it shows, often black; alpha: white blends it "
                   "on white");
        return;
    case GREY_16_BIT:
        say(f, "16-bit grey pictures turn almost white under this reference, which makes every value above "
               "255 white: convert them to 8 bits "
               "first");
        return;
    case PARTS_SKIPPED:
        say(f, "a broken EXIF block, or optional parts of a PNG that are broken or huge: skipped; the pixels are whole");
        return;
    case CMYK:
        say(f, "CMYK pictures are converted without a colour profile, as in the reference: look at one with "
               "`stoker show`");
        return;
    case ANIMATED: say(f, "of an animation, or of several pages, only the first picture is used"); return;
    case TURNED:
        if (pixels->ignore_orientation)
            say(f, "pictures turned by EXIF stay as they are stored (orientation is ignored), but for TIFFs; "
                   "orientation: "
                   "apply turns them upright");
        else
            say(f, "pictures turned by EXIF are turned upright (orientation is applied); orientation: ignore "
                   "leaves them as stored");
        return;
    case SIZE_STATED:
        say(f, "the size is what the record or the facts file states: no header was read, and a wrong one is found only when "
               "the run masks it; --index verify "
               "reads them all");
        return;
    case ADDRESS_REPEATED:
        say(f, "an earlier record, or the same one, has the same address: look whether records stand twice");
        return;
    case CONTENT_REPEATED:
        say(f, "another address, but the same size and the same first 64 KiB as an earlier one: taken to be "
               "copies");
        return;
    default: return;
    }
}

static void report(audit *a, stk_index_summary *summary)
{
    for (int i = 0; i < FINDING_COUNT; i++) {
        if (!a->count[i]) continue;
        stk_index_finding *const f = &summary->finding[summary->finding_count++];
        const stk_record_facts *const record = &a->set->facts.record[a->first_record[i]];
        stk_error where; /* cuts a long path at its front */
        (void)stk_fail_at(&where, STK_ERR_RECORD, a->set->facts.file[record->file_index], record->line,
                          "here");
        f->name = names[i];
        f->of = i >= TRANSPARENT ? "images" : "records";
        f->count = a->count[i];
        f->line = record->line;
        memcpy(f->file, where.file, sizeof f->file);
        say_turns(a, (finding)i, f);
        say_text(a, (finding)i, f);
        say_images(a, (finding)i, f);
    }
    /* The most frequent tokens; of equal ones the first of the vocabulary. */
    for (int k = 0; k < STK_INDEX_TOKENS; k++) {
        size_t most = 0;
        for (size_t bit = 1; bit < 64; bit++)
            if (a->typed[bit] > a->typed[most]) most = bit;
        if (!a->typed[most]) return;
        const stk_str text = stk_tokenizer_added_text(a->run->tokenizer, most);
        summary->token[k].records = a->typed[most];
        if (most == 63)
            snprintf(summary->token[k].text, sizeof summary->token[k].text, "(others)");
        else
            snprintf(summary->token[k].text, sizeof summary->token[k].text, "%.*s", STK_STR_ARGS(text));
        a->typed[most] = 0;
    }
}

stk_status stk_findings_make(stk_index_summary *summary, const stk_run *run, const stk_run_set *set,
                             stk_error *err)
{
    audit a = {.run = run, .set = set};
    stk_status status = stk_id_set_init(&a.addresses, set->facts.media_count, err);
    if (status == STK_OK) status = stk_id_set_init(&a.contents, set->facts.media_count, err);
    for (uint64_t r = 0; status == STK_OK && r < set->facts.record_count; r++)
        if (set->facts.record[r].reason != STK_REASON_EXCLUDED) add_record(&a, r);
    if (status == STK_OK) report(&a, summary);
    stk_id_set_deinit(&a.addresses);
    stk_id_set_deinit(&a.contents);
    return status;
}
