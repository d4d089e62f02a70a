/* same_state.h - whether two states are the same to whoever saves them: by their texts, since structs have padding. */
#ifndef STK_SAME_STATE_H
#define STK_SAME_STATE_H

#include "test.h"

#include <stoker/state.h>

static inline bool same_state(const stk_state *a, const stk_state *b)
{
    char text_of_a[STK_STATE_TEXT_MAX], text_of_b[STK_STATE_TEXT_MAX];
    stk_error err;
    CHECK_OK(stk_state_write(a, text_of_a, sizeof text_of_a, &err), err);
    CHECK_OK(stk_state_write(b, text_of_b, sizeof text_of_b, &err), err);
    return strcmp(text_of_a, text_of_b) == 0;
}

#endif
