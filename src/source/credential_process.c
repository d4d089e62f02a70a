/* credential_process.c - posix_spawn, a pipe, a deadline. */
#include "source/credential_process.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "source/aws_files.h"

extern char **environ;

/* No signal of ours is blocked or ignored in it, no file of ours is open in it. */
static int spawn(pid_t *pid, char **word, int output)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int failed = posix_spawn_file_actions_init(&files);
    if (failed) return failed;
    failed = posix_spawnattr_init(&attributes);
    if (!failed) {
        failed = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (!failed) failed = posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
        if (!failed) failed = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        if (!failed) failed = posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
        if (!failed) failed = posix_spawnattr_setsigmask(&attributes, &none);
        if (!failed) failed = posix_spawnattr_setsigdefault(&attributes, &all);
        if (!failed) failed = posix_spawnattr_setpgroup(&attributes, 0);
        if (!failed)
            failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                               POSIX_SPAWN_SETSIGDEF);
        if (!failed) failed = posix_spawnp(pid, word[0], &files, &attributes, word, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

/* Read to the end of the output. */
static stk_status collect(stk_buffer *out, int input, int limit_ms, int stop_fd, stk_error *err)
{
    const stk_ns deadline = stk_now() + limit_ms * STK_MS;
    for (;;) {
        struct pollfd wait[2] = {{.fd = input, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
        const stk_ns left = deadline - stk_now();
        if (left <= 0)
            return stk_fail(
                err, STK_ERR_NETWORK,
                "credential_process did not end within %d s and was killed: run it by hand to see why",
                limit_ms / 1000);
        if (poll(wait, 2, (int)(left / STK_MS) + 1) < 0 && errno != EINTR) return stk_fail_errno(err, "poll");
        if (wait[1].revents) return stk_fail(err, STK_ERR_INTERRUPTED, "credential_process was stopped");
        if (!wait[0].revents) continue;
        char piece[4096];
        const ssize_t got = read(input, piece, sizeof piece);
        if (got == 0) return STK_OK;
        if (got < 0 && errno != EINTR) return stk_fail_errno(err, "reading from credential_process");
        const stk_status status = got > 0 ? stk_buffer_append(out, piece, (size_t)got, NULL) : STK_OK;
        OPENSSL_cleanse(piece, sizeof piece);
        if (status < 0 || out->size_bytes >= STK_PROCESS_BYTES)
            return stk_fail(err, STK_ERR_NETWORK, "credential_process printed more than %d KiB",
                            STK_PROCESS_BYTES / 1024);
    }
}

/* Its end, once the output has ended; a program that closes its output and lives on is given the rest of its time. */
static stk_status reap(pid_t pid, stk_status so_far, int limit_ms, stk_error *err)
{
    const stk_ns deadline = stk_now() + limit_ms * STK_MS;
    int ended = 0;
    pid_t got = 0;
    while (so_far == STK_OK && (got = waitpid(pid, &ended, WNOHANG)) == 0 && stk_now() < deadline) poll(NULL, 0, 5);
    if (got == 0) {
        kill(-pid, SIGKILL); /* what it started too */
        while ((got = waitpid(pid, &ended, 0)) < 0 && errno == EINTR) {}
    }
    if (so_far < 0) return so_far;
    if (got < 0) return STK_OK; /* the host program reaps all children: what was printed must do */
    if (WIFSIGNALED(ended))
        return stk_fail(err, STK_ERR_NETWORK,
                        "credential_process was ended by signal %d: run it by hand to see why",
                        WTERMSIG(ended));
    if (WEXITSTATUS(ended))
        return stk_fail(err, STK_ERR_NETWORK,
                        "credential_process ended with status %d: run it by hand to see why",
                        WEXITSTATUS(ended));
    return STK_OK;
}

static stk_status run_words(stk_buffer *out, char **word, int limit_ms, int stop_fd, stk_error *err)
{
    int end[2];
    pid_t pid = -1;
    if (pipe2(end, O_CLOEXEC)) return stk_fail_errno(err, "pipe2");
    const int failed = spawn(&pid, word, end[1]);
    close(end[1]);
    stk_status status;
    if (failed) {
        errno = failed;
        const char *const why = failed == ENOENT ? "is not there" : "could not be started";
        status = stk_fail(err, STK_ERR_OPTION, "credential_process names a program that %s: \"%.100s\"", why,
                          word[0]);
    } else {
        status = reap(pid, collect(out, end[0], limit_ms, stop_fd, err), limit_ms, err);
    }
    close(end[0]);
    return status;
}

stk_status stk_process_run(stk_buffer *out, const char *command, int limit_ms, int stop_fd, stk_error *err)
{
    char *word[STK_PROCESS_WORDS + 1];
    STK_TRY(stk_buffer_reserve(out, STK_PROCESS_BYTES, err)); /* growing would leave copies */
    char *const text = stk_strdup(STK_TAG_SOURCE, command);
    if (!text) return stk_fail(err, STK_ERR_NOMEM, "out of memory: credential_process");
    const size_t size_bytes = strlen(text);
    const size_t count = stk_shell_split(text, word, STK_PROCESS_WORDS);
    stk_status status;
    if (count == SIZE_MAX)
        status = stk_fail(err, STK_ERR_OPTION, "credential_process leaves a quote or a backslash open");
    else if (count == 0 || count > STK_PROCESS_WORDS)
        status = stk_fail(err, STK_ERR_OPTION, "credential_process must have 1 to %d words", STK_PROCESS_WORDS);
    else {
        word[count] = NULL;
        status = run_words(out, word, limit_ms, stop_fd, err);
        if (status == STK_OK) status = stk_buffer_append(out, "", 1, err);
        if (status == STK_OK) out->size_bytes--;
    }
    OPENSSL_cleanse(text, size_bytes); /* its words may hold a password */
    stk_free(text);
    return status;
}
