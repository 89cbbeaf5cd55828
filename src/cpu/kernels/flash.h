/* flash.h - attention in tiles: softmax(q k^T scale) v and its gradient, without storing the
 * probabilities.
 *
 * Layout: q, o [B, N, H, D], k, v [B, M, H / group, D], lse [B, H, N], all f32; q, k, v and their
 * gradients may be parts of larger rows. Head h of the queries reads head h / group of keys and
 * values. lse is the natural
 * logarithm of the sum of exponentials of a query's scores; with it the backward pass recomputes
 * any tile of probabilities. Memory besides the operands is a few tiles per thread, and for the
 * backward pass two numbers per query. causal: query i sees keys 0..i. A query that sees no key, or
 * only keys to whose scores the mask adds less than -1e30, has result, lse and gradients 0.
 *
 * Work is split by shape alone and every element is summed in one order, so results do not depend
 * on the number of threads.
 */
#ifndef PL_CPU_FLASH_H
#define PL_CPU_FLASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_flash {
    int64_t batch, heads, n, m, d;
    int64_t group;
    /* of q and dq, and of k, v, dk and dv: elements from one token to the next, and from one head
     * to the next */
    int64_t row, step, keys_row, keys_step;
    double scale;
    bool causal;
    const float *q, *k, *v;
    /* added to the scores; bool: where false, a query does not see a key. NULL: none */
    const void *mask;
    bool mask_is_bool;
    int64_t mask_step[4]; /* elements from one batch, head, query and key to the next */
    float *o, *lse;       /* forward only */
    /* backward only */
    const float *fwd_o, *fwd_lse, *d_o, *d_lse; /* d_lse may be NULL */
    float *dq, *dk, *dv;
} pl_flash;

/* Returns the scratch bytes of a run, from the sizes alone. */
size_t pl_flash_work(const pl_flash *f, bool backward);
void pl_flash_forward(const pl_flash *f, void *work);
void pl_flash_backward(const pl_flash *f, void *work);

/* ---- between flash.c and flash.isa.c ---------------------------------------------------- */
enum { PL_FLASH_Q = 64, PL_FLASH_K = 64, PL_FLASH_PAD = 16 }; /* tile rows; lanes padded to */

static inline int64_t pl_flash_padded(int64_t n)
{
    return (n + PL_FLASH_PAD - 1) / PL_FLASH_PAD * PL_FLASH_PAD;
}

/* One set of compiled loops. work: this thread's tiles. */
typedef struct pl_flash_set {
    /* Computes a tile of queries of one head: rows [q0, q0 + PL_FLASH_Q). */
    void (*forward)(const pl_flash *f, int64_t b, int64_t h, int64_t q0, float *work);
    /* Computes dk and dv of keys [k0, k1) of head g of the keys, and adds their part of dq of all
     * heads that read it. lse2 and delta hold one number per head and query: lse in powers of two,
     * and the sum of o times d_o minus d_lse. */
    void (*backward)(const pl_flash *f, int64_t b, int64_t g, int64_t k0, int64_t k1, float *dq,
                     const float *lse2, const float *delta, float *work);
} pl_flash_set;

#endif
