/* state.h - where a run stands: a short text that resumes it exactly (docs/checkpoint-format.md). */
#ifndef STOKER_STATE_H
#define STOKER_STATE_H

#include <stdbool.h>
#include <stoker/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STK_STATE_TEXT_MAX = 16 * 1024, STK_PLAN_VERSION = 3, STK_STREAM_VALUE_BYTES = 48 };

/* What the stream follows from, in parts. */
#define STK_FINGERPRINT_PART_MAP(X)                                                                        \
    X(STK_PART_MODEL, "model")   /* the files of the checkpoint folder */                                  \
    X(STK_PART_DATA, "data")     /* the manifests and their media, and how they are read */                \
    X(STK_PART_WORDS, "text")    /* how conversations become tokens and labels */                          \
    X(STK_PART_PIXELS, "pixels") /* how pictures become patches */                                         \
    X(STK_PART_PLAN, "plan")     /* what comes when, and where it goes */

typedef enum stk_fingerprint_part {
#define STK_FINGERPRINT_PART_ENUM(name, key) name,
    STK_FINGERPRINT_PART_MAP(STK_FINGERPRINT_PART_ENUM)
#undef STK_FINGERPRINT_PART_ENUM
    STK_FINGERPRINT_PARTS
} stk_fingerprint_part;

/* And what each part follows from: options, by their names, and the files that they name.  In the order of the parts. */
#define STK_STREAM_OPTION_MAP(X)                                                                           \
    X(STK_STREAM_MODEL, "model", STK_PART_MODEL)                                                           \
    X(STK_STREAM_DATA, "data", STK_PART_DATA) /* names and contents of the data sets */                    \
    X(STK_STREAM_INDEX, "index", STK_PART_DATA)                                                            \
    X(STK_STREAM_FORMAT, "format", STK_PART_DATA)                                                          \
    X(STK_STREAM_COLUMNS, "columns", STK_PART_DATA)                                                        \
    X(STK_STREAM_ROLES, "roles", STK_PART_DATA)                                                            \
    X(STK_STREAM_LIMITS, "limits", STK_PART_DATA)                                                          \
    X(STK_STREAM_TEMPLATE, "template", STK_PART_WORDS)                                                     \
    X(STK_STREAM_SYSTEM, "system", STK_PART_WORDS)                                                         \
    X(STK_STREAM_LABELS, "labels", STK_PART_WORDS)                                                         \
    X(STK_STREAM_CONTROL_TOKENS, "control_tokens", STK_PART_WORDS)                                         \
    X(STK_STREAM_ALLOW_CONTROL_TOKENS, "allow_control_tokens", STK_PART_WORDS)                             \
    X(STK_STREAM_TAG_SPACE, "tag_space", STK_PART_WORDS)                                                   \
    X(STK_STREAM_PROFILE, "profile", STK_PART_PIXELS)                                                      \
    X(STK_STREAM_ORIENTATION, "orientation", STK_PART_PIXELS)                                              \
    X(STK_STREAM_ALPHA, "alpha", STK_PART_PIXELS)                                                          \
    X(STK_STREAM_MIN_PIXELS, "min_pixels", STK_PART_PIXELS)                                                \
    X(STK_STREAM_MAX_PIXELS, "max_pixels", STK_PART_PIXELS)                                                \
    X(STK_STREAM_BATCH, "batch", STK_PART_PLAN)                                                            \
    X(STK_STREAM_STEPS, "steps", STK_PART_PLAN)                                                            \
    X(STK_STREAM_EPOCHS, "epochs", STK_PART_PLAN)                                                          \
    X(STK_STREAM_SHUFFLE, "shuffle", STK_PART_PLAN)                                                        \
    X(STK_STREAM_SEED, "seed", STK_PART_PLAN)                                                              \
    X(STK_STREAM_LAYOUT, "layout", STK_PART_PLAN)                                                          \
    X(STK_STREAM_MAX_TOKENS, "max_tokens", STK_PART_PLAN)                                                  \
    X(STK_STREAM_PAD_TO, "pad_to", STK_PART_PLAN)                                                          \
    X(STK_STREAM_PAD_MULTIPLE, "pad_multiple", STK_PART_PLAN)                                              \
    X(STK_STREAM_ROW_TOKENS, "row_tokens", STK_PART_PLAN)                                                  \
    X(STK_STREAM_SEGMENT_MULTIPLE, "segment_multiple", STK_PART_PLAN)                                      \
    X(STK_STREAM_WINDOW, "window", STK_PART_PLAN)                                                          \
    X(STK_STREAM_BALANCE, "balance", STK_PART_PLAN)                                                        \
    X(STK_STREAM_MODALITY, "modality", STK_PART_PLAN)                                                      \
    X(STK_STREAM_FILLER_IMAGE, "filler_image", STK_PART_PLAN)                                              \
    X(STK_STREAM_UNEVEN, "uneven", STK_PART_PLAN)                                                          \
    X(STK_STREAM_OVERLONG, "overlong", STK_PART_PLAN)                                                      \
    X(STK_STREAM_WHERE, "where", STK_PART_PLAN)                                                            \
    X(STK_STREAM_FIRST, "first", STK_PART_PLAN)                                                            \
    X(STK_STREAM_WEIGHT, "weight", STK_PART_PLAN)                                                          \
    X(STK_STREAM_WEIGHTS, "weights", STK_PART_PLAN)                                                        \
    X(STK_STREAM_SET_EPOCHS, "data.epochs", STK_PART_PLAN) /* passes over a set in an epoch */

typedef enum stk_stream_option {
#define STK_STREAM_OPTION_ENUM(name, key, part) name,
    STK_STREAM_OPTION_MAP(STK_STREAM_OPTION_ENUM)
#undef STK_STREAM_OPTION_ENUM
    STK_STREAM_OPTIONS
} stk_stream_option;

/* "row_tokens"; NULL for no such option. */
STK_API const char *stk_stream_option_name(stk_stream_option option);

/* Values are those that take effect, in printable ASCII; "-" where an option has none; those of data sets that differ stand behind each other;
 * what is long, or a file's content, is "#" and the hex of its XXH3-64. */
typedef struct stk_fingerprint {
    char whole[33];                       /* hex of XXH3-128 over the parts */
    char part[STK_FINGERPRINT_PARTS][17]; /* hex of XXH3-64 over the lines of its options, as a state has them */
    char value[STK_STREAM_OPTIONS][STK_STREAM_VALUE_BYTES];
} stk_fingerprint;

/* A plain value. */
typedef struct stk_state {
    stk_fingerprint fingerprint;
    uint32_t plan_version;
    uint64_t epoch, rows;  /* rows of the epoch consumed, whole steps */
    uint64_t step;         /* the next step */
    uint32_t micro;        /* micro-batches of that step consumed; 0 at the end of a step */
    uint32_t world;        /* of the run, when micro > 0; else 0 */
    uint32_t micro_rows;   /* rows of a micro-batch, when micro > 0; else 0 */
    bool changed[STK_STREAM_OPTIONS]; /* accepted changes of the run so far */
    bool allowed[STK_STREAM_OPTIONS]; /* changes that opening at this state may accept; no part of its text */
} stk_state;

/* A state that names a step and nothing else: opening there goes on at that step of whatever run it is, and checks nothing.  For a trainer
 * whose own checkpoint counts steps; its text is two lines and the checksum. */
STK_API void stk_state_at_step(stk_state *state, uint64_t step);

/* Let these options differ when a run is opened at this state: names, with commas between them ("seed,batch").  The run then goes on at the
 * same epoch and row if a step begins there, else at the next step that does (docs/checkpoint-format.md), and all its states record what has
 * changed.  Failure: STK_ERR_OPTION for a name that is none of them; the state is as it was. */
STK_API STK_MUST_USE stk_status stk_state_allow_changes(stk_state *state, const char *names, stk_error *err);

/* "seed was 1 and is 2": how an option differs between two fingerprints, in words.  False: it does not. */
STK_API bool stk_fingerprint_difference(const stk_fingerprint *was, const stk_fingerprint *is, stk_stream_option option, char words[160]);

/* Text of a state, NUL-terminated. */
STK_API STK_MUST_USE stk_status stk_state_write(const stk_state *state, char *text, size_t capacity, stk_error *err);
/* Parse; refuses an unknown key, version or checksum with STK_ERR_STATE. */
STK_API STK_MUST_USE stk_status stk_state_parse(stk_state *state, const char *text, size_t size_bytes, stk_error *err);
/* The same with a file, saved atomically. */
STK_API STK_MUST_USE stk_status stk_state_save(const stk_state *state, const char *path, stk_error *err);
STK_API STK_MUST_USE stk_status stk_state_load(stk_state *state, const char *path, stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
