/* cmd_replay.c - `stoker replay`: the batch of a step and rank, anywhere. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "command.h"

typedef struct replay {
    const invocation *in;
    int64_t step, world;
    uint8_t (*row)[16]; /* row digests of the step, by row */
    bool *row_known;
    bool rows_refused; /* this form of batch has no row digests */
    uint64_t row_count;
} replay;

static void print_digest(const char *name, const uint8_t digest[16])
{
    char text[33];
    hex_text(digest, text);
    printf("%s %s\n", name, text);
}

/* Keep the digests of a micro-batch's rows under their numbers in the step. */
static int keep_rows(replay *r, const stk_batch *batch)
{
    stk_error err;
    size_t count = stk_batch_sample_count(batch);
    uint8_t(*const digest)[16] = calloc(count + 1, 16);
    if (!digest) return EXIT_FAILED;
    const stk_status status = stk_batch_row_digests(batch, digest, &count, &err);
    uint32_t last = UINT32_MAX;
    for (size_t i = 0, made = 0; status == STK_OK && i < stk_batch_sample_count(batch); i++) {
        stk_batch_sample s;
        stk_batch_sample_at(batch, i, &s);
        if (s.filler || s.step_row == last || s.step_row >= r->row_count) continue;
        last = s.step_row;
        memcpy(r->row[last], digest[made++], 16);
        r->row_known[last] = true;
    }
    free(digest);
    /* Forms of batches that have no row digests (docs/determinism.md): those of the micro-batches stand. */
    if (status == STK_ERR_USAGE) {
        if (!r->rows_refused)
            fprintf(stderr, "stoker replay: no digests of rows and step: %s\n", err.message);
        r->rows_refused = true;
        return EXIT_DONE;
    }
    return status < 0 ? fail_with(&err) : EXIT_DONE;
}

static void print_batch(const stk_batch *batch, const stk_batch_info *info)
{
    printf("step %" PRIu64 ", rank %u of %u, micro-batch %u of %u: %" PRIu64 " tokens (%" PRIu64
           " visual, %" PRIu64 " supervised; %" PRIu64 " in the step), %" PRIu64 " images\n",
           info->step, info->rank, info->world, info->micro, info->micro_count, info->tokens,
           info->visual_tokens, info->loss_tokens, info->step_loss_tokens, info->images);
    for (size_t i = 0; i < stk_batch_sample_count(batch); i++) {
        stk_batch_sample s;
        stk_batch_sample_at(batch, i, &s);
        printf("  row %3u at %6u  %6u tokens  %s%s%s\n", s.row, s.offset, s.tokens,
               s.filler ? "(filler)" : s.id, s.masked ? "  masked: " : "", s.reason);
    }
    for (size_t i = 0; i < stk_batch_field_count(batch); i++) {
        const stk_view v = stk_batch_field_at(batch, i);
        printf("  %-18s %-8s [", v.name, stk_dtype_name(v.dtype));
        for (int d = 0; d < v.ndim; d++) printf("%s%" PRId64, d ? ", " : "", v.shape[d]);
        printf("]\n");
    }
}

/* One micro-batch; *micro_count tells how many its rank has. */
static int replay_one(replay *r, uint32_t rank, uint32_t micro, uint32_t *micro_count)
{
    stk_error err;
    stk_batch *batch;
    const char *const dump = flag_of(r->in, "dump"), *const digest = flag_of(r->in, "digest");
    const stk_index_progress progress = index_progress();
    const stk_status made = stk_replay(&batch, &r->in->options, (uint64_t)r->step, rank, (uint32_t)r->world, micro, &progress, &err);
    live_line_end();
    if (made < 0) return fail_with(&err);
    stk_batch_info info;
    stk_batch_info_get(batch, &info);
    *micro_count = info.micro_count;
    int status = EXIT_DONE;
    if (dump && stk_batch_dump(batch, dump, &err) < 0) status = fail_with(&err);
    if (status == EXIT_DONE && digest) {
        char name[64];
        uint8_t whole[16];
        stk_batch_digest(batch, whole);
        snprintf(name, sizeof name, "micro-batch rank %u micro %u", rank, micro);
        print_digest(name, whole);
        status = keep_rows(r, batch);
    } else if (status == EXIT_DONE && !dump) {
        print_batch(batch, &info);
    }
    stk_batch_release(&batch);
    return status;
}

/* The step's digest, when all of its rows were made. */
static void print_step(const replay *r)
{
    uint64_t rows = 0;
    while (rows < r->row_count && r->row_known[rows]) rows++;
    for (uint64_t i = 0; i < rows; i++) {
        char name[40];
        snprintf(name, sizeof name, "row %" PRIu64, i);
        print_digest(name, r->row[i]);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(r->row, rows * 16));
    print_digest("step", canonical.digest);
}

static int run_replay(const invocation *in)
{
    replay r = {.in = in};
    int64_t rank, micro;
    if (!flag_of(in, "step")) return usage_error(in->command, "--step is missing");
    if (!number_of(in, "step", 0, INT64_MAX, 0, &r.step) ||
        !number_of(in, "world", 1, 1 << 20, 1, &r.world) ||
        !number_of(in, "rank", 0, r.world - 1, -1, &rank) || !number_of(in, "micro", 0, 1 << 20, -1, &micro))
        return EXIT_USAGE;
    r.row_count = (uint64_t)in->options.batch;
    for (size_t i = 0; i < in->options.batch_schedule.count; i++)
        if ((uint64_t)in->options.batch_schedule.rows[i] > r.row_count)
            r.row_count = (uint64_t)in->options.batch_schedule.rows[i];
    r.row = calloc(r.row_count + 1, 16);
    r.row_known = calloc(r.row_count + 1, 1);
    int status = r.row && r.row_known ? EXIT_DONE : EXIT_FAILED;
    for (int64_t k = rank < 0 ? 0 : rank; status == EXIT_DONE && k < (rank < 0 ? r.world : rank + 1); k++) {
        uint32_t micro_count = 1;
        if (micro >= 0)
            status = replay_one(&r, (uint32_t)k, (uint32_t)micro, &micro_count);
        else
            for (uint32_t m = 0; status == EXIT_DONE && m < micro_count; m++) {
                status = replay_one(&r, (uint32_t)k, m, &micro_count);
                if (interrupted()) status = EXIT_INTERRUPTED;
            }
    }
    if (status == EXIT_DONE && flag_of(in, "digest") && rank < 0 && micro < 0 && !r.rows_refused)
        print_step(&r);
    free(r.row);
    free(r.row_known);
    return status;
}

static const flag replay_flags[] = {
    {"step", "S", "the step, from 0"},
    {"world", "N", "ranks of the run; default 1"},
    {"rank", "R", "one rank; default: all"},
    {"micro", "M", "one micro-batch; default: all of the rank"},
    {"dump", "DIR", "write each micro-batch to DIR/step-S.rank-R.micro-M/: one .npy a field, and batch.json"},
    {"digest", NULL,
     "print the digests of the micro-batches; of all ranks also those of the rows and of the step"},
    {0}};

const command replay_command = {.name = "replay",
                                .arguments = "CONFIG",
                                .least = 1,
                                .most = 1,
                                .reads_config = true,
                                .flags = replay_flags,
                                .run = run_replay,
                                .summary = "make the batch of a step and rank again, anywhere"};
