/* fault_lab.h - runs of the program in which the file system fails; see tests/fake/fault.c. */
#ifndef PL_TEST_FAULT_LAB_H
#define PL_TEST_FAULT_LAB_H

#include "tests/lib/cli_run.h"

#include <stdbool.h>

/* The smallest run: milliseconds for all its steps, with averaged weights, evaluations and a best
 * checkpoint. */
#define FAULT_NET                                                                                  \
 "regress/tiny batch=4 'model.widths=[2]' data.samples=16 data.eval_samples=4 eval.batches=1 "     \
 "ema.decay=0.5 threads=1 log.tensorboard=false --quiet "

/* One fault: at the k-th call of a kind whose path contains `name`. what: kill, lose, fail or
 * always. */
typedef struct fault {
    const char *kind, *name;
    long k;
    const char *what;
} fault;

/* Whether faults can be made here: not with sanitizers, which replace the same functions. */
bool fault_here(void);
#define WANT_FAULTS()                                                                              \
 do {                                                                                              \
  WANT_BIN();                                                                                      \
  if (!fault_here()) SKIP("fault.so is not built, or a sanitizer has the allocator");              \
 } while (0)

/* Returns the path of the library for LD_PRELOAD. */
const char *fault_library(void);
/* Runs `plimsoll ARGS` in pl_test_dir() with the fault. */
cli_result fault_run(const fault *f, const char *args);
/* Runs `plimsoll ARGS` without one. */
cli_result fault_free(const char *args);
/* The number of calls that the last fault_run with this kind and name would have counted. */
long fault_count(const fault *f, const char *args);

#endif
