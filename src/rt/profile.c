/* profile.c - two reports: the time of each kernel in a run, and the buffers alive at the peak of a
 * plan. */
#include "base/str.h"
#include "base/sys.h"
#include "plimsoll_unstable.h"
#include "rt/calibrate.h"
#include "rt/rt_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pl_status pl_session_profile(pl_session *s, bool on)
{
    for (int i = 0; i < s->n_bound; i++) {
        pl_bound_program *b = &s->bound[i];
        uint64_t *ns = on ? pl_arena_new(&s->mem, uint64_t, b->n_units + 1) : NULL;
        if (on && !ns) return PL_ERR_MEMORY;
        b->profile = (pl_profile){ns, 0};
    }
    return PL_OK;
}

/* One line of either table. */
typedef struct row {
    const char *what, *kernel;
    double ms, predicted, flops, bytes;
    int count;
} row;

static int by_ms(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->ms != y->ms) return x->ms < y->ms ? 1 : -1;
    return strcmp(x->what, y->what);
}

static row step_row(const pl_bound_program *b, uint32_t i)
{
    const pl_program *p = b->p;
    double runs = b->profile.runs ? (double)b->profile.runs : 1;
    row r = {.what = p->position_label[i],
             .kernel = "copy",
             .ms = (double)b->profile.ns[i] / 1e6 / runs,
             .count = 1};
    if (i >= p->plan->n_order) {
        r.bytes = 2 * (double)b->units[i].bytes;
        r.predicted = pl_copy_ns(p, b->units[i].bytes) / 1e6;
        return r;
    }
    uint32_t unit = p->plan->order[i];
    unit = pl_base_unit(p, unit);
    r.kernel = p->exec[unit].kernel->name;
    r.predicted = p->cost_ns[unit] / 1e6;
    r.flops = p->cost[unit].flops;
    r.bytes = p->cost[unit].bytes;
    return r;
}

/* Returns the kind of a unit: the op of a kernel, "group", "copy". */
static const char *kind_of(const pl_program *p, uint32_t i)
{
    if (i >= p->plan->n_order) return "copy";
    const pl_unit *u = &p->units->unit[p->plan->order[i]];
    return u->kind == PL_UNIT_GROUP ? "group" : pl_node_get(p->g, u->nodes[0])->op->name;
}

static void print_rows(pl_str *out, const char *title, row *rows, uint32_t n, uint32_t most,
                       double total)
{
    qsort(rows, n, sizeof *rows, by_ms);
    pl_str_addf(out, "%9s %9s %6s %5s  %-8s %10s %8s %8s  %s\n", "ms", "predicted", "%", "n",
                "kernel", "bytes", "GFLOP/s", "GB/s", title);
    for (uint32_t i = 0; i < n && i < most; i++) {
        char bytes[32];
        double s = rows[i].ms > 0 ? rows[i].ms / 1e3 : 1e-9;
        pl_str_addf(out, "%9.3f %9.3f %6.2f %5d  %-8s %10s %8.1f %8.1f  %s\n", rows[i].ms,
                    rows[i].predicted, total > 0 ? 100 * rows[i].ms / total : 0, rows[i].count,
                    rows[i].kernel, pl_str_bytes((uint64_t)rows[i].bytes, bytes, sizeof bytes),
                    rows[i].flops / s / 1e9, rows[i].bytes / s / 1e9, rows[i].what);
    }
    if (n > most) pl_str_addf(out, "%9s ... %u more\n", "", n - most);
}

/* Rows of at least 1 % of the time that differ from their prediction by more than FAR_OFF. */
static void print_mispredicted(pl_str *out, const row *rows, uint32_t n, double total)
{
    enum { FAR_OFF = 2 };
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        const row *r = &rows[i];
        bool slow = r->ms > FAR_OFF * r->predicted, fast = r->predicted > FAR_OFF * r->ms;
        if (!(slow || fast) || (slow ? r->ms : r->predicted) < total / 100) continue;
        if (!any) pl_str_addf(out, "predictions off by more than %d x:\n", FAR_OFF);
        any = true;
        pl_str_addf(out, "%9.3f %9.3f  %s by %s\n", r->ms, r->predicted, r->what, r->kernel);
    }
}

/* Sums rows that have kind and kernel in common. */
static uint32_t sum_kinds(const pl_bound_program *b, const row *steps, row *kinds)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_units; i++) {
        const char *kind = kind_of(b->p, i);
        uint32_t k = 0;
        while (k < n &&
               (strcmp(kinds[k].what, kind) != 0 || strcmp(kinds[k].kernel, steps[i].kernel) != 0))
            k++;
        if (k == n) kinds[n++] = (row){.what = kind, .kernel = steps[i].kernel};
        kinds[k].ms += steps[i].ms;
        kinds[k].predicted += steps[i].predicted;
        kinds[k].flops += steps[i].flops;
        kinds[k].bytes += steps[i].bytes;
        kinds[k].count++;
    }
    return n;
}

pl_status pl_session_profile_text(const pl_session *s, const pl_program *p, int rows, char **text)
{
    const pl_bound_program *b = pl_session_find(s, p);
    PL_FAIL_IF(!b, PL_ERR_ARG, "the program does not belong to this session");
    PL_FAIL_IF(!b->profile.ns, PL_ERR_ARG, "the session is not being profiled");
    pl_arena scratch = PL_ARENA_INIT;
    row *steps = pl_arena_new(&scratch, row, b->n_units + 1);
    row *kinds = pl_arena_new(&scratch, row, b->n_units + 1);
    pl_str out = PL_STR_INIT;
    pl_status rc = PL_ERR_MEMORY;
    if (!steps || !kinds) goto out;
    double total = 0;
    for (uint32_t i = 0; i < b->n_units; i++) {
        steps[i] = step_row(b, i);
        total += steps[i].ms;
    }
    uint32_t n_kinds = sum_kinds(b, steps, kinds);
    pl_str_addf(&out, "%.3f ms a run, mean of %llu; predicted %.3f ms\n", total,
                (unsigned long long)b->profile.runs, p->info.predicted_step_ms);
    print_rows(&out, "step", steps, b->n_units, rows > 0 ? (uint32_t)rows : UINT32_MAX, total);
    print_rows(&out, "kind", kinds, n_kinds, UINT32_MAX, total);
    if (b->profile.runs) print_mispredicted(&out, kinds, n_kinds, total);
    rc = pl_str_take(&out, text);
out:
    pl_str_release(&out);
    pl_arena_release(&scratch);
    return rc;
}

/* ---- the plan as text ------------------------------------------------------------------ */
static int by_bytes(const void *a, const void *b)
{
    const pl_placed_buffer *const *x = a, *const *y = b;
    if ((*x)->bytes != (*y)->bytes) return (*x)->bytes < (*y)->bytes ? 1 : -1;
    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static void print_alive(const pl_program *p, pl_str *out, const pl_placed_buffer **alive,
                        uint32_t n, uint32_t most)
{
    static const char *const kind[PL_N_COMPONENTS] = {"weights",    "gradient",  "optimizer",
                                                      "activation", "workspace", "input"};
    for (uint32_t i = 0; i < n && i < most; i++) {
        char bytes[32], type[96] = "";
        const pl_placed_buffer *b = alive[i];
        pl_plan_buffer view = pl_program_buffer(p, (int)(b - p->plan->buffers));
        if (b->value) pl_type_text(&view.type, type, sizeof type);
        pl_str_addf(out, "%12s  %-10s  steps %d-%d  %s  %s\n",
                    pl_str_bytes(b->bytes, bytes, sizeof bytes), kind[b->component], b->first,
                    b->last - 1, view.label, type);
    }
    if (n > most) pl_str_addf(out, "%12s  %u more\n", "...", n - most);
}

pl_status pl_program_report(const pl_program *p, int rows, char **text)
{
    pl_arena scratch = PL_ARENA_INIT;
    const pl_plan *plan = p->plan;
    const pl_placed_buffer **alive =
        pl_arena_new(&scratch, const pl_placed_buffer *, plan->n_buffers + 1);
    if (!alive) return PL_ERR_MEMORY;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_buffers; i++)
        if (plan->buffers[i].first <= plan->peak_position &&
            plan->peak_position < plan->buffers[i].last)
            alive[n++] = &plan->buffers[i];
    qsort(alive, n, sizeof *alive, by_bytes);
    pl_str out = PL_STR_INIT;
    char a[32], b[32], c[32];
    pl_str_addf(
        &out, "arena %s (bound %s, program order %s), order \"%s\", %u positions\n",
        pl_str_bytes(plan->arena_bytes, a, sizeof a), pl_str_bytes(plan->live_bound, b, sizeof b),
        pl_str_bytes(plan->program_order_bound, c, sizeof c), plan->order_name, plan->n_positions);
    pl_str_addf(&out, "peak at position %d, %s; alive there:\n", plan->peak_position,
                p->info.peak_node);
    print_alive(p, &out, alive, n, rows > 0 ? (uint32_t)rows : UINT32_MAX);
    pl_status rc = pl_str_take(&out, text);
    pl_str_release(&out);
    pl_arena_release(&scratch);
    return rc;
}
