/* test.h - the test harness. A test in ten lines, in any tests/FOLDER/test_SUBJECT.c:
 *
 *   #include "tests/lib/test.h"
 *   TEST(base_an_empty_text_is_no_size)       a sentence that can be false
 *   {
 *       uint64_t bytes = 7;                                              arrange
 *       pl_status rc = pl_str_parse_bytes("", &bytes);                   act
 *       CHECK(rc != PL_OK && bytes == 7);                                assert
 *   }
 *
 * The test registers itself; no list names it. A CHECK that does not hold prints file, line and
 * values, marks the test failed and returns from the function that holds it. SKIP(why) ends a test
 * that cannot run here. Files go to pl_test_dir(). Random data comes from pl_test_noise(), so that
 * a failure repeats. What takes seconds asks pl_test_long() for its exhaustive part.
 *
 *   pl_test            every test         pl_test -k text    tests whose name contains text
 *   pl_test -l         list               pl_test -v         print each name and its time
 *   pl_test -j N       N at once, each in a process of its own (deal.h)
 *   pl_test --times    the slowest at the end
 *
 * The last line is "N passed, N failed" (", N skipped").
 */
#ifndef PL_TEST_H
#define PL_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_test_case {
    const char *name, *file;
    void (*fn)(void);
    struct pl_test_case *next;
    bool alone;
} pl_test_case;

void pl_test_register(pl_test_case *t);
void pl_test_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void pl_test_skip(const char *why);
/* True when PL_TEST_LONG is set (make check-all): then exhaustive versions of checks run. */
bool pl_test_long(void);
/* A fresh temporary folder, removed when the test ends. Borrowed until then. */
const char *pl_test_dir(void);
/* A path in that folder; borrowed until eight further calls. */
const char *pl_test_path(const char *name);
/* Deterministic noise for test data: uniform in [-1,1). */
double pl_test_noise(uint64_t *state);

#define TEST(name) PL_TEST_AS(name, false)
/* A test with limits of time, or about the whole machine: under -j no other test runs beside it. */
#define TEST_ALONE(name) PL_TEST_AS(name, true)
#define PL_TEST_AS(name, alone)                                                                    \
 static void test_##name(void);                                                                    \
 __attribute__((constructor)) static void register_##name(void)                                    \
 {                                                                                                 \
  static pl_test_case c = {#name, __FILE__, test_##name, NULL, alone};                             \
  pl_test_register(&c);                                                                            \
 }                                                                                                 \
 static void test_##name(void)

#define CHECK(cond)                                                                                \
 do {                                                                                              \
  if (!(cond)) {                                                                                   \
   pl_test_fail(__FILE__, __LINE__, "%s", #cond);                                                  \
   return;                                                                                         \
  }                                                                                                \
 } while (0)
#define CHECK_MSG(cond, ...)                                                                       \
 do {                                                                                              \
  if (!(cond)) {                                                                                   \
   pl_test_fail(__FILE__, __LINE__, __VA_ARGS__);                                                  \
   return;                                                                                         \
  }                                                                                                \
 } while (0)
#define CHECK_INT(a, b)                                                                            \
 do {                                                                                              \
  long long a_ = (long long)(a), b_ = (long long)(b);                                              \
  if (a_ != b_) {                                                                                  \
   pl_test_fail(__FILE__, __LINE__, "%s = %lld, wanted %s = %lld", #a, a_, #b, b_);                \
   return;                                                                                         \
  }                                                                                                \
 } while (0)
#define CHECK_OK(expr)                                                                             \
 do {                                                                                              \
  pl_status s_ = (expr);                                                                           \
  if (s_ != PL_OK) {                                                                               \
   pl_test_fail(__FILE__, __LINE__, "%s: %s: %s", #expr, pl_status_name(s_), pl_error_text());     \
   return;                                                                                         \
  }                                                                                                \
 } while (0)
#define CHECK_NEAR(a, b, tol)                                                                      \
 do {                                                                                              \
  double a_ = (double)(a), b_ = (double)(b);                                                       \
  if (!(fabs(a_ - b_) <= (tol))) {                                                                 \
   pl_test_fail(__FILE__, __LINE__, "%s = %.9g, wanted %s = %.9g within %g", #a, a_, #b, b_,       \
                (double)(tol));                                                                    \
   return;                                                                                         \
  }                                                                                                \
 } while (0)
#define SKIP(why)                                                                                  \
 do {                                                                                              \
  pl_test_skip(why);                                                                               \
  return;                                                                                          \
 } while (0)

/* Tests of budgets skip builds with sanitizers, whose own memory counts against a budget and grows
 * from plan to plan. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
# define WANT_PLAIN() SKIP("budgets are for builds without sanitizers")
#else
# define WANT_PLAIN() (void)0
#endif

#endif
