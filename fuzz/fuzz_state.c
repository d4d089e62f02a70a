/* fuzz_state.c - a state is refused, or is exactly what writing it again gives.
 *
 * A checksum stops nearly every mutation at the gate, so each input is tried as it stands and with the
 * checksum that fits it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <stoker/state.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_state(const char *text, size_t size)
{
    stk_error err;
    stk_state state;
    const stk_status status = stk_state_parse(&state, text, size, &err);
    if (status < 0) {
        if (status != STK_ERR_STATE || !err.message[0]) abort();
        return;
    }
    char again[STK_STATE_TEXT_MAX];
    if (stk_state_write(&state, again, sizeof again, &err) < 0) abort();
    if (strlen(again) != size || memcmp(again, text, size) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_state((const char *)data, size);

    enum { ROOM = STK_STATE_TEXT_MAX };
    char text[ROOM];
    const char *const last = size ? memmem(data, size, "checksum ", 9) : NULL;
    const size_t before = last ? (size_t)(last - (const char *)data) : size;
    if (before > ROOM - 32) return 0;
    memcpy(text, data, before);
    const int tail = snprintf(text + before, ROOM - before, "checksum %016" PRIx64 "\n",
                              (uint64_t)XXH3_64bits(data, before));
    try_state(text, before + (size_t)tail);
    return 0;
}
