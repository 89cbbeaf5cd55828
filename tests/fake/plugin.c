/* plugin.c - a CUDA plug-in without CUDA: the device "apart" with the real
 * cuda/device/used_memory.c over a card whose memory the test names in FAKE_FREE_MIB (of 16 GiB),
 * and whose libraries take FAKE_LOADED bytes when the first program is captured and keep them; it
 * lacks the kernels that FAKE_LACKS names (lacked()). What the program does about a card that
 * others fill, or that holds more than was planned, is thereby tested on any machine. Into the file
 * FAKE_HEARD goes, when a run begins, how many have not been waited for: where it is 0 a card would
 * stand still.
 */
#include "cuda/device/device_int.h"
#include "ir/graph.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pl_device device;
static const pl_device *guarded;
static uint64_t loaded; /* bytes: kernels stay in a card's memory once they are there */
static const pl_cuda_props card = {.name = "Fake T4", .arch = 75, .total_bytes = (size_t)16 << 30};

const pl_cuda_props *pl_cuda_props_get(void)
{
    return &card;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    const char *mib = getenv("FAKE_FREE_MIB");
    *free_bytes = (size_t)atoll(mib ? mib : "16384") << 20;
    *total = card.total_bytes;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

pl_status pl_cuda_failed(cudaError_t rc, const char *call, const char *file, int line)
{
    return pl__fail(PL_ERR_DEVICE, file, line, "%s: %d", call, (int)rc);
}

static uint64_t used(void)
{
    return guarded->used_bytes() + loaded;
}

static pl_status capture_new(const pl_capture_plan *plan, void **out, uint32_t *failed)
{
    const char *bytes = getenv("FAKE_LOADED");
    if (bytes) loaded = (uint64_t)atoll(bytes);
    return guarded->capture_new(plan, out, failed);
}

/* The runs that were begun since somebody last waited for one or for a later one. */
static struct {
    void *captured;
    int turn;
} unheard[10];
static int n_unheard;

static pl_status capture_run(void *captured, int turn, bool sent)
{
    const char *path = getenv("FAKE_HEARD");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) {
        fputc('0' + n_unheard, f);
        fclose(f);
    }
    if (n_unheard < 9) {
        unheard[n_unheard].captured = captured;
        unheard[n_unheard++].turn = turn;
    }
    return guarded->capture_run(captured, turn, sent);
}

static pl_status capture_wait(void *captured, int turn)
{
    int at = n_unheard;
    while (at > 0 && (unheard[at - 1].captured != captured || unheard[at - 1].turn != turn)) at--;
    memmove(unheard, unheard + at, (size_t)(n_unheard - at) * sizeof unheard[0]);
    n_unheard -= at;
    return guarded->capture_wait(captured, turn);
}

/* Programs of a run are compiled in several threads, and each asks for the device. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether the op is one of those in FAKE_LACKS, "a,b:3": every a, and a program's third b and those
 * behind it. The first in the list is found out late, when other programs have failed. A thread
 * compiles one program. */
static bool lacked(const char *op)
{
    static _Thread_local int seen[8];
    const char *list = getenv("FAKE_LACKS");
    for (int i = 0; list && *list && i < 8; i++) {
        char name[64];
        int from = 1, used = 0;
        if (sscanf(list, "%63[^,:]%n:%d%n", name, &used, &from, &used) < 1) return false;
        list += used;
        if (*list == ',') list++;
        if (strcmp(op, name) != 0 || ++seen[i] < from) continue;
        if (i == 0 && *list) nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        return true;
    }
    return false;
}

static pl_status prepare(const pl_graph *g, const pl_unit *u, const pl_call *call, bool reference,
                         pl_exec *out)
{
    const char *op = pl_node_get(g, u->nodes[0])->op->name;
    PL_FAIL_IF(u->kind == PL_UNIT_KERNEL && lacked(op), PL_ERR_UNSUPPORTED,
               "%s has no kernel on %s", op, card.name);
    return guarded->prepare(g, u, call, reference, out);
}

/* Its libraries open until somebody waits for them; a process that ends before is told of. */
static bool opened, waited;

static pl_status ready(void)
{
    waited = true;
    return PL_OK;
}

__attribute__((destructor)) static void tell(void)
{
    if (opened && !waited) fprintf(stderr, "the process ends while its card is being opened\n");
}

static pl_status open_once(void)
{
    if (guarded) return PL_OK;
    opened = true;
    PL_TRY(pl_device_find("apart", &guarded));
    pl_cuda_used_begin("0000:0B:00.0");
    device = *guarded;
    device.node_bytes = 0; /* what a test names is all that a first run adds */
    device.name = "cuda";
    device.room = pl_cuda_room;
    device.used_bytes = used;
    device.capture_new = capture_new;
    device.capture_run = capture_run;
    device.capture_wait = capture_wait;
    device.prepare = prepare;
    device.ready = ready;
    return PL_OK;
}

static pl_status open(int index, const pl_device **out)
{
    (void)index;
    pthread_mutex_lock(&lock);
    pl_status rc = open_once();
    pthread_mutex_unlock(&lock);
    *out = &device;
    return rc;
}

static pl_status list(pl_device_info *out, int cap, int *n)
{
    *n = 1;
    if (cap < 1) return PL_OK;
    *out = (pl_device_info){.total_bytes = card.total_bytes, .usable = true};
    snprintf(out->name, sizeof out->name, "cuda");
    snprintf(out->about, sizeof out->about, "%s", card.name);
    out->free_bytes = pl_cuda_free_bytes("0000:0B:00.0");
    return PL_OK;
}

PL_API extern const pl_cuda_plugin_info pl_cuda_plugin;
const pl_cuda_plugin_info pl_cuda_plugin = {PL_CUDA_ABI, PL_VERSION_STRING, open, list};
