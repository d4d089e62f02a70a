/* diff.h - `stoker diff` between its files: words on stdout, and whether there were any. */
#ifndef STOKER_CLI_DIFF_H
#define STOKER_CLI_DIFF_H

#include <stdio.h>

#include "command.h"

enum { DIFF_EQUAL, DIFF_DIFFERENT, DIFF_FAILED };

/* A message on stderr, and DIFF_FAILED. */
static inline int diff_fails(const char *path, const char *words)
{
    fprintf(stderr, "stoker diff: %s: %s\n", path, words);
    return DIFF_FAILED;
}

/* Two states, as they were read. `where` is put before each line: "" or "step 3, rank 0, micro-batch 1: state: ". */
int diff_states(const stk_state *a, const stk_state *b, const char *where);
/* Likewise; how many differences. */
int diff_fingerprints(const stk_fingerprint *a, const stk_fingerprint *b, const char *where);
int diff_numbers(const char *where, const char *name, uint64_t a, uint64_t b);

/* Two folders: of one micro-batch each, or of folders of those. */
int diff_dumps(const char *a, const char *b);
/* Whether a folder holds a micro-batch; or folders of such. */
bool is_micro_batch(const char *folder);
bool is_dump(const char *folder);

#endif
