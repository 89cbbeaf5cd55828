/* test_recompute_cbc.c - the oracle of the recompute tests against an integer program solved by CBC
 * (coinor-cbc), so that two independent definitions of "cheapest" must agree.
 *
 * The program is indexed by time. x(t,i): step t computes unit i, at most one unit per step, idle
 * steps last; unit i is first computed after unit i-1. r(t,b): buffer b is alive during step t; it
 * was alive during t-1 or step t writes it. Inputs are alive during the step before and the step
 * itself, outputs during the step. Buffers alive and the workspace stay within the budget. r need
 * not be whole: with whole x a fraction of a buffer gains nothing. */
#include "tests/lib/test.h"
#include "tests/plan/recompute_made.h"
#include "tests/plan/recompute_oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_objective(FILE *f, const pl_recompute_problem *p, uint32_t steps)
{
    fprintf(f, "minimize\n cost:");
    for (uint32_t t = 0; t < steps; t++)
        for (uint32_t i = 0; i < p->n_units && i <= t; i++)
            fprintf(f, " + %g x%u_%u\n", p->cost[i], t, i);
    fprintf(f, "subject to\n");
}

static void write_order(FILE *f, const pl_recompute_problem *p, uint32_t steps)
{
    for (uint32_t t = 0; t < steps; t++) {
        for (uint32_t i = 0; i < p->n_units && i <= t; i++) fprintf(f, " + x%u_%u", t, i);
        fprintf(f, " <= 1\n");
        for (uint32_t i = 0; t + 1 < steps && i < p->n_units && i <= t + 1; i++)
            fprintf(f, "%s + x%u_%u", i ? "" : " ", t + 1, i);
        for (uint32_t i = 0; t + 1 < steps && i < p->n_units && i <= t; i++)
            fprintf(f, " - x%u_%u", t, i);
        if (t + 1 < steps) fprintf(f, " <= 0\n");
        for (uint32_t i = 1; i < p->n_units && i <= t; i++) {
            fprintf(f, " x%u_%u", t, i);
            for (uint32_t s = i - 1; s < t; s++) fprintf(f, " - x%u_%u", s, i - 1);
            fprintf(f, " <= 0\n");
        }
    }
    for (uint32_t t = p->n_units - 1; t < steps; t++) fprintf(f, " + x%u_%u", t, p->n_units - 1);
    fprintf(f, " >= 1\n");
}

/* Buffer b during step t: carried over or written now. */
static void write_carry(FILE *f, const pl_recompute_problem *p, uint32_t t, uint32_t b)
{
    fprintf(f, " r%u_%u", t, b);
    if (t) fprintf(f, " - r%u_%u", t - 1, b);
    for (uint32_t i = 0; i < p->n_units && i <= t; i++)
        for (uint32_t k = p->out_at[i]; k < p->out_at[i + 1]; k++)
            if (p->out[k] == b) fprintf(f, " - x%u_%u", t, i);
    fprintf(f, " <= 0\n");
}

static void write_step(FILE *f, const pl_recompute_problem *p, uint32_t t, uint64_t budget)
{
    for (uint32_t b = 0; b < p->n_buffers; b++) write_carry(f, p, t, b);
    for (uint32_t i = 0; i < p->n_units && i <= t; i++) {
        for (uint32_t k = p->in_at[i]; k < p->in_at[i + 1]; k++) {
            fprintf(f, " x%u_%u - r%u_%u <= 0\n", t, i, t, p->in[k]);
            if (t) fprintf(f, " x%u_%u - r%u_%u <= 0\n", t, i, t - 1, p->in[k]);
        }
        for (uint32_t k = p->out_at[i]; k < p->out_at[i + 1]; k++)
            fprintf(f, " x%u_%u - r%u_%u <= 0\n", t, i, t, p->out[k]);
    }
    for (uint32_t b = 0; b < p->n_buffers; b++)
        fprintf(f, " + %llu r%u_%u", (unsigned long long)p->bytes[b], t, b);
    fprintf(f, " <= %llu\n", (unsigned long long)budget);
}

static void write_program(const char *path, const pl_recompute_problem *p, uint32_t steps,
                          uint64_t budget)
{
    FILE *f = fopen(path, "w");
    CHECK(f);
    write_objective(f, p, steps);
    write_order(f, p, steps);
    for (uint32_t t = 0; t < steps; t++) write_step(f, p, t, budget);
    for (uint32_t b = 0; b < p->n_buffers; b++)
        if (p->buffer_flags[b] & PL_RECOMPUTE_END) fprintf(f, " r%u_%u >= 1\n", steps - 1, b);
    fprintf(f, "bounds\n");
    for (uint32_t t = 0; t < steps; t++)
        for (uint32_t b = 0; b < p->n_buffers; b++) fprintf(f, " r%u_%u <= 1\n", t, b);
    fprintf(f, "binaries\n");
    for (uint32_t t = 0; t < steps; t++)
        for (uint32_t i = 0; i < p->n_units && i <= t; i++) fprintf(f, " x%u_%u\n", t, i);
    fprintf(f, "end\n");
    fclose(f);
}

/* Writes CBC's optimum to *cost; -1 when CBC did not prove one. */
static void solve(const char *model, const char *answer, double *cost)
{
    char command[1200], line[256];
    *cost = -1;
    snprintf(command, sizeof command, "cbc %s sec 120 solve solu %s > /dev/null 2>&1", model,
             answer);
    CHECK_INT(system(command), 0);
    FILE *f = fopen(answer, "r");
    CHECK(f);
    if (fgets(line, sizeof line, f)) sscanf(line, "Optimal - objective value %lf", cost);
    fclose(f);
}

TEST(recompute_oracle_agrees_with_an_integer_program)
{
    if (!pl_test_long()) SKIP("long: set PL_TEST_LONG");
    if (system("command -v cbc > /dev/null 2>&1")) SKIP("no cbc here (apt-get install coinor-cbc)");
    char folder[] = "/tmp/pl_cbc_XXXXXX", model[64], answer[64];

    CHECK(mkdtemp(folder));
    snprintf(model, sizeof model, "%s/model.lp", folder);
    snprintf(answer, sizeof answer, "%s/answer.txt", folder);
    int compared = 0, repeated = 0;
    for (uint32_t k = 0; k < 24; k++) {
        made *m = make_training(k + 500, 4 + k % 3);
        uint64_t bound, keep;
        uint32_t unit;
        double best = 0;
        CHECK_OK(pl_recompute_bound(&m->p, &bound, &unit));
        CHECK_OK(pl_recompute_keep_all(&m->p, &keep));
        pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
        pl_recompute_plan *plan = NULL;
        o.budget_bytes = bound + (keep - bound) * (k * 17 % 60) / 100;
        CHECK(recompute_oracle(&m->p, o.budget_bytes, 3000000, &best));
        if (pl_recompute_solve(&m->p, &o, &plan) == PL_OK && plan->n < 22) {
            /* One step more than the plan has, so that a cheaper, longer list would be found. */
            write_program(model, &m->p, plan->n + 1, o.budget_bytes);
            double cost;
            solve(model, answer, &cost);
            CHECK_MSG(cost < 0 || (cost < best + 1e-6 && cost > best - 1e-6),
                      "problem %u: the oracle says %g, CBC %g", k, best, cost);
            compared += cost >= 0;
            repeated += plan->n > m->p.n_units;
        }
        pl_recompute_plan_free(plan);
        free(m);
    }
    unlink(model);
    unlink(answer);
    rmdir(folder);

    CHECK_MSG(compared >= 15 && repeated >= 8, "%d compared, %d of them recompute", compared,
              repeated);
}
