/* record_reader.h - what the files that read a record share while they read one.  Only for src/manifest/. */
#ifndef STK_MANIFEST_RECORD_READER_H
#define STK_MANIFEST_RECORD_READER_H

#include "manifest/record.h"

typedef struct stk_record_reader {
    stk_sample *sample;
    const stk_record_rules *rules;
    stk_reason *reason;
    stk_error *err;
    json_t *record;           /* the parsed object */
    size_t turn_number;       /* from 1, for messages; 0: not inside a turn */
    stk_media_ref *media;     /* so far, in the order of their parts */
    size_t media_count, media_capacity;
    const json_t *shelf;      /* the record's images, that tags take in order: an array, or one item */
    size_t shelf_count, tag_count; /* tags: of images, and image parts without an address */
    size_t video_tag_count, audio_tag_count;
    size_t verbatim_tag_count; /* ms-swift: <image> in texts where it is no tag */
    size_t lead_tag_count;    /* ms-swift: still to put before the text of the first turn that is not the system's */
    size_t prompt_count;      /* messages that are TRL's prompt, which is not trained */
    bool has_objects;         /* ms-swift's grounding */
    stk_str root;             /* media_root, normalised */
} stk_record_reader;

/* Begin with a sample, whose earlier contents go.  All is the caller's and outlives the reader. */
stk_status stk_record_reader_open(stk_record_reader *reader, stk_sample *sample, const stk_record_rules *rules, stk_reason *reason,
                                  stk_error *err) STK_MUST_USE;

/* One item of the messages. */
typedef struct stk_message {
    stk_turn turn;
    bool is_call; /* of a role that has only calls, which join those of the message before */
} stk_message;

/* Fail the record: "turn 3: " and the text go into err, the reason into *reader->reason. */
stk_status stk_record_reader_fail(stk_record_reader *reader, stk_reason reason, const char *format, ...) STK_PRINTF(3, 4);
stk_status stk_record_reader_nomem(stk_record_reader *reader);

/* Memory that lives as long as the sample; NULL: none. */
void *stk_record_reader_take(stk_record_reader *reader, size_t size_bytes) STK_MUST_USE;
/* Room for one more item in an array of the sample's pool; NULL: no memory.  *items is replaced when it is full. */
void *stk_record_reader_grow(stk_record_reader *reader, void **items, size_t count, size_t *capacity, size_t each_bytes) STK_MUST_USE;

/* Parse a text of JSON; *out is the sample's.  what: the text's name in messages. */
stk_status stk_record_reader_json(stk_record_reader *reader, json_t **out, stk_str text, const char *what) STK_MUST_USE;
/* Give the sample a value that was made (NULL: no memory). */
stk_status stk_record_reader_own(stk_record_reader *reader, json_t **out, json_t *made) STK_MUST_USE;

/* The value of a key; NULL: absent or null. */
json_t *stk_json_get(const json_t *object, const char *key);
/* The text of a JSON string. */
stk_str stk_json_text(const json_t *string);

/* turn.c: read one message.  The dialect is not STK_DIALECT_DETECT. */
stk_status stk_record_reader_turn(stk_record_reader *reader, stk_message *message, const json_t *json, stk_dialect dialect) STK_MUST_USE;

/* turn_call.c: `tool_calls` and reasoning of a message; or the calls that are all the content of a message. */
stk_status stk_record_reader_calls(stk_record_reader *reader, stk_turn *turn, const json_t *json) STK_MUST_USE;
stk_status stk_record_reader_reasoning(stk_record_reader *reader, stk_turn *turn, const json_t *json) STK_MUST_USE;
stk_status stk_record_reader_call_content(stk_record_reader *reader, stk_turn *turn, const json_t *content) STK_MUST_USE;

/* turn_loss.c: a message's own `train`, `loss`, ...; then the record's list of them and TRL's prompt, for all messages. */
stk_status stk_record_reader_loss(stk_record_reader *reader, stk_turn *turn, const json_t *json, stk_dialect dialect) STK_MUST_USE;
stk_status stk_record_reader_loss_list(stk_record_reader *reader, stk_message *message, size_t count) STK_MUST_USE;

/* media.c: the reference to a medium from an address, or from a string or an object with its address; added to
 * reader->media. */
stk_status stk_record_reader_address_image(stk_record_reader *reader, stk_str address) STK_MUST_USE;
stk_status stk_record_reader_image(stk_record_reader *reader, const json_t *item) STK_MUST_USE;
/* An image part: its own address, or with none the next of the shelf. */
stk_status stk_record_reader_image_part(stk_record_reader *reader, const json_t *part, bool is_image_url, bool *added) STK_MUST_USE;
/* The next image of the shelf, for a tag; *added false: none is left (the counts are compared at the end). */
stk_status stk_record_reader_tag(stk_record_reader *reader, bool *added) STK_MUST_USE;

/* address.c: an address as the record has it to one that can be opened; *resolved lives as long as the sample. */
stk_status stk_record_reader_address(stk_record_reader *reader, stk_str *resolved, stk_str address) STK_MUST_USE;
/* Normalise an absolute path in place (`.`, `..`, `//`, a slash at the end); returns its new size. */
size_t stk_path_normalise(char *path, size_t size_bytes);

#endif
