/* pl_cuda_products.c - the matrix products and convolutions of a network, one by one on a GPU.
 *
 *   pl_cuda_products [-l] [-k OP] [-b SHARE] [-t SECONDS] CONFIG [key=value ...]
 *
 * Prints one line for every distinct product of the training program: how often the program has it,
 * its time with the heuristic choice (compile.mode default), the shortest time of all choices,
 * including the library kernels that max-autotune measures, and the speed of the default relative
 * to that. With following operations (ops/net/tail.h) also the time of the library kernel with
 * these operations in a separate kernel. The last line is the sum over the program.
 *
 * -l only lists, which a profile (device=h200) can do without a GPU; -k takes only ops whose name
 * starts with OP; -b prints only lines below this share; -t starts no line after that many seconds,
 * and the sum says how many lines it contains.
 *
 * Operands are random numbers. A time is the time of one call among many equal calls, replayed as
 * one CUDA graph, as in a step, so it excludes the host time to enqueue the call, which is
 * longer than many products. The shortest of several replays counts.
 */
#include "ir/text.h"
#include "lib/time_unit.h"
#include "plimsoll_train.h"
#include "plimsoll_unstable.h"
#include "rt/device.h"
#include "rt/rt_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 512 };

typedef struct line {
    char text[320];
    uint32_t unit;
    int count;
} line;

static bool is_product(const pl_op *op)
{
    static const char *const names[] = {"matmul", "conv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(op->name, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static bool has_tail(const char *name)
{
    return strstr(name, "_tail") || strstr(name, "_slope");
}

/* ---- the list ---------------------------------------------------------------------------- */
static void describe(const pl_graph *g, const pl_unit *u, char *out, size_t cap)
{
    const pl_node_rec *r = pl_node_get(g, u->nodes[0]);
    pl_str attr = {0};
    char type[96];
    size_t n = (size_t)snprintf(out, cap, "%s (", r->op->name);
    for (uint32_t i = 0; i < r->n_in && n < cap; i++)
        n += (size_t)snprintf(
            out + n, cap - n, "%s%s", i ? ", " : "",
            pl_type_text(pl_type_of(g, pl_node_in(g, u->nodes[0])[i]), type, sizeof type));
    pl_attr_print(r->op, r->attr, g->store, &attr);
    if (n < cap) snprintf(out + n, cap - n, ") %s", attr.text ? attr.text : "");
    pl_str_release(&attr);
}

static int list_calls(const pl_program *p, const char *only, line *list)
{
    int n = 0;
    for (uint32_t u = 0; u < p->base_units->n; u++) {
        const pl_unit *unit = &p->base_units->unit[u];
        const pl_op *op = pl_node_get(p->base_graph, unit->nodes[0])->op;
        if (unit->kind != PL_UNIT_KERNEL || !is_product(op)) continue;
        if (only && strncmp(op->name, only, strlen(only)) != 0) continue;
        line one = {.unit = u, .count = 1};
        int at = 0;
        describe(p->base_graph, unit, one.text, sizeof one.text);
        while (at < n && strcmp(list[at].text, one.text) != 0) at++;
        if (at < n)
            list[at].count++;
        else if (n < MAX_LINES)
            list[n++] = one;
    }
    return n;
}

/* ---- times ------------------------------------------------------------------------------- */
typedef struct totals {
    double normal, best, behind;
    int lines;
} totals;

typedef struct options {
    const char *only;
    bool lists;
    double below, seconds; /* 0: all */
} options;

static void print_line(const line *l, double ms, double best, double behind, bool tail,
                       const char *name)
{
    printf("%4d x %8.4f %8.4f %5.2f", l->count, ms, best, best / ms);
    if (tail)
        printf(" %8.4f %5.2f", behind, behind / ms);
    else
        printf(" %8s %5s", "", "");
    printf("  %-10s %s\n", name, l->text);
    fflush(stdout);
}

/* The plainest kernel is the library's, unless it is the default. */
static void time_line(const pl_program *p, const line *l, const options *o, totals *sum)
{
    const bool plain = p->opts.fp32 == PL_FP32_PLAIN, tf32 = p->opts.precision == PL_PRECISION_TF32;
    const pl_device_mode normal = {tf32, false, plain}, timed = {tf32, true, plain};
    const char *name, *other;
    bool tail =
        has_tail(pl_node_get(p->base_graph, p->base_units->unit[l->unit].nodes[0])->op->name);
    p->dev->set_mode(&normal);
    double ms = time_call(p, l->unit, false, NULL, &name);
    double behind = tail ? time_call(p, l->unit, true, NULL, &other) : ms;
    p->dev->set_mode(&timed);
    double best = fmin(ms, time_call(p, l->unit, false, NULL, &other));
    best = fmin(best, time_call(p, l->unit, true, other, &other));
    p->dev->set_mode(&normal);
    if (o->below <= 0 || best < o->below * ms) print_line(l, ms, best, behind, tail, name);
    sum->normal += l->count * ms;
    sum->best += l->count * best;
    sum->behind += l->count * behind;
    sum->lines++;
}

static void time_all(const pl_program *p, const line *list, int n, const options *o)
{
    totals sum = {0};
    uint64_t begun = pl_sys_now_ns();
    printf("%4s   %8s %8s %5s %8s %5s  kernel\n", "", "ms", "best", "part", "behind", "gain");
    for (int i = 0; i < n; i++) {
        if (o->seconds > 0 && (double)(pl_sys_now_ns() - begun) * 1e-9 > o->seconds) break;
        time_line(p, &list[i], o, &sum);
    }
    printf("all    %8.3f %8.3f %5.2f %8.3f %5.2f  %d of %d lines\n", sum.normal, sum.best,
           sum.best / sum.normal, sum.behind, sum.behind / sum.normal, sum.lines, n);
}

static int read_options(int argc, char **argv, options *o)
{
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "-l") == 0) o->lists = true;
        if (strcmp(argv[at], "-k") == 0 && at + 1 < argc)
            o->only = argv[++at];
        else if (strcmp(argv[at], "-b") == 0 && at + 1 < argc)
            o->below = atof(argv[++at]);
        else if (strcmp(argv[at], "-t") == 0 && at + 1 < argc)
            o->seconds = atof(argv[++at]);
    }
    return at;
}

int main(int argc, char **argv)
{
    static line list[MAX_LINES];
    options o = {0};
    int at = read_options(argc, argv, &o);
    if (at >= argc) {
        fprintf(
            stderr,
            "usage: pl_cuda_products [-l] [-k OP] [-b PART] [-t SECONDS] CONFIG [key=value ...]\n");
        return 2;
    }
    pl_run *r = NULL;
    pl_status rc = pl_run_open(argv[at], (const char *const *)argv + at + 1, argc - at - 1, &r);
    if (rc == PL_OK) rc = pl_run_build(r);
    if (rc != PL_OK) die(argv[at]);
    const pl_program *p = pl_run_train_program(r);
    int n = list_calls(p, o.only, list);
    for (int i = 0; i < n && o.lists; i++) printf("%4d x %s\n", list[i].count, list[i].text);
    if (!o.lists) time_all(p, list, n, &o);
    pl_run_free(r);
    return 0;
}
