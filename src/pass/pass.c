/* pass.c - runs the passes of passes.def, one after the other. */
#include "pass/pass.h"

static const pl_pass table[] = {
#define PL_PASS(name, about, ...)       {#name, about, pl_pass_##name, __VA_ARGS__},
#define PL_PASS_AGAIN(name, about, ...) PL_PASS(name, about, __VA_ARGS__)
#include "pass/passes.def"
#undef PL_PASS
#undef PL_PASS_AGAIN
};

static pl_status run_once(const pl_pass *p, const pl_pass_opts *o, pl_graph **g)
{
    pl_graph *out = NULL;
    pl_status rc = p->run(*g, o, &out);
    if (rc == PL_OK) rc = pl_graph_verify(out);
    if (rc != PL_OK) {
        pl_graph_free(out);
        return pl__fail_prefix(rc, "pass %s", p->name);
    }
    pl_graph_free(*g);
    *g = out;
    return PL_OK;
}

pl_status pl_passes_run(pl_graph **g, const pl_pass_opts *o)
{
    enum { ROUNDS = 8 };
    static const pl_pass_opts plain = {.low = PL_F32};
    if (!o) o = &plain;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const pl_pass *p = &table[i];
        int before, rounds = 0;
        if ((p->lowers && o->low == PL_F32) || (p->open && !o->open) || (p->tails && !o->tails) ||
            (p->pads && !o->pads))
            continue;
        do {
            before = pl_graph_nodes(*g);
            PL_TRY(run_once(p, o, g));
        } while (p->repeat && pl_graph_nodes(*g) < before && ++rounds < ROUNDS);
    }
    return PL_OK;
}
