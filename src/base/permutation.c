/* permutation.c - the keyed permutation behind every shuffle. */
#include "base/permutation.h"

uint64_t stk_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void stk_permutation_init(stk_permutation *p, uint64_t count, uint64_t seed, uint64_t stream, uint64_t epoch)
{
    p->count = count;
    p->half_bits = 1;
    while (p->half_bits < 32 && (count - (count > 0)) >> (2 * p->half_bits)) p->half_bits++;
    uint64_t key = stk_mix64(stk_mix64(stk_mix64(seed) ^ stream) ^ epoch);
    for (int round = 0; round < STK_PERMUTATION_ROUNDS; round++) p->keys[round] = key = stk_mix64(key);
}

uint64_t stk_permutation_at(const stk_permutation *p, uint64_t position)
{
    const uint64_t mask = p->half_bits == 32 ? 0xffffffffu : (1u << p->half_bits) - 1;
    uint64_t at = position;
    do {
        uint64_t left = at >> p->half_bits, right = at & mask;
        for (int round = 0; round < STK_PERMUTATION_ROUNDS; round++) {
            const uint64_t next = left ^ (stk_mix64(right ^ p->keys[round]) & mask);
            left = right;
            right = next;
        }
        at = left << p->half_bits | right;
    } while (at >= p->count);
    return at;
}
