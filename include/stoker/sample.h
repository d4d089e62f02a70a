/* sample.h - one sample as the model will see it (`stoker show`), and as other software would have to be told it. */
#ifndef STOKER_SAMPLE_H
#define STOKER_SAMPLE_H

#include <stoker/index.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_sample_view stk_sample_view;

/* Which sample: an id ("docs/33471", "docs#118"), as batches and errors name it.  progress may be NULL; it is asked some times a second
 * whether to go on, also while a store is waited for.  Failure: what opening a run can fail with, STK_ERR_USAGE for an id that is none,
 * STK_ERR_RECORD for an unusable record, STK_ERR_NETWORK for a store that does not answer; STK_ERR_INTERRUPTED. */
STK_API STK_MUST_USE stk_status stk_sample_open(stk_sample_view **out, const stk_options *options, const char *id,
                                                const stk_index_progress *progress, stk_error *err);

/* Everything lent by the view. */
typedef struct stk_sample_info {
    const char *id, *file;
    uint64_t line;
    const char *rendered;      /* as the template gives it, one pad a medium */
    size_t rendered_bytes;
    const int64_t *input_ids, *labels, *mm_token_type_ids; /* token_count each */
    const int64_t *position_ids;                           /* 3 x token_count */
    size_t token_count;
    size_t image_count;
    const char *record; /* as it stands in the manifest: JSON */
    size_t record_bytes;
    const char *messages; /* JSON of {"messages": [...], "tools": [...]} as chat templates take it.  `content` is a text, or parts of
                             {"type": "text", "text": ...} and {"type": "image", "image": ADDRESS} */
} stk_sample_info;

STK_API void stk_sample_info_get(const stk_sample_view *view, stk_sample_info *info);

/* The text of token `at` (bytes, not always whole characters). */
STK_API void stk_sample_token(const stk_sample_view *view, size_t at, const char **bytes, size_t *size_bytes);

typedef struct stk_sample_image {
    const char *address;
    uint32_t stored_width_px, stored_height_px, orientation;
    uint32_t width_px, height_px; /* as the model sees it */
    int64_t grid[3];
    const uint8_t *rgb; /* height_px * width_px * 3, upright; NULL when the bytes are unusable */
    const char *fault;  /* then why */
} stk_sample_image;

STK_API void stk_sample_image_at(const stk_sample_view *view, size_t at, stk_sample_image *image);
STK_API void stk_sample_close(stk_sample_view **view);

#ifdef __cplusplus
}
#endif
#endif
