/* matmul_tiles.c - see matmul_tiles.h.
 *
 * The library's first answer is its best one except for three kinds of products, seen on an H200 in
 * 16 bits. Each kind has a plain cause, and an answer further down the list that avoids it:
 *
 *   padded   tiles that reach far beyond y: 64 rows for two. An answer that computes a fourth is
 *            taken
 *   odd      tiles whose rows are not whole cache lines and do not divide y's rows: n 320 by 168.
 *            An answer that divides both sides is taken, if there is one
 *   short    sums of few terms in several waves of tiles other than 128 x 128: storing a tile takes
 *            as long as a large part of its sums, and smaller tiles store while others multiply
 *
 * Where none of these holds the first answer stays.
 */
#include "cuda/matmul/matmul_tiles.h"

static int64_t padded(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile * tile;
}

static bool divides(const pl_product *p, const pl_lt_tile *t)
{
    return t->n && p->n % t->n == 0 && p->m % t->m == 0;
}

static bool is_small(const pl_product *p, const pl_lt_tile *t, const pl_lt_tile *first)
{
    enum { FOURTH = 4 };
    return t->n && FOURTH * padded(p->n, t->n) * padded(p->m, t->m) <=
                       padded(p->n, first->n) * padded(p->m, first->m);
}

static bool is_odd(const pl_product *p, const pl_lt_tile *t)
{
    enum { WHOLE = 32 };
    return t->n > WHOLE && t->n % WHOLE != 0 && p->n % t->n != 0;
}

static bool is_square(const pl_lt_tile *t)
{
    enum { SIDE = 128 };
    return t->n == SIDE && t->m == SIDE;
}

static bool is_short(const pl_product *p, const pl_lt_tile *t)
{
    enum { TERMS = 1024, WAVES = 3 };
    return p->k <= TERMS && t->waves >= WAVES && !is_square(t);
}

int pl_tiles_choose(const pl_product *p, const pl_lt_tile *list, int count)
{
    if (count < 2 || !list[0].n) return 0;
    for (int i = 1; i < count; i++)
        if (is_small(p, &list[i], &list[0])) return i;
    for (int i = 1; is_odd(p, &list[0]) && i < count; i++)
        if (divides(p, &list[i])) return i;
    for (int i = 1; is_short(p, &list[0]) && i < count; i++)
        if (is_square(&list[i])) return i;
    return 0;
}

static pl_lt_tile tile_of(const cublasLtMatmulHeuristicResult_t *r)
{
    uint32_t id = 0;
    size_t got;
    pl_lt_tile t = {.waves = r->wavesCount};
    if (cublasLtMatmulAlgoConfigGetAttribute(&r->algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &id, sizeof id,
                                             &got) != CUBLAS_STATUS_SUCCESS)
        return t;
    switch (id) {
#define PL_TILE(rows, columns)                                                                     \
 case CUBLASLT_MATMUL_TILE_##rows##x##columns:                                                     \
  t.n = rows, t.m = columns;                                                                       \
  break;
#include "cuda/matmul/tiles.def"
#undef PL_TILE
    default: break;
    }
    return t;
}

int pl_tiles_first(const pl_product *p, const cublasLtMatmulHeuristicResult_t *list, int count)
{
    enum { SEEN = 90 };
    pl_lt_tile tile[PL_TILES_LOOK];
    if ((p->dtype != PL_BF16 && p->dtype != PL_F16) || pl_cuda_props_get()->arch != SEEN) return 0;
    if (count > PL_TILES_LOOK) count = PL_TILES_LOOK;
    for (int i = 0; i < count; i++) tile[i] = tile_of(&list[i]);
    return pl_tiles_choose(p, tile, count);
}
