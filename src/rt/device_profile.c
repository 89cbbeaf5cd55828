/* device_profile.c - GPUs that are not installed: devices that plan and cannot run.
 *
 * Units are the same as on the CUDA device (pass/fuse/fuse.h). Memory, times and the scratch of
 * kernels come from the model's published figures (gpu_cost.c), the scratch by the same functions
 * that the kernels call (plan/cost/kernel_sizes.h). Groups are split into passes, and allow
 * in-place results, by the function that the code generator calls (plan/cost/group_passes.h). So
 * planning for a GPU needs neither the GPU nor its driver.
 */
#include "base/sys.h"
#include "ir/group/product.h"
#include "pass/fuse/fuse.h"
#include "plan/cost/cost.h"
#include "plan/cost/cost_card.h"
#include "plan/cost/group_passes.h"
#include "rt/device.h"

#include <stdio.h>
#include <string.h>

static void profile_release(void *prep)
{
    pl_sys_free(prep);
}

static const pl_kernel profile_kernel = {"profile", NULL, NULL, profile_release, NULL};

/* Reductions across blocks leave one partial result per block, in f32. Where there are enough
 * results to keep a GPU busy with one thread each, or one warp each for rows, no reduction is
 * split. */
static size_t partial_bytes(const pl_fused *f)
{
    enum { BLOCK = 4096, MOST = 512, WARP = 32, BUSY = 1 << 17 };
    int64_t space = 1;
    size_t bytes = 0;
    for (int d = 0; d < f->rank; d++) space *= f->dim[d];
    for (int o = 0; o < f->n_out; o++) {
        if (f->out[o].kind != PL_FUSED_REDUCE) continue;
        int64_t kept = 1;
        for (int d = 0; d < f->rank; d++)
            if (!(f->out[o].mask >> d & 1)) kept *= f->dim[d];
        bool rows = f->rank && f->out[o].mask >> (f->rank - 1) & 1;
        if (kept >= (rows ? BUSY / WARP : BUSY)) continue;
        int64_t blocks = space / (kept > BLOCK ? kept : BLOCK) + 1;
        bytes += (size_t)(blocks < MOST ? blocks : MOST) * (size_t)kept * 4;
    }
    return bytes;
}

/* Keeps of a prepared group only its in-place table. */
static pl_status prepare_group(const pl_graph *g, const pl_unit *u, pl_exec *out)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_cg_group *k;
    bool *may = NULL, *kept = NULL;
    size_t n = (size_t)u->n_in * u->n_out;
    pl_unit behind = *u;
    bool product = pl_group_product(g, u) != 0;
    pl_status rc = product ? pl_group_behind(g, u, &scratch, &behind) : PL_OK;
    if (rc == PL_OK) rc = pl_cg_cut(g, &behind, &scratch, &k);
    if (rc == PL_OK) rc = pl_cg_inplace(k, &may);
    if (rc == PL_OK && product) rc = pl_group_product_inplace(g, u, &behind, may, &scratch, &may);
    if (rc == PL_OK) kept = pl_sys_alloc(n + 1);
    if (rc == PL_OK && !kept) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) {
        memcpy(kept, may, n);
        out->prep = kept;
        out->inplace = kept;
        out->work_bytes = partial_bytes(&k->f);
    }
    pl_arena_release(&scratch);
    return rc;
}

static pl_status profile_prepare(const pl_graph *g, const pl_unit *u, const pl_call *call,
                                 bool reference, pl_exec *out)
{
    (void)reference, (void)call;
    *out = (pl_exec){.kernel = &profile_kernel};
    return u->kind == PL_UNIT_GROUP ? prepare_group(g, u, out) : PL_OK;
}

static const pl_fuse_opts profile_fuse = PL_FUSE_OPTS_CUDA(NULL);

#define PL_CARD(title, ...)                                                                        \
 {.name = title,                                                                                   \
  .fuse = &profile_fuse,                                                                           \
  .access = &pl_access_staged,                                                                     \
  .prepare = profile_prepare,                                                                      \
  .discard = pl_exec_discard,                                                                      \
  .plans_only = true,                                                                              \
  .gathers = true,                                                                                 \
  .link = "nvlink",                                                                                \
  .unit_ns = pl_gpu_unit_ns,                                                                       \
  .joins_products = pl_gpu_joins_products,                                                         \
  .copy_ns = pl_gpu_copy_ns,                                                                       \
  .scratch_bytes = pl_gpu_scratch_bytes},
static const pl_device profiles[] = {
#include "plan/cost/cards.def"
};
#undef PL_CARD

const pl_device *pl_device_profile(const char *name)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++)
        if (strcmp(profiles[i].name, name) == 0) return &profiles[i];
    return NULL;
}

static bool profile_has(const char *name)
{
    return pl_device_profile(name) != NULL;
}

static pl_status profile_open(const char *name, const pl_device **out)
{
    *out = pl_device_profile(name);
    return PL_OK;
}

const pl_device_kind pl_device_kind_profile = {
    .name = "profile",
    .has = profile_has,
    .open = profile_open,
};

int pl_device_profiles(pl_device_info *out, int cap)
{
    int n = pl_card_count();
    for (int i = 0; i < n && i < cap; i++) {
        const pl_card *card = pl_card_at(i);
        memset(&out[i], 0, sizeof out[i]);
        snprintf(out[i].name, sizeof out[i].name, "%s", card->name);
        snprintf(out[i].about, sizeof out[i].about,
                 "%s: %.0f GB/s, TFLOP/s f32 %g, tf32 %g, f16 %g, "
                 "bf16 %g",
                 card->about, card->bandwidth / 1e9, card->f32 / 1e12, card->tf32 / 1e12,
                 card->f16 / 1e12, card->bf16 / 1e12);
        snprintf(out[i].why_not, sizeof out[i].why_not,
                 "a profile to plan with; nothing can run on it");
        out[i].total_bytes = card->memory_bytes;
        out[i].free_bytes = card->memory_bytes - card->overhead_bytes;
    }
    return n;
}
