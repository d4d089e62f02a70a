/* store_queue.c - requests of a loop at rest: those that wait for a job, by priority, and those that are over. */
#include "source/store_core.h"

void stk_waiting_leave(stk_loop *l, stk_request *r)
{
    *(r->previous ? &r->previous->next : &l->waiting_first) = r->next;
    *(r->next ? &r->next->previous : &l->waiting_last) = r->previous;
    r->next = r->previous = NULL;
    l->waiting_count--;
}

void stk_waiting_enter(stk_loop *l, stk_request *r)
{
    stk_request *before = l->waiting_last;
    while (before && before->priority > r->priority) before = before->previous;
    r->previous = before;
    r->next = before ? before->next : l->waiting_first;
    *(r->next ? &r->next->previous : &l->waiting_last) = r;
    *(before ? &before->next : &l->waiting_first) = r;
    l->waiting_count++;
}

void stk_request_end(stk_loop *l, stk_request *r)
{
    if (r->status < 0) {
        stk_error_stage(&r->error, STK_STAGE_FETCH);
        (void)stk_url_show(r->error.file, sizeof r->error.file, r->address);
        stk_blank_controls(r->error.file);
    } else {
        r->error.status = STK_OK;
    }
    r->next = NULL;
    *(l->finished_last ? &l->finished_last->next : &l->finished_first) = r;
    l->finished_last = r;
}

void stk_call_finish(stk_request *r)
{
    stk_call *const call = r->work;
    pthread_mutex_lock(&call->lock);
    call->done = true;
    pthread_cond_signal(&call->change);
    pthread_mutex_unlock(&call->lock);
}
