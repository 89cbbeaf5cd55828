/* shuffle.h - PL_SHUFFLE(ints, a, b, i...): the vector of the elements i of a followed by b; i are
 * constants, as many as a has elements. ints is the type of a vector of as many integers, as wide
 * as the elements.
 *
 * clang and gcc from 12 on have a builtin for this. The builtin of gcc 11 takes i as a vector.
 */
#ifndef PL_CPU_SHUFFLE_H
#define PL_CPU_SHUFFLE_H

#if defined(__clang__) || __GNUC__ >= 12
# define PL_SHUFFLE(ints, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
# define PL_SHUFFLE(ints, a, b, ...) __builtin_shuffle(a, b, (ints){__VA_ARGS__})
#endif

#endif
