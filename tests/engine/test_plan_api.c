/* test_plan_api.c - what a plan says of a run before it starts is what the run then does. */
#include <stoker/plan.h>

#include "base/memory.h"
#include "tiny_set.h"

static char folder[300];
static stk_options options;

static void set(const char *name, const char *value)
{
    stk_error err;
    CHECK_OK(stk_options_set(&options, name, value, &err), err);
}

static void setup(void)
{
    if (!folder[0]) tiny_folder(folder, "plan");
    stk_options_deinit(&options);
    proof_options(&options, folder);
}

/* Short rows, each a micro-batch; steps and windows cross the ends of epochs. */
static void setup_packed(void)
{
    setup();
    set("layout", "packed");
    set("row_tokens", "192");
    set("window", "16");
    set("batch", "3");
    set("micro_batch", "1");
    set("epochs", "3");
}

static stk_plan_view *open_plan(uint32_t world)
{
    stk_plan_view *view = NULL;
    stk_error err;
    CHECK_OK(stk_plan_open(&view, &options, world, NULL, &err), err);
    CHECK(view != NULL);
    return view;
}

/* --- steps --- */

/* Row by row, what `plan --step` lists is what `replay` makes. */
static void compare_with_batches(stk_plan_view *view, uint64_t step, uint32_t world)
{
    stk_error err;
    stk_plan_step sums;
    CHECK_OK(stk_plan_load_step(view, step, &sums, &err), err);
    size_t at = 0;
    uint64_t tokens = 0, supervised = 0, images = 0, room = 0;
    uint32_t rank = 0, micro = 0;
    while (rank < world) {
        stk_batch *batch = NULL;
        stk_batch_info info;
        CHECK_OK(stk_replay(&batch, &options, step, rank, world, micro, NULL, &err), err);
        stk_batch_info_get(batch, &info);
        for (size_t i = 0; i < stk_batch_sample_count(batch); i++, at++) {
            stk_batch_sample made;
            stk_plan_sample planned;
            char id[96];
            CHECK(at < stk_plan_sample_count(view));
            stk_batch_sample_at(batch, i, &made);
            stk_plan_sample_at(view, at, &planned);
            CHECK_OK(stk_plan_sample_id(view, at, id, &err), err);
            CHECK_STR(id, made.id);
            CHECK_INT(planned.rank, rank);
            CHECK_INT(planned.micro, micro);
            CHECK_INT(planned.row, made.row);
            CHECK_INT(planned.offset, made.offset);
            CHECK_INT(planned.tokens, made.tokens);
            CHECK_INT(planned.visual_tokens, made.visual_tokens);
            CHECK_INT(planned.filler, made.filler);
            CHECK_INT(planned.step_row, made.step_row);
            CHECK_INT(planned.record, made.record);
            CHECK_INT(planned.line, made.line);
            if (!made.filler) CHECK_STR(planned.set, made.set);
        }
        CHECK_INT(info.step_loss_tokens, sums.supervised_tokens);
        CHECK_INT(info.epoch, sums.epoch);
        tokens += info.tokens;
        supervised += info.loss_tokens;
        images += info.images;
        room += (uint64_t)stk_batch_field(batch, "input_ids").shape[1];
        if (++micro == info.micro_count) {
            micro = 0;
            rank++;
        }
        stk_batch_release(&batch);
    }
    CHECK_INT(at, stk_plan_sample_count(view));
    CHECK_INT(tokens, sums.tokens);
    CHECK_INT(supervised, sums.supervised_tokens);
    CHECK_INT(images, sums.images);
    CHECK_INT(room, sums.room_tokens + 192 * sums.filler_rows);
}

static void a_planned_step_is_the_step_that_is_made(void)
{
    setup_packed();
    for (uint32_t world = 1; world <= 2; world++) {
        stk_plan_view *view = open_plan(world);
        stk_plan_info info;
        stk_plan_info_get(view, &info);
        CHECK(info.steps > 6);
        CHECK(info.packed);
        compare_with_batches(view, 5, world);
        compare_with_batches(view, info.steps - 1, world);
        compare_with_batches(view, 0, world);
        stk_plan_close(&view);
        CHECK(view == NULL);
    }
}

static void a_step_behind_the_end_is_refused(void)
{
    setup();
    stk_plan_view *view = open_plan(2);
    stk_error err;
    CHECK_OK(stk_plan_load_step(view, 12, NULL, &err), err);
    CHECK(stk_plan_sample_count(view) > 0);
    CHECK_INT(stk_plan_load_step(view, 13, NULL, &err), STK_ERR_USAGE);
    CHECK_HAS(err.message, "13 steps");
    CHECK_INT(stk_plan_sample_count(view), 0);
    stk_plan_close(&view);
    stk_plan_close(&view); /* of nothing */
}

static void ranks_that_cannot_be_are_refused_at_open(void)
{
    setup();
    set("uneven", "error");
    stk_plan_view *view = NULL;
    stk_error err;
    CHECK_INT(stk_plan_open(&view, &options, 3, NULL, &err), STK_ERR_OPTION);
    CHECK(view == NULL);
    CHECK_HAS(err.message, "3 ranks");
}

/* --- sums --- */

typedef struct heard {
    stk_plan_view *view; /* a second one, which gives each step by itself */
    uint64_t next, stop_at, samples, most_supervised;
    stk_u128 most, sum, most_unbalanced;
    uint64_t room;
} heard;

static bool hear_step(void *context, const stk_plan_step *step)
{
    heard *const h = context;
    stk_plan_step alone;
    stk_error err;
    CHECK_INT(step->step, h->next);
    h->next++;
    if (h->view) {
        CHECK_OK(stk_plan_load_step(h->view, step->step, &alone, &err), err);
        CHECK(memcmp(&alone, step, sizeof alone) == 0);
    }
    h->samples += step->samples;
    h->room += step->room_tokens;
    h->most += step->costs.most_all;
    h->sum += step->costs.sum_all;
    h->most_unbalanced += step->unbalanced.most_all;
    CHECK_INT(step->costs.sum_all, step->unbalanced.sum_all);
    if (step->supervised_tokens > h->most_supervised) h->most_supervised = step->supervised_tokens;
    return h->next != h->stop_at;
}

/* Invariant 1: the number of threads changes nothing, also of steps in several blocks. */
static void sums_are_those_of_the_steps_whatever_the_threads(void)
{
    static const char *const workers[] = {"inline", "1", "3"};
    stk_plan_counts first;
    for (int i = 0; i < 3; i++) {
        setup_packed();
        set("workers", workers[i]);
        set("epochs", "4000");
        stk_plan_view *view = open_plan(2);
        heard h = {.view = i == 1 ? open_plan(2) : NULL};
        const stk_plan_listener listener = {.step = hear_step, .context = &h};
        stk_plan_counts counts;
        stk_plan_set_counts of_set;
        stk_error err;
        memset(&counts, 0, sizeof counts);
        CHECK_OK(stk_plan_sum(view, &listener, &counts, &err), err);
        if (i == 0) first = counts;
        CHECK_INT(counts.steps, h.next);
        CHECK_MSG(counts.steps > 2 * 64 * 64, "%d", (int)counts.steps); /* several blocks */
        CHECK_INT(counts.samples, 4000 * TINY_RECORDS);
        CHECK_INT(counts.samples, h.samples);
        CHECK_INT(counts.room_tokens, h.room);
        CHECK_INT(counts.step_supervised_tokens.most, h.most_supervised);
        CHECK(counts.balanced.all == (double)h.most * 2 / (double)h.sum);
        CHECK(counts.unbalanced.all == (double)h.most_unbalanced * 2 / (double)h.sum);
        CHECK(counts.balanced.all < counts.unbalanced.all);
        CHECK(counts.balanced.all >= 1 && counts.worst_balanced.all >= counts.balanced.all);
        CHECK(counts.least_cost > 0 && counts.least_cost < 1 && counts.most_cost > 1);
        CHECK(memcmp(&first, &counts, sizeof counts) == 0);
        stk_plan_set_counts_at(view, 0, &of_set);
        CHECK_STR(of_set.name, "set");
        CHECK_INT(of_set.records, TINY_RECORDS);
        CHECK_INT(of_set.samples, counts.samples);
        CHECK_INT(of_set.tokens, counts.tokens);
        CHECK_INT(of_set.images, counts.images);
        stk_plan_close(&view);
        stk_plan_close(&h.view);
    }
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void supervised_tokens_of_steps_have_their_median(void)
{
    setup();
    stk_plan_view *view = open_plan(1);
    uint64_t each[13];
    stk_error err;
    for (uint64_t s = 0; s < 13; s++) {
        stk_plan_step sums;
        CHECK_OK(stk_plan_load_step(view, s, &sums, &err), err);
        each[s] = sums.supervised_tokens;
    }
    qsort(each, 13, sizeof *each, by_value);
    stk_plan_counts counts;
    CHECK_OK(stk_plan_sum(view, NULL, &counts, &err), err);
    CHECK_INT(counts.step_supervised_tokens.least, each[0]);
    CHECK_INT(counts.step_supervised_tokens.median, each[6]);
    CHECK_INT(counts.step_supervised_tokens.most, each[12]);
    CHECK(each[0] < each[12]);
    CHECK(counts.epoch_steps == 6.5);
    CHECK_INT(counts.rows, 52);
    stk_plan_close(&view);
}

static void the_steps_of_an_epoch_follow_the_schedule(void)
{
    setup();
    set("batch", "[[0, 2], [5, 4], [6, 8]]"); /* 10 rows, 4 rows, 12 of 8 a step */
    stk_plan_view *view = open_plan(1);
    stk_plan_info info;
    stk_plan_info_get(view, &info);
    CHECK(info.epoch_steps == 7.5);
    stk_plan_close(&view);
}

static void a_listener_may_stop_the_sum(void)
{
    setup();
    stk_plan_view *view = open_plan(1);
    heard h = {.stop_at = 3};
    const stk_plan_listener listener = {.step = hear_step, .context = &h};
    stk_plan_counts counts;
    stk_error err;
    CHECK_INT(stk_plan_sum(view, &listener, &counts, &err), STK_ERR_INTERRUPTED);
    CHECK_INT(h.next, 3);
    CHECK_INT(counts.samples, 0);
    CHECK_OK(stk_plan_sum(view, NULL, &counts, &err), err);
    CHECK_INT(counts.samples, 2 * TINY_RECORDS);
    stk_plan_close(&view);
}

/* A sum takes no more memory for a longer run than its list of steps, which is one piece. */
static void a_longer_run_takes_no_more_memory(void)
{
    uint64_t allocations[2];
    for (int i = 0; i < 2; i++) {
        setup();
        set("workers", "inline");
        set("epochs", i ? "1000" : "10");
        stk_plan_view *view = open_plan(2);
        stk_plan_counts counts;
        stk_error err;
        const uint64_t before = stk_alloc_count();
        CHECK_OK(stk_plan_sum(view, NULL, &counts, &err), err);
        allocations[i] = stk_alloc_count() - before;
        CHECK_INT(counts.steps, i ? 6500 : 65);
        stk_plan_close(&view);
    }
    CHECK_INT(allocations[1], allocations[0]);
}

/* --- data sets --- */

static void passes_and_records_of_each_set_are_counted(void)
{
    setup();
    proof_config(folder, TINY_OPTIONS);
    char path[600];
    snprintf(path, sizeof path, "%s/two.yaml", folder);
    char text[4096];
    snprintf(text, sizeof text, "cat '%s/run.yaml' > '%s' && sed -i 's/^  - .*/  - {name: a, path: set.jsonl, epochs: 1.5, where: images == 0}\\n"
                                "  - {name: b, path: set.jsonl, first: 4, epochs: 3}/' '%s'", folder, path, path);
    CHECK(system(text) == 0);
    stk_options_deinit(&options);
    stk_error err;
    CHECK_OK(stk_options_read(&options, path, &err), err);
    stk_plan_view *view = open_plan(1);
    stk_plan_counts counts;
    stk_plan_set_counts a, b;
    stk_plan_set_counts_at(view, 1, &b);
    CHECK_STR(b.name, "b");
    CHECK_INT(b.records, 0); /* not yet counted */
    CHECK_OK(stk_plan_sum(view, NULL, &counts, &err), err);
    stk_plan_set_counts_at(view, 0, &a);
    stk_plan_set_counts_at(view, 1, &b);
    CHECK(a.records > 2);
    CHECK_INT(a.images, 0);
    CHECK_INT(a.samples, 3 * a.records); /* two epochs */
    CHECK_INT(b.records, 4);
    CHECK_INT(b.samples, 24);
    CHECK_INT(counts.samples, a.samples + b.samples);
    CHECK_INT(counts.tokens, a.tokens + b.tokens);
    CHECK_INT(counts.supervised_tokens, a.supervised_tokens + b.supervised_tokens);
    CHECK_INT(counts.not_selected, (TINY_RECORDS - a.records) + (TINY_RECORDS - 4));
    stk_plan_close(&view);
}

/* What the index calls usable takes part, by the limit of this run. */
static uint64_t usable_by_the_index(void)
{
    stk_index_report *report = NULL;
    stk_error err;
    CHECK_OK(stk_index_build(&report, &options, NULL, &err), err);
    const uint64_t usable = stk_index_report_at(report, 0)->usable;
    stk_index_report_destroy(report);
    return usable;
}

/* `limit`, of 48 tokens, is over less than some samples have. */
static void expect_too_long(const char *limit)
{
    set("min_pixels", "1024");
    set("errors.unusable", "1");
    set(limit, "48");
    stk_plan_counts counts;
    stk_plan_set_counts dropped, shrunk;
    stk_error err;
    stk_plan_view *view = open_plan(1);
    CHECK_OK(stk_plan_sum(view, NULL, &counts, &err), err);
    stk_plan_set_counts_at(view, 0, &dropped);
    stk_plan_close(&view);
    CHECK(dropped.overlong_records > 0);
    CHECK_INT(dropped.overlong_records + dropped.records, TINY_RECORDS);
    CHECK_INT(dropped.shrunk_records, 0);
    CHECK_INT(usable_by_the_index(), dropped.records);
    CHECK_INT(counts.samples, dropped.records * (uint64_t)options.epochs);

    set("overlong", "shrink");
    view = open_plan(1);
    CHECK_OK(stk_plan_sum(view, NULL, &counts, &err), err);
    stk_plan_set_counts_at(view, 0, &shrunk);
    stk_plan_close(&view);
    CHECK(shrunk.shrunk_records > 0);
    CHECK_INT(shrunk.shrunk_records + shrunk.overlong_records, dropped.overlong_records);
    CHECK_INT(shrunk.records, dropped.records + shrunk.shrunk_records);
    CHECK_INT(usable_by_the_index(), shrunk.records);
}

static void samples_that_are_too_long_are_counted(void)
{
    setup();
    expect_too_long("max_tokens");
    setup();
    expect_too_long("pad_to");
    setup_packed();
    expect_too_long("row_tokens");
}

/* Bytes are those of the files that the samples name, each time they are named. */
static void bytes_to_fetch_are_those_of_the_files(void)
{
    setup();
    set("epochs", "1");
    static tiny_run run;
    stk_plan_counts counts;
    stk_error err;
    CHECK_OK(stk_plan_count(&counts, &options, 1, &err), err);
    tiny_run_from(&run, &options, 1, NULL);
    CHECK_INT(counts.media_bytes, run.metrics.fetch.bytes);
    CHECK(counts.record_bytes > 0);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_planned_step_is_the_step_that_is_made), TEST(a_step_behind_the_end_is_refused),
              TEST(ranks_that_cannot_be_are_refused_at_open), TEST(sums_are_those_of_the_steps_whatever_the_threads),
              TEST(supervised_tokens_of_steps_have_their_median), TEST(the_steps_of_an_epoch_follow_the_schedule),
              TEST(a_listener_may_stop_the_sum), TEST(a_longer_run_takes_no_more_memory),
              TEST(passes_and_records_of_each_set_are_counted), TEST(samples_that_are_too_long_are_counted),
              TEST(bytes_to_fetch_are_those_of_the_files));
}
