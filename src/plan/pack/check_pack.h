/* check_pack.h - accepts or rejects a placement. Shares no code with the solver. */
#ifndef PL_PLAN_CHECK_PACK_H
#define PL_PLAN_CHECK_PACK_H

#include "plan/pack/pack.h"

/* PL_OK when every offset is a multiple of align (0 and 1: any), every buffer with bytes and a
 * nonempty lifetime ends at or below height, and no two of them overlap in time and bytes.
 * Otherwise PL_ERR_PLAN; the message names the buffers by index. */
pl_status pl_pack_check(const pl_pack_buffer *buffers, size_t n, uint64_t align,
                        uint64_t height) PL_MUST_USE;

#endif
