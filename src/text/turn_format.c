/* turn_format.c - the declared turn format: what stands before and after each turn (interface.md, "Turn
 * format").
 *
 * For templates that Stoker does not know.  It can say less than a template: a conversation with tools, tool
 * calls or reasoning is refused rather than trained without them. */
#include "text/template.h"

static const stk_str image_pad = STK_STR_INIT("<|image_pad|>"), video_pad = STK_STR_INIT("<|video_pad|>");

static size_t count_of(stk_str text, stk_str word)
{
    size_t count = 0;
    for (size_t i = 0; i + word.size_bytes <= text.size_bytes; i++)
        if (memcmp(text.data + i, word.data, word.size_bytes) == 0) count++;
    return count;
}

static stk_status check_text(const char *name, stk_str text, size_t image_pads, size_t video_pads,
                             stk_error *err)
{
    if (text.size_bytes == 0) return STK_OK;
    if (count_of(text, STK_LITERAL(STK_MARK_BEGIN)) || count_of(text, STK_LITERAL(STK_MARK_END)))
        return stk_fail(err, STK_ERR_OPTION, "template.%s: U+F0000 and U+F0001 cannot stand in a turn format",
                        name);
    if (count_of(text, image_pad) != image_pads || count_of(text, video_pad) != video_pads)
        return stk_fail(
            err, STK_ERR_OPTION,
            image_pads || video_pads
                ? "template.%s: it must hold its own pad (<|image_pad|>, <|video_pad|>) exactly once"
                : "template.%s: <|image_pad|> and <|video_pad|> may only stand in image and video",
            name);
    return STK_OK;
}

static stk_status check_role(const char *name, const stk_turn_format_role *role, stk_error *err)
{
    char before[40], after[40];
    snprintf(before, sizeof before, "%s.before", name);
    snprintf(after, sizeof after, "%s.after", name);
    STK_TRY(check_text(before, role->before, 0, 0, err));
    return check_text(after, role->after, 0, 0, err);
}

stk_status stk_turn_format_check(const stk_turn_format *format, stk_error *err)
{
    if (!format->assistant.given)
        return stk_fail(err, STK_ERR_OPTION,
                        "template.assistant is missing: without answers there is nothing to learn");
    if (!format->assistant.trains_text && !format->assistant.trains_after)
        return stk_fail(
            err, STK_ERR_OPTION,
            "template.assistant.train is empty: write [text, \"...\"] with the text that stands after");
    if (format->assistant.trains_after && format->assistant.after.size_bytes == 0 &&
        !format->assistant.trains_text)
        return stk_fail(err, STK_ERR_OPTION,
                        "template.assistant.train names only the text after, which is empty");
    if (format->default_system.size_bytes && !format->system.given)
        return stk_fail(err, STK_ERR_OPTION,
                        "template.default_system needs template.system: write its before and after");
    STK_TRY(check_role("system", &format->system, err));
    STK_TRY(check_role("user", &format->user, err));
    STK_TRY(check_role("assistant", &format->assistant, err));
    STK_TRY(check_role("tool", &format->tool, err));
    STK_TRY(check_text("image", format->image, 1, 0, err));
    STK_TRY(check_text("video", format->video, 0, 1, err));
    return check_text("default_system", format->default_system, 0, 0, err);
}

static stk_status write_media(stk_render *render, const stk_turn_format *format, stk_media_kind kind)
{
    const stk_str text = kind == STK_MEDIA_VIDEO ? format->video : format->image;
    if (text.size_bytes == 0)
        return stk_render_refuse(render, "the turn format has no text for a%s: declare template.%s",
                                 kind == STK_MEDIA_VIDEO ? " video" : "n image",
                                 kind == STK_MEDIA_VIDEO ? "video" : "image");
    return stk_render_raw(render, &render->text, text);
}

static stk_status write_parts(stk_render *render, const stk_turn_format *format, const stk_sample *sample,
                              const stk_turn *turn)
{
    for (size_t i = 0; i < turn->part_count; i++) {
        const stk_turn_part *const part = &turn->part[i];
        if (part->kind == STK_PART_MEDIA)
            STK_TRY(write_media(render, format, sample->media[part->media_index].kind));
        else
            STK_TRY(stk_render_data(render, &render->text, part->text));
    }
    return STK_OK;
}

static const stk_turn_format_role *role_of(const stk_turn_format *format, stk_role role, const char **name)
{
    switch (role) {
    case STK_ROLE_SYSTEM: *name = "system"; return &format->system;
    case STK_ROLE_USER: *name = "user"; return &format->user;
    case STK_ROLE_ASSISTANT: *name = "assistant"; return &format->assistant;
    case STK_ROLE_TOOL: *name = "tool"; return &format->tool;
    }
    *name = "unknown";
    return NULL;
}

static stk_status write_turn(stk_render *render, const stk_turn_format *format, const stk_sample *sample,
                             const stk_turn *turn)
{
    const char *name;
    const stk_turn_format_role *const role = role_of(format, turn->role, &name);
    if (!role || !role->given)
        return stk_render_refuse(render, "the turn format has no %s turn: declare template.%s", name, name);
    if (turn->call_count || turn->reasoning.size_bytes)
        return stk_render_refuse(render, "a turn format cannot write %s: use a published template",
                                 turn->call_count ? "tool calls" : "reasoning_content");
    const bool is_answer = turn->role == STK_ROLE_ASSISTANT;
    render->in_answer = is_answer;
    STK_TRY(stk_render_raw(render, &render->text, role->before));
    size_t begin_bytes = render->text.size_bytes;
    STK_TRY(write_parts(render, format, sample, turn));
    const bool trained = is_answer || turn->train == STK_TRAIN_YES;
    const bool text = trained && (!is_answer || role->trains_text),
               after = trained && (!is_answer || role->trains_after);
    if (text && !after) STK_TRY(stk_render_stretch(render, begin_bytes, turn));
    if (!text) begin_bytes = render->text.size_bytes;
    STK_TRY(stk_render_raw(render, &render->text, role->after));
    return after ? stk_render_stretch(render, begin_bytes, turn) : STK_OK;
}

stk_status stk_render_format(const stk_template *chat_template, stk_render *render, const stk_sample *sample)
{
    const stk_turn_format *const format = &chat_template->format;
    if (json_array_size(sample->tools))
        return stk_render_refuse(render, "a turn format cannot write tools: use a published template");
    const size_t count = stk_render_turn_count(render, sample);
    if (count && stk_render_turn(render, sample, 0)->role != STK_ROLE_SYSTEM && format->default_system.data) {
        render->in_answer = false;
        STK_TRY(stk_render_raw(render, &render->text, format->system.before));
        STK_TRY(stk_render_raw(render, &render->text, format->default_system));
        STK_TRY(stk_render_raw(render, &render->text, format->system.after));
    }
    for (size_t i = 0; i < count; i++)
        STK_TRY(write_turn(render, format, sample, stk_render_turn(render, sample, i)));
    return STK_OK;
}
