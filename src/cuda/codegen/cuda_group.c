/* cuda_group.c - the CUDA device's prepare and run of a fused group: generated text (codegen.h),
 * compiled modules (nvrtc.h), launches.
 *
 * Generating the text of a group takes a hundred times the memory that a launch needs, and a
 * network has thousands of groups: the text is generated in a scratch arena, and what launches need
 * is copied out.
 */
#include "cuda/codegen/cuda_group.h"

#include "base/arena.h"
#include "base/sys.h"
#include "cuda/codegen/codegen.h"
#include "cuda/codegen/nvrtc.h"

#include <string.h>

struct pl_cuda_code {
    pl_arena arena;
    pl_code code;
    pl_cuda_module **module; /* per kernel */
    uint64_t *args;          /* the arguments of a launch being written */
};
typedef struct pl_cuda_code prepared;

void pl_cuda_code_release(void *prep)
{
    prepared *k = prep;
    if (!k) return;
    pl_arena_release(&k->arena);
    pl_sys_free(k);
}

static void *copy_of(pl_arena *a, const void *from, size_t bytes)
{
    void *p = pl_arena_alloc(a, bytes + 1);
    if (p && bytes) memcpy(p, from, bytes);
    return p;
}

/* Copies what launches need of one kernel: everything but the text. */
static pl_status keep_kernel(prepared *k, const pl_code_kernel *made, pl_code_kernel *out)
{
    *out = *made;
    out->text = NULL;
    out->args = copy_of(&k->arena, made->args, made->arg_bytes);
    out->patch = copy_of(&k->arena, made->patch, made->n_patches * sizeof *made->patch);
    return out->args && out->patch ? PL_OK : PL_ERR_MEMORY;
}

static pl_status keep(prepared *k, const pl_code *made)
{
    k->code = *made;
    k->code.kernel = pl_arena_new(&k->arena, pl_code_kernel, made->n_kernels + 1);
    k->module = pl_arena_new(&k->arena, pl_cuda_module *, made->n_kernels + 1);
    uint32_t arg_bytes = 0;
    for (uint32_t i = 0; i < made->n_kernels; i++)
        if (made->kernel[i].arg_bytes > arg_bytes) arg_bytes = made->kernel[i].arg_bytes;
    k->args = pl_arena_new(&k->arena, uint64_t, arg_bytes / 8 + 1);
    k->code.inplace =
        copy_of(&k->arena, made->inplace, (size_t)made->n_in * made->n_out * sizeof(bool));
    if (!k->code.kernel || !k->module || !k->code.inplace || !k->args) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < made->n_kernels; i++) {
        PL_TRY(keep_kernel(k, &made->kernel[i], &k->code.kernel[i]));
        PL_TRY(pl_cuda_module_make(made->kernel[i].text, made->kernel[i].len,
                                   made->kernel[i].shared, made->kernel[i].wgmma, &k->module[i]));
    }
    return PL_OK;
}

pl_status pl_cuda_code_keep(const pl_code *made, pl_cuda_code **out)
{
    prepared *k = pl_sys_alloc(sizeof *k);
    if (!k) return PL_ERR_MEMORY;
    pl_status rc = keep(k, made);
    if (rc != PL_OK) {
        pl_cuda_code_release(k);
        return rc;
    }
    *out = k;
    return PL_OK;
}

const pl_code *pl_cuda_code_of(const pl_cuda_code *k)
{
    return &k->code;
}

bool pl_cuda_code_spills(const pl_cuda_code *k)
{
    bool any = false;
    for (uint32_t i = 0; i < k->code.n_kernels; i++) any |= pl_cuda_module_spills(k->module[i]);
    return any;
}

pl_status pl_cuda_group_prepare(const pl_graph *g, const pl_unit *u, void **prep,
                                const bool **inplace, size_t *work_bytes)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_code made;
    pl_cuda_code *k = NULL;
    pl_status rc = pl_code_make(g, u, &scratch, &made);
    if (rc == PL_OK) rc = pl_cuda_code_keep(&made, &k);
    pl_arena_release(&scratch);
    if (rc != PL_OK) return rc;
    *work_bytes = k->code.work_bytes;
    *inplace = k->code.inplace;
    *prep = k;
    return PL_OK;
}

/* GPUs from this architecture on can start a kernel while the previous kernel ends: a fold's blocks
 * are resident by the time all partial results are, and wait for them themselves (prelude.cuh). The
 * predecessor of the first kernel of a group is not known here. */
enum { OVERLAP_ARCH = 90 };

static pl_status launch(const prepared *k, uint32_t i, const void *const *in, void *const *out,
                        void *work, pl_cuda_map *map)
{
    const pl_code_kernel *x = &k->code.kernel[i];
    cudaKernel_t fn = pl_cuda_module_kernel(k->module[i]);
    void *list[] = {k->args, map, map ? map + 1 : NULL};
    PL_FAIL_IF(!fn, PL_ERR_DEVICE, "a group runs before its kernels are compiled");
    PL_FAIL_IF(!pl_code_bind(x, in, out, work, k->args), PL_ERR_DEVICE,
               "an operand of a group is aligned less than its type and view say");
    cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                 .val.programmaticStreamSerializationAllowed = 1};
    cudaLaunchConfig_t how = {.gridDim = {x->grid, 1, 1},
                              .blockDim = {x->block_x, x->block_y, 1},
                              .dynamicSmemBytes = x->shared,
                              .stream = pl_cuda_stream(),
                              .attrs = &early,
                              .numAttrs = i > 0 && pl_cuda_props_get()->arch >= OVERLAP_ARCH};
    PL_CUDA(cudaLaunchKernelExC(&how, (const void *)fn, list));
    return PL_OK;
}

pl_status pl_cuda_code_run(const pl_cuda_code *k, const void *const *in, void *const *out,
                           void *work, pl_cuda_map *map)
{
    for (uint32_t i = 0; i < k->code.n_kernels; i++) PL_TRY(launch(k, i, in, out, work, map));
    return PL_OK;
}

static pl_status group_run(const pl_call *c)
{
    return pl_cuda_code_run(c->prep, c->in, c->out, c->work, NULL);
}

const pl_kernel pl_cuda_group_kernel = {
    .name = "nvrtc", .release = pl_cuda_code_release, .run = group_run};

/* Every function exists for every dtype that its op supports. */
bool pl_cuda_group_takes(const pl_graph *g, uint32_t node)
{
    (void)g, (void)node;
    return true;
}

pl_status pl_cuda_group_wait(void)
{
    return pl_cuda_module_wait();
}
