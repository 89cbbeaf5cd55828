/* attention_dnn.c - 16-bit attention by cuDNN, described as a graph that its engines support.
 *
 * Forward, over scores s [B,H,N,M] that exist only inside the engine:
 *
 *   q k^T ── scale ── + mask ── causal ── max, sub, exp, sum ── div ── v ── o
 *                                                      └── log, add max ── lse
 *
 * Backward, with p = exp(s - lse) and delta = sum(o * d_o):
 *
 *   dv = p^T d_o        ds = p * (d_o v^T - delta) * scale       dk = ds^T q        dq = ds k
 *
 * dq is written by one product, not summed in f32 over blocks in the order in which they end, so
 * two runs give the same bits. The engine stores ds for that, in 16 bits: two bytes for each pair
 * of query and key. Batches and heads are done in slices, so that this scratch stays within
 * PL_ATTEND_DNN_SCRATCH (plan/cost/kernel_sizes.c); longer sequences go to attention_wgmma.cu.
 *
 * A mask of any type is first written to scratch as f32 numbers that are added to scores, at least
 * PL_MASK_LEAST each, with whole rows of keys for all queries: the form that the engines read. They
 * give a query that sees no key the mean of all values; its result and its lse are zeroed then, and
 * with that lse all of its probabilities are 0 in the backward pass.
 *
 * One plan a problem in a process, counted, and on disk. The packs of pointers of all slices are
 * made once and made again only when pointers change.
 */
#include "cuda/attention/attention.h"

#include "base/sys.h"
#include "cuda/device/dnn_graph.h"
#include "plan/cost/kernel_sizes.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* How tensors are called when pointers are bound to them. */
enum { UID_Q = 1, UID_K, UID_V, UID_O, UID_LSE, UID_SCALE, UID_D_O, UID_DQ, UID_DK, UID_DV };
enum { UID_DELTA = UID_DV + 1, UID_ONE, UID_NONE, UID_MASK, UIDS = UID_MASK };

/* One slice: `batch` batches and `heads` of the `stride` heads of a token. Holds no padding bytes
 * and is zeroed first, so that problems compare bytewise. */
typedef struct problem {
    int64_t batch, heads, stride, n, m, d;
    int64_t row, step;                      /* of q and all gradients */
    int64_t group, keys_row, keys_step;     /* heads that read one head of keys; of k and v */
    int64_t mask_batch, mask_head;          /* of the mask: elements between batches, heads */
    int32_t dtype, causal, back, attention; /* attention: 1, unlike any convolution's bytes */
    int64_t masked;
} problem;

typedef struct shared_plan {
    problem of;
    pl_dnn_plan dnn;
    int refs;
    struct shared_plan *next;
} shared_plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static shared_plan *plans;

/* Elements of a row of the mask in scratch: rows begin at multiples of 16 bytes. */
static int64_t mask_row(int64_t m)
{
    return (m + 7) / 8 * 8;
}

/* ---- tensors -------------------------------------------------------------------------------- */
/* Tokens [B,L,H,D] as [B,H,L,D], or turned as [B,H,D,L]; `token` and `head` elements lie between
 * two tokens and two heads. */
static pl_dnn_desc spaced(pl_dnn_graph *g, const problem *p, int64_t uid, int64_t heads,
                          int64_t length, bool turned, int64_t token, int64_t head)
{
    pl_dnn_tensor t = {.uid = uid,
                       .dim = {p->batch, heads, turned ? p->d : length, turned ? length : p->d},
                       .stride = {length * token, head, turned ? 1 : token, turned ? token : 1},
                       .type = pl_dnn_type((pl_dtype)p->dtype)};
    return pl_dnn_tensor_of(g, &t);
}

/* o and d_o */
static pl_dnn_desc outs(pl_dnn_graph *g, const problem *p, int64_t uid)
{
    return spaced(g, p, uid, p->heads, p->n, false, p->stride * p->d, p->d);
}

/* q and all gradients */
static pl_dnn_desc tokens(pl_dnn_graph *g, const problem *p, int64_t uid, int64_t length,
                          bool turned)
{
    return spaced(g, p, uid, p->heads, length, turned, p->row, p->step);
}

/* k and v */
static pl_dnn_desc keys(pl_dnn_graph *g, const problem *p, int64_t uid, bool turned)
{
    return spaced(g, p, uid, p->heads / p->group, p->m, turned, p->keys_row, p->keys_step);
}

/* Scores [B,H,N,M], inside the graph. */
static pl_dnn_desc scores(pl_dnn_graph *g, const problem *p, cudnnDataType_t type)
{
    int64_t head = p->n * p->m;
    pl_dnn_tensor t = {.dim = {p->batch, p->heads, p->n, p->m},
                       .stride = {p->heads * head, head, p->m, 1},
                       .type = type};
    return pl_dnn_tensor_of(g, &t);
}

/* The transpose of scores [B,H,M,N], in the operands' type. */
static pl_dnn_desc turned_scores(pl_dnn_graph *g, const problem *p)
{
    int64_t head = p->n * p->m;
    pl_dnn_tensor t = {.dim = {p->batch, p->heads, p->m, p->n},
                       .stride = {p->heads * head, head, 1, p->m},
                       .type = pl_dnn_type((pl_dtype)p->dtype)};
    return pl_dnn_tensor_of(g, &t);
}

/* One number of f32 a query, [B,H,N,1]; heads: of the memory that the tensor lies in. */
static pl_dnn_desc queries(pl_dnn_graph *g, const problem *p, int64_t uid, int64_t heads)
{
    pl_dnn_tensor t = {.uid = uid,
                       .dim = {p->batch, p->heads, p->n, 1},
                       .stride = {heads * p->n, p->n, 1, 1},
                       .type = CUDNN_DATA_FLOAT};
    return pl_dnn_tensor_of(g, &t);
}

/* ---- graphs --------------------------------------------------------------------------------- */
static pl_dnn_desc f32_scores(pl_dnn_graph *g, const problem *p)
{
    return scores(g, p, CUDNN_DATA_FLOAT);
}

static pl_dnn_desc pointwise(pl_dnn_graph *g, const problem *p, cudnnPointwiseMode_t mode,
                             pl_dnn_desc x, pl_dnn_desc b)
{
    pl_dnn_desc y = f32_scores(g, p);
    pl_dnn_pointwise(g, mode, x, b, NULL, y);
    return y;
}

/* -infinity where a query must not look. */
static pl_dnn_desc masked(pl_dnn_graph *g, const problem *p, pl_dnn_desc s)
{
    if (!p->causal) return s;
    pl_dnn_desc none = pl_dnn_number(g, UID_NONE), y = f32_scores(g, p);
    pl_dnn_desc index[2] = {scores(g, p, CUDNN_DATA_INT32), scores(g, p, CUDNN_DATA_INT32)};
    pl_dnn_desc seen = scores(g, p, CUDNN_DATA_BOOLEAN);
    pl_dnn_lower_triangle(g, s, index, seen);
    pl_dnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, s, none, seen, y);
    return y;
}

/* Scores plus the values of the mask. */
static pl_dnn_desc with_mask(pl_dnn_graph *g, const problem *p, pl_dnn_desc s)
{
    if (!p->masked) return s;
    int64_t row = mask_row(p->m), batch = p->mask_batch ? p->batch : 1;
    int64_t heads = p->mask_head ? p->heads : 1, head = p->n * row;
    pl_dnn_tensor t = {.uid = UID_MASK,
                       .dim = {batch, heads, p->n, p->m},
                       .stride = {p->mask_batch ? p->mask_batch : heads * head,
                                  p->mask_head ? p->mask_head : head, row, 1},
                       .type = CUDNN_DATA_FLOAT};
    return pointwise(g, p, CUDNN_POINTWISE_ADD, s, pl_dnn_tensor_of(g, &t));
}

static pl_dnn_desc product_of_scores(pl_dnn_graph *g, const problem *p, pl_dnn_desc a,
                                     pl_dnn_desc b)
{
    pl_dnn_desc y = f32_scores(g, p);
    pl_dnn_product(g, a, b, y);
    return y;
}

static void forward_graph(pl_dnn_graph *g, const problem *p)
{
    pl_dnn_desc q = tokens(g, p, UID_Q, p->n, false), k = keys(g, p, UID_K, true);
    pl_dnn_desc v = keys(g, p, UID_V, false), o = outs(g, p, UID_O);
    pl_dnn_desc lse = queries(g, p, UID_LSE, p->stride), scale = pl_dnn_number(g, UID_SCALE);
    pl_dnn_desc most = queries(g, p, 0, p->heads), sum = queries(g, p, 0, p->heads);
    pl_dnn_desc log_sum = queries(g, p, 0, p->heads);
    pl_dnn_desc probability = scores(g, p, pl_dnn_type((pl_dtype)p->dtype));
    pl_dnn_desc s = pointwise(g, p, CUDNN_POINTWISE_MUL, product_of_scores(g, p, q, k), scale);
    s = masked(g, p, with_mask(g, p, s));
    pl_dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, most);
    pl_dnn_desc e =
        pointwise(g, p, CUDNN_POINTWISE_EXP, pointwise(g, p, CUDNN_POINTWISE_SUB, s, most), NULL);
    pl_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    pl_dnn_pointwise(g, CUDNN_POINTWISE_LOG, sum, NULL, NULL, log_sum);
    pl_dnn_pointwise(g, CUDNN_POINTWISE_ADD, most, log_sum, NULL, lse);
    pl_dnn_pointwise(g, CUDNN_POINTWISE_DIV, e, sum, NULL, probability);
    pl_dnn_product(g, probability, v, o);
}

/* delta [B,H,N,1], which the engine keeps in memory. */
static pl_dnn_desc delta_of(pl_dnn_graph *g, const problem *p, pl_dnn_desc o, pl_dnn_desc d_o)
{
    pl_dnn_tensor like_o = {.dim = {p->batch, p->heads, p->n, p->d},
                            .stride = {p->heads * p->n * p->d, p->n * p->d, p->d, 1},
                            .type = CUDNN_DATA_FLOAT};
    pl_dnn_desc each = pl_dnn_tensor_of(g, &like_o), sum = queries(g, p, 0, p->heads);
    pl_dnn_desc delta = queries(g, p, UID_DELTA, p->heads), one = pl_dnn_number(g, UID_ONE);
    pl_dnn_pointwise(g, CUDNN_POINTWISE_MUL, d_o, o, NULL, each);
    pl_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, sum);
    pl_dnn_pointwise(g, CUDNN_POINTWISE_MUL, sum, one, NULL, delta);
    return delta;
}

static void transposed_product(pl_dnn_graph *g, const problem *p, pl_dnn_desc s, pl_dnn_desc b,
                               pl_dnn_desc y)
{
    pl_dnn_desc t = turned_scores(g, p);
    pl_dnn_reshape(g, s, t);
    pl_dnn_product(g, t, b, y);
}

static void backward_graph(pl_dnn_graph *g, const problem *p)
{
    pl_dnn_desc q = tokens(g, p, UID_Q, p->n, false), k = keys(g, p, UID_K, true);
    pl_dnn_desc v = keys(g, p, UID_V, true), o = outs(g, p, UID_O);
    pl_dnn_desc d_o = outs(g, p, UID_D_O), dq = tokens(g, p, UID_DQ, p->n, false);
    pl_dnn_desc dk = tokens(g, p, UID_DK, p->m, false), dv = tokens(g, p, UID_DV, p->m, false);
    pl_dnn_desc lse = queries(g, p, UID_LSE, p->stride), scale = pl_dnn_number(g, UID_SCALE);
    pl_dnn_desc delta = delta_of(g, p, o, d_o);
    pl_dnn_desc s = pointwise(g, p, CUDNN_POINTWISE_MUL, product_of_scores(g, p, q, k), scale);
    s = masked(g, p, pointwise(g, p, CUDNN_POINTWISE_SUB, with_mask(g, p, s), lse));
    pl_dnn_desc probability = pointwise(g, p, CUDNN_POINTWISE_EXP, s, NULL);
    transposed_product(g, p, probability, d_o, dv);
    pl_dnn_desc ds = product_of_scores(g, p, d_o, v);
    ds = pointwise(g, p, CUDNN_POINTWISE_SUB, ds, delta);
    ds = pointwise(g, p, CUDNN_POINTWISE_MUL, ds, probability);
    ds = pointwise(g, p, CUDNN_POINTWISE_MUL, ds, scale);
    transposed_product(g, p, ds, q, dk);
    pl_dnn_desc back = keys(g, p, 0, false);
    pl_dnn_reshape(g, k, back);
    pl_dnn_product(g, ds, back, dq);
}

/* ---- plans ---------------------------------------------------------------------------------- */
/* A graph that cuDNN does not take is not an error: our own kernels compute it. */
static void fill(shared_plan *s)
{
    pl_code_key key = pl_dnn_plan_key(&s->of, sizeof s->of);
    if (pl_dnn_plan_load(key, &s->dnn)) return;
    pl_dnn_graph g = {.rc = PL_OK};
    if (s->of.back)
        backward_graph(&g, &s->of);
    else
        forward_graph(&g, &s->of);
    if (pl_dnn_graph_finish(&g) != PL_OK || pl_dnn_plan_first(&g, &s->dnn) != PL_OK)
        pl_dnn_drop(&s->dnn.plan);
    pl_dnn_graph_release(&g);
    pl_dnn_plan_save(key, &s->dnn);
}

static shared_plan *find_or_make(const problem *p)
{
    for (shared_plan *s = plans; s; s = s->next)
        if (memcmp(&s->of, p, sizeof *p) == 0) return s;
    shared_plan *s = pl_sys_alloc(sizeof *s);
    if (!s) return NULL;
    s->of = *p;
    fill(s);
    s->next = plans;
    return plans = s;
}

/* NULL: memory ran out, or cuDNN has nothing for the problem. A plan without users stays in the
 * table for the next caller. */
static shared_plan *plan_get(const problem *p, bool count)
{
    pthread_mutex_lock(&lock);
    shared_plan *s = find_or_make(p);
    bool usable = s && s->dnn.plan;
    if (usable && count) s->refs++;
    pthread_mutex_unlock(&lock);
    return usable ? s : NULL;
}

static void plan_put(shared_plan *p)
{
    if (!p) return;
    pthread_mutex_lock(&lock);
    if (--p->refs == 0) {
        shared_plan **at = &plans;
        while (*at != p) at = &(*at)->next;
        *at = p->next;
        pl_dnn_drop(&p->dnn.plan);
        pl_sys_free(p);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- calls ---------------------------------------------------------------------------------- */
static problem slice_of(const pl_attend *a, bool back)
{
    problem p;
    memset(&p, 0, sizeof p);
    pl_attend_dnn_slice s = {.batch = a->batch, .heads = a->heads};
    if (back) s = pl_attend_dnn_slice_of(a->batch, a->heads, a->n, a->m);
    p.batch = s.batch;
    p.heads = s.heads;
    p.stride = a->heads;
    p.n = a->n;
    p.m = a->m;
    p.d = a->d;
    p.row = a->row;
    p.step = a->step;
    p.group = a->group;
    p.keys_row = a->keys_row;
    p.keys_step = a->keys_step;
    p.dtype = (int32_t)a->dtype;
    p.causal = a->causal;
    p.back = back;
    p.attention = 1;
    if (!a->masked) return p;
    p.masked = 1;
    p.mask_head = a->mask.head ? a->n * mask_row(a->m) : 0;
    p.mask_batch = a->mask.batch ? a->n * mask_row(a->m) * (a->mask.head ? a->heads : 1) : 0;
    return p;
}

/* Bytes of the mask in scratch, as f32. */
static size_t mask_bytes(const pl_attend *a)
{
    if (!a->masked) return 0;
    int64_t tables = (a->mask.batch ? a->batch : 1) * (a->mask.head ? a->heads : 1);
    return (4 * (size_t)(tables * a->n * mask_row(a->m)) + 255) & ~(size_t)255;
}

/* Measured on Hopper (bench/results/attention.csv); elsewhere our own kernels stay. */
static bool worth_it(const pl_attend *a)
{
    return pl_cuda_props_get()->arch / 10 == 9 && a->n * a->m >= PL_ATTEND_DNN_PAIRS;
}

bool pl_attend_dnn_takes(const pl_attend *a, bool back)
{
    if (!(a->dtype == PL_F16 || a->dtype == PL_BF16) || a->d % 8 || a->d > 256 || a->scale <= 0)
        return false;
    if (mask_bytes(a) > (size_t)PL_ATTEND_DNN_SCRATCH) return false;
    if (a->lse_type != PL_F32 || a->batch * a->heads * a->n == 0 || !worth_it(a)) return false;
    problem p = slice_of(a, back);
    return p.batch > 0 && plan_get(&p, false);
}

typedef struct prepared {
    shared_plan *plan;
    pl_attend at; /* contents of the packs */
    float scale;
    pl_dnn_desc *pack;
    int64_t n_packs;
} prepared;

static size_t delta_bytes(const problem *p)
{
    return (4 * (size_t)(p->batch * p->heads * p->n) + 255) & ~(size_t)255;
}

pl_status pl_attend_dnn_prepare(const pl_attend *a, bool back, void **prep, size_t *work_bytes)
{
    problem p = slice_of(a, back);
    prepared *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    *prep = h;
    h->plan = plan_get(&p, true);
    PL_FAIL_IF(!h->plan, PL_ERR_DEVICE, "cuDNN's plan for attention cannot be rebuilt");
    h->n_packs = a->batch / p.batch * (a->heads / p.heads);
    h->pack = pl_sys_alloc(sizeof *h->pack * (size_t)h->n_packs);
    if (!h->pack) return PL_ERR_MEMORY;
    h->scale = (float)a->scale;
    *work_bytes =
        pl_cuda_work_room(mask_bytes(a) + h->plan->dnn.work_bytes + (back ? delta_bytes(&p) : 0));
    return PL_OK;
}

static void drop_packs(prepared *h)
{
    for (int64_t i = 0; h->pack && i < h->n_packs; i++) pl_dnn_drop(&h->pack[i]);
}

void pl_attend_dnn_release(void *prep)
{
    prepared *h = prep;
    if (!h) return;
    drop_packs(h);
    pl_sys_free(h->pack);
    plan_put(h->plan);
    pl_sys_free(h);
}

static const void *moved(const void *p, int64_t bytes)
{
    return (const char *)p + bytes;
}

/* The pack of the slice that begins at batch b and head i. */
static pl_status bind_slice(const prepared *h, const pl_attend *a, int64_t b, int64_t i,
                            pl_dnn_desc *pack)
{
    static const float one = 1, none = -INFINITY;
    const problem *p = &h->plan->of;
    int64_t elem = (int64_t)pl_dtype_bytes(a->dtype);
    int64_t out = (b * a->n * a->heads + i) * a->d * elem;
    int64_t of_n = (b * a->n * a->row + i * a->step) * elem;
    int64_t of_m = (b * a->m * a->row + i * a->step) * elem; /* of gradients */
    int64_t of_key = (b * a->m * a->keys_row + i / a->group * a->keys_step) * elem;
    int64_t row = 4 * (b * a->heads + i) * a->n, n = 0, uid[UIDS];
    const void *at[UIDS];
    char *mask = pl_cuda_work_at(a->work), *work = mask + mask_bytes(a);
#define BIND(u, p)                                                                                 \
 do {                                                                                              \
  uid[n] = (u);                                                                                    \
  at[n++] = (p);                                                                                   \
 } while (0)
    BIND(UID_Q, moved(a->q, of_n));
    BIND(UID_K, moved(a->k, of_key));
    BIND(UID_V, moved(a->v, of_key));
    BIND(UID_O, moved(p->back ? a->o : a->out[0], out));
    BIND(UID_LSE, moved(p->back ? a->lse : a->out[1], row));
    BIND(UID_SCALE, &h->scale);
    if (p->causal) BIND(UID_NONE, &none);
    if (p->masked) BIND(UID_MASK, moved(mask, 4 * (b * p->mask_batch + i * p->mask_head)));
    if (p->back) {
        BIND(UID_D_O, moved(a->d_o, out));
        BIND(UID_DQ, moved(a->out[0], of_n));
        BIND(UID_DK, moved(a->out[1], of_m));
        BIND(UID_DV, moved(a->out[2], of_m));
        BIND(UID_DELTA, work);
        BIND(UID_ONE, &one);
        work += delta_bytes(p);
    }
#undef BIND
    return pl_dnn_bind(n, uid, at, work, pack);
}

/* Of what the packs hold and of this call. */
static bool same_pointers(const pl_attend *x, const pl_attend *y)
{
    return x->q == y->q && x->k == y->k && x->v == y->v && x->o == y->o && x->lse == y->lse &&
           x->d_o == y->d_o && memcmp(x->out, y->out, sizeof x->out) == 0 && x->work == y->work;
}

static pl_status bind_all(prepared *h, const pl_attend *a)
{
    const problem *p = &h->plan->of;
    int64_t k = 0;
    drop_packs(h);
    for (int64_t b = 0; b < a->batch; b += p->batch)
        for (int64_t i = 0; i < a->heads; i += p->heads)
            PL_TRY(bind_slice(h, a, b, i, &h->pack[k++]));
    h->at = *a;
    return PL_OK;
}

pl_status pl_attend_dnn_run(void *prep, const pl_attend *a)
{
    prepared *h = prep;
    cudnnHandle_t handle;
    PL_TRY(pl_cuda_dnn(&handle));
    if (!h->pack[h->n_packs - 1] || !same_pointers(&h->at, a)) PL_TRY(bind_all(h, a));
    if (a->masked) PL_TRY(pl_attend_mask_spread(a, pl_cuda_work_at(a->work), mask_row(a->m)));
    for (int64_t i = 0; i < h->n_packs; i++) {
        cudnnStatus_t rc = cudnnBackendExecute(handle, h->plan->dnn.plan, h->pack[i]);
        if (rc == CUDNN_STATUS_SUCCESS) continue;
        pl_cuda_dnn_failed(rc, "cudnnBackendExecute", __FILE__, __LINE__);
        return pl__fail_prefix(PL_ERR_DEVICE, "attention by %s", h->plan->dnn.engine);
    }
    return a->masked && !h->plan->of.back ? pl_attend_hide(a) : PL_OK;
}
