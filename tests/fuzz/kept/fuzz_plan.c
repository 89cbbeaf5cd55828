/* fuzz_plan.c - any bytes as a file of `plan --csv`, or, after a '!', of `plan --trace`: they are
 * refused, or every index is inside its table, and a table that is printed and read again is the
 * same. */
#include "base/sys.h"
#include "plan/files/csv.h"
#include "plan/files/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_csv(const char *text, size_t n)
{
    pl_pack_csv a, b;
    char *printed = NULL;
    size_t len = 0;
    if (pl_pack_csv_parse(text, n, &a) != PL_OK) return;
    if (pl_pack_csv_print(&a, &printed, &len) != PL_OK) abort();
    if (pl_pack_csv_parse(printed, len, &b) != PL_OK || a.n != b.n) abort();
    for (size_t i = 0; i < a.n; i++)
        if (a.buffers[i].size != b.buffers[i].size || strcmp(a.ids[i], b.ids[i]) != 0) abort();
    pl_sys_free(printed);
    pl_pack_csv_release(&a);
    pl_pack_csv_release(&b);
}

static void check_lists(const uint32_t *at, const uint32_t *list, uint32_t n, uint32_t most)
{
    for (uint32_t i = 0; i < n; i++) {
        if (at[i] > at[i + 1]) abort();
        for (uint32_t k = at[i]; k < at[i + 1]; k++)
            if (list[k] >= most) abort();
    }
}

static void check_trace(const char *text, size_t n)
{
    pl_trace t;
    if (pl_trace_parse(text, n, &t) != PL_OK) return;
    const pl_recompute_problem *p = &t.problem;
    check_lists(p->in_at, p->in, p->n_units, p->n_buffers);
    check_lists(p->out_at, p->out, p->n_units, p->n_buffers);
    for (uint32_t i = 0; i < p->n_units; i++)
        if (!(isfinite(p->cost[i]) && p->cost[i] >= 0)) abort();
    for (uint32_t i = 0; p->base && i < p->n_buffers; i++)
        if (p->base[i] != PL_RECOMPUTE_NONE && p->base[i] >= p->n_buffers) abort();
    pl_trace_release(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] == '!')
        check_trace((const char *)data + 1, size - 1);
    else
        check_csv((const char *)data, size);
    return 0;
}
