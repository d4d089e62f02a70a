/* test_memory.c - memory stays within what was granted: every malloc of the process is counted.
 *
 * malloc and its kin are interposed, so what the libraries allocate counts as well (architecture section 8). */
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/memory.h"
#include "malloc_count.h"
#include "proof_set.h"

/* --- proofs --- */

enum { SIDE_PX = 4096, BIG_IMAGES = 40, WHOLE_PICTURE_BYTES = SIDE_PX * SIDE_PX * 3 };

/* 40 baseline JPEGs of 16 MP, shrunk to half a MP, on four workers, in an address space that four whole decoded pictures
 * would break.  Run in a child, because the limit stays with the process. */
static void big_jpegs_never_become_whole_pictures(void)
{
    const char *const folder = test_folder();
    char path[600], link_path[600];
    snprintf(path, sizeof path, "%s/img-0.jpg", folder);
    proof_jpeg(path, SIDE_PX, SIDE_PX, 1);
    for (int i = 1; i < BIG_IMAGES; i++) {
        snprintf(link_path, sizeof link_path, "%s/img-%d.jpg", folder, i);
        CHECK(link(path, link_path) == 0);
    }
    proof_manifest(folder, BIG_IMAGES, BIG_IMAGES);
    proof_config(folder, "batch: 2\nworkers: 4\nmax_pixels: 524288\nmemory: 96MiB\nprefetch: 2\n");

    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        mallopt(M_ARENA_MAX, 1); /* glibc reserves 64 MiB of address space for each further arena */
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 512 * 1024);
        pthread_setattr_default_np(&small);
        FILE *const statm = fopen("/proc/self/statm", "r");
        unsigned long pages = 0;
        CHECK(statm && fscanf(statm, "%lu", &pages) == 1);
        fclose(statm);
        const rlim_t limit_bytes = (rlim_t)pages * 4096 + (rlim_t)4 * WHOLE_PICTURE_BYTES - (16u << 20);
        CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){limit_bytes, limit_bytes}) == 0);
        stk_options options;
        stk_error err;
        stk_metrics metrics;
        uint8_t digest[16];
        proof_options(&options, folder);
        const long count = proof_run(&options, digest, &metrics, &err);
        CHECK_MSG(count == BIG_IMAGES / 2, "%ld: %s", count, count < 0 ? err.message : "");
        CHECK_INT(metrics.images, BIG_IMAGES);
        CHECK_INT(metrics.masked, 0);
        CHECK(metrics.peak_bytes <= metrics.budget_bytes);
        stk_options_deinit(&options);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
}

/* Invariants 5 and 10: what all of the process holds grows by no more than the budget, and in steady state Stoker itself
 * allocates nothing: 480 more batches cost no more allocations of ours than what the workers had not met before. */
static void a_run_stays_within_its_budget_and_allocates_nothing_per_batch(void)
{
    const char *const folder = test_folder();
    char path[600];
    for (int i = 0; i < 7; i++) {
        snprintf(path, sizeof path, "%s/img-%d.jpg", folder, i);
        unlink(path);
        proof_jpeg(path, 300 + 71 * i, 420 - 37 * i, (unsigned)i);
    }
    proof_manifest(folder, 60, 7);
    uint64_t allocations[2];
    for (int i = 0; i < 2; i++) {
        proof_config(folder, i ? "batch: 5\nworkers: 3\nepochs: 42\nmemory: 48MiB\nmin_pixels: 16384\nmax_pixels: 65536\n"
                               : "batch: 5\nworkers: 3\nepochs: 2\nmemory: 48MiB\nmin_pixels: 16384\nmax_pixels: 65536\n");
        stk_options options;
        stk_error err;
        stk_metrics metrics;
        uint8_t digest[16];
        proof_options(&options, folder);
        if (i == 0) CHECK_MSG(proof_run(&options, digest, &metrics, &err) == 24, "%s", err.message); /* builds the index */
        const uint64_t before = stk_alloc_count();
        const size_t held = atomic_load(&live_bytes);
        atomic_store(&peak_bytes, held);
        const long count = proof_run(&options, digest, &metrics, &err);
        CHECK_MSG(count == (i ? 504 : 24), "%ld: %s", count, count < 0 ? err.message : "");
        allocations[i] = stk_alloc_count() - before;
        const size_t grown = atomic_load(&peak_bytes) - held;
        CHECK_MSG(grown <= metrics.budget_bytes, "the heap grew by %zu bytes, and the budget is %llu", grown,
                  (unsigned long long)metrics.budget_bytes);
        CHECK(metrics.peak_bytes <= metrics.budget_bytes);
        stk_options_deinit(&options);
    }
    /* A worker's scratch grows the first time that it meets an image of a size: 7 sizes, 3 workers, 2 axes. */
    CHECK_MSG(allocations[1] <= allocations[0] + 7 * 3 * 2, "%llu allocations over 24 batches, %llu over 504",
              (unsigned long long)allocations[0], (unsigned long long)allocations[1]);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(big_jpegs_never_become_whole_pictures),
              TEST(a_run_stays_within_its_budget_and_allocates_nothing_per_batch));
}
