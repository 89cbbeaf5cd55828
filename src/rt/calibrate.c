/* calibrate.c - see calibrate.h.
 *
 * Units are timed in runs of whole programs, because a kernel alone in a loop finds its operands in
 * the caches, and in a step it does not. The median of a unit's samples counts. A unit that runs
 * several times in a step (repeated layers, recomputed units) has the mean of those medians.
 *
 * A CPU is shared with other programs. The system counts how long a thread that could run waited
 * for a core; samples in which the threads of the team waited long do not count.
 *
 * On a device that replays a captured program, units timed one by one take longer: an event lies
 * between any two of them, and the host may be slower than the device. The time of a whole run is
 * known, so a constant is subtracted from each unit such that the sum equals the whole run.
 */
#include "rt/calibrate.h"
#include "ir/group/product.h"

#include "base/cache_dir.h"
#include "base/sys.h"
#include "base/team.h"
#include "base/threads.h"
#include "ir/group/fused.h"
#include "plan/cost/cost_table.h"
#include "plimsoll_unstable.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- the device's table ----------------------------------------------------------------- */
/* The owner of the times, and their file; "" when none is kept. */
typedef struct table_file {
    char owner[512], path[4096];
} table_file;

static void table_file_of(const pl_device *dev, table_file *f)
{
    char model[384], name[64];
    snprintf(model, sizeof model, "%s", dev->name);
    if (dev->model) dev->model(model, sizeof model);
    model[strcspn(model, "\n")] = 0;
    snprintf(f->owner, sizeof f->owner, "%s, plimsoll %s", model, PL_VERSION_STRING);
    snprintf(name, sizeof name, "times-%016llx.txt",
             (unsigned long long)XXH64(f->owner, strlen(f->owner), 0));
    if (dev->plans_only || !pl_cache_path(name, f->path, sizeof f->path) ||
        !pl_cache_trusts(f->path))
        f->path[0] = 0;
}

/* ---- fingerprints ----------------------------------------------------------------------- */
static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    return XXH64(p, n, h);
}
static uint64_t mix_int(uint64_t h, int64_t v)
{
    return mix(h, &v, sizeof v);
}
static uint64_t mix_text(uint64_t h, const char *text)
{
    return mix(h, text, strlen(text) + 1);
}
static uint64_t mix_type(uint64_t h, const pl_type *t)
{
    return mix(mix_int(h, t->dtype), t->dim, sizeof t->dim);
}

static uint64_t mix_form(uint64_t h, const pl_fused *f)
{
    h = mix(mix_int(mix_int(h, f->rank), f->row_rank), f->dim, sizeof f->dim);
    for (int i = 0; i < f->n_in; i++) {
        h = mix_int(mix_int(mix_int(h, f->in[i].in), f->in[i].offset), f->in[i].bits);
        h = mix(h, f->in[i].stride, sizeof f->in[i].stride);
    }
    for (int i = 0; i < f->n_instr; i++) {
        const pl_fused_instr *x = &f->instr[i];
        h = mix_int(mix_int(mix_int(mix_int(h, x->code), x->dtype), x->fn), x->reduce);
        h = mix(mix_int(mix_int(h, x->operand), x->draw.normal), x->arg, sizeof x->arg);
        h = mix(mix(h, &x->imm, sizeof x->imm), x->step, sizeof x->step);
    }
    for (int i = 0; i < f->n_out; i++) {
        const pl_fused_output *o = &f->out[i];
        h = mix_int(mix_int(mix_int(mix_int(h, o->kind), o->src), o->dtype), o->bits);
        h = mix_int(mix_int(mix_int(mix_int(h, o->out), o->out2), o->reduce), o->mask);
    }
    return h;
}

/* Returns a group's kind: map only, row reductions, or reductions across rows. */
static const char *group_kind(const pl_fused *f)
{
    const char *kind = "map";
    for (int i = 0; i < f->n_instr; i++)
        if (f->instr[i].code == PL_FUSED_ROW_REDUCE) kind = "row";
    for (int i = 0; i < f->n_out; i++)
        if (f->out[i].kind == PL_FUSED_REDUCE) kind = "reduce";
    return kind;
}

static void name_kind(pl_time_sample *s, const char *what, const char *kernel, pl_dtype dtype)
{
    snprintf(s->kind, sizeof s->kind, "%s.%s.%s", what, kernel, pl_dtype_name(dtype));
    for (char *c = s->kind; *c; c++)
        if (*c == ' ') *c = '_';
}

/* Fills everything of a base unit's sample but the time. */
static pl_status describe(const pl_program *p, uint32_t unit, pl_time_sample *s)
{
    const pl_unit *u = &p->base_units->unit[unit];
    const pl_call *call = &p->call[unit];
    const char *kernel = p->exec[unit].kernel->name;
    pl_dtype dtype = call->n_in ? call->in_type[0].dtype : call->out_type[0].dtype;
    uint64_t h = mix_text(0, kernel);
    *s = (pl_time_sample){.cost = p->cost[unit]};
    for (int i = 0; i < call->n_in; i++) h = mix_type(h, &call->in_type[i]);
    for (int k = 0; k < call->n_out; k++) h = mix_type(h, &call->out_type[k]);
    if (u->kind == PL_UNIT_GROUP) {
        pl_arena scratch = PL_ARENA_INIT;
        pl_fused f;
        pl_unit behind = *u;
        bool product = pl_group_product(p->base_graph, u) != 0;
        pl_status rc = product ? pl_group_behind(p->base_graph, u, &scratch, &behind) : PL_OK;
        if (rc == PL_OK) rc = pl_fused_make(p->base_graph, &behind, &scratch, &f);
        if (rc == PL_OK) {
            name_kind(s, product ? "product" : group_kind(&f), kernel, dtype);
            h = mix_form(h, &f);
        }
        pl_arena_release(&scratch);
        PL_TRY(rc);
    } else {
        const pl_op *op = pl_node_get(p->base_graph, u->nodes[0])->op;
        name_kind(s, op->name, kernel, dtype);
        h = mix_text(h, op->name);
        if (op->attrs) h = mix_int(h, (int64_t)pl_attr_hash(op, call->attr));
    }
    s->unit = h;
    return PL_OK;
}

/* ---- expected times --------------------------------------------------------------------- */
static pl_dtype dtype_of(const pl_call *call)
{
    return call->n_in ? call->in_type[0].dtype : PL_F32;
}

static double estimate_ns(const pl_program *p, uint32_t unit)
{
    const pl_cost *cost = &p->cost[unit];
    pl_device_mode mode = pl_program_mode(p);
    if (cost->work == PL_WORK_LINK) return pl_link_ns(&p->link, cost);
    return p->dev->unit_ns(p->dev, cost, dtype_of(&p->call[unit]), &mode);
}

double pl_program_swapped_ns(const pl_program *p, uint32_t unit)
{
    const pl_cost *cost = &p->cost[unit];
    pl_device_mode mode = pl_program_mode(p);
    pl_dtype dtype = dtype_of(&p->call[unit]);
    bool estimate = p->time_source[unit] == PL_TIME_ESTIMATED && cost->work != PL_WORK_LINK;
    if (!estimate || (dtype != PL_F16 && dtype != PL_BF16)) return p->cost_ns[unit];
    return p->dev->unit_ns(p->dev, cost, dtype == PL_F16 ? PL_BF16 : PL_F16, &mode);
}

uint64_t pl_program_scratch(const pl_program *p, uint32_t unit)
{
    pl_device_mode mode = pl_program_mode(p);
    bool expected = p->dev->scratch_bytes && p->base_units->unit[unit].kind == PL_UNIT_KERNEL;
    if (!expected) return p->exec[unit].work_bytes;
    return p->dev->scratch_bytes(p->dev, &p->cost[unit], dtype_of(&p->call[unit]), &mode);
}

static pl_status time_unit(pl_program *p, pl_time_table *t, uint32_t unit, double *ns)
{
    pl_time_sample s;
    p->time_source[unit] = PL_TIME_ESTIMATED;
    *ns = 0;
    if (p->base_units->unit[unit].kind == PL_UNIT_VIEW) return PL_OK;
    if (pl_time_table_count(t) && p->cost[unit].work != PL_WORK_LINK) {
        PL_TRY(describe(p, unit, &s));
        p->time_source[unit] = PL_TIME_MEASURED;
        if (pl_time_table_find(t, s.unit, s.kind, ns)) return PL_OK;
        p->time_source[unit] = PL_TIME_CALIBRATED;
        bool timed = p->exec[unit].measured_ns > 0;
        if (!timed && pl_time_table_like(t, s.kind, &s.cost, ns)) return PL_OK;
        p->time_source[unit] = PL_TIME_ESTIMATED;
    }
    *ns = p->exec[unit].measured_ns;
    if (*ns > 0)
        p->time_source[unit] = PL_TIME_MEASURED;
    else
        *ns = estimate_ns(p, unit);
    return PL_OK;
}

double pl_copy_ns(const pl_program *p, uint64_t bytes)
{
    return p->copy_ns + p->copy_ns_byte * (double)bytes;
}

pl_status pl_program_time(pl_program *p, double *cost_ns)
{
    table_file f;
    pl_time_table *t;
    p->time_source = pl_arena_new(&p->mem, uint8_t, p->base_units->n + 1);
    if (!p->time_source) return PL_ERR_MEMORY;
    table_file_of(p->dev, &f);
    PL_TRY(pl_time_table_load(f.path[0] ? f.path : NULL, f.owner, &t));
    pl_status rc = PL_OK;
    for (uint32_t i = 0; i < p->base_units->n && rc == PL_OK; i++)
        rc = time_unit(p, t, i, &cost_ns[i]);
    pl_time_table_free(t);
    p->dev->copy_ns(p->dev, &p->copy_ns, &p->copy_ns_byte);
    return rc;
}

/* ---- measuring -------------------------------------------------------------------------- */
/* Of one bound program: the profile's sums at the last sample, and takes[unit][sample]. */
typedef struct program_takes {
    uint64_t *last;
    uint64_t last_runs;
    float *takes;
    float *waited; /* per sample: the share of its time in which threads waited for a core */
    int n;
    double whole_ns; /* of a whole run, by the device's clock; 0: not known */
} program_takes;

struct pl_measure {
    pl_arena mem;
    pl_session *session;
    program_takes *of; /* per bound program */
    int most;
    uint64_t now, waited; /* at the last sample */
};

static uint64_t (*waited_of_thread)(void) = pl_sys_waited_ns;

void pl_measure_set_waited(uint64_t (*waited_ns)(void))
{
    waited_of_thread = waited_ns ? waited_ns : pl_sys_waited_ns;
}

static void add_waited(void *sum)
{
    atomic_fetch_add((_Atomic uint64_t *)sum, waited_of_thread());
}

/* Returns the waiting time of all threads that run kernels, summed: each of them delays the others,
 * which wait at the end of a loop. */
static uint64_t team_waited(void)
{
    _Atomic uint64_t sum = 0;
    pl_team_run(pl_team_reach(pl_threads_count()), add_waited, &sum);
    return sum;
}

pl_status pl_measure_new(pl_session *s, int most, pl_measure **out)
{
    pl_measure *m = pl_sys_alloc(sizeof *m);
    if (!m) return PL_ERR_MEMORY;
    m->session = s;
    m->most = most < PL_MEASURE_SAMPLES ? most : PL_MEASURE_SAMPLES;
    m->of = pl_arena_new(&m->mem, program_takes, s->n_bound + 1);
    bool ok = m->of != NULL;
    for (int i = 0; ok && i < s->n_bound; i++) {
        size_t n = s->bound[i].n_units + 1;
        m->of[i].last = pl_arena_new(&m->mem, uint64_t, n);
        m->of[i].takes = pl_arena_new(&m->mem, float, n *(size_t)m->most);
        m->of[i].waited = pl_arena_new(&m->mem, float, m->most);
        m->of[i].whole_ns = 1e6 * pl_session_device_ms(s, s->bound[i].p, 0);
        ok = m->of[i].last && m->of[i].takes && m->of[i].waited;
    }
    pl_status rc = ok ? pl_session_profile(s, true) : PL_ERR_MEMORY;
    if (rc != PL_OK) {
        pl_measure_free(m);
        return rc;
    }
    m->now = pl_sys_now_ns();
    m->waited = team_waited();
    *out = m;
    return PL_OK;
}

void pl_measure_free(pl_measure *m)
{
    if (!m) return;
    pl_arena_release(&m->mem);
    pl_sys_free(m);
}

void pl_measure_take(pl_measure *m)
{
    uint64_t now = pl_sys_now_ns(), waited = team_waited();
    float share = (float)(waited - m->waited) / (float)(now - m->now + 1);
    m->now = now;
    m->waited = waited;
    for (int i = 0; i < m->session->n_bound; i++) {
        const pl_bound_program *b = &m->session->bound[i];
        program_takes *of = &m->of[i];
        uint64_t runs = b->profile.runs - of->last_runs;
        if (runs == 0 || of->n == m->most) continue;
        for (uint32_t j = 0; j < b->n_units; j++) {
            of->takes[j * (uint32_t)m->most + (uint32_t)of->n] =
                (float)(b->profile.ns[j] - of->last[j]) / (float)runs;
            of->last[j] = b->profile.ns[j];
        }
        of->last_runs = b->profile.runs;
        of->waited[of->n++] = of->whole_ns > 0 ? 0 : share;
    }
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the largest share of waiting with which a sample counts. */
static double busiest(const pl_measure *m, const program_takes *of)
{
    enum { LEAST = 3 };
    float sorted[PL_MEASURE_SAMPLES];
    int n = of->n < m->most ? of->n : m->most;
    for (int i = 0; i < n; i++) sorted[i] = of->waited[i];
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    int least = (n < LEAST ? n : LEAST) - 1;
    return n ? fmax(PL_TIMES_BUSY, (double)sorted[least]) : 0;
}

double pl_measure_waited(const pl_measure *m)
{
    double worst = 0;
    for (int i = 0; i < m->session->n_bound; i++) {
        double most = busiest(m, &m->of[i]);
        for (int k = 0; k < m->of[i].n; k++)
            if ((double)m->of[i].waited[k] <= most) worst = fmax(worst, (double)m->of[i].waited[k]);
    }
    return worst;
}

/* Median of the samples that count. */
static double median(const program_takes *of, const float *takes, double most)
{
    float sorted[PL_MEASURE_SAMPLES];
    int n = 0;
    for (int i = 0; i < of->n; i++)
        if ((double)of->waited[i] <= most) sorted[n++] = takes[i];
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return (double)sorted[n / 2];
}

/* Returns the time of a unit that took ns, minus `less`, the cost of timing; at least a fourth of
 * ns is the unit's own. */
static double without(double ns, double less)
{
    enum { OWN = 4 };
    return fmax(ns - less, ns / OWN);
}

/* Bisects: the sum of the corrected times falls as the constant grows. */
double pl_measure_excess(const double *ns, uint32_t n, double whole)
{
    double lo = 0, hi = 0;
    for (uint32_t i = 0; i < n; i++) hi = fmax(hi, ns[i]);
    for (int k = 0; k < 50 && whole > 0; k++) {
        double mid = (lo + hi) / 2, sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += without(ns[i], mid);
        *(sum > whole ? &lo : &hi) = mid;
    }
    return lo;
}

/* Returns the time of each unit of one program in a whole run; NULL without memory. */
static double *unit_times(pl_measure *m, int which)
{
    const pl_bound_program *b = &m->session->bound[which];
    program_takes *of = &m->of[which];
    double *took = pl_arena_new(&m->mem, double, b->n_units + 1), most = busiest(m, of);
    for (uint32_t j = 0; took && j < b->n_units; j++)
        took[j] = median(of, of->takes + (size_t)j * (size_t)m->most, most);
    double excess = took ? pl_measure_excess(took, b->n_units, of->whole_ns) : 0;
    for (uint32_t j = 0; took && j < b->n_units; j++) took[j] = without(took[j], excess);
    return took;
}

/* A unit whose prediction is off. */
typedef struct off_unit {
    uint32_t position;
    double took, predicted;
} off_unit;

static bool is_off(const off_unit *u, double factor, double total)
{
    double more = fmax(u->took, u->predicted), less = fmin(u->took, u->predicted);
    return more > factor * less && more - less > total / 100;
}

static pl_status list_off(pl_measure *m, int which, double factor, pl_str *out)
{
    const pl_bound_program *b = &m->session->bound[which];
    const pl_program *p = b->p;
    off_unit worst[PL_MEASURE_OFF];
    uint32_t n = 0;
    double total = 0, *took = unit_times(m, which);
    if (!took) return PL_ERR_MEMORY;
    for (uint32_t j = 0; j < b->n_units; j++) total += took[j];
    for (uint32_t j = 0; j < p->plan->n_order; j++) {
        uint32_t unit = pl_base_unit(p, p->plan->order[j]);
        if (unit >= p->base_units->n) continue; /* a move */
        off_unit u = {j, took[j], p->cost_ns[unit]};
        if (p->cost[unit].work == PL_WORK_LINK || !is_off(&u, factor, total)) continue;
        uint32_t at = n;
        while (at &&
               fabs(worst[at - 1].took - worst[at - 1].predicted) < fabs(u.took - u.predicted))
            at--;
        if (at == PL_MEASURE_OFF) continue;
        if (n < PL_MEASURE_OFF) n++;
        for (uint32_t k = n - 1; k > at; k--) worst[k] = worst[k - 1];
        worst[at] = u;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t unit = pl_base_unit(p, p->plan->order[worst[k].position]);
        pl_str_addf(out, "%.3g ms, predicted %.3g ms: %s (%s)\n", worst[k].took / 1e6,
                    worst[k].predicted / 1e6, p->position_label[worst[k].position],
                    p->exec[unit].kernel->name);
    }
    return PL_OK;
}

pl_status pl_measure_off(pl_measure *m, double factor, pl_str *out)
{
    for (int i = 0; i < m->session->n_bound; i++)
        if (m->of[i].n) PL_TRY(list_off(m, i, factor, out));
    return PL_OK;
}

/* Sums the times of one program by base unit; then adds the mean of every unit to the table. */
static pl_status put_program(pl_measure *m, int which, pl_time_table *t, int *units)
{
    const pl_bound_program *b = &m->session->bound[which];
    const pl_program *p = b->p;
    program_takes *of = &m->of[which];
    if (of->n == 0) return PL_OK;
    uint32_t n = p->base_units->n;
    pl_time_sample *s = pl_arena_new(&m->mem, pl_time_sample, n + 1);
    double *count = pl_arena_new(&m->mem, double, n + 1), *took = unit_times(m, which);
    if (!s || !count || !took) return PL_ERR_MEMORY;
    for (uint32_t j = 0; j < p->plan->n_order; j++) {
        uint32_t unit = pl_base_unit(p, p->plan->order[j]);
        double ns = took[j], sum = s[unit].ns;
        if (unit >= n) continue;                          /* a move */
        if (p->cost[unit].work == PL_WORK_LINK) continue; /* depends on other ranks */
        if (count[unit] == 0) PL_TRY(describe(p, unit, &s[unit]));
        s[unit].ns = sum + ns;
        count[unit]++;
    }
    for (uint32_t i = 0; i < n; i++) { /* equal units are one entry: their mean */
        for (uint32_t j = i + 1; count[i] > 0 && j < n; j++) {
            if (count[j] == 0 || s[j].unit != s[i].unit) continue;
            s[i].ns += s[j].ns;
            count[i] += count[j];
            count[j] = 0;
        }
        if (count[i] == 0) continue;
        s[i].ns = s[i].ns / count[i] + 1;
        PL_TRY(pl_time_table_put(t, &s[i]));
        ++*units;
    }
    return PL_OK;
}

pl_status pl_measure_save(pl_measure *m, int *units)
{
    table_file f;
    pl_time_table *t;
    int n = 0;
    PL_TRY(pl_session_profile(m->session, false));
    table_file_of(m->session->dev, &f);
    PL_FAIL_IF(!f.path[0], PL_ERR_IO,
               "there is no cache folder for measured times: set PLIMSOLL_CACHE to a folder");
    PL_TRY(pl_time_table_load(f.path, f.owner, &t));
    pl_status rc = PL_OK;
    for (int i = 0; i < m->session->n_bound && rc == PL_OK; i++) rc = put_program(m, i, t, &n);
    if (rc == PL_OK) rc = pl_cache_make(f.path);
    if (rc == PL_OK) rc = pl_time_table_save(t, f.path, f.owner);
    pl_time_table_free(t);
    if (rc == PL_OK && units) *units = n;
    return rc;
}
