/* sweep.c - `plan --sweep 6GB,8GB,12GB`: one table row for each budget.
 *
 * A row says whether the budget fits, how the batch is split, the peak of the process, the
 * predicted step time and the share of recompute. Each row is a separate plan, made by the same
 * code as `plan`.
 */
#include "plan_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 32 }; /* sizes of one list */

typedef struct row {
    char size[64];
    pl_status rc;
    pl_run_memory memory;
    double step_ms, recompute;
    int64_t micro, accumulate;
    char tradeoffs[128];
} row;

static void plan_row(const cli_args *a, row *r)
{
    pl_run *run = NULL;
    cli_busy("planning for %s", r->size);
    r->rc = cli_open_run(a, r->size, &run);
    if (r->rc != PL_OK) return;
    r->rc = pl_run_build(run);
    r->memory = pl_run_memory_get(run);
    if (r->rc == PL_OK) {
        pl_run_split split = pl_run_split_get(run);
        r->step_ms = pl_run_predicted_ms(run);
        r->recompute = plan_recompute_share(run);
        r->micro = split.micro;
        r->accumulate = split.accumulate;
        plan_tradeoffs(run, r->tradeoffs, sizeof r->tradeoffs);
    }
    pl_run_free(run);
    cli_idle();
}

static bool row_fits(const row *r)
{
    return r->rc == PL_OK && r->memory.fits;
}

/* Returns whether the budget exceeds the memory of the GPU that is planned for. */
static bool row_beyond(const row *r)
{
    return r->memory.asked > r->memory.budget;
}

static void print_row(const row *r)
{
    printf("  %12s%c ", r->size, row_beyond(r) ? '*' : ' ');
    if (row_fits(r))
        printf("%-4s %7s %11s %11s %15s %8.1f %%%s\n", "yes", cli_count(r->micro),
               cli_count(r->accumulate), cli_bytes(r->memory.total), cli_ms(r->step_ms),
               100 * r->recompute, r->tradeoffs);
    else
        printf("%-4s %7s %11s  needs %s\n", "no", "", "",
               r->memory.minimum ? cli_bytes(r->memory.minimum) : "more");
}

static void row_json(const row *r, pl_json *j)
{
    pl_json_object(j, NULL);
    pl_json_string(j, "budget", r->size);
    pl_json_bool(j, "fits", row_fits(r));
    pl_json_uint(j, "budget_bytes", r->memory.budget);
    pl_json_uint(j, "peak_bytes", r->memory.total);
    if (row_fits(r)) {
        pl_json_int(j, "micro_batch", r->micro);
        pl_json_int(j, "accumulate", r->accumulate);
        pl_json_float(j, "predicted_step_ms", r->step_ms);
        pl_json_float(j, "recompute_ratio", r->recompute);
        if (r->tradeoffs[0]) {
            pl_json_string(j, "takes", r->tradeoffs + strlen(", "));
            pl_json_string(j, "tradeoffs", r->tradeoffs + strlen(", "));
        }
    }
    pl_json_end(j);
}

static void print_rows(const char *name, const row *rows, int n)
{
    const row *beyond = NULL;
    printf("%s\n  %12s  %-4s %7s %11s %11s %15s %10s\n", name, "budget", "fits", "micro",
           "accumulate", "peak", "predicted step", "recompute");
    for (int i = 0; i < n; i++) {
        print_row(&rows[i]);
        if (row_beyond(&rows[i])) beyond = &rows[i];
    }
    if (beyond) printf("  * the GPU has %s: planned for that\n", cli_bytes(beyond->memory.budget));
}

static pl_status print_json(const row *rows, int n)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_array(j, NULL);
    for (int i = 0; i < n; i++) row_json(&rows[i], j);
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

/* Plans each size of the list; *n counts them. Returns an exit code; 0: all are planned. */
static int plan_rows(const cli_args *a, const char *list, row rows[MAX], int *n)
{
    for (const char *p = list; *p; ++*n) {
        size_t len = strcspn(p, ",");
        if (len == 0 || *n == MAX || (p[len] == ',' && !p[len + 1])) {
            cli_error(*n == MAX ? "--sweep takes at most %d sizes"
                                : "--sweep takes sizes separated by commas, e.g. 6GB,8GB,12GB",
                      MAX);
            return 2;
        }
        row *r = &rows[*n];
        snprintf(r->size, sizeof r->size, "%.*s", (int)len, p);
        plan_row(a, r);
        if (r->rc != PL_OK && r->rc != PL_ERR_FIT) return cli_fail(r->rc);
        p += len + (p[len] == ',');
    }
    return 0;
}

int plan_sweep(const cli_args *a, const char *list, bool json)
{
    int n = 0;
    row *rows = cli_new(MAX * sizeof *rows);
    int code = plan_rows(a, list, rows, &n);
    if (code == 0 && json) {
        pl_status rc = print_json(rows, n);
        code = rc == PL_OK ? 0 : cli_fail(rc);
    } else if (code == 0) {
        print_rows(a->positional[0], rows, n);
    }
    free(rows);
    return code;
}
