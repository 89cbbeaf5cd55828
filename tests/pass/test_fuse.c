/* test_fuse.c - fusion into units: sound on random graphs, the same bits for any grouping, and
 * the expected groups for common parts of networks. */
#include "pass/fuse/fuse.h"

#include "base/sys.h"
#include "cpu/tile/cpu_group.h"
#include "ir/group/fused.h"
#include "pass/pass.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_units *fuse(const pl_graph *g, uint32_t max_nodes)
{
    pl_fuse_opts o = PL_FUSE_OPTS_CPU(pl_cpu_group_takes);
    o.max_nodes = max_nodes;
    pl_units *u = NULL;
    pl_status rc = pl_fuse(g, &o, &u);
    if (rc != PL_OK) pl_test_fail(__FILE__, __LINE__, "fuse: %s", pl_error_text());
    return u;
}

/* Every value is computed before it is read, written once, and found through unit_of. */
static bool sound(const pl_graph *g, const pl_units *us)
{
    bool *there = pl_sys_alloc(g->n_vals), ok = true;
    for (uint32_t n = 1; n < g->n_nodes; n++)
        for (uint32_t k = 0; k < g->nodes[n].n_out; k++)
            if (g->nodes[n].op->flags & PL_OP_SOURCE) there[g->nodes[n].out + k] = true;
    for (uint32_t i = 0; ok && i < us->n; i++) {
        const pl_unit *u = &us->unit[i];
        for (uint32_t k = 0; k < u->n_in; k++) ok &= there[u->in[k]];
        for (uint32_t k = 0; k < u->n_out; k++) {
            ok &= !there[u->out[k]] && us->unit_of[u->out[k]] == i + 1;
            there[u->out[k]] = true;
        }
        for (uint32_t k = 1; k < u->n_nodes; k++) ok &= u->nodes[k - 1] < u->nodes[k];
        ok &= u->n_out > 0 && (u->kind == PL_UNIT_GROUP || u->n_nodes == 1);
    }
    for (uint32_t n = 1; ok && n < g->n_nodes; n++)
        if (g->nodes[n].op->flags & PL_OP_EFFECT)
            for (uint32_t k = 0; k < g->nodes[n].n_in; k++) ok &= there[pl_node_in(g, n)[k]];
    pl_sys_free(there);
    if (!ok) pl_test_fail(__FILE__, __LINE__, "unsound partition");
    return ok;
}

/* ---- running units by hand -------------------------------------------------------------- */

typedef struct memory {
    void **at; /* per value */
    bool *own;
    uint32_t n;
} memory;

static memory memory_new(const pl_graph *g, uint64_t seed)
{
    memory m = {pl_sys_alloc(sizeof(void *) * g->n_vals), pl_sys_alloc(g->n_vals), g->n_vals};
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        const pl_node_rec *r = &g->nodes[n];
        if (!(r->op->flags & PL_OP_SOURCE)) continue;
        char name[32];
        snprintf(name, sizeof name, "v%u", r->out);
        m.at[r->out] = pl_sys_alloc(pl_type_bytes(pl_type_of(g, r->out)) + 64);
        m.own[r->out] = true;
        fill_input(seed, name, pl_type_of(g, r->out), m.at[r->out]);
    }
    return m;
}

static void memory_free(memory *m)
{
    for (uint32_t v = 0; v < m->n; v++)
        if (m->own[v]) pl_sys_free(m->at[v]);
    pl_sys_free(m->at);
    pl_sys_free(m->own);
}

static pl_status run_unit(const pl_graph *g, const pl_unit *u, memory *m)
{
    const void *in[64];
    void *out[128];
    static pl_type in_type[64], out_type[128];
    if (u->kind == PL_UNIT_VIEW) {
        m->at[u->out[0]] = (char *)m->at[u->in[0]] + u->view_offset;
        return PL_OK;
    }
    for (uint32_t k = 0; k < u->n_out; k++) {
        size_t bytes = pl_type_bytes(pl_type_of(g, u->out[k]));
        out[k] = m->at[u->out[k]] = pl_sys_alloc(bytes + 64);
        memset(out[k], 0xFF, bytes);
        m->own[u->out[k]] = true;
    }
    pl_call c;
    if (u->kind == PL_UNIT_KERNEL) {
        pl_node_call(g, u->nodes[0], in_type, out_type, &c);
        for (int i = 0; i < c.n_in; i++) in[i] = m->at[pl_node_in(g, u->nodes[0])[i]];
        c.in = in;
        c.out = out;
        const pl_kernel *k = pl_node_get(g, u->nodes[0])->op->cpu;
        while (k->accepts && !k->accepts(&c)) k++;
        return graph_eval_kernel(k, &c);
    }
    size_t work = 0;
    memset(&c, 0, sizeof c);
    const bool *inplace;
    PL_TRY(pl_cpu_group_prepare(g, u, &c.prep, &inplace, &work));
    for (uint32_t i = 0; i < u->n_in; i++) in[i] = m->at[u->in[i]];
    c.in = in;
    c.out = out;
    if (posix_memalign(&c.work, 64, work + 64)) return PL_ERR_MEMORY;
    pl_status rc = pl_cpu_group_kernel.run(&c);
    free(c.work);
    pl_cpu_group_kernel.release(c.prep);
    return rc;
}

static bool run_units(const pl_graph *g, const pl_units *us, memory *m)
{
    for (uint32_t i = 0; i < us->n; i++)
        if (run_unit(g, &us->unit[i], m) != PL_OK) {
            pl_test_fail(__FILE__, __LINE__, "unit %u: %s", i, pl_error_text());
            return false;
        }
    return true;
}

/* Values that effects read must not depend on the grouping, to the bit. */
static bool same_results(pl_graph *g, uint64_t seed)
{
    pl_units *a = fuse(g, 1), *b = fuse(g, 64);
    bool ok = a && b && sound(g, a) && sound(g, b) && b->n <= a->n;
    memory x = memory_new(g, seed), y = memory_new(g, seed);
    ok = ok && run_units(g, a, &x) && run_units(g, b, &y);
    for (uint32_t n = 1; ok && n < g->n_nodes; n++) {
        if (!(g->nodes[n].op->flags & PL_OP_EFFECT)) continue;
        uint32_t v = pl_node_in(g, n)[0];
        ok = memcmp(x.at[v], y.at[v], pl_type_bytes(pl_type_of(g, v))) == 0;
        if (!ok) pl_test_fail(__FILE__, __LINE__, "grouping changes value %u", v);
    }
    memory_free(&x), memory_free(&y);
    pl_units_free(a), pl_units_free(b);
    return ok;
}

TEST(fuse_never_changes_bits)
{
    int seeds = pl_test_long() ? 1500 : 120;
    for (int seed = 1; seed <= seeds; seed++) {
        pl_store *store = pl_store_new();
        pl_graph *g = random_graph(store, (uint64_t)seed, 5 + seed % 70);
        CHECK_OK(pl_graph_status(g));
        pl_fuse_opts fuse = PL_FUSE_OPTS_CPU(NULL);
        pl_pass_opts o = {.low = seed % 3 ? PL_F32 : seed % 2 ? PL_F16 : PL_BF16, .fuse = &fuse};
        CHECK_OK(pl_passes_run(&g, &o));
        CHECK_MSG(same_results(g, (uint64_t)seed), "seed %d", seed);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* ---- the usual pieces ------------------------------------------------------------------- */

typedef struct bench {
    pl_store *store;
    pl_graph *g;
    pl_units *u;
} bench;

static bench begin(void)
{
    bench b = {pl_store_new(), NULL, NULL};
    b.g = pl_graph_new(b.store);
    return b;
}

/* Fuses, and checks soundness and bits on the way; returns the number of units that run. */
static uint32_t units_of(bench *b)
{
    if (pl_graph_status(b->g) != PL_OK) {
        pl_test_fail(__FILE__, __LINE__, "%s", pl_graph_error(b->g));
        return 0;
    }
    if (pl_passes_run(&b->g, &(pl_pass_opts){.low = PL_F32, .open = true}) != PL_OK ||
        !same_results(b->g, 3))
        return 0;
    b->u = fuse(b->g, 64);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->u->n; i++) n += b->u->unit[i].kind != PL_UNIT_VIEW;
    return n;
}

static void end(bench *b)
{
    pl_units_free(b->u);
    pl_graph_free(b->g);
    pl_store_free(b->store);
}

TEST(fuse_softmax_is_one_group)
{
    bench b = begin();
    pl_val x = pl_input(b.g, "x", PL_TYPE(PL_F32, 6, 5, 40));
    pl_output(b.g, "y", pl_softmax(b.g, pl_scale(b.g, x, 3), -1));
    CHECK_INT(units_of(&b), 1);
    CHECK_INT(b.u->unit[0].n_in, 1);
    CHECK_INT(b.u->unit[0].n_out, 1);
    end(&b);
}

static pl_val norm(pl_graph *g, pl_val x, uint32_t axes, pl_val w, pl_val *mean, pl_val *rstd)
{
    pl_val var;
    pl_moments(g, x, axes, true, mean, &var);
    *rstd = pl_rsqrt(g, pl_shift(g, var, 1e-5));
    return pl_mul(g, pl_mul(g, pl_sub(g, x, *mean), *rstd), w);
}

TEST(fuse_layer_norm_is_one_group)
{
    bench b = begin();
    pl_val x = pl_input(b.g, "x", PL_TYPE(PL_F32, 12, 96)), mean, rstd;
    pl_val w = pl_input(b.g, "w", PL_TYPE(PL_F32, 96));
    pl_output(b.g, "y", norm(b.g, x, PL_AXIS(1), w, &mean, &rstd));
    pl_output(b.g, "mean", mean);
    pl_output(b.g, "rstd", rstd);

    CHECK_INT(units_of(&b), 1);
    CHECK_INT(b.u->unit[0].n_out, 3);
    end(&b);
}

/* Statistics over the batch need two passes; the small arithmetic between them joins the second. */
TEST(fuse_batch_norm_is_two_groups)
{
    bench b = begin();
    pl_val x = pl_input(b.g, "x", PL_TYPE(PL_F32, 4, 6, 6, 24)), mean, rstd;
    pl_val w = pl_input(b.g, "w", PL_TYPE(PL_F32, 24));
    pl_val y = norm(b.g, x, PL_AXIS(0) | PL_AXIS(1) | PL_AXIS(2), w, &mean, &rstd);
    pl_output(b.g, "y", pl_leaky_relu(b.g, y, 0.1));
    CHECK_INT(units_of(&b), 2);
    end(&b);
}

/* Groups of channels: reshapes and different broadcasts in one index space. */
TEST(fuse_group_norm_is_two_groups)
{
    bench b = begin();
    pl_graph *g = b.g;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 3, 4, 5, 24)), mean, var;
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, 24));
    pl_val r = pl_reshape(g, x, PL_DIMS(3, 20, 4, 6));
    pl_moments(g, r, PL_AXIS(1) | PL_AXIS(3), true, &mean, &var);
    pl_val z = pl_mul(g, pl_sub(g, r, mean), pl_rsqrt(g, pl_shift(g, var, 1e-5)));
    z = pl_mul(g, pl_reshape(g, z, PL_DIMS(3, 4, 5, 24)), w);
    pl_output(g, "y", pl_silu(g, z));

    CHECK_INT(units_of(&b), 2);
    end(&b);
}

/* A gradient that is stored and summed in two ways: read once. */
TEST(fuse_joins_reductions_with_a_store)
{
    bench b = begin();
    pl_graph *g = b.g;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 50, 32)),
           d = pl_input(g, "d", PL_TYPE(PL_F32, 50, 32));
    pl_val m = pl_mul(g, d, pl_cast(g, pl_gt(g, x, pl_full_like(g, x, 0)), PL_F32));
    pl_output(g, "dx", m);
    pl_output(g, "db", pl_sum(g, m, PL_AXIS(0), false));
    pl_output(g, "dw", pl_sum(g, pl_mul(g, m, x), PL_AXIS(0), false));
    pl_output(g, "all", pl_sum(g, pl_square(g, d), PL_AXES_ALL, false));

    CHECK_INT(units_of(&b), 1);
    CHECK_INT(b.u->unit[0].n_in, 2);
    end(&b);
}

/* The forward pass must not store a value that the backward pass can recompute from stored
 * values. */
TEST(fuse_repeats_cheap_producers)
{
    bench b = begin();
    pl_graph *g = b.g;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 40, 64)),
           w = pl_input(g, "w", PL_TYPE(PL_F32, 64, 64));
    pl_val u = pl_matmul(g, x, w, false, false);
    pl_val y = pl_mul(g, u, pl_sigmoid(g, u));
    pl_val z = pl_matmul(g, y, w, false, false);
    pl_val dx[1];

    pl_grad(g, pl_sum(g, pl_square(g, z), PL_AXES_ALL, false), &x, 1, dx);
    pl_output(g, "dx", dx[0]);
    CHECK(units_of(&b) > 0);

    /* u, y and z have memory; sigmoid(u) has none, though forward and backward both use it */
    for (uint32_t i = 0; i < b.u->n; i++)
        for (uint32_t k = 0; k < b.u->unit[i].n_out; k++) {
            uint32_t node = pl_producer(b.g, b.u->unit[i].out[k]);
            CHECK(strcmp(pl_node_get(b.g, node)->op->name, "sigmoid") != 0);
        }
    end(&b);
}

/* A layer norm of a residual sum stores the sum, which the next block reads, and not its distance
 * from the mean as well: the gradient computes the distance again. */
TEST(fuse_stores_a_residual_sum_once)
{
    bench b = begin();
    pl_graph *g = b.g;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 4096, 256)), mean, rstd, dw[1];
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, 256, 256)),
           scale = pl_input(g, "scale", PL_TYPE(PL_F32, 256));
    for (int i = 0; i < 4; i++)
        x = pl_add(g, x,
                   pl_matmul(g, norm(g, x, PL_AXIS(1), scale, &mean, &rstd), w, false, false));
    pl_grad(g, pl_sum(g, pl_square(g, x), PL_AXES_ALL, false), &w, 1, dw);
    pl_output(g, "dw", dw[0]);
    CHECK(units_of(&b) > 0);

    int sums = 0;
    for (uint32_t i = 0; i < b.u->n; i++)
        for (uint32_t k = 0; k < b.u->unit[i].n_out; k++) {
            uint32_t val = b.u->unit[i].out[k];
            const char *name = pl_node_get(b.g, pl_producer(b.g, val))->op->name;
            CHECK(strcmp(name, "sub") != 0 || pl_type_elems(pl_type_of(b.g, val)) < 4096 * 256);
            sums += strcmp(name, "add") == 0;
        }
    CHECK(sums >= 3);
    end(&b);
}

/* a -> kernel -> c with a direct edge too: one group would have to run before and after. */
TEST(fuse_groups_are_convex)
{
    bench b = begin();
    pl_graph *g = b.g;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 16, 16));
    pl_val a = pl_exp(g, x);
    pl_val k = pl_matmul(g, a, a, false, false);
    pl_output(g, "y", pl_add(g, pl_tanh(g, a), k));

    CHECK_INT(units_of(&b), 3);
    end(&b);
}

/* More operands and nodes than one group takes: several groups, no failure. */
TEST(fuse_splits_groups_at_the_limits)
{
    bench b = begin();
    pl_val sum = PL_NO_VAL;
    for (int i = 0; i < 150; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        pl_val x = pl_tanh(b.g, pl_input(b.g, name, PL_TYPE(PL_F32, 30)));
        sum = i ? pl_add(b.g, sum, x) : x;
    }
    pl_output(b.g, "y", sum);
    uint32_t n = units_of(&b);

    CHECK(n >= 3 && n <= 12);
    end(&b);
}

TEST_ALONE(fuse_of_large_graphs_takes_little_time)
{
    pl_store *store = pl_store_new();
    pl_graph *g = training_graph(store, 260, 4, 8);
    CHECK_OK(pl_graph_status(g));
    uint64_t t = used_ns();
    pl_units *u = fuse(g, 64);
    double ms = (double)(used_ns() - t) / 1e6;
    printf("    %d nodes, %u units in %.0f ms\n", pl_graph_nodes(g), u->n, ms);

    CHECK(ms < 500 * PATIENCE);
    pl_units_free(u);
    pl_graph_free(g);
    pl_store_free(store);
}

TEST(fuse_survives_failing_allocations)
{
    pl_store *store = pl_store_new();
    pl_graph *g = random_graph(store, 5, 40);
    pl_fuse_opts o = PL_FUSE_OPTS_CPU(NULL);

    for (uint64_t n = 1; n < 1000; n++) {
        pl_units *u = NULL;
        pl_sys_fail_nth(n);
        pl_status rc = pl_fuse(g, &o, &u);
        bool hit = pl_sys_fail_hit();
        pl_sys_fail_nth(0);
        pl_units_free(u);
        CHECK(hit ? rc == PL_ERR_MEMORY : rc == PL_OK);
        if (!hit) break;
    }
    pl_graph_free(g);
    pl_store_free(store);
}
