/* lab.c - see lab.h. Graphs are compiled and run in one session. */
#include "tests/lib/lab.h"

#include "base/err.h"
#include "base/sys.h"

#include <string.h>

enum { MAX_PROGRAMS = 4 };

struct lab {
    pl_store *store;
    pl_graph *graph[MAX_PROGRAMS]; /* NULL once compiled */
    pl_program *program[MAX_PROGRAMS];
    pl_session *session;
    int n;
    bool slack;
};

lab *lab_new(pl_store *s)
{
    lab *l = pl_sys_alloc(sizeof *l);
    l->store = s;
    return l;
}

void lab_free(lab *l)
{
    if (!l) return;
    pl_session_free(l->session);
    for (int i = 0; i < l->n; i++) {
        pl_program_free(l->program[i]);
        pl_graph_free(l->graph[i]);
    }
    pl_sys_free(l);
}

void lab_allow_slack(lab *l)
{
    l->slack = true;
}

int lab_add(lab *l, pl_graph *g)
{
    l->graph[l->n] = g;
    return l->n++;
}

pl_status lab_open(lab *l)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    for (int i = 0; i < l->n; i++) {
        pl_graph *g = l->graph[i];
        l->graph[i] = NULL; /* the compiler takes it, whatever comes of it */
        PL_TRY(pl_compile(g, &o, &l->program[i]));
        const pl_plan_info *plan = pl_program_plan(l->program[i]);
        PL_FAIL_IF(!l->slack && (double)plan->arena_bytes > 1.001 * (double)plan->live_bound_bytes,
                   PL_ERR_PLAN, "arena %llu is more than 1.001 x the %llu bytes alive at once",
                   (unsigned long long)plan->arena_bytes,
                   (unsigned long long)plan->live_bound_bytes);
    }
    PL_TRY(pl_session_new(l->store, l->n, l->program, &l->session));
    for (int i = 0; i < pl_store_count(l->store); i++)
        memset(lab_slot(l, i), 0, pl_type_bytes(&pl_store_slot(l->store, i)->type));
    return PL_OK;
}

void *lab_slot(lab *l, int slot)
{
    return pl_session_slot(l->session, slot);
}

void *lab_input(lab *l, int program, const char *name, pl_type *type)
{
    return pl_session_input(l->session, l->program[program], name, type);
}

const void *lab_output(lab *l, int program, const char *name, pl_type *type)
{
    return pl_session_output(l->session, l->program[program], name, type);
}

pl_status lab_run(lab *l, int program)
{
    return pl_session_run(l->session, l->program[program]);
}
