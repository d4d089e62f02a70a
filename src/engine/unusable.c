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

/* The end of a path, which says more than its start, after dots when it is cut. */
static void copy_tail(char *to, size_t capacity, stk_str path)
{
    size_t cut = path.size_bytes >= capacity ? path.size_bytes - capacity + sizeof "..." : 0;
    while (cut && cut < path.size_bytes && ((uint8_t)path.data[cut] & 0xC0) == 0x80) cut++;
    snprintf(to, capacity, "%s%.*s", cut ? "..." : "", (int)(path.size_bytes - cut), path.data + cut);
}

/* What to look at when most of a data set has one fault. */
static void advise(char *to, size_t capacity, const stk_run_set *set, stk_reason reason)
{
    char root[64];
    copy_tail(root, sizeof root, set->rules->record.media_root);
    const char *advice;
    switch (reason) {
    case STK_REASON_MISSING:
    case STK_REASON_UNREADABLE: snprintf(to, capacity, "is media_root right? it is %s", root); return;
    case STK_REASON_DENIED:
        snprintf(to, capacity, "set media_root (it is %s), or name the folder in allow", root);
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

/* The address in "image 1, ADDRESS: what is wrong"; empty: these are other words. */
static stk_str address_in(const char *words)
{
    const char *const comma =
        strncmp(words, "image ", 6) == 0 || strncmp(words, "video ", 6) == 0 ? strstr(words, ", ") : NULL;
    const char *const colon = comma ? strstr(comma, ": ") : NULL;
    return colon ? (stk_str){comma + 2, (size_t)(colon - comma) - 2} : (stk_str){"", 0};
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
    if (t.by_reason[t.most] < t.unusable)
        snprintf(most, sizeof most, "%" PRIu64 " of them ", t.by_reason[t.most]);
    const char *const example = words_of(set, t.most, t.first[t.most]);
    char sentence[768], first[120];
    const stk_str address = address_in(example);
    const int size = snprintf(sentence, sizeof sentence,
                              "%.63s: %" PRIu64 " of %" PRIu64
                              " records are unusable (%.3g %%, errors.unusable is %.3g %%): %s%s",
                              set->name, t.unusable, t.counted, 100 * (double)t.unusable / (double)t.counted,
                              100 * share, most, stk_reason_text(t.most));
    char *const rest = sentence + size;
    const size_t room = sizeof sentence - (size_t)size;
    if (address.size_bytes) { /* the address has what the rest leaves of the sentence */
        const size_t others = (size_t)size + sizeof ", first ; " + strlen(advice);
        const size_t left = others + 24 < sizeof err->message ? sizeof err->message - others : 24;
        copy_tail(first, left < sizeof first ? left : sizeof first, address);
        snprintf(rest, room, ", first %s; %s", first, advice);
    } else {
        snprintf(rest, room, "; %s%s%s", advice, example[0] ? "; first: " : "", example);
    }
    (void)stk_fail(err, STK_ERR_SPENT, "%s", shorten(sentence, sizeof err->message));
    const stk_record_facts *const record = &set->facts.record[t.first[t.most]];
    stk_error_file(err, set->facts.file[record->file_index], record->line);
    return STK_ERR_SPENT;
}
