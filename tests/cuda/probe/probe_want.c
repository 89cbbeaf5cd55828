/* probe_want.c - expected outputs of matrix products, convolutions and attention, one element at
 * a time in double. */
#include "tests/cuda/probe/probe_lib.h"

#include <math.h>
#include <string.h>

static void add(sum *s, double term)
{
    s->value += term;
    s->size += fabs(term);
}

static sum matmul_at(const probe *p, int out, int64_t at)
{
    (void)out;
    const pl_matmul_attr *t = &p->attr.matmul;
    const pl_type *a = &p->in[0].t, *b = &p->in[1].t, *y = &p->out[0].t;
    int64_t m = y->dim[y->rank - 2], n = y->dim[y->rank - 1];
    int64_t k = a->dim[a->rank - (t->ta ? 2 : 1)], j = at % n, i = at / n % m, batch = at / n / m;
    int64_t a0 = a->rank > 2 ? batch * m * k : 0, b0 = b->rank > 2 ? batch * k * n : 0;
    sum s = {0, 0};
    for (int64_t l = 0; l < k; l++)
        add(&s, pl_probe_value(&p->in[0], a0 + (t->ta ? l * m + i : i * k + l)) *
                    pl_probe_value(&p->in[1], b0 + (t->tb ? j * k + l : l * n + j)));
    if (p->c.n_in == 3) add(&s, pl_probe_value(&p->in[2], j));
    return s;
}

typedef struct shape {
    int64_t n, ic, oc, groups, in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    bool per_sample;
} shape;

static shape shape_of(const probe *p)
{
    const pl_window_attr *a = &p->attr.window;
    bool dx = strstr(p->op, "_dx"), dw = strstr(p->op, "_dw");
    const pl_type *x = dx ? &p->out[0].t : &p->in[0].t, *w = dw ? &p->out[0].t : &p->in[1].t;
    const pl_type *y = dx ? &p->in[0].t : dw ? &p->in[1].t : &p->out[0].t;
    int n = x->rank - 2;
    shape s = {x->dim[0], x->dim[n + 1], y->dim[n + 1], a->groups ? a->groups : 1};
    s.per_sample = strncmp(p->op, "depthwise", 9) == 0;
    if (s.per_sample) s.groups = s.ic;
    for (int d = 0; d < 3; d++) {
        int i = d - (3 - n);
        s.in[d] = i < 0 ? 1 : x->dim[1 + i];
        s.out[d] = i < 0 ? 1 : y->dim[1 + i];
        s.kernel[d] = i < 0 ? 1 : w->dim[1 + i];
        s.stride[d] = i < 0 ? 1 : a->stride.v[i];
        s.dilation[d] = i < 0 ? 1 : a->dilation.v[i];
        s.pad[d] = i < 0 ? 0 : a->pad_lo.v[i];
    }
    return s;
}

/* Index of weight (o, tap, i) of sample n. */
static int64_t weight_at(const shape *s, int64_t n, int64_t o, int64_t t, int64_t i)
{
    int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    if (s->per_sample) return (n * taps + t) * s->ic + o;
    return (o * taps + t) * (s->ic / s->groups) + i;
}

static int64_t reads(const shape *s, int64_t p, int64_t t)
{
    int64_t at = 0;
    int64_t pp[3] = {p / s->out[2] / s->out[1], p / s->out[2] % s->out[1], p % s->out[2]};
    int64_t k[3] = {t / s->kernel[2] / s->kernel[1], t / s->kernel[2] % s->kernel[1],
                    t % s->kernel[2]};
    for (int d = 0; d < 3; d++) {
        int64_t q = pp[d] * s->stride[d] + k[d] * s->dilation[d] - s->pad[d];
        if (q < 0 || q >= s->in[d]) return -1;
        at = at * s->in[d] + q;
    }
    return at;
}

static sum conv_at(const probe *p, int out, int64_t at)
{
    (void)out;
    shape s = shape_of(p);
    int64_t py = s.out[0] * s.out[1] * s.out[2], px = s.in[0] * s.in[1] * s.in[2];
    int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
    int64_t ip = s.ic / s.groups, op = s.oc / s.groups;
    sum r = {0, 0};
    if (strstr(p->op, "_dw")) {
        int64_t i, t, o, first = 0, last = s.n;
        if (s.per_sample) {
            o = at % s.ic, t = at / s.ic % taps, first = at / s.ic / taps, last = first + 1, i = 0;
        } else {
            i = at % ip, t = at / ip % taps, o = at / ip / taps;
        }
        for (int64_t n = first; n < last; n++)
            for (int64_t y = 0; y < py; y++) {
                int64_t q = reads(&s, y, t);
                if (q >= 0)
                    add(&r, pl_probe_value(&p->in[0], (n * px + q) * s.ic + o / op * ip + i) *
                                pl_probe_value(&p->in[1], (n * py + y) * s.oc + o));
            }
    } else if (strstr(p->op, "_dx")) {
        int64_t c = at % s.ic, q = at / s.ic % px, n = at / s.ic / px;
        for (int64_t y = 0; y < py; y++) {
            for (int64_t t = 0; t < taps; t++) {
                if (reads(&s, y, t) != q) continue;
                for (int64_t j = 0; j < op; j++) {
                    int64_t o = c / ip * op + j;
                    add(&r, pl_probe_value(&p->in[0], (n * py + y) * s.oc + o) *
                                pl_probe_value(&p->in[1], weight_at(&s, n, o, t, c % ip)));
                }
            }
        }
    } else {
        int64_t o = at % s.oc, y = at / s.oc % py, n = at / s.oc / py;
        for (int64_t t = 0; t < taps; t++) {
            int64_t q = reads(&s, y, t);
            for (int64_t i = 0; q >= 0 && i < ip; i++)
                add(&r, pl_probe_value(&p->in[0], (n * px + q) * s.ic + o / op * ip + i) *
                            pl_probe_value(&p->in[1], weight_at(&s, n, o, t, i)));
        }
        if (p->c.n_in == 3) add(&r, pl_probe_value(&p->in[2], o));
    }
    return r;
}

/* ---- attention ------------------------------------------------------------------------------- */
typedef struct heads {
    int64_t n, m, h, d;
    double scale;
    bool causal;
} heads;

static heads heads_of(const probe *p)
{
    const pl_type *q = &p->in[0].t;
    double scale = p->attr.attention.scale;
    return (heads){q->dim[1], p->in[1].t.dim[1],       q->dim[2], q->dim[3],
                   scale,     p->attr.attention.causal};
}

static double dot(const probe *p, int x, int64_t xi, int y, int64_t yi, int64_t d)
{
    double s = 0;
    for (int64_t i = 0; i < d; i++)
        s += pl_probe_value(&p->in[x], xi + i) * pl_probe_value(&p->in[y], yi + i);
    return s;
}

static int64_t row(const heads *g, int64_t b, int64_t i, int64_t h, int64_t tokens)
{
    return ((b * tokens + i) * g->h + h) * g->d;
}

static sum attention_at(const probe *p, int out, int64_t at)
{
    heads g = heads_of(p);
    int64_t c = 0, h, i, b;
    if (out == 0) {
        c = at % g.d, h = at / g.d % g.h, i = at / g.d / g.h % g.n, b = at / g.d / g.h / g.n;
    } else {
        i = at % g.n, h = at / g.n % g.h, b = at / g.n / g.h;
    }
    int64_t m = g.causal && i + 1 < g.m ? i + 1 : g.m;
    double top = -HUGE_VAL, z = 0;
    sum o = {0, 0};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < m; j++) {
            double s = g.scale * dot(p, 0, row(&g, b, i, h, g.n), 1, row(&g, b, j, h, g.m), g.d);
            if (pass == 0) {
                top = s > top ? s : top;
                continue;
            }
            z += exp(s - top);
            if (out == 0)
                add(&o, exp(s - top) * pl_probe_value(&p->in[2], row(&g, b, j, h, g.m) + c));
        }
    if (out == 1) return (sum){top + log(z), fabs(top) + 1};
    return (sum){o.value / z, o.size / z};
}

/* Operands: q k v o lse d_o. */
static double pair(const probe *p, const heads *g, int64_t b, int64_t h, int64_t i, int64_t j,
                   double *prob)
{
    int64_t qi = row(g, b, i, h, g->n), kj = row(g, b, j, h, g->m);
    double lse = pl_probe_value(&p->in[4], (b * g->h + h) * g->n + i);
    double delta = dot(p, 3, qi, 5, qi, g->d);
    *prob = exp(dot(p, 0, qi, 1, kj, g->d) * g->scale - lse);
    return *prob * (dot(p, 5, qi, 2, kj, g->d) - delta) * g->scale;
}

static sum attention_bwd_at(const probe *p, int out, int64_t at)
{
    heads g = heads_of(p);
    int64_t tokens = out == 0 ? g.n : g.m;
    int64_t c = at % g.d, h = at / g.d % g.h, x = at / g.d / g.h % tokens,
            b = at / g.d / g.h / tokens;
    sum r = {0, 0};
    double prob;
    if (out == 0) {
        int64_t m = g.causal && x + 1 < g.m ? x + 1 : g.m;
        for (int64_t j = 0; j < m; j++)
            add(&r, pair(p, &g, b, h, x, j, &prob) *
                        pl_probe_value(&p->in[1], row(&g, b, j, h, g.m) + c));
        return r;
    }
    for (int64_t i = g.causal ? x : 0; i < g.n; i++) {
        double ds = pair(p, &g, b, h, i, x, &prob);
        int64_t qi = row(&g, b, i, h, g.n) + c;
        add(&r,
            out == 1 ? ds * pl_probe_value(&p->in[0], qi) : prob * pl_probe_value(&p->in[5], qi));
    }
    return r;
}

wanted pl_probe_wanted(const char *op)
{
    if (strcmp(op, "matmul") == 0) return matmul_at;
    if (strcmp(op, "attention") == 0) return attention_at;
    return strcmp(op, "attention_bwd") == 0 ? attention_bwd_at : conv_at;
}
