/* deal.h - tests dealt to several processes at once.
 *
 * The parent starts no thread and runs no test: it hands one test at a time to whichever worker is
 * free, so that tests that wait (for ranks, for programs) run beside tests that compute. The output
 * of a test is kept in a file of its worker and shown when the test ends. When a worker dies, its
 * test is reported by name and counts as failed, and a new worker runs the remaining tests.
 */
#ifndef PL_TEST_DEAL_H
#define PL_TEST_DEAL_H

#include "tests/lib/test.h"

typedef enum pl_test_end { PL_TEST_PASSED, PL_TEST_FAILED, PL_TEST_SKIPPED } pl_test_end;

typedef struct pl_test_result {
    pl_test_end end;
    double wall_s, cpu_s; /* cpu: this process and the children that it waited for */
} pl_test_result;

/* main.c: runs one test in this process; tells how one ended (counts it, prints its line). */
pl_test_result pl_test_run(const pl_test_case *t);
void pl_test_tell(const pl_test_case *t, pl_test_result r);
/* main.c: this process is one of `workers` processes that run tests. Tests have that share of the
 * cores as threads, at least one: a test about threads sets their number. */
void pl_test_worker(int number, int workers);

/* Runs all n tests on up to `workers` processes. Those marked alone come last, one at a time. */
void pl_test_deal(pl_test_case **tests, int n, int workers);

#endif
