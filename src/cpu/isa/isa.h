/* isa.h - the instruction sets that a file X.isa.c is compiled for, and which of them this machine
 * runs.
 *
 * On x86 the sets are base (SSE2), avx2 and avx512; elsewhere there is only base, which the
 * compiler vectorises for its target (NEON on arm64). The Makefile compiles the same sets (ISAS).
 * An X.isa.c defines NAME_base, NAME_avx2, ...; the macros name all of them.
 */
#ifndef PL_CPU_ISA_H
#define PL_CPU_ISA_H

#if defined(__x86_64__) || defined(__i386__)
# define PL_EACH_ISA(X)            X(base) X(avx2) X(avx512)
# define PL_ISA_EXTERN(type, name) extern const type name##_base, name##_avx2, name##_avx512
# define PL_ISA_SETS(name)                                                                         \
  {                                                                                                \
   &name##_base, &name##_avx2, &name##_avx512                                                      \
  }
#else
# define PL_EACH_ISA(X)            X(base)
# define PL_ISA_EXTERN(type, name) extern const type name##_base
# define PL_ISA_SETS(name)                                                                         \
  {                                                                                                \
   &name##_base                                                                                    \
  }
#endif

/* Returns the place of the best set in PL_ISA_SETS that this machine runs. PL_CPU_ISA in the
 * environment ("base", "avx2") asks for a lower one. */
int pl_cpu_level(void);
/* Returns the name of the machine's widest vector unit that a set is compiled for, e.g. "AVX2". */
const char *pl_cpu_vectors(void);

#endif
