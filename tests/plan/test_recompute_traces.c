/* test_recompute_traces.c - the recompute planner on published traces: it reaches their figures,
 * keeps every budget, and more memory never makes a plan slower. */
#include "base/hash.h"
#include "plan/files/trace.h"
#include "plan/recompute/recompute_check.h"
#include "plimsoll_unstable.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"
#include "tests/plan/recompute_made.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- traces ----------------------------------------------------------------------------- */
TEST(recompute_traces_are_parsed)
{
    static const char text[] = "2 3 3 9\n40 8\n0 1 0 1 0 0 0\n5.5 0 1 0 1 1 1 0\n"
                               "2 0 1 1 1 2 1 1\nC 0\nC 1\nG 1\nC 2\nR 1\nR 1\nP 2\nP 0\nR 0\n";
    pl_trace t;

    CHECK_OK(pl_trace_parse(text, sizeof text - 1, &t));
    CHECK_INT(t.problem.n_units, 3);
    CHECK_INT(t.problem.n_buffers, 3);
    CHECK(t.problem.cost[1] == 5.5);
    CHECK_INT(t.problem.base[2], 1);
    CHECK_INT(t.problem.bytes[1], 8);
    CHECK_INT(t.problem.buffer_flags[0], PL_RECOMPUTE_PINNED | PL_RECOMPUTE_END);
    CHECK_INT(t.peak_bytes, 48);
    pl_trace_release(&t);
    for (size_t len = 0; len + 2 < sizeof text - 1; len++) /* cut short anywhere: an error */
        CHECK_INT(pl_trace_parse(text, len, &t), PL_ERR_DATA);
    static const char bad[] = "1 1 1 1\n8\n0 0 0 1 0 7 0\nC 0\n";

    CHECK_INT(pl_trace_parse(bad, sizeof bad - 1, &t), PL_ERR_DATA);
    CHECK(strstr(pl_error_text(), "line 3: storage 7") != NULL);
}

typedef struct goal {
    const char *file;
    double share, overhead;
} goal;

static void check_goal(const char *folder, const goal *g)
{
    char path[512];
    pl_trace t;
    snprintf(path, sizeof path, "%s/trace_%s.txt", folder, g->file);
    CHECK_OK(pl_trace_read(path, &t));
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    pl_recompute_plan *plan;
    o.budget_bytes = (uint64_t)((double)t.peak_bytes * g->share);
    uint64_t from = used_ns();
    CHECK_OK(pl_trace_climb(&t.problem, &o, &plan));
    double took = 1e-9 * (double)(used_ns() - from);
    CHECK_OK(pl_recompute_check(&t.problem, plan, o.budget_bytes));
    double overhead = plan->cost_ns / plan->base_cost_ns;
    if (getenv("PL_TEST_PRINT"))
        printf("%s at %g: %.4f in %.3f s (%s)\n", g->file, g->share, overhead, took,
               plan->strategy);
    CHECK_MSG(overhead <= g->overhead, "%s at %g: %.4f, wanted %.4f", g->file, g->share, overhead,
              g->overhead);
    pl_recompute_plan_free(plan);
    pl_trace_release(&t);
}

TEST(recompute_traces_reach_their_figures)
{
    static const goal near[] = {{"U_Net_6", 0.3, 1.291},      {"ResNet_32_56", 0.2, 1.218},
                                {"ResNet_32_56", 0.5, 1.095}, {"U_Net_6", 0.5, 1.098},
                                {"ResNet_32_56", 0.3, 1.172}, {"U_Net_6", 0.9, 1.0131}};
    static const goal far[] = {{"DenseNet_121_84", 0.2, 1.236},
                               {"Transformer_10", 0.2, 1.141},
                               {"DenseNet_121_84", 0.5, 1.129},
                               {"Transformer_10", 0.5, 1.050}};
    for (uint32_t i = 0; i < (pl_test_long() ? 6 : 2); i++) check_goal("tests/data/plan", &near[i]);
    const char *folder = getenv("PL_PLAN_INSTANCES");
    for (uint32_t i = 0; folder && i < 4; i++) check_goal(folder, &far[i]);
}

static void check_budgets(const char *path, uint32_t n)
{
    pl_trace t;
    uint64_t *budgets = calloc(n, sizeof *budgets), bound;
    pl_recompute_plan **plans = calloc(n, sizeof *plans);
    uint32_t unit, fit = 0;
    CHECK(budgets && plans);
    CHECK_OK(pl_trace_read(path, &t));
    CHECK_OK(pl_recompute_bound(&t.problem, &bound, &unit));
    for (uint32_t i = 0; i < n; i++) budgets[i] = t.peak_bytes * (i + 1) / n;
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    o.effort = 0;
    CHECK_OK(pl_trace_sweep(&t.problem, &o, budgets, n, plans));
    for (uint32_t i = 0; i < n; i++) {
        CHECK(!plans[i] || budgets[i] >= bound);
        CHECK(plans[i] || !fit); /* fits at one budget, fits at all larger ones */
        if (!plans[i]) continue;
        fit++;
        CHECK_OK(pl_recompute_check(&t.problem, plans[i], budgets[i]));
        if (i && plans[i - 1]) CHECK(plans[i]->cost_ns <= plans[i - 1]->cost_ns);
    }
    CHECK_MSG(fit > n / 2, "%s: %u of %u budgets fit", path, fit, n);
    for (uint32_t i = 0; i < n; i++) pl_recompute_plan_free(plans[i]);
    free(plans);
    free(budgets);
    pl_trace_release(&t);
}

TEST(recompute_traces_stay_within_many_budgets)
{
    uint32_t n = pl_test_long() ? 100 : 25;
    check_budgets("tests/data/plan/trace_ResNet_32_56.txt", n);
    check_budgets("tests/data/plan/trace_U_Net_6.txt", n);
    const char *folder = getenv("PL_PLAN_INSTANCES");
    if (!folder || !pl_test_long()) return;
    char path[512];
    snprintf(path, sizeof path, "%s/trace_DenseNet_121_84.txt", folder);
    check_budgets(path, n);
    snprintf(path, sizeof path, "%s/trace_Transformer_10.txt", folder);
    check_budgets(path, n);
}

/* Each budget is an independent call, which knows no other plan. */
static void check_rising(const char *name, const pl_recompute_problem *p, uint64_t scale,
                         const double *shares, uint32_t n, uint64_t effort)
{
    double before = HUGE_VAL;
    for (uint32_t i = 0; i < n; i++) {
        pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
        pl_recompute_plan *plan;
        o.budget_bytes = (uint64_t)((double)scale * shares[i]);
        o.effort = effort;
        pl_status s = pl_trace_climb(p, &o, &plan);
        CHECK(s == PL_OK || (s == PL_ERR_FIT && before == HUGE_VAL));
        if (s != PL_OK) continue;
        CHECK_OK(pl_recompute_check(p, plan, o.budget_bytes));
        CHECK_MSG(plan->cost_ns <= before, "%s at %.4f: %.4f after %.4f", name, shares[i],
                  plan->cost_ns / plan->base_cost_ns, before / plan->base_cost_ns);
        before = plan->cost_ns;
        pl_recompute_plan_free(plan);
    }
    CHECK_MSG(before < HUGE_VAL, "%s: no budget fits", name);
}

static void check_rising_trace(const char *folder, const char *file, const double *shares,
                               uint32_t n, uint64_t effort)
{
    char path[512];
    pl_trace t;
    snprintf(path, sizeof path, "%s/trace_%s.txt", folder, file);
    CHECK_OK(pl_trace_read(path, &t));
    check_rising(file, &t.problem, t.peak_bytes, shares, n, effort);
    pl_trace_release(&t);
}

TEST(recompute_more_memory_is_not_slower)
{
    if (!pl_test_long()) SKIP("long");
    double many[60];
    for (int i = 0; i < 60; i++) many[i] = 0.253 + 0.74 * i / 60;

    check_rising_trace("tests/data/plan", "U_Net_6", many, 60, PL_RECOMPUTE_EFFORT_AUTO);
    check_rising_trace("tests/data/plan", "ResNet_32_56", many, 60, 0);
}

TEST(recompute_more_memory_is_not_slower_for_small_steps)
{
    for (uint64_t seed = 1; seed <= (pl_test_long() ? 20 : 1); seed++) {
        static const double shares[] = {0.5, 0.51, 0.52, 0.53};
        made *m = make_training(seed, 30);
        uint64_t scale;
        CHECK_OK(pl_recompute_keep_all(&m->p, &scale));
        check_rising("a training step", &m->p, scale, shares, 4, 100000);
        free(m);
    }
}

/* Plans independently for n random budgets, and compares all pairs of them. */
static void check_pairs(const made *m, uint64_t seed, uint32_t n)
{
    enum { MOST = 46 }; /* 1,035 pairs */
    uint64_t scale, bound, budget[MOST];
    double cost[MOST];
    uint32_t unit;
    CHECK(n <= MOST);
    CHECK_OK(pl_recompute_keep_all(&m->p, &scale));
    CHECK_OK(pl_recompute_bound(&m->p, &bound, &unit));
    for (uint32_t i = 0; i < n; i++) {
        pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
        pl_recompute_plan *plan;
        o.budget_bytes = budget[i] = bound + pl_mix64(1000 * seed + i) % (scale - bound);
        o.effort = 1000000;
        pl_status s = pl_trace_climb(&m->p, &o, &plan);
        CHECK(s == PL_OK || s == PL_ERR_FIT);
        cost[i] = HUGE_VAL;
        if (s != PL_OK) continue;
        CHECK_OK(pl_recompute_check(&m->p, plan, budget[i]));
        cost[i] = plan->cost_ns;
        pl_recompute_plan_free(plan);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++)
            CHECK_MSG(budget[i] >= budget[k] || cost[i] >= cost[k],
                      "%u units: cost %g in %llu bytes, %g in %llu", m->p.n_units, cost[i],
                      (unsigned long long)budget[i], cost[k], (unsigned long long)budget[k]);
}

/* More memory never costs more time, whatever the size of the trace. */
TEST(recompute_of_random_pairs_of_budgets_is_monotone)
{
    static const uint32_t forward[] = {35, 120, 520};
    for (uint64_t i = 0; i < (pl_test_long() ? 3 : 1); i++) {
        made *m = make_training(2, forward[i]);
        check_pairs(m, 2, pl_test_long() ? 46 : 10);
        free(m);
    }
}

/* On small problems the optimum is found, as pl_recompute_solve finds it. */
TEST(recompute_traces_of_few_operations_get_the_optimum)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        made *m = make_training(seed, 9);
        pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
        pl_recompute_plan *climbed, *solved;
        uint64_t scale;
        CHECK_OK(pl_recompute_keep_all(&m->p, &scale));
        o.budget_bytes = scale * 73 / 100;

        pl_status s = pl_recompute_solve(&m->p, &o, &solved);
        CHECK_INT(pl_trace_climb(&m->p, &o, &climbed), s);

        if (s != PL_OK) continue;
        CHECK_MSG(climbed->cost_ns <= solved->cost_ns, "seed %d: %g, solve finds %g", (int)seed,
                  climbed->cost_ns, solved->cost_ns);
        pl_recompute_plan_free(climbed);
        pl_recompute_plan_free(solved);
        free(m);
    }
}

/* Reads a plan that pl_trace_write wrote, and replays it. */
static void check_written(const pl_trace *t, const char *path, uint64_t budget, uint64_t peak,
                          double cost)
{
    enum { MOST = 20000 };
    static uint32_t unit[MOST], drop[MOST], drop_at[MOST + 1];
    pl_recompute_plan plan = {.unit = unit,
                              .drop = drop,
                              .drop_at = drop_at,
                              .strategy = "file",
                              .peak_bytes = peak,
                              .cost_ns = cost};
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    char what;
    unsigned number;
    uint32_t n_drops = 0;
    while (plan.n < MOST - 1 && n_drops < MOST && fscanf(f, " %c %u", &what, &number) == 2) {
        if (what == 'D') {
            drop[n_drops++] = number;
        } else {
            uint32_t u = 0;
            while (u < t->problem.n_units && t->op[u] != number) u++;
            unit[plan.n++] = u;
        }
        drop_at[plan.n] = n_drops;
    }
    fclose(f);
    CHECK_OK(pl_recompute_check(&t->problem, &plan, budget));
}

TEST(recompute_trace_plans_are_written_and_can_be_replayed)
{
    static const char trace[] = "tests/data/plan/trace_U_Net_6.txt";
    const char *path = pl_test_path("plan.txt");
    pl_trace_report r;
    pl_trace t;

    CHECK_OK(pl_plan_trace(trace, 0.26, 0, path, &r));

    CHECK_OK(pl_trace_read(trace, &t));
    double base = 0;
    for (uint32_t i = 0; i < t.problem.n_units; i++) base += t.problem.cost[i];
    check_written(&t, path, r.budget_bytes, r.peak_bytes, r.overhead * base);
    pl_trace_release(&t);
}

TEST(recompute_trace_files_give_figures_or_errors)
{
    static const char path[] = "tests/data/plan/trace_U_Net_6.txt";
    static const double shares[] = {0.6, 0.2, 1, 0.4};
    pl_trace_report one, many[4];
    CHECK_OK(pl_plan_trace(path, 0.26, 0, NULL, &one));
    CHECK(one.overhead > 1.3 && one.overhead < 1.55 && one.peak_bytes <= one.budget_bytes);
    CHECK_OK(pl_plan_trace_sweep(path, shares, 4, 0.01, many));
    CHECK(many[2].overhead == 1 && many[1].overhead == 0);
    CHECK(many[0].overhead > 1 && many[3].overhead > many[0].overhead);
    CHECK_INT(pl_plan_trace(path, 0.2, 0, NULL, &one), PL_ERR_FIT);
    CHECK_INT(pl_plan_trace(path, -1, 0, NULL, &one), PL_ERR_ARG);
    CHECK_INT(pl_plan_trace("nowhere.txt", 0.5, 0, NULL, &one), PL_ERR_IO);
}
