/* facts.h - what the index knows of a record and of its media before a byte of them is fetched.
 *
 * Two parts (architecture section 2): media facts survive a change of model, template or pixel limits; text facts are
 * keyed by tokeniser, template, system prompt and label rule too. */
#ifndef STK_SCHEMA_FACTS_H
#define STK_SCHEMA_FACTS_H

#include <stdint.h>

#include "base/bytes.h"

/* Why a medium or a record is unusable; 0 is usable.  Numbers are written to disk and never change. */
#define STK_REASON_MAP(X)                                                                                  \
    X(STK_REASON_NONE, 0, "usable")                                                                        \
    X(STK_REASON_JSON, 1, "not valid JSON")                                                                \
    X(STK_REASON_UTF8, 2, "not valid UTF-8")                                                               \
    X(STK_REASON_DIALECT, 3, "not a known form of record")                                                 \
    X(STK_REASON_ROLE, 4, "a role without a mapping")                                                      \
    X(STK_REASON_TAGS, 5, "tags and media do not match")                                                   \
    X(STK_REASON_NO_ANSWER, 6, "no assistant turn")                                                        \
    X(STK_REASON_UNTRAINED, 7, "nothing to learn")                                                         \
    X(STK_REASON_OVERLONG, 8, "longer than max_tokens")                                                    \
    X(STK_REASON_TEMPLATE, 9, "the template refuses the conversation")                                     \
    X(STK_REASON_CONTROL, 10, "typed control tokens do not match the media")                               \
    X(STK_REASON_RECORD_LIMIT, 11, "the record exceeds a limit")                                           \
    X(STK_REASON_VIDEO, 12, "video is not supported yet")                                                  \
    X(STK_REASON_AUDIO, 13, "audio is not supported yet")                                                  \
    X(STK_REASON_DUPLICATE_KEY, 14, "a key stands twice")                                                  \
    X(STK_REASON_EXCLUDED, 15, "left out by a list (index --exclude)")                                     \
    X(STK_REASON_GROUNDING, 16, "grounding objects that have to be written into the text first")           \
    X(STK_REASON_TURN_LOSS, 17, "loss weights that do not fit the turns")                                  \
    X(STK_REASON_MISSING, 20, "media missing")                                                             \
    X(STK_REASON_DENIED, 21, "media outside the allowed places")                                           \
    X(STK_REASON_EMPTY, 22, "media of no bytes")                                                           \
    X(STK_REASON_NOT_IMAGE, 23, "not an image")                                                            \
    X(STK_REASON_BROKEN, 24, "broken or truncated media")                                                  \
    X(STK_REASON_MEDIA_LIMIT, 25, "the media exceeds a limit")                                             \
    X(STK_REASON_UNSUPPORTED, 26, "a kind of media that is not supported")                                 \
    X(STK_REASON_RATIO, 27, "a side ratio above 200")                                                      \
    X(STK_REASON_UNREADABLE, 28, "media that may not be read")                                             \
    X(STK_REASON_CHANGED, 29, "media changed since indexing")                                              \
    X(STK_REASON_CRASHED, 30, "a decoder crashed on it")                                                   \
    X(STK_REASON_NO_SIZE, 31, "the size rule leaves a side of no pixels")

typedef enum stk_reason {
#define STK_REASON_ENUM(name, number, text) name = number,
    STK_REASON_MAP(STK_REASON_ENUM)
#undef STK_REASON_ENUM
} stk_reason;

/* A constant string ("unknown reason" for a number that is none), never NULL. */
const char *stk_reason_text(stk_reason reason);

typedef enum stk_media_format {
    STK_FORMAT_UNKNOWN,
    STK_FORMAT_JPEG,
    STK_FORMAT_PNG,
    STK_FORMAT_WEBP,
    STK_FORMAT_GIF,
    STK_FORMAT_BMP,
    STK_FORMAT_TIFF,
} stk_media_format;

enum { /* flags of media facts: counted and shown by the index */
    STK_MEDIA_HAS_ALPHA = 1u << 0,
    STK_MEDIA_GREY16 = 1u << 1,
    STK_MEDIA_ANIMATED = 1u << 2,
    STK_MEDIA_STATED = 1u << 3, /* the size was stated, by the record or a facts file: no header was read */
    STK_MEDIA_WHOLE = 1u << 4,  /* the library decodes it into a whole picture first: what it may allocate follows */
    STK_MEDIA_CMYK = 1u << 5,   /* a JPEG of four components, a TIFF of separated colours */
    STK_MEDIA_PARTS_SKIPPED = 1u << 6, /* a broken EXIF block, optional chunks of a PNG that are broken or huge */
};

/* Of an ETag, with its quotes and a NUL; a longer one counts as unknown. */
enum { STK_MEDIA_ETAG_BYTES = 72 };
/* In mtime_ns: the medium is an object; the rest of it says where its ETag stands among those of its facts. */
#define STK_MEDIA_OBJECT (1ull << 63)

/* One medium.  48 bytes, little-endian, as in the sidecar. */
typedef struct stk_media_facts {
    uint32_t width_px, height_px; /* as stored, before orientation */
    uint64_t size_bytes;          /* compressed */
    uint64_t mtime_ns;            /* of the file at indexing; 0: a data: URI; STK_MEDIA_OBJECT + where its ETag stands */
    uint8_t kind;                 /* stk_media_kind */
    uint8_t format;               /* stk_media_format */
    uint8_t orientation;          /* EXIF 1..8 */
    uint8_t reason;               /* stk_reason */
    uint32_t flags;               /* STK_MEDIA_* */
    /* For the report only, which counts what is used twice; no part of the content digest. */
    uint64_t address_hash;        /* XXH3-64 of the resolved address, never 0 */
    uint64_t head_hash;           /* XXH3-64 of the first 64 KiB, seeded with the bytes of all; 0: not read */
} stk_media_facts;
_Static_assert(sizeof(stk_media_facts) == 48, "media facts are a file format");

/* Where a record stands.  Belongs to the media part: keyed by the manifest's content alone. */
typedef struct stk_record_facts {
    uint64_t offset;          /* of the record's first byte in its file */
    uint32_t size_bytes;      /* of the record */
    uint32_t file_index;      /* in the data set's list of files */
    uint64_t line;            /* from 1: of the file, for JSONL and for arrays alike */
    uint64_t first_media;     /* index into the media facts of the data set */
    uint32_t media_count;
    uint32_t notes;           /* STK_NOTE_* found by the manifest */
    uint64_t id_hash;         /* XXH3-64 of the record's own id; 0: no id */
    uint8_t reason;           /* stk_reason found by the manifest, or the first of its media's */
    uint8_t flags;            /* STK_RECORD_* */
    uint8_t unused[6];
} stk_record_facts;
_Static_assert(sizeof(stk_record_facts) == 56, "record facts are a file format");

enum {
    STK_RECORD_ID_REPEATED = 1u << 0, /* a second record of the same id: its sample id is its line */
};

/* The text of a record.  24 bytes, as in the sidecar. */
typedef struct stk_text_facts {
    uint32_t token_count;      /* with one pad a medium: the row has token_count - media_count + visual tokens */
    uint32_t supervised_count; /* tokens with a label */
    uint32_t notes;            /* STK_NOTE_* found by the text */
    uint8_t reason;            /* stk_reason */
    uint8_t unused[3];
    uint64_t typed_tokens;     /* bit i: the tokeniser's added token i is typed as a control token; bit 63: any from there on */
} stk_text_facts;
_Static_assert(sizeof(stk_text_facts) == 24, "text facts are a file format");

/* The facts of one data set, mapped read-only: what the plan is made from. */
typedef struct stk_set_facts {
    const stk_record_facts *record; /* record_count */
    const stk_text_facts *text;     /* record_count */
    const stk_media_facts *media;   /* media_count */
    uint64_t record_count, media_count;
    const uint8_t *etag; /* etag_bytes: of each object a byte that says how long, and its ETag (none: length 0) */
    uint64_t etag_bytes;
    const char *const *file; /* file_count paths of manifests */
    uint32_t file_count;
    uint8_t content_digest[16]; /* XXH3-128 over the manifests' bytes and the media facts: part of the fingerprint */
} stk_set_facts;

/* The ETag of a medium of these facts, with its quotes; empty: it is no object, or had none. */
stk_str stk_media_etag(const stk_set_facts *facts, const stk_media_facts *media);

#endif
