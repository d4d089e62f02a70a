/* index.h - the facts of one data set, from its sidecars: built where missing, rebuilt where their key no longer fits.
 *
 * Each manifest file has a media part (where its records stand, and what the headers of their media say) and a text part
 * (token counts).  They are keyed apart, so that a change of template reads no header, and a change of one file of a set
 * touches only that file's parts (docs/index-format.md).
 *
 *     manifest ─► digest ─► media part fits? ──no──► lock ─► chunks in parallel ─► journal ─► sidecar
 *                              │ yes                                 (a killed build goes on from its journal)
 *                              ▼
 *                           text part fits? ... the same ... ─► all files joined ─► stk_set_facts
 *
 * A facts file is such a file too, with one part of its own, which is there before those of the manifests.
 * With STK_INDEX_STREAM there is one part instead, of lines, which follows from the manifest's bytes alone.
 *
 * Not here: what a medium or a text is (the engine hands in stk_survey), and what pixel limits make of the facts
 * (schema/derive.h). */
#ifndef STK_MANIFEST_INDEX_H
#define STK_MANIFEST_INDEX_H

#include <stoker/index.h>

#include "manifest/record.h"

/* A medium that the index asks about. */
typedef struct stk_survey_media {
    stk_str address;
    stk_media_kind kind;
    bool look_only;        /* do not read: only whether it is there, its bytes and time */
    uint32_t stated_width_px, stated_height_px; /* by the record; 0: not stated, read the header */
    stk_media_facts facts; /* the answer */
    bool header_read;      /* the answer took bytes of the medium */
    char etag[STK_MEDIA_ETAG_BYTES]; /* of an object, with its quotes; "": none.  facts.mtime_ns is then STK_MEDIA_OBJECT alone */
    bool deferred;         /* there is no answer yet: it takes the whole medium (only for who asked to be told) */
    stk_error error;       /* words for facts.reason, when it is not STK_REASON_NONE */
} stk_survey_media;

/* What the index asks of image, source and text, without knowing them: the engine fills it in. */
typedef struct stk_survey {
    void *context;
    /* A thread's own state. */
    stk_status (*open)(void **worker, void *context, stk_error *err);
    void (*close)(void *worker);
    /* Find the facts of count media, at once as far as that is faster.  What a medium lacks goes into its facts; < 0 only
     * for what stops the build (a fault of the system that stayed).  decode: decode each, not only its header. */
    stk_status (*probe)(void *worker, stk_survey_media *media, size_t count, bool decode, stk_error *err);
    /* The text facts of a sample; words for facts->reason go into err.  < 0 only for what stops the build. */
    stk_status (*encode)(void *worker, const stk_sample *sample, stk_text_facts *facts, stk_error *err);
    /* From any thread: whoever waits for an answer gets STK_ERR_INTERRUPTED soon, now and later.  NULL: none waits long. */
    void (*stop)(void *context);
} stk_survey;

/* What brings manifests and indexes from a store and back; the engine fills it in. */
typedef struct stk_index_store {
    void *context;
    const char *folder; /* of copies, and of the indexes of manifests on stores when there is no index_dir */
    /* A manifest, as a whole: path is a file in folder.  report: how far it is; its failure ends it. */
    stk_status (*fetch)(void *context, const char *address, const char *folder, char path[4096],
                        stk_status (*report)(void *to, uint64_t done, uint64_t total, stk_error *err), void *to, stk_error *err);
    /* index_dir is on a store, and spec's is a copy of it.  Bring a file of that name (STK_AGAIN: there is none; STK_END: this
     * caller is not told whether there is one), take one there.  NULL: it is a folder. */
    stk_status (*pull)(void *context, const char *path, stk_error *err);
    stk_status (*push)(void *context, const char *path, stk_error *err);
} stk_index_store;

typedef enum stk_index_mode {
    STK_INDEX_AUTO,    /* build what is missing */
    STK_INDEX_REQUIRE, /* refuse instead */
    STK_INDEX_VERIFY,  /* as auto, and every medium has been decoded once */
    STK_INDEX_STREAM,  /* only where the records stand (index_lines.h): there are no media facts and no text facts */
} stk_index_mode;

typedef struct stk_index_spec {
    const char *name;               /* of the data set, for progress and errors */
    const char *const *file;        /* file_count paths of manifests, in order */
    uint32_t file_count;
    const char *facts_file;         /* sizes that records do not state (stated.h); NULL: none */
    const char *index_dir;          /* where the sidecars go; NULL: beside each manifest, of one on a store in store->folder */
    const stk_index_store *store;   /* NULL: all are files */
    const stk_record_rules *record_rules; /* stated: of facts_file, filled in by the open */
    uint8_t text_digest[16];        /* of all else that text facts follow from: tokeniser, template, text rules */
    const stk_survey *survey;
    stk_index_mode mode;
    bool ignore_excluded;           /* open as if no record were left out */
    bool recheck;                   /* look again at media that were not usable: they may have been repaired */
    int threads;                    /* > 0; 0: all on the caller's thread */
    const stk_index_progress *progress; /* NULL: none */
} stk_index_spec;

/* What an open did; added to. */
typedef struct stk_index_work {
    uint64_t records_parsed, media_headers_read, texts_encoded;
    bool media_part_built, text_part_built;
    uint64_t lines_found; /* by a scan for STK_INDEX_STREAM; 0: its sidecar was there */
} stk_index_work;

typedef struct stk_set_index stk_set_index;

/* work may be NULL.  *out is the caller's; everything it lends lives until its close.
 *
 * Failure: STK_ERR_INDEX (require, and it is missing, damaged or does not fit), STK_ERR_MANIFEST (with file and line),
 * STK_ERR_INTERRUPTED (progress said so; what is done is kept), STK_ERR_SYSTEM (a folder that cannot be written, a full
 * disk, media that cannot be read for the moment). */
stk_status stk_set_index_open(stk_set_index **out, const stk_index_spec *spec, stk_index_work *work,
                              stk_error *err) STK_MUST_USE;
void stk_set_index_close(stk_set_index **index); /* *index may be NULL */

const stk_set_facts *stk_set_index_facts(const stk_set_index *index);

/* Where the bytes of a manifest file are to be read: facts.file[file_index], or what it was fetched or unpacked to. */
const char *stk_set_index_data_path(const stk_set_index *index, uint32_t file_index);
uint64_t stk_set_index_blank_lines(const stk_set_index *index);

/* What the facts file says, for whoever parses records of the set; NULL: there is none. */
const stk_stated_sizes *stk_set_index_stated(const stk_set_index *index);

/* Words that were kept with a record: a few for each reason; and of each record that a list leaves out its id. */
typedef struct stk_index_words {
    uint64_t record_index; /* of the data set */
    stk_reason reason;
    const char *message;
} stk_index_words;
uint64_t stk_set_index_words_count(const stk_set_index *index);
stk_index_words stk_set_index_words_at(const stk_set_index *index, uint64_t at);

/* Leave records out for good (index_exclude.h), from the next open on.  record: count of them, of the data set, each with
 * its id as the message, at most 95 bytes.  start_over: forget those of earlier lists. */
stk_status stk_set_index_exclude(const stk_set_index *index, const stk_index_words *record, size_t count, bool start_over,
                                 stk_error *err) STK_MUST_USE;

#endif
