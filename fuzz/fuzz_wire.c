/* fuzz_wire.c - whatever comes over the socket: messages are taken apart within their bounds, and a batch that is taken can be read. */
#include <stdlib.h>

#include "engine/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take_back(stk_batch_home *home, stk_batch *batch)
{
    (void)home;
    (void)batch;
}

static void try_batch(stk_bytes payload, stk_pool *pool, stk_layout layout)
{
    static const char *const names[] = {"a", "b"};
    const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2};
    const stk_batch_form form = {.layout = layout, .pixels = STK_PIXELS_UINT8, .model = &model};
    stk_batch_home home = {.take_back = take_back, .form = &form, .set_name = names};
    stk_batch batch = {.home = &home};
    stk_wire_slot slot;
    const stk_state base = {0};
    stk_error err;
    if (stk_wire_read_batch(payload, pool, &base, 2, &slot, &batch, &err) < 0) {
        if (!err.message[0]) abort();
        return;
    }
    stk_batch_info info;
    stk_batch_info_get(&batch, &info);
    for (size_t i = 0; i < stk_batch_sample_count(&batch); i++) {
        stk_batch_sample sample;
        stk_batch_sample_at(&batch, i, &sample);
    }
    for (int id = 0; id < STK_FIELD_COUNT; id++) {
        const stk_slot_field *const field = &batch.layout.field[id];
        if (field->present && field->at_bytes + field->size_bytes > batch.layout.size_bytes) abort();
    }
    /* A small one is read to its last byte, by the digests. */
    if (batch.layout.size_bytes > 1 << 20) return;
    uint8_t(*const digest)[16] = malloc(16 * ((size_t)batch.recipe.row_count + 1)), whole[16];
    size_t count = batch.recipe.row_count;
    batch.slot = stk_alloc(STK_TAG_BATCH, batch.layout.size_bytes);
    if (digest && batch.slot) {
        stk_batch_digest(&batch, whole);
        if (stk_batch_row_digests(&batch, digest, &count, &err) < 0 && !err.message[0]) abort();
    }
    stk_free(batch.slot);
    free(digest);
}

static void try_message(const stk_wire_message *message, stk_pool *pool)
{
    stk_wire_hello hello;
    stk_wire_place place;
    stk_wire_welcome welcome;
    stk_error err, told;
    stk_metrics metrics;
    uint64_t number;
    char words[200];
    switch ((int)message->kind) {
    case STK_WIRE_HELLO: (void)!stk_wire_read_hello(message->payload, &hello, &err); break;
    case STK_WIRE_PLACE: (void)!stk_wire_read_place(message->payload, &place, &err); break;
    case STK_WIRE_WELCOME: (void)!stk_wire_read_welcome(message->payload, pool, &welcome, &err); break;
    case STK_WIRE_BATCH:
        for (int layout = STK_LAYOUT_PADDED; layout <= STK_LAYOUT_PACKED; layout++) try_batch(message->payload, pool, (stk_layout)layout);
        break;
    case STK_WIRE_ERROR:
        if (stk_wire_read_error(message->payload, &told, &err) == STK_OK && told.status >= 0) abort();
        break;
    case STK_WIRE_COUNTS: (void)!stk_wire_read_counts(message->payload, &metrics, &err); break;
    case STK_WIRE_WAIT: (void)!stk_wire_read_words(message->payload, words, sizeof words, &err); break;
    default: (void)!stk_wire_read_number(message->payload, &number, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stk_wire_message message;
    size_t used;
    stk_error err;
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_ENGINE);
    for (size_t at = 0; stk_wire_split((stk_bytes){data + at, size - at}, &message, &used, &err) == STK_OK && used; at += used)
        try_message(&message, &pool);
    stk_pool_deinit(&pool);
    return 0;
}
