/* serving.h - one engine for readers in many processes: who sits where, what each gets next, and opening it beside all that.
 *
 * A rank has as many seats as processes read it (`readers`).  A seat stands at a place of its rank's stream, counted from where the engine
 * began, and all seats of a rank get the same batches, each when it asks: a batch stays until the last of them has passed it.  A seat
 * that nobody has taken yet stands at the beginning; one that was left keeps nothing.
 *
 * Whoever comes to a place that is gone (a process that starts again from an older state) has the engine opened anew, at the earliest
 * place of all: the stream follows from its place alone, so all others go on where they were.
 *
 * One thread calls all of it.  The engine is opened on a thread of its own, and nothing here waits for it: stk_serving_advance goes on
 * when wake_fd, an eventfd, says so. */
#ifndef STK_ENGINE_SERVING_H
#define STK_ENGINE_SERVING_H

#include "engine/engine_core.h"
#include "engine/wire.h"

typedef struct stk_serving stk_serving;

typedef enum stk_seat_stage {
    STK_SEAT_UNTAKEN, /* nobody has sat here yet */
    STK_SEAT_COMING,  /* waits for its place */
    STK_SEAT_PLACED,
    STK_SEAT_REFUSED, /* see error */
    STK_SEAT_LEFT,
} stk_seat_stage;

typedef struct stk_seat {
    stk_seat_stage stage;
    struct stk_serving_rank *rank;
    pid_t pid;           /* of whoever sits here */
    bool resumed;        /* came back after the end of another engine */
    stk_wire_place want; /* while it is coming */
    uint64_t at, end;    /* what it gets next, and the end of its pass: counted from where the engine began */
    uint64_t pass;       /* counted since the first engine */
    uint64_t next_pass;  /* of whoever sits here next */
    stk_state state;     /* after what it got last */
    stk_ns asked_ns;     /* since when it waits; 0: it does not */
    stk_error error;
} stk_seat;

stk_status stk_serving_create(stk_serving **out, int wake_fd, stk_error *err) STK_MUST_USE;
void stk_serving_destroy(stk_serving *serving); /* NULL is fine; stops what is being opened */

/* Take the options, world and ranks of a newcomer, or refuse what differs from those of whoever is here.  alone: nobody is. */
stk_status stk_serving_agree(stk_serving *serving, const stk_wire_hello *hello, bool alone, stk_error *err) STK_MUST_USE;

/* A seat of the split and rank for a process; it is coming from then on. */
stk_status stk_serving_sit(stk_serving *serving, const stk_wire_hello *hello, pid_t pid, stk_seat **out, stk_error *err) STK_MUST_USE;
/* It wants to go on elsewhere: it is coming again. */
void stk_seat_move(stk_seat *seat, const stk_wire_place *place);
void stk_seat_leave(stk_seat *seat);

/* Open what has to be opened, and place who is coming. */
void stk_serving_advance(stk_serving *serving);

/* What a placed seat gets next: STK_OK (the caller's reference), STK_AGAIN, STK_END, or a lasting failure. */
stk_status stk_seat_next(stk_seat *seat, stk_batch **out, stk_error *err) STK_MUST_USE;

/* What a seat waits for. */
void stk_seat_words(const stk_seat *seat, char words[200]);

void stk_seat_welcome(const stk_seat *seat, stk_wire_welcome *welcome);
void stk_seat_metrics(const stk_seat *seat, stk_metrics *metrics); /* zeros while nothing is open */

/* Counts the engines that were opened: another number, another arena. */
uint64_t stk_serving_generation(const stk_serving *serving);
const stk_arena *stk_serving_arena(const stk_serving *serving);

#endif
