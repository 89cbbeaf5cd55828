/* device_cpu.c - the CPU: ordinary memory that the host reaches directly, kernels from the ops' own
 * tables, calls in order. */
#include "rt/device.h"

#include "base/str.h"
#include "base/sys.h"
#include "base/threads.h"
#include "cpu/dnn/dnn.h"
#include "cpu/isa/isa.h"
#include "cpu/tile/cpu_group.h"
#include "ir/comm.h"
#include "pass/fuse/fuse.h"
#include "plan/cost/cost.h"
#include "rt/levels/levels.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pl_status cpu_alloc(size_t bytes, void **out)
{
    *out = NULL;
    return bytes ? pl_sys_map(bytes, out) : PL_OK;
}

static void cpu_free(void *p, size_t bytes)
{
    pl_sys_unmap(p, bytes);
}

static pl_status cpu_fill(void *to, int byte, size_t bytes)
{
    memset(to, byte, bytes);
    return PL_OK;
}

static pl_status cpu_prepare(const pl_graph *g, const pl_unit *u, const pl_call *call,
                             bool reference, pl_exec *out)
{
    if (u->kind == PL_UNIT_GROUP) {
        *out = (pl_exec){.kernel = &pl_cpu_group_kernel};
        PL_TRY(pl_cpu_group_prepare(g, u, &out->prep, &out->inplace, &out->work_bytes));
        out->host_bytes = pl_cpu_group_bytes(out->prep);
        return PL_OK;
    }
    uint64_t asked = pl_sys_asked_bytes(), made = pl_dnn_made();
    const pl_op *op = pl_node_get(g, u->nodes[0])->op;
    *out = (pl_exec){.kernel = pl_kernel_choose(op->cpu, call, reference)};
    PL_FAIL_IF(!out->kernel, PL_ERR_UNSUPPORTED, "%s has no CPU kernel for these types", op->name);
    if (!out->kernel->prepare) return PL_OK;
    PL_TRY(out->kernel->prepare(call, &out->prep, &out->work_bytes));
    out->library_kernels = (uint32_t)(pl_dnn_made() - made);
    out->host_bytes = out->library_kernels ? pl_dnn_bytes() : pl_sys_asked_bytes() - asked;
    return PL_OK;
}

static pl_status run_one(const pl_bound_unit *l)
{
    if (l->exec) return l->exec->kernel->run(&l->call);
    if (l->bytes) memmove(l->to, l->from, l->bytes);
    return PL_OK;
}

static pl_status run_exchange(const void *unit)
{
    const pl_bound_unit *l = unit;
    return l->exec->kernel->run(&l->call);
}

/* Exchanges run on the communicator's thread; a unit that needs the bytes of an exchange waits for
 * it. */
static pl_status run_beside(const pl_bound_unit *l, uint32_t n, pl_async *a, uint32_t *failed)
{
    uint32_t begun = l[0].exchange ? l[0].exchange - 1 : l[0].after, done = begun;
    pl_status rc = PL_OK;
    for (uint32_t i = 0; i < n && rc == PL_OK; i++) {
        *failed = i;
        if (l[i].after > done && l[i].after <= begun) {
            rc = a->wait(a, begun - l[i].after);
            done = l[i].after;
        }
        if (rc == PL_OK && l[i].exchange) {
            a->start(a, run_exchange, &l[i]);
            begun = l[i].exchange;
        } else if (rc == PL_OK) {
            rc = run_one(&l[i]);
        }
    }
    pl_status last = a->wait(a, 0);
    return rc == PL_OK ? last : rc;
}

/* Moves run on the threads of their channels; a unit waits for the moves that it needs. Where units
 * are timed, a move for which no unit has waited yet is timed with the run's end. */
static pl_status run_with_moves(const pl_bound_unit *l, uint32_t n, pl_levels *levels, uint64_t *ns,
                                uint32_t *failed)
{
    pl_status rc = PL_OK;
    for (uint32_t i = 0; i < n && rc == PL_OK; i++) {
        uint64_t begin = ns ? pl_sys_now_ns() : 0;
        *failed = i;
        if (l[i].move) {
            pl_levels_begin(levels, &l[i]);
            continue;
        }
        for (int c = 0; c < PL_N_CHANNELS && rc == PL_OK; c++)
            if (l[i].wait[c]) rc = pl_levels_wait(levels, (pl_channel)c, l[i].wait[c]);
        if (rc == PL_OK) rc = run_one(&l[i]);
        if (ns) ns[i] += pl_sys_now_ns() - begin;
    }
    pl_status last = pl_levels_end_run(levels);
    return rc == PL_OK ? last : rc;
}

static pl_status cpu_run(const pl_bound_unit *l, uint32_t n, uint64_t *ns, uint32_t *failed)
{
    pl_async *a = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (l[i].move) return run_with_moves(l, n, l[i].levels, ns, failed);
    for (uint32_t i = 0; i < n && !a && !ns; i++)
        if (l[i].exchange && l[i].call.comm) a = l[i].call.comm->async;
    if (a) return run_beside(l, n, a, failed);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t begin = ns ? pl_sys_now_ns() : 0;
        pl_status rc = run_one(&l[i]);
        if (ns) ns[i] += pl_sys_now_ns() - begin;
        if (rc != PL_OK) {
            *failed = i;
            return rc;
        }
    }
    return PL_OK;
}

double pl_cpu_unit_ns(const pl_device *dev, const pl_cost *cost, pl_dtype dtype,
                      const pl_device_mode *mode)
{
    (void)dev, (void)dtype, (void)mode;
    return 1e6 * pl_cost_ms(cost, pl_threads_count());
}

/* About 10 GB/s read and written. */
void pl_cpu_copy_ns(const pl_device *dev, double *fixed, double *per_byte)
{
    (void)dev;
    *fixed = 100;
    *per_byte = 0.1;
}

/* ---- model and memory of this machine ---------------------------------------------------- */
/* Returns the text after "field<blanks>: " in a /proc file, up to the end of the line. */
static void proc_field(const char *path, const char *field, char *out, size_t cap)
{
    char line[512];
    out[0] = 0;
    FILE *f = fopen(path, "re");
    if (!f) return;
    while (!out[0] && fgets(line, sizeof line, f)) {
        if (strncmp(line, field, strlen(field)) != 0) continue;
        char *value = strchr(line, ':');
        if (!value) continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(out, cap, "%s", value);
    }
    fclose(f);
}

/* Opened once: a run reads it between steps, and steps open and allocate nothing. */
static pthread_once_t meminfo_once = PTHREAD_ONCE_INIT;
static int meminfo = -1;

static void open_meminfo(void)
{
    meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
}

uint64_t pl_cpu_meminfo(const char *field)
{
    char text[4096];
    pthread_once(&meminfo_once, open_meminfo);
    ssize_t n = meminfo < 0 ? -1 : pread(meminfo, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    const char *at = strstr(text, field);
    return at ? strtoull(at + strlen(field), NULL, 10) * 1024 : 0;
}

void pl_cpu_model(char *out, size_t cap)
{
    char model[128];
    proc_field("/proc/cpuinfo", "model name", model, sizeof model);
    snprintf(out, cap, "%s, %d threads, %s", model[0] ? model : "processor", pl_threads_count(),
             pl_cpu_vectors());
}

/* The memory of the machine and, in a container, the limit of the container. */
static bool cpu_memory(const char *name, uint64_t *total, uint64_t *available)
{
    (void)name;
    *total = pl_cpu_meminfo("MemTotal:");
    *available = pl_cpu_meminfo("MemAvailable:");
    uint64_t limit = pl_cgroup_own()->memory_bytes, used = pl_cgroup_memory_used();
    uint64_t left = limit > used ? limit - used : 0;
    if (limit && (limit < *total || !*total)) *total = limit;
    if (limit && (left < *available || !*available)) *available = left;
    if (*available > *total) *available = *total;
    return *total != 0;
}

/* Appends the limits of the container to the machine's description. */
static void describe_container(char *about, size_t cap)
{
    const pl_cgroup *c = pl_cgroup_own();
    char limit[32], used[32], machine[32];
    size_t n = strlen(about);
    uint64_t total = pl_cpu_meminfo("MemTotal:");
    bool memory = c->memory_bytes && (!total || c->memory_bytes < total);
    if (c->cpus == 0 && !memory) return;
    n += (size_t)snprintf(about + n, cap - n, "; container:");
    if (c->cpus > 0 && n < cap)
        n += (size_t)snprintf(about + n, cap - n, " %.3g of %ld cores%s", c->cpus,
                              sysconf(_SC_NPROCESSORS_ONLN), memory ? "," : "");
    if (memory && n < cap)
        snprintf(about + n, cap - n, " %s of %s, %s in use",
                 pl_str_bytes(c->memory_bytes, limit, sizeof limit),
                 pl_str_bytes(total, machine, sizeof machine),
                 pl_str_bytes(pl_cgroup_memory_used(), used, sizeof used));
}

static int cpu_list(pl_device_info *d, int cap)
{
    if (cap < 1) return 1;
    memset(d, 0, sizeof *d);
    snprintf(d->name, sizeof d->name, "cpu");
    pl_cpu_model(d->about, sizeof d->about);
    describe_container(d->about, sizeof d->about);
    cpu_memory(d->name, &d->total_bytes, &d->free_bytes);
    d->usable = true;
    return 1;
}

const pl_fuse_opts pl_fuse_opts_cpu = PL_FUSE_OPTS_CPU(pl_cpu_group_takes);

const pl_device pl_device_cpu = {
    .name = "cpu",
    .fuse = &pl_fuse_opts_cpu,
    .access = &pl_access_direct,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .fill = cpu_fill,
    .prepare = cpu_prepare,
    .discard = pl_exec_discard,
    .forget = pl_dnn_forget,
    .run = cpu_run,
    .used_bytes = pl_sys_rss_bytes,
    .code_bytes = pl_dnn_code_bytes,
    .link = "shm",
    .unit_ns = pl_cpu_unit_ns,
    .copy_ns = pl_cpu_copy_ns,
    .model = pl_cpu_model,
};

const pl_device_kind pl_device_kind_cpu = {
    .name = "cpu",
    .device = &pl_device_cpu,
    .list = cpu_list,
    .memory = cpu_memory,
};
