/* permutation.h - a keyed permutation of 0 .. count-1 with O(1) random access and no list in memory.
 *
 * A balanced Feistel network over the next even number of bits, walked again while it lands outside (cycle
 * walking: at most 4 steps on average).  The round function is a fixed 64-bit mixer, so every compiler and machine
 * gives the same order; it is part of plan_version. */
#ifndef STK_BASE_PERMUTATION_H
#define STK_BASE_PERMUTATION_H

#include <stdint.h>

enum { STK_PERMUTATION_ROUNDS = 6 };

typedef struct stk_permutation {
    uint64_t count;
    uint32_t half_bits;
    uint64_t keys[STK_PERMUTATION_ROUNDS];
} stk_permutation;

/* A mixer of 64 bits (the finaliser of splitmix64): a bijection without weak bits. */
uint64_t stk_mix64(uint64_t x);

/* The permutation of (seed, stream, epoch): stream tells apart the uses of one seed. */
void stk_permutation_init(stk_permutation *p, uint64_t count, uint64_t seed, uint64_t stream, uint64_t epoch);

/* Where position goes, < count; position < count. */
uint64_t stk_permutation_at(const stk_permutation *p, uint64_t position);

#endif
