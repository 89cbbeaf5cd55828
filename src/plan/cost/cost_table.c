/* cost_table.c - see cost_table.h.
 *
 * How the time of a unit follows from samples of its kind:
 *
 * - Work that moves bytes has one measure of size: x = flops + ratio * bytes, with the ratio for
 *   which the kind's samples lie closest to a curve. Samples within a quarter of an octave become
 *   one point; points are raised so that times never fall as x grows. Between two points the time
 *   is linear on logarithmic scales. Beyond the largest point it grows with x; below the smallest
 *   it shrinks towards half of that point's time, the cost of a launch.
 * - A product has a rate that depends on its shape: the mean of the rates of the nearest samples in
 *   (m, n, k, count), weighted by distance, on logarithmic scales.
 *
 * A lookup by fingerprint is one hash probe; a table computes its curves once.
 */
#include "plan/cost/cost_table.h"

#include "base/str.h"
#include "base/sys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEAD "plimsoll times 1"
enum { MOST_SAMPLES = 20000, MOST_BYTES = 16 << 20, MOST_CURVES = 256, MOST_POINTS = 160 };

/* The curve of one kind of work that moves bytes. */
typedef struct curve {
    char kind[PL_TIME_KIND];
    double ratio;
    int n;
    double x[MOST_POINTS], ns[MOST_POINTS]; /* logarithms */
} curve;

struct pl_time_table {
    pl_time_sample *sample; /* oldest first */
    uint32_t n, cap;
    uint32_t *place; /* 2 * cap of them, by unit: 1 + index of a sample, or 0 */
    curve *curves;   /* made when first asked for; dropped by put */
    uint32_t n_curves, cap_curves;
};

/* ---- samples ---------------------------------------------------------------------------- */
uint32_t pl_time_table_count(const pl_time_table *t)
{
    return t->n;
}

/* Returns the cell of the unit's sample, or the empty cell where it would go. cap is a power of
 * two, and 2 * cap > n. */
static uint32_t *place_of(const pl_time_table *t, uint64_t unit, const char *kind)
{
    uint32_t mask = 2 * t->cap - 1, at = (uint32_t)(unit ^ unit >> 32) & mask;
    for (;; at = (at + 1) & mask) {
        const pl_time_sample *s = t->place[at] ? &t->sample[t->place[at] - 1] : NULL;
        if (!s || (s->unit == unit && strcmp(s->kind, kind) == 0)) return &t->place[at];
    }
}

static pl_status grow(pl_time_table *t)
{
    uint32_t cap = t->cap ? 2 * t->cap : 256;
    pl_time_sample *sample =
        pl_sys_realloc(t->sample, t->cap * sizeof *sample, cap * sizeof *sample);
    if (!sample) return PL_ERR_MEMORY;
    t->sample = sample;
    uint32_t *place = pl_sys_alloc(2 * (size_t)cap * sizeof *place);
    if (!place) return PL_ERR_MEMORY;
    pl_sys_free(t->place);
    t->place = place;
    t->cap = cap;
    for (uint32_t i = 0; i < t->n; i++) *place_of(t, t->sample[i].unit, t->sample[i].kind) = i + 1;
    return PL_OK;
}

static void drop_curves(pl_time_table *t)
{
    pl_sys_free(t->curves);
    t->curves = NULL;
    t->n_curves = t->cap_curves = 0;
}

pl_status pl_time_table_put(pl_time_table *t, const pl_time_sample *s)
{
    PL_FAIL_IF(!(s->ns > 0) || !isfinite(s->ns) || !s->kind[0] || strchr(s->kind, ' '), PL_ERR_ARG,
               "a time of %g ns for \"%s\" is not valid", s->ns, s->kind);
    drop_curves(t);
    if (t->n == t->cap) PL_TRY(grow(t));
    uint32_t *place = place_of(t, s->unit, s->kind);
    if (!*place) *place = ++t->n;
    t->sample[*place - 1] = *s;
    return PL_OK;
}

bool pl_time_table_find(const pl_time_table *t, uint64_t unit, const char *kind, double *ns)
{
    uint32_t i = t->n ? *place_of(t, unit, kind) : 0;
    if (i) *ns = t->sample[i - 1].ns;
    return i != 0;
}

/* ---- the line of a kind ----------------------------------------------------------------- */
static double on_line(const pl_cost *c, double ratio)
{
    return log(c->flops + ratio * c->bytes + 1);
}

/* Returns how far the samples' logarithms are from a straight line over x; sets *n to their
 * number. */
static double spread(const pl_time_table *t, const char *kind, double ratio, int *n)
{
    double s = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        if (strcmp(t->sample[i].kind, kind) != 0) continue;
        double x = on_line(&t->sample[i].cost, ratio), y = log(t->sample[i].ns);
        s++, sx += x, sy += y, sxx += x * x, sxy += x * y, syy += y * y;
    }
    *n = (int)s;
    double vx = sxx - sx * sx / s, vxy = sxy - sx * sy / s;
    return syy - sy * sy / s - (vx > 0 ? vxy * vxy / vx : 0);
}

static double best_ratio(const pl_time_table *t, const char *kind, int *n)
{
    double best = 1, least = (double)INFINITY;
    for (double ratio = 1.0 / 64; ratio <= 64; ratio *= 2) {
        double d = spread(t, kind, ratio, n);
        if (d < least) least = d, best = ratio;
    }
    return best;
}

typedef struct point {
    double x, ns;
} point;

static int by_x(const void *a, const void *b)
{
    const point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->ns > q->ns) - (p->ns < q->ns);
}

/* Replaces falling neighbours by their mean until the curve rises everywhere. */
static void make_rising(curve *c)
{
    double weight[MOST_POINTS];
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        double x = c->x[i], ns = c->ns[i], w = 1;
        while (n > 0 && c->ns[n - 1] > ns) {
            double v = weight[n - 1];
            ns = (ns * w + c->ns[n - 1] * v) / (w + v);
            x = (x * w + c->x[n - 1] * v) / (w + v);
            w += v;
            n--;
        }
        c->x[n] = x, c->ns[n] = ns, weight[n] = w;
        n++;
    }
    c->n = n;
}

static void gather(const point *p, int n, curve *c)
{
    static const double octave_quarter = 0.6931471805599453 / 4;
    c->n = 0;
    for (int i = 0; i < n && c->n < MOST_POINTS;) {
        double x = 0, ns = 0, from = p[i].x;
        int k = 0;
        for (; i < n && p[i].x < from + octave_quarter; i++, k++) x += p[i].x, ns += p[i].ns;
        c->x[c->n] = x / k, c->ns[c->n] = ns / k;
        c->n++;
    }
}

static bool make_curve(const pl_time_table *t, const char *kind, curve *c)
{
    int n = 0, k = 0;
    snprintf(c->kind, sizeof c->kind, "%s", kind);
    c->n = 0;
    c->ratio = best_ratio(t, kind, &n);
    point *p = pl_sys_alloc(((size_t)n + 1) * sizeof *p);
    if (!p) return false;
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->sample[i].kind, kind) == 0)
            p[k++] = (point){on_line(&t->sample[i].cost, c->ratio), log(t->sample[i].ns)};
    qsort(p, (size_t)n, sizeof *p, by_x);
    gather(p, n, c);
    make_rising(c);
    pl_sys_free(p);
    return true;
}

static const curve *curve_of(pl_time_table *t, const char *kind)
{
    for (uint32_t i = 0; i < t->n_curves; i++)
        if (strcmp(t->curves[i].kind, kind) == 0) return &t->curves[i];
    if (t->n_curves == t->cap_curves) {
        uint32_t cap = t->cap_curves ? 2 * t->cap_curves : 8;
        curve *grown = cap > MOST_CURVES ? NULL
                                         : pl_sys_realloc(t->curves, t->cap_curves * sizeof *grown,
                                                          cap * sizeof *grown);
        if (!grown) return NULL;
        t->curves = grown;
        t->cap_curves = cap;
    }
    curve *c = &t->curves[t->n_curves];
    return make_curve(t, kind, c) ? t->n_curves++, c : NULL;
}

static double read_curve(const curve *c, double x)
{
    double first = exp(c->ns[0]);
    if (x <= c->x[0]) return first / 2 * (1 + exp(x - c->x[0]));
    for (int i = 1; i < c->n; i++) {
        if (x > c->x[i]) continue;
        double u = (x - c->x[i - 1]) / (c->x[i] - c->x[i - 1]);
        return exp(c->ns[i - 1] + u * (c->ns[i] - c->ns[i - 1]));
    }
    return exp(c->ns[c->n - 1] + x - c->x[c->n - 1]);
}

/* ---- the rate of a product -------------------------------------------------------------- */
static double distance(const pl_cost *a, const pl_cost *b)
{
    double m = log2(a->m / b->m), n = log2(a->n / b->n), k = log2(a->k / b->k);
    double count = log2(a->flops / (a->m * a->n * a->k) / (b->flops / (b->m * b->n * b->k)));
    return m * m + n * n + k * k + count * count;
}

static bool rate_of(const pl_time_table *t, const char *kind, const pl_cost *cost, double *ns)
{
    enum { NEAREST = 6 };
    double d[NEAREST], rate[NEAREST];
    int have = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const pl_time_sample *s = &t->sample[i];
        if (strcmp(s->kind, kind) != 0) continue;
        double at = distance(cost, &s->cost), log_rate = log(s->cost.flops / s->ns);
        int j = have < NEAREST ? have++ : NEAREST;
        for (; j > 0 && d[j - 1] > at; j--)
            if (j < NEAREST) d[j] = d[j - 1], rate[j] = rate[j - 1];
        if (j < NEAREST) d[j] = at, rate[j] = log_rate;
    }
    double sum = 0, weights = 0;
    for (int i = 0; i < have; i++) {
        double w = 1 / (0.01 + d[i] * d[i]);
        sum += w * rate[i];
        weights += w;
    }
    if (have) *ns = cost->flops / exp(sum / weights);
    return have > 0;
}

bool pl_time_table_like(pl_time_table *t, const char *kind, const pl_cost *cost, double *ns)
{
    bool any = false;
    for (uint32_t i = 0; i < t->n && !any; i++) any = strcmp(t->sample[i].kind, kind) == 0;
    if (!any) return false;
    if (cost->work != PL_WORK_MOVE) return rate_of(t, kind, cost, ns);
    const curve *c = curve_of(t, kind);
    if (!c || c->n == 0) return false;
    *ns = read_curve(c, on_line(cost, c->ratio));
    return true;
}

/* ---- the file --------------------------------------------------------------------------- */
pl_status pl_time_table_save(const pl_time_table *t, const char *path, const char *owner)
{
    pl_str out = PL_STR_INIT;
    uint32_t first = t->n > MOST_SAMPLES ? t->n - MOST_SAMPLES : 0;
    pl_str_addf(&out, HEAD "\nowner %s\n", owner);
    for (uint32_t i = first; i < t->n; i++) {
        const pl_time_sample *s = &t->sample[i];
        pl_str_addf(&out, "%016llx %s %.17g %.17g %d %.17g %.17g %.17g %.17g\n",
                    (unsigned long long)s->unit, s->kind, s->cost.flops, s->cost.bytes,
                    (int)s->cost.work, s->cost.m, s->cost.n, s->cost.k, s->ns);
    }
    uint64_t sum = out.failed ? 0 : XXH64(out.text, out.len, 0);
    pl_str_addf(&out, "end %016llx\n", (unsigned long long)sum);
    char *text;
    PL_TRY(pl_str_take(&out, &text));
    pl_status rc = pl_sys_write_file(path, text, strlen(text));
    pl_sys_free(text);
    return rc;
}

static bool is_number(double v)
{
    return isfinite(v) && v >= 0;
}

static bool parse_sample(const char *line, pl_time_sample *s)
{
    unsigned long long unit;
    int work, used = 0;
    memset(s, 0, sizeof *s);
    if (sscanf(line, "%16llx %47s %lf %lf %d %lf %lf %lf %lf%n", &unit, s->kind, &s->cost.flops,
               &s->cost.bytes, &work, &s->cost.m, &s->cost.n, &s->cost.k, &s->ns, &used) != 9)
        return false;
    s->unit = unit;
    s->cost.work = (pl_work)work;
    return line[used] == '\n' && work >= PL_WORK_MOVE && work <= PL_WORK_CONV_DW &&
           work != PL_WORK_LINK && is_number(s->cost.flops) && is_number(s->cost.bytes) &&
           is_number(s->cost.m) && is_number(s->cost.n) && is_number(s->cost.k) &&
           is_number(s->ns) && s->ns > 0 &&
           (work == PL_WORK_MOVE || (s->cost.m * s->cost.n * s->cost.k > 0 && s->cost.flops > 0));
}

/* Returns the line after `first` and `second`; NULL when the text differs. */
static const char *after_line(const char *at, const char *first, const char *second)
{
    size_t a = strlen(first), b = strlen(second);
    if (strncmp(at, first, a) != 0 || strncmp(at + a, second, b) != 0 || at[a + b] != '\n')
        return NULL;
    return at + a + b + 1;
}

static pl_status parse(const char *text, const char *owner, pl_time_table *t)
{
    const char *at = after_line(text, HEAD, "");
    if (at) at = after_line(at, "owner ", owner);
    const char *line = at;
    while (line && *line && strncmp(line, "end ", 4) != 0) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    char end[32];
    PL_FAIL_IF(!line || !*line, PL_ERR_DATA, "the file is not a table of kernel times");
    snprintf(end, sizeof end, "end %016llx\n",
             (unsigned long long)XXH64(text, (size_t)(line - text), 0));
    PL_FAIL_IF(strcmp(line, end) != 0, PL_ERR_DATA, "the table of times is damaged");
    for (; at < line; at = strchr(at, '\n') + 1) {
        pl_time_sample s;
        PL_FAIL_IF(!parse_sample(at, &s), PL_ERR_DATA, "the table of times has a bad line");
        PL_TRY(pl_time_table_put(t, &s));
    }
    return PL_OK;
}

pl_status pl_time_table_load(const char *path, const char *owner, pl_time_table **out)
{
    pl_time_table *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    char *text = NULL;
    size_t len;
    pl_status rc = path ? pl_sys_read_file(path, MOST_BYTES, &text, &len) : PL_OK;
    if (path && rc == PL_OK) rc = parse(text, owner, t);
    pl_sys_free(text);
    if (rc == PL_ERR_MEMORY) {
        pl_time_table_free(t);
        return rc;
    }
    if (rc != PL_OK) t->n = 0;
    *out = t;
    return PL_OK;
}

void pl_time_table_free(pl_time_table *t)
{
    if (!t) return;
    drop_curves(t);
    pl_sys_free(t->sample);
    pl_sys_free(t->place);
    pl_sys_free(t);
}
