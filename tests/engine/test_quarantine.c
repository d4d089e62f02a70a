/* test_quarantine.c - what was in work when a process died is tried alone, and remembered when it crashes again. */
#include "test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/quarantine.h"

static char stem[600];
static volatile int *calls; /* of the work below, in all processes */
static stk_ns alone_ns = STK_QUARANTINE_ALONE_NS;

enum { TRIALS = 3 }; /* of a picture at most */

static void innocent(void *context)
{
    (void)context;
    ++*calls;
}

static void guilty(void *context)
{
    (void)context;
    ++*calls;
    raise(SIGSEGV);
}

static void endless(void *context)
{
    (void)context;
    ++*calls;
    for (volatile int i = 0;; i = i + 1) continue;
}

/* As at a lock that a thread of the parent holds. */
static void asleep(void *context)
{
    (void)context;
    ++*calls;
    for (;;) pause();
}

static void stopped(void *context)
{
    (void)context;
    ++*calls;
    raise(SIGSTOP);
}

/* As when a mapped file cannot be read for a moment, or a tool ends the process: the first time only. */
static void unlucky(void *context)
{
    if (++*calls == 1) *(int *)context ? (void)raise(*(int *)context) : _exit(1);
}

/* As by Ctrl-C, a scheduler, or a system short of memory. */
static void ended_from_outside(void *context)
{
    ++*calls;
    raise(*(int *)context);
}

static stk_str address(void)
{
    return stk_str_of("/data/a picture.jpg");
}

static bool exists(const char *suffix)
{
    char path[700];
    struct stat info;
    snprintf(path, sizeof path, "%s.stoker-%s", stem, suffix);
    return stat(path, &info) == 0;
}

static stk_quarantine *create(void)
{
    stk_error err;
    stk_quarantine *q;
    CHECK_OK(stk_quarantine_create(&q, stem, alone_ns, &err), err);
    return q;
}

static void start(const char *name)
{
    snprintf(stem, sizeof stem, "%s/%s", test_folder(), name);
    if (!calls) calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(calls != MAP_FAILED);
    *calls = 0;
}

/* A process that dies in the middle of work on some keys, a thread each. */
static void die_at_work_on(uint64_t first_key, int count)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        stk_quarantine *const q = create();
        for (int i = 0; i < count; i++) {
            stk_quarantine_cell *const cell = stk_quarantine_enter(q);
            if (!cell || !stk_quarantine_begin(q, cell, first_key + (uint64_t)i, address(), innocent, NULL)) _exit(3);
        }
        kill(getpid(), SIGKILL);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    CHECK(exists("work-0"));
}

static bool begins(stk_quarantine *q, stk_quarantine_cell *cell, uint64_t key, void (*work)(void *))
{
    const bool goes_on = stk_quarantine_begin(q, cell, key, address(), work, NULL);
    if (goes_on) stk_quarantine_end(cell);
    return goes_on;
}

static void what_crashes_alone_is_never_touched_again(void)
{
    start("guilty");
    die_at_work_on(7, 1);
    for (int run = 0; run < 3; run++) {
        stk_quarantine *const q = create();
        stk_quarantine_cell *const cell = stk_quarantine_enter(q);
        CHECK(cell != NULL);
        CHECK(!begins(q, cell, 7, guilty));
        CHECK(!begins(q, cell, 7, guilty));
        CHECK(begins(q, cell, 8, guilty)); /* nothing is known of it: it is not tried */
        stk_quarantine_leave(q, cell);
        stk_quarantine_destroy(q);
        CHECK_INT(*calls, 1); /* in the first run's child */
        CHECK(exists("crashed") && !exists("work-0"));
    }
    /* Who deletes the list wants them tried again: by the program itself, since nothing says that they are suspect. */
    char path[700];
    snprintf(path, sizeof path, "%s.stoker-crashed", stem);
    CHECK(unlink(path) == 0);
    stk_quarantine *const q = create();
    stk_quarantine_cell *const cell = stk_quarantine_enter(q);
    CHECK(begins(q, cell, 7, guilty));
    stk_quarantine_leave(q, cell);
    stk_quarantine_destroy(q);
}

static void what_comes_through_alone_was_innocent(void)
{
    start("innocent");
    die_at_work_on(100, 3);
    stk_quarantine *const q = create();
    stk_quarantine_cell *const cell = stk_quarantine_enter(q);
    for (int i = 0; i < 2; i++)
        for (uint64_t key = 99; key <= 103; key++) CHECK(begins(q, cell, key, innocent));
    CHECK_INT(*calls, 3); /* once each */
    stk_quarantine_leave(q, cell);
    stk_quarantine_destroy(q);
    CHECK(!exists("crashed") && !exists("work-0"));
}

/* Nobody waits for a trial without limit, whatever keeps it: it is as good as a crash. */
static void what_does_not_come_to_an_end_alone_is_never_touched_again(void)
{
    start("endless");
    die_at_work_on(7, 1);
    alone_ns = STK_S / 2;
    for (int run = 0; run < 2; run++) {
        stk_quarantine *const q = create();
        stk_quarantine_cell *const cell = stk_quarantine_enter(q);
        CHECK(!begins(q, cell, 7, endless));
        CHECK(begins(q, cell, 9, innocent));
        CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no child is left */
        stk_quarantine_leave(q, cell);
        stk_quarantine_destroy(q);
        CHECK_INT(*calls, TRIALS);
    }
    alone_ns = STK_QUARANTINE_ALONE_NS;
    char path[700], line[100];
    snprintf(path, sizeof path, "%s.stoker-crashed", stem);
    FILE *const list = fopen(path, "re");
    CHECK(list && fgets(line, sizeof line, list));
    CHECK_STR(line, "0000000000000007 14 /data/a picture.jpg\n");
    fclose(list);
}

/* The stream would change because of a fault that is not the picture's. */
static void who_stands_still_alone_is_not_held_against_the_picture(void)
{
    start("still");
    die_at_work_on(7, 2);
    alone_ns = 100 * STK_MS;
    stk_quarantine *const q = create();
    alone_ns = STK_QUARANTINE_ALONE_NS;
    stk_quarantine_cell *const cell = stk_quarantine_enter(q);
    CHECK(begins(q, cell, 7, asleep));
    CHECK(begins(q, cell, 8, stopped));
    CHECK(*calls <= 2 * TRIALS); /* the machine may be so busy that a child did not even begin */
    CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no child is left */
    stk_quarantine_leave(q, cell);
    stk_quarantine_destroy(q);
    CHECK(!exists("crashed") && !exists("work-0"));
}

static void who_is_ended_from_outside_is_not_held_against_the_picture(void)
{
    start("outside");
    die_at_work_on(7, 5);
    static int always[] = {SIGKILL, SIGTERM, SIGINT}, once[] = {SIGBUS, 0};
    stk_quarantine *const q = create();
    stk_quarantine_cell *const cell = stk_quarantine_enter(q);
    for (int i = 0; i < 3; i++) {
        *calls = 0;
        CHECK(stk_quarantine_begin(q, cell, 7 + (uint64_t)i, address(), ended_from_outside, &always[i]));
        stk_quarantine_end(cell);
        CHECK_INT(*calls, TRIALS);
    }
    for (int i = 0; i < 2; i++) {
        *calls = 0;
        CHECK(stk_quarantine_begin(q, cell, 10 + (uint64_t)i, address(), unlucky, &once[i]));
        stk_quarantine_end(cell);
        CHECK_INT(*calls, 2);
    }
    stk_quarantine_leave(q, cell);
    stk_quarantine_destroy(q);
    CHECK(!exists("crashed") && !exists("work-0"));
}

/* A suspect whose turn never comes stays one: the next to open the data finds nothing, as before the crash. */
static void several_processes_keep_a_log_each(void)
{
    start("several");
    die_at_work_on(1, 1);
    stk_quarantine *const a = create(), *const b = create();
    stk_quarantine_cell *const of_a = stk_quarantine_enter(a), *const of_b = stk_quarantine_enter(b);
    CHECK(of_a && of_b && exists("work-0") && exists("work-1"));
    CHECK(stk_quarantine_begin(a, of_a, 55, address(), innocent, NULL));
    CHECK(begins(b, of_b, 55, guilty)); /* a lives: what it works on is not suspect */
    stk_quarantine_leave(a, of_a);
    CHECK(!exists("work-0") && exists("work-1"));
    stk_quarantine_destroy(a);
    stk_quarantine_leave(b, of_b);
    stk_quarantine_destroy(b);
    CHECK(!exists("work-1"));
    CHECK_INT(*calls, 0);
}

static void without_a_folder_to_write_work_goes_on(void)
{
    start("none/there");
    stk_quarantine *const q = create();
    stk_quarantine_cell *const cell = stk_quarantine_enter(q);
    CHECK(cell == NULL);
    CHECK(begins(q, cell, 7, guilty));
    stk_quarantine_leave(q, cell);
    stk_quarantine_destroy(q);
    CHECK_INT(*calls, 0);
}

/* On a full disk the log cannot be written: work goes on without one. */
static void a_full_disk_is_no_obstacle(void)
{
    start("full");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0})) _exit(3);
        stk_quarantine *const q = create();
        stk_quarantine_cell *const cell = stk_quarantine_enter(q);
        if (!begins(q, cell, 7, innocent)) _exit(4);
        stk_quarantine_leave(q, cell);
        stk_quarantine_destroy(q);
        _exit(0);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    CHECK(!exists("work-0"));
}

static void damaged_files_are_no_obstacle(void)
{
    start("damaged");
    char path[700];
    static const char *const texts[] = {"crashed", "work-0", "work-1"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s.stoker-%s", stem, texts[i]);
        FILE *const file = fopen(path, "wb");
        CHECK(file != NULL);
        fputs("zz no key\n0000000000000007\n0000000000000009 11 /x\n", file);
        fclose(file);
    }
    stk_quarantine *const q = create();
    stk_quarantine_cell *const cell = stk_quarantine_enter(q);
    CHECK(cell != NULL);
    CHECK(!begins(q, cell, 9, innocent));
    CHECK(begins(q, cell, 8, guilty));
    stk_quarantine_leave(q, cell);
    stk_quarantine_destroy(q);
    CHECK(!exists("work-0") && !exists("work-1"));
}

static void a_changed_file_is_another_picture(void)
{
    const uint64_t key = stk_quarantine_key(address(), 100, 5);
    CHECK(key == stk_quarantine_key(address(), 100, 5));
    CHECK(key != stk_quarantine_key(address(), 101, 5) && key != stk_quarantine_key(address(), 100, 6));
    CHECK(key != stk_quarantine_key(stk_str_of("/data/b.jpg"), 100, 5));
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(what_crashes_alone_is_never_touched_again), TEST(what_comes_through_alone_was_innocent), TEST(what_does_not_come_to_an_end_alone_is_never_touched_again),
              TEST(who_stands_still_alone_is_not_held_against_the_picture),
              TEST(who_is_ended_from_outside_is_not_held_against_the_picture), TEST(several_processes_keep_a_log_each), TEST(without_a_folder_to_write_work_goes_on), TEST(a_full_disk_is_no_obstacle),
              TEST(damaged_files_are_no_obstacle), TEST(a_changed_file_is_another_picture));
}
