/* meeting.c - the private folder, and the socket, lock and log in it. */
#include "engine/meeting.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { LOCK_POLL_NS = 5000000, BACKLOG = 1024 };
#define FULL_NS (10 * STK_S)

/* --- names --- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '.' || c == '_' || c == '-';
}

static bool is_run_name(const char *run)
{
    const size_t length = strlen(run);
    if (length == 0 || length > STK_RUN_NAME_MAX || run[0] == '.') return false;
    for (size_t i = 0; i < length; i++)
        if (!is_name_char(run[i])) return false;
    return true;
}

static const char *environment(const char *name)
{
    const char *const value = getenv(name);
    return value && *value ? value : NULL;
}

/* "": there is no launcher.  As far as a name may have its characters. */
static void launcher_run(char run[STK_RUN_NAME_MAX + 1])
{
    const char *const torch = environment("TORCHELASTIC_RUN_ID"), *const port = environment("MASTER_PORT");
    const char *const job = environment("SLURM_JOB_ID"), *const step = environment("SLURM_STEP_ID");
    int length = 0;
    run[0] = '\0';
    /* torchrun without a rendezvous id says "none" for every job: their ports tell them apart. */
    if (torch) length = snprintf(run, STK_RUN_NAME_MAX + 1, "torch-%.32s-%.8s", torch, port ? port : "0");
    else if (job) length = snprintf(run, STK_RUN_NAME_MAX + 1, "slurm-%.20s-%.12s", job, step ? step : "0");
    for (int i = 0; i < length && run[i]; i++)
        if (!is_name_char(run[i])) run[i] = '_';
}

static stk_status check_run_name(const char *run, stk_error *err)
{
    if (is_run_name(run)) return STK_OK;
    return stk_fail(err, STK_ERR_USAGE, "\"%.80s\" cannot name a run: 1 to %d letters, digits, '.', '_' and '-', no dot in front", run, STK_RUN_NAME_MAX);
}

stk_status stk_run_name(const stk_options *options, char name[STK_RUN_NAME_MAX + 1], stk_error *err)
{
    if (!options->run) {
        launcher_run(name);
        return STK_OK;
    }
    STK_TRY(check_run_name(options->run, err));
    snprintf(name, STK_RUN_NAME_MAX + 1, "%s", options->run);
    return STK_OK;
}

/* Schedulers hand on the variable of the machine that a job was sent from, and on this one nobody has made the folder. */
static const char *runtime_folder(void)
{
    struct stat info;
    const char *const folder = environment("XDG_RUNTIME_DIR");
    return folder && stat(folder, &info) == 0 && S_ISDIR(info.st_mode) ? folder : NULL;
}

static stk_status check_folder(const char *folder, stk_error *err)
{
    struct stat info;
    if (mkdir(folder, 0700) && errno != EEXIST) return stk_fail_errno(err, "cannot make the folder of engines %s", folder);
    if (lstat(folder, &info)) return stk_fail_errno(err, "cannot look at the folder of engines %s", folder);
    if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0) return STK_OK;
    return stk_fail(err, STK_ERR_SYSTEM,
                    "%s is not a folder of yours alone (owner %u, mode %03o): take it away, or set XDG_RUNTIME_DIR to a folder of your own",
                    folder, (unsigned)info.st_uid, (unsigned)info.st_mode & 0777);
}

stk_status stk_meeting_find(stk_meeting *meeting, const char *run, stk_error *err)
{
    STK_TRY(check_run_name(run, err));
    const char *const runtime = runtime_folder();
    stk_meeting m = {0};
    const int length = runtime ? snprintf(m.folder, sizeof m.folder, "%s/stoker", runtime)
                               : snprintf(m.folder, sizeof m.folder, "/tmp/stoker-%u", (unsigned)geteuid());
    snprintf(m.run, sizeof m.run, "%s", run);
    if (length >= (int)sizeof m.folder ||
        snprintf(m.socket, sizeof m.socket, "%s/%s.sock", m.folder, m.run) >= (int)sizeof ((struct sockaddr_un *)0)->sun_path)
        return stk_fail(err, STK_ERR_USAGE, "XDG_RUNTIME_DIR and the name of the run are too long for the path of a socket (107 bytes): shorten one");
    snprintf(m.lock, sizeof m.lock, "%s/%s.lock", m.folder, m.run);
    snprintf(m.log, sizeof m.log, "%s/%s.log", m.folder, m.run);
    STK_TRY(check_folder(m.folder, err));
    *meeting = m;
    return STK_OK;
}

/* --- the lock --- */

/* STK_AGAIN: somebody else has it.  The file may be taken away by its owner between open and flock: then the name is looked at again. */
static stk_status try_lock(const stk_meeting *meeting, int *fd, stk_error *err)
{
    for (;;) {
        struct stat info;
        *fd = open(meeting->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (*fd < 0) return stk_fail_errno(err, "cannot open %s", meeting->lock);
        const bool ours = flock(*fd, LOCK_EX | LOCK_NB) == 0;
        if (ours && fstat(*fd, &info) == 0 && info.st_nlink) return STK_OK;
        close(*fd);
        *fd = -1;
        if (!ours) return STK_AGAIN;
    }
}

stk_status stk_meeting_lock(const stk_meeting *meeting, stk_ns deadline, int *fd, stk_error *err)
{
    for (;;) {
        const stk_status status = try_lock(meeting, fd, err);
        if (status != STK_AGAIN || deadline == 0) return status;
        if (stk_now() >= deadline)
            return stk_fail(err, STK_ERR_TIMEOUT, "another process has been starting the engine of run %s for too long: it holds %s", meeting->run,
                            meeting->lock);
        nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL_NS}, NULL);
    }
}

void stk_meeting_unlock(int fd)
{
    /* A forked child may have a copy of the descriptor. */
    if (fd >= 0) flock(fd, LOCK_UN);
    if (fd >= 0) close(fd);
}

/* --- the socket --- */

static struct sockaddr_un address_of(const stk_meeting *meeting)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, meeting->socket, sizeof address.sun_path);
    return address;
}

stk_status stk_meeting_connect(const stk_meeting *meeting, int *fd, stk_error *err)
{
    const struct sockaddr_un address = address_of(meeting);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0) return stk_fail_errno(err, "cannot make a socket");
    const stk_ns deadline = stk_now() + FULL_NS;
    int code;
    /* EAGAIN: the list of those who want to connect is full. */
    while ((code = connect(*fd, (const struct sockaddr *)&address, sizeof address) ? errno : 0) == EAGAIN && stk_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL_NS}, NULL);
    if (code == 0) return STK_OK;
    close(*fd);
    *fd = -1;
    if (code == ENOENT || code == ECONNREFUSED) return STK_AGAIN;
    errno = code;
    return stk_fail_errno(err, "cannot connect to %s", meeting->socket);
}

stk_status stk_meeting_listen(const stk_meeting *meeting, int *fd, stk_error *err)
{
    const struct sockaddr_un address = address_of(meeting);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0) return stk_fail_errno(err, "cannot make a socket");
    unlink(meeting->socket);
    if (bind(*fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(*fd, BACKLOG) == 0) return STK_OK;
    const stk_status status = stk_fail_errno(err, "cannot listen at %s", meeting->socket);
    close(*fd);
    *fd = -1;
    return status;
}

/* --- what is left behind --- */

void stk_meeting_clear(const stk_meeting *meeting)
{
    unlink(meeting->socket);
    unlink(meeting->log);
    unlink(meeting->lock);
}

static void sweep_run(const char *run)
{
    stk_meeting other;
    int lock, connection = -1;
    if (stk_meeting_find(&other, run, NULL) < 0 || stk_meeting_lock(&other, 0, &lock, NULL) != STK_OK) return;
    if (stk_meeting_connect(&other, &connection, NULL) == STK_AGAIN) stk_meeting_clear(&other);
    if (connection >= 0) close(connection);
    stk_meeting_unlock(lock);
}

void stk_meeting_sweep(const stk_meeting *meeting)
{
    DIR *const folder = opendir(meeting->folder);
    if (!folder) return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const char *const dot = strrchr(entry->d_name, '.');
        char run[STK_RUN_NAME_MAX + 1];
        if (!dot || (strcmp(dot, ".sock") && strcmp(dot, ".lock") && strcmp(dot, ".log"))) continue;
        const int length = snprintf(run, sizeof run, "%.*s", (int)(dot - entry->d_name), entry->d_name);
        if (length < (int)sizeof run && strcmp(run, meeting->run) != 0) sweep_run(run);
    }
    closedir(folder);
}

void stk_meeting_log_end(const stk_meeting *meeting, char text[160])
{
    text[0] = 0;
    const int fd = open(meeting->log, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const off_t size = lseek(fd, 0, SEEK_END), from = size > 159 ? size - 159 : 0;
    const ssize_t got = pread(fd, text, 159, from);
    close(fd);
    size_t length = got > 0 ? (size_t)got : 0;
    while (length && isspace((unsigned char)text[length - 1])) length--;
    text[length] = 0;
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)text[i])) text[i] = ' ';
}
