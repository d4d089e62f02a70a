/* served.h - a small data set served by the real `stoker serve`, and clients of it in this process and in others. */
#ifndef STK_SERVED_H
#define STK_SERVED_H

#include "engine/tiny_set.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <stoker/client.h>

static char served_runtime[300];

static inline void served_sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* A run folder of its own, so that what is in it is this test's. */
static inline void served_setup(void)
{
    if (served_runtime[0]) return;
    snprintf(served_runtime, sizeof served_runtime, "%s/rt", test_folder());
    CHECK(mkdir(served_runtime, 0700) == 0);
    setenv("XDG_RUNTIME_DIR", served_runtime, 1);
    CHECK(getenv("STK_COMMAND") != NULL); /* the build's own */
}

/* Whether a file of /proc, texts with NULs between them, holds these words. */
static inline bool served_says(const char *pid, const char *name, const char *words)
{
    static char text[1 << 16];
    char path[300];
    snprintf(path, sizeof path, "/proc/%.20s/%s", pid, name);
    FILE *const file = fopen(path, "re");
    const size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[size] = 0;
    for (size_t i = 0; i < size; i++)
        if (!text[i]) text[i] = ' ';
    return strstr(text, words) != NULL;
}

/* The engine process of a run, of this test and no other that runs beside it; 0: there is none. */
static inline pid_t served_engine(const char *run)
{
    DIR *const proc = opendir("/proc");
    pid_t found = 0;
    char mark[100], ours[400];
    snprintf(mark, sizeof mark, " serve --run %s ", run);
    snprintf(ours, sizeof ours, "XDG_RUNTIME_DIR=%s ", served_runtime);
    for (const struct dirent *entry; proc && !found && (entry = readdir(proc));)
        if (isdigit((unsigned char)entry->d_name[0]) && served_says(entry->d_name, "cmdline", mark) && served_says(entry->d_name, "environ", ours))
            found = (pid_t)atoi(entry->d_name);
    if (proc) closedir(proc);
    return found;
}

/* Kill it, and see it gone. */
static inline void served_kill_engine(const char *run)
{
    const pid_t engine = served_engine(run);
    CHECK(engine > 0);
    CHECK(kill(engine, SIGKILL) == 0);
    for (int i = 0; i < 3000 && served_engine(run) == engine; i++) served_sleep_ms(2);
    CHECK(served_engine(run) != engine);
}

/* Names in the folder of engines. */
static inline int served_files(char names[400])
{
    char path[400];
    snprintf(path, sizeof path, "%s/stoker", served_runtime);
    DIR *const folder = opendir(path);
    int count = 0;
    names[0] = 0;
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        count++;
        if (strlen(names) + strlen(entry->d_name) < 390) strcat(strcat(names, entry->d_name), " ");
    }
    if (folder) closedir(folder);
    return count;
}

/* Wait until the engine of a run has ended. */
static inline void served_expect_end_of_engine(const char *run)
{
    for (int i = 0; i < 600 && served_engine(run); i++) served_sleep_ms(50);
    CHECK_MSG(served_engine(run) == 0, "the engine of %s lives on", run);
}

/* The engine ends by itself, and leaves nothing. */
static inline void served_expect_end(const char *run)
{
    char names[400] = "";
    for (int i = 0; i < 600 && (served_engine(run) || served_files(names)); i++) served_sleep_ms(50);
    CHECK_MSG(served_engine(run) == 0, "the engine of %s lives on", run);
    CHECK_MSG(served_files(names) == 0, "left behind: %s", names);
}

/* A set with more in its configuration. */
static inline void served_options(stk_options *options, const char *name, const char *more)
{
    char folder[300];
    char command[700];
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    snprintf(command, sizeof command, "mkdir -p '%s'", folder);
    CHECK(system(command) == 0);
    tiny_set(folder, more);
    proof_options(options, folder);
}

static inline stk_client *served_open(const stk_options *options, const char *run, uint32_t rank, uint32_t world, uint32_t readers,
                                      const stk_state *state)
{
    static const uint32_t ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
    stk_client *client;
    stk_error err;
    const stk_attach attach = {.run = run, .rank = rank, .world = world, .node_ranks = ranks, .node_rank_count = world, .readers = readers};
    served_setup();
    CHECK_OK(stk_client_open(&client, options, &attach, state, &err), err);
    return client;
}

/* The next batch has the digest of a micro-batch of the calm run, and is released. */
static inline void served_expect_next(stk_client *client, const uint8_t digest[16], const char *what)
{
    stk_batch *batch;
    stk_error err;
    uint8_t got[16];
    const stk_status status = stk_client_next(client, &batch, 60 * STK_S, &err);
    CHECK_MSG(status == STK_OK, "%s: status %d: %s", what, (int)status, status < 0 ? err.message : "");
    stk_batch_digest(batch, got);
    stk_batch_release(&batch);
    CHECK_MSG(memcmp(got, digest, 16) == 0, "%s: another batch", what);
}

static inline void served_expect_end_of_plan(stk_client *client)
{
    stk_batch *batch;
    stk_error err;
    CHECK_INT(stk_client_next(client, &batch, 60 * STK_S, &err), STK_END);
    CHECK_INT(stk_client_next(client, &batch, 60 * STK_S, &err), STK_END);
}

#endif
