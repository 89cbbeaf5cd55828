/* dnn_lab.c - see dnn_lab.h. */
#include "tests/cpu/dnn_lab.h"

#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float *dnn_noise(int64_t n, uint64_t seed)
{
    float *p = malloc((size_t)n * sizeof *p);
    if (!p) abort();
    for (int64_t i = 0; i < n; i++) p[i] = (float)pl_test_noise(&seed);
    return p;
}

double dnn_worst(const float *a, const double *b, int64_t n, int64_t terms)
{
    double diff = 0, top = 0.3 * sqrt((double)terms);
    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)a[i] - b[i]);
        if (!(e <= diff)) diff = e; /* keeps NaN */
        if (fabs(b[i]) > top) top = fabs(b[i]);
    }
    return diff / top;
}

bool dnn_run(pl_dnn *d, size_t work_bytes, const void *const *in, guarded_block *out, int n_out)
{
    guarded_block work = guarded_new(work_bytes);
    void *to[2] = {out[0].data, n_out > 1 ? out[1].data : NULL};
    bool ok = pl_dnn_run(d, in, to, work.data) == PL_OK && guarded_intact(&work);
    for (int i = 0; i < n_out; i++) ok = ok && guarded_intact(&out[i]);
    guarded_free(&work);
    return ok;
}

/* Sizes of missing leading dims are 1, so that the loops below have three of everything. */
static void widen(int n_spatial, const int64_t *v, int64_t fill, int64_t *out)
{
    for (int i = 0; i < 3; i++) out[i] = i < 3 - n_spatial ? fill : v[i - (3 - n_spatial)];
}

geometry dnn_geometry(int ns, const int64_t *in, const int64_t *out, const int64_t *kernel,
                      const int64_t *stride, const int64_t *dilation, const int64_t *pad)
{
    geometry g;
    widen(ns, in, 1, g.in), widen(ns, out, 1, g.out), widen(ns, kernel, 1, g.kernel);
    widen(ns, stride, 1, g.stride), widen(ns, dilation, 1, g.dilation), widen(ns, pad, 0, g.pad);
    g.in_elems = g.in[0] * g.in[1] * g.in[2];
    g.out_elems = g.out[0] * g.out[1] * g.out[2];
    g.taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    return g;
}

int64_t dnn_under(const geometry *g, int64_t p, int64_t k)
{
    int64_t pc[3] = {p / g->out[2] / g->out[1], p / g->out[2] % g->out[1], p % g->out[2]};
    int64_t kc[3] = {k / g->kernel[2] / g->kernel[1], k / g->kernel[2] % g->kernel[1],
                     k % g->kernel[2]};
    int64_t q = 0;
    for (int i = 0; i < 3; i++) {
        int64_t at = pc[i] * g->stride[i] + kc[i] * g->dilation[i] - g->pad[i];
        if (at < 0 || at >= g->in[i]) return -1;
        q = q * g->in[i] + at;
    }
    return q;
}

void dnn_naive_conv(pl_dnn_conv_kind kind, const conv *c, const float *x, const float *w,
                    const float *b, const float *dy, double *out)
{
    geometry g =
        dnn_geometry(c->n_spatial, c->in, c->out, c->kernel, c->stride, c->dilation, c->pad_lo);
    int64_t ig = c->ic / c->groups, og = c->oc / c->groups;
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t p = 0; p < g.out_elems; p++)
            for (int64_t o = 0; o < c->oc; o++) {
                int64_t y = (n * g.out_elems + p) * c->oc + o;
                if (kind == PL_DNN_CONV_FWD) out[y] = b ? (double)b[o] : 0;
                for (int64_t k = 0; k < g.taps; k++) {
                    int64_t q = dnn_under(&g, p, k);
                    if (q < 0) continue;
                    int64_t xi = (n * g.in_elems + q) * c->ic + o / og * ig;
                    int64_t wi = (o * g.taps + k) * ig;
                    for (int64_t i = 0; i < ig; i++) {
                        if (kind == PL_DNN_CONV_FWD)
                            out[y] += (double)x[xi + i] * (double)w[wi + i];
                        else if (kind == PL_DNN_CONV_BWD_DATA)
                            out[xi + i] += (double)dy[y] * (double)w[wi + i];
                        else
                            out[wi + i] += (double)dy[y] * (double)x[xi + i];
                    }
                }
            }
}

static int64_t out_size(int64_t in, int64_t k, int64_t s, int64_t d, int64_t lo, int64_t hi)
{
    return (in + lo + hi - (k - 1) * d - 1) / s + 1;
}

conv dnn_conv2(int64_t n, int64_t h, int64_t w, int64_t ic, int64_t oc, int64_t groups, int64_t k,
               int64_t s, int64_t d, int64_t lo, int64_t hi)
{
    return (conv){.n_spatial = 2,
                  .n = n,
                  .ic = ic,
                  .oc = oc,
                  .groups = groups,
                  .in = {h, w},
                  .out = {out_size(h, k, s, d, lo, hi), out_size(w, k, s, d, lo, hi)},
                  .kernel = {k, k},
                  .stride = {s, s},
                  .dilation = {d, d},
                  .pad_lo = {lo, lo},
                  .pad_hi = {hi, hi}};
}
