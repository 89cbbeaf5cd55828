/* pass.c - the table of passes and the loop over it. */
#include "pass/pass.h"

#include "pass/open.h"
#include "pass/simplify.h"

static const pl_pass table[] = {
    {"simplify", "dead code, common subexpressions, no-ops", pl_pass_simplify, true, false},
    {"open", "windows side by side as maps", pl_pass_open, false, true},
    {"sink", "slices above the maps they read", pl_pass_sink, false, true},
    {"simplify", "what the two left over", pl_pass_simplify, true, true},
};

int pl_pass_count(void)
{
    return (int)(sizeof table / sizeof table[0]);
}

const pl_pass *pl_pass_at(int i)
{
    return &table[i];
}

static pl_status run_once(const pl_pass *p, pl_graph **g)
{
    pl_graph *out = NULL;
    pl_status rc = p->run(*g, &out);
    if (rc == PL_OK) rc = pl_graph_verify(out);
    if (rc != PL_OK) {
        pl_graph_free(out);
        return pl__fail_prefix(rc, "pass %s", p->name);
    }
    pl_graph_free(*g);
    *g = out;
    return PL_OK;
}

pl_status pl_passes_run(pl_graph **g, bool open)
{
    enum { ROUNDS = 8 };
    for (int i = 0; i < pl_pass_count(); i++) {
        int before;
        if (table[i].open && !open) continue;
        int rounds = 0;
        do {
            before = pl_graph_nodes(*g);
            PL_TRY(run_once(&table[i], g));
        } while (table[i].repeat && pl_graph_nodes(*g) < before && ++rounds < ROUNDS);
    }
    return PL_OK;
}
