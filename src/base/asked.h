/* asked.h - a flag that a signal handler, or another thread, raises to end what takes long.
 *
 * A relaxed flag: no memory ordering is implied. Who sees it returns soon and publishes nothing.
 */
#ifndef PL_BASE_ASKED_H
#define PL_BASE_ASKED_H

#include <stdbool.h>

/* NULL: nobody ever asks. */
static inline bool pl_asked(const volatile int *flag)
{
    return flag && __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

#endif
