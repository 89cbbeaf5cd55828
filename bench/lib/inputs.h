/* inputs.h - inputs that every network accepts: small numbers, indices of the first rows. */
#ifndef PL_BENCH_INPUTS_H
#define PL_BENCH_INPUTS_H

#include "plimsoll_unstable.h"

#include <string.h>

static inline void fill_inputs(pl_session *s, const pl_program *p)
{
    for (int i = 0; i < pl_program_input_count(p); i++) {
        pl_type t;
        void *x = pl_session_input(s, p, pl_program_input_name(p, i), &t);
        memset(x, 0, pl_type_bytes(&t));
        for (int64_t k = 0; t.dtype == PL_F32 && k < pl_type_elems(&t); k++)
            ((float *)x)[k] = 0.1f * (float)(k % 17) - 0.8f;
    }
}

#endif
