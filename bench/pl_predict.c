/* pl_predict.c - compares predicted and measured step times.
 *
 *     pl_predict [--calibrated] NAME [key=value ...]
 *
 * NAME is a configuration as for `plimsoll plan`, or one of the networks of tests/workloads: lgt,
 * wandistill, stablesr, fluxflow. It makes two plans: the keep-all plan, and a plan with recompute,
 * whose arena is 30 % of the way from the minimum to the keep-all arena. It measures the kernels of
 * each (with --calibrated it uses the existing table), plans again with the measurements and runs.
 * One line per plan: predicted time, median and lower quartile of the steps, processor time per
 * step, predicted / median. Inputs are made up. Run it on a quiet machine; with PL_THREADS=1 the
 * processor time of a step does not depend on other programs.
 */
#include "lib/inputs.h"
#include "lib/step.h"
#include "plan/core/plan.h"
#include "rt/calibrate.h"
#include "rt/process_budget.h"
#include "tests/workloads/workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 400 };
static double wall[MOST], cpu[MOST];

static double clock_ms(clockid_t which)
{
    struct timespec ts;
    clock_gettime(which, &ts);
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
    fprintf(stderr, "pl_predict: %s\n", pl_error_text());
    exit(pl_status_exit_code(rc));
}

static void print_line(const char *name, const char *plan, const pl_plan_info *p, double predicted,
                       int n)
{
    qsort(wall, (size_t)n, sizeof *wall, ascending);
    qsort(cpu, (size_t)n, sizeof *cpu, ascending);
    double median = wall[n / 2];
    printf(
        "%-24s %-9s predicted %9.3f ms (%3.0f %% measured, %4.1f %% again)  median %9.3f  quartile "
        "%9.3f  processor %9.3f  ratio %.3f\n",
        name, plan, predicted, 100 * p->time_share[PL_TIME_MEASURED], 100 * p->recompute_ratio,
        median, wall[(n - 1) / 4], cpu[n / 2], predicted / median);
    fflush(stdout);
}

/* ---- timing ----------------------------------------------------------------------------- */
/* The measured thing: a session's only program, or steps of a run. */
typedef struct timed {
    pl_session *session;
    pl_program *program;
    pl_run *run;      /* NULL: the program */
    double wall, cpu; /* of the step, without making its inputs */
} timed;

static pl_status run_one(void *ctx, pl_program *p)
{
    timed *t = ctx;
    fill_inputs(t->session, p);
    t->wall -= clock_ms(CLOCK_MONOTONIC), t->cpu -= clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    pl_status rc = pl_session_run(t->session, p);
    if (rc == PL_OK) rc = pl_session_wait(t->session);
    t->wall += clock_ms(CLOCK_MONOTONIC), t->cpu += clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    return rc;
}

static int time_runs(timed t, pl_measure *m)
{
    double began = clock_ms(CLOCK_MONOTONIC);
    int n = -2;
    while (n < MOST && (n < 7 || clock_ms(CLOCK_MONOTONIC) - began < 5000)) {
        t.wall = t.cpu = 0;
        check(t.run ? each_run(t.run, n + 2, run_one, &t) : run_one(&t, t.program));
        if (m) pl_measure_take(m);
        if (n >= 0) {
            wall[n] = t.wall;
            cpu[n] = t.cpu;
        }
        n++;
    }
    return n;
}

/* ---- recipes ---------------------------------------------------------------------------- */
static pl_run *open_run(int argc, char **argv, uint64_t arena)
{
    pl_run *run;
    pl_compile_opts o = PL_COMPILE_INIT;
    check(pl_run_open(argv[0], (const char *const *)argv + 1, argc - 1, &run));
    o.arena_budget = arena;
    pl_run_set_compile(run, &o);
    check(pl_run_build(run));
    return run;
}

static void compare_run(int argc, char **argv, const char *plan, uint64_t arena, bool measured)
{
    int steps, units;
    double waited;
    if (measured) {
        pl_run *run = open_run(argc, argv, arena);
        check(pl_run_start(run));
        check(pl_run_measure(run, 5, &steps, &units, &waited));
        pl_run_free(run);
    }
    pl_run *run = open_run(argc, argv, arena);
    check(pl_run_start(run));
    int n = time_runs((timed){.session = pl_run_session(run), .run = run}, NULL);
    print_line(argv[0], plan, pl_program_plan(pl_run_train_program(run)), pl_run_predicted_ms(run),
               n);
    pl_run_free(run);
}

static void compare_recipe(int argc, char **argv, bool measured)
{
    pl_run *run = open_run(argc, argv, 0);
    check(pl_run_find_minimum(run));
    const pl_plan_info *p = pl_program_plan(pl_run_train_program(run));
    uint64_t arena = p->minimum_bytes + (p->keep_all_bytes - p->minimum_bytes) / 10 * 3;
    pl_run_free(run);
    compare_run(argc, argv, "keep all", 0, measured);
    compare_run(argc, argv, "budget", arena, measured);
}

/* ---- networks of the tests -------------------------------------------------------------- */
typedef struct network {
    const char *name;
    void (*build)(pl_nn *m, const void *config);
    const void *config;
} network;

/* Between the tests' sizes, which take no time, and the full ones, which take minutes. */
static lgt_config lgt_mid;
static sr_config sr_mid;

static pl_program *compile_network(const network *w, pl_store *store, uint64_t budget)
{
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_program *p;
    o.arena_budget = budget;
    w->build(m, w->config);
    check(pl_nn_finish(m));
    pl_nn_free(m);
    check(pl_compile(g, &o, &p));
    return p;
}

static void compare_plan(const network *w, const char *plan, uint64_t budget, bool measured)
{
    for (int pass = measured ? 0 : 1; pass < 2; pass++) {
        pl_store *store = pl_store_new();
        pl_program *p = compile_network(w, store, budget);
        pl_session *s;
        pl_measure *m = NULL;
        check(pl_session_new(store, 1, &p, &s));
        pl_session_init(s, 1);
        if (pass == 0) check(pl_measure_new(s, MOST, &m));
        int n = time_runs((timed){.session = s, .program = p}, m);
        if (pass == 0) check(pl_measure_save(m, NULL));
        const pl_plan_info *info = pl_program_plan(p);
        if (pass == 1) print_line(w->name, plan, info, info->predicted_step_ms, n);
        pl_measure_free(m);
        pl_session_free(s);
        pl_program_free(p);
        pl_store_free(store);
    }
}

/* Three tenths of the way from the smallest arena to the keep-all arena. */
static uint64_t tight_arena(const network *w)
{
    pl_store *store = pl_store_new();
    pl_program *p = compile_network(w, store, 0);
    uint64_t least, most = pl_program_plan(p)->keep_all_bytes;
    check(pl_program_minimum(p, 0, &least));
    pl_program_free(p);
    pl_store_free(store);
    return least + (most - least) / 10 * 3;
}

static bool compare_network(const char *name, bool measured)
{
    lgt_mid = lgt_tiny;
    lgt_mid.batch = 2, lgt_mid.latent = (lgt_shape){16, 16}, lgt_mid.base = 32;
    sr_mid = sr_tiny;
    sr_mid.image = 2 * sr_tiny.image, sr_mid.latent = 2 * sr_tiny.latent;
    const network all[] = {{"lgt", lgt_micro, &lgt_mid},
                           {"wandistill", wan_step, &wan_tiny},
                           {"stablesr", sr_step, &sr_mid},
                           {"fluxflow", flux_generator, &flux_tiny_gan}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) != 0) continue;
        compare_plan(&all[i], "keep all", 0, measured);
        compare_plan(&all[i], "budget", tight_arena(&all[i]), measured);
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    bool measured = true;
    if (argc > 1 && strcmp(argv[1], "--calibrated") == 0) {
        measured = false;
        argc--, argv++;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: pl_predict [--calibrated] NAME [key=value ...]\n");
        return 2;
    }
    if (!compare_network(argv[1], measured)) compare_recipe(argc - 1, argv + 1, measured);
    return 0;
}
