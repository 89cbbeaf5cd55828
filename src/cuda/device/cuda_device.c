/* cuda_device.c - the CUDA device: which kernel a unit gets, and the vtable.
 *
 * A group goes to the run-time compiler (cuda/codegen). A single node gets the first kernel of its
 * op that accepts it, or an alternative where that kernel is slow (trial.h); a map, a reduction, a
 * strided read or a constant without a kernel is compiled as a group of one. Nothing runs on the
 * host: an op without a kernel is an error that names it.
 */
#include "cuda/codegen/cuda_group.h"
#include "cuda/device/device_int.h"
#include "cuda/device/lib.h"
#include "cuda/device/trial.h"
#include "ir/group/product.h"
#include "pass/fuse/fuse.h"

#include <math.h>
#include <stdio.h>

/* ---- nodes whose output has its input's bytes but cannot be a view --------------------------- */
static pl_status copy_run(const pl_call *c)
{
    size_t bytes = pl_type_bytes(&c->out_type[0]);
    if (bytes && c->out[0] != c->in[0])
        PL_CUDA(cudaMemcpyAsync(c->out[0], c->in[0], bytes, cudaMemcpyDeviceToDevice,
                                pl_cuda_stream()));
    return PL_OK;
}
static const pl_kernel copy_kernel = {.name = "copy", .run = copy_run};

/* ---- choosing --------------------------------------------------------------------------- */
static pl_status prepare_group(const pl_graph *g, const pl_unit *u, pl_exec *out)
{
    *out = (pl_exec){.kernel = &pl_cuda_group_kernel};
    return pl_cuda_group_prepare(g, u, &out->prep, &out->inplace, &out->work_bytes);
}

/* Prepares the node as a group of one, with the operands of the node's call. */
static pl_status prepare_alone(const pl_graph *g, const pl_unit *u, pl_exec *out)
{
    const pl_node_rec *r = pl_node_get(g, u->nodes[0]);
    pl_arena scratch = PL_ARENA_INIT;
    uint32_t *in = pl_arena_new(&scratch, uint32_t, r->n_in + 1);
    uint32_t *outs = pl_arena_new(&scratch, uint32_t, r->n_out + 1);
    pl_status rc = PL_ERR_MEMORY;
    if (in && outs) {
        for (uint32_t i = 0; i < r->n_in; i++) in[i] = pl_node_in(g, u->nodes[0])[i];
        for (uint32_t k = 0; k < r->n_out; k++) outs[k] = r->out + k;
        pl_unit one = {.kind = PL_UNIT_GROUP,
                       .n_nodes = 1,
                       .nodes = u->nodes,
                       .n_in = r->n_in,
                       .in = in,
                       .n_out = r->n_out,
                       .out = outs};
        rc = prepare_group(g, &one, out);
    }
    pl_arena_release(&scratch);
    return rc;
}

static pl_status no_kernel(const pl_op *op, const pl_call *call)
{
    char types[512] = "", one[96];
    size_t used = 0;
    for (int i = 0; i < call->n_in && used < sizeof types; i++)
        used += (size_t)snprintf(types + used, sizeof types - used, "%s%s", i ? ", " : "",
                                 pl_type_text(&call->in_type[i], one, sizeof one));
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s has no CUDA kernel for (%s)", op->name, types);
}

static const pl_device device;
static pl_cuda_prepare_fn cuda_prepare;

static double predicted_ms(const pl_graph *g, const pl_unit *u, const pl_call *call, bool tf32)
{
    pl_device_mode mode = {.tf32 = tf32, .plain = !pl_cuda_split()};
    return 1e-6 * pl_gpu_expected_ns(&device, g, u, call->in_type[0].dtype, &mode);
}

static pl_status cuda_prepare(const pl_graph *g, const pl_unit *u, const pl_call *call,
                              bool reference, pl_exec *out)
{
    PL_TRY(pl_cuda_device_wait());
    if (pl_group_product(g, u)) return pl_cuda_product_prepare(g, u, cuda_prepare, out);
    if (u->kind == PL_UNIT_GROUP) return prepare_group(g, u, out);
    const pl_op *op = pl_node_get(g, u->nodes[0])->op;
    const pl_kernel *k = pl_kernel_choose(pl_cuda_kernels_of(op->name), call, reference);
    bool all = false;
    const pl_kernel *others = pl_cuda_alternatives_of(op->name, &all);
    double ms = 0;
    bool tf32 = pl_cuda_tf32(), exact = tf32 && call->n_in && call->in_type[0].dtype == PL_F32;
    pl_role role = pl_role_of(g, u->nodes[0]);
    if (!k && role == PL_ROLE_SAME) k = &copy_kernel;
    if (!k && (pl_role_core(role) || pl_role_inline(role))) return prepare_alone(g, u, out);
    if (!k) return no_kernel(op, call);
    if (others && !reference)
        pl_cuda_kernel_by_time(
            &(pl_cuda_trial){.op = op,
                             .call = call,
                             .expected = k,
                             .alternatives = others,
                             .expected_ms = predicted_ms(g, u, call, tf32),
                             .exact_ms = exact ? predicted_ms(g, u, call, false) : 0,
                             .all = all},
            &k, &ms);
    *out = (pl_exec){.kernel = k, .measured_ns = 1e6 * ms};
    return k->prepare ? k->prepare(call, &out->prep, &out->work_bytes) : PL_OK;
}

static void cuda_model(char *out, size_t cap)
{
    if (cap) out[0] = 0;
    if (pl_cuda_device_wait() == PL_OK) snprintf(out, cap, "%s", pl_cuda_props_get()->name);
}

static const pl_fuse_opts cuda_fuse = PL_FUSE_OPTS_CUDA(pl_cuda_group_takes);

static pl_status draw(void *to, pl_dtype dtype, const pl_slot_draws *from, int64_t first, int64_t n)
{
    const pl_init *init = &from->init;
    if (init->kind == PL_INIT_CONST && init->a == 0 && !signbit(init->a))
        return pl_cuda_memory_fill(to, 0, (size_t)n * pl_dtype_bytes(dtype));
    return pl_cuda_start_values(to, dtype, from->seed, from->stream, &from->init, first, n);
}

static pl_status ready(void)
{
    PL_TRY(pl_cuda_device_wait());
    pl_cuda_lib_wait();
    return pl_cuda_group_wait();
}

static uint64_t used_bytes(void)
{
    return pl_cuda_device_wait() == PL_OK ? pl_cuda_used_bytes() : 0;
}

static pl_status room(uint64_t bytes)
{
    PL_TRY(pl_cuda_device_wait());
    return pl_cuda_room(bytes);
}

static const pl_device device = {
    .name = "cuda",
    .fuse = &cuda_fuse,
    .access = &pl_access_staged,
    .own_memory = true,
    .gathers = true,
    .beside = true,
    .moves = true,
    .host_margin_bytes = (uint64_t)512 << 20,
    .margin_bytes = (uint64_t)12 << 20,
    /* a captured kernel takes about 10 KiB of the driver, and covers about six nodes */
    .node_bytes = 2560,
    .alloc = pl_cuda_alloc,
    .free = pl_cuda_free,
    .grow = pl_cuda_grow,
    .fill = pl_cuda_memory_fill,
    .draw = draw,
    .set_mode = pl_cuda_set_mode,
    .prepare = cuda_prepare,
    .discard = pl_exec_discard,
    .ready = ready,
    .run = pl_cuda_run,
    .host_alloc = pl_cuda_host_alloc,
    .host_free = pl_cuda_host_free,
    .write = pl_cuda_write,
    .read = pl_cuda_read,
    .capture_new = pl_cuda_capture_new,
    .capture_free = pl_cuda_capture_free,
    .capture_send = pl_cuda_capture_send,
    .capture_run = pl_cuda_capture_run,
    .capture_reclaim = pl_cuda_capture_reclaim,
    .capture_wait = pl_cuda_capture_wait,
    .capture_ms = pl_cuda_capture_ms,
    .used_bytes = used_bytes,
    .room = room,
    .link = "nvlink",
    .unit_ns = pl_gpu_unit_ns,
    .joins_products = pl_gpu_joins_products,
    .copy_ns = pl_gpu_copy_ns,
    .model = cuda_model,
};

static pl_status open(int index, const pl_device **out)
{
    PL_TRY(pl_cuda_device_open(index));
    *out = &device;
    return PL_OK;
}

PL_API extern const pl_cuda_plugin_info pl_cuda_plugin;
const pl_cuda_plugin_info pl_cuda_plugin = {PL_CUDA_ABI, PL_VERSION_STRING, open,
                                            pl_cuda_device_list};
