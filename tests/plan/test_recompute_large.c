/* test_recompute_large.c - the recompute planner's time on steps of very many units. */
#include "plan/recompute/recompute_check.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"
#include "tests/plan/recompute_made.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A chain of units with a skip over two of them, and its backward pass. */
typedef struct long_chain {
    pl_recompute_problem p;
    double *cost;
    uint64_t *bytes;
    uint8_t *flags;
    uint32_t *in_at, *in, *out_at, *out;
} long_chain;

static long_chain make_long_chain(uint32_t nf)
{
    uint32_t n = 2 * nf, edges = 0;
    long_chain c = {.cost = calloc(n, sizeof *c.cost),
                    .bytes = calloc(n, sizeof *c.bytes),
                    .flags = calloc(n, sizeof *c.flags),
                    .in_at = calloc(n + 1, sizeof *c.in_at),
                    .in = calloc(4 * (size_t)n, sizeof *c.in),
                    .out_at = calloc(n + 1, sizeof *c.out_at),
                    .out = calloc(n, sizeof *c.out)};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t of = i < nf ? i : n - 1 - i; /* the forward unit of a backward unit */
        c.cost[i] = 100 + 37 * of % 300;
        c.bytes[i] = 1000 + 17 * of % 1000;
        if (i) c.in[edges++] = i - 1;
        if (i < nf && i > 2 && i % 3 == 0) c.in[edges++] = i - 3;
        if (i >= nf && of != i - 1) c.in[edges++] = of;
        c.in_at[i + 1] = edges;
        c.out[i] = i;
        c.out_at[i + 1] = i + 1;
    }
    c.flags[n - 1] = PL_RECOMPUTE_END;
    c.p = (pl_recompute_problem){.n_units = n,
                                 .n_buffers = n,
                                 .cost = c.cost,
                                 .in_at = c.in_at,
                                 .in = c.in,
                                 .out_at = c.out_at,
                                 .out = c.out,
                                 .bytes = c.bytes,
                                 .buffer_flags = c.flags};
    return c;
}

static void free_long_chain(long_chain *c)
{
    free(c->cost);
    free(c->bytes);
    free(c->flags);
    free(c->in_at);
    free(c->in);
    free(c->out_at);
    free(c->out);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Sets the seconds of one run of the simulator, with undoing, on a chain at 20 % of its memory.
 */
static void time_of_chain(uint32_t nf, double *seconds)
{
    long_chain c = make_long_chain(nf);
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    pl_recompute_plan *plan = NULL;
    uint64_t keep;
    o.effort = 0;
    o.off = PL_RECOMPUTE_NO_CHAIN | PL_RECOMPUTE_NO_GRID;
    CHECK_OK(pl_recompute_keep_all(&c.p, &keep));
    o.budget_bytes = keep / 5;

    double begin = cpu_seconds();
    CHECK_OK(pl_recompute_solve(&c.p, &o, &plan));
    *seconds = cpu_seconds() - begin;

    CHECK_OK(pl_recompute_check(&c.p, plan, o.budget_bytes));
    pl_recompute_plan_free(plan);
    free_long_chain(&c);
}

/* A drop visits what is near, and undoing recompute visits blocks of positions: the time of a plan
 * grows with the number of units, not with its square. The limit lies between the two powers,
 * because caches are slower for the long chain; a run that other processes disturb is repeated. */
TEST(recompute_time_grows_with_the_number_of_units)
{
    enum { TIMES = 30, TRIES = 4 };
    uint32_t nf = pl_test_long() ? 4000 : 3000;
    double small = 1e9, large = 1e9, most = pow(TIMES, 1.5);

    for (int i = 0; i < TRIES && (i == 0 || large > most * small); i++) {
        double now;
        for (int k = 0; k < 3; k++) {
            time_of_chain(nf, &now);
            small = fmin(small, now);
        }
        time_of_chain(TIMES * nf, &now);
        large = fmin(large, now);
    }

    if (getenv("PL_TEST_PRINT"))
        printf("%u units: %.3f s, %d x: %.3f s\n", 2 * nf, small, TIMES, large);
    CHECK_MSG(large < most * small, "%u units take %.3f s, %d times as many %.3f s", 2 * nf, small,
              TIMES, large);
}

/* Questions that share a memo have the same answers as questions that do not, and one that differs
 * from the last one in its effort only does not run the grid again. */
TEST(recompute_memo_changes_no_plan)
{
    enum { N = 6 };
    static const struct {
        int percent;
        uint64_t effort;
        uint32_t off, settings;
    } asked[N] = {{60, 0, 0, 0},       {60, 2000000, 0, 0},
                  {45, 0, 0, 0},       {60, 0, PL_RECOMPUTE_NO_WHOLE, 0},
                  {45, 1000000, 0, 3}, {60, 4000000, 0, 0}};
    made *m = make_training(7, 150);
    pl_recompute_memo *memo;
    uint64_t all, spent[2] = {0};
    CHECK_OK(pl_recompute_keep_all(&m->p, &all));
    CHECK_OK(pl_recompute_memo_new(&memo));
    for (int i = 0; i < N; i++) {
        pl_recompute_plan *plan[2];
        for (int k = 0; k < 2; k++) {
            pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
            o.budget_bytes = all * (uint64_t)asked[i].percent / 100;
            o.effort = asked[i].effort;
            o.off = PL_RECOMPUTE_NO_EXACT | asked[i].off;
            o.settings = asked[i].settings;
            o.memo = k ? memo : NULL;
            uint64_t begin = used_ns();
            CHECK_OK(pl_recompute_solve(&m->p, &o, &plan[k]));
            if (i == 1) spent[k] = used_ns() - begin;
        }
        CHECK_MSG(plan[0]->n == plan[1]->n &&
                      memcmp(plan[0]->unit, plan[1]->unit, plan[0]->n * sizeof(uint32_t)) == 0,
                  "question %d: %g, with a memo %g", i, plan[0]->cost_ns, plan[1]->cost_ns);
        pl_recompute_plan_free(plan[0]);
        pl_recompute_plan_free(plan[1]);
    }
    CHECK_MSG(spent[1] < spent[0], "%llu ns, with a memo %llu", (unsigned long long)spent[0],
              (unsigned long long)spent[1]);
    pl_recompute_memo_free(memo);
    free(m);
}

/* Ends a descent. Sets *end to the smallest budget, after checking that every plan is within its
 * budget and that budgets fall. */
static void end_descent(const pl_recompute_problem *p, uint64_t from, uint64_t *end, int *plans)
{
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    pl_recompute_descent *d;
    pl_recompute_plan *plan;
    uint64_t least = from ? from : UINT64_MAX, bytes;
    o.off = PL_RECOMPUTE_NO_EXACT;
    CHECK_OK(pl_recompute_descent_new(p, &o, from, &d));
    for (*plans = 0;; ++*plans) {
        CHECK_OK(pl_recompute_descend(d, &bytes, &plan));
        if (!plan) break;
        CHECK(bytes < least && plan->peak_bytes <= bytes);
        CHECK_OK(pl_recompute_check(p, plan, bytes));
        least = bytes;
        pl_recompute_plan_free(plan);
    }
    pl_recompute_descent_free(d);
    *end = least;
}

/* On large problems a second descent finds smaller budgets than the first, in few searches. */
TEST(recompute_second_descent_goes_on_where_the_first_ends)
{
    int smaller = 0;
    for (uint64_t seed = 1; seed < 3; seed++) {
        made *m = make_training(seed, 700);
        int first, second;
        uint64_t least, end;
        end_descent(&m->p, 0, &least, &first);
        end_descent(&m->p, least, &end, &second);
        smaller += end < least;
        free(m);
    }
    CHECK(smaller);
}
