/* thin.c - see thin.h. Threads share the work by rows (all columns at one depth and height) of the
 * output; within a row, taps are the outer loop and columns the inner one, so that the border is
 * tested once per tap instead of once per element. */
#include "cpu/kernels/thin.h"

#include "base/threads.h"

#include <string.h>

typedef struct job {
    const pl_thin *t;
    const float *from, *bias;
    float *to;
} job;

/* The columns p in [lo, hi) of the output whose tap kw falls inside the input, and the input
 * column of p = 0. */
typedef struct span {
    int64_t lo, hi, first;
} span;

static span columns(const pl_thin *t, int64_t kw)
{
    span s = {.lo = 0, .hi = t->out[2], .first = kw * t->dilation[2] - t->pad[2]};
    if (s.first < 0) s.lo = (-s.first + t->stride[2] - 1) / t->stride[2];
    int64_t past = t->in[2] - s.first; /* p*stride must stay below this */
    int64_t most = past <= 0 ? 0 : (past - 1) / t->stride[2] + 1;
    if (s.hi > most) s.hi = most;
    return s;
}

static int64_t taps(const pl_thin *t)
{
    return t->kernel[0] * t->kernel[1] * t->kernel[2];
}

/* Returns the input position of output position p under tap k along one dim, -1 if outside. */
static int64_t place_in(const pl_thin *t, int dim, int64_t p, int64_t k)
{
    int64_t q = p * t->stride[dim] + k * t->dilation[dim] - t->pad[dim];
    return q >= 0 && q < t->in[dim] ? q : -1;
}

/* Returns the output position whose tap k reads input position q along one dim, -1 if none. */
static int64_t place_out(const pl_thin *t, int dim, int64_t q, int64_t k)
{
    int64_t p = q + t->pad[dim] - k * t->dilation[dim];
    if (p < 0 || p % t->stride[dim]) return -1;
    p /= t->stride[dim];
    return p < t->out[dim] ? p : -1;
}

static void fwd_row(void *ctx, int64_t row, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_thin *t = j->t;
    const int64_t n_taps = taps(t), c = t->channels, width = n_taps * c;
    float *y = j->to + row * t->out[2] * c;
    for (int64_t p = 0; p < t->out[2]; p++)
        for (int64_t o = 0; o < c; o++) y[p * c + o] = j->bias ? j->bias[o] : 0.0f;
    for (int64_t k = 0; k < n_taps; k++) {
        const int64_t kw = k % t->kernel[2], kh = k / t->kernel[2] % t->kernel[1];
        const int64_t d = place_in(t, 0, row / t->out[1], k / t->kernel[2] / t->kernel[1]);
        const int64_t h = place_in(t, 1, row % t->out[1], kh);
        if (d < 0 || h < 0) continue;
        const span s = columns(t, kw);
        const float *z = j->from + ((d * t->in[1] + h) * t->in[2] + s.first) * width + k;
        for (int64_t p = s.lo; p < s.hi; p++)
            for (int64_t o = 0; o < c; o++)
                y[p * c + o] += z[p * t->stride[2] * width + o * n_taps];
    }
}

static void data_row(void *ctx, int64_t row, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_thin *t = j->t;
    const int64_t n_taps = taps(t), c = t->channels, width = n_taps * c;
    float *dx = j->to + row * t->in[2] * c;
    memset(dx, 0, (size_t)(t->in[2] * c) * sizeof *dx);
    for (int64_t k = 0; k < n_taps; k++) {
        const int64_t kw = k % t->kernel[2], kh = k / t->kernel[2] % t->kernel[1];
        const int64_t d = place_out(t, 0, row / t->in[1], k / t->kernel[2] / t->kernel[1]);
        const int64_t h = place_out(t, 1, row % t->in[1], kh);
        if (d < 0 || h < 0) continue;
        const span s = columns(t, kw);
        const float *z = j->from + (d * t->out[1] + h) * t->out[2] * width + k * c;
        float *to = dx + s.first * c;
        for (int64_t p = s.lo; p < s.hi; p++)
            for (int64_t i = 0; i < c; i++) to[p * t->stride[2] * c + i] += z[p * width + i];
    }
}

static void gather_row(void *ctx, int64_t row, int worker)
{
    (void)worker;
    const job *j = ctx;
    const pl_thin *t = j->t;
    const int64_t n_taps = taps(t), c = t->channels, width = n_taps * c;
    float *g = j->to + row * t->in[2] * width;
    memset(g, 0, (size_t)(t->in[2] * width) * sizeof *g);
    for (int64_t k = 0; k < n_taps; k++) {
        const int64_t kw = k % t->kernel[2], kh = k / t->kernel[2] % t->kernel[1];
        const int64_t d = place_out(t, 0, row / t->in[1], k / t->kernel[2] / t->kernel[1]);
        const int64_t h = place_out(t, 1, row % t->in[1], kh);
        if (d < 0 || h < 0) continue;
        const span s = columns(t, kw);
        const float *dy = j->from + (d * t->out[1] + h) * t->out[2] * c;
        float *to = g + s.first * width + k;
        for (int64_t p = s.lo; p < s.hi; p++)
            for (int64_t o = 0; o < c; o++)
                to[p * t->stride[2] * width + o * n_taps] = dy[p * c + o];
    }
}

void pl_thin_sum_fwd(const pl_thin *t, const float *z, const float *bias, float *y)
{
    job j = {t, z, bias, y};
    pl_threads_for(t->out[0] * t->out[1], fwd_row, &j);
}

void pl_thin_sum_data(const pl_thin *t, const float *z, float *dx)
{
    job j = {t, z, NULL, dx};
    pl_threads_for(t->in[0] * t->in[1], data_row, &j);
}

void pl_thin_gather(const pl_thin *t, const float *dy, float *g)
{
    job j = {t, dy, NULL, g};
    pl_threads_for(t->in[0] * t->in[1], gather_row, &j);
}
