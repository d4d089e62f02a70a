/* index.h - the facts of the data sets, collected once (docs/index-format.md). */
#ifndef STOKER_INDEX_H
#define STOKER_INDEX_H

#include <stdbool.h>
#include <stoker/options.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a build stands.  Called from the building thread, at most some times a second; returning false stops the
 * build (STK_ERR_INTERRUPTED), which goes on from there next time.  What opens an index to plan a run goes on to call it while it
 * plans, with the name of a data set or "plan". */
typedef struct stk_index_progress {
    bool (*report)(void *context, const char *set, const char *phase, uint64_t done, uint64_t total);
    void *context;
} stk_index_progress;

enum {
    STK_INDEX_HISTOGRAM_BUCKETS = 24,
    STK_INDEX_REASONS = 64,
    STK_INDEX_EXAMPLES = 3,
    STK_INDEX_FINDINGS = 48,
    STK_INDEX_TOKENS = 3,
    STK_INDEX_EXCLUDED = 15 /* the number of the reason "left out by a list": its examples name the records */
};

typedef struct stk_index_example {
    char file[256];
    uint64_t line;
    char message[256];
} stk_index_example;

/* Something that a careful person wants to know, though it makes nothing unusable. */
typedef struct stk_index_finding {
    const char *name; /* constant: "white_space_at_tags" (docs/index-format.md) */
    const char *of;   /* constant, what is counted: "records" or "images" */
    uint64_t count;   /* > 0 */
    char file[256];   /* the first one */
    uint64_t line;
    char words[320];  /* what it is, what these options make of it, what to do */
} stk_index_finding;

/* A control token that the data types. */
typedef struct stk_index_token {
    char text[64];
    uint64_t records;
} stk_index_token;

/* What an index says of one data set. */
typedef struct stk_index_summary {
    char name[64];
    char digest[33]; /* hex of 16 bytes: of manifests, facts of media and what lists leave out; equal where the data are */
    uint64_t records, usable;
    uint64_t blank_lines;
    uint64_t images;
    uint64_t text_tokens, visual_tokens, supervised_tokens; /* of the usable that take part, as images and lengths */
    uint64_t media_bytes;
    uint64_t length_histogram[STK_INDEX_HISTOGRAM_BUCKETS]; /* bucket b: lengths of 2^b <= tokens < 2^(b+1) */
    uint64_t unusable_by_reason[STK_INDEX_REASONS];
    stk_index_example example[STK_INDEX_REASONS][STK_INDEX_EXAMPLES];
    uint64_t notes[32];       /* records that carry note bit b (docs/index-format.md) */
    uint64_t alpha, grey16, animated, turned; /* images */
    stk_index_finding finding[STK_INDEX_FINDINGS]; /* finding_count, those that are not zero, in a fixed order */
    size_t finding_count;
    stk_index_token token[STK_INDEX_TOKENS]; /* typed control tokens, the most frequent first; records 0: no more */
    uint64_t longest_tokens; /* of all records that can be used or are only too long */
    char longest_file[256];
    uint64_t longest_line, max_tokens;
    bool overlong_is_error;
    uint64_t excluded; /* left out by a list (stk_index_exclude); neither usable nor unusable */
    char refusal[256]; /* why a run would not start: too much is unusable (errors.unusable); empty: it would */
    /* What this call did, for tests and for people. */
    uint64_t records_parsed, media_headers_read, texts_encoded;
    bool media_part_built, text_part_built;
    uint64_t not_selected; /* of the usable: left out by `where` and `first` */
    bool only_lines;      /* index: stream: all else but records, blank lines and excluded is 0: it is found when records are drawn */
    uint64_t lines_found; /* records that were scanned for it now; 0: the lines were there */
} stk_index_summary;

/* The numbers of a summary that reports give by their names, in their order: X(member). */
#define STK_INDEX_COUNT_MAP(X)                                                                            \
    X(records) X(usable) X(excluded) X(not_selected) X(blank_lines) X(images) X(text_tokens)              \
    X(visual_tokens) X(supervised_tokens) X(media_bytes) X(max_tokens) X(alpha) X(grey16)                 \
    X(animated) X(turned) X(records_parsed) X(media_headers_read) X(texts_encoded) X(lines_found)

typedef struct stk_index_report stk_index_report;

/* Bring the index of all data sets up to date: builds what is missing, rebuilds what its key no longer fits, resumes
 * what was interrupted.  verify: decode every medium once.  *out (may be NULL) is the caller's. */
STK_API STK_MUST_USE stk_status stk_index_build(stk_index_report **out, const stk_options *options,
                                                const stk_index_progress *progress, stk_error *err);

/* Leave records out of every run over these manifests, for good: the samples that the lists name, list_count paths.  A line
 * of a list is a sample's id (SET/ID, or SET#LINE), or a dead letter (JSON with `id`, and `file` where the id is a line).
 * What is named is kept in text beside the index (docs/index-format.md), and is part of the fingerprint.  start_over: forget
 * what earlier lists named; without a list, that is all it does.  progress may be NULL.
 *
 * Failure, with nothing left out: STK_ERR_USAGE for a line that names no record or several, with file and line. */
STK_API STK_MUST_USE stk_status stk_index_exclude(const stk_options *options, const char *const *list, size_t list_count,
                                                  bool start_over, const stk_index_progress *progress, stk_error *err);

STK_API size_t stk_index_report_count(const stk_index_report *report);
STK_API const stk_index_summary *stk_index_report_at(const stk_index_report *report, size_t at);
STK_API void stk_index_report_destroy(stk_index_report *report);

#ifdef __cplusplus
}
#endif
#endif
