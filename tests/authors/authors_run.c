/* authors_run.c - runs on the authors' draws: programs, gradients, changes; see authors.h. */
#include "tests/authors/authors.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "tests/recipes/peer.h"
#include "train/run/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A change of which more than this share of the norm differs goes in another direction. Elements
 * whose gradient is rounding take a full step of either sign. */
#define DIRECTION 0.25

void authors_key(authors_keys *k, const char *fmt, ...)
{
    char text[2000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (k->n < (int)(sizeof k->text / sizeof *k->text))
        k->text[k->n++] = pl_arena_strdup(&k->a->mem, text);
}

static pl_status start(pl_run *run, bool f64)
{
    run->purpose.f64 = f64;
    run->purpose.goal = PL_GOAL_REPLAY;
    PL_TRY(pl_run_build(run));
    PL_TRY(pl_run_start(run));
    return pl__weights_load(run);
}

/* Moves every weight by AUTHORS_NUDGE times its own size, up or down. */
static pl_status nudge(pl_run *run, int draw)
{
    for (int i = 0; i < pl_store_count(run->store); i++) {
        const pl_slot *s = pl_store_slot(run->store, i);
        if (!pl__slot_in_model(s) || s->type.dtype != PL_F64) continue;
        size_t bytes = pl_type_bytes(&s->type);
        double *x = pl_sys_alloc(bytes + 1);
        if (!x) return PL_ERR_MEMORY;
        pl_status rc = pl_session_read_slot(run->session, i, 0, x, bytes);
        for (int64_t k = 0; rc == PL_OK && k < pl_type_elems(&s->type); k++)
            x[k] *=
                1 + AUTHORS_NUDGE * authors_sign((uint64_t)i << 24 ^ (uint64_t)k, (uint64_t)draw);
        if (rc == PL_OK) rc = pl_session_write_slot(run->session, i, 0, x, bytes);
        pl_sys_free(x);
        PL_TRY(rc);
    }
    return PL_OK;
}

pl_run *authors_run_open(authors *a, const char *config, const authors_keys *k, bool f64)
{
    pl_run *run = NULL;
    pl_status rc = pl_run_open(config, k->text, k->n, &run);
    if (rc == PL_OK) rc = start(run, f64 || a->wide);
    if (rc == PL_OK && a->draw) rc = nudge(run, (a->draw + 1) / 2);
    if (rc == PL_OK) return run;
    authors_fail(a, config, "%s", pl_error_text());
    pl_run_free(run);
    return NULL;
}

/* ---- programs ----------------------------------------------------------------------------- */
static const pl_step_program *find(const authors_program *p)
{
    const pl_variant *v = p->run->build->now;
    for (int i = 0; i < v->n_step_programs; i++) {
        const char *name = v->step_programs[i].name;
        if (p->name ? name && strcmp(name, p->name) == 0 : !name) return &v->step_programs[i];
    }
    return NULL;
}

void authors_set_values(const authors_program *p, const char *input, const double *x, int64_t n)
{
    const pl_step_program *t = find(p);
    pl_type type;
    void *to = t ? pl_session_input(p->run->session, t->run, input, &type) : NULL;
    if (!to || pl_type_elems(&type) != n) {
        authors_fail(p->a, input, "program %s has no such input of %lld elements",
                     p->name ? p->name : "train", (long long)n);
        return;
    }
    /* whole numbers stay */
    double by = authors_draw_moves_inputs(p->a->draw) && type.dtype == PL_F64 ? AUTHORS_NUDGE : 0;
    for (int64_t i = 0; i < n; i++)
        pl_elem_set(type.dtype, to, i,
                    x[i] * (1 + by * authors_sign((uint64_t)i, (uint64_t)p->a->draw)));
}

void authors_set(const authors_program *p, const char *input, const char *tensor,
                 authors_layout layout)
{
    pl_type type;
    const double *x = authors_tensor(p->a, tensor, layout, &type);
    if (x)
        authors_set_values(p, input, x, pl_type_elems(&type));
    else
        authors_fail(p->a, tensor, "io.safetensors has no such tensor");
}

bool authors_run_program(const authors_program *p)
{
    const pl_step_program *t = find(p);
    if (t && pl_session_run(p->run->session, t->run) == PL_OK) return true;
    authors_fail(p->a, p->name ? p->name : "train", "%s", t ? pl_error_text() : "no such program");
    return false;
}

double authors_scalar(const authors_program *p, const char *output)
{
    const pl_step_program *t = find(p);
    pl_type type;
    const void *x = t ? pl_session_output(p->run->session, t->run, output, &type) : NULL;
    return x ? pl_elem_get(type.dtype, x, 0) : (double)NAN;
}

/* ---- tensors of slots --------------------------------------------------------------------- */
/* Elements of a value that is laid out like the slot, in the order of files. */
static double *file_order(authors *a, const pl_slot *s, const pl_type *type, const void *x)
{
    int64_t n;
    int64_t *index = peer_slot_order(s, &n);
    double *y = pl_arena_new(&a->mem, double, (size_t)n + 1);
    for (int64_t i = 0; y && index && i < n; i++) y[i] = pl_elem_get(type->dtype, x, index[i]);
    pl_sys_free(index);
    return y;
}

static double *slot_values(authors *a, pl_run *run, int slot)
{
    const pl_slot *s = pl_store_slot(run->store, slot);
    size_t bytes = pl_type_bytes(&s->type);
    void *raw = pl_sys_alloc(bytes + 1);
    double *x = NULL;
    if (raw && pl_session_read_slot(run->session, slot, 0, raw, bytes) == PL_OK)
        x = file_order(a, s, &s->type, raw);
    pl_sys_free(raw);
    return x;
}

void authors_put(authors *a, pl_run *run, const char *slot, const char *tensor)
{
    int i = pl_store_find(run->store, slot);
    pl_type t;
    const double *x = authors_tensor(a, tensor, AUTHORS_PLAIN, &t);
    const pl_slot *s = i < 0 ? NULL : pl_store_slot(run->store, i);
    if (!x || !s || pl_type_elems(&t) != pl_type_elems(&s->type)) {
        authors_fail(a, tensor, "io or the run lacks it, or the sizes differ (%s)", slot);
        return;
    }
    int64_t n, *index = peer_slot_order(s, &n);
    size_t bytes = pl_type_bytes(&s->type);
    void *raw = pl_sys_alloc(bytes + 1);
    for (int64_t k = 0; raw && index && k < n; k++) pl_elem_set(s->type.dtype, raw, index[k], x[k]);
    if (!raw || pl_session_write_slot(run->session, i, 0, raw, bytes) != PL_OK)
        authors_fail(a, tensor, "%s", pl_error_text());
    pl_sys_free(raw);
    pl_sys_free(index);
}

double **authors_snapshot(authors *a, pl_run *run)
{
    int n = pl_store_count(run->store);
    double **all = pl_arena_new(&a->mem, double *, (size_t)n + 1);
    for (int i = 0; all && i < n; i++)
        if (pl__slot_in_model(pl_store_slot(run->store, i))) all[i] = slot_values(a, run, i);
    return all;
}

static void note(authors_summary *s, double d, const char *name)
{
    s->n++;
    if (s->n > 1 && d <= s->worst) return;
    s->worst = isnan(d) ? (double)INFINITY : d;
    snprintf(s->name, sizeof s->name, "%s", name);
}

/* The wanted tensor, whole or as a sketch. */
typedef struct wanted {
    double *whole; /* NULL: sketch */
    double *sketch;
    int64_t n;
} wanted;

static bool find_wanted(authors *a, const char *kind, const char *name, wanted *w)
{
    char path[640];
    pl_type t;
    *w = (wanted){0};
    snprintf(path, sizeof path, "%s/%s", kind, name);
    w->whole = authors_tensor(a, path, AUTHORS_PLAIN, &t);
    if (w->whole) w->n = pl_type_elems(&t);
    if (w->whole) return true;
    snprintf(path, sizeof path, "sketch/%s/%s", kind, name);
    w->sketch = authors_tensor(a, path, AUTHORS_PLAIN, &t);
    return w->sketch && pl_type_elems(&t) == 4;
}

static double sketch_difference(const double *x, int64_t n, const double want[4], double slack)
{
    double got[4], d = 0;
    authors_sketch(x, n, got);
    for (int i = 0; i < 4; i++) d = fmax(d, fabs(got[i] - want[i]));
    if (!isfinite(got[0])) return (double)INFINITY;
    return fmax(0, d - slack * sqrt((double)n)) / fmax(want[0], 1e-300);
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

static double difference(const wanted *w, const double *x, int64_t n, double slack)
{
    if (w->sketch) return sketch_difference(x, n, w->sketch, slack);
    if (w->n != n) return (double)INFINITY;
    return fmax(0, authors_difference(x, w->whole, n) - slack / fmax(largest(w->whole, n), 1e-300));
}

void authors_allow_rounding(authors_summary *s, const char *name)
{
    wanted w;
    if (find_wanted(s->a, s->kind, name, &w) && w.whole)
        s->slack = fmax(s->slack, largest(w.whole, w.n) * 0x1p-24);
}

/* ---- changes ------------------------------------------------------------------------------ */
static double norm(const double *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i] * x[i];
    return sqrt(s);
}

/* Norm of what rounding to the slot's type can add to weights of these values. */
static double rounding(pl_dtype dtype, const double *weight, int64_t n)
{
    return norm(weight, n) * (dtype == PL_F64 ? 0x1p-52 : 0x1p-24);
}

/* Difference of the norms beyond `slack`; infinite when the direction is another one. */
static double change_difference(const wanted *w, double *x, int64_t n, double slack)
{
    double got = norm(x, n), want, apart;
    if (w->sketch) {
        double now[4];
        authors_sketch(x, n, now);
        want = w->sketch[0];
        apart = 0;
        for (int i = 1; i < 4; i++) apart = fmax(apart, fabs(now[i] - w->sketch[i]));
    } else {
        if (w->n != n) return (double)INFINITY;
        want = norm(w->whole, n);
        for (int64_t i = 0; i < n; i++) x[i] -= w->whole[i];
        apart = norm(x, n);
    }
    if (want <= slack) return got <= 2 * slack ? 0 : got;
    if (apart - slack > DIRECTION * want) return (double)INFINITY;
    return fmax(0, fabs(got - want) - slack) / want;
}

/* ---- many tensors in one line ------------------------------------------------------------- */
/* Compares the tensor that was joined. */
static void flush(authors_summary *s)
{
    wanted w;
    bool rounding_only = authors_is_rounding(s->a, s->change ? NULL : s->kind, s->now);
    if (s->now[0] && !rounding_only && find_wanted(s->a, s->kind, s->now, &w))
        note(s,
             !s->x       ? (double)NAN
             : s->change ? change_difference(&w, s->x, s->n_x, s->rounding)
                         : difference(&w, s->x, s->n_x, s->slack),
             s->now);
    s->now[0] = 0;
    s->x = NULL;
    s->n_x = 0;
    s->rounding = 0;
}

/* Appends elements to the tensor of that name, after those of the slots before. */
static void join(authors_summary *s, const char *name, const double *x, int64_t n, double rounds)
{
    if (strcmp(name, s->now) != 0) flush(s);
    snprintf(s->now, sizeof s->now, "%s", name);
    double *all = x ? pl_arena_new(&s->a->mem, double, (size_t)(s->n_x + n) + 1) : NULL;
    if (all && s->x) memcpy(all, s->x, (size_t)s->n_x * sizeof *all);
    if (all) memcpy(all + s->n_x, x, (size_t)n * sizeof *all);
    s->x = all;
    s->n_x += n;
    s->rounding = hypot(s->rounding, rounds);
}

void authors_print(authors_summary *s, double tolerance)
{
    flush(s);
    char what[160], text[600];
    snprintf(what, sizeof what, "%s %s", s->kind, s->slots);
    if (!s->n) {
        authors_fail(s->a, what, "nothing to compare");
        return;
    }
    snprintf(text, sizeof text, "%d tensors, worst %s", s->n, s->name);
    authors_line(s->a, what, s->worst, tolerance, text);
}

void authors_gradient(authors_summary *s, const pl_slot *slot, const char *name,
                      const pl_type *type, const void *got)
{
    join(s, name, file_order(s->a, slot, type, got), pl_type_elems(type), 0);
}

void authors_gradients(const authors_program *p, const char *kind, const char *slots,
                       authors_namer namer, double tolerance)
{
    const pl_step_program *t = find(p);
    authors_summary all = {.a = p->a, .kind = kind, .slots = slots};
    int n = pl_store_count(p->run->store);
    for (int i = 0; t && i < 2 * n; i++) {
        const pl_slot *s = pl_store_slot(p->run->store, i % n);
        char name[512], output[600];
        pl_type type;
        if (s->kind != PL_SLOT_PARAM || !pl_nn_match(slots, s->name)) continue;
        snprintf(output, sizeof output, "grad.%s", s->name);
        const void *got =
            pl_session_output(p->run->session, pl__step_program_updater(t), output, &type);
        if (!got || !namer(p->run, s->name, name)) continue;
        if (i < n)
            authors_allow_rounding(&all, name);
        else
            authors_gradient(&all, s, name, &type, got);
    }
    authors_print(&all, tolerance);
}

void authors_deltas(authors *a, pl_run *run, double *const *before, const char *kind,
                    const char *slots, authors_namer namer, bool ema)
{
    authors_summary all = {.a = a, .kind = kind, .slots = slots, .change = true};
    for (int i = 0; before && i < pl_store_count(run->store); i++) {
        const pl_slot *s = pl_store_slot(run->store, i);
        char name[512], average[600];
        if (s->kind != PL_SLOT_PARAM || !before[i] || !pl_nn_match(slots, s->name)) continue;
        if (!namer(run, s->name, name)) continue;
        snprintf(average, sizeof average, "ema.%s", s->name);
        int slot = ema ? pl_store_find(run->store, average) : i;
        double *now = slot_values(a, run, slot < 0 ? i : slot);
        int64_t n = pl_type_elems(&s->type);
        for (int64_t k = 0; now && k < n; k++) now[k] -= before[i][k];
        join(&all, name, now, n, rounding(s->type.dtype, before[i], n));
    }
    authors_print(&all, AUTHORS_DELTA);
}

void authors_state(authors *a, pl_run *run, const char *kind, const char *slots,
                   authors_namer namer, double tolerance)
{
    authors_summary all = {.a = a, .kind = kind, .slots = slots};
    for (int i = 0; i < pl_store_count(run->store); i++) {
        const pl_slot *s = pl_store_slot(run->store, i);
        char name[512];
        wanted w;
        if (!pl__slot_in_model(s) || !pl_nn_match(slots, s->name)) continue;
        if (!namer(run, s->name, name) || !find_wanted(a, kind, name, &w)) continue;
        const double *now = slot_values(a, run, i);
        note(&all, now ? difference(&w, now, pl_type_elems(&s->type), 0) : (double)NAN, name);
    }
    authors_print(&all, tolerance);
}
