/* first_batch.c - statistics of the first batch that a run trains on: a wrong scale, a swapped
 * input or a label that never changes shows before hours of training. */
#include "base/dtype.h"
#include "train/data/source.h"
#include "train/run/run.h"

#include <math.h>

/* Mean and deviation by two passes, in double. */
static void describe(const pl_type *t, const void *data, pl_input_stats *s)
{
    int64_t n = pl_type_elems(t);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        double v =
            t->dtype == PL_F32 ? (double)((const float *)data)[i] : pl_elem_get(t->dtype, data, i);
        if (i == 0 || v < s->min) s->min = v;
        if (i == 0 || v > s->max) s->max = v;
        sum += v;
    }
    s->mean = n ? sum / (double)n : 0;
    for (int64_t i = 0; i < n; i++) {
        double v =
            t->dtype == PL_F32 ? (double)((const float *)data)[i] : pl_elem_get(t->dtype, data, i);
        squares += (v - s->mean) * (v - s->mean);
    }
    s->std = n ? sqrt(squares / (double)n) : 0;
}

void pl__first_batch(pl_run *r, const pl_program *p)
{
    pl_first_batch *b = &r->steps.first;
    if (b->seen || !pl_source_real(r)) return;
    b->seen = true;
    for (int i = 0; i < pl_program_input_count(p) && b->n < PL_MAX_INPUT_STATS; i++) {
        pl_input_stats *s = &b->input[b->n];
        s->name = pl_program_input_name(p, i);
        const void *data = pl_session_input(r->session, p, s->name, &s->type);
        if (!data) continue;
        describe(&s->type, data, s);
        b->n++;
    }
}

int pl_run_first_batch(const pl_run *r, const pl_input_stats **out)
{
    *out = r->steps.first.input;
    return r->steps.first.n;
}
