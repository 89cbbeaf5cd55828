/* test_levels_exact.c - plans of small problems with three levels of memory, against the shortest
 * schedule (levels_oracle.h) and against a replay that shares no code with the planner. */
#include "base/sys.h"
#include "plan/budget.h"
#include "plimsoll_ops.h"
#include "tests/lib/test.h"
#include "tests/plan/levels_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 65536, TICK_NS = 1000 };

/* ---- problems ------------------------------------------------------------------------------- */
static uint32_t draw(uint64_t *seed, uint32_t from, uint32_t to)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return from + (uint32_t)((*seed >> 33) % (to - from + 1));
}

static uint32_t add_value(levels_case *c, uint64_t *seed, uint32_t made_by)
{
    c->blocks[c->n_values] = draw(seed, 1, 4);
    c->made_by[c->n_values] = made_by;
    return c->n_values++;
}

static uint32_t add_unit(levels_case *c, uint64_t *seed, uint32_t reads)
{
    uint32_t u = c->n_units++;
    c->cost[u] = draw(seed, 1, 6);
    c->reads[u] = reads;
    return c->makes[u] = add_value(c, seed, u);
}

/* A weight that lives on the device, on the host or on disk; it has a bit only below the device. */
static uint32_t add_weight(levels_case *c, uint64_t *seed)
{
    uint32_t place = draw(seed, 0, 5);
    if (place > 1 || c->n_values >= 26) return 0;
    uint32_t v = add_value(c, seed, LEVELS_NO_UNIT);
    *(place == 1 && c->has_disk ? &c->on_disk : &c->on_host) |= 1u << v;
    return 1u << v;
}

/* A forward and a backward pass over layers, with skips between distant layers. */
static void draw_training(levels_case *c, uint64_t *seed)
{
    uint32_t layers = draw(seed, 3, draw(seed, 0, 7) ? 6 : 9), f[16], w[16],
             x = add_value(c, seed, LEVELS_NO_UNIT);
    for (uint32_t i = 0; i < layers; i++) {
        uint32_t reads = 1u << (i ? f[i - 1] : x);
        if (i > 2 && draw(seed, 0, 3) == 0) reads |= 1u << f[draw(seed, 0, i - 2)];
        w[i] = add_weight(c, seed);
        f[i] = add_unit(c, seed, reads | w[i]);
    }
    uint32_t grad = f[layers - 1];
    for (uint32_t i = layers; i-- > 0;) {
        uint32_t reads = 1u << grad | 1u << (i ? f[i - 1] : x) | w[i];
        if (draw(seed, 0, 2) == 0) reads |= 1u << f[i];
        grad = add_unit(c, seed, reads);
    }
    c->wanted = 1u << grad;
}

static void draw_any(levels_case *c, uint64_t *seed)
{
    uint32_t n = draw(seed, 6, draw(seed, 0, 7) ? 12 : 20), made[LEVELS_MAX_VALUES], unread = 0;
    made[0] = add_value(c, seed, LEVELS_NO_UNIT);
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t reads = 1u << made[i - 1];
        if (draw(seed, 0, 1)) reads |= 1u << made[draw(seed, 0, i - 1)];
        if (draw(seed, 0, 2) == 0) reads |= 1u << made[draw(seed, 0, i - 1)];
        reads |= add_weight(c, seed);
        made[i] = add_unit(c, seed, reads);
        unread = (unread | 1u << made[i]) & ~reads;
    }
    c->wanted = unread;
}

static levels_case draw_case(uint64_t seed)
{
    levels_case c = {0};
    seed = seed * 7919 + 17;
    for (int i = 0; i < 4; i++) draw(&seed, 0, 1);
    uint32_t levels = draw(&seed, 0, 2); /* host; disk; both */
    c.has_disk = levels != 0;
    c.host_blocks = levels == 1 ? 0 : levels == 0 ? 100 : draw(&seed, 10, 20);
    for (int k = 0; k < 4; k++) c.ticks[k] = draw(&seed, 1, k < 2 ? 3 : 4);
    if (draw(&seed, 0, 1))
        draw_training(&c, &seed);
    else
        draw_any(&c, &seed);
    if (!c.host_blocks) {
        c.on_disk |= c.on_host;
        c.on_host = 0;
    }
    return c;
}

/* ---- the planner's view --------------------------------------------------------------------- */
typedef struct lab {
    pl_store *store;
    pl_graph *g;
    pl_units *units;
    pl_plan_opts o;
    pl_plan *keep_all;
    double cost_ns[LEVELS_MAX_UNITS];
    pl_budget_base base;
    pl_budget *budget;
    pl_homes homes;
    uint8_t level[LEVELS_MAX_VALUES];
    uint64_t offset[LEVELS_MAX_VALUES];
    pl_level_opts levels;
    pl_val val[LEVELS_MAX_VALUES];
} lab;

/* A value of the case: any operation that reads whole operands and is never in place. */
static void make_unit(lab *x, const levels_case *c, uint32_t u)
{
    pl_unit *t = &x->units->unit[u];
    pl_arena *mem = &x->units->arena;
    uint32_t from = x->g->n_nodes, v = c->makes[u];
    pl_val sum = {0};
    *t = (pl_unit){.kind = PL_UNIT_GROUP};
    t->in = pl_arena_new(mem, uint32_t, LEVELS_MAX_VALUES);
    t->out = pl_arena_new(mem, uint32_t, 1);
    for (uint32_t k = 0; k < c->n_values; k++) {
        if (!(c->reads[u] >> k & 1)) continue;
        t->in[t->n_in++] = x->val[k].id;
        pl_val part = pl_sum(x->g, x->val[k], 3, false);
        sum = sum.id ? pl_add(x->g, sum, part) : part;
    }
    x->val[v] = pl_broadcast(x->g, sum, 2, (int64_t[]){c->blocks[v], BLOCK / 4});
    t->out[t->n_out++] = x->val[v].id;
    t->nodes = pl_arena_new(mem, uint32_t, x->g->n_nodes - from);
    while (from < x->g->n_nodes) t->nodes[t->n_nodes++] = from++;
}

static void make_sources(lab *x, const levels_case *c)
{
    x->homes = (pl_homes){.level = x->level, .offset = x->offset};
    for (uint32_t v = 0; v < c->n_values; v++) {
        char name[16];
        pl_type t = PL_TYPE(PL_F32, c->blocks[v], BLOCK / 4);
        if (c->made_by[v] != LEVELS_NO_UNIT) continue;
        snprintf(name, sizeof name, "v%u", v);
        if (!((c->on_host | c->on_disk) >> v & 1)) {
            x->val[v] = pl_input(x->g, name, t);
            continue;
        }
        int slot = pl_store_add(x->store, &(pl_slot){.name = name, .type = t});
        uint8_t at = c->on_host >> v & 1 ? PL_LEVEL_HOST : PL_LEVEL_DISK;
        x->val[v] = pl_state(x->g, slot);
        x->level[slot] = at;
        x->offset[slot] = x->homes.bytes[at];
        x->homes.bytes[at] += (uint64_t)c->blocks[v] * BLOCK;
        x->homes.n = (uint32_t)slot + 1;
    }
}

static void open_lab(lab *x, const levels_case *c)
{
    *x = (lab){.store = pl_store_new()};
    x->g = pl_graph_new(x->store);
    x->units = pl_sys_alloc(sizeof *x->units);
    x->units->unit = pl_arena_new(&x->units->arena, pl_unit, LEVELS_MAX_UNITS);
    make_sources(x, c);
    for (uint32_t u = 0; u < c->n_units; u++) {
        make_unit(x, c, u);
        x->cost_ns[u] = (double)c->cost[u] * TICK_NS;
    }
    for (uint32_t v = 0; v < c->n_values; v++)
        if (c->wanted >> v & 1) pl_output(x->g, "out", x->val[v]);
    CHECK_OK(pl_graph_status(x->g));
    x->units->n = c->n_units;
    x->units->unit_of = pl_arena_new(&x->units->arena, uint32_t, x->g->n_vals);
    for (uint32_t u = 0; u < c->n_units; u++) x->units->unit_of[x->val[c->makes[u]].id] = u + 1;
    x->o.program_order = true;
    CHECK_OK(pl_plan_make(x->g, x->units, &x->o, &x->keep_all));
    x->base = (pl_budget_base){.g = x->g,
                               .units = x->units,
                               .opts = &x->o,
                               .keep_all = x->keep_all,
                               .cost_ns = x->cost_ns};
    CHECK_OK(pl_budget_new(&x->base, PL_CHECKPOINT_AUTO, &x->budget));
    x->levels = (pl_level_opts){.homes = &x->homes};
    for (int k = 0; k < PL_N_CHANNELS; k++)
        x->levels.channel_ns[k] = (double)c->ticks[k] * TICK_NS / BLOCK;
    x->levels.capacity[PL_LEVEL_HOST] =
        (uint64_t)c->host_blocks * BLOCK + x->homes.bytes[PL_LEVEL_HOST];
    if (c->has_disk) x->levels.capacity[PL_LEVEL_DISK] = (uint64_t)1000 * BLOCK;
    if (c->has_disk && c->host_blocks) x->levels.transit = (uint64_t)8 * BLOCK;
    pl_budget_levels(x->budget, &x->levels);
}

static void close_lab(lab *x)
{
    pl_budget_free(x->budget);
    pl_plan_free(x->keep_all);
    pl_units_free(x->units);
    pl_graph_free(x->g);
    pl_store_free(x->store);
}

static double planned_ticks(const lab *x)
{
    const pl_expanded_plan *t = pl_budget_plan(x->budget);
    double sum = 0;
    for (uint32_t u = 0; u < x->units->n; u++) sum += x->cost_ns[u];
    if (!t) return sum / TICK_NS;
    if (t->total_ns > 0) return t->total_ns / TICK_NS;
    return (sum + t->recompute_ns) / TICK_NS;
}

/* ---- a replay that knows nothing of the planner --------------------------------------------- */
enum { PAGE = 4096, PAGES = 4096 };

/* Bytes that an action reads or writes. */
typedef struct span {
    int level;
    uint64_t from, to;
    bool write;
} span;

typedef struct action {
    span span[LEVELS_MAX_VALUES + 2];
    uint32_t n;
    bool move;
    double ends;
} action;

typedef struct replay {
    const pl_expanded_plan *t;
    const pl_homes *homes;
    uint32_t *tag;                     /* per value: what it is a copy of */
    uint32_t page[PL_N_LEVELS][PAGES]; /* what lies there */
    action *done;
    uint32_t n_done;
} replay;

static void find_span(const replay *r, uint32_t val, bool write, span *out)
{
    const pl_place *p = &r->t->plan->place[val];
    uint64_t bytes = pl_type_bytes(pl_type_of(r->t->x->g, val)), at = p->offset;
    int level = p->space == PL_SPACE_ARENA  ? PL_LEVEL_DEVICE
                : p->space == PL_SPACE_HOST ? PL_LEVEL_HOST
                                            : PL_LEVEL_DISK;
    if (p->space == PL_SPACE_STATE) {
        level = r->homes->level[p->slot];
        at += r->homes->offset[p->slot];
    }
    uint64_t most = level ? r->t->plan->level_bytes[level] : r->t->plan->arena_bytes;
    CHECK(at % PAGE == 0 && at + bytes <= most && most <= (uint64_t)PAGES * PAGE);
    *out = (span){level, at, at + bytes, write};
}

static bool conflict(const action *a, const action *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < b->n; k++) {
            const span *x = &a->span[i], *y = &b->span[k];
            if (x->level == y->level && (x->write || y->write) && x->from < y->to &&
                y->from < x->to)
                return true;
        }
    return false;
}

static void touch(replay *r, uint32_t val, bool write, action *a)
{
    span s = {0};
    find_span(r, val, write, &s);
    for (uint64_t p = s.from / PAGE; p < s.to / PAGE; p++) {
        if (write) r->page[s.level][p] = r->tag[val];
        CHECK_MSG(r->page[s.level][p] == r->tag[val], "value %d is not there", (int)val);
    }
    a->span[a->n++] = s;
}

static void tag_sources(replay *r)
{
    const pl_graph *g = r->t->x->g;
    uint32_t number = 0;
    action none;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        if (!(g->nodes[n].op->flags & PL_OP_SOURCE)) continue;
        r->tag[g->nodes[n].out] = 1000 + number++;
        none.n = 0;
        touch(r, g->nodes[n].out, true, &none);
    }
}

/* Sets the ticks of a plan: units run one after the other, a move begins when its position is
 * reached and its channel is free, and a unit that touches bytes of a move waits for it. */
static void replay_plan(const lab *x, const levels_case *c, double *ticks)
{
    const pl_expanded_plan *t = pl_budget_plan(x->budget);
    const pl_plan *p = t->plan;
    replay *r = calloc(1, sizeof *r);
    r->t = t;
    r->homes = &x->homes;
    r->tag = calloc(t->x->g->n_vals + 1, sizeof *r->tag);
    r->done = calloc(p->n_order + 1, sizeof *r->done);
    double now = 0, last = 0, busy[PL_N_CHANNELS] = {0};
    tag_sources(r);
    CHECK(p->n_copies == 0);
    for (uint32_t i = 0; i < p->n_order; i++) {
        const pl_unit *u = &t->x->units->unit[p->order[i]];
        action *a = &r->done[r->n_done++];
        a->move = u->kind == PL_UNIT_MOVE;
        for (uint32_t k = 0; k < u->n_in; k++) touch(r, u->in[k], false, a);
        for (uint32_t k = 0; k < u->n_out; k++) {
            r->tag[u->out[k]] = a->move ? r->tag[u->in[0]] : 1 + t->x->base[p->order[i]];
            touch(r, u->out[k], true, a);
        }
        double begin = now, takes;
        for (uint32_t k = 0; k + 1 < r->n_done; k++)
            if ((r->done[k].move || a->move) && r->done[k].ends > begin && conflict(a, &r->done[k]))
                begin = r->done[k].ends;
        if (a->move) {
            pl_channel ch =
                pl_channel_between((unsigned)a->span[0].level, (unsigned)a->span[1].level);
            if (busy[ch] > begin) begin = busy[ch];
            takes = (double)c->ticks[ch] * (double)(a->span[0].to - a->span[0].from) / BLOCK;
            busy[ch] = a->ends = begin + takes;
        } else {
            takes = x->cost_ns[t->x->base[p->order[i]]] / TICK_NS;
            now = a->ends = begin + takes;
        }
        if (a->ends > last) last = a->ends;
    }
    for (uint32_t i = 0; i < p->n_outputs; i++) {
        uint32_t val = pl_node_in(t->x->g, p->outputs[i].node)[0];
        action none = {0};
        touch(r, val, false, &none);
    }
    free(r->tag);
    free(r->done);
    free(r);
    *ticks = last;
}

/* ---- the test ------------------------------------------------------------------------------- */
typedef struct gaps {
    double sum, worst;
    int n, wide, unproven;
} gaps;

/* Plans case i under a drawn budget, replays the plan, and adds its distance from the shortest
 * schedule, for which the oracle visits so many states; 0: it is not asked. */
static void check_case(int i, uint32_t states, gaps *g)
{
    levels_case c = draw_case((uint64_t)i);
    uint64_t seed = (uint64_t)i + 1000, least;
    lab x;
    open_lab(&x, &c);
    pl_status rc = pl_budget_minimum(x.budget, 0, &least);
    if (rc == PL_ERR_FIT) { /* the host is too small for what must leave the device */
        close_lab(&x);
        return;
    }
    CHECK_OK(rc);
    uint64_t all = x.keep_all->arena_bytes;
    if (all > least) least += (all - least) / 8 * draw(&seed, 0, 7);
    c.device_blocks = (uint32_t)(least / BLOCK);
    CHECK_OK(pl_budget_set(x.budget, (uint64_t)c.device_blocks * BLOCK));
    const pl_expanded_plan *t = pl_budget_plan(x.budget);
    double told = planned_ticks(&x), ticks = told;
    if (t) replay_plan(&x, &c, &ticks);
    CHECK(!t || t->plan->arena_bytes <= (uint64_t)c.device_blocks * BLOCK);
    for (int level = 1; level < PL_N_LEVELS && t; level++)
        CHECK(t->plan->level_bytes[level] <= x.levels.capacity[level]);
    CHECK_MSG(fabs(ticks - told) < 1e-6, "case %d: %g ticks told, %g in the replay", i, told,
              ticks);
    bool proven = false;
    uint32_t most = (uint32_t)floor(ticks + 1e-6) + 1;
    uint32_t best = states ? levels_oracle(&c, most, states, &proven) : (uint32_t)ticks;
    CHECK_MSG(best <= ticks + 1e-6, "case %d: the plan takes %g ticks, the optimum %u", i, ticks,
              best);
    double gap = ticks / best - 1;
    g->unproven += !proven;
    if (proven) {
        g->n++;
        g->sum += gap;
        g->wide += gap > 0.05;
        if (gap > g->worst) g->worst = gap;
    }
    close_lab(&x);
}

/* Which bytes a plan reuses decides what waits: in these cases a unit writes a part of the bytes
 * that a move has left, behind a fetch that takes the other part. */
TEST(levels_small_plans_take_the_time_that_they_tell)
{
    static const int cases[] = {10, 12, 35, 122, 286, 423};
    gaps g = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(cases[i], 0, &g);
    for (int i = 0; i < 500 && pl_test_long(); i++) check_case(i, 0, &g);
}

/* Keep, recompute, host and disk are weighed against each other: plans of small problems are close
 * to the shortest schedule that exists. */
TEST(levels_small_plans_are_close_to_the_shortest)
{
    gaps g = {0};
    int cases = pl_test_long() ? 500 : 10;
    for (int i = 0; i < cases; i++) check_case(i, pl_test_long() ? 200000 : 20000, &g);
    if (pl_test_long())
        printf("%d of %d optima known; gap: mean %.2f %%, worst %.2f %%, %d above 5 %%\n", g.n,
               cases, g.sum / g.n * 100, g.worst * 100, g.wide);
    CHECK_MSG(g.n >= cases * 7 / 10, "%d of %d optima known", g.n, cases);
    CHECK_MSG(g.sum / g.n <= 0.003, "mean gap %g", g.sum / g.n);
    CHECK_MSG(g.wide * 125 <= cases && g.worst <= 0.08, "%d plans above 5 %%, worst %g", g.wide,
              g.worst);
}
