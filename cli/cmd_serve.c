/* cmd_serve.c - `stoker serve`: the engine process of a run, started by its clients or by hand. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

enum { RANKS_MAX = 65536, READERS_MAX = 1024, LINGER_S = 5 };

static bool stopped(void *context)
{
    (void)context;
    return interrupted();
}

/* Whatever the trainer has open is none of the engine's, and would stay open for as long as it lives. */
static void close_others(void)
{
    DIR *const folder = opendir("/proc/self/fd");
    if (!folder) return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const int fd = atoi(entry->d_name);
        if (fd > STDERR_FILENO && fd != dirfd(folder)) close(fd);
    }
    closedir(folder);
}

/* Go on in the background; this process ends, since clients can connect by now.  What it was started from has nothing of it then. */
static void go_behind(void)
{
    const pid_t child = fork();
    if (child > 0) _exit(EXIT_DONE);
    if (child < 0) {
        perror("stoker serve: fork");
        return; /* as well in front */
    }
    if (chdir("/")) perror("stoker serve: chdir");
}

static int run_serve(const invocation *in)
{
    int64_t world, readers, linger;
    stk_error err;
    const bool detach = flag_of(in, "detach") != NULL, by_hand = in->argument_count > 0;
    stk_serve serve = {.run = in->options.run, .options = by_hand ? &in->options : NULL, .stopped = stopped, .waits_first = !detach};
    if (!serve.run) return usage_error(in->command, "--run is missing: the name that clients find the engine by");
    if (!number_of(in, "ranks", 1, RANKS_MAX, 1, &world) || !number_of(in, "readers", 1, READERS_MAX, 1, &readers) ||
        !number_of(in, "linger", 0, 1 << 30, LINGER_S, &linger))
        return EXIT_USAGE;
    serve.node_ranks = flag_of(in, "node-ranks");
    serve.world = (uint32_t)world;
    serve.readers = (uint32_t)readers;
    serve.linger_ns = linger * STK_S;
    if (detach) close_others();
    stk_server *server;
    if (stk_server_open(&server, &serve, &err) < 0) return fail_with(&err);
    if (detach) go_behind();
    const stk_status status = stk_server_run(server, &err);
    stk_server_close(&server);
    return status < 0 ? fail_with(&err) : EXIT_DONE;
}

static const flag serve_flags[] = {
    {"ranks", "N", "with CONFIG: data-parallel ranks of the whole run"},
    {"node-ranks", "LIST", "with CONFIG: those of this machine, as 0-3,8; default: all"},
    {"readers", "N", "with CONFIG: processes that read a rank"},
    {"linger", "SECONDS", "how long it stays when its last client has gone (5)"},
    {"detach", NULL, "go on in the background; returns when clients can connect"},
    {0}};

const command serve_command = {.name = "serve",
                               .arguments = "[CONFIG]",
                               .most = 1,
                               .reads_config = true,
                               .flags = serve_flags,
                               .run = run_serve,
                               .summary = "be the engine process of a run, --run NAME, that trainers attach to",
                               .text = "Trainers start it themselves.  By hand it waits for them; with CONFIG it takes only clients of that\n"
                                       "configuration, else its first client says what is made.  It ends when the last client has been\n"
                                       "gone for a while."};
