/* cpu_group.c - the CPU device's prepare and run of a fused group; see cpu_group.h. */
#include "cpu/tile/cpu_group.h"

#include "base/sys.h"
#include "cpu/tile/tile.h"
#include "ir/group/inplace.h"

typedef struct prepared {
    pl_arena arena;
    pl_tile_code *tile;
    bool *inplace; /* [unit output][unit input] */
} prepared;

bool pl_cpu_group_takes(const pl_graph *g, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(g, node);
    if (!(r->op->flags & PL_OP_MAP)) return true;
    pl_dtype of = pl_type_of(g, pl_node_in(g, node)[r->n_in - 1])->dtype;
    return pl_tile_has((pl_scalar_fn)r->op->scalar, of);
}

static pl_status build(const pl_graph *g, const pl_unit *u, pl_arena *scratch, prepared *k)
{
    pl_fused f;
    PL_TRY(pl_fused_make(g, u, scratch, &f));
    PL_TRY(pl_tile_compile(&f, &k->arena, &k->tile));
    return pl_inplace_group(&f, u, NULL, &k->arena, &k->inplace);
}

static void group_release(void *prep)
{
    prepared *k = prep;
    if (!k) return;
    pl_arena_release(&k->arena);
    pl_sys_free(k);
}

pl_status pl_cpu_group_prepare(const pl_graph *g, const pl_unit *u, void **prep,
                               const bool **inplace, size_t *work_bytes)
{
    prepared *k = pl_sys_alloc(sizeof *k);
    if (!k) return PL_ERR_MEMORY;
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = build(g, u, &scratch, k);
    pl_arena_release(&scratch);
    if (rc != PL_OK) {
        group_release(k);
        return rc;
    }
    *work_bytes = pl_tile_work_bytes(k->tile);
    *inplace = k->inplace;
    *prep = k;
    return PL_OK;
}

size_t pl_cpu_group_bytes(const void *prep)
{
    const prepared *k = prep;
    return sizeof *k + k->arena.total;
}

static pl_status group_run(const pl_call *c)
{
    const prepared *k = c->prep;
    pl_tile_run(k->tile, c->in, c->out, c->work);
    return PL_OK;
}

const pl_kernel pl_cpu_group_kernel = {.name = "tile", .release = group_release, .run = group_run};
