/* depthwise.cu - convolution with one filter per channel; samples share the filter, or each has its
 * own. Most are computed over strips of pixels (depthwise_strip.cu); the rest here, one element a
 * thread: f64, a stride beside a dilation, and sizes beyond 32-bit indices.
 */
#include "cuda/conv/conv.h"
#include "cuda/device/launch.h"

static constexpr int THREADS = 256;

extern "C" size_t pl_depthwise_work(const pl_depthwise *d)
{
    return pl_depthwise_strip_work(d);
}

template <typename T>
static __global__ void plain(pl_depthwise d, const T *a, const T *b, const T *bias, T *out)
{
    typedef typename pl_elem<T>::acc acc;
    const pl_conv_shape &c = d.conv;
    int64_t px = c.in[0] * c.in[1] * c.in[2], py = c.out[0] * c.out[1] * c.out[2];
    int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
    int64_t rows = c.kind == PL_CONV_Y    ? c.n * py
                   : c.kind == PL_CONV_DX ? c.n * px
                                          : (d.step_n ? c.n : 1) * taps;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < rows * c.ic;
         e += (int64_t)gridDim.x * THREADS) {
        int64_t ch = e % c.ic, row = e / c.ic;
        int64_t each = c.kind == PL_CONV_Y ? py : c.kind == PL_CONV_DX ? px : taps;
        int64_t n = row / each, fixed = row % each;
        int64_t terms = c.kind == PL_CONV_DW ? (d.step_n ? py : c.n * py) : taps;
        acc sum = 0;
        for (int64_t j = 0; j < terms; j++) {
            int64_t t = c.kind == PL_CONV_DW ? fixed : j;
            int64_t sample = c.kind == PL_CONV_DW && !d.step_n ? j / py : n;
            int64_t here = c.kind == PL_CONV_DW ? j % py : fixed, x = 0, y = 0, rest = here;
            int64_t kt[3] = {t / c.kernel[2] / c.kernel[1], t / c.kernel[2] % c.kernel[1],
                             t % c.kernel[2]};
            const int64_t *size = c.kind == PL_CONV_DX ? c.in : c.out;
            int64_t at[3] = {rest / size[2] / size[1], rest / size[2] % size[1], rest % size[2]};
            bool meet = true;
            for (int i = 0; i < 3; i++) {
                int64_t p = at[i], q = at[i];
                if (c.kind == PL_CONV_DX) {
                    p = q + c.pad_lo[i] - kt[i] * c.dilation[i];
                    meet = meet && p >= 0 && p % c.stride[i] == 0;
                    p /= c.stride[i];
                } else {
                    q = p * c.stride[i] + kt[i] * c.dilation[i] - c.pad_lo[i];
                }
                meet = meet && p < c.out[i] && q >= 0 && q < c.in[i];
                x = x * c.in[i] + q;
                y = y * c.out[i] + p;
            }
            if (!meet) continue;
            int64_t w = n * d.step_n + t * d.step_tap + ch * d.step_c;
            int64_t left = c.kind == PL_CONV_DX ? (sample * py + y) * c.ic + ch
                                                : (sample * px + x) * c.ic + ch;
            int64_t right = c.kind == PL_CONV_DW ? (sample * py + y) * c.ic + ch : w;
            sum += pl_elem<T>::get(a[left]) * pl_elem<T>::get(b[right]);
        }
        if (bias) sum += pl_elem<T>::get(bias[ch]);
        int64_t to = c.kind == PL_CONV_DW ? n * d.step_n + fixed * d.step_tap + ch * d.step_c : e;
        out[to] = pl_elem<T>::put(sum);
    }
}

template <typename T>
static void launch_plain(const pl_depthwise *d, const void *a, const void *b, const void *bias,
                         void *out)
{
    const pl_conv_shape *c = &d->conv;
    int64_t rows = c->kind == PL_CONV_Y    ? c->n * pl_conv_pixels(c->out)
                   : c->kind == PL_CONV_DX ? c->n * pl_conv_pixels(c->in)
                                           : (d->step_n ? c->n : 1) * pl_conv_pixels(c->kernel);
    PL_LAUNCH((plain<T>), pl_blocks(rows * c->ic, THREADS), THREADS, 0, *d, (const T *)a,
              (const T *)b, (const T *)bias, (T *)out);
}

extern "C" pl_status pl_depthwise_run(const pl_depthwise *d, const void *a, const void *b,
                                      const void *bias, void *out, void *work)
{
    if (pl_depthwise_strip_takes(d)) return pl_depthwise_strip_run(d, a, b, bias, out, work);
    PL_FLOAT_TYPES((pl_dtype)d->conv.dtype, launch_plain<T>(d, a, b, bias, out))
    PL_CUDA_LAUNCHED("depthwise convolution");
    return PL_OK;
}
