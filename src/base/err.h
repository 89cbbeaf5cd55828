/* err.h - status codes with a message that never allocates.
 *
 * Every fallible function returns pl_status. The failing code writes what went wrong, with the
 * numbers, to a thread-local buffer of fixed size, so reporting works when memory has run out.
 * Three macros cover all uses; a breakpoint in pl__fail catches every failure.
 */
#ifndef PL_BASE_ERR_H
#define PL_BASE_ERR_H

#include "base/shared.h"
#include "plimsoll.h"

PL_SHARED_BEGIN

/* Records "<message>" for this thread and returns code. file and line go to the debug log. */
pl_status pl__fail(pl_status code, const char *file, int line, const char *fmt, ...)
    PL_PRINTF(4, 5);
/* Puts "<prefix>: " before the recorded message, e.g. a file name; returns code. */
pl_status pl__fail_prefix(pl_status code, const char *fmt, ...) PL_PRINTF(2, 3);
/* Reports a broken invariant of our own: prints and aborts. Never for user input. */
void pl__bug(const char *file, int line, const char *fmt, ...) PL_PRINTF(3, 4)
    __attribute__((noreturn));

#define PL_FAIL(code, ...) return pl__fail((code), __FILE__, __LINE__, __VA_ARGS__)
#define PL_FAIL_IF(cond, code, ...)                                                                \
 do {                                                                                              \
  if (cond) return pl__fail((code), __FILE__, __LINE__, __VA_ARGS__);                              \
 } while (0)
#define PL_TRY(expr)                                                                               \
 do {                                                                                              \
  pl_status pl_try_status_ = (expr);                                                               \
  if (pl_try_status_ != PL_OK) return pl_try_status_;                                              \
 } while (0)
#define PL_BUG(...) pl__bug(__FILE__, __LINE__, __VA_ARGS__)

PL_SHARED_END

#endif
