/* device_guarded.c - the test device "apart": the CPU, with memory that the host may not touch.
 *
 * Its memory is ordinary pages that are mapped without access while no function of this file runs:
 * a session that reads or writes device memory by itself ends with a segmentation fault at once.
 * Outputs reach a mirror only when the session waits for their run; until then the mirror holds
 * noise. So the session of a GPU is tested on machines without a GPU.
 *
 * The table of blocks and the stage's owner exist once per process, like a GPU's memory; tests use
 * the device from one thread.
 */
#include "base/sys.h"
#include "pass/fuse/fuse.h"
#include "rt/device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ROOM: bytes of address space after a block, for growing */
enum { MAX_BLOCKS = 64, ROOM = 64 << 20 };
static struct {
    void *p;
    size_t bytes, first_bytes;
} blocks[MAX_BLOCKS];

static void wall(int access)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (blocks[i].p && mprotect(blocks[i].p, blocks[i].bytes, access) != 0)
            PL_BUG("mprotect refuses a mapped block");
}

static void enter(void)
{
    wall(PROT_READ | PROT_WRITE);
}

static void leave(void)
{
    wall(PROT_NONE);
}

static pl_status guarded_alloc(size_t bytes, void **out)
{
    *out = NULL;
    if (!bytes) return PL_OK;
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (blocks[i].p) continue;
        PL_TRY(pl_sys_map(bytes + ROOM, out));
        blocks[i].p = *out;
        blocks[i].bytes = blocks[i].first_bytes = bytes;
        if (mprotect(*out, bytes + ROOM, PROT_NONE) != 0) PL_BUG("mprotect refuses a new block");
        return PL_OK;
    }
    PL_FAIL(PL_ERR_MEMORY, "device apart has %d blocks, all in use", MAX_BLOCKS);
}

static void guarded_free(void *p, size_t bytes)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (!p || blocks[i].p != p) continue;
        if (blocks[i].bytes != bytes) PL_BUG("a block is given back with another size than it has");
        pl_sys_unmap(p, blocks[i].first_bytes + ROOM);
        blocks[i].p = NULL;
    }
}

static pl_status guarded_grow(void *p, size_t from, size_t to)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (blocks[i].p != p) continue;
        if (blocks[i].bytes != from) PL_BUG("a block grows from another size than it has");
        PL_FAIL_IF(to > blocks[i].first_bytes + ROOM, PL_ERR_MEMORY,
                   "device apart grows a block by %d bytes at most", ROOM);
        blocks[i].bytes = to;
    }
    return PL_OK;
}

static pl_status guarded_fill(void *to, int byte, size_t bytes)
{
    enter();
    memset(to, byte, bytes);
    leave();
    return PL_OK;
}

/* Counts the runs. PLIMSOLL_APART_FAILS is the number of the run that reports an error. */
static pl_status count_run(void)
{
    static long runs;
    const char *at = getenv("PLIMSOLL_APART_FAILS");
    PL_FAIL_IF(++runs == (at ? atol(at) : 0), PL_ERR_DEVICE,
               "device apart: run %ld ends with an error, as PLIMSOLL_APART_FAILS asks", runs);
    return PL_OK;
}

static pl_status guarded_run(const pl_bound_unit *l, uint32_t n, uint64_t *ns, uint32_t *failed)
{
    PL_TRY(count_run());
    enter();
    pl_status rc = pl_device_cpu.run(l, n, ns, failed);
    leave();
    return rc;
}

static pl_status guarded_host_alloc(size_t bytes, void **out)
{
    *out = NULL;
    return bytes ? pl_sys_map(bytes, out) : PL_OK;
}

static pl_status guarded_copy(void *to, const void *from, size_t bytes)
{
    enter();
    memcpy(to, from, bytes);
    leave();
    return PL_OK;
}

/* ---- captured programs ------------------------------------------------------------------ */
typedef struct captured {
    const pl_capture_plan *plan;
    bool waiting[2]; /* outputs of a run have not reached this mirror */
    double ms[2];
    char *kept[2]; /* what the mirrors will hold */
} captured;

/* The program whose inputs are in the stage, sent ahead; NULL: none. */
static const captured *stage_owner;

static void send(captured *t, int side)
{
    if (t->plan->in_bytes) memcpy(t->plan->stage, t->plan->host[side], t->plan->in_bytes);
    stage_owner = t;
}

/* Runs on the inputs in the stage. */
static pl_status play(captured *t, int side, uint32_t *failed)
{
    const pl_capture_plan *plan = t->plan;
    uint64_t begin = pl_sys_now_ns();
    stage_owner = NULL;
    for (uint32_t i = 0; i < plan->n_in; i++)
        if (plan->in[i].bytes)
            memcpy(plan->in[i].device, (char *)plan->stage + plan->in[i].at, plan->in[i].bytes);
    pl_status rc = pl_device_cpu.run(plan->units, plan->n_units, NULL, failed);
    t->ms[side] = 1e-6 * (double)(pl_sys_now_ns() - begin);
    return rc;
}

static size_t kept_bytes(const pl_capture_plan *plan)
{
    size_t most = 0;
    for (uint32_t i = 0; i < plan->n_out; i++)
        if (plan->out[i].at + plan->out[i].bytes > most)
            most = plan->out[i].at + plan->out[i].bytes;
    return most;
}

static pl_status guarded_capture_new(const pl_capture_plan *plan, void **out, uint32_t *failed)
{
    size_t bytes = kept_bytes(plan);
    captured *t = pl_sys_alloc(sizeof *t + 2 * bytes);
    *failed = plan->n_units;
    if (!t) return PL_ERR_MEMORY;
    t->plan = plan;
    for (int k = 0; k < 2; k++) t->kept[k] = (char *)(t + 1) + (size_t)k * bytes;
    *out = t;
    enter();
    if (plan->in_bytes) memset(plan->stage, 0, plan->in_bytes);
    pl_status rc = play(t, 0, failed);
    leave();
    return rc;
}

static void guarded_capture_free(void *p)
{
    if (stage_owner == p) stage_owner = NULL;
    pl_sys_free(p);
}

static pl_status guarded_capture_send(void *p, int side)
{
    enter();
    send(p, side);
    leave();
    return PL_OK;
}

static pl_status guarded_capture_run(void *p, int side, bool sent)
{
    PL_TRY(count_run());
    captured *t = p;
    uint32_t failed;
    enter();
    if (!sent || stage_owner != t) send(t, side);
    pl_status rc = play(t, side, &failed);
    for (uint32_t i = 0; i < t->plan->n_out; i++) {
        const pl_transfer *o = &t->plan->out[i];
        memcpy(t->kept[side] + o->at, o->device, o->bytes);
        memset((char *)t->plan->mirror[side] + o->at, 0xff, o->bytes);
    }
    leave();
    t->waiting[side] = true;
    return rc;
}

static pl_status guarded_capture_reclaim(void *p, int side)
{
    (void)p, (void)side;
    return PL_OK;
}

static pl_status guarded_capture_wait(void *p, int side)
{
    captured *t = p;
    const pl_capture_plan *plan = t->plan;
    if (!t->waiting[side]) return PL_OK;
    for (uint32_t i = 0; i < plan->n_out; i++)
        memcpy((char *)plan->mirror[side] + plan->out[i].at, t->kept[side] + plan->out[i].at,
               plan->out[i].bytes);
    t->waiting[side] = false;
    return PL_OK;
}

static double guarded_capture_ms(void *p, int side)
{
    const captured *t = p;
    return t->ms[side];
}

/* ---- the rest is the CPU's ---------------------------------------------------------------- */
static pl_status guarded_prepare(const pl_graph *g, const pl_unit *u, const pl_call *call,
                                 bool reference, pl_exec *out)
{
    return pl_device_cpu.prepare(g, u, call, reference, out);
}

static uint64_t guarded_used(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (blocks[i].p) sum += blocks[i].bytes;
    return sum;
}

static pl_status guarded_room(uint64_t bytes)
{
    (void)bytes;
    return PL_OK;
}

static const pl_device guarded = {
    .name = "apart",
    .fuse = &pl_fuse_opts_cpu,
    .access = &pl_access_staged,
    .own_memory = true,
    .node_bytes = 64, /* of captured programs */
    .host_margin_bytes = 16 << 20,
    .alloc = guarded_alloc,
    .free = guarded_free,
    .grow = guarded_grow,
    .fill = guarded_fill,
    .prepare = guarded_prepare,
    .discard = pl_exec_discard,
    .run = guarded_run,
    .host_alloc = guarded_host_alloc,
    .host_free = pl_sys_unmap,
    .write = guarded_copy,
    .read = guarded_copy,
    .capture_new = guarded_capture_new,
    .capture_free = guarded_capture_free,
    .capture_send = guarded_capture_send,
    .capture_run = guarded_capture_run,
    .capture_reclaim = guarded_capture_reclaim,
    .capture_wait = guarded_capture_wait,
    .capture_ms = guarded_capture_ms,
    .used_bytes = guarded_used,
    .room = guarded_room,
    .link = "shm",
    .unit_ns = pl_cpu_unit_ns,
    .copy_ns = pl_cpu_copy_ns,
};

const pl_device_kind pl_device_kind_guarded = {.name = "apart", .device = &guarded};
