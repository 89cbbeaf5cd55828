/* cuda_group_lab.c - see cuda_group_lab.h. */
#include "tests/cuda/cuda_group_lab.h"
#include "base/dtype.h"
#include "base/sys.h"
#include "cpu/tile/cpu_group.h"
#include "pass/pass.h"
#include "tests/cudasim/sim.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a graph in two partitions, and their kernels --------------------------------------- */
static pl_units *fuse(const pl_graph *g, uint32_t max_nodes)
{
    pl_fuse_opts o = PL_FUSE_OPTS_CPU(pl_cpu_group_takes); /* the CPU runs the same groups */
    o.max_nodes = max_nodes;
    o.draws = o.bits = false; /* CUDA has neither */
    pl_units *u = NULL;
    if (pl_fuse(g, &o, &u) != PL_OK) pl_test_fail(__FILE__, __LINE__, "fuse: %s", pl_error_text());
    return u;
}

bool group_job_make(group_job *j, text_shop *shop)
{
    if (pl_graph_status(j->g) != PL_OK ||
        pl_passes_run(&j->g, &(pl_pass_opts){.open = true}) != PL_OK) {
        pl_test_fail(__FILE__, __LINE__, "%s: %s", j->name, pl_error_text());
        return false;
    }
    for (int p = 0; p < 2; p++) {
        j->units[p] = fuse(j->g, p ? 1 : 64);
        if (!j->units[p]) return false;
        j->code[p] = pl_arena_new(&j->arena, pl_code, j->units[p]->n + 1);
        for (uint32_t i = 0; i < j->units[p]->n; i++) {
            const pl_unit *u = &j->units[p]->unit[i];
            if (u->kind != PL_UNIT_GROUP) continue;
            pl_status rc = pl_code_make(j->g, u, &j->arena, &j->code[p][i]);
            if (rc != PL_OK) {
                pl_test_fail(__FILE__, __LINE__, "%s: %s", j->name, pl_error_text());
                return false;
            }
            text_shop_add(shop, &j->code[p][i]);
        }
    }
    return true;
}

void group_job_free(group_job *j)
{
    for (int p = 0; p < 2; p++) pl_units_free(j->units[p]);
    pl_arena_release(&j->arena);
    pl_graph_free(j->g);
    pl_store_free(j->store);
}

/* ---- running ---------------------------------------------------------------------------- */
typedef struct memory {
    void **at;
    bool *own;
    uint32_t n;
} memory;

static void *block(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes + 64)) return NULL;
    memset(p, 0xff, bytes + 64);
    return p;
}

static memory memory_new(const pl_graph *g)
{
    memory m = {pl_sys_alloc(sizeof(void *) * g->n_vals), pl_sys_alloc(g->n_vals), g->n_vals};
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = &g->nodes[n];
        if (!(r->op->flags & PL_OP_SOURCE)) continue;
        char name[32];
        snprintf(name, sizeof name, "v%u", r->out);
        m.at[r->out] = block(pl_type_bytes(pl_type_of(g, r->out)));
        m.own[r->out] = true;
        const pl_type *t = pl_type_of(g, r->out);
        fill_input(7, name, t, m.at[r->out]);
        for (int64_t i = 0; t->dtype == PL_U8 && i < pl_type_elems(t); i++) /* small indices */
            ((uint8_t *)m.at[r->out])[i] = (uint8_t)((i * 7 + i / 3) % 4);
    }
    return m;
}

static void memory_free(memory *m)
{
    for (uint32_t v = 0; v < m->n; v++)
        if (m->own[v]) free(m->at[v]);
    pl_sys_free(m->at);
    pl_sys_free(m->own);
}

static pl_status run_node(const pl_graph *g, const pl_unit *u, const memory *m, void **out)
{
    const void *in[64];
    static pl_type in_type[64], out_type[128];
    pl_call c;
    pl_node_call(g, u->nodes[0], in_type, out_type, &c);
    for (int i = 0; i < c.n_in; i++) in[i] = m->at[pl_node_in(g, u->nodes[0])[i]];
    c.in = in;
    c.out = out;
    const pl_kernel *k = pl_node_get(g, u->nodes[0])->op->cpu;
    while (k->accepts && !k->accepts(&c)) k++;
    return graph_eval_kernel(k, &c);
}

static pl_status run_cpu_group(const pl_graph *g, const pl_unit *u, const void *const *in,
                               void **out)
{
    size_t work = 0;
    pl_call c;
    memset(&c, 0, sizeof c);
    const bool *inplace;
    PL_TRY(pl_cpu_group_prepare(g, u, &c.prep, &inplace, &work));
    c.in = in;
    c.out = out;
    c.work = block(work);
    pl_status rc = pl_cpu_group_kernel.run(&c);
    free(c.work);
    pl_cpu_group_kernel.release(c.prep);
    return rc;
}

static bool near_enough(const group_job *j, const pl_unit *u, void *const *got, void *const *want);

/* Where an output may overwrite an input, doing so gives the same bits. */
static bool check_inplace(const group_job *j, int p, uint32_t at, const void *const *in,
                          void *const *want, text_shop *shop)
{
    const pl_unit *u = &j->units[p]->unit[at];
    const pl_code *c = &j->code[p][at];
    bool ok = true;
    for (uint32_t k = 0; ok && k < u->n_out; k++)
        for (uint32_t i = 0; ok && i < u->n_in; i++) {
            if (!c->inplace[k * u->n_in + i]) continue;
            const void *from[64];
            void *to[128], *work = block(c->work_bytes);
            for (uint32_t m = 0; m < u->n_out; m++)
                to[m] = block(pl_type_bytes(pl_type_of(j->g, u->out[m])));
            size_t bytes = pl_type_bytes(pl_type_of(j->g, u->out[k]));
            memcpy(to[k], in[i], bytes);
            for (uint32_t m = 0; m < u->n_in; m++) from[m] = m == i ? to[k] : in[m];
            ok = text_shop_run(shop, c, from, to, work);
            for (uint32_t m = 0; ok && m < u->n_out; m++)
                ok = memcmp(to[m], want[m], pl_type_bytes(pl_type_of(j->g, u->out[m]))) == 0;
            if (!ok) pl_test_fail(__FILE__, __LINE__, "%s: not the same in place", j->name);
            for (uint32_t m = 0; m < u->n_out; m++) free(to[m]);
            free(work);
        }
    return ok;
}

/* Runs the group on the simulator too: the result must be close to the CPU's. */
static bool check_unit(const group_job *j, int p, uint32_t i, const void *const *in,
                       void *const *want, text_shop *shop)
{
    const pl_unit *u = &j->units[p]->unit[i];
    void *out[128], *work = block(j->code[p][i].work_bytes);
    for (uint32_t k = 0; k < u->n_out; k++)
        out[k] = block(pl_type_bytes(pl_type_of(j->g, u->out[k])));
    bool ok = text_shop_run(shop, &j->code[p][i], in, out, work) && near_enough(j, u, out, want) &&
              check_inplace(j, p, i, in, out, shop);
    for (uint32_t k = 0; k < u->n_out; k++) free(out[k]);
    free(work);
    return ok;
}

typedef enum where { ON_CPU, ON_CUDA } where;

/* ON_CPU: every group runs on the simulator too, on the same operands, and is compared. */
static bool run_units(const group_job *j, int p, memory *m, text_shop *shop, where place)
{
    for (uint32_t i = 0; i < j->units[p]->n; i++) {
        const pl_unit *u = &j->units[p]->unit[i];
        const void *in[64];
        void *out[128];
        if (u->kind == PL_UNIT_VIEW) {
            m->at[u->out[0]] = (char *)m->at[u->in[0]] + u->view_offset;
            continue;
        }
        for (uint32_t k = 0; k < u->n_in; k++) in[k] = m->at[u->in[k]];
        for (uint32_t k = 0; k < u->n_out; k++) {
            out[k] = m->at[u->out[k]] = block(pl_type_bytes(pl_type_of(j->g, u->out[k])));
            m->own[u->out[k]] = true;
        }
        bool ok;
        if (u->kind == PL_UNIT_KERNEL)
            ok = run_node(j->g, u, m, out) == PL_OK;
        else if (place == ON_CPU)
            ok = run_cpu_group(j->g, u, in, out) == PL_OK && check_unit(j, p, i, in, out, shop);
        else {
            void *work = block(j->code[p][i].work_bytes);
            ok = text_shop_run(shop, &j->code[p][i], in, out, work);
            free(work);
        }
        if (!ok) {
            pl_test_fail(__FILE__, __LINE__, "%s, unit %u: %s", j->name, i, pl_error_text());
            return false;
        }
    }
    return true;
}

/* ---- comparing -------------------------------------------------------------------------- */
static double tolerance(pl_dtype d)
{
    return d == PL_F16 ? 4e-3 : d == PL_BF16 ? 3e-2 : d == PL_F64 ? 1e-12 : d == PL_F32 ? 2e-5 : 0;
}

/* A comparison of numbers that differ in the last bit may, rarely, have either result. */
static double share_unequal(const pl_type *t, const void *a, const void *b)
{
    int64_t n = pl_type_elems(t), off = 0;
    for (int64_t i = 0; i < n; i++)
        off += pl_elem_get(t->dtype, a, i) != pl_elem_get(t->dtype, b, i);
    return off <= 1 + n / 200 ? 0 : (double)off / (double)n;
}

/* The largest difference in units of the largest value; NaN must match NaN. */
static double distance(const pl_type *t, const void *a, const void *b)
{
    double far = 0, size = 1e-3;
    if (t->dtype == PL_BOOL) return share_unequal(t, a, b);
    int64_t n = pl_type_elems(t);
    for (int64_t i = 0; i < n; i++) {
        double x = pl_elem_get(t->dtype, a, i), y = pl_elem_get(t->dtype, b, i);
        if (x != x || y != y) {
            if ((x != x) != (y != y)) return (double)INFINITY;
            continue;
        }
        if (x == y) continue;
        if (fabs(x - y) > far) far = fabs(x - y);
        if (fabs(y) > size) size = fabs(y);
    }
    for (int64_t i = 0; i < n; i++) {
        double y = fabs(pl_elem_get(t->dtype, b, i));
        if (y > size && y < 1e30) size = y;
    }
    return far / size;
}

static bool near_enough(const group_job *j, const pl_unit *u, void *const *got, void *const *want)
{
    for (uint32_t k = 0; k < u->n_out; k++) {
        const pl_type *t = pl_type_of(j->g, u->out[k]);
        char text[96], label[128];
        double off = distance(t, got[k], want[k]);
        if (off <= tolerance(t->dtype)) continue;
        pl_test_fail(__FILE__, __LINE__, "%s: %s of %s is off by %g", j->name,
                     pl_type_text(t, text, sizeof text),
                     pl_node_label(j->g, pl_producer(j->g, u->out[k]), label, sizeof label), off);
        return false;
    }
    return true;
}

/* One node per group, and fused groups with threads and blocks in reverse order: the same bits
 * in all values that effects read. */
static bool same_bits(const group_job *j, text_shop *shop)
{
    memory one = memory_new(j->g), all = memory_new(j->g);
    pl_sim_reverse(true);
    bool ok = run_units(j, 0, &all, shop, ON_CUDA);
    pl_sim_reverse(false);
    ok = ok && run_units(j, 1, &one, shop, ON_CUDA);
    for (uint32_t n = 1; ok && n < j->g->n_nodes; n++) {
        if (!(j->g->nodes[n].op->flags & PL_OP_EFFECT)) continue;
        uint32_t v = pl_node_in(j->g, n)[0];
        const pl_type *t = pl_type_of(j->g, v);
        char text[96];
        ok = memcmp(all.at[v], one.at[v], pl_type_bytes(t)) == 0;
        if (!ok)
            pl_test_fail(__FILE__, __LINE__, "%s: grouping changes the bits of %s", j->name,
                         pl_type_text(t, text, sizeof text));
    }
    memory_free(&one), memory_free(&all);
    return ok;
}

bool group_job_check(const group_job *j, text_shop *shop)
{
    memory cpu = memory_new(j->g);
    bool ok = run_units(j, 0, &cpu, shop, ON_CPU) && same_bits(j, shop);
    memory_free(&cpu);
    return ok;
}

bool group_jobs_check(group_job *jobs, int n)
{
    text_shop *shop = text_shop_new();
    bool ok = true, built = false;
    for (int i = 0; ok && i < n; i++) ok = group_job_make(&jobs[i], shop);
    if (ok) built = text_shop_build(shop);
    for (int i = 0; built && ok && i < n; i++) ok = group_job_check(&jobs[i], shop);
    if (getenv("PL_TEST_COUNT")) printf("    %d kernels\n", text_shop_count(shop));
    for (int i = 0; i < n; i++) group_job_free(&jobs[i]);
    text_shop_free(shop);
    return ok && built;
}

/* ---- texts ------------------------------------------------------------------------------ */
int text_count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

bool group_code(const pl_graph *g, pl_arena *mem, pl_code *out)
{
    pl_fuse_opts o = PL_FUSE_OPTS_CUDA(NULL);
    pl_units *u = NULL;
    int groups = 0;
    bool ok = pl_graph_status(g) == PL_OK && pl_fuse(g, &o, &u) == PL_OK;
    for (uint32_t k = 0; ok && k < u->n; k++) {
        if (u->unit[k].kind != PL_UNIT_GROUP) continue;
        ok = pl_code_make(g, &u->unit[k], mem, out) == PL_OK;
        groups++;
    }
    if (!ok)
        pl_test_fail(__FILE__, __LINE__, "no code: %s", pl_error_text());
    else if (groups != 1)
        pl_test_fail(__FILE__, __LINE__, "%d groups and not one", groups);
    pl_units_free(u);
    return ok && groups == 1;
}

void group_text(const pl_graph *g, char **out)
{
    pl_arena a = PL_ARENA_INIT;
    pl_code code;
    *out = NULL;
    CHECK(group_code(g, &a, &code));
    if (nvrtc_here()) CHECK(nvrtc_accepts_by_turns(code.kernel[0].text));
    *out = strdup(code.kernel[0].text);
    pl_arena_release(&a);
}

void group_text_alone(const pl_graph *g, char **out)
{
    char *all;
    group_text(g, &all);
    *out = strdup(strstr(all, "extern \"C\""));
    free(all);
}

uint32_t group_kernels(void (*make)(pl_graph *g, int64_t a, int64_t b), int64_t a, int64_t b)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_arena mem = PL_ARENA_INIT;
    pl_code code;
    make(g, a, b);
    bool ok =
        pl_passes_run(&g, &(pl_pass_opts){.open = true}) == PL_OK && group_code(g, &mem, &code);
    uint32_t kernels = ok ? code.n_kernels : 0;
    pl_arena_release(&mem);
    pl_graph_free(g);
    pl_store_free(store);
    return kernels;
}
