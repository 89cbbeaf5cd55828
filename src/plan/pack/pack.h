/* pack.h - offsets in one arena: where each buffer lies, so that buffers alive at the same time
 * never share a byte and the arena is as low as can be.
 *
 * The problem is plain data, without graphs. A buffer is alive in the half-open time interval
 * [lo,hi) and takes size bytes, rounded up to the alignment. A buffer of no bytes or of an empty
 * interval is legal and lies at offset 0. No arena is lower than the largest sum of sizes alive at
 * one time, the max-load bound: a height equal to it is proven best.
 *
 * The result is a function of the problem, the options and the seed. Effort is counted in units of
 * work, not in seconds; the time limit is a safety net, and only a run that meets it depends on the
 * machine. check_pack.h accepts or rejects a result and shares no code with the solver.
 */
#ifndef PL_PLAN_PACK_H
#define PL_PLAN_PACK_H

#include "base/err.h"

typedef struct pl_pack_buffer {
    int64_t lo, hi;  /* alive in [lo,hi) */
    uint64_t size;   /* bytes */
    uint64_t offset; /* written by pl_pack, a multiple of the alignment */
} pl_pack_buffer;

/* Techniques, each of which can be switched off to measure its effect. */
enum pl_pack_off {
    PL_PACK_NO_SPLIT = 1 << 0,   /* independent time ranges, whole-range buffers at the bottom */
    PL_PACK_NO_SKYLINE = 1 << 1, /* lowest-offset-first placement under several keys */
    PL_PACK_NO_FIT = 1 << 2,     /* largest-first best fit and first fit */
    PL_PACK_NO_PERTURB = 1 << 3, /* local searches */
    PL_PACK_NO_EXACT = 1 << 4,   /* depth-first search for a given height */
    PL_PACK_NO_FULL = 1 << 5,    /* searches over the buffers of full sections */
};

typedef struct pl_pack_opts {
    uint64_t align;      /* offsets and sizes are multiples of it; 0 or 1: none */
    uint64_t target;     /* stop at this height; 0: stop only at the bound */
    uint64_t work;       /* effort after the first portfolio, one unit is about a nanosecond; 0:
                          * none */
    double time_limit_s; /* safety net; 0: none */
    uint64_t seed;
    uint32_t off; /* enum pl_pack_off */
    bool improve; /* the offsets are what pl_pack wrote for the same buffers: the search starts with
                   * them, without the first portfolio */
    const volatile int *stop; /* the search ends soon after *stop becomes nonzero; NULL: never */
} pl_pack_opts;

#define PL_PACK_OPTS_INIT                                                                          \
 {                                                                                                 \
  .align = 64, .target = 0, .work = 2200000000u, .time_limit_s = 30.0, .seed = 1, .off = 0,        \
  .stop = NULL                                                                                     \
 }

/* Writes every offset and the height of the arena. opts may be NULL. On failure (memory, sizes
 * that do not fit 62 bits) nothing is written. */
pl_status pl_pack(pl_pack_buffer *buffers, size_t n, const pl_pack_opts *opts,
                  uint64_t *height) PL_MUST_USE;

/* Sets *bound to the max-load bound with sizes rounded up to align. */
pl_status pl_pack_bound(const pl_pack_buffer *buffers, size_t n, uint64_t align,
                        uint64_t *bound) PL_MUST_USE;

#endif
