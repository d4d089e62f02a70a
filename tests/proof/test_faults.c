/* test_faults.c - every named fault, at every call of its site: the right code, no leak, no hang, the next run clean.
 *
 * The N-th call of a fault's site fails, once or for good, N = 1, 2, ... until a run meets none any more. */
#include <limits.h>
#include <stdbool.h>

#include "base/fault.h"
#include "proof_set.h"

static const char *folder;
static uint8_t calm_digest[16];

static void remove_sidecars(void)
{
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s/index' '%s'/*.stoker* '%s'/.stoker*", folder, folder, folder);
    CHECK(system(command) == 0);
}

/* One run with a fault.  True if the fault was met. */
static bool run_with(stk_fault_id id, unsigned long nth, bool forever, const char *name)
{
    stk_options options;
    stk_error err = {0};
    uint8_t digest[16];
    remove_sidecars();
    proof_options(&options, folder);
    stk_fault_set(id, nth, forever);
    const long count = proof_run(&options, digest, NULL, &err);
    const bool met = stk_fault_seen(id) >= nth;
    stk_fault_set(id, 0, false);
    stk_options_deinit(&options);
    if (count >= 0) {
        /* Whatever was met was overcome: then the stream is the same (invariant 1). */
        CHECK_MSG(memcmp(digest, calm_digest, 16) == 0, "%s:%lu changed the stream", name, nth);
    } else {
        CHECK_MSG(met, "%s:%lu: an error without a fault: %s", name, nth, err.message);
        CHECK_MSG(err.message[0], "%s:%lu: status %ld without words", name, nth, count);
        CHECK_INT(err.status, count);
    }
    return met;
}

static void sweep(stk_fault_id id, const char *name)
{
    for (int forever = 0; forever < 2; forever++) {
        unsigned long met = 0;
        /* The first calls one by one; later ones in growing strides, so that a sweep ends in seconds. */
        for (unsigned long nth = 1; run_with(id, nth, forever, name); nth += 1 + nth / 24) met++;
        fprintf(stderr, "%s%s: %lu faults met\n", name, forever ? " for good" : "", met);
        (void)run_with(id, ULONG_MAX, false, name); /* the next run is clean: its digest is checked */
    }
}

static void every_fault_ends_a_run_cleanly_or_not_at_all(void)
{
    folder = test_folder();
    char path[600];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/img-%d.jpg", folder, i);
        proof_jpeg(path, 160 + 40 * i, 150, (unsigned)i);
    }
    proof_manifest(folder, 8, 3);
    proof_config(folder, "batch: 3\nworkers: 2\nmemory: 64MiB\nmax_pixels: 16384\nmin_pixels: 4096\ntimeout: 20\n");
    stk_options options;
    stk_error err;
    proof_options(&options, folder);
    CHECK_MSG(proof_run(&options, calm_digest, NULL, &err) == 3, "%s", err.message);
    stk_options_deinit(&options);

    static const struct { stk_fault_id id; const char *name; } faults[] = {
#define FAULT_ROW(id, text) {id, text},
        STK_FAULT_MAP(FAULT_ROW)
#undef FAULT_ROW
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sweep(faults[i].id, faults[i].name);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_fault_ends_a_run_cleanly_or_not_at_all));
}
