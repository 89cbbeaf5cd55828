/* conv_mma.cu - 2-D convolutions in 16 bits whose windows lie in shared memory, on tensor cores:
 * grouped ones, and first layers (few channels, a stride of 2), for which cuDNN has engines with a
 * tenth of the rate.
 *
 *   y    [pixels, outputs] = windows [pixels, terms] x filter [terms, outputs]
 *   dx   the same with dy, the filter backwards and transposed; without a stride
 *   dw   [outputs, terms] = dy [pixels, outputs] transposed x windows [pixels, terms]
 *
 * A unit is some groups whose channels fill whole chunks of 16 bytes, or all channels of a first
 * layer; between two groups of a unit the filter is zero. A tile has ROWS results, of one or more
 * images. The patch of the input that its windows cover is copied to shared memory once. A chunk of
 * terms lies there at a constant distance from a pixel, for every pixel:
 *
 *   groups        8 channels of one tap: the channels of a pixel lie side by side
 *   first layer   4 channels (3 and a zero) of two taps of a row: pixels lie 8 bytes apart, and
 *                 with a stride of 2 every window begins at a multiple of 16 bytes
 *
 * so ldmatrix, which takes an address for each row and chunk, reads windows where they lie. A block
 * has one unit and every s.slices-th tile; while it multiplies a tile, the next one is copied. A
 * filter's gradient is summed over the tiles of a block, and a second kernel adds the blocks' sums
 * in a fixed order: sums depend on shapes only.
 */
#include "cuda/conv/conv.h"
#include "cuda/device/launch.h"
#include "cuda/matmul/mma.h"

static constexpr int ROWS = 128, WIDE = 64, CHUNKS = 4, MOST_WARPS = 16, MOST_CHUNKS = 256;
static constexpr int Y_THREADS = 128, JOIN_THREADS = 256;

typedef struct mma_shape {
    int n, in_h, in_w, out_h, out_w; /* sides that are read and written; of dw: x and dy */
    int in_channels, out_channels;   /* of a pixel of the two */
    int kernel[2], stride[2], dilation[2], pad[2];
    int unit_in, unit_out, units; /* channels of a unit; units of channels */
    int group_in, group_out;      /* channels of a group */
    int parts, tall;              /* of unit_out, WIDE at a time; the first part in whole 16 */
    int chunks, chunk_pitch;      /* of terms; a filter's row in chunks */
    int few;                      /* a pixel lies in 4 elements; else 0 */
    int tile_n, tile_h, tile_w, tiles_h, tiles_w, tiles;
    int patch_h, patch_w, pixel, patch_bytes; /* pixel: bytes from one to the next */
    int slices, back;
} mma_shape;

/* ---- shared memory -------------------------------------------------------------------------- */
typedef struct corner {
    int n, y, x; /* the tile's first result */
} corner;

static __device__ __forceinline__ corner tile_at(const mma_shape &s, int tile)
{
    corner p;
    p.x = tile % s.tiles_w * s.tile_w;
    p.y = tile / s.tiles_w % s.tiles_h * s.tile_h;
    p.n = tile / s.tiles_w / s.tiles_h * s.tile_n;
    return p;
}

/* Writes where the windows of the tile's rows begin in the patch, and where chunks of terms lie
 * from there; in bytes. */
static __device__ void lay_places(const mma_shape &s, int *row, int *chunk)
{
    for (int m = threadIdx.x; m < ROWS; m += blockDim.x) {
        int x = m % s.tile_w, y = m / s.tile_w % s.tile_h, n = m / s.tile_w / s.tile_h;
        if (n >= s.tile_n) n = y = x = 0;
        row[m] = n * s.patch_h * s.patch_w * s.pixel +
                 (y * s.stride[0] * s.patch_w + x * s.stride[1]) * s.pixel;
    }
    int each = s.few ? (s.kernel[1] + 1) / 2 : s.unit_in / 8;
    for (int j = threadIdx.x; j < MOST_CHUNKS; j += blockDim.x) {
        int k = j < s.chunks ? j : 0, ky, kx, in;
        if (s.few)
            ky = k / each, kx = k % each * 2, in = 0;
        else
            ky = k / each / s.kernel[1], kx = k / each % s.kernel[1], in = k % each * 16;
        chunk[j] = (ky * s.dilation[0] * s.patch_w + kx * s.dilation[1]) * s.pixel + in;
    }
}

/* Returns the offset in the filter [outputs, taps, inputs of a group] of element e of chunk j for
 * output o of the unit; -1: zero. */
static __device__ int64_t filter_at(const mma_shape &s, int unit, int o, int j, int e)
{
    int taps = s.kernel[0] * s.kernel[1], tap, i;
    if (s.few) {
        int pairs = (s.kernel[1] + 1) / 2, kx = j % pairs * 2 + e / 4;
        tap = j / pairs * s.kernel[1] + kx;
        i = e % 4;
        if (kx >= s.kernel[1] || i >= s.in_channels) return -1;
    } else {
        int each = s.unit_in / 8;
        tap = j / each;
        i = j % each * 8 + e;
        if (i / s.group_in != o / s.group_out) return -1;
    }
    if (j >= s.chunks || o >= s.unit_out) return -1;
    int64_t from = (int64_t)unit * s.unit_in + i, to = (int64_t)unit * s.unit_out + o;
    if (s.back) return (from * taps + taps - 1 - tap) * s.group_out + o % s.group_out;
    return (to * taps + tap) * s.group_in + i % s.group_in;
}

/* Copies the patch of a tile; pixels outside are zero. */
template <typename T>
static __device__ void copy_patch(const mma_shape &s, const T *x, int unit, const corner &p,
                                  unsigned char *to)
{
    int y0 = p.y * s.stride[0] - s.pad[0], x0 = p.x * s.stride[1] - s.pad[1];
    int each = s.few ? 1 : s.unit_in / 8, line = s.patch_w * each, image = s.patch_h * line;
    for (int i = threadIdx.x; i < s.tile_n * image; i += blockDim.x) {
        int c = i % each, px = i / each % s.patch_w, py = i % image / line, n = p.n + i / image;
        int y = y0 + py, xx = x0 + px;
        bool in = n < s.n && (unsigned)y < (unsigned)s.in_h && (unsigned)xx < (unsigned)s.in_w;
        int64_t pixel = in ? ((int64_t)n * s.in_h + y) * s.in_w + xx : 0;
        unsigned char *at = to + (int64_t)(i / each) * s.pixel + c * 16;
        if (s.few) {
            pl_pack<T, 4> v;
#pragma unroll
            for (int e = 0; e < 4; e++)
                v.v[e] = in && e < s.in_channels ? x[pixel * s.in_channels + e] : pl_put<T>(0.0f);
            *(pl_pack<T, 4> *)at = v;
        } else {
            pl_copy16(at, x + pixel * s.in_channels + unit * s.unit_in + c * 8, in);
        }
    }
}

/* Whether row m of the tile is a result, and which pixel. */
static __device__ __forceinline__ bool result_at(const mma_shape &s, const corner &p, int m,
                                                 int64_t *pixel)
{
    int x = m % s.tile_w, y = m / s.tile_w % s.tile_h, n = m / s.tile_w / s.tile_h;
    *pixel = ((int64_t)(p.n + n) * s.out_h + p.y + y) * s.out_w + p.x + x;
    return n < s.tile_n && p.n + n < s.n && p.y + y < s.out_h && p.x + x < s.out_w;
}

/* ---- y, dx ---------------------------------------------------------------------------------- */
/* grid: (slices, units * parts). A warp has 32 rows and up to WIDE outputs. Shared: places, the
 * filter by [output][chunk], two patches. */
template <typename T>
static __global__ void __launch_bounds__(Y_THREADS, 2)
    results(mma_shape s, const T *x, const T *w, const T *bias, T *y)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(int, row);
    int *chunk = row + ROWS;
    T *filter = (T *)(chunk + MOST_CHUNKS);
    int unit = blockIdx.y / s.parts, first = blockIdx.y % s.parts * WIDE;
    int wide = min(WIDE, s.unit_out - first);
    unsigned char *patch = (unsigned char *)(filter + s.tall * s.chunk_pitch * 8);
    lay_places(s, row, chunk);
    for (int i = threadIdx.x; i < s.tall * s.chunk_pitch * 8; i += Y_THREADS) {
        int e = i % 8, j = i / 8 % s.chunk_pitch, o = i / 8 / s.chunk_pitch;
        int64_t at = o < wide ? filter_at(s, unit, first + o, j, e) : -1;
        filter[i] = at < 0 ? pl_put<T>(0.0f) : w[at];
    }
    int lane = threadIdx.x % 32, m0 = threadIdx.x / 32 * 32, q = lane / 4, r = lane % 4;
    int tile = blockIdx.x, turn = 0;
    if (tile < s.tiles) copy_patch(s, x, unit, tile_at(s, tile), patch);
    pl_copies_end();
    __syncthreads();
    /* rows of A: matrices 0, 1: rows 0 and 8 of the first chunk; 2, 3: of the second one */
    int at0 = row[m0 + lane % 16], at1 = row[m0 + 16 + lane % 16], second = lane / 16;
    /* rows of B: matrices 0, 1: the two chunks of outputs 0 to 7; 2, 3: of outputs 8 to 15 */
    const T *own = filter + ((lane % 8 + lane / 16 * 8) * s.chunk_pitch + lane / 8 % 2) * 8;
    for (; tile < s.tiles; tile += s.slices, turn ^= 1) {
        if (tile + s.slices < s.tiles)
            copy_patch(s, x, unit, tile_at(s, tile + s.slices), patch + (turn ^ 1) * s.patch_bytes);
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        const unsigned char *here = patch + turn * s.patch_bytes;
        float sum[2][WIDE / 8][4];
#pragma unroll
        for (int i = 0; i < 2 * WIDE / 8 * 4; i++)
            sum[i / (WIDE / 2)][i / 4 % (WIDE / 8)][i % 4] = 0;
        for (int j = 0; j < s.chunks; j += 2) {
            unsigned a[2][4];
            int off = chunk[j + second];
            pl_load4(a[0], here + at0 + off);
            pl_load4(a[1], here + at1 + off);
#pragma unroll
            for (int o = 0; o < WIDE / 16; o++) {
                if (o * 16 >= wide) break;
                unsigned b[4];
                pl_load4(b, own + (o * 16 * s.chunk_pitch + j) * 8);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    pl_multiply(sum[k][o * 2], a[k], b, T());
                    pl_multiply(sum[k][o * 2 + 1], a[k], b + 2, T());
                }
            }
        }
        corner p = tile_at(s, tile);
#pragma unroll
        for (int k = 0; k < 4; k++) { /* rows q, q + 8, q + 16, q + 24 */
            int64_t pixel;
            if (!result_at(s, p, m0 + q + 8 * k, &pixel)) continue;
            T *to = y + pixel * s.out_channels + unit * s.unit_out + first + r * 2;
            const T *plus = bias ? bias + unit * s.unit_out + first + r * 2 : NULL;
#pragma unroll
            for (int o = 0; o < WIDE / 8; o++) {
                if (o * 8 >= wide) break;
                float u = sum[k / 2][o][k % 2 * 2], v = sum[k / 2][o][k % 2 * 2 + 1];
                if (plus) u += pl_get(plus[o * 8]), v += pl_get(plus[o * 8 + 1]);
                *(unsigned *)(to + o * 8) = pl_pack2(u, v, T());
            }
        }
        __syncthreads();
    }
}

/* ---- dw ------------------------------------------------------------------------------------- */
/* Copies dy of a tile as [row][output]; rows without a result are zero. */
template <typename T>
static __device__ void copy_rows(const mma_shape &s, const T *dy, int unit, int first, int wide,
                                 int pitch, const corner &p, T *to)
{
    int each = pitch / 8;
    for (int i = threadIdx.x; i < ROWS * each; i += blockDim.x) {
        int c = i % each * 8, m = i / each;
        int64_t pixel;
        bool in = result_at(s, p, m, &pixel) && c < wide;
        const T *from = dy + (in ? pixel * s.out_channels + unit * s.unit_out + first + c : 0);
        pl_copy16(to + i * 8, from, in);
    }
}

/* grid: (slices, units * parts, parts of the chunks). A warp has CHUNKS chunks of terms and up to
 * WIDE outputs. Shared: places, two tiles of dy, two patches. part: [slice][the filter] */
template <typename T>
static __global__ void __launch_bounds__(MOST_WARPS * 32)
    filters(mma_shape s, const T *x, const T *dy, float *part)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(int, row);
    int *chunk = row + ROWS;
    int unit = blockIdx.y / s.parts, first = blockIdx.y % s.parts * WIDE;
    int wide = min(WIDE, s.unit_out - first), pitch = ((wide + 15) / 16 * 2 + 1) * 8;
    T *rows = (T *)(chunk + MOST_CHUNKS);
    unsigned char *patch = (unsigned char *)(rows + 2 * ROWS * pitch);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, q = lane / 4, r = lane % 4;
    int j0 = (blockIdx.z * (blockDim.x / 32) + warp) * CHUNKS;
    lay_places(s, row, chunk);
    int tile = blockIdx.x, turn = 0;
    if (tile < s.tiles) {
        corner p = tile_at(s, tile);
        copy_patch(s, x, unit, p, patch);
        copy_rows(s, dy, unit, first, wide, pitch, p, rows);
    }
    pl_copies_end();
    __syncthreads();
    /* rows of A (dy): matrices 0, 1: outputs 0 and 8 of rows 0 to 7; 2, 3: of rows 8 to 15
     * rows of B (windows): matrices 0, 1: rows 0 and 8 of a chunk; 2, 3: of the next chunk */
    int a_at = (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
    int off[CHUNKS / 2];
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; i++) {
        int j = j0 + i * 2 + lane / 16;
        off[i] = j < s.chunks ? chunk[j] : 0;
    }
    float sum[WIDE / 16][CHUNKS][4];
#pragma unroll
    for (int i = 0; i < WIDE / 16 * CHUNKS * 4; i++)
        sum[i / (CHUNKS * 4)][i / 4 % CHUNKS][i % 4] = 0;
    for (; tile < s.tiles; tile += s.slices, turn ^= 1) {
        if (tile + s.slices < s.tiles) {
            corner p = tile_at(s, tile + s.slices);
            copy_patch(s, x, unit, p, patch + (turn ^ 1) * s.patch_bytes);
            copy_rows(s, dy, unit, first, wide, pitch, p, rows + (turn ^ 1) * ROWS * pitch);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        const unsigned char *here = patch + turn * s.patch_bytes;
        const T *d = rows + turn * ROWS * pitch;
        for (int m = 0; m < ROWS; m += 16) {
            unsigned b[CHUNKS / 2][4];
            int at = row[m + lane % 16];
#pragma unroll
            for (int i = 0; i < CHUNKS / 2; i++) pl_load4t(b[i], here + at + off[i]);
#pragma unroll
            for (int o = 0; o < WIDE / 16; o++) {
                if (o * 16 >= wide) break;
                unsigned a[4];
                pl_load4t(a, d + m * pitch + a_at + o * 16);
#pragma unroll
                for (int i = 0; i < CHUNKS; i++)
                    pl_multiply(sum[o][i], a, b[i / 2] + i % 2 * 2, T());
            }
        }
        __syncthreads();
    }
    int64_t all = (int64_t)s.out_channels * s.kernel[0] * s.kernel[1] * s.group_in;
#pragma unroll
    for (int o = 0; o < WIDE / 16; o++)
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int to = o * 16 + q + e / 2 * 8;
                if (to >= wide || j0 + i >= s.chunks) continue;
                int64_t at = filter_at(s, unit, first + to, j0 + i, r * 2 + e % 2);
                if (at >= 0) part[blockIdx.x * all + at] = sum[o][i][e];
            }
}

template <typename T>
static __global__ void __launch_bounds__(JOIN_THREADS)
    join(int64_t all, int slices, const float *part, T *dw)
{
    for (int64_t e = (int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * JOIN_THREADS) {
        float sum = 0;
#pragma unroll 4
        for (int i = 0; i < slices; i++) sum += part[i * all + e];
        dw[e] = pl_put<T>(sum);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Shared memory of a block: two fit a multiprocessor of Hopper. */
static int most_shared(void)
{
    return least(pl_cuda_props_get()->shared_limit, 112 << 10);
}

static size_t shared_bytes(const mma_shape *s, bool sums)
{
    int wide = least(WIDE, s->unit_out), pitch = ((wide + 15) / 16 * 2 + 1) * 8;
    size_t places = sizeof(int) * (ROWS + MOST_CHUNKS), two = 2 * (size_t)s->patch_bytes;
    if (sums) return places + sizeof(short) * (size_t)(2 * ROWS * pitch) + two;
    return places + (size_t)(s->tall * s->chunk_pitch) * 16 + two;
}

/* Sets the size of the patch of a tile; false if it does not fit. */
static bool set_patch(mma_shape *s, bool sums)
{
    s->patch_h = (s->tile_h - 1) * s->stride[0] + (s->kernel[0] - 1) * s->dilation[0] + 1;
    s->patch_w = (s->tile_w - 1) * s->stride[1] + (s->kernel[1] - 1) * s->dilation[1] + 1;
    if (s->few) s->patch_w = (s->patch_w + 2) / 2 * 2; /* the second tap of the last pair */
    int64_t bytes = (int64_t)s->tile_n * s->patch_h * s->patch_w * s->pixel;
    if (bytes > most_shared()) return false;
    s->patch_bytes = (int)((bytes + 15) / 16 * 16);
    return shared_bytes(s, sums) <= (size_t)most_shared();
}

/* Chooses the tile that wastes the fewest rows and reads the fewest pixels beside them. */
static bool set_tile(mma_shape *s, bool sums)
{
    double best = 0;
    mma_shape found = *s;
    for (int across = 1; across <= s->out_w; across++) {
        int w = (s->out_w + across - 1) / across;
        if (w > ROWS) continue;
        if (w < 4 && across > 1) break;
        for (int down = 1; down <= s->out_h; down++) {
            int h = (s->out_h + down - 1) / down;
            if (h * w > ROWS) continue;
            mma_shape t = *s;
            t.tile_w = w, t.tile_h = h;
            t.tile_n = across == 1 && down == 1 ? ROWS / (h * w) : 1;
            if (!set_patch(&t, sums)) continue;
            t.tiles_h = (s->out_h + h - 1) / h;
            t.tiles_w = (s->out_w + w - 1) / w;
            int64_t tiles = (int64_t)t.tiles_h * t.tiles_w * ((s->n + t.tile_n - 1) / t.tile_n);
            if (tiles > INT32_MAX / 2) continue;
            t.tiles = (int)tiles;
            double rows = (double)ROWS * (double)tiles;
            double pixels = (double)tiles * t.tile_n * t.patch_h * t.patch_w;
            double useful = (double)s->n * s->out_h * s->out_w / (rows + 0.2 * pixels);
            if (useful > best) best = useful, found = t;
            if (h == 1) break;
        }
    }
    *s = found;
    return best > 0;
}

static bool fits_int(const pl_conv_shape *c)
{
    int64_t most = INT32_MAX / 4;
    return c->n > 0 && c->n < most && pl_conv_pixels(c->in) * c->ic < most &&
           pl_conv_pixels(c->out) * c->oc < most && pl_conv_pixels(c->in) > 0 &&
           pl_conv_pixels(c->out) > 0;
}

/* Joins groups until their channels fill chunks on the side that is read and, as rows of dy are
 * copied by chunks, on both sides. */
static bool set_units(mma_shape *s, const pl_conv_shape *c, bool back)
{
    int64_t in = c->ic / c->groups, out = c->oc / c->groups, join = 1;
    while (join < c->groups && (in * join % 8 || out * join % 8)) join *= 2;
    if (c->groups % join || in * join % 8 || out * join % 8 || in * join > 128) return false;
    s->group_in = (int)(back ? out : in);
    s->group_out = (int)(back ? in : out);
    s->unit_in = s->group_in * (int)join;
    s->unit_out = s->group_out * (int)join;
    s->units = (int)(c->groups / join);
    s->chunks = s->kernel[0] * s->kernel[1] * s->unit_in / 8;
    s->pixel = (s->unit_in / 8 | 1) * 16; /* an odd number of chunks: no bank conflicts */
    return true;
}

static bool shape_of(const pl_conv_shape *c, mma_shape *s)
{
    bool sums = c->kind == PL_CONV_DW, back = c->kind == PL_CONV_DX;
    const int64_t *in = back ? c->out : c->in, *out = back ? c->in : c->out;
    memset(s, 0, sizeof *s);
    if (!fits_int(c) || c->in[0] != 1 || c->out[0] != 1 || c->kernel[0] != 1) return false;
    if (c->dtype != PL_F16 && c->dtype != PL_BF16) return false;
    s->n = (int)c->n;
    s->in_h = (int)in[1], s->in_w = (int)in[2], s->out_h = (int)out[1], s->out_w = (int)out[2];
    s->in_channels = (int)(back ? c->oc : c->ic);
    s->out_channels = (int)(back ? c->ic : c->oc);
    s->back = back;
    for (int d = 0; d < 2; d++) {
        int64_t reach = (c->kernel[d + 1] - 1) * c->dilation[d + 1];
        if (c->kernel[d + 1] > 15 || reach > 64 || c->stride[d + 1] > 4) return false;
        if (back && c->stride[d + 1] != 1) return false;
        s->kernel[d] = (int)c->kernel[d + 1];
        s->stride[d] = (int)c->stride[d + 1];
        s->dilation[d] = (int)c->dilation[d + 1];
        s->pad[d] = (int)(back ? reach - c->pad_lo[d + 1] : c->pad_lo[d + 1]);
    }
    if (c->groups > 1) {
        if (!set_units(s, c, back)) return false;
    } else {
        if (back || c->ic > 4 || c->oc % 8 || s->stride[1] % 2 || s->dilation[1] != 1) return false;
        s->few = 4;
        s->pixel = 8;
        s->unit_in = s->group_in = (int)c->ic;
        s->unit_out = s->group_out = (int)c->oc;
        s->units = 1;
        s->chunks = s->kernel[0] * ((s->kernel[1] + 1) / 2);
    }
    s->parts = (s->unit_out + WIDE - 1) / WIDE;
    s->tall = (least(WIDE, s->unit_out) + 15) / 16 * 16;
    s->chunk_pitch = (s->chunks + 1) / 2 * 2 + 1;
    if (s->chunks + 1 > MOST_CHUNKS || !set_tile(s, sums)) return false;
    int64_t blocks = (int64_t)s->units * s->parts, want = pl_ceil_div(sums ? 132 : 264, blocks);
    s->slices = least((int)want, s->tiles);
    return blocks < 65536;
}

static int warps_of(const mma_shape *s)
{
    return least(MOST_WARPS, (s->chunks + CHUNKS - 1) / CHUNKS);
}

static int64_t filter_elems(const mma_shape *s)
{
    return (int64_t)s->out_channels * s->kernel[0] * s->kernel[1] * s->group_in;
}

extern "C" bool pl_conv_mma_can(const pl_conv_shape *c)
{
    mma_shape s;
    return pl_cuda_props_get()->arch >= 80 && shape_of(c, &s);
}

extern "C" size_t pl_conv_mma_work(const pl_conv_shape *c)
{
    mma_shape s;
    if (c->kind != PL_CONV_DW || !shape_of(c, &s)) return 0;
    return sizeof(float) * (size_t)s.slices * (size_t)filter_elems(&s);
}

static pl_status allow_shared(const void *kernel, size_t bytes)
{
    PL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PL_OK;
}

template <typename T>
static pl_status launch(const mma_shape &s, bool sums, const void *a, const void *b,
                        const void *bias, void *out, void *work)
{
    size_t bytes = shared_bytes(&s, sums);
    dim3 grid(s.slices, (unsigned)(s.units * s.parts));
    if (!sums) {
        PL_TRY(allow_shared((const void *)results<T>, bytes));
        PL_LAUNCH((results<T>), grid, Y_THREADS, bytes, s, (const T *)a, (const T *)b,
                  (const T *)bias, (T *)out);
        return PL_OK;
    }
    int warps = warps_of(&s);
    grid.z = (unsigned)((s.chunks + warps * CHUNKS - 1) / (warps * CHUNKS));
    PL_TRY(allow_shared((const void *)filters<T>, bytes));
    PL_LAUNCH((filters<T>), grid, warps * 32, bytes, s, (const T *)a, (const T *)b, (float *)work);
    PL_LAUNCH((join<T>), pl_blocks(filter_elems(&s), JOIN_THREADS), JOIN_THREADS, 0,
              filter_elems(&s), s.slices, (const float *)work, (T *)out);
    return PL_OK;
}

extern "C" pl_status pl_conv_mma(const pl_conv_shape *c, const void *a, const void *b,
                                 const void *bias, void *out, void *work)
{
    mma_shape s;
    bool sums = c->kind == PL_CONV_DW;
    if (!shape_of(c, &s)) PL_BUG("a convolution that tensor cores do not support");
    if (c->dtype == PL_F16)
        PL_TRY(launch<pl_f16>(s, sums, a, b, bias, out, work));
    else
        PL_TRY(launch<pl_bf16>(s, sums, a, b, bias, out, work));
    PL_CUDA_LAUNCHED("convolution of patches");
    return PL_OK;
}
