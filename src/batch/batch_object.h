/* batch_object.h - what is behind a stk_batch: a filled slot, its recipe, and who takes it back.
 *
 * The engine makes these from a pool of fixed size, and hands them out; the calls of <stoker/batch.h> only read. */
#ifndef STK_BATCH_BATCH_OBJECT_H
#define STK_BATCH_BATCH_OBJECT_H

#include <stdatomic.h>

#include "batch/slot.h"

/* The owner of batches: lives until the last of them has come home (invariant 6). */
typedef struct stk_batch_home {
    void (*take_back)(struct stk_batch_home *home, stk_batch *batch); /* any thread */
    const stk_batch_form *form;
    const char *const *set_name; /* by the recipe's set_index */
} stk_batch_home;

/* What is known of a sample only once it is made. */
typedef struct stk_batch_note {
    char id[96];
    uint64_t line;
    bool masked;
    int reason_number;     /* of a masked one: stk_reason */
    char reason[64];       /* its words */
    stk_stage stage;       /* where the fault was found */
    char message[256];     /* and what it was */
} stk_batch_note;

/* Whether a state is one of stk_state_at_step. */
bool stk_state_is_step(const stk_state *state);

struct stk_batch {
    atomic_uint references;
    stk_batch_home *home;
    uint8_t *slot; /* read-only once delivered */
    stk_slot_layout layout;
    stk_recipe recipe;
    stk_batch_note *note; /* one a sample of the recipe */
    stk_state after;
};

#endif
