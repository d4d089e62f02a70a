/* report.c - what an index says, in words and as JSON. */
#include <inttypes.h>
#include <string.h>

#include "command.h"

static void print_histogram(const stk_index_summary *s)
{
    uint64_t most = 0;
    for (int b = 0; b < STK_INDEX_HISTOGRAM_BUCKETS; b++)
        if (s->length_histogram[b] > most) most = s->length_histogram[b];
    for (int b = 0; b < STK_INDEX_HISTOGRAM_BUCKETS; b++) {
        if (!s->length_histogram[b]) continue;
        static const char bar[] = "########################################";
        const int length = (int)(1 + s->length_histogram[b] * 39 / most);
        printf("    %8" PRIu64 " to %8" PRIu64 " tokens %10" PRIu64 "  %.*s\n", (uint64_t)1 << b,
               ((uint64_t)2 << b) - 1, s->length_histogram[b], length, bar);
    }
}

/* The longest record, and the limit once it is over it. */
static void print_longest(const stk_index_summary *s)
{
    if (!s->longest_tokens) return;
    printf("  longest            %12" PRIu64 "   tokens, %s:%" PRIu64 "\n", s->longest_tokens, s->longest_file,
           s->longest_line);
    if (s->longest_tokens <= s->max_tokens) return;
    printf("      over the limit of %" PRIu64 ": %s; raise max_tokens (packed: row_tokens), lower max_pixels, or split them\n",
           s->max_tokens, s->overlong_is_error ? "a run refuses them (overlong: error)" : "left out (overlong: drop)");
}

static void print_tokens(const stk_index_summary *s)
{
    if (!s->token[0].records) return;
    printf("  control tokens                    typed most often:");
    for (int i = 0; i < STK_INDEX_TOKENS && s->token[i].records; i++)
        printf("%s %s in %" PRIu64, i ? "," : "", s->token[i].text, s->token[i].records);
    printf(" records\n");
}

static void print_finding(const stk_index_finding *f)
{
    char title[64];
    snprintf(title, sizeof title, "%s", f->name);
    for (char *at = title; *at; at++)
        if (*at == '_') *at = ' ';
    printf("  %-24s %6" PRIu64 "   %s, first %s:%" PRIu64 "\n      %s\n", title, f->count, f->of, f->file,
           f->line, f->words);
}

static void print_examples(const stk_index_summary *s, unsigned reason)
{
    for (int i = 0; i < STK_INDEX_EXAMPLES && s->example[reason][i].line; i++)
        printf("      %s:%" PRIu64 ": %s\n", s->example[reason][i].file, s->example[reason][i].line,
               s->example[reason][i].message);
}

static void print_unusable(const stk_index_summary *s)
{
    for (unsigned reason = 1; reason < STK_INDEX_REASONS; reason++) {
        if (!s->unusable_by_reason[reason]) continue;
        printf("  unusable           %12" PRIu64 "   %s\n", s->unusable_by_reason[reason],
               stk_reason_name(reason));
        print_examples(s, reason);
    }
    if (!s->excluded) return;
    printf("  left out by a list %12" PRIu64 "   --exclude; --include-all takes them back\n", s->excluded);
    print_examples(s, STK_INDEX_EXCLUDED);
}

static void print_lines(const stk_index_summary *s)
{
    printf("  records            %12" PRIu64 "   blank lines %" PRIu64 "; index: stream: what can be used is found when it is drawn\n",
           s->records, s->blank_lines);
    if (s->excluded) printf("  left out by a list %12" PRIu64 "\n", s->excluded);
}

static void print_summary(const stk_index_summary *s)
{
    printf("%s\n", s->name);
    if (s->only_lines) {
        print_lines(s);
        return;
    }
    printf("  records            %12" PRIu64 "   usable %" PRIu64 ", blank lines %" PRIu64 "\n", s->records,
           s->usable, s->blank_lines);
    if (s->not_selected)
        printf("  left out           %12" PRIu64 "   of the usable, by `where` and `first`\n", s->not_selected);
    printf("  tokens             %12" PRIu64 "   text %" PRIu64 ", visual %" PRIu64 "\n",
           s->text_tokens + s->visual_tokens, s->text_tokens, s->visual_tokens);
    printf("  supervised tokens  %12" PRIu64 "\n", s->supervised_tokens);
    printf("  images             %12" PRIu64 "   %.1f MB\n", s->images, (double)s->media_bytes / 1e6);
    printf("  lengths\n");
    print_histogram(s);
    print_longest(s);
    print_tokens(s);
    for (size_t i = 0; i < s->finding_count; i++) print_finding(&s->finding[i]);
    print_unusable(s);
}

void print_index_report(const stk_index_report *report)
{
    for (size_t i = 0; i < stk_index_report_count(report); i++) print_summary(stk_index_report_at(report, i));
}

static json_t *count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* Text of any bytes: what is not UTF-8 (a path) cannot stand in JSON. */
static json_t *text_of(const char *text)
{
    json_t *const whole = json_string(text);
    return whole ? whole : json_string("(not UTF-8)");
}

static json_t *findings_json(const stk_index_summary *s)
{
    json_t *const all = json_object();
    for (size_t i = 0; i < s->finding_count; i++) {
        const stk_index_finding *const f = &s->finding[i];
        json_object_set_new(all, f->name,
                            json_pack("{s:o, s:s, s:o, s:o, s:o}", "count", count(f->count), "of", f->of, "file",
                                      text_of(f->file), "line", count(f->line), "words", text_of(f->words)));
    }
    return all;
}

static json_t *tokens_json(const stk_index_summary *s)
{
    json_t *const all = json_array();
    for (int i = 0; i < STK_INDEX_TOKENS && s->token[i].records; i++)
        json_array_append_new(all, json_pack("{s:o, s:o}", "token", text_of(s->token[i].text), "records",
                                             count(s->token[i].records)));
    return all;
}

static json_t *examples_json(const stk_index_summary *s, unsigned reason)
{
    json_t *const examples = json_array();
    for (int i = 0; i < STK_INDEX_EXAMPLES && s->example[reason][i].line; i++) {
        const stk_index_example *const e = &s->example[reason][i];
        json_array_append_new(examples, json_pack("{s:o, s:I, s:o}", "file", text_of(e->file), "line",
                                                  (json_int_t)e->line, "message", text_of(e->message)));
    }
    return examples;
}

static json_t *summary_json(const stk_index_summary *s)
{
    json_t *const o = json_object(), *const unusable = json_object(), *const lengths = json_array();
    json_object_set_new(o, "name", text_of(s->name));
    json_object_set_new(o, "digest", json_string(s->digest));
#define PUT(member) json_object_set_new(o, #member, count(s->member));
    STK_INDEX_COUNT_MAP(PUT)
#undef PUT
    for (int b = 0; b < STK_INDEX_HISTOGRAM_BUCKETS; b++)
        json_array_append_new(lengths, count(s->length_histogram[b]));
    json_object_set_new(o, "length_histogram", lengths);
    json_object_set_new(o, "findings", findings_json(s));
    json_object_set_new(o, "control_tokens", tokens_json(s));
    json_object_set_new(o, "longest", json_pack("{s:o, s:o, s:o}", "tokens", count(s->longest_tokens), "file",
                                                text_of(s->longest_file), "line", count(s->longest_line)));
    json_object_set_new(o, "refusal", s->refusal[0] ? text_of(s->refusal) : json_null());
    for (unsigned reason = 1; reason < STK_INDEX_REASONS; reason++) {
        if (!s->unusable_by_reason[reason]) continue;
        json_object_set_new(
            unusable, stk_reason_name(reason),
            json_pack("{s:o, s:o}", "count", count(s->unusable_by_reason[reason]), "examples",
                      examples_json(s, reason)));
    }
    json_object_set_new(o, "unusable", unusable);
    json_object_set_new(o, "only_lines", json_boolean(s->only_lines));
    return o;
}

json_t *index_report_json(const stk_index_report *report)
{
    json_t *const root = json_object(), *const sets = json_array();
    json_object_set_new(root, "schema", json_integer(2));
    for (size_t i = 0; i < stk_index_report_count(report); i++)
        json_array_append_new(sets, summary_json(stk_index_report_at(report, i)));
    json_object_set_new(root, "sets", sets);
    return root;
}
