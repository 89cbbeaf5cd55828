/* strided.c - see strided.h.
 *
 * A box is first simplified: dims of size 1 are dropped, neighbours that are contiguous in both
 * layouts are merged, and the dim with the smallest destination stride is last, so that writes run
 * forward. Three inner loops remain:
 *   rows       both innermost strides are 1: memcpy
 *   tiles      the destination runs along the last dim, the source along another: square tiles, so
 *              that both sides use every byte of the cache lines they touch
 *   elements   anything else
 * Work is split along the outer dims into pieces of a fixed minimum size; a piece is walked with an
 * odometer, so that short rows cost no divisions.
 */
#include "cpu/kernels/strided.h"

#include "base/threads.h"
#include "cpu/isa/shuffle.h"

#include <string.h>

enum { PIECE_BYTES = 64 << 10, TILE = 32 };

/* ---- simplification --------------------------------------------------------------------- */
static void swap_dims(pl_strided_box *b, int i, int j)
{
    int64_t d = b->dim[i], t = b->to[i], f = b->from[i];
    b->dim[i] = b->dim[j], b->to[i] = b->to[j], b->from[i] = b->from[j];
    b->dim[j] = d, b->to[j] = t, b->from[j] = f;
}

/* Orders dims by falling destination stride and merges what is contiguous in both layouts. */
static pl_strided_box simplified(const pl_strided_box *in)
{
    pl_strided_box b = {.rank = 0};
    for (int i = 0; i < in->rank; i++) {
        if (in->dim[i] == 1) continue;
        b.dim[b.rank] = in->dim[i];
        b.to[b.rank] = in->to[i];
        b.from[b.rank++] = in->from[i];
    }
    for (int i = 1; i < b.rank; i++)
        for (int j = i; j > 0 && b.to[j - 1] < b.to[j]; j--) swap_dims(&b, j - 1, j);
    int n = 0;
    for (int i = 0; i < b.rank; i++) {
        bool run =
            n > 0 && b.to[n - 1] == b.to[i] * b.dim[i] && b.from[n - 1] == b.from[i] * b.dim[i];
        if (!run) {
            b.dim[n] = b.dim[i];
        } else {
            n--;
            b.dim[n] *= b.dim[i];
        }
        b.to[n] = b.to[i];
        b.from[n++] = b.from[i];
    }
    b.rank = n;
    return b;
}

/* ---- walking the outer dims ------------------------------------------------------------- */
typedef struct walk {
    int64_t at[PL_MAX_RANK];
    int64_t to, from; /* element offsets of the current position */
} walk;

static walk walk_start(const pl_strided_box *b, int rank, int64_t index)
{
    walk w = {{0}, 0, 0};
    for (int k = rank - 1; k >= 0; k--) {
        w.at[k] = index % b->dim[k];
        index /= b->dim[k];
        w.to += w.at[k] * b->to[k];
        w.from += w.at[k] * b->from[k];
    }
    return w;
}

static void walk_next(const pl_strided_box *b, int rank, walk *w)
{
    for (int k = rank - 1; k >= 0; k--) {
        w->to += b->to[k];
        w->from += b->from[k];
        if (++w->at[k] < b->dim[k]) return;
        w->to -= b->dim[k] * b->to[k];
        w->from -= b->dim[k] * b->from[k];
        w->at[k] = 0;
    }
}

/* ---- inner loops ------------------------------------------------------------------------ */
#define ROW(name, T)                                                                               \
 static void name(char *dst, int64_t to, const char *src, int64_t from, int64_t n)                 \
 {                                                                                                 \
  T *d = (T *)(void *)dst;                                                                         \
  const T *s = (const T *)(const void *)src;                                                       \
  if (to == 1 && from == 0) {                                                                      \
   T v = *s;                                                                                       \
   for (int64_t i = 0; i < n; i++) d[i] = v;                                                       \
  } else if (to == 1) {                                                                            \
   for (int64_t i = 0; i < n; i++) d[i] = s[i * from];                                             \
  } else {                                                                                         \
   for (int64_t i = 0; i < n; i++) d[i * to] = s[i * from];                                        \
  }                                                                                                \
 }
ROW(row1, uint8_t)
ROW(row2, uint16_t)
ROW(row4, uint32_t)
ROW(row8, uint64_t)

static void copy_row(size_t elem, char *dst, int64_t to, const char *src, int64_t from, int64_t n)
{
    if (to == 1 && from == 1)
        memcpy(dst, src, (size_t)n * elem);
    else if (elem == 4)
        row4(dst, to, src, from, n);
    else if (elem == 8)
        row8(dst, to, src, from, n);
    else if (elem == 2)
        row2(dst, to, src, from, n);
    else
        row1(dst, to, src, from, n);
}

/* d[i*ds + j] = s[j*ss + i] for i < n, j < m: the source runs along i, the destination along j. */
#define TRANSPOSE(name, T)                                                                         \
 static void name(T *d, int64_t ds, const T *s, int64_t ss, int n, int m)                          \
 {                                                                                                 \
  for (int i = 0; i < n; i++)                                                                      \
   for (int j = 0; j < m; j++) d[i * ds + j] = s[j * ss + i];                                      \
 }
TRANSPOSE(transpose1, uint8_t)
TRANSPOSE(transpose8, uint64_t)

/* 2-byte elements go eight by eight through registers, 4-byte elements four by four; elements at
 * the edges one by one. */
typedef uint16_t oct __attribute__((vector_size(16)));
#define ZIP_LO(a, b)  PL_SHUFFLE(oct, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HI(a, b)  PL_SHUFFLE(oct, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define PAIR_LO(a, b) PL_SHUFFLE(oct, a, b, 0, 1, 8, 9, 2, 3, 10, 11)
#define PAIR_HI(a, b) PL_SHUFFLE(oct, a, b, 4, 5, 12, 13, 6, 7, 14, 15)
#define HALF_LO(a, b) PL_SHUFFLE(oct, a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HALF_HI(a, b) PL_SHUFFLE(oct, a, b, 4, 5, 6, 7, 12, 13, 14, 15)

static void transpose8x8(uint16_t *d, int64_t ds, const uint16_t *s, int64_t ss)
{
    oct a[8], b[8], c[8];
    for (int i = 0; i < 8; i++) memcpy(&a[i], s + i * ss, sizeof a[i]);
    for (int i = 0; i < 8; i += 2) b[i] = ZIP_LO(a[i], a[i + 1]), b[i + 1] = ZIP_HI(a[i], a[i + 1]);
    for (int i = 0; i < 8; i += 4) {
        c[i] = PAIR_LO(b[i], b[i + 2]), c[i + 1] = PAIR_HI(b[i], b[i + 2]);
        c[i + 2] = PAIR_LO(b[i + 1], b[i + 3]), c[i + 3] = PAIR_HI(b[i + 1], b[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        a[2 * i] = HALF_LO(c[i], c[i + 4]);
        a[2 * i + 1] = HALF_HI(c[i], c[i + 4]);
    }
    for (int i = 0; i < 8; i++) memcpy(d + i * ds, &a[i], sizeof a[i]);
}

static void transpose2(uint16_t *d, int64_t ds, const uint16_t *s, int64_t ss, int n, int m)
{
    int n8 = n & ~7, m8 = m & ~7;
    for (int i = 0; i < n8; i += 8)
        for (int j = 0; j < m8; j += 8) transpose8x8(d + i * ds + j, ds, s + j * ss + i, ss);
    for (int i = 0; i < n; i++)
        for (int j = i < n8 ? m8 : 0; j < m; j++) d[i * ds + j] = s[j * ss + i];
}

typedef uint32_t quad __attribute__((vector_size(16)));

static quad load4(const uint32_t *p)
{
    quad q;
    memcpy(&q, p, sizeof q);
    return q;
}

static void transpose4x4(uint32_t *d, int64_t ds, const uint32_t *s, int64_t ss)
{
    quad a = load4(s), b = load4(s + ss), c = load4(s + 2 * ss), e = load4(s + 3 * ss);
    quad ab0 = PL_SHUFFLE(quad, a, b, 0, 4, 1, 5);
    quad ab1 = PL_SHUFFLE(quad, a, b, 2, 6, 3, 7);
    quad ce0 = PL_SHUFFLE(quad, c, e, 0, 4, 1, 5);
    quad ce1 = PL_SHUFFLE(quad, c, e, 2, 6, 3, 7);
    quad r[4] = {PL_SHUFFLE(quad, ab0, ce0, 0, 1, 4, 5), PL_SHUFFLE(quad, ab0, ce0, 2, 3, 6, 7),
                 PL_SHUFFLE(quad, ab1, ce1, 0, 1, 4, 5), PL_SHUFFLE(quad, ab1, ce1, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) memcpy(d + i * ds, &r[i], sizeof r[i]);
}

static void transpose4(uint32_t *d, int64_t ds, const uint32_t *s, int64_t ss, int n, int m)
{
    int n4 = n & ~3, m4 = m & ~3;
    for (int i = 0; i < n4; i += 4)
        for (int j = 0; j < m4; j += 4) transpose4x4(d + i * ds + j, ds, s + j * ss + i, ss);
    for (int i = 0; i < n; i++)
        for (int j = i < n4 ? m4 : 0; j < m; j++) d[i * ds + j] = s[j * ss + i];
}

static void transpose_tile(size_t elem, char *d, int64_t ds, const char *s, int64_t ss, int n,
                           int m)
{
    void *to = d;
    const void *from = s;
    if (elem == 4)
        transpose4(to, ds, from, ss, n, m);
    else if (elem == 8)
        transpose8(to, ds, from, ss, n, m);
    else if (elem == 2)
        transpose2(to, ds, from, ss, n, m);
    else
        transpose1(to, ds, from, ss, n, m);
}

/* ---- pieces ----------------------------------------------------------------------------- */
typedef struct job {
    pl_strided_box box;
    size_t elem;
    char *dst;
    const char *src;
    int64_t outer;     /* rows: positions of the outer dims */
    int64_t per_piece; /* rows in one piece, when rows are short */
    int64_t parts;     /* pieces of one row, when rows are long */
    int outer_rank;
} job;

static void row_piece(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_strided_box *b = &j->box;
    int last = b->rank - 1;
    int64_t elem = (int64_t)j->elem, n = b->dim[last], part = task % j->parts;
    int64_t first = n * part / j->parts, end = n * (part + 1) / j->parts;
    int64_t lo = task / j->parts * j->per_piece, hi = lo + j->per_piece;
    if (hi > j->outer) hi = j->outer;
    walk w = walk_start(b, j->outer_rank, lo);
    for (int64_t i = lo; i < hi; i++) {
        copy_row(j->elem, j->dst + (w.to + first * b->to[last]) * elem, b->to[last],
                 j->src + (w.from + first * b->from[last]) * elem, b->from[last], end - first);
        walk_next(b, j->outer_rank, &w);
    }
}

/* The last two dims belong to the tile: the source runs along the second-to-last. */
static void tile_piece(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_strided_box *b = &j->box;
    int r = b->rank;
    int64_t n = b->dim[r - 2], m = b->dim[r - 1], strips = (n + TILE - 1) / TILE;
    int64_t elem = (int64_t)j->elem, i = task % strips * TILE;
    walk w = walk_start(b, r - 2, task / strips);
    int64_t rows = n - i < TILE ? n - i : TILE;
    for (int64_t k = 0; k < m; k += TILE) {
        int64_t cols = m - k < TILE ? m - k : TILE;
        transpose_tile(j->elem, j->dst + (w.to + i * b->to[r - 2] + k) * elem, b->to[r - 2],
                       j->src + (w.from + i + k * b->from[r - 1]) * elem, b->from[r - 1], (int)rows,
                       (int)cols);
    }
}

/* Returns the dim that the source runs along, when transposing it with the last dim in tiles is
 * faster. */
static int tile_dim(const pl_strided_box *b)
{
    int last = b->rank - 1;
    if (b->rank < 2 || b->to[last] != 1 || b->from[last] == 1 || b->dim[last] < 4) return -1;
    for (int i = 0; i < last; i++)
        if (b->from[i] == 1 && b->dim[i] >= 4) return i;
    return -1;
}

void pl_strided_copy(const pl_strided_box *box, size_t elem, void *dst, const void *src)
{
    for (int i = 0; i < box->rank; i++)
        if (box->dim[i] == 0) return;
    job j = {.elem = elem, .dst = dst, .src = src, .outer = 1, .per_piece = 1, .parts = 1};
    pl_strided_box *b = &j.box;
    *b = simplified(box);
    if (b->rank == 0) {
        memcpy(dst, src, elem);
        return;
    }
    int t = tile_dim(b);
    if (t >= 0) {
        for (; t < b->rank - 2; t++) swap_dims(b, t, t + 1);
        int64_t strips = (b->dim[b->rank - 2] + TILE - 1) / TILE;
        for (int i = 0; i < b->rank - 2; i++) strips *= b->dim[i];
        pl_threads_for(strips, tile_piece, &j);
        return;
    }
    int last = b->rank - 1;
    j.outer_rank = last;
    for (int i = 0; i < last; i++) j.outer *= b->dim[i];
    int64_t row_bytes = b->dim[last] * (int64_t)elem;
    j.per_piece = row_bytes < PIECE_BYTES ? PIECE_BYTES / row_bytes : 1;
    j.parts = row_bytes < PIECE_BYTES ? 1 : row_bytes / PIECE_BYTES;
    pl_threads_for((j.outer + j.per_piece - 1) / j.per_piece * j.parts, row_piece, &j);
}

void pl_strided_fill(void *dst, size_t elem, int64_t n, const void *value)
{
    static const char zero[8];
    if (n <= 0) return;
    if (memcmp(value, zero, elem) == 0) {
        memset(dst, 0, (size_t)n * elem);
        return;
    }
    copy_row(elem, dst, 1, value, 0, n);
}
