/* unusable.c - the error budget of a data set, and the sentence that says what to look at. */
#include "engine/unusable.h"

#include <inttypes.h>

#include "schema/derive.h"

enum { UNUSABLE_FLOOR = 10 }; /* so that a few bad records of a small set stop nothing */

typedef struct tally {
    uint64_t counted, unusable, by_reason[256], first[256];
    stk_reason most;
} tally;

static void count(tally *t, const stk_run *run, const stk_run_set *set)
{
    for (uint64_t r = 0; r < set->facts.record_count; r++) {
        stk_record_size size;
        stk_record_derive(&size, &set->facts, r, &run->model, &set->pixels, run->max_tokens);
        if (size.reason == STK_REASON_EXCLUDED) continue;
        t->counted++;
        if (size.reason == STK_REASON_NONE || size.reason == STK_REASON_OVERLONG) continue;
        t->unusable++;
        if (t->by_reason[size.reason]++ == 0) t->first[size.reason] = r;
        if (t->by_reason[size.reason] > t->by_reason[t->most]) t->most = size.reason;
    }
}

/* What to look at when most of a data set has one fault. */
static void advise(char *to, size_t capacity, const stk_run_set *set, stk_reason reason)
{
    enum { SHOWN = 60 }; /* of a folder: its end says more than its start */
    const stk_str root = set->rules->record.media_root;
    const size_t cut = root.size_bytes > SHOWN ? root.size_bytes - SHOWN : 0;
    const char *const dots = cut ? "..." : "";
    const int shown = (int)(root.size_bytes - cut);
    const char *advice;
    switch (reason) {
    case STK_REASON_MISSING:
    case STK_REASON_UNREADABLE:
        snprintf(to, capacity, "is media_root right? it is %s%.*s", dots, shown, root.data + cut);
        return;
    case STK_REASON_DENIED:
        snprintf(to, capacity, "set media_root (it is %s%.*s), or name the folder in allow", dots, shown, root.data + cut);
        return;
    case STK_REASON_DIALECT: advice = "set the data set's format, or its columns"; break;
    case STK_REASON_TAGS: advice = "do columns name the key of the media?"; break;
    case STK_REASON_ROLE: advice = "set the data set's roles"; break;
    case STK_REASON_TEMPLATE: advice = "is the template right?"; break;
    case STK_REASON_CONTROL: advice = "control_tokens: plain makes them text"; break;
    case STK_REASON_UNTRAINED: advice = "is labels right?"; break;
    case STK_REASON_RECORD_LIMIT:
    case STK_REASON_MEDIA_LIMIT: advice = "raise the limit"; break;
    case STK_REASON_JSON:
    case STK_REASON_UTF8: advice = "is it the right file?"; break;
    default: advice = "`stoker index` lists them"; break;
    }
    snprintf(to, capacity, "%s", advice);
}

/* The words that the index kept with a record; empty: none. */
static const char *words_of(const stk_run_set *set, stk_reason reason, uint64_t record_index)
{
    for (uint64_t i = 0; i < stk_set_index_words_count(set->index); i++) {
        const stk_index_words words = stk_set_index_words_at(set->index, i);
        if (words.reason == reason && words.record_index == record_index) return words.message;
    }
    return "";
}

/* Cut to fit, not through a character. */
static const char *shorten(char *text, size_t capacity)
{
    static const char end[] = "...";
    if (strlen(text) < capacity) return text;
    size_t at = capacity - sizeof end;
    while (at && ((uint8_t)text[at] & 0xC0) == 0x80) at--;
    memcpy(text + at, end, sizeof end);
    return text;
}

stk_status stk_unusable_check(const stk_run *run, const stk_run_set *set, double share, stk_error *err)
{
    tally t = {0};
    count(&t, run, set);
    if (t.unusable == 0 || (t.unusable <= UNUSABLE_FLOOR && t.unusable < t.counted)) return STK_OK;
    if ((double)t.unusable <= share * (double)t.counted) return STK_OK;

    char advice[160], most[64] = "";
    /* With many faults none of them is the cause. */
    advise(advice, sizeof advice, set, 2 * t.by_reason[t.most] < t.unusable ? STK_REASON_NONE : t.most);
    if (t.by_reason[t.most] < t.unusable) snprintf(most, sizeof most, "%" PRIu64 " of them ", t.by_reason[t.most]);
    const char *const example = words_of(set, t.most, t.first[t.most]);
    char sentence[768];
    snprintf(sentence, sizeof sentence,
             "%.63s: %" PRIu64 " of %" PRIu64 " records are unusable (%.3g %%, errors.unusable is %.3g %%): %s%s: %s%s%s", set->name,
             t.unusable, t.counted, 100 * (double)t.unusable / (double)t.counted, 100 * share, most, stk_reason_text(t.most), advice,
             example[0] ? "; first: " : "", example);
    (void)stk_fail(err, STK_ERR_SPENT, "%s", shorten(sentence, sizeof err->message));
    const stk_record_facts *const record = &set->facts.record[t.first[t.most]];
    stk_error_file(err, set->facts.file[record->file_index], record->line);
    return STK_ERR_SPENT;
}
