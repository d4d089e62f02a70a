/* cpu.h - which kernels may run: the CPU's level, lowered by STK_CPU=none|avx2|avx512. */
#ifndef STK_BASE_CPU_H
#define STK_BASE_CPU_H

typedef enum stk_cpu_level { STK_CPU_NONE, STK_CPU_AVX2, STK_CPU_AVX512 } stk_cpu_level;

/* What the CPU has, but not more than the environment allows.  Read anew at each call. */
stk_cpu_level stk_cpu_detect(void);

/* "none", "avx2", "avx512". */
const char *stk_cpu_level_name(stk_cpu_level level);

#endif
