/* pl_cuda_groups.c - memory throughput of fused kernels on a GPU, relative to a plain copy.
 *
 *   pl_cuda_groups [MiB [WIDTH]]  measures common fused kernels on tensors of that size
 *                                 (default 256), with rows of WIDTH
 *   pl_cuda_groups --text NAME    prints the kernels of one of them; needs no GPU
 *   pl_cuda_groups --time MiB CONFIG [key=value ...]
 *                                 measures the fused kernels of a network's training program
 *                                 that move at least that much, one of each kind; without a GPU
 *                                 it only lists them
 *   pl_cuda_groups --net LABEL CONFIG [key=value ...]
 *                                 prints the fused kernels of a network whose label starts with
 *                                 LABEL; device=h200 plans without a GPU
 *
 * Bytes are what the kernel must read and write: each operand once, and all results. The largest
 * tensor is printed too, because a kernel on many small tensors has less parallelism than one on a
 * few large ones. Copy and kernels are measured in the same way, as parts of a CUDA graph.
 */
#include "base/sys.h"
#include "pass/fuse/fuse.h"
#include "pass/pass.h"
#include "plimsoll_ops.h"
#include "plimsoll_train.h"
#include "plimsoll_unstable.h"
#include "rt/device.h"
#include "rt/rt_int.h"

#include "cuda/codegen/codegen.h"
#include "ir/group/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups ----------------------------------------------------------------------------- */
typedef void (*make_fn)(pl_graph *g, pl_dtype d, int64_t elems);

static int64_t rows_of; /* 0: the default */

static int64_t width(int64_t usual)
{
    return rows_of ? rows_of : usual;
}

static pl_val input(pl_graph *g, const char *name, pl_dtype d, int64_t elems, int64_t cols)
{
    return pl_input(g, name, PL_TYPE(d, elems / width(cols), width(cols)));
}

static pl_val row(pl_graph *g, const char *name, pl_dtype d, int64_t cols)
{
    return pl_input(g, name, PL_TYPE(d, width(cols)));
}

static pl_val f32(pl_graph *g, pl_val x)
{
    return pl_cast(g, x, PL_F32);
}

static void neg(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_output(g, "y", pl_neg(g, input(g, "x", d, n, 1024)));
}

static void add(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_output(g, "z", pl_add(g, input(g, "x", d, n, 1024), input(g, "y", d, n, 1024)));
}

static void silu(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_val x = input(g, "x", d, n, 1024), y = input(g, "y", d, n, 1024);
    pl_output(g, "z", pl_mul(g, pl_silu(g, x), pl_shift(g, y, 1)));
}

static void bias_relu(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_val x = input(g, "x", d, n, 256), b = row(g, "b", d, 256);
    pl_output(g, "y", pl_relu(g, pl_add(g, x, b)));
}

static void batch_norm(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_val x = input(g, "x", d, n, 256), w = row(g, "w", PL_F32, 256), mean, var;
    pl_moments(g, x, PL_AXIS(0), true, &mean, &var);
    pl_val z = pl_mul(g, pl_sub(g, f32(g, x), mean), pl_rsqrt(g, pl_shift(g, var, 1e-5)));
    pl_output(g, "y", pl_cast(g, pl_leaky_relu(g, pl_mul(g, z, w), 0.1), d));
}

/* The gradient of a batch norm from stored moments: sums first, then dx. */
static void batch_norm_back(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_val x = f32(g, input(g, "x", d, n, 256)), dy = f32(g, input(g, "dy", d, n, 256));
    pl_val mean = row(g, "mean", PL_F32, 256), rstd = row(g, "rstd", PL_F32, 256),
           w = row(g, "w", PL_F32, 256);
    pl_val scale = pl_mul(g, w, rstd), z = pl_mul(g, pl_sub(g, x, mean), rstd);
    dy = pl_select(g, pl_gt(g, z, pl_full_like(g, z, 0)), dy, pl_scale(g, dy, 0.1));
    pl_val db = pl_sum(g, dy, PL_AXIS(0), false),
           dw = pl_sum(g, pl_mul(g, dy, z), PL_AXIS(0), false);
    double inv = (double)width(256) / (double)n;
    pl_val dx = pl_sub(g, dy, pl_add(g, pl_scale(g, db, inv), pl_mul(g, z, pl_scale(g, dw, inv))));
    pl_output(g, "dx", pl_cast(g, pl_mul(g, dx, scale), d));
    pl_output(g, "dw", dw);
    pl_output(g, "db", db);
}

static void softmax(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_output(g, "y", pl_softmax(g, input(g, "x", d, n, 1024), -1));
}

static void layer_norm(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_val x = input(g, "x", d, n, 768), mean, var;
    pl_val w = row(g, "w", PL_F32, 768), b = row(g, "b", PL_F32, 768);
    pl_moments(g, x, PL_AXIS(-1), true, &mean, &var);
    pl_val z = pl_mul(g, pl_sub(g, f32(g, x), mean), pl_rsqrt(g, pl_shift(g, var, 1e-5)));
    pl_output(g, "y", pl_cast(g, pl_add(g, pl_mul(g, z, w), b), d));
}

static void layer_norm_back(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_val x = input(g, "x", d, n, 768), dy = input(g, "dy", d, n, 768);
    pl_val w = row(g, "w", PL_F32, 768), b = row(g, "b", PL_F32, 768);
    pl_val mean, var, grad[3];
    pl_moments(g, x, PL_AXIS(-1), true, &mean, &var);
    pl_val z = pl_mul(g, pl_sub(g, f32(g, x), mean), pl_rsqrt(g, pl_shift(g, var, 1e-5)));
    z = pl_add(g, pl_mul(g, z, w), b);
    pl_grad(g, pl_sum(g, pl_mul(g, z, f32(g, dy)), PL_AXES_ALL, false), (pl_val[]){x, w, b}, 3,
            grad);
    pl_output(g, "dx", grad[0]);
    pl_output(g, "dw", grad[1]);
    pl_output(g, "db", grad[2]);
}

static void column_sum(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_output(g, "y", pl_sum(g, input(g, "x", d, n, 512), PL_AXIS(0), false));
}

static void whole_sum(pl_graph *g, pl_dtype d, int64_t n)
{
    pl_output(g, "y", pl_sum(g, pl_square(g, input(g, "x", d, n, 512)), PL_AXES_ALL, false));
}

static const struct {
    const char *name;
    make_fn make;
} cases[] = {
    {"neg", neg},
    {"add", add},
    {"silu_chain", silu},
    {"bias_relu", bias_relu},
    {"batch_norm", batch_norm},
    {"batch_norm_back", batch_norm_back},
    {"softmax", softmax},
    {"layer_norm", layer_norm},
    {"layer_norm_back", layer_norm_back},
    {"column_sum", column_sum},
    {"sum_of_squares", whole_sum},
};
enum { N_CASES = sizeof cases / sizeof *cases, REPEAT = 50 };

/* ---- timing ----------------------------------------------------------------------------- */
static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, pl_error_text());
    exit(1);
}

/* Milliseconds of one launch: REPEAT launches as one CUDA graph, as in a step, by the GPU's own
 * clock; the best of five. */
static double time_ms(const pl_device *dev, const pl_bound_unit *one)
{
    pl_bound_unit list[REPEAT];
    pl_capture_plan plan = {.units = list, .n_units = REPEAT};
    uint32_t failed = 0;
    double best = 1e30;
    void *captured = NULL;
    for (int i = 0; i < REPEAT; i++) list[i] = *one;
    if (dev->capture_new(&plan, &captured, &failed) != PL_OK) die("capture");
    for (int k = 0; k < 6; k++) {
        if (dev->capture_run(captured, 0, false) != PL_OK ||
            dev->capture_wait(captured, 0) != PL_OK)
            die("run");
        double ms = dev->capture_ms(captured, 0) / REPEAT;
        if (k > 0 && ms < best) best = ms;
    }
    dev->capture_free(captured);
    return best;
}

/* Long copies are slower in a graph: large tensors are compared with the rate of 256 MiB. */
static double copy_rate(const pl_device *dev, size_t bytes)
{
    void *a = NULL, *b = NULL;
    if (dev->alloc(bytes, &a) != PL_OK || dev->alloc(bytes, &b) != PL_OK) die("alloc");
    pl_bound_unit l = {.from = a, .to = b, .bytes = bytes};
    double ms = time_ms(dev, &l);
    dev->free(a, bytes);
    dev->free(b, bytes);
    return 2.0 * (double)bytes / ms * 1e-6;
}

/* Elements of input i that the group reads, at most all. */
static double elems_read(const pl_graph *g, const pl_unit *u, const pl_fused *f, uint32_t i)
{
    double all = (double)pl_type_elems(pl_type_of(g, u->in[i])), sum = 0;
    for (int k = 0; k < f->n_in; k++) {
        double one = 1;
        if (f->in[k].in != i) continue;
        for (int d = 0; d < f->rank; d++) one *= f->in[k].stride[d] ? (double)f->dim[d] : 1;
        sum += one;
    }
    return sum < all ? sum : all;
}

/* Bytes of an element; eight bools that are stored as bits are one byte. */
static double elem_bytes(const pl_graph *g, const pl_unit *u, uint32_t v)
{
    return u->bits && u->bits[v] ? 0.125 : (double)pl_dtype_bytes(pl_type_of(g, v)->dtype);
}

/* Bytes that a unit must move at least: the parts of its inputs that it reads, and all results. */
static double unit_bytes(const pl_graph *g, const pl_unit *u)
{
    double bytes = 0;
    pl_arena a = PL_ARENA_INIT;
    pl_fused f;
    if (pl_fused_make(g, u, &a, &f) != PL_OK) die("form");
    for (uint32_t i = 0; i < u->n_in; i++)
        bytes += elems_read(g, u, &f, i) * elem_bytes(g, u, u->in[i]);
    for (uint32_t i = 0; i < u->n_out; i++)
        bytes += (double)pl_type_elems(pl_type_of(g, u->out[i])) * elem_bytes(g, u, u->out[i]);
    pl_arena_release(&a);
    return bytes;
}

static double largest_tensor(const pl_graph *g, const pl_unit *u)
{
    double most = 0;
    for (uint32_t i = 0; i < u->n_in + u->n_out; i++) {
        double b =
            (double)pl_type_bytes(pl_type_of(g, i < u->n_in ? u->in[i] : u->out[i - u->n_in]));
        if (b > most) most = b;
    }
    return most;
}

/* A unit on the GPU: prepared first, so that many are compiled at once, then timed. */
typedef struct bench {
    pl_exec exec;
    pl_call call;
    pl_type types[2][64];
} bench;

static void bench_prepare(const pl_device *dev, const pl_graph *g, const pl_unit *u, bench *b)
{
    b->call = (pl_call){.in_type = b->types[0],
                        .out_type = b->types[1],
                        .n_in = (int32_t)u->n_in,
                        .n_out = (int32_t)u->n_out};
    for (uint32_t i = 0; i < u->n_in; i++) b->types[0][i] = *pl_type_of(g, u->in[i]);
    for (uint32_t i = 0; i < u->n_out; i++) b->types[1][i] = *pl_type_of(g, u->out[i]);
    if (dev->prepare(g, u, &b->call, false, &b->exec) != PL_OK) die("prepare");
}

static double bench_ms(const pl_device *dev, bench *b)
{
    void *in[64], *out[64], *work = NULL;
    int n_in = b->call.n_in, n_out = b->call.n_out;
    for (int i = 0; i < n_in; i++)
        if (dev->alloc(pl_type_bytes(&b->types[0][i]), &in[i]) != PL_OK) die("alloc");
    for (int i = 0; i < n_out; i++)
        if (dev->alloc(pl_type_bytes(&b->types[1][i]), &out[i]) != PL_OK) die("alloc");
    if (b->exec.work_bytes && dev->alloc(b->exec.work_bytes, &work) != PL_OK) die("alloc");
    b->call.in = (const void *const *)in;
    b->call.out = out;
    b->call.work = work;
    b->call.prep = b->exec.prep;
    pl_bound_unit l = {.exec = &b->exec, .call = b->call};
    double ms = time_ms(dev, &l);
    for (int i = 0; i < n_in; i++) dev->free(in[i], pl_type_bytes(&b->types[0][i]));
    for (int i = 0; i < n_out; i++) dev->free(out[i], pl_type_bytes(&b->types[1][i]));
    if (work) dev->free(work, b->exec.work_bytes);
    dev->discard(&b->exec);
    return ms;
}

static void time_unit(const pl_device *dev, const pl_graph *g, const pl_unit *u, const char *name,
                      pl_dtype d, double copy)
{
    static bench b;
    memset(&b, 0, sizeof b);
    bench_prepare(dev, g, u, &b);
    if (dev->ready() != PL_OK) die(name);
    double ms = bench_ms(dev, &b), bytes = unit_bytes(g, u), rate = bytes / ms * 1e-6;
    printf("%-18s %-5s %7.0f %8.1f %7.0f %5.0f %%\n", name, pl_dtype_name(d), bytes / 1048576,
           1e3 * ms, rate, 100 * rate / copy);
}

static pl_units *units_of(int at, pl_dtype d, int64_t elems, const pl_fuse_opts *o, pl_graph **g,
                          pl_store **store)
{
    pl_units *u = NULL;
    *store = pl_store_new();
    *g = pl_graph_new(*store);
    cases[at].make(*g, d, elems);
    if (pl_graph_status(*g) != PL_OK || pl_passes_run(g, &(pl_pass_opts){.open = true}) != PL_OK ||
        pl_fuse(*g, o, &u) != PL_OK)
        die(cases[at].name);
    return u;
}

static void print_text(const char *name, pl_dtype d)
{
    pl_fuse_opts o = PL_FUSE_OPTS_CUDA(NULL);
    for (int at = 0; at < N_CASES; at++) {
        pl_graph *g;
        pl_store *store;
        if (strcmp(cases[at].name, name) != 0) continue;
        pl_units *u = units_of(at, d, 1 << 26, &o, &g, &store);
        pl_arena a = PL_ARENA_INIT;
        for (uint32_t i = 0; i < u->n; i++) {
            pl_code c;
            if (u->unit[i].kind != PL_UNIT_GROUP) continue;
            if (pl_code_make(g, &u->unit[i], &a, &c) != PL_OK) die(name);
            for (uint32_t k = 0; k < c.n_kernels; k++)
                printf("//// unit %u, kernel %u: grid %u, block %u x %u\n%s", i, k,
                       c.kernel[k].grid, c.kernel[k].block_x, c.kernel[k].block_y,
                       c.kernel[k].text);
        }
        pl_arena_release(&a);
    }
}

static void print_net(const char *label, const char *config, const char *const *sets, int n)
{
    pl_run *r = NULL;
    if (pl_run_open(config, sets, n, &r) != PL_OK || pl_run_build(r) != PL_OK) die(config);
    const pl_program *p = pl_run_train_program(r);
    for (uint32_t i = 0; i < p->base_units->n; i++) {
        const pl_unit *u = &p->base_units->unit[i];
        pl_arena a = PL_ARENA_INIT;
        char text[160];
        pl_code c;
        if (u->kind != PL_UNIT_GROUP) continue;
        pl_node_label(p->base_graph, u->nodes[u->n_nodes - 1], text, sizeof text);
        if (strncmp(text, label, strlen(label)) != 0) continue;
        pl_code_tiles tiles;
        if ((pl_group_product(p->base_graph, u)
                 ? pl_code_make_product(p->base_graph, u, &a, &c, &tiles)
                 : pl_code_make(p->base_graph, u, &a, &c)) != PL_OK)
            die(text);
        for (uint32_t k = 0; k < c.n_kernels; k++)
            printf("//// unit %u %s +%u, kernel %u: grid %u, block %u x %u\n%s", i, text,
                   u->n_nodes - 1, k, c.kernel[k].grid, c.kernel[k].block_x, c.kernel[k].block_y,
                   c.kernel[k].text);
        pl_arena_release(&a);
    }
    pl_run_free(r);
}

/* ---- groups of a network ---------------------------------------------------------------- */
typedef struct kind {
    const pl_unit *u;
    char name[160];
    double bytes, tensor, ms;
    uint32_t count, kernels;
    uint64_t text; /* of all its kernels and launches */
} kind;

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return h;
}

/* Groups of one kind have the same kernels, with the same number of blocks and bytes. */
static void add_kind(kind *list, int *n, const pl_graph *g, const pl_unit *u)
{
    kind k = {.u = u,
              .bytes = unit_bytes(g, u),
              .tensor = largest_tensor(g, u),
              .count = 1,
              .text = 0xcbf29ce484222325u};
    pl_arena a = PL_ARENA_INIT;
    pl_code c;
    char label[128];
    pl_node_label(g, u->nodes[u->n_nodes - 1], label, sizeof label);
    if (pl_code_make(g, u, &a, &c) != PL_OK) die(label);
    for (uint32_t i = 0; i < c.n_kernels; i++) {
        k.kernels += c.kernel[i].grid > 256;
        k.text = mix(k.text, c.kernel[i].text, c.kernel[i].len);
        k.text = mix(k.text, &c.kernel[i].grid, sizeof c.kernel[i].grid);
    }
    pl_arena_release(&a);
    snprintf(k.name, sizeof k.name, "%s +%u", label, u->n_nodes - 1);
    for (int i = 0; i < *n; i++)
        if (list[i].text == k.text && list[i].bytes == k.bytes) {
            list[i].count++;
            return;
        }
    list[(*n)++] = k;
}

static int by_time(const void *a, const void *b)
{
    const kind *x = a, *y = b;
    double p = x->ms * x->count, q = y->ms * y->count;
    if (p == q) return x->bytes < y->bytes ? 1 : -1;
    return p < q ? 1 : -1;
}

/* Over the groups whose largest tensor has `least` bytes or more. */
static void print_sum(const char *which, const kind *list, int n, double least, double copy)
{
    double bytes = 0, ms = 0, slow = 0;
    for (int i = 0; i < n; i++) {
        const kind *k = &list[i];
        if (k->tensor < least) continue;
        bytes += k->bytes * k->count;
        ms += k->ms * k->count;
        if (k->bytes < 0.85 * copy * k->ms * 1e6) slow += k->bytes * k->count;
    }
    if (ms > 0)
        printf(
            "%s: %.2f GiB in %.3f ms, %.0f GB/s, %.0f%% of copy; %.0f%% of the bytes in groups under "
            "85%%\n",
            which, bytes / 1073741824, ms, bytes / ms * 1e-6, 100 * bytes / ms * 1e-6 / copy,
            100 * slow / bytes);
}

static void time_net(double mib, const char *config, const char *const *sets, int n_sets)
{
    pl_run *r = NULL;
    const pl_device *dev = NULL;
    if (pl_run_open(config, sets, n_sets, &r) != PL_OK || pl_run_build(r) != PL_OK) die(config);
    double copy = 0;
    if (pl_device_find("cuda", &dev) == PL_OK) copy = copy_rate(dev, (size_t)256 << 20);
    const pl_program *p = pl_run_train_program(r);
    const pl_graph *g = p->base_graph;
    kind *list = calloc(p->base_units->n + 1, sizeof *list);
    int n = 0;
    if (!list) die("memory");
    for (uint32_t i = 0; i < p->base_units->n; i++) {
        const pl_unit *u = &p->base_units->unit[i];
        if (u->kind == PL_UNIT_GROUP && !pl_group_product(g, u) &&
            unit_bytes(g, u) >= mib * 1048576)
            add_kind(list, &n, g, u);
    }
    bench *b = calloc((size_t)n + 1, sizeof *b);
    if (!b) die("memory");
    for (int i = 0; copy > 0 && i < n; i++) bench_prepare(dev, g, list[i].u, &b[i]);
    if (copy > 0 && dev->ready() != PL_OK) die(config);
    for (int i = 0; copy > 0 && i < n; i++) list[i].ms = bench_ms(dev, &b[i]);
    qsort(list, (size_t)n, sizeof *list, by_time);
    printf("%s: copy of 256 MiB at %.0f GB/s\n%9s %7s %4s %8s %7s %6s %7s  group (walks)\n", config,
           copy, "MiB", "tensor", "n", "us", "GB/s", "copy", "sum ms");
    for (int i = 0; i < n; i++) {
        const kind *k = &list[i];
        double rate = k->ms > 0 ? k->bytes / k->ms * 1e-6 : 0;
        printf("%9.0f %7.0f %4u %8.1f %7.0f %5.0f%% %7.3f  %s (%u)\n", k->bytes / 1048576,
               k->tensor / 1048576, k->count, 1e3 * k->ms, rate, copy > 0 ? 100 * rate / copy : 0,
               k->ms * k->count, k->name, k->kernels);
    }
    print_sum("all", list, n, 0, copy);
    print_sum("with a tensor of so much", list, n, mib * 1048576, copy);
    free(b);
    free(list);
    pl_run_free(r);
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--time") == 0) {
        time_net(atof(argv[2]), argv[3], (const char *const *)argv + 4, argc - 4);
        return 0;
    }
    if (argc > 3 && strcmp(argv[1], "--net") == 0) {
        print_net(argv[2], argv[3], (const char *const *)argv + 4, argc - 4);
        return 0;
    }
    if (argc > 2 && strcmp(argv[1], "--text") == 0) {
        print_text(argv[2], argc > 3 && strcmp(argv[3], "f16") == 0 ? PL_F16 : PL_F32);
        return 0;
    }
    int64_t mib = argc > 1 ? atoll(argv[1]) : 256;
    rows_of = argc > 2 ? atoll(argv[2]) : 0;
    if (mib < 1 || rows_of < 0 || rows_of > PL_CG_MAX_ROW) {
        fprintf(stderr, "pl_cuda_groups: %s MiB, rows of %s: 1 MiB or more, rows of 1 to %d\n",
                argv[1], argc > 2 ? argv[2] : "the usual", PL_CG_MAX_ROW);
        return 2;
    }
    const pl_device *dev;
    if (pl_device_find("cuda", &dev) != PL_OK) die("cuda");
    double copy = copy_rate(dev, (size_t)mib << 20);
    printf("copy of %lld MiB: %.0f GB/s\n%-18s %-5s %7s %8s %7s %7s\n", (long long)mib, copy,
           "group", "", "MiB", "us", "GB/s", "of copy");
    for (int t = 0; t < 2; t++)
        for (int at = 0; at < N_CASES; at++) {
            pl_dtype d = t ? PL_F16 : PL_F32;
            pl_graph *g;
            pl_store *store;
            pl_units *u =
                units_of(at, d, (mib << 20) / (int64_t)pl_dtype_bytes(d), dev->fuse, &g, &store);
            for (uint32_t i = 0; i < u->n; i++)
                if (u->unit[i].kind == PL_UNIT_GROUP)
                    time_unit(dev, g, &u->unit[i], cases[at].name, d, copy);
            pl_units_free(u);
            pl_graph_free(g);
            pl_store_free(store);
        }
    return 0;
}
