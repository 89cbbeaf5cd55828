/* bias.cu - a row vector added to every row, for products whose library kernel takes none. */
#include "cuda/launch.h"
#include "cuda/work.h"

template <typename T, int V>
static __global__ void add(T *y, const T *bias, int64_t packs, int64_t n_packs)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += step) {
        pl_pack<T, V> a = ((pl_pack<T, V> *)y)[i], b = ((const pl_pack<T, V> *)bias)[i % n_packs];
        for (int k = 0; k < V; k++)
            a.v[k] = pl_elem<T>::put(pl_elem<T>::get(a.v[k]) + pl_elem<T>::get(b.v[k]));
        ((pl_pack<T, V> *)y)[i] = a;
    }
}

template <typename T> static void launch(void *y, const void *bias, int64_t rows, int64_t n)
{
    enum { V = 16 / sizeof(T), THREADS = 256, MOST = 8192 };
    const void *p[2] = {y, bias};
    bool wide = n % V == 0 && pl_cuda_aligned(p, 2);
    int64_t packs = rows * n / (wide ? V : 1), blocks = (packs + THREADS - 1) / THREADS;
    int grid = (int)(blocks < (int64_t)MOST ? blocks : (int64_t)MOST);
    if (wide)
        PL_LAUNCH((add<T, V>), grid, THREADS, 0,
            (T *)y, (const T *)bias, packs, n / V);
    else
        PL_LAUNCH((add<T, 1>), grid, THREADS, 0,
            (T *)y, (const T *)bias, packs, n);
}

extern "C" pl_status pl_cuda_add_bias(pl_dtype dtype, void *y, const void *bias, int64_t rows,
                                      int64_t n)
{
    if (rows * n == 0) return PL_OK;
    PL_FLOAT_TYPES(dtype, launch<T>(y, bias, rows, n))
    PL_CUDA_LAUNCHED("add bias");
    return PL_OK;
}
