/* model_folder.c - reading the checkpoint's numbers.  Hostile values are refused: a number that reaches the
 * kernels is one that they were made for. */
#include "engine/model_folder.h"

#include <jansson.h>
#include <math.h>

#include "base/file.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };

typedef struct config {
    json_t *root;
    char path[4096];
    stk_error *err;
} config;

static stk_status fail(const config *c, const char *key, const char *words)
{
    return stk_fail_at(c->err, STK_ERR_MODEL, c->path, 0, "%s: %s", key, words);
}

static stk_status open_config(config *c, const char *folder, const char *name, stk_error *err)
{
    *c = (config){.err = err};
    STK_TRY(stk_path_join(c->path, sizeof c->path, folder, name, err));
    char *text;
    size_t size_bytes;
    const stk_status status =
        stk_file_read(&text, &size_bytes, c->path, CONFIG_BYTES_MAX, STK_TAG_MODEL, err);
    if (status == STK_ERR_NOMEM) return status;
    if (status < 0)
        return stk_fail_at(
            err, STK_ERR_MODEL, c->path, 0,
            "the checkpoint folder needs this file, and it cannot be read: name the folder in `model`");
    json_error_t where;
    /* tokenizer_config.json says "no limit" with an integer of 31 digits. */
    c->root = json_loadb(text, size_bytes, JSON_DECODE_INT_AS_REAL, &where);
    stk_free(text);
    if (!c->root)
        return stk_fail_at(err, STK_ERR_MODEL, c->path, (uint64_t)(where.line > 0 ? where.line : 0),
                           "not valid JSON: %s", where.text);
    if (!json_is_object(c->root)) return fail(c, "the file", "an object is expected");
    return STK_OK;
}

static void close_config(config *c)
{
    json_decref(c->root);
    c->root = NULL;
}

/* A whole number in a range; absent: the value stays. */
static stk_status get_int(const config *c, const json_t *object, const char *key, int64_t low, int64_t high,
                          int64_t *value)
{
    const json_t *const node = json_object_get(object, key);
    if (!node || json_is_null(node)) return STK_OK;
    /* 1e30 stands for "no limit" in tokenizer_config.json. */
    const double number = json_number_value(node);
    if (!json_is_number(node) || !(number >= (double)low) || number != floor(number))
        return fail(c, key, "a whole number in range is expected");
    *value = number > (double)high ? high : (int64_t)number;
    return STK_OK;
}

static stk_status get_side(const config *c, const char *key, int64_t low, int64_t high, uint32_t *to)
{
    int64_t value = 0;
    STK_TRY(get_int(c, c->root, key, low, INT64_MAX / 2, &value));
    if (value == 0) return fail(c, key, "is missing");
    if (value > high) return fail(c, key, "is larger than any model that is known");
    *to = (uint32_t)value;
    return STK_OK;
}

static stk_status get_three(const config *c, const char *key, double low, double to[3])
{
    const json_t *const list = json_object_get(c->root, key);
    if (json_array_size(list) != 3) return fail(c, key, "a list of three numbers is expected");
    for (size_t i = 0; i < 3; i++) {
        const json_t *const node = json_array_get(list, i);
        to[i] = json_number_value(node);
        if (!json_is_number(node) || !(to[i] >= low && to[i] <= 1))
            return fail(c, key, "numbers from 0 to 1 are expected");
    }
    return STK_OK;
}

/* size.shortest_edge and longest_edge are numbers of pixels; min_pixels and max_pixels win where they stand.
 */
static stk_status get_limits(const config *c, stk_model *model)
{
    int64_t low = 0, high = 0;
    const json_t *const size = json_object_get(c->root, "size");
    STK_TRY(get_int(c, size, "shortest_edge", 1, INT32_MAX, &low));
    STK_TRY(get_int(c, size, "longest_edge", 1, INT32_MAX, &high));
    STK_TRY(get_int(c, size, "min_pixels", 1, INT32_MAX, &low));
    STK_TRY(get_int(c, size, "max_pixels", 1, INT32_MAX, &high));
    STK_TRY(get_int(c, c->root, "min_pixels", 1, INT32_MAX, &low));
    STK_TRY(get_int(c, c->root, "max_pixels", 1, INT32_MAX, &high));
    if (!low || !high)
        return fail(c, "size",
                    "neither size.shortest_edge and longest_edge nor min_pixels and max_pixels are there");
    if (low > high) return fail(c, "size", "the lower limit of pixels is above the upper one");
    model->min_px = (uint64_t)low;
    model->max_px = (uint64_t)high;
    return STK_OK;
}

static stk_status read_preprocessor(stk_model *model, const char *folder, stk_error *err)
{
    config c;
    stk_status status = open_config(&c, folder, "preprocessor_config.json", err);
    if (status == STK_OK) status = get_side(&c, "patch_size", 2, 64, &model->patch_px);
    if (status == STK_OK) status = get_side(&c, "temporal_patch_size", 1, 8, &model->temporal);
    if (status == STK_OK) status = get_side(&c, "merge_size", 1, 8, &model->merge);
    if (status == STK_OK) status = get_three(&c, "image_mean", 0, model->image_mean);
    if (status == STK_OK) status = get_three(&c, "image_std", 1e-6, model->image_std);
    if (status == STK_OK) status = get_limits(&c, model);
    /* What the image path always does; a folder that says otherwise is of another kind of model. */
    static const char *const always[] = {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"};
    for (size_t i = 0; status == STK_OK && i < 4; i++)
        if (json_is_false(json_object_get(c.root, always[i])))
            status = fail(&c, always[i], "false is not supported: this is no Qwen-VL preprocessor");
    close_config(&c);
    return status;
}

static bool is_one_of(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0) list++;
    return *list;
}

/* The vision tower that the patches are for: a folder put together from two checkpoints would fail far from
 * here. */
static stk_status check_vision(const config *c, const stk_model *model)
{
    const json_t *const vision = json_object_get(c->root, "vision_config");
    const struct {
        const char *key;
        uint32_t value;
    } same[] = {{"patch_size", model->patch_px},
                {"spatial_merge_size", model->merge},
                {"temporal_patch_size", model->temporal}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const json_t *const node = json_object_get(vision, same[i].key);
        if (json_is_number(node) && json_number_value(node) != same[i].value)
            return stk_fail_at(c->err, STK_ERR_MODEL, c->path, 0,
                               "vision_config.%s: %g, and preprocessor_config.json says %u: the files are of "
                               "two checkpoints",
                               same[i].key, json_number_value(node), same[i].value);
    }
    return STK_OK;
}

/* --- costs --- */

static double size_of(const json_t *node, const char *key, double otherwise)
{
    const double value = json_number_value(json_object_get(node, key));
    return value >= 1 && value < 1e9 ? value : otherwise;
}

/* Floating point operations of a forward pass, a multiply and an add being two; a token's share of the text model's weights is one unit of
 * 2^24.  What config.json does not say is that of an 8B model. */
static void read_costs(stk_model *model, const json_t *root)
{
    const json_t *const text = json_is_object(json_object_get(root, "text_config")) ? json_object_get(root, "text_config") : root;
    const json_t *const vision = json_object_get(root, "vision_config");
    const double hidden = size_of(text, "hidden_size", 4096), layers = size_of(text, "num_hidden_layers", 36),
                 heads = size_of(text, "num_attention_heads", 32), groups = size_of(text, "num_key_value_heads", heads),
                 head = size_of(text, "head_dim", hidden / heads), words = size_of(text, "vocab_size", 151936);
    const double experts = size_of(text, "num_experts_per_tok", 1),
                 inner = size_of(text, "moe_intermediate_size", size_of(text, "intermediate_size", 3 * hidden)) * experts;
    const double linear = 2 * (layers * (hidden * head * (2 * heads + 2 * groups) + 3 * hidden * inner) + hidden * words);
    const double square = 2 * layers * heads * head; /* scores and values, half of them masked */

    const double eyes = size_of(vision, "hidden_size", size_of(vision, "embed_dim", 1152)),
                 depth = size_of(vision, "depth", size_of(vision, "num_hidden_layers", 27)),
                 eye_inner = size_of(vision, "intermediate_size", 4 * eyes);
    const json_t *const full = json_object_get(vision, "fullatt_block_indexes");
    const double whole = json_is_array(full) ? (double)json_array_size(full) : depth, side = size_of(vision, "window_size", 112) / model->patch_px;
    const double patch_linear = 2 * depth * (4 * eyes * eyes + 2 * eyes * eye_inner) + 4 * eyes * (depth - whole) * side * side;
    const double patch_square = 4 * eyes * whole;
    const double unit = 0x1p24 / linear;
    model->costs = (stk_model_costs){.text_square = (uint64_t)(square * unit + 0.5), .text_linear = (uint64_t)1 << 24,
                                     .vision_square = (uint64_t)(patch_square * unit + 0.5),
                                     .vision_linear = (uint64_t)(patch_linear * unit + 0.5)};
}

static stk_status read_config(stk_model *model, const char *folder, stk_error *err)
{
    static const char *const known[] = {"qwen2_vl", "qwen2_5_vl",  "qwen3_vl", "qwen3_vl_moe",
                                        "qwen3_5",  "qwen3_5_moe", NULL};
    static const char *const per_clip[] = {"qwen2_vl", "qwen2_5_vl", NULL};
    config c;
    stk_status status = open_config(&c, folder, "config.json", err);
    if (status == STK_OK) {
        const char *const type = json_string_value(json_object_get(c.root, "model_type"));
        if (!type)
            status = fail(&c, "model_type", "is missing");
        else if (!is_one_of(type, known))
            status = fail(&c, "model_type",
                          "is none of qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe, qwen3_5, qwen3_5_moe");
        else {
            snprintf(model->model_type, sizeof model->model_type, "%s", type);
            model->mrope_per_frame = !is_one_of(type, per_clip);
            const json_t *const vision = json_object_get(c.root, "vision_config");
            model->tokens_per_second = json_number_value(json_object_get(vision, "tokens_per_second"));
            read_costs(model, c.root);
            status = check_vision(&c, model);
        }
    }
    close_config(&c);
    return status;
}

static stk_status read_tokenizer_config(stk_model *model, const char *folder, stk_error *err)
{
    config c;
    int64_t max_tokens = 0;
    stk_status status = open_config(&c, folder, "tokenizer_config.json", err);
    if (status == STK_OK) status = get_int(&c, c.root, "model_max_length", 1, 1 << 30, &max_tokens);
    if (status == STK_OK && !max_tokens) status = fail(&c, "model_max_length", "is missing");
    model->max_tokens = (uint32_t)max_tokens;
    close_config(&c);
    return status;
}

stk_status stk_model_read(stk_model *model, const char *folder, const stk_tokenizer *tokenizer,
                          stk_error *err)
{
    memset(model, 0, sizeof *model);
    stk_status status = read_preprocessor(model, folder, err);
    if (status == STK_OK) status = read_config(model, folder, err);
    if (status == STK_OK) status = read_tokenizer_config(model, folder, err);
    if (status == STK_OK) status = stk_tokenizer_special_ids(&model->ids, tokenizer, err);
    if (status < 0) stk_error_stage(err, STK_STAGE_MODEL);
    return status;
}

stk_status stk_model_read_images(stk_model *model, const char *folder, stk_error *err)
{
    memset(model, 0, sizeof *model);
    const stk_status status = read_preprocessor(model, folder, err);
    if (status < 0) stk_error_stage(err, STK_STAGE_MODEL);
    return status;
}
