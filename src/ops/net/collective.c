/* collective.c - values across the ranks of a world: all_reduce, reduce_scatter, all_gather,
 * broadcast.
 *
 *   all_reduce      y = sum over ranks of x
 *   reduce_scatter  x[N*k, ...] -> y[k, ...]: rank r has rows [r*k, (r+1)*k) of the sum
 *   all_gather      x[k, ...] -> y[N*k, ...]: rank r's x is in rows [r*k, (r+1)*k)
 *   broadcast       y = x of rank `root`
 *
 * Each is linear, and each is another's adjoint when the differentiated function is the sum over
 * ranks of what each computes. Sums are taken in f64 in the order of ranks and rounded once,
 * element by element: they do not depend on how a tensor is split into messages, nor on timing, and
 * all_reduce gives the same bits as reduce_scatter followed by all_gather.
 *
 * A rank sends (N-1)/N of the tensor for a reduce_scatter or an all_gather of N*k rows, and twice
 * that for an all_reduce: parts go to their owners, are summed there, and come back.
 */
#include "base/dtype.h"
#include "ir/comm.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

enum { ROUND_BYTES = 1 << 20 }; /* bytes of a tensor per exchange */

static const pl_attr attrs[] = {
    PL_ATTR(pl_collective_attr, ranks, INT),
    PL_ATTR(pl_collective_attr, root, INT),
    PL_ATTR(pl_collective_attr, name, TEXT),
    PL_ATTR_END,
};

/* ---- shapes ----------------------------------------------------------------------------- */
static pl_status check_ranks(const pl_collective_attr *a)
{
    PL_FAIL_IF(a->ranks < 1, PL_ERR_ARG, "the number of ranks is %lld; it must be at least 1",
               (long long)a->ranks);
    PL_FAIL_IF(a->root < 0 || a->root >= a->ranks, PL_ERR_ARG,
               "root is %lld; it must be a rank of %lld ranks, counted from 0", (long long)a->root,
               (long long)a->ranks);
    return PL_OK;
}

static pl_status check_sum(const pl_type *x)
{
    PL_FAIL_IF(!pl_dtype_is_float(x->dtype), PL_ERR_ARG,
               "a sum over ranks needs a float type, got %s", pl_dtype_name(x->dtype));
    return PL_OK;
}

static pl_status same_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    out[0] = in[0];
    return check_ranks(attr);
}

static pl_status reduce_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    PL_TRY(check_sum(&in[0]));
    return same_infer(in, n_in, attr, out);
}

static pl_status scatter_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    const pl_collective_attr *a = attr;
    char x[96];
    PL_TRY(reduce_infer(in, n_in, attr, out));
    PL_FAIL_IF(in[0].rank < 1 || in[0].dim[0] % a->ranks, PL_ERR_SHAPE,
               "the first dimension of %s does not divide into %lld equal parts, one per rank",
               pl_type_text(&in[0], x, sizeof x), (long long)a->ranks);
    out[0].dim[0] /= a->ranks;
    return PL_OK;
}

static pl_status gather_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    const pl_collective_attr *a = attr;
    char x[96];
    PL_TRY(same_infer(in, n_in, attr, out));
    PL_FAIL_IF(in[0].rank < 1 || __builtin_mul_overflow(in[0].dim[0], a->ranks, &out[0].dim[0]),
               PL_ERR_SHAPE, "%s of %lld ranks cannot be joined along the first dimension",
               pl_type_text(&in[0], x, sizeof x), (long long)a->ranks);
    return PL_OK;
}

/* ---- gradients -------------------------------------------------------------------------- */
static void reduce_vjp(const pl_vjp *v)
{
    const pl_collective_attr *a = v->attr;
    v->gin[0] = pl_all_reduce(v->g, v->gout[0], (int)a->ranks, a->name);
}

static void scatter_vjp(const pl_vjp *v)
{
    const pl_collective_attr *a = v->attr;
    v->gin[0] = pl_all_gather(v->g, v->gout[0], (int)a->ranks, a->name);
}

static void gather_vjp(const pl_vjp *v)
{
    const pl_collective_attr *a = v->attr;
    v->gin[0] = pl_reduce_scatter(v->g, v->gout[0], (int)a->ranks, a->name);
}

/* Every rank's gradient flows to the root; the x of the other ranks has no reader. */
static void broadcast_vjp(const pl_vjp *v)
{
    const pl_collective_attr *a = v->attr;
    int rank = v->g->spread ? v->g->spread->rank : 0;
    pl_val all = pl_all_reduce(v->g, v->gout[0], (int)a->ranks, a->name);
    v->gin[0] = rank == a->root ? all : pl_full_like(v->g, v->in[0], 0);
}

/* ---- cost ------------------------------------------------------------------------------- */
/* m: bytes that a rank sends; n: messages one after the other; k: ranks. */
static pl_cost link_cost(const pl_call *c, double tensors, double bytes)
{
    const pl_collective_attr *a = c->attr;
    double n = (double)a->ranks;
    return (pl_cost){.flops = (double)pl_type_elems(&c->in_type[0]),
                     .bytes =
                         (double)(pl_type_bytes(&c->in_type[0]) + pl_type_bytes(&c->out_type[0])),
                     .work = PL_WORK_LINK,
                     .m = tensors * bytes * (n - 1) / n,
                     .n = tensors * (n - 1),
                     .k = n};
}

static pl_cost reduce_cost(const pl_call *c)
{
    return link_cost(c, 2, (double)pl_type_bytes(&c->in_type[0]));
}

static pl_cost scatter_cost(const pl_call *c)
{
    return link_cost(c, 1, (double)pl_type_bytes(&c->in_type[0]));
}

static pl_cost gather_cost(const pl_call *c)
{
    return link_cost(c, 1, (double)pl_type_bytes(&c->out_type[0]));
}

/* ---- kernels ---------------------------------------------------------------------------- */
/* Sets the world of a call, or NULL when there is only this rank; fails when it differs from the
 * planned world. */
static pl_status world_of(const pl_call *c, const char *op, pl_comm **out)
{
    const pl_collective_attr *a = c->attr;
    *out = NULL;
    if (a->ranks == 1) return PL_OK;
    PL_FAIL_IF(!c->comm, PL_ERR_PEER, "%s needs %lld ranks, but this process runs alone", op,
               (long long)a->ranks);
    PL_FAIL_IF(c->comm->size != a->ranks, PL_ERR_PEER,
               "%s was planned for %lld ranks, but %d are running", op, (long long)a->ranks,
               c->comm->size);
    c->comm->op = op;
    c->comm->name = a->name;
    *out = c->comm;
    return PL_OK;
}

/* Returns the elements that one exchange takes from each row of N. */
static int64_t row_part(int64_t ranks, size_t elem)
{
    int64_t n = ROUND_BYTES / (int64_t)elem / ranks;
    return n < 16 ? 16 : n;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

enum { BLOCK = 256 }; /* elements summed at a time */

static void add_block(pl_dtype d, const char *part, int64_t at, int64_t n, bool first, double *acc)
{
    if (d == PL_F32) {
        const float *x = (const float *)(const void *)part + at;
        if (first)
            for (int64_t i = 0; i < n; i++) acc[i] = (double)x[i];
        else
            for (int64_t i = 0; i < n; i++) acc[i] += (double)x[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double v = pl_elem_get(d, part, at + i);
        acc[i] = first ? v : acc[i] + v;
    }
}

static void put_block(pl_dtype d, const double *acc, int64_t n, char *to, int64_t at)
{
    if (d == PL_F32) {
        float *y = (float *)(void *)to + at;
        for (int64_t i = 0; i < n; i++) y[i] = (float)acc[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) pl_elem_set(d, to, at + i, acc[i]);
}

/* to[i] = sum over ranks r of received part r, with `own` for this rank; n elements. Parts are
 * `apart` elements apart. */
static void sum_parts(pl_dtype d, const pl_comm *w, const char *came, int64_t apart,
                      const char *own, int64_t n, char *to)
{
    size_t elem = pl_dtype_bytes(d);
    double acc[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = least(BLOCK, n - at);
        for (int r = 0; r < w->size; r++)
            add_block(d, r == w->rank ? own : came + (size_t)(r * apart) * elem, at, m, r == 0,
                      acc);
        put_block(d, acc, m, to, at);
    }
}

/* Returns the bytes that receive the parts of the other ranks. */
static size_t room_wanted(const pl_call *c)
{
    const pl_collective_attr *a = c->attr;
    size_t elem = pl_dtype_bytes(c->in_type[0].dtype);
    int64_t all = pl_type_elems(&c->in_type[0]), row = (all + a->ranks - 1) / a->ranks;
    return a->ranks > 1 ? (size_t)(least(row, row_part(a->ranks, elem)) * a->ranks) * elem : 0;
}

/* Whether the communicator has enough room itself; otherwise the room is planned. */
static bool room_is_there(const pl_call *c)
{
    return c->comm && c->comm->room && room_wanted(c) <= c->comm->room_bytes;
}

static pl_status reduce_prepare(const pl_call *c, void **prep, size_t *work)
{
    (void)prep;
    *work = room_is_there(c) ? 0 : room_wanted(c);
    return PL_OK;
}

static void *bytes_at(const void *base, int64_t elems, size_t elem)
{
    return (char *)(uintptr_t)base + elems * (int64_t)elem;
}

/* Sends elements [at, at + m) of y, each rank's own sum, to all ranks. */
static pl_status reduce_round(pl_comm *w, pl_dtype d, char *y, int64_t m, void *work)
{
    size_t elem = pl_dtype_bytes(d);
    int64_t part = (m + w->size - 1) / w->size, mine = w->rank * part;
    int64_t own = mine < m ? least(part, m - mine) : 0;
    for (int r = 0; r < w->size; r++) {
        int64_t n = r * part < m ? least(part, m - r * part) : 0;
        w->send[r] = (pl_parcel){bytes_at(y, n ? r * part : 0, elem), (size_t)n * elem};
        w->recv[r] = (pl_parcel){bytes_at(work, r * part, elem), (size_t)own * elem};
    }
    PL_TRY(pl_comm_exchange(w, PL_TRAFFIC_ALL_REDUCE));
    char *sum = bytes_at(y, own ? mine : 0, elem);
    sum_parts(d, w, work, part, sum, own, sum);
    for (int r = 0; r < w->size; r++) {
        w->recv[r] = w->send[r];
        w->send[r] = (pl_parcel){sum, (size_t)own * elem};
    }
    return pl_comm_exchange(w, PL_TRAFFIC_ALL_REDUCE);
}

static pl_status all_reduce(const pl_call *c)
{
    pl_comm *w;
    pl_dtype d = c->in_type[0].dtype;
    size_t elem = pl_dtype_bytes(d);
    int64_t n = pl_type_elems(&c->in_type[0]);
    PL_TRY(world_of(c, "all_reduce", &w));
    if (c->out[0] != c->in[0]) memcpy(c->out[0], c->in[0], (size_t)n * elem);
    if (!w) return PL_OK;
    int64_t step = row_part(w->size, elem) * w->size;
    void *work = room_is_there(c) ? w->room : c->work;
    for (int64_t at = 0; at < n; at += step)
        PL_TRY(reduce_round(w, d, bytes_at(c->out[0], at, elem), least(step, n - at), work));
    return PL_OK;
}

static pl_status reduce_scatter(const pl_call *c)
{
    pl_comm *w;
    pl_dtype d = c->in_type[0].dtype;
    size_t elem = pl_dtype_bytes(d);
    int64_t k = pl_type_elems(&c->out_type[0]);
    PL_TRY(world_of(c, "reduce_scatter", &w));
    if (!w) {
        memcpy(c->out[0], c->in[0], (size_t)k * elem);
        return PL_OK;
    }
    int64_t step = row_part(w->size, elem);
    void *work = room_is_there(c) ? w->room : c->work;
    for (int64_t at = 0; at < k; at += step) {
        int64_t m = least(step, k - at);
        for (int r = 0; r < w->size; r++) {
            w->send[r] = (pl_parcel){bytes_at(c->in[0], r * k + at, elem), (size_t)m * elem};
            w->recv[r] = (pl_parcel){bytes_at(work, r * m, elem), (size_t)m * elem};
        }
        PL_TRY(pl_comm_exchange(w, PL_TRAFFIC_REDUCE_SCATTER));
        sum_parts(d, w, work, m, bytes_at(c->in[0], w->rank * k + at, elem), m,
                  bytes_at(c->out[0], at, elem));
    }
    return PL_OK;
}

static pl_status all_gather(const pl_call *c)
{
    enum { MOST = 1 << 28 };
    pl_comm *w;
    size_t bytes = pl_type_bytes(&c->in_type[0]);
    PL_TRY(world_of(c, "all_gather", &w));
    char *y = c->out[0], *x = bytes_at(c->in[0], 0, 1);
    memcpy(y + (w ? (size_t)w->rank : 0) * bytes, x, bytes);
    for (size_t at = 0; w && at < bytes; at += MOST) {
        size_t n = bytes - at < MOST ? bytes - at : MOST;
        for (int r = 0; r < w->size; r++) {
            w->send[r] = (pl_parcel){x + at, n};
            w->recv[r] = (pl_parcel){y + (size_t)r * bytes + at, n};
        }
        PL_TRY(pl_comm_exchange(w, PL_TRAFFIC_ALL_GATHER));
    }
    return PL_OK;
}

static pl_status broadcast(const pl_call *c)
{
    enum { MOST = 1 << 28 };
    const pl_collective_attr *a = c->attr;
    pl_comm *w;
    size_t bytes = pl_type_bytes(&c->in_type[0]);
    PL_TRY(world_of(c, "broadcast", &w));
    char *y = c->out[0];
    bool root = !w || w->rank == a->root;
    if (root && y != c->in[0]) memcpy(y, c->in[0], bytes);
    for (size_t at = 0; w && at < bytes; at += MOST) {
        size_t n = bytes - at < MOST ? bytes - at : MOST;
        for (int r = 0; r < w->size; r++) {
            w->send[r] = (pl_parcel){y + at, root ? n : 0};
            w->recv[r] = (pl_parcel){y + at, r == a->root ? n : 0};
        }
        PL_TRY(pl_comm_exchange(w, PL_TRAFFIC_BROADCAST));
    }
    return PL_OK;
}

static const pl_kernel reduce_kernels[] = {{"ref", NULL, reduce_prepare, NULL, all_reduce},
                                           PL_KERNEL_END};
static const pl_kernel scatter_kernels[] = {{"ref", NULL, reduce_prepare, NULL, reduce_scatter},
                                            PL_KERNEL_END};
static const pl_kernel gather_kernels[] = {{"ref", NULL, NULL, NULL, all_gather}, PL_KERNEL_END};
static const pl_kernel broadcast_kernels[] = {{"ref", NULL, NULL, NULL, broadcast}, PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[3,5]"}, "ranks=1, root=0, name=\"x\"", {{0}}},
    {{"f32[1]"}, "ranks=1, root=0, name=\"\"", {{0}}},
    {{"f32[4,1,2]"}, "ranks=1, root=0, name=\"\"", {{0}}},
    PL_CASE_END,
};

#define COLLECTIVE(op_name, infer_fn, vjp_fn, cost_fn, list, take_over)                            \
 const pl_op pl_op_##op_name = {                                                                   \
     .name = #op_name,                                                                             \
     .min_in = 1,                                                                                  \
     .max_in = 1,                                                                                  \
     .n_out = 1,                                                                                   \
     .flags = PL_OP_COUPLES | PL_OP_RANKS,                                                         \
     .inplace = {take_over},                                                                       \
     .attr_bytes = sizeof(pl_collective_attr),                                                     \
     .attrs = attrs,                                                                               \
     .infer = infer_fn,                                                                            \
     .vjp = vjp_fn,                                                                                \
     .cost = cost_fn,                                                                              \
     .cpu = list,                                                                                  \
     .cases = cases,                                                                               \
 };
COLLECTIVE(all_reduce, reduce_infer, reduce_vjp, reduce_cost, reduce_kernels, 1)
COLLECTIVE(reduce_scatter, scatter_infer, scatter_vjp, scatter_cost, scatter_kernels, 0)
COLLECTIVE(all_gather, gather_infer, gather_vjp, gather_cost, gather_kernels, 0)
COLLECTIVE(broadcast_from, same_infer, broadcast_vjp, gather_cost, broadcast_kernels, 1)

/* ---- constructors ----------------------------------------------------------------------- */
static pl_val collective(pl_graph *g, const pl_op *op, pl_val x, int ranks, int root,
                         const char *name)
{
    pl_collective_attr a = {ranks, root, name ? name : ""};
    return pl_build1(g, op, &a, 1, &x);
}

pl_val pl_all_reduce(pl_graph *g, pl_val x, int ranks, const char *name)
{
    return collective(g, &pl_op_all_reduce, x, ranks, 0, name);
}

pl_val pl_reduce_scatter(pl_graph *g, pl_val x, int ranks, const char *name)
{
    return collective(g, &pl_op_reduce_scatter, x, ranks, 0, name);
}

pl_val pl_all_gather(pl_graph *g, pl_val x, int ranks, const char *name)
{
    return collective(g, &pl_op_all_gather, x, ranks, 0, name);
}

pl_val pl_broadcast_from(pl_graph *g, pl_val x, int ranks, int root, const char *name)
{
    return collective(g, &pl_op_broadcast_from, x, ranks, root, name);
}
