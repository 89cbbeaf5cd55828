/* pl_bench.c - times one op at one shape through the whole engine: graph, plan, session.
 *
 *     pl_bench conv N H W I O K STRIDE [GROUPS]     3x3 etc., padding K/2
 *     pl_bench matmul M K N                         x [M,K] times w [N,K] transposed
 *     pl_bench attention B N H D
 *     pl_bench groupnorm N H W C GROUPS
 *     pl_bench adamw ELEMENTS
 *     pl_bench chain ELEMENTS                       y = silu(x * x), limited by memory bandwidth
 *
 * PL_BENCH_DEVICE=cuda runs it on a GPU, measured by the clock of the GPU; PL_BENCH_DTYPE=bf16 or
 * f16.
 *
 * Prints one JSON line: milliseconds of forward and forward+backward (median of the runs in half a
 * second), or of the update for adamw. Operands are state, so filling inputs takes no time.
 */
#include "plimsoll_nn.h"
#include "plimsoll_optim.h"
#include "plimsoll_unstable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return 1e3 * (double)ts.tv_sec + 1e-6 * (double)ts.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(pl_status rc)
{
    if (rc == PL_OK) return;
    fprintf(stderr, "%s\n", pl_error_text());
    exit(1);
}

/* Where the time goes, on stderr. */
static void profile(pl_session *s, pl_program *p)
{
    char *text;
    check(pl_session_profile(s, true));
    for (int i = 0; i < 20; i++) check(pl_session_run(s, p));
    check(pl_session_profile_text(s, p, 12, &text));
    fputs(text, stderr);
    pl_text_free(text);
}

static pl_dtype dtype(void)
{
    pl_dtype d = PL_F32;
    const char *name = getenv("PL_BENCH_DTYPE");
    if (name && !pl_dtype_parse(name, &d)) exit(2);
    return d;
}

static double time_run(pl_session *s, pl_program *p)
{
    double begin = now_ms();
    check(pl_session_run(s, p));
    check(pl_session_wait(s));
    double wall = now_ms() - begin, card = pl_session_device_ms(s, p, 0);
    return card > 0 ? card : wall;
}

/* Takes the graph, runs it, returns the median time of a run. */
static double time_graph(pl_store *store, pl_graph *g)
{
    enum { MAX = 1000 };
    static double t[MAX];
    pl_compile_opts o = PL_COMPILE_INIT;
    if (getenv("PL_BENCH_DEVICE")) o.device = getenv("PL_BENCH_DEVICE");
    pl_program *p;
    pl_session *s;
    check(pl_compile(g, &o, &p));
    check(pl_session_new(store, 1, &p, &s));
    check(pl_session_init(s, 1));
    for (int i = 0; i < 3; i++) time_run(s, p);
    double began = now_ms();
    int n = 0;
    while (n < MAX && (n < 5 || now_ms() - began < 500)) t[n++] = time_run(s, p);
    if (getenv("PL_BENCH_PROFILE")) profile(s, p);
    qsort(t, (size_t)n, sizeof t[0], ascending);
    pl_session_free(s);
    pl_program_free(p);
    return t[n / 2];
}

static pl_val operand(pl_nn *m, const char *name, pl_type t)
{
    return pl_nn_param(m, name, t.rank, t.dim, pl_nn_normal(0, 1));
}

static long long arg[8];

static pl_val conv(pl_nn *m)
{
    pl_val x = operand(m, "x", PL_TYPE(dtype(), arg[0], arg[1], arg[2], arg[3]));
    return pl_nn_conv2d(m, x, "conv", arg[4],
                        (pl_nn_conv){.kernel = (int)arg[5],
                                     .pad = (int)arg[5] / 2,
                                     .stride = (int)arg[6],
                                     .groups = arg[7] ? (int)arg[7] : 1,
                                     .no_bias = true});
}

static pl_val matmul(pl_nn *m)
{
    pl_val x = operand(m, "x", PL_TYPE(dtype(), arg[0], arg[1]));
    return pl_nn_linear(m, x, "linear", arg[2], (pl_nn_lin){.no_bias = true});
}

static pl_val attention(pl_nn *m)
{
    pl_type t = PL_TYPE(dtype(), arg[0], arg[1], arg[2], arg[3]);
    return pl_attention(m->g, operand(m, "q", t), operand(m, "k", t), operand(m, "v", t), 0, false);
}

static pl_val groupnorm(pl_nn *m)
{
    pl_val x = operand(m, "x", PL_TYPE(dtype(), arg[0], arg[1], arg[2], arg[3]));
    return pl_nn_group_norm(m, x, "norm", arg[4], (pl_nn_norm){0});
}

static pl_val chain(pl_nn *m)
{
    pl_val x = operand(m, "x", PL_TYPE(dtype(), arg[0]));
    return pl_silu(m->g, pl_mul(m->g, x, x));
}

/* Forward alone, or with gradients for every operand. */
static double time_op(pl_val (*build)(pl_nn *m), bool backward)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_val y = build(m);
    if (backward) {
        pl_val dy = operand(m, "dy", pl_val_type(g, y));
        int n = pl_store_count(store), k = 0;
        pl_val x[16], dx[16];
        for (int i = 0; i < n && k < 16; i++)
            if (strcmp(pl_store_slot(store, i)->name, "dy") != 0) x[k++] = pl_nn_read(m, i);
        pl_val loss = pl_sum(g, pl_mul(g, y, dy), PL_AXES_ALL, false);
        pl_grad(g, loss, x, k, dx);
        for (int i = 0; i < k; i++) pl_output(g, pl_nn_name(m, "d%d", i), dx[i]);
    }
    pl_output(g, "y", y);
    check(pl_nn_finish(m));
    pl_nn_free(m);
    double ms = time_graph(store, g);
    pl_store_free(store);
    return ms;
}

static double time_adamw(void)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_val w = operand(m, "w", PL_TYPE(PL_F32, arg[0])), d;
    int slot = pl_nn_buffer(m, "grad", PL_TYPE(PL_F32, arg[0]), (pl_init){PL_INIT_NORMAL, 0, 1});
    d = pl_nn_read(m, slot);
    int w_slot = pl_store_find(store, "w");
    pl_grads grads = {1, &w_slot, &w, &d};
    pl_optim o = PL_OPTIM_INIT;
    pl_optim_update(m, &grads, &o, NULL);
    check(pl_nn_finish(m));
    pl_nn_free(m);
    double ms = time_graph(store, g);
    pl_store_free(store);
    return ms;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        pl_val (*build)(pl_nn *m);
    } ops[] = {{"conv", conv},
               {"matmul", matmul},
               {"attention", attention},
               {"groupnorm", groupnorm},
               {"chain", chain}};
    for (int i = 2; i < argc && i < 10; i++) arg[i - 2] = strtoll(argv[i], NULL, 10);
    if (argc > 2 && strcmp(argv[1], "adamw") == 0) {
        printf("{\"update_ms\": %.4f}\n", time_adamw());
        return 0;
    }
    for (size_t i = 0; argc > 2 && i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(ops[i].name, argv[1]) != 0) continue;
        double f = time_op(ops[i].build, false), b = time_op(ops[i].build, true);
        printf("{\"forward_ms\": %.4f, \"both_ms\": %.4f}\n", f, b);
        return 0;
    }
    fprintf(stderr, "usage: pl_bench conv|matmul|attention|groupnorm|chain|adamw SIZES...\n");
    return 2;
}
