/* dnn.c - every call to oneDNN (2.6, C API v2) is in this file.
 *
 * A pl_dnn is a short list of steps over a short list of operands. An operand is a oneDNN memory
 * object whose bytes lie in one of the run's inputs or outputs or at an offset of the work block;
 * a step is a primitive with its operands. prepare fills the lists, run points the operands at
 * the caller's memory and executes the steps in order.
 *
 * Activations stay channels-last, which oneDNN's kernels take as they are. Weights are fastest in a
 * blocked layout that the kernel chooses, so a reorder step brings ours into the work block first
 * (or out of it last, for a weight gradient). Scratchpads are the work block's too (user mode), so
 * the planner sees every byte.
 *
 * Algorithms are chosen by rules on shapes, never by timing, so a plan can be repeated.
 *
 * There is one engine and one stream in a process, made at first use: they hold no state for the
 * processor, and oneDNN's cache of compiled kernels is per engine.
 */
#include "cpu/dnn.h"

#include "base/pool.h"
#include "base/sys.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <string.h>

enum { MAX_OPERANDS = 12, MAX_STEPS = 4, MAX_ARGS = 5, WORK_ALIGN = 64 };

/* Compiled kernels that oneDNN keeps for equal shapes prepared again. A network has at most a few
 * hundred distinct ones; each holds some tens of KiB of code. */
enum { CACHE_CAPACITY = 256 };

typedef enum place { AT_IN, AT_OUT, AT_WORK } place;

typedef struct operand {
    dnnl_memory_t mem;
    place where;
    int index;     /* into in[] or out[] */
    size_t offset; /* into the work block */
    const void *at; /* where mem points now */
} operand;

typedef struct step {
    dnnl_primitive_t prim;
    int n_args;
    int operand[MAX_ARGS];
    dnnl_exec_arg_t arg[MAX_ARGS];
} step;

struct pl_dnn {
    operand operands[MAX_OPERANDS];
    step steps[MAX_STEPS];
    int n_operands, n_steps;
    size_t work_bytes;
    char impl[64];
};

/* ---- the process's engine ---------------------------------------------------------------------- */

static struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratchpads belong to the caller */
    dnnl_status_t status;
} dnn;
static pthread_once_t dnn_once = PTHREAD_ONCE_INIT;

static void dnn_start(void)
{
    (void)pl_pool_threads(); /* fixes libgomp's team before oneDNN asks for its size */
    dnn.status = dnnl_engine_create(&dnn.engine, dnnl_cpu, 0);
    if (dnn.status) return;
    dnn.status = dnnl_stream_create(&dnn.stream, dnn.engine, dnnl_stream_in_order);
    if (dnn.status) return;
    dnn.status = dnnl_primitive_attr_create(&dnn.attr);
    if (dnn.status) return;
    dnn.status = dnnl_primitive_attr_set_scratchpad_mode(dnn.attr, dnnl_scratchpad_mode_user);
    if (dnn.status) return;
    dnn.status = dnnl_set_primitive_cache_capacity(CACHE_CAPACITY);
}

static pl_status check(dnnl_status_t s, const char *what)
{
    if (s == dnnl_success) return PL_OK;
    if (s == dnnl_out_of_memory) PL_FAIL(PL_ERR_MEMORY, "oneDNN has no memory to %s", what);
    if (s == dnnl_unimplemented)
        PL_FAIL(PL_ERR_UNSUPPORTED, "oneDNN has no kernel on this processor to %s", what);
    PL_FAIL(PL_ERR_DEVICE, "oneDNN cannot %s (status %d)", what, (int)s);
}

static pl_status dnn_new(pl_dnn **out)
{
    pthread_once(&dnn_once, dnn_start);
    PL_TRY(check(dnn.status, "start"));
    *out = pl_sys_alloc(sizeof **out);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

void pl_dnn_free(pl_dnn *d)
{
    if (!d) return;
    for (int i = 0; i < d->n_steps; i++) dnnl_primitive_destroy(d->steps[i].prim);
    for (int i = 0; i < d->n_operands; i++) dnnl_memory_destroy(d->operands[i].mem);
    pl_sys_free(d);
}

const char *pl_dnn_impl(const pl_dnn *d)
{
    return d->impl;
}

/* ---- operands and steps ------------------------------------------------------------------------ */

typedef dnnl_memory_desc_t mdesc;

/* The caller's memory. Returns the operand's number in *out. */
static pl_status add_operand(pl_dnn *d, const mdesc *md, place where, int index, int *out)
{
    if (d->n_operands == MAX_OPERANDS) PL_BUG("more than %d operands", MAX_OPERANDS);
    operand *o = &d->operands[d->n_operands];
    *o = (operand){.where = where, .index = index};
    PL_TRY(check(dnnl_memory_create(&o->mem, md, dnn.engine, DNNL_MEMORY_NONE),
                 "describe a tensor"));
    *out = d->n_operands++;
    return PL_OK;
}

/* A part of the work block. */
static pl_status add_work(pl_dnn *d, const mdesc *md, int *out)
{
    PL_TRY(add_operand(d, md, AT_WORK, 0, out));
    d->operands[*out].offset = d->work_bytes;
    size_t bytes = dnnl_memory_desc_get_size(md);
    d->work_bytes += (bytes + WORK_ALIGN - 1) / WORK_ALIGN * WORK_ALIGN;
    return PL_OK;
}

static void step_arg(step *s, const pl_dnn *d, int name, int operand_no)
{
    if (s->n_args == MAX_ARGS) PL_BUG("more than %d arguments", MAX_ARGS);
    s->operand[s->n_args] = operand_no;
    s->arg[s->n_args++] = (dnnl_exec_arg_t){name, d->operands[operand_no].mem};
}

/* Appends the primitive of pd with n (name, operand) pairs and its scratchpad. */
static pl_status add_step(pl_dnn *d, dnnl_primitive_desc_t pd, int n, const int (*args)[2])
{
    if (d->n_steps == MAX_STEPS) PL_BUG("more than %d steps", MAX_STEPS);
    step *s = &d->steps[d->n_steps];
    *s = (step){0};
    PL_TRY(check(dnnl_primitive_create(&s->prim, pd), "compile a kernel"));
    d->n_steps++;
    for (int i = 0; i < n; i++) step_arg(s, d, args[i][0], args[i][1]);
    const mdesc *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (!pad || dnnl_memory_desc_get_size(pad) == 0) return PL_OK;
    int scratch;
    PL_TRY(add_work(d, pad, &scratch));
    step_arg(s, d, DNNL_ARG_SCRATCHPAD, scratch);
    return PL_OK;
}

static pl_status add_reorder(pl_dnn *d, const mdesc *from_md, int from, const mdesc *to_md,
                             int to)
{
    dnnl_primitive_desc_t pd;
    PL_TRY(check(dnnl_reorder_primitive_desc_create(&pd, from_md, dnn.engine, to_md, dnn.engine,
                                                    dnn.attr),
                 "reorder weights"));
    pl_status s =
        add_step(d, pd, 2, (const int[][2]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    dnnl_primitive_desc_destroy(pd);
    return s;
}

/* An operand in the layout `want` holding what `user` holds: itself, or a copy in the work block
 * made by a step. */
static pl_status add_input(pl_dnn *d, const mdesc *user, const mdesc *want, int index, int *out)
{
    int from;
    PL_TRY(add_operand(d, user, AT_IN, index, &from));
    *out = from;
    if (dnnl_memory_desc_equal(user, want)) return PL_OK;
    PL_TRY(add_work(d, want, out));
    return add_reorder(d, user, from, want, *out);
}

pl_status pl_dnn_run(pl_dnn *d, const void *const *in, void *const *out, void *work)
{
    for (int i = 0; i < d->n_operands; i++) {
        operand *o = &d->operands[i];
        union {
            const void *read;
            void *write;
        } p = {.write = NULL}; /* oneDNN's handles are not const, its inputs are */
        if (o->where == AT_IN)
            p.read = in[o->index];
        else
            p.write = o->where == AT_OUT ? out[o->index] : (char *)work + o->offset;
        if (o->at == p.read) continue;
        PL_TRY(check(dnnl_memory_set_data_handle(o->mem, p.write), "take a tensor"));
        o->at = p.read;
    }
    for (int i = 0; i < d->n_steps; i++) {
        const step *s = &d->steps[i];
        PL_TRY(check(dnnl_primitive_execute(s->prim, dnn.stream, s->n_args, s->arg),
                     "run a kernel"));
    }
    return check(dnnl_stream_wait(dnn.stream), "finish a kernel");
}

/* Ends a prepare: hands d over, or frees it. */
static pl_status finish(pl_status s, pl_dnn *d, pl_dnn **out, size_t *work_bytes)
{
    if (s != PL_OK) {
        pl_dnn_free(d);
        return s;
    }
    *out = d;
    *work_bytes = d->work_bytes;
    return PL_OK;
}

/* ---- layouts ----------------------------------------------------------------------------------- */

static pl_status data_type(pl_dtype t, dnnl_data_type_t *out)
{
    PL_FAIL_IF(t != PL_F32 && t != PL_BF16, PL_ERR_UNSUPPORTED, "oneDNN does not compute in %s",
               pl_dtype_name(t));
    *out = t == PL_F32 ? dnnl_f32 : dnnl_bf16;
    return PL_OK;
}

/* (N, spatial.., C) as oneDNN sees it: dims N,C,spatial.. with our strides. */
static pl_status activation_md(mdesc *md, dnnl_data_type_t type, int n_spatial, int64_t n,
                               int64_t c, const int64_t *size)
{
    dnnl_dims_t dim = {n, c}, stride = {0, 1};
    int64_t step_elems = c;
    for (int i = n_spatial - 1; i >= 0; i--) {
        dim[2 + i] = size[i];
        stride[2 + i] = step_elems;
        step_elems *= size[i];
    }
    stride[0] = step_elems;
    return check(dnnl_memory_desc_init_by_strides(md, n_spatial + 2, dim, type, stride),
                 "describe an activation");
}

static int weight_dims(const pl_dnn_conv_desc *c, dnnl_dims_t dim)
{
    int n = 0;
    if (c->groups > 1) dim[n++] = c->groups;
    dim[n++] = c->oc / c->groups;
    dim[n++] = c->ic / c->groups;
    for (int i = 0; i < c->n_spatial; i++) dim[n++] = c->kernel[i];
    return n;
}

/* (O, kernel.., I/groups) as oneDNN sees it: dims [G],O,I,kernel.. with our strides. */
static pl_status weight_md(mdesc *md, dnnl_data_type_t type, const pl_dnn_conv_desc *c)
{
    dnnl_dims_t dim, stride;
    int n = weight_dims(c, dim), o = n - 2 - c->n_spatial;
    int64_t step_elems = dim[o + 1];
    stride[o + 1] = 1;
    for (int i = n - 1; i >= o + 2; i--) {
        stride[i] = step_elems;
        step_elems *= dim[i];
    }
    stride[o] = step_elems;
    if (o) stride[0] = step_elems * dim[o];
    return check(dnnl_memory_desc_init_by_strides(md, n, dim, type, stride),
                 "describe weights");
}

/* A window as oneDNN takes it: arrays of its own length, dilation counted from 0. */
typedef struct window {
    dnnl_dims_t kernel, stride, dilation, pad_lo, pad_hi;
} window;

#define WINDOW_INIT(w, d)                                                                    \
    do {                                                                                     \
        *(w) = (window){{0}, {0}, {0}, {0}, {0}};                                            \
        for (int i_ = 0; i_ < (d)->n_spatial; i_++) {                                        \
            (w)->kernel[i_] = (d)->kernel[i_];                                               \
            (w)->stride[i_] = (d)->stride[i_];                                               \
            (w)->dilation[i_] = (d)->dilation[i_] - 1;                                       \
            (w)->pad_lo[i_] = (d)->pad_lo[i_];                                               \
            (w)->pad_hi[i_] = (d)->pad_hi[i_];                                               \
        }                                                                                    \
    } while (0)

/* ---- choosing a kernel -------------------------------------------------------------------------- */

static const char *impl_of(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name)) return "";
    return name;
}

/* The first kernel oneDNN offers for op whose name does not hold `avoid` (NULL: the first of all);
 * if all hold it, the first. Reference loops are refused. */
static pl_status choose(const void *op, const_dnnl_primitive_desc_t hint, const char *avoid,
                        const char *what, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t it;
    PL_TRY(check(dnnl_primitive_desc_iterator_create(&it, op, dnn.attr, dnn.engine, hint), what));
    dnnl_primitive_desc_t first = dnnl_primitive_desc_iterator_fetch(it), best = NULL;
    do {
        if (!avoid) break;
        best = dnnl_primitive_desc_iterator_fetch(it);
        if (best && !strstr(impl_of(best), avoid)) break;
        dnnl_primitive_desc_destroy(best);
        best = NULL;
    } while (dnnl_primitive_desc_iterator_next(it) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(it);
    if (best && !strncmp(impl_of(best), "ref", 3)) {
        dnnl_primitive_desc_destroy(best);
        best = NULL;
    }
    if (best)
        dnnl_primitive_desc_destroy(first);
    else
        best = first;
    PL_FAIL_IF(!best, PL_ERR_MEMORY, "oneDNN has no memory to %s", what);
    *out = best;
    return PL_OK;
}

static void note_impl(pl_dnn *d, const_dnnl_primitive_desc_t pd)
{
    const char *name = impl_of(pd);
    size_t n = strlen(name);
    if (n >= sizeof d->impl) n = sizeof d->impl - 1;
    memcpy(d->impl, name, n);
}

/* ---- convolution -------------------------------------------------------------------------------- */

static pl_status check_window(const char *what, int n_spatial, const int64_t *in,
                              const int64_t *out, const int64_t *kernel, const int64_t *stride,
                              const int64_t *dilation, const int64_t *pad_lo,
                              const int64_t *pad_hi)
{
    PL_FAIL_IF(n_spatial < 1 || n_spatial > 3, PL_ERR_SHAPE, "%s over %d spatial dims", what,
               n_spatial);
    for (int i = 0; i < n_spatial; i++) {
        PL_FAIL_IF(in[i] < 1 || out[i] < 1 || kernel[i] < 1 || stride[i] < 1 || dilation[i] < 1 ||
                       pad_lo[i] < 0 || pad_hi[i] < 0,
                   PL_ERR_SHAPE,
                   "%s, dim %d: in %lld, out %lld, kernel %lld, stride %lld, dilation %lld must "
                   "be positive and padding %lld,%lld not negative",
                   what, i, (long long)in[i], (long long)out[i], (long long)kernel[i],
                   (long long)stride[i], (long long)dilation[i], (long long)pad_lo[i],
                   (long long)pad_hi[i]);
        int64_t room = in[i] + pad_lo[i] + pad_hi[i] - (kernel[i] - 1) * dilation[i] - 1;
        int64_t want = room < 0 ? 0 : room / stride[i] + 1;
        PL_FAIL_IF(want != out[i], PL_ERR_SHAPE,
                   "%s, dim %d: input %lld with padding %lld,%lld, kernel %lld, dilation %lld and "
                   "stride %lld gives %lld outputs, not %lld",
                   what, i, (long long)in[i], (long long)pad_lo[i], (long long)pad_hi[i],
                   (long long)kernel[i], (long long)dilation[i], (long long)stride[i],
                   (long long)want, (long long)out[i]);
    }
    return PL_OK;
}

static pl_status check_conv(pl_dnn_conv_kind kind, const pl_dnn_conv_desc *c)
{
    PL_TRY(check_window("convolution", c->n_spatial, c->in, c->out, c->kernel, c->stride,
                        c->dilation, c->pad_lo, c->pad_hi));
    PL_FAIL_IF(c->n < 1 || c->groups < 1 || c->ic < 1 || c->oc < 1 || c->ic % c->groups ||
                   c->oc % c->groups,
               PL_ERR_SHAPE, "convolution of %lld samples: %lld to %lld channels in %lld groups",
               (long long)c->n, (long long)c->ic, (long long)c->oc, (long long)c->groups);
    PL_FAIL_IF(c->bias && kind == PL_DNN_CONV_BWD_DATA, PL_ERR_UNSUPPORTED,
               "convolution backward to its data has no bias");
    return PL_OK;
}

/* A convolution's descriptors: x, y and our weights as stored; `any` leaves the layout open. */
typedef struct conv_mds {
    mdesc x, y, w, w_any, bias;
    window win;
} conv_mds;

static pl_status conv_mds_init(conv_mds *m, const pl_dnn_conv_desc *c)
{
    dnnl_data_type_t type = dnnl_f32;
    dnnl_dims_t dim, oc = {c->oc};
    PL_TRY(data_type(c->dtype, &type));
    PL_TRY(activation_md(&m->x, type, c->n_spatial, c->n, c->ic, c->in));
    PL_TRY(activation_md(&m->y, type, c->n_spatial, c->n, c->oc, c->out));
    PL_TRY(weight_md(&m->w, type, c));
    int rank = weight_dims(c, dim);
    PL_TRY(check(dnnl_memory_desc_init_by_tag(&m->w_any, rank, dim, type, dnnl_format_tag_any),
                 "describe weights"));
    PL_TRY(check(dnnl_memory_desc_init_by_tag(&m->bias, 1, oc, type, dnnl_a), "describe a bias"));
    WINDOW_INIT(&m->win, c);
    return PL_OK;
}

static pl_status conv_desc_init(dnnl_convolution_desc_t *op, pl_dnn_conv_kind kind,
                                const pl_dnn_conv_desc *c, const conv_mds *m)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    const mdesc *bias = c->bias ? &m->bias : NULL;
    const window *w = &m->win;
    dnnl_status_t s;
    if (kind == PL_DNN_CONV_FWD)
        s = dnnl_dilated_convolution_forward_desc_init(op, dnnl_forward_training, alg, &m->x,
                                                       &m->w_any, bias, &m->y, w->stride,
                                                       w->dilation, w->pad_lo, w->pad_hi);
    else if (kind == PL_DNN_CONV_BWD_DATA)
        s = dnnl_dilated_convolution_backward_data_desc_init(op, alg, &m->x, &m->w_any, &m->y,
                                                             w->stride, w->dilation, w->pad_lo,
                                                             w->pad_hi);
    else
        s = dnnl_dilated_convolution_backward_weights_desc_init(
            op, alg, &m->x, &m->w_any, bias, &m->y, w->stride, w->dilation, w->pad_lo, w->pad_hi);
    return check(s, "describe a convolution");
}

/* The batched-reduce kernel streams a whole filter for a few output pixels; with filters beyond
 * the caches (a wide 16x16 kernel) the plain jit kernel is twice as fast. */
static const char *conv_avoid(pl_dnn_conv_kind kind, const pl_dnn_conv_desc *c)
{
    int64_t filter = c->ic / c->groups;
    for (int i = 0; i < c->n_spatial; i++) filter *= c->kernel[i];
    return kind == PL_DNN_CONV_FWD && filter >= 65536 ? "brgconv" : NULL;
}

static pl_status conv_choose(pl_dnn_conv_kind kind, const pl_dnn_conv_desc *c, const conv_mds *m,
                             dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t hint = NULL;
    if (kind != PL_DNN_CONV_FWD) {
        PL_TRY(conv_desc_init(&op, PL_DNN_CONV_FWD, c, m));
        PL_TRY(check(dnnl_primitive_desc_create(&hint, &op, dnn.attr, dnn.engine, NULL),
                     "convolve"));
    }
    pl_status s = conv_desc_init(&op, kind, c, m);
    if (s == PL_OK) s = choose(&op, hint, conv_avoid(kind, c), "convolve", out);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return s;
}

static pl_status conv_steps(pl_dnn *d, pl_dnn_conv_kind kind, const pl_dnn_conv_desc *c,
                            const conv_mds *m, dnnl_primitive_desc_t pd)
{
    int x, y, w, b = 0;
    if (kind == PL_DNN_CONV_BWD_WEIGHTS) {
        const mdesc *want = dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0);
        int dw;
        PL_TRY(add_operand(d, &m->x, AT_IN, 0, &x));
        PL_TRY(add_operand(d, &m->y, AT_IN, 1, &y));
        PL_TRY(add_operand(d, &m->w, AT_OUT, 0, &dw));
        bool same = dnnl_memory_desc_equal(&m->w, want);
        w = dw;
        if (!same) PL_TRY(add_work(d, want, &w));
        if (c->bias) PL_TRY(add_operand(d, &m->bias, AT_OUT, 1, &b));
        PL_TRY(add_step(d, pd, c->bias ? 4 : 3,
                        (const int[][2]){{DNNL_ARG_SRC, x},
                                         {DNNL_ARG_DIFF_DST, y},
                                         {DNNL_ARG_DIFF_WEIGHTS, w},
                                         {DNNL_ARG_DIFF_BIAS, b}}));
        return same ? PL_OK : add_reorder(d, want, w, &m->w, dw);
    }
    PL_TRY(add_input(d, &m->w, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), 1,
                     &w));
    if (kind == PL_DNN_CONV_BWD_DATA) {
        PL_TRY(add_operand(d, &m->y, AT_IN, 0, &y));
        PL_TRY(add_operand(d, &m->x, AT_OUT, 0, &x));
        return add_step(d, pd, 3,
                        (const int[][2]){{DNNL_ARG_DIFF_DST, y},
                                         {DNNL_ARG_WEIGHTS, w},
                                         {DNNL_ARG_DIFF_SRC, x}});
    }
    PL_TRY(add_operand(d, &m->x, AT_IN, 0, &x));
    PL_TRY(add_operand(d, &m->y, AT_OUT, 0, &y));
    if (c->bias) PL_TRY(add_operand(d, &m->bias, AT_IN, 2, &b));
    return add_step(d, pd, c->bias ? 4 : 3,
                    (const int[][2]){{DNNL_ARG_SRC, x},
                                     {DNNL_ARG_WEIGHTS, w},
                                     {DNNL_ARG_DST, y},
                                     {DNNL_ARG_BIAS, b}});
}

pl_status pl_dnn_conv_prepare(pl_dnn_conv_kind kind, const pl_dnn_conv_desc *desc, pl_dnn **out,
                              size_t *work_bytes)
{
    pl_dnn *d = NULL;
    conv_mds m;
    dnnl_primitive_desc_t pd;
    PL_TRY(check_conv(kind, desc));
    PL_TRY(dnn_new(&d));
    pl_status s = conv_mds_init(&m, desc);
    if (s == PL_OK) s = conv_choose(kind, desc, &m, &pd);
    if (s != PL_OK) return finish(s, d, out, work_bytes);
    note_impl(d, pd);
    s = conv_steps(d, kind, desc, &m, pd);
    dnnl_primitive_desc_destroy(pd);
    return finish(s, d, out, work_bytes);
}

/* ---- matrix product ----------------------------------------------------------------------------- */

static pl_status check_matmul(const pl_dnn_matmul_desc *m, int64_t lda, int64_t ldb)
{
    PL_FAIL_IF(m->batch < 1 || m->m < 1 || m->n < 1 || m->k < 1, PL_ERR_SHAPE,
               "matmul of %lld times (%lld,%lld) by (%lld,%lld)", (long long)m->batch,
               (long long)m->m, (long long)m->k, (long long)m->k, (long long)m->n);
    PL_FAIL_IF(lda < (m->trans_a ? m->m : m->k) || ldb < (m->trans_b ? m->k : m->n), PL_ERR_SHAPE,
               "matmul (%lld,%lld,%lld): row lengths %lld and %lld are shorter than the rows",
               (long long)m->m, (long long)m->n, (long long)m->k, (long long)lda, (long long)ldb);
    return PL_OK;
}

/* One matrix, (rows, cols) after its transposition; a batch of one has no batch dim. */
static pl_status matrix_md(mdesc *md, dnnl_data_type_t type, int64_t batch, int64_t batch_stride,
                           int64_t rows, int64_t cols, int64_t ld, bool trans)
{
    bool batched = batch > 1;
    dnnl_dims_t dim = {batch_stride ? batch : 1, rows, cols};
    dnnl_dims_t stride = {batch_stride ? batch_stride : rows * cols, trans ? 1 : ld,
                          trans ? ld : 1};
    return check(dnnl_memory_desc_init_by_strides(md, batched ? 3 : 2, dim + !batched, type,
                                                  stride + !batched),
                 "describe a matrix");
}

static pl_status matmul_build(pl_dnn *d, const pl_dnn_matmul_desc *m, int64_t lda, int64_t ldb)
{
    dnnl_data_type_t type = dnnl_f32;
    mdesc a, b, c, bias;
    PL_TRY(data_type(m->dtype, &type));
    PL_TRY(matrix_md(&a, type, m->batch, m->a_batch_stride, m->m, m->k, lda, m->trans_a));
    PL_TRY(matrix_md(&b, type, m->batch, m->b_batch_stride, m->k, m->n, ldb, m->trans_b));
    PL_TRY(matrix_md(&c, type, m->batch, m->m * m->n, m->m, m->n, m->n, false));
    PL_TRY(matrix_md(&bias, type, m->batch, 0, 1, m->n, m->n, false));
    dnnl_matmul_desc_t op;
    PL_TRY(check(dnnl_matmul_desc_init(&op, &a, &b, m->bias ? &bias : NULL, &c),
                 "describe a matrix product"));
    int pa, pb, pc, pbias = 0;
    PL_TRY(add_operand(d, &a, AT_IN, 0, &pa));
    PL_TRY(add_operand(d, &b, AT_IN, 1, &pb));
    PL_TRY(add_operand(d, &c, AT_OUT, 0, &pc));
    if (m->bias) PL_TRY(add_operand(d, &bias, AT_IN, 2, &pbias));
    dnnl_primitive_desc_t pd;
    PL_TRY(choose(&op, NULL, NULL, "multiply matrices", &pd));
    note_impl(d, pd);
    pl_status s = add_step(d, pd, m->bias ? 4 : 3,
                           (const int[][2]){{DNNL_ARG_SRC, pa},
                                            {DNNL_ARG_WEIGHTS, pb},
                                            {DNNL_ARG_DST, pc},
                                            {DNNL_ARG_BIAS, pbias}});
    dnnl_primitive_desc_destroy(pd);
    return s;
}

pl_status pl_dnn_matmul_prepare(const pl_dnn_matmul_desc *desc, pl_dnn **out, size_t *work_bytes)
{
    int64_t lda = desc->lda ? desc->lda : desc->trans_a ? desc->m : desc->k;
    int64_t ldb = desc->ldb ? desc->ldb : desc->trans_b ? desc->k : desc->n;
    pl_dnn *d = NULL;
    PL_TRY(check_matmul(desc, lda, ldb));
    PL_TRY(dnn_new(&d));
    return finish(matmul_build(d, desc, lda, ldb), d, out, work_bytes);
}

/* ---- pools -------------------------------------------------------------------------------------- */

static pl_status check_pool(const pl_dnn_pool_desc *p, bool max)
{
    PL_TRY(check_window("pool", p->n_spatial, p->in, p->out, p->kernel, p->stride, p->dilation,
                        p->pad_lo, p->pad_hi));
    PL_FAIL_IF(p->n < 1 || p->c < 1, PL_ERR_SHAPE, "pool of %lld samples of %lld channels",
               (long long)p->n, (long long)p->c);
    int64_t elems = 1;
    for (int i = 0; i < p->n_spatial; i++) elems *= p->kernel[i];
    PL_FAIL_IF(max && elems > 255, PL_ERR_UNSUPPORTED,
               "a max pool window of %lld elements: a byte holds its index only up to 255",
               (long long)elems);
    return PL_OK;
}

static pl_status pool_build(pl_dnn *d, pl_dnn_pool_kind kind, const pl_dnn_pool_desc *p)
{
    const bool max = kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_MAX_BWD;
    const bool fwd = kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_AVG_FWD;
    const bool index = max && (!fwd || p->index);
    const dnnl_alg_kind_t alg = max            ? dnnl_pooling_max
                                : p->count_pad ? dnnl_pooling_avg_include_padding
                                               : dnnl_pooling_avg_exclude_padding;
    dnnl_data_type_t type = dnnl_f32;
    mdesc x, y, ix;
    PL_TRY(data_type(p->dtype, &type));
    PL_TRY(activation_md(&x, type, p->n_spatial, p->n, p->c, p->in));
    PL_TRY(activation_md(&y, type, p->n_spatial, p->n, p->c, p->out));
    PL_TRY(activation_md(&ix, dnnl_u8, p->n_spatial, p->n, p->c, p->out));
    window w;
    WINDOW_INIT(&w, p);
    dnnl_pooling_v2_desc_t op;
    dnnl_primitive_desc_t pd, hint;
    const dnnl_prop_kind_t prop =
        fwd && !index ? dnnl_forward_inference : dnnl_forward_training;
    PL_TRY(check(dnnl_pooling_v2_forward_desc_init(&op, prop, alg, &x, &y, w.stride, w.kernel,
                                                   w.dilation, w.pad_lo, w.pad_hi),
                 "describe a pool"));
    PL_TRY(choose(&op, NULL, NULL, "pool", &pd));
    pl_status s = PL_OK;
    if (!fwd) {
        hint = pd;
        s = check(dnnl_pooling_v2_backward_desc_init(&op, alg, &x, &y, w.stride, w.kernel,
                                                     w.dilation, w.pad_lo, w.pad_hi),
                  "describe a pool");
        if (s == PL_OK) s = choose(&op, hint, NULL, "pool", &pd);
        dnnl_primitive_desc_destroy(hint);
        PL_TRY(s);
    }
    note_impl(d, pd);
    const mdesc *ws = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    int px, py, pi = 0;
    if (index && !dnnl_memory_desc_equal(ws, &ix))
        s = pl__fail(PL_ERR_UNSUPPORTED, __FILE__, __LINE__, "oneDNN keeps other pool indices");
    if (s == PL_OK) s = add_operand(d, &x, fwd ? AT_IN : AT_OUT, 0, &px);
    if (s == PL_OK) s = add_operand(d, &y, fwd ? AT_OUT : AT_IN, 0, &py);
    if (s == PL_OK && index) s = add_operand(d, &ix, fwd ? AT_OUT : AT_IN, 1, &pi);
    if (s == PL_OK)
        s = add_step(d, pd, index ? 3 : 2,
                     (const int[][2]){{fwd ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, px},
                                      {fwd ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, py},
                                      {DNNL_ARG_WORKSPACE, pi}});
    dnnl_primitive_desc_destroy(pd);
    return s;
}

pl_status pl_dnn_pool_prepare(pl_dnn_pool_kind kind, const pl_dnn_pool_desc *desc, pl_dnn **out,
                              size_t *work_bytes)
{
    pl_dnn *d = NULL;
    PL_TRY(check_pool(desc, kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_MAX_BWD));
    PL_TRY(dnn_new(&d));
    return finish(pool_build(d, kind, desc), d, out, work_bytes);
}
