/* test_where.c - expressions over facts: what they mean, what is refused and where, and which records a plan then has. */
#include "test.h"

#include "plan/planner.h"

static bool holds(const char *text, const uint64_t values[STK_WHERE_NUMBER])
{
    static stk_where where;
    stk_error err;
    CHECK_OK(stk_where_parse(&where, text, &err), err);
    return stk_where_holds(&where, values);
}

static const uint64_t values[STK_WHERE_NUMBER] = {
    [STK_WHERE_IMAGES] = 2,      [STK_WHERE_TOKENS] = 1000, [STK_WHERE_TEXT_TOKENS] = 300, [STK_WHERE_VISUAL_TOKENS] = 700,
    [STK_WHERE_SUPERVISED] = 50, [STK_WHERE_WIDTH] = 640,   [STK_WHERE_HEIGHT] = 480,      [STK_WHERE_LINE] = 17};

static void comparisons(void)
{
    static const struct {
        const char *text;
        bool holds;
    } cases[] = {{"images < 2", false},  {"images <= 2", true},  {"images > 2", false},      {"images >= 2", true},
                 {"images == 2", true},  {"images != 2", false}, {"images < 3", true},       {"images > 1", true},
                 {"2<images", false},    {"2 <=images", true},   {"1 < 2", true},            {"width > height", true},
                 {"tokens == 1000", true}, {"text_tokens == 300", true}, {"visual_tokens == 700", true},
                 {"supervised == 50", true}, {"width == 640", true}, {"height == 480", true}, {"line == 17", true},
                 {"tokens < 9223372036854775807", true}, {"\n\timages\r\n>\t0 ", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_MSG(holds(cases[i].text, values) == cases[i].holds, "%s", cases[i].text);
}

/* `not` binds tighter than `and`, which binds tighter than `or`; T and F stand for what holds and does not. */
static void precedence_is_that_of_logic(void)
{
    static const struct {
        const char *form;
        bool holds;
    } cases[] = {{"T or T and F", true},        {"(T or T) and F", false},    {"F and F or T", true},
                 {"F and (F or T)", false},     {"not F and F", false},       {"not (F and F)", true},
                 {"not not T", true},           {"not T or T", true},         {"not (T or T)", false},
                 {"F or F or T", true},         {"T and T and F", false},     {"((T)) and not ((F))", true},
                 {"T and not F and T", true},   {"F or not T or F", false},   {"(F or T) and (T or F)", true},
                 {"T and (F or (T and (F or T)))", true}, {"F or (T and not (F or T))", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400] = "";
        for (const char *c = cases[i].form; *c; c++) {
            const size_t length = strlen(text);
            if (*c == 'T') strcpy(text + length, "images==2");
            else if (*c == 'F') strcpy(text + length, "images!=2");
            else text[length] = *c, text[length + 1] = 0;
        }
        CHECK_MSG(holds(text, values) == cases[i].holds, "%s", cases[i].form);
    }
}

static void refuse(const char *text, const char *column, const char *words)
{
    stk_where where;
    stk_error err;
    CHECK_MSG(stk_where_parse(&where, text, &err) == STK_ERR_OPTION, "%s", text);
    CHECK_HAS(err.message, words);
    if (column[0]) CHECK_HAS(err.message, column);
}

static void what_is_wrong_is_said_with_its_column(void)
{
    refuse("", "column 1:", "the expression ends, and a name or a number");
    refuse("imags > 0", "column 1:", "at \"imags\": no such name: images, tokens");
    refuse("images > ", "column 10:", "a name or a number");
    refuse("images", "column 7:", "one of < <= > >= == !=");
    refuse("images = 1", "column 8:", "equality is written ==");
    refuse("images => 1", "column 8:", "one of <");
    refuse("images > 0 && tokens < 5", "column 12:", "written `and`");
    refuse("images > 0 || tokens < 5", "column 12:", "written `or`");
    refuse("!images > 0", "column 1:", "written `not`");
    refuse("0 < images < 3", "column 12:", "joined by `and`");
    refuse("images > 0 tokens < 5", "column 12:", "`and`, `or` or the end");
    refuse("(images > 0", "column 12:", "not closed");
    refuse("images > 0)", "column 11:", "`and`, `or` or the end");
    refuse("images > 0 and", "column 15:", "a name or a number");
    refuse("and images > 0", "column 1:", "a name or a number");
    refuse("images > or", "column 10:", "a name or a number");
    refuse("tokens < 4k", "column 10:", "digits only");
    refuse("tokens < -4", "column 10:", "negative");
    refuse("tokens < 9223372036854775808", "column 10:", "too large");
    refuse("tokens < 99999999999999999999999", "column 10:", "too large");
    refuse("tokens < 4.5", "column 11:", "`and`, `or` or the end");
    refuse("tokens * 2 < 4", "column 8:", "one of <");
    refuse("images > \xC3\xB6", "column 10:", "\"\xC3\xB6\""); /* whole characters are quoted */
    refuse("Images > 0", "column 1:", "no such name");
}

static void length_and_depth_are_limited(void)
{
    char text[STK_WHERE_TEXT_BYTES + 100];
    memset(text, ' ', sizeof text);
    memcpy(text + STK_WHERE_TEXT_BYTES - 5, "1==1", 5);
    CHECK(holds(text, values));
    memset(text, ' ', sizeof text);
    memcpy(text + STK_WHERE_TEXT_BYTES, "1==1", 5);
    refuse(text, "", "over 4096 bytes");

    for (int open = STK_WHERE_NESTING; open <= STK_WHERE_NESTING + 1; open++) {
        text[0] = 0;
        for (int i = 0; i < open; i++) strcat(text, "1==2 or 1==1 and (");
        strcat(text, "1==1");
        for (int i = 0; i < open; i++) strcat(text, ")");
        if (open == STK_WHERE_NESTING) CHECK(holds(text, values));
        else refuse(text, "column 306:", "nested too deep");
    }
    text[0] = 0;
    for (int i = 0; i <= STK_WHERE_NESTING; i++) strcat(text, "not ");
    strcat(text, "1==1");
    refuse(text, "", "nested too deep");

    /* n comparisons and n - 1 `and`. */
    for (int count = STK_WHERE_OPS / 2; count <= STK_WHERE_OPS / 2 + 1; count++) {
        text[0] = 0;
        for (int i = 0; i < count; i++) strcat(text, i ? " and 1==1" : "1==1");
        if (count == STK_WHERE_OPS / 2) CHECK(holds(text, values));
        else refuse(text, "", "over 128 operations");
    }
}

/* Blanks do not change a program, so they do not change the fingerprint; another number does. */
static void a_program_is_its_meaning(void)
{
    static stk_where a, b;
    stk_error err;
    CHECK_OK(stk_where_parse(&a, "images>0 and not(tokens<5)", &err), err);
    CHECK_OK(stk_where_parse(&b, "  images > 0  and not ( (tokens < 5) ) ", &err), err);
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    CHECK_OK(stk_where_parse(&b, "images>0 and not(tokens<6)", &err), err);
    CHECK(memcmp(&a, &b, sizeof a) != 0);
}

/* --- plans --- */

enum { RECORDS = 60 };
static const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2, .min_px = 65536, .max_px = 16777216, .max_tokens = 5000};
static const char *const manifest_names[] = {"made.jsonl"};

/* Record r has r % 3 images of 640 x 480, lying on their side; every tenth cannot be used, record 25 is over-long. */
static stk_record_facts record[RECORDS];
static stk_text_facts text_facts[RECORDS];
static stk_media_facts media[RECORDS * 2];

static stk_plan_set make_set(const stk_where *where, uint64_t first)
{
    uint64_t media_count = 0;
    for (uint32_t r = 0; r < RECORDS; r++) {
        record[r] = (stk_record_facts){.line = r + 1, .first_media = media_count, .media_count = r % 3,
                                       .reason = r % 10 == 9 ? STK_REASON_TAGS : STK_REASON_NONE};
        text_facts[r] = (stk_text_facts){.token_count = r == 25 ? 6000 : 20 + r + r % 3, .supervised_count = 5};
        for (uint32_t i = 0; i < r % 3; i++)
            media[media_count++] = (stk_media_facts){.width_px = 640, .height_px = 480, .orientation = 6};
    }
    return (stk_plan_set){.name = "made",
                          .facts = {.record = record, .text = text_facts, .media = media, .record_count = RECORDS,
                                    .media_count = media_count, .file = manifest_names, .file_count = 1},
                          .pixels = {.min_px = 65536, .max_px = 16777216}, .where = where, .first = first, .epochs_milli = 1000};
}

static stk_status plan_of(stk_plan **plan, const stk_plan_set *set, stk_error *err)
{
    static const stk_batch_piece one = {0, 1};
    const stk_plan_config config = {.set = set, .set_count = 1, .model = &model, .batch = &one, .batch_count = 1, .epochs = 1,
                                    .max_tokens = model.max_tokens, .layout = STK_LAYOUT_PADDED, .pad_multiple = 1,
                                    .row_tokens = 1, .segment_multiple = 1, .window = 16, .threads = 1};
    return stk_plan_create(plan, &config, err);
}

/* The plan has exactly the records that wanted says, in their order. */
static void expect_plan(const char *text, uint64_t first, bool (*wanted)(uint32_t r))
{
    static stk_where where;
    stk_error err;
    if (text) CHECK_OK(stk_where_parse(&where, text, &err), err);
    const stk_plan_set set = make_set(text ? &where : NULL, first);
    stk_plan *plan;
    CHECK_OK(plan_of(&plan, &set, &err), err);
    stk_plan_scratch *scratch;
    CHECK_OK(stk_plan_scratch_create(&scratch, plan, &err), err);
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    uint64_t step = 0, usable = 0;
    for (uint32_t r = 0; r < RECORDS; r++) {
        if (r % 10 == 9 || r == 25) continue;
        usable++;
        if (!wanted(r) || (first && step == first)) continue;
        stk_recipe recipe;
        stk_pool_reset(&pool);
        CHECK_OK(stk_plan_recipe(plan, scratch, step++, 0, 1, 0, &pool, &recipe, &err), err);
        CHECK_INT(recipe.sample[0].record_index, r);
    }
    CHECK_INT(stk_plan_epoch_rows(plan, 0), step);
    CHECK_INT(stk_plan_not_selected(plan), usable - step);
    stk_pool_deinit(&pool);
    stk_plan_scratch_destroy(scratch);
    stk_plan_destroy(plan);
}

static bool every(uint32_t r)
{
    (void)r;
    return true;
}

static bool with_images(uint32_t r)
{
    return r % 3 > 0;
}

static bool bare(uint32_t r)
{
    return r % 3 == 0;
}

static bool late_and_bare(uint32_t r)
{
    return bare(r) && r >= 30;
}

/* An image of 640 x 480 has 300 visual tokens. */
static bool short_ones(uint32_t r)
{
    return bare(r) && 20 + r < 60;
}

static void a_plan_has_the_selected_records_only(void)
{
    expect_plan(NULL, 0, every);
    expect_plan("images > 0", 0, with_images);
    expect_plan("line > 30 and visual_tokens == 0", 0, late_and_bare);
    expect_plan("line > 30 and text_tokens == tokens", 0, late_and_bare);
    /* Upright: these images are turned by their orientation. */
    expect_plan("width == 480 and height == 640", 0, with_images);
    expect_plan("width == 0", 0, bare);
    expect_plan("tokens < 60", 0, short_ones);
}

/* `first` counts what is usable and what `where` lets pass. */
static void first_keeps_the_first_in_order(void)
{
    expect_plan(NULL, 1, every);
    expect_plan(NULL, 20, every);
    expect_plan(NULL, 1000, every);
    expect_plan("images > 0", 7, with_images);
}

static void nothing_left_is_an_error(void)
{
    static stk_where where;
    stk_error err;
    stk_plan *plan;
    CHECK_OK(stk_where_parse(&where, "images > 5", &err), err);
    const stk_plan_set set = make_set(&where, 0);
    CHECK_INT(plan_of(&plan, &set, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "where leaves none of 53 usable records");
}

/* overlong: error is about records that would be trained. */
static void a_record_left_out_is_not_too_long(void)
{
    static stk_where where;
    stk_error err;
    stk_plan *plan;
    stk_plan_set set = make_set(NULL, 0);
    set.overlong_is_error = true;
    CHECK_INT(plan_of(&plan, &set, &err), STK_ERR_RECORD);
    CHECK_INT(err.line, 26);
    CHECK_OK(stk_where_parse(&where, "tokens <= 5000", &err), err);
    set.where = &where;
    CHECK_OK(plan_of(&plan, &set, &err), err);
    CHECK_INT(stk_plan_epoch_rows(plan, 0), 53);
    CHECK_INT(stk_plan_not_selected(plan), 0); /* it was not usable either */
    stk_plan_destroy(plan);
    set.where = NULL;
    set.first = 10;
    CHECK_OK(plan_of(&plan, &set, &err), err);
    CHECK_INT(stk_plan_epoch_rows(plan, 0), 10);
    stk_plan_destroy(plan);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(comparisons), TEST(precedence_is_that_of_logic), TEST(what_is_wrong_is_said_with_its_column),
              TEST(length_and_depth_are_limited), TEST(a_program_is_its_meaning), TEST(a_plan_has_the_selected_records_only),
              TEST(first_keeps_the_first_in_order), TEST(nothing_left_is_an_error), TEST(a_record_left_out_is_not_too_long));
}
