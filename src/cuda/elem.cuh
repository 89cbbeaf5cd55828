/* elem.cuh - storage types in device code: f16 and bf16 are widened to f32 (f64 to itself),
 * computed, and rounded once. */
#ifndef PL_CUDA_ELEM_CUH
#define PL_CUDA_ELEM_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* acc: the type of sums; get and put convert. */
template <typename T> struct elem;
template <> struct elem<float> {
    typedef float acc;
    static __device__ float get(float v) { return v; }
    static __device__ float put(float v) { return v; }
};
template <> struct elem<double> {
    typedef double acc;
    static __device__ double get(double v) { return v; }
    static __device__ double put(double v) { return v; }
};
template <> struct elem<__half> {
    typedef float acc;
    static __device__ float get(__half v) { return __half2float(v); }
    static __device__ __half put(float v) { return __float2half_rn(v); }
};
template <> struct elem<__nv_bfloat16> {
    typedef float acc;
    static __device__ float get(__nv_bfloat16 v) { return __bfloat162float(v); }
    static __device__ __nv_bfloat16 put(float v) { return __float2bfloat16_rn(v); }
};

/* V elements moved at once. */
template <typename T, int V> struct alignas(sizeof(T) * V) vec {
    T v[V];
};

/* Calls f<T>(args) for the type of `dtype`. */
#define PL_ELEM_SWITCH(dtype, f, ...)                                                          \
    switch (dtype) {                                                                           \
    case PL_F32: f<float>(__VA_ARGS__); break;                                                 \
    case PL_F64: f<double>(__VA_ARGS__); break;                                                \
    case PL_F16: f<__half>(__VA_ARGS__); break;                                                \
    case PL_BF16: f<__nv_bfloat16>(__VA_ARGS__); break;                                        \
    default: PL_FAIL(PL_ERR_UNSUPPORTED, "type %s", pl_dtype_name(dtype));                     \
    }

#endif
