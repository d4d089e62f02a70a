/* checksum.h - the checksums that a store may send beside an object (x-amz-checksum-*). */
#ifndef STK_SOURCE_CHECKSUM_H
#define STK_SOURCE_CHECKSUM_H

#include "base/bytes.h"

typedef enum stk_checksum_kind {
    STK_CHECKSUM_NONE, STK_CHECKSUM_CRC32, STK_CHECKSUM_CRC32C, STK_CHECKSUM_CRC64NVME, STK_CHECKSUM_SHA1, STK_CHECKSUM_SHA256
} stk_checksum_kind;

uint32_t stk_crc32c(stk_bytes bytes);
uint64_t stk_crc64nvme(stk_bytes bytes);

/* Whether bytes have the checksum that text says, in base64.  True for STK_CHECKSUM_NONE. */
bool stk_checksum_holds(stk_checksum_kind kind, const char *text, stk_bytes bytes);

#endif
