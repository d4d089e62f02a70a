/* test_server.c - what an engine process gives to its clients is what an engine in process gives, whoever reads it and when. */
#include "served.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/memory.h"
#include "engine/client_silence.h"
#include "engine/same_state.h"

static tiny_run calm;

static void every_rank_gets_what_it_gets_in_process(void)
{
    stk_options options;
    served_options(&options, "ranks", "micro_batch: 1\nprefetch: 2\n");
    served_setup();
    for (uint32_t world = 1; world <= 4; world *= 2) {
        tiny_run_from(&calm, &options, world, NULL);
        CHECK_INT(calm.status, STK_END);
        char run[20];
        snprintf(run, sizeof run, "ranks-%u", world);
        pid_t child[4];
        for (uint32_t r = 0; r < world; r++) {
            fflush(NULL);
            child[r] = fork();
            CHECK(child[r] >= 0);
            if (child[r] == 0) {
                stk_client *client = served_open(&options, run, r, world, 1, NULL);
                CHECK_INT(stk_client_count(client), calm.count / world);
                for (size_t i = r; i < calm.count; i += world) served_expect_next(client, calm.digest[i], run);
                served_expect_end_of_plan(client);
                stk_client_close(&client);
                _exit(0);
            }
        }
        for (uint32_t r = 0; r < world; r++) {
            int how;
            CHECK(waitpid(child[r], &how, 0) == child[r]);
            CHECK_MSG(WIFEXITED(how) && WEXITSTATUS(how) == 0, "rank %u of %u", r, world);
        }
    }
    stk_options_deinit(&options);
}


/* The options of a run of one rank in micro-batches of one row, and what they give. */
static stk_options one_rank(const char *name, const char *more)
{
    stk_options options;
    char text[300];
    snprintf(text, sizeof text, "micro_batch: 1\nprefetch: 2\n%s", more);
    served_options(&options, name, text);
    tiny_run_from(&calm, &options, 1, NULL);
    CHECK_INT(calm.status, STK_END);
    return options;
}

/* Issue of pipeline stages: the last one lags behind the first, by no more than is kept. */
static void readers_of_a_rank_read_the_same_slots_at_different_times(void)
{
    stk_options options = one_rank("readers", "keep: 4\n");
    stk_client *first = served_open(&options, "readers", 0, 1, 2, NULL), *second = served_open(&options, "readers", 0, 1, 2, NULL);
    for (size_t i = 0; i < calm.count; i += 4) {
        const size_t end = i + 4 < calm.count ? i + 4 : calm.count;
        for (size_t k = i; k < end; k++) served_expect_next(first, calm.digest[k], "first");
        for (size_t k = i; k < end; k++) served_expect_next(second, calm.digest[k], "second");
    }
    served_expect_end_of_plan(first);
    served_expect_end_of_plan(second);
    stk_client_close(&first);
    stk_client_close(&second);
    stk_options_deinit(&options);
}

/* Whether an address lies in a mapping of an arena, which nobody here may write. */
static bool is_in_arena(const void *address)
{
    FILE *const maps = fopen("/proc/self/maps", "re");
    char line[600];
    bool found = false;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || (unsigned long)address < from || (unsigned long)address >= to) continue;
        found = strstr(line, "stoker-arena") && rights[1] == '-';
    }
    if (maps) fclose(maps);
    return found;
}

static void a_reader_may_take_some_fields_which_lie_in_the_arena(void)
{
    stk_options options = one_rank("fields", "keep: 3\n");
    const char *const wanted[] = {"labels", "pixel_bytes"};
    stk_attach attach = {.run = "fields", .world = 1, .readers = 2, .fields = wanted, .field_count = 2};
    stk_client *all = served_open(&options, "fields", 0, 1, 2, NULL), *some;
    stk_batch *batch, *part;
    stk_error err;
    CHECK_OK(stk_client_open(&some, &options, &attach, NULL, &err), err);
    for (size_t i = 0; i < 8; i++) {
        CHECK_OK(stk_client_next(all, &batch, STK_FOREVER, &err), err);
        CHECK_OK(stk_client_next(some, &part, STK_FOREVER, &err), err);
        const stk_view labels = stk_batch_field(batch, "labels"), same = stk_batch_field(part, "labels");
        const stk_view pixels = stk_batch_field(part, "pixel_bytes");
        CHECK(stk_batch_field(part, "input_ids").name == NULL && stk_batch_field(batch, "input_ids").name != NULL);
        CHECK_INT(stk_batch_field_count(part), 1 + (pixels.name != NULL));
        CHECK(same.size_bytes == labels.size_bytes && memcmp(same.data, labels.data, labels.size_bytes) == 0);
        CHECK(is_in_arena(labels.data) && is_in_arena(same.data));
        CHECK(!pixels.name || is_in_arena(pixels.data));
        stk_batch_info info, other;
        stk_batch_info_get(batch, &info);
        stk_batch_info_get(part, &other);
        CHECK(info.tokens == other.tokens && info.images == other.images && info.loss_tokens == other.loss_tokens);
        stk_batch_release(&batch);
        stk_batch_release(&part);
    }
    attach.fields = (const char *const[]){"pixels"};
    attach.field_count = 1;
    stk_client *none;
    CHECK_INT(stk_client_open(&none, &options, &attach, NULL, &err), STK_ERR_USAGE);
    CHECK_HAS(err.message, "\"pixels\" is no field");
    stk_client_close(&all);
    stk_client_close(&some);
    stk_options_deinit(&options);
}

/* Samples, states and row digests, not only tensors: as in process. */
static void all_that_belongs_to_a_batch_comes_along(void)
{
    stk_options options = one_rank("whole", "layout: packed\nrow_tokens: 2048\n");
    stk_client *client = served_open(&options, "whole", 0, 1, 1, NULL);
    stk_loader *loader;
    stk_error err;
    CHECK_OK(stk_loader_open(&loader, &options, 0, 1, &err), err);
    stk_batch *batch, *here;
    size_t count = 0;
    while (stk_loader_next(loader, &here, STK_FOREVER, &err) == STK_OK) {
        CHECK_OK(stk_client_next(client, &batch, STK_FOREVER, &err), err);
        CHECK_INT(stk_batch_sample_count(batch), stk_batch_sample_count(here));
        for (size_t i = 0; i < stk_batch_sample_count(here); i++) {
            stk_batch_sample a = {0}, b = {0};
            stk_batch_sample_at(here, i, &a);
            stk_batch_sample_at(batch, i, &b);
            CHECK_STR(b.id, a.id);
            CHECK_STR(b.set, a.set);
            CHECK(a.record == b.record && a.line == b.line && a.row == b.row && a.offset == b.offset && a.tokens == b.tokens &&
                  a.visual_tokens == b.visual_tokens && a.filler == b.filler && a.step_row == b.step_row);
        }
        uint8_t rows[64][16], rows_here[64][16];
        size_t row_count = 64, row_count_here = 64;
        CHECK_OK(stk_batch_row_digests(batch, rows, &row_count, &err), err);
        CHECK_OK(stk_batch_row_digests(here, rows_here, &row_count_here, &err), err);
        CHECK(row_count == row_count_here && memcmp(rows, rows_here, 16 * row_count) == 0);
        stk_state state, state_here;
        stk_batch_state(batch, &state);
        stk_batch_state(here, &state_here);
        CHECK(same_state(&state, &state_here));
        stk_client_state(client, &state);
        CHECK(same_state(&state, &state_here));
        stk_batch_release(&batch);
        stk_batch_release(&here);
        count++;
    }
    CHECK(count > 3);
    stk_metrics metrics;
    stk_client_metrics(client, &metrics);
    CHECK_INT(metrics.micro_batches, count);
    stk_loader_close(&loader);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

/* Invariant 6, over processes: what the trainer holds is valid whatever ends first. */
static void batches_outlive_client_and_engine(void)
{
    stk_options options = one_rank("close", "keep: 4\n");
    stk_client *client = served_open(&options, "close", 0, 1, 1, NULL);
    stk_batch *batch[4];
    stk_error err;
    uint8_t digest[16];
    for (int i = 0; i < 4; i++) CHECK_OK(stk_client_next(client, &batch[i], STK_FOREVER, &err), err);
    stk_batch_release(&batch[2]);
    stk_client_close(&client);
    CHECK(client == NULL);
    stk_batch_release(&batch[0]);
    served_kill_engine("close");
    for (int i = 1; i < 4; i += 2) {
        stk_batch_digest(batch[i], digest);
        CHECK(memcmp(digest, calm.digest[i], 16) == 0);
        stk_batch_release(&batch[i]);
    }
    stk_options_deinit(&options);
}

/* As a variable does that goes on naming the last batch of a loop. */
static void who_holds_a_batch_on_holds_no_engine(void)
{
    stk_options options = one_rank("held", "");
    stk_client *client = served_open(&options, "held", 0, 1, 1, NULL);
    stk_batch *batch;
    stk_error err;
    uint8_t digest[16];
    served_expect_next(client, calm.digest[0], "before");
    CHECK_OK(stk_client_next(client, &batch, STK_FOREVER, &err), err);
    stk_client_close(&client);
    served_expect_end_of_engine("held");
    stk_batch_digest(batch, digest);
    CHECK(memcmp(digest, calm.digest[1], 16) == 0);
    stk_batch_release(&batch);
    stk_options_deinit(&options);
}

/* It stops its threads before it lets go of what others hold. */
static void an_engine_that_is_told_to_stop_leaves_batches_as_they_are(void)
{
    stk_options options = one_rank("told", "keep: 3\n");
    stk_client *client = served_open(&options, "told", 0, 1, 1, NULL);
    stk_batch *batch[3];
    stk_error err;
    uint8_t digest[16];
    for (int i = 0; i < 3; i++) CHECK_OK(stk_client_next(client, &batch[i], STK_FOREVER, &err), err);
    const pid_t engine = served_engine("told");
    CHECK(engine > 0 && kill(engine, SIGTERM) == 0);
    served_expect_end_of_engine("told");
    for (int i = 0; i < 3; i++) {
        stk_batch_digest(batch[i], digest);
        CHECK(memcmp(digest, calm.digest[i], 16) == 0);
        stk_batch_release(&batch[i]);
    }
    served_expect_next(client, calm.digest[3], "of the next engine");
    stk_client_close(&client);
    stk_options_deinit(&options);
}

static void more_than_keep_is_an_error_and_no_hang(void)
{
    stk_options options = one_rank("keep", "keep: 2\n");
    stk_client *client = served_open(&options, "keep", 0, 1, 1, NULL);
    stk_batch *batch[3], *more;
    stk_error err;
    for (int i = 0; i < 3; i++) CHECK_OK(stk_client_next(client, &batch[i], STK_FOREVER, &err), err);
    CHECK_INT(stk_client_next(client, &more, STK_FOREVER, &err), STK_ERR_KEEP);
    CHECK_HAS(err.message, "holds 3 batches, and keep is 2");
    CHECK(more == NULL);
    stk_batch_release(&batch[1]);
    served_expect_next(client, calm.digest[3], "after a release");
    stk_batch_release(&batch[0]);
    stk_batch_release(&batch[2]);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

static void a_slow_reader_is_named(void)
{
    stk_options options = one_rank("slow", "keep: 2\n");
    options.timeout_s = 3; /* so that the first batch comes in time on a busy machine, too */
    stk_client *fast = served_open(&options, "slow", 0, 1, 2, NULL);
    stk_batch *batch;
    stk_error err;
    char words[100];
    /* One that never came: */
    for (int i = 0; i < 3; i++) served_expect_next(fast, calm.digest[i], "fast");
    CHECK_INT(stk_client_next(fast, &batch, 50 * STK_MS, &err), STK_AGAIN);
    CHECK_INT(stk_client_next(fast, &batch, STK_FOREVER, &err), STK_ERR_TIMEOUT);
    CHECK_HAS(err.message, "for a reader of rank 0 that has not come yet, of 2");
    CHECK_INT(stk_client_next(fast, &batch, STK_FOREVER, &err), STK_ERR_TIMEOUT);
    stk_client_close(&fast);
    /* Who starts over behind a failure does not meet it again: */
    fast = served_open(&options, "slow", 0, 1, 2, &calm.state[2]);
    served_expect_next(fast, calm.digest[3], "started over");
    stk_client_close(&fast);
    /* And one that is there: */
    fast = served_open(&options, "slow", 0, 1, 2, NULL);
    stk_client *slow = served_open(&options, "slow", 0, 1, 2, NULL);
    for (int i = 0; i < 3; i++) served_expect_next(fast, calm.digest[i], "fast");
    served_expect_next(slow, calm.digest[0], "slow");
    served_expect_next(fast, calm.digest[3], "fast");
    CHECK_INT(stk_client_next(fast, &batch, STK_FOREVER, &err), STK_ERR_TIMEOUT);
    snprintf(words, sizeof words, "in process %d, which is 3 micro-batches behind", (int)getpid());
    CHECK_HAS(err.message, words);
    /* One that leaves is waited for no more. */
    stk_client_close(&fast);
    served_expect_next(slow, calm.digest[1], "slow");
    stk_client_close(&slow);
    stk_options_deinit(&options);
}

static void read_until_it_fails(stk_client *client, stk_error *err)
{
    stk_batch *batch;
    stk_status status;
    while ((status = stk_client_next(client, &batch, 60 * STK_S, err)) == STK_OK) stk_batch_release(&batch);
    CHECK_INT(status, STK_ERR_TIMEOUT);
}

/* All ranks of a machine share the memory: who waits for another is told for whom, and does not wait for ever. */
static void a_rank_that_is_not_read_is_named(void)
{
    stk_options options = one_rank("idle", "");
    options.timeout_s = 3; /* so that the first batch comes in time on a busy machine, too */
    stk_error err;
    char words[100];
    stk_client *client = served_open(&options, "idle", 0, 2, 1, NULL);
    read_until_it_fails(client, &err);
    CHECK_HAS(err.message, "rank 0 waited 3 s for memory that is kept for rank 1, which no process reads");
    stk_client_close(&client);
    client = served_open(&options, "idle", 0, 2, 1, NULL);
    stk_client *idle = served_open(&options, "idle", 1, 2, 1, NULL);
    read_until_it_fails(client, &err);
    CHECK_HAS(err.message, "rank 0 waited 3 s for memory that is kept for rank 1, which is ");
    snprintf(words, sizeof words, " micro-batches behind, in process %d", (int)getpid());
    CHECK_HAS(err.message, words);
    stk_client_close(&idle);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

static void expect_refused(const stk_options *options, stk_attach attach, stk_status status, const char *words)
{
    stk_client *client;
    stk_error err;
    CHECK_INT(stk_client_open(&client, options, &attach, NULL, &err), status);
    CHECK_HAS(err.message, words);
    CHECK(client == NULL);
}

/* Megatron's layouts put ranks on a machine that do not follow each other. */
static void ranks_of_a_machine_may_have_gaps_between_them(void)
{
    stk_options options;
    served_options(&options, "gaps", "micro_batch: 1\nprefetch: 2\neval:\n  micro_batch: 1\n  data:\n    - {name: held, path: set.jsonl, first: 10}\n");
    tiny_run_from(&calm, &options, 4, NULL);
    static const uint32_t here[] = {3, 1, 3}, others[] = {0, 2, 3};
    stk_client *client[2];
    stk_error err;
    for (uint32_t i = 0; i < 2; i++) {
        const stk_attach attach = {.run = "gaps", .rank = 1 + 2 * i, .world = 4, .node_ranks = here, .node_rank_count = 3};
        CHECK_OK(stk_client_open(&client[i], &options, &attach, NULL, &err), err);
    }
    expect_refused(&options, (stk_attach){.run = "gaps", .rank = 0, .world = 4, .node_ranks = others, .node_rank_count = 3}, STK_ERR_USAGE,
                   "serves ranks 1,3, and this process says 0,2-3");
    for (size_t i = 0; i < calm.count / 4; i++) {
        if (i == 3) served_kill_engine("gaps");
        for (size_t k = 0; k < 2; k++) served_expect_next(client[k], calm.digest[4 * i + 1 + 2 * k], "gaps");
    }
    for (uint32_t i = 0; i < 2; i++) {
        served_expect_end_of_plan(client[i]);
        stk_client_close(&client[i]);
    }
    stk_options_deinit(&options);
}

static void what_differs_from_the_others_is_refused_and_named(void)
{
    stk_options options = one_rank("differs", ""), other = one_rank("differs", "");
    const uint32_t ranks[] = {0, 1}, gap[] = {0, 2};
    stk_client *client = served_open(&options, "differs", 0, 1, 1, NULL);
    const stk_attach same = {.run = "differs", .world = 1};
    other.seed = 4;
    expect_refused(&other, same, STK_ERR_OPTION, "has \"seed: 3\", and this process \"seed: 4\"");
    expect_refused(&options, (stk_attach){.run = "differs", .world = 2}, STK_ERR_USAGE, "a world of 1 ranks, and this process says 2");
    expect_refused(&options, (stk_attach){.run = "differs", .world = 1, .readers = 2}, STK_ERR_USAGE, "has 1 readers a rank");
    expect_refused(&options, same, STK_ERR_USAGE, "rank 0 has 1 readers already");
    expect_refused(&options, (stk_attach){.run = "differs", .rank = 1, .world = 3, .node_ranks = ranks, .node_rank_count = 2}, STK_ERR_USAGE, "world");
    expect_refused(&options, (stk_attach){.run = "differs", .world = 1, .node_ranks = gap, .node_rank_count = 2}, STK_ERR_USAGE, "rank 2 is not in a world of 1");
    expect_refused(&options, (stk_attach){.run = "differs", .rank = 2, .world = 3, .node_ranks = ranks, .node_rank_count = 2}, STK_ERR_USAGE, "not among node_ranks");
    expect_refused(&options, (stk_attach){.run = "a/b", .world = 1}, STK_ERR_USAGE, "cannot name a run");
    expect_refused(&options, (stk_attach){.run = "differs", .world = 1, .split = "eval"}, STK_ERR_OPTION, "no `eval`");
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("SLURM_JOB_ID");
    expect_refused(&options, (stk_attach){.world = 1}, STK_ERR_USAGE, "the run has no name");
    served_expect_next(client, calm.digest[0], "all of that disturbs nobody");
    stk_client_close(&client);
    /* When nobody is left, another configuration is as good. */
    tiny_run_from(&calm, &other, 2, NULL);
    client = served_open(&other, "differs", 0, 2, 1, NULL);
    served_expect_next(client, calm.digest[0], "another run of the same name");
    stk_client_close(&client);
    stk_options_deinit(&options);
    stk_options_deinit(&other);
}

static void what_cannot_be_opened_is_told_as_in_process(void)
{
    stk_options options = one_rank("broken", ""), poor = one_rank("poor", "");
    char path[300];
    served_setup();
    snprintf(path, sizeof path, "%s/broken/set.jsonl", test_folder());
    CHECK(unlink(path) == 0);
    expect_refused(&options, (stk_attach){.run = "broken", .world = 1}, STK_ERR_MANIFEST, "");
    poor.memory_bytes = 2 << 20;
    expect_refused(&poor, (stk_attach){.run = "broken", .world = 1}, STK_ERR_BUDGET, "memory");
    stk_options_deinit(&poor);
    stk_options_deinit(&options);
}

/* An engine that comes up again over other data would make another stream. */
static void what_changed_under_a_run_is_told(void)
{
    stk_options options = one_rank("changed", "");
    char path[300], line[4096];
    stk_batch *batch;
    stk_error err;
    stk_client *client = served_open(&options, "changed", 0, 1, 1, NULL);
    for (size_t i = 0; i < 3; i++) served_expect_next(client, calm.digest[i], "before");
    snprintf(path, sizeof path, "%s/changed/set.jsonl", test_folder());
    FILE *file = fopen(path, "re");
    CHECK(file && fgets(line, sizeof line, file));
    fclose(file);
    file = fopen(path, "ae");
    CHECK(file && fputs(line, file) >= 0 && fclose(file) == 0);
    served_kill_engine("changed");
    CHECK_INT(stk_client_next(client, &batch, 60 * STK_S, &err), STK_ERR_STATE);
    CHECK_HAS(err.message, "set");
    CHECK_INT(stk_client_next(client, &batch, 60 * STK_S, &err), STK_ERR_STATE);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

/* The engine starts with the limits of its first client. */
static void without_memory_to_share_it_says_so(void)
{
    stk_options options = one_rank("memfd", "");
    static struct sock_filter no_memfd[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog filter = {.len = 4, .filter = no_memfd};
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(77);
        expect_refused(&options, (stk_attach){.run = "memfd", .world = 1}, STK_ERR_SYSTEM, "cannot make memory for batches (memfd_create)");
        _exit(0);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how));
    CHECK_MSG(WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 77, "without memfd: %x", (unsigned)how);
    stk_options_deinit(&options);
}

static bool write_word(const char *path, const char *word)
{
    FILE *const file = fopen(path, "we");
    const bool written = file && fputs(word, file) >= 0;
    return file && fclose(file) == 0 && written;
}

/* A mount namespace of this process's own, in which it still is its user. */
static bool leave_mounts(void)
{
    char user[40], group[40];
    snprintf(user, sizeof user, "%u %u 1", geteuid(), geteuid());
    snprintf(group, sizeof group, "%u %u 1", getegid(), getegid());
    if (unshare(CLONE_NEWNS) && (unshare(CLONE_NEWUSER | CLONE_NEWNS) || !write_word("/proc/self/setgroups", "deny") ||
                                 !write_word("/proc/self/uid_map", user) || !write_word("/proc/self/gid_map", group)))
        return false;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* Field report F03.  The engine starts where its first client is. */
static void a_full_dev_shm_is_nothing_to_it(void)
{
    enum { ROOM_BYTES = 16 << 10 };
    static const char filling[ROOM_BYTES];
    stk_options options = one_rank("shm", "keep: 4\n");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (!leave_mounts() || mount("none", "/dev/shm", "tmpfs", 0, "size=16k")) _exit(77);
        FILE *const full = fopen("/dev/shm/full", "we");
        CHECK(full && fwrite(filling, 1, sizeof filling, full) == sizeof filling && fflush(full) == 0);
        CHECK(fputc(0, full) == EOF || (fflush(full) == EOF && errno == ENOSPC));
        stk_client *client = served_open(&options, "shm", 0, 1, 1, NULL);
        stk_batch *batch;
        stk_error err;
        uint8_t digest[16];
        size_t pixels = 0;
        for (size_t i = 0; i < calm.count; i++) {
            CHECK_OK(stk_client_next(client, &batch, STK_FOREVER, &err), err);
            CHECK(batch != NULL);
            pixels += stk_batch_field(batch, "pixel_bytes").size_bytes;
            stk_batch_digest(batch, digest);
            CHECK(memcmp(digest, calm.digest[i], 16) == 0);
            stk_batch_release(&batch);
        }
        CHECK(pixels > 16 * ROOM_BYTES);
        served_expect_end_of_plan(client);
        stk_client_close(&client);
        _exit(0);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how));
    CHECK_MSG(WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 77, "with /dev/shm full: %x", (unsigned)how);
    stk_options_deinit(&options);
}

static void evaluation_comes_from_the_same_engine(void)
{
    stk_options options = one_rank("eval", "eval:\n  micro_batch: 2\n  data:\n    - {name: held, path: set.jsonl, first: 10}\n"), alone;
    served_options(&alone, "eval", "micro_batch: 1\nprefetch: 2\neval:\n  micro_batch: 2\n  data:\n    - {name: held, path: set.jsonl, first: 10}\n");
    stk_error err;
    static tiny_run eval;
    CHECK_OK(stk_options_split(&alone, "eval", &err), err);
    tiny_run_from(&eval, &alone, 1, NULL);
    const stk_attach attach = {.run = "eval", .split = "eval", .world = 1};
    stk_client *train = served_open(&options, "eval", 0, 1, 1, NULL), *client;
    const pid_t engine = served_engine("eval");
    size_t at = 0;
    CHECK_OK(stk_client_open(&client, &options, &attach, NULL, &err), err);
    for (int pass = 0; pass < 3; pass++) {
        served_expect_next(train, calm.digest[at++], "training");
        const size_t end = pass == 1 ? 2 : eval.count; /* one is given up in the middle */
        for (size_t i = 0; i < end; i++) served_expect_next(client, eval.digest[i], "evaluation");
        if (pass != 1) served_expect_end_of_plan(client);
        CHECK_OK(stk_client_rewind(client, &err), err);
    }
    /* An evaluation may have a client of its own each time. */
    stk_client_close(&client);
    for (int pass = 0; pass < 2; pass++) {
        CHECK_OK(stk_client_open(&client, &options, &attach, NULL, &err), err);
        for (size_t i = 0; i < eval.count; i++) served_expect_next(client, eval.digest[i], "a client of its own");
        served_expect_end_of_plan(client);
        stk_client_close(&client);
    }
    served_expect_next(train, calm.digest[at], "training");
    CHECK_INT(served_engine("eval"), engine);
    stk_client_close(&train);
    stk_options_deinit(&options);
    stk_options_deinit(&alone);
}

/* Training goes back to where the client was opened, too. */
static void a_rewind_goes_to_where_the_client_was_opened(void)
{
    stk_options options = one_rank("rewind", "");
    stk_error err;
    stk_client *client = served_open(&options, "rewind", 0, 1, 1, &calm.state[4]);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 5; i < 9; i++) served_expect_next(client, calm.digest[i], "from a state");
        CHECK_OK(stk_client_rewind(client, &err), err);
        stk_state state;
        stk_client_state(client, &state);
        CHECK(same_state(&state, &calm.state[4]));
    }
    stk_client_close(&client);
    stk_options_deinit(&options);
}

static void a_forked_child_is_told_to_open_its_own(void)
{
    stk_options options = one_rank("fork", "");
    stk_client *client = served_open(&options, "fork", 0, 1, 1, NULL);
    stk_batch *batch, *other;
    stk_error err;
    CHECK_OK(stk_client_next(client, &batch, STK_FOREVER, &err), err);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const bool told = stk_client_next(client, &other, 0, &err) == STK_ERR_FORKED;
        stk_batch_release(&batch);
        stk_client_close(&client);
        _exit(told ? 0 : 1);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
    uint8_t digest[16];
    stk_batch_digest(batch, digest);
    CHECK(memcmp(digest, calm.digest[0], 16) == 0);
    stk_batch_release(&batch);
    served_expect_next(client, calm.digest[1], "the child has disturbed nothing");
    stk_client_close(&client);
    stk_options_deinit(&options);
}

/* Children may hold the socket of a client that is closed, and live on. */
static void an_engine_ends_with_its_last_client_though_children_live_on(void)
{
    stk_options options = one_rank("children", "");
    stk_client *client = served_open(&options, "children", 0, 1, 1, NULL);
    served_expect_next(client, calm.digest[0], "before");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    served_expect_next(client, calm.digest[1], "beside a child");
    stk_client_close(&client);
    served_expect_end_of_engine("children");
    CHECK(waitpid(child, NULL, WNOHANG) == 0);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    stk_options_deinit(&options);
}

static void a_folder_that_others_may_enter_is_refused(void)
{
    stk_options options = one_rank("private", "");
    char path[400];
    struct stat info;
    stk_client *client = served_open(&options, "private", 0, 1, 1, NULL);
    snprintf(path, sizeof path, "%s/stoker", served_runtime);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0700 && info.st_uid == geteuid());
    CHECK(chmod(path, 0755) == 0);
    expect_refused(&options, (stk_attach){.run = "private", .world = 1}, STK_ERR_SYSTEM, "not a folder of yours alone");
    CHECK(chmod(path, 0700) == 0);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

/* The budget of CPUs: seen on the threads of the process. */
static void the_engine_keeps_to_its_cpus(void)
{
    cpu_set_t mine;
    CHECK(sched_getaffinity(0, sizeof mine, &mine) == 0);
    int first = 0;
    while (!CPU_ISSET(first, &mine)) first++;
    char more[60], path[300], text[8192];
    snprintf(more, sizeof more, "nice: 7\ncpus: %d\n", first);
    stk_options options = one_rank("cpus", more);
    stk_client *client = served_open(&options, "cpus", 0, 1, 1, NULL);
    served_expect_next(client, calm.digest[0], "on one CPU");
    const pid_t engine = served_engine("cpus");
    snprintf(path, sizeof path, "/proc/%d/task", (int)engine);
    DIR *const tasks = opendir(path);
    int workers = 0;
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)engine, entry->d_name);
        FILE *const file = fopen(path, "re");
        if (!file) continue;
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        if (!strstr(text, "(stk-worker)")) continue;
        int nice = 0, field = 2;
        char *at = strrchr(text, ')');
        while (field++ < 19) at = strchr(at + 1, ' ');
        CHECK(sscanf(at, "%d", &nice) == 1);
        CHECK_INT(nice, 7);
        cpu_set_t theirs;
        CHECK(sched_getaffinity((pid_t)atoi(entry->d_name), sizeof theirs, &theirs) == 0);
        CHECK(CPU_COUNT(&theirs) == 1 && CPU_ISSET(first, &theirs));
        workers++;
    }
    if (tasks) closedir(tasks);
    CHECK(workers > 0);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

/* Invariant 10, at the trainer's end. */
static void in_steady_state_a_client_allocates_nothing(void)
{
    stk_options options = one_rank("steady", "keep: 2\n");
    options.epochs = 20;
    stk_client *client = served_open(&options, "steady", 0, 1, 1, NULL);
    stk_batch *batch[3] = {0};
    stk_error err;
    uint64_t before = 0;
    for (int i = 0; i < 400; i++) {
        if (i == 60) before = stk_alloc_count();
        stk_batch_release(&batch[i % 3]);
        CHECK_OK(stk_client_next(client, &batch[i % 3], STK_FOREVER, &err), err);
        CHECK(batch[i % 3] != NULL);
    }
    CHECK_INT(stk_alloc_count() - before, 0);
    for (int i = 0; i < 3; i++) stk_batch_release(&batch[i]);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

static void a_command_that_does_not_come_up_is_named(void)
{
    stk_options options = one_rank("command", "");
    char command[400];
    served_setup();
    snprintf(command, sizeof command, "%s", getenv("STK_COMMAND"));
    setenv("STK_COMMAND", "/nowhere/stoker", 1);
    expect_refused(&options, (stk_attach){.run = "command", .world = 1}, STK_ERR_SYSTEM, "cannot start the engine process, /nowhere/stoker");
    setenv("STK_COMMAND", "ls", 1); /* complains, and ends */
    expect_refused(&options, (stk_attach){.run = "command", .world = 1}, STK_ERR_SYSTEM, "ls serve ended with status 2: its log ends: ");
    setenv("STK_COMMAND", command, 1);
    stk_options_deinit(&options);
}

static bool give_up(void *context, const char *words)
{
    snprintf(context, 200, "%s", words);
    return false;
}

static void a_client_may_stop_waiting_for_the_engine(void)
{
    stk_options options = one_rank("impatient", "");
    char words[200] = "";
    served_setup();
    fflush(NULL);
    /* Somebody else's engine, which does not answer. */
    const pid_t mute = fork();
    if (mute == 0) {
        stk_server *server;
        stk_error err;
        const stk_serve serve = {.run = "impatient"};
        if (stk_server_open(&server, &serve, &err) < 0) _exit(1);
        for (;;) pause();
    }
    char path[400];
    snprintf(path, sizeof path, "%s/stoker/impatient.sock", served_runtime);
    for (int i = 0; i < 3000 && access(path, F_OK); i++) served_sleep_ms(2);
    served_sleep_ms(20);
    expect_refused(&options, (stk_attach){.run = "impatient", .world = 1, .waiting = give_up, .context = words}, STK_ERR_INTERRUPTED,
                   "stopped while waiting for the engine process to start");
    CHECK_STR(words, "for the engine process to start");
    CHECK(kill(mute, SIGKILL) == 0 && waitpid(mute, NULL, 0) == mute);
    stk_options_deinit(&options);
}

static void expect_stopped(stk_status status, const stk_error *err, const char *words)
{
    CHECK_INT(status, STK_ERR_TIMEOUT);
    CHECK_HAS(err->message, words);
    CHECK_HAS(err->message, "is it stopped?");
}

/* 30 s for users; no test waits so long. */
static void an_engine_that_is_stopped_is_an_error_and_no_hang(void)
{
    stk_options options = one_rank("stopped", "");
    stk_client *client = served_open(&options, "stopped", 0, 1, 1, NULL);
    stk_batch *batch;
    stk_error err;
    served_expect_next(client, calm.digest[0], "before");
    const pid_t engine = served_engine("stopped");
    CHECK(engine > 0 && kill(engine, SIGSTOP) == 0);
    stk_client_limit_silence(client, STK_S);
    for (int k = 0; k < 2; k++) /* lasting */
        expect_stopped(stk_client_next(client, &batch, 60 * STK_S, &err), &err, "the engine of run stopped has said nothing for 1 s");
    CHECK(batch == NULL);
    stk_client_close(&client);
    CHECK(kill(engine, SIGCONT) == 0);
    client = served_open(&options, "stopped", 0, 1, 1, &calm.state[0]);
    CHECK_INT(served_engine("stopped"), engine);
    served_expect_next(client, calm.digest[1], "when it goes on");

    /* Nor does who only talks to it wait for ever. */
    CHECK(kill(engine, SIGSTOP) == 0);
    stk_client_limit_silence(client, 100 * STK_MS);
    stk_status status = STK_OK;
    for (int i = 0; i < 100000 && status == STK_OK; i++) status = stk_client_rewind(client, &err);
    expect_stopped(status, &err, "the engine of run stopped takes no messages");
    CHECK(kill(engine, SIGCONT) == 0);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

/* It may have had nothing to say for a long time before. */
static void silence_counts_from_the_question(void)
{
    stk_options options = one_rank("silent", "");
    stk_client *client = served_open(&options, "silent", 0, 1, 1, NULL);
    stk_batch *batch;
    stk_error err;
    served_expect_next(client, calm.digest[0], "before");
    stk_client_limit_silence(client, STK_S);
    served_sleep_ms(1100);
    const pid_t engine = served_engine("silent");
    CHECK(engine > 0 && kill(engine, SIGSTOP) == 0);
    CHECK_OK(stk_client_rewind(client, &err), err);
    CHECK_INT(stk_client_next(client, &batch, STK_MS, &err), STK_AGAIN);
    CHECK(kill(engine, SIGCONT) == 0);
    stk_client_limit_silence(client, 30 * STK_S);
    served_expect_next(client, calm.digest[0], "from the beginning");
    stk_client_close(&client);
    stk_options_deinit(&options);
}

/* However long it takes: here for a sibling, which never comes. */
static void an_engine_that_says_what_it_waits_for_is_waited_for(void)
{
    stk_options options = one_rank("talks", "keep: 2\n");
    stk_client *client = served_open(&options, "talks", 0, 1, 2, NULL);
    stk_batch *batch;
    stk_error err;
    for (int i = 0; i < 3; i++) served_expect_next(client, calm.digest[i], "before");
    stk_client_limit_silence(client, 3 * STK_S);
    CHECK_INT(stk_client_next(client, &batch, 4 * STK_S, &err), STK_AGAIN);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

typedef struct reading {
    pthread_t thread;
    stk_client *client;
    size_t from, to;
    atomic_bool done;
} reading;

static void *read_on(void *context)
{
    reading *const r = context;
    for (size_t i = r->from; i < r->to; i++) served_expect_next(r->client, calm.digest[i], "while metrics are asked");
    atomic_store(&r->done, true);
    return NULL;
}

static void *ask_on(void *context)
{
    reading *const r = context;
    stk_metrics metrics;
    while (!atomic_load(&r->done)) stk_client_metrics(r->client, &metrics);
    return NULL;
}

/* As a progress bar or an exporter does. */
static void metrics_are_asked_while_another_thread_waits(void)
{
    stk_options options = one_rank("metrics", "keep: 2\n");
    reading r = {.client = served_open(&options, "metrics", 0, 1, 2, NULL), .to = 3};
    stk_metrics metrics;
    read_on(&r);
    r = (reading){.client = r.client, .from = 3, .to = calm.count};
    CHECK(pthread_create(&r.thread, NULL, read_on, &r) == 0);
    served_sleep_ms(100); /* so that it does wait: for its sibling, which has not come */
    stk_client_metrics(r.client, &metrics);
    CHECK_INT(metrics.micro_batches, 3);
    CHECK(!atomic_load(&r.done));
    stk_client *sibling = served_open(&options, "metrics", 0, 1, 2, NULL);
    uint64_t before = 3;
    for (size_t i = 0; i < calm.count; i++) {
        served_expect_next(sibling, calm.digest[i], "sibling");
        stk_client_metrics(r.client, &metrics);
        CHECK_MSG(metrics.micro_batches >= before, "%llu after %llu", (unsigned long long)metrics.micro_batches, (unsigned long long)before);
        before = metrics.micro_batches;
    }
    CHECK(pthread_join(r.thread, NULL) == 0);
    stk_client_metrics(r.client, &metrics);
    CHECK_INT(metrics.micro_batches, calm.count);
    stk_client_close(&sibling);
    stk_client_close(&r.client);
    stk_options_deinit(&options);
}

static void metrics_disturb_neither_rewinds_nor_restarts(void)
{
    stk_options options = one_rank("asked", "");
    reading r = {.client = served_open(&options, "asked", 0, 1, 1, NULL)};
    stk_error err;
    stk_state state;
    CHECK(pthread_create(&r.thread, NULL, ask_on, &r) == 0);
    for (int pass = 0; pass < 3; pass++) {
        for (size_t i = 0; i < 6; i++) served_expect_next(r.client, calm.digest[i], "beside another thread");
        if (pass == 1) served_kill_engine("asked");
        CHECK_OK(stk_client_rewind(r.client, &err), err);
        stk_client_state(r.client, &state);
        CHECK_INT(state.step, 0);
    }
    atomic_store(&r.done, true);
    CHECK(pthread_join(r.thread, NULL) == 0);
    stk_client_close(&r.client);
    stk_options_deinit(&options);
}

/* By hand: its configuration holds, also for a client who comes alone. */
static void an_engine_by_hand_takes_only_its_configuration(void)
{
    stk_options options = one_rank("hand", ""), other = one_rank("hand", "");
    char config[400], names[400];
    snprintf(config, sizeof config, "%s/hand/run.yaml", test_folder());
    served_setup();
    fflush(NULL);
    const pid_t server = fork();
    if (server == 0) {
        execl(getenv("STK_COMMAND"), "stoker", "serve", config, "--run", "hand", "--linger", "60", NULL);
        _exit(127);
    }
    snprintf(config, sizeof config, "%s/stoker/hand.sock", served_runtime);
    for (int i = 0; i < 3000 && access(config, F_OK); i++) served_sleep_ms(2);
    served_sleep_ms(20); /* from its name to its listening */
    other.seed = 4;
    expect_refused(&other, (stk_attach){.run = "hand", .world = 1}, STK_ERR_OPTION, "seed: 4");
    stk_client *client = served_open(&options, "hand", 0, 1, 1, NULL);
    CHECK_INT(served_engine("hand"), 0); /* not one of its own */
    for (int i = 0; i < 3; i++) served_expect_next(client, calm.digest[i], "by hand");
    stk_client_close(&client);
    int how;
    CHECK(kill(server, SIGTERM) == 0 && waitpid(server, &how, 0) == server);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 130);
    served_files(names);
    CHECK_MSG(!strstr(names, "hand."), "left behind: %s", names);
    stk_options_deinit(&other);
    stk_options_deinit(&options);
}

static void an_engine_ends_after_its_last_client_and_leaves_nothing(void)
{
    static const char *const runs[] = {"ranks-1", "ranks-2", "ranks-4", "readers", "fields", "whole", "close", "keep", "slow", "idle", "gaps", "changed", "differs",
                                       "broken", "memfd", "shm", "eval", "rewind", "fork", "private", "cpus", "steady", "stopped", "silent", "talks", "metrics", "asked", "held", "told"};
    stk_options options = one_rank("last", "");
    stk_client *client = served_open(&options, "last", 0, 1, 1, NULL);
    stk_client_close(&client);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (int k = 0; k < 600 && served_engine(runs[i]); k++) served_sleep_ms(50);
    served_expect_end("last");
    stk_options_deinit(&options);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_rank_gets_what_it_gets_in_process), TEST(readers_of_a_rank_read_the_same_slots_at_different_times),
              TEST(a_reader_may_take_some_fields_which_lie_in_the_arena), TEST(all_that_belongs_to_a_batch_comes_along),
              TEST(batches_outlive_client_and_engine), TEST(who_holds_a_batch_on_holds_no_engine),
              TEST(an_engine_that_is_told_to_stop_leaves_batches_as_they_are), TEST(more_than_keep_is_an_error_and_no_hang), TEST(a_slow_reader_is_named), TEST(a_rank_that_is_not_read_is_named), TEST(what_changed_under_a_run_is_told), TEST(without_memory_to_share_it_says_so),
              TEST(a_full_dev_shm_is_nothing_to_it),
              TEST(ranks_of_a_machine_may_have_gaps_between_them),
              TEST(what_differs_from_the_others_is_refused_and_named), TEST(what_cannot_be_opened_is_told_as_in_process),
              TEST(evaluation_comes_from_the_same_engine), TEST(a_rewind_goes_to_where_the_client_was_opened),
              TEST(a_forked_child_is_told_to_open_its_own),
              TEST(an_engine_ends_with_its_last_client_though_children_live_on), TEST(a_folder_that_others_may_enter_is_refused), TEST(the_engine_keeps_to_its_cpus),
              TEST(in_steady_state_a_client_allocates_nothing), TEST(a_command_that_does_not_come_up_is_named),
              TEST(a_client_may_stop_waiting_for_the_engine),
              TEST(an_engine_that_is_stopped_is_an_error_and_no_hang), TEST(silence_counts_from_the_question),
              TEST(an_engine_that_says_what_it_waits_for_is_waited_for), TEST(metrics_are_asked_while_another_thread_waits),
              TEST(metrics_disturb_neither_rewinds_nor_restarts),
              TEST(an_engine_by_hand_takes_only_its_configuration),
              TEST(an_engine_ends_after_its_last_client_and_leaves_nothing));
}
