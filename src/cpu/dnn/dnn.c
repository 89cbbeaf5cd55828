/* dnn.c - oneDNN (2.6, C API v2) behind plain C: the engine, the lists of dnn_int.h, running
 * them, matrix products and pools. Convolutions are in dnn_conv.c; no other file calls oneDNN.
 *
 * Activations stay channels-last, which oneDNN's kernels take as they are. Weights are fastest
 * in a blocked layout that the kernel chooses, so a reorder step brings ours into the work
 * block first (or out of it last, for a weight gradient). Scratchpads are the work block's too
 * (user mode), so the planner sees every byte.
 *
 * Algorithms are chosen by rules on shapes, never by timing, so a plan can be repeated.
 *
 * There is one engine and one stream in a process, made at first use: they hold no state for
 * the processor, and oneDNN's cache of compiled kernels is per engine.
 */
#include "cpu/dnn/dnn_int.h"

#include "base/fpmode.h"
#include "base/sys.h"
#include "base/team.h"
#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Compiled kernels that oneDNN keeps for equal shapes prepared again. A network has at most a
 * few hundred distinct ones; each holds some tens of KiB of code. */
enum { CACHE_CAPACITY = 256 };

/* ---- the process's engine --------------------------------------------------------------- */

static struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratchpads belong to the caller */
    dnnl_status_t status;
} dnn;
static pthread_once_t dnn_once = PTHREAD_ONCE_INIT;
static atomic_bool dnn_started;

static void dnn_start(void)
{
    /* if not, libgomp's team does the work */
    (void)pl_team_serve((const void *)(uintptr_t)dnnl_primitive_execute);
    dnn.status = dnnl_engine_create(&dnn.engine, dnnl_cpu, 0);
    if (dnn.status) return;
    dnn.status = dnnl_stream_create(&dnn.stream, dnn.engine, dnnl_stream_in_order);
    if (dnn.status) return;
    dnn.status = dnnl_primitive_attr_create(&dnn.attr);
    if (dnn.status) return;
    dnn.status = dnnl_primitive_attr_set_scratchpad_mode(dnn.attr, dnnl_scratchpad_mode_user);
    if (dnn.status) return;
    dnn.status = dnnl_set_primitive_cache_capacity(CACHE_CAPACITY);
    atomic_store(&dnn_started, true);
}

/* Others may be preparing kernels meanwhile: oneDNN's cache has a lock of its own, and what it
 * forgets too early is only prepared again. */
void pl_dnn_forget(void)
{
    if (atomic_load(&dnn_started) && dnnl_set_primitive_cache_capacity(0) == dnnl_success)
        (void)dnnl_set_primitive_cache_capacity(CACHE_CAPACITY);
}

pl_status pl_dnn_check(dnnl_status_t s, const char *what)
{
    if (s == dnnl_success) return PL_OK;
    if (s == dnnl_out_of_memory) PL_FAIL(PL_ERR_MEMORY, "oneDNN has no memory to %s", what);
    if (s == dnnl_unimplemented)
        PL_FAIL(PL_ERR_UNSUPPORTED, "oneDNN has no kernel on this processor to %s", what);
    PL_FAIL(PL_ERR_DEVICE, "oneDNN cannot %s (status %d)", what, (int)s);
}

pl_status pl_dnn_new(pl_dnn **out)
{
    (void)pl_threads_count(); /* fixes the size of teams before oneDNN asks for it */
    pthread_once(&dnn_once, dnn_start);
    PL_TRY(pl_dnn_check(dnn.status, "start"));
    *out = pl_sys_alloc(sizeof **out);
    if (!*out) return PL_ERR_MEMORY;
    (*out)->n_images = 1;
    return PL_OK;
}

void pl_dnn_free(pl_dnn *d)
{
    if (!d) return;
    for (int i = 0; i < d->n_steps; i++)
        if (d->steps[i].prim) dnnl_primitive_destroy(d->steps[i].prim);
    for (int i = 0; i < d->n_operands; i++) dnnl_memory_destroy(d->operands[i].mem);
    pl_sys_free(d);
}

pl_status pl_dnn_finish(pl_status s, pl_dnn *d, pl_dnn **out, size_t *work_bytes)
{
    if (s != PL_OK) {
        pl_dnn_free(d);
        return s;
    }
    *out = d;
    *work_bytes = d->work_bytes;
    return PL_OK;
}

const char *pl_dnn_impl(const pl_dnn *d)
{
    return d->impl;
}

/* ---- filling the lists ------------------------------------------------------------------ */

pl_status pl_dnn_add_operand(pl_dnn *d, const pl_mdesc *md, pl_dnn_place where, int index, int *out)
{
    if (d->n_operands == PL_DNN_MAX_OPERANDS) PL_BUG("more than %d operands", d->n_operands);
    pl_dnn_operand *o = &d->operands[d->n_operands];
    *o = (pl_dnn_operand){.where = where, .index = index};
    PL_TRY(pl_dnn_check(dnnl_memory_create(&o->mem, md, dnn.engine, DNNL_MEMORY_NONE),
                        "describe a tensor"));
    *out = d->n_operands++;
    return PL_OK;
}

pl_status pl_dnn_add_work(pl_dnn *d, const pl_mdesc *md, int *out)
{
    PL_TRY(pl_dnn_add_operand(d, md, PL_DNN_WORK, 0, out));
    d->operands[*out].offset = d->work_used;
    const size_t bytes = dnnl_memory_desc_get_size(md);
    d->work_used += (bytes + PL_DNN_WORK_ALIGN - 1) / PL_DNN_WORK_ALIGN * PL_DNN_WORK_ALIGN;
    if (d->work_used > d->work_bytes) d->work_bytes = d->work_used;
    return PL_OK;
}

pl_status pl_dnn_add_input(pl_dnn *d, const pl_mdesc *user, const pl_mdesc *want, int index,
                           int *out)
{
    int from;
    PL_TRY(pl_dnn_add_operand(d, user, PL_DNN_IN, index, &from));
    *out = from;
    if (dnnl_memory_desc_equal(user, want)) return PL_OK;
    PL_TRY(pl_dnn_add_work(d, want, out));
    return pl_dnn_add_reorder(d, user, from, want, *out);
}

static pl_dnn_step *next_step(pl_dnn *d)
{
    if (d->n_steps == PL_DNN_MAX_STEPS) PL_BUG("more than %d steps", d->n_steps);
    return &d->steps[d->n_steps];
}

static void step_arg(pl_dnn_step *s, const pl_dnn *d, int name, int operand)
{
    if (s->n_args == PL_DNN_MAX_ARGS) PL_BUG("more than %d arguments", s->n_args);
    s->arg[s->n_args++] = (dnnl_exec_arg_t){name, d->operands[operand].mem};
}

pl_status pl_dnn_add_step(pl_dnn *d, dnnl_primitive_desc_t pd, int n, const int (*args)[2])
{
    pl_dnn_step *s = next_step(d);
    *s = (pl_dnn_step){0};
    PL_TRY(pl_dnn_check(dnnl_primitive_create(&s->prim, pd), "compile a kernel"));
    d->n_steps++;
    for (int i = 0; i < n; i++) step_arg(s, d, args[i][0], args[i][1]);
    const pl_mdesc *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (!pad || dnnl_memory_desc_get_size(pad) == 0) return PL_OK;
    int scratch;
    PL_TRY(pl_dnn_add_work(d, pad, &scratch));
    step_arg(s, d, DNNL_ARG_SCRATCHPAD, scratch);
    return PL_OK;
}

pl_status pl_dnn_add_reorder(pl_dnn *d, const pl_mdesc *from_md, int from, const pl_mdesc *to_md,
                             int to)
{
    dnnl_primitive_desc_t pd;
    PL_TRY(pl_dnn_check(
        dnnl_reorder_primitive_desc_create(&pd, from_md, dnn.engine, to_md, dnn.engine, dnn.attr),
        "reorder a tensor"));
    pl_status s =
        pl_dnn_add_step(d, pd, 2, (const int[][2]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    dnnl_primitive_desc_destroy(pd);
    return s;
}

void pl_dnn_add_call(pl_dnn *d, const pl_dnn_call *call)
{
    *next_step(d) = (pl_dnn_step){.call = *call};
    d->n_steps++;
}

pl_status pl_dnn_add_floats(pl_dnn *d, int64_t n, int *out)
{
    pl_mdesc md;
    const dnnl_dims_t dim = {n};
    PL_TRY(pl_dnn_check(dnnl_memory_desc_init_by_tag(&md, 1, dim, dnnl_f32, dnnl_a),
                        "describe work memory"));
    return pl_dnn_add_work(d, &md, out);
}

static void narrow_dot(const pl_dnn_call *c, void *const *p)
{
    pl_narrow_dot(&c->size.narrow, p[0], p[1], p[2], p[3]);
}

static void narrow_sum(const pl_dnn_call *c, void *const *p)
{
    pl_narrow_sum(&c->size.narrow, p[0], p[1], p[2], p[3], p[4]);
}

pl_status pl_dnn_add_narrow(pl_dnn *d, bool dot, const pl_narrow *s, int a, int b, int bias, int c)
{
    pl_dnn_call call = {
        .fn = dot ? narrow_dot : narrow_sum, .size.narrow = *s, .operand = {a, b, bias, c, -1}};
    if (!dot) PL_TRY(pl_dnn_add_floats(d, pl_narrow_parts(s) * s->n * s->cols, &call.operand[4]));
    pl_dnn_note_impl(d, dot ? "narrow:dot" : "narrow:sum");
    pl_dnn_add_call(d, &call);
    return PL_OK;
}

/* ---- running ---------------------------------------------------------------------------- */

/* Points the operands at this run's memory, or, in later turns, moves those that move. */
static pl_status point(pl_dnn *d, const void *const *in, void *const *out, void *work,
                       int64_t image)
{
    for (int i = 0; i < d->n_operands; i++) {
        pl_dnn_operand *o = &d->operands[i];
        if (image > 0 && o->image_bytes == 0) continue;
        union {
            const void *read;
            void *write;
        } base = {.write = work}; /* oneDNN's handles are not const, its inputs are */
        if (o->where == PL_DNN_IN) base.read = in[o->index];
        if (o->where == PL_DNN_OUT) base.write = out[o->index];
        void *at = (char *)base.write + o->offset + (size_t)image * o->image_bytes;
        if (o->at == at) continue;
        PL_TRY(pl_dnn_check(dnnl_memory_set_data_handle(o->mem, at), "take a tensor"));
        o->at = at;
    }
    return PL_OK;
}

static pl_status run_step(const pl_dnn *d, const pl_dnn_step *s)
{
    if (s->prim)
        return pl_dnn_check(dnnl_primitive_execute(s->prim, dnn.stream, s->n_args, s->arg),
                            "run a kernel");
    void *p[PL_DNN_MAX_ARGS];
    for (int i = 0; i < PL_DNN_MAX_ARGS; i++)
        p[i] = s->call.operand[i] < 0 ? NULL : d->operands[s->call.operand[i]].at;
    s->call.fn(&s->call, p);
    return PL_OK;
}

static pl_status run_all(pl_dnn *d, const void *const *in, void *const *out, void *work)
{
    PL_TRY(point(d, in, out, work, 0));
    for (int i = 0; i < d->loop_from; i++) PL_TRY(run_step(d, &d->steps[i]));
    for (int64_t image = 0; image < d->n_images; image++) {
        if (image > 0) PL_TRY(point(d, in, out, work, image));
        for (int i = d->loop_from; i < d->n_steps; i++) PL_TRY(run_step(d, &d->steps[i]));
    }
    return PL_OK;
}

/* Kernels for channels that do not fill a vector compute on whatever stands in the other lanes.
 * Denormal rubbish there is harmless and, on some processors, takes a hundred times as long: a
 * millisecond becomes 140. */
pl_status pl_dnn_run(pl_dnn *d, const void *const *in, void *const *out, void *work)
{
    (void)pl_threads_count(); /* perhaps another thread than the one that prepared it */
    uint32_t mode = pl_fp_mode();
    pl_fp_set(pl_fp_flushing(mode));
    pl_status rc = run_all(d, in, out, work);
    pl_fp_set(mode);
    return rc;
}

/* ---- choosing a kernel ------------------------------------------------------------------ */

const char *pl_dnn_impl_of(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name)) return "";
    return name;
}

static bool is_reference(const_dnnl_primitive_desc_t pd)
{
    return !strncmp(pl_dnn_impl_of(pd), "ref", 3);
}

/* The first offer without `avoid` in its name, short of the reference loops; NULL if none. */
static dnnl_primitive_desc_t first_without(dnnl_primitive_desc_iterator_t it, const char *avoid)
{
    do {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(it);
        if (!pd) return NULL;
        bool good = !strstr(pl_dnn_impl_of(pd), avoid);
        if (good && !is_reference(pd)) return pd;
        dnnl_primitive_desc_destroy(pd);
        if (good) return NULL;
    } while (dnnl_primitive_desc_iterator_next(it) == dnnl_success);
    return NULL;
}

pl_status pl_dnn_choose(const void *op, pl_dtype dtype, const_dnnl_primitive_desc_t hint,
                        const char *avoid, const char *what, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t it;
    PL_TRY(pl_dnn_check(dnnl_primitive_desc_iterator_create(&it, op, dnn.attr, dnn.engine, hint),
                        what));
    dnnl_primitive_desc_t first = dnnl_primitive_desc_iterator_fetch(it);
    dnnl_primitive_desc_t best = avoid ? first_without(it, avoid) : NULL;
    dnnl_primitive_desc_iterator_destroy(it);
    if (best && first) dnnl_primitive_desc_destroy(first);
    if (!best) best = first;
    PL_FAIL_IF(!best, PL_ERR_MEMORY, "oneDNN has no memory to %s", what);
    if (dtype != PL_F32 && is_reference(best)) {
        dnnl_primitive_desc_destroy(best);
        PL_FAIL(PL_ERR_UNSUPPORTED, "oneDNN has no fast kernel in %s on this processor to %s",
                pl_dtype_name(dtype), what);
    }
    *out = best;
    return PL_OK;
}

void pl_dnn_note_impl(pl_dnn *d, const char *name)
{
    size_t n = strlen(name);
    if (n >= sizeof d->impl) n = sizeof d->impl - 1;
    memcpy(d->impl, name, n);
    d->impl[n] = 0;
}

/* ---- layouts ---------------------------------------------------------------------------- */

pl_status pl_dnn_data_type(pl_dtype t, dnnl_data_type_t *out)
{
    PL_FAIL_IF(t != PL_F32 && t != PL_BF16, PL_ERR_UNSUPPORTED, "oneDNN does not compute in %s",
               pl_dtype_name(t));
    *out = t == PL_F32 ? dnnl_f32 : dnnl_bf16;
    return PL_OK;
}

pl_status pl_dnn_activation_md(pl_mdesc *md, dnnl_data_type_t type, int n_spatial, int64_t n,
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
    return pl_dnn_check(dnnl_memory_desc_init_by_strides(md, n_spatial + 2, dim, type, stride),
                        "describe an activation");
}

pl_dnn_window pl_dnn_window_make(int n_spatial, const int64_t *kernel, const int64_t *stride,
                                 const int64_t *dilation, const int64_t *pad_lo,
                                 const int64_t *pad_hi)
{
    pl_dnn_window w = {.kernel = {0}};
    for (int i = 0; i < n_spatial; i++) {
        w.kernel[i] = kernel[i];
        w.stride[i] = stride[i];
        w.dilation[i] = dilation[i] - 1;
        w.pad_lo[i] = pad_lo[i];
        w.pad_hi[i] = pad_hi[i];
    }
    return w;
}

pl_status pl_dnn_check_window(const char *what, int n_spatial, const int64_t *in,
                              const int64_t *out, const int64_t *kernel, const int64_t *stride,
                              const int64_t *dilation, const int64_t *pad_lo, const int64_t *pad_hi)
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

/* ---- matrix product --------------------------------------------------------------------- */

static pl_status check_matmul(const pl_dnn_matmul_desc *m)
{
    const int64_t lda = m->lda ? m->lda : INT64_MAX, ldb = m->ldb ? m->ldb : INT64_MAX;
    PL_FAIL_IF(m->batch < 1 || m->m < 1 || m->n < 1 || m->k < 1, PL_ERR_SHAPE,
               "matmul of %lld times (%lld,%lld) by (%lld,%lld)", (long long)m->batch,
               (long long)m->m, (long long)m->k, (long long)m->k, (long long)m->n);
    PL_FAIL_IF(lda < (m->trans_a ? m->m : m->k) || ldb < (m->trans_b ? m->k : m->n), PL_ERR_SHAPE,
               "matmul (%lld,%lld,%lld): row lengths %lld and %lld are shorter than the rows",
               (long long)m->m, (long long)m->n, (long long)m->k, (long long)lda, (long long)ldb);
    return PL_OK;
}

/* One matrix, (rows, cols) after its transposition; a batch of one has no batch dim. */
static pl_status matrix_md(pl_mdesc *md, dnnl_data_type_t type, int64_t batch, int64_t batch_stride,
                           int64_t rows, int64_t cols, int64_t ld, bool trans)
{
    bool batched = batch > 1;
    dnnl_dims_t dim = {batch_stride ? batch : 1, rows, cols};
    dnnl_dims_t stride = {batch_stride ? batch_stride : rows * cols, trans ? 1 : ld,
                          trans ? ld : 1};
    return pl_dnn_check(dnnl_memory_desc_init_by_strides(md, batched ? 3 : 2, dim + !batched, type,
                                                         stride + !batched),
                        "describe a matrix");
}

/* oneDNN's batched-reduce kernel takes dense matrices only, and the kernel that takes the
 * others allocates: a matrix with gaps between its rows or batches is copied together first. */
static pl_status matmul_operand(pl_dnn *d, const pl_dnn_matmul_desc *m, int index, pl_mdesc *dense,
                                int *out)
{
    const bool a = index == 0, trans = a ? m->trans_a : m->trans_b;
    const int64_t rows = a ? m->m : m->k, cols = a ? m->k : m->n, row = trans ? rows : cols;
    const int64_t ld = a ? m->lda : m->ldb;
    const int64_t batch_stride = a ? m->a_batch_stride : m->b_batch_stride;
    dnnl_data_type_t type = dnnl_f32;
    pl_mdesc user;
    PL_TRY(pl_dnn_data_type(m->dtype, &type));
    PL_TRY(matrix_md(&user, type, m->batch, batch_stride, rows, cols, ld ? ld : row, trans));
    PL_TRY(
        matrix_md(dense, type, m->batch, batch_stride ? rows * cols : 0, rows, cols, row, trans));
    return pl_dnn_add_input(d, &user, dense, index, out);
}

/* A product with one vector. The matrix is A with its transposition, or B with its; as rows of
 * dot products if its stored rows run along k, else as a sum of its rows. */
static pl_status matvec_build(pl_dnn *d, const pl_dnn_matmul_desc *m)
{
    const bool by_b = m->n == 1, dot = by_b ? !m->trans_a : m->trans_b;
    const int64_t out = by_b ? m->m : m->n, ld = by_b ? m->lda : m->ldb;
    pl_narrow s = {.rows = dot ? out : m->k, .cols = dot ? m->k : out, .n = 1};
    s.ld = ld ? ld : s.cols;
    s.bias_row = by_b ? 0 : 1;
    pl_mdesc md[4];
    int at[4] = {0, 0, -1, 0};
    PL_TRY(matrix_md(&md[0], dnnl_f32, 1, 1, s.rows, s.cols, s.ld, false));
    PL_TRY(matrix_md(&md[1], dnnl_f32, 1, 1, m->k, 1, 1, false));
    PL_TRY(matrix_md(&md[2], dnnl_f32, 1, 1, m->n, 1, 1, false));
    PL_TRY(matrix_md(&md[3], dnnl_f32, 1, 1, out, 1, 1, false));
    PL_TRY(pl_dnn_add_operand(d, &md[0], PL_DNN_IN, by_b ? 0 : 1, &at[0]));
    PL_TRY(pl_dnn_add_operand(d, &md[1], PL_DNN_IN, by_b ? 1 : 0, &at[1]));
    if (m->bias) PL_TRY(pl_dnn_add_operand(d, &md[2], PL_DNN_IN, 2, &at[2]));
    PL_TRY(pl_dnn_add_operand(d, &md[3], PL_DNN_OUT, 0, &at[3]));
    return pl_dnn_add_narrow(d, dot, &s, at[0], at[1], at[2], at[3]);
}

/* The vector itself must be dense: a column of a wider matrix is not. */
static bool is_matvec(const pl_dnn_matmul_desc *m)
{
    if (m->dtype != PL_F32 || m->batch != 1) return false;
    if (m->n == 1) return m->trans_b || m->ldb <= 1;
    return m->m == 1 && (!m->trans_a || m->lda <= 1);
}

static pl_status matmul_build(pl_dnn *d, const pl_dnn_matmul_desc *m)
{
    if (is_matvec(m)) return matvec_build(d, m);
    dnnl_data_type_t type = dnnl_f32;
    pl_mdesc a, b, c, bias;
    int pa, pb, pc, pbias = 0;
    PL_TRY(pl_dnn_data_type(m->dtype, &type));
    PL_TRY(matrix_md(&c, type, m->batch, m->m * m->n, m->m, m->n, m->n, false));
    PL_TRY(matrix_md(&bias, type, m->batch, 0, 1, m->n, m->n, false));
    PL_TRY(matmul_operand(d, m, 0, &a, &pa));
    PL_TRY(matmul_operand(d, m, 1, &b, &pb));
    PL_TRY(pl_dnn_add_operand(d, &c, PL_DNN_OUT, 0, &pc));
    if (m->bias) PL_TRY(pl_dnn_add_operand(d, &bias, PL_DNN_IN, 2, &pbias));
    dnnl_matmul_desc_t op;
    PL_TRY(pl_dnn_check(dnnl_matmul_desc_init(&op, &a, &b, m->bias ? &bias : NULL, &c),
                        "describe a matrix product"));
    dnnl_primitive_desc_t pd;
    PL_TRY(pl_dnn_choose(&op, m->dtype, NULL, NULL, "multiply matrices", &pd));
    pl_dnn_note_impl(d, pl_dnn_impl_of(pd));
    pl_status s = pl_dnn_add_step(d, pd, m->bias ? 4 : 3,
                                  (const int[][2]){{DNNL_ARG_SRC, pa},
                                                   {DNNL_ARG_WEIGHTS, pb},
                                                   {DNNL_ARG_DST, pc},
                                                   {DNNL_ARG_BIAS, pbias}});
    dnnl_primitive_desc_destroy(pd);
    return s;
}

/* Without AVX-512 oneDNN's product is its older kernel, which allocates as it runs; the 1x1
 * convolution is as fast there and does not. */
pl_status pl_dnn_matmul_prepare(const pl_dnn_matmul_desc *desc, pl_dnn **out, size_t *work_bytes)
{
    pl_dnn *d = NULL;
    PL_TRY(check_matmul(desc));
    PL_TRY(pl_dnn_new(&d));
    pl_status s = matmul_build(d, desc);
    if (s == PL_OK && desc->dtype == PL_F32 && strstr(d->impl, "gemm")) {
        pl_dnn_free(d);
        PL_TRY(pl_dnn_new(&d));
        s = pl_dnn_add_product(d, desc);
    }
    return pl_dnn_finish(s, d, out, work_bytes);
}

/* ---- pools ------------------------------------------------------------------------------ */

static pl_status check_pool(const pl_dnn_pool_desc *p, bool max)
{
    PL_TRY(pl_dnn_check_window("pool", p->n_spatial, p->in, p->out, p->kernel, p->stride,
                               p->dilation, p->pad_lo, p->pad_hi));
    PL_FAIL_IF(p->n < 1 || p->c < 1, PL_ERR_SHAPE, "pool of %lld samples of %lld channels",
               (long long)p->n, (long long)p->c);
    int64_t elems = 1;
    for (int i = 0; i < p->n_spatial; i++) elems *= p->kernel[i];
    PL_FAIL_IF(max && elems > 255, PL_ERR_UNSUPPORTED,
               "a max pool window of %lld elements: a byte holds its index only up to 255",
               (long long)elems);
    return PL_OK;
}

typedef struct pool_plan {
    bool fwd, index;
    pl_mdesc x, y, ix;
    dnnl_alg_kind_t alg;
} pool_plan;

static pl_status pool_plan_init(pool_plan *q, pl_dnn_pool_kind kind, const pl_dnn_pool_desc *p)
{
    const bool max = kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_MAX_BWD;
    q->fwd = kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_AVG_FWD;
    q->index = max && (!q->fwd || p->index);
    q->alg = max            ? dnnl_pooling_max
             : p->count_pad ? dnnl_pooling_avg_include_padding
                            : dnnl_pooling_avg_exclude_padding;
    dnnl_data_type_t type = dnnl_f32;
    PL_TRY(pl_dnn_data_type(p->dtype, &type));
    PL_TRY(pl_dnn_activation_md(&q->x, type, p->n_spatial, p->n, p->c, p->in));
    PL_TRY(pl_dnn_activation_md(&q->y, type, p->n_spatial, p->n, p->c, p->out));
    return pl_dnn_activation_md(&q->ix, dnnl_u8, p->n_spatial, p->n, p->c, p->out);
}

/* A backward pool is chosen to fit the forward one, which is then only a hint. */
static pl_status pool_choose(const pool_plan *q, const pl_dnn_pool_desc *p,
                             dnnl_primitive_desc_t *out)
{
    const pl_dnn_window w =
        pl_dnn_window_make(p->n_spatial, p->kernel, p->stride, p->dilation, p->pad_lo, p->pad_hi);
    const dnnl_prop_kind_t prop =
        q->fwd && !q->index ? dnnl_forward_inference : dnnl_forward_training;
    dnnl_pooling_v2_desc_t op;
    PL_TRY(pl_dnn_check(dnnl_pooling_v2_forward_desc_init(&op, prop, q->alg, &q->x, &q->y, w.stride,
                                                          w.kernel, w.dilation, w.pad_lo, w.pad_hi),
                        "describe a pool"));
    PL_TRY(pl_dnn_choose(&op, p->dtype, NULL, NULL, "pool", out));
    if (q->fwd) return PL_OK;
    dnnl_primitive_desc_t hint = *out;
    pl_status s =
        pl_dnn_check(dnnl_pooling_v2_backward_desc_init(&op, q->alg, &q->x, &q->y, w.stride,
                                                        w.kernel, w.dilation, w.pad_lo, w.pad_hi),
                     "describe a pool");
    if (s == PL_OK) s = pl_dnn_choose(&op, p->dtype, hint, NULL, "pool", out);
    dnnl_primitive_desc_destroy(hint);
    return s;
}

static pl_status pool_steps(pl_dnn *d, const pool_plan *q, dnnl_primitive_desc_t pd)
{
    const pl_mdesc *ws = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    const pl_dnn_place y_place = q->fwd ? PL_DNN_OUT : PL_DNN_IN;
    int x, y, index = 0;
    PL_FAIL_IF(q->index && !dnnl_memory_desc_equal(ws, &q->ix), PL_ERR_UNSUPPORTED,
               "oneDNN keeps the indices of this pool in another form");
    PL_TRY(pl_dnn_add_operand(d, &q->x, q->fwd ? PL_DNN_IN : PL_DNN_OUT, 0, &x));
    PL_TRY(pl_dnn_add_operand(d, &q->y, y_place, 0, &y));
    if (q->index) PL_TRY(pl_dnn_add_operand(d, &q->ix, y_place, 1, &index));
    return pl_dnn_add_step(d, pd, q->index ? 3 : 2,
                           (const int[][2]){{q->fwd ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, x},
                                            {q->fwd ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y},
                                            {DNNL_ARG_WORKSPACE, index}});
}

static pl_status pool_build(pl_dnn *d, pl_dnn_pool_kind kind, const pl_dnn_pool_desc *p)
{
    pool_plan q;
    dnnl_primitive_desc_t pd;
    PL_TRY(pool_plan_init(&q, kind, p));
    PL_TRY(pool_choose(&q, p, &pd));
    pl_dnn_note_impl(d, pl_dnn_impl_of(pd));
    pl_status s = pool_steps(d, &q, pd);
    dnnl_primitive_desc_destroy(pd);
    return s;
}

pl_status pl_dnn_pool_prepare(pl_dnn_pool_kind kind, const pl_dnn_pool_desc *desc, pl_dnn **out,
                              size_t *work_bytes)
{
    pl_dnn *d = NULL;
    PL_TRY(check_pool(desc, kind == PL_DNN_POOL_MAX_FWD || kind == PL_DNN_POOL_MAX_BWD));
    PL_TRY(pl_dnn_new(&d));
    return pl_dnn_finish(pool_build(d, kind, desc), d, out, work_bytes);
}
