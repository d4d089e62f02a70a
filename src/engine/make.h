/* make.h - one unit of work: a sample of a micro-batch, from its record and its media's bytes to its place in
 * the slot.
 *
 * Stateless but for the worker's scratch; the same code makes units for the engine, inline, and for a replay.
 */
#ifndef STK_ENGINE_MAKE_H
#define STK_ENGINE_MAKE_H

#include <stoker/metrics.h>

#include "engine/lazy_facts.h"
#include "engine/run.h"
#include "engine/tickets.h"
#include "source/source.h"

typedef enum stk_unit_state {
    STK_UNIT_TAKEN,    /* its media are known */
    STK_UNIT_FETCHING, /* its ticket is granted */
    STK_UNIT_READY,    /* its bytes are there */
    STK_UNIT_MAKING,
    STK_UNIT_MADE, /* or failed: see status */
} stk_unit_state;

typedef struct stk_unit {
    stk_unit_state state;
    uint32_t sample_index; /* of the recipe */
    uint32_t request_count, requests_left;
    stk_request *request; /* one a medium */
    size_t ticket_bytes, work_bytes;
    uint8_t *ticket;
    stk_tickets *tickets;  /* which it is of */
    bool waited;           /* for memory: counted once */
    struct stk_work *work; /* which it belongs to */
    stk_status status;
} stk_unit;

/* A micro-batch from take to release. */
typedef struct stk_work {
    stk_batch batch;   /* first: what the reader gets */
    stk_pool pool;     /* recipe, notes, units, addresses; reset for each use */
    stk_set_facts facts; /* that the recipe's media indices are of; media NULL: those of the data sets */
    uint32_t lane;     /* that it is of */
    uint64_t sequence; /* in the lane's order */
    struct stk_wish *wish; /* on request: whose it is, until it is given out; else NULL */
    uint64_t priority; /* of its fetches */
    int32_t slot;      /* of the arena; -1: none yet */
    bool placed;       /* it has its slot, or needs none */
    bool prepared;     /* what belongs to no sample is written */
    stk_unit *unit;
    uint32_t unit_count, units_left, units_ticketed, units_ready;
    stk_status status;    /* <0: of the first unit in order that failed, or of take */
    uint32_t failed_unit; /* which it is */
    stk_error error;
    struct stk_work *next; /* in the list of free ones */
} stk_work;

/* What a thread needs to make units. */
typedef struct stk_maker {
    stk_sample sample;
    stk_buffer record;
    stk_text_scratch *text;
    stk_image_scratch *image;
    const stk_run *run;         /* whose quarantine the cell belongs to */
    stk_quarantine_cell *cell;
    stk_stage_metrics decode, transform, text_stage, place; /* summed by the engine */
} stk_maker;

/* record_bytes: of the largest record that it will read. */
stk_status stk_maker_init(stk_maker *maker, const stk_run *run, size_t record_bytes,
                          stk_error *err) STK_MUST_USE;
void stk_maker_deinit(stk_maker *maker);

/* Take: the recipe, the slot's layout, the units and their media's addresses.  work->pool is reset.  lazy: finds the facts of a run with
 * index: stream; NULL for the others.  A record that it finds to be of no use becomes a filler row, and its note says why. */
stk_status stk_work_take(stk_work *work, const stk_run *run, stk_plan_scratch *scratch, stk_lazy_facts *lazy, stk_maker *maker,
                         uint64_t step, uint32_t rank, uint32_t world, uint32_t micro, stk_error *err) STK_MUST_USE;

/* Ticket and working memory of a sample, from the facts that its recipe's media indices are of. */
void stk_sample_needs(const stk_media_facts *facts, const stk_recipe *recipe, const stk_recipe_sample *planned,
                      size_t *ticket_bytes, size_t *work_bytes);
/* And the most that media of these bytes in all can take of a ticket. */
size_t stk_ticket_bytes_most(size_t size_bytes, size_t media_count);

/* Whether a failed fetch is a fault of the bytes, and which (architecture section 7). */
bool stk_request_fault(const stk_request *request, stk_reason *reason);

/* Give a unit its memory and point its requests at it; ticket has unit->ticket_bytes. */
void stk_unit_set_ticket(stk_unit *unit, uint8_t *ticket);

/* Make a unit whose requests have all come back.  Faults of the bytes mask the sample and are STK_OK; what is
 * returned below 0 fails the run. */
stk_status stk_unit_make(stk_unit *unit, const stk_run *run, stk_maker *maker, stk_error *err) STK_MUST_USE;

#endif
