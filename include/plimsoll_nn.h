/* plimsoll_nn.h - layers, initial values and losses: model code that reads like its PyTorch
 * forward.
 *
 *     pl_nn *m = pl_nn_new(g, true);
 *     pl_nn_push(m, "encoder.%d", i);                                names: encoder.0.conv...
 *     x = pl_nn_conv2d(m, x, "conv", 64, (pl_nn_conv){3, .pad = 1});    kernel 3, padding 1
 *     x = pl_relu(m->g, pl_nn_batch_norm(m, x, "norm", (pl_nn_norm){0}));
 *     pl_nn_pop(m);
 *     ...
 *     PL_TRY(pl_nn_finish(m));
 *     pl_nn_free(m);
 *
 * A layer function creates the slots of its parameters in the graph's store (a slot of that name is
 * shared), with PyTorch's names, file layout and default initial values, and applies the layer.
 * Input sizes come from the values. A zeroed options struct means PyTorch's defaults.
 *
 * Shapes: x is [N, s.., C], channels last, where PyTorch has [N, C, s..]. Matrices are [.., C].
 *
 * State that a forward pass changes (running statistics, power iterations, the random key) is
 * chained through the context: a second use in the same graph reads the value that the first use
 * wrote, and pl_nn_finish assigns each slot once. T calls of one BatchNorm have the same effect as
 * in PyTorch.
 */
#ifndef PLIMSOLL_NN_H
#define PLIMSOLL_NN_H

#include "plimsoll_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- context: a graph, a path of names, changed state ------------------------------------ */
typedef struct pl_nn {
    pl_graph *g;     /* borrowed */
    pl_dtype dtype;  /* of new parameters: f32; f64 in tests */
    bool training;   /* dropout draws, BatchNorm uses batch statistics, power iterations run */
    bool frozen;     /* new parameters are not trainable */
    bool bn_average; /* BatchNorm called T times: one update with the mean of the T statistics,
                        instead of T updates one after another */
    struct pl_nn_state *state; /* private */
} pl_nn;

/* Returns NULL when memory runs out. One context per graph: it caches the value of every slot. */
PL_API pl_nn *pl_nn_new(pl_graph *g, bool training);
PL_API void pl_nn_free(pl_nn *m);
/* Assigns all changed slots (pl_nn_update), advances the random key if training read it, returns
 * the first error of context or graph. Call it once, after the model and the optimizer. */
PL_API pl_status pl_nn_finish(pl_nn *m) PL_MUST_USE;
/* Records an error of model code; the first one is kept. Returns PL_NO_VAL. */
PL_API pl_val pl_nn_fail(pl_nn *m, pl_status code, const char *fmt, ...) PL_PRINTF(3, 4);

/* Appends to the path of slot names and opens a graph scope of that name. */
PL_API void pl_nn_push(pl_nn *m, const char *fmt, ...) PL_PRINTF(2, 3);
PL_API void pl_nn_pop(pl_nn *m);
/* Returns a formatted name that lives as long as the context: pl_nn_name(m, "conv.%d", i). */
PL_API const char *pl_nn_name(pl_nn *m, const char *fmt, ...) PL_PRINTF(2, 3);

/* ---- initial values --------------------------------------------------------------------- */
typedef enum pl_nn_fan { PL_FAN_IN, PL_FAN_OUT } pl_nn_fan;
typedef enum pl_nn_init_kind {
    PL_NN_INIT_DEFAULT, /* the default of the layer */
    PL_NN_INIT_CONSTANT,
    PL_NN_INIT_NORMAL,
    PL_NN_INIT_UNIFORM,
    PL_NN_INIT_XAVIER_NORMAL,
    PL_NN_INIT_XAVIER_UNIFORM,
    PL_NN_INIT_KAIMING_NORMAL,
    PL_NN_INIT_KAIMING_UNIFORM,
    PL_NN_INIT_TRUNC_NORMAL
} pl_nn_init_kind;
typedef struct pl_nn_init {
    pl_nn_init_kind kind;
    double a, b; /* constant a; normal mean a, std b; uniform [a,b); xavier, kaiming: gain a */
    pl_nn_fan fan;
    double lo, hi; /* trunc_normal: values outside are redrawn */
} pl_nn_init;

PL_API pl_nn_init pl_nn_constant(double value);
PL_API pl_nn_init pl_nn_normal(double mean, double std);
/* Normal, drawn again while it is not in [lo, hi]; torch's trunc_normal_ uses -2 and 2 for every
 * std. */
PL_API pl_nn_init pl_nn_trunc_normal(double mean, double std, double lo, double hi);
PL_API pl_nn_init pl_nn_uniform(double lo, double hi);
PL_API pl_nn_init pl_nn_xavier_normal(double gain);
PL_API pl_nn_init pl_nn_xavier_uniform(double gain);
PL_API pl_nn_init pl_nn_kaiming_normal(pl_nn_fan fan, double gain);
PL_API pl_nn_init pl_nn_kaiming_uniform(pl_nn_fan fan, double gain);
/* Returns the gain of "linear", "relu", "leaky_relu" (slope a), "tanh", "sigmoid" or "selu", as
 * torch.nn.init. */
PL_API double pl_nn_gain(const char *nonlinearity, double a);
/* Returns the distribution of an init for a weight with these fans. */
PL_API pl_init pl_nn_init_of(pl_nn_init i, double fan_in, double fan_out);

/* ---- slots by hand -------------------------------------------------------------------------
 * Shapes are channels-last. If init needs fans, the slot is treated as a matrix [dim 0, product of
 * the others]. */
/* Creates and reads a trainable parameter "<path>.<name>". */
PL_API pl_val pl_nn_param(pl_nn *m, const char *name, int rank, const int64_t *dim,
                          pl_nn_init init);
/* The same with another shape in files, e.g. a slot [C] stored as [C,1,1]. */
PL_API pl_val pl_nn_param_as(pl_nn *m, const char *name, int rank, const int64_t *dim,
                             int file_rank, const int64_t *file_dim, pl_nn_init init);
/* Creates a parameter that the forward pass does not use; it is counted and saved. */
PL_API void pl_nn_declare(pl_nn *m, const char *name, int rank, const int64_t *dim,
                          pl_nn_init init);
/* Creates a buffer slot and returns its index, -1 on error; pl_nn_read and pl_nn_update read and
 * change it. */
PL_API int pl_nn_buffer(pl_nn *m, const char *name, pl_type type, pl_init init);
PL_API int pl_nn_buffer_as(pl_nn *m, const char *name, pl_type type, int file_rank,
                           const int64_t *file_dim, pl_init init);
/* Returns a constant from an array of the host: elements of `type`, row-major, which are copied. It
 * is a buffer "<path>.<name>", so model files have it. */
PL_API pl_val pl_nn_constant_array(pl_nn *m, const char *name, pl_type type, const void *data);
/* Returns the current value of a slot in this graph. */
PL_API pl_val pl_nn_read(pl_nn *m, int slot);
/* Sets the current value of a slot to v; pl_nn_finish assigns the last value to the slot. */
PL_API void pl_nn_update(pl_nn *m, int slot, pl_val v);
/* Returns the random key of this graph; pl_nn_finish then advances its step. */
PL_API pl_val pl_nn_key(pl_nn *m);

/* Matches slot names. A pattern is a list "compressor.*,expander.*,!*.bias": * stands for any text,
 * ? for one character; ! excludes; spaces around items do not count; the last matching item
 * decides. NULL means "*". */
PL_API bool pl_nn_match(const char *pattern, const char *name);
/* Returns the number of elements of the parameters that match. */
PL_API int64_t pl_nn_count(const pl_store *s, const char *pattern, bool trainable_only);
PL_API int pl_nn_set_trainable(pl_store *s, const char *pattern,
                               bool on); /* returns how many matched */
PL_API int pl_nn_set_decay(pl_store *s, const char *pattern, bool on);

/* ---- linear and convolution ----------------------------------------------------------------
 * Default initial values: weight and bias uniform in +-1/sqrt(fan_in). */
typedef enum pl_nn_spectral {
    PL_SPECTRAL_NONE,
    PL_SPECTRAL_TORCH, /* slots weight_orig, weight_u, weight_v */
    PL_SPECTRAL_PLAIN  /* slots weight, u, v */
} pl_nn_spectral;

typedef struct pl_nn_conv {
    int kernel, stride, pad, dilation, groups; /* stride, dilation, groups: 0 reads as 1 */
    int out_pad;                               /* transposed only */
    bool no_bias;
    int kernels[3], strides[3], pads[3]; /* per axis, outermost first; used when kernels[0] != 0 */
    pl_nn_init init, bias_init;
    pl_nn_spectral spectral; /* weight / its largest singular value, see pl_nn_spectral_norm */
} pl_nn_conv;
PL_API pl_val pl_nn_conv1d(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_conv o);
PL_API pl_val pl_nn_conv2d(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_conv o);
PL_API pl_val pl_nn_conv3d(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_conv o);
PL_API pl_val pl_nn_conv_transpose2d(pl_nn *m, pl_val x, const char *name, int64_t out,
                                     pl_nn_conv o);
PL_API pl_val pl_nn_conv_transpose3d(pl_nn *m, pl_val x, const char *name, int64_t out,
                                     pl_nn_conv o);

typedef struct pl_nn_lin {
    bool no_bias;
    pl_nn_init init, bias_init;
    pl_nn_spectral spectral;
} pl_nn_lin;
/* x [.., in] to [.., out]. */
PL_API pl_val pl_nn_linear(pl_nn *m, pl_val x, const char *name, int64_t out, pl_nn_lin o);

/* Picks rows of a table [rows, width], initialised N(0,1), by integer ids; result ids.shape +
 * [width]. */
PL_API pl_val pl_nn_embedding(pl_nn *m, pl_val ids, const char *name, int64_t rows, int64_t width);
/* The same with another initial table, e.g. pl_nn_normal(0, 0.02). */
PL_API pl_val pl_nn_embedding_with(pl_nn *m, pl_val ids, const char *name, int64_t rows,
                                   int64_t width, pl_nn_init init);

/* Returns the weight w [O, ..] divided by u^T W v. u and v are buffers; each training call advances
 * them by one power iteration, and no gradient flows through them. Model code may call it, too. */
PL_API pl_val pl_nn_spectral_norm(pl_nn *m, pl_val w, pl_nn_spectral names);

/* ---- norms ------------------------------------------------------------------------------ */
typedef struct pl_nn_norm {
    double eps;      /* 0: 1e-5 (rms_norm 1e-6) */
    double momentum; /* BatchNorm; 0: 0.1 */
    bool no_affine;
} pl_nn_norm;
/* Normalises over each group of channels and all positions. */
PL_API pl_val pl_nn_group_norm(pl_nn *m, pl_val x, const char *name, int64_t groups, pl_nn_norm o);
PL_API pl_val pl_nn_layer_norm(pl_nn *m, pl_val x, const char *name, pl_nn_norm o);
PL_API pl_val pl_nn_rms_norm(pl_nn *m, pl_val x, const char *name, pl_nn_norm o);
/* x [N, .., C]: BatchNorm1d, 2d and 3d. Slots weight, bias, running_mean, running_var and
 * num_batches_tracked. The running variance is the unbiased one. */
PL_API pl_val pl_nn_batch_norm(pl_nn *m, pl_val x, const char *name, pl_nn_norm o);

/* ---- attention and positions ------------------------------------------------------------ */
/* q [B,N,E], source [B,M,E] (the same value for self-attention). Slots in_proj_weight [3E,E],
 * in_proj_bias, out_proj.weight, out_proj.bias. Probabilities are not stored. */
PL_API pl_val pl_nn_multi_head_attention(pl_nn *m, pl_val q, pl_val source, const char *name,
                                         int heads);
/* softmax(q k^T/sqrt(d)) v of [B,N,H*d], [B,M,H*d], [B,M,H*d] to [B,N,H*d]. */
PL_API pl_val pl_nn_attend(pl_graph *g, pl_val q, pl_val k, pl_val v, int heads);

/* Options of attention; zero: none. heads must be set. */
typedef struct pl_nn_attention {
    int heads;
    int kv_heads; /* heads of keys and values, each read by heads/kv_heads heads of queries
                      (grouped-query attention); 0: heads */
    bool causal;  /* query i sees keys 0..i */
    pl_val mask;  /* bool: true where a query may see a key; or float: added to the scores. Shape
                      [N,M], [B,1,N,M] or any that broadcasts to [B,heads,N,M]. Probabilities are
                      stored only where the mask is trained. A query that sees no key gets zeros */
    pl_val
        angles; /* rotary positions [N, d/2] (pl_nn_rope_angles): turns queries and keys, N = M */
    bool half_split; /* rotation of pairs (i, i + d/2) instead of neighbours: see pl_nn_rope */
    double scale;    /* of the scores; 0: 1/sqrt(d) */
    bool no_bias;    /* layers: projections without bias */
} pl_nn_attention;
/* softmax(q k^T scale + mask) v of q [B,N,heads*d], k, v [B,M,kv_heads*d] to [B,N,heads*d]. */
PL_API pl_val pl_nn_attend_with(pl_graph *g, pl_val q, pl_val k, pl_val v, pl_nn_attention o);
/* As pl_nn_multi_head_attention, with options; kv_heads must be 0 or heads. no_bias leaves out
 * in_proj_bias and out_proj.bias. */
PL_API pl_val pl_nn_multi_head_attention_with(pl_nn *m, pl_val q, pl_val source, const char *name,
                                              pl_nn_attention o);
/* Attention with separate projections, as in Llama: slots q_proj.weight [heads*d,E], k_proj.weight
 * and v_proj.weight [kv_heads*d,E], o_proj.weight [E,heads*d], and biases of these names unless
 * no_bias; d = E/heads. */
PL_API pl_val pl_nn_grouped_query_attention(pl_nn *m, pl_val q, pl_val source, const char *name,
                                            pl_nn_attention o);

typedef struct pl_nn_sinusoid {
    bool sin_first;    /* [sin, cos] instead of [cos, sin] */
    bool last_is_full; /* the last frequency is 1/period exactly: exponents k/(half-1) */
    bool power;        /* frequencies as period^(-k/half) instead of exp(-ln(period) k/half); they
                          differ in rounding only */
    double period;     /* 0: 10000 */
} pl_nn_sinusoid;
/* Maps t [B] (any dtype) to [B, dim], f32 (f64 when t is): cos and sin of t * period^(-k/half), k <
 * half = dim/2. */
PL_API pl_val pl_nn_time_features(pl_graph *g, pl_val t, int64_t dim, pl_nn_sinusoid o);
/* Returns [h*w, dim], f32 or f64: half of the channels for y, half for x, each sin f0, cos f0, sin
 * f1, cos f1, ... with frequencies fk = 10000^(-k/(dim/4)). */
PL_API pl_val pl_nn_position_2d(pl_graph *g, pl_dtype dtype, int64_t h, int64_t w, int64_t dim);
/* Returns the rotation angles [n_0*n_1*.., sum of width/2], f32 or f64, of a grid: axis i rotates
 * width[i] channels, frequencies base^(-2k/width[i]). */
PL_API pl_val pl_nn_rope_angles(pl_graph *g, pl_dtype dtype, int axes, const int64_t *size,
                                const int64_t *width, double base);
/* Rotates channel pairs of x [B,N,H,D] by angles [N,D/2]: neighbours (2i, 2i+1), or with
 * half_split (i, i+D/2). */
PL_API pl_val pl_nn_rope(pl_graph *g, pl_val x, pl_val angles, bool half_split);
/* Returns n evenly spaced numbers from lo to hi, both included, [n] (torch.linspace). */
PL_API pl_val pl_nn_linspace(pl_graph *g, pl_dtype dtype, double lo, double hi, int64_t n);

/* ---- activations, gates, modulation ----------------------------------------------------- */
/* Applies "relu", "leaky_relu" (.01), "silu", "gelu", "gelu_tanh", "tanh", "sigmoid", "softplus" or
 * "identity"; another name is an error. */
PL_API pl_val pl_nn_activation(pl_nn *m, pl_val x, const char *name);
/* Does nothing unless the context is training. */
PL_API pl_val pl_nn_dropout(pl_nn *m, pl_val x, double p);
PL_API pl_val pl_nn_dropout_channels(pl_nn *m, pl_val x, double p);
/* Stochastic depth: sets whole samples of x [N, ..] to zero with probability p and divides the
 * others by 1 - p; does nothing unless training. For the branch of a residual block. */
PL_API pl_val pl_nn_drop_path(pl_nn *m, pl_val x, double p);
/* A linear layer to 2*out; the first half times GELU of the second half. */
PL_API pl_val pl_nn_geglu(pl_nn *m, pl_val x, const char *name, int64_t out);
/* SwiGLU, as in Llama: down_proj(silu(gate_proj(x)) * up_proj(x)), without biases; slots
 * gate_proj.weight and up_proj.weight [hidden,E], down_proj.weight [E,hidden]. */
PL_API pl_val pl_nn_swiglu(pl_nn *m, pl_val x, const char *name, int64_t hidden);
/* Cubic Bezier curve with s = sigmoid(x) and four learned values per channel, slots p.0 to p.3,
 * stored as [C,1,1] in files. */
PL_API pl_val pl_nn_trainable_bezier(pl_nn *m, pl_val x, const char *name, const double start[4]);
/* Reshapes a vector [N,C] (or [C]) to broadcast over x [N,s..,C]: [N,1..,C]. */
PL_API pl_val pl_nn_over(pl_graph *g, pl_val v, pl_val x);
/* FiLM: gamma*x + beta. Vectors [N,C] are spread over positions. */
PL_API pl_val pl_nn_film(pl_graph *g, pl_val x, pl_val gamma, pl_val beta);
/* SPADE, AdaLN: x*(1+scale) + shift; maps of x's shape or vectors [N,C]. */
PL_API pl_val pl_nn_modulate(pl_graph *g, pl_val x, pl_val scale, pl_val shift);
/* x / max(its L2 norm along axis, eps) (torch F.normalize). */
PL_API pl_val pl_nn_normalize(pl_graph *g, pl_val x, int axis, double eps);
PL_API pl_val pl_nn_upsample_nearest(pl_graph *g, pl_val x, int factor);
PL_API pl_val pl_nn_global_average(pl_graph *g, pl_val x); /* [N,s..,C] to [N,C] */

/* ---- losses: f32 (or f64) scalars unless said otherwise --------------------------------- */
PL_API pl_val pl_loss_mse(pl_graph *g, pl_val x, pl_val y);
PL_API pl_val pl_loss_l1(pl_graph *g, pl_val x, pl_val y);
/* Elementwise, same shape as x; take the mean or use pl_loss_hard_mining. */
PL_API pl_val pl_loss_huber(pl_graph *g, pl_val x, pl_val y, double delta);
PL_API pl_val pl_loss_smooth_l1(pl_graph *g, pl_val x, pl_val y, double beta);
/* Mean over rows of -log softmax(logits)[label]; logits [.., K], labels i32 or i64 [..]. */
PL_API pl_val pl_loss_cross_entropy(pl_graph *g, pl_val logits, pl_val labels);
/* The same with torch's options (plimsoll_ops.h): label smoothing, an ignored label, weights of the
 * classes; and z-loss. The mean is over the rows that are not ignored, each with the weight of its
 * label; it is 0 when all rows are ignored. */
PL_API pl_val pl_loss_cross_entropy_with(pl_graph *g, pl_val logits, pl_val labels,
                                         pl_cross_entropy o);
/* Cross-entropy against two labels: the mean over rows of share * loss(labels) + (1 - share) *
 * loss(mixed), share f32 [..]; for mixup and CutMix. No row is ignored. */
PL_API pl_val pl_loss_cross_entropy_mixed(pl_graph *g, pl_val logits, pl_val labels, pl_val mixed,
                                          pl_val share, pl_cross_entropy o);
PL_API pl_val pl_loss_bce_with_logits(pl_graph *g, pl_val logits, pl_val target);
PL_API pl_val pl_loss_hinge_d(pl_graph *g, pl_val on_real, pl_val on_fake);
PL_API pl_val pl_loss_hinge_g(pl_graph *g, pl_val on_fake);
/* KL(N(mu, e^logvar) | N(0,1)): summed over all axes but the first, mean over the first. */
PL_API pl_val pl_loss_kl(pl_graph *g, pl_val mu, pl_val logvar);
/* Cosine along axis, which is removed; each norm is at least 1e-8. */
PL_API pl_val pl_loss_cosine_similarity(pl_graph *g, pl_val x, pl_val y, int axis);
/* Mean of per-sample losses [B], with the int(B*fraction) largest multiplied by factor. */
PL_API pl_val pl_loss_hard_mining(pl_graph *g, pl_val per_sample, double fraction, double factor);
/* Mean over samples of |d(sum of logits)/dx|^2. logits must come from x in this graph. */
PL_API pl_val pl_loss_r1(pl_graph *g, pl_val logits, pl_val x);
/* Sliced Wasserstein distance between k x k patches (zero padding k/2) of two [N,H,W,C] maps. rows:
 * which of the N*H*W patches to use, in both maps (PL_NO_VAL: all). directions [C*k*k, P]: raw
 * draws, normalised here; rows in PyTorch's order (channel slow). */
PL_API pl_val pl_loss_patch_swd(pl_graph *g, pl_val x, pl_val y, int k, pl_val rows,
                                pl_val directions);
/* Mean squared difference between the self-similarity matrices of two [N,H,W,C] maps: cosines
 * between all pairs of positions (positions: [S], PL_NO_VAL: all). */
PL_API pl_val pl_loss_cosine_ssm(pl_graph *g, pl_val x, pl_val y, pl_val positions);
/* One level of LPIPS. Each map is divided by (its norm along channels + 1e-10); the squared
 * difference is multiplied by weights [C], summed over channels, and averaged over the rest. */
PL_API pl_val pl_loss_lpips_level(pl_graph *g, pl_val x, pl_val y, pl_val weights);

#ifdef __cplusplus
}
#endif
#endif
