/* wire.h - what the processes of a run say to each other: messages behind each other on a Unix socket.
 *
 *     uint32 bytes of the payload, uint16 kind, uint16 protocol, payload
 *
 * Both ends are on one machine and of one release (the first message says which), so numbers are as they lie in memory.  A reader
 * takes nothing for granted all the same: sizes are bounded, what is short or does not fit together is STK_ERR_SYSTEM. */
#ifndef STK_ENGINE_WIRE_H
#define STK_ENGINE_WIRE_H

#include <stoker/metrics.h>

#include "base/memory.h"
#include "batch/batch_object.h"

enum { STK_WIRE_PROTOCOL = 1, STK_WIRE_HEADER_BYTES = 8, STK_WIRE_MESSAGE_MAX = 64 << 20 };

typedef enum stk_wire_kind {
    /* from a client */
    STK_WIRE_HELLO = 1, /* the first one; answered by WELCOME or ERROR, once the engine is open */
    STK_WIRE_PLACE,     /* go on elsewhere: a rewind; answered likewise */
    STK_WIRE_NEXT,      /* answered by BATCH, END or ERROR, when there is one */
    STK_WIRE_RELEASE,   /* of a batch, by its id */
    STK_WIRE_METRICS,   /* answered by METRICS */
    STK_WIRE_LEAVE,     /* nothing more is read; batches that are out stay until they are released */
    /* from the engine */
    STK_WIRE_WELCOME,
    STK_WIRE_ARENA, /* with the memfd that later batches lie in */
    STK_WIRE_BATCH,
    STK_WIRE_END,
    STK_WIRE_ERROR, /* lasting */
    STK_WIRE_WAIT,  /* about once a second while an answer is due: what is waited for, in words */
    STK_WIRE_COUNTS,
    STK_WIRE_LABEL, /* of parcels, with a WELCOME behind it (parcel.c) */
    STK_WIRE_KINDS
} stk_wire_kind;

/* --- framing --- */

/* Append a message: begin, put what it holds, end.  A failure to grow is kept, and told by the end. */
typedef struct stk_wire_writer {
    stk_buffer *to;
    size_t at_bytes; /* of the header */
    stk_status status;
    stk_error *err;
} stk_wire_writer;

stk_wire_writer stk_wire_begin(stk_buffer *to, stk_wire_kind kind, stk_error *err);
stk_status stk_wire_end(stk_wire_writer *w) STK_MUST_USE; /* after a failure `to` is as before */
/* A message without a payload. */
stk_status stk_wire_put_plain(stk_buffer *to, stk_wire_kind kind, stk_error *err) STK_MUST_USE;

typedef struct stk_wire_message {
    stk_wire_kind kind;
    stk_bytes payload;
} stk_wire_message;

/* The first message of data: *used bytes of it (0: it is not all there yet). */
stk_status stk_wire_split(stk_bytes data, stk_wire_message *message, size_t *used, stk_error *err) STK_MUST_USE;

/* --- messages: stk_wire_put_X appends one to a buffer, stk_wire_read_X reads its payload --- */

/* Where a reader goes on. */
typedef struct stk_wire_place {
    bool fresh;     /* not knowing a pass: of `eval`, the next one of its seat */
    uint64_t pass;  /* counted by the engine */
    bool has_state; /* else from the beginning */
    stk_state state;
} stk_wire_place;

typedef struct stk_wire_hello {
    stk_str release; /* stk_version() */
    bool eval;
    bool resumed;    /* its engine is gone: others will come back too */
    uint32_t rank, world, readers;
    stk_str node_ranks;    /* stk_numbers_write */
    stk_str file, options; /* stk_options_write */
    stk_wire_place place;
} stk_wire_hello;

stk_status stk_wire_put_hello(stk_buffer *to, const stk_wire_hello *hello, stk_error *err) STK_MUST_USE;
stk_status stk_wire_read_hello(stk_bytes payload, stk_wire_hello *hello, stk_error *err) STK_MUST_USE; /* texts stay in the payload */
stk_status stk_wire_put_place(stk_buffer *to, const stk_wire_place *place, stk_error *err) STK_MUST_USE;
stk_status stk_wire_read_place(stk_bytes payload, stk_wire_place *place, stk_error *err) STK_MUST_USE;

/* Steps that have the same number of micro-batches a rank, up to the next stretch. */
typedef struct stk_stretch {
    uint64_t first_step, first_number; /* number: of a rank's micro-batches, over the run */
    uint32_t micro_count;
} stk_stretch;

/* What is the same for all batches of a reader. */
typedef struct stk_wire_welcome {
    uint64_t pass, micro_count, step_count; /* of the whole run */
    stk_state state; /* where it stands */
    stk_batch_form form;
    stk_model model; /* what batches need of it: patch_px, merge, temporal, model_type */
    uint32_t set_count;
    const char *const *set_name;
} stk_wire_welcome;

stk_status stk_wire_put_welcome(stk_buffer *to, const stk_wire_welcome *welcome, stk_error *err) STK_MUST_USE;
/* Names go into the pool; form.model is left NULL. */
stk_status stk_wire_read_welcome(stk_bytes payload, stk_pool *pool, stk_wire_welcome *welcome, stk_error *err) STK_MUST_USE;

/* What a rank on another machine has to know of a run, beside the welcome. */
typedef struct stk_wire_label {
    stk_str release; /* stk_version() */
    uint32_t world;
    uint64_t slot_bytes; /* of the largest micro-batch */
    stk_ns timeout_ns;
    uint32_t keep;
    uint32_t stretch_count;
    stk_stretch *stretch;
} stk_wire_label;

stk_status stk_wire_put_label(stk_buffer *to, const stk_wire_label *label, stk_error *err) STK_MUST_USE;
/* Stretches go into the pool. */
stk_status stk_wire_read_label(stk_bytes payload, stk_pool *pool, stk_wire_label *label, stk_error *err) STK_MUST_USE;

/* Where the fields of a batch lie. */
typedef struct stk_wire_slot {
    uint64_t id;     /* for its release */
    uint64_t offset; /* in the arena */
} stk_wire_slot;

stk_status stk_wire_put_batch(stk_buffer *to, const stk_wire_slot *slot, const stk_batch *batch, stk_error *err) STK_MUST_USE;
/* Fills recipe, notes and `after` of a batch whose home is set, from pool; `base`: what all its states have.  The layout follows from the
 * recipe; that it lies inside the arena is for the caller to check. */
stk_status stk_wire_read_batch(stk_bytes payload, stk_pool *pool, const stk_state *base, uint32_t set_count, stk_wire_slot *slot,
                               stk_batch *batch, stk_error *err) STK_MUST_USE;

stk_status stk_wire_put_error(stk_buffer *to, const stk_error *error, stk_error *err) STK_MUST_USE;
stk_status stk_wire_read_error(stk_bytes payload, stk_error *error, stk_error *err) STK_MUST_USE;
stk_status stk_wire_put_counts(stk_buffer *to, const stk_metrics *metrics, stk_error *err) STK_MUST_USE;
stk_status stk_wire_read_counts(stk_bytes payload, stk_metrics *metrics, stk_error *err) STK_MUST_USE;
/* RELEASE: an id; ARENA: a size. */
stk_status stk_wire_put_number(stk_buffer *to, stk_wire_kind kind, uint64_t number, stk_error *err) STK_MUST_USE;
stk_status stk_wire_read_number(stk_bytes payload, uint64_t *number, stk_error *err) STK_MUST_USE;
stk_status stk_wire_put_words(stk_buffer *to, const char *words, stk_error *err) STK_MUST_USE;
stk_status stk_wire_read_words(stk_bytes payload, char *words, size_t capacity, stk_error *err) STK_MUST_USE;

#endif
