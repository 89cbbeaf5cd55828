/* test_ops.c - every op of the table, at every case that its file lists, in every dtype that
 * applies.
 *
 * A new op is tested without an edit here: types, attributes and ranges come from its descriptor.
 * For each instance
 *   - attributes print and parse to themselves, and infer does not change completed attributes
 *   - each kernel that accepts the instance fills every output, writes nothing else, stays inside
 *     its workspace, does not change its inputs, allocates nothing, gives the same bits in a
 *     second run, with another number of threads, and in place where the op allows it; and
 *     agrees with the reference
 *   - the reference in f32 agrees with the reference in f64
 *   - view, affine and ramp agree with the results of the reference
 *   - cost counts at least the bytes of the operands
 * Gradients: test_ops_gradients.c. PL_TEST_OP=name selects one op. */
#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"
#include "ir/text.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/guarded.h"
#include "tests/lib/test.h"
#include "tests/ops/op_case.h"

#include <stdio.h>
#include <stdlib.h>

static bool agree(const pl_type *ta, const void *a, const pl_type *tb, const void *b, char *why,
                  size_t cap)
{
    return disagreement(ta, a, tb, b, why, cap) <= 1;
}

static bool same_bits(const guarded_block *a, const guarded_block *b)
{
    return memcmp(a->data, b->data, a->bytes) == 0;
}

/* ---- running a kernel ------------------------------------------------------------------- */
typedef struct bench {
    inst *t;
    const pl_kernel *k;
    guarded_block in[PL_CASE_IN], work;
    pl_call call;
    char what[192]; /* "conv case 2 bf16, kernel dnn" */
} bench;

/* Runs once into out[], which is first filled with `poison`; the caller sets aliased inputs. */
static bool run_into(bench *b, const guarded_block *in, guarded_block *out, int poison)
{
    const void *ip[PL_CASE_IN];
    void *op[PL_MAX_OUT];
    for (int i = 0; i < b->call.n_in; i++) ip[i] = in[i].data;
    for (int k = 0; k < b->call.n_out; k++) {
        bool aliased = false;
        for (int i = 0; i < b->call.n_in; i++) aliased |= out[k].data == in[i].data;
        if (!aliased) guarded_fill(&out[k], poison);
        op[k] = out[k].data;
    }
    guarded_fill(&b->work, poison);
    pl_call c = b->call;
    c.in = ip;
    c.out = op;
    c.work = b->work.data;
    pl_status rc = b->k->run(&c);
    if (rc != PL_OK)
        pl_test_fail(__FILE__, __LINE__, "%s: %s: %s", b->what, pl_status_name(rc),
                     pl_error_text());
    for (int k = 0; k < c.n_out; k++)
        if (!guarded_intact(&out[k]))
            pl_test_fail(__FILE__, __LINE__, "%s: writes past output %d", b->what, k);
    if (!guarded_intact(&b->work))
        pl_test_fail(__FILE__, __LINE__, "%s: writes past its %zu bytes of scratch", b->what,
                     b->work.bytes);
    return rc == PL_OK;
}

static bool bench_open(bench *b, inst *t, const pl_kernel *k, const guarded_block *in)
{
    memset(b, 0, sizeof *b);
    b->t = t;
    b->k = k;
    b->call = t->call;
    snprintf(b->what, sizeof b->what, "%s, kernel %s", t->label, k->name);
    memcpy(b->in, in, sizeof b->in);
    size_t work = 0;
    if (k->prepare && k->prepare(&b->call, &b->call.prep, &work) != PL_OK) {
        pl_test_fail(__FILE__, __LINE__, "%s: prepare: %s", b->what, pl_error_text());
        return false;
    }
    b->work = guarded_new(work);
    return true;
}

static void bench_close(bench *b)
{
    if (b->k->release) b->k->release(b->call.prep);
    guarded_free(&b->work);
}

static void outputs_new(const inst *t, guarded_block *out)
{
    for (int k = 0; k < t->call.n_out; k++) out[k] = guarded_new(pl_type_bytes(&t->out_type[k]));
}

static void check_same(const bench *b, const guarded_block *want, const guarded_block *got,
                       const char *what)
{
    for (int k = 0; k < b->call.n_out; k++)
        if (!same_bits(&want[k], &got[k]))
            pl_test_fail(__FILE__, __LINE__, "%s: other bits in output %d %s", b->what, k, what);
}

/* Places output k in the bytes of input pick[k] (-1: in separate bytes). */
static void check_aliased(bench *b, const int *pick, const guarded_block *want)
{
    guarded_block in[PL_CASE_IN], out[PL_MAX_OUT];
    for (int i = 0; i < b->call.n_in; i++) in[i] = guarded_copy(&b->in[i]);
    for (int k = 0; k < b->call.n_out; k++)
        out[k] = pick[k] >= 0 ? in[pick[k]] : guarded_new(pl_type_bytes(&b->t->out_type[k]));
    if (run_into(b, in, out, 0x77)) check_same(b, want, out, "in place");
    for (int k = 0; k < b->call.n_out; k++)
        if (pick[k] < 0) guarded_free(&out[k]);
    guarded_free_all(in, b->call.n_in);
}

/* Each in-place bit alone, then as many as possible at once. */
static void check_inplace(bench *b, const guarded_block *want)
{
    const inst *t = b->t;
    int all[PL_MAX_OUT];
    unsigned taken = 0;
    for (int k = 0; k < b->call.n_out; k++) {
        all[k] = -1;
        for (int i = 0; i < b->call.n_in; i++) {
            if (!(t->op->inplace[k] >> i & 1) || b->in[i].bytes != want[k].bytes) continue;
            int one[PL_MAX_OUT] = {-1, -1, -1, -1};
            one[k] = i;
            check_aliased(b, one, want);
            if (all[k] < 0 && !(taken >> i & 1)) {
                all[k] = i;
                taken |= 1u << i;
            }
        }
    }
    if (taken & (taken - 1)) check_aliased(b, all, want);
}

/* Not for oneDNN, which splits some sums by the number of threads (cpu/dnn/dnn.h). */
static void check_other_threads(const bench *b, const guarded_block *want)
{
    if (strcmp(b->k->name, "dnn") == 0) return;
    bench other;
    guarded_block out[PL_MAX_OUT];
    int threads = pl_threads_count();
    pl_threads_set(threads > 1 ? 1 : 3);
    if (bench_open(&other, b->t, b->k, b->in)) {
        outputs_new(b->t, out);
        if (run_into(&other, b->in, out, 0x11))
            check_same(b, want, out, "with another number of threads");
        guarded_free_all(out, b->call.n_out);
        bench_close(&other);
    }
    pl_threads_set(threads);
}

/* Checks one kernel; want: the result of the reference, NULL for the reference itself. Leaves
 * the outputs in got. */
static void check_kernel(inst *t, const pl_kernel *k, const guarded_block *in,
                         const guarded_block *want, guarded_block *got)
{
    bench b;
    guarded_block again[PL_MAX_OUT], before[PL_CASE_IN];
    if (!bench_open(&b, t, k, in)) return;
    outputs_new(t, again);
    for (int i = 0; i < t->n_in; i++) before[i] = guarded_copy(&in[i]);
    bool ok = run_into(&b, in, got, 0xa5);
    pl_sys_counts c0 = pl_sys_counts_get();
    uint64_t a0 = pl_test_allocs();
    ok = ok && run_into(&b, in, again, 0x5a);
    uint64_t a1 = pl_test_allocs();
    pl_sys_counts c1 = pl_sys_counts_get();
    if (ok) {
        if (a0 != a1 || memcmp(&c0, &c1, sizeof c0) != 0)
            pl_test_fail(__FILE__, __LINE__, "%s: allocates in a run", b.what);
        check_same(&b, got, again, "the second time (not all written, or not a function)");
        for (int i = 0; i < t->n_in; i++)
            if (!same_bits(&before[i], &in[i]))
                pl_test_fail(__FILE__, __LINE__, "%s: writes input %d", b.what, i);
        check_inplace(&b, got);
        check_other_threads(&b, got);
        char why[160];
        for (int o = 0; want && o < t->call.n_out; o++)
            if (!agree(&t->out_type[o], got[o].data, &t->out_type[o], want[o].data, why,
                       sizeof why))
                pl_test_fail(__FILE__, __LINE__, "%s: output %d: %s", b.what, o, why);
    }
    guarded_free_all(again, t->call.n_out);
    guarded_free_all(before, t->n_in);
    bench_close(&b);
}

static const pl_kernel *reference(const pl_op *op)
{
    const pl_kernel *k = op->cpu;
    while (k && k->run && k[1].run) k++;
    return k && k->run ? k : NULL;
}

/* ---- what the descriptor claims --------------------------------------------------------- */
static void check_attributes(const inst *t)
{
    const pl_op *op = t->op;
    if (!op->attr_bytes) return;
    const void *attr = t->call.attr;
    void *back = pl_arena_alloc(&t->g->arena, op->attr_bytes);
    pl_str text = PL_STR_INIT;
    pl_attr_print(op, attr, t->store, &text);
    if (pl_attr_parse(op, text.text ? text.text : "", text.len, t->g, back) != PL_OK)
        inst_fail(t, "printed attributes \"%s\" do not parse: %s", text.text, pl_error_text());
    else if (!pl_attr_equal(op, attr, back))
        inst_fail(t, "attributes \"%s\" do not come back", text.text);
    pl_type out[PL_MAX_OUT];
    memset(out, 0, sizeof out);
    if (op->infer(t->in_type, t->n_in, back, out) != PL_OK)
        inst_fail(t, "infer refuses what it completed, \"%s\": %s", text.text, pl_error_text());
    else if (!pl_attr_equal(op, attr, back) ||
             memcmp(out, t->out_type, sizeof out[0] * (size_t)t->call.n_out) != 0)
        inst_fail(t, "infer completes \"%s\" twice", text.text);
    pl_str_release(&text);
}

static void check_cost(const inst *t)
{
    if (!t->op->cost) return;
    double operands = 0;
    for (int i = 0; i < t->call.n_in; i++) operands += (double)pl_type_bytes(&t->in_type[i]);
    for (int k = 0; k < t->call.n_out; k++) operands += (double)pl_type_bytes(&t->out_type[k]);
    pl_cost c = t->op->cost(&t->call);
    if (!(c.bytes >= operands) || !(c.flops >= 0) || !isfinite(c.flops))
        inst_fail(t, "cost of %g flops, %g bytes; the operands have %g", c.flops, c.bytes,
                  operands);
    if ((c.work == PL_WORK_PRODUCT || c.work == PL_WORK_CONV || c.work == PL_WORK_CONV_DX ||
         c.work == PL_WORK_CONV_DW) &&
        fabs(remainder(c.flops, 2 * c.m * c.n * c.k)) > 1e-9 * c.flops)
        inst_fail(t, "cost of %g flops is no multiple of the product %g x %g x %g", c.flops, c.m,
                  c.n, c.k);
}

/* Coordinates of element i of a dense shape. */
static void unravel(const pl_type *t, int64_t i, int64_t at[PL_MAX_RANK])
{
    for (int k = t->rank - 1; k >= 0; k--) {
        at[k] = i % t->dim[k];
        i /= t->dim[k];
    }
}

static void check_moves(const inst *t, const guarded_block *in, const guarded_block *want)
{
    const pl_type *y = &t->out_type[0];
    size_t elem = pl_dtype_bytes(y->dtype);
    int64_t offset = 0, n = pl_type_elems(y), at[PL_MAX_RANK];
    pl_affine m;
    if (t->op->view && t->op->view(&t->call, &offset)) {
        if (offset < 0 || (size_t)offset + want[0].bytes > in[0].bytes)
            inst_fail(t, "view at byte %lld is outside the input", (long long)offset);
        else if (memcmp(in[0].data + offset, want[0].data, want[0].bytes) != 0)
            inst_fail(t, "view at byte %lld is not the output", (long long)offset);
    }
    if (!t->op->affine || !t->op->affine(&t->call, &m)) return;
    int64_t n_in = pl_type_elems(&t->in_type[0]);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = m.offset;
        unravel(y, i, at);
        for (int k = 0; k < y->rank; k++) from += at[k] * m.stride[k];
        if (from >= 0 && from < n_in &&
            memcmp(in[0].data + (size_t)from * elem, want[0].data + (size_t)i * elem, elem) == 0)
            continue;
        inst_fail(t, "affine says element %lld is input element %lld", (long long)i,
                  (long long)from);
        return;
    }
}

static void check_ramp(const inst *t, const guarded_block *want)
{
    const pl_type *y = &t->out_type[0];
    pl_ramp r;
    if (!t->op->ramp) return;
    t->op->ramp(&t->call, &r);
    for (int64_t i = 0; i < pl_type_elems(y); i++) {
        int64_t at[PL_MAX_RANK];
        double v = r.base;
        unravel(y, i, at);
        for (int k = 0; k < y->rank; k++) v += (double)at[k] * r.step[k];
        if (v == pl_elem_get(y->dtype, want[0].data, i)) continue;
        inst_fail(t, "ramp says element %lld is %g", (long long)i, v);
        return;
    }
}

static void check_reduction(const inst *t)
{
    pl_reduction r;
    if (!t->op->reduction) return;
    t->op->reduction(&t->call, &r);
    int64_t kept = 1;
    for (int i = 0; i < t->in_type[0].rank; i++)
        if (!(r.axes >> i & 1)) kept *= t->in_type[0].dim[i];
    if (r.axes >> t->in_type[0].rank || kept != pl_type_elems(&t->out_type[0]))
        inst_fail(t, "reduction over axes %#x leaves %lld elements", r.axes, (long long)kept);
}

/* ---- kernels ---------------------------------------------------------------------------- */
/* All checks except gradients, for one instance; leaves the reference's outputs in want. */
static void check_instance(inst *t, guarded_block *in, guarded_block *want)
{
    const pl_kernel *ref = reference(t->op);
    if (!ref || strcmp(ref->name, "ref") != 0 || ref->accepts) {
        inst_fail(t, "the last kernel must be \"ref\" and accept everything");
        return;
    }
    check_attributes(t);
    check_cost(t);
    check_kernel(t, ref, in, NULL, want);
    check_moves(t, in, want);
    check_ramp(t, want);
    check_reduction(t);
    guarded_block got[PL_MAX_OUT];
    for (const pl_kernel *k = t->op->cpu; k != ref; k++) {
        if (k->accepts && !k->accepts(&t->call)) continue;
        outputs_new(t, got);
        check_kernel(t, k, in, want, got);
        guarded_free_all(got, t->call.n_out);
    }
}

static void inputs_new(const inst *t, guarded_block *in)
{
    memset(in, 0, PL_CASE_IN * sizeof *in);
    for (int i = 0; i < t->n_in; i++) {
        in[i] = guarded_new(pl_type_bytes(&t->in_type[i]));
        guarded_fill(&in[i], 0);
        draw(t, i, in[i].data);
    }
}

/* The reference in f64 on the same numbers. */
static void check_precision(const inst *t, const guarded_block *want)
{
    inst d;
    guarded_block in[PL_CASE_IN], out[PL_MAX_OUT];
    bench b;
    char why[160];
    if (inst_new(&d, t->op, t->cs, t->index, PL_F64)) {
        inputs_new(&d, in);
        outputs_new(&d, out);
        if (bench_open(&b, &d, reference(t->op), in)) {
            if (run_into(&b, in, out, 0))
                for (int k = 0; k < d.call.n_out; k++)
                    if (!agree(&t->out_type[k], want[k].data, &d.out_type[k], out[k].data, why,
                               sizeof why))
                        inst_fail(t, "output %d of the reference is not what it is in f64: %s", k,
                                  why);
            bench_close(&b);
        }
        guarded_free_all(in, d.n_in);
        guarded_free_all(out, d.call.n_out);
    }
    inst_free(&d);
}

static void check_case(const pl_op *op, const pl_case *cs, int index)
{
    static const pl_dtype dtypes[] = {PL_F32, PL_F64, PL_BF16, PL_F16};
    for (int i = 0; i < 4; i++) {
        inst t;
        guarded_block in[PL_CASE_IN], want[PL_MAX_OUT];
        bool built = inst_new(&t, op, cs, index, dtypes[i]);
        if (!built && (dtypes[i] == PL_F32 || (dtypes[i] == PL_F64 && op->vjp)))
            inst_fail(&t, "refused: %s", pl_error_text());
        bool run = built && (t.swapped || dtypes[i] == PL_F32);
        if (run) {
            inputs_new(&t, in);
            outputs_new(&t, want);
            check_instance(&t, in, want);
            if (dtypes[i] == PL_F32 && t.swapped) check_precision(&t, want);
            guarded_free_all(in, t.n_in);
            guarded_free_all(want, t.call.n_out);
        }
        inst_free(&t);
    }
}

static void warm_up(void *ctx, int64_t task, int worker)
{
    (void)ctx, (void)task, (void)worker;
}

TEST(ops_kernels_of_every_op_agree_with_the_reference)
{
    pl_threads_for(64, warm_up, NULL); /* the team of threads allocates when it first meets */
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        if (is_exempt(op)) continue;
        if (!op->cases || last_case(op->cases))
            pl_test_fail(__FILE__, __LINE__, "%s has no test cases", op->name);
        for (int c = 0; op->cases && !last_case(&op->cases[c]); c++)
            check_case(op, &op->cases[c], c);
    }
}

/* Shapes large enough that copies are split among threads. */
static const struct {
    const char *op;
    pl_case cs;
} large[] = {
    {"permute", {{"f32[5,130,67]"}, "perm=[0,2,1]", {{0}}}},
    {"permute", {{"f32[2,31,9,64]"}, "perm=[3,1,0,2]", {{0}}}},
    {"permute", {{"f32[6,50,7,33]"}, "perm=[0,2,1,3]", {{0}}}},
    {"slice", {{"f32[70,33,129]"}, "start=[1,0,3], stop=[70,33,129], step=[2,1,1]", {{0}}}},
    {"slice", {{"f32[70,33,129]"}, "start=[0,2,0], stop=[70,33,128], step=[1,1,3]", {{0}}}},
    {"flip", {{"f32[3,40001]"}, "axes=[0,1]", {{0}}}},
    {"broadcast", {{"f32[300,1]"}, "shape=[2,300,500]", {{0}}}},
    {"broadcast", {{"f32[40001]"}, "shape=[3,40001]", {{0}}}},
    {"concat", {{"f32[200,300]", "f32[200,77]", "f32[200,1]"}, "axis=1", {{0}}}},
    {"pad", {{"f32[9,40,41,3]"}, "lo=[0,1,2,0], hi=[0,3,0,0], inner=[0,1,0,0], value=0", {{0}}}},
    {"argmax", {{"f32[4,100,700]"}, "axis=1", {{0}}}},
    {"cumsum", {{"f32[4,100,700]"}, "axis=1, reverse=true", {{0}}}},
    {"cumsum", {{"f32[300,200]"}, "axis=1, reverse=false", {{0}}}},
    {"sort", {{"f32[3,20000]"}, "axis=1, count=-1, descending=false", {{0}}}},
    {"sort", {{"f32[500,7]"}, "axis=0, count=300, descending=true", {{0}}}},
    {"take", {{"f32[1000,33]", "i32[3000]"}, "", {{0, 0, false}, {-5, 1010, false}}}},
    {"scatter_add", {{"f32[900,17]", "i32[900]"}, "rows=90", {{0, 0, false}, {-5, 99, false}}}},
    {"take_along",
     {{"f32[20,900,3]", "i64[20,500,3]"}, "axis=1", {{0, 0, false}, {-5, 910, false}}}},
    {"put_along_add",
     {{"f32[20,100,3]", "i32[20,100,3]"}, "axis=1, size=50", {{0, 0, false}, {-5, 55, false}}}},
    {"random_uniform", {{"i64[2]"}, "dtype=f32, shape=[70001], stream=1", {{0, 99, false}}}},
    {"random_normal", {{"i64[2]"}, "dtype=f32, shape=[30001], stream=1", {{0, 99, false}}}},
};

TEST(ops_kernels_of_large_cases_agree_with_the_reference)
{
    pl_threads_for(64, warm_up, NULL);
    for (int i = 0; i < (int)(sizeof large / sizeof large[0]); i++) {
        const pl_op *op = pl_op_find(large[i].op);
        CHECK(op != NULL);
        if (!is_exempt(op)) check_case(op, &large[i].cs, 100 + i);
    }
}
