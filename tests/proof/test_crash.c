/* test_crash.c - a picture that crashes its decoder costs one process, then one child, then nothing. */
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "proof_set.h"

enum { GUILTY_PX = 200, SAMPLES = 8 }; /* pictures are 160, 200 and 240 pixels wide, every fourth record has none */

static const char *folder;

/* Run to the end in a process of its own: how it ended, and its digest and masked samples. */
typedef struct outcome {
    int signal_number;
    uint8_t digest[16];
    uint64_t masked, samples;
} outcome;

static outcome run(const char *more, bool crashes)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        stk_options options;
        stk_error err;
        stk_metrics metrics;
        outcome o = {0};
        proof_config(folder, more);
        proof_options(&options, folder);
        stk_fault_set(STK_FAULT_DECODE_CRASH, crashes ? GUILTY_PX : 0, false);
        CHECK_MSG(proof_run(&options, o.digest, &metrics, &err) > 0, "%s", err.message);
        stk_options_deinit(&options);
        o.masked = metrics.masked;
        o.samples = metrics.samples;
        CHECK(write(ends[1], &o, sizeof o) == (ssize_t)sizeof o);
        _exit(0);
    }
    close(ends[1]);
    outcome o = {0};
    const bool told = read(ends[0], &o, sizeof o) == (ssize_t)sizeof o;
    close(ends[0]);
    int how;
    CHECK(waitpid(child, &how, 0) == child);
    if (!told) {
        /* A sanitizer turns the signal into an exit. */
        CHECK(WIFSIGNALED(how) || WEXITSTATUS(how));
        o.signal_number = WIFSIGNALED(how) ? WTERMSIG(how) : SIGSEGV;
    }
    return o;
}

static bool exists(const char *name)
{
    char path[700];
    struct stat info;
    snprintf(path, sizeof path, "%s/set.jsonl.stoker-%s", folder, name);
    return stat(path, &info) == 0;
}

static void set_up(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    CHECK(mkdir(path, 0755) == 0);
    folder = strdup(path);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/img-%d.jpg", folder, i);
        proof_jpeg(path, 160 + 40 * i, 150, (unsigned)i);
    }
    proof_manifest(folder, SAMPLES, 3);
}

/* Each of the crashing pictures costs a run at most; then the stream is the same, with their samples masked, whatever
 * the number of workers. */
static void a_crashing_picture_is_masked_after_a_restart(void)
{
    static const char common[] = "batch: 4\nmax_pixels: 16384\nmin_pixels: 4096\nerrors: {masked: 1}\n";
    char workers[400];
    uint8_t first[16] = {0};
    for (int count = 0; count <= 2; count++) {
        char name[20];
        snprintf(name, sizeof name, "workers-%d", count);
        set_up(name);
        snprintf(workers, sizeof workers, "%sworkers: %s\n", common, count == 0 ? "inline" : count == 1 ? "1" : "2");
        const outcome calm = run(workers, false);
        CHECK_INT(calm.signal_number, 0);
        CHECK_INT(calm.masked, 0);

        const outcome crashed = run(workers, true);
        CHECK(crashed.signal_number != 0);
        CHECK(exists("work-0") && !exists("crashed"));
        const outcome again = run(workers, true);
        CHECK_INT(again.signal_number, 0);
        CHECK_INT(again.samples, SAMPLES);
        CHECK(again.masked == 2); /* img-1 stands in two records */
        CHECK(!exists("work-0") && exists("crashed"));
        const outcome third = run(workers, true);
        CHECK_INT(third.masked, again.masked);
        CHECK(memcmp(third.digest, again.digest, 16) == 0 && memcmp(calm.digest, again.digest, 16) != 0);
        if (count == 0) memcpy(first, again.digest, 16);
        CHECK(memcmp(first, again.digest, 16) == 0); /* invariant 1 */
        free((char *)(uintptr_t)folder);
    }
}

/* index: verify decodes too: the second try counts the picture as unusable and goes on. */
static void a_crashing_picture_is_unusable_for_an_index_that_decodes(void)
{
    set_up("verify");
    static const char more[] = "batch: 4\nmax_pixels: 16384\nmin_pixels: 4096\nindex: verify\nerrors: {unusable: 1}\n";
    const outcome crashed = run(more, true);
    CHECK(crashed.signal_number != 0);
    const outcome again = run(more, true);
    CHECK_INT(again.signal_number, 0);
    CHECK_INT(again.masked, 0);
    CHECK_INT(again.samples, SAMPLES - 2);
    CHECK(!exists("work-0") && exists("crashed"));
    free((char *)(uintptr_t)folder);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_crashing_picture_is_masked_after_a_restart),
              TEST(a_crashing_picture_is_unusable_for_an_index_that_decodes));
}
