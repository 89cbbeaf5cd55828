/* test.h - the test harness: TEST(name) { ... } registers itself; one binary runs them all.
 *
 *   pl_test            every test         pl_test -k text    those whose name holds text
 *   pl_test -l         list               pl_test -v         print each name and its time
 *   pl_test -j N       N at once, each in a process of its own (deal.h)
 *   pl_test --times    the slowest at the end
 *
 * A failing CHECK prints file, line and values, marks the test failed and returns from it. SKIP
 * says why. The last line is "N passed, N failed" (", N skipped").
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
/* True when PL_TEST_LONG is set (make check-all): tests that take more than a few seconds ask. */
bool pl_test_long(void);
/* A fresh temporary folder, removed when the test ends. Borrowed until then. */
const char *pl_test_dir(void);
/* Deterministic noise for test data: uniform in [-1,1). */
double pl_test_noise(uint64_t *state);

#define TEST(name) PL_TEST_AS(name, false)
/* A test of times or of the whole machine's state: under -j no other runs beside it. */
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

#endif
