/* test_meeting.c - the processes of a run find each other: by its name or the launcher's, in a folder of their user's. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/meeting.h"

static char runtime[300];

static void setup(void)
{
    snprintf(runtime, sizeof runtime, "%s/rt", test_folder());
    CHECK(mkdir(runtime, 0700) == 0 || errno == EEXIST);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
}

static void names_of_runs_are_names_of_files(void)
{
    static const char *const good[] = {"a", "job-17", "x.Y_9", "torch-none-29500", "123456789012345678901234567890123456789012345678"};
    static const char *const bad[] = {"", ".", "..", ".a", "a/b", "a b", "\xc3\xa4", "1234567890123456789012345678901234567890123456789"};
    stk_meeting meeting;
    stk_error err;
    setup();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) CHECK_OK(stk_meeting_find(&meeting, good[i], &err), err);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(stk_meeting_find(&meeting, bad[i], &err) == STK_ERR_USAGE, "\"%s\" is taken", bad[i]);
        CHECK_HAS(err.message, "cannot name a run");
    }
}

static void expect_launcher(const char *torch, const char *port, const char *job, const char *step, const char *name)
{
    const char *const variables[][2] = {{"TORCHELASTIC_RUN_ID", torch}, {"MASTER_PORT", port}, {"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}};
    for (size_t i = 0; i < 4; i++) {
        unsetenv(variables[i][0]);
        if (variables[i][1]) setenv(variables[i][0], variables[i][1], 1);
    }
    char run[STK_RUN_NAME_MAX + 1] = "";
    stk_meeting meeting;
    stk_error err;
    setup();
    CHECK_OK(stk_run_name(&(stk_options)STK_OPTIONS_INIT, run, &err), err);
    CHECK_STR(run, name);
    if (*name) CHECK_OK(stk_meeting_find(&meeting, run, &err), err);
}

static void the_option_names_a_run_whatever_the_launcher_says(void)
{
    stk_options options = STK_OPTIONS_INIT;
    char run[STK_RUN_NAME_MAX + 1];
    stk_error err;
    setup();
    setenv("SLURM_JOB_ID", "4711", 1);
    CHECK_OK(stk_options_set(&options, "run", "mine", &err), err);
    CHECK_OK(stk_run_name(&options, run, &err), err);
    CHECK_STR(run, "mine");
    CHECK_OK(stk_options_set(&options, "run", "a/b", &err), err);
    CHECK(stk_run_name(&options, run, &err) == STK_ERR_USAGE);
    CHECK_HAS(err.message, "\"a/b\" cannot name a run");
    stk_options_deinit(&options);
}

static void launchers_name_their_runs(void)
{
    expect_launcher(NULL, "29500", NULL, "1", "");
    expect_launcher("", NULL, "", NULL, "");
    expect_launcher("none", "29500", NULL, NULL, "torch-none-29500");
    expect_launcher("none", "29501", "77", "0", "torch-none-29501"); /* torchrun in a job of SLURM */
    expect_launcher("a/b c:../", NULL, NULL, NULL, "torch-a_b_c_.._-0");
    expect_launcher("0123456789012345678901234567890123456789", "123456789", NULL, NULL, "torch-01234567890123456789012345678901-12345678");
    expect_launcher(NULL, NULL, "4711", "3", "slurm-4711-3");
    expect_launcher(NULL, NULL, "4711", NULL, "slurm-4711-0");
}

static void the_folder_is_of_this_user_alone(void)
{
    stk_meeting meeting;
    stk_error err;
    struct stat info;
    char wanted[700];
    setup();
    CHECK_OK(stk_meeting_find(&meeting, "a", &err), err);
    CHECK(stat(meeting.folder, &info) == 0 && (info.st_mode & 0777) == 0700);
    snprintf(wanted, sizeof wanted, "%s/stoker/a.sock", runtime);
    CHECK_STR(meeting.socket, wanted);
    CHECK(chmod(meeting.folder, 0750) == 0);
    CHECK_INT(stk_meeting_find(&meeting, "a", &err), STK_ERR_SYSTEM);
    CHECK_HAS(err.message, "mode 750");
    CHECK(chmod(meeting.folder, 0700) == 0);
    if (geteuid() == 0) { /* only root can give a folder away */
        CHECK(chown(meeting.folder, 12345, (gid_t)-1) == 0);
        CHECK_INT(stk_meeting_find(&meeting, "a", &err), STK_ERR_SYSTEM);
        CHECK_HAS(err.message, "owner 12345");
        CHECK(chown(meeting.folder, 0, (gid_t)-1) == 0);
    }
    /* What the variable names is of another machine. */
    setenv("XDG_RUNTIME_DIR", "/run/user/none-such", 1);
    CHECK_OK(stk_meeting_find(&meeting, "a", &err), err);
    snprintf(wanted, sizeof wanted, "/tmp/stoker-%u", (unsigned)geteuid());
    CHECK_STR(meeting.folder, wanted);
    snprintf(wanted, sizeof wanted, "%s/%0200d", runtime, 0);
    CHECK(mkdir(wanted, 0700) == 0 || errno == EEXIST);
    setenv("XDG_RUNTIME_DIR", wanted, 1);
    CHECK_INT(stk_meeting_find(&meeting, "a", &err), STK_ERR_USAGE);
    CHECK_HAS(err.message, "too long");
}

static void one_process_starts_an_engine_at_a_time(void)
{
    stk_meeting meeting;
    stk_error err;
    int lock, other;
    setup();
    CHECK_OK(stk_meeting_find(&meeting, "locked", &err), err);
    CHECK_OK(stk_meeting_lock(&meeting, 0, &lock, &err), err);
    CHECK_INT(stk_meeting_lock(&meeting, 0, &other, &err), STK_AGAIN);
    CHECK_INT(stk_meeting_lock(&meeting, stk_now() + 20 * STK_MS, &other, &err), STK_ERR_TIMEOUT);
    CHECK_HAS(err.message, "locked.lock");
    CHECK_INT(stk_meeting_connect(&meeting, &other, &err), STK_AGAIN);
    stk_meeting_clear(&meeting);
    stk_meeting_unlock(lock);
    CHECK_OK(stk_meeting_lock(&meeting, 0, &lock, &err), err);
    stk_meeting_clear(&meeting);
    stk_meeting_unlock(lock);
    CHECK(access(meeting.lock, F_OK) != 0);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(names_of_runs_are_names_of_files), TEST(launchers_name_their_runs), TEST(the_option_names_a_run_whatever_the_launcher_says), TEST(the_folder_is_of_this_user_alone),
              TEST(one_process_starts_an_engine_at_a_time));
}
