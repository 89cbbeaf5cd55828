/* dnn.c - oneDNN (C API, 2.5 to 3.x) behind plain C: the engine, the lists of dnn_int.h, and
 * their execution. Matrix products, pools and convolutions are in dnn_matmul.c, dnn_pool.c and
 * dnn_conv*.c, differences between versions of oneDNN in dnn_api.h; no other folder calls oneDNN.
 *
 * Activations stay channels-last, which oneDNN's kernels accept without a copy. Weights are fastest
 * in a blocked layout that the kernel chooses, so a reorder step first copies our weights into the
 * work block (or, for a weight gradient, copies out of it last). Scratchpads lie in the work block
 * too (user mode), so the planner sees every byte.
 *
 * Algorithms are chosen by rules on shapes, never by timing, so a plan is reproducible.
 *
 * A process has one engine and one stream, created at first use: they hold no state per processor,
 * and oneDNN's cache of compiled kernels is per engine.
 */
#include "cpu/dnn/dnn_int.h"

#include "base/fpmode.h"
#include "base/sys.h"
#include "base/team.h"
#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Compiled kernels that oneDNN caches for equal shapes. A network has at most a few hundred
 * distinct kernels; each holds some tens of KiB of code. */
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
static _Thread_local uint64_t n_made; /* primitives */

static void dnn_start(void)
{
    /* on failure, libgomp's team does the work */
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

/* Other threads may be preparing kernels at the same time: oneDNN's cache has its own lock, and a
 * kernel that is evicted too early is only prepared again. */
void pl_dnn_forget(void)
{
    if (atomic_load(&dnn_started) && dnnl_set_primitive_cache_capacity(0) == dnnl_success)
        (void)dnnl_set_primitive_cache_capacity(CACHE_CAPACITY);
}

uint64_t pl_dnn_made(void)
{
    return n_made;
}

size_t pl_dnn_bytes(void)
{
    return sizeof(pl_dnn);
}

size_t pl_dnn_code_bytes(void)
{
    return (size_t)(DNNL_VERSION_MAJOR >= 3 ? 10 : 6) << 19; /* 5 MiB, 3 MiB */
}

dnnl_engine_t pl_dnn_engine(void)
{
    return dnn.engine;
}

dnnl_primitive_attr_t pl_dnn_attr(void)
{
    return dnn.attr;
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

pl_status pl_dnn_hand_over(pl_status s, pl_dnn *d, pl_dnn **out, size_t *work_bytes)
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

static pl_status add_operand(pl_dnn *d, const pl_mdesc *m, pl_dnn_operand like, int *out,
                             size_t *bytes)
{
    if (d->n_operands == PL_DNN_MAX_OPERANDS) PL_BUG("more than %d operands", d->n_operands);
    pl_dnn_operand *o = &d->operands[d->n_operands];
    void *md;
    *o = like;
    PL_TRY(pl_dnn_mds_new(&m, 1, &md));
    dnnl_status_t s = dnnl_memory_create(&o->mem, md, dnn.engine, DNNL_MEMORY_NONE);
    *bytes = dnnl_memory_desc_get_size(md);
    pl_dnn_md_free(md);
    PL_TRY(pl_dnn_check(s, "describe a tensor"));
    *out = d->n_operands++;
    return PL_OK;
}

pl_status pl_dnn_add_operand(pl_dnn *d, const pl_mdesc *md, pl_dnn_place where, int index, int *out)
{
    size_t bytes;
    return add_operand(d, md, (pl_dnn_operand){.where = where, .index = index}, out, &bytes);
}

pl_status pl_dnn_add_work(pl_dnn *d, const pl_mdesc *md, int *out)
{
    const pl_dnn_operand like = {.where = PL_DNN_WORK, .offset = d->work_used};
    size_t bytes;
    PL_TRY(add_operand(d, md, like, out, &bytes));
    d->work_used += (bytes + PL_DNN_WORK_ALIGN - 1) / PL_DNN_WORK_ALIGN * PL_DNN_WORK_ALIGN;
    if (d->work_used > d->work_bytes) d->work_bytes = d->work_used;
    return PL_OK;
}

pl_status pl_dnn_add_as(pl_dnn *d, const pl_mdesc *has, int from, const pl_mdesc *want, int *out)
{
    bool same;
    PL_TRY(pl_dnn_same_md(has, want, &same));
    *out = from;
    if (same) return PL_OK;
    PL_TRY(pl_dnn_add_work(d, want, out));
    return pl_dnn_add_reorder(d, has, from, want, *out);
}

pl_status pl_dnn_add_input(pl_dnn *d, const pl_mdesc *user, const pl_mdesc *want, int index,
                           int *out)
{
    int from;
    PL_TRY(pl_dnn_add_operand(d, user, PL_DNN_IN, index, &from));
    return pl_dnn_add_as(d, user, from, want, out);
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
    n_made++;
    for (int i = 0; i < n; i++) step_arg(s, d, args[i][0], args[i][1]);
    const pl_mdesc pad = pl_dnn_chosen_md(pd, dnnl_query_scratchpad_md);
    if (!pad.chosen || dnnl_memory_desc_get_size(pad.chosen) == 0) return PL_OK;
    int scratch;
    PL_TRY(pl_dnn_add_work(d, &pad, &scratch));
    step_arg(s, d, DNNL_ARG_SCRATCHPAD, scratch);
    return PL_OK;
}

pl_status pl_dnn_add_reorder(pl_dnn *d, const pl_mdesc *from_md, int from, const pl_mdesc *to_md,
                             int to)
{
    dnnl_primitive_desc_t pd;
    void *md[2];
    PL_TRY(pl_dnn_mds_new((const pl_mdesc *[]){from_md, to_md}, 2, md));
    dnnl_status_t made =
        dnnl_reorder_primitive_desc_create(&pd, md[0], dnn.engine, md[1], dnn.engine, dnn.attr);
    pl_dnn_mds_free(md, 2);
    PL_TRY(pl_dnn_check(made, "reorder a tensor"));
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

/* Reserves n floats in the work block. */
static pl_status add_floats(pl_dnn *d, int64_t n, int *out)
{
    const pl_mdesc md = pl_dnn_vector_md(dnnl_f32, n);
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
    if (!dot) PL_TRY(add_floats(d, pl_narrow_parts(s) * s->n * s->cols, &call.operand[4]));
    pl_dnn_note_impl(d, dot ? "narrow:dot" : "narrow:sum");
    pl_dnn_add_call(d, &call);
    return PL_OK;
}

/* ---- running ---------------------------------------------------------------------------- */

/* Points the operands at this run's memory; for later images, moves the operands that move. */
static pl_status point(pl_dnn *d, const void *const *in, void *const *out, void *work,
                       int64_t image)
{
    for (int i = 0; i < d->n_operands; i++) {
        pl_dnn_operand *o = &d->operands[i];
        if (image > 0 && o->image_bytes == 0) continue;
        union {
            const void *read;
            void *write;
        } base = {.write = work}; /* oneDNN's handles are not const, although its inputs are */
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

/* Kernels for channels that do not fill a vector compute on uninitialised lanes. Denormal numbers
 * in those lanes are harmless but, on some processors, a hundred times slower: 1 ms becomes 140
 * ms. */
pl_status pl_dnn_run(pl_dnn *d, const void *const *in, void *const *out, void *work)
{
    (void)pl_threads_count(); /* this thread may differ from the thread that prepared the kernel */
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

/* Whether the name of the offer's kernel holds one of the words of `avoid`. */
static bool is_avoided(const pl_dnn_offer *o, const char *avoid)
{
    char word[PL_DNN_IMPL_CHARS];
    for (int n; sscanf(avoid, "%63s%n", word, &n) == 1; avoid += n)
        if (strstr(pl_dnn_impl_of(o->pd), word)) return true;
    return false;
}

/* Moves the offer to its first kernel that is not avoided, short of the reference loops; the offer
 * stays where it is if there is none. */
static dnnl_status_t move_past(pl_dnn_offer *o, const char *avoid)
{
    dnnl_primitive_desc_t first;
    bool good = !is_avoided(o, avoid);
    if (good) return dnnl_success;
    dnnl_status_t s = dnnl_primitive_desc_clone(&first, o->pd);
    if (s != dnnl_success) return s;
    while (!good && pl_dnn_offer_next(o)) good = !is_avoided(o, avoid);
    good = good && !is_reference(o->pd);
    dnnl_primitive_desc_destroy(good ? first : o->pd);
    if (!good) o->pd = first;
    return dnnl_success;
}

pl_status pl_dnn_choose(dnnl_status_t offered, pl_dnn_offer *o, pl_dtype dtype, const char *avoid,
                        const char *what, dnnl_primitive_desc_t *out)
{
    PL_TRY(pl_dnn_check(offered, what));
    dnnl_status_t moved = avoid ? move_past(o, avoid) : dnnl_success;
    const bool slow = dtype != PL_F32 && is_reference(o->pd);
    pl_dnn_offer_end(o);
    if (moved != dnnl_success || slow) dnnl_primitive_desc_destroy(o->pd);
    PL_TRY(pl_dnn_check(moved, what));
    PL_FAIL_IF(slow, PL_ERR_UNSUPPORTED, "oneDNN has no fast kernel in %s on this processor to %s",
               pl_dtype_name(dtype), what);
    *out = o->pd;
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

pl_mdesc pl_dnn_vector_md(dnnl_data_type_t type, int64_t n)
{
    return (pl_mdesc){.type = type, .rank = 1, .dim = {n}, .stride = {1}};
}

pl_mdesc pl_dnn_activation_md(dnnl_data_type_t type, int n_spatial, int64_t n, int64_t c,
                              const int64_t *size)
{
    pl_mdesc m = {.type = type, .rank = n_spatial + 2, .dim = {n, c}, .stride = {0, 1}};
    int64_t elems = c;
    for (int i = n_spatial - 1; i >= 0; i--) {
        m.dim[2 + i] = size[i];
        m.stride[2 + i] = elems;
        elems *= size[i];
    }
    m.stride[0] = elems;
    return m;
}

pl_mdesc pl_dnn_chosen_md(const_dnnl_primitive_desc_t pd, dnnl_query_t tensor)
{
    return (pl_mdesc){.chosen = dnnl_primitive_desc_query_md(pd, tensor, 0)};
}

pl_status pl_dnn_mds_new(const pl_mdesc *const *m, int n, void **out)
{
    for (int i = 0; i < n; i++) {
        out[i] = NULL;
        dnnl_status_t s = m[i] ? pl_dnn_md_new(m[i], &out[i]) : dnnl_success;
        if (s == dnnl_success) continue;
        pl_dnn_mds_free(out, i);
        return pl_dnn_check(s, "describe a tensor");
    }
    return PL_OK;
}

void pl_dnn_mds_free(void **mds, int n)
{
    for (int i = 0; i < n; i++) pl_dnn_md_free(mds[i]);
}

pl_status pl_dnn_same_md(const pl_mdesc *a, const pl_mdesc *b, bool *out)
{
    void *md[2];
    PL_TRY(pl_dnn_mds_new((const pl_mdesc *[]){a, b}, 2, md));
    *out = dnnl_memory_desc_equal(md[0], md[1]) != 0;
    pl_dnn_mds_free(md, 2);
    return PL_OK;
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
