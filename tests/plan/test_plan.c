/* test_plan.c - the planner and its checker: good plans are accepted and close to their bound,
 * every kind of damage is found, order search pays, large graphs plan fast. */
#include "tests/lib/graphs.h"

#include "ir/units.h"
#include "plan/core/plan.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct planned {
    pl_store *store;
    pl_graph *g;
    pl_units *units;
    pl_plan_opts o;
    uint64_t *work;
    pl_plan *plan;
} planned;

/* Plans g without fusion; some units get a workspace, so that workspaces are placed too. */
static pl_status plan_up(planned *x, pl_store *store, pl_graph *g)
{
    x->store = store;
    x->g = g;
    PL_TRY(pl_graph_status(g));
    PL_TRY(pl_units_single(g, &x->units));
    x->work = calloc(x->units->n + 1, sizeof *x->work);
    for (uint32_t i = 0; i < x->units->n; i++)
        if (i % 5 == 2 && x->units->unit[i].kind == PL_UNIT_KERNEL) x->work[i] = 100 + i;
    x->o.work_bytes = x->work;
    PL_TRY(pl_plan_make(g, x->units, &x->o, &x->plan));
    return pl_plan_check(g, x->units, &x->o, x->plan);
}

static void plan_down(planned *x)
{
    pl_plan_free(x->plan);
    pl_units_free(x->units);
    free(x->work);
    pl_graph_free(x->g);
    pl_store_free(x->store);
}

TEST(plan_of_random_graphs_is_within_1_percent_of_the_bound)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        pl_store *store = pl_store_new();
        planned x = {.o = {.no_reuse = seed % 7 == 0}};
        CHECK_OK(plan_up(&x, store, random_graph(store, seed, 10 + (int)seed % 90)));
        CHECK_MSG((double)x.plan->arena_bytes <= 1.01 * (double)x.plan->live_bound,
                  "seed %d: arena %llu, bound %llu", (int)seed,
                  (unsigned long long)x.plan->arena_bytes, (unsigned long long)x.plan->live_bound);
        CHECK(x.plan->arena_bytes <= x.plan->no_reuse_bytes);
        if (x.o.no_reuse) CHECK_INT(x.plan->arena_bytes, x.plan->no_reuse_bytes);
        plan_down(&x);
    }
}

TEST(plan_is_deterministic)
{
    planned x[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        pl_store *store = pl_store_new();
        CHECK_OK(plan_up(&x[i], store, training_graph(store, 30, 32, 32)));
    }
    CHECK_INT(x[0].plan->n_buffers, x[1].plan->n_buffers);
    CHECK(memcmp(x[0].plan->order, x[1].plan->order, x[0].plan->n_order * sizeof(uint32_t)) == 0);
    for (uint32_t i = 0; i < x[0].plan->n_buffers; i++)
        CHECK(x[0].plan->buffers[i].offset == x[1].plan->buffers[i].offset);
    for (int i = 0; i < 2; i++) plan_down(&x[i]);
}

/* Returns how many buffers begin where another ended less than four positions ago. */
static int reused_at_once(const pl_plan *p)
{
    int n = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++)
        for (uint32_t j = 0; j < p->n_buffers; j++) {
            const pl_placed_buffer *a = &p->buffers[i], *b = &p->buffers[j];
            n += a->last <= b->first && b->first < a->last + 4 &&
                 a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
        }
    return n;
}

TEST(plan_that_spreads_reuses_memory_later_in_an_arena_of_the_same_size)
{
    planned x[2] = {{.o = {.spread = false}}, {.o = {.spread = true}}};
    for (int i = 0; i < 2; i++) {
        pl_store *store = pl_store_new();
        CHECK_OK(plan_up(&x[i], store, training_graph(store, 30, 32, 32)));
    }

    CHECK_INT(x[1].plan->arena_bytes, x[0].plan->arena_bytes);
    CHECK_INT(x[1].plan->n_buffers, x[0].plan->n_buffers);
    CHECK_MSG(3 * reused_at_once(x[1].plan) < 2 * reused_at_once(x[0].plan), "%d, %d before",
              reused_at_once(x[1].plan), reused_at_once(x[0].plan));
    for (int i = 0; i < 2; i++) plan_down(&x[i]);
}

/* ---- the checker ------------------------------------------------------------------------ */
static bool stands(const pl_plan *p, const pl_placed_buffer *b)
{
    return b->value && p->place[b->value].space == PL_SPACE_ARENA; /* no scratch, no saved state */
}

/* Two values alive at the same position, in the arena, in different buffers. */
static bool two_alive(const pl_plan *p, const pl_placed_buffer **a, const pl_placed_buffer **b)
{
    for (uint32_t i = 0; i < p->n_buffers; i++)
        for (uint32_t j = 0; j < p->n_buffers; j++) {
            *a = &p->buffers[i];
            *b = &p->buffers[j];
            if (i != j && stands(p, *a) && stands(p, *b) && (*a)->first < (*b)->first &&
                (*a)->last > (*b)->first + 1 && (*b)->last > (*b)->first + 1 && (*a)->bytes &&
                (*b)->bytes && (*a)->component != PL_COMP_INPUTS)
                return true;
        }
    return false;
}

/* A unit, by its position in the order, that writes a value in the arena and has workspace or
 * operands as asked. */
static int find_step(const planned *x, bool scratch, bool operand)
{
    for (uint32_t i = 0; i < x->plan->n_order; i++) {
        uint32_t u = x->plan->order[i];
        const pl_unit *unit = &x->units->unit[u];
        bool arena = x->plan->place[unit->out[0]].space == PL_SPACE_ARENA &&
                     pl_type_bytes(pl_type_of(x->g, unit->out[0])) > 0;
        bool in = unit->n_in > 0 && x->plan->place[unit->in[0]].space == PL_SPACE_ARENA;
        if (arena && (!scratch || x->plan->work_bytes[u]) && (!operand || in)) return (int)i;
    }
    return -1;
}

/* A unit that writes its slot in place while another unit reads the slot. */
static int find_direct_step(const planned *x)
{
    for (uint32_t i = 1; i < x->plan->n_order; i++) {
        const pl_unit *u = &x->units->unit[x->plan->order[i]];
        if (x->plan->place[u->out[0]].space == PL_SPACE_STATE) return (int)i;
    }
    return -1;
}

enum damage {
    OVERLAP,
    ORDER_SWAPPED,
    UNIT_MISSING,
    UNIT_TWICE,
    OUTSIDE_ARENA,
    MISALIGNED,
    SCRATCH_ON_OPERAND,
    SCRATCH_ON_OUTPUT,
    SCRATCH_SHORT,
    VIEW_MOVED,
    SLOT_WRITTEN_EARLY,
    COPY_MISSING,
    COPY_TO_WRONG_SLOT,
    COPIES_SWAPPED,
    OUTPUT_MOVED,
    INPUT_ON_INPUT,
    STATE_MOVED,
    BUFFER_SHORT_LIVED,
    BUFFER_BORN_LATE,
    N_DAMAGES
};

/* Moves a value and all its views. */
static void move_root(planned *x, uint32_t val, uint64_t offset)
{
    uint64_t old = x->plan->place[val].offset;
    for (uint32_t i = 0; i < x->units->n; i++) { /* views follow: units are in topological order */
        const pl_unit *u = &x->units->unit[i];
        if (u->kind == PL_UNIT_VIEW && u->in[0] == val)
            move_root(x, u->out[0], offset + (x->plan->place[u->out[0]].offset - old));
    }
    x->plan->place[val].offset = offset;
}

/* Moves a unit after one of its readers. */
static bool swap_with_reader(planned *x)
{
    pl_plan *p = x->plan;
    for (uint32_t k = 0; k + 1 < p->n_order; k++) {
        const pl_unit *u = &x->units->unit[p->order[k + 1]];
        for (uint32_t j = 0; j < u->n_in; j++)
            if (x->units->unit_of[u->in[j]] == p->order[k] + 1) {
                uint32_t t = p->order[k];
                p->order[k] = p->order[k + 1];
                p->order[k + 1] = t;
                return true;
            }
    }
    return false;
}

/* Moves a view that a kernel reads. */
static bool move_view(planned *x)
{
    pl_plan *p = x->plan;
    for (uint32_t u = 0; u < x->units->n; u++) {
        uint32_t v = x->units->unit[u].out[0];
        if (x->units->unit[u].kind != PL_UNIT_VIEW || p->place[v].offset < 4) continue;
        for (uint32_t k = 0; k < x->units->n; k++) /* only if a unit reads it */
            for (uint32_t j = 0; j < x->units->unit[k].n_in; j++)
                if (x->units->unit[k].in[j] == v && x->units->unit[k].kind != PL_UNIT_VIEW) {
                    p->place[v].offset -= 4;
                    return true;
                }
    }
    return false;
}

/* Moves a unit that writes its slot in place before a unit that reads the slot. */
static bool write_slot_early(planned *x)
{
    pl_plan *p = x->plan;
    for (int d = find_direct_step(x); d >= 1;) {
        int slot = p->place[x->units->unit[p->order[d]].out[0]].slot;
        for (int k = d - 1; k >= 0; k--) {
            const pl_unit *u = &x->units->unit[p->order[k]];
            for (uint32_t j = 0; j < u->n_in; j++)
                if (p->place[u->in[j]].space == PL_SPACE_STATE && p->place[u->in[j]].slot == slot) {
                    uint32_t t = p->order[d];
                    memmove(p->order + k + 1, p->order + k, (size_t)(d - k) * sizeof *p->order);
                    p->order[k] = t;
                    return true;
                }
        }
        return false;
    }
    return false;
}

/* Sends a copy to another slot of the same size. */
static bool copy_to_wrong_slot(planned *x)
{
    pl_plan *p = x->plan;
    for (uint32_t k = 0; k < p->n_copies; k++)
        for (int s = 0; s < pl_store_count(x->store); s++)
            if (p->copies[k].to.space == PL_SPACE_STATE && s != p->copies[k].to.slot &&
                pl_type_bytes(&pl_store_slot(x->store, s)->type) == p->copies[k].bytes) {
                p->copies[k].to.slot = s;
                return true;
            }
    return false;
}

/* A buffer whose lifetime starts a position late, or ends one early. */
static bool shorten_life(pl_plan *p, bool late)
{
    for (uint32_t k = 0; k < p->n_buffers; k++) {
        pl_placed_buffer *f = &p->buffers[k];
        if (!stands(p, f) || f->last < f->first + 2 || !f->bytes) continue;
        if (late)
            f->first++;
        else
            f->last--;
        return true;
    }
    return false;
}

/* False when this plan has no place for the damage. */
static bool damage(planned *x, enum damage kind)
{
    pl_plan *p = x->plan;
    const pl_placed_buffer *a, *b;
    int i = find_step(
        x, kind == SCRATCH_ON_OPERAND || kind == SCRATCH_ON_OUTPUT || kind == SCRATCH_SHORT,
        kind == SCRATCH_ON_OPERAND);
    if (i < 0) return false;
    uint32_t unit = p->order[i], out = x->units->unit[unit].out[0];
    switch (kind) {
    case OVERLAP:
        if (!two_alive(p, &a, &b)) return false;
        for (uint32_t v = 1; v < p->n_vals; v++) /* everything in b moves to the bytes of a */
            if (p->place[v].space == PL_SPACE_ARENA && v == b->value) move_root(x, v, a->offset);
        return true;
    case ORDER_SWAPPED: return swap_with_reader(x);
    case UNIT_MISSING: p->n_order--; return true;
    case UNIT_TWICE: p->order[p->n_order - 1] = p->order[0]; return p->n_order > 1;
    case OUTSIDE_ARENA: move_root(x, out, (p->arena_bytes + 64) / 64 * 64); return true;
    case MISALIGNED: p->place[out].offset += 4; return true;
    case SCRATCH_ON_OPERAND:
        p->work_offset[unit] = p->place[x->units->unit[unit].in[0]].offset / 64 * 64;
        return p->work_offset[unit] + p->work_bytes[unit] <= p->arena_bytes;
    case SCRATCH_ON_OUTPUT:
        p->work_offset[unit] = p->place[out].offset;
        return p->work_offset[unit] + p->work_bytes[unit] <= p->arena_bytes;
    case SCRATCH_SHORT: p->work_bytes[unit] = 64; return x->work[unit] > 64;
    case VIEW_MOVED: return move_view(x);
    case SLOT_WRITTEN_EARLY: return write_slot_early(x);
    case COPY_MISSING: return p->n_copies-- > 0;
    case COPY_TO_WRONG_SLOT: return copy_to_wrong_slot(x);
    case COPIES_SWAPPED:
        for (uint32_t k = 0; k + 1 < p->n_copies; k++)
            if (p->copies[k].from.space == PL_SPACE_STATE &&
                p->copies[k + 1].to.space == PL_SPACE_STATE &&
                p->copies[k + 1].to.slot == p->copies[k].from.slot) {
                pl_copy t = p->copies[k];
                p->copies[k] = p->copies[k + 1];
                p->copies[k + 1] = t;
                return true;
            }
        return false;
    case OUTPUT_MOVED:
        if (!p->n_outputs || p->outputs[0].place.offset < 64) return false;
        p->outputs[0].place.offset -= 64;
        return true;
    case INPUT_ON_INPUT: {
        uint32_t first = 0;
        for (uint32_t v = 1; v < p->n_vals; v++) {
            const char *op = pl_node_get(x->g, pl_producer(x->g, v))->op->name;
            if (strcmp(op, "input") != 0) continue;
            if (first) {
                move_root(x, v, p->place[first].offset);
                return true;
            }
            first = v;
        }
        return false;
    }
    case STATE_MOVED:
        for (uint32_t v = 1; v < p->n_vals; v++)
            if (p->place[v].space == PL_SPACE_STATE && p->place[v].slot > 3) {
                p->place[v].slot -= 3; /* same type, another slot */
                return true;
            }
        return false;
    case BUFFER_SHORT_LIVED:
    case BUFFER_BORN_LATE: return shorten_life(p, kind == BUFFER_BORN_LATE);
    case N_DAMAGES: break;
    }
    return false;
}

TEST(plan_checker_notices_damage)
{
    static const char *const name[N_DAMAGES] = {"overlap",
                                                "order swapped",
                                                "unit missing",
                                                "unit twice",
                                                "outside arena",
                                                "misaligned",
                                                "scratch on operand",
                                                "scratch on output",
                                                "scratch short",
                                                "view moved",
                                                "slot written early",
                                                "copy missing",
                                                "copy to wrong slot",
                                                "copies swapped",
                                                "output moved",
                                                "input on input",
                                                "state moved",
                                                "buffer short-lived",
                                                "buffer born late"};
    for (int kind = 0; kind < N_DAMAGES; kind++) {
        int done = 0;
        for (uint64_t seed = 1; seed <= 30; seed++) {
            pl_store *store = pl_store_new();
            planned x = {0};
            CHECK_OK(plan_up(&x, store, random_graph(store, seed, 30)));
            if (damage(&x, (enum damage)kind)) {
                done++;
                pl_status rc = pl_plan_check(x.g, x.units, &x.o, x.plan);
                CHECK_MSG(rc == PL_ERR_PLAN, "%s (seed %d): not noticed", name[kind], (int)seed);
            }
            plan_down(&x);
        }
        CHECK_MSG(done > 0, "%s: never tried", name[kind]);
    }
}

/* ---- order ------------------------------------------------------------------------------ */
static uint64_t arena_of(pl_graph *(*make)(pl_store *), bool program_order)
{
    pl_store *store = pl_store_new();
    planned x = {.o = {.program_order = program_order}};
    uint64_t arena = plan_up(&x, store, make(store)) == PL_OK ? x.plan->arena_bytes : 0;
    plan_down(&x);
    return arena;
}

/* Eight wide branches written breadth first: depth first needs memory for one at a time. */
static pl_graph *breadth_first(pl_store *store)
{
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 64)), wide[8], sum = x;
    for (int i = 0; i < 8; i++) wide[i] = pl_broadcast(g, pl_shift(g, x, i), PL_DIMS(100, 64));
    for (int i = 0; i < 8; i++) sum = pl_add(g, sum, pl_sum(g, wide[i], PL_AXIS(0), false));
    pl_output(g, "sum", sum);
    return g;
}

/* Updates written after all gradients: each update can run as soon as its gradient exists. */
static pl_graph *updates_last(pl_store *store)
{
    return training_graph(store, 12, 2, 64);
}

TEST(plan_order_saves_two_thirds_of_the_arena)
{
    uint64_t before = arena_of(breadth_first, true), after = arena_of(breadth_first, false);
    CHECK_MSG(after > 0 && after * 3 < before, "breadth first: %llu, searched: %llu",
              (unsigned long long)before, (unsigned long long)after);
    before = arena_of(updates_last, true), after = arena_of(updates_last, false);
    CHECK_MSG(after > 0 && after * 3 < before, "updates last: %llu, searched: %llu",
              (unsigned long long)before, (unsigned long long)after);
}

TEST(plan_makes_updates_in_their_slots)
{
    pl_store *store = pl_store_new();
    planned x = {0};
    CHECK_OK(plan_up(&x, store, training_graph(store, 5, 16, 16)));
    CHECK_INT(x.plan->n_copies, 0);
    int direct = 0;
    for (uint32_t v = 1; v < x.plan->n_vals; v++)
        direct += x.plan->place[v].space == PL_SPACE_STATE && x.units->unit_of[v] > 0;
    CHECK_INT(direct, 20); /* weights and momenta of 5 layers with bias */
    plan_down(&x);
}

TEST(plan_of_large_graphs_takes_little_time)
{
    static const int layers[] = {152, 400};
    for (int i = 0; i < 2; i++) {
        pl_store *store = pl_store_new();
        planned x = {0};
        uint64_t t0 = used_ns();
        pl_graph *g = training_graph(store, layers[i], 32, 32);
        uint64_t t1 = used_ns();
        CHECK_OK(plan_up(&x, store, g));
        double build = (double)(t1 - t0) / 1e6, plan = (double)(used_ns() - t1) / 1e6;
        t0 = used_ns();
        CHECK_OK(pl_plan_check(g, x.units, &x.o, x.plan));
        double check = (double)(used_ns() - t0) / 1e6;
        printf("    %d nodes, %u units: graph and gradient %.0f ms, plan %.0f ms of which check "
               "%.0f ms, order %s, arena/bound %.4f\n",
               pl_graph_nodes(g), x.units->n, build, plan, check, x.plan->order_name,
               (double)x.plan->arena_bytes / (double)x.plan->live_bound);
        CHECK((double)x.plan->arena_bytes <= 1.01 * (double)x.plan->live_bound);
        CHECK_MSG(plan < 2000 * PATIENCE, "planning took %.0f ms", plan);
        plan_down(&x);
    }
}
