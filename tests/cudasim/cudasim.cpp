/* cudasim.cpp - fibers, barriers and warps of the simulator, and the card it pretends to be.
 *
 * A fiber takes threads of the block one after another; a thread that waits keeps its fiber, and
 * the rest of the block goes on with another. So there are as many fibers as threads wait at once,
 * and one if none does. All changes go through the scheduler on the launcher's own stack:
 *
 *   scheduler --> fiber: thread 0 ... waits      (or ends: thread 1, 2, ... on the same fiber)
 *             <--
 *             --> another fiber: thread 1 ...
 *   when the last one comes, all that wait are ready again.
 */
#include "cudasim.h"

#include "cuda/device/cuda.h"
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
# define SIM_ASAN 1
#elif defined(__has_feature)
# if __has_feature(address_sanitizer)
#  define SIM_ASAN 1
# endif
#endif
#ifdef SIM_ASAN
extern "C" void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *size);
extern "C" void __asan_unpoison_memory_region(const volatile void *p, size_t size);
#else
static void __sanitizer_start_switch_fiber(void **, const void *, size_t)
{
}
static void __sanitizer_finish_switch_fiber(void *, const void **, size_t *)
{
}
static void __asan_unpoison_memory_region(const volatile void *, size_t)
{
}
#endif

extern "C" {
uint3 pl_sim_thread, pl_sim_block;
dim3 pl_sim_block_dim, pl_sim_grid_dim;
}

/* ---- changing stacks -------------------------------------------------------------------- */
#if defined(__x86_64__)
/* Keeps what a call must keep, on the stack it leaves. */
extern "C" void pl_sim_switch(void **save, void *to);
__asm__(".text\n.globl pl_sim_switch\n.hidden pl_sim_switch\n.type pl_sim_switch,@function\n"
        "pl_sim_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size pl_sim_switch,.-pl_sim_switch\n");

static void *stack_start(char *stack, size_t size, void (*entry)())
{
    void **top = reinterpret_cast<void **>(stack + size);
    *--top = nullptr; /* entry finds the stack as after a call */
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    return top;
}
#else
# include <ucontext.h>
/* A saved stack is a context that lies at its own bottom. */
static ucontext_t contexts[1 + 1024];
static int n_contexts;
static void pl_sim_switch(void **save, void *to)
{
    static ucontext_t launcher;
    if (!*save) *save = &launcher;
    swapcontext(static_cast<ucontext_t *>(*save), static_cast<ucontext_t *>(to));
}
static void *stack_start(char *stack, size_t size, void (*entry)())
{
    ucontext_t *c = &contexts[n_contexts++ % 1025];
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = size;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
    return c;
}
#endif

/* ---- state ------------------------------------------------------------------------------ */
enum { MAX_THREADS = 1024, MAX_SHARED = 227 * 1024, STACK = 256 * 1024 };
enum { RUNS, AT_BARRIER, AT_WARP, AT_MEETING, GONE };

struct fiber {
    void *sp, *fake;
    char *stack;
};

struct lane {
    int state, fiber;
    int site;         /* AT_BARRIER */
    unsigned mask;    /* AT_WARP */
    int first, count; /* AT_MEETING */
    int met;          /* barriers of either kind behind it */
    int kind;
    unsigned came; /* lanes of its last collective */
    int phase;
};

/* What can exist only once: the machine that runs. */
static struct {
    void (*body)(void *);
    void *ctx;
    void *shared;
    int n_threads, next, gone, waiting, votes, vote_sum;
    int ready[MAX_THREADS], n_ready, ready_at;
    int current, running; /* thread, fiber */
    int idle[MAX_THREADS], n_idle, n_fibers;
    fiber fibers[MAX_THREADS];
    lane lanes[MAX_THREADS];
    uint64_t slots[2][MAX_THREADS];
    void *scheduler_sp, *scheduler_fake;
    const void *host_stack;
    size_t host_size;
    bool reverse, failed, busy;
    cudaError_t rc;
    char error[256];
} sim;

extern "C" void pl_sim_reverse(bool on)
{
    sim.reverse = on;
}
extern "C" const char *pl_sim_error(void)
{
    return sim.error;
}
extern "C" void *pl_sim_shared(void)
{
    return sim.shared;
}

__attribute__((format(printf, 2, 3))) static void fail(cudaError_t rc, const char *fmt, ...)
{
    if (sim.failed) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sim.error, sizeof sim.error, fmt, ap);
    va_end(ap);
    sim.failed = true;
    sim.rc = rc;
}

static void fail_in_block(const char *what)
{
    fail(cudaErrorLaunchFailure, "block (%u,%u,%u), thread %d: %s", pl_sim_block.x, pl_sim_block.y,
         pl_sim_block.z, sim.current, what);
}

/* ---- fibers ----------------------------------------------------------------------------- */
static void make_current(int thread)
{
    unsigned t = (unsigned)thread, w = pl_sim_block_dim.x, h = pl_sim_block_dim.y;
    sim.current = thread;
    pl_sim_thread.x = t % w;
    pl_sim_thread.y = t / w % h;
    pl_sim_thread.z = t / (w * h);
}

static void to_scheduler()
{
    fiber *f = &sim.fibers[sim.running];
    __sanitizer_start_switch_fiber(&f->fake, sim.host_stack, sim.host_size);
    pl_sim_switch(&f->sp, sim.scheduler_sp);
    __sanitizer_finish_switch_fiber(f->fake, nullptr, nullptr);
}

static void make_ready(int thread)
{
    sim.lanes[thread].state = RUNS;
    sim.ready[(sim.ready_at + sim.n_ready++) % MAX_THREADS] = thread;
}

static void release_barrier();
static void release_warp(int warp);

static void fiber_entry()
{
    __sanitizer_finish_switch_fiber(nullptr, &sim.host_stack, &sim.host_size);
    for (;;) {
        while (sim.next < sim.n_threads && !sim.failed) {
            int t = sim.reverse ? sim.n_threads - 1 - sim.next : sim.next;
            sim.next++;
            sim.lanes[t].fiber = sim.running;
            make_current(t);
            sim.body(sim.ctx);
            sim.lanes[t].state = GONE;
            sim.gone++;
            release_barrier();
            release_warp(t / 32);
        }
        sim.idle[sim.n_idle++] = sim.running;
        to_scheduler();
    }
}

static int fiber_take()
{
    if (sim.n_idle) return sim.idle[--sim.n_idle];
    fiber *f = &sim.fibers[sim.n_fibers];
    if (!f->stack) {
        void *p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) abort();
        f->stack = static_cast<char *>(p);
    }
    f->sp = stack_start(f->stack, STACK, fiber_entry);
    f->fake = nullptr;
    return sim.n_fibers++;
}

static void to_fiber(int id)
{
    sim.running = id;
    fiber *f = &sim.fibers[id];
    __sanitizer_start_switch_fiber(&sim.scheduler_fake, f->stack, STACK);
    pl_sim_switch(&sim.scheduler_sp, f->sp);
    __sanitizer_finish_switch_fiber(sim.scheduler_fake, nullptr, nullptr);
}

/* ---- barriers and collectives ----------------------------------------------------------- */
static void release_barrier()
{
    if (!sim.waiting || sim.waiting + sim.gone < sim.n_threads) return;
    int site = 0;
    for (int t = 0; t < sim.n_threads; t++) {
        const lane *l = &sim.lanes[t];
        if (l->state != AT_BARRIER) continue;
        if (!site) site = l->site;
        if (l->site != site) return fail_in_block("threads wait at different __syncthreads");
        if (l->met != sim.lanes[0].met)
            return fail_in_block(
                "threads have met more often than others before __syncthreads, which racecheck cannot tell");
    }
    if (sim.gone) return fail_in_block("threads have ended while others wait at __syncthreads");
    for (int i = 0; i < sim.n_threads; i++) make_ready(sim.reverse ? sim.n_threads - 1 - i : i);
    sim.waiting = 0;
    sim.vote_sum = sim.votes;
    sim.votes = 0;
}

extern "C" int pl_sim_barrier(int vote, int site)
{
    lane *l = &sim.lanes[sim.current];
    l->state = AT_BARRIER;
    l->site = site;
    l->met++;
    sim.waiting++;
    sim.votes += vote;
    release_barrier();
    to_scheduler();
    return sim.vote_sum;
}

extern "C" void pl_sim_meet(int first, int count)
{
    lane *l = &sim.lanes[sim.current];
    l->state = AT_MEETING;
    l->met++;
    l->first = first;
    l->count = count;
    bool all =
        sim.current >= first && sim.current < first + count && first + count <= sim.n_threads;
    if (!all) fail_in_block("a thread outside the set that meets");
    for (int t = first; all && t < first + count; t++)
        all = sim.lanes[t].state == AT_MEETING && sim.lanes[t].first == first &&
              sim.lanes[t].count == count;
    for (int i = 0; all && i < count; i++) make_ready(first + (sim.reverse ? count - 1 - i : i));
    to_scheduler();
}

/* Those that wait with a lane, once all of its mask that are left have come. */
static void release_with(int base, const lane *l)
{
    unsigned came = 0;
    for (int k = 0; k < 32 && base + k < sim.n_threads; k++) {
        const lane *o = &sim.lanes[base + k];
        if (!(l->mask >> k & 1u) || o->state == GONE) continue;
        if (o->state != AT_WARP || o->mask != l->mask || o->kind != l->kind) return;
        came |= 1u << k;
    }
    for (int k = 0; k < 32; k++)
        if (came >> k & 1u) {
            sim.lanes[base + k].came = came;
            make_ready(base + k);
        }
}

/* A lane has gone: whoever waited for it alone goes on. */
static void release_warp(int warp)
{
    int base = warp * 32;
    for (int i = 0; i < 32 && base + i < sim.n_threads; i++)
        if (sim.lanes[base + i].state == AT_WARP) release_with(base, &sim.lanes[base + i]);
}

extern "C" const uint64_t *pl_sim_warp(unsigned mask, uint64_t value, int kind)
{
    int t = sim.current, base = t & ~31;
    lane *l = &sim.lanes[t];
    if (!(mask >> (t & 31) & 1u)) {
        fail_in_block("a lane outside its own mask");
        to_scheduler();
    }
    /* A lane is at most one collective ahead of those that still read the last one. */
    l->phase ^= 1;
    sim.slots[l->phase][t] = value;
    l->state = AT_WARP;
    l->mask = mask;
    l->kind = kind;
    release_with(base, l);
    to_scheduler();
    return &sim.slots[l->phase][base];
}

extern "C" unsigned pl_sim_warp_lanes(void)
{
    return sim.lanes[sim.current].came;
}

/* ---- launches --------------------------------------------------------------------------- */
static void run_block()
{
    sim.next = sim.gone = sim.waiting = sim.votes = sim.n_ready = sim.ready_at = 0;
    for (int t = 0; t < sim.n_threads; t++) sim.lanes[t] = lane();
    while (!sim.failed && sim.gone < sim.n_threads) {
        if (sim.n_ready) {
            int t = sim.ready[sim.ready_at];
            sim.ready_at = (sim.ready_at + 1) % MAX_THREADS;
            sim.n_ready--;
            make_current(t);
            to_fiber(sim.lanes[t].fiber);
        } else if (sim.next < sim.n_threads) {
            to_fiber(fiber_take());
        } else {
            fail_in_block("the block hangs: lanes wait for others that never come");
        }
    }
    if (!sim.failed) return;
    /* What waits is left where it stands. */
    for (int i = 0; i < sim.n_fibers; i++)
        __asan_unpoison_memory_region(sim.fibers[i].stack, STACK);
    sim.n_idle = sim.n_fibers = 0;
}

static bool launch_ok(dim3 g, dim3 b, size_t shared)
{
    unsigned side = (unsigned)pl_grid_side();
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > side || g.z > side)
        fail(cudaErrorInvalidConfiguration, "a grid of (%u,%u,%u)", g.x, g.y, g.z);
    else if (!b.x || !b.y || !b.z || b.z > 64 || b.x * b.y * b.z > MAX_THREADS)
        fail(cudaErrorInvalidConfiguration, "a block of (%u,%u,%u)", b.x, b.y, b.z);
    else if (shared > MAX_SHARED)
        fail(cudaErrorInvalidConfiguration, "%zu bytes of shared memory", shared);
    else if (sim.busy)
        fail(cudaErrorInvalidConfiguration, "a launch inside a launch");
    return !sim.failed;
}

extern "C" void pl_sim_launch(void (*body)(void *), void *ctx, dim3 grid, dim3 block,
                              size_t shared_bytes)
{
    sim.failed = false;
    if (!launch_ok(grid, block, shared_bytes)) return;
    sim.busy = true;
    sim.body = body;
    sim.ctx = ctx;
    sim.n_threads = (int)(block.x * block.y * block.z);
    pl_sim_grid_dim = grid;
    pl_sim_block_dim = block;
    if (shared_bytes && posix_memalign(&sim.shared, 128, shared_bytes) != 0) abort();
    uint64_t n = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t i = 0; i < n && !sim.failed; i++) {
        uint64_t at = sim.reverse ? n - 1 - i : i;
        pl_sim_block.x = (unsigned)(at % grid.x);
        pl_sim_block.y = (unsigned)(at / grid.x % grid.y);
        pl_sim_block.z = (unsigned)(at / grid.x / grid.y);
        if (shared_bytes) memset(sim.shared, 0xff, shared_bytes);
        run_block();
    }
    free(sim.shared);
    sim.shared = nullptr;
    sim.busy = false;
}

extern "C" cudaError_t cudaGetLastError(void)
{
    cudaError_t rc = sim.rc;
    sim.rc = cudaSuccess;
    return rc;
}

extern "C" const char *cudaGetErrorString(cudaError_t rc)
{
    return rc == cudaSuccess ? "no error" : sim.error;
}

/* ---- the card --------------------------------------------------------------------------- */
/* Few multiprocessors, so that loops over a grid smaller than the work are run too. */
const pl_cuda_props *pl_cuda_props_get(void)
{
    static const pl_cuda_props card = {
        0, 4, 90, MAX_SHARED, (size_t)50 << 20, (size_t)8 << 30, "simulator"};
    return &card;
}

static int64_t grid_side = PL_SIM_SIDE, most_items = PL_SIM_ITEMS;
int64_t pl_grid_side(void)
{
    return grid_side;
}
int64_t pl_most_items(void)
{
    return most_items;
}
void pl_counts(int64_t n, size_t bytes)
{
    sim.failed = false;
    if (bytes < sizeof n && n > most_items)
        fail(cudaErrorInvalidConfiguration, "%lld items in 32 bits", (long long)n);
}
void pl_sim_limits(int64_t side, int64_t items)
{
    grid_side = side;
    most_items = items;
}

cudaStream_t pl_cuda_stream(void)
{
    return nullptr;
}
static bool tf32;
bool pl_cuda_tf32(void)
{
    return tf32;
}
extern "C" void pl_sim_tf32(bool on);
void pl_sim_tf32(bool on)
{
    tf32 = on;
}
static bool split;
bool pl_cuda_split(void)
{
    return split;
}
extern "C" void pl_sim_split(bool on);
void pl_sim_split(bool on)
{
    split = on;
}
static bool autotune;
bool pl_cuda_autotune(void)
{
    return autotune;
}
extern "C" void pl_sim_autotune(bool on);
void pl_sim_autotune(bool on)
{
    autotune = on;
}
const char *pl_cuda_cache_dir(void)
{
    return "";
}

pl_status pl_cuda_failed(cudaError_t rc, const char *call, const char *file, int line)
{
    return pl__fail(PL_ERR_DEVICE, file, line, "%s: %s", call, cudaGetErrorString(rc));
}

/* ---- kernels compiled for the simulator ------------------------------------------------- */
#define PL_CUDA_TABLE(t) extern "C" __attribute__((weak)) const pl_cuda_entry pl_cuda_##t[];
#include "cuda/device/tables.def"
#undef PL_CUDA_TABLE

const pl_kernel *pl_cuda_kernels_of(const char *op)
{
    static const pl_cuda_entry *const tables[] = {
#define PL_CUDA_TABLE(t) pl_cuda_##t,
#include "cuda/device/tables.def"
#undef PL_CUDA_TABLE
    };
    for (const pl_cuda_entry *const &t : tables)
        for (const pl_cuda_entry *e = t; e && e->op; e++)
            if (strcmp(e->op, op) == 0) return e->kernels;
    return nullptr;
}
