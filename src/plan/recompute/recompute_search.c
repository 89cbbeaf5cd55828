/* recompute_search.c - many runs of the simulator: a grid of settings, then perturbed weights.
 *
 * No single setting of the eviction score wins everywhere, so the whole grid runs. A run at a
 * somewhat smaller budget leaves room that undoing recomputation (recompute_fill.c) uses better
 * than the simulator would have, so part of the grid runs at such a budget too. Settings run a few
 * at a time, on as many threads; a run is stopped only by the cost of the batches before its own,
 * so that the plans do not depend on the threads.
 *
 * The search then changes the weights of one to three buffers that were dropped, or of all buffers
 * that play the same part in repeated layers (recompute_repeat.c), runs again, and keeps what is
 * not worse after tightening and filling. It starts from the best few settings in turn and spends
 * what is left on the best. Every candidate is measured exactly.
 *
 * Invariant: the result is a function of problem, options and seed, for any number of threads.
 * Cost: one simulation for each setting of the grid, then as many as opts->effort pays for.
 *
 * Example: a grid run at budget 8 drops x (4 bytes, cost 3) rather than y (4 bytes, cost 2), since
 * x is wanted later. The search doubles the weight of x: the rerun, from the checkpoint before that
 * drop, drops y and recomputes it for 2. Cheaper by 1, so the new weights are kept; the next change
 * starts from them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/sys.h"
#include "base/threads.h"
#include "plan/recompute/recompute_int.h"

enum {
    MAX_CHANGES = 3,  /* weights changed at once */
    ANY_IN = 8,       /* one change in so many is of a buffer that need not have been dropped */
    LARGE = 500,      /* a buffer is large from this part of the budget on */
    OFFER_UNITS = 40, /* work of tightening and filling, for each position */
};

/* ---- the grid --------------------------------------------------------------------------- */
static const float size_powers[] = {1, 0.5f, 1.5f}, gap_powers[] = {0.25f, 0, 0.5f, 1},
                   kins[] = {0.3f, 0, 1};
enum {
    N_GRID = 36,
    N_TIGHT = 12,
    N_FIRST = 3,         /* settings that always run; others run while the work is below */
    GRID_UNITS = 400000, /* this for each unit */
    N_WINNERS = 20,      /* settings that run without the whole grid */
    N_FEW = 16,          /* when these settings have failed and the work exceeds */
    FAIL_UNITS = 200000, /* this for each unit, the budget is given up */
    N_PROBE = 3,         /* settings of a quick search, */
    N_WIDE = 6,          /* or of a wide one; each stops at a cost of */
    PROBE_COST = 4,      /* this many steps without recompute; */
    PROBE_ONE = 20000,   /* one setting beyond this many units */
    N_LANES = 6,         /* settings that run at a time, */
    MANY_OPS = 250,      /* on problems of at least this many units */
};

/* The whole grid at the budget itself; then the part of it with the first share of descendants'
 * cost once more, at a smaller budget and with waiting counted in units. */
static pl__recompute_setting grid_setting(uint32_t i)
{
    uint32_t part = i < N_GRID ? 0 : 1 + (i - N_GRID) / N_TIGHT;
    uint32_t at = i < N_GRID ? i : (i - N_GRID) % N_TIGHT;
    return (pl__recompute_setting){.size_power = size_powers[at % 3],
                                   .gap_power = gap_powers[at / 3 % 4],
                                   .kin = kins[at / 12],
                                   .tight = part == 1 ? 0.96f : 1,
                                   .by_index = part == 2};
}

/* Settings that win most often; settings that complement each other come first: together they are
 * within 0.1 % of the recompute of the whole grid on average. */
static const uint8_t winners[N_WINNERS] = {13, 17, 24, 28, 37, 49, 3,  21, 4, 31,
                                           27, 22, 40, 6,  46, 33, 25, 0,  1, 9};

/* Settings that together find the smallest budgets. The first one finds most of them. */
static const uint8_t wide[N_WIDE] = {21, 6, 5, 1, 0, 2};

/* Returns the number in `wide` of setting i of a search: the setting that found the last plan runs
 * first. */
static uint32_t wide_at(const pl__recompute_best *b, uint32_t i)
{
    return i == 0 ? b->probe : i <= b->probe ? i - 1 : i;
}

/* Returns setting i of a search. */
static uint32_t setting_at(const pl__recompute_best *b, uint32_t i)
{
    if (b->probes == PL__PROBE_WIDE) return wide[wide_at(b, i)];
    return b->opts->off & PL_RECOMPUTE_NO_WHOLE ? winners[i] : i;
}

static void note_start(pl__recompute_starts *st, const pl__recompute_setting *set, double cost)
{
    uint32_t i = st->n < PL__RECOMPUTE_STARTS ? st->n++ : PL__RECOMPUTE_STARTS;
    if (i == PL__RECOMPUTE_STARTS && cost >= st->cost[--i]) return;
    for (; i > 0 && st->cost[i - 1] > cost; i--) {
        st->cost[i] = st->cost[i - 1];
        st->set[i] = st->set[i - 1];
    }
    st->cost[i] = cost;
    st->set[i] = *set;
}

static double limit_of(const pl__recompute_best *b, double factor)
{
    if (b->probes) return PROBE_COST * b->m->base_cost;
    return b->seq.n ? b->m->base_cost + (b->seq.cost - b->m->base_cost) * factor : HUGE_VAL;
}

static pl_status offer_run(pl__recompute_best *b, const pl__recompute_sim *sim,
                           const char *strategy, double *cost)
{
    const pl__recompute_seq *s = pl__recompute_sim_seq(sim);
    *cost = HUGE_VAL;
    PL_TRY(pl__recompute_offer(b, s->unit, s->n, strategy, NULL));
    if (b->work.peak <= b->budget) *cost = b->work.cost;
    return PL_OK;
}

/* What one running setting needs: a simulator, and its own best plan to improve. */
typedef struct lane {
    pl__recompute_sim *sim;
    pl__recompute_best best;
    pl__recompute_setting set;
    double limit, cost; /* cost: HUGE_VAL when the run found nothing */
    pl_status status;
} lane;

typedef struct lanes {
    lane lane[N_LANES];
    uint32_t n;
} lanes;

static void lanes_release(lanes *l)
{
    for (uint32_t i = 1; i < l->n; i++) pl__recompute_sim_free(l->lane[i].sim);
    for (uint32_t i = 0; i < l->n; i++) {
        pl__recompute_seq_release(&l->lane[i].best.seq);
        pl__recompute_seq_release(&l->lane[i].best.work);
        pl__recompute_eval_free(l->lane[i].best.eval);
    }
}

/* Creates the lanes. The first lane borrows the given simulator. */
static pl_status lanes_new(const pl__recompute_best *b, pl__recompute_sim *sim, lanes *l)
{
    uint32_t n = b->any || b->probes || b->m->n_units < MANY_OPS ? 1 : N_LANES;
    for (uint32_t i = 0; i < n; i++) {
        lane *a = &l->lane[l->n++];
        a->best = (pl__recompute_best){
            .m = b->m, .opts = b->opts, .budget = b->budget, .least_peak = UINT64_MAX};
        a->sim = i ? NULL : sim;
        if (i) PL_TRY(pl__recompute_sim_new(b->m, &a->sim));
        PL_TRY(pl__recompute_eval_new(b->m, &a->best.eval));
    }
    return PL_OK;
}

static uint64_t lanes_work(const lanes *l)
{
    uint64_t work = 0;
    for (uint32_t i = 0; i < l->n; i++) work += pl__recompute_sim_work(l->lane[i].sim);
    return work;
}

static void run_lane(void *ctx, int64_t i, int worker)
{
    (void)worker;
    lane *a = &((lanes *)ctx)->lane[i];
    bool ok = false;
    a->cost = HUGE_VAL;
    a->best.seq.n = 0;
    a->status = pl__recompute_sim_run(a->sim, &a->set, a->best.budget, NULL, a->limit, &ok);
    if (a->status == PL_OK && ok) a->status = offer_run(&a->best, a->sim, "grid", &a->cost);
}

/* Runs settings `first` and following, at most one per lane, and offers their results. */
static pl_status run_few(pl__recompute_best *b, lanes *l, uint32_t first, uint32_t n,
                         pl__recompute_starts *st)
{
    for (uint32_t i = 0; i < n; i++) {
        l->lane[i].set = grid_setting(setting_at(b, first + i));
        l->lane[i].limit = limit_of(b, 2);
    }
    pl_threads_for(n, run_lane, l);
    for (uint32_t i = 0; i < n; i++) {
        const lane *a = &l->lane[i];
        PL_TRY(a->status);
        if (a->best.least_peak < b->least_peak) b->least_peak = a->best.least_peak;
        if (a->cost == HUGE_VAL) continue;
        note_start(st, &a->set, a->cost);
        if (b->probes == PL__PROBE_WIDE) b->probe = wide_at(b, first + i);
        if ((!b->seq.n || a->cost < b->seq.cost) && a->cost >= b->floor)
            PL_TRY(pl__recompute_seq_copy(&b->seq, &a->best.seq));
    }
    return PL_OK;
}

static pl_status run_settings(pl__recompute_best *b, lanes *l, uint32_t most,
                              pl__recompute_starts *st)
{
    uint32_t n = N_GRID + 2 * N_TIGHT;
    if (b->probes) n = b->probes == PL__PROBE_WIDE ? N_WIDE : N_PROBE;
    if (b->probes && b->m->n_units > PROBE_ONE) n = 1;
    if (b->opts->off & PL_RECOMPUTE_NO_GRID) n = 1;
    if (n > N_WINNERS && b->opts->off & PL_RECOMPUTE_NO_WHOLE) n = N_WINNERS;
    if (n > most) n = most;
    uint32_t enough = b->opts->off & PL_RECOMPUTE_NO_WHOLE ? N_FEW / 2 : N_FEW;
    for (uint32_t i = 0, few; i < n && !(b->seq.n && pl__recompute_late(b)); i += few) {
        uint64_t work = lanes_work(l), units = b->m->n_units;
        few = n - i < l->n ? n - i : l->n;
        if (pl__recompute_stopped(b)) break;
        if (b->seq.n ? b->any : i >= enough && work > FAIL_UNITS * units) break;
        if (i >= N_FIRST && work > GRID_UNITS * units) break;
        PL_TRY(run_few(b, l, i, few, st));
    }
    return PL_OK;
}

pl_status pl__recompute_grid(pl__recompute_best *b, pl__recompute_sim *sim, uint32_t most,
                             pl__recompute_starts *st)
{
    lanes l = {.n = 0};
    pl_status s = lanes_new(b, sim, &l);
    if (s == PL_OK) s = run_settings(b, &l, most, st);
    b->grid_work = s == PL_OK ? lanes_work(&l) : 0;
    lanes_release(&l);
    return s;
}

/* ---- the search ------------------------------------------------------------------------- */
typedef pl__recompute_search search;
struct pl__recompute_search {
    pl__recompute_best *b;
    pl__recompute_sim *sim;
    uint64_t rng;
    float *weight;     /* of each value: weights of the candidate */
    uint32_t *dropped; /* values dropped in the last accepted run */
    uint32_t n_dropped;
    double *dropped_bytes; /* of the values before each of these, and of all */
    uint32_t *large;       /* values that are worth dropping at all */
    uint32_t n_large;
    pl__recompute_repeat repeat;
    uint32_t n_changed, n_old; /* values changed: in this run, and in the run before if it was
                                * refused */
    uint32_t *changed;         /* the run before, then this run */
    float *was;                /* weights before the changes of this run */
    double cost;               /* of the last accepted run, filled */
    uint64_t work;             /* spent on offers */
    /* what the last search ended with */
    pl__recompute_setting best;
    float *best_weight;
    bool any; /* best and best_weight are set */
    pl_arena arena;
};

static uint64_t draw(search *s)
{
    return pl_mix64(s->rng += PL_GOLDEN64);
}

static double draw_unit(search *s)
{
    return (double)(draw(s) >> 11) * 0x1p-53;
}

static void list_large(search *s)
{
    const pl__recompute *m = s->b->m;
    s->n_large = 0;
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (!m->pinned[v] && !m->end[v] && m->bytes[v] > s->b->budget / LARGE &&
            m->uses.at[v] < m->uses.at[v + 1])
            s->large[s->n_large++] = v;
}

static void list_dropped(search *s)
{
    const uint16_t *drops = pl__recompute_sim_drops(s->sim);
    double bytes = 0;
    s->n_dropped = 0;
    for (uint32_t v = 0; v < s->b->m->n_vals; v++) {
        if (!drops[v]) continue;
        s->dropped_bytes[s->n_dropped] = bytes;
        s->dropped[s->n_dropped++] = v;
        bytes += (double)s->b->m->bytes[v];
    }
    s->dropped_bytes[s->n_dropped] = bytes;
}

/* Draws a value: one in ANY_IN need not have been dropped; most are dropped ones, drawn by their
 * bytes: a few large buffers matter more than hundreds of small ones. */
static uint32_t draw_value(search *s)
{
    if (s->n_large && draw(s) % ANY_IN == 0) return s->large[draw(s) % s->n_large];
    if (draw(s) % 4 == 0) return s->dropped[draw(s) % s->n_dropped];
    double at = draw_unit(s) * s->dropped_bytes[s->n_dropped];
    uint32_t lo = 0, hi = s->n_dropped;
    while (lo + 1 < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        *(s->dropped_bytes[mid] <= at ? &lo : &hi) = mid;
    }
    return s->dropped[lo];
}

static void change(search *s, uint32_t v, float factor)
{
    s->was[s->n_changed] = s->weight[v];
    s->weight[v] *= factor;
    s->changed[s->n_old + s->n_changed++] = v;
}

/* Draws new weights for some buffers: e^-3 to e^3 times the old weight, mostly e^-1.5 to e^1.5.
 * Half of the changes are made to all buffers that play the same part in repeated layers. */
static void perturb(search *s)
{
    uint32_t n = 1 + (uint32_t)(draw(s) % MAX_CHANGES);
    s->n_changed = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = draw_value(s), first = s->repeat.first[v];
        double range = draw(s) % 2 ? 3 : 6;
        float factor = (float)exp(range * (draw_unit(s) - 0.5));
        if (draw(s) % 2)
            change(s, v, factor);
        else
            for (uint32_t k = first; k < first + s->repeat.n[v]; k++)
                change(s, s->repeat.member[k], factor);
    }
}

/* Restores the weights, last change first, as a value may have been drawn twice. */
static void revert(search *s)
{
    for (uint32_t i = s->n_changed; i-- > 0;) s->weight[s->changed[s->n_old + i]] = s->was[i];
    memmove(s->changed, s->changed + s->n_old, s->n_changed * sizeof *s->changed);
    s->n_old = s->n_changed;
}

static pl_status step(search *s)
{
    bool ok;
    double cost = HUGE_VAL, base = s->b->m->base_cost;
    perturb(s);
    PL_TRY(pl__recompute_sim_rerun(s->sim, s->weight, s->changed, s->n_old + s->n_changed,
                                   base + (s->cost - base) * 1.3, &ok));
    if (ok) {
        PL_TRY(offer_run(s->b, s->sim, "search", &cost));
        s->work += OFFER_UNITS * (uint64_t)s->b->work.n;
    }
    if (cost > s->cost) {
        revert(s);
        return PL_OK;
    }
    s->cost = cost;
    s->n_old = 0;
    list_dropped(s);
    return PL_OK;
}

static uint64_t spent(const search *s)
{
    return pl__recompute_sim_work(s->sim) + s->work;
}

/* Searches from one setting and weights (NULL: ones) until `until` units are spent in all. */
static pl_status search_from(search *s, const pl__recompute_setting *set, const float *from,
                             uint64_t until)
{
    bool ok;
    for (uint32_t v = 0; v < s->b->m->n_vals; v++) s->weight[v] = from ? from[v] : 1;
    PL_TRY(pl__recompute_sim_run(s->sim, set, s->b->budget, s->weight, HUGE_VAL, &ok));
    if (!ok) return PL_OK;
    PL_TRY(offer_run(s->b, s->sim, "search", &s->cost));
    s->n_old = 0;
    list_dropped(s);
    if (!s->n_dropped || s->cost == HUGE_VAL) return PL_OK;
    while (spent(s) < until && !pl__recompute_late(s->b)) PL_TRY(step(s));
    return PL_OK;
}

/* Keeps the weights of the last search if it was the best so far. */
static void keep_weights(search *s, const pl__recompute_setting *set, double *best)
{
    if (s->cost >= *best) return;
    *best = s->cost;
    s->best = *set;
    s->any = true;
    memcpy(s->best_weight, s->weight, s->b->m->n_vals * sizeof *s->best_weight);
}

pl_status pl__recompute_search_new(pl__recompute_best *b, pl__recompute_sim *sim, search **out)
{
    search *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    uint32_t n = b->m->n_vals + 1;
    s->b = b;
    s->sim = sim;
    s->rng = b->opts->seed;
    s->weight = pl_arena_new(&s->arena, float, n);
    s->best_weight = pl_arena_new(&s->arena, float, n);
    s->dropped = pl_arena_new(&s->arena, uint32_t, n);
    s->large = pl_arena_new(&s->arena, uint32_t, n);
    s->dropped_bytes = pl_arena_new(&s->arena, double, n + 1);
    s->changed = pl_arena_new(&s->arena, uint32_t, (size_t)2 * MAX_CHANGES * n);
    s->was = pl_arena_new(&s->arena, float, (size_t)MAX_CHANGES *n);
    bool ok = s->weight && s->best_weight && s->dropped && s->large && s->dropped_bytes &&
              s->changed && s->was;
    if (!ok || pl__recompute_repeats(b->m, &s->arena, &s->repeat) != PL_OK) {
        pl__recompute_search_free(s);
        return PL_ERR_MEMORY;
    }
    *out = s;
    return PL_OK;
}

void pl__recompute_search_free(search *s)
{
    if (!s) return;
    pl_arena_release(&s->arena);
    pl_sys_free(s);
}

void pl__recompute_search_copy(search *to, const search *from)
{
    to->rng = from->rng;
    to->best = from->best;
    to->any = from->any;
    memcpy(to->best_weight, from->best_weight, from->b->m->n_vals * sizeof *to->best_weight);
}

pl_status pl__recompute_search_from(search *s, const pl__recompute_starts *st, uint64_t effort)
{
    uint64_t begin = spent(s);
    double best = HUGE_VAL;
    list_large(s);
    s->any = false;
    for (uint32_t i = 0; i < st->n; i++) {
        s->cost = HUGE_VAL;
        PL_TRY(search_from(s, &st->set[i], NULL, begin + effort / 2 * (i + 1) / st->n));
        keep_weights(s, &st->set[i], &best);
    }
    return s->any ? search_from(s, &s->best, s->best_weight, begin + effort) : PL_OK;
}

pl_status pl__recompute_search_on(search *s, uint64_t effort)
{
    double best = HUGE_VAL;
    pl__recompute_setting set = s->best;
    if (!s->any) return PL_OK;
    list_large(s);
    s->cost = HUGE_VAL;
    PL_TRY(search_from(s, &set, s->best_weight, spent(s) + effort));
    keep_weights(s, &set, &best);
    return PL_OK;
}

static pl_status run_search(pl__recompute_best *b, pl__recompute_sim *sim,
                            const pl__recompute_starts *st)
{
    search *s = NULL;
    PL_TRY(pl__recompute_search_new(b, sim, &s));
    pl_status status = pl__recompute_search_from(s, st, b->effort);
    pl__recompute_search_free(s);
    return status;
}

/* ---- the memo ----------------------------------------------------------------------------- */
enum { MEMOS = 4 };
struct pl_recompute_memo {
    struct {
        bool any; /* the entry is set */
        uint64_t budget;
        uint32_t off, settings;
        pl__recompute_starts starts;
        pl__recompute_seq seq;
    } entry[MEMOS];
    uint32_t next; /* the entry that is replaced next */
};

pl_status pl_recompute_memo_new(pl_recompute_memo **out)
{
    *out = pl_sys_alloc(sizeof **out);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

void pl_recompute_memo_free(pl_recompute_memo *memo)
{
    if (!memo) return;
    for (int i = 0; i < MEMOS; i++) pl__recompute_seq_release(&memo->entry[i].seq);
    pl_sys_free(memo);
}

static pl_status note_grid(const pl__recompute_best *b, const pl__recompute_starts *st)
{
    pl_recompute_memo *memo = b->opts->memo;
    if (!memo || pl__recompute_late(b)) return PL_OK;
    uint32_t i = memo->next++ % MEMOS;
    memo->entry[i].any = true;
    memo->entry[i].budget = b->budget;
    memo->entry[i].off = b->opts->off;
    memo->entry[i].settings = b->opts->settings;
    memo->entry[i].starts = *st;
    return pl__recompute_seq_copy(&memo->entry[i].seq, &b->seq);
}

/* Takes the results of the grid at this budget from the memo; *found: it has them. */
static pl_status recall_grid(pl__recompute_best *b, pl__recompute_starts *st, bool *found)
{
    const pl_recompute_memo *memo = b->opts->memo;
    *found = false;
    for (int i = 0; memo && i < MEMOS; i++) {
        if (!memo->entry[i].any || memo->entry[i].budget != b->budget ||
            memo->entry[i].off != b->opts->off || memo->entry[i].settings != b->opts->settings)
            continue;
        *found = true;
        *st = memo->entry[i].starts;
        return pl__recompute_seq_copy(&b->seq, &memo->entry[i].seq);
    }
    return PL_OK;
}

/* Runs the grid, unless the memo has its result. */
static pl_status find_starts(pl__recompute_best *b, pl__recompute_sim *sim,
                             pl__recompute_starts *st)
{
    bool found;
    PL_TRY(recall_grid(b, st, &found));
    if (found) return PL_OK;
    PL_TRY(pl__recompute_grid(b, sim, b->opts->settings ? b->opts->settings : UINT32_MAX, st));
    return note_grid(b, st);
}

pl_status pl__recompute_simulate(pl__recompute_best *b)
{
    pl__recompute_sim *sim;
    pl__recompute_starts st = {.n = 0};
    PL_TRY(pl__recompute_sim_new(b->m, &sim));
    pl_status s = find_starts(b, sim, &st);
    /* On small problems the best-first search mostly ends with a proof, which saves the rest. */
    if (s == PL_OK && !(b->opts->off & PL_RECOMPUTE_NO_EXACT) && !(b->any && b->seq.n))
        s = pl__recompute_exact(b);
    if (s == PL_OK && st.n && b->effort && !b->optimal && !(b->opts->off & PL_RECOMPUTE_NO_SEARCH))
        s = run_search(b, sim, &st);
    pl__recompute_sim_free(sim);
    return s;
}
