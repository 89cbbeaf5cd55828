/* plimsoll_ops.h - constructors of ops. Each appends nodes to a graph and returns the result.
 *
 * Elementwise functions of two and three operands broadcast as NumPy does (missing leading
 * dimensions and size-1 dimensions stretch); the operands' dtypes must agree. Axes may be negative
 * (-1 is the last). A set of axes is a bit mask: PL_AXIS(0) | PL_AXIS(2), negative axes included.
 * "Scalar" means rank 0.
 */
#ifndef PLIMSOLL_OPS_H
#define PLIMSOLL_OPS_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bit i for axis i >= 0; bit 31+i+1 counts from the end for i < 0 (PL_AXIS(-1) is bit 31). */
#define PL_AXIS(i)  ((uint32_t)1 << ((i) >= 0 ? (i) : 32 + (i)))
#define PL_AXES_ALL (0xffffffffu)

/* ---- constants -------------------------------------------------------------------------- */
PL_API pl_val pl_fill(pl_graph *g, pl_type type, double value);
PL_API pl_val pl_iota(pl_graph *g, pl_type type, int axis); /* 0, 1, 2 ... along axis */
PL_API pl_val pl_full_like(pl_graph *g, pl_val x, double value);

/* ---- elementwise, one operand ----------------------------------------------------------- */
PL_API pl_val pl_neg(pl_graph *g, pl_val x);
PL_API pl_val pl_abs(pl_graph *g, pl_val x);
PL_API pl_val pl_sign(pl_graph *g, pl_val x);
PL_API pl_val pl_floor(pl_graph *g, pl_val x);
PL_API pl_val pl_round(pl_graph *g, pl_val x);
PL_API pl_val pl_reciprocal(pl_graph *g, pl_val x);
PL_API pl_val pl_square(pl_graph *g, pl_val x);
PL_API pl_val pl_sqrt(pl_graph *g, pl_val x);
PL_API pl_val pl_rsqrt(pl_graph *g, pl_val x);
PL_API pl_val pl_exp(pl_graph *g, pl_val x);
PL_API pl_val pl_log(pl_graph *g, pl_val x);
PL_API pl_val pl_log1p(pl_graph *g, pl_val x); /* log(1 + x), accurate near 0 */
PL_API pl_val pl_sin(pl_graph *g, pl_val x);
PL_API pl_val pl_cos(pl_graph *g, pl_val x);
PL_API pl_val pl_tanh(pl_graph *g, pl_val x);
PL_API pl_val pl_erf(pl_graph *g, pl_val x);
PL_API pl_val pl_sigmoid(pl_graph *g, pl_val x);
PL_API pl_val pl_softplus(pl_graph *g, pl_val x);
PL_API pl_val pl_relu(pl_graph *g, pl_val x);
PL_API pl_val pl_leaky_relu(pl_graph *g, pl_val x, double slope);
PL_API pl_val pl_silu(pl_graph *g, pl_val x);
PL_API pl_val pl_gelu(pl_graph *g, pl_val x);       /* erf form */
PL_API pl_val pl_gelu_slope(pl_graph *g, pl_val x); /* derivative of pl_gelu */
PL_API pl_val pl_gelu_tanh(pl_graph *g, pl_val x);  /* tanh form */
PL_API pl_val pl_is_finite(pl_graph *g, pl_val x);
PL_API pl_val pl_is_nan(pl_graph *g, pl_val x);
PL_API pl_val pl_not(pl_graph *g, pl_val x);
PL_API pl_val pl_cast(pl_graph *g, pl_val x, pl_dtype to);
PL_API pl_val pl_scale(pl_graph *g, pl_val x, double by); /* x * by */
PL_API pl_val pl_shift(pl_graph *g, pl_val x, double by); /* x + by */
PL_API pl_val pl_clamp(pl_graph *g, pl_val x, double lo, double hi);
/* NaN becomes 0, infinities the largest finite value of the dtype. */
PL_API pl_val pl_nan_to_num(pl_graph *g, pl_val x);
/* Returns the same value; no gradient flows through it. */
PL_API pl_val pl_stop_gradient(pl_graph *g, pl_val x);
/* Like pl_stop_gradient, but equal operations on x and on the result are merged: less work, more
 * memory, because merged values stay alive for two backward passes. */
PL_API pl_val pl_stop_gradient_shared(pl_graph *g, pl_val x);

/* ---- elementwise, two and three operands ------------------------------------------------ */
PL_API pl_val pl_add(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_sub(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_mul(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_div(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_pow(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_max(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_min(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_mod(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_and(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_or(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_xor(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_eq(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_ne(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_lt(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_le(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_gt(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_ge(pl_graph *g, pl_val a, pl_val b);
PL_API pl_val pl_select(pl_graph *g, pl_val cond, pl_val a, pl_val b);

/* ---- shape ------------------------------------------------------------------------------ */
PL_API pl_val pl_reshape(pl_graph *g, pl_val x, int rank, const int64_t *dim); /* one -1 allowed */
PL_API pl_val pl_broadcast(pl_graph *g, pl_val x, int rank, const int64_t *dim);
PL_API pl_val pl_permute(pl_graph *g, pl_val x, const int *perm); /* out dim i = in dim perm[i] */
PL_API pl_val pl_transpose(pl_graph *g, pl_val x, int a, int b);
PL_API pl_val pl_flatten(pl_graph *g, pl_val x, int first, int last); /* inclusive */
PL_API pl_val pl_unsqueeze(pl_graph *g, pl_val x, int axis);
PL_API pl_val pl_squeeze(pl_graph *g, pl_val x, int axis);
/* Elements start, start+step, ... below stop; negative start and stop count from the end. step >
 * 0. */
PL_API pl_val pl_slice(pl_graph *g, pl_val x, int axis, int64_t start, int64_t stop, int64_t step);
/* Adds lo elements before, hi after, inner between neighbours, all equal to value; none < 0. */
PL_API pl_val pl_pad(pl_graph *g, pl_val x, int axis, int64_t lo, int64_t hi, int64_t inner,
                     double value);
PL_API pl_val pl_concat(pl_graph *g, int n, const pl_val *x, int axis);
PL_API pl_val pl_stack(pl_graph *g, int n, const pl_val *x, int axis);
PL_API void pl_split(pl_graph *g, pl_val x, int axis, int n, pl_val *out); /* equal parts */
PL_API pl_val pl_flip(pl_graph *g, pl_val x, uint32_t axes);
/* Rotates along axis: element i goes to (i + shift) mod size; any shift. */
PL_API pl_val pl_roll(pl_graph *g, pl_val x, int axis, int64_t shift);
#define PL_DIMS(...)                                                                               \
 (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                \
 {                                                                                                 \
  __VA_ARGS__                                                                                      \
 }
/* pl_reshape(g, x, PL_DIMS(8, -1)) */

/* ---- reductions ------------------------------------------------------------------------- */
PL_API pl_val pl_sum(pl_graph *g, pl_val x, uint32_t axes, bool keep);
PL_API pl_val pl_mean(pl_graph *g, pl_val x, uint32_t axes, bool keep);
PL_API pl_val pl_max_over(pl_graph *g, pl_val x, uint32_t axes, bool keep);
PL_API pl_val pl_min_over(pl_graph *g, pl_val x, uint32_t axes, bool keep);
/* Computes mean and biased variance in one pass, in f32 for bf16 and f16 inputs. */
PL_API void pl_moments(pl_graph *g, pl_val x, uint32_t axes, bool keep, pl_val *mean, pl_val *var);
PL_API pl_val pl_argmax(pl_graph *g, pl_val x, int axis); /* i32, first of equals */
/* Dequantizes x, the bytes of a quantized slot, to numbers of `type`. No gradient. */
PL_API pl_val pl_dequantize(pl_graph *g, pl_val x, pl_quant form, const pl_type *type);
PL_API pl_val pl_cumsum(pl_graph *g, pl_val x, int axis, bool reverse);
PL_API pl_val pl_softmax(pl_graph *g, pl_val x, int axis);
PL_API pl_val pl_log_softmax(pl_graph *g, pl_val x, int axis);

/* ---- sorting and indexing ------------------------------------------------------------------
 * Indices are i32 or i64. Sorting is stable; NaN sorts last. */
PL_API void pl_sort(pl_graph *g, pl_val x, int axis, bool descending, pl_val *values,
                    pl_val *indices); /* indices i32, may be NULL */
PL_API void pl_topk(pl_graph *g, pl_val x, int64_t k, int axis, pl_val *values,
                    pl_val *indices); /* the k largest, in descending order */
/* Picks rows of table [R, ...] by indices of any shape; result indices.shape + table.shape[1:]. */
PL_API pl_val pl_take(pl_graph *g, pl_val table, pl_val indices);
/* Adds row i of updates into row indices[i] of zeros [rows, ...]. The adjoint of pl_take. */
PL_API pl_val pl_scatter_add(pl_graph *g, pl_val updates, pl_val indices, int64_t rows);
/* out[.., i, ..] = x[.., indices[.., i, ..], ..] along axis; other dims of both agree. */
PL_API pl_val pl_take_along(pl_graph *g, pl_val x, pl_val indices, int axis);
PL_API pl_val pl_put_along_add(pl_graph *g, pl_val updates, pl_val indices, int axis, int64_t size);

/* ---- products --------------------------------------------------------------------------- */
/* [.., M, K] x [.., K, N]; batch dimensions broadcast; ta, tb: the last two dims are swapped. */
PL_API pl_val pl_matmul(pl_graph *g, pl_val a, pl_val b, bool ta, bool tb);
/* x [.., in] times w [out, in] transposed, plus bias [out] or PL_NO_VAL. */
PL_API pl_val pl_linear(pl_graph *g, pl_val x, pl_val w, pl_val bias);

typedef struct pl_conv_opts {
    int stride[3], dilation[3]; /* per spatial dim, outermost first; 0 reads as 1 */
    int pad_lo[3], pad_hi[3];
    int groups; /* 0 reads as 1 */
} pl_conv_opts;
/* x [N, s.., I], w [O, k.., I/groups], bias [O] or PL_NO_VAL; 1 to 3 spatial dims. */
PL_API pl_val pl_conv(pl_graph *g, pl_val x, pl_val w, pl_val bias, const pl_conv_opts *o);
/* The adjoint of pl_conv in x: x [N, s.., O], w [O, k.., I/groups] as in pl_conv, result
 * [N, out.., I]; out size (s-1)*stride + dilation*(k-1) + 1 - pads + out_pad. */
PL_API pl_val pl_conv_transpose(pl_graph *g, pl_val x, pl_val w, pl_val bias, const pl_conv_opts *o,
                                const int *out_pad);

/* Depthwise, with one filter per sample: x [N, s.., C], w [N, k.., C]; ignores o->groups. */
PL_API pl_val pl_conv_per_sample(pl_graph *g, pl_val x, pl_val w, const pl_conv_opts *o);

/* ---- pools, resizing, patches ----------------------------------------------------------- */
typedef struct pl_pool_opts {
    int kernel[3], stride[3], pad_lo[3], pad_hi[3]; /* stride 0 reads as kernel */
    bool count_pad; /* averages divide by the whole window, padding included */
} pl_pool_opts;
PL_API pl_val pl_max_pool(pl_graph *g, pl_val x, const pl_pool_opts *o);
PL_API pl_val pl_avg_pool(pl_graph *g, pl_val x, const pl_pool_opts *o);
/* Windows as PyTorch's AdaptiveAvgPool: [floor(i*S/O), ceil((i+1)*S/O)). */
PL_API pl_val pl_adaptive_avg_pool(pl_graph *g, pl_val x, const int64_t *out);

typedef enum pl_resize_mode {
    PL_RESIZE_NEAREST,
    PL_RESIZE_LINEAR,
    PL_RESIZE_CUBIC /* a = -0.75, as PyTorch */
} pl_resize_mode;
/* Spatial dims of [N, s.., C] to out sizes; no antialiasing. */
PL_API pl_val pl_resize(pl_graph *g, pl_val x, const int64_t *out, pl_resize_mode mode,
                        bool align_corners);
/* Patches of [N, H, W, C] to [N, positions, kh*kw*C] (window position slow, channel fast). */
PL_API pl_val pl_unfold(pl_graph *g, pl_val x, const pl_conv_opts *o, const int *kernel);

/* ---- random numbers ------------------------------------------------------------------------
 * key: i64[2] = {seed, step}, usually a state slot (pl_rng_key). Each constructor call is a
 * separate stream; the same key gives the same numbers on any device, at any time. */
PL_API pl_val pl_rng_key(pl_graph *g); /* the store's "rng" counter slot, made if absent */
PL_API pl_val pl_random_uniform(pl_graph *g, pl_val key, pl_type type); /* [0,1) */
PL_API pl_val pl_random_normal(pl_graph *g, pl_val key, pl_type type);
PL_API pl_val pl_random_permutation(pl_graph *g, pl_val key, int64_t n); /* i32[n] */
/* Zero with probability p, else x/(1-p). pl_dropout_channels drops whole channels of [N, .., C]. */
PL_API pl_val pl_dropout(pl_graph *g, pl_val x, pl_val key, double p);
PL_API pl_val pl_dropout_channels(pl_graph *g, pl_val x, pl_val key, double p);

/* ---- across ranks --------------------------------------------------------------------------
 * Ranks are processes that run the same graph on different samples. Each call is one exchange
 * between all ranks, identified by its name (two calls with the same value and name are one
 * exchange). With one rank the result is x. Gradients are those of the sum over ranks. */
/* Sum over ranks. */
PL_API pl_val pl_all_reduce(pl_graph *g, pl_val x, int ranks, const char *name);
/* Rows [rank*k, rank*k + k) of the sum of x [ranks*k, ..]. */
PL_API pl_val pl_reduce_scatter(pl_graph *g, pl_val x, int ranks, const char *name);
/* x [k, ..] of all ranks, concatenated: [ranks*k, ..]. */
PL_API pl_val pl_all_gather(pl_graph *g, pl_val x, int ranks, const char *name);
PL_API pl_val pl_broadcast_from(pl_graph *g, pl_val x, int ranks, int root, const char *name);

/* ---- fused ------------------------------------------------------------------------------ */
/* softmax(q k^T * scale) v over tokens, without storing the probabilities. q [B, N, H, D],
 * k, v [B, M, H, D]; scale 0 reads as 1/sqrt(D). */
PL_API pl_val pl_attention(pl_graph *g, pl_val q, pl_val k, pl_val v, double scale, bool causal);
/* The same with a mask that broadcasts to [B, H, N, M]: bool, true where a query sees a key; or
 * floats that are added to the scores, numbers below -2e30 as -2e30. A query that sees no key (no
 * score above -1e30) gets zeros. The gradient of a mask stores the probabilities. */
PL_API pl_val pl_attention_masked(pl_graph *g, pl_val q, pl_val k, pl_val v, pl_val mask,
                                  double scale, bool causal);
/* Options of cross-entropy; zero: none. */
typedef struct pl_cross_entropy {
    double smoothing; /* share of the target that is spread evenly over all classes */
    /* rows with this label are ignored: their loss and gradient are 0. 0: no row is ignored, unless
     * ignore_zero */
    int64_t ignore;
    bool ignore_zero; /* rows with label 0 are ignored */
    double z_loss;    /* adds z_loss * (log of the sum of exponentials)^2 to the loss of a row */
    pl_val weight;    /* f32 [K]: weights of the classes; PL_NO_VAL: all 1 */
} pl_cross_entropy;
/* Cross-entropy of each row, f32: logits [.., K] of any float type, labels i32 or i64 [..]. The
 * loss of a row is weight[label] * -log softmax(row)[label] with the options above; NaN where the
 * label is not in 0..K-1 and not ignored. *lse (may be NULL): the logarithm of the sum of
 * exponentials of each row. Backward computes probabilities from logits and lse, in place over the
 * logits, without a further tensor of this size. */
PL_API pl_val pl_cross_entropy_rows(pl_graph *g, pl_val logits, pl_val labels, pl_cross_entropy o,
                                    pl_val *lse);
/* Cubic Bezier curve: maps 5 consecutive channels (t, p0..p3) to one, [.., 5F] to [.., F], with s =
 * sigmoid(t); silu_points applies SiLU to p0..p3 first. */
PL_API pl_val pl_bezier(pl_graph *g, pl_val x, bool silu_points);

/* ---- optimizer updates --------------------------------------------------------------------- */
/* Tensors have the weight's shape and any float type; they are updated in f32 (in f64 where one is)
 * and rounded to the type they had. A state may also be packed in 8 bits: u8[blocks, 260], zeros at
 * first, one block for each 256 elements of the weight. lr: f32 scalar. step: i64 scalar, 1 at the
 * first update. scale: f32 scalar that multiplies the gradient (clipping, unscaling); when scale is
 * not finite, no value changes by a bit, for any gradient. key (pl_rng_key; PL_NO_VAL: none): bf16
 * results are rounded up or down at random instead of to nearest, so that small changes are not
 * lost. Each function returns the new values; the caller assigns them. */
typedef struct pl_adam_opts {
    double beta1, beta2, eps, weight_decay;
    bool decoupled; /* AdamW: decay multiplies the weight instead of adding to the gradient */
    pl_val key;
} pl_adam_opts;
/* vmax is PL_NO_VAL unless amsgrad. */
PL_API void pl_adam(pl_graph *g, const pl_adam_opts *o, pl_val lr, pl_val step, pl_val scale,
                    pl_val grad, pl_val *w, pl_val *m, pl_val *v, pl_val *vmax);
typedef struct pl_sgd_opts {
    double momentum, dampening, weight_decay;
    bool nesterov;
    pl_val key;
} pl_sgd_opts;
/* buf is PL_NO_VAL unless momentum is used. */
PL_API void pl_sgd(pl_graph *g, const pl_sgd_opts *o, pl_val lr, pl_val step, pl_val scale,
                   pl_val grad, pl_val *w, pl_val *buf);
typedef struct pl_lion_opts {
    double beta1, beta2, weight_decay;
    pl_val key;
} pl_lion_opts;
PL_API void pl_lion(pl_graph *g, const pl_lion_opts *o, pl_val lr, pl_val scale, pl_val grad,
                    pl_val *w, pl_val *m);
typedef struct pl_rmsprop_opts {
    double alpha, eps, weight_decay, momentum;
    bool centered;
    pl_val key;
} pl_rmsprop_opts;
/* mean is used when centered, buf when momentum != 0; PL_NO_VAL otherwise. */
PL_API void pl_rmsprop(pl_graph *g, const pl_rmsprop_opts *o, pl_val lr, pl_val scale, pl_val grad,
                       pl_val *w, pl_val *sq, pl_val *mean, pl_val *buf);

#ifdef __cplusplus
}
#endif
#endif
