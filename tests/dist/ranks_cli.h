/* ranks_cli.h - ranks as processes, in tests: requirements, and comparison of the losses of two
 * runs. */
#ifndef PL_TEST_RANKS_CLI_H
#define PL_TEST_RANKS_CLI_H

#include "tests/lib/cli_run.h"

/* Why mpirun cannot start processes here; NULL: it can. Sets $D, the test's own folder. */
const char *ranks_why_not(void);
/* Reads the losses of the steps from --json output; returns their number. */
int ranks_losses(const char *json, double *out, int cap);
/* The number after "key": in the text, or -1. */
double ranks_number(const char *json, const char *key);

#define WANT_RANKS()                                                                               \
 do {                                                                                              \
  const char *why_ = ranks_why_not();                                                              \
  if (why_) SKIP(why_);                                                                            \
 } while (0)

#endif
