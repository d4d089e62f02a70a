/* diff_state.c - `stoker diff`: where two states differ, and the numbers and fingerprints in them, which plans have too. */
#include "diff.h"

#include <inttypes.h>
#include <string.h>

/* --- fingerprints --- */

int diff_fingerprints(const stk_fingerprint *a, const stk_fingerprint *b, const char *where)
{
    int differences = 0;
    char words[160];
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) {
        const char *const name = stk_stream_option_name((stk_stream_option)i);
        if (!stk_fingerprint_difference(a, b, (stk_stream_option)i, words)) continue;
        if (a->value[i][0] == '#' || b->value[i][0] == '#') printf("%s%s differs\n", where, name);
        else printf("%s%s is %s in A and %s in B\n", where, name, a->value[i], b->value[i]);
        differences++;
    }
    if (!differences && strcmp(a->whole, b->whole) != 0) {
        printf("%sthe fingerprints differ, and their options do not: they are of two releases\n", where);
        differences++;
    }
    return differences;
}

/* --- states --- */

int diff_numbers(const char *where, const char *name, uint64_t a, uint64_t b)
{
    if (a == b) return 0;
    printf("%s%s is %" PRIu64 " in A and %" PRIu64 " in B\n", where, name, a, b);
    return 1;
}

int diff_states(const stk_state *a, const stk_state *b, const char *where)
{
    int differences = diff_fingerprints(&a->fingerprint, &b->fingerprint, where);
    differences += diff_numbers(where, "plan_version", a->plan_version, b->plan_version);
    differences += diff_numbers(where, "epoch", a->epoch, b->epoch);
    differences += diff_numbers(where, "rows", a->rows, b->rows);
    differences += diff_numbers(where, "step", a->step, b->step);
    differences += diff_numbers(where, "micro", a->micro, b->micro);
    differences += diff_numbers(where, "world", a->world, b->world);
    differences += diff_numbers(where, "micro_rows", a->micro_rows, b->micro_rows);
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) {
        if (a->changed[i] == b->changed[i]) continue;
        printf("%sonly %s records that %s was changed\n", where, a->changed[i] ? "A" : "B", stk_stream_option_name((stk_stream_option)i));
        differences++;
    }
    return differences ? DIFF_DIFFERENT : DIFF_EQUAL;
}
