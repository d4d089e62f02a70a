/* cpu.c - CPU levels. */
#include "base/cpu.h"

#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = {"none", "avx2", "avx512"};

const char *stk_cpu_level_name(stk_cpu_level level)
{
    return level_names[level];
}

stk_cpu_level stk_cpu_detect(void)
{
    stk_cpu_level level = STK_CPU_NONE;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) level = STK_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni"))
        level = STK_CPU_AVX512;
#endif
    const char *const wanted = getenv("STK_CPU");
    if (wanted)
        for (int i = STK_CPU_NONE; i < (int)level; i++)
            if (strcmp(wanted, level_names[i]) == 0) level = (stk_cpu_level)i;
    return level;
}
