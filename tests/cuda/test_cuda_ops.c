/* test_cuda_ops.c - CUDA kernels of single ops, run by the simulator (tests/cudasim) against the
 * CPU's reference: every case of the op table in f32, bf16, f16 and f64, and larger shapes with odd
 * sizes, where the wide and the tiled paths differ.
 *
 * Each instance runs with blocks and threads first to last and last to first, over scratch and
 * outputs filled with other bytes, with operands that are aligned for wide accesses and with
 * operands that are only aligned to their elements: the results are the same to the bit. In place,
 * where the op says so, too.
 */
#include "base/dtype.h"
#include "ir/fused.h"
#include "ir/text.h"
#include "plimsoll_ops.h"
#include "tests/cpu/vector_cases.h"
#include "tests/cudasim/sim.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { GUARD = 0 }; /* the sanitizer sees reads past the end as well, if nothing lies there */
#else
enum { GUARD = 64 };
#endif

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

static void inst_free(inst *t)
{
    pl_graph_free(t->g);
    pl_store_free(t->store);
}

/* False when the op refuses the dtype. */
static bool inst_new(inst *t, const pl_op *op, const pl_case *cs, pl_dtype dtype, int index)
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

/* Element by element, relative to the element and a part of the largest: a tenth, but all of it for
 * attention, whose probabilities are rounded before they are multiplied. */
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

/* ---- memory ----------------------------------------------------------------------------- */
/* `off` bytes past an address that is aligned to 64. */
typedef struct block {
    unsigned char *base, *p;
    size_t bytes;
} block;

static block block_new(size_t bytes, size_t off)
{
    void *p = NULL;
    size_t all = bytes + off + GUARD;
    if (posix_memalign(&p, 64, all + (all == 0)) != 0) abort();
    memset((char *)p + off + bytes, 0x3c, GUARD);
    return (block){p, (unsigned char *)p + off, bytes};
}

static bool block_intact(const block *b)
{
    for (int i = 0; i < GUARD; i++)
        if (b->p[b->bytes + (size_t)i] != 0x3c) return false;
    return true;
}

static void blocks_free(block *b, int n)
{
    for (int i = 0; i < n; i++) free(b[i].base);
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

static bool run(const inst *t, const pl_kernel *k, const block *in, block *out, run_opts o)
{
    const void *ip[PL_CASE_IN];
    void *op[PL_MAX_OUT];
    block copy[PL_CASE_IN];
    pl_call c = t->call;
    size_t work_bytes = 0;
    if (k->prepare && k->prepare(&c, &c.prep, &work_bytes) != PL_OK) {
        pl_test_fail(__FILE__, __LINE__, "%s: prepare: %s", t->label, pl_error_text());
        return false;
    }
    for (int i = 0; i < t->n_in; i++) {
        copy[i] = block_new(in[i].bytes, o.off * pl_dtype_bytes(t->in_type[i].dtype));
        if (in[i].bytes) memcpy(copy[i].p, in[i].p, in[i].bytes);
        ip[i] = copy[i].p;
    }
    unsigned taken = 0;
    for (int i = 0; i < c.n_out; i++) {
        size_t bytes = pl_type_bytes(&t->out_type[i]);
        out[i] = block_new(bytes, o.off * pl_dtype_bytes(t->out_type[i].dtype));
        memset(out[i].p, o.poison, bytes);
        op[i] = out[i].p;
        for (int j = 0; o.inplace && j < t->n_in; j++)
            if ((t->op->inplace[i] >> j & 1) && copy[j].bytes == bytes && !(taken >> j & 1)) {
                op[i] = copy[j].p;
                taken |= 1u << j;
                break;
            }
    }
    block work = block_new(work_bytes, 0);
    memset(work.p, o.poison, work_bytes);
    c.in = ip;
    c.out = op;
    c.work = work.p;
    pl_sim_reverse(o.reverse);
    pl_status rc = k->run(&c);
    pl_sim_reverse(false);
    if (rc != PL_OK)
        pl_test_fail(__FILE__, __LINE__, "%s, kernel %s: %s", t->label, k->name, pl_error_text());
    for (int i = 0; i < c.n_out; i++) {
        if (op[i] != out[i].p && out[i].bytes) memcpy(out[i].p, op[i], out[i].bytes);
        if (!block_intact(&out[i]))
            pl_test_fail(__FILE__, __LINE__, "%s: writes past output %d", t->label, i);
    }
    for (int i = 0; i < t->n_in; i++)
        if (!(taken >> i & 1) && in[i].bytes && memcmp(copy[i].p, in[i].p, in[i].bytes) != 0)
            pl_test_fail(__FILE__, __LINE__, "%s: writes input %d", t->label, i);
    if (!block_intact(&work))
        pl_test_fail(__FILE__, __LINE__, "%s: writes past its scratch", t->label);
    free(work.base);
    blocks_free(copy, t->n_in);
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
    block in[PL_CASE_IN], want[PL_MAX_OUT], got[PL_MAX_OUT], other[PL_MAX_OUT];
    while (k->name && k->accepts && !k->accepts(&t->call)) k++;
    if (!k->name) {
        pl_test_fail(__FILE__, __LINE__, "%s: not accepted", t->label);
        return;
    }
    for (int i = 0; i < t->n_in; i++) {
        in[i] = block_new(pl_type_bytes(&t->in_type[i]), 0);
        draw(t, cs, i, in[i].p);
    }
    bool ok = run(t, ref, in, want, ways[0]) && run(t, k, in, got, ways[0]);
    for (int i = 0; ok && i < t->call.n_out; i++) {
        char why[160];
        double part = strncmp(t->op->name, "attention", 9) == 0 ? 1 : 0.1;
        if (!agree(&t->out_type[i], got[i].p, want[i].p, part, why, sizeof why))
            pl_test_fail(__FILE__, __LINE__, "%s: output %d: %s", t->label, i, why);
        if (is_exact(t->op) && got[i].bytes && memcmp(got[i].p, want[i].p, got[i].bytes) != 0)
            pl_test_fail(__FILE__, __LINE__, "%s: output %d: other bits than the CPU's", t->label,
                         i);
    }
    /* Tensor cores are slow to simulate. */
    bool slow = strncmp(t->op->name, "attention", 9) == 0 && !pl_test_long();
    for (size_t w = slow ? 2 : 1; ok && w < (slow ? 3 : sizeof ways / sizeof *ways); w++) {
        ok = run(t, k, in, other, ways[w]);
        for (int i = 0; ok && i < t->call.n_out; i++)
            if (got[i].bytes && memcmp(got[i].p, other[i].p, got[i].bytes) != 0)
                pl_test_fail(__FILE__, __LINE__, "%s: other bits in output %d, way %zu", t->label,
                             i, w);
        blocks_free(other, t->call.n_out);
    }
    blocks_free(in, t->n_in);
    blocks_free(want, t->call.n_out);
    blocks_free(got, t->call.n_out);
}

static void check_case(const pl_op *op, const pl_case *cs, int index)
{
    static const pl_dtype dtypes[] = {PL_F32, PL_BF16, PL_F16, PL_F64};
    bool swaps = false;
    for (int i = 0; i < PL_CASE_IN && cs->in[i]; i++) swaps |= strncmp(cs->in[i], "f32", 3) == 0;
    for (int d = 0; d < (swaps ? 4 : 1); d++) {
        inst t;
        if (inst_new(&t, op, cs, dtypes[d], index))
            check_inst(&t, cs);
        else if (dtypes[d] == PL_F32)
            pl_test_fail(__FILE__, __LINE__, "%s: %s", t.label, pl_error_text());
        inst_free(&t);
    }
}

TEST(cuda_ops_every_case)
{
    int checked = 0;
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        const char *only = getenv("PL_TEST_OP");
        if (!pl_cuda_kernels_of(op->name) || (only && strcmp(only, op->name) != 0)) continue;
        checked++;
        for (int k = 0; op->cases[k].attr; k++) check_case(op, &op->cases[k], k);
    }
    CHECK(checked > 0);
}

/* As the device chooses (cuda/device/device.c): a kernel, or a group of one. Exchanges between
 * ranks are not simulated. */
static bool has_path(const inst *t)
{
    pl_role role = pl_role_of(t->g, t->node);
    for (const pl_kernel *k = pl_cuda_kernels_of(t->op->name); k && k->run; k++)
        if (!k->accepts || k->accepts(&t->call)) return true;
    return role == PL_ROLE_SAME || pl_role_core(role) || pl_role_inline(role);
}

TEST(cuda_ops_every_op_has_a_path)
{
    static const pl_dtype dtypes[] = {PL_F32, PL_BF16, PL_F16, PL_F64,
                                      PL_I32, PL_I64,  PL_U8,  PL_BOOL};
    int seen = 0;
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        if (op->flags & (PL_OP_SOURCE | PL_OP_RANKS | PL_OP_EFFECT)) continue;
        CHECK_MSG(op->cases && op->cases[0].attr, "%s has no cases", op->name);
        for (int k = 0; op->cases[k].attr; k++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
                inst t;
                if (inst_new(&t, op, &op->cases[k], dtypes[d], k)) {
                    CHECK_MSG(has_path(&t), "%s", t.label);
                    seen++;
                }
                inst_free(&t);
            }
    }
    CHECK_MSG(seen > 1000, "%d", seen);
}

/* ---- larger shapes ---------------------------------------------------------------------- */
typedef struct large {
    const char *op;
    pl_case cs;
} large;

static void check_large(const large *list)
{
    const char *only = getenv("PL_TEST_OP");
    for (int i = 0; list[i].op; i++)
        if (!only || strcmp(only, list[i].op) == 0)
            check_case(pl_op_find(list[i].op), &list[i].cs, 1000 + i);
}

#define LARGE_END                                                                                  \
 {                                                                                                 \
  NULL, PL_CASE_END                                                                                \
 }

/* Few channels on one side, one filter a channel. */
TEST(cuda_ops_large_convolutions)
{
    static const large list[] = {
        {"conv",
         {{"f32[1,5,35,3]", "f32[16,3,3,3]", "f32[16]"}, "pad_lo=[0,1], pad_hi=[2,0]", {{0}}}},
        {"conv_dx",
         {{"f32[1,5,34,16]", "f32[16,3,3,3]"}, "pad_lo=[0,1], pad_hi=[2,0], in=[5,35]", {{0}}}},
        {"conv_dw",
         {{"f32[1,5,35,3]", "f32[1,5,34,16]"}, "pad_lo=[0,1], pad_hi=[2,0], kernel=[3,3]", {{0}}}},
        {"conv",
         {{"f32[1,4,33,24]", "f32[2,3,3,24]", "f32[2]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"conv_dx",
         {{"f32[1,4,33,2]", "f32[2,3,3,24]"}, "pad_lo=[1,1], pad_hi=[1,1], in=[4,33]", {{0}}}},
        {"conv_dw",
         {{"f32[1,4,33,24]", "f32[1,4,33,2]"}, "pad_lo=[1,1], pad_hi=[1,1], kernel=[3,3]", {{0}}}},
        {"conv",
         {{"f32[3,11,21,1]", "f32[1,3,3,1]", "f32[1]"}, "pad_lo=[2,0], pad_hi=[0,1]", {{0}}}},
        {"conv_dx",
         {{"f32[3,11,20,1]", "f32[1,3,3,1]"}, "pad_lo=[2,0], pad_hi=[0,1], in=[11,21]", {{0}}}},
        {"conv_dw",
         {{"f32[3,11,21,1]", "f32[3,11,20,1]"}, "pad_lo=[2,0], pad_hi=[0,1], kernel=[3,3]", {{0}}}},
        {"conv", {{"f32[2,5,9,4]", "f32[8,1,1,4]"}, "stride=[1,1]", {{0}}}},
        {"conv_dw", {{"f32[2,5,9,4]", "f32[2,5,9,8]"}, "kernel=[1,1]", {{0}}}},
        {"conv",
         {{"f32[2,9,7,24]", "f32[24,5,5,1]", "f32[24]"},
          "groups=24, stride=[2,1], pad_lo=[2,2], pad_hi=[2,1]",
          {{0}}}},
        {"conv_dx",
         {{"f32[2,5,6,24]", "f32[24,5,5,1]"},
          "groups=24, stride=[2,1], pad_lo=[2,2], pad_hi=[2,1], in=[9,7]",
          {{0}}}},
        {"conv_dw",
         {{"f32[2,9,7,24]", "f32[2,5,6,24]"},
          "groups=24, stride=[2,1], pad_lo=[2,2], pad_hi=[2,1], kernel=[5,5]",
          {{0}}}},
        {"conv",
         {{"f32[1,3,20,1]", "f32[32,3,3,1]", "f32[32]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"conv_dx",
         {{"f32[1,3,20,32]", "f32[32,3,3,1]"}, "pad_lo=[1,1], pad_hi=[1,1], in=[3,20]", {{0}}}},
        {"conv_dw",
         {{"f32[1,3,20,1]", "f32[1,3,20,32]"}, "pad_lo=[1,1], pad_hi=[1,1], kernel=[3,3]", {{0}}}},
        LARGE_END};
    check_large(list);
}

TEST(cuda_ops_vectors)
{
    int n = VECTOR_CASES - (pl_test_long() ? 0 : VECTOR_CASES_LONG);
    for (int i = 0; i < n; i++) {
        pl_case cs = vector_cases[i]; /* numbers whose sums depend on their order */
        for (int k = 0; k < 3; k++)
            cs.range[k].lo = -1, cs.range[k].hi = 1, cs.range[k].distinct = true;
        check_case(pl_op_find("matmul"), &cs, 1000 + i);
    }
}

/* Tensor cores, which are slow to simulate. */
TEST(cuda_ops_large_thin)
{
    static const large list[] = {
        {"conv",
         {{"f32[1,9,67,1]", "f32[64,3,3,1]", "f32[64]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"conv_dx",
         {{"f32[1,9,67,64]", "f32[64,3,3,1]"}, "pad_lo=[1,1], pad_hi=[1,1], in=[9,67]", {{0}}}},
        {"conv_dw",
         {{"f32[1,9,67,1]", "f32[1,9,67,64]"}, "pad_lo=[1,1], pad_hi=[1,1], kernel=[3,3]", {{0}}}},
        {"conv", {{"f32[2,3,20,3]", "f32[32,3,3,3]"}, "pad_lo=[1,0], pad_hi=[1,2]", {{0}}}},
        {"conv_dw",
         {{"f32[2,3,20,3]", "f32[2,3,20,32]"}, "pad_lo=[1,0], pad_hi=[1,2], kernel=[3,3]", {{0}}}},
        {"conv",
         {{"f32[1,3,18,128]", "f32[4,3,3,128]", "f32[4]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"conv_dx",
         {{"f32[1,3,18,4]", "f32[4,3,3,128]"}, "pad_lo=[1,1], pad_hi=[1,1], in=[3,18]", {{0}}}},
        {"conv_dw",
         {{"f32[1,3,18,128]", "f32[1,3,18,4]"}, "pad_lo=[1,1], pad_hi=[1,1], kernel=[3,3]", {{0}}}},
        {"conv_dx", {{"f32[2,2,19,32]", "f32[32,1,1,2]"}, "in=[2,19]", {{0}}}},
        LARGE_END};
    if (pl_test_long()) check_large(list);
}

TEST(cuda_ops_large_attention)
{
    static const large list[] = {
        {"attention",
         {{"f32[1,70,2,40]", "f32[1,97,2,40]", "f32[1,97,2,40]"}, "causal=false", {{0}}}},
        {"attention",
         {{"f32[1,70,1,130]", "f32[1,70,1,130]", "f32[1,70,1,130]"}, "causal=true", {{0}}}},
        {"attention",
         {{"f32[1,135,1,40]", "f32[1,140,1,40]", "f32[1,140,1,40]"}, "causal=true", {{0}}}},
        {"attention",
         {{"f32[1,40,1,100]", "f32[1,131,1,100]", "f32[1,131,1,100]"}, "causal=false", {{0}}}},
        {"attention_bwd",
         {{"f32[1,135,1,20]", "f32[1,135,1,20]", "f32[1,135,1,20]", "f32[1,135,1,20]",
           "f32[1,1,135]", "f32[1,135,1,20]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_bwd",
         {{"f32[1,132,2,40]", "f32[1,40,2,40]", "f32[1,40,2,40]", "f32[1,132,2,40]", "f32[1,2,132]",
           "f32[1,132,2,40]"},
          "causal=false",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_bwd",
         {{"f32[1,70,2,40]", "f32[1,97,2,40]", "f32[1,97,2,40]", "f32[1,70,2,40]", "f32[1,2,70]",
           "f32[1,70,2,40]"},
          "causal=false",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_bwd",
         {{"f32[1,40,1,130]", "f32[1,40,1,130]", "f32[1,40,1,130]", "f32[1,40,1,130]",
           "f32[1,1,40]", "f32[1,40,1,130]", "f32[1,1,40]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        LARGE_END};
    if (pl_test_long()) check_large(list);
}

TEST(cuda_ops_large_moves)
{
    static const large list[] = {
        {"permute", {{"f32[64,128]"}, "perm=[1,0]", {{0}}}},
        {"permute", {{"f32[3,67,130]"}, "perm=[0,2,1]", {{0}}}},
        {"permute", {{"f32[2,5,16,64]"}, "perm=[0,2,3,1]", {{0}}}},
        {"permute", {{"f32[2,16,8,72]"}, "perm=[2,3,0,1]", {{0}}}},
        {"permute", {{"f32[2,9,33,8]"}, "perm=[0,2,1,3]", {{0}}}},
        {"permute", {{"u8[80,144]"}, "perm=[1,0]", {{0, 255, false}}}},
        {"permute", {{"i64[34,70]"}, "perm=[1,0]", {{-9, 9, false}}}},
        {"permute", {{"f32[3,4,5,6,7]"}, "perm=[4,3,2,1,0]", {{0}}}},
        {"slice", {{"f32[5,9,33]"}, "start=[0,1,0], stop=[5,9,33], step=[2,1,7]", {{0}}}},
        {"slice", {{"f32[6,7,64]"}, "start=[1,1,16], stop=[6,6,48], step=[1,2,1]", {{0}}}},
        {"flip", {{"f32[9,33]"}, "axes=[0,1]", {{0}}}},
        {"flip", {{"f32[9,5,64]"}, "axes=[1]", {{0}}}},
        {"broadcast", {{"f32[7,1,64]"}, "shape=[3,7,5,64]", {{0}}}},
        {"broadcast", {{"f32[33,1]"}, "shape=[33,65]", {{0}}}},
        {"concat", {{"f32[3,5,64]", "f32[3,5,32]", "f32[3,5,8]"}, "axis=2", {{0}}}},
        {"concat", {{"f32[3,5,33]", "f32[3,5,2]"}, "axis=2", {{0}}}},
        {"concat", {{"f32[9,0,8]", "f32[9,4,8]", "f32[9,0,8]", "f32[9,1,8]"}, "axis=1", {{0}}}},
        {"pad",
         {{"f32[2,9,7,64]"}, "lo=[0,1,1,0], hi=[0,1,2,0], inner=[0,0,0,0], value=0.5", {{0}}}},
        {"pad", {{"f32[2,9,7,5]"}, "lo=[0,1,1,0], hi=[0,1,2,0], inner=[0,1,0,0], value=-2", {{0}}}},
        {"pad", {{"f32[3,64]"}, "lo=[0,32], hi=[1,16], inner=[2,0], value=1", {{0}}}},
        {"bezier", {{"f32[37,320]"}, "silu_points=true", {{-3, 3, false}}}},
        {"bezier_bwd", {{"f32[7,320]", "f32[7,64]"}, "silu_points=true", {{-3, 3, false}}}},
        LARGE_END};
    check_large(list);
}

/* ---- more than a launch can have -------------------------------------------------------- */
/* A card that counts a few items in 32 bits and has a few blocks along a side: what tensors of 2^31
 * elements and batches of 65536 make of a real one. */
static void check_limited(const large *list, int side, int64_t items)
{
    pl_sim_limits(side, items);
    check_large(list);
    pl_sim_limits(PL_SIM_SIDE, PL_SIM_ITEMS);
}

TEST(cuda_ops_beyond_a_launch)
{
    static const char *const names[] = {"permute",
                                        "slice",
                                        "flip",
                                        "broadcast",
                                        "concat",
                                        "pad",
                                        "unfold",
                                        "fold",
                                        "max_pool",
                                        "max_pool_bwd",
                                        "max_pool_gather",
                                        "avg_pool",
                                        "avg_pool_bwd",
                                        "adaptive_avg_pool",
                                        "adaptive_avg_pool_bwd",
                                        "resize",
                                        "resize_bwd",
                                        "depthwise_per_sample",
                                        "depthwise_per_sample_dx",
                                        "depthwise_per_sample_dw"};
    static const large list[] = {
        {"permute", {{"f32[3,5,16,17]"}, "perm=[0,1,3,2]", {{0}}}},
        {"concat", {{"f32[3,5,8]", "f32[3,5,32]", "f32[3,5,7]"}, "axis=2", {{0}}}},
        {"pad",
         {{"f32[2,9,7,8]"}, "lo=[0,1,1,0], hi=[0,1,2,0], inner=[0,1,0,0], value=0.5", {{0}}}},
        {"pad", {{"f32[5,64]"}, "lo=[1,0], hi=[2,0], inner=[0,0], value=1", {{0}}}},
        {"unfold", {{"f32[5,6,5,8]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"fold", {{"f32[5,30,72]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1], in=[6,5]", {{0}}}},
        {"max_pool",
         {{"f32[5,7,6,8]"}, "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"max_pool_bwd",
         {{"f32[5,5,4,8]", "u8[5,5,4,8]"}, "kernel=[2,2], in=[10,8]", {{0}, {0, 4, false}}}},
        {"avg_pool",
         {{"f32[5,9,9,8]"}, "kernel=[9,9], pad_lo=[4,4], pad_hi=[4,4], count_pad=false", {{0}}}},
        {"resize", {{"f32[5,5,4,8]"}, "size=[9,11], mode=linear, align_corners=false", {{0}}}},
        {"conv",
         {{"f32[7,5,4,64]", "f32[64,3,3,1]"}, "pad_lo=[1,1], pad_hi=[1,1], groups=64", {{0}}}},
        {"conv", {{"f32[2,2,3,400]", "f32[400,1,2,1]"}, "groups=400", {{0}}}},
        LARGE_END};
    const int64_t items[] = {5, 400, 3000}; /* of a row, of an image, of some images */
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) check_limited(list, 3, items[i]);
    pl_sim_limits(3, 7);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const pl_op *op = pl_op_find(names[i]);
        for (int k = 0; op->cases[k].attr; k++) check_case(op, &op->cases[k], k);
    }
    pl_sim_limits(PL_SIM_SIDE, PL_SIM_ITEMS);
}

void pl_sim_split(bool on);

TEST(cuda_ops_attention_in_slices)
{
    static const large list[] = {
        {"attention", {{"f32[3,3,2,8]", "f32[3,5,2,8]", "f32[3,5,2,8]"}, "causal=false", {{0}}}},
        {"attention_bwd",
         {{"f32[3,3,2,8]", "f32[3,5,2,8]", "f32[3,5,2,8]", "f32[3,3,2,8]", "f32[3,2,3]",
           "f32[3,3,2,8]", "f32[3,2,3]"},
          "causal=false",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        {"attention_bwd",
         {{"f32[3,3,1,7]", "f32[3,3,1,7]", "f32[3,3,1,7]", "f32[3,3,1,7]", "f32[3,1,3]",
           "f32[3,3,1,7]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        LARGE_END};
    check_limited(list, 5, PL_SIM_ITEMS);
    pl_sim_split(true);
    check_limited(list, 5, PL_SIM_ITEMS);
    pl_sim_split(false);
}

/* Heads of more dims than a block's threads hold. */
TEST(cuda_ops_attention_wide_heads)
{
    static const large list[] = {
        {"attention",
         {{"f32[1,2,1,1100]", "f32[1,3,1,1100]", "f32[1,3,1,1100]"}, "causal=false", {{0}}}},
        {"attention_bwd",
         {{"f32[1,2,1,1100]", "f32[1,3,1,1100]", "f32[1,3,1,1100]", "f32[1,2,1,1100]", "f32[1,1,2]",
           "f32[1,2,1,1100]"},
          "causal=true",
          {{0}, {0}, {0}, {0}, {4, 6, false}}}},
        LARGE_END};
    check_large(list);
}

/* More inputs than one launch joins. */
TEST(cuda_ops_concat_of_many)
{
    enum { N = 37, ROWS = 3 };
    int32_t x[N][ROWS * 4], got[ROWS * (N * 4)], want[ROWS * (N * 4)];
    const void *in[N];
    pl_type type[N], y = PL_TYPE(PL_I32, ROWS, 0);
    int64_t axis = 1, at = 0;
    for (int k = 0; k < N; k++) {
        int64_t cols = k % 4;
        type[k] = PL_TYPE(PL_I32, ROWS, cols);
        in[k] = x[k];
        for (int64_t i = 0; i < ROWS * cols; i++) x[k][i] = (int32_t)(k * 100 + i);
        y.dim[1] += cols;
    }
    for (int k = 0; k < N; at += k % 4, k++)
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t i = 0; i < k % 4; i++) want[r * y.dim[1] + at + i] = x[k][r * (k % 4) + i];
    void *out[1] = {got};
    pl_call c = {.in_type = type,
                 .out_type = &y,
                 .in = in,
                 .out = out,
                 .attr = &axis,
                 .n_in = N,
                 .n_out = 1};
    CHECK_OK(pl_cuda_kernels_of("concat")->run(&c));
    for (int64_t i = 0; i < ROWS * y.dim[1]; i++) CHECK_INT(got[i], want[i]);
}

TEST(cuda_ops_large_windows)
{
    static const large list[] = {
        {"max_pool",
         {{"f32[2,17,13,64]"}, "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"max_pool", {{"f32[1,9,8,33]"}, "kernel=[2,3], stride=[2,1], pad_hi=[1,0]", {{0}}}},
        {"max_pool_bwd",
         {{"f32[2,9,7,64]", "u8[2,9,7,64]"},
          "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1], in=[17,13]",
          {{0}, {0, 8, false}}}},
        {"max_pool_bwd",
         {{"f32[1,9,7,5]", "u8[1,9,7,5]"},
          "kernel=[3,2], stride=[1,2], pad_lo=[1,0], pad_hi=[1,0], in=[9,14]",
          {{0}, {0, 5, false}}}},
        {"max_pool_bwd",
         {{"f32[2,5,7,64]", "u8[2,5,7,64]"}, "kernel=[2,2], in=[10,14]", {{0}, {0, 4, false}}}},
        {"max_pool_bwd",
         {{"f32[1,3,5,7,3]", "u8[1,3,5,7,3]"},
          "kernel=[1,3,2], in=[3,15,14]",
          {{0}, {0, 6, false}}}},
        {"max_pool_gather",
         {{"f32[2,17,13,8]", "u8[2,9,7,8]"},
          "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]",
          {{0}, {0, 9, false}}}},
        {"unfold", {{"f32[2,12,11,64]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
        {"unfold", {{"f32[2,16,16,3]"}, "kernel=[4,4], stride=[4,4]", {{0}}}},
        {"unfold",
         {{"f32[1,13,12,5]"}, "kernel=[3,2], stride=[2,1], dilation=[2,3], pad_lo=[2,1]", {{0}}}},
        {"fold",
         {{"f32[2,132,576]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1], in=[12,11]", {{0}}}},
        {"fold",
         {{"f32[1,60,30]"},
          "kernel=[3,2], stride=[2,1], dilation=[2,3], pad_lo=[2,1], in=[13,12]",
          {{0}}}},
        {"avg_pool",
         {{"f32[2,17,13,64]"},
          "kernel=[3,3], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1], count_pad=false",
          {{0}}}},
        {"avg_pool", {{"f32[1,20,18,8]"}, "kernel=[9,9], stride=[1,1], count_pad=false", {{0}}}},
        {"avg_pool_bwd",
         {{"f32[1,12,10,8]"}, "kernel=[9,9], stride=[1,1], count_pad=true, in=[20,18]", {{0}}}},
        {"adaptive_avg_pool", {{"f32[2,33,31,64]"}, "size=[1,1]", {{0}}}},
        {"adaptive_avg_pool", {{"f32[2,33,31,3]"}, "size=[5,7]", {{0}}}},
        {"adaptive_avg_pool_bwd", {{"f32[2,5,7,8]"}, "size=[33,31]", {{0}}}},
        {"resize", {{"f32[2,9,11,64]"}, "size=[18,22], mode=nearest, align_corners=false", {{0}}}},
        {"resize", {{"f32[2,9,11,8]"}, "size=[18,22], mode=linear, align_corners=false", {{0}}}},
        {"resize", {{"f32[1,31,17,5]"}, "size=[12,40], mode=cubic, align_corners=false", {{0}}}},
        {"resize_bwd",
         {{"f32[2,18,22,64]"}, "size=[9,11], mode=nearest, align_corners=false", {{0}}}},
        {"resize_bwd",
         {{"f32[2,18,22,8]"}, "size=[9,11], mode=linear, align_corners=false", {{0}}}},
        {"resize_bwd", {{"f32[2,13,7,8]"}, "size=[37,31], mode=linear, align_corners=true", {{0}}}},
        {"resize_bwd", {{"f32[1,36,44,8]"}, "size=[9,11], mode=cubic, align_corners=false", {{0}}}},
        {"resize_bwd", {{"f32[1,31,17,3]"}, "size=[12,40], mode=cubic, align_corners=true", {{0}}}},
        {"resize_bwd",
         {{"f32[1,5,64,3]"}, "size=[40,1], mode=nearest, align_corners=false", {{0}}}},
        {"resize_bwd", {{"f32[1,5,64,3]"}, "size=[1,1], mode=linear, align_corners=true", {{0}}}},
        LARGE_END};
    check_large(list);
}

TEST(cuda_ops_large_lines)
{
    static const large list[] = {
        {"cumsum", {{"f32[3,1111]"}, "axis=1, reverse=false", {{0}}}},
        {"cumsum", {{"f32[2,700,3]"}, "axis=1, reverse=true", {{0}}}},
        {"cumsum", {{"f32[2,70,65]"}, "axis=1, reverse=true", {{0}}}},
        {"cumsum", {{"i32[5,700]"}, "axis=1, reverse=false", {{-9, 9, false}}}},
        {"argmax", {{"f32[9,1000]"}, "axis=1", {{0}}}},
        {"argmax", {{"f32[3,100,40]"}, "axis=1", {{0}}}},
        {"argmax", {{"i64[9,100]"}, "axis=1", {{-5, 5, false}}}},
        {"sum", {{"f32[7,33,5]"}, "axes=[0,2], keep=false", {{0}}}},
        {"sum", {{"i64[130,3]"}, "axes=[0], keep=true", {{-9, 9, false}}}},
        {"max_over", {{"f32[7,133]"}, "axes=[1], keep=false", {{0}}}},
        {"min_over", {{"i32[133,7]"}, "axes=[0], keep=false", {{-99, 99, false}}}},
        {"moments", {{"f32[5,9,33]"}, "axes=[1,2], keep=false", {{0}}}},
        {"sort", {{"f32[3,1000]"}, "axis=1, count=-1, descending=true", {{0}}}},
        {"sort", {{"f32[2049]"}, "axis=0, count=-1, descending=false", {{0}}}},
        {"sort", {{"f32[2,9001]"}, "axis=1, count=-1, descending=true", {{0}}}},
        {"sort", {{"f32[5000,2]"}, "axis=0, count=7, descending=true", {{0}}}},
        {"sort", {{"i64[4100]"}, "axis=0, count=-1, descending=false", {{-99, 99, false}}}},
        {"sort", {{"u8[70,5]"}, "axis=0, count=-1, descending=false", {{0, 9, false}}}},
        LARGE_END};
    check_large(list);
}

TEST(cuda_ops_large_indices)
{
    static const large list[] = {
        {"take", {{"f32[50,64]", "i32[70]"}, "", {{0, 0, false}, {-2, 51, false}}}},
        {"take", {{"f32[50,33]", "i64[7,9]"}, "", {{0, 0, false}, {-2, 51, false}}}},
        {"take", {{"u8[50,6]", "i64[7,9]"}, "", {{0, 255, false}, {-2, 51, false}}}},
        {"take_along",
         {{"f32[3,70,33]", "i32[3,40,33]"}, "axis=1", {{0, 0, false}, {-1, 70, false}}}},
        {"scatter_add", {{"f32[70,64]", "i32[70]"}, "rows=50", {{0, 0, false}, {-2, 51, false}}}},
        {"scatter_add", {{"f32[5000,3]", "i64[5000]"}, "rows=9", {{0, 0, false}, {-1, 9, false}}}},
        {"scatter_add", {{"i32[300,5]", "i64[300]"}, "rows=9", {{-9, 9, false}, {-1, 9, false}}}},
        {"put_along_add",
         {{"f32[3,40,33]", "i32[3,40,33]"}, "axis=1, size=70", {{0, 0, false}, {-1, 70, false}}}},
        {"put_along_add",
         {{"f32[3,400]", "i64[3,400]"}, "axis=1, size=70", {{0, 0, false}, {-1, 70, false}}}},
        {"put_along_add",
         {{"f32[2500,2]", "i32[2500,2]"}, "axis=0, size=3000", {{0, 0, false}, {-1, 3000, false}}}},
        {"put_along_add",
         {{"i64[400]", "i32[400]"}, "axis=0, size=7", {{-9, 9, false}, {-1, 7, false}}}},
        {"random_uniform", {{"i64[2]"}, "dtype=f32, shape=[1037], stream=3", {{-99, 99, false}}}},
        {"random_uniform", {{"i64[2]"}, "dtype=bf16, shape=[1037], stream=3", {{-99, 99, false}}}},
        {"random_normal", {{"i64[2]"}, "dtype=f32, shape=[4099], stream=3", {{-99, 99, false}}}},
        {"random_permutation", {{"i64[2]"}, "n=1000, stream=3", {{0, 99, false}}}},
        {"random_permutation", {{"i64[2]"}, "n=12000, stream=3", {{0, 99, false}}}},
        LARGE_END};
    check_large(list);
}
