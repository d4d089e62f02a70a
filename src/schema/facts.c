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

stk_str stk_media_etag(const stk_set_facts *facts, const stk_media_facts *media)
{
    const uint64_t at = media->mtime_ns & ~STK_MEDIA_OBJECT;
    if (!(media->mtime_ns & STK_MEDIA_OBJECT) || at >= facts->etag_bytes) return (stk_str){"", 0};
    const size_t size_bytes = facts->etag[at];
    if (size_bytes > facts->etag_bytes - at - 1) return (stk_str){"", 0};
    return (stk_str){(const char *)facts->etag + at + 1, size_bytes};
}
