/* cuda_op_lab.c - see cuda_op_lab.h. */
#include "tests/cuda/cuda_op_lab.h"
#include "base/dtype.h"
#include "ir/group/fused.h"
#include "ir/text.h"
#include "tests/cudasim/sim.h"
#include "tests/lib/guarded.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- one instance ----------------------------------------------------------------------- */
typedef struct inst {
    const pl_op *op;
    pl_store *store;
    pl_graph *g;
    pl_type in_type[PL_CASE_IN], out_type[PL_MAX_OUT];
    pl_call call;
    uint32_t node;
    int n_in;
    char label[192];
} inst;

static void op_inst_free(inst *t)
{
    pl_graph_free(t->g);
    pl_store_free(t->store);
}

/* False when the op refuses the dtype. */
static bool op_inst_new(inst *t, const pl_op *op, const pl_case *cs, pl_dtype dtype, int index)
{
    pl_val in[PL_CASE_IN], out[PL_MAX_OUT];
    memset(t, 0, sizeof *t);
    t->op = op;
    snprintf(t->label, sizeof t->label, "%s case %d (%s, %s) %s", op->name, index,
             cs->in[0] ? cs->in[0] : "", cs->attr, pl_dtype_name(dtype));
    t->store = pl_store_new();
    t->g = pl_graph_new(t->store);
    for (; t->n_in < PL_CASE_IN && cs->in[t->n_in]; t->n_in++) {
        pl_type *type = &t->in_type[t->n_in];
        char name[8];
        if (pl_type_parse(cs->in[t->n_in], strlen(cs->in[t->n_in]), type) != PL_OK) return false;
        if (type->dtype == PL_F32) type->dtype = dtype;
        snprintf(name, sizeof name, "x%d", t->n_in);
        in[t->n_in] = pl_input(t->g, name, *type);
    }
    void *attr = pl_arena_alloc(&t->g->arena, op->attr_bytes + 1);
    if (!attr || pl_attr_parse(op, cs->attr, strlen(cs->attr), t->g, attr) != PL_OK) return false;
    uint32_t node = pl_build(t->g, op, attr, t->n_in, in, out).id;
    if (!node) return false;
    pl_node_call(t->g, node, t->in_type, t->out_type, &t->call);
    t->node = node;
    return true;
}

/* Floats on a coarse grid, so that there are ties, unless values are to be distinct. */
static void draw(const inst *t, const pl_case *cs, int input, void *p)
{
    const pl_type *type = &t->in_type[input];
    bool is_float = pl_dtype_is_float(type->dtype), distinct = cs->range[input].distinct;
    double lo = cs->range[input].lo, hi = cs->range[input].hi;
    uint64_t s = 77 + (uint64_t)input;
    if (lo == 0 && hi == 0) {
        lo = is_float ? -1 : 0;
        hi = 1;
    }
    int64_t n = pl_type_elems(type);
    for (int64_t i = 0; i < n; i++) {
        double v = lo + (pl_test_noise(&s) + 1) / 2 * (hi - lo + (is_float ? 0 : 1));
        if (!is_float) v = fmin(floor(v), floor(hi));
        if (is_float && !distinct) v = rint(v * 64) / 64;
        pl_elem_set(type->dtype, p, i, v);
    }
}

static double tolerance(pl_dtype d)
{
    return d == PL_BF16 ? 8e-3 : d == PL_F16 ? 1e-3 : d == PL_F32 ? 4e-6 : d == PL_F64 ? 1e-12 : 0;
}

/* Element by element, relative to the element plus a part of the largest element: a tenth, but
 * all of it for attention, whose probabilities are rounded before they are multiplied. */
static bool agree(const pl_type *t, const void *a, const void *b, double part, char *why,
                  size_t cap)
{
    int64_t n = pl_type_elems(t);
    double scale = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = fabs(pl_elem_get(t->dtype, b, i));
        if (isfinite(v) && v > scale) scale = v;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = pl_elem_get(t->dtype, a, i), y = pl_elem_get(t->dtype, b, i);
        if ((isnan(x) && isnan(y)) || x == y) continue;
        if (fabs(x - y) <= tolerance(t->dtype) * (fabs(y) + part * scale)) continue;
        snprintf(why, cap, "element %lld is %.9g, wanted %.9g", (long long)i, x, y);
        return false;
    }
    return true;
}

/* Ops that only move or draw: not a bit may differ from the CPU. */
static bool is_exact(const pl_op *op)
{
    static const char *const names[] = {"permute",
                                        "slice",
                                        "flip",
                                        "broadcast",
                                        "concat",
                                        "pad",
                                        "reshape",
                                        "fill",
                                        "iota",
                                        "sort",
                                        "argmax",
                                        "take",
                                        "take_along",
                                        "unfold",
                                        "max_pool",
                                        "max_pool_gather",
                                        "random_uniform",
                                        "random_normal",
                                        "random_permutation"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], op->name) == 0) return true;
    return false;
}

static const pl_kernel *reference(const pl_op *op)
{
    const pl_kernel *k = op->cpu;
    while (k && k->run && k[1].run) k++;
    return k && k->run ? k : NULL;
}

/* ---- running ---------------------------------------------------------------------------- */
typedef struct run_opts {
    size_t off;   /* operands lie so many elements past an aligned address */
    int poison;   /* what outputs and scratch hold before */
    bool reverse; /* order of blocks and threads */
    bool inplace; /* outputs take over inputs where the op allows it */
} run_opts;

static bool run(const inst *t, const pl_kernel *k, const guarded_block *in, guarded_block *out,
                run_opts o)
{
    const void *ip[PL_CASE_IN];
    void *op[PL_MAX_OUT];
    guarded_block copy[PL_CASE_IN];
    pl_call c = t->call;
    size_t work_bytes = 0;
    if (k->prepare && k->prepare(&c, &c.prep, &work_bytes) != PL_OK) {
        pl_test_fail(__FILE__, __LINE__, "%s: prepare: %s", t->label, pl_error_text());
        return false;
    }
    for (int i = 0; i < t->n_in; i++) {
        copy[i] = guarded_new_at(in[i].bytes, o.off * pl_dtype_bytes(t->in_type[i].dtype));
        if (in[i].bytes) memcpy(copy[i].data, in[i].data, in[i].bytes);
        ip[i] = copy[i].data;
    }
    unsigned taken = 0;
    for (int i = 0; i < c.n_out; i++) {
        size_t bytes = pl_type_bytes(&t->out_type[i]);
        out[i] = guarded_new_at(bytes, o.off * pl_dtype_bytes(t->out_type[i].dtype));
        memset(out[i].data, o.poison, bytes);
        op[i] = out[i].data;
        for (int j = 0; o.inplace && j < t->n_in; j++)
            if ((t->op->inplace[i] >> j & 1) && copy[j].bytes == bytes && !(taken >> j & 1)) {
                op[i] = copy[j].data;
                taken |= 1u << j;
                break;
            }
    }
    guarded_block work = guarded_new(work_bytes);
    memset(work.data, o.poison, work_bytes);
    c.in = ip;
    c.out = op;
    c.work = work.data;
    pl_sim_reverse(o.reverse);
    pl_status rc = k->run(&c);
    pl_sim_reverse(false);
    if (rc != PL_OK)
        pl_test_fail(__FILE__, __LINE__, "%s, kernel %s: %s", t->label, k->name, pl_error_text());
    for (int i = 0; i < c.n_out; i++) {
        if (op[i] != out[i].data && out[i].bytes) memcpy(out[i].data, op[i], out[i].bytes);
        if (!guarded_intact(&out[i]))
            pl_test_fail(__FILE__, __LINE__, "%s: writes past output %d", t->label, i);
    }
    for (int i = 0; i < t->n_in; i++)
        if (!(taken >> i & 1) && in[i].bytes && memcmp(copy[i].data, in[i].data, in[i].bytes) != 0)
            pl_test_fail(__FILE__, __LINE__, "%s: writes input %d", t->label, i);
    if (!guarded_intact(&work))
        pl_test_fail(__FILE__, __LINE__, "%s: writes past its scratch", t->label);
    guarded_free(&work);
    guarded_free_all(copy, t->n_in);
    if (k->release) k->release(c.prep);
    return rc == PL_OK;
}

static void check_inst(const inst *t, const pl_case *cs)
{
    static const run_opts ways[] = {{0, 0xa5, false, false},
                                    {0, 0x5a, true, false},
                                    {1, 0x11, false, false},
                                    {0, 0x22, false, true}};
    const pl_kernel *k = pl_cuda_kernels_of(t->op->name), *ref = reference(t->op);
    guarded_block in[PL_CASE_IN], want[PL_MAX_OUT], got[PL_MAX_OUT], other[PL_MAX_OUT];
    while (k->name && k->accepts && !k->accepts(&t->call)) k++;
    if (!k->name) {
        pl_test_fail(__FILE__, __LINE__, "%s: not accepted", t->label);
        return;
    }
    for (int i = 0; i < t->n_in; i++) {
        in[i] = guarded_new(pl_type_bytes(&t->in_type[i]));
        draw(t, cs, i, in[i].data);
    }
    bool ok = run(t, ref, in, want, ways[0]) && run(t, k, in, got, ways[0]);
    for (int i = 0; ok && i < t->call.n_out; i++) {
        char why[160];
        double part = strncmp(t->op->name, "attention", 9) == 0 ? 1 : 0.1;
        if (!agree(&t->out_type[i], got[i].data, want[i].data, part, why, sizeof why))
            pl_test_fail(__FILE__, __LINE__, "%s: output %d: %s", t->label, i, why);
        if (is_exact(t->op) && got[i].bytes && memcmp(got[i].data, want[i].data, got[i].bytes) != 0)
            pl_test_fail(__FILE__, __LINE__, "%s: output %d: other bits than the CPU's", t->label,
                         i);
    }
    /* Tensor cores are slow to simulate. */
    bool slow = strncmp(t->op->name, "attention", 9) == 0 && !pl_test_long();
    for (size_t w = slow ? 2 : 1; ok && w < (slow ? 3 : sizeof ways / sizeof *ways); w++) {
        ok = run(t, k, in, other, ways[w]);
        for (int i = 0; ok && i < t->call.n_out; i++)
            if (got[i].bytes && memcmp(got[i].data, other[i].data, got[i].bytes) != 0)
                pl_test_fail(__FILE__, __LINE__, "%s: other bits in output %d, way %zu", t->label,
                             i, w);
        guarded_free_all(other, t->call.n_out);
    }
    guarded_free_all(in, t->n_in);
    guarded_free_all(want, t->call.n_out);
    guarded_free_all(got, t->call.n_out);
}

void cuda_op_check_case(const pl_op *op, const pl_case *cs, int index)
{
    static const pl_dtype dtypes[] = {PL_F32, PL_BF16, PL_F16, PL_F64};
    bool swaps = false;
    for (int i = 0; i < PL_CASE_IN && cs->in[i]; i++) swaps |= strncmp(cs->in[i], "f32", 3) == 0;
    for (int d = 0; d < (swaps ? 4 : 1); d++) {
        if (!pl_test_long() && d > 0 && d != 1 + index % 3) continue; /* one beside f32 */
        inst t;
        if (op_inst_new(&t, op, cs, dtypes[d], index))
            check_inst(&t, cs);
        else if (dtypes[d] == PL_F32)
            pl_test_fail(__FILE__, __LINE__, "%s: %s", t.label, pl_error_text());
        op_inst_free(&t);
    }
}

/* As the device chooses (cuda/device/cuda_device.c): a kernel, or a group of one. Exchanges between
 * ranks are not simulated. */
static bool has_path(const inst *t)
{
    pl_role role = pl_role_of(t->g, t->node);
    for (const pl_kernel *k = pl_cuda_kernels_of(t->op->name); k && k->run; k++)
        if (!k->accepts || k->accepts(&t->call)) return true;
    return role == PL_ROLE_SAME || pl_role_core(role) || pl_role_inline(role);
}

bool cuda_op_check_path(const pl_op *op, const pl_case *cs, pl_dtype dtype, int index)
{
    inst t;
    bool made = op_inst_new(&t, op, cs, dtype, index);
    if (made && !has_path(&t))
        pl_test_fail(__FILE__, __LINE__, "%s: neither kernel nor group", t.label);
    op_inst_free(&t);
    return made;
}

void cuda_op_check_list(const cuda_op_case *list)
{
    const char *only = getenv("PL_TEST_OP");
    for (int i = 0; list[i].op; i++)
        if (!only || strcmp(only, list[i].op) == 0)
            cuda_op_check_case(pl_op_find(list[i].op), &list[i].cs, 1000 + i);
}
