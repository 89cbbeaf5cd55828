/* test_plan_fit.c - plans for budgets, seen from the planner: what its searches find, and how much
 * they look. */
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/graphs.h"

#include "ir/units.h"
#include "plan/core/fit.h"
#include "plan/pack/check_pack.h"
#include "plan/pack/pack.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A graph with the plan that keeps everything and a fit over it. */
typedef struct lab {
    pl_store *store;
    pl_graph *g;
    pl_units *units;
    pl_plan_opts o;
    pl_plan *keep_all;
    double *cost_ns;
    pl_fit_base base;
    pl_fit *fit;
} lab;

static pl_status open_lab(lab *x, pl_graph *g)
{
    x->g = g;
    PL_TRY(pl_graph_status(g));
    PL_TRY(pl_units_single(g, &x->units));
    x->cost_ns = calloc(x->units->n + 1, sizeof *x->cost_ns);
    for (uint32_t i = 0; i < x->units->n; i++) x->cost_ns[i] = 1000;
    PL_TRY(pl_plan_make(g, x->units, &x->o, &x->keep_all));
    x->base = (pl_fit_base){g, x->units, &x->o, x->keep_all, x->cost_ns};
    return pl_fit_new(&x->base, &x->fit);
}

static void close_lab(lab *x)
{
    pl_fit_free(x->fit);
    pl_plan_free(x->keep_all);
    pl_units_free(x->units);
    free(x->cost_ns);
    pl_graph_free(x->g);
    pl_store_free(x->store);
    *x = (lab){0};
}

/* Where weights are most of what lies in memory, the recomputation planner's smallest plan is
 * larger in truth than keeping everything: it reads weights after their update. Larger ones of its
 * plans are not. */
TEST(fit_smallest_where_weights_are_most)
{
    for (int layers = 14; layers <= 22; layers += 8) {
        lab x = {.store = pl_store_new()};
        uint64_t least;
        CHECK_OK(open_lab(&x, training_graph(x.store, layers, 4, 32)));
        CHECK_OK(pl_fit_minimum(x.fit, 0, &least));
        CHECK_MSG(least * 6 <= x.keep_all->arena_bytes * 5, "%d layers: %llu of %llu bytes", layers,
                  (unsigned long long)least, (unsigned long long)x.keep_all->arena_bytes);
        close_lab(&x);
    }
    lab x = {.store = pl_store_new()}; /* and some between those */
    uint64_t least;
    CHECK_OK(open_lab(&x, training_graph(x.store, 30, 16, 32)));
    CHECK_OK(pl_fit_minimum(x.fit, 0, &least));
    CHECK_MSG(least * 3 <= x.keep_all->arena_bytes, "%llu of %llu bytes", (unsigned long long)least,
              (unsigned long long)x.keep_all->arena_bytes);
    close_lab(&x);
}

/* Offsets of one plan that leave large gaps tell of the others': few are looked for in vain. Here
 * nothing shares bytes, and no plan has an arena as small as its bytes alive. */
TEST(fit_gaps_of_some_plans_spare_others)
{
    lab x = {.store = pl_store_new(), .o = {.no_reuse = true}};
    pl_fitted *t = NULL;
    CHECK_OK(open_lab(&x, training_graph(x.store, 6, 64, 32)));
    CHECK(pl_fit_solve(x.fit, x.keep_all->arena_bytes / 2, 1000000, &t) == PL_ERR_FIT);
    CHECK(!t);
    pl_fit_work work = pl_fit_work_get(x.fit);
    CHECK_MSG(work.packed <= 13 && work.asked > 3 * work.packed, "%u of %u plans packed",
              work.packed, work.asked);
    close_lab(&x);
}

/* A plan that is small enough ends the search for the smallest; going on from there finds the same
 * as at once, and what was told is found again. */
TEST(fit_enough_ends_the_search)
{
    lab x = {.store = pl_store_new()}, y = {.store = pl_store_new()};
    uint64_t least, some, again, most;
    pl_fitted *t;
    CHECK_OK(open_lab(&x, training_graph(x.store, 22, 64, 32)));
    CHECK_OK(pl_fit_minimum(x.fit, 0, &least));
    CHECK(pl_fit_knows_minimum(x.fit, &again) && again == least);
    most = x.keep_all->arena_bytes;
    CHECK(least < most * 3 / 5);
    CHECK_OK(open_lab(&y, training_graph(y.store, 22, 64, 32)));
    uint64_t enough = least + (most - least) / 2;
    CHECK_OK(pl_fit_minimum(y.fit, enough, &some));
    CHECK(some > least && some <= enough && !pl_fit_knows_minimum(y.fit, &again));
    pl_fit_work all = pl_fit_work_get(x.fit), part = pl_fit_work_get(y.fit);
    CHECK_MSG(part.asked * 2 <= all.asked, "%u looks of %u", part.asked, all.asked);
    CHECK_OK(pl_fit_minimum(y.fit, enough, &again)); /* known */
    CHECK_INT(again, some);
    CHECK_INT(pl_fit_work_get(y.fit).asked, part.asked);
    CHECK_OK(pl_fit_minimum(y.fit, least, &again));
    CHECK_INT(again, least);
    close_lab(&y);
    y.store = pl_store_new();
    CHECK_OK(open_lab(&y, training_graph(y.store, 22, 64, 32)));
    CHECK_OK(pl_fit_solve(y.fit, some, 1000000, &t));
    CHECK(t->plan->arena_bytes <= some);
    pl_fitted_free(t);
    close_lab(&x);
    close_lab(&y);
}

/* The plan of the smallest arena is packed to know that arena, and not once more for who is given
 * it. */
TEST(fit_packs_the_smallest_once)
{
    lab x = {.store = pl_store_new()};
    uint64_t least;
    pl_fitted *t;
    CHECK_OK(open_lab(&x, training_graph(x.store, 18, 8, 32)));
    CHECK_OK(pl_fit_minimum(x.fit, 0, &least));
    CHECK_INT(pl_fit_work_get(x.fit).packed, 1);
    pl_fit_free(x.fit);
    CHECK_OK(pl_fit_new(&x.base, &x.fit));
    CHECK_OK(pl_fit_solve(x.fit, least, 1000000, &t));
    CHECK_INT(t->plan->arena_bytes, least);
    CHECK_OK(pl_plan_check(t->x->g, t->x->units, &t->opts, t->plan));
    CHECK_INT(pl_fit_work_get(x.fit).packed, 1);
    pl_fitted_free(t);
    close_lab(&x);
}

/* A limit on what a search has in hand leaves fewer plans to choose from, never none. */
TEST(fit_stays_within_the_memory_it_is_given)
{
    lab x = {.store = pl_store_new()}, y = {.store = pl_store_new()};
    pl_fitted *a, *b;
    uint64_t takes;
    CHECK_OK(open_lab(&x, training_graph(x.store, 22, 64, 32)));
    CHECK_OK(open_lab(&y, training_graph(y.store, 22, 64, 32)));
    uint64_t budget = x.keep_all->arena_bytes * 3 / 4;
    y.o.host_bytes = 1;
    CHECK_OK(pl_fit_solve(x.fit, budget, 1000000, &a));
    CHECK_OK(pl_fit_solve(y.fit, budget, 1000000, &b));
    CHECK(a->plan->arena_bytes <= budget && b->plan->arena_bytes <= budget);
    uint32_t many = pl_fit_work_get(x.fit).asked, few = pl_fit_work_get(y.fit).asked;
    CHECK_MSG(few * 2 < many, "%u asked, without a limit %u", few, many);
    CHECK(a->extra_ns <= b->extra_ns);
    /* what a plan takes is foreseen: all but its offsets, within a fourth */
    CHECK_OK(pl_fit_takes(x.fit, budget, &takes));
    uint64_t held = pl_fitted_bytes(a);
    CHECK_MSG(takes <= held && takes > held / 4 * 3 - a->plan->mem.total,
              "%llu foreseen, %llu held", (unsigned long long)takes, (unsigned long long)held);
    pl_fitted_free(a);
    pl_fitted_free(b);
    close_lab(&x);
    close_lab(&y);
}

/* ---- stopping --------------------------------------------------------------------------- */
typedef struct later {
    pthread_t thread;
    volatile int flag;
    int ms;
} later;

static void *raise_flag(void *ctx)
{
    later *l = ctx;
    usleep((useconds_t)l->ms * 1000);
    __atomic_store_n(&l->flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Raises l->flag after some milliseconds. */
static bool start_later(later *l, int ms)
{
    l->flag = 0;
    l->ms = ms;
    return pthread_create(&l->thread, NULL, raise_flag, l) == 0;
}

enum { SOON = 10 }; /* seconds of a core; the searches are given minutes */

TEST(fit_stops_when_it_is_asked)
{
    lab x = {.store = pl_store_new()};
    later l = {.flag = 1};
    uint64_t least, most;
    pl_fitted *t = NULL;
    CHECK_OK(open_lab(&x, training_graph(x.store, 22, 64, 32)));
    most = x.keep_all->arena_bytes;
    x.o.stop = &l.flag; /* from the beginning: after the first look */
    CHECK(pl_fit_solve(x.fit, most / 2, 1000000, &t) == PL_ERR_STOPPED);
    CHECK_INT(pl_fit_work_get(x.fit).asked, 1);
    CHECK(pl_fit_minimum(x.fit, 0, &least) == PL_ERR_STOPPED);
    CHECK(pl_fit_work_get(x.fit).asked <= 2);
    uint64_t begin = used_ns(); /* while one look is under way */
    CHECK(start_later(&l, 100));
    CHECK(pl_fit_solve(x.fit, most * 3 / 5, (uint64_t)600000 * 1000000, &t) == PL_ERR_STOPPED);
    pthread_join(l.thread, NULL);
    CHECK(!t && used_ns() - begin < (uint64_t)SOON * 1000000000 * PATIENCE);
    CHECK_MSG(strstr(pl_error_text(), "stopped"), "%s", pl_error_text());
    l.flag = 0; /* what was cut short is no answer later */
    CHECK_OK(pl_fit_solve(x.fit, most * 3 / 5, 1000000, &t));
    CHECK(t->plan->arena_bytes <= most * 3 / 5);
    pl_fitted_free(t);
    close_lab(&x);
}

TEST(pack_stops_when_it_is_asked)
{
    enum { N = 400 };
    pl_pack_buffer b[N];
    later l;
    uint64_t height, begin = used_ns(), rng = 5;
    for (int i = 0; i < N; i++) {
        int64_t lo = (int64_t)((pl_test_noise(&rng) + 1) * 100);
        b[i] = (pl_pack_buffer){.lo = lo,
                                .hi = lo + 1 + (int64_t)((pl_test_noise(&rng) + 1) * 30),
                                .size = 1 + (uint64_t)((pl_test_noise(&rng) + 1) * 100000)};
    }
    pl_pack_opts o = PL_PACK_OPTS_INIT;
    o.work = UINT64_MAX / 64;
    o.time_limit_s = 600;
    o.stop = &l.flag;
    CHECK(start_later(&l, 50));
    CHECK_OK(pl_pack(b, N, &o, &height));
    pthread_join(l.thread, NULL);
    CHECK(used_ns() - begin < (uint64_t)SOON * 1000000000 * PATIENCE);
    CHECK_OK(pl_pack_check(b, N, 64, height)); /* the best until then */
}

/* A signal while a plan is looked for: nothing was trained, so nothing is waited for. When it comes
 * too early the program does not listen yet, too late and it has a plan: one of some moments is
 * right, told by what it used of a core so that other work does not move them away. */
TEST(cli_signal_ends_planning)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's moments are others");
    cli_result r = cli_run("$P plan lgt/tiny batch=64 --json");
    const char *least = strstr(r.out, "\"minimum_bytes\":");
    CHECK_MSG(r.code == 0 && least, "%d %s", r.code, r.err);
    long long budget = atoll(least + 16);
    bool stopped = false;
    r.code = -1;
    for (double s = 0.1; r.code != 0 && !stopped; s *= 1.6) {
        r = cli_run(
            "cd %s && { $P train lgt/tiny batch=64 train.steps=1 eval.batches=1 --quiet --memory %lld & p=$!; "
            "while t=$(cut -d' ' -f14 /proc/$p/stat) && [ $t -lt $((%d * $(getconf CLK_TCK) / 1000)) ]; do sleep 0.01; done; "
            "kill -TERM $p; wait $p; }",
            pl_test_dir(), budget, (int)(1000 * s));
        stopped = strstr(r.err, "planning was stopped") != NULL;
        CHECK_MSG(!stopped || r.code == 143, "exit code %d: %s", r.code, r.err);
    }
    CHECK_MSG(stopped, "exit code %d: %s", r.code, r.err);
}
