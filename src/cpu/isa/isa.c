/* isa.c - see isa.h. */
#include "cpu/isa/isa.h"

#include <stdlib.h>
#include <string.h>

/* Every processor with AVX2 has F16C; clang 14 cannot test for it. */
static int best_level(void)
{
#if defined(__x86_64__) || defined(__i386__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
               ? 2
               : 1;
#else
    return 0;
#endif
}

int pl_cpu_level(void)
{
    const char *want = getenv("PL_CPU_ISA");
    if (want && strcmp(want, "base") == 0) return 0;
    const int best = best_level();
    return want && strcmp(want, "avx2") == 0 && best > 1 ? 1 : best;
}

const char *pl_cpu_vectors(void)
{
#if defined(__x86_64__) || defined(__i386__)
    static const char *const names[] = {"SSE2", "AVX2", "AVX-512"};
    return names[best_level()];
#elif defined(__aarch64__)
    return "NEON";
#else
    return "no vector unit";
#endif
}
