/* run_levels.c - memory below the device of a run: the keys host_memory, disk and host_link. */
#include "base/str.h"
#include "plan/cost/host_link.h"
#include "plimsoll_levels.h"
#include "rt/device.h"
#include "rt/levels/process_levels.h"
#include "train/run/run.h"

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

static void set_rates(const pl_run *r, pl_process_levels *l)
{
    const char *asked = pl_config_text(r->config, "host_link");
    char model[128] = "";
    const pl_device *dev = pl__run_own_memory(r);
    if (dev && dev->model) dev->model(model, sizeof model);
    const pl_host_link *link = pl_host_link_find(asked),
                       *disk = pl_disk_link_find(pl_config_text(r->config, "disk_link"));
    if (!link) link = pl_host_link_of_card(model[0] ? model : pl_config_text(r->config, "device"));
    l->opts.channel_ns[PL_CHANNEL_UP] = 1e9 / link->up;
    l->opts.channel_ns[PL_CHANNEL_DOWN] = 1e9 / link->down;
    l->opts.channel_ns[PL_CHANNEL_READ] = 1e9 / disk->up;
    l->opts.channel_ns[PL_CHANNEL_WRITE] = 1e9 / disk->down;
    l->opts.move_ns = is_apart(r) ? link->move_ns : disk->move_ns;
}

pl_status pl__run_read_levels(const pl_run *r, pl_process_levels *l, bool *any)
{
    *any = false;
    bool host = !pl_config_is_null(r->config, "host_memory");
    const pl_device *dev = pl__run_own_memory(r);
    PL_FAIL_IF(host && dev && !dev->plans_only, PL_ERR_CONFIG,
               "host_memory: device %s cannot run plans that use host memory yet; they can be "
               "planned for a GPU by name (plimsoll plan ... --device h200)",
               pl_config_text(r->config, "device"));
    PL_FAIL_IF(host && !is_apart(r), PL_ERR_CONFIG,
               "host_memory: device %s trains in host memory, which `memory` limits; the level "
               "below it is a disk (disk: 100GB:/scratch)",
               pl_config_text(r->config, "device"));
    PL_TRY(read_disk(r, l));
    PL_FAIL_IF(l->disk_dir && is_apart(r), PL_ERR_CONFIG,
               "disk: device %s moves to host memory only (host_memory: 32GB); files are the level "
               "below the CPU",
               pl_config_text(r->config, "device"));
    if (host)
        l->budget[PL_LEVEL_HOST] =
            (uint64_t)pl_config_size(r->config, "host_memory") / PL_LEVEL_ALIGN * PL_LEVEL_ALIGN;
    set_rates(r, l);
    *any = host || l->disk_dir;
    return PL_OK;
}

/* ---- reports ---------------------------------------------------------------------------- */
pl_run_levels pl_run_levels_get(const pl_run *r)
{
    pl_run_levels out = {0};
    const pl_step_build *b = r->build;
    if (!b || !b->levels) return out;
    out.host_budget_bytes = b->levels->budget[PL_LEVEL_HOST];
    out.disk_budget_bytes = b->levels->budget[PL_LEVEL_DISK];
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
    }
    return out;
}
