/* dequantize.cu - weights that are stored in fewer bits as numbers: ops/math/dequantize.c.
 *
 * A thread makes eight neighbouring elements, which lie in one block of 64: one read of codes, one
 * scale, one or two wide writes. The table of values is an argument of the launch and lies in
 * shared memory while the kernel runs. Codes of the last block exist beyond the last element, so
 * reads need no check.
 */
#include "cuda/device/launch.h"

#include "base/number/quantized.h"
#include "ops/core/attr.h"

enum { THREADS = 256, EACH = 8 };

struct values {
    float v[PL_QUANT_CODES];
};

template <class T, int BITS>
static __global__ void __launch_bounds__(THREADS)
    decode(const uint8_t *codes, const float *scales, T *y, int64_t n, bool wide, const values of)
{
    typedef typename pl_elem<T>::acc A;
    __shared__ float value[PL_QUANT_CODES];
    for (int i = (int)threadIdx.x; i < PL_QUANT_CODES; i += (int)blockDim.x) value[i] = of.v[i];
    __syncthreads();
    int64_t groups = (n + EACH - 1) / EACH;
    for (int64_t g = PL_ITEM; g < groups; g += PL_ITEMS) {
        pl_pack<uint8_t, BITS> in = pl_read<uint8_t, BITS>(codes + g * BITS);
        float scale = scales[g * EACH / PL_QUANT_BLOCK];
        pl_pack<T, 16 / sizeof(T)> out[EACH * sizeof(T) / 16];
        T *flat = out[0].v;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            unsigned code = BITS == 8 ? in.v[i * BITS / 8] : in.v[i * BITS / 8] >> i % 2 * 4 & 15;
            flat[i] = pl_put<T>((A)(value[code] * scale));
        }
        if (wide && (g + 1) * EACH <= n) {
#pragma unroll
            for (int k = 0; k < (int)(EACH * sizeof(T) / 16); k++)
                pl_write(y + g * EACH + k * (16 / sizeof(T)), out[k]);
        } else {
            for (int i = 0; i < EACH && g * EACH + i < n; i++) y[g * EACH + i] = flat[i];
        }
    }
}

template <class T, int BITS> static void launch(const pl_call *c, const pl_quant_table *t)
{
    const pl_dequantize_attr *a = static_cast<const pl_dequantize_attr *>(c->attr);
    int64_t n = pl_type_elems(&c->out_type[0]);
    const uint8_t *codes = static_cast<const uint8_t *>(c->in[0]);
    const void *scales = codes + pl_quant_code_bytes((pl_quant)a->form, n);
    values of;
    for (int i = 0; i < PL_QUANT_CODES; i++) of.v[i] = t->value[i];
    PL_LAUNCH((decode<T, BITS>), dim3(pl_blocks(pl_ceil_div(n, EACH), THREADS)), dim3(THREADS), 0,
              codes, static_cast<const float *>(scales), static_cast<T *>(c->out[0]), n,
              pl_widest_at(16, c->out[0]) == 16, of);
}

static pl_status dequantize(const pl_call *c)
{
    const pl_dequantize_attr *a = static_cast<const pl_dequantize_attr *>(c->attr);
    const pl_quant_table *t = pl_quantized((pl_quant)a->form);
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    PL_FLOAT_TYPES(a->dtype, if (t->bits == 8) launch<T, 8>(c, t); else launch<T, 4>(c, t));
    PL_CUDA_LAUNCHED("dequantize");
    return PL_OK;
}

PL_CUDA_KERNEL(dequantize_kernels, NULL, dequantize);

PL_CUDA_ENTRIES(pl_cuda_dequantize) = {{"dequantize", dequantize_kernels}, {NULL, NULL}};
