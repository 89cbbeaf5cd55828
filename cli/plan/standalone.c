/* standalone.c - the two planners without a network, on problems from files.
 *
 * `plan --csv` places buffers with given lifetimes in one arena. `plan --trace` chooses what to
 * recompute in a trace of operations. Both exist to run published instances.
 */
#include "cli/ui.h"
#include "plimsoll_json.h"
#include "plimsoll_unstable.h"

#include <errno.h>
#include <stdlib.h>

static bool parse_capacity(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long v = text ? strtoull(text, &end, 10) : 0;
    *out = v;
    return !text || (errno == 0 && end > text && *end == 0 && v > 0 && text[0] != '-');
}

static pl_status print_json(const pl_pack_report *r, uint64_t capacity)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_uint(j, "buffers", r->buffers);
    pl_json_uint(j, "height_bytes", r->height_bytes);
    pl_json_uint(j, "bound_bytes", r->bound_bytes);
    if (capacity)
        pl_json_uint(j, "capacity_bytes", capacity);
    else
        pl_json_null(j, "capacity_bytes");
    pl_json_bool(j, "fits", !capacity || r->height_bytes <= capacity);
    pl_json_float(j, "plan_ms", r->plan_ms);
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

int standalone_pack(const char *in, const char *out, const char *capacity_text, bool json)
{
    uint64_t capacity;
    if (!parse_capacity(capacity_text, &capacity)) {
        cli_error("--capacity takes a number of bytes, not \"%s\"", capacity_text);
        return 2;
    }
    pl_pack_report r;
    pl_status rc = pl_pack_file(in, out, capacity, &r);
    if (rc == PL_OK && json) rc = print_json(&r, capacity);
    if (rc != PL_OK) return cli_fail(rc);
    if (!json)
        printf("%llu buffers, height %llu, bound %llu (%.4f x), %.0f ms\n",
               (unsigned long long)r.buffers, (unsigned long long)r.height_bytes,
               (unsigned long long)r.bound_bytes,
               r.bound_bytes ? (double)r.height_bytes / (double)r.bound_bytes : 1.0, r.plan_ms);
    if (!capacity || r.height_bytes <= capacity) return 0;
    cli_error("does not fit the capacity of %llu bytes: the smallest arena found has %llu bytes",
              (unsigned long long)capacity, (unsigned long long)r.height_bytes);
    return 3;
}

int standalone_recompute(const char *path, const char *budget, const char *seconds, const char *out,
                         bool json)
{
    char *end = NULL;
    double share = budget ? strtod(budget, &end) : 0, search = seconds ? strtod(seconds, NULL) : 0;
    if (!budget || *end || !(share > 0 && share <= 1)) {
        cli_error("--trace needs --budget SHARE, above 0 and at most 1, e.g. --budget 0.5");
        return 2;
    }
    pl_trace_report r;
    pl_status rc = pl_plan_trace(path, share, search, out, &r);
    if (rc != PL_OK) return cli_fail(rc);
    if (!json) {
        printf(
            "compute time %.4f x the time without recompute, peak %s, budget %s, planned in %.0f "
            "ms\n",
            r.overhead, cli_bytes(r.peak_bytes), cli_bytes(r.budget_bytes), r.plan_ms);
        return 0;
    }
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_float(j, "overhead", r.overhead);
    pl_json_uint(j, "peak_bytes", r.peak_bytes);
    pl_json_uint(j, "budget_bytes", r.budget_bytes);
    pl_json_float(j, "plan_ms", r.plan_ms);
    pl_json_end(j);
    rc = pl_json_finish(j);
    pl_json_free(j);
    return rc == PL_OK ? 0 : cli_fail(rc);
}
