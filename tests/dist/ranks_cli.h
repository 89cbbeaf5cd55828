/* ranks_cli.h - ranks as processes, in tests: what they need, and how losses of two runs compare.
 */
#ifndef PL_TEST_RANKS_CLI_H
#define PL_TEST_RANKS_CLI_H

#include "tests/lib/cli_run.h"

/* Why processes cannot be started here by mpirun; NULL: they can. Sets $D, the test's own folder.
 */
const char *ranks_why_not(void);
/* Losses of the steps in a text of --json; returns how many. */
int ranks_losses(const char *json, double *out, int cap);
/* The number behind "key": in the text, or -1. */
double ranks_number(const char *json, const char *key);

#define WANT_RANKS()                                                                               \
 do {                                                                                              \
  const char *why_ = ranks_why_not();                                                              \
  if (why_) SKIP(why_);                                                                            \
 } while (0)

#endif
