/* columns.cu - im2col: the pixels under each tap of a filter, side by side, so that a convolution
 * is a matrix product.
 *
 * Row m of the columns belongs to a pixel and holds, tap by tap, the channels of the input pixel
 * that the tap reads, zeros outside the image. Rows can be made in parts. Three more copies belong
 * here: columns back to pixels where taps do not overlap, the reordering of a filter's taps, and
 * the copy of rows back to strided pixels.
 */
#include "cuda/conv/conv.h"
#include "cuda/device/launch.h"

static constexpr int THREADS = 256;

struct grid {
    /* row: vectors of a row; packs: of a pixel's channels; k: taps; p: the rows' pixels */
    pl_divisor row, packs, k1, k2, pixels, p1, p2;
    int32_t size[3], stride[3], step[3], shift[3];
    int64_t first;
    uint32_t taps, total;
};

template <class U> static __global__ void columns(grid s, const U *from, U *out)
{
    for (uint32_t i = (uint32_t)PL_ITEM; i < s.total; i += (uint32_t)PL_ITEMS) {
        uint32_t at_row, ch, pix, k[3], p[3];
        uint32_t row = pl_divmod(i, s.row, &at_row), tap = pl_divmod(at_row, s.packs, &ch);
        uint32_t n = pl_divmod((uint32_t)(s.first + row), s.pixels, &pix);
        k[0] = pl_divmod(pl_divmod(tap, s.k2, &k[2]), s.k1, &k[1]);
        p[0] = pl_divmod(pl_divmod(pix, s.p2, &p[2]), s.p1, &p[1]);
        int64_t at = n;
        bool inside = tap < s.taps;
        for (int d = 0; d < 3; d++) {
            int32_t q = (int32_t)p[d] * s.stride[d] + (int32_t)k[d] * s.step[d] + s.shift[d];
            inside = inside && q >= 0 && q < s.size[d];
            at = at * s.size[d] + q;
        }
        out[i] = inside ? from[at * s.packs.d + ch] : U{};
    }
}

template <class U>
static void launch(const pl_columns *c, const void *from, int64_t first, int64_t rows, void *out)
{
    int64_t packs = c->bytes / (int64_t)sizeof(U), taps = pl_conv_pixels(c->taps);
    int64_t row = packs * taps + c->fill / (int64_t)sizeof(U);
    grid s = {};
    s.row = pl_div_by(row);
    s.packs = pl_div_by(packs);
    s.taps = (uint32_t)taps;
    s.k1 = pl_div_by(c->taps[1]);
    s.k2 = pl_div_by(c->taps[2]);
    s.pixels = pl_div_by(pl_conv_pixels(c->rows));
    s.p1 = pl_div_by(c->rows[1]);
    s.p2 = pl_div_by(c->rows[2]);
    for (int d = 0; d < 3; d++) {
        s.size[d] = (int32_t)c->size[d];
        s.stride[d] = (int32_t)c->stride[d];
        s.step[d] = (int32_t)c->step[d];
        s.shift[d] = (int32_t)c->shift[d];
    }
    s.first = first;
    s.total = (uint32_t)(rows * row);
    PL_LAUNCH((columns<U>), pl_blocks(s.total, THREADS * 4), THREADS, 0, s, (const U *)from,
              (U *)out);
}

/* Returns the bytes to move at a time: 16, 4 or 2. */
static int64_t unit_of(const pl_columns *c, const void *from, const void *out)
{
    int64_t wide = pl_widest(pl_widest(16, c->bytes), c->fill);
    wide = pl_widest_at(pl_widest_at(wide, from), out);
    return wide == 16 ? 16 : wide >= 4 ? 4 : 2;
}

extern "C" pl_status pl_columns_make(const pl_columns *c, const void *from, int64_t first,
                                     int64_t rows, void *out)
{
    int64_t wide = unit_of(c, from, out);
    if (wide == 16)
        launch<uint4>(c, from, first, rows, out);
    else if (wide == 4)
        launch<uint32_t>(c, from, first, rows, out);
    else
        launch<uint16_t>(c, from, first, rows, out);
    PL_CUDA_LAUNCHED("columns of a convolution");
    return PL_OK;
}

/* ---- columns back to pixels ----------------------------------------------------------------- */
struct pixel_grid {
    pl_divisor packs, q1, q2, pixels, s[3]; /* q: pixels of the image; s: stride */
    int32_t rows[3], shift[3];
    uint32_t row, total; /* row: vectors of a row */
};

template <class U> static __global__ void undo(pixel_grid g, const U *from, U *out)
{
    for (uint32_t i = (uint32_t)PL_ITEM; i < g.total; i += (uint32_t)PL_ITEMS) {
        uint32_t ch, pix, q[3];
        int64_t at = pl_divmod(pl_divmod(i, g.packs, &ch), g.pixels, &pix);
        q[0] = pl_divmod(pl_divmod(pix, g.q2, &q[2]), g.q1, &q[1]);
        uint32_t tap = 0;
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            uint32_t k, p = pl_divmod((uint32_t)((int32_t)q[d] - g.shift[d]), g.s[d], &k);
            inside = inside && (int32_t)p < g.rows[d];
            at = at * g.rows[d] + p;
            tap = tap * g.s[d].d + k;
        }
        out[i] = inside ? from[at * g.row + tap * g.packs.d + ch] : U{};
    }
}

template <class U>
static void launch_undo(const pl_columns *c, int64_t images, const void *from, void *out)
{
    int64_t packs = c->bytes / (int64_t)sizeof(U), pixels = pl_conv_pixels(c->size);
    pixel_grid g = {};
    g.packs = pl_div_by(packs);
    g.pixels = pl_div_by(pixels);
    g.q1 = pl_div_by(c->size[1]);
    g.q2 = pl_div_by(c->size[2]);
    for (int d = 0; d < 3; d++) {
        g.s[d] = pl_div_by(c->stride[d]);
        g.rows[d] = (int32_t)c->rows[d];
        g.shift[d] = (int32_t)c->shift[d];
    }
    g.row = (uint32_t)(packs * pl_conv_pixels(c->taps) + c->fill / (int64_t)sizeof(U));
    g.total = (uint32_t)(images * pixels * packs);
    PL_LAUNCH((undo<U>), pl_blocks(g.total, THREADS * 4), THREADS, 0, g, (const U *)from, (U *)out);
}

extern "C" pl_status pl_columns_undo(const pl_columns *c, int64_t images, const void *from,
                                     void *out)
{
    int64_t wide = unit_of(c, from, out);
    if (wide == 16)
        launch_undo<uint4>(c, images, from, out);
    else if (wide == 4)
        launch_undo<uint32_t>(c, images, from, out);
    else
        launch_undo<uint16_t>(c, images, from, out);
    PL_CUDA_LAUNCHED("columns back to pixels");
    return PL_OK;
}

/* ---- taps of a filter ----------------------------------------------------------------------- */
struct filter {
    pl_divisor ic, oc, t1, t2;
    uint32_t taps, k[3], first[3], by[3], total;
};

template <class U> static __global__ void turn(filter f, const U *w, U *out)
{
    for (uint32_t e = (uint32_t)PL_ITEM; e < f.total; e += (uint32_t)PL_ITEMS) {
        uint32_t i, o, j[3];
        j[0] = pl_divmod(pl_divmod(pl_divmod(pl_divmod(e, f.ic, &i), f.oc, &o), f.t2, &j[2]), f.t1,
                         &j[1]);
        uint32_t tap = 0;
        for (int d = 0; d < 3; d++) tap = tap * f.k[d] + f.first[d] + f.by[d] * j[d];
        out[e] = w[(o * f.taps + tap) * f.ic.d + i];
    }
}

extern "C" pl_status pl_columns_filter(const pl_conv_shape *c, const int64_t *first,
                                       const int64_t *by, const int64_t *taps, const void *w,
                                       void *out)
{
    filter f = {};
    f.ic = pl_div_by(c->ic);
    f.oc = pl_div_by(c->oc);
    f.t1 = pl_div_by(taps[1]);
    f.t2 = pl_div_by(taps[2]);
    f.taps = (uint32_t)pl_conv_pixels(c->kernel);
    for (int d = 0; d < 3; d++) {
        f.k[d] = (uint32_t)c->kernel[d];
        f.first[d] = (uint32_t)first[d];
        f.by[d] = (uint32_t)by[d];
    }
    f.total = (uint32_t)(pl_conv_pixels(taps) * c->oc * c->ic);
    unsigned blocks = pl_blocks(f.total, THREADS);
    if (c->dtype == PL_F32)
        PL_LAUNCH((turn<uint32_t>), blocks, THREADS, 0, f, (const uint32_t *)w, (uint32_t *)out);
    else
        PL_LAUNCH((turn<uint16_t>), blocks, THREADS, 0, f, (const uint16_t *)w, (uint16_t *)out);
    PL_CUDA_LAUNCHED("taps of a filter");
    return PL_OK;
}

/* ---- rows back to pixels -------------------------------------------------------------------- */
struct spread {
    pl_divisor channels, pixels, p1, p2;
    int64_t size[3], first[3], stride[3], row;
    uint32_t total;
};

template <class U> static __global__ void scatter(spread s, const U *rows, U *out)
{
    for (uint32_t e = (uint32_t)PL_ITEM; e < s.total; e += (uint32_t)PL_ITEMS) {
        uint32_t ch, pix, p[3];
        int64_t at = pl_divmod((uint32_t)(s.row + pl_divmod(e, s.channels, &ch)), s.pixels, &pix);
        p[0] = pl_divmod(pl_divmod(pix, s.p2, &p[2]), s.p1, &p[1]);
        for (int d = 0; d < 3; d++) at = at * s.size[d] + s.first[d] + s.stride[d] * p[d];
        out[at * s.channels.d + ch] = rows[e];
    }
}

extern "C" pl_status pl_columns_spread(const pl_conv_shape *c, const int64_t *first,
                                       const int64_t *count, int64_t row, int64_t rows,
                                       const void *from, void *dx)
{
    spread s = {};
    s.channels = pl_div_by(c->ic);
    s.pixels = pl_div_by(pl_conv_pixels(count));
    s.p1 = pl_div_by(count[1]);
    s.p2 = pl_div_by(count[2]);
    for (int d = 0; d < 3; d++) {
        s.size[d] = c->in[d];
        s.first[d] = first[d];
        s.stride[d] = c->stride[d];
    }
    s.row = row;
    s.total = (uint32_t)(rows * c->ic);
    unsigned blocks = pl_blocks(s.total, THREADS * 4);
    if (c->dtype == PL_F32)
        PL_LAUNCH((scatter<uint32_t>), blocks, THREADS, 0, s, (const uint32_t *)from,
                  (uint32_t *)dx);
    else
        PL_LAUNCH((scatter<uint16_t>), blocks, THREADS, 0, s, (const uint16_t *)from,
                  (uint16_t *)dx);
    PL_CUDA_LAUNCHED("rows back to pixels");
    return PL_OK;
}
