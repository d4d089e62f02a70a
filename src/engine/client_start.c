/* client_start.c - `stoker serve --detach` beside this process: its own session, nothing of ours open, stderr in the log. */
#include "engine/client_start.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

extern char **environ;

enum { POLL_NS = 2000000, TRIES = 5 };
#define START_NS (30 * STK_S)

/* Where a build or an installation has the command, seen from the library. */
static bool beside_library(char path[PATH_MAX])
{
    static const char *const places[] = {"stoker", "../bin/stoker", "../../bin/stoker", "../cli/stoker", "bin/stoker"};
    Dl_info info;
    char library[PATH_MAX];
    if (!dladdr((const void *)(uintptr_t)&stk_client_connect, &info) || !info.dli_fname || !realpath(info.dli_fname, library)) return false;
    char *const slash = strrchr(library, '/');
    if (!slash) return false;
    slash[0] = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (snprintf(path, PATH_MAX, "%.2000s/%s", library, places[i]) < PATH_MAX && access(path, X_OK) == 0) return true;
    return false;
}

static void find_command(char path[PATH_MAX])
{
    const char *const given = getenv("STK_COMMAND");
    if (given && *given) snprintf(path, PATH_MAX, "%s", given);
    else if (!beside_library(path)) snprintf(path, PATH_MAX, "stoker");
}

static int spawn(pid_t *child, const stk_meeting *meeting, char *command)
{
    char *const argv[] = {command, (char *)"serve", (char *)"--run", (char *)meeting->run, (char *)"--detach", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    int code = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!code) code = posix_spawn_file_actions_addopen(&files, 1, meeting->log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    if (!code) code = posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (!code) code = posix_spawnattr_setsigmask(&attributes, &none);
    if (!code) code = posix_spawnattr_setsigdefault(&attributes, &all);
    if (!code) code = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!code) code = posix_spawnp(child, command, &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return code;
}

/* Until the child has ended: the engine listens then, as a process of its own.  Its status; -1: it took too long, and is ended. */
static int wait_for(pid_t child)
{
    const stk_ns deadline = stk_now() + START_NS;
    int how = 0;
    for (;;) {
        const pid_t got = waitpid(child, &how, WNOHANG);
        if (got == child) return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
        if (got < 0 && errno != EINTR) return 0; /* this program lets nobody wait for its children: the socket will tell */
        if (stk_now() > deadline) {
            kill(child, SIGKILL);
            (void)waitpid(child, &how, 0);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

/* STK_AGAIN: it came up, or ended, as it does when somebody else was quicker, and says why in err. */
static stk_status start(const stk_meeting *meeting, stk_error *err)
{
    char command[PATH_MAX], words[160];
    pid_t child;
    find_command(command);
    const int code = spawn(&child, meeting, command);
    if (code) {
        errno = code;
        return stk_fail_errno(err, "cannot start the engine process, %.150s serve (STK_COMMAND names another)", command);
    }
    const int status = wait_for(child);
    stk_meeting_log_end(meeting, words);
    if (status < 0)
        return stk_fail_at(err, STK_ERR_TIMEOUT, meeting->log, 0, "%.80s serve did not come up in %d s: its log ends: %s", command,
                           (int)(START_NS / STK_S), words);
    (void)stk_fail_at(err, STK_ERR_SYSTEM, meeting->log, 0, "%.80s serve ended with status %d: its log ends: %s", command, status, words);
    return STK_AGAIN;
}

stk_status stk_client_connect(const stk_meeting *meeting, int *fd, stk_error *err)
{
    stk_status status = stk_meeting_connect(meeting, fd, err);
    /* Several may start one at once: all but one find that it is there, and connect.  It may also be killed at any time. */
    for (int i = 0; i < TRIES && status == STK_AGAIN; i++) {
        stk_error failed;
        STK_TRY(start(meeting, err));
        status = stk_meeting_connect(meeting, fd, &failed);
        if (status < 0 && err) *err = failed;
    }
    return status == STK_AGAIN ? STK_ERR_SYSTEM : status;
}
