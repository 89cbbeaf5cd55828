/* host_limit.c - see host_limit.h.
 *
 * A limit of address space counts mappings, not resident pages: memory that the run maps besides
 * its plan (stacks of threads, tables of libraries) is subtracted.
 */
#include "rt/host_limit.h"

#include "base/sys.h"
#include "base/threads.h"
#include "rt/device.h"

#include <sys/resource.h>

static void lower(uint64_t *bytes, const char **why, uint64_t limit, const char *text)
{
    if (*bytes && *bytes <= limit) return;
    *bytes = limit ? limit : 1;
    *why = text;
}

/* Bytes that a run maps besides its plan. */
static uint64_t apart_bytes(void)
{
    return ((uint64_t)32 << 20) + ((uint64_t)8 << 20) * (uint64_t)pl_threads_count();
}

static pl_status check_rlimit(int which, uint64_t taken, const char *text)
{
    struct rlimit r;
    if (getrlimit(which, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return PL_OK;
    PL_FAIL_IF(r.rlim_cur <= taken + apart_bytes(), PL_ERR_FIT,
               "%s is %.1f MB: %.1f MB are taken, and threads and kernels need %.1f MB more; raise "
               "it, or use fewer threads",
               text, 1e-6 * (double)r.rlim_cur, 1e-6 * (double)taken, 1e-6 * (double)apart_bytes());
    return PL_OK;
}

pl_status pl_host_limit_check(void)
{
    PL_TRY(
        check_rlimit(RLIMIT_AS, pl_sys_mapped_bytes(), "the limit of address space (ulimit -v)"));
    return check_rlimit(RLIMIT_DATA, pl_sys_data_bytes(), "the limit of data (ulimit -d)");
}

/* A limit of this process, of which `taken` bytes are mapped. */
static void apply_rlimit(pl_host_limit *out, int which, uint64_t taken, uint64_t resident,
                         const char *text)
{
    struct rlimit r;
    uint64_t apart = apart_bytes();
    if (getrlimit(which, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return;
    uint64_t left = r.rlim_cur > taken + apart ? r.rlim_cur - taken - apart : 0;
    lower(&out->free_bytes, &out->free_why, resident + left, text);
    lower(&out->most_bytes, &out->most_why, resident + left, text);
}

void pl_host_limit_read(int sharers, pl_host_limit *out)
{
    uint64_t share = sharers > 1 ? (uint64_t)sharers : 1, resident = pl_sys_rss_bytes();
    uint64_t total = pl_cpu_meminfo("MemTotal:"), swap = pl_cpu_meminfo("SwapTotal:"),
             free_bytes = pl_cpu_meminfo("MemAvailable:");
    *out = (pl_host_limit){0};
    if (total) {
        lower(&out->free_bytes, &out->free_why, resident + free_bytes / share,
              "the free memory of this machine");
        lower(&out->most_bytes, &out->most_why, (total + swap) / share,
              "the memory of this machine, with swap");
    }
    uint64_t limit = pl_cgroup_own()->memory_bytes, used = pl_cgroup_memory_used();
    if (limit) {
        /* not above the limit: pages of the program's file may count for another container */
        uint64_t own = resident + (limit > used ? limit - used : 0) / share;
        lower(&out->free_bytes, &out->free_why, own < limit / share ? own : limit / share,
              "the free memory of the container");
        lower(&out->most_bytes, &out->most_why, limit / share, "the memory of the container");
    }
    apply_rlimit(out, RLIMIT_AS, pl_sys_mapped_bytes(), resident,
                 "the limit of address space (ulimit -v)");
    apply_rlimit(out, RLIMIT_DATA, pl_sys_data_bytes(), resident, "the limit of data (ulimit -d)");
}
