/* test_batch_goldens.c - expanded ids, labels, token types and M-RoPE positions, against those of the reference software.
 *
 * The lines of text/golden/chat.jsonl that have grids (tools/make-text-goldens says what their fields are): the tokens
 * of a conversation go in with one pad a picture, and what a batch holds is compared with transformers' tensors. */
#include "test.h"

#include <jansson.h>

#include "base/memory.h"
#include "batch/slot.h"

enum { MEDIA_MAX = 16, EOT = 7 };

static const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2, .ids = {.end_of_text = EOT}};

static bool is_in(const json_t *ranges, int64_t at)
{
    size_t i;
    const json_t *range;
    json_array_foreach(ranges, i, range)
        if (at >= json_integer_value(json_array_get(range, 0)) && at < json_integer_value(json_array_get(range, 1))) return true;
    return false;
}

static int64_t int_at(const json_t *list, size_t at)
{
    return json_integer_value(json_array_get(list, at));
}

typedef struct golden {
    int32_t id[4096];
    uint8_t trained[4096];
    uint32_t media_at[MEDIA_MAX];
    stk_recipe_media media[MEDIA_MAX];
    stk_recipe_sample sample;
    stk_recipe recipe;
    stk_tokens tokens;
} golden;

static const uint32_t step_rows[1] = {0};

static void read_golden(golden *g, const json_t *line)
{
    memset(g, 0, sizeof *g);
    const json_t *const ids = json_object_get(line, "ids"), *const grids = json_object_get(line, "grids");
    const json_t *const at = json_object_get(line, "media_at"), *const trained = json_object_get(line, "trained");
    CHECK(json_array_size(ids) <= 4096 && json_array_size(grids) <= MEDIA_MAX);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        g->id[i] = (int32_t)int_at(ids, i);
        g->trained[i] = is_in(trained, (int64_t)i);
        g->tokens.supervised_count += g->trained[i];
    }
    for (size_t k = 0; k < json_array_size(grids); k++) {
        const json_t *const grid = json_array_get(grids, k);
        g->media_at[k] = (uint32_t)int_at(at, k);
        g->media[k] = (stk_recipe_media){.grid = {(uint32_t)int_at(grid, 0), (uint32_t)int_at(grid, 1), (uint32_t)int_at(grid, 2)},
                                         .first_patch = g->recipe.patch_count};
        g->recipe.patch_count += stk_grid_patches(g->media[k].grid);
    }
    const uint32_t media_count = (uint32_t)json_array_size(grids);
    const uint32_t token_count = (uint32_t)json_array_size(json_object_get(line, "input_ids"));
    g->tokens = (stk_tokens){.id = g->id, .trained = g->trained, .media_at = g->media_at, .count = (uint32_t)json_array_size(ids),
                             .media_count = media_count, .supervised_count = g->tokens.supervised_count};
    g->sample = (stk_recipe_sample){.token_count = token_count, .supervised_count = g->tokens.supervised_count, .media_count = media_count};
    g->recipe = (stk_recipe){.segment_multiple = 1, .step_row = step_rows, .row_count = 1, .sample_count = 1, .media_count = media_count, .patch_count = g->recipe.patch_count,
                             .token_count = token_count, .row_tokens = token_count, .sample = &g->sample, .media = g->media};
}

static void expect_line(const json_t *line, const golden *g)
{
    const char *const name = json_string_value(json_object_get(line, "name"));
    const stk_batch_form form = {.layout = STK_LAYOUT_PADDED, .targets = STK_TARGETS_HF, .pixels = STK_PIXELS_UINT8, .model = &model};
    stk_error err;
    stk_slot_layout layout;
    CHECK_OK(stk_slot_layout_init(&layout, &g->recipe, &form, &err), err);
    uint8_t *const slot = stk_alloc(STK_TAG_BATCH, layout.size_bytes);
    stk_slot_prepare(slot, &layout, &g->recipe, &form);
    CHECK_OK(stk_slot_place(slot, &layout, &g->recipe, &form, 0, &g->tokens, &err), err);
#define FIELD(id) ((const int64_t *)(slot + layout.field[id].at_bytes))
    const json_t *const ids = json_object_get(line, "input_ids"), *const positions = json_object_get(line, "position_ids");
    const json_t *const labels_at = json_object_get(line, "labels_at");
    const char *const types = json_string_value(json_object_get(line, "mm_token_type_ids"));
    const uint32_t count = g->sample.token_count;
    CHECK_INT(strlen(types), count);
    for (uint32_t i = 0; i < count; i++) {
        const int64_t id = int_at(ids, i);
        CHECK_MSG(FIELD(STK_FIELD_INPUT_IDS)[i] == id, "%s: id %u", name, i);
        CHECK_MSG(FIELD(STK_FIELD_LABELS)[i] == (is_in(labels_at, i) ? id : -100), "%s: label %u", name, i);
        CHECK_MSG(FIELD(STK_FIELD_MM_TOKEN_TYPE_IDS)[i] == types[i] - '0', "%s: type %u", name, i);
        for (uint32_t plane = 0; plane < 3; plane++)
            CHECK_MSG(FIELD(STK_FIELD_POSITION_IDS)[plane * count + i] == int_at(json_array_get(positions, plane), i),
                      "%s: position %u of plane %u", name, i, plane);
    }
#undef FIELD
    stk_free(slot);
}

static void batches_hold_the_references_tensors(void)
{
    static golden g;
    char path[600], *text = NULL;
    snprintf(path, sizeof path, "%s/text/golden/chat.jsonl", test_source_folder());
    FILE *const file = fopen(path, "r");
    CHECK_MSG(file, "%s", path);
    size_t capacity = 0;
    int compared = 0;
    for (ssize_t length; (length = getline(&text, &capacity, file)) > 0;) {
        json_t *const line = json_loadb(text, (size_t)length, JSON_ALLOW_NUL, NULL);
        CHECK(line);
        if (json_object_get(line, "grids") && json_object_get(line, "position_ids")) {
            read_golden(&g, line);
            expect_line(line, &g);
            compared++;
        }
        json_decref(line);
    }
    CHECK_MSG(compared > 20, "only %d conversations with pictures", compared);
    free(text);
    fclose(file);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(batches_hold_the_references_tensors));
}
