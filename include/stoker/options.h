/* options.h - the configuration: one table of options, and a plain struct that holds their values.
 *
 * The table gives defaults, checks, YAML keys, command-line flags, Python keywords, the options page and what belongs
 * to the fingerprint. */
#ifndef STOKER_OPTIONS_H
#define STOKER_OPTIONS_H

#include <stdbool.h>
#include <stoker/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_string_list {
    char **item;
    size_t count;
} stk_string_list;

/* A mapping of names, in the order of the configuration (columns, roles). */
typedef struct stk_string_map {
    char **key, **value;
    size_t count;
} stk_string_map;

/* A turn format (docs/templates.md).  Strings are NULL where not given. */
typedef struct stk_template_role {
    char *before, *after;
    bool train_text, train_after;
} stk_template_role;

typedef struct stk_template_options {
    char *name; /* a published name; NULL: a turn format, or nothing given */
    bool declared;
    stk_template_role system, user, assistant, tool;
    char *image, *video, *default_system;
} stk_template_options;

/* The batch over steps: rows[i] a step from step[i] on. */
typedef struct stk_schedule {
    int64_t *step, *rows;
    size_t count;
} stk_schedule;

/* Options that a data set may set for itself (marked * in the table); unset ones are inherited. */
typedef struct stk_set_options {
    char *orientation;    /* auto, apply, ignore */
    char *labels;         /* answers, last, finetune */
    char *control_tokens; /* plain, sanitize, reference */
    stk_string_list allow_control_tokens;
    char *tag_space;      /* keep, strip */
    char *overlong;       /* drop, shrink, error */
    int64_t min_pixels, max_pixels; /* 0: the checkpoint's */
    stk_template_options chat_template;
    char *alpha;          /* auto, drop, white */
} stk_set_options;

typedef struct stk_data_options {
    char *name; /* default: the last part of the first path, without its ending */
    stk_string_list path;
    char *format;     /* NULL: detected; llava, openai, ms-swift, sharegpt */
    char *media_root; /* NULL: the manifest's folder */
    char *facts;      /* a file of sizes of media; NULL: none */
    stk_string_map columns, roles;
    char *system;
    stk_set_options set;
    char *where;      /* NULL: all */
    int64_t first;    /* 0: all */
    double weight;    /* share of the draws; 0: none given */
    double epochs;    /* passes over the set in an epoch; 0: none given, which is one */
} stk_data_options;

typedef struct stk_limit_options {
    int64_t media_bytes, media_pixels, record_bytes, json_depth, media_per_record, text_bytes, jpeg_scans;
} stk_limit_options;

typedef struct stk_options {
    size_t size_bytes; /* sizeof(stk_options), so that a newer library knows an older struct */
    char *file;        /* the configuration read; NULL: none.  Relative paths start from its folder */
    char *model;
    stk_data_options *data;
    size_t data_count;
    stk_string_list allow;
    int64_t batch, micro_batch; /* batch: of step 0, where a schedule says more; micro_batch 0: all */
    int64_t steps, epochs;      /* steps 0: by epochs */
    bool shuffle;
    int64_t seed;
    char *layout; /* padded, flat, packed */
    int64_t max_tokens, pad_to, pad_multiple;
    char *uneven;  /* filler, error */
    char *targets; /* hf, shifted */
    char *pixels;  /* uint8, float32, bfloat16 */
    char *profile; /* hf, pil-11, pil-12, pil-13, pil, qwen-vl-utils */
    stk_set_options set;
    char *index; /* auto, require, verify, stream */
    char *index_dir;
    double errors_unusable, errors_masked;
    char *dead_letter;
    int64_t memory_bytes;                                  /* 0: auto */
    int64_t workers;                                       /* 0: auto, -1: inline */
    int64_t prefetch;                                      /* micro-batches; 0: auto */
    int64_t fetch_ahead_bytes;                             /* 0: auto */
    int64_t keep;
    int64_t timeout_s;
    stk_limit_options limits;
    stk_schedule batch_schedule; /* count 0: one batch for all steps */
    int64_t row_tokens, segment_multiple, window;
    char *weights;               /* samples, tokens */
    char *balance;               /* auto, none, model, model+vision */
    char *modality;              /* mixed, aligned */
    bool filler_image;
    char *endpoint, *region, *profile_name; /* of object stores; NULL: the environment and the shared files */
    char *requester_pays;        /* false, true, requester (which is true) */
    char *ca;                    /* NULL: the system's certificates */
    int64_t io_threads;
    bool hedge, anonymous;
    char *addressing;            /* auto, path, virtual */
    char *cache_path;            /* NULL: no cache of objects */
    int64_t cache_bytes;
    double price_request, price_transfer; /* of 1,000 requests, of 1 GB; 0: none given */
    struct stk_options *eval;    /* of the split `eval`: all options, its own over these; NULL: none.  Owned */
    int64_t nice;                /* of the engine process, as its CPUs ("8-15,20"; NULL: all) */
    char *cpus;
    char *run;                   /* its name; NULL: the launcher's */
    char *engine;                /* process, inprocess: for bindings to choose by */
    char *positions;             /* auto, plain, mrope */
    char *placement;             /* local, spread, nodes: of engines on a Ray cluster, for bindings to place by */
    uint64_t stated[4];          /* of `eval`: which rows of the table it states itself; the library's */
} stk_options;

#ifdef __cplusplus
#define STK_OPTIONS_INIT {sizeof(stk_options)}
#else
#define STK_OPTIONS_INIT {.size_bytes = sizeof(stk_options)}
#endif

/* Read a YAML configuration over the defaults.  options must be STK_OPTIONS_INIT or deinited; on failure it is as
 * STK_OPTIONS_INIT again, and err names file, line, the key, and the nearest known one. */
STK_API STK_MUST_USE stk_status stk_options_read(stk_options *options, const char *path, stk_error *err);

/* As stk_options_read, from a text of size_bytes.  file: a name for it, which errors give; relative paths start from its folder (the
 * working folder, if it has no slash). */
STK_API STK_MUST_USE stk_status stk_options_read_text(stk_options *options, const char *text, size_t size_bytes, const char *file,
                                                      stk_error *err);

/* Set the defaults of the table, without a file. */
STK_API STK_MUST_USE stk_status stk_options_defaults(stk_options *options, stk_error *err);

/* Set one option from text: name as in the table or nested ("data.docs.path"), value as in YAML.  It is for `eval` too, as a key of the
 * file is: but for data, steps, epochs and shuffle, and what `eval` states itself ("eval.batch", here or in the file). */
STK_API STK_MUST_USE stk_status stk_options_set(stk_options *options, const char *name, const char *value,
                                                stk_error *err);

/* Become the options of a split: "train" are these, "eval" those of the key `eval` (the same keys over the others; the order of
 * the files, one epoch).  STK_ERR_OPTION when there is no such split; then nothing has changed. */
STK_API STK_MUST_USE stk_status stk_options_split(stk_options *options, const char *split, stk_error *err);

/* Check what can be checked without opening anything: required options, ranges, combinations. */
STK_API STK_MUST_USE stk_status stk_options_check(const stk_options *options, stk_error *err);

/* Free what options holds. */
STK_API void stk_options_deinit(stk_options *options);

/* One row of the option table. */
typedef struct stk_option {
    const char *name;          /* "row_tokens", "data[].path", "limits.json_depth" */
    const char *type;          /* "int", "size", "seconds", "workers", "bool", "string", "choice", "list", "map", "share", "decimal",
                              * "schedule",
                              * "template"; "path" and "paths" are texts that name files or folders */
    const char *default_text;  /* as YAML; "" when there is none */
    const char *choices;       /* "padded | flat", "" unless a choice */
    int64_t minimum, maximum;  /* of numbers */
    bool stream;               /* changes the stream: part of the fingerprint */
    bool per_set;              /* may stand under a data set too */
    const char *help;
} stk_option;

/* The table: constant, in the order of the docs; *count rows. */
STK_API const stk_option *stk_option_table(size_t *count);

#ifdef __cplusplus
}
#endif
#endif
