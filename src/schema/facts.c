/* facts.c - the words for what makes a record or a medium unusable. */
#include "schema/facts.h"

const char *stk_reason_text(stk_reason reason)
{
    switch (reason) {
#define REASON_CASE(name, number, text)                                                                    \
    case name: return text;
        STK_REASON_MAP(REASON_CASE)
#undef REASON_CASE
    }
    return "unknown reason";
}
