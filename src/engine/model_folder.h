/* model_folder.h - the numbers of a checkpoint, from its own files (spec-qwen3vl.md sections 1.4 and 9.1). */
#ifndef STK_ENGINE_MODEL_FOLDER_H
#define STK_ENGINE_MODEL_FOLDER_H

#include "base/error.h"
#include "schema/model.h"
#include "text/text.h"

/* Read config.json, preprocessor_config.json and tokenizer_config.json of a folder; ids come from the
 * tokenizer. Failure: STK_ERR_MODEL, naming file and key. */
stk_status stk_model_read(stk_model *model, const char *folder, const stk_tokenizer *tokenizer,
                          stk_error *err) STK_MUST_USE;

/* Only what preprocessor_config.json says; the rest is zero. */
stk_status stk_model_read_images(stk_model *model, const char *folder, stk_error *err) STK_MUST_USE;

#endif
