/* quarantine.c - the log of what is in work, the list of what crashed, and the child that tries a suspect. */
#include "engine/quarantine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/error.h"
#include "schema/place.h"

enum {
    LOG_COUNT = 64,         /* processes at most that keep a log over the same data */
    CELL_COUNT = 1024,      /* threads at most of one of them */
    CELL_BYTES = 256,
    LIST_BYTES_MAX = 16 << 20,
    TRIALS = 3,             /* of a picture, while they tell nothing */
    LEAST_SHARE = 16,       /* a trial that computes for less than a 16th of the time stands still */
};
#define LOOK_NS (2 * STK_MS) /* how often a trial is looked at */
#define STILL_NS (2 * STK_S) /* a trial that stands still for so long tells nothing */

/* A cell of the log, as the file has it. */
typedef struct entry {
    uint64_t key; /* 0: nothing is in work */
    char address[CELL_BYTES - sizeof(uint64_t)];
} entry;
_Static_assert(sizeof(entry) == CELL_BYTES, "a cell of the log");

/* It is written, and not mapped: on a disk that is full, touching a mapping would be a signal. */
struct stk_quarantine_cell {
    int fd;
    off_t at_bytes;
};

/* Sets of keys: few, and read far more often than they grow. */
typedef struct key_set {
    uint64_t *key;
    size_t count, capacity;
} key_set;

struct stk_quarantine {
    char *stem;
    stk_ns alone_ns; /* that a trial may compute */
    pthread_mutex_t lock; /* guards all below */
    bool opened;
    int fd;                    /* of the log; -1: none is kept */
    int number;                /* of the log */
    stk_quarantine_cell cell[CELL_COUNT];
    bool used[CELL_COUNT];
    size_t used_count;
    key_set suspects, crashed;
    atomic_size_t watched; /* keys in both: none, as nearly always, costs no lock */
};

/* --- sets --- */

static bool has(const key_set *set, uint64_t key)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->key[i] == key) return true;
    return false;
}

/* Without memory a key is forgotten, which costs a crash more. */
static void add(key_set *set, uint64_t key)
{
    if (key == 0 || has(set, key)) return;
    if (set->count == set->capacity) {
        const size_t capacity = set->capacity ? 2 * set->capacity : 16;
        uint64_t *const moved = stk_alloc_array(STK_TAG_ENGINE, capacity, sizeof *moved);
        if (!moved) return;
        if (set->count) memcpy(moved, set->key, set->count * sizeof *moved);
        stk_free(set->key);
        set->key = moved;
        set->capacity = capacity;
    }
    set->key[set->count++] = key;
}

static void drop(key_set *set, uint64_t key)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->key[i] == key) set->key[i--] = set->key[--set->count];
}

static void count_watched(stk_quarantine *q)
{
    atomic_store(&q->watched, q->suspects.count + q->crashed.count);
}

/* --- files --- */

static bool path_of(const stk_quarantine *q, char path[PATH_MAX], int number)
{
    const int length = number < 0 ? snprintf(path, PATH_MAX, "%s.stoker-crashed", q->stem)
                                  : snprintf(path, PATH_MAX, "%s.stoker-work-%d", q->stem, number);
    return length > 0 && length < PATH_MAX;
}

/* Open a log and lock it: -1 when it is another living process's, or is not there and may not be made.  A log may be
 * unlinked by its owner between open and lock: then the name is looked at again. */
static int open_log(const stk_quarantine *q, int number, bool make)
{
    char path[PATH_MAX];
    if (!path_of(q, path, number)) return -1;
    for (;;) {
        const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0644);
        if (fd < 0) return -1;
        struct stat info;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
            if (info.st_nlink) return fd;
            close(fd);
            continue;
        }
        close(fd);
        return -1;
    }
}

static void remove_log(const stk_quarantine *q, int number, int fd)
{
    char path[PATH_MAX];
    if (path_of(q, path, number)) unlink(path);
    close(fd);
}

/* What a dead process was at. */
static void take_suspects(stk_quarantine *q, int fd)
{
    entry each;
    for (off_t at = 0; pread(fd, &each, sizeof each, at) == (ssize_t)sizeof each; at += (off_t)sizeof each) add(&q->suspects, each.key);
}

/* Logs of the dead are read and go; the first name that is free becomes ours. */
static void open_logs(stk_quarantine *q)
{
    for (int i = 0; i < LOG_COUNT; i++) {
        const int fd = open_log(q, i, q->fd < 0);
        if (fd < 0) continue;
        take_suspects(q, fd);
        if (q->fd >= 0 || ftruncate(fd, 0)) {
            remove_log(q, i, fd);
            continue;
        }
        q->fd = fd;
        q->number = i;
    }
}

/* The last cell has been left: nothing of ours stays behind.  What is known of pictures stays known. */
static void close_log(stk_quarantine *q)
{
    remove_log(q, q->number, q->fd);
    q->fd = -1;
    q->opened = false;
}

/* Lines "key signal address"; what is no such line is no concern of ours. */
static void read_list(stk_quarantine *q)
{
    char path[PATH_MAX], line[PATH_MAX + 64];
    struct stat info;
    if (!path_of(q, path, -1) || stat(path, &info) || info.st_size > LIST_BYTES_MAX) return;
    FILE *const file = fopen(path, "re");
    if (!file) return;
    uint64_t key;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%16" SCNx64 " ", &key) == 1) add(&q->crashed, key);
    fclose(file);
}

/* One write a line, so that two processes do not mix theirs. */
static void append_to_list(const stk_quarantine *q, uint64_t key, int signal_number, stk_str address)
{
    char path[PATH_MAX], line[PATH_MAX + 64];
    if (!path_of(q, path, -1)) return;
    int length = snprintf(line, sizeof line - 1, "%016" PRIx64 " %d %.*s", key, signal_number,
                          (int)(address.size_bytes < 2000 ? address.size_bytes : 2000), address.data);
    if (length < 0) return;
    if ((size_t)length > sizeof line - 2) length = (int)sizeof line - 2;
    for (int i = 0; i < length; i++)
        if ((uint8_t)line[i] < 0x20) line[i] = '?';
    line[length++] = '\n';
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return;
    /* A list that cannot be written costs a child process more at the next start, and nothing else. */
    if (write(fd, line, (size_t)length) < 0 || fsync(fd)) errno = 0;
    close(fd);
}

/* --- the object --- */

stk_status stk_quarantine_create(stk_quarantine **out, const char *stem, stk_ns alone_ns, stk_error *err)
{
    *out = NULL;
    stk_quarantine *const q = stk_alloc(STK_TAG_ENGINE, sizeof *q);
    if (!q) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the log of what is in work");
    q->fd = -1;
    q->alone_ns = alone_ns;
    pthread_mutex_init(&q->lock, NULL);
    q->stem = stk_strdup(STK_TAG_ENGINE, stem);
    if (!q->stem) {
        stk_quarantine_destroy(q);
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: the log of what is in work");
    }
    *out = q;
    return STK_OK;
}

void stk_quarantine_destroy(stk_quarantine *quarantine)
{
    if (!quarantine) return;
    stk_free(quarantine->suspects.key);
    stk_free(quarantine->crashed.key);
    stk_free(quarantine->stem);
    pthread_mutex_destroy(&quarantine->lock);
    stk_free(quarantine);
}

stk_quarantine_cell *stk_quarantine_enter(stk_quarantine *quarantine)
{
    stk_quarantine *const q = quarantine;
    stk_quarantine_cell *cell = NULL;
    pthread_mutex_lock(&q->lock);
    if (!q->opened) {
        q->opened = true;
        read_list(q);
        open_logs(q);
        count_watched(q);
    }
    for (size_t i = 0; q->fd >= 0 && !cell && i < CELL_COUNT; i++) {
        if (q->used[i]) continue;
        q->used[i] = true;
        q->used_count++;
        cell = &q->cell[i];
        *cell = (stk_quarantine_cell){q->fd, (off_t)i * CELL_BYTES};
    }
    pthread_mutex_unlock(&q->lock);
    return cell;
}

void stk_quarantine_leave(stk_quarantine *quarantine, stk_quarantine_cell *cell)
{
    if (!cell) return;
    stk_quarantine *const q = quarantine;
    stk_quarantine_end(cell);
    pthread_mutex_lock(&q->lock);
    q->used[cell - q->cell] = false;
    if (--q->used_count == 0) close_log(q);
    pthread_mutex_unlock(&q->lock);
}

uint64_t stk_quarantine_key(stk_str address, uint64_t size_bytes, uint64_t mtime_ns)
{
    const uint64_t key =
        XXH3_64bits_withSeed(address.data, address.size_bytes, size_bytes * 0x9e3779b97f4a7c15u ^ mtime_ns);
    return key ? key : 1; /* 0 is "nothing" */
}

/* --- work --- */

/* What a fault of the decoder ends its process with.  Any other signal was sent from outside, to this child as to the rest of its job or by
 * a system short of memory, and says nothing about the picture. */
static const int fatal[] = {SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGTRAP};

static bool is_fatal(int signal_number)
{
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (fatal[i] == signal_number) return true;
    return false;
}

/* What counts when all trials end so.  A sanitizer ends a process by exit, as other tools do; a file that is mapped, and cannot be read for a
 * moment, by SIGBUS; and a lock that a thread of the parent held may be one that is waited for by computing. */
static bool is_doubtful(int how)
{
    return WIFEXITED(how) || WTERMSIG(how) == SIGBUS || WTERMSIG(how) == SIGALRM;
}

/* The child: the program's own handlers would run in it, and a core file of each crash helps nobody. */
static _Noreturn void work_alone(void (*alone)(void *context), void *context, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    /* It has copies of all that its parent has open, a socket that others wait at among them: it must not live longer. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    alone(context);
    _exit(0);
}

static stk_ns cpu_of(pid_t child)
{
    clockid_t id;
    struct timespec used;
    if (clock_getcpuclockid(child, &id) || clock_gettime(id, &used)) return 0;
    return (stk_ns)used.tv_sec * STK_S + (stk_ns)used.tv_nsec;
}

/* How a trial ended; nothing learned is SIGKILL, which is no crash.  A decoder computes and waits for nothing, so what counts is its time of
 * computing, whatever else the machine does.  One that stands still waits for a lock that a thread of the parent held at the
 * fork (of an allocator that does not look after its locks there), or somebody stopped it. */
static int wait_for(const stk_quarantine *q, pid_t child)
{
    const stk_ns still_ns = q->alone_ns < STILL_NS ? q->alone_ns : STILL_NS;
    stk_ns used = 0, used_before = 0, still = 0;
    int how = 0;
    for (; used < q->alone_ns && still < still_ns; still += LOOK_NS) {
        const pid_t got = waitpid(child, &how, WNOHANG);
        if (got == child) return how;
        if (got < 0 && errno != EINTR) return SIGKILL; /* this program lets nobody wait for its children */
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        const stk_ns now = cpu_of(child);
        used = now > used ? now : used;
        if (used - used_before < still_ns / LEAST_SHARE) continue; /* a tool's own thread may do something now and then */
        used_before = used;
        still = 0;
    }
    kill(child, SIGKILL);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) continue;
    return used < q->alone_ns ? SIGKILL : SIGALRM;
}

/* The signal that ended the work in a child; 0: it came through, or no child tells, and it is as if nothing were known. */
static int try_alone(const stk_quarantine *q, void (*alone)(void *context), void *context)
{
    const pid_t parent = getpid();
    int how = 0, doubtful = 0;
    for (int i = 0; i < TRIALS; i++) {
        const pid_t child = fork();
        if (child == 0) work_alone(alone, context, parent);
        if (child < 0) return 0;
        how = wait_for(q, child);
        if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return 0;
        if (WIFSIGNALED(how) && is_fatal(WTERMSIG(how))) return WTERMSIG(how);
        doubtful += is_doubtful(how);
    }
    return doubtful < TRIALS ? 0 : WIFEXITED(how) ? SIGABRT : WTERMSIG(how);
}

/* A log that cannot be written is none: a crash stays a crash, as in a folder without one. */
static void write_log(const stk_quarantine_cell *cell, const void *data, size_t size_bytes)
{
    if (pwrite(cell->fd, data, size_bytes, cell->at_bytes) < 0) errno = 0;
}

static void begin(stk_quarantine_cell *cell, uint64_t key, stk_str address)
{
    if (!cell) return;
    entry now = {.key = key};
    const size_t size = address.size_bytes < sizeof now.address - 1 ? address.size_bytes : sizeof now.address - 1;
    memcpy(now.address, address.data + (address.size_bytes - size), size); /* the end of a path says more */
    write_log(cell, &now, sizeof now);
}

bool stk_quarantine_begin(stk_quarantine *quarantine, stk_quarantine_cell *cell, uint64_t key, stk_str address,
                          void (*alone)(void *context), void *context)
{
    stk_quarantine *const q = quarantine;
    address = stk_address_shown(address); /* it goes into files */
    if (atomic_load_explicit(&q->watched, memory_order_relaxed)) {
        pthread_mutex_lock(&q->lock);
        const bool crashed = has(&q->crashed, key), suspect = has(&q->suspects, key);
        pthread_mutex_unlock(&q->lock);
        if (crashed) return false;
        const int signal_number = suspect ? try_alone(q, alone, context) : 0;
        if (suspect) {
            pthread_mutex_lock(&q->lock);
            drop(&q->suspects, key);
            if (signal_number) add(&q->crashed, key);
            count_watched(q);
            pthread_mutex_unlock(&q->lock);
        }
        if (signal_number) {
            append_to_list(q, key, signal_number, address);
            return false;
        }
    }
    begin(cell, key, address);
    return true;
}

void stk_quarantine_end(stk_quarantine_cell *cell)
{
    if (cell) write_log(cell, &(uint64_t){0}, sizeof(uint64_t));
}
