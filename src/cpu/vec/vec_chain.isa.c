/* vec_chain.isa.c - several f32 functions in a row on one value that stays in registers.
 *
 * A chain takes eight vectors of its first operand through all links and stores them once, where
 * one loop per function would load and store for each function. The switch costs little: a link is
 * work for eight vectors, and its branches repeat in the same order. Each link rounds like the loop
 * that it replaces (vec_f32.isa.c), so the bits are the same.
 */
#include "cpu/kernels/lanes.h"
#include "cpu/vec/vec.h"

/* The same one element at a time, for the end of a tile. */
typedef float one __attribute__((vector_size(4)));
typedef uint32_t uone __attribute__((vector_size(4)));
typedef float loose_one __attribute__((vector_size(4), aligned(4), may_alias));

#define EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define ONCE(X)  X(0)

#define AT(k)     ((k) * (int64_t)(sizeof(V) / sizeof(float)))
#define Y(k)      ((V) * (const LOOSE *)(y + AT(k)))
#define OPEN(k)   V v##k = (V) * (const LOOSE *)(a + i + AT(k));
#define CLOSE(k)  *(LOOSE *)(d + i + AT(k)) = (LOOSE)v##k;
#define ADD_V(k)  v##k = v##k + Y(k);
#define SUB_V(k)  v##k = v##k - Y(k);
#define RSUB_V(k) v##k = Y(k) - v##k;
#define MUL_V(k)  v##k = v##k * Y(k);
#define ADD_S(k)  v##k = v##k + s;
#define SUB_S(k)  v##k = v##k - s;
#define RSUB_S(k) v##k = s - v##k;
#define MUL_S(k)  v##k = v##k * s;
#define NEG(k)    v##k = -v##k;
#define SQUARE(k) v##k = v##k * v##k;
#define RELU(k)   v##k = (V)((U)v##k & ~(U)(v##k <= (V){0}));
#define LEAKY(k)                                                                                   \
 {                                                                                                 \
  U m = (U)(v##k > (V){0});                                                                        \
  v##k = (V)(((U)v##k & m) | ((U)(v##k * s) & ~m));                                                \
 }

/* Processes as many whole steps as fit, from element i on; returns where it stopped. */
#define CHAIN(name, EACH, COUNT)                                                                   \
 static int64_t name(float *d, const float *a, const pl_vec_link *link, int n_link, int64_t i,     \
                     int64_t n)                                                                    \
 {                                                                                                 \
  for (; i + AT(COUNT) <= n; i += AT(COUNT)) {                                                     \
   EACH(OPEN)                                                                                      \
   for (const pl_vec_link *l = link; l < link + n_link; l++) {                                     \
    const float *y = l->code < PL_LINK_ADD_S ? l->x + i : l->x;                                    \
    const V s = (V){0} + (l->code < PL_LINK_NEG ? *y : l->imm);                                    \
    switch (l->code) {                                                                             \
    case PL_LINK_ADD: EACH(ADD_V) break;                                                           \
    case PL_LINK_SUB: EACH(SUB_V) break;                                                           \
    case PL_LINK_RSUB: EACH(RSUB_V) break;                                                         \
    case PL_LINK_MUL: EACH(MUL_V) break;                                                           \
    case PL_LINK_ADD_S: EACH(ADD_S) break;                                                         \
    case PL_LINK_SUB_S: EACH(SUB_S) break;                                                         \
    case PL_LINK_RSUB_S: EACH(RSUB_S) break;                                                       \
    case PL_LINK_MUL_S: EACH(MUL_S) break;                                                         \
    case PL_LINK_NEG: EACH(NEG) break;                                                             \
    case PL_LINK_SQUARE: EACH(SQUARE) break;                                                       \
    case PL_LINK_RELU: EACH(RELU) break;                                                           \
    case PL_LINK_LEAKY: EACH(LEAKY) break;                                                         \
    }                                                                                              \
   }                                                                                               \
   EACH(CLOSE)                                                                                     \
  }                                                                                                \
  return i;                                                                                        \
 }

#define V     vec
#define U     uvec
#define LOOSE loose_vec
CHAIN(eight, EIGHT, 8)
CHAIN(single, ONCE, 1)
#undef V
#undef U
#undef LOOSE
#define V     one
#define U     uone
#define LOOSE loose_one
CHAIN(rest, ONCE, 1)

static void chain(float *d, const float *a, const pl_vec_link *link, int n_link, int64_t n)
{
    int64_t i = eight(d, a, link, n_link, 0, n);
    i = single(d, a, link, n_link, i, n);
    rest(d, a, link, n_link, i, n);
}

extern const pl_vec_chain PL_VEC_NAME(pl_vec_chain);
const pl_vec_chain PL_VEC_NAME(pl_vec_chain) = chain;
