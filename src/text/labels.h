/* labels.h - which tokens have labels (spec-qwen3vl.md section 5). */
#ifndef STK_TEXT_LABELS_H
#define STK_TEXT_LABELS_H

#include "schema/rules.h"
#include "schema/sample.h"
#include "text/render.h"
#include "text/tokenizer.h"

/* The ids that the scan of labels: finetune looks for. */
typedef struct stk_scan_ids {
    int32_t assistant, turn_end;
} stk_scan_ids;

/* Set trained[i] for each token of encoder.  stretch: count of them, rising, in the bytes of the text that
 * the encoder was given; media_at: media_count token positions, rising, which get no labels (but under
 * finetune). */
void stk_labels_mark(uint8_t *trained, const stk_encoder *encoder, const stk_stretch *stretch,
                     size_t stretch_count, const stk_sample *sample, stk_label_rule rule, stk_scan_ids scan,
                     const uint32_t *media_at, size_t media_count);

#endif
