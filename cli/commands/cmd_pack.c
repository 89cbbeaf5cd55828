/* cmd_pack.c - `plimsoll plan --csv`: the offset planner alone, on a problem from a file. */
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

int plan_csv(const char *in, const char *out, const char *capacity_text, bool json)
{
    uint64_t capacity;
    if (!parse_capacity(capacity_text, &capacity)) {
        cli_error("--capacity wants a number of bytes, not \"%s\"", capacity_text);
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
    cli_error("does not fit the capacity of %llu: the lowest arena found is %llu",
              (unsigned long long)capacity, (unsigned long long)r.height_bytes);
    return 3;
}
