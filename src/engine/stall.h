/* stall.h - pauses at named points, to bring races out: STK_STALL=take,fetch,make,deliver in builds with
 * -Dfaults=true.
 *
 * The pauses are short and of random length; they never change the stream. */
#ifndef STK_ENGINE_STALL_H
#define STK_ENGINE_STALL_H

#ifdef STK_FAULTS
void stk_stall(const char *point);
#else
static inline void stk_stall(const char *point)
{
    (void)point;
}
#endif

#endif
