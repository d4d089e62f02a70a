/* client_silence.h - how long an engine may say nothing while it is waited for: 30 s, and what a test cares to wait. */
#ifndef STK_ENGINE_CLIENT_SILENCE_H
#define STK_ENGINE_CLIENT_SILENCE_H

#include <stoker/client.h>

void stk_client_limit_silence(stk_client *client, stk_ns silence_ns);

#endif
