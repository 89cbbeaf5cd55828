/* split.cu - see split.h: one kernel template; loaders read its operands.
 *
 * A block computes a tile of y. Both operands are copied asynchronously as plain f32, 32 terms at a
 * time, STAGES of them in flight. A warp has 16 MT x 32 of the tile, in products of 16 x 8 x 8
 * (mma.h). The mapping of rows, columns and terms of the tile to those of a product is free as long
 * as operands and results agree. It is chosen so that every lane reads 16 bytes at a time from
 * either layout and writes 32 bytes of a row (q = lane/4, r = lane%4):
 *
 *   row q + 8h of product row i      is row 2 MT q + 2i + h of the warp's rows
 *   column q of product column j     is column 4q + j
 *   terms r, r+4 of products 0, 1    are terms 4r + 0..3 of 16
 */
#include "cuda/matmul/split.h"

#include "cuda/device/launch.h"
#include "cuda/matmul/split_load.h"

typedef tiling<4, 2, 4, 1> large;
typedef tiling<4, 2, 2, 2> narrow;
typedef tiling<2, 2, 2, 3> little;
/* TF32 has fewer fragments in registers: two blocks share a multiprocessor and hide each other's
 * waits. */
typedef tiling<4, 2, 4, 2, 3> large_tf32;

/* pl_split_choose assumes tiles with these numbers. */
static constexpr int TILES[][3] = {
#define T(name, m, n, blocks, rate) {m, n, blocks},
    PL_SPLIT_TILES(T)
#undef T
};
template <class S> static constexpr bool is_tile(pl_split_tile t)
{
    return S::BM == TILES[t][0] && S::BN == TILES[t][1] && S::BLOCKS == TILES[t][2];
}
static_assert(is_tile<large>(PL_SPLIT_LARGE) && is_tile<narrow>(PL_SPLIT_NARROW) &&
                  is_tile<little>(PL_SPLIT_LITTLE) && BK == PL_SPLIT_TERMS,
              "kernel_sizes.h describes other tiles");

struct target {
    float *y;
    const float *bias, *add;
    pl_divisor pixels, p1, p2; /* spread */
    int32_t size[3], first[3], stride[3];
    int32_t spread, relu, wide;
};
struct problem {
    side a, b;
    pixel_finder f;
    target to;
    int64_t y_step;         /* elements from one batch to the next */
    int32_t k, part, parts; /* part: terms of one part */
    int32_t m_tiles, n_tiles;
};

/* Splits four terms of a row: hi in TF32 format, and pairs of bf16 for lo and for x. Finite values
 * that would round to infinity exceed f32's products anyway. */
static __device__ __forceinline__ void cut(const float *x, unsigned *hi, int step, unsigned *lo,
                                           unsigned *all, int pair)
{
    float rest[4];
#pragma unroll
    for (int t = 0; t < 4; t++) {
        unsigned u = (__float_as_uint(x[t]) + 0x1000u) & 0xffffe000u;
        hi[t * step] = u;
        rest[t] = x[t] - __uint_as_float(u);
    }
#pragma unroll
    for (int t = 0; t < 2; t++) {
        lo[t * pair] = pl_pack2(rest[2 * t], rest[2 * t + 1], pl_bf16());
        all[t * pair] = pl_pack2(x[2 * t], x[2 * t + 1], pl_bf16());
    }
}

/* sum[i][j] += 16 terms of the operands rounded to TF32. */
template <class S, class RA, class RB>
static __device__ __forceinline__ void sixteen_tf32(float (*sum)[NT][4], const float *ta,
                                                    const float *tb, int row, int col, int chunk)
{
    float v[4][4], w[NT][4];
    unsigned b[NT][4];
    RB::read(w, tb, col, chunk);
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int t = 0; t < 4; t++) b[j][t] = pl_to_tf32(w[j][t]);
#pragma unroll
    for (int i = 0; i < S::MT; i++) {
        unsigned a[8];
        if (i % 2 == 0) RA::read4(v, ta, row + 2 * i, chunk);
#pragma unroll
        for (int t = 0; t < 8; t++) a[t] = pl_to_tf32(v[i % 2 * 2 + t % 2][t / 2]);
#pragma unroll
        for (int j = 0; j < NT; j++) pl_multiply_tf32(sum[i][j], a, b[j], sum[i][j]);
#pragma unroll
        for (int j = 0; j < NT; j++) pl_multiply_tf32(sum[i][j], a + 4, b[j] + 2, sum[i][j]);
    }
}

/* sum[i][j] += 16 terms. The products of lo come first, while the tensor cores' sum is small. */
template <class S, class RA, class RB>
static __device__ __forceinline__ void sixteen(float (*sum)[NT][4], const float *ta,
                                               const float *tb, int row, int col, int chunk)
{
    constexpr int MT = S::MT;
    const float zero[4] = {0, 0, 0, 0};
    float v[2 * MT][4], w[NT][4];
    unsigned bh[NT][4], bl[NT][2], ball[NT][2];
    RA::read(v, ta, row, chunk);
    RB::read(w, tb, col, chunk);
#pragma unroll
    for (int j = 0; j < NT; j++) cut(w[j], bh[j], 1, bl[j], ball[j], 1);
#pragma unroll
    for (int i = 0; i < MT; i++) {
        unsigned ah[8], al[4], all[4];
        float c[NT][4];
#pragma unroll
        for (int h = 0; h < 2; h++) cut(v[2 * i + h], ah + h, 2, al + h, all + h, 2);
#pragma unroll
        for (int j = 0; j < NT; j++) pl_multiply_bf16(c[j], al, ball[j], zero);
#pragma unroll
        for (int j = 0; j < NT; j++) pl_multiply_bf16(c[j], all, bl[j], c[j]);
#pragma unroll
        for (int j = 0; j < NT; j++) pl_multiply_tf32(c[j], ah, bh[j], c[j]);
#pragma unroll
        for (int j = 0; j < NT; j++) pl_multiply_tf32(c[j], ah + 4, bh[j] + 2, c[j]);
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] += c[j][e];
    }
}

/* ---- results -------------------------------------------------------------------------------- */
static __device__ __forceinline__ int row_at(const target &t, int row)
{
    if (!t.spread) return row;
    uint32_t pix, p[3];
    int at = (int)pl_divmod((uint32_t)row, t.pixels, &pix);
    p[0] = pl_divmod(pl_divmod(pix, t.p2, &p[2]), t.p1, &p[1]);
    for (int d = 0; d < 3; d++) at = at * t.size[d] + t.first[d] + t.stride[d] * (int)p[d];
    return at;
}

static __device__ __forceinline__ float finished(const target &t, float v, int64_t at, int col)
{
    if (t.bias) v += t.bias[col];
    if (t.add) v += t.add[at];
    return t.relu && v < 0 ? 0 : v;
}

/* Writes four columns of a row of y from v. */
static __device__ __forceinline__ void put4(const target &t, float *y, int64_t line, int col,
                                            int cols, float4 v)
{
    float x[4] = {v.x, v.y, v.z, v.w};
    if (col >= cols) return;
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (col + e < cols) x[e] = finished(t, x[e], line + col + e, col + e);
    if (t.wide) {
        *(float4 *)(y + line + col) = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (col + e < cols) y[line + col + e] = x[e];
}

/* ---- the kernel ----------------------------------------------------------------------------- */
/* Orders tiles in groups of eight rows of tiles: blocks that run at once share operands. */
static __device__ __forceinline__ void tile_of(const problem &p, int *m, int *n)
{
    constexpr int GROUP = 8;
    int id = (int)blockIdx.x, width = GROUP * p.n_tiles, first = id / width * GROUP;
    int high = min(p.m_tiles - first, GROUP), in = id % width;
    *m = first + in % high;
    *n = in / high;
}

/* grid: (tiles, parts, batch). TF32: one product of rounded operands. */
template <class S, bool TF32, template <class, int, int> class LA,
          template <class, int, int> class LB>
static __global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    multiply(const __grid_constant__ problem p)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(float, tiles);
    typedef LA<S, S::BM, 2 * S::MT> load_a;
    typedef LB<S, S::BN, NT> load_b;
    typedef reader<S, S::BM, 2 * S::MT, LA> read_a;
    typedef reader<S, S::BN, NT, LB> read_b;
    int4 *table = (int4 *)(tiles + S::STAGES * S::STAGE);
    int tm, tn;
    tile_of(p, &tm, &tn);
    int m0 = tm * S::BM, n0 = tn * S::BN, begin = (int)blockIdx.y * p.part,
        end = min(p.k, begin + p.part);
    int steps = (end - begin + BK - 1) / BK;
    const float *a = p.a.p + blockIdx.z * p.a.step, *b = p.b.p + blockIdx.z * p.b.step;
    load_a::begin(p.a, p.f, m0, begin, end, table);
    load_b::begin(p.b, p.f, n0, begin, end, table);
    if (load_a::TABLE + load_b::TABLE) __syncthreads();
#pragma unroll
    for (int s = 0; s < S::STAGES - 1; s++) {
        if (s < steps) {
            load_a::load(p.a, p.f, a, tiles + s * S::STAGE, m0, begin + s * BK, end, s, table);
            load_b::load(p.b, p.f, b, tiles + s * S::STAGE + S::BM * BK, n0, begin + s * BK, end, s,
                         table);
        }
        pl_copies_end();
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, q = lane / 4, r = lane % 4;
    int row = warp / S::WN * 16 * S::MT + 2 * S::MT * q, col = warp % S::WN * 8 * NT + NT * q;
    float sum[S::MT][NT][4] = {};
    for (int step = 0; step < steps; step++) {
        pl_copies_wait<S::STAGES - 2>();
        __syncthreads();
        int ahead = step + S::STAGES - 1;
        float *next = tiles + ahead % S::STAGES * S::STAGE;
        if (ahead < steps) {
            load_a::load(p.a, p.f, a, next, m0, begin + ahead * BK, end, ahead, table);
            load_b::load(p.b, p.f, b, next + S::BM * BK, n0, begin + ahead * BK, end, ahead, table);
            load_b::ahead(p.f, begin + (ahead + 1) * BK, end, ahead + 1, table);
        }
        pl_copies_end();
        const float *now = tiles + step % S::STAGES * S::STAGE;
#pragma unroll
        for (int g = 0; g < BK / 16; g++)
            if (TF32)
                sixteen_tf32<S, read_a, read_b>(sum, now, now + S::BM * BK, row, col, g * 4 + r);
            else
                sixteen<S, read_a, read_b>(sum, now, now + S::BM * BK, row, col, g * 4 + r);
    }
    float *y = p.to.y + (blockIdx.z * p.parts + blockIdx.y) * p.y_step;
    target to = p.to;
    if (to.add) to.add += blockIdx.z * p.y_step;
    int at = n0 + warp % S::WN * 8 * NT + 8 * r;
#pragma unroll
    for (int i = 0; i < S::MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int line = m0 + row + 2 * i + h;
            if (line >= p.a.rows) continue;
            int64_t base = (int64_t)row_at(to, line) * p.b.rows;
#pragma unroll
            for (int e = 0; e < 2; e++)
                put4(to, y, base, at + 4 * e, p.b.rows,
                     make_float4(sum[i][0][2 * h + e], sum[i][1][2 * h + e], sum[i][2][2 * h + e],
                                 sum[i][3][2 * h + e]));
        }
}

/* Adds the parts of the sums, in order. grid: (elements of one y, batch) */
static __global__ void add_parts(target t, const float *from, int64_t each, int32_t parts,
                                 pl_long_divisor n)
{
    const float *p = from + blockIdx.y * each * parts;
    for (int64_t i = PL_ITEM; i < each; i += PL_ITEMS) {
        int64_t col, at = blockIdx.y * each + i;
        pl_long_divmod(i, n, &col);
        float v = p[i];
        for (int k = 1; k < parts; k++) v += p[k * each + i];
        t.y[at] = finished(t, v, at, (int)col);
    }
}

/* ---- plans ---------------------------------------------------------------------------------- */
static int64_t tiles_of(const pl_split_product *s, int64_t tm, int64_t tn)
{
    return pl_ceil_div(s->m, tm) * pl_ceil_div(s->n, tn) * s->batch;
}

/* Whether a copy of four elements never crosses a row and is aligned. */
static bool in_fours(const pl_split_product *s, pl_split_lay lay, int64_t rows, int64_t ld)
{
    if (lay == PL_SPLIT_PIXELS) return s->at.bytes % 16 == 0;
    return ld % 4 == 0 && (lay == PL_SPLIT_ROWS ? s->k : rows) % 4 == 0;
}

static bool of_pixels(const pl_split_product *s)
{
    return s->a == PL_SPLIT_PIXELS || s->b == PL_SPLIT_PIXELS;
}

static bool can(const pl_split_product *s)
{
    const int64_t most = INT32_MAX - 256;
    if (s->tf32 && !of_pixels(s)) return false;
    return in_fours(s, s->a, s->m, s->a_ld) && in_fours(s, s->b, s->n, s->b_ld) &&
           s->a_step % 4 == 0 && s->b_step % 4 == 0 && s->m > 0 && s->n > 0 && s->k > 0 &&
           s->m < most && s->k < most && s->n < most && s->batch > 0 && s->batch < 65536 &&
           tiles_of(s, 64, 64) < most;
}

static pl_split_sizes sizes_of(const pl_split_product *s)
{
    pl_split_sizes z = {s->batch, s->m, s->n, s->k};
    return z;
}

bool pl_split_plan(pl_split_product *s)
{
    pl_split_sizes z = sizes_of(s);
    if (!can(s)) return false;
    s->choice = pl_split_choose(&z, pl_cuda_props_get()->sms, s->spread);
    return true;
}

bool pl_split_pays(pl_split_product *s)
{
    pl_split_sizes z = sizes_of(s);
    if (s->k < PL_SPLIT_LEAST_SUM || !pl_split_plan(s)) return false;
    return pl_split_is_faster(&z, &s->choice, pl_cuda_props_get()->sms);
}

size_t pl_split_work(const pl_split_product *s)
{
    pl_split_sizes z = sizes_of(s);
    return pl_split_bytes(&z, s->choice.parts);
}

/* ---- launches ------------------------------------------------------------------------------- */
static pixel_finder finder_of(const pl_columns *c)
{
    pixel_finder f = {};
    if (!c->bytes) return f;
    f.channels = pl_div_by(c->bytes / 4);
    f.t1 = pl_div_by(c->taps[1]);
    f.t2 = pl_div_by(c->taps[2]);
    f.pixels = pl_div_by(pl_conv_pixels(c->rows));
    f.p1 = pl_div_by(c->rows[1]);
    f.p2 = pl_div_by(c->rows[2]);
    for (int d = 0; d < 3; d++) {
        f.size[d] = (int32_t)c->size[d];
        f.stride[d] = (int32_t)c->stride[d];
        f.by[d] = (int32_t)c->step[d];
        f.shift[d] = (int32_t)c->shift[d];
    }
    return f;
}

static target target_of(const pl_split_product *s, const pl_split_tail *t, void *y)
{
    target to = {};
    to.y = (float *)y;
    to.bias = t->bias;
    to.add = t->add;
    to.relu = t->relu;
    to.wide = s->n % 4 == 0;
    to.spread = s->spread;
    if (!s->spread) return to;
    to.pixels = pl_div_by(pl_conv_pixels(s->rows));
    to.p1 = pl_div_by(s->rows[1]);
    to.p2 = pl_div_by(s->rows[2]);
    for (int d = 0; d < 3; d++) {
        to.size[d] = (int32_t)s->size[d];
        to.first[d] = (int32_t)s->first[d];
        to.stride[d] = (int32_t)s->stride[d];
    }
    return to;
}

template <class S, bool TF32, template <class, int, int> class LA,
          template <class, int, int> class LB>
static pl_status launch(const pl_split_product *s, problem p)
{
    int table = LA<S, S::BM, 2 * S::MT>::TABLE + LB<S, S::BN, NT>::TABLE;
    size_t shared = (size_t)S::STAGES * S::STAGE * 4 + (size_t)table * sizeof(int4);
    p.m_tiles = (int32_t)pl_ceil_div(s->m, S::BM);
    p.n_tiles = (int32_t)pl_ceil_div(s->n, S::BN);
    dim3 grid((unsigned)(p.m_tiles * p.n_tiles), (unsigned)s->choice.parts, (unsigned)s->batch);
#ifdef __CUDACC__
    PL_CUDA(cudaFuncSetAttribute(multiply<S, TF32, LA, LB>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
#endif
    PL_LAUNCH((multiply<S, TF32, LA, LB>), grid, dim3(S::THREADS), shared, p);
    PL_CUDA_LAUNCHED("a product on TF32 units");
    return PL_OK;
}

template <class S, bool TF32>
static pl_status launch_pixels(const pl_split_product *s, const problem &p)
{
    if (s->b == PL_SPLIT_PIXELS) return launch<S, TF32, by_terms, pixel_terms>(s, p);
    return s->b == PL_SPLIT_ROWS ? launch<S, TF32, pixel_rows, by_rows>(s, p)
                                 : launch<S, TF32, pixel_rows, by_terms>(s, p);
}

template <class S> static pl_status launch_as(const pl_split_product *s, const problem &p)
{
    if (of_pixels(s)) return launch_pixels<S, false>(s, p);
    if (s->a == PL_SPLIT_ROWS)
        return s->b == PL_SPLIT_ROWS ? launch<S, false, by_rows, by_rows>(s, p)
                                     : launch<S, false, by_rows, by_terms>(s, p);
    return s->b == PL_SPLIT_ROWS ? launch<S, false, by_terms, by_rows>(s, p)
                                 : launch<S, false, by_terms, by_terms>(s, p);
}

static pl_status launch_split(const pl_split_product *s, const problem &p)
{
    return s->choice.tile == PL_SPLIT_LITTLE   ? launch_as<little>(s, p)
           : s->choice.tile == PL_SPLIT_NARROW ? launch_as<narrow>(s, p)
                                               : launch_as<large>(s, p);
}

static pl_status launch_tf32(const pl_split_product *s, const problem &p)
{
    return s->choice.tile == PL_SPLIT_LITTLE   ? launch_pixels<little, true>(s, p)
           : s->choice.tile == PL_SPLIT_NARROW ? launch_pixels<narrow, true>(s, p)
                                               : launch_pixels<large_tf32, true>(s, p);
}

extern "C" pl_status pl_split_run(const pl_split_product *s, const void *a, const void *b,
                                  const pl_split_tail *t, void *y, void *work)
{
    static const pl_split_tail none = {NULL, NULL, false};
    bool whole = s->choice.parts == 1;
    problem p = {};
    int64_t channels = s->at.bytes / 4;
    p.a = side{(const float *)a, s->a_step, (int32_t)(s->a == PL_SPLIT_PIXELS ? channels : s->a_ld),
               (int32_t)s->m};
    p.b = side{(const float *)b, s->b_step, (int32_t)(s->b == PL_SPLIT_PIXELS ? channels : s->b_ld),
               (int32_t)s->n};
    p.f = finder_of(&s->at);
    p.to = target_of(s, whole ? t : &none, whole ? y : work);
    p.y_step = s->m * s->n;
    p.k = (int32_t)s->k;
    p.parts = (int32_t)s->choice.parts;
    p.part = (int32_t)pl_split_terms(s->k, s->choice.parts);
    PL_TRY(s->tf32 ? launch_tf32(s, p) : launch_split(s, p));
    if (whole) return PL_OK;
    target to = target_of(s, t, y);
    dim3 grid(pl_blocks(p.y_step, 512), (unsigned)s->batch);
    PL_LAUNCH(add_parts, grid, dim3(256), 0, to, (const float *)work, p.y_step, p.parts,
              pl_long_div_by(s->n));
    PL_CUDA_LAUNCHED("parts of a product's sums");
    return PL_OK;
}
