/* test_kills.c - whoever is killed, and when: the stream is the same bytes, what is held stays valid, and nothing is left behind (field report F07). */
#include "served.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

static tiny_run calm;

static stk_options long_run(const char *name, const char *more, uint32_t world)
{
    stk_options options;
    char text[300];
    snprintf(text, sizeof text, "micro_batch: 1\nprefetch: 2\n%s", more);
    served_options(&options, name, text);
    options.epochs = 8;
    tiny_run_from(&calm, &options, world, NULL);
    CHECK_INT(calm.status, STK_END);
    return options;
}

static void an_engine_killed_in_the_middle_goes_on_with_the_same_bytes(void)
{
    stk_options options = long_run("middle", "keep: 3\n", 1);
    stk_client *client = served_open(&options, "middle", 0, 1, 1, NULL);
    stk_batch *held[3] = {0}, *batch;
    stk_error err;
    uint8_t digest[16];
    size_t number[3] = {0}; /* of those that are held */
    for (size_t i = 0; i < calm.count; i++) {
        if (i % 29 == 5) served_kill_engine("middle");
        if (i % 31 == 7) { /* while it is asked */
            const stk_status status = stk_client_next(client, &batch, 0, &err);
            CHECK(status == STK_AGAIN || status == STK_OK);
            served_kill_engine("middle");
            if (status == STK_OK) {
                stk_batch_digest(batch, digest);
                CHECK(memcmp(digest, calm.digest[i++], 16) == 0);
                stk_batch_release(&batch);
                if (i == calm.count) break;
            }
        }
        /* Three that come from engines of before and of now. */
        stk_batch_release(&held[i % 3]);
        CHECK_OK(stk_client_next(client, &held[i % 3], 60 * STK_S, &err), err);
        CHECK(held[i % 3] != NULL);
        number[i % 3] = i;
        for (int k = 0; k < 3; k++) {
            if (!held[k]) continue;
            stk_batch_digest(held[k], digest);
            CHECK_MSG(memcmp(digest, calm.digest[number[k]], 16) == 0, "micro-batch %zu, held at %zu", number[k], i);
        }
    }
    served_expect_end_of_plan(client);
    for (int i = 0; i < 3; i++) stk_batch_release(&held[i]);
    stk_client_close(&client);
    served_expect_end("middle");
    stk_options_deinit(&options);
}

/* What of a rank's readers is done, written by their processes. */
typedef struct progress {
    _Atomic uint64_t done;  /* of this rank in this pass over the run */
    _Atomic uint64_t total; /* of all passes and processes */
} progress;

static progress *shared;

static void share(void)
{
    shared = mmap(NULL, 8 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
}

/* A process that reads a rank from its own last checkpoint on, again and again (or once), each time to the end. */
static pid_t start_reader(const stk_options *options, const char *run, uint32_t rank, uint32_t world, uint32_t readers, progress *mine, bool once)
{
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child) return child;
    const size_t count = calm.count / world;
    do {
        const size_t from = mine->done % count / 4 * 4; /* checkpoints are older than what was done */
        stk_client *client = served_open(options, run, rank, world, readers, from ? &calm.state[(from - 1) * world + rank] : NULL);
        for (size_t i = from; i < count; i++) {
            served_expect_next(client, calm.digest[i * world + rank], run);
            mine->done = i + 1;
            mine->total++;
            if (i % 3 == 0) served_sleep_ms(1);
        }
        served_expect_end_of_plan(client);
        stk_client_close(&client);
        mine->done = 0;
    } while (!once);
    _exit(0);
}

static void expect_success(pid_t child)
{
    int how;
    CHECK(waitpid(child, &how, 0) == child);
    CHECK_MSG(WIFEXITED(how) && WEXITSTATUS(how) == 0, "how %x", (unsigned)how);
}

/* All of them see the end of the engine at different places, and come back. */
static void readers_in_many_processes_survive_their_engine(void)
{
    enum { WORLD = 2, READERS = 2 };
    stk_options options = long_run("many", "keep: 3\n", WORLD);
    pid_t child[WORLD * READERS];
    served_setup();
    share();
    for (uint32_t i = 0; i < WORLD * READERS; i++) child[i] = start_reader(&options, "many", i % WORLD, WORLD, READERS, &shared[i], true);
    for (int kills = 0; kills < 4; kills++) {
        const uint64_t before = shared[0].total;
        for (int k = 0; k < 5000 && shared[0].total < before + 5; k++) served_sleep_ms(2);
        const pid_t engine = served_engine("many");
        if (shared[0].total < before + 5) break; /* it is at its end: an engine that nobody needs leaves its socket behind */
        if (engine) kill(engine, SIGKILL);
    }
    for (uint32_t i = 0; i < WORLD * READERS; i++) expect_success(child[i]);
    served_expect_end("many");
    stk_options_deinit(&options);
}

/* No rank waits for ever: it is told of the engine and where its log lies. */
static void an_engine_that_is_killed_again_and_again_is_an_error_of_every_rank(void)
{
    enum { WORLD = 2 };
    stk_options options = long_run("again", "", WORLD);
    pid_t child[WORLD];
    served_setup();
    share();
    for (uint32_t r = 0; r < WORLD; r++) {
        fflush(NULL);
        child[r] = fork();
        CHECK(child[r] >= 0);
        if (child[r]) continue;
        stk_client *client = served_open(&options, "again", r, WORLD, 1, NULL);
        stk_batch *batch;
        stk_error err;
        stk_status status;
        while ((status = stk_client_next(client, &batch, 60 * STK_S, &err)) == STK_OK) {
            shared[r].total++;
            stk_batch_release(&batch);
            served_sleep_ms(2);
        }
        CHECK_MSG(status == STK_ERR_SYSTEM, "status %d", (int)status);
        CHECK_HAS(err.message, "ended");
        CHECK_HAS(err.file, "again.log");
        CHECK_INT(stk_client_next(client, &batch, 60 * STK_S, &err), STK_ERR_SYSTEM);
        stk_client_close(&client);
        _exit(0);
    }
    while (shared[0].total == 0 || shared[1].total == 0) served_sleep_ms(1);
    for (uint32_t r = 0; r < WORLD;) {
        const pid_t engine = served_engine("again");
        if (engine) kill(engine, SIGKILL);
        int how;
        if (waitpid(child[r], &how, WNOHANG) != child[r]) continue;
        CHECK_MSG(WIFEXITED(how) && WEXITSTATUS(how) == 0, "rank %u: %x", r, (unsigned)how);
        r++;
    }
    stk_options_deinit(&options);
}

/* A trainer that dies frees what it held: the others go on, and it comes back from an older state. */
static void a_killed_client_frees_its_slots_and_may_come_back(void)
{
    stk_options options = long_run("client", "keep: 1\n", 1);
    served_setup();
    share();
    stk_client *client = served_open(&options, "client", 0, 1, 2, NULL);
    fflush(NULL);
    const pid_t child = fork(); /* its sibling, which holds a batch and stops reading */
    if (child == 0) {
        stk_client *own = served_open(&options, "client", 0, 1, 2, NULL);
        stk_batch *batch;
        stk_error err;
        CHECK_OK(stk_client_next(own, &batch, STK_FOREVER, &err), err);
        const pid_t heir = fork(); /* holds the socket on */
        if (heir == 0) {
            for (int i = 0; i < 500 && shared[1].total == 0; i++) served_sleep_ms(10);
            _exit(0);
        }
        shared[0].total = 1;
        for (;;) pause();
    }
    while (shared[0].total == 0) served_sleep_ms(1);
    served_expect_next(client, calm.digest[0], "before");
    served_expect_next(client, calm.digest[1], "before");
    stk_batch *batch;
    stk_error err;
    CHECK_INT(stk_client_next(client, &batch, 50 * STK_MS, &err), STK_AGAIN); /* the sibling is in the way */
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    for (size_t i = 2; i < 20; i++) served_expect_next(client, calm.digest[i], "alone");
    shared[1].total = 1;
    /* Back from its checkpoint, behind what is still there. */
    stk_client *back = served_open(&options, "client", 0, 1, 2, &calm.state[3]);
    for (size_t i = 4; i < 20; i++) served_expect_next(back, calm.digest[i], "back");
    for (size_t i = 20; i < calm.count; i++) {
        served_expect_next(back, calm.digest[i], "back");
        served_expect_next(client, calm.digest[i], "the other");
    }
    stk_client_close(&back);
    stk_client_close(&client);
    stk_options_deinit(&options);
}

/* A namespace of pids of this process's children's own; as root, or as whoever may make one of users. */
static bool leave_namespace(void)
{
    char map[40];
    const uid_t user = geteuid();
    if (unshare(CLONE_NEWPID) == 0) return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) return false;
    const int length = snprintf(map, sizeof map, "%u %u 1", (unsigned)user, (unsigned)user), file = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    const bool mapped = file >= 0 && write(file, map, (size_t)length) == length;
    if (file >= 0) close(file);
    return mapped;
}

/* Where the engine cannot see it: reads a batch, leaves the socket to a child, and is killed. */
static void die_with_an_heir(const stk_options *options)
{
    stk_batch *batch;
    stk_error err;
    stk_client *client = served_open(options, "apart", 0, 1, 2, NULL);
    CHECK_OK(stk_client_next(client, &batch, STK_FOREVER, &err), err);
    fflush(NULL);
    if (fork() == 0) {
        for (int i = 0; i < 6000 && shared[1].total == 0; i++) served_sleep_ms(10);
        _exit(0);
    }
    shared[0].total = 1;
    for (;;) pause();
}

/* The first of a namespace, with an engine of its own in it: goes on when the other reader has been killed. */
static void read_beside_a_stranger(const stk_options *options)
{
    stk_client *client = served_open(options, "apart", 0, 1, 2, NULL);
    stk_batch *batch;
    stk_error err;
    shared[2].total = 1;
    for (int i = 0; i < 60000 && shared[0].total == 0; i++) served_sleep_ms(1);
    served_expect_next(client, calm.digest[0], "before");
    served_expect_next(client, calm.digest[1], "before");
    CHECK_INT(stk_client_next(client, &batch, 50 * STK_MS, &err), STK_AGAIN); /* the other one is in the way */
    shared[3].total = 1;
    for (size_t i = 2; i < 20; i++) served_expect_next(client, calm.digest[i], "alone");
    stk_client_close(&client);
}

/* Whether this kernel tells a process of another namespace (SO_PEERPIDFD, Linux 6.5). */
static bool knows_strangers(void)
{
    int pair[2], peer;
    socklen_t size = sizeof peer;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    const bool known = getsockopt(pair[0], SOL_SOCKET, 77, &peer, &size) == 0;
    if (known) close(peer);
    close(pair[0]);
    close(pair[1]);
    return known;
}

/* Containers may share a folder of engines: a process of another namespace has no number in the engine's. */
static void a_killed_client_of_another_container_frees_its_slots(void)
{
    stk_options options = long_run("apart", "keep: 1\n", 1);
    int how = 0;
    served_setup();
    share();
    fflush(NULL);
    const pid_t apart = fork(); /* its children are of the namespace */
    if (apart == 0) {
        if (!knows_strangers() || !leave_namespace()) _exit(77);
        const pid_t first = fork();
        if (first == 0) {
            read_beside_a_stranger(&options);
            _exit(0); /* and with it all of the namespace */
        }
        _exit(waitpid(first, &how, 0) == first && WIFEXITED(how) ? WEXITSTATUS(how) : 1);
    }
    const pid_t client = fork();
    if (client == 0) {
        for (int i = 0; i < 60000 && shared[2].total == 0; i++) served_sleep_ms(1);
        die_with_an_heir(&options);
    }
    pid_t ended = 0;
    while (shared[3].total == 0 && ended == 0) {
        served_sleep_ms(1);
        ended = waitpid(apart, &how, WNOHANG);
    }
    CHECK(kill(client, SIGKILL) == 0 && waitpid(client, NULL, 0) == client);
    if (ended == 0) CHECK(waitpid(apart, &how, 0) == apart);
    shared[1].total = 1;
    CHECK_MSG(WIFEXITED(how) && (WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 77), "how %x", (unsigned)how);
    if (WEXITSTATUS(how) == 77) fprintf(stderr, "%s: no namespace of pids here, or a kernel before 6.5\n", test_name);
    stk_options_deinit(&options);
}

/* It had asked for a place ahead, and nothing had come: from there on all before is gone, which its heir finds out. */
static void who_comes_back_before_what_was_asked_for_gets_it(void)
{
    stk_options options = long_run("ahead", "", 1);
    stk_batch *batch;
    stk_error err;
    for (size_t ahead = 40; ahead < 48; ahead++) {
        stk_client *client = served_open(&options, "ahead", 0, 1, 1, &calm.state[ahead]);
        const stk_status status = stk_client_next(client, &batch, 0, &err);
        CHECK(status == STK_AGAIN || status == STK_OK);
        if (status == STK_OK) stk_batch_release(&batch);
        served_sleep_ms(ahead % 2); /* for the question to arrive */
        stk_client_close(&client);
        client = served_open(&options, "ahead", 0, 1, 1, &calm.state[20]);
        served_expect_next(client, calm.digest[21], "from before");
        stk_client_close(&client);
    }
    CHECK(served_engine("ahead") > 0);
    stk_options_deinit(&options);
}

static int count_of(const char *folder, const char *part)
{
    DIR *const d = opendir(folder);
    int count = 0;
    for (const struct dirent *entry; d && (entry = readdir(d));) count += strstr(entry->d_name, part) != NULL;
    if (d) closedir(d);
    return count;
}

/* 100 kills of engine and clients, in any order, and in the middle of each other's starts. */
static void nothing_is_left_behind_by_a_hundred_kills(void)
{
    enum { WORLD = 2, KILLS = 100 };
    stk_options options = long_run("hundred", "keep: 2\n", WORLD);
    char folder[300];
    snprintf(folder, sizeof folder, "%s/hundred", test_folder());
    served_setup();
    share();
    const int files = count_of("/proc/self/fd", "");
    pid_t child[WORLD];
    for (uint32_t r = 0; r < WORLD; r++) child[r] = start_reader(&options, "hundred", r, WORLD, 1, &shared[r], false);
    unsigned random = 12345;
    int engines = 0;
    for (int i = 0; i < KILLS; i++) {
        random = random * 1103515245u + 12345u;
        const unsigned dice = random >> 16;
        const uint64_t before[WORLD] = {shared[0].total, shared[1].total};
        /* Every other time all have gone on before. */
        for (int k = 0; k < 15000 && i % 2 && (shared[0].total == before[0] || shared[1].total == before[1]); k++) served_sleep_ms(2);
        CHECK_MSG(!(i % 2) || shared[0].total > before[0], "no progress after %d kills", i);
        served_sleep_ms((long)(dice % 30));
        for (uint32_t r = 0; r < WORLD; r++) CHECK_MSG(waitpid(child[r], NULL, WNOHANG) == 0, "rank %u has failed after %d kills", r, i);
        if (dice % 3 == 2) {
            const pid_t engine = served_engine("hundred");
            engines += engine && kill(engine, SIGKILL) == 0;
            continue;
        }
        const uint32_t r = dice % 3;
        CHECK(kill(child[r], SIGKILL) == 0 && waitpid(child[r], NULL, 0) == child[r]);
        child[r] = start_reader(&options, "hundred", r, WORLD, 1, &shared[r], false);
    }
    CHECK(engines > 10);
    const pid_t engine = served_engine("hundred");
    if (engine) kill(engine, SIGKILL); /* with all who could tidy up behind it */
    for (uint32_t r = 0; r < WORLD; r++) CHECK(kill(child[r], SIGKILL) == 0 && waitpid(child[r], NULL, 0) == child[r]);
    /* What is left is one socket, lock and log; the next run, of whatever name, takes them away, once an engine whose starter was killed
     * in the middle has gone, too: it may still come up now. */
    char names[400] = "";
    for (int run = 0; run < 5 && (run == 0 || served_files(names)); run++) {
        for (int i = 0; i < 600 && served_engine("hundred"); i++) served_sleep_ms(50);
        stk_client *client = served_open(&options, "after", 0, 1, 1, NULL);
        stk_client_close(&client);
        for (int i = 0; i < 600 && served_engine("after"); i++) served_sleep_ms(50);
    }
    CHECK_INT(served_engine("hundred"), 0);
    served_expect_end("after");
    CHECK_INT(count_of(folder, "stoker-work"), 0);
    CHECK_INT(count_of("/proc/self/fd", ""), files);
    stk_options_deinit(&options);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(an_engine_killed_in_the_middle_goes_on_with_the_same_bytes), TEST(readers_in_many_processes_survive_their_engine),
              TEST(an_engine_that_is_killed_again_and_again_is_an_error_of_every_rank),
              TEST(a_killed_client_frees_its_slots_and_may_come_back), TEST(a_killed_client_of_another_container_frees_its_slots),
              TEST(who_comes_back_before_what_was_asked_for_gets_it),
              TEST(nothing_is_left_behind_by_a_hundred_kills));
}
