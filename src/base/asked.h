/* asked.h - a flag that a signal handler, or another thread, sets to abort a long operation.
 *
 * A relaxed flag: no memory ordering is implied. Code that sees it returns soon and publishes
 * nothing.
 */
#ifndef PL_BASE_ASKED_H
#define PL_BASE_ASKED_H

#include <stdbool.h>

/* flag NULL: never set. */
static inline bool pl_asked(const volatile int *flag)
{
    return flag && __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

#endif
