/* pl_costs.c - predicted and measured time of every kind of kernel: the data for a cost model.
 *
 *     pl_costs CONFIG [STEPS] [key=value ...]
 *
 * Prints one line "total" (predicted and measured time of the whole step, by the clock of the
 * device; sum of the kernels measured one by one; their number), then one line for each kind of
 * kernel, separated by tabs:
 *
 *     program times kind kernel dtype out flops bytes work m n k launches predicted_us
 *     measured_us label
 *
 * `times` is the mean number of runs of the program per step. Kernels of one kind are equal in all
 * columns except the label, which is the label of the first; the last two times are means per
 * kernel. It measures STEPS steps (default 3) whole, then as many kernel by kernel. With a profile
 * (device=h200) nothing runs and measured times are 0. Inputs are generated.
 */
#include "lib/inputs.h"
#include "lib/step.h"
#include "rt/calibrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sort_of {
    const char *kind, *kernel, *label, *program;
    pl_dtype dtype, out;
    pl_cost cost;
    double predicted, ns;
    int n;
} sort_of;

static pl_status run_one(pl_session *s, const pl_program *p, double *ms)
{
    if (!p) return PL_OK;
    fill_inputs(s, p);
    pl_status rc = pl_session_run(s, runnable(p));
    if (rc == PL_OK) rc = pl_session_wait(s);
    if (rc == PL_OK) *ms += pl_session_device_ms(s, runnable(p), 0);
    return rc;
}

/* One of each program of a step; *ms is the mean time of a step, because not every program runs
 * in every step. */
static pl_status run_step(pl_run *r, double *ms)
{
    pl_status rc = PL_OK;
    *ms = 0;
    for (int i = 0; rc == PL_OK && i < pl_run_step_program_count(r); i++) {
        pl_run_step_program t = pl_run_step_program_at(r, i);
        double once = 0;
        for (int64_t k = 0; rc == PL_OK && k < pl_run_split_get(r).accumulate; k++)
            rc = run_one(pl_run_session(r), t.run, &once);
        if (rc == PL_OK) rc = run_one(pl_run_session(r), t.apply, &once);
        *ms += t.share * once;
    }
    return rc;
}

static bool alike(const sort_of *a, const sort_of *b)
{
    return strcmp(a->kind, b->kind) == 0 && strcmp(a->kernel, b->kernel) == 0 &&
           a->dtype == b->dtype && a->out == b->out &&
           memcmp(&a->cost, &b->cost, sizeof a->cost) == 0;
}

static sort_of sort_of_step(const pl_program *p, const char *program, uint32_t i)
{
    uint32_t unit = p->plan->order[i], base = pl_base_unit(p, unit);
    const pl_unit *u = &p->units->unit[unit];
    const pl_call *call = &p->call[base];
    sort_of s;
    memset(&s, 0, sizeof s); /* compared whole */
    s.kind = u->kind == PL_UNIT_GROUP  ? "group"
             : u->kind == PL_UNIT_VIEW ? "view"
                                       : pl_node_get(p->g, u->nodes[0])->op->name;
    s.kernel = p->exec[base].kernel ? p->exec[base].kernel->name : "none";
    s.label = p->position_label[i];
    s.program = program;
    s.dtype = call->n_in ? call->in_type[0].dtype : call->out_type[0].dtype;
    s.out = call->out_type[0].dtype;
    s.cost.flops = p->cost[base].flops, s.cost.bytes = p->cost[base].bytes,
    s.cost.work = p->cost[base].work;
    s.cost.m = p->cost[base].m, s.cost.n = p->cost[base].n, s.cost.k = p->cost[base].k;
    s.predicted = p->cost_ns[base];
    return s;
}

/* `times`: how often it runs in a step. */
static pl_status print_program(pl_run *r, const pl_program *p, const char *program, double times)
{
    if (!p) return PL_OK;
    const pl_bound_program *b = pl_run_session(r) ? pl_session_find(pl_run_session(r), p) : NULL;
    double runs = b && b->profile.runs ? (double)b->profile.runs : 1;
    sort_of *all = calloc(p->plan->n_order + 1, sizeof *all);
    uint32_t n = 0;
    if (!all) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->plan->n_order; i++) {
        sort_of s = sort_of_step(p, program, i);
        uint32_t k = 0;
        while (k < n && !alike(&all[k], &s)) k++;
        if (k == n) all[n++] = s;
        all[k].n++;
        if (b && b->profile.ns) all[k].ns += (double)b->profile.ns[i] / runs;
    }
    for (uint32_t k = 0; k < n; k++)
        printf("%s\t%g\t%s\t%s\t%s\t%s\t%.0f\t%.0f\t%d\t%.0f\t%.0f\t%.0f\t%d\t%.3f\t%.3f\t%s\n",
               all[k].program, times, all[k].kind, all[k].kernel, pl_dtype_name(all[k].dtype),
               pl_dtype_name(all[k].out), all[k].cost.flops, all[k].cost.bytes,
               (int)all[k].cost.work, all[k].cost.m, all[k].cost.n, all[k].cost.k, all[k].n,
               all[k].predicted / 1e3, all[k].ns / 1e3 / all[k].n, all[k].label);
    free(all);
    return PL_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sum_launches(const pl_session *s, const pl_program *p)
{
    const pl_bound_program *b = p ? pl_session_find(s, p) : NULL;
    double sum = 0;
    for (uint32_t i = 0; b && b->profile.runs && i < b->n_units; i++)
        sum += (double)b->profile.ns[i] / 1e6 / (double)b->profile.runs;
    return sum;
}

static pl_status measure(pl_run *r, int steps, double *whole, double *sum)
{
    double ms[64], ignored, parts = (double)pl_run_split_get(r).accumulate;
    pl_status rc = pl_run_start(r);
    for (int i = 0; rc == PL_OK && i < 2; i++) rc = run_step(r, &ignored);
    for (int i = 0; rc == PL_OK && i < steps; i++) rc = run_step(r, &ms[i]);
    if (rc == PL_OK) rc = pl_session_profile(pl_run_session(r), true);
    for (int i = 0; rc == PL_OK && i < steps; i++) rc = run_step(r, &ignored);
    if (rc != PL_OK) return rc;
    qsort(ms, (size_t)steps, sizeof *ms, ascending);
    *whole = ms[steps / 2];
    *sum = 0;
    for (int i = 0; i < pl_run_step_program_count(r); i++) {
        pl_run_step_program t = pl_run_step_program_at(r, i);
        *sum += t.share * (parts * sum_launches(pl_run_session(r), t.run) +
                           sum_launches(pl_run_session(r), t.apply));
    }
    return PL_OK;
}

static double count_launches(pl_run *r)
{
    double n = 0, parts = (double)pl_run_split_get(r).accumulate;
    for (int i = 0; i < pl_run_step_program_count(r); i++) {
        pl_run_step_program t = pl_run_step_program_at(r, i);
        n += t.share * (parts * t.run->plan->n_order + (t.apply ? t.apply->plan->n_order : 0));
    }
    return n;
}

static pl_status costs(pl_run *r, const char *config, int steps)
{
    double whole = 0, sum = 0;
    pl_status rc = pl_run_build(r);
    if (rc == PL_OK && !pl_run_train_program(r)->dev->plans_only)
        rc = measure(r, steps, &whole, &sum);
    if (rc != PL_OK) return rc;
    double parts = (double)pl_run_split_get(r).accumulate;
    printf(
        "total\t%s\tpredicted_ms\t%.3f\twhole_ms\t%.3f\tlaunches_ms\t%.3f\tparts\t%.0f\tlaunches\t%.0f\tarena\t%llu\n",
        config, pl_run_predicted_ms(r), whole, sum, parts, count_launches(r),
        (unsigned long long)pl_run_memory_get(r).arena);
    for (int i = 0; rc == PL_OK && i < pl_run_step_program_count(r); i++) {
        pl_run_step_program t = pl_run_step_program_at(r, i);
        rc = print_program(r, t.run, t.name, parts * t.share);
        if (rc == PL_OK) rc = print_program(r, t.apply, "apply", t.share);
    }
    return rc;
}

int main(int argc, char **argv)
{
    int first = 2, steps = 3;
    if (argc < 2) {
        fprintf(stderr, "usage: pl_costs CONFIG [STEPS] [key=value ...]\n");
        return 2;
    }
    if (argc > 2 && !strchr(argv[2], '=')) {
        steps = atoi(argv[2]);
        steps = steps < 1 ? 1 : steps > 64 ? 64 : steps;
        first = 3;
    }
    pl_run *r = NULL;
    int n = argc > first ? argc - first : 0;
    pl_status rc = pl_run_open(argv[1], (const char *const *)argv + first, n, &r);
    if (rc == PL_OK) rc = costs(r, argv[1], steps);
    if (rc != PL_OK) fprintf(stderr, "pl_costs: %s\n", pl_error_text());
    pl_run_free(r);
    return pl_status_exit_code(rc);
}
