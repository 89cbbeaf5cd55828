/* taps.c - see taps.h. Tables are compressed rows: the taps of position i are entries
 * [start[i], start[i+1]). */
#include "ops/net/taps.h"

#include "base/sys.h"
#include "base/threads.h"
#include "cpu/kernels/rows.h"
#include "ops/core/labels.h"
#include "ops/core/ref.h"

typedef struct table {
    int64_t in, out; /* sizes this table maps from and to */
    int64_t *start, *index;
    double *weight;
} table;

struct pl_taps {
    table dim[3];
};

/* ---- tables ----------------------------------------------------------------------------- */
static void table_free(table *t)
{
    pl_sys_free(t->start);
    pl_sys_free(t->index);
    pl_sys_free(t->weight);
}

static bool one_tap(const void *ctx, int d, int64_t i, int64_t k, int64_t *index, double *weight)
{
    (void)ctx, (void)d;
    *index = i;
    *weight = 1;
    return k == 0;
}

/* Counts, sums, fills; rows are the side that reads the table. Counts are stored two places ahead,
 * and filling moves start[r+1] from the beginning of row r to its end, which is the beginning of
 * r+1. */
static pl_status table_make(table *t, int d, int64_t in, int64_t out, pl_taps_fn fn,
                            const void *ctx, bool adjoint)
{
    int64_t rows = adjoint ? in : out, index;
    double weight;
    t->in = adjoint ? out : in;
    t->out = rows;
    t->start = pl_sys_alloc(sizeof(int64_t) * (size_t)(rows + 2));
    if (!t->start) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < out; i++)
        for (int64_t k = 0; fn(ctx, d, i, k, &index, &weight); k++)
            if (weight != 0) t->start[(adjoint ? index : i) + 2]++;
    for (int64_t r = 2; r < rows + 2; r++) t->start[r] += t->start[r - 1];
    int64_t total = t->start[rows + 1];
    t->index = pl_sys_alloc(sizeof(int64_t) * (size_t)(total + 1));
    t->weight = pl_sys_alloc(sizeof(double) * (size_t)(total + 1));
    if (!t->index || !t->weight) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < out; i++)
        for (int64_t k = 0; fn(ctx, d, i, k, &index, &weight); k++) {
            if (weight == 0) continue;
            int64_t r = adjoint ? index : i, at = t->start[r + 1]++;
            t->index[at] = adjoint ? i : index;
            t->weight[at] = weight;
        }
    return PL_OK;
}

pl_status pl_taps_new(int n_spatial, const int64_t *in, const int64_t *out, pl_taps_fn fn,
                      const void *ctx, bool adjoint, pl_taps **t)
{
    pl_taps *p = pl_sys_alloc(sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    for (int d = 0; d < 3; d++) {
        int i = d - (3 - n_spatial);
        pl_status rc = i < 0 ? table_make(&p->dim[d], i, 1, 1, one_tap, NULL, adjoint)
                             : table_make(&p->dim[d], i, in[i], out[i], fn, ctx, adjoint);
        if (rc != PL_OK) {
            pl_taps_free(p);
            return rc;
        }
    }
    *t = p;
    return PL_OK;
}

void pl_taps_free(void *t)
{
    pl_taps *p = t;
    if (!p) return;
    for (int d = 0; d < 3; d++) table_free(&p->dim[d]);
    pl_sys_free(p);
}

static double taps_of(const pl_taps *t)
{
    double n = 1;
    for (int d = 0; d < 3; d++) n *= (double)t->dim[d].start[t->dim[d].out];
    return n;
}

/* ---- running ---------------------------------------------------------------------------- */
enum { BATCH = 32, STRIP = 64 };

typedef struct job {
    const pl_taps *t;
    const pl_row_loops *rows;
    const float *x;
    float *y;
    int64_t c;      /* channels */
    int64_t strips; /* tasks per row of pixels, along the channels */
    pl_dtype dt;    /* reference only */
    const void *rx;
    void *ry;
} job;

/* Passes the taps of one output pixel, in batches, to the row loop. */
static void sum_pixel(const job *j, const float *x, float *y, int64_t od, int64_t oh, int64_t ow,
                      int64_t n_c)
{
    const table *D = &j->t->dim[0], *H = &j->t->dim[1], *W = &j->t->dim[2];
    const float *row[BATCH];
    float weight[BATCH];
    int n = 0;
    bool add = false;
    for (int64_t a = D->start[od]; a < D->start[od + 1]; a++)
        for (int64_t b = H->start[oh]; b < H->start[oh + 1]; b++) {
            const float *line = x + (D->index[a] * H->in + H->index[b]) * W->in * j->c;
            double f = D->weight[a] * H->weight[b];
            for (int64_t k = W->start[ow]; k < W->start[ow + 1]; k++) {
                if (n == BATCH) {
                    j->rows->weighted(y, row, weight, n, n_c, add);
                    add = true;
                    n = 0;
                }
                row[n] = line + W->index[k] * j->c;
                weight[n++] = (float)(f * W->weight[k]);
            }
        }
    j->rows->weighted(y, row, weight, n, n_c, add);
}

/* task: a row of output pixels, or a strip of its channels */
static void run_row(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    const table *t = j->t->dim;
    int64_t strip = task % j->strips, row = task / j->strips;
    int64_t from = strip * j->c / j->strips, n_c = (strip + 1) * j->c / j->strips - from;
    int64_t oh = row % t[1].out, od = row / t[1].out % t[0].out, n = row / t[1].out / t[0].out;
    const float *x = j->x + n * t[0].in * t[1].in * t[2].in * j->c + from;
    float *y = j->y + row * t[2].out * j->c + from;
    for (int64_t ow = 0; ow < t[2].out; ow++) sum_pixel(j, x, y + ow * j->c, od, oh, ow, n_c);
}

/* Products of taps and elements. */
static double ops_of(const pl_call *c)
{
    const pl_type *y = &c->out_type[0];
    return 2 * taps_of(c->prep) * (double)(y->dim[0] * y->dim[y->rank - 1]);
}

pl_status pl_taps_run(const pl_call *c)
{
    const pl_taps *t = c->prep;
    const pl_type *y = &c->out_type[0];
    job j = {.t = t, .rows = pl_rows_best(), .x = c->in[0], .y = c->out[0]};
    j.c = y->dim[y->rank - 1];
    int64_t rows = y->dim[0] * t->dim[0].out * t->dim[1].out;
    j.strips = rows >= STRIP || j.c < 2 * STRIP ? 1 : j.c / STRIP;
    each_task(rows * j.strips, ops_of(c), run_row, &j);
    return PL_OK;
}

static void ref_row(void *ctx, int64_t row, int worker)
{
    (void)worker;
    const job *j = ctx;
    const table *D = &j->t->dim[0], *H = &j->t->dim[1], *W = &j->t->dim[2];
    int64_t oh = row % H->out, od = row / H->out % D->out, n = row / H->out / D->out;
    for (int64_t ow = 0; ow < W->out; ow++)
        for (int64_t ch = 0; ch < j->c; ch++) {
            double sum = 0;
            for (int64_t a = D->start[od]; a < D->start[od + 1]; a++)
                for (int64_t b = H->start[oh]; b < H->start[oh + 1]; b++)
                    for (int64_t k = W->start[ow]; k < W->start[ow + 1]; k++) {
                        int64_t line = (n * D->in + D->index[a]) * H->in + H->index[b];
                        sum += D->weight[a] * H->weight[b] * W->weight[k] *
                               ref_get(j->dt, j->rx, (line * W->in + W->index[k]) * j->c + ch);
                    }
            ref_set(j->dt, j->ry, (row * W->out + ow) * j->c + ch, sum);
        }
}

pl_status pl_taps_ref(const pl_call *c)
{
    const pl_taps *t = c->prep;
    const pl_type *y = &c->out_type[0];
    job j = {.t = t, .dt = y->dtype, .rx = c->in[0], .ry = c->out[0], .c = y->dim[y->rank - 1]};
    each_task(y->dim[0] * t->dim[0].out * t->dim[1].out, ops_of(c), ref_row, &j);
    return PL_OK;
}

void pl_taps_labels(const pl_call *c, pl_labels *l)
{
    (void)c;
    pl_label_first(l, 1, 1);
    l->times = 1;
}
