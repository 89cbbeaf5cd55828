/* fuse_cuda.c - what fused groups on NVIDIA cards may be. One place for the CUDA device, which
 * compiles them, and for the profiles of cards, which only plan them: the units must be the same. */
#include "pass/fuse.h"

const pl_fuse_opts pl_fuse_cuda = PL_FUSE_OPTS_INIT;
