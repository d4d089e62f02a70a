/* pack.c - best-fit decreasing in time linear in the samples: rows wait in a list for each number of tokens that they have left,
 * and a bitmap says which lists have any. */
#include "plan/pack.h"

#define NONE UINT32_MAX

struct stk_packer {
    uint32_t sample_max, row_tokens;
    uint32_t *sorted;        /* sample_max: samples by falling length */
    uint32_t *start;         /* row_tokens + 2: counting sort */
    uint32_t *head, *tail;   /* row_tokens + 1: oldest and newest row with so many tokens left */
    uint32_t *next;          /* sample_max: rows are at most as many as samples */
    uint64_t *has, *has_any; /* bit k: a row with k tokens left; bit j: a word of `has` is not 0 */
    size_t word_count, top_count;
};

stk_status stk_packer_create(stk_packer **out, uint32_t sample_max, uint32_t row_tokens, stk_error *err)
{
    *out = NULL;
    stk_packer *const p = stk_alloc(STK_TAG_PLAN, sizeof *p);
    if (!p) return stk_fail(err, STK_ERR_NOMEM, "out of memory: packing");
    p->sample_max = sample_max;
    p->row_tokens = row_tokens;
    p->word_count = row_tokens / 64 + 1;
    p->top_count = p->word_count / 64 + 1;
    p->sorted = stk_alloc_array(STK_TAG_PLAN, sample_max, sizeof *p->sorted);
    p->next = stk_alloc_array(STK_TAG_PLAN, sample_max, sizeof *p->next);
    p->start = stk_alloc_array(STK_TAG_PLAN, row_tokens + (size_t)2, sizeof *p->start);
    p->head = stk_alloc_array(STK_TAG_PLAN, row_tokens + (size_t)1, sizeof *p->head);
    p->tail = stk_alloc_array(STK_TAG_PLAN, row_tokens + (size_t)1, sizeof *p->tail);
    p->has = stk_alloc_array(STK_TAG_PLAN, p->word_count, sizeof *p->has);
    p->has_any = stk_alloc_array(STK_TAG_PLAN, p->top_count, sizeof *p->has_any);
    if (p->sorted && p->next && p->start && p->head && p->tail && p->has && p->has_any) {
        *out = p;
        return STK_OK;
    }
    stk_packer_destroy(p);
    return stk_fail(err, STK_ERR_NOMEM, "out of memory: packing windows of %u samples", sample_max);
}

void stk_packer_destroy(stk_packer *packer)
{
    if (!packer) return;
    stk_free(packer->sorted);
    stk_free(packer->next);
    stk_free(packer->start);
    stk_free(packer->head);
    stk_free(packer->tail);
    stk_free(packer->has);
    stk_free(packer->has_any);
    stk_free(packer);
}

/* By falling length, equal ones in their order. */
static void sort(stk_packer *p, const uint32_t *length, uint32_t count)
{
    memset(p->start, 0, (p->row_tokens + (size_t)2) * sizeof *p->start);
    for (uint32_t i = 0; i < count; i++) p->start[p->row_tokens - length[i] + 1]++;
    for (uint32_t l = 0; l < p->row_tokens; l++) p->start[l + 1] += p->start[l];
    for (uint32_t i = 0; i < count; i++) p->sorted[p->start[p->row_tokens - length[i]]++] = i;
}

/* The least number of tokens left, not below `least`, that a row has; NONE: no row has. */
static uint32_t find(const stk_packer *p, uint32_t least)
{
    size_t word = least / 64;
    const uint64_t here = p->has[word] >> least % 64;
    if (here) return least + (uint32_t)__builtin_ctzll(here);
    if (++word == p->word_count) return NONE;
    size_t top = word / 64;
    uint64_t words = p->has_any[top] >> word % 64 << word % 64;
    while (!words) {
        if (++top == p->top_count) return NONE;
        words = p->has_any[top];
    }
    word = top * 64 + (size_t)__builtin_ctzll(words);
    return (uint32_t)(word * 64 + (size_t)__builtin_ctzll(p->has[word]));
}

static void put(stk_packer *p, uint32_t row, uint32_t left)
{
    const uint64_t bit = (uint64_t)1 << left % 64;
    p->next[row] = NONE;
    if (p->has[left / 64] & bit) {
        p->next[p->tail[left]] = row;
    } else {
        p->head[left] = row;
        p->has[left / 64] |= bit;
        p->has_any[left / 64 / 64] |= (uint64_t)1 << left / 64 % 64;
    }
    p->tail[left] = row;
}

static uint32_t take(stk_packer *p, uint32_t left)
{
    const uint32_t row = p->head[left];
    p->head[left] = p->next[row];
    if (p->head[left] != NONE) return row;
    p->has[left / 64] &= ~((uint64_t)1 << left % 64);
    if (!p->has[left / 64]) p->has_any[left / 64 / 64] &= ~((uint64_t)1 << left / 64 % 64);
    return row;
}

uint32_t stk_pack(stk_packer *packer, const uint32_t *length, uint32_t count, uint32_t *row)
{
    stk_packer *const p = packer;
    uint32_t row_count = 0;
    sort(p, length, count);
    memset(p->has, 0, p->word_count * sizeof *p->has);
    memset(p->has_any, 0, p->top_count * sizeof *p->has_any);
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t i = p->sorted[k], left = find(p, length[i]);
        row[i] = left == NONE ? row_count++ : take(p, left);
        put(p, row[i], (left == NONE ? p->row_tokens : left) - length[i]);
    }
    return row_count;
}
