/* trial.h - the choice among kernels of one op where the expected kernel is slow.
 *
 * An op's list of kernels is in the order of expectation: the first kernel that accepts a call is
 * taken. For ops with alternatives the expectation is checked once for each distinct call: the
 * kernel runs on separate memory, and only a kernel that takes more than PL_CUDA_SLOW times the
 * predicted time, and PL_CUDA_LOSS_MS more, has its alternatives timed, too. An alternative must be
 * PL_CUDA_FASTER times as fast to be taken. Budgets pay for workspace: if it asks for more than
 * PL_CUDA_WORK_BYTES and a quarter of its operands, it must save PL_CUDA_MS_PER_GB for each GB. The
 * search ends with a kernel that is not slow. All limits are far above the noise of timing, so
 * every run on such a GPU makes the same choice; choices are stored like all timed choices
 * (choice.h). A process that has measured for a long time takes the expected kernels
 * (PL_CUDA_TIMING_MS).
 *
 * Where TF32 is allowed, the kernels of true f32 count, too: a kernel that takes longer than
 * predicted for true f32 (`exact_ms`) is slow, even if it is near to its own prediction, and
 * PL_CUDA_CLEARLY times as fast is then enough. So TF32 is not slower than f32.
 *
 * Attention has several good kernels whose order changes with the shape, so all of its alternatives
 * are timed for each distinct call (`all`), more finely, and PL_CUDA_CLEARLY times as fast is
 * enough: a shape has the bits of the first choice that was stored for it.
 */
#ifndef PL_CUDA_TRIAL_H
#define PL_CUDA_TRIAL_H

#include "cuda/device/cuda.h"
#include "ir/graph.h"

#define PL_CUDA_SLOW       1.5
#define PL_CUDA_LOSS_MS    0.04
#define PL_CUDA_FASTER     1.25
#define PL_CUDA_CLEARLY    1.05
#define PL_CUDA_WORK_BYTES ((size_t)64 << 20)
#define PL_CUDA_MS_PER_GB  2.0
/* A measured time replaces a prediction that is wrong by more than this factor; shorter times hold
 * too much of a launch. */
#define PL_CUDA_WRONG    1.15
#define PL_CUDA_WRONG_MS 0.05
/* Kernels of fewer milliseconds are not checked: starting them takes as long. */
#define PL_CUDA_TRIAL_LEAST_MS 0.01

typedef struct pl_cuda_trial {
    const pl_op *op;
    const pl_call *call; /* types and attributes */
    const pl_kernel *expected, *alternatives;
    double expected_ms; /* predicted time */
    double exact_ms;    /* predicted in true f32, where TF32 is allowed; 0: not allowed */
    bool all;           /* the expected kernel need not be slow */
} pl_cuda_trial;

/* Returns the alternatives of an op's kernels, a list like theirs: right for the calls that they
 * accept. NULL if there are none. all: see pl_cuda_trial. table.c */
const pl_kernel *pl_cuda_alternatives_of(const char *op, bool *all);
/* Sets *kernel to the kernel to take, and *ms to its time where the prediction is wrong by more
 * than PL_CUDA_WRONG, else to 0. A trial that cannot run (memory) leaves the expected kernel. */
void pl_cuda_kernel_by_time(const pl_cuda_trial *t, const pl_kernel **kernel, double *ms);

#endif
