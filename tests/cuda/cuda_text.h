/* cuda_text.h - generated kernels in tests without a card: compiled by NVRTC, where its library is
 * found, to see that they are CUDA C; compiled by a C++ compiler for the simulator to see that
 * they compute what they should. */
#ifndef PL_TEST_CUDA_TEXT_H
#define PL_TEST_CUDA_TEXT_H

#include "cuda/codegen/codegen.h"

/* ---- NVRTC ------------------------------------------------------------------------------ */
bool nvrtc_here(void);
/* Compiles for an architecture (90); prints the log and returns false if it is refused. */
bool nvrtc_accepts(const char *text, int arch, size_t *cubin_bytes);
/* The same for 7.5 or 9.0, by turns from call to call; in long runs for both. */
bool nvrtc_accepts_by_turns(const char *text);
/* Bytes of memory that a thread of the kernel needs because registers are not enough; -1 where the
 * compiler does not tell. */
int nvrtc_stack_bytes(const char *text, int arch);

/* ---- the simulator ---------------------------------------------------------------------- */
/* Kernels by their text; add all, build once, then run. */
typedef struct text_shop text_shop;
text_shop *text_shop_new(void);
void text_shop_free(text_shop *s);
/* The text is borrowed until text_shop_build. Equal texts are one. */
void text_shop_add(text_shop *s, const pl_code *code);
int text_shop_count(const text_shop *s);
const char *text_shop_text(const text_shop *s, int i);
/* False: no compiler here, or it refused (then the test has failed). */
bool text_shop_build(text_shop *s);
bool text_shop_run(text_shop *s, const pl_code *code, const void *const *in, void *const *out,
                   void *work);

#endif
