/* plot.c - the picture of a plan: `python3 -m stoker.plot` in a process of its own, fed with rows over a pipe.
 *
 *     rows, then "end" ─► its input          its output ─► "ready", once it has all that it needs
 *
 * So what is missing is said before the plan is made, and a table that stops early is never drawn.  The package is found beside the
 * program (in a build folder and where it is installed), else by the interpreter itself. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"

enum { TOLD_IN_FULL = 3 }; /* exit status of stoker.plot: its message says what to do */

extern char **environ;

/* The folder of the program.  False: not known. */
static bool own_folder(char folder[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length <= 0) return false;
    folder[length] = 0;
    char *const slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    return slash != NULL;
}

/* As named, or the one beside the program (a virtual environment that Stoker is installed in), or the first of the PATH. */
static const char *interpreter(void)
{
    static char beside[PATH_MAX + 16];
    char folder[PATH_MAX];
    const char *const named = getenv("STK_PYTHON");
    if (named && *named) return named;
    if (!own_folder(folder)) return "python3";
    snprintf(beside, sizeof beside, "%s/python3", folder);
    return access(beside, X_OK) == 0 ? beside : "python3";
}

/* Put the folder of the package, if it lies beside the program, before all others. */
static void show_package(void)
{
    static const char *const beside[] = {"../python", "../" STK_DATADIR "/stoker/python"};
    char program[PATH_MAX], folder[2 * PATH_MAX], module[3 * PATH_MAX], all[4 * PATH_MAX];
    if (!own_folder(program)) return;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(folder, sizeof folder, "%s/%s", program, beside[i]);
        snprintf(module, sizeof module, "%s/stoker/plot.py", folder);
        if (access(module, R_OK)) continue;
        const char *const others = getenv("PYTHONPATH");
        snprintf(all, sizeof all, "%s%s%.*s", folder, others && *others ? ":" : "", 2 * PATH_MAX - 1, others ? others : "");
        setenv("PYTHONPATH", all, 1);
        return;
    }
}

/* Its input is in[0], its output out[1].  0 or an errno. */
static int spawn(pid_t *child, const char *path, const int in[2], const int out[2])
{
    const char *const arguments[] = {interpreter(), "-m", "stoker.plot", "--fed", "--", path, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t manner;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&manner);
    posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    /* A group of its own: an interrupt of the terminal is for us, who end it then. */
    posix_spawnattr_setflags(&manner, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&manner, 0);
    const int code = posix_spawnp(child, arguments[0], &files, &manner, (char *const *)(uintptr_t)arguments, environ);
    posix_spawnattr_destroy(&manner);
    posix_spawn_file_actions_destroy(&files);
    return code;
}

static int wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Whether it says that it is ready; else what to do is said. */
static bool is_ready(const plotter *p, int from)
{
    static const char word[] = "ready\n";
    char said[sizeof word - 1];
    size_t got = 0;
    while (got < sizeof said) {
        const ssize_t more = read(from, said + got, sizeof said - got);
        if (more < 0 && errno == EINTR && !interrupted()) continue;
        if (more <= 0) break;
        got += (size_t)more;
    }
    if (got == sizeof said && memcmp(said, word, got) == 0) return true;
    if (interrupted()) kill(p->child, SIGKILL);
    if (wait_for(p->child) != TOLD_IN_FULL && !interrupted())
        fprintf(stderr,
                "stoker: `%s -m stoker.plot` did not start: it takes Stoker's Python package, which is the folder python/ of the source "
                "(put it into PYTHONPATH), and matplotlib\n",
                interpreter());
    return false;
}

int plot_start(plotter *p, const command *c, const char *path)
{
    const size_t length = strlen(path);
    *p = (plotter){0};
    if (length < 5 || (strcasecmp(path + length - 4, ".png") != 0 && strcasecmp(path + length - 4, ".svg") != 0))
        return usage_error(c, "--plot %s: a picture is *.png or *.svg", path);
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    int code = pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) ? errno : 0;
    if (!code) {
        show_package();
        code = spawn(&p->child, path, in, out);
    }
    if (in[0] >= 0) close(in[0]);
    if (out[1] >= 0) close(out[1]);
    int status = EXIT_DONE;
    if (code) {
        fprintf(stderr, "stoker: --plot draws with Python, and %s cannot be started: %s; install python3 and matplotlib, or name an interpreter "
                "with STK_PYTHON\n", interpreter(), strerror(code));
        status = EXIT_USAGE;
    } else if (!is_ready(p, out[0])) {
        status = interrupted() ? EXIT_INTERRUPTED : EXIT_USAGE;
    } else if (!(p->to = fdopen(in[1], "w"))) {
        perror("stoker: cannot draw");
        kill(p->child, SIGKILL);
        (void)wait_for(p->child);
        status = EXIT_FAILED;
    }
    if (!p->to && in[1] >= 0) close(in[1]);
    if (out[0] >= 0) close(out[0]);
    return status;
}

int plot_finish(plotter *p, int status)
{
    if (!p->to) return status;
    if (status == EXIT_DONE) fputs("end\n", p->to);
    bool lost = ferror(p->to) != 0;
    if (status != EXIT_DONE) kill(p->child, SIGKILL);
    lost = fclose(p->to) != 0 || lost;
    const int drawn = wait_for(p->child);
    const bool told = drawn == EXIT_DONE || drawn == EXIT_FAILED; /* by itself */
    if (lost || (status == EXIT_DONE && !told)) fprintf(stderr, "stoker: the picture is not drawn: the process that draws ended early\n");
    if (status != EXIT_DONE) return status;
    return drawn != EXIT_DONE || lost ? EXIT_FAILED : EXIT_DONE;
}
