/* heap.h - a binary heap over an array of any type, smallest item first.
 *
 *     static bool before(const void *unused, const event *a, const event *b) { ... }
 *     PL_HEAP_DEFINE(events, event, const void *, before)
 *     events_push(NULL, array, &n, e);      the array has room for n + 1 items
 *     e = events_pop(NULL, array, &n);      n > 0
 *
 * Defines two static functions, so that the comparison is inlined. The first argument is passed to
 * `before`, which needs it when items are indices. Which of several equal items comes first depends
 * on the order of pushes; `before` breaks ties where that matters. Push and pop take O(log n).
 */
#ifndef PL_BASE_HEAP_H
#define PL_BASE_HEAP_H

#include <stdint.h>

#define PL_HEAP_DEFINE(name, type, context, before)                                                \
 static void name##_push(context ctx, type *at, uint32_t *n, type x)                               \
 {                                                                                                 \
  uint32_t i = (*n)++;                                                                             \
  for (; i && before(ctx, &x, &at[(i - 1) / 2]); i = (i - 1) / 2) at[i] = at[(i - 1) / 2];         \
  at[i] = x;                                                                                       \
 }                                                                                                 \
 static type name##_pop(context ctx, type *at, uint32_t *n)                                        \
 {                                                                                                 \
  type top = at[0], x = at[--*n];                                                                  \
  uint32_t i = 0;                                                                                  \
  for (uint32_t c; (c = 2 * i + 1) < *n; i = c) {                                                  \
   if (c + 1 < *n && before(ctx, &at[c + 1], &at[c])) c++;                                         \
   if (!before(ctx, &at[c], &x)) break;                                                            \
   at[i] = at[c];                                                                                  \
  }                                                                                                \
  at[i] = x;                                                                                       \
  return top;                                                                                      \
 }

#endif
