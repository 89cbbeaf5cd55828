/* device_list.c - devices by name, and the devices of this machine: walks the table devices.def. */
#include "base/str.h"
#include "base/sys.h"
#include "base/threads.h"
#include "rt/device.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

uint64_t pl_process_bytes(void)
{
    return pl_sys_rss_bytes();
}

uint64_t pl_process_peak_bytes(void)
{
    return pl_sys_peak_rss_bytes();
}

int pl_threads(void)
{
    return pl_threads_count();
}

int pl_cores(void)
{
    return pl_sys_cores();
}

static const pl_device_kind *const kinds[] = {
#define PL_DEVICE(kind) &pl_device_kind_##kind,
#include "rt/devices.def"
#undef PL_DEVICE
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Returns the kind of device that the name belongs to; NULL: none, or no name. */
static const pl_device_kind *kind_of(const char *name)
{
    for (int i = 0; name && i < N_KINDS; i++) {
        const pl_device_kind *k = kinds[i];
        if (k->device ? strcmp(name, k->device->name) == 0 : k->has(name)) return k;
    }
    return NULL;
}

bool pl_device_is_plugged(const char *name)
{
    const pl_device_kind *k = kind_of(name);
    return k && k->plugged;
}

static const char cards[] = ""
#define PL_CARD(name, ...) " " name
#include "plan/cost/cards.def"
#undef PL_CARD
    ;

/* Writes the kinds that can be listed: "cpu" and "cuda". */
static void names_text(char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i]->list && used < cap)
            used += (size_t)snprintf(out + used, cap - used, "%s\"%s\"", used ? " and " : "",
                                     kinds[i]->name);
}

/* Writes "; did you mean X?" for the nearest device or GPU profile, or "". */
static void suggest_device(const char *name, char *out, size_t cap)
{
    static const char *const names[] = {
        "cpu",
        "cuda",
#define PL_CARD(card, ...) card,
#include "plan/cost/cards.def"
#undef PL_CARD
    };
    int least = 3; /* fewer edits than this are near */
    out[0] = 0;
    if (name && strcasecmp(name, "gpu") == 0) {
        snprintf(out, cap, "; did you mean cuda?");
        return;
    }
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
        int d = pl_str_distance(name, names[i]);
        if (d >= least) continue;
        least = d;
        snprintf(out, cap, "; did you mean %s?", names[i]);
    }
}

pl_status pl_device_find(const char *name, const pl_device **out)
{
    const pl_device_kind *k = kind_of(name);
    if (k && k->device) {
        *out = k->device;
        return PL_OK;
    }
    if (k) {
        pl_status rc = k->open(name, out);
        return rc == PL_OK ? rc : pl__fail_prefix(rc, "device %s cannot be used", name);
    }
    *out = NULL;
    char names[128], near[64];
    names_text(names, sizeof names);
    suggest_device(name, near, sizeof near);
    PL_FAIL(PL_ERR_DEVICE, "no device \"%s\"%s (devices: %s; GPUs to plan for:%s)",
            name ? name : "", near, names, cards);
}

int pl_device_list(pl_device_info *out, int cap)
{
    int n = 0;
    for (int i = 0; i < N_KINDS; i++) {
        int used = n < cap ? n : cap;
        if (kinds[i]->list) n += kinds[i]->list(out + used, cap - used);
    }
    return n;
}

int pl_device_plugged_count(void)
{
    int n = 0;
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i]->plugged && kinds[i]->list) n += kinds[i]->list(NULL, 0);
    return n;
}

bool pl_device_memory(const char *name, uint64_t *total, uint64_t *available)
{
    const pl_device_kind *k = kind_of(name);
    return k && k->memory && k->memory(name, total, available);
}
