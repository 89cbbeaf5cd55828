/* run_levels.c - memory below the device of a run: the keys host_memory, disk and host_link. */
#include "base/str.h"
#include "base/sys.h"
#include "plan/cost/host_link.h"
#include "plimsoll_levels.h"
#include "rt/device.h"
#include "rt/host_limit.h"
#include "rt/levels/levels.h"
#include "rt/levels/link_rates.h"
#include "rt/levels/process_levels.h"
#include "rt/levels/ring.h"
#include "train/data/prefetch.h"
#include "train/run/run.h"

#include <errno.h>
#include <string.h>

/* ---- keys ------------------------------------------------------------------------------- */
/* Key `disk`: SIZE:FOLDER. */
static pl_status read_disk(const pl_run *r, pl_process_levels *l)
{
    if (pl_config_is_null(r->config, "disk")) return PL_OK;
    const char *text = pl_config_text(r->config, "disk"), *colon = strchr(text, ':');
    char size[64];
    size_t n = colon ? (size_t)(colon - text) : 0;
    uint64_t bytes = 0;
    if (n && n < sizeof size) {
        memcpy(size, text, n);
        size[n] = 0;
        if (pl_str_parse_bytes(size, &bytes) != PL_OK) bytes = 0;
    }
    PL_FAIL_IF(!bytes || !colon[1], PL_ERR_CONFIG,
               "disk: \"%s\" is not a size and a folder (e.g. 100GB:/scratch)", text);
    l->budget[PL_LEVEL_DISK] = bytes / PL_LEVEL_ALIGN * PL_LEVEL_ALIGN;
    l->disk_dir = colon + 1;
    return PL_OK;
}

/* Whether the run's device has its own memory, or is planned for. */
static bool is_apart(const pl_run *r)
{
    return pl__run_own_memory(r) || pl_device_profile(pl_config_text(r->config, "device"));
}

/* What both directions of a link reach at once, compared with one alone, as rates are measured. A
 * step of GPT-2 with 1.5 billion weights on an H200 takes 398 ms; the prediction is 407 ms with
 * 0.89 x 55 GB/s, 346 ms with 55 GB/s. */
static const double both_ways = 0.89;

/* Returns the rates of the host link: by the key, measured on this machine, or the usual ones of
 * the GPU. */
static pl_host_link host_rates(const pl_run *r)
{
    const char *asked = pl_config_text(r->config, "host_link");
    const pl_host_link *named = pl_host_link_find(asked);
    const pl_device *dev = pl__run_own_memory(r);
    char owner[256] = "";
    pl_link_rates measured;
    if (named) return *named;
    if (dev) pl_link_owner(dev, owner, sizeof owner);
    pl_host_link link =
        *pl_host_link_of_card(owner[0] ? owner : pl_config_text(r->config, "device"));
    if (dev && !dev->plans_only && pl_link_rates_find(owner, &measured))
        link.up = both_ways * measured.up, link.down = both_ways * measured.down;
    return link;
}

static pl_host_link disk_rates(const pl_run *r, const char *folder)
{
    const pl_host_link *named = pl_disk_link_find(pl_config_text(r->config, "disk_link"));
    char owner[256];
    pl_link_rates measured;
    if (named) return *named;
    pl_host_link link = *pl_disk_link_find("nvme");
    if (folder && pl_link_disk_owner(folder, owner, sizeof owner) &&
        pl_link_rates_find(owner, &measured))
        link.up = measured.up, link.down = measured.down;
    return link;
}

static void set_rates(const pl_run *r, pl_process_levels *l)
{
    pl_host_link link = host_rates(r), disk = disk_rates(r, l->disk_dir);
    l->opts.channel_ns[PL_CHANNEL_UP] = 1e9 / link.up;
    l->opts.channel_ns[PL_CHANNEL_DOWN] = 1e9 / link.down;
    l->opts.channel_ns[PL_CHANNEL_READ] = 1e9 / disk.up;
    l->opts.channel_ns[PL_CHANNEL_WRITE] = 1e9 / disk.down;
    l->opts.move_ns = is_apart(r) ? link.move_ns : disk.move_ns;
}

pl_status pl_calibrate_link(const char *device, const char *folder, double *up, double *down)
{
    const pl_device *dev;
    char owner[256];
    pl_link_rates r;
    PL_TRY(pl_device_find(device, &dev));
    PL_FAIL_IF(!folder && (!dev->own_memory || dev->plans_only), PL_ERR_ARG,
               "device %s has no link to host memory that can be measured", device);
    pl_link_owner(dev, owner, sizeof owner);
    PL_FAIL_IF(folder && !pl_link_disk_owner(folder, owner, sizeof owner), PL_ERR_IO,
               "folder %s: %s", folder, strerror(errno));
    PL_TRY(folder ? pl_link_measure_disk(folder, &r) : pl_link_measure(dev, &r));
    *up = r.up;
    *down = r.down;
    return pl_link_rates_put(owner, &r);
}

const char *pl_io_uring_missing(void)
{
    return pl_ring_missing();
}

/* ---- host memory of a device with its own memory ------------------------------------------ */
/* Host memory of a CUDA process before its first step, for planning without the GPU: driver,
 * libraries and code of kernels. */
static const uint64_t planned_overhead = (uint64_t)1536 << 20;

/* Returns the host memory of the process besides the block of the host level: its memory now,
 * blocks through which inputs and samples pass, and memory of the first steps. In steps of 64 MiB,
 * so that plans do not depend on some pages. */
static uint64_t host_overhead(const pl_run *r)
{
    const uint64_t grain = (uint64_t)64 << 20;
    const pl_device *dev = pl__run_own_memory(r);
    if (!dev || dev->plans_only) return planned_overhead;
    uint64_t bytes = pl_sys_rss_bytes() + 2 * pl__run_stage_bytes(r) + pl_prefetch_bytes(r) +
                     dev->host_margin_bytes;
    return (bytes + grain - 1) / grain * grain;
}

/* Returns the arena that programs on the host share. */
static uint64_t host_arena(const pl_run *r)
{
    uint64_t most = 0;
    for (int i = r->build->n_programs - r->build->n_host; i < r->build->n_programs; i++)
        if (pl_program_plan(r->build->programs[i])->arena_bytes > most)
            most = pl_program_plan(r->build->programs[i])->arena_bytes;
    return most;
}

static pl_status read_host(const pl_run *r, pl_process_levels *l)
{
    const uint64_t disk[PL_N_LEVELS] = {[PL_LEVEL_DISK] = 1};
    char asked[32], own[32];
    l->host_asked = (uint64_t)pl_config_size(r->config, "host_memory");
    l->host_overhead = host_overhead(r) + host_arena(r);
    if (l->disk_dir) l->host_overhead += pl_levels_overhead(&pl_device_cpu, disk);
    PL_FAIL_IF(l->host_asked <= l->host_overhead, PL_ERR_FIT,
               "host_memory: %s is not more than the process itself takes of the host (%s: "
               "program, libraries, driver, data)",
               pl_str_bytes(l->host_asked, asked, sizeof asked),
               pl_str_bytes(l->host_overhead, own, sizeof own));
    l->budget[PL_LEVEL_HOST] = (l->host_asked - l->host_overhead) / PL_LEVEL_ALIGN * PL_LEVEL_ALIGN;
    return PL_OK;
}

pl_status pl__run_read_levels(const pl_run *r, pl_process_levels *l, bool *any)
{
    *any = false;
    bool host = !pl_config_is_null(r->config, "host_memory");
    PL_FAIL_IF(host && !is_apart(r), PL_ERR_CONFIG,
               "host_memory: device %s trains in host memory, which `memory` limits; the level "
               "below it is a disk (disk: 100GB:/scratch)",
               pl_config_text(r->config, "device"));
    PL_TRY(read_disk(r, l));
    PL_FAIL_IF(l->disk_dir && is_apart(r) && !host, PL_ERR_CONFIG,
               "disk: tensors of device %s reach a disk through host memory: set host_memory "
               "(32GB), too",
               pl_config_text(r->config, "device"));
    if (host) PL_TRY(read_host(r, l));
    l->host_programs = r->build->programs + r->build->n_programs - r->build->n_host;
    l->n_host = r->build->n_host;
    set_rates(r, l);
    *any = host || l->disk_dir;
    return PL_OK;
}

pl_status pl__run_check_host(const pl_run *r)
{
    const pl_process_levels *l = r->build ? r->build->levels : NULL;
    uint64_t block = pl_run_levels_get(r).host_bytes;
    pl_host_limit h;
    char need[32], size[32], own[32], left[32];
    if (!l || !block) return PL_OK;
    pl_host_limit_read(r->usage.sharers, &h);
    uint64_t total = block + l->host_overhead;
    PL_FAIL_IF(h.free_bytes && total > h.free_bytes, PL_ERR_FIT,
               "host_memory: the plan needs %s of host memory (%s pinned for tensors, %s for the "
               "process); %s: %s%s; host_memory=%llu plans within it",
               pl_str_bytes(total, need, sizeof need), pl_str_bytes(block, size, sizeof size),
               pl_str_bytes(l->host_overhead, own, sizeof own), h.free_why,
               pl_str_bytes(h.free_bytes, left, sizeof left),
               r->usage.sharers > 1 ? " for each rank" : "", (unsigned long long)h.free_bytes);
    return PL_OK;
}

/* ---- reports ---------------------------------------------------------------------------- */
bool pl_run_slot_is_below(const pl_run *r, int slot)
{
    return r->build && r->build->levels && pl_home_level(&r->build->levels->homes, slot);
}

pl_run_levels pl_run_levels_get(const pl_run *r)
{
    pl_run_levels out = {0};
    const pl_step_build *b = r->build;
    if (!b || !b->levels) return out;
    out.host_budget_bytes = b->levels->host_asked;
    out.host_overhead_bytes = b->levels->host_overhead;
    out.disk_budget_bytes = b->levels->budget[PL_LEVEL_DISK];
    out.host_updates = b->host_updates;
    out.host_state_bytes = b->levels->homes.bytes[PL_LEVEL_HOST];
    out.disk_state_bytes = b->levels->homes.bytes[PL_LEVEL_DISK];
    for (int i = 0; i < b->n_programs; i++) {
        pl_level_info p = pl_program_levels(b->programs[i]);
        if (p.host_bytes > out.host_bytes) out.host_bytes = p.host_bytes;
        if (p.disk_bytes > out.disk_bytes) out.disk_bytes = p.disk_bytes;
    }
    for (int i = 0; i < pl_run_step_program_count(r); i++) {
        pl_run_step_program t = pl_run_step_program_at(r, i);
        double often[2] = {t.share * (double)b->accumulate, t.apply ? t.share : 0};
        const pl_program *p[2] = {t.run, t.apply};
        for (int k = 0; k < 2 && p[k]; k++) {
            pl_level_info of = pl_program_levels(p[k]);
            out.moved_bytes_per_step += often[k] * of.moved_bytes;
            out.wait_ms += often[k] * of.wait_ms;
            out.hidden_ms += often[k] * of.hidden_ms;
        }
        if (b->host_updates && t.apply)
            out.host_update_ms += t.share * pl_program_plan(t.apply)->predicted_step_ms;
    }
    return out;
}
