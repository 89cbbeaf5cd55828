/* optim.cu - optimiser updates: one pass over a weight, its gradient and its moments; one launch
 * updates many consecutive weights.
 *
 *   weights    [  a  ][b][    c    ][d]      in tiles of PIECE elements
 *   blocks      0 1 2  0  1 2 0 1 2  0       there are as many as the GPU runs at once
 *
 * Neighbouring tiles run at the same time, which memory likes: ranges of tiles for each block reach
 * three quarters of the rate.
 *
 * Formulas and order of operations are those of ops/net/optim.c. Learning rate, gradient scale and
 * step number lie on the device, so one thread of each block computes the coefficients (bias
 * corrections and the like) there, in double, and rounds them once. A scale that is not finite
 * changes no bit of weights and states. Outputs may be the bytes of their inputs: a thread reads an
 * element of every tensor before it writes it.
 *
 * f32 tensors, with a gradient in any float type, move 16 bytes at a time. Other mixtures are
 * processed element by element with conversions; with f64 among them, in double. Packed states and
 * rounding at random are in optim_tiles.h.
 */
#include "cuda/device/launch.h"
#include "cuda/ops/many.h"
#include "cuda/ops/optim_rule.h"
#include "cuda/ops/optim_tiles.h"

#include "ops/core/attr.h"

/* Elements of a tile of update_f32, and its blocks on a multiprocessor. A thread reads both of its
 * packets before it computes: more bytes are in flight. */
enum { PACKETS = 2, PIECE = PACKETS * 4 * THREADS, RESIDENT = 4 };

/* ---- kernels ---------------------------------------------------------------------------- */
/* One element of f32 tensors. */
template <int RULE, class G>
static __device__ __forceinline__ void update_one(const update_piece &p, const coeffs<float> &k,
                                                  int64_t i)
{
    const int n_s = states_of<RULE>::n;
    float w = static_cast<const float *>(p.w)[i], s[STATES] = {0, 0, 0};
#pragma unroll
    for (int j = 0; j < n_s; j++) s[j] = static_cast<const float *>(p.s[j])[i];
    apply<RULE, float>(k, (float)pl_get(static_cast<const G *>(p.grad)[i]), &w, s);
    static_cast<float *>(p.w_out)[i] = w;
#pragma unroll
    for (int j = 0; j < n_s; j++) static_cast<float *>(p.s_out[j])[i] = s[j];
}

/* Four elements of f32 tensors. */
template <int RULE, class G> struct packet {
    static const int n_s = states_of<RULE>::n;
    pl_pack<G, 4> grad;
    pl_pack<float, 4> w, s[STATES];

    __device__ __forceinline__ void read(const update_piece &p, int64_t i)
    {
        grad = pl_read<G, 4>(static_cast<const G *>(p.grad) + i);
        w = pl_read<float, 4>(static_cast<const float *>(p.w) + i);
#pragma unroll
        for (int j = 0; j < n_s; j++)
            s[j] = pl_read<float, 4>(static_cast<const float *>(p.s[j]) + i);
    }
    __device__ __forceinline__ void update(const coeffs<float> &k)
    {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x[STATES] = {0, 0, 0};
#pragma unroll
            for (int j = 0; j < n_s; j++) x[j] = s[j].v[e];
            apply<RULE, float>(k, (float)pl_get(grad.v[e]), &w.v[e], x);
#pragma unroll
            for (int j = 0; j < n_s; j++) s[j].v[e] = x[j];
        }
    }
    __device__ __forceinline__ void write(const update_piece &p, int64_t i) const
    {
        pl_write<float, 4>(static_cast<float *>(p.w_out) + i, w);
#pragma unroll
        for (int j = 0; j < n_s; j++)
            pl_write<float, 4>(static_cast<float *>(p.s_out[j]) + i, s[j]);
    }
};

/* The elements of a tile from lo on that belong to this thread. */
template <int RULE, class G>
static __device__ __forceinline__ void update_packets(const update_piece &p, const coeffs<float> &k,
                                                      int64_t lo)
{
    const int64_t first = lo + 4 * threadIdx.x, step = 4 * THREADS;
    if (lo + PIECE <= p.n) {
        packet<RULE, G> x[PACKETS];
#pragma unroll
        for (int t = 0; t < PACKETS; t++) x[t].read(p, first + t * step);
#pragma unroll
        for (int t = 0; t < PACKETS; t++) {
            x[t].update(k);
            x[t].write(p, first + t * step);
        }
        return;
    }
    for (int64_t i = first; i < lo + PIECE && i < p.n; i += step) {
        if (i + 4 <= p.n) {
            packet<RULE, G> x;
            x.read(p, i);
            x.update(k);
            x.write(p, i);
        } else {
            for (int64_t e = i; e < p.n; e++) update_one<RULE, G>(p, k, e);
        }
    }
}

/* f32 tensors, a gradient of G. */
template <int RULE, class G, class U>
static __global__ void __launch_bounds__(THREADS, RESIDENT) update_f32(const __grid_constant__ U u)
{
    __shared__ coeffs<float> kinds[KINDS];
    if ((int)threadIdx.x < u.kinds)
        find_coeffs<RULE, float>(u, (int)threadIdx.x, &kinds[threadIdx.x]);
    __syncthreads();
    for (int tile = (int)blockIdx.x; tile < u.at[u.n - 1].end; tile += (int)gridDim.x) {
        int begin, piece = piece_at(u, tile, &begin);
        const update_piece &p = u.at[piece];
        const coeffs<float> &k = kinds[p.kind];
        const int64_t lo = (int64_t)(tile - begin) * PIECE;
        if (k.skip)
            keep(u, p, update_share{piece, lo, lo + PIECE < p.n ? lo + PIECE : p.n},
                 states_of<RULE>::n);
        else
            update_packets<RULE, G>(p, k, lo);
    }
}

/* Any float types. */
template <int RULE, class C>
static __global__ void __launch_bounds__(THREADS) update_any(const __grid_constant__ update_batch u)
{
    const int n_s = states_of<RULE>::n;
    const update_share b = share_of(u);
    const update_piece &p = u.at[b.piece];
    __shared__ coeffs<C> shared_k;
    if (threadIdx.x == 0) find_coeffs<RULE, C>(u, p.kind, &shared_k);
    __syncthreads();
    const coeffs<C> k = shared_k;
    if (!isfinite(get<double>(u.scale_type, u.scale, 0))) {
        keep(u, p, b, n_s);
        return;
    }
    for (int64_t i = b.lo + threadIdx.x; i < b.hi; i += THREADS) {
        C w = get<C>(u.w_type, p.w, i), s[STATES] = {0, 0, 0};
#pragma unroll
        for (int j = 0; j < n_s; j++) s[j] = get<C>(u.s_type[j], p.s[j], i);
        apply<RULE, C>(k, get<C>(u.grad_type, p.grad, i), &w, s);
        set<C>(u.w_type, p.w_out, i, w);
#pragma unroll
        for (int j = 0; j < n_s; j++) set<C>(u.s_type[j], p.s_out[j], i, s[j]);
    }
}

/* ---- launches --------------------------------------------------------------------------- */
static update_piece piece_of(const pl_call *c, int scalars)
{
    update_piece p = {};
    p.grad = const_cast<void *>(c->in[scalars]);
    p.w = const_cast<void *>(c->in[scalars + 1]);
    p.w_out = c->out[0];
    for (int i = 0; i + 1 < c->n_out; i++) {
        p.s[i] = const_cast<void *>(c->in[scalars + 2 + i]);
        p.s_out[i] = c->out[1 + i];
    }
    p.n = pl_type_elems(&c->out_type[0]);
    p.stream = (uint32_t) static_cast<const pl_optim_attr *>(c->attr)->stream;
    return p;
}

/* Fills what weights share; no weights yet. */
static void begin_batch(const pl_call *c, int scalars, update_large *to)
{
    const pl_optim_attr *a = static_cast<const pl_optim_attr *>(c->attr);
    update_large &u = *to;
    u.n = u.kinds = 0;
    u.key = NULL;
    for (int i = 0; i < STATES; i++) u.s_type[i] = 0;
    u.lr_type = (int)c->in_type[0].dtype, u.scale_type = (int)c->in_type[1].dtype;
    u.scale = c->in[1];
    u.step = scalars == 3 ? static_cast<const int64_t *>(c->in[2]) : NULL;
    if (c->n_in > scalars + 1 + c->n_out)
        u.key = static_cast<const int64_t *>(c->in[scalars + 1 + c->n_out]);
    u.grad_type = (int)c->in_type[scalars].dtype, u.w_type = (int)c->in_type[scalars + 1].dtype;
    for (int i = 0; i + 1 < c->n_out; i++) u.s_type[i] = (int)c->in_type[scalars + 2 + i].dtype;
    u.beta1 = a->beta1, u.beta2 = a->beta2, u.eps = a->eps;
    u.momentum = a->momentum, u.dampening = a->dampening, u.alpha = a->alpha;
    u.log_beta1 = log(a->beta1), u.log_beta2 = log(a->beta2);
    u.decoupled = a->decoupled;
}

/* Adds a weight; false: its learning rate and decay are new, and KINDS of them are there. */
static bool add_piece(update_large *u, const pl_call *c, int scalars)
{
    const double decay = static_cast<const pl_optim_attr *>(c->attr)->weight_decay;
    int kind = 0;
    while (kind < u->kinds && (u->lr[kind] != c->in[0] || u->weight_decay[kind] != decay)) kind++;
    if (kind == KINDS) return false;
    u->lr[kind] = c->in[0];
    u->weight_decay[kind] = decay;
    if (kind == u->kinds) u->kinds++;
    u->at[u->n] = piece_of(c, scalars);
    u->at[u->n++].kind = kind;
    return true;
}

/* Copies weights [first, first + FEW) of a large batch, as many as there are. */
static void cut_batch(const update_large &from, int first, update_batch *to)
{
    to->n = from.n - first < FEW ? from.n - first : FEW;
    for (int i = 0; i < to->n; i++) to->at[i] = from.at[first + i];
    to->kinds = from.kinds;
    for (int i = 0; i < from.kinds; i++) {
        to->lr[i] = from.lr[i];
        to->weight_decay[i] = from.weight_decay[i];
    }
    to->scale = from.scale, to->step = from.step, to->key = from.key;
    to->beta1 = from.beta1, to->beta2 = from.beta2, to->eps = from.eps;
    to->momentum = from.momentum, to->dampening = from.dampening, to->alpha = from.alpha;
    to->log_beta1 = from.log_beta1, to->log_beta2 = from.log_beta2;
    to->grad_type = from.grad_type, to->w_type = from.w_type;
    to->lr_type = from.lr_type, to->scale_type = from.scale_type;
    for (int i = 0; i < STATES; i++) to->s_type[i] = from.s_type[i];
    to->decoupled = from.decoupled;
}

/* Whether weights and states are f32 and all pointers multiples of 16 bytes. */
static bool by_fours(const pl_call *c, int scalars)
{
    for (int i = scalars; i < c->n_in; i++)
        if ((i > scalars && c->in_type[i].dtype != PL_F32) || pl_widest_at(16, c->in[i]) < 16)
            return false;
    if (c->in_type[scalars].dtype == PL_F64) return false;
    for (int i = 0; i < c->n_out; i++)
        if (pl_widest_at(16, c->out[i]) < 16) return false;
    return true;
}

/* Whether states are packed or results are rounded at random. */
static bool is_small(const pl_call *c, int scalars)
{
    bool packed = false;
    for (int i = 1; i < c->n_out; i++) packed |= c->out_type[i].dtype == PL_U8;
    return packed || c->n_in > scalars + 1 + c->n_out;
}

static bool any_f64(const pl_call *c, int scalars)
{
    bool any = false;
    for (int i = scalars; i < c->n_in; i++) any |= c->in_type[i].dtype == PL_F64;
    return any;
}

/* Whether b may share a's launch. */
static bool same_kind(const pl_call *a, const pl_call *b, int scalars)
{
    const pl_optim_attr *x = static_cast<const pl_optim_attr *>(a->attr);
    const pl_optim_attr *y = static_cast<const pl_optim_attr *>(b->attr);
    if (a->n_in != b->n_in) return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in_type[i].dtype != b->in_type[i].dtype) return false;
    for (int i = 1; i < scalars; i++)
        if (a->in[i] != b->in[i]) return false;
    if (a->n_in > scalars + 1 + a->n_out && a->in[a->n_in - 1] != b->in[b->n_in - 1]) return false;
    return x->beta1 == y->beta1 && x->beta2 == y->beta2 && x->eps == y->eps &&
           x->momentum == y->momentum && x->dampening == y->dampening && x->alpha == y->alpha &&
           x->decoupled == y->decoupled && by_fours(a, scalars) == by_fours(b, scalars);
}

/* Assigns blocks: few, because each computes the coefficients, and with equal work. */
static int deal(update_batch *u, int64_t least)
{
    int64_t most = (int64_t)pl_cuda_props_get()->sms * 8, sum = 0, blocks = 0;
    for (int i = 0; i < u->n; i++) sum += u->at[i].n;
    if (sum == 0) return 0;
    u->chunk = pl_ceil_div(pl_ceil_div(sum, most), least) * least;
    for (int i = 0; i < u->n; i++)
        u->at[i].end = (int)(blocks += pl_ceil_div(u->at[i].n, u->chunk));
    return (int)blocks;
}

template <int RULE> static pl_status launch_any(update_batch *u, bool small, bool f64)
{
    int blocks = deal(u, (small ? LANE : 1) * THREADS);
    if (blocks == 0) return PL_OK;
    dim3 grid((unsigned)blocks), block(THREADS);
    if (small)
        PL_LAUNCH((update_tiles<RULE>), grid, block, 0, *u);
    else if (f64)
        PL_LAUNCH((update_any<RULE, double>), grid, block, 0, *u);
    else
        PL_LAUNCH((update_any<RULE, float>), grid, block, 0, *u);
    PL_CUDA_LAUNCHED("an optimiser update");
    return PL_OK;
}

template <int RULE, class U> static pl_status launch_f32(U *u)
{
    int64_t tiles = 0, most = (int64_t)pl_cuda_props_get()->sms * RESIDENT;
    for (int i = 0; i < u->n; i++)
        u->at[i].end = (int)(tiles += pl_ceil_div(u->at[i].n, (int64_t)PIECE));
    PL_FAIL_IF(tiles > INT32_MAX, PL_ERR_UNSUPPORTED, "an update of weights with %lld elements",
               (long long)tiles * PIECE);
    if (tiles == 0) return PL_OK;
    dim3 grid((unsigned)(tiles < most ? tiles : most)), block(THREADS);
    if (u->grad_type == PL_F32)
        PL_LAUNCH((update_f32<RULE, float, U>), grid, block, 0, *u);
    else if (u->grad_type == PL_F16)
        PL_LAUNCH((update_f32<RULE, pl_f16, U>), grid, block, 0, *u);
    else
        PL_LAUNCH((update_f32<RULE, pl_bf16, U>), grid, block, 0, *u);
    PL_CUDA_LAUNCHED("an optimiser update");
    return PL_OK;
}

template <int RULE>
static pl_status launch(update_large *u, const pl_call *like, int scalars, update_batch *part)
{
    bool fours = by_fours(like, scalars), small = is_small(like, scalars);
    if (fours && !small && u->n > FEW) return launch_f32<RULE>(u);
    for (int first = 0; first < u->n; first += FEW) {
        cut_batch(*u, first, part);
        PL_TRY(fours && !small ? launch_f32<RULE>(part)
                               : launch_any<RULE>(part, small, any_f64(like, scalars)));
    }
    return PL_OK;
}

/* Runs all calls; calls that can share a launch do. A launch's parameters are too large for the
 * stack. */
template <int RULE> static pl_status run(const pl_call *const *c, int n, int scalars)
{
    static thread_local update_large u;
    static thread_local update_batch part;
    bool gone[PL_CUDA_MANY] = {false};
    for (int i = 0; i < n; i++) {
        if (gone[i]) continue;
        begin_batch(c[i], scalars, &u);
        for (int j = i; j < n && u.n < MOST; j++) {
            if (gone[j] || (j > i && !same_kind(c[i], c[j], scalars))) continue;
            gone[j] = add_piece(&u, c[j], scalars);
        }
        PL_TRY(launch<RULE>(&u, c[i], scalars, &part));
    }
    return PL_OK;
}

/* ---- the table -------------------------------------------------------------------------- */
#define UPDATE(op, rule, scalars)                                                                  \
 static pl_status op##_many(const pl_call *const *c, int n)                                        \
 {                                                                                                 \
  return run<rule>(c, n, scalars);                                                                 \
 }                                                                                                 \
 static pl_status op##_run(const pl_call *c)                                                       \
 {                                                                                                 \
  return op##_many(&c, 1);                                                                         \
 }                                                                                                 \
 PL_CUDA_KERNEL(op##_kernels, NULL, op##_run);
UPDATE(adam, ADAM, 3)
UPDATE(adam_max, ADAM_MAX, 3)
UPDATE(sgd, SGD, 3)
UPDATE(sgd_momentum, SGD_MOMENTUM, 3)
UPDATE(sgd_nesterov, SGD_NESTEROV, 3)
UPDATE(lion, LION, 2)
UPDATE(rmsprop, RMSPROP, 2)
UPDATE(rmsprop_centered, RMSPROP_CENTERED, 2)
UPDATE(rmsprop_momentum, RMSPROP_MOMENTUM, 2)
UPDATE(rmsprop_full, RMSPROP_FULL, 2)

PL_CUDA_ENTRIES(pl_cuda_optim) = {{"adam", adam_kernels},
                                  {"adam_max", adam_max_kernels},
                                  {"sgd", sgd_kernels},
                                  {"sgd_momentum", sgd_momentum_kernels},
                                  {"sgd_nesterov", sgd_nesterov_kernels},
                                  {"lion", lion_kernels},
                                  {"rmsprop", rmsprop_kernels},
                                  {"rmsprop_centered", rmsprop_centered_kernels},
                                  {"rmsprop_momentum", rmsprop_momentum_kernels},
                                  {"rmsprop_full", rmsprop_full_kernels},
                                  {NULL, NULL}};

extern "C" pl_cuda_many_fn pl_cuda_many_of(const pl_kernel *k)
{
#define MANY(op)                                                                                   \
 if (k == op##_kernels) return op##_many;
    MANY(adam)
    MANY(adam_max)
    MANY(sgd)
    MANY(sgd_momentum)
    MANY(sgd_nesterov)
    MANY(lion)
    MANY(rmsprop)
    MANY(rmsprop_centered)
    MANY(rmsprop_momentum)
    MANY(rmsprop_full)
#undef MANY
    return pl_cuda_squares_many_of(k);
}
