/* columns.cu - the pixels under each tap of a filter, side by side: convolution as a product.
 *
 * Row m of the columns belongs to an output pixel and holds, tap by tap, the channels of the input pixel
 * that the tap reads, zeros in the padding. For the gradient by the data rows are input pixels, and the taps
 * find the output pixels that read them (stride 1). Rows can be made in parts.
 */
#include "cuda/conv.h"
#include "cuda/launch.h"

static constexpr int THREADS = 256;

struct shape {
    pl_divisor packs, taps, k1, k2, pixels, p1, p2; /* packs: of channels; k: filter; p: the rows' pixels */
    int32_t size[3], stride[3], step[3], shift[3];  /* of the source; q = p * stride + k * step + shift */
    int64_t first;
    uint32_t total;
};

template <class U> static __global__ void columns(shape s, const U *from, U *out)
{
    for (uint32_t i = (uint32_t)PL_ITEM; i < s.total; i += (uint32_t)PL_ITEMS) {
        uint32_t ch, tap, pix, k[3], p[3];
        uint32_t row = pl_divmod(pl_divmod(i, s.packs, &ch), s.taps, &tap);
        uint32_t n = pl_divmod((uint32_t)(s.first + row), s.pixels, &pix);
        k[0] = pl_divmod(pl_divmod(tap, s.k2, &k[2]), s.k1, &k[1]);
        p[0] = pl_divmod(pl_divmod(pix, s.p2, &p[2]), s.p1, &p[1]);
        int64_t at = n;
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            int32_t q = (int32_t)p[d] * s.stride[d] + (int32_t)k[d] * s.step[d] + s.shift[d];
            inside = inside && q >= 0 && q < s.size[d];
            at = at * s.size[d] + q;
        }
        out[i] = inside ? from[at * s.packs.d + ch] : U{};
    }
}

static shape shape_of(const pl_conv_shape *c, int64_t channels, int64_t pack)
{
    bool back = c->kind == PL_CONV_DX;
    const int64_t *rows = back ? c->in : c->out, *source = back ? c->out : c->in;
    shape s = {};
    s.packs = pl_div_by(channels / pack);
    s.taps = pl_div_by(pl_conv_pixels(c->kernel));
    s.k1 = pl_div_by(c->kernel[1]);
    s.k2 = pl_div_by(c->kernel[2]);
    s.pixels = pl_div_by(pl_conv_pixels(rows));
    s.p1 = pl_div_by(rows[1]);
    s.p2 = pl_div_by(rows[2]);
    for (int d = 0; d < 3; d++) {
        s.size[d] = (int32_t)source[d];
        s.stride[d] = back ? 1 : (int32_t)c->stride[d];
        s.step[d] = (int32_t)(back ? -c->dilation[d] : c->dilation[d]);
        s.shift[d] = (int32_t)(back ? c->pad_lo[d] : -c->pad_lo[d]);
    }
    return s;
}

template <class U>
static void launch(const pl_conv_shape *c, const void *from, int64_t first, int64_t rows, void *out)
{
    enum { PACK = sizeof(U) / 4 };
    int64_t channels = c->kind == PL_CONV_DX ? c->oc : c->ic;
    shape s = shape_of(c, channels, PACK);
    s.first = first;
    s.total = (uint32_t)(rows * pl_conv_pixels(c->kernel) * (channels / PACK));
    PL_LAUNCH((columns<U>), pl_blocks(s.total, THREADS * 4), THREADS, 0, s, (const U *)from, (U *)out);
}

extern "C" pl_status pl_conv_columns(const pl_conv_shape *c, const void *from, int64_t first, int64_t rows,
                                     void *out)
{
    const void *p[2] = {from, out};
    int64_t channels = c->kind == PL_CONV_DX ? c->oc : c->ic;
    if (channels % 4 == 0 && pl_cuda_aligned(p, 2))
        launch<uint4>(c, from, first, rows, out);
    else
        launch<uint32_t>(c, from, first, rows, out);
    PL_CUDA_LAUNCHED("columns of a convolution");
    return PL_OK;
}

/* w [O, taps, I] as [taps, O, I]. */
static __global__ void turn(uint32_t total, pl_divisor ic, pl_divisor oc, uint32_t taps, const float *w, float *out)
{
    for (uint32_t e = (uint32_t)PL_ITEM; e < total; e += (uint32_t)PL_ITEMS) {
        uint32_t i, o, t = pl_divmod(pl_divmod(e, ic, &i), oc, &o);
        out[e] = w[(o * taps + t) * ic.d + i];
    }
}

extern "C" pl_status pl_conv_turn_filter(const pl_conv_shape *c, const void *w, void *out)
{
    int64_t taps = pl_conv_pixels(c->kernel), total = c->oc * taps * c->ic;
    PL_LAUNCH(turn, pl_blocks(total, THREADS), THREADS, 0, (uint32_t)total, pl_div_by(c->ic), pl_div_by(c->oc),
              (uint32_t)taps, (const float *)w, (float *)out);
    PL_CUDA_LAUNCHED("turn of a filter");
    return PL_OK;
}
