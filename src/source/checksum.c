/* checksum.c - CRC-32C by the instruction where the CPU has it, else both CRCs by eight tables (slicing by 8); SHA by OpenSSL. */
#include "source/checksum.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <zlib.h>

#include "base/cpu.h"

/* Reflected polynomials. */
static const uint64_t crc32c_polynomial = 0x82f63b78u, crc64nvme_polynomial = 0x9a6c9329ac4bc9b5u;

static uint64_t crc32c_table[8][256], crc64_table[8][256];
static bool has_crc32c;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(uint64_t table[8][256], uint64_t polynomial)
{
    for (unsigned i = 0; i < 256; i++) {
        uint64_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        table[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (unsigned i = 0; i < 256; i++) table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xff];
}

static void prepare(void)
{
    fill(crc32c_table, crc32c_polynomial);
    fill(crc64_table, crc64nvme_polynomial);
    has_crc32c = stk_cpu_detect() >= STK_CPU_AVX2; /* which implies SSE 4.2 */
}

static uint64_t load64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint64_t by_tables(uint64_t table[8][256], uint64_t crc, stk_bytes bytes)
{
    const uint8_t *at = bytes.data;
    size_t left = bytes.size_bytes;
    for (; left >= 8; left -= 8, at += 8) {
        const uint64_t x = crc ^ load64(at);
        crc = 0;
        for (int k = 0; k < 8; k++) crc ^= table[7 - k][x >> 8 * k & 0xff];
    }
    while (left--) crc = crc >> 8 ^ table[0][(crc ^ *at++) & 0xff];
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(stk_bytes bytes)
{
    const uint8_t *at = bytes.data;
    size_t left = bytes.size_bytes;
    uint64_t crc = UINT32_MAX;
    for (; left >= 8; left -= 8, at += 8) crc = __builtin_ia32_crc32di(crc, load64(at));
    while (left--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}
#endif

uint32_t stk_crc32c(stk_bytes bytes)
{
    pthread_once(&once, prepare);
#if defined(__x86_64__)
    if (has_crc32c) return crc32c_sse(bytes);
#endif
    return ~(uint32_t)by_tables(crc32c_table, UINT32_MAX, bytes);
}

uint64_t stk_crc64nvme(stk_bytes bytes)
{
    pthread_once(&once, prepare);
    return ~by_tables(crc64_table, UINT64_MAX, bytes);
}

static uint32_t crc32_of(stk_bytes bytes)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes.data, bytes.size_bytes);
}

/* The checksum's bytes as the store writes them: most significant first.  0: there is none. */
static size_t compute(uint8_t out[EVP_MAX_MD_SIZE], stk_checksum_kind kind, stk_bytes bytes)
{
    uint64_t crc;
    size_t length;
    switch (kind) {
    case STK_CHECKSUM_CRC32: crc = crc32_of(bytes); length = 4; break;
    case STK_CHECKSUM_CRC32C: crc = stk_crc32c(bytes); length = 4; break;
    case STK_CHECKSUM_CRC64NVME: crc = stk_crc64nvme(bytes); length = 8; break;
    case STK_CHECKSUM_SHA1: case STK_CHECKSUM_SHA256: {
        unsigned size = 0;
        const EVP_MD *const md = kind == STK_CHECKSUM_SHA1 ? EVP_sha1() : EVP_sha256();
        return EVP_Digest(bytes.data, bytes.size_bytes, out, &size, md, NULL) ? size : 0;
    }
    default: return 0;
    }
    for (size_t i = 0; i < length; i++) out[i] = (uint8_t)(crc >> 8 * (length - 1 - i));
    return length;
}

bool stk_checksum_holds(stk_checksum_kind kind, const char *text, stk_bytes bytes)
{
    if (kind == STK_CHECKSUM_NONE) return true;
    uint8_t raw[EVP_MAX_MD_SIZE];
    unsigned char base64[2 * EVP_MAX_MD_SIZE];
    const size_t length = compute(raw, kind, bytes);
    if (length == 0) return true; /* this OpenSSL has no such digest: nothing can be said */
    EVP_EncodeBlock(base64, raw, (int)length);
    return strcmp((const char *)base64, text) == 0;
}
