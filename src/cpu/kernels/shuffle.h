/* shuffle.h - PL_SHUFFLE(a, b, i...): the vector of the elements i of a followed by b; i are constants,
 * as many as a has elements.
 *
 * clang and gcc since 12 have a builtin for this. gcc 11 has one that takes the numbers as a vector of
 * integers as wide as the elements, which is the type of a comparison.
 */
#ifndef PL_CPU_SHUFFLE_H
#define PL_CPU_SHUFFLE_H

#if defined(__clang__) || __GNUC__ >= 12
# define PL_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
# define PL_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (__typeof__((a) == (b))){__VA_ARGS__})
#endif

#endif
