/* pack_file.c - the offset planner alone, from file to file; see plimsoll_unstable.h. */
#include "base/sys.h"
#include "plan/files/csv.h"
#include "plan/pack/check_pack.h"
#include "plimsoll_unstable.h"

static pl_status solve(pl_pack_csv *c, uint64_t capacity, pl_pack_report *report)
{
    pl_pack_opts o = PL_PACK_OPTS_INIT;
    o.align = c->align;
    o.target = capacity;
    uint64_t start = pl_sys_now_ns();
    PL_TRY(pl_pack_bound(c->buffers, c->n, o.align, &report->bound_bytes));
    PL_TRY(pl_pack(c->buffers, c->n, &o, &report->height_bytes));
    report->plan_ms = 1e-6 * (double)(pl_sys_now_ns() - start);
    report->buffers = c->n;
    return pl_pack_check(c->buffers, c->n, o.align, report->height_bytes);
}

pl_status pl_pack_file(const char *in, const char *out, uint64_t capacity, pl_pack_report *report)
{
    *report = (pl_pack_report){0};
    pl_pack_csv c = PL_PACK_CSV_INIT;
    PL_TRY(pl_pack_csv_read(in, &c));
    pl_status rc = solve(&c, capacity, report);
    if (rc == PL_OK && out) rc = pl_pack_csv_write(&c, out);
    pl_pack_csv_release(&c);
    return rc;
}
