/* attention_split_bwd.cu - attention of f32 on tensor cores (attention_split.h), backward.
 *
 *   to_key       rows k, v    tiles q, d_o    s' = k q'  dp' = v d_o'  dv += p' d_o, dk += ds' q
 *   from_scores  rows ds      tiles k                                  dq = ds k
 *
 * ds' is stored between the two in a bounded scratch: for all heads, for some heads at a time, or
 * for some queries of a head, whose dk and dv are then accumulated one after the other. Where keys
 * are few, blocks of to_key share the queries, and their results are added in the order of the
 * blocks. All of this depends on the sizes alone.
 */
#include "cuda/attention/attention_split.h"
#include "cuda/device/launch.h"

/* A causal walk over queries starts at a multiple of WIDE; tiles of from_scores divide it. */
static constexpr int WIDE = WARPS * 32;

/* The work of a launch of to_key and from_scores: heads from head0 on, `queries` queries from
 * query0 on, `per` of them per slice of blocks. */
typedef struct share {
    int head0, query0, queries, per;
    bool add;    /* add to the existing dk and dv */
    float *kept; /* [head - head0][key][query - query0] */
    float *part; /* [slice][head - head0][dk, dv][key][d], or NULL where there is one slice */
} share;

/* Stores a warp's gradients of scores; kept points at query0. */
template <int MT, int COLS>
static __device__ __forceinline__ void keep(float *kept, float (*ds)[COLS / 8][4], int key,
                                            int query, int keys, int queries)
{
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        if (key + x * 8 >= keys) continue;
        float *row = kept + (int64_t)(key + x * 8) * queries;
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
            int c = query + j * 8;
            float2 v = make_float2(ds[x / 2][j][x % 2 * 2], ds[x / 2][j][x % 2 * 2 + 1]);
            if (queries % 2 == 0) {
                if (c < queries) *(float2 *)(row + c) = v;
                continue;
            }
            if (c < queries) row[c] = v.x;
            if (c + 1 < queries) row[c + 1] = v.y;
        }
    }
}

/* grid: (tiles of keys, heads, slices of queries) */
template <int D, int MT, int COLS>
static __global__ void __launch_bounds__(THREADS, 2)
    to_key(pl_attend_shape z, share w, parts q, parts k, parts v, parts d_o, const float *lse,
           const float *delta, float *dk, float *dv)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(pl_f16, shared);
    constexpr int ROWS = WARPS * 16 * MT, TILE = COLS * 2 * D;
    pl_f16 *rows = shared, *v_rows = rows + ROWS * 2 * D, *queries = v_rows + ROWS * 2 * D;
    pl_f16 *d_outs = queries + 2 * TILE;
    float *numbers = (float *)(d_outs + 2 * TILE); /* two tiles: factors of q and d_o, lse, delta */
    int head = w.head0 + blockIdx.y, h = head % z.heads, b = head / z.heads;
    int lane = threadIdx.x % 32, first = blockIdx.x * ROWS,
        r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
    int64_t stride = (int64_t)z.heads * z.d, n0 = (int64_t)blockIdx.y * z.n,
            m0 = (int64_t)blockIdx.y * z.m;
    const pl_f16 *qx = q.x + n0 * 2 * D, *dx = d_o.x + n0 * 2 * D;
    const float *lists[4] = {q.factor + n0, d_o.factor + n0, lse + (int64_t)head * z.n,
                             delta + (int64_t)head * z.n};
    float *kept = w.kept + (int64_t)blockIdx.y * z.m * w.queries;
    int begin = w.query0 + blockIdx.z * w.per, end = min(w.query0 + w.queries, begin + w.per);
    if (z.causal) begin = max(begin, first / WIDE * WIDE);
    float to_k[MT][D / 8][4], to_v[MT][D / 8][4], unit[MT][2], v_unit[MT][2];
    clear<MT, D / 8>(to_k);
    clear<MT, D / 8>(to_v);
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        bool in = r0 + x * 8 < z.m;
        unit[x / 2][x % 2] = in ? k.factor[m0 + r0 + x * 8] * z.scale : 0;
        v_unit[x / 2][x % 2] = in ? v.factor[m0 + r0 + x * 8] : 0;
    }
    fill<D, ROWS>(rows, k.x + m0 * 2 * D, first, z.m);
    fill<D, ROWS>(v_rows, v.x + m0 * 2 * D, first, z.m);
    if (begin < end) {
        fill<D, COLS>(queries, qx, begin, end);
        fill<D, COLS>(d_outs, dx, begin, end);
        fill_lists<COLS, 4>(numbers, lists, begin, end);
    }
    pl_copies_end();
    for (int c0 = begin, t = 0; c0 < end; c0 += COLS, t ^= 1) {
        int at = t * TILE, next = TILE - at;
        if (c0 + COLS < end) {
            fill<D, COLS>(queries + next, qx, c0 + COLS, end);
            fill<D, COLS>(d_outs + next, dx, c0 + COLS, end);
            fill_lists<COLS, 4>(numbers + (t ^ 1) * 4 * COLS, lists, c0 + COLS, end);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        const float *number = numbers + t * 4 * COLS + lane % 4 * 2;
        float p[MT][COLS / 8][4], s[MT][COLS / 8][4];
        left<MT, COLS / 16> a;
        scores<D, MT, COLS>(p, rows, queries + at);
        /* Rows and columns past the end are zeros, which are not stored or add nothing. */
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < COLS / 2; e++) {
                int in = e / 4 * 8 + e % 2, c = c0 + in + lane % 4 * 2,
                    r = r0 + i * 16 + e / 2 % 2 * 8;
                float x = expf(fmaf(p[i][e / 4][e % 4] * unit[i][e / 2 % 2], number[in],
                                    -number[2 * COLS + in]));
                p[i][e / 4][e % 4] = z.causal && r > c ? 0 : x;
            }
        take_scores<MT, COLS>(a, p, number + COLS);
        weigh<D, MT, COLS / 16>(to_v, a, d_outs + at);
        scores<D, MT, COLS>(s, v_rows, d_outs + at);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < COLS / 2; e++) {
                int in = e / 4 * 8 + e % 2;
                p[i][e / 4][e % 4] *= fmaf(s[i][e / 4][e % 4] * v_unit[i][e / 2 % 2],
                                           number[COLS + in], -number[3 * COLS + in]);
            }
        keep<MT, COLS>(kept, p, r0, c0 - w.query0 + lane % 4 * 2, z.m, w.queries);
        take_scores<MT, COLS>(a, p, number);
        weigh<D, MT, COLS / 16>(to_k, a, queries + at);
        __syncthreads();
    }
    pl_copies_wait<0>();
    bool add = w.add && !w.part;
    if (w.part) {
        stride = z.d;
        dk = w.part + ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * 2 * z.m * z.d;
        dv = dk + (int64_t)z.m * z.d;
    } else {
        dk += (int64_t)b * z.m * stride + h * z.d;
        dv += (int64_t)b * z.m * stride + h * z.d;
    }
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        int t = r0 + x * 8;
        if (t >= z.m) continue;
        store_row<D>(dk + t * stride, to_k[x / 2], x % 2, z.scale, add, z);
        store_row<D>(dv + t * stride, to_v[x / 2], x % 2, 1, add, z);
    }
}

/* Adds the slices of dk and dv in order. grid: (numbers of a head, heads, dk and dv) */
static __global__ void __launch_bounds__(256)
    add_parts(pl_attend_shape z, share w, int slices, pl_long_divisor by_d, float *dk, float *dv)
{
    if (!PL_HAS_MMA) return;
    int head = w.head0 + blockIdx.y, h = head % z.heads, b = head / z.heads;
    int64_t each = (int64_t)z.m * z.d, step = 2 * each * gridDim.y;
    const float *part = w.part + (2 * blockIdx.y + blockIdx.z) * each;
    float *to = (blockIdx.z ? dv : dk) + ((int64_t)b * z.m * z.heads + h) * z.d;
    for (int64_t i = PL_ITEM; i < each; i += PL_ITEMS) {
        int64_t c, t = pl_long_divmod(i, by_d, &c);
        float sum = part[i], *at = to + t * z.heads * z.d + c;
        for (int s = 1; s < slices; s++) sum += part[i + s * step];
        *at = w.add ? *at + sum : sum;
    }
}

/* Computes dq of a block's queries; a thread has 2 MT of them side by side. grid: (tiles of
 * queries, heads) */
template <int D, int MT, int COLS>
static __global__ void __launch_bounds__(THREADS, MT == 1 && D <= 64 ? 3 : 2)
    from_scores(pl_attend_shape z, share w, parts k, float *dq)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(pl_f16, shared);
    constexpr int ROWS = WARPS * 16 * MT, P = ROWS + 4, TILE = COLS * 2 * D, DS = COLS * P,
                  OWN = 2 * MT;
    pl_f16 *keys = shared;
    float *ds = (float *)(keys + 2 * TILE), *factors = ds + 2 * DS;
    int h = (w.head0 + blockIdx.y) % z.heads, b = (w.head0 + blockIdx.y) / z.heads;
    int lane = threadIdx.x % 32, first = blockIdx.x * ROWS,
        own = threadIdx.x / 32 * 16 * MT + lane / 4 * OWN;
    int64_t stride = (int64_t)z.heads * z.d, m0 = (int64_t)blockIdx.y * z.m;
    dq += ((int64_t)b * z.n + w.query0) * stride + h * z.d;
    const float *kept = w.kept + m0 * w.queries + first, *lists[1] = {k.factor + m0};
    int seen = z.causal ? min(z.m, w.query0 + first + ROWS) : z.m;
    float out[MT][D / 8][4];
    clear<MT, D / 8>(out);
    auto fetch = [&](int t0, int turn) {
        int quad = w.queries % 4 == 0 ? 4 : 1;
        fill<D, COLS>(keys + turn * TILE, k.x + m0 * 2 * D, t0, seen);
        fill_lists<COLS, 1>(factors + turn * COLS, lists, t0, seen);
        for (int i = threadIdx.x * quad; i < COLS * ROWS; i += THREADS * quad) {
            int r = i / ROWS, c = i % ROWS;
            bool in = t0 + r < seen && first + c < w.queries;
            const float *from = in ? kept + (int64_t)(t0 + r) * w.queries + c : w.kept;
            float *to = ds + turn * DS + r * P + c;
            quad == 4 ? pl_copy16(to, from, in) : pl_copy4(to, from, in);
        }
    };
    fetch(0, 0);
    pl_copies_end();
    for (int t0 = 0, turn = 0; t0 < seen; t0 += COLS, turn ^= 1) {
        if (t0 + COLS < seen) fetch(t0 + COLS, turn ^ 1);
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        float v[OWN][COLS / 4], most[OWN]; /* [query][key: 2r, 2r + 1 of each eight] */
        left<MT, COLS / 16> a;
#pragma unroll
        for (int e = 0; e < OWN; e++) most[e] = 0;
#pragma unroll
        for (int u = 0; u < COLS / 4; u++) {
            int t = u / 2 * 8 + lane % 4 * 2 + u % 2;
            pl_pack<float, OWN> x = pl_read<float, OWN>(ds + turn * DS + t * P + own);
            float f = factors[turn * COLS + t];
#pragma unroll
            for (int e = 0; e < OWN; e++) {
                v[e][u] = x.v[e] * f;
                most[e] = fmaxf(most[e], fabsf(v[e][u]));
            }
        }
#pragma unroll
        for (int e = 0; e < OWN; e++) {
            unsigned field = __float_as_uint(over_quad_max(most[e])) >> 23;
            float by = up_by(field);
            a.back[e / 2][e % 2] = back_by(field);
#pragma unroll
            for (int u = 0; u < COLS / 4; u += 2)
                take_apart(v[e][u] * by, v[e][u + 1] * by,
                           a.hi[u / 4][e / 2][u / 2 % 2 * 2 + e % 2],
                           a.lo[u / 4][e / 2][u / 2 % 2 * 2 + e % 2]);
        }
        weigh<D, MT, COLS / 16>(out, a, keys + turn * TILE);
        __syncthreads();
    }
    pl_copies_wait<0>();
#pragma unroll
    for (int x = 0; x < OWN; x++)
        if (first + own + x < w.queries)
            store_row<D>(dq + (first + own + x) * stride, out[x / 2], x % 2, z.scale, false, z);
}

/* ---- launches ------------------------------------------------------------------------------- */
/* Keys of a block of to_key. */
static constexpr int KEYS = WARPS * 16;

static_assert(KEYS == PL_ATTEND_KEYS && WIDE == PL_ATTEND_QUERIES,
              "kernel_sizes.h describes other blocks");

static pl_attend_course backward_course(const pl_attend *a)
{
    pl_attend_sizes s = plan_sizes(a);
    return pl_attend_backward_course(&s, pl_attend_work(a));
}

extern "C" size_t pl_attend_split_bwd_work(const pl_attend *a)
{
    return a->n && a->m && a->d && a->batch && a->heads ? backward_course(a).bytes
                                                        : pl_attend_work(a);
}

template <int D, int COLS>
static pl_status run_keys(const pl_attend *a, const pl_attend_course &c, const share &w,
                          unsigned heads, unsigned slices)
{
    size_t bytes = shared_bytes(D, KEYS, COLS, 2, 4);
    auto kernel = to_key<D, 1, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_LAUNCH((kernel), dim3(tiles_of(a->m, KEYS), heads, slices), THREADS, bytes,
              sizes_of(a, true), w, cut_of(a, c, 0), cut_of(a, c, 1), cut_of(a, c, 2),
              cut_of(a, c, 3), (const float *)pl_attend_lse(a), (const float *)a->work,
              (float *)a->out[1], (float *)a->out[2]);
    if (w.part)
        PL_LAUNCH(add_parts, dim3(pl_blocks(a->m * a->d, 256), heads, 2), 256, 0, sizes_of(a, true),
                  w, (int)slices, pl_long_div_by(a->d), (float *)a->out[1], (float *)a->out[2]);
    return PL_OK;
}

template <int D, int MT>
static pl_status run_scores(const pl_attend *a, const pl_attend_course &c, const share &w,
                            unsigned heads)
{
    constexpr int COLS = 32, ROWS = WARPS * 16 * MT;
    size_t bytes = 2 * COLS * (4 * D + 4 * (ROWS + 4) + 4);
    auto kernel = from_scores<D, MT, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_LAUNCH((kernel), dim3(tiles_of(w.queries, ROWS), heads), THREADS, bytes, sizes_of(a, true),
              w, cut_of(a, c, 1), (float *)a->out[0]);
    return PL_OK;
}

template <int D> static pl_status run_backward(const pl_attend *a)
{
    pl_attend_course c = backward_course(a);
    int64_t all = a->batch * a->heads;
    char *work = (char *)a->work;
    for (int64_t h = 0; h < all; h += c.heads) {
        unsigned some = (unsigned)(all - h < c.heads ? all - h : c.heads);
        PL_TRY(pl_attend_cut(a, c, 4, (int)h, (int)some));
        for (int64_t i = 0; i < a->n; i += c.queries) {
            int64_t rest = a->n - i;
            share w = {};
            w.head0 = (int)h;
            w.query0 = (int)i;
            w.queries = (int)(rest < c.queries ? rest : c.queries);
            w.per = (int)c.per;
            w.add = i > 0;
            w.kept = (float *)(work + c.scores_at);
            w.part = c.slices > 1 ? (float *)(work + c.parts_at) : NULL;
            unsigned slices = tiles_of(w.queries, w.per);
            PL_TRY((run_keys<D, (D <= 64 ? 32 : 16)>(a, c, w, some, slices)));
            PL_TRY((halves_win(some, w.queries) ? run_scores<D, 1>(a, c, w, some)
                                                : run_scores<D, 2>(a, c, w, some)));
        }
    }
    return PL_OK;
}

extern "C" pl_status pl_attend_split_bwd(const pl_attend *a)
{
    PL_TRY(pl_attend_delta(a));
    PL_TRY(a->d <= 32   ? run_backward<32>(a)
           : a->d <= 64 ? run_backward<64>(a)
                        : run_backward<128>(a));
    PL_CUDA_LAUNCHED("gradient of attention in f32 on tensor cores");
    return PL_OK;
}
