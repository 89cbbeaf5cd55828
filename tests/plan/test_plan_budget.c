/* test_plan_budget.c - plan/budget.h on small graphs: what searches find, and how many plans
 * they make and pack. */
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/graphs.h"

#include "ir/units.h"
#include "plan/budget.h"
#include "plan/pack/check_pack.h"
#include "plan/pack/pack.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A graph with its keep-all plan and a budget search over it. */
typedef struct lab {
    pl_store *store;
    pl_graph *g;
    pl_units *units;
    pl_plan_opts o;
    pl_plan *keep_all;
    double *cost_ns;
    pl_budget_base base;
    pl_budget *budget;
} lab;

static pl_status open_lab(lab *x, pl_graph *g)
{
    x->g = g;
    PL_TRY(pl_graph_status(g));
    PL_TRY(pl_units_single(g, &x->units));
    x->cost_ns = calloc(x->units->n + 1, sizeof *x->cost_ns);
    for (uint32_t i = 0; i < x->units->n; i++) x->cost_ns[i] = 1000;
    PL_TRY(pl_plan_make(g, x->units, &x->o, &x->keep_all));
    x->base = (pl_budget_base){.g = g,
                               .units = x->units,
                               .opts = &x->o,
                               .keep_all = x->keep_all,
                               .cost_ns = x->cost_ns,
                               .effort = 1000000};
    return pl_budget_new(&x->base, PL_CHECKPOINT_AUTO, &x->budget);
}

static void close_lab(lab *x)
{
    pl_budget_free(x->budget);
    pl_plan_free(x->keep_all);
    pl_units_free(x->units);
    free(x->cost_ns);
    pl_graph_free(x->g);
    pl_store_free(x->store);
    *x = (lab){0};
}

/* Where weights are most of the memory, the smallest plan of the recompute planner is larger in
 * truth than keep-all, because it reads weights after their update. Its larger plans are not. */
TEST(plan_minimum_is_small_where_weights_are_most_of_memory)
{
    if (!pl_test_long()) SKIP("long");
    for (int layers = 14; layers <= 22; layers += 8) {
        lab x = {.store = pl_store_new()};
        uint64_t least;
        CHECK_OK(open_lab(&x, training_graph(x.store, layers, 4, 32)));
        CHECK_OK(pl_budget_minimum(x.budget, 0, &least));
        CHECK_MSG(least * 6 <= x.keep_all->arena_bytes * 5, "%d layers: %llu of %llu bytes", layers,
                  (unsigned long long)least, (unsigned long long)x.keep_all->arena_bytes);
        close_lab(&x);
    }
    lab x = {.store = pl_store_new()}; /* and some between those */
    uint64_t least;
    CHECK_OK(open_lab(&x, training_graph(x.store, 30, 16, 32)));
    CHECK_OK(pl_budget_minimum(x.budget, 0, &least));
    CHECK_MSG(least * 3 <= x.keep_all->arena_bytes, "%llu of %llu bytes", (unsigned long long)least,
              (unsigned long long)x.keep_all->arena_bytes);

    close_lab(&x);
}

/* Large gaps in the offsets of one plan predict gaps in others, so few plans are packed in vain.
 * In this graph nothing shares bytes, and no plan has an arena as small as its bytes alive. */
TEST(plan_search_skips_packing_after_large_gaps)
{
    lab x = {.store = pl_store_new(), .o = {.no_reuse = true}};
    CHECK_OK(open_lab(&x, training_graph(x.store, 6, 64, 32)));
    CHECK(pl_budget_set(x.budget, x.keep_all->arena_bytes / 2) == PL_ERR_FIT);
    CHECK(!pl_budget_plan(x.budget));
    pl_budget_figures work = pl_budget_figures_get(x.budget);
    CHECK_MSG(work.packed <= 8 && work.asked > work.packed, "%u of %u plans packed", work.packed,
              work.asked);
    close_lab(&x);
}

/* A plan that is small enough ends the search for the minimum. Continuing the search gives the same
 * result as one search, and finds the first answer again. */
TEST(plan_minimum_search_ends_when_small_enough)
{
    lab x = {.store = pl_store_new()}, y = {.store = pl_store_new()};
    uint64_t least, some, again, most;

    CHECK_OK(open_lab(&x, training_graph(x.store, 22, 64, 32)));
    CHECK_OK(pl_budget_minimum(x.budget, 0, &least));
    pl_budget_figures all = pl_budget_figures_get(x.budget);
    CHECK(all.minimum_final && all.minimum_bytes == least);

    most = x.keep_all->arena_bytes;
    CHECK(least < most * 3 / 5);
    CHECK_OK(open_lab(&y, training_graph(y.store, 22, 64, 32)));
    uint64_t enough = least + (most - least) / 2;
    CHECK_OK(pl_budget_minimum(y.budget, enough, &some));
    pl_budget_figures part = pl_budget_figures_get(y.budget);
    CHECK(some > least && some <= enough && !part.minimum_final);
    CHECK_MSG(part.asked * 2 <= all.asked, "%u looks of %u", part.asked, all.asked);
    CHECK_OK(pl_budget_minimum(y.budget, enough, &again)); /* known */
    CHECK_INT(again, some);
    CHECK_INT(pl_budget_figures_get(y.budget).asked, part.asked);
    CHECK_OK(pl_budget_minimum(y.budget, least, &again));
    CHECK_INT(again, least);

    close_lab(&y);
    y.store = pl_store_new();
    CHECK_OK(open_lab(&y, training_graph(y.store, 22, 64, 32)));
    CHECK_OK(pl_budget_set(y.budget, some));
    CHECK(pl_budget_plan(y.budget)->plan->arena_bytes <= some);

    close_lab(&x);
    close_lab(&y);
}

/* The plan of the minimum is packed once to know its arena, and not again when it is used. */
TEST(plan_minimum_is_packed_once)
{
    lab x = {.store = pl_store_new()};
    uint64_t least;
    CHECK_OK(open_lab(&x, training_graph(x.store, 18, 8, 32)));
    CHECK_OK(pl_budget_minimum(x.budget, 0, &least));
    CHECK_INT(pl_budget_figures_get(x.budget).packed, 1);
    pl_budget_free(x.budget);
    CHECK_OK(pl_budget_new(&x.base, PL_CHECKPOINT_AUTO, &x.budget));
    CHECK_OK(pl_budget_set(x.budget, least));
    const pl_expanded_plan *t = pl_budget_plan(x.budget);
    CHECK_INT(t->plan->arena_bytes, least);
    CHECK_OK(pl_plan_check(t->x->g, t->x->units, &t->opts, t->plan));
    CHECK_INT(pl_budget_figures_get(x.budget).packed, 1);
    close_lab(&x);
}

/* A budget below the bytes alive of the smallest list is refused without packing anything, and
 * remembered; the minimum is the same as without that refusal. */
TEST(plan_refusals_pack_no_list_that_is_too_large)
{
    lab x = {.store = pl_store_new()}, y = {.store = pl_store_new()};
    uint64_t least, bound, again;

    CHECK_OK(open_lab(&x, training_graph(x.store, 10, 16, 32)));
    CHECK_OK(open_lab(&y, training_graph(y.store, 10, 16, 32)));
    CHECK_OK(pl_budget_bound(x.budget, &bound));
    CHECK_OK(pl_budget_minimum(x.budget, 0, &least));
    uint64_t budget = bound + (least - bound) / 2;
    CHECK(bound < budget && budget < least);
    CHECK(pl_budget_set(y.budget, budget) == PL_ERR_FIT);
    CHECK(strstr(pl_error_text(), "no plan found") != NULL);
    pl_budget_figures f = pl_budget_figures_get(y.budget);
    CHECK_INT(f.packed, 0);
    CHECK(!f.minimum_final);
    CHECK(pl_budget_set(y.budget, budget - 1) == PL_ERR_FIT);
    CHECK_INT(pl_budget_figures_get(y.budget).asked, f.asked);
    CHECK_OK(pl_budget_minimum(y.budget, 0, &again));
    CHECK_INT(again, least);

    close_lab(&x);
    close_lab(&y);
}

enum { LARGE = 70 }; /* layers, of more than 1,000 units */

/* On large problems the descent comes first: it refuses a budget without the questions of a search
 * for the cheapest plan, and what it found outlasts a pause. */
TEST(plan_refusals_of_large_steps_need_few_questions)
{
    lab x = {.store = pl_store_new()}, y = {.store = pl_store_new()};
    uint64_t least, again;

    CHECK_OK(open_lab(&x, training_graph(x.store, LARGE, 128, 16)));
    CHECK_OK(open_lab(&y, training_graph(y.store, LARGE, 128, 16)));
    CHECK_OK(pl_budget_minimum(x.budget, 0, &least));
    uint32_t descent = pl_budget_figures_get(x.budget).asked;
    CHECK(pl_budget_set(y.budget, least - least / 64) == PL_ERR_FIT);
    pl_budget_figures f = pl_budget_figures_get(y.budget);
    CHECK_MSG(f.asked <= descent && f.packed <= 2, "%u asked, %u packed, the descent %u", f.asked,
              f.packed, descent);
    bool may;
    CHECK_OK(pl_budget_may_fit(y.budget, least - least / 64, &may));
    CHECK(!may);
    pl_budget_pause(y.budget);
    CHECK_OK(pl_budget_may_fit(y.budget, least, &may));
    CHECK(may);
    CHECK_OK(pl_budget_minimum(y.budget, 0, &again));
    CHECK_INT(again, least);
    CHECK_INT(pl_budget_figures_get(y.budget).asked, 0);
    CHECK_OK(pl_budget_set(y.budget, least));
    CHECK(pl_budget_plan(y.budget)->plan->arena_bytes <= least);

    close_lab(&x);
    close_lab(&y);
}

/* A quick search takes a plan after few questions; it refuses what the whole search refuses. */
TEST(plan_quick_searches_ask_little)
{
    lab x = {.store = pl_store_new()}, y = {.store = pl_store_new()};
    uint64_t least;

    CHECK_OK(open_lab(&x, training_graph(x.store, LARGE, 128, 16)));
    CHECK_OK(open_lab(&y, training_graph(y.store, LARGE, 128, 16)));
    pl_budget_quick(y.budget, true);
    CHECK_OK(pl_budget_minimum(x.budget, 0, &least));
    for (int k = 0; k < 3; k++) {
        uint64_t budget = least + (x.keep_all->arena_bytes - least) * (uint64_t)k / 3;
        CHECK_OK(pl_budget_set(x.budget, budget));
        CHECK_OK(pl_budget_set(y.budget, budget));
        const pl_expanded_plan *slow = pl_budget_plan(x.budget), *quick = pl_budget_plan(y.budget);
        pl_budget_figures all = pl_budget_figures_get(x.budget),
                          few = pl_budget_figures_get(y.budget);
        CHECK(quick->plan->arena_bytes <= budget && slow->recompute_ns <= quick->recompute_ns);
        CHECK_MSG(few.asked * 2 < all.asked, "%u asked, the whole search %u", few.asked, all.asked);
        pl_budget_trim(x.budget);
        pl_budget_trim(y.budget);
    }
    CHECK(pl_budget_set(y.budget, least - 1) == PL_ERR_FIT);

    close_lab(&x);
    close_lab(&y);
}

/* A limit on the host memory of a search leaves fewer plans to choose from, but at least one. */
TEST(plan_search_keeps_fewer_lists_with_less_host_memory)
{
    lab x = {.store = pl_store_new()}, y = {.store = pl_store_new()};

    CHECK_OK(open_lab(&x, training_graph(x.store, 22, 64, 32)));
    CHECK_OK(open_lab(&y, training_graph(y.store, 22, 64, 32)));
    uint64_t budget = x.keep_all->arena_bytes * 3 / 4;
    pl_budget_limit(y.budget, NULL, 1);
    CHECK_OK(pl_budget_set(x.budget, budget));
    CHECK_OK(pl_budget_set(y.budget, budget));
    const pl_expanded_plan *a = pl_budget_plan(x.budget), *b = pl_budget_plan(y.budget);
    CHECK(a->plan->arena_bytes <= budget && b->plan->arena_bytes <= budget);

    uint32_t many = pl_budget_figures_get(x.budget).asked,
             few = pl_budget_figures_get(y.budget).asked;
    CHECK_MSG(few * 2 < many, "%u asked, without a limit %u", few, many);
    CHECK(a->recompute_ns <= b->recompute_ns);

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

enum { SOON = 10 }; /* seconds of a core; the searches would take minutes */

TEST(plan_search_stops_when_asked)
{
    lab x = {.store = pl_store_new()};
    later l = {.flag = 1};
    uint64_t least, most;

    CHECK_OK(open_lab(&x, training_graph(x.store, 22, 64, 32)));
    most = x.keep_all->arena_bytes;
    pl_budget_limit(x.budget, &l.flag, 0); /* from the start: after the first attempt */
    CHECK(pl_budget_set(x.budget, most / 2) == PL_ERR_STOPPED);
    CHECK_INT(pl_budget_figures_get(x.budget).asked, 1);
    CHECK(pl_budget_minimum(x.budget, 0, &least) == PL_ERR_STOPPED);
    CHECK(pl_budget_figures_get(x.budget).asked <= 2);
    pl_budget_free(x.budget);
    x.base.effort = (uint64_t)600000 * 1000000; /* during one attempt */
    CHECK_OK(pl_budget_new(&x.base, PL_CHECKPOINT_AUTO, &x.budget));
    pl_budget_limit(x.budget, &l.flag, 0);
    uint64_t begin = used_ns();
    CHECK(start_later(&l, 100));
    CHECK(pl_budget_set(x.budget, most * 3 / 5) == PL_ERR_STOPPED);

    pthread_join(l.thread, NULL);
    CHECK(!pl_budget_plan(x.budget) && used_ns() - begin < (uint64_t)SOON * 1000000000 * PATIENCE);
    CHECK_MSG(strstr(pl_error_text(), "stopped"), "%s", pl_error_text());

    l.flag = 0; /* an aborted search gives no answer later */
    CHECK_OK(pl_budget_minimum(x.budget, most * 3 / 5, &least));
    CHECK(least <= most * 3 / 5);

    close_lab(&x);
}

TEST(pack_stops_when_asked)
{
    enum { N = 400 };
    static pl_pack_buffer b[N];
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
    CHECK_OK(pl_pack_check(b, N, 64, height)); /* the best plan so far */
}

/* A signal during planning: nothing was trained, so nothing is saved. Too early, the program
 * does not handle signals yet; too late, it has a plan. The test tries several moments, measured
 * in processor time, so that other work on the machine does not shift them. */
TEST(cli_signal_aborts_planning)
{
    if (!pl_test_long()) SKIP("long");
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
