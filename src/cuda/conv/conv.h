/* conv.h - shared by the files of convolution: the problem, cuDNN's plans for it, and our own
 * kernels for problems that cuDNN computes slowly or not at all.
 *
 * Valid C++ too.
 */
#ifndef PL_CUDA_CONV_H
#define PL_CUDA_CONV_H

#include "cuda/device/work.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pl_conv_kind { PL_CONV_Y, PL_CONV_DX, PL_CONV_DW } pl_conv_kind;

/* The geometry of ops/net/window.h with three spatial dims, missing leading ones 1. Holds no
 * padding bytes and is zeroed first, so that problems compare bytewise. */
typedef struct pl_conv_shape {
    int64_t n, ic, oc, groups;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3];
    int32_t kind, dtype, spatial, bias; /* spatial: 2 or 3, as cuDNN counts; bias: 0 or 1 */
    int32_t act, add;                   /* ops/net/tail.h; add: 0 or 1 */
    int32_t timed, unused;              /* timed: 1: cuDNN's engine is chosen by timing */
    double slope;
} pl_conv_shape;
/* How much of the tail of a convolution is in cuDNN's plan. */
typedef enum pl_conv_level { PL_CONV_BARE, PL_CONV_WITH_BIAS, PL_CONV_WHOLE } pl_conv_level;
/* The operands of one run; bias and add may be NULL. */
typedef struct pl_conv_operands {
    const void *x, *w, *y, *bias, *add;
    void *work;
} pl_conv_operands;

static inline int64_t pl_conv_pixels(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}
/* Writes "conv f16 n8 224x224x3 -> 112x112x64 k7x7 s2 ..."; also used as a key. */
void pl_conv_text(const pl_conv_shape *c, char *buf, size_t cap);

/* Describes the engine of a prepared call of the kernel "cudnn", for reports. */
void pl_conv_describe(const void *prep, char *buf, size_t cap);

/* ---- plans of cuDNN: conv_plan.c ------------------------------------------------------------ */
typedef struct pl_conv_plan {
    pl_conv_shape problem;
    void *plan; /* cudnnBackendDescriptor_t; NULL: cuDNN has nothing for the problem */
    size_t work_bytes;
    pl_conv_level level; /* what of the problem's bias and tail is part of the plan */
    char engine[64];     /* "eng12 k2=1 k3=0 tc rtc", for reports */
    double ms;           /* time of creating the plan */
    float run_ms;        /* time of a run, where engines were timed; not positive: not known */
    int refs;
    struct pl_conv_plan *next;
} pl_conv_plan;

/* Returns the process's plan for a problem. Without a suitable engine the plan inside is NULL. */
pl_status pl_conv_plan_get(const pl_conv_shape *c, pl_conv_plan **out) PL_MUST_USE;
void pl_conv_plan_put(pl_conv_plan *p); /* NULL is fine */
/* Binds the pointers of one run; free with pl_conv_bound_free. */
pl_status pl_conv_bind(const pl_conv_plan *p, const pl_conv_operands *x, void **bound) PL_MUST_USE;
void pl_conv_bound_free(void *bound); /* NULL is fine */
pl_status pl_conv_execute(const pl_conv_plan *p, void *bound) PL_MUST_USE;
/* Applies the part of bias and tail that a plan of that level does not include. conv.c */
pl_status pl_conv_follow(const pl_conv_shape *c, pl_conv_level level, const void *bias,
                         const void *add, void *out) PL_MUST_USE;

/* ---- our own kernels: conv_*.cu, depthwise.cu ---------------------------------------------- */
/* One output element per thread: any problem, slowly. a, b are the op's inputs in order. */
pl_status pl_conv_direct(const pl_conv_shape *c, const void *a, const void *b, const void *bias,
                         void *out) PL_MUST_USE;
/* out[n, p, ch] = in[n, p + shift, ch], 0 where that is outside; both channels last. */
pl_status pl_conv_box(pl_dtype dtype, const void *in, const int64_t *in_size, void *out,
                      const int64_t *out_size, const int64_t *shift, int64_t n,
                      int64_t channels) PL_MUST_USE;

/* Few channels on one side: conv_thin.cu */
bool pl_conv_thin_takes(const pl_conv_shape *c);
size_t pl_conv_thin_work(const pl_conv_shape *c);
pl_status pl_conv_thin(const pl_conv_shape *c, const void *a, const void *b, const void *bias,
                       void *out, void *work) PL_MUST_USE;

/* Grouped convolutions and first layers in 16 bits on tensor cores: conv_mma.cu. All operands at
 * multiples of 16 bytes. */
bool pl_conv_mma_can(const pl_conv_shape *c);
size_t pl_conv_mma_work(const pl_conv_shape *c);
pl_status pl_conv_mma(const pl_conv_shape *c, const void *a, const void *b, const void *bias,
                      void *out, void *work) PL_MUST_USE;

/* columns.cu, in f32 and 16 bits. Tap k of row pixel p reads pixel p * stride + k * step + shift of
 * an image of that size; a pixel has that many bytes. rows: the grid of row pixels, images one
 * after the other. A row ends with `fill` bytes of zeros. */
typedef struct pl_columns {
    int32_t bytes, fill;
    int64_t rows[3], taps[3], size[3], stride[3], step[3], shift[3];
} pl_columns;

/* A convolution as products of rows x terms: conv_phase.c. One phase, except for dx with a
 * stride. */
enum { PL_CONV_PHASES = 8 };
typedef struct pl_conv_phase {
    pl_columns columns;
    int64_t first[3]; /* dx: its first pixel; the others follow at multiples of the stride */
    int64_t tap[3];   /* dx: its first tap; the others likewise */
    int64_t channels, rows, terms;
} pl_conv_phase;
/* Lists the phases that have pixels; false where a phase has no taps or there are too many
 * phases. */
bool pl_conv_phases_of(const pl_conv_shape *c, pl_conv_phase *out, int *n_out);

/* On TF32 units, with f32's accuracy unless TF32 is allowed: conv_split.c. a, b are the op's inputs
 * in order, at multiples of 16 bytes. takes: probably the fastest; can: right, fast or not. */
bool pl_conv_split_takes(const pl_conv_shape *c);
bool pl_conv_split_can(const pl_conv_shape *c);
pl_status pl_conv_split_prepare(const pl_conv_shape *c, void **prep,
                                size_t *work_bytes) PL_MUST_USE;
pl_status pl_conv_split_run(void *prep, const void *a, const void *b, const void *bias,
                            const void *add, void *out, void *work) PL_MUST_USE;

/* Products over columns: conv_product.c. a, b: inputs of the op in order; takes, can: as above. */
bool pl_conv_product_takes(const pl_conv_shape *c);
bool pl_conv_product_can(const pl_conv_shape *c);
pl_status pl_conv_product_prepare(const pl_conv_shape *c, void **prep,
                                  size_t *work_bytes) PL_MUST_USE;
void pl_conv_product_release(void *prep); /* NULL is fine */
pl_status pl_conv_product_run(void *prep, const void *a, const void *b, const void *bias, void *out,
                              void *work) PL_MUST_USE;

/* Over blocks of stride x stride pixels, by cuDNN: conv_blocks.c. Arguments as above. prepare fails
 * with PL_ERR_UNSUPPORTED where cuDNN has no engine. */
bool pl_conv_blocks_can(const pl_conv_shape *c);
pl_status pl_conv_blocks_prepare(const pl_conv_shape *c, void **prep,
                                 size_t *work_bytes) PL_MUST_USE;
void pl_conv_blocks_release(void *prep); /* NULL is fine */
pl_status pl_conv_blocks_run(void *prep, const void *a, const void *b, const void *bias,
                             const void *add, void *out, void *work) PL_MUST_USE;

/* columns.cu: rows [first, first + n). */
pl_status pl_columns_make(const pl_columns *c, const void *from, int64_t first, int64_t n,
                          void *out) PL_MUST_USE;
/* Copies the pixels of `images` images back from columns in which every pixel lies once: taps equal
 * the stride, steps are 1. Pixels that no row has become zeros. */
pl_status pl_columns_undo(const pl_columns *c, int64_t images, const void *from,
                          void *out) PL_MUST_USE;
/* Copies taps first, first + by, ... of w [oc, kernel, ic] as [taps, oc, ic]. */
pl_status pl_columns_filter(const pl_conv_shape *c, const int64_t *first, const int64_t *by,
                            const int64_t *taps, const void *w, void *out) PL_MUST_USE;
/* Copies rows [row, row + n) of `count` pixels per image to dx, where they begin at `first` and lie
 * a stride apart. */
pl_status pl_columns_spread(const pl_conv_shape *c, const int64_t *first, const int64_t *count,
                            int64_t row, int64_t n, const void *from, void *dx) PL_MUST_USE;

/* One filter per channel: ic == oc == groups. w is at sample*step_n + tap*step_tap +
 * channel*step_c; step_n 0: the samples share the filter, and dw sums over them. */
typedef struct pl_depthwise {
    pl_conv_shape conv;
    int64_t step_n, step_tap, step_c;
} pl_depthwise;
size_t pl_depthwise_work(const pl_depthwise *d); /* scratch of the filter's gradient */
pl_status pl_depthwise_run(const pl_depthwise *d, const void *a, const void *b, const void *bias,
                           void *out, void *work) PL_MUST_USE;
/* The same over strips of pixels, if the shape is supported: depthwise_strip.cu. work: 0 where
 * strips are not used. */
bool pl_depthwise_strip_takes(const pl_depthwise *d);
size_t pl_depthwise_strip_work(const pl_depthwise *d);
pl_status pl_depthwise_strip_run(const pl_depthwise *d, const void *a, const void *b,
                                 const void *bias, void *out, void *work) PL_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
