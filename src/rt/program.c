/* program.c - pl_compile: passes, units, kernels, plan, check.
 *
 * Kernels are prepared before planning because their scratch is planned like any value. The plan is
 * checked every time; a plan that fails is a defect of the planner and never runs.
 *
 * A budget below the arena of the keep-all plan makes plan/budget.h search for a plan that
 * recomputes; the program then runs an expansion of its graph (process_budget.h does the same
 * afterwards).
 *
 * Invariant: g, units, plan and x belong together: either the base graph with the keep-all plan, or
 * the expansion and plan that `budget` has set. Kernels belong to the base units in both cases.
 */
#include "base/sys.h"
#include "pass/fuse/fuse.h"
#include "pass/pass.h"
#include "plan/cost/cost.h"
#include "rt/calibrate.h"
#include "rt/process_budget.h"
#include "rt/rt_int.h"

#include <stdio.h>
#include <string.h>

pl_unit_args pl_unit_args_of(const pl_graph *g, const pl_unit *u)
{
    if (u->kind == PL_UNIT_GROUP) return (pl_unit_args){u->in, u->n_in, 0, u->out, u->n_out};
    const pl_node_rec *r = pl_node_get(g, u->nodes[0]);
    return (pl_unit_args){pl_node_in(g, u->nodes[0]), r->n_in, r->out, NULL, r->n_out};
}

/* ---- kernels ---------------------------------------------------------------------------- */
static pl_status fill_call(pl_program *p, uint32_t unit)
{
    const pl_unit *u = &p->base_units->unit[unit];
    pl_unit_args a = pl_unit_args_of(p->base_graph, u);
    pl_type *in = pl_arena_new(&p->mem, pl_type, a.n_in + 1);
    pl_type *out = pl_arena_new(&p->mem, pl_type, a.n_out + 1);
    if (!in || !out) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < a.n_in; i++) in[i] = *pl_type_of(p->base_graph, a.in[i]);
    for (uint32_t k = 0; k < a.n_out; k++) out[k] = *pl_type_of(p->base_graph, pl_arg_out(&a, k));
    p->call[unit] = (pl_call){.in_type = in,
                              .out_type = out,
                              .n_in = (int32_t)a.n_in,
                              .n_out = (int32_t)a.n_out,
                              .comm = p->opts.comm};
    if (u->kind == PL_UNIT_KERNEL)
        p->call[unit].attr = pl_node_get(p->base_graph, u->nodes[0])->attr;
    return PL_OK;
}

static pl_status prepare_unit(pl_program *p, uint32_t unit, uint64_t *work)
{
    const pl_unit *u = &p->base_units->unit[unit];
    PL_TRY(pl_unit_cost(p->base_graph, u, &p->mem, &p->cost[unit]));
    if (u->kind == PL_UNIT_VIEW) return PL_OK;
    PL_TRY(fill_call(p, unit));
    pl_status rc =
        p->dev->prepare(p->base_graph, u, &p->call[unit], p->opts.reference, &p->exec[unit]);
    if (rc != PL_OK) {
        char label[160];
        return pl__fail_prefix(rc, "%s", pl_unit_label(p->base_graph, u, label, sizeof label));
    }
    p->call[unit].prep = p->exec[unit].prep;
    *work = pl_program_scratch(p, unit);
    return PL_OK;
}

/* ---- plan ------------------------------------------------------------------------------- */
static pl_status list_inputs(pl_program *p)
{
    for (int pass = 0; pass < 2; pass++) {
        int n = 0;
        for (uint32_t i = 1; i < p->g->n_nodes; i++) {
            bool is = (pl_node_get(p->g, i)->op->flags & PL_OP_SOURCE) && pl_node_slot(p->g, i) < 0;
            if (is && pass) p->inputs[n] = i;
            n += is;
        }
        if (!pass) p->inputs = pl_arena_new(&p->plan_mem, uint32_t, n + 1);
        if (!p->inputs) return PL_ERR_MEMORY;
        p->n_inputs = n;
    }
    return PL_OK;
}

static pl_status label_positions(pl_program *p)
{
    p->position_label = pl_arena_new(&p->plan_mem, const char *, p->plan->n_positions + 1);
    if (!p->position_label) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->plan->n_positions; i++) {
        char buf[256];
        pl_plan_position_label(p->g, p->units, p->plan, (int32_t)i, buf, sizeof buf);
        p->position_label[i] = pl_arena_strdup(&p->plan_mem, buf);
        if (!p->position_label[i]) return PL_ERR_MEMORY;
    }
    return PL_OK;
}

/* Returns the time of all kernels of the plan in ms; *recomputed: the time of the recomputed
 * kernels. */
static double predict(const pl_program *p, double *recomputed)
{
    double sum = 0;
    *recomputed = 0;
    for (uint32_t i = 0; i < p->plan->n_order; i++) {
        uint32_t unit = p->plan->order[i];
        double ms = p->cost_ns[pl_base_unit(p, unit)] / 1e6;
        sum += ms;
        if (p->x && p->x->recomputed[unit]) *recomputed += ms;
    }
    for (uint32_t i = 0; i < p->plan->n_copies; i++)
        sum += pl_copy_ns(p, p->plan->copies[i].bytes) / 1e6;
    return sum;
}

/* Returns the value that a view, or a view of a view, refers to. */
static uint32_t viewed_value(const pl_program *p, uint32_t val)
{
    for (uint32_t u; (u = p->units->unit_of[val]) && p->units->unit[u - 1].kind == PL_UNIT_VIEW;)
        val = p->units->unit[u - 1].in[0];
    return val;
}

/* Exchanges overlap with units that do not need them, one exchange after the other; a unit that
 * reads the result of an exchange waits for it. Sets the ms until both are done, and the exchanges'
 * own ms in info. */
static pl_status predict_links(const pl_program *p, pl_plan_info *info, double *ms)
{
    pl_arena mem = PL_ARENA_INIT;
    double *ready = pl_arena_new(&mem, double, p->g->n_vals + 1), computed = 0, linked = 0;
    info->link_ms = info->link_bytes = 0;
    for (uint32_t i = 0; ready && i < p->plan->n_order; i++) {
        uint32_t unit = p->plan->order[i], base = pl_base_unit(p, unit);
        bool link = p->cost[base].work == PL_WORK_LINK;
        double cost = p->cost_ns[base] / 1e6, begin = computed;
        pl_unit_args a = pl_unit_args_of(p->g, &p->units->unit[unit]);
        for (uint32_t k = 0; k < a.n_in; k++) {
            double at = ready[viewed_value(p, a.in[k])];
            begin = at > begin ? at : begin;
        }
        if (link && linked > begin) begin = linked;
        *(link ? &linked : &computed) = begin + cost;
        for (uint32_t k = 0; link && k < a.n_out; k++) ready[pl_arg_out(&a, k)] = begin + cost;
        if (!link) continue;
        info->link_ms += cost;
        info->link_bytes += p->cost[base].m;
    }
    if (linked > computed) computed = linked;
    for (uint32_t i = 0; i < p->plan->n_copies; i++)
        computed += pl_copy_ns(p, p->plan->copies[i].bytes) / 1e6;
    pl_arena_release(&mem);
    *ms = computed;
    return ready ? PL_OK : PL_ERR_MEMORY;
}

/* Fills the figures of the keep-all plan, whichever plan runs. */
static void fill_keep_all(const pl_program *p, pl_plan_info *info)
{
    const pl_plan *all = p->keep_all;
    info->keep_all_bytes = all->arena_bytes;
    info->keep_all_bound_bytes = all->live_bound;
    info->no_reuse_bytes = all->no_reuse_bytes;
    info->copied_views_bytes = all->no_reuse_bytes + pl_view_bytes(p->base_graph, p->base_units);
    info->own_bytes_bound = all->own_bytes_bound;
    info->order_bound = all->program_order_bound;
    pl_plan_components(p->base_graph, all, NULL, info->keep_all_components);
    info->keep_all_ms = 0;
    for (uint32_t i = 0; i < all->n_order; i++)
        info->keep_all_ms += p->cost_ns[all->order[i]] / 1e6;
    for (uint32_t i = 0; i < all->n_copies; i++)
        info->keep_all_ms += pl_copy_ns(p, all->copies[i].bytes) / 1e6;
}

/* Sets the shares of the sources of the step's time. */
static void share_sources(const pl_program *p, pl_plan_info *info, double ms)
{
    double *share = info->time_share, total = ms * 1e6;
    for (int i = 0; i < PL_N_TIME_SOURCES; i++) share[i] = 0;
    info->swapped_ratio = 1;
    for (uint32_t i = 0; i < p->plan->n_order; i++) {
        uint32_t unit = pl_base_unit(p, p->plan->order[i]);
        share[p->time_source[unit]] += p->cost_ns[unit] / total;
        info->swapped_ratio += (pl_program_swapped_ns(p, unit) - p->cost_ns[unit]) / total;
    }
    for (uint32_t i = 0; i < p->plan->n_copies; i++)
        share[PL_TIME_ESTIMATED] += pl_copy_ns(p, p->plan->copies[i].bytes) / total;
}

static bool has_links(const pl_program *p)
{
    for (uint32_t i = 0; i < p->base_units->n; i++)
        if (p->cost[i].work == PL_WORK_LINK) return true;
    return false;
}

static pl_status fill_info(pl_program *p)
{
    const pl_plan *plan = p->plan;
    pl_plan_info *info = &p->info;
    double recomputed;
    info->arena_bytes = plan->arena_bytes;
    fill_keep_all(p, info);
    info->state_bytes = pl_state_bytes(p->g->store, p->homes);
    info->live_bound_bytes = plan->live_bound;
    pl_plan_components(p->g, plan, p->homes, info->components);
    info->nodes = pl_graph_nodes(p->base_graph);
    info->units = (int32_t)p->units->n;
    info->buffers = (int32_t)plan->n_buffers;
    info->positions = (int32_t)plan->n_positions;
    info->peak_position = plan->peak_position;
    info->peak_node = p->position_label[plan->peak_position];
    double sum = predict(p, &recomputed);
    share_sources(p, info, sum);
    info->predicted_step_ms = sum;
    info->wait_ms = 0;
    if (has_links(p)) {
        PL_TRY(predict_links(p, info, &info->predicted_step_ms));
        info->wait_ms = info->predicted_step_ms - (sum - info->link_ms);
    }
    p->level_times = (pl_level_times){0};
    if (plan->n_moves) PL_TRY(pl__program_level_time(p, NULL, NULL, &p->level_times));
    info->predicted_step_ms += p->level_times.wait_ns / 1e6;
    info->recompute_ratio = recomputed > 0 ? recomputed / info->predicted_step_ms : 0;
    return PL_OK;
}

static pl_status make_units(pl_program *p)
{
    if (p->opts.reference || !p->dev->fuse) return pl_units_single(p->base_graph, &p->base_units);
    pl_fuse_opts o = *p->dev->fuse;
    if (p->opts.no_fuse) o.max_nodes = 1; /* the same arithmetic, one node at a time */
    if (p->opts.no_fuse || !p->dev->joins_products || !p->dev->joins_products(p->dev))
        o.product_bytes = 0;
    if (p->opts.no_small) o.bits = o.draws = false;
    return pl_fuse(p->base_graph, &o, &p->base_units);
}

static pl_status make_plan(pl_program *p)
{
    uint32_t n = p->base_units->n;
    uint64_t *work = pl_arena_new(&p->mem, uint64_t, n + 1);
    p->cost_ns = pl_arena_new(&p->mem, double, n + 1);
    const bool **inplace = pl_arena_new(&p->mem, const bool *, n + 1);
    p->exec = pl_arena_new(&p->mem, pl_exec, n + 1);
    p->call = pl_arena_new(&p->mem, pl_call, n + 1);
    p->cost = pl_arena_new(&p->mem, pl_cost, n + 1);
    if (!work || !p->cost_ns || !inplace || !p->exec || !p->call || !p->cost) return PL_ERR_MEMORY;
    uint64_t at = pl_sys_now_ns();
    for (uint32_t i = 0; i < n; i++) PL_TRY(prepare_unit(p, i, &work[i]));
    for (uint32_t i = 0; i < n; i++) inplace[i] = p->exec[i].inplace;
    p->times.kernels = pl_lap(&at);
    PL_TRY(pl_program_time(p, p->cost_ns));
    p->times.costs = pl_lap(&at);
    p->plan_opts = (pl_plan_opts){.work_bytes = work,
                                  .inplace = inplace,
                                  .no_reuse = p->opts.no_reuse,
                                  .no_join = p->opts.no_small,
                                  .program_order = p->opts.no_reuse,
                                  .gather = p->dev->gathers,
                                  .seed = p->opts.seed,
                                  .seconds = p->opts.plan_seconds};
    /* Plans of the search for a budget have no room to spread. */
    p->plan_opts.spread = p->dev->beside;
    pl_status rc = pl_plan_make(p->base_graph, p->base_units, &p->plan_opts, &p->keep_all);
    p->plan_opts.spread = false;
    if (rc != PL_OK) return rc;
    PL_TRY(pl_plan_check(p->base_graph, p->base_units, &p->plan_opts, p->keep_all));
    p->times.plan = pl_lap(&at);
    pl_budget_base base = {.g = p->base_graph,
                           .units = p->base_units,
                           .opts = &p->plan_opts,
                           .keep_all = p->keep_all,
                           .cost_ns = p->cost_ns};
    return pl_budget_new(&base, p->opts.checkpointing, &p->budget);
}

/* ---- budgets ---------------------------------------------------------------------------- */
/* Makes the plan that the budget has set the plan that runs. */
static pl_status adopt(pl_program *p)
{
    const pl_expanded_plan *set = pl_budget_plan(p->budget);
    p->x = set ? set->x : NULL;
    p->g = set ? set->x->g : p->base_graph;
    p->units = set ? set->x->units : p->base_units;
    p->plan = set ? set->plan : p->keep_all;
    pl_arena_release(&p->plan_mem);
    PL_TRY(list_inputs(p));
    PL_TRY(label_positions(p));
    return fill_info(p);
}

/* Adds the time since `begin` to the planning time, and records the known minimum. */
static void note_search(pl_program *p, uint64_t begin)
{
    double ms = pl_lap(&begin);
    p->info.minimum_bytes = pl_budget_figures_get(p->budget).minimum_bytes;
    p->info.plan_ms += ms;
    p->times.fit += ms;
}

pl_status pl_program_set_budget(pl_program *p, uint64_t arena_budget)
{
    uint64_t begin = pl_sys_now_ns();
    pl_status rc = pl_budget_set(p->budget, arena_budget);
    if (rc == PL_OK) rc = adopt(p);
    note_search(p, begin);
    return rc;
}

pl_status pl_program_minimum(pl_program *p, uint64_t enough, uint64_t *arena_bytes)
{
    uint64_t begin = pl_sys_now_ns();
    pl_status rc = pl_budget_minimum(p->budget, enough, arena_bytes);
    note_search(p, begin);
    return rc;
}

void pl_program_limit_memory(pl_program *p)
{
    p->limited = true;
}

pl_budget *pl_program_budget(const pl_program *p)
{
    return p->budget;
}

/* Nothing here depends on the plan that is set. LABEL: inputs and labels of a plan, for each unit;
 * a session keeps a bound unit with its pointers for each, too. The units that a plan runs a second
 * time have them besides; the margin covers that. */
pl_program_held pl_program_held_get(const pl_program *p)
{
    enum { BOUND = sizeof(pl_bound_unit) + 64, LABEL = 48 };
    enum { SEARCH = 10 << 20, SEARCH_UNIT = 6 << 10 };
    uint32_t n = p->base_units->n;
    pl_program_held h = {.search_bytes = SEARCH + (uint64_t)n * SEARCH_UNIT};
    h.bytes = sizeof *p + p->mem.total + pl_graph_bytes(p->base_graph) +
              p->base_units->arena.total + p->keep_all->mem.total + (uint64_t)n * (BOUND + LABEL);
    for (uint32_t i = 0; i < n; i++) {
        h.bytes += p->exec[i].host_bytes;
        h.library_kernels += p->exec[i].library_kernels;
    }
    return h;
}

/* ---- compiling -------------------------------------------------------------------------- */
static pl_dtype low_dtype(enum pl_precision precision)
{
    return precision == PL_PRECISION_FP16   ? PL_F16
           : precision == PL_PRECISION_BF16 ? PL_BF16
                                            : PL_F32;
}

/* Rounding is part of the graph: in 16 bits it must not depend on whether groups are used. */
static pl_pass_opts pass_opts(const pl_program *p)
{
    pl_pass_opts o = {.low = low_dtype(p->opts.precision), .fuse = p->dev->fuse};
    bool grouped = !p->opts.reference && !p->opts.no_fuse;
    o.tails = p->dev->fuse && p->dev->fuse->tails && !p->opts.reference;
    o.tf32 = p->opts.precision == PL_PRECISION_TF32;
    o.pads = o.tails && (o.tf32 || o.low != PL_F32);
    o.open = p->dev->fuse && p->dev->fuse->open && (grouped || o.low != PL_F32);
    return o;
}

static pl_status compile(pl_program *p)
{
    uint64_t begin = pl_sys_now_ns(), at = begin;
    PL_TRY(pl_graph_status(p->base_graph));
    PL_TRY(pl_graph_verify(p->base_graph));
    PL_TRY(pl_device_find(p->opts.device, &p->dev));
    p->times.device = pl_lap(&at);
    pl_device_mode mode = pl_program_mode(p);
    if (p->dev->set_mode) p->dev->set_mode(&mode);
    PL_TRY(pl_link_parse(p->opts.link ? p->opts.link : p->dev->link, &p->link));
    pl_pass_opts passes = pass_opts(p);
    PL_TRY(pl_passes_run(&p->base_graph, &passes));
    p->times.passes = pl_lap(&at);
    PL_TRY(make_units(p));
    p->times.groups = pl_lap(&at);
    PL_TRY(make_plan(p));
    p->info.plan_ms = pl_lap(&begin);
    return pl_program_set_budget(p, p->opts.arena_budget);
}

pl_status pl_compile(pl_graph *g, const pl_compile_opts *o, pl_program **out)
{
    pl_compile_opts opts = PL_COMPILE_INIT;
    PL_FAIL_IF(!g, PL_ERR_MEMORY, "no graph to compile");
    pl_program *p = pl_sys_alloc(sizeof *p);
    if (!p) {
        pl_graph_free(g);
        return PL_ERR_MEMORY;
    }
    p->base_graph = g;
    if (o) memcpy(&opts, o, o->struct_size < sizeof opts ? o->struct_size : sizeof opts);
    p->opts = opts;
    pl_status rc = compile(p);
    p->opts.device = p->opts.link = NULL; /* the caller's texts */
    if (rc != PL_OK) {
        pl_program_free(p);
        return rc;
    }
    *out = p;
    return PL_OK;
}

void pl_program_free(pl_program *p)
{
    if (!p) return;
    for (uint32_t i = 0; p->exec && i < p->base_units->n; i++) p->dev->discard(&p->exec[i]);
    pl_budget_free(p->budget);
    pl_plan_free(p->keep_all);
    pl_units_free(p->base_units);
    pl_graph_free(p->base_graph);
    pl_arena_release(&p->plan_mem);
    pl_arena_release(&p->mem);
    pl_sys_free(p);
}

const pl_device *pl_program_device(const pl_program *p)
{
    return p->dev;
}

/* ---- reading a program ------------------------------------------------------------------ */
const pl_plan_info *pl_program_plan(const pl_program *p)
{
    return &p->info;
}

pl_program_times pl_program_times_get(const pl_program *p)
{
    return p->times;
}

const char *pl_program_position_label(const pl_program *p, int position)
{
    return position >= 0 && (uint32_t)position < p->plan->n_positions ? p->position_label[position]
                                                                      : "";
}

pl_plan_buffer pl_program_buffer(const pl_program *p, int i)
{
    if (i < 0 || i >= p->info.buffers)
        return (pl_plan_buffer){.label = "", .first = -1, .last = -1};
    const pl_placed_buffer *b = &p->plan->buffers[i];
    pl_plan_buffer out = {.bytes = b->bytes,
                          .offset = b->offset,
                          .first = b->first,
                          .last = b->last,
                          .component = b->component,
                          .type = b->value ? *pl_type_of(p->g, b->value) : PL_RANK0(PL_U8)};
    uint32_t node = b->value ? pl_producer(p->g, b->value) : 0;
    const char *name = node ? pl_node_name(p->g, node) : NULL;
    out.label = name ? name : pl_program_position_label(p, b->first);
    return out;
}

/* Marks on units, for unit_stages. */
enum { BACKWARD = 1, AFTER_BACKWARD = 2, BEFORE_BACKWARD = 4 };

/* Returns the marks of every unit, which the caller frees; NULL without memory. Unit ids are in a
 * topological order, so one walk each way carries a mark to all that follow or precede. */
static uint8_t *unit_marks(const pl_graph *g, const pl_units *units)
{
    uint8_t *mark = pl_sys_alloc(units->n + 1);
    if (!mark) return NULL;
    for (uint32_t u = 0; u < units->n; u++) {
        const pl_unit *unit = &units->unit[u];
        bool backward = unit->n_out > 0;
        for (uint32_t k = 0; k < unit->n_out; k++)
            backward &= pl_node_get(g, pl_producer(g, unit->out[k]))->backward;
        mark[u] = backward ? BACKWARD : 0;
        for (uint32_t k = 0; k < unit->n_in; k++) {
            uint32_t from = units->unit_of[unit->in[k]];
            /* by the value: a group with forward results may give a gradient too */
            if (from && (mark[from - 1] & AFTER_BACKWARD ||
                         pl_node_get(g, pl_producer(g, unit->in[k]))->backward))
                mark[u] |= AFTER_BACKWARD;
        }
    }
    for (uint32_t u = units->n; u-- > 0;) {
        const pl_unit *unit = &units->unit[u];
        if (!(mark[u] & (BACKWARD | BEFORE_BACKWARD))) continue;
        for (uint32_t k = 0; k < unit->n_in; k++)
            if (units->unit_of[unit->in[k]])
                mark[units->unit_of[unit->in[k]] - 1] |= BEFORE_BACKWARD;
    }
    return mark;
}

static enum pl_stage stage_of(uint8_t mark)
{
    if (mark & BACKWARD) return PL_STAGE_BACKWARD;
    return mark & AFTER_BACKWARD && !(mark & BEFORE_BACKWARD) ? PL_STAGE_UPDATE : PL_STAGE_FORWARD;
}

int pl_program_positions(const pl_program *p, bool keep_all, pl_plan_position *out, int cap)
{
    const pl_plan *plan = keep_all ? p->keep_all : p->plan;
    if (cap == 0) return (int)plan->n_positions;
    uint8_t *mark =
        keep_all ? unit_marks(p->base_graph, p->base_units) : unit_marks(p->g, p->units);
    int n = (int)plan->n_positions < cap ? (int)plan->n_positions : cap;
    for (int i = 0; i < n; i++) {
        out[i] = (pl_plan_position){.bytes = 0};
        if ((uint32_t)i >= plan->n_order) continue;
        uint32_t unit = plan->order[i];
        out[i].ms = p->cost_ns[keep_all ? unit : pl_base_unit(p, unit)] / 1e6;
        out[i].recomputed = !keep_all && p->x && p->x->recomputed[unit];
        out[i].stage = mark ? stage_of(mark[unit]) : PL_STAGE_FORWARD;
    }
    pl_sys_free(mark);
    /* Births and deaths first, then their running sums. Differences wrap around and back. */
    for (uint32_t i = 0; i < plan->n_buffers; i++) {
        const pl_placed_buffer *b = &plan->buffers[i];
        if (b->first < n) out[b->first].bytes += b->bytes;
        if (b->last < n) out[b->last].bytes -= b->bytes;
    }
    for (int i = 1; i < n; i++) out[i].bytes += out[i - 1].bytes;
    return (int)plan->n_positions;
}

int pl_program_input_count(const pl_program *p)
{
    return p->n_inputs;
}

const char *pl_program_input_name(const pl_program *p, int i)
{
    return i >= 0 && i < p->n_inputs ? pl_node_name(p->g, p->inputs[i]) : NULL;
}

pl_type pl_program_input_type(const pl_program *p, int i)
{
    return *pl_type_of(p->g, pl_node_get(p->g, p->inputs[i])->out);
}

int pl_program_output_count(const pl_program *p)
{
    return (int)p->plan->n_outputs;
}

const char *pl_program_output_name(const pl_program *p, int i)
{
    bool is = i >= 0 && i < pl_program_output_count(p);
    return is ? pl_node_name(p->g, p->plan->outputs[i].node) : NULL;
}

pl_type pl_program_output_type(const pl_program *p, int i)
{
    return *pl_type_of(p->g, pl_node_in(p->g, p->plan->outputs[i].node)[0]);
}

pl_status pl_program_print(const pl_program *p, char **text)
{
    return pl_graph_print(p->g, text);
}
