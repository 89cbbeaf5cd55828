/* recompute_minimum.c - the smallest budget: a descent, one plan after the other.
 *
 * Finding a plan is quick and giving up is slow, so quick searches come first: a full search finds
 * their results, too. They bisect the range between the lower bound and the smallest budget with a
 * plan, to some thousandths; on very large problems, where a search near the end takes a second, to
 * some hundredths. On small problems full searches then try budgets a little below that result,
 * which the quick searches may have missed.
 *
 * A second descent starts at the end of the first. On large problems it goes down with other
 * settings, first with the setting that found its last plan: in steps that double, from 1/32 on,
 * then by bisection. Where the first descent ended well, the second costs two or three searches; a
 * limit of work ends it.
 *
 * Invariant: every budget that the descent reports has a plan, and the same descent finds it in
 * every process. Cost: at most 24 quick searches and 4 whole ones.
 *
 * Example (recompute.h): the first plan is A B C D E, found = 12; lo = 7, just below the bound.
 *     budget 9: A B C D A E, peak 8; found = 9        budget 8: the same list; found = 8
 * found - lo is 1: quick searches end. Whole searches have no budget left to try. The minimum is 8.
 */
#include "base/sys.h"
#include "plan/recompute/recompute_int.h"

enum {
    QUICK = 24, /* searches of each kind */
    WHOLE = 4,
    SMALL = 1000, /* units */
    LARGE = 3000,
    HUGE = 20000,
    WIDE_WORK = 500000000, /* steps of work of a second descent */
};

typedef struct way {
    const pl__recompute *m;
    const pl_recompute_opts *opts;
    uint64_t lo, found, floor; /* a budget without a plan, the smallest budget with one; the first
                                * lo */
    uint64_t parts;            /* the bisection ends when the range is this fraction of what was
                                * found */
    uint64_t deadline_ns;
    int left; /* remaining searches */
    bool quick, begun, second;
    uint64_t step;          /* of a second descent, until a search fails; 0: bisection */
    uint32_t probe;         /* see pl__recompute_best */
    uint64_t work;          /* steps of work so far */
    pl__recompute_seq plan; /* of `found` */
} way;

/* Finds any plan within the budget: sets *found and *peak; *peak is 0 when none was found. */
static pl_status try_budget(way *w, uint64_t budget, bool few, uint64_t *peak,
                            pl__recompute_seq *found)
{
    pl_recompute_opts o = *w->opts;
    pl__recompute_best b = {0};
    o.budget_bytes = budget;
    o.off |= PL_RECOMPUTE_NO_CHOICE | PL_RECOMPUTE_NO_FILL; /* filling only uses up room */
    if (few) o.off |= PL_RECOMPUTE_NO_EXACT;
    pl_status s = pl__recompute_best_init(&b, w->m, &o);
    b.probes = !few ? PL__PROBE_ALL : w->second ? PL__PROBE_WIDE : PL__PROBE_FEW;
    b.probe = w->probe;
    b.effort = 0;
    if (s == PL_OK) s = pl__recompute_compete(&b);
    w->probe = b.probe;
    w->work += b.grid_work;
    *peak = b.seq.n ? b.seq.peak : 0;
    if (s == PL_OK && b.seq.n) s = pl__recompute_seq_copy(found, &b.seq);
    pl__recompute_best_release(&b);
    return s;
}

static void way_init(way *w, const pl__recompute *m, const pl_recompute_opts *opts,
                     uint64_t refused)
{
    uint32_t unit;
    *w = (way){.m = m,
               .opts = opts,
               .quick = true,
               .left = QUICK,
               .parts = m->n_units > HUGE    ? 30
                        : m->n_units > LARGE ? 100
                                             : 400};
    if (opts->time_limit_s > 0)
        w->deadline_ns = pl_sys_now_ns() + (uint64_t)(opts->time_limit_s * 1e9);
    pl__recompute_lower_bound(m, &w->lo, &unit);
    if (w->lo) w->lo--; /* the bound itself may work */
    if (refused > w->lo) w->lo = refused;
    w->floor = w->lo;
}

static bool is_wide(const way *w)
{
    if (pl_asked(w->opts->stop)) return false;
    if (w->deadline_ns && pl_sys_now_ns() > w->deadline_ns) return false;
    if (w->second && w->work > WIDE_WORK) return false;
    return w->found > w->lo + 1 && w->found - w->lo > w->found / w->parts;
}

static void look_whole(way *w)
{
    w->quick = false;
    w->left = w->m->n_units <= SMALL && !w->second ? WHOLE : 0;
    w->parts = 1000;
    uint64_t below = w->found - w->found / 32;
    w->lo = below > w->floor ? below : w->floor;
}

/* Takes the next plan of the descent, the first is the keep-all plan; *any is false at the end. */
static pl_status go_down(way *w, bool *any)
{
    uint64_t peak = 0;
    *any = true;
    if (!w->begun) {
        w->begun = true;
        return try_budget(w, UINT64_MAX, false, &w->found, &w->plan);
    }
    while (!peak) {
        if (!w->left || !is_wide(w)) {
            if (w->quick) {
                look_whole(w);
                continue;
            }
            *any = false;
            return PL_OK;
        }
        w->left--;
        uint64_t budget = w->lo + (w->found - w->lo) / 2;
        if (w->step && w->found - w->step > budget) budget = w->found - w->step;
        PL_TRY(try_budget(w, budget, w->quick, &peak, &w->plan));
        *(peak ? &w->found : &w->lo) = budget;
        w->step = peak ? 2 * w->step : 0;
    }
    return PL_OK;
}

pl_status pl__recompute_minimum(const pl__recompute *m, const pl_recompute_opts *opts,
                                uint64_t refused, uint64_t *bytes, pl__recompute_seq *plan)
{
    way w;
    pl_status s = PL_OK;
    way_init(&w, m, opts, refused);
    for (bool any = true; s == PL_OK && any;) s = go_down(&w, &any);
    if (s == PL_OK) *bytes = w.found;
    if (s == PL_OK && plan) s = pl__recompute_seq_copy(plan, &w.plan);
    pl__recompute_seq_release(&w.plan);
    return s;
}

pl_status pl_recompute_minimum(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                               uint64_t *bytes)
{
    static const pl_recompute_opts defaults = PL_RECOMPUTE_OPTS_INIT;
    pl__recompute m;
    pl_status s = pl__recompute_build(p, &m);
    if (s == PL_OK) s = pl__recompute_minimum(&m, opts ? opts : &defaults, 0, bytes, NULL);
    pl_arena_release(&m.arena);
    return s;
}

/* ---- step by step ----------------------------------------------------------------------- */
struct pl_recompute_descent {
    pl__recompute m;
    pl_recompute_opts opts;
    way way;
};

pl_status pl_recompute_descent_new(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                                   uint64_t from, pl_recompute_descent **out)
{
    pl_recompute_descent *d = pl_sys_alloc(sizeof *d);
    if (!d) return PL_ERR_MEMORY;
    d->opts = *opts;
    pl_status s = pl__recompute_build(p, &d->m);
    if (s != PL_OK) {
        pl_recompute_descent_free(d);
        return s;
    }
    way_init(&d->way, &d->m, &d->opts, 0);
    if (from) {
        d->way.second = d->way.begun = true;
        d->way.found = from;
        d->way.step = from / 32;
        d->way.parts = 100;
        if (d->m.n_units <= SMALL) d->way.left = 0;
    }
    *out = d;
    return PL_OK;
}

void pl_recompute_descent_free(pl_recompute_descent *d)
{
    if (!d) return;
    pl__recompute_seq_release(&d->way.plan);
    pl_arena_release(&d->m.arena);
    pl_sys_free(d);
}

pl_status pl_recompute_descend(pl_recompute_descent *d, uint64_t *bytes, pl_recompute_plan **plan)
{
    bool any;
    *plan = NULL;
    PL_TRY(go_down(&d->way, &any));
    if (!any) return PL_OK;
    *bytes = d->way.found;
    return pl__recompute_hand_out(&d->m, &d->way.plan, plan);
}
