/* recompute.c - the model of a problem, its bounds, and the driver that lets the solvers compete.
 *
 * The driver runs solvers from cheap to expensive and keeps the cheapest list that fits: every unit
 * once; the dynamic program over cut points; the simulator over its grid of settings; on small
 * problems a best-first search that ends with the optimum; then, within the effort, the search over
 * the simulator's weights. Each candidate is a list of units, measured exactly.
 *
 * Invariant: the best list so far fits the budget, by exact replay (recompute_seq.c). Cost:
 * milliseconds for 500 units, up to seconds for 5,000; the search adds its effort.
 *
 * Example (recompute.h): budget 9. The bound is 8: D needs b and d. A B C D E has a peak of 12, too
 * much. The simulator runs A, B, C; at D it must drop a, and recomputes it for E: A B C D A E, peak
 * 8, cost 6. That is one more than running everything once, and a is the only buffer that can be
 * dropped, so no later solver beats it.
 */
#include "plan/recompute/recompute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "plan/recompute/recompute_int.h"

enum { AUTO_START = 30000000, AUTO_UNITS = 90000 }; /* default effort: constant, and per unit */

/* ---- the model -------------------------------------------------------------------------- */
static unsigned buffer_flags(const pl_recompute_problem *p, uint32_t v)
{
    return p->buffer_flags ? p->buffer_flags[v] : 0;
}

static uint32_t base_of(const pl_recompute_problem *p, uint32_t v)
{
    return p->base ? p->base[v] : PL_RECOMPUTE_NONE;
}

static pl_status set_writers(pl__recompute *m)
{
    const pl_recompute_problem *p = m->p;
    for (uint32_t v = 0; v < m->n_vals; v++) m->writer[v] = PL_RECOMPUTE_NONE;
    for (uint32_t unit = 0; unit < m->n_units; unit++) {
        PL_FAIL_IF(p->in_at[unit] > p->in_at[unit + 1] || p->out_at[unit] > p->out_at[unit + 1],
                   PL_ERR_ARG, "unit %u: its offsets decrease", unit);
        PL_FAIL_IF(!(p->cost[unit] >= 0) || isinf(p->cost[unit]), PL_ERR_ARG,
                   "unit %u: cost %g is not a finite number of at least 0", unit, p->cost[unit]);
        for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
            PL_FAIL_IF(p->out[i] >= m->n_vals, PL_ERR_ARG, "unit %u writes buffer %u of %u", unit,
                       p->out[i], m->n_vals);
            PL_FAIL_IF(m->writer[p->out[i]] != PL_RECOMPUTE_NONE, PL_ERR_ARG,
                       "buffer %u is written by unit %u and by unit %u", p->out[i],
                       m->writer[p->out[i]], unit);
            m->writer[p->out[i]] = unit;
        }
        for (uint32_t i = p->in_at[unit]; i < p->in_at[unit + 1]; i++)
            PL_FAIL_IF(p->in[i] >= m->n_vals, PL_ERR_ARG, "unit %u reads buffer %u of %u", unit,
                       p->in[i], m->n_vals);
    }
    for (uint32_t unit = 0; unit < m->n_units; unit++)
        for (uint32_t i = p->in_at[unit]; i < p->in_at[unit + 1]; i++) {
            uint32_t w = m->writer[p->in[i]];
            PL_FAIL_IF(w != PL_RECOMPUTE_NONE && w >= unit, PL_ERR_ARG,
                       "unit %u reads buffer %u before unit %u writes it", unit, p->in[i], w);
        }
    return PL_OK;
}

/* Sets the owners of views: a view's base is read by its writer, so bases come earlier in the
 * order. */
static pl_status set_owners(pl__recompute *m)
{
    const pl_recompute_problem *p = m->p;
    uint64_t total = 0;
    for (uint32_t v = 0; v < m->n_vals; v++) m->owner[v] = v;
    for (uint32_t unit = 0; unit < m->n_units; unit++) {
        for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
            uint32_t v = p->out[i], base = base_of(p, v);
            if (base == PL_RECOMPUTE_NONE) continue;
            bool reads = false;
            for (uint32_t j = p->in_at[unit]; j < p->in_at[unit + 1]; j++)
                reads = reads || p->in[j] == base;
            PL_FAIL_IF(!reads, PL_ERR_ARG, "view %u: its unit %u does not read its base %u", v,
                       unit, base);
            m->owner[v] = m->owner[base];
        }
    }
    for (uint32_t v = 0; v < m->n_vals; v++) {
        PL_FAIL_IF(base_of(p, v) != PL_RECOMPUTE_NONE && m->writer[v] == PL_RECOMPUTE_NONE,
                   PL_ERR_ARG, "view %u is written by no unit", v);
        m->bytes[v] = m->owner[v] == v ? p->bytes[v] : 0;
        PL_FAIL_IF(m->bytes[v] > INT64_MAX / 4 || total > INT64_MAX / 4, PL_ERR_ARG,
                   "buffer %u is too large: %llu bytes", v, (unsigned long long)p->bytes[v]);
        total += m->bytes[v];
        m->pinned[v] = (buffer_flags(p, m->owner[v]) & PL_RECOMPUTE_PINNED) != 0;
        if (buffer_flags(p, v) & PL_RECOMPUTE_END) m->end[v] = m->end[m->owner[v]] = 1;
    }
    return PL_OK;
}

/* Lists are built in two passes of the same walk: count, then fill. */
typedef void (*pair_fn)(void *ctx, uint32_t from, uint32_t to);
typedef struct builder {
    pl__recompute_list *list;
    uint32_t *fill, *seen; /* seen[to] = from + 1: that pair was the last one with this to */
} builder;

static void count_pair(void *ctx, uint32_t from, uint32_t to)
{
    (void)to;
    builder *b = ctx;
    b->list->at[from + 1]++;
}

static void add_pair(void *ctx, uint32_t from, uint32_t to)
{
    builder *b = ctx;
    b->list->item[b->fill[from]++] = to;
}

static pl_status build_list(pl__recompute *m, pl__recompute_list *list, uint32_t n_from,
                            void (*walk)(const pl__recompute *, pair_fn, void *))
{
    builder b = {.list = list};
    list->at = pl_arena_new(&m->arena, uint32_t, n_from + 2);
    b.fill = pl_arena_new(&m->arena, uint32_t, n_from + 1);
    if (!list->at || !b.fill) return PL_ERR_MEMORY;
    walk(m, count_pair, &b);
    for (uint32_t i = 0; i < n_from; i++) list->at[i + 1] += list->at[i];
    list->item = pl_arena_new(&m->arena, uint32_t, list->at[n_from] + 1);
    if (!list->item) return PL_ERR_MEMORY;
    memcpy(b.fill, list->at, n_from * sizeof *b.fill);
    walk(m, add_pair, &b);
    return PL_OK;
}

static bool is_repeat(const uint32_t *item, uint32_t lo, uint32_t i)
{
    for (uint32_t j = lo; j < i; j++)
        if (item[j] == item[i]) return true;
    return false;
}

static void walk_in(const pl__recompute *m, pair_fn fn, void *ctx)
{
    const pl_recompute_problem *p = m->p;
    for (uint32_t unit = 0; unit < m->n_units; unit++)
        for (uint32_t i = p->in_at[unit]; i < p->in_at[unit + 1]; i++)
            if (!is_repeat(p->in, p->in_at[unit], i)) fn(ctx, unit, p->in[i]);
}

static void walk_needs(const pl__recompute *m, pair_fn fn, void *ctx)
{
    const pl_recompute_problem *p = m->p;
    for (uint32_t unit = 0; unit < m->n_units; unit++)
        for (uint32_t i = p->in_at[unit]; i < p->in_at[unit + 1]; i++) {
            uint32_t r = m->owner[p->in[i]];
            bool seen = m->pinned[r];
            for (uint32_t j = p->in_at[unit]; j < i && !seen; j++) seen = m->owner[p->in[j]] == r;
            if (!seen) fn(ctx, unit, r);
        }
}

static void walk_makes(const pl__recompute *m, pair_fn fn, void *ctx)
{
    const pl_recompute_problem *p = m->p;
    for (uint32_t unit = 0; unit < m->n_units; unit++)
        for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++)
            if (m->owner[p->out[i]] == p->out[i]) fn(ctx, unit, p->out[i]);
}

static void walk_uses(const pl__recompute *m, pair_fn fn, void *ctx)
{
    for (uint32_t unit = 0; unit < m->n_units; unit++)
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++)
            fn(ctx, m->needs.item[i], unit);
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (m->end[v] && m->owner[v] == v) fn(ctx, v, m->n_units);
}

static void walk_feeds(const pl__recompute *m, pair_fn fn, void *ctx)
{
    for (uint32_t unit = 0; unit < m->n_units; unit++)
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++)
            for (uint32_t j = m->makes.at[unit]; j < m->makes.at[unit + 1]; j++)
                fn(ctx, m->needs.item[i], m->makes.item[j]);
}

static void walk_views(const pl__recompute *m, pair_fn fn, void *ctx)
{
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (m->owner[v] != v) fn(ctx, m->owner[v], v);
}

pl_status pl__recompute_build(const pl_recompute_problem *p, pl__recompute *m)
{
    *m = (pl__recompute){.p = p, .n_units = p->n_units, .n_vals = p->n_buffers, .cost = p->cost};
    m->owner = pl_arena_new(&m->arena, uint32_t, p->n_buffers + 1);
    m->writer = pl_arena_new(&m->arena, uint32_t, p->n_buffers + 1);
    m->bytes = pl_arena_new(&m->arena, uint64_t, p->n_buffers + 1);
    m->pinned = pl_arena_new(&m->arena, uint8_t, p->n_buffers + 1);
    m->end = pl_arena_new(&m->arena, uint8_t, p->n_buffers + 1);
    m->once = pl_arena_new(&m->arena, uint8_t, p->n_units + 1);
    m->time = pl_arena_new(&m->arena, double, p->n_units + 2);
    if (!m->owner || !m->writer || !m->bytes || !m->pinned || !m->end || !m->once || !m->time)
        return PL_ERR_MEMORY;
    PL_TRY(set_writers(m));
    PL_TRY(set_owners(m));
    PL_TRY(build_list(m, &m->in, m->n_units, walk_in));
    PL_TRY(build_list(m, &m->needs, m->n_units, walk_needs));
    PL_TRY(build_list(m, &m->makes, m->n_units, walk_makes));
    PL_TRY(build_list(m, &m->uses, m->n_vals, walk_uses));
    PL_TRY(build_list(m, &m->feeds, m->n_vals, walk_feeds));
    PL_TRY(build_list(m, &m->views, m->n_vals, walk_views));
    for (uint32_t unit = 0; unit < m->n_units; unit++) {
        m->once[unit] = p->unit_flags && (p->unit_flags[unit] & PL_RECOMPUTE_ONCE);
        m->time[unit + 1] = m->time[unit] + p->cost[unit];
    }
    m->time[m->n_units + 1] = m->time[m->n_units];
    m->base_cost = m->time[m->n_units];
    return PL_OK;
}

/* ---- bounds ----------------------------------------------------------------------------- */
void pl__recompute_lower_bound(const pl__recompute *m, uint64_t *bytes, uint32_t *unit_out)
{
    uint64_t pinned = 0, at_end = 0;
    for (uint32_t v = 0; v < m->n_vals; v++) {
        if (m->pinned[v] && m->writer[v] == PL_RECOMPUTE_NONE) pinned += m->bytes[v];
        if (m->pinned[v] || m->end[v]) at_end += m->bytes[v];
    }
    *bytes = at_end;
    *unit_out = PL_RECOMPUTE_NONE;
    for (uint32_t unit = 0; unit < m->n_units; unit++) {
        uint64_t need = pinned + pl__recompute_work(m, unit);
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++)
            need += m->bytes[m->needs.item[i]];
        for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++) {
            uint32_t r = m->makes.item[i];
            need += m->bytes[r];
            if (m->pinned[r]) pinned += m->bytes[r];
        }
        if (need > *bytes) {
            *bytes = need;
            *unit_out = unit;
        }
    }
}

pl_status pl_recompute_bound(const pl_recompute_problem *p, uint64_t *bytes, uint32_t *unit)
{
    pl__recompute m;
    pl_status s = pl__recompute_build(p, &m);
    if (s == PL_OK) pl__recompute_lower_bound(&m, bytes, unit);
    pl_arena_release(&m.arena);
    return s;
}

/* ---- competition ------------------------------------------------------------------------ */
bool pl__recompute_late(const pl__recompute_best *b)
{
    return pl__recompute_stopped(b) || (b->deadline_ns && pl_sys_now_ns() > b->deadline_ns);
}

pl_status pl__recompute_offer(pl__recompute_best *b, const uint32_t *unit, uint32_t n,
                              const char *strategy, bool *better)
{
    bool ok;
    if (better) *better = false;
    const pl__recompute_seq given = {
        .unit = (uint32_t *)(uintptr_t)unit, .n = n, .strategy = strategy};
    PL_TRY(pl__recompute_seq_copy(&b->work, &given));
    PL_TRY(pl__recompute_tighten(b->eval, &b->work, &ok));
    if (!ok) return PL_OK;
    if (b->work.peak < b->least_peak) b->least_peak = b->work.peak;
    if (b->work.peak > b->budget) return PL_OK;
    if (!(b->opts->off & PL_RECOMPUTE_NO_FILL) && b->work.n > b->m->n_units)
        PL_TRY(pl__recompute_fill(b->eval, &b->work, b->budget, false));
    if (b->seq.n && b->work.cost >= b->seq.cost) return PL_OK;
    if (b->work.cost < b->floor) return PL_OK;
    if (better) *better = true;
    return pl__recompute_seq_copy(&b->seq, &b->work);
}

pl_status pl__recompute_offer_once(pl__recompute_best *b)
{
    pl__recompute_seq all = {0};
    pl_status s = PL_OK;
    for (uint32_t unit = 0; unit < b->m->n_units && s == PL_OK; unit++)
        s = pl__recompute_seq_push(&all, unit);
    if (s == PL_OK) s = pl__recompute_offer(b, all.unit, all.n, "keep all", NULL);
    if (s == PL_OK && b->seq.n) b->optimal = true;
    pl__recompute_seq_release(&all);
    return s;
}

static pl_status offer_pool(pl__recompute_best *b)
{
    for (uint32_t i = 0; i < b->opts->n_pool; i++) {
        const pl_recompute_plan *plan = b->opts->pool[i];
        if (plan && plan->peak_bytes <= b->budget)
            PL_TRY(pl__recompute_offer(b, plan->unit, plan->n, plan->strategy, NULL));
    }
    return PL_OK;
}

pl_status pl__recompute_compete(pl__recompute_best *b)
{
    PL_TRY(pl__recompute_offer_once(b));
    if (b->optimal) return PL_OK;
    PL_TRY(offer_pool(b));
    if (!(b->opts->off & PL_RECOMPUTE_NO_CHAIN)) PL_TRY(pl__recompute_chain(b));
    return b->opts->off & PL_RECOMPUTE_NO_SIM || pl__recompute_stopped(b)
               ? PL_OK
               : pl__recompute_simulate(b);
}

pl_status pl__recompute_best_init(pl__recompute_best *b, const pl__recompute *m,
                                  const pl_recompute_opts *opts)
{
    *b = (pl__recompute_best){.m = m,
                              .opts = opts,
                              .budget = opts->budget_bytes,
                              .least_peak = UINT64_MAX,
                              .any = (opts->off & PL_RECOMPUTE_NO_CHOICE) != 0};
    if (b->budget > INT64_MAX) b->budget = INT64_MAX;
    b->effort = opts->effort == PL_RECOMPUTE_EFFORT_AUTO
                    ? AUTO_START + (uint64_t)m->n_units * AUTO_UNITS
                    : opts->effort;
    if (opts->time_limit_s > 0)
        b->deadline_ns = pl_sys_now_ns() + (uint64_t)(opts->time_limit_s * 1e9);
    return pl__recompute_eval_new(m, &b->eval);
}

void pl__recompute_best_release(pl__recompute_best *b)
{
    pl__recompute_seq_release(&b->seq);
    pl__recompute_seq_release(&b->work);
    pl__recompute_eval_free(b->eval);
}

/* ---- the returned plan ------------------------------------------------------------------ */
void pl_recompute_plan_free(pl_recompute_plan *p)
{
    pl_sys_free(p);
}

/* Lists, for each position, the owners whose copy ends there. */
static uint32_t list_ends(const pl__recompute *m, const pl__recompute_seq *s, uint32_t *copy_owner,
                          uint32_t *copy_end, uint32_t *now)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < m->n_vals; v++) {
        now[v] = PL_RECOMPUTE_NONE;
        if (m->writer[v] != PL_RECOMPUTE_NONE || m->owner[v] != v || m->pinned[v]) continue;
        now[v] = n;
        copy_owner[n] = v;
        copy_end[n++] = 0;
    }
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t unit = s->unit[k];
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++)
            copy_end[now[m->needs.item[i]]] = k;
        for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++) {
            uint32_t r = m->makes.item[i];
            if (m->pinned[r]) continue;
            now[r] = n;
            copy_owner[n] = r;
            copy_end[n++] = k;
        }
    }
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (m->end[v] && m->owner[v] == v && now[v] != PL_RECOMPUTE_NONE)
            copy_end[now[v]] = PL_RECOMPUTE_NONE;
    return n;
}

pl_status pl__recompute_hand_out(const pl__recompute *m, const pl__recompute_seq *s,
                                 pl_recompute_plan **out)
{
    size_t copies = m->n_vals;
    for (uint32_t k = 0; k < s->n; k++)
        copies += m->makes.at[s->unit[k] + 1] - m->makes.at[s->unit[k]];
    pl_arena a = PL_ARENA_INIT;
    uint32_t *owner = pl_arena_new(&a, uint32_t, copies + 1);
    uint32_t *end = pl_arena_new(&a, uint32_t, copies + 1);
    uint32_t *now = pl_arena_new(&a, uint32_t, m->n_vals + 1);
    size_t words = (size_t)s->n * 2 + 2 + copies;
    pl_recompute_plan *plan = pl_sys_alloc(sizeof *plan + words * sizeof(uint32_t));
    if (!owner || !end || !now || !plan) {
        pl_arena_release(&a);
        pl_sys_free(plan);
        return PL_ERR_MEMORY;
    }
    uint32_t *unit = (uint32_t *)(plan + 1), *drop_at = unit + s->n, *drop = drop_at + s->n + 2;
    uint32_t n = list_ends(m, s, owner, end, now);
    if (s->n) memcpy(unit, s->unit, s->n * sizeof *unit);
    /* Counting sort by position; offsets are stored two cells up, so that the fill leaves the final
     * offsets. */
    for (uint32_t c = 0; c < n; c++)
        if (end[c] < s->n) drop_at[end[c] + 2]++;
    for (uint32_t k = 0; k < s->n; k++) drop_at[k + 2] += drop_at[k + 1];
    for (uint32_t c = 0; c < n; c++)
        if (end[c] < s->n) drop[drop_at[end[c] + 1]++] = owner[c];
    *plan = (pl_recompute_plan){.n = s->n,
                                .unit = unit,
                                .drop_at = drop_at,
                                .drop = drop,
                                .peak_bytes = s->peak,
                                .cost_ns = s->cost,
                                .base_cost_ns = m->base_cost,
                                .strategy = s->strategy};
    pl_arena_release(&a);
    *out = plan;
    return PL_OK;
}

/* ---- entry points ----------------------------------------------------------------------- */
pl_status pl__recompute_refuse_below_bound(const pl__recompute *m, uint64_t budget)
{
    uint64_t bound;
    uint32_t unit;
    pl__recompute_lower_bound(m, &bound, &unit);
    if (budget >= bound) return PL_OK;
    PL_FAIL_IF(unit == PL_RECOMPUTE_NONE, PL_ERR_FIT,
               "%llu bytes cannot hold the buffers that are needed at the end: %llu bytes",
               (unsigned long long)budget, (unsigned long long)bound);
    PL_FAIL(
        PL_ERR_FIT,
        "no plan fits %llu bytes: unit %u alone needs %llu bytes for pinned buffers, its inputs, "
        "outputs and workspace",
        (unsigned long long)budget, unit, (unsigned long long)bound);
}

/* Undoes recompute in the best list, with exact figures. */
static pl_status fill_best(pl__recompute_best *b)
{
    if (b->opts->off & PL_RECOMPUTE_NO_FILL || b->seq.n <= b->m->n_units) return PL_OK;
    PL_TRY(pl__recompute_seq_copy(&b->work, &b->seq));
    PL_TRY(pl__recompute_fill(b->eval, &b->work, b->budget, true));
    if (b->work.cost >= b->seq.cost || b->work.cost < b->floor) return PL_OK;
    return pl__recompute_seq_copy(&b->seq, &b->work);
}

static pl_status solve(const pl__recompute *m, const pl_recompute_opts *opts, pl__recompute_best *b)
{
    PL_TRY(pl__recompute_best_init(b, m, opts));
    PL_TRY(pl__recompute_refuse_below_bound(m, b->budget));
    PL_TRY(pl__recompute_compete(b));
    return fill_best(b);
}

static pl_status fail_unfound(const pl__recompute *m, const pl_recompute_opts *opts)
{
    uint64_t minimum;
    PL_FAIL_IF(opts->off & PL_RECOMPUTE_NO_MINIMUM, PL_ERR_FIT, "no plan found for %llu bytes",
               (unsigned long long)opts->budget_bytes);
    PL_TRY(pl__recompute_minimum(m, opts, opts->budget_bytes, &minimum, NULL));
    PL_FAIL(PL_ERR_FIT, "no plan found for %llu bytes; the smallest budget with one is %llu bytes",
            (unsigned long long)opts->budget_bytes, (unsigned long long)minimum);
}

static const pl_recompute_opts defaults = PL_RECOMPUTE_OPTS_INIT;

pl_status pl_recompute_keep_all(const pl_recompute_problem *p, uint64_t *bytes)
{
    pl__recompute m;
    pl__recompute_best b = {0};
    pl_status s = pl__recompute_build(p, &m);
    if (s == PL_OK) s = pl__recompute_best_init(&b, &m, &defaults);
    if (s == PL_OK) s = pl__recompute_offer_once(&b);
    if (s == PL_OK) *bytes = b.seq.peak;
    pl__recompute_best_release(&b);
    pl_arena_release(&m.arena);
    return s;
}

pl_status pl_recompute_solve(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                             pl_recompute_plan **out)
{
    if (!opts) opts = &defaults;
    pl__recompute m;
    pl__recompute_best b = {0};
    pl_status s = pl__recompute_build(p, &m);
    if (s == PL_OK) s = solve(&m, opts, &b);
    if (s == PL_OK)
        s = b.seq.n || !p->n_units ? pl__recompute_hand_out(&m, &b.seq, out)
                                   : fail_unfound(&m, opts);
    pl__recompute_best_release(&b);
    pl_arena_release(&m.arena);
    return s;
}

/* ---- the ladder of budgets ------------------------------------------------------------------ */
uint64_t pl_recompute_rung(uint64_t budget, uint64_t bound, uint64_t scale, uint32_t rungs)
{
    if (budget < bound) return 0;
    uint64_t above = budget - bound;
    uint64_t parts = rungs * (above >= scale / 10 ? 1u : above >= scale / 20 ? 2u : 4u);
    /* Rounded like a share of the scale, so that a budget given as such a share is its own rung. */
    uint64_t k = (uint64_t)((double)budget / (double)scale * (double)parts + 1e-6);
    uint64_t rung = (uint64_t)((double)scale * ((double)k / (double)parts));
    return rung < bound ? bound : rung > budget ? budget : rung;
}
