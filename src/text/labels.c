/* labels.c - which tokens have labels.
 *
 * answers, last: every token that overlaps a stretch of the rendered text which the template wrote as an
 * answer, end of turn and line break included.  Ids are never searched.  A turn's own `train` key wins over
 * the rule. finetune: the scan over ids of qwen-vl-finetune, with its faults (section 5.1); it may put labels
 * on a medium when the word "assistant" stands before it. */
#include "text/labels.h"

static const stk_turn *last_answer(const stk_sample *sample)
{
    for (size_t i = sample->turn_count; i-- > 0;)
        if (sample->turn[i].role == STK_ROLE_ASSISTANT) return &sample->turn[i];
    return NULL;
}

/* Labels from the token after the header's line break to the one after the end of the turn. */
static void scan_ids(uint8_t *trained, const int32_t *id, uint32_t count, stk_scan_ids scan)
{
    for (uint32_t i = 0; i < count; i++) {
        if (id[i] != scan.assistant) continue;
        uint32_t end = i + 2;
        while (end < count && id[end] != scan.turn_end) end++;
        if (end >= count) continue;
        const uint32_t stop = end + 2 < count ? end + 2 : count;
        for (uint32_t k = i + 2; k < stop; k++) trained[k] = 1;
        i = end;
    }
}

static bool is_trained_by_rule(const stk_turn *turn, stk_label_rule rule, const stk_turn *last)
{
    return turn->role == STK_ROLE_ASSISTANT &&
           (rule == STK_LABELS_ANSWERS || (rule == STK_LABELS_LAST && turn == last));
}

void stk_labels_mark(uint8_t *trained, const stk_encoder *encoder, const stk_stretch *stretch,
                     size_t stretch_count, const stk_sample *sample, stk_label_rule rule, stk_scan_ids scan,
                     const uint32_t *media_at, size_t media_count)
{
    memset(trained, 0, encoder->count);
    if (rule == STK_LABELS_FINETUNE) scan_ids(trained, encoder->id, encoder->count, scan);
    const stk_turn *const last = last_answer(sample);
    uint32_t i = 0;
    for (size_t s = 0; s < stretch_count; s++) {
        const stk_turn *const turn = stretch[s].turn;
        const bool by_rule = turn->train == STK_TRAIN_BY_RULE;
        if (by_rule && !is_trained_by_rule(turn, rule, last)) continue;
        while (i < encoder->count && encoder->end[i] <= stretch[s].begin_bytes) i++;
        for (uint32_t k = i; k < encoder->count && encoder->begin[k] < stretch[s].end_bytes; k++)
            if (encoder->end[k] > stretch[s].begin_bytes) trained[k] = turn->train != STK_TRAIN_NO;
    }
    if (rule == STK_LABELS_FINETUNE) return;
    for (size_t m = 0; m < media_count; m++) trained[media_at[m]] = 0;
}
