/* index_api.c - the index of all data sets, brought up to date and summed up for people.
 *
 * Not here: the index itself (manifest/), usability (schema/derive.h). */
#include <stoker/index.h>

#include "engine/findings.h"
#include "engine/run.h"
#include "engine/unusable.h"
#include "schema/derive.h"

struct stk_index_report {
    size_t count;
    stk_index_summary *summary;
};

static uint32_t bucket_of(uint32_t tokens)
{
    const uint32_t bucket = tokens ? 31u - (uint32_t)__builtin_clz(tokens) : 0;
    return bucket < (uint32_t)STK_INDEX_HISTOGRAM_BUCKETS ? bucket : STK_INDEX_HISTOGRAM_BUCKETS - 1;
}

static void add_example(stk_index_summary *summary, const stk_set_facts *facts, uint64_t record_index, stk_reason reason,
                        const char *message)
{
    stk_index_example *example = summary->example[reason];
    while (example < summary->example[reason] + STK_INDEX_EXAMPLES && example->line) example++;
    if (example == summary->example[reason] + STK_INDEX_EXAMPLES) return;
    const stk_record_facts *const record = &facts->record[record_index];
    stk_error where; /* cuts a long path at its front, and blanks control characters */
    (void)stk_fail_at(&where, STK_ERR_RECORD, facts->file[record->file_index], record->line, "%s", message);
    memcpy(example->file, where.file, sizeof example->file);
    memcpy(example->message, where.message, sizeof example->message);
    example->line = record->line;
}

/* Words for what only the options of this run make unusable: the index has none. */
static void explain(stk_index_summary *summary, const stk_run *run, const stk_run_set *set, uint64_t r, const stk_record_size *size)
{
    char words[128] = "";
    const stk_record_facts *const record = &set->facts.record[r];
    if (size->reason == STK_REASON_OVERLONG) {
        snprintf(words, sizeof words, "%u tokens, over the limit of %u", size->token_count, run->max_tokens);
    } else if (size->reason == STK_REASON_UNTRAINED && set->facts.text[r].reason == STK_REASON_NONE) {
        snprintf(words, sizeof words, "no token of it has a label");
    } else if (record->reason == STK_REASON_NONE) {
        for (uint32_t m = 0; m < record->media_count && !words[0]; m++) {
            const stk_media_facts *const media = &set->facts.media[record->first_media + m];
            stk_grid grid;
            if (stk_media_grid(&grid, media, &run->model, &set->pixels) == size->reason)
                snprintf(words, sizeof words, "image %u has %u x %u pixels", m + 1, media->width_px, media->height_px);
        }
    }
    if (words[0]) add_example(summary, &set->facts, r, size->reason, words);
}

static void note_longest(stk_index_summary *summary, const stk_run_set *set, uint64_t r, uint32_t tokens)
{
    stk_error where; /* cuts a long path at its front */
    (void)stk_fail_at(&where, STK_ERR_RECORD, set->facts.file[set->facts.record[r].file_index], set->facts.record[r].line, "here");
    memcpy(summary->longest_file, where.file, sizeof summary->longest_file);
    summary->longest_line = where.line;
    summary->longest_tokens = tokens;
}

static void add_record(stk_index_summary *summary, const stk_run *run, const stk_run_set *set, stk_selection *selection, uint64_t r)
{
    const stk_record_facts *const record = &set->facts.record[r];
    stk_record_size size;
    stk_record_derive(&size, &set->facts, r, &run->model, &set->pixels, run->max_tokens);
    const uint32_t notes = record->notes | set->facts.text[r].notes;
    for (int bit = 0; bit < 32; bit++) summary->notes[bit] += notes >> bit & 1;
    if (size.token_count > summary->longest_tokens) note_longest(summary, set, r, size.token_count);
    if (size.reason == STK_REASON_EXCLUDED) {
        summary->excluded++;
        return;
    }
    if (size.reason != STK_REASON_NONE) {
        if (++summary->unusable_by_reason[size.reason] <= (uint64_t)STK_INDEX_EXAMPLES) explain(summary, run, set, r, &size);
        return;
    }
    summary->usable++;
    if (!stk_selection_takes(selection, &set->facts, r, &size, &set->pixels)) {
        summary->not_selected++;
        return;
    }
    summary->images += record->media_count;
    summary->text_tokens += size.token_count - size.visual_tokens;
    summary->visual_tokens += size.visual_tokens;
    summary->supervised_tokens += size.supervised_count;
    summary->length_histogram[bucket_of(size.token_count)]++;
}

static stk_status summarise(stk_index_summary *summary, const stk_run *run, const stk_run_set *set, const stk_options *options,
                            const stk_index_work *work, stk_error *err)
{
    snprintf(summary->name, sizeof summary->name, "%s", set->name);
    for (size_t i = 0; i < sizeof set->facts.content_digest; i++) snprintf(summary->digest + 2 * i, 3, "%02x", set->facts.content_digest[i]);
    summary->records = set->facts.record_count;
    summary->blank_lines = stk_set_index_blank_lines(set->index);
    summary->only_lines = run->stream;
    summary->lines_found = work->lines_found;
    if (run->stream) {
        for (uint64_t r = 0; r < set->facts.record_count; r++) summary->excluded += set->facts.record[r].reason == STK_REASON_EXCLUDED;
        return STK_OK;
    }
    summary->records_parsed = work->records_parsed;
    summary->media_headers_read = work->media_headers_read;
    summary->texts_encoded = work->texts_encoded;
    summary->media_part_built = work->media_part_built;
    summary->text_part_built = work->text_part_built;
    for (uint64_t i = 0; i < set->facts.media_count; i++) {
        const stk_media_facts *const media = &set->facts.media[i];
        summary->media_bytes += media->size_bytes;
        summary->alpha += (media->flags & STK_MEDIA_HAS_ALPHA) != 0;
        summary->grey16 += (media->flags & STK_MEDIA_GREY16) != 0;
        summary->animated += (media->flags & STK_MEDIA_ANIMATED) != 0;
        summary->turned += media->orientation > 1;
    }
    const uint64_t words = stk_set_index_words_count(set->index);
    for (uint64_t i = 0; i < words; i++) {
        const stk_index_words at = stk_set_index_words_at(set->index, i);
        /* What is left out has no other fault any more. */
        if (set->facts.record[at.record_index].reason == STK_REASON_EXCLUDED && at.reason != STK_REASON_EXCLUDED) continue;
        add_example(summary, &set->facts, at.record_index, at.reason, at.message);
    }
    stk_selection selection = {.where = set->rules->where, .first = set->rules->first};
    for (uint64_t r = 0; r < set->facts.record_count; r++) add_record(summary, run, set, &selection, r);
    /* Words for a fault that another fault of the same record outranks. */
    for (int reason = 0; reason < STK_INDEX_REASONS; reason++)
        if (!summary->unusable_by_reason[reason] && reason != STK_REASON_EXCLUDED) memset(summary->example[reason], 0, sizeof summary->example[reason]);
    summary->max_tokens = run->max_tokens;
    summary->overlong_is_error = set->rules->overlong_is_error;
    stk_error refusal;
    if (stk_unusable_check(run, set, options->errors_unusable, &refusal) < 0)
        snprintf(summary->refusal, sizeof summary->refusal, "%s", refusal.message);
    return stk_findings_make(summary, run, set, err);
}

stk_status stk_index_build(stk_index_report **out, const stk_options *options, const stk_index_progress *progress, stk_error *err)
{
    if (out) *out = NULL;
    stk_run *run;
    STK_TRY(stk_run_prepare(&run, options, progress, err));
    stk_index_report *report = stk_alloc(STK_TAG_INDEX, sizeof *report);
    if (report) report->summary = stk_alloc_array(STK_TAG_INDEX, run->set_count, sizeof *report->summary);
    run->recheck_media = true; /* who asks for the index may have repaired something */
    stk_status status = STK_OK;
    if (!report || !report->summary) status = stk_fail(err, STK_ERR_NOMEM, "out of memory: the report of the index");
    for (uint32_t i = 0; status == STK_OK && i < run->set_count; i++) {
        stk_index_work work = {0};
        status = stk_run_open_index(run, options, i, progress, &work, err);
        if (status == STK_OK) status = summarise(&report->summary[report->count++], run, &run->set[i], options, &work, err);
    }
    stk_run_release(run);
    if (status < 0 || !out) {
        stk_index_report_destroy(report);
        return status;
    }
    *out = report;
    return STK_OK;
}

size_t stk_index_report_count(const stk_index_report *report)
{
    return report->count;
}

const stk_index_summary *stk_index_report_at(const stk_index_report *report, size_t at)
{
    return at < report->count ? &report->summary[at] : NULL;
}

void stk_index_report_destroy(stk_index_report *report)
{
    if (!report) return;
    stk_free(report->summary);
    stk_free(report);
}
