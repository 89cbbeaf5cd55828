/* test_device_ops.c - every op of the table on another device, against the CPU's reference.
 *
 * As in test_ops.c types, attributes and values come from the op's descriptor. For each case, in
 * f32, bf16 and f16, the kernel that the device chooses, and the plainest it has:
 *   - agrees with the reference to what the dtype allows
 *   - fills all of every output, writes nothing else, leaves inputs alone, gives the same bits
 *     again and in place where the op says so
 * Memory given to kernels is aligned to 64 bytes and no more.
 *
 * A kernel that faults takes the card's context with it. So on a card the ops are shared among
 * worker processes (this program again), which say what they begin and what came of it; one that
 * ends early is charged to what it had begun, and another goes on behind that. The result is one
 * table; figures are errors in units of what is allowed.
 */
#include "base/sys.h"
#include "rt/device.h"
#include "tests/cpu/vector_cases.h"
#include "tests/lib/test.h"
#include "tests/ops/op_case.h"
#include "tests/rt/attention_cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POOL = 256 << 20, GUARD = 256, N_TYPES = 3, WORKERS = 6, MAX_OPS = 512 };
static const pl_dtype types[N_TYPES] = {PL_F32, PL_BF16, PL_F16};

static const char *device_name(void)
{
    const char *given = getenv("PL_TEST_DEVICE");
    return given ? given : "apart";
}

/* A share of what is counted: first, first + step, ... */
typedef struct share {
    int first, step;
} share;

/* ---- a place to run --------------------------------------------------------------------- */
typedef struct place {
    const pl_device *dev;
    char *pool; /* the device's */
    size_t used;
    double worst;
    char why[512]; /* the first error; "" if none */
    share cases;   /* that are checked */
    int n_case, n_checked;
    bool tf32;      /* attention of f32 rounds its operands to 11 bits, as f16 does */
    int warpgroups; /* cases that kernels on warpgroup products computed */
} place;

static void wrong(place *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void wrong(place *w, const char *fmt, ...)
{
    va_list ap;
    if (w->why[0]) return;
    va_start(ap, fmt);
    vsnprintf(w->why, sizeof w->why, fmt, ap);
    va_end(ap);
    for (char *c = w->why; *c; c++)
        if (*c == '\n') *c = ' ';
}

/* bytes, then the guard; at an odd multiple of 64. */
static char *take(place *w, size_t bytes)
{
    size_t at = (w->used + 127) / 128 * 128 + 64;
    if (at + bytes + GUARD > POOL) return NULL;
    w->used = at + bytes + GUARD;
    return w->pool + at;
}

static void fill(place *w, char *p, int byte, size_t bytes)
{
    if (bytes) CHECK_OK(w->dev->fill(p, byte, bytes));
    CHECK_OK(w->dev->fill(p + bytes, 0x3c, GUARD));
}

static bool intact(place *w, const char *p, size_t bytes)
{
    unsigned char guard[GUARD];
    if (w->dev->read(guard, p + bytes, GUARD) != PL_OK) return false;
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0x3c) return false;
    return true;
}

/* ---- one kernel at one case ------------------------------------------------------------- */
typedef struct trial {
    place *w;
    inst *t;
    pl_exec exec;
    void *in[PL_CASE_IN], *want[PL_MAX_OUT]; /* host */
    void *first[PL_MAX_OUT];                 /* host: what the first run gave */
    char what[192];
} trial;

/* Runs with output k in the bytes of input pick[k] (-1: in separate bytes) and reads the
 * outputs. */
static bool run_once(trial *x, const int *pick, int poison, void *const *to)
{
    place *w = x->w;
    const inst *t = x->t;
    const void *in[PL_CASE_IN];
    void *out[PL_MAX_OUT];
    w->used = 0;
    for (int i = 0; i < t->n_in; i++) {
        size_t bytes = pl_type_bytes(&t->in_type[i]);
        char *p = take(w, bytes);
        if (!p) return false;
        fill(w, p, 0, bytes);
        if (bytes && w->dev->write(p, x->in[i], bytes) != PL_OK) goto failed;
        in[i] = p;
    }
    for (int k = 0; k < t->call.n_out; k++) {
        size_t bytes = pl_type_bytes(&t->out_type[k]);
        char *p = pick[k] >= 0 ? w->pool + ((const char *)in[pick[k]] - w->pool) : take(w, bytes);
        if (!p) return false;
        if (pick[k] < 0) fill(w, p, poison, bytes);
        out[k] = p;
    }
    char *work = take(w, x->exec.work_bytes);
    if (!work) {
        wrong(w, "%s: %zu bytes of scratch are more than the harness has", x->what,
              x->exec.work_bytes);
        return false;
    }
    fill(w, work, poison, x->exec.work_bytes);
    pl_bound_unit l = {.exec = &x->exec, .call = t->call};
    l.call.in = in;
    l.call.out = out;
    l.call.work = x->exec.work_bytes ? work : NULL;
    l.call.prep = x->exec.prep;
    uint32_t at;
    if (w->dev->run(&l, 1, NULL, &at) != PL_OK) goto failed;
    for (int k = 0; k < t->call.n_out; k++) {
        size_t bytes = pl_type_bytes(&t->out_type[k]);
        if (bytes && w->dev->read(to[k], out[k], bytes) != PL_OK) goto failed;
        if (!intact(w, out[k], bytes)) wrong(w, "%s: writes past output %d", x->what, k);
    }
    if (!intact(w, work, x->exec.work_bytes))
        wrong(w, "%s: writes past its %zu bytes of scratch", x->what, x->exec.work_bytes);
    return true;
failed:
    wrong(w, "%s: %s", x->what, pl_error_text());
    return false;
}

static void inputs_untouched(trial *x)
{
    for (int i = 0; i < x->t->n_in; i++) {
        size_t bytes = pl_type_bytes(&x->t->in_type[i]), at = 0;
        /* Inputs are first in the pool, in order. */
        for (int k = 0; k < i; k++)
            at = (at + 127) / 128 * 128 + 64 + pl_type_bytes(&x->t->in_type[k]) + GUARD;
        at = (at + 127) / 128 * 128 + 64;
        void *now = malloc(bytes + 1);
        if (now && x->w->dev->read(now, x->w->pool + at, bytes) == PL_OK &&
            memcmp(now, x->in[i], bytes) != 0)
            wrong(x->w, "%s: writes input %d", x->what, i);
        free(now);
    }
}

/* A second run, then runs with each in-place promise: all have the bits of the first run. */
static void same_again(trial *x, const int *pick, int poison, const char *how)
{
    void *now[PL_MAX_OUT] = {NULL};
    for (int k = 0; k < x->t->call.n_out; k++)
        now[k] = malloc(pl_type_bytes(&x->t->out_type[k]) + 1);
    if (run_once(x, pick, poison, now))
        for (int k = 0; k < x->t->call.n_out; k++)
            if (memcmp(now[k], x->first[k], pl_type_bytes(&x->t->out_type[k])) != 0)
                wrong(x->w, "%s: other bits in output %d %s", x->what, k, how);
    for (int k = 0; k < x->t->call.n_out; k++) free(now[k]);
}

static void check_inplace(trial *x)
{
    for (int k = 0; k < x->t->call.n_out; k++)
        for (int i = 0; i < x->t->n_in; i++) {
            int pick[PL_MAX_OUT] = {-1, -1, -1, -1};
            if (!(x->t->op->inplace[k] >> i & 1) ||
                pl_type_bytes(&x->t->in_type[i]) != pl_type_bytes(&x->t->out_type[k]))
                continue;
            pick[k] = i;
            same_again(x, pick, 0x77, "in place");
        }
}

static void check_exec(trial *x)
{
    static const int own[PL_MAX_OUT] = {-1, -1, -1, -1};
    char why[200] = "";
    if (x->w->dev->ready && x->w->dev->ready() != PL_OK) {
        wrong(x->w, "%s: %s", x->what, pl_error_text());
        return;
    }
    if (!run_once(x, own, 0xa5, x->first)) return;
    inputs_untouched(x);
    for (int k = 0; k < x->t->call.n_out; k++) {
        /* A device may round probabilities and their gradients to the operands' 16 bits before
         * it multiplies them: the error is relative to the largest sum, not to each sum. */
        bool rounded = strncmp(x->t->op->name, "attention", 9) == 0 &&
                       (x->w->tf32 || x->t->out_type[k].dtype != PL_F32);
        double far = disagreement_beside(&x->t->out_type[k], x->first[k], &x->t->out_type[k],
                                         x->want[k], rounded ? 1 : 0.1, why, sizeof why);
        if (x->w->tf32) far *= tolerance(PL_F32) / tolerance(PL_F16);
        if (far > x->w->worst) x->w->worst = far;
        if (far > 1) wrong(x->w, "%s: output %d: %s", x->what, k, why);
    }
    same_again(x, own, 0x5a, "the second time");
    check_inplace(x);
}

/* ---- one op in one dtype ---------------------------------------------------------------- */
static bool reference(trial *x)
{
    const pl_kernel *k = x->t->op->cpu;
    while (k && k->run && k[1].run) k++;
    if (!k || !k->run) return false;
    pl_call c = x->t->call;
    size_t work = 0;
    const void *in[PL_CASE_IN];
    for (int i = 0; i < x->t->n_in; i++) in[i] = x->in[i];
    c.in = in;
    c.out = x->want;
    bool ok = !k->prepare || k->prepare(&c, &c.prep, &work) == PL_OK;
    if (ok && posix_memalign(&c.work, 64, work + 64) == 0) {
        ok = k->run(&c) == PL_OK;
        free(c.work);
    }
    if (k->release && c.prep) k->release(c.prep);
    return ok;
}

static void check_case(place *w, inst *t)
{
    trial x = {.w = w, .t = t};
    uint32_t nodes[1] = {t->node};
    pl_unit unit = {.kind = PL_UNIT_KERNEL, .n_nodes = 1, .nodes = nodes};
    for (int i = 0; i < t->n_in; i++) {
        if (posix_memalign(&x.in[i], 64, pl_type_bytes(&t->in_type[i]) + 64) != 0) abort();
        draw(t, i, x.in[i]);
    }
    for (int k = 0; k < t->call.n_out; k++) {
        if (posix_memalign(&x.want[k], 64, pl_type_bytes(&t->out_type[k]) + 64) != 0) abort();
        x.first[k] = calloc(1, pl_type_bytes(&t->out_type[k]) + 1);
    }
    const pl_kernel *seen = NULL;
    if (!reference(&x)) wrong(w, "%s: the reference fails: %s", t->label, pl_error_text());
    for (int plain = 0; plain < 2 && !w->why[0]; plain++) {
        pl_status rc = w->dev->prepare(t->g, &unit, &t->call, plain, &x.exec);
        if (rc != PL_OK) wrong(w, "%s: %s", t->label, pl_error_text());
        if (rc != PL_OK || x.exec.kernel == seen) {
            w->dev->discard(&x.exec);
            break;
        }
        seen = x.exec.kernel;
        w->warpgroups += strstr(seen->name, "wgmma") != NULL;
        snprintf(x.what, sizeof x.what, "%s, kernel %s", t->label, x.exec.kernel->name);
        check_exec(&x);
        w->dev->discard(&x.exec);
    }
    for (int i = 0; i < t->n_in; i++) free(x.in[i]);
    for (int k = 0; k < t->call.n_out; k++) free(x.want[k]), free(x.first[k]);
}

/* Cases for GPUs only: matrices times vectors in every dtype; and in f32 products large enough
 * for kernels that small products do not get (cuda/matmul/split.h), and batches of more blocks
 * than one dimension of a grid allows. */
typedef struct large_case {
    const char *op;
    pl_case cs;
    /* kernels that other cases cover, over so many blocks that a checker would take hours */
    bool many;
} large_case;
/* clang-format off */
static const large_case large_cases[] = {
    {"matmul", {{"f32[515,512]", "f32[640,512]", "f32[640]"}, "ta=false, tb=true", {{0}}}},
    {"matmul", {{"f32[1032,516]", "f32[516,300]"}, "ta=false, tb=false", {{0}}}},
    {"matmul", {{"f32[2051,192]", "f32[2051,260]"}, "ta=true, tb=false", {{0}}}},
    {"matmul", {{"f32[520,516]", "f32[1028,520]"}, "ta=true, tb=true", {{0}}}},
    {"matmul", {{"f32[3,380,512]", "f32[3,512,516]"}, "ta=false, tb=false", {{0}}}},
    {"matmul", {{"f32[300,516]", "f32[4,380,516]"}, "ta=false, tb=true", {{0}}}},
    {"matmul_tail", {{"f32[515,512]", "f32[640,512]", "f32[640]", "f32[515,640]"}, "ta=false, tb=true, act=relu, add=true", {{0}}}},
    {"matmul_tail", {{"f32[515,512]", "f32[640,512]", "f32[640]"}, "ta=false, tb=true, act=gelu_tanh", {{0}}}},
    {"matmul_slope", {{"f32[515,512]", "f32[640,512]", "f32[515,640]"}, "ta=false, tb=true, act=relu", {{0}, {0}, {-1, 1, true}}}},
    {"conv", {{"f32[2,37,29,64]", "f32[124,3,3,64]", "f32[124]"}, "pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
    {"conv", {{"f32[2,60,64,124]", "f32[64,4,4,124]"}, "stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
    {"conv", {{"f32[1,5,20,20,64]", "f32[64,3,3,3,64]"}, "pad_lo=[1,1,1], pad_hi=[1,1,1]", {{0}}}},
    {"conv_dx", {{"f32[2,37,29,124]", "f32[124,3,3,64]"}, "in=[37,29], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
    {"conv_dx", {{"f32[2,30,32,64]", "f32[64,4,4,124]"}, "in=[60,64], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
    {"conv_dx", {{"f32[2,36,29,88]", "f32[88,2,3,124]"}, "in=[38,29], dilation=[2,1], pad_lo=[0,1], pad_hi=[0,1]", {{0}}}},
    {"conv_dw", {{"f32[2,37,29,64]", "f32[2,37,29,124]"}, "kernel=[3,3], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
    {"conv_dw", {{"f32[2,60,64,124]", "f32[2,30,32,64]"}, "kernel=[4,4], stride=[2,2], pad_lo=[1,1], pad_hi=[1,1]", {{0}}}},
    {"matmul", {{"f32[70000,3,4]", "f32[70000,4,5]"}, "ta=false, tb=false", {{0}}}, true},
    {"attention", {{"f32[16500,2,4,8]", "f32[16500,3,4,8]", "f32[16500,3,4,8]"}, "causal=false", {{0}}}, true},
    {"attention_bwd", {{"f32[16500,2,4,8]", "f32[16500,3,4,8]", "f32[16500,3,4,8]", "f32[16500,2,4,8]", "f32[16500,4,2]", "f32[16500,2,4,8]"}, "causal=false", {{0}, {0}, {0}, {0}, {4, 6, false}}}, true},
    {"attention", {{"f32[1,70,1,1100]", "f32[1,70,1,1100]", "f32[1,70,1,1100]"}, "causal=true", {{0}}}},
};
/* clang-format on */
static const large_case *large_at(size_t i)
{
    return i < sizeof large_cases / sizeof *large_cases ? &large_cases[i] : NULL;
}

/* Channels as the libraries' 16-bit engines need them, in every dtype: a convolution and its two
 * gradients. Dilated; in groups; with uneven padding; in three dims; all at once. */
/* clang-format off */
#define CONVS(x, w, y, a, size, k)                                  \
    {"conv", {{"f32" x, "f32" w}, a, {{0}}}},                       \
    {"conv_dx", {{"f32" y, "f32" w}, "in=" size ", " a, {{0}}}},    \
    {"conv_dw", {{"f32" x, "f32" y}, "kernel=" k ", " a, {{0}}}},
static const large_case even_convs[] = {
    CONVS("[2,12,11,16]", "[32,3,3,16]", "[2,12,11,32]", "dilation=[2,2], pad_lo=[2,2], pad_hi=[2,2]", "[12,11]", "[3,3]")
    CONVS("[2,10,9,32]", "[32,3,3,8]", "[2,10,9,32]", "groups=4, pad_lo=[1,1], pad_hi=[1,1]", "[10,9]", "[3,3]")
    CONVS("[2,11,12,24]", "[16,3,4,24]", "[2,5,6,16]", "stride=[2,2], pad_lo=[0,1], pad_hi=[1,2]", "[11,12]", "[3,4]")
    CONVS("[1,5,8,7,16]", "[24,3,3,3,16]", "[1,5,8,7,24]", "pad_lo=[1,1,1], pad_hi=[1,1,1]", "[5,8,7]", "[3,3,3]")
    CONVS("[1,6,9,8,32]", "[16,2,3,3,16]", "[1,5,4,8,16]", "groups=2, stride=[1,2,1], dilation=[2,1,2], pad_lo=[1,0,2], pad_hi=[0,1,2]", "[6,9,8]", "[2,3,3]")
};
/* clang-format on */
enum { EVEN_CONVS = sizeof even_convs / sizeof *even_convs };

/* False: the op does not support this dtype. */
static bool check_one(place *w, const pl_op *op, const pl_case *c, int index, pl_dtype dtype)
{
    inst t;
    bool any = inst_new(&t, op, c, index, dtype) && (t.swapped || dtype == PL_F32);
    if (any && w->n_case++ % w->cases.step == w->cases.first) {
        check_case(w, &t);
        w->n_checked++;
    }
    inst_free(&t);
    return any;
}

static bool check_op(place *w, const pl_op *op, pl_dtype dtype)
{
    bool any = false, card = strcmp(device_name(), "apart") != 0;
    w->worst = 0;
    w->why[0] = 0;
    int index = 0;
    for (const pl_case *c = op->cases; c && !last_case(c) && !w->why[0]; c++, index++)
        any |= check_one(w, op, c, index, dtype);
    for (int i = 0; card && strcmp(op->name, "matmul") == 0 && i < VECTOR_CASES; i++)
        if (!w->why[0]) check_one(w, op, &vector_cases[i], index++, dtype);
    const pl_case *attend = !card                                           ? NULL
                            : strcmp(op->name, "attention") == 0            ? long_attention
                            : strcmp(op->name, "attention_bwd") == 0        ? long_attention_bwd
                            : strcmp(op->name, "attention_rows") == 0       ? long_rows
                            : strcmp(op->name, "attention_rows_bwd") == 0   ? long_rows_bwd
                            : strcmp(op->name, "attention_masked") == 0     ? long_masked
                            : strcmp(op->name, "attention_masked_bwd") == 0 ? long_masked_bwd
                                                                            : NULL;
    for (; attend && !last_case(attend) && !w->why[0]; attend++)
        if (!check_one(w, op, attend, index++, dtype))
            wrong(w, "%s, long, case %d: %s", op->name, index, pl_error_text());
    for (int i = 0; i < EVEN_CONVS && !w->why[0]; i++)
        if (strcmp(even_convs[i].op, op->name) == 0 &&
            !check_one(w, op, &even_convs[i].cs, index++, dtype))
            wrong(w, "%s, even channels, case %d: %s", op->name, i, pl_error_text());
    const large_case *l;
    for (size_t i = 0; card && dtype == PL_F32 && (l = large_at(i)) && !w->why[0]; i++)
        if (strcmp(l->op, op->name) == 0 && !(l->many && w->cases.step > 1))
            check_one(w, op, &l->cs, index++, dtype);
    return any;
}

/* Every kernel of attention of f32 that rounds to TF32 and, on the GPUs that have them, those on
 * warpgroup products. */
TEST(device_attention_in_tf32_matches_the_cpu)
{
    static const char *const ops[] = {"attention",        "attention_bwd",
                                      "attention_rows",   "attention_rows_bwd",
                                      "attention_masked", "attention_masked_bwd"};
    place w = {.cases = {0, 1}, .tf32 = true};
    void *pool = NULL;
    CHECK_OK(pl_device_find(device_name(), &w.dev));
    if (strcmp(device_name(), "cuda") != 0) SKIP("needs a GPU");
    CHECK_OK(w.dev->alloc(POOL, &pool));
    w.pool = pool;
    const pl_device_mode tf32 = {.tf32 = true}, exact = {0};
    w.dev->set_mode(&tf32);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        check_op(&w, pl_op_find(ops[i]), PL_F32);
        CHECK_MSG(!w.why[0], "%s: %s", ops[i], w.why);
        printf("    %-22s error / allowed %.3g\n", ops[i], w.worst);
    }
    printf("    %d cases, %d of them on warpgroup products\n", w.n_checked, w.warpgroups);
    w.dev->set_mode(&exact);
    w.dev->free(pool, POOL);
}

/* ---- workers ---------------------------------------------------------------------------- */
/* "FIRST STEP"; everything without a text. */
static bool share_of(const char *text, share *s)
{
    *s = (share){0, 1};
    return !text ||
           (sscanf(text, "%d %d", &s->first, &s->step) == 2 && s->first >= 0 && s->step > 0);
}

/* Runs a share of the ops and dtypes, and of all their cases. One line per op and dtype: "@ OP
 * TYPE none|ok|FAIL WORST WHY", after "> OP TYPE". */
static void work(share ops, share cases)
{
    place w = {.cases = cases};
    void *pool = NULL;
    if (pl_device_find(device_name(), &w.dev) != PL_OK || w.dev->alloc(POOL, &pool) != PL_OK) {
        printf("! %s\n", pl_error_text());
        return;
    }
    w.pool = pool;
    for (int n = ops.first; n < pl_op_count() * N_TYPES; n += ops.step) {
        const pl_op *op = pl_op_at(n / N_TYPES);
        if (is_exempt(op)) continue;
        printf("> %d\n", n);
        fflush(stdout);
        bool any = check_op(&w, op, types[n % N_TYPES]);
        printf("@ %d %s %g %s\n", n, !any ? "none" : w.why[0] ? "FAIL" : "ok", w.worst, w.why);
        fflush(stdout);
        char probe = 0;
        if (w.why[0] && w.dev->read(&probe, w.pool, 1) != PL_OK) exit(9); /* the context is lost */
    }
    printf("checked %d of %d cases\n", w.n_checked, w.n_case);
    w.dev->free(pool, POOL);
}

typedef struct verdict {
    char state[8]; /* "", "none", "ok", "FAIL" */
    double worst;
    char why[512];
} verdict;

/* Reads one worker's lines; returns the number of the op at which it ended early, else -1. */
static int listen(FILE *f, verdict *v)
{
    char line[1024];
    int at = -1;
    while (fgets(line, sizeof line, f)) {
        int n = -1, eaten = 0;
        char state[8];
        double worst;
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '!') {
            pl_test_fail(__FILE__, __LINE__, "%s", line + 2);
            return -1;
        }
        if (sscanf(line, "> %d", &n) == 1) at = n;
        if (sscanf(line, "@ %d %7s %lf %n", &n, state, &worst, &eaten) >= 3 && n >= 0 &&
            n < MAX_OPS * N_TYPES) {
            snprintf(v[n].state, sizeof v[n].state, "%s", state);
            snprintf(v[n].why, sizeof v[n].why, "%s", line + eaten);
            v[n].worst = worst;
        }
    }
    return at;
}

typedef struct worker {
    FILE *out;
    pid_t pid;
} worker;

static bool start(worker *w, int first, int step)
{
    int fd[2];
    char self[4096], text[64];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len <= 0 || pipe(fd) != 0) return false;
    self[len] = 0;
    snprintf(text, sizeof text, "%d %d", first, step);
    fflush(stdout);
    w->pid = fork();
    if (w->pid < 0) return false;
    if (w->pid == 0) {
        dup2(fd[1], 1);
        close(fd[0]);
        close(fd[1]);
        setenv("PL_DEVICE_OPS", text, 1);
        execl(self, self, "-k", "=device_ops_match_the_cpu", (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    w->out = fdopen(fd[0], "r");
    return w->out != NULL;
}

/* All of one worker's share, however often the worker must be restarted. */
static void follow(worker *w, int step, verdict *v)
{
    while (w->out) {
        int status = 0, at = listen(w->out, v);
        fclose(w->out);
        w->out = NULL;
        waitpid(w->pid, &status, 0);
        if (at < 0 || (WIFEXITED(status) && WEXITSTATUS(status) != 9 && v[at].state[0])) return;
        if (!v[at].state[0]) {
            snprintf(v[at].state, sizeof v[at].state, "FAIL");
            snprintf(v[at].why, sizeof v[at].why, "the process ended: %s %d",
                     WIFSIGNALED(status) ? "signal" : "exit",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            v[at].worst = (double)INFINITY;
        }
        if (!start(w, at + step, step)) return;
    }
}

/* ---- the table -------------------------------------------------------------------------- */
static int print_table(const verdict *v)
{
    int bad = 0, good = 0;
    printf("    %-24s %12s %12s %12s   error / allowed\n", "op", "f32", "bf16", "f16");
    for (int i = 0; i < pl_op_count(); i++) {
        char cell[N_TYPES][24];
        bool failed = false;
        if (is_exempt(pl_op_at(i))) continue;
        for (int k = 0; k < N_TYPES; k++) {
            const verdict *c = &v[i * N_TYPES + k];
            bool none = strcmp(c->state, "none") == 0, ok = strcmp(c->state, "ok") == 0;
            if (none)
                snprintf(cell[k], sizeof cell[k], "-");
            else
                snprintf(cell[k], sizeof cell[k], "%s %.3g", ok ? "ok" : "FAIL", c->worst);
            good += ok;
            bad += !none && !ok;
            failed |= !none && !ok;
        }
        if (failed || getenv("PL_TEST_DEVICE"))
            printf("    %-24s %12s %12s %12s\n", pl_op_at(i)->name, cell[0], cell[1], cell[2]);
    }
    for (int i = 0; i < pl_op_count() * N_TYPES; i++)
        if (!is_exempt(pl_op_at(i / N_TYPES)) && strcmp(v[i].state, "none") != 0 &&
            strcmp(v[i].state, "ok") != 0)
            printf("    %s %s: %s\n", pl_op_at(i / N_TYPES)->name,
                   pl_dtype_name(types[i % N_TYPES]), v[i].state[0] ? v[i].why : "never run");
    printf("    %d agree, %d do not\n", good, bad);
    return bad;
}

/* PL_DEVICE_OPS="FIRST STEP": a worker's share. PL_DEVICE_CASES: a share of cases, whose times
 * vary less, without cases of very many blocks (tools/gpu/sanitize). */
TEST(device_ops_match_the_cpu)
{
    const char *some_ops = getenv("PL_DEVICE_OPS"), *some_cases = getenv("PL_DEVICE_CASES");
    share ops, cases;
    CHECK(share_of(some_ops, &ops) && share_of(some_cases, &cases));
    if (some_ops || some_cases) {
        work(ops, cases);
        return;
    }
    CHECK(pl_op_count() <= MAX_OPS);
    bool card = strcmp(device_name(), "apart") != 0;
    int n = card ? WORKERS : 1;
    verdict *v = calloc((size_t)MAX_OPS * N_TYPES, sizeof *v);
    worker w[WORKERS] = {{NULL, 0}};
    CHECK(v);
    for (int i = 0; i < n; i++) CHECK(start(&w[i], i, n));
    for (int i = 0; i < n; i++) follow(&w[i], n, v);
    int bad = print_table(v);
    free(v);
    CHECK_MSG(bad == 0, "%d of the table's cells fail on %s", bad, device_name());
}
