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
 *
 * Tiles lie in shared memory as [row][32 terms] or [32 terms][row] with 16-byte chunks swizzled, so
 * that the 8 lanes that read at once use 8 different groups of banks:
 *
 *   by rows    lanes of two q and four r:  chunk ^ 4 where the bit of the row that changes with q
 *                                          is set
 *   by terms   the same lanes:             chunk ^ a number of 0..7 that differs by r and does not
 *                                          overlap q's bits
 */
#include "cuda/matmul/split.h"

#include "cuda/device/launch.h"
#include "cuda/matmul/mma.h"

static constexpr int BK = 32, NT = 4, STAGES = 4;

template <int MT_, int WM_, int WN_, int BLOCKS_> struct tiling {
    static constexpr int MT = MT_, WM = WM_, WN = WN_, BLOCKS = BLOCKS_;
    static constexpr int BM = WM * 16 * MT, BN = WN * 8 * NT, THREADS = 32 * WM * WN;
    static constexpr int STAGE = (BM + BN) * BK; /* floats */
};
typedef tiling<4, 2, 4, 1> large;
typedef tiling<4, 2, 2, 2> narrow;
typedef tiling<2, 2, 2, 3> little;

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

struct side {
    const float *p;
    int64_t step;
    int32_t ld, rows;
};
struct finder {
    pl_divisor channels, t1, t2, pixels, p1, p2;
    int32_t size[3], stride[3], by[3], shift[3];
};
struct target {
    float *y;
    const float *bias, *add;
    pl_divisor pixels, p1, p2; /* spread */
    int32_t size[3], first[3], stride[3];
    int32_t spread, relu, wide;
};
struct problem {
    side a, b;
    finder f;
    target to;
    int64_t y_step;         /* elements from one batch to the next */
    int32_t k, part, parts; /* part: terms of one part */
    int32_t m_tiles, n_tiles;
};

/* ---- places in shared memory ------------------------------------------------------------------
 */
/* BIT: the bit of the row that differs between two neighbouring q. */
template <int BIT> static __device__ __forceinline__ int place_in_row(int row, int chunk)
{
    return row * BK + ((chunk ^ ((row >> BIT & 1) << 2)) << 2);
}
/* EACH: chunks of 4 rows that a lane reads per term, 1 or 2. */
template <int WIDTH, int EACH>
static __device__ __forceinline__ int place_in_term(int term, int chunk)
{
    int r = term >> 2 & 3, turn = EACH == 1 ? r * 2 : (r & 1) * 4 + (r >> 1);
    return term * WIDTH + ((chunk ^ turn) << 2);
}

/* ---- loaders: one step's 32 terms of an operand ------------------------------------------------
 */
/* Returns where the first tap of a pixel's window lies, and the pixel's image. */
static __device__ __forceinline__ int4 origin(const finder &f, int row, int rows)
{
    uint32_t pix, p[3];
    int n = (int)pl_divmod((uint32_t)row, f.pixels, &pix);
    p[0] = pl_divmod(pl_divmod(pix, f.p2, &p[2]), f.p1, &p[1]);
    return make_int4(row < rows ? (int)p[0] * f.stride[0] + f.shift[0] : -(1 << 30),
                     (int)p[1] * f.stride[1] + f.shift[1], (int)p[2] * f.stride[2] + f.shift[2], n);
}
static __device__ __forceinline__ void tap_of(const finder &f, uint32_t tap, int *to)
{
    uint32_t t[3];
    t[0] = pl_divmod(pl_divmod(tap, f.t2, &t[2]), f.t1, &t[1]);
    for (int d = 0; d < 3; d++) to[d] = (int)t[d] * f.by[d];
}
/* Copies the four channels that a tap reads, or zeros. */
static __device__ __forceinline__ void copy_pixel(const finder &f, const side &s, const float *p,
                                                  float *to, int4 o, const int *tap,
                                                  uint32_t channel, bool in)
{
    int q0 = o.x + tap[0], q1 = o.y + tap[1], q2 = o.z + tap[2];
    in = in & ((unsigned)q0 < (unsigned)f.size[0]) & ((unsigned)q1 < (unsigned)f.size[1]) &
         ((unsigned)q2 < (unsigned)f.size[2]);
    int pixel = ((o.w * f.size[0] + q0) * f.size[1] + q1) * f.size[2] + q2;
    pl_copy16(to, p + (in ? (int64_t)pixel * s.ld + channel : 0), in);
}

/* W: rows of the tile; E: rows that a lane reads of a column of products: 2 MT, or NT. begin makes
 * a table of TABLE pixels; ahead makes the table for the step after the next load. */
template <class S, int W, int E> struct by_rows {
    static constexpr int BIT = E == 8 ? 3 : 2, SLOTS = W * 8 / S::THREADS, TABLE = 0;
    static __device__ void begin(const side &, const finder &, int, int, int, int4 *)
    {
    }
    static __device__ void ahead(const finder &, int, int, int, int4 *)
    {
    }
    static __device__ __forceinline__ void load(const side &s, const finder &, const float *p,
                                                float *tile, int first, int k, int end, int,
                                                const int4 *)
    {
        constexpr int STEP = S::THREADS / 8; /* a multiple of 16: chunks are swizzled alike */
        int chunk = threadIdx.x % 8, row = threadIdx.x / 8, at = k + chunk * 4;
        const float *from = p + (int64_t)(first + row) * s.ld + at;
        int left = at < end ? s.rows - first - row : 0;
        tile += place_in_row<BIT>(row, chunk);
#pragma unroll
        for (int i = 0; i < SLOTS; i++, from += (int64_t)STEP * s.ld)
            pl_copy16(tile + i * STEP * BK, i * STEP < left ? from : p, i * STEP < left);
    }
};

template <class S, int W, int E> struct by_terms {
    static constexpr int ROW = W / 4, SLOTS = W * 8 / S::THREADS, TABLE = 0;
    static __device__ void begin(const side &, const finder &, int, int, int, int4 *)
    {
    }
    static __device__ void ahead(const finder &, int, int, int, int4 *)
    {
    }
    static __device__ __forceinline__ void load(const side &s, const finder &, const float *p,
                                                float *tile, int first, int k, int end, int,
                                                const int4 *)
    {
        constexpr int STEP = S::THREADS / ROW;
        int chunk = threadIdx.x % ROW, row = first + chunk * 4, term = threadIdx.x / ROW;
        const float *from = p + (int64_t)(k + term) * s.ld + row;
        int left = row < s.rows ? end - k - term : 0;
#pragma unroll
        for (int i = 0; i < SLOTS; i++, from += (int64_t)STEP * s.ld)
            pl_copy16(tile + place_in_term<W, E / 4>(term + i * STEP, chunk),
                      i * STEP < left ? from : p, i * STEP < left);
    }
};

/* The table has the tile's rows. */
template <class S, int W, int E> struct pixel_rows {
    static constexpr int BIT = E == 8 ? 3 : 2, SLOTS = W * 8 / S::THREADS, TABLE = W;
    static __device__ void begin(const side &s, const finder &f, int first, int, int, int4 *table)
    {
        for (int i = threadIdx.x; i < W; i += S::THREADS) table[i] = origin(f, first + i, s.rows);
    }
    static __device__ void ahead(const finder &, int, int, int, int4 *)
    {
    }
    static __device__ __forceinline__ void load(const side &s, const finder &f, const float *p,
                                                float *tile, int, int k, int end, int,
                                                const int4 *table)
    {
        int chunk = threadIdx.x % 8, at = k + chunk * 4, tap[3];
        uint32_t channel;
        tap_of(f, pl_divmod((uint32_t)at, f.channels, &channel), tap);
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            int row = threadIdx.x / 8 + i * (S::THREADS / 8);
            copy_pixel(f, s, p, tile + place_in_row<BIT>(row, chunk), table[row], tap, channel,
                       at < end);
        }
    }
};

/* The table has the terms of STAGES steps. */
template <class S, int W, int E> struct pixel_terms {
    static constexpr int ROW = W / 4, SLOTS = W * 8 / S::THREADS, TABLE = STAGES * BK;
    static __device__ void begin(const side &, const finder &f, int, int k, int end, int4 *table)
    {
        for (int i = threadIdx.x; i < TABLE; i += S::THREADS) table[i] = origin(f, k + i, end);
    }
    static __device__ __forceinline__ void ahead(const finder &f, int k, int end, int step,
                                                 int4 *table)
    {
        if (threadIdx.x < BK)
            table[step % STAGES * BK + threadIdx.x] = origin(f, k + (int)threadIdx.x, end);
    }
    static __device__ __forceinline__ void load(const side &s, const finder &f, const float *p,
                                                float *tile, int first, int, int, int step,
                                                const int4 *table)
    {
        int chunk = threadIdx.x % ROW, row = first + chunk * 4, tap[3];
        uint32_t channel;
        tap_of(f, pl_divmod((uint32_t)row, f.channels, &channel), tap);
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            int term = threadIdx.x / ROW + i * (S::THREADS / ROW);
            copy_pixel(f, s, p, tile + place_in_term<W, E / 4>(term, chunk),
                       table[step % STAGES * BK + term], tap, channel, row < s.rows);
        }
    }
};

/* ---- fragments ------------------------------------------------------------------------------ */
/* v[e][t]: term 4r + t of 16 of the e-th of a lane's E rows; `row` is the first of them. */
template <class S, int W, int E, template <class, int, int> class L> struct reader;

template <int E, int BIT>
static __device__ __forceinline__ void read_rows(float (*v)[4], const float *tile, int row,
                                                 int chunk)
{
#pragma unroll
    for (int e = 0; e < E; e++) {
        float4 x = *(const float4 *)(tile + place_in_row<BIT>(row + e, chunk));
        v[e][0] = x.x, v[e][1] = x.y, v[e][2] = x.z, v[e][3] = x.w;
    }
}
template <int W, int E>
static __device__ __forceinline__ void read_terms(float (*v)[4], const float *tile, int row,
                                                  int chunk)
{
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int c = 0; c < E / 4; c++) {
            float4 x =
                *(const float4 *)(tile + place_in_term<W, E / 4>(chunk * 4 + t, row / 4 + c));
            v[c * 4 + 0][t] = x.x, v[c * 4 + 1][t] = x.y, v[c * 4 + 2][t] = x.z,
                      v[c * 4 + 3][t] = x.w;
        }
}
template <class S, int W, int E> struct reader<S, W, E, by_rows> {
    static __device__ __forceinline__ void read(float (*v)[4], const float *tile, int row,
                                                int chunk)
    {
        read_rows<E, by_rows<S, W, E>::BIT>(v, tile, row, chunk);
    }
};
template <class S, int W, int E> struct reader<S, W, E, pixel_rows> : reader<S, W, E, by_rows> {
};
template <class S, int W, int E> struct reader<S, W, E, by_terms> {
    static __device__ __forceinline__ void read(float (*v)[4], const float *tile, int row,
                                                int chunk)
    {
        read_terms<W, E>(v, tile, row, chunk);
    }
};
template <class S, int W, int E> struct reader<S, W, E, pixel_terms> : reader<S, W, E, by_terms> {
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

/* grid: (tiles, parts, batch) */
template <class S, template <class, int, int> class LA, template <class, int, int> class LB>
static __global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    multiply(const __grid_constant__ problem p)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(float, tiles);
    typedef LA<S, S::BM, 2 * S::MT> load_a;
    typedef LB<S, S::BN, NT> load_b;
    typedef reader<S, S::BM, 2 * S::MT, LA> read_a;
    typedef reader<S, S::BN, NT, LB> read_b;
    int4 *table = (int4 *)(tiles + STAGES * S::STAGE);
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
    for (int s = 0; s < STAGES - 1; s++) {
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
        pl_copies_wait<STAGES - 2>();
        __syncthreads();
        int ahead = step + STAGES - 1;
        float *next = tiles + ahead % STAGES * S::STAGE;
        if (ahead < steps) {
            load_a::load(p.a, p.f, a, next, m0, begin + ahead * BK, end, ahead, table);
            load_b::load(p.b, p.f, b, next + S::BM * BK, n0, begin + ahead * BK, end, ahead, table);
            load_b::ahead(p.f, begin + (ahead + 1) * BK, end, ahead + 1, table);
        }
        pl_copies_end();
        const float *now = tiles + step % STAGES * S::STAGE;
#pragma unroll
        for (int g = 0; g < BK / 16; g++)
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

static bool can(const pl_split_product *s)
{
    const int64_t most = INT32_MAX - 256;
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
static finder finder_of(const pl_columns *c)
{
    finder f = {};
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

template <class S, template <class, int, int> class LA, template <class, int, int> class LB>
static pl_status launch(const pl_split_product *s, problem p)
{
    int table = LA<S, S::BM, 2 * S::MT>::TABLE + LB<S, S::BN, NT>::TABLE;
    size_t shared = (size_t)STAGES * S::STAGE * 4 + (size_t)table * sizeof(int4);
    p.m_tiles = (int32_t)pl_ceil_div(s->m, S::BM);
    p.n_tiles = (int32_t)pl_ceil_div(s->n, S::BN);
    dim3 grid((unsigned)(p.m_tiles * p.n_tiles), (unsigned)s->choice.parts, (unsigned)s->batch);
#ifdef __CUDACC__
    PL_CUDA(cudaFuncSetAttribute(multiply<S, LA, LB>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)shared));
#endif
    PL_LAUNCH((multiply<S, LA, LB>), grid, dim3(S::THREADS), shared, p);
    PL_CUDA_LAUNCHED("a product on TF32 units");
    return PL_OK;
}

template <class S> static pl_status launch_as(const pl_split_product *s, const problem &p)
{
    if (s->a == PL_SPLIT_PIXELS)
        return s->b == PL_SPLIT_ROWS ? launch<S, pixel_rows, by_rows>(s, p)
                                     : launch<S, pixel_rows, by_terms>(s, p);
    if (s->b == PL_SPLIT_PIXELS) return launch<S, by_terms, pixel_terms>(s, p);
    if (s->a == PL_SPLIT_ROWS)
        return s->b == PL_SPLIT_ROWS ? launch<S, by_rows, by_rows>(s, p)
                                     : launch<S, by_rows, by_terms>(s, p);
    return s->b == PL_SPLIT_ROWS ? launch<S, by_terms, by_rows>(s, p)
                                 : launch<S, by_terms, by_terms>(s, p);
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
    PL_TRY(s->choice.tile == PL_SPLIT_LITTLE   ? launch_as<little>(s, p)
           : s->choice.tile == PL_SPLIT_NARROW ? launch_as<narrow>(s, p)
                                               : launch_as<large>(s, p));
    if (whole) return PL_OK;
    target to = target_of(s, t, y);
    dim3 grid(pl_blocks(p.y_step, 512), (unsigned)s->batch);
    PL_LAUNCH(add_parts, grid, dim3(256), 0, to, (const float *)work, p.y_step, p.parts,
              pl_long_div_by(s->n));
    PL_CUDA_LAUNCHED("parts of a product's sums");
    return PL_OK;
}
