/* test_batch.c - positions, and the integer fields of slots in every layout and target. */
#include "test.h"

#include "base/memory.h"
#include "batch/batch_object.h"
#include "batch/positions.h"

enum { EOT = 900, PAD = 901, START = 902, END = 903 };

static const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2,
                                .ids = {.end_of_text = EOT, .image_pad = PAD, .vision_start = START, .vision_end = END}};

static void expect_ints(const int64_t *actual, const int64_t *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) CHECK_INT(actual[i], expected[i]);
}

/* spec-qwen3vl.md section 6.1, the example. */
static void positions_of_an_image_between_texts(void)
{
    const stk_position_block block = {.at = 4, .grid = {1, 4, 4}, .t_step = 1};
    int64_t p[3][11];
    CHECK_INT(stk_positions_write(p[0], 11, 11, &block, 1, 2), 9);
    expect_ints(p[0], (const int64_t[]){0, 1, 2, 3, 4, 4, 4, 4, 6, 7, 8}, 11);
    expect_ints(p[1], (const int64_t[]){0, 1, 2, 3, 4, 4, 5, 5, 6, 7, 8}, 11);
    expect_ints(p[2], (const int64_t[]){0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8}, 11);
}

/* D15 (mlx-vlm#1282): the second image gets a grid too. */
static void positions_of_a_second_image_are_a_grid(void)
{
    const stk_position_block block[2] = {{.at = 3, .grid = {1, 4, 4}, .t_step = 1}, {.at = 9, .grid = {1, 4, 4}, .t_step = 1}};
    int64_t p[3][14];
    CHECK_INT(stk_positions_write(p[0], 14, 14, block, 2, 2), 10);
    expect_ints(p[0], (const int64_t[]){0, 1, 2, 3, 3, 3, 3, 5, 6, 7, 7, 7, 7, 9}, 14);
    expect_ints(p[1], (const int64_t[]){0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 7, 8, 8, 9}, 14);
    expect_ints(p[2], (const int64_t[]){0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7, 8, 9}, 14);
}

/* Qwen3-VL: a frame a block, its time mark between; Qwen2-VL: one block, t counts (sections 6.1, 6.2). */
static void positions_of_video_grids(void)
{
    const stk_position_block frames[2] = {{.at = 1, .grid = {1, 2, 4}, .t_step = 1}, {.at = 5, .grid = {1, 2, 4}, .t_step = 1}};
    int64_t p[3][8];
    CHECK_INT(stk_positions_write(p[0], 8, 8, frames, 2, 2), 8);
    expect_ints(p[0], (const int64_t[]){0, 1, 1, 3, 4, 5, 5, 7}, 8);
    expect_ints(p[2], (const int64_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);

    const stk_position_block clip = {.at = 1, .grid = {3, 2, 2}, .t_step = 2};
    CHECK_INT(stk_positions_write(p[0], 8, 5, &clip, 1, 2), 7);
    expect_ints(p[0], (const int64_t[]){0, 1, 3, 5, 6}, 5);
    expect_ints(p[1], (const int64_t[]){0, 1, 1, 1, 6}, 5);
}

/* Two samples and a filler row: A = text of 4 (2 trained), B = 2 tokens, an image of 4 pads, 3 tokens (1 trained). */
typedef struct made_batch {
    stk_recipe recipe;
    stk_recipe_sample sample[3];
    stk_recipe_media media[1];
    stk_batch_form form;
    stk_slot_layout layout;
    uint8_t *slot;
} made_batch;

static const int32_t ids_a[] = {1, 2, 3, 4}, ids_b[] = {5, START, PAD, END, 6, 7};
static const uint8_t trained_a[] = {0, 0, 1, 1}, trained_b[] = {0, 0, 0, 0, 0, 1};
static const uint32_t pads_b[] = {2};
static const stk_tokens tokens_a = {.id = ids_a, .trained = trained_a, .count = 4, .supervised_count = 2};
static const stk_tokens tokens_b = {.id = ids_b, .trained = trained_b, .media_at = pads_b, .count = 6, .media_count = 1,
                                    .supervised_count = 1};

static const uint32_t step_rows[4] = {0, 1, 2, 3};
static stk_positions asked_positions = STK_POSITIONS_AUTO; /* of the next batch made */

static void make_batch(made_batch *m, stk_layout layout, stk_targets targets, stk_pixel_form pixels, uint32_t row_tokens)
{
    memset(m, 0, sizeof *m);
    const bool flat = layout == STK_LAYOUT_FLAT;
    m->sample[0] = (stk_recipe_sample){.row = 0, .token_count = 4, .supervised_count = 2};
    m->sample[1] = (stk_recipe_sample){.row = 1, .token_count = 9, .supervised_count = 1, .media_count = 1,
                                       .first_token = flat ? 4 : 0};
    m->sample[2] = (stk_recipe_sample){.row = 2, .token_count = 1, .filler = true, .first_media = 1, .first_token = flat ? 13 : 0};
    m->media[0] = (stk_recipe_media){.grid = {1, 4, 4}};
    m->recipe = (stk_recipe){.segment_multiple = 1, .step_row = step_rows, .row_count = 3, .sample_count = 3, .media_count = 1, .patch_count = 16, .token_count = 14,
                             .row_tokens = row_tokens, .sample = m->sample, .media = m->media};
    m->form = (stk_batch_form){.layout = layout, .targets = targets, .positions = asked_positions, .pixels = pixels, .model = &model};
    stk_error err;
    CHECK_OK(stk_slot_layout_init(&m->layout, &m->recipe, &m->form, &err), err);
    m->slot = stk_alloc(STK_TAG_BATCH, m->layout.size_bytes);
    memset(m->slot, 0xee, m->layout.size_bytes); /* a recycled slot is not zero */
    stk_slot_prepare(m->slot, &m->layout, &m->recipe, &m->form);
    CHECK_OK(stk_slot_place(m->slot, &m->layout, &m->recipe, &m->form, 0, &tokens_a, &err), err);
    CHECK_OK(stk_slot_place(m->slot, &m->layout, &m->recipe, &m->form, 1, &tokens_b, &err), err);
}

static const int64_t *field_of(const made_batch *m, stk_field_id id)
{
    CHECK(m->layout.field[id].present);
    return (const int64_t *)(m->slot + m->layout.field[id].at_bytes);
}

static void expect_shape(const made_batch *m, stk_field_id id, int ndim, int64_t a, int64_t b, int64_t c)
{
    const stk_slot_field *const f = &m->layout.field[id];
    CHECK_MSG(f->present && f->ndim == ndim && f->shape[0] == a && f->shape[1] == b && f->shape[2] == c, "%s: %d [%lld, %lld, %lld]",
              stk_field_name(id), f->ndim, (long long)f->shape[0], (long long)f->shape[1], (long long)f->shape[2]);
    CHECK_INT(f->at_bytes % STK_ALIGN_BYTES, 0);
}

#define N (-100)
static void a_padded_batch_for_hf(void)
{
    made_batch m;
    make_batch(&m, STK_LAYOUT_PADDED, STK_TARGETS_HF, STK_PIXELS_UINT8, 10);
    expect_shape(&m, STK_FIELD_INPUT_IDS, 2, 3, 10, 0);
    expect_ints(field_of(&m, STK_FIELD_INPUT_IDS), (const int64_t[]){1, 2, 3, 4, EOT, EOT, EOT, EOT, EOT, EOT,
        5, START, PAD, PAD, PAD, PAD, END, 6, 7, EOT, EOT, EOT, EOT, EOT, EOT, EOT, EOT, EOT, EOT, EOT}, 30);
    expect_ints(field_of(&m, STK_FIELD_LABELS), (const int64_t[]){N, N, 3, 4, N, N, N, N, N, N,
        N, N, N, N, N, N, N, N, 7, N, N, N, N, N, N, N, N, N, N, N}, 30);
    expect_ints(field_of(&m, STK_FIELD_ATTENTION_MASK), (const int64_t[]){1, 1, 1, 1, 0, 0, 0, 0, 0, 0,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 30);
    expect_ints(field_of(&m, STK_FIELD_MM_TOKEN_TYPE_IDS), (const int64_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 30);
    expect_shape(&m, STK_FIELD_POSITION_IDS, 3, 3, 3, 10);
    const int64_t *const p = field_of(&m, STK_FIELD_POSITION_IDS);
    expect_ints(p, (const int64_t[]){0, 1, 2, 3, 1, 1, 1, 1, 1, 1, 0, 1, 2, 2, 2, 2, 4, 5, 6, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 30);
    expect_ints(p + 40, (const int64_t[]){0, 1, 2, 2, 3, 3, 4, 5, 6, 1, 0, 1}, 12);
    expect_ints(p + 70, (const int64_t[]){0, 1, 2, 3, 2, 3, 4, 5, 6, 1, 0, 1}, 12);
    expect_ints(field_of(&m, STK_FIELD_IMAGE_GRID_THW), (const int64_t[]){1, 4, 4}, 3);
    const int32_t offsets[] = {0, 0, 1, 1};
    CHECK(memcmp(field_of(&m, STK_FIELD_IMAGE_OFFSETS), offsets, sizeof offsets) == 0);
    expect_shape(&m, STK_FIELD_PIXEL_BYTES, 2, 16, 768, 0);
    CHECK(!m.layout.field[STK_FIELD_LOSS_MASK].present && !m.layout.field[STK_FIELD_CU_SEQLENS].present);
    CHECK(!m.layout.field[STK_FIELD_PIXEL_VALUES].present);
    stk_free(m.slot);
}

static void a_flat_batch_for_hf_counts_text_in_its_first_plane(void)
{
    made_batch m;
    make_batch(&m, STK_LAYOUT_FLAT, STK_TARGETS_HF, STK_PIXELS_FLOAT32, 16);
    expect_shape(&m, STK_FIELD_INPUT_IDS, 2, 1, 16, 0);
    expect_shape(&m, STK_FIELD_POSITION_IDS, 3, 4, 1, 16);
    expect_shape(&m, STK_FIELD_PIXEL_VALUES, 2, 16, 1536, 0);
    expect_ints(field_of(&m, STK_FIELD_INPUT_IDS), (const int64_t[]){1, 2, 3, 4, 5, START, PAD, PAD, PAD, PAD, END, 6, 7, EOT, EOT, EOT}, 16);
    const int64_t *const p = field_of(&m, STK_FIELD_POSITION_IDS);
    expect_ints(p, (const int64_t[]){0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 1}, 16);
    expect_ints(p + 16, (const int64_t[]){0, 1, 2, 3, 0, 1, 2, 2, 2, 2, 4, 5, 6, 0, 1, 1}, 16);
    expect_ints(p + 48, (const int64_t[]){0, 1, 2, 3, 0, 1, 2, 3, 2, 3, 4, 5, 6, 0, 1, 1}, 16);
    expect_shape(&m, STK_FIELD_CU_SEQLENS, 1, 5, 0, 0);
    const int32_t bounds[] = {0, 4, 13, 14, 16}, longest = 9;
    CHECK(memcmp(field_of(&m, STK_FIELD_CU_SEQLENS), bounds, sizeof bounds) == 0);
    CHECK(memcmp(field_of(&m, STK_FIELD_MAX_SEQLEN), &longest, sizeof longest) == 0);
    CHECK(!m.layout.field[STK_FIELD_ATTENTION_MASK].present);
    stk_free(m.slot);
}

/* Shifting stays inside each sample; padding counts on. */
static void shifted_targets_never_cross_samples(void)
{
    made_batch m;
    make_batch(&m, STK_LAYOUT_FLAT, STK_TARGETS_SHIFTED, STK_PIXELS_UINT8, 16);
    expect_ints(field_of(&m, STK_FIELD_LABELS), (const int64_t[]){N, 3, 4, N, N, N, N, N, N, N, N, 7, N, N, N, N}, 16);
    const float mask[] = {0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    CHECK(memcmp(field_of(&m, STK_FIELD_LOSS_MASK), mask, sizeof mask) == 0);
    expect_ints(field_of(&m, STK_FIELD_INPUT_IDS) + 13, (const int64_t[]){EOT, 0, 0}, 3);
    expect_shape(&m, STK_FIELD_POSITION_IDS, 3, 3, 1, 16);
    expect_ints(field_of(&m, STK_FIELD_POSITION_IDS) + 13, (const int64_t[]){0, 1, 2}, 3);
    CHECK(!m.layout.field[STK_FIELD_MM_TOKEN_TYPE_IDS].present);
    stk_free(m.slot);

    make_batch(&m, STK_LAYOUT_PADDED, STK_TARGETS_SHIFTED, STK_PIXELS_BFLOAT16, 10);
    expect_shape(&m, STK_FIELD_POSITION_IDS, 2, 3, 10, 0);
    for (int row = 0; row < 3; row++)
        expect_ints(field_of(&m, STK_FIELD_POSITION_IDS) + 10 * row, (const int64_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 10);
    CHECK_INT(m.layout.field[STK_FIELD_PIXEL_VALUES].dtype, STK_BFLOAT16);
    stk_free(m.slot);
}

/* Any layout, with any targets: counted in each sample, or the three planes. */
static void positions_are_plain_or_of_three_planes_on_demand(void)
{
    static const struct { stk_layout layout; stk_targets targets; uint32_t tokens; } forms[] = {
        {STK_LAYOUT_PADDED, STK_TARGETS_HF, 10}, {STK_LAYOUT_PADDED, STK_TARGETS_SHIFTED, 10},
        {STK_LAYOUT_FLAT, STK_TARGETS_HF, 16}, {STK_LAYOUT_FLAT, STK_TARGETS_SHIFTED, 16}};
    static const int64_t plain[] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, planes[3][9] = {
        {0, 1, 2, 2, 2, 2, 4, 5, 6}, {0, 1, 2, 2, 3, 3, 4, 5, 6}, {0, 1, 2, 3, 2, 3, 4, 5, 6}};
    for (int f = 0; f < 4; f++) {
        const bool flat = forms[f].layout == STK_LAYOUT_FLAT;
        const int64_t rows = flat ? 1 : 3, second = flat ? 4 : 10; /* where the sample with the image begins */
        made_batch m;
        asked_positions = STK_POSITIONS_PLAIN;
        make_batch(&m, forms[f].layout, forms[f].targets, STK_PIXELS_UINT8, forms[f].tokens);
        expect_shape(&m, STK_FIELD_POSITION_IDS, 2, rows, forms[f].tokens, 0);
        expect_ints(field_of(&m, STK_FIELD_POSITION_IDS) + second, plain, 9);
        stk_free(m.slot);
        asked_positions = STK_POSITIONS_MROPE;
        make_batch(&m, forms[f].layout, forms[f].targets, STK_PIXELS_UINT8, forms[f].tokens);
        asked_positions = STK_POSITIONS_AUTO;
        expect_shape(&m, STK_FIELD_POSITION_IDS, 3, 3, rows, forms[f].tokens);
        for (int p = 0; p < 3; p++)
            expect_ints(field_of(&m, STK_FIELD_POSITION_IDS) + p * rows * forms[f].tokens + second, planes[p], 9);
        stk_free(m.slot);
    }
}

/* Architecture section 7: tokens stay, labels go. */
static void a_masked_sample_keeps_its_tokens_and_loses_its_labels(void)
{
    made_batch m;
    make_batch(&m, STK_LAYOUT_PADDED, STK_TARGETS_HF, STK_PIXELS_UINT8, 10);
    stk_slot_mask(m.slot, &m.layout, &m.recipe, &m.form, 1);
    for (int i = 10; i < 20; i++) CHECK_INT(field_of(&m, STK_FIELD_LABELS)[i], N);
    CHECK_INT(field_of(&m, STK_FIELD_LABELS)[2], 3);
    CHECK_INT(field_of(&m, STK_FIELD_INPUT_IDS)[11], START);
    stk_free(m.slot);
}

static void tokens_that_were_not_planned_are_refused(void)
{
    made_batch m;
    make_batch(&m, STK_LAYOUT_PADDED, STK_TARGETS_HF, STK_PIXELS_UINT8, 10);
    stk_error err;
    stk_tokens other = tokens_a;
    other.count = 3;
    CHECK_INT(stk_slot_place(m.slot, &m.layout, &m.recipe, &m.form, 0, &other, &err), STK_ERR_INDEX);
    CHECK_INT(stk_slot_place(m.slot, &m.layout, &m.recipe, &m.form, 1, &tokens_a, &err), STK_ERR_INDEX);
    other = tokens_b;
    other.supervised_count = 2;
    CHECK_INT(stk_slot_place(m.slot, &m.layout, &m.recipe, &m.form, 1, &other, &err), STK_ERR_INDEX);
    stk_free(m.slot);
}

/* --- digests --- */

static const char *const set_names[] = {"made"};
static int homecomings;

static void take_back(stk_batch_home *home, stk_batch *batch)
{
    (void)home, (void)batch;
    homecomings++;
}

static void batch_of(stk_batch *batch, stk_batch_home *home, made_batch *m, stk_batch_note *notes)
{
    *home = (stk_batch_home){.take_back = take_back, .form = &m->form, .set_name = set_names};
    memset(batch, 0, sizeof *batch);
    atomic_store(&batch->references, 1);
    batch->home = home;
    batch->slot = m->slot;
    batch->layout = m->layout;
    batch->recipe = m->recipe;
    batch->note = notes;
    memset((uint8_t *)stk_slot_patches(m->slot, &m->layout, &m->recipe, 0), 7, 16 * 768);
}

/* Row digests leave padding, filler, layout and targets out. */
static void row_digests_do_not_depend_on_the_form(void)
{
    static const struct { stk_layout layout; stk_targets targets; uint32_t tokens; } forms[] = {
        {STK_LAYOUT_PADDED, STK_TARGETS_HF, 9}, {STK_LAYOUT_PADDED, STK_TARGETS_HF, 32}, {STK_LAYOUT_FLAT, STK_TARGETS_HF, 14},
        {STK_LAYOUT_FLAT, STK_TARGETS_SHIFTED, 20}};
    uint8_t first[3][16], rows[3][16];
    stk_batch_note notes[3] = {{.id = ""}};
    for (int f = 0; f < 4; f++) {
        made_batch m;
        stk_batch batch;
        stk_batch_home home;
        stk_error err;
        make_batch(&m, forms[f].layout, forms[f].targets, STK_PIXELS_UINT8, forms[f].tokens);
        batch_of(&batch, &home, &m, notes);
        size_t count = 3;
        CHECK_OK(stk_batch_row_digests(&batch, f ? rows : first, &count, &err), err);
        CHECK_INT(count, 2);
        if (f) CHECK(memcmp(rows, first, 2 * 16) == 0);
        count = 1;
        CHECK_INT(stk_batch_row_digests(&batch, rows, &count, &err), STK_ERR_USAGE);
        stk_free(m.slot);
    }
    CHECK(memcmp(first[0], first[1], 16) != 0);
}

static void a_batch_comes_home_after_its_last_release(void)
{
    made_batch m;
    stk_batch batch;
    stk_batch_home home;
    stk_batch_note notes[3] = {{.id = "made/1"}, {.id = "made#2", .masked = true}, {.id = ""}};
    make_batch(&m, STK_LAYOUT_PADDED, STK_TARGETS_HF, STK_PIXELS_UINT8, 10);
    batch_of(&batch, &home, &m, notes);
    stk_batch_info info;
    stk_batch_info_get(&batch, &info);
    CHECK_INT(info.tokens, 13);
    CHECK_INT(info.visual_tokens, 4);
    CHECK_INT(info.loss_tokens, 2);
    CHECK_INT(stk_batch_field_count(&batch), 8);
    CHECK_STR(stk_batch_field_at(&batch, 0).name, "attention_mask");
    CHECK(stk_batch_field_at(&batch, 8).name == NULL && stk_batch_field(&batch, "nonsense").name == NULL);
    stk_batch *held = &batch, *second = &batch;
    stk_batch_retain(second);
    stk_batch_release(&held);
    CHECK(held == NULL);
    CHECK_INT(homecomings, 0);
    stk_batch_release(&second);
    CHECK_INT(homecomings, 1);
    stk_batch_release(&second);
    stk_free(m.slot);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(positions_of_an_image_between_texts), TEST(positions_of_a_second_image_are_a_grid),
              TEST(positions_of_video_grids), TEST(a_padded_batch_for_hf),
              TEST(a_flat_batch_for_hf_counts_text_in_its_first_plane), TEST(shifted_targets_never_cross_samples),
              TEST(positions_are_plain_or_of_three_planes_on_demand),
              TEST(a_masked_sample_keeps_its_tokens_and_loses_its_labels), TEST(tokens_that_were_not_planned_are_refused),
              TEST(row_digests_do_not_depend_on_the_form), TEST(a_batch_comes_home_after_its_last_release));
}
