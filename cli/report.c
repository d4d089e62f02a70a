/* report.c - what an index says, in words and as JSON. */
#include <inttypes.h>
#include <string.h>

#include "command.h"

/* Names of the notes, by bit (docs/index-format.md). */
static const char *const note_names[32] = {"lone surrogates, replaced by U+FFFD",
                                           "conversations that do not end with an answer",
                                           "tool turns",
                                           "system turns that are not first",
                                           "an image's `detail`, which is ignored",
                                           "control tokens typed outside answers",
                                           "control tokens typed in answers",
                                           "the word assistant as a token outside a header",
                                           "answers that begin with a line break"};

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

static void print_summary(const stk_index_summary *s)
{
    printf("%s\n", s->name);
    printf("  records            %12" PRIu64 "   usable %" PRIu64 ", blank lines %" PRIu64 "\n", s->records,
           s->usable, s->blank_lines);
    printf("  tokens             %12" PRIu64 "   text %" PRIu64 ", visual %" PRIu64 "\n",
           s->text_tokens + s->visual_tokens, s->text_tokens, s->visual_tokens);
    printf("  supervised tokens  %12" PRIu64 "\n", s->supervised_tokens);
    printf("  images             %12" PRIu64 "   %.1f MB\n", s->images, (double)s->media_bytes / 1e6);
    if (s->alpha) printf("  with transparency  %12" PRIu64 "   dropped without blending\n", s->alpha);
    if (s->grey16)
        printf("  16-bit grey        %12" PRIu64 "   values above 255 become white, as in the reference\n",
               s->grey16);
    if (s->animated) printf("  animated           %12" PRIu64 "   the first frame counts\n", s->animated);
    if (s->turned) printf("  turned by EXIF     %12" PRIu64 "\n", s->turned);
    printf("  lengths\n");
    print_histogram(s);
    for (int bit = 0; bit < 32; bit++)
        if (s->notes[bit] && note_names[bit])
            printf("  note               %12" PRIu64 "   %s\n", s->notes[bit], note_names[bit]);
    for (unsigned reason = 1; reason < STK_INDEX_REASONS; reason++) {
        if (!s->unusable_by_reason[reason]) continue;
        printf("  unusable           %12" PRIu64 "   %s\n", s->unusable_by_reason[reason],
               stk_reason_name(reason));
        for (int i = 0; i < STK_INDEX_EXAMPLES && s->example[reason][i].line; i++)
            printf("      %s:%" PRIu64 ": %s\n", s->example[reason][i].file, s->example[reason][i].line,
                   s->example[reason][i].message);
    }
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

static json_t *summary_json(const stk_index_summary *s)
{
    json_t *const o = json_object(), *const unusable = json_object(), *const notes = json_object(),
                  *const lengths = json_array();
    json_object_set_new(o, "name", text_of(s->name));
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"records", s->records},
                  {"usable", s->usable},
                  {"blank_lines", s->blank_lines},
                  {"images", s->images},
                  {"text_tokens", s->text_tokens},
                  {"visual_tokens", s->visual_tokens},
                  {"supervised_tokens", s->supervised_tokens},
                  {"media_bytes", s->media_bytes},
                  {"alpha", s->alpha},
                  {"grey16", s->grey16},
                  {"animated", s->animated},
                  {"turned", s->turned},
                  {"records_parsed", s->records_parsed},
                  {"media_headers_read", s->media_headers_read},
                  {"texts_encoded", s->texts_encoded}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(o, counts[i].name, count(counts[i].value));
    for (int b = 0; b < STK_INDEX_HISTOGRAM_BUCKETS; b++)
        json_array_append_new(lengths, count(s->length_histogram[b]));
    json_object_set_new(o, "length_histogram", lengths);
    for (int bit = 0; bit < 32; bit++)
        if (s->notes[bit] && note_names[bit])
            json_object_set_new(notes, note_names[bit], count(s->notes[bit]));
    json_object_set_new(o, "notes", notes);
    for (unsigned reason = 1; reason < STK_INDEX_REASONS; reason++) {
        if (!s->unusable_by_reason[reason]) continue;
        json_t *const examples = json_array();
        for (int i = 0; i < STK_INDEX_EXAMPLES && s->example[reason][i].line; i++) {
            const stk_index_example *const e = &s->example[reason][i];
            json_array_append_new(examples, json_pack("{s:o, s:I, s:o}", "file", text_of(e->file), "line",
                                                      (json_int_t)e->line, "message", text_of(e->message)));
        }
        json_object_set_new(
            unusable, stk_reason_name(reason),
            json_pack("{s:o, s:o}", "count", count(s->unusable_by_reason[reason]), "examples", examples));
    }
    json_object_set_new(o, "unusable", unusable);
    return o;
}

json_t *index_report_json(const stk_index_report *report)
{
    json_t *const root = json_object(), *const sets = json_array();
    json_object_set_new(root, "schema", json_integer(1));
    for (size_t i = 0; i < stk_index_report_count(report); i++)
        json_array_append_new(sets, summary_json(stk_index_report_at(report, i)));
    json_object_set_new(root, "sets", sets);
    return root;
}
