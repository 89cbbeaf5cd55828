/* test_cuda_group.c - generated kernels: accepted by NVRTC, the CPU's results within rounding, and
 * the same bits however nodes are grouped. No card is needed: kernels run on the simulator. */
#include "base/dtype.h"
#include "base/sys.h"
#include "cpu/group.h"
#include "cuda_text.h"
#include "graph_eval.h"
#include "graphs.h"
#include "pass/fuse.h"
#include "pass/pass.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a graph in two partitions, and their kernels --------------------------------------- */
typedef struct job {
    pl_store *store;
    pl_graph *g;
    pl_units *units[2]; /* fused, one node each */
    pl_code *code[2];   /* per unit */
    pl_arena arena;
    const char *name;
} job;

static pl_units *fuse(const pl_graph *g, uint32_t max_nodes)
{
    pl_fuse_opts o = PL_FUSE_OPTS_INIT;
    o.takes = pl_group_takes; /* the CPU runs the same groups */
    o.max_nodes = max_nodes;
    pl_units *u = NULL;
    if (pl_fuse(g, &o, &u) != PL_OK)
        pl_test_fail(__FILE__, __LINE__, "fuse: %s", pl_error_text());
    return u;
}

static bool job_make(job *j, text_shop *shop)
{
    if (pl_graph_status(j->g) != PL_OK || pl_passes_run(&j->g, &(pl_pass_opts){.open = true}) != PL_OK) {
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

static void job_free(job *j)
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
        fill_input(7, name, pl_type_of(g, r->out), m.at[r->out]);
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
    pl_type in_type[64], out_type[128];
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
    PL_TRY(pl_group_prepare(g, u, &c.prep, &work));
    c.in = in;
    c.out = out;
    c.work = block(work);
    pl_status rc = pl_group_kernel.run(&c);
    free(c.work);
    pl_group_kernel.release(c.prep);
    return rc;
}

/* shop NULL: on the CPU. */
static bool run_units(const job *j, int p, memory *m, text_shop *shop)
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
        else if (!shop)
            ok = run_cpu_group(j->g, u, in, out) == PL_OK;
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

/* The largest difference in units of the largest value; NaN must meet NaN. */
static double distance(const pl_type *t, const void *a, const void *b)
{
    double far = 0, size = 1e-3;
    int64_t n = pl_type_elems(t);
    for (int64_t i = 0; i < n; i++) {
        double x = pl_elem_get(t->dtype, a, i), y = pl_elem_get(t->dtype, b, i);
        if (x != x || y != y) {
            if ((x != x) != (y != y)) return INFINITY;
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

static bool job_check(const job *j, text_shop *shop)
{
    memory cpu = memory_new(j->g), one = memory_new(j->g), all = memory_new(j->g);
    bool ok = run_units(j, 0, &cpu, NULL) && run_units(j, 0, &all, shop) &&
              run_units(j, 1, &one, shop);
    for (uint32_t n = 1; ok && n < j->g->n_nodes; n++) {
        if (!(j->g->nodes[n].op->flags & PL_OP_EFFECT)) continue;
        uint32_t v = pl_node_in(j->g, n)[0];
        const pl_type *t = pl_type_of(j->g, v);
        char text[96];
        double off = distance(t, all.at[v], cpu.at[v]);
        ok = off <= tolerance(t->dtype);
        if (!ok)
            pl_test_fail(__FILE__, __LINE__, "%s: %s is off by %g", j->name,
                         pl_type_text(t, text, sizeof text), off);
        if (ok && memcmp(all.at[v], one.at[v], pl_type_bytes(t)) != 0) {
            pl_test_fail(__FILE__, __LINE__, "%s: grouping changes the bits of %s", j->name,
                         pl_type_text(t, text, sizeof text));
            ok = false;
        }
    }
    memory_free(&cpu), memory_free(&one), memory_free(&all);
    return ok;
}

/* ---- pieces of networks ----------------------------------------------------------------- */
typedef void (*piece_fn)(pl_graph *g, pl_val x, pl_val y);

static pl_val like_row(pl_graph *g, pl_val x, const char *name)
{
    pl_type t = pl_val_type(g, x);
    return pl_input(g, name, PL_TYPE(t.dtype, t.dim[t.rank - 1]));
}

static void chain(pl_graph *g, pl_val x, pl_val y)
{
    pl_val a = pl_silu(g, pl_add(g, x, y));
    pl_output(g, "a", a);
    pl_output(g, "b", pl_leaky_relu(g, pl_sub(g, pl_mul(g, a, x), pl_scale(g, y, 0.3)), 0.1));
    pl_output(g, "c", pl_gt(g, a, y));
    pl_output(g, "d", pl_select(g, pl_le(g, x, y), pl_gelu(g, x), pl_tanh(g, y)));
}

static void bias_relu(pl_graph *g, pl_val x, pl_val y)
{
    pl_val b = like_row(g, x, "b"), s = like_row(g, x, "s");
    (void)y;
    pl_output(g, "y", pl_relu(g, pl_add(g, pl_mul(g, x, pl_rsqrt(g, pl_shift(g, pl_square(g, s), 1))), b)));
}

static pl_val f32(pl_graph *g, pl_val x)
{
    return pl_cast(g, x, PL_F32);
}

static void softmax(pl_graph *g, pl_val x, pl_val y)
{
    pl_output(g, "p", pl_softmax(g, pl_scale(g, x, 3), -1));
    pl_output(g, "l", pl_log_softmax(g, pl_add(g, x, y), -1));
}

static pl_val norm(pl_graph *g, pl_val x, uint32_t axes, pl_val *rstd)
{
    pl_val mean, var;
    pl_moments(g, x, axes, true, &mean, &var);
    *rstd = pl_rsqrt(g, pl_shift(g, var, 1e-5));
    return pl_mul(g, pl_sub(g, f32(g, x), mean), *rstd);
}

/* Forward and backward: rows inside, sums of columns beside. */
static void layer_norm(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, t.dim[t.rank - 1])), rstd;
    pl_val z = pl_mul(g, norm(g, x, PL_AXIS(-1), &rstd), w);
    pl_output(g, "z", z);
    pl_output(g, "rstd", rstd);
    pl_val loss = pl_sum(g, pl_mul(g, z, f32(g, y)), PL_AXES_ALL, false), d[2];
    pl_grad(g, loss, (const pl_val[]){x, w}, 2, d);
    pl_output(g, "dx", d[0]);
    pl_output(g, "dw", d[1]);
}

static void batch_norm(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    uint32_t axes = 0;
    for (int i = 0; i + 1 < t.rank; i++) axes |= PL_AXIS(i);
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, t.dim[t.rank - 1])), rstd;
    pl_val z = pl_leaky_relu(g, pl_mul(g, norm(g, x, axes, &rstd), w), 0.1);
    pl_output(g, "z", pl_cast(g, z, t.dtype));
    pl_val loss = pl_sum(g, pl_mul(g, z, f32(g, y)), PL_AXES_ALL, false), d[2];
    pl_grad(g, loss, (const pl_val[]){x, w}, 2, d);
    pl_output(g, "dx", d[0]);
    pl_output(g, "dw", d[1]);
}

/* Groups of channels: reductions over outer and inner dims at once. */
static void group_norm(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    int64_t c = t.dim[t.rank - 1], n = t.dim[0], hw = pl_type_elems(&t) / (c * n);
    int64_t groups = c % 4 == 0 ? 4 : c % 3 == 0 ? 3 : 1;
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, c)), rstd;
    pl_val r = pl_reshape(g, x, PL_DIMS(n, hw, groups, c / groups));
    pl_val z = norm(g, r, PL_AXIS(1) | PL_AXIS(3), &rstd);
    z = pl_silu(g, pl_mul(g, pl_reshape(g, z, PL_DIMS(n, hw, c)), w));
    pl_output(g, "z", z);
    pl_val f = pl_reshape(g, f32(g, y), PL_DIMS(n, hw, c));
    pl_val loss = pl_sum(g, pl_mul(g, z, f), PL_AXES_ALL, false), d[2];
    pl_grad(g, loss, (const pl_val[]){x, w}, 2, d);
    pl_output(g, "dx", d[0]);
    pl_output(g, "dw", d[1]);
}

/* Every kind of reduction, several masks, a store beside. */
static void sums(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    pl_val m = pl_mul(g, x, y);
    pl_output(g, "m", m);
    pl_output(g, "all", pl_sum(g, m, PL_AXES_ALL, false));
    pl_output(g, "col", pl_sum(g, m, PL_AXIS(0), false));
    pl_output(g, "colmax", pl_max_over(g, pl_add(g, x, y), PL_AXIS(0), false));
    pl_output(g, "row", pl_sum(g, x, PL_AXIS(-1), true));
    pl_output(g, "rowmin", pl_min_over(g, y, PL_AXIS(-1), false));
    if (t.rank > 2) pl_output(g, "mid", pl_sum(g, m, PL_AXIS(1), false));
    if (t.rank > 2) pl_output(g, "ends", pl_sum(g, x, PL_AXIS(0) | PL_AXIS(-1), false));
    pl_val mean, var;
    pl_moments(g, x, PL_AXES_ALL, false, &mean, &var);
    pl_output(g, "mean", mean);
    pl_output(g, "var", var);
}

/* Views, flips, steps, constants with a slope. */
static void readings(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    pl_val f = pl_add(g, pl_flip(g, x, PL_AXIS(-1)), y);
    pl_output(g, "flip", f);
    pl_output(g, "step", pl_neg(g, pl_slice(g, x, t.rank - 1, 0, t.dim[t.rank - 1], 2)));
    pl_type u = t;
    u.dtype = PL_F32;
    pl_output(g, "ramp", pl_add(g, f32(g, x), pl_iota(g, u, t.rank - 1)));
    pl_output(g, "ramp0", pl_sum(g, pl_mul(g, f32(g, y), pl_iota(g, u, 0)), PL_AXIS(0), false));
    if (t.dim[0] > 2)
        pl_output(g, "part", pl_square(g, pl_slice(g, pl_mul(g, x, y), 0, 1, t.dim[0], 1)));
}

typedef struct piece {
    const char *name;
    piece_fn fn;
} piece;
static const piece pieces[] = {
    {"chain", chain},           {"bias_relu", bias_relu},   {"softmax", softmax},
    {"layer_norm", layer_norm}, {"batch_norm", batch_norm}, {"group_norm", group_norm},
    {"sums", sums},             {"readings", readings},
};
enum { N_PIECES = sizeof pieces / sizeof *pieces };

static job piece_job(const piece *p, pl_type t)
{
    job j = {.store = pl_store_new(), .name = p->name};
    j.g = pl_graph_new(j.store);
    p->fn(j.g, pl_input(j.g, "x", t), pl_input(j.g, "y", t));
    return j;
}

static const int64_t shapes[][4] = {
    {6, 5, 40, 0}, {3, 7, 0, 0},    {2, 3, 5, 24}, {9, 130, 0, 0}, {70, 64, 0, 0},
    {4, 1, 1, 3},  {5, 1500, 0, 0}, {300, 33, 0, 0}, {1, 1, 1, 1},   {2, 40, 9, 6},
};

static pl_type shape_type(int i, pl_dtype d)
{
    int rank = 0;
    while (rank < 4 && shapes[i][rank]) rank++;
    return pl_type_make(d, rank, shapes[i]);
}

static bool check_jobs(job *jobs, int n)
{
    text_shop *shop = text_shop_new();
    bool ok = true, built = false;
    for (int i = 0; ok && i < n; i++) ok = job_make(&jobs[i], shop);
    if (ok) built = text_shop_build(shop);
    for (int i = 0; built && ok && i < n; i++) ok = job_check(&jobs[i], shop);
    if (getenv("PL_TEST_COUNT")) printf("    %d kernels\n", text_shop_count(shop));
    for (int i = 0; i < n; i++) job_free(&jobs[i]);
    text_shop_free(shop);
    return ok && built;
}

static void check_pieces(pl_dtype d)
{
    enum { N_SHAPES = sizeof shapes / sizeof *shapes };
    job jobs[N_PIECES * N_SHAPES];
    int n = 0;
    for (int s = 0; s < N_SHAPES; s++) {
        if (!pl_test_long() && d != PL_F32 && s % 3 != 0) continue;
        for (int p = 0; p < N_PIECES; p++) jobs[n++] = piece_job(&pieces[p], shape_type(s, d));
    }
    check_jobs(jobs, n);
}

TEST(cuda_group_pieces_f32)
{
    check_pieces(PL_F32);
}

TEST(cuda_group_pieces_f16)
{
    check_pieces(PL_F16);
}

TEST(cuda_group_pieces_bf16)
{
    check_pieces(PL_BF16);
}

TEST(cuda_group_random_graphs)
{
    enum { MOST = 200 };
    static job jobs[MOST];
    int n = pl_test_long() ? MOST : 24;
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < n; i++) {
        jobs[i].store = pl_store_new();
        jobs[i].g = random_graph(jobs[i].store, (uint64_t)i + 1, 5 + i % 70);
        jobs[i].name = "random";
    }
    check_jobs(jobs, n);
}

/* ---- NVRTC ------------------------------------------------------------------------------ */
TEST(cuda_group_nvrtc_accepts)
{
    if (!nvrtc_here()) SKIP("no libnvrtc");
    static const pl_dtype types[] = {PL_F32, PL_F16, PL_BF16};
    int count = 0;
    uint64_t begin = pl_sys_now_ns();
    for (int p = 0; p < N_PIECES; p++) {
        job j = piece_job(&pieces[p], shape_type(p % 3, types[p % 3]));
        text_shop *shop = text_shop_new();
        CHECK(job_make(&j, shop));
        for (uint32_t i = 0; i < j.units[0]->n; i++)
            for (uint32_t k = 0; k < j.code[0][i].n_kernels; k++) {
                size_t bytes = 0;
                const char *text = j.code[0][i].kernel[k].text;
                if (count % 2 && !pl_test_long() && !getenv("PL_TEST_COUNT")) {
                    count++;
                    continue;
                }
                CHECK_MSG(nvrtc_accepts(text, count % 4 == 2 ? 75 : 90, &bytes), "%s",
                          pieces[p].name);
                CHECK(bytes > 0);
                count++;
            }
        text_shop_free(shop);
        job_free(&j);
    }
    if (getenv("PL_TEST_COUNT"))
        printf("    %d kernels, %.0f ms each\n", count,
               (double)(pl_sys_now_ns() - begin) * 1e-6 / count);
}
