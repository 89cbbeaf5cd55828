/* probe_lib.c - library kernels of the CUDA plug-in on a list of shapes: right, how fast, by
 * which algorithm, how long to prepare. A program of its own; needs a card.
 *
 *   probe_lib [-t] [-k TEXT]... [-x KERNEL] [-a KERNEL]
 *
 * -t: also by timed choice; -k: only lines that hold TEXT; -x: without the kernel of that name; -a:
 * only calls that the alternative of that name accepts (trial.h), by that kernel.
 *
 * Each line of the table is one call: it runs on operands of random numbers with workspace and
 * outputs full of NaN, twice (the results must be the same bytes), then several times by the
 * clock. Some of the outputs are compared with a plain sum in double over the same operands.
 *
 *   err   largest |got - want| / (|want| + sum of |terms| * 1e-3), want being the double sum;
 *         of attention, whose terms are rounded themselves: largest |got - want| / largest |want|
 */
#include "tests/cuda/probe/probe_lib.h"
#include "tests/cuda/probe/probe_shapes.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "cuda/conv/conv.h"
#include "cuda/device/lib.h"
#include "ops/core/attr.h"
#include "ops/net/window.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1048573, SAMPLES = 48, RUNS = 7 };

/* ---- operands ------------------------------------------------------------------------------- */
static float *block; /* values in [-1, 1) with all the bits of an f32 */
static uint64_t seed = 1;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static void make_block(void)
{
    block = pl_sys_alloc(sizeof *block * BLOCK);
    if (!block) exit(1);
    for (int i = 0; i < BLOCK; i++) block[i] = (float)((double)draw() / 1073741824.0 - 1);
}

double pl_probe_value(const operand *o, int64_t i)
{
    if (o->given) return o->given[i];
    float v = block[(i + o->shift) % BLOCK] * (float)o->scale;
    if (o->t.dtype == PL_F16) return (double)pl_f16_to_f32(pl_f32_to_f16(v));
    if (o->t.dtype == PL_BF16) return (double)pl_bf16_to_f32(pl_f32_to_bf16(v));
    return (double)v;
}

static pl_status operand_make(operand *o, int k)
{
    size_t bytes = pl_type_bytes(&o->t), each = pl_dtype_bytes(o->t.dtype);
    o->shift = k * 7919;
    PL_CUDA(cudaMalloc(&o->at, bytes + 256));
    char *host = pl_sys_alloc(each * BLOCK);
    if (!host) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < BLOCK; i++) pl_elem_set(o->t.dtype, host, i, pl_probe_value(o, i));
    size_t period = each * BLOCK;
    cudaError_t rc = cudaSuccess;
    for (size_t at = 0; at < bytes && rc == cudaSuccess; at += period)
        rc = cudaMemcpy((char *)o->at + at, host, bytes - at < period ? bytes - at : period,
                        cudaMemcpyHostToDevice);
    pl_sys_free(host);
    PL_CUDA(rc);
    return PL_OK;
}

/* ---- a call --------------------------------------------------------------------------------- */
extern const pl_cuda_entry pl_cuda_matmul[], pl_cuda_conv[], pl_cuda_attention[];
static const pl_cuda_entry *const tables[] = {pl_cuda_matmul, pl_cuda_conv, pl_cuda_attention};

extern const pl_cuda_entry pl_cuda_conv_alternatives[];
static const char *without; /* a kernel that is skipped */
static const char *alternative;

static const pl_kernel *alternative_of(const char *op, const pl_call *c)
{
    for (const pl_cuda_entry *e = pl_cuda_conv_alternatives; e->op; e++)
        for (const pl_kernel *k = e->kernels; strcmp(e->op, op) == 0 && k->name; k++)
            if (strcmp(k->name, alternative) == 0 && (!k->accepts || k->accepts(c))) return k;
    return NULL;
}

static const pl_kernel *kernel_of(const char *op, const pl_call *c)
{
    if (alternative) return alternative_of(op, c);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const pl_cuda_entry *e = tables[t]; e->op; e++)
            for (const pl_kernel *k = e->kernels; strcmp(e->op, op) == 0 && k->name; k++)
                if (!(without && strcmp(k->name, without) == 0) && (!k->accepts || k->accepts(c)))
                    return k;
    return NULL;
}

static pl_status probe_prepare(probe *p)
{
    pl_call *c = &p->c;
    for (int i = 0; i < c->n_in; i++) {
        if (!p->in[i].at) PL_TRY(operand_make(&p->in[i], i));
        p->in_type[i] = p->in[i].t;
        p->in_at[i] = p->in[i].at;
        p->bytes += (double)pl_type_bytes(&p->in[i].t);
    }
    for (int i = 0; i < c->n_out; i++) {
        PL_CUDA(cudaMalloc(&p->out[i].at, pl_type_bytes(&p->out[i].t) + 256));
        p->out_type[i] = p->out[i].t;
        p->out_at[i] = p->out[i].at;
        p->bytes += (double)pl_type_bytes(&p->out[i].t);
    }
    c->in_type = p->in_type;
    c->out_type = p->out_type;
    c->attr = &p->attr;
    p->kernel = kernel_of(p->op, c);
    PL_FAIL_IF(!p->kernel, PL_ERR_UNSUPPORTED, "no kernel");
    uint64_t start = pl_sys_now_ns();
    if (p->kernel->prepare) PL_TRY(p->kernel->prepare(c, &c->prep, &p->work_bytes));
    p->prepare_ms = (double)(pl_sys_now_ns() - start) * 1e-6;
    PL_CUDA(cudaMalloc(&p->work, p->work_bytes + 256));
    /* The plan promises multiples of 64 bytes, no more. */
    c->work = (char *)p->work + 64;
    c->in = p->in_at;
    c->out = p->out_at;
    return PL_OK;
}

static void probe_release(probe *p)
{
    if (p->kernel && p->kernel->release) p->kernel->release(p->c.prep);
    for (int i = 0; i < p->c.n_in; i++) {
        cudaFree(p->in[i].at);
        pl_sys_free(p->in[i].given);
    }
    for (int i = 0; i < p->c.n_out; i++) cudaFree(p->out[i].at);
    cudaFree(p->work);
    memset(p, 0, sizeof *p);
}

static pl_status fresh_run(probe *p)
{
    cudaStream_t s = pl_cuda_stream();
    PL_CUDA(cudaMemsetAsync(p->work, 0xff, p->work_bytes + 256, s));
    for (int i = 0; i < p->c.n_out; i++)
        PL_CUDA(cudaMemsetAsync(p->out[i].at, 0xff, pl_type_bytes(&p->out[i].t), s));
    PL_TRY(p->kernel->run(&p->c));
    PL_CUDA(cudaStreamSynchronize(s));
    return PL_OK;
}

static pl_status fetch(const operand *o, char **out)
{
    size_t bytes = pl_type_bytes(&o->t);
    *out = pl_sys_alloc(bytes + 1);
    if (!*out) return PL_ERR_MEMORY;
    PL_CUDA(cudaMemcpy(*out, o->at, bytes, cudaMemcpyDeviceToHost));
    return PL_OK;
}

static pl_status probe_time(probe *p)
{
    cudaEvent_t a, b;
    cudaStream_t s = pl_cuda_stream();
    PL_CUDA(cudaEventCreate(&a));
    PL_CUDA(cudaEventCreate(&b));
    p->ms = 1e30;
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;
        PL_CUDA(cudaEventRecord(a, s));
        PL_TRY(p->kernel->run(&p->c));
        PL_CUDA(cudaEventRecord(b, s));
        PL_CUDA(cudaEventSynchronize(b));
        PL_CUDA(cudaEventElapsedTime(&ms, a, b));
        if ((double)ms < p->ms) p->ms = (double)ms;
    }
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    return PL_OK;
}

/* ---- one line -------------------------------------------------------------------------------- */
static bool is_attention(const probe *p)
{
    return strncmp(p->op, "attention", 9) == 0;
}

/* Error against the double sums at positions spread over the output, including its ends. */
static pl_status compare(probe *p)
{
    wanted want = pl_probe_wanted(p->op);
    double cost = p->flops > 0 ? p->flops : 1;
    for (int o = 0; o < p->c.n_out; o++) {
        char *got = NULL;
        int64_t n = pl_type_elems(&p->out[o].t), samples = SAMPLES;
        double worst = 0, most = 1e-30;
        pl_status rc = fetch(&p->out[o], &got);
        /* An element's share of the work, bounded so that a line takes a second at most. */
        while (samples > 6 && cost / (double)n * (double)samples > 1e8) samples--;
        if (strstr(p->op, "_dx")) samples = 6; /* its search is over all of y */
        for (int64_t k = 0; rc == PL_OK && k < samples && n > 0; k++) {
            int64_t at = k == 0   ? 0
                         : k == 1 ? n - 1
                                  : (int64_t)(((uint64_t)draw() << 20 ^ draw()) % (uint64_t)n);
            sum s = want(p, o, at);
            double off = fabs(pl_elem_get(p->out[o].t.dtype, got, at) - s.value);
            double e = off / (fabs(s.value) + s.size * 1e-3 + 1e-30);
            if (!(off <= worst)) worst = off;
            if (fabs(s.value) > most) most = fabs(s.value);
            if (!is_attention(p) && !(e <= p->err)) p->err = e;
        }
        if (is_attention(p) && n > 1 && !(worst / most <= p->err)) p->err = worst / most;
        pl_sys_free(got);
        PL_TRY(rc);
    }
    return PL_OK;
}

static pl_status twice(probe *p)
{
    p->same = true;
    PL_TRY(fresh_run(p));
    for (int o = 0; o < p->c.n_out; o++) {
        char *a = NULL, *b = NULL;
        pl_status rc = fetch(&p->out[o], &a);
        if (rc == PL_OK && o == 0) rc = fresh_run(p);
        if (rc == PL_OK) rc = fetch(&p->out[o], &b);
        if (rc == PL_OK && memcmp(a, b, pl_type_bytes(&p->out[o].t)) != 0) p->same = false;
        pl_sys_free(a);
        pl_sys_free(b);
        PL_TRY(rc);
    }
    return PL_OK;
}

static double allowed(const probe *p)
{
    switch (p->out[0].t.dtype) {
    case PL_F16: return 4e-3;
    case PL_BF16: return 3e-2;
    case PL_F64: return 1e-9;
    default: return pl_cuda_tf32() ? 5e-2 : 1e-3;
    }
}

static const char *engine_of(const probe *p)
{
    static char text[96];
    snprintf(text, sizeof text, "%s", p->kernel->name);
    if (strcmp(p->kernel->name, "cudnn") == 0 && !is_attention(p))
        pl_conv_describe(p->c.prep, text, sizeof text);
    if (strcmp(p->kernel->name, "cublaslt") == 0)
        pl_cuda_matmul_describe(p->c.prep, text, sizeof text);
    return text;
}

static int failed, passed;
static bool tune;
static const char *only[8];
static int n_only;

static bool wanted_line(const char *line)
{
    for (int i = 0; i < n_only; i++)
        if (!strstr(line, only[i])) return false;
    return true;
}

static pl_status probe_all(probe *p)
{
    PL_TRY(probe_prepare(p));
    PL_TRY(twice(p));
    PL_TRY(compare(p));
    return probe_time(p);
}

/* Prepares again with timed choice and returns its time, or 0. */
static double tuned_ms(probe *p, double *prepare_ms)
{
    double first = p->ms, ms = 0;
    if (p->kernel->release) p->kernel->release(p->c.prep);
    p->c.prep = NULL;
    p->work_bytes = 0;
    cudaFree(p->work);
    p->work = NULL;
    pl_probe_tune = true;
    uint64_t start = pl_sys_now_ns();
    pl_status rc =
        p->kernel->prepare ? p->kernel->prepare(&p->c, &p->c.prep, &p->work_bytes) : PL_OK;
    *prepare_ms = (double)(pl_sys_now_ns() - start) * 1e-6;
    if (rc == PL_OK && cudaMalloc(&p->work, p->work_bytes + 256) == cudaSuccess) {
        p->c.work = (char *)p->work + 64;
        if (fresh_run(p) == PL_OK && probe_time(p) == PL_OK) ms = p->ms;
    }
    pl_probe_tune = false;
    p->ms = first;
    return ms;
}

static void report(probe *p)
{
    char line[200];
    snprintf(line, sizeof line, "%-13s %-4s %s", p->op, pl_dtype_name(p->in[0].t.dtype), p->text);
    if (!wanted_line(line)) return;
    pl_status rc = probe_all(p);
    if (rc != PL_OK && alternative && !p->kernel) return;
    if (rc != PL_OK) {
        printf("%-72s FAILED: %s\n", line, pl_error_text());
        cudaError_t stuck = cudaDeviceSynchronize();
        if (stuck != cudaSuccess) {
            printf("the card is lost: %s\n", cudaGetErrorString(stuck));
            exit(1);
        }
        (void)cudaGetLastError();
        failed++;
        return;
    }
    bool good = p->err <= allowed(p) && p->same;
    good ? passed++ : failed++;
    printf("%-72s %-4s %.1e %8.3f %8.1f %7.0f %8.1f %7.1f  %s", line,
           !p->same ? "DIFF"
           : good   ? "ok"
                    : "BAD",
           p->err, p->ms, p->flops / p->ms * 1e-9, p->bytes / p->ms * 1e-6, p->prepare_ms,
           (double)p->work_bytes / 1048576, engine_of(p));
    if (tune &&
        (strcmp(p->kernel->name, "cudnn") == 0 || strcmp(p->kernel->name, "cublaslt") == 0)) {
        double prepare_ms = 0, ms = tuned_ms(p, &prepare_ms);
        printf("  | timed %.3f ms (default is %.2f of it; choosing took %.0f ms) %s", ms,
               ms > 0 ? p->ms / ms : 0, prepare_ms, engine_of(p));
    }
    printf("\n");
    fflush(stdout);
}

/* ---- the list -------------------------------------------------------------------------------- */
static void matmul(pl_dtype dt, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                   bool bias, int shared)
{
    probe p;
    memset(&p, 0, sizeof p);
    p.op = "matmul";
    p.c.n_in = bias ? 3 : 2;
    p.c.n_out = 1;
    p.attr.matmul.ta = ta;
    p.attr.matmul.tb = tb;
    int64_t a[3] = {batch, ta ? k : m, ta ? m : k}, b[3] = {batch, tb ? n : k, tb ? k : n};
    int64_t y[3] = {batch, m, n};
    int from = batch > 1 ? 0 : 1;
    p.in[0].t = pl_type_make(dt, shared == 1 ? 2 : 3 - from, a + (shared == 1 ? 1 : from));
    p.in[1].t = pl_type_make(dt, shared == 2 ? 2 : 3 - from, b + (shared == 2 ? 1 : from));
    p.in[2].t = pl_type_make(dt, 1, &n);
    p.out[0].t = pl_type_make(dt, 3 - from, y + from);
    p.in[0].scale = p.in[1].scale = p.in[2].scale = 1;
    p.flops = 2.0 * (double)batch * (double)m * (double)n * (double)k;
    snprintf(p.text, sizeof p.text, "%lldx%lldx%lld batch %lld%s%s%s%s", (long long)m, (long long)n,
             (long long)k, (long long)batch, ta ? " ta" : "", tb ? " tb" : "", bias ? " bias" : "",
             shared ? " shared" : "");
    report(&p);
    probe_release(&p);
}

/* which: 0 conv, 1 dx, 2 dw */
static void conv_one(pl_dtype dt, const conv_line *l, int which)
{
    static const char *const ops[2][3] = {
        {"conv", "conv_dx", "conv_dw"},
        {"depthwise_per_sample", "depthwise_per_sample_dx", "depthwise_per_sample_dw"}};
    probe p;
    int s = l->n_spatial;
    bool per_sample = l->bias == 2;
    int64_t x[5] = {l->n}, w[5], y[5] = {l->n};
    memset(&p, 0, sizeof p);
    pl_window_attr *a = &p.attr.window;
    p.op = ops[per_sample][which];
    a->groups = l->groups ? l->groups : 1;
    a->stride.n = a->dilation.n = a->pad_lo.n = a->pad_hi.n = s;
    double macs = (double)l->n * (double)l->oc * (double)(l->ic / a->groups);
    w[0] = per_sample ? l->n : l->oc;
    for (int i = 0; i < s; i++) {
        a->stride.v[i] = l->stride[i] ? l->stride[i] : 1;
        a->dilation.v[i] = l->dil[i] ? l->dil[i] : 1;
        a->pad_lo.v[i] = l->lo[i];
        a->pad_hi.v[i] = l->hi[i];
        x[1 + i] = l->in[i];
        w[1 + i] = l->k[i];
        y[1 + i] = (l->in[i] + l->lo[i] + l->hi[i] - (l->k[i] - 1) * a->dilation.v[i] - 1) /
                       a->stride.v[i] +
                   1;
        macs *= (double)y[1 + i] * (double)l->k[i];
    }
    x[s + 1] = l->ic;
    w[s + 1] = per_sample ? l->ic : l->ic / a->groups;
    y[s + 1] = l->oc;
    if (per_sample) a->groups = 0, macs /= (double)l->ic;
    pl_type tx = pl_type_make(dt, s + 2, x), tw = pl_type_make(dt, s + 2, w),
            ty = pl_type_make(dt, s + 2, y);
    p.in[0].t = which == 1 ? ty : tx;
    p.in[1].t = which == 2 ? ty : tw;
    p.in[2].t = pl_type_make(dt, 1, &l->oc);
    p.out[0].t = which == 0 ? ty : which == 1 ? tx : tw;
    p.in[0].scale = p.in[1].scale = p.in[2].scale = 1;
    if (which == 2) p.in[1].scale = 1.0 / 64;
    p.c.n_in = which == 0 && l->bias == 1 ? 3 : 2;
    p.c.n_out = 1;
    p.flops = 2 * macs;
    snprintf(p.text, sizeof p.text, "%s", l->text);
    report(&p);
    probe_release(&p);
}

static void conv(const pl_dtype *dts, int n, const conv_line *l)
{
    for (int t = 0; t < n; t++)
        for (int which = 0; which < 3; which++) conv_one(dts[t], l, which);
}

static void attention(pl_dtype dt, int64_t b, int64_t n, int64_t m, int64_t h, int64_t d,
                      bool causal)
{
    probe f, g;
    memset(&f, 0, sizeof f);
    memset(&g, 0, sizeof g);
    const int64_t q[4] = {b, n, h, d}, k[4] = {b, m, h, d}, l[3] = {b, h, n};
    f.op = "attention";
    f.c.n_in = 3;
    f.c.n_out = 2;
    f.attr.attention = (pl_attention_attr){1 / sqrt((double)d), causal};
    f.in[0].t = f.out[0].t = pl_type_make(dt, 4, q);
    f.in[1].t = f.in[2].t = pl_type_make(dt, 4, k);
    f.out[1].t = pl_type_make(dt == PL_F64 ? PL_F64 : PL_F32, 3, l);
    f.in[0].scale = f.in[1].scale = 2;
    f.in[2].scale = 1;
    double pairs = (double)(b * h) * (double)n * (double)m * (causal ? 0.5 : 1);
    f.flops = 4 * pairs * (double)d;
    snprintf(f.text, sizeof f.text, "b%lld n%lld m%lld h%lld d%lld%s", (long long)b, (long long)n,
             (long long)m, (long long)h, (long long)d, causal ? " causal" : "");
    report(&f);
    if (!f.same) { /* it did not run, or two runs differ: nothing to compare */
        probe_release(&f);
        return;
    }
    g = f;
    g.op = "attention_bwd";
    g.c.n_in = 6;
    g.c.n_out = 3;
    g.c.prep = NULL;
    g.kernel = NULL;
    g.work = NULL;
    g.work_bytes = 0;
    g.bytes = g.err = 0;
    for (int o = 0; o < 2; o++) {
        char *host = NULL;
        g.in[3 + o] = f.out[o];
        int64_t elems = pl_type_elems(&f.out[o].t);
        g.in[3 + o].given = pl_sys_alloc(sizeof(double) * (size_t)elems);
        if (fetch(&f.out[o], &host) != PL_OK || !g.in[3 + o].given) exit(1);
        for (int64_t i = 0; i < elems; i++)
            g.in[3 + o].given[i] = pl_elem_get(f.out[o].t.dtype, host, i);
        pl_sys_free(host);
        f.out[o].at = NULL;
        memset(&g.out[o], 0, sizeof g.out[o]);
    }
    for (int i = 0; i < 3; i++) f.in[i].at = NULL; /* g's now */
    g.in[5].t = f.in[0].t;
    g.in[5].scale = 1;
    for (int i = 0; i < 3; i++) g.out[i].t = f.in[i].t;
    g.flops = 10 * pairs * (double)d;
    report(&g);
    probe_release(&g);
    probe_release(&f);
}

static void matmuls(void)
{
    static const pl_dtype all[] = {PL_F32, PL_F16, PL_BF16};
    matmul(PL_F64, 1, 33, 17, 65, false, true, true, 0);
    for (int t = 0; t < 3; t++) {
        pl_dtype d = all[t];
        matmul(d, 1, 8192, 8192, 8192, false, true, false, 0);
        matmul(d, 1, 4096, 4096, 4096, false, false, false, 0);
        matmul(d, 1, 4096, 4096, 4096, true, false, false, 0);
        matmul(d, 1, 8192, 1024, 4096, false, true, true, 0);
        matmul(d, 1, 8192, 4096, 1024, false, true, true, 0);
        matmul(d, 1, 4096, 1024, 8192, true, false, false, 0);
        matmul(d, 1, 2048, 1536, 8960, false, true, true, 0);
        matmul(d, 1, 8192, 320, 320, false, true, true, 0);
        matmul(d, 1, 20, 256, 256, false, true, true, 0);
        matmul(d, 1, 20, 256, 2, false, true, true, 0);
        matmul(d, 1, 100, 1, 128, false, true, true, 0);
        matmul(d, 64, 1024, 1024, 64, false, true, false, 0);
        matmul(d, 64, 1024, 64, 1024, false, false, false, 0);
        matmul(d, 12, 77, 131, 45, true, true, true, 0);
        matmul(d, 5, 33, 65, 17, false, false, false, 1);
        matmul(d, 5, 33, 65, 17, true, false, false, 2);
        matmul(d, 1, 1, 1, 1, false, false, true, 0);
        matmul(d, 1, 1, 4096, 4096, false, true, false, 0);
        matmul(d, 1, 4096, 1, 4097, false, false, false, 0);
        matmul(d, 1, 513, 127, 1, false, true, false, 0);
        matmul(d, 1, 7, 5, 3, true, true, true, 0);
        matmul(d, 1, 16, 8, 0, false, false, true, 0);
    }
}

static void convs(void)
{
    static const pl_dtype all[] = {PL_F16, PL_F32, PL_BF16, PL_F64};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) conv(all, 4, &odd[i]);
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) conv(all, 2, &big[i]);
}

static void attentions(void)
{
    static const pl_dtype all[] = {PL_F32, PL_F16, PL_BF16};
    for (int t = 0; t < 3; t++) {
        pl_dtype d = all[t];
        attention(d, 1, 1, 1, 1, 1, false);
        attention(d, 2, 5, 7, 3, 4, false);
        attention(d, 1, 129, 70, 2, 40, false);
        attention(d, 1, 200, 200, 2, 33, true);
        attention(d, 1, 67, 300, 1, 256, false);
        attention(d, 2, 257, 257, 8, 16, false);
        attention(d, 2, 1024, 1024, 16, 64, false);
        attention(d, 2, 4096, 4096, 5, 64, false);
        attention(d, 2, 4096, 77, 5, 64, false);
        attention(d, 2, 1024, 226, 16, 64, false);
        attention(d, 2, 1024, 1024, 10, 64, false);
        attention(d, 2, 256, 256, 20, 64, false);
        attention(d, 2, 64, 64, 20, 64, false);
        attention(d, 1, 1500, 1500, 6, 80, false);
        attention(d, 1, 9000, 9000, 2, 64, false);
        attention(d, 2, 1024, 1024, 12, 128, false);
        attention(d, 4, 2048, 2048, 16, 128, true);
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i];
        attention(PL_BF16, s[0], s[1], s[2], s[3], s[4], s[5] != 0);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-t") == 0)
            tune = true;
        else if (strcmp(argv[i], "-k") == 0 && i + 1 < argc && n_only < 8)
            only[n_only++] = argv[++i];
        else if (strcmp(argv[i], "-x") == 0 && i + 1 < argc)
            without = argv[++i];
        else if (strcmp(argv[i], "-a") == 0 && i + 1 < argc)
            alternative = argv[++i];
        else
            return fprintf(stderr, "probe_lib [-t] [-k TEXT]... [-x KERNEL] [-a KERNEL]\n"), 2;
    }
    if (pl_probe_open() != PL_OK) return fprintf(stderr, "%s\n", pl_error_text()), 1;
    make_block();
    printf("%s, cuBLASLt %zu, cuDNN %zu%s\n", pl_cuda_props_get()->name, cublasLtGetVersion(),
           cudnnGetVersion(), pl_cuda_tf32() ? ", TF32" : "");
    printf("%-72s %-4s %-7s %8s %8s %7s %8s %7s  %s\n", "call", "", "err", "ms", "TFLOP/s", "GB/s",
           "prep ms", "work MB", "algorithm");
    matmuls();
    convs();
    attentions();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
