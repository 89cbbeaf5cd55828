/* group.c - see group.h: generated text (codegen.h), compiled modules (nvrtc.h), launches. */
#include "cuda/group.h"

#include "base/arena.h"
#include "base/sys.h"
#include "cuda/codegen.h"
#include "cuda/nvrtc.h"

typedef struct group {
    pl_arena arena;
    pl_code code;
    pl_cuda_module **module; /* per kernel */
} group;

static void group_release(void *prep)
{
    group *k = prep;
    if (!k) return;
    pl_arena_release(&k->arena);
    pl_sys_free(k);
}

static pl_status build(const pl_graph *g, const pl_unit *u, group *k)
{
    PL_TRY(pl_code_make(g, u, &k->arena, &k->code));
    k->module = pl_arena_new(&k->arena, pl_cuda_module *, k->code.n_kernels + 1);
    if (!k->module) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < k->code.n_kernels; i++)
        PL_TRY(pl_cuda_module_make(k->code.kernel[i].text, k->code.kernel[i].len,
                                   &k->module[i]));
    return PL_OK;
}

pl_status pl_cuda_group_prepare(const pl_graph *g, const pl_unit *u, void **prep,
                                size_t *work_bytes)
{
    group *k = pl_sys_alloc(sizeof *k);
    if (!k) return PL_ERR_MEMORY;
    pl_status rc = build(g, u, k);
    if (rc != PL_OK) {
        group_release(k);
        return rc;
    }
    *work_bytes = k->code.work_bytes;
    *prep = k;
    return PL_OK;
}

static pl_status launch(const group *k, uint32_t i, const pl_call *c)
{
    const pl_code_kernel *x = &k->code.kernel[i];
    cudaKernel_t fn = pl_cuda_module_kernel(k->module[i]);
    uint64_t args[PL_CODE_ARGS / 8];
    void *list[] = {args};
    PL_FAIL_IF(!fn, PL_ERR_DEVICE, "a group runs before its kernels are compiled");
    PL_FAIL_IF(!pl_code_bind(x, c->in, c->out, c->work, args), PL_ERR_DEVICE,
               "an operand of a group is aligned less than its type and view say");
    cudaLaunchConfig_t how = {.gridDim = {x->grid, 1, 1},
                              .blockDim = {x->block_x, x->block_y, 1},
                              .stream = pl_cuda_stream()};
    PL_CUDA(cudaLaunchKernelExC(&how, (const void *)fn, list));
    return PL_OK;
}

static pl_status group_run(const pl_call *c)
{
    const group *k = c->prep;
    for (uint32_t i = 0; i < k->code.n_kernels; i++) PL_TRY(launch(k, i, c));
    return PL_OK;
}

const pl_kernel pl_cuda_group_kernel = {"nvrtc", NULL, NULL, group_release, group_run};

bool pl_cuda_group_inplace(const void *prep, uint32_t k, uint32_t i)
{
    const pl_code *c = &((const group *)prep)->code;
    return c->inplace && c->inplace[k * c->n_in + i];
}

/* Every function exists for every dtype that its op takes. */
bool pl_cuda_group_takes(const pl_graph *g, uint32_t node)
{
    (void)g, (void)node;
    return true;
}

pl_status pl_cuda_group_wait(void)
{
    return pl_cuda_module_wait();
}
