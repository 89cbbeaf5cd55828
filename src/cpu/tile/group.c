/* group.c - see group.h. The form and the tile program say the same in two vocabularies: the
 * first belongs to the graph, the second to a machine; this file is the dictionary.
 */
#include "cpu/tile/group.h"

#include "base/sys.h"
#include "cpu/tile/tile.h"
#include "ir/form.h"

#include <string.h>

_Static_assert((int)PL_SCALAR_NEG == (int)PL_TILE_FN_NEG + 1, "scalar.def orders both");
_Static_assert((int)PL_SCALAR_SELECT == (int)PL_TILE_FN_SELECT + 1, "scalar.def orders both");
_Static_assert((int)PL_REDUCE_MOMENTS == (int)PL_TILE_MOMENTS, "reductions have one order");
_Static_assert((int)PL_FORM_RANK == (int)PL_TILE_RANK, "dims of a space");

typedef struct group {
    pl_arena arena;
    pl_tile *tile;
    uint32_t n_unit_in;
    int32_t n_in;
    uint32_t *in;  /* per operand: which of the unit's inputs */
    bool *inplace; /* [unit output][unit input] */
} group;

bool pl_group_takes(const pl_graph *g, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(g, node);
    if (!(r->op->flags & PL_OP_MAP)) return true;
    if (r->op->scalar == PL_SCALAR_CAST) return true;
    pl_dtype of = pl_type_of(g, pl_node_in(g, node)[r->n_in - 1])->dtype;
    return pl_tile_has((pl_tile_fn)(r->op->scalar - 1), of);
}

static pl_tile_code code_of(const pl_form_instr *x)
{
    switch (x->code) {
    case PL_FORM_LOAD: return PL_TILE_LOAD;
    case PL_FORM_RAMP: break;
    case PL_FORM_DRAW: return PL_TILE_DRAW;
    case PL_FORM_MAP: return x->fn == PL_SCALAR_CAST ? PL_TILE_CAST : PL_TILE_SCALAR;
    case PL_FORM_ROW: return PL_TILE_ROW_REDUCE;
    case PL_FORM_ROW_VAR: return PL_TILE_ROW_VAR;
    }
    for (int d = 0; d < PL_FORM_RANK; d++)
        if (x->step[d] != 0.0) return PL_TILE_IOTA;
    return PL_TILE_IMM;
}

static pl_tile_instr instr_of(const pl_form_instr *x)
{
    pl_tile_instr y;
    memset(&y, 0, sizeof y);
    y.code = code_of(x);
    y.dtype = x->dtype;
    memcpy(y.arg, x->arg, sizeof y.arg);
    y.index = x->operand;
    if (y.code == PL_TILE_SCALAR) y.fn = (pl_tile_fn)(x->fn - 1);
    y.reduce = (pl_tile_reduce_fn)x->reduce;
    y.imm = x->imm;
    y.stream = x->draw.stream;
    y.normal = x->draw.normal;
    memcpy(y.step, x->step, sizeof y.step);
    return y;
}

static pl_status translate(const pl_graph *g, const pl_unit *u, const pl_form *f, group *k,
                           pl_arena *a, pl_tile_program *p)
{
    pl_tile_operand *in = pl_arena_new(a, pl_tile_operand, f->n_in + 1);
    pl_tile_instr *instr = pl_arena_new(a, pl_tile_instr, f->n_instr + 1);
    pl_tile_output *out = pl_arena_new(a, pl_tile_output, f->n_out + 1);
    k->n_in = f->n_in;
    k->in = pl_arena_new(&k->arena, uint32_t, f->n_in + 1);
    if (!in || !instr || !out || !k->in) return PL_ERR_MEMORY;
    for (int i = 0; i < f->n_in; i++) {
        in[i].dtype = pl_type_of(g, u->in[f->in[i].in])->dtype;
        in[i].offset = f->in[i].offset;
        in[i].bits = f->in[i].bits;
        memcpy(in[i].stride, f->in[i].stride, sizeof in[i].stride);
        k->in[i] = f->in[i].in;
    }
    for (int i = 0; i < f->n_instr; i++) instr[i] = instr_of(&f->instr[i]);
    for (int i = 0; i < f->n_out; i++)
        out[i] = (pl_tile_output){.kind = (pl_tile_out_kind)f->out[i].kind,
                                  .src = f->out[i].src,
                                  .dtype = f->out[i].dtype,
                                  .out = f->out[i].out,
                                  .out2 = f->out[i].out2,
                                  .reduce = (pl_tile_reduce_fn)f->out[i].reduce,
                                  .mask = f->out[i].mask,
                                  .bits = f->out[i].bits};
    *p = (pl_tile_program){.rank = f->rank,
                           .row_rank = f->row_rank,
                           .n_in = f->n_in,
                           .n_instr = f->n_instr,
                           .n_out = f->n_out,
                           .in = in,
                           .instr = instr,
                           .out = out};
    memcpy(p->dim, f->dim, sizeof p->dim);
    return PL_OK;
}

/* An input may become an output when its one reading is the output's own position. */
static pl_status find_inplace(const pl_unit *u, const pl_tile_program *p, group *k)
{
    k->n_unit_in = u->n_in;
    k->inplace = pl_arena_new(&k->arena, bool, (size_t)u->n_in * u->n_out + 1);
    if (!k->inplace) return PL_ERR_MEMORY;
    for (int o = 0; o < p->n_out; o++)
        for (int i = 0; i < p->n_in; i++) {
            bool alone = true;
            for (int j = 0; j < p->n_in; j++) alone &= j == i || k->in[j] != k->in[i];
            if (alone && pl_tile_inplace(p, i, o))
                k->inplace[(uint32_t)p->out[o].out * u->n_in + k->in[i]] = true;
        }
    return PL_OK;
}

static pl_status build(const pl_graph *g, const pl_unit *u, pl_arena *scratch, group *k)
{
    pl_form f;
    pl_tile_program p;
    PL_TRY(pl_form_make(g, u, scratch, &f));
    PL_TRY(translate(g, u, &f, k, scratch, &p));
    PL_TRY(pl_tile_compile(&p, &k->arena, &k->tile));
    return find_inplace(u, &p, k);
}

static void group_release(void *prep)
{
    group *k = prep;
    if (!k) return;
    pl_arena_release(&k->arena);
    pl_sys_free(k);
}

pl_status pl_group_prepare(const pl_graph *g, const pl_unit *u, void **prep, size_t *work_bytes)
{
    group *k = pl_sys_alloc(sizeof *k);
    if (!k) return PL_ERR_MEMORY;
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = build(g, u, &scratch, k);
    pl_arena_release(&scratch);
    if (rc != PL_OK) {
        group_release(k);
        return rc;
    }
    *work_bytes = pl_tile_work_bytes(k->tile);
    *prep = k;
    return PL_OK;
}

static pl_status group_run(const pl_call *c)
{
    const group *k = c->prep;
    const void *in[PL_TILE_INPUTS];
    for (int i = 0; i < k->n_in; i++) in[i] = c->in[k->in[i]];
    pl_tile_run(k->tile, in, c->out, c->work);
    return PL_OK;
}

const pl_kernel pl_group_kernel = {"tile", NULL, NULL, group_release, group_run};

bool pl_group_inplace(const void *prep, uint32_t k, uint32_t i)
{
    const group *p = prep;
    return p->inplace[k * p->n_unit_in + i];
}
