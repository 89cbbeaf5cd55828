/* collective.c - exchanges between ranks whose values lie on GPUs.
 *
 * Where every rank has its own GPU and NCCL is installed, NCCL moves and sums on the stream, inside
 * the captured graph like any kernel. Ranks that share a GPU, which NCCL refuses, and machines
 * without NCCL exchange through the host: copy to pinned memory, run the op's own CPU kernel (the
 * communicator's exchange, sums in the order of ranks), and copy back; the host's part is a node of
 * the graph too.
 *
 * All ranks make the same choice once, when the first exchange is prepared: the ranks share where
 * their GPUs are, and rank 0 sends NCCL's identifier. libnccl.so.2 is opened at run time;
 * PLIMSOLL_NCCL=0 disables it, PLIMSOLL_NCCL=1 uses it even for a world of one rank.
 */
#include "base/dtype.h"
#include "base/sys.h"
#include "cuda/device/cuda.h"
#include "ir/comm.h"
#include "ops/core/attr.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__has_include)
# if __has_include(<nccl.h>)
#  include <nccl.h>
#  define HAS_NCCL 1
# endif
#endif

/* ---- NCCL ------------------------------------------------------------------------------- */
#ifdef HAS_NCCL
/* Functions of the library that is found at run time; the library exists once in a process, as does
 * the communicator, which all exchanges share. */
static struct {
    bool decided, use;
    ncclComm_t comm;
    ncclResult_t (*get_id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
    ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, cudaStream_t);
    ncclResult_t (*reduce_scatter)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                   ncclComm_t, cudaStream_t);
    ncclResult_t (*all_gather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                               cudaStream_t);
    ncclResult_t (*broadcast)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                              cudaStream_t);
    const char *(*text)(ncclResult_t);
} nccl;

static bool load_nccl(void)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    static const char *const names[] = {"ncclGetUniqueId",   "ncclCommInitRank", "ncclAllReduce",
                                        "ncclReduceScatter", "ncclAllGather",    "ncclBroadcast",
                                        "ncclGetErrorString"};
    void *to[] = {&nccl.get_id,     &nccl.init,      &nccl.all_reduce, &nccl.reduce_scatter,
                  &nccl.all_gather, &nccl.broadcast, &nccl.text};
    for (size_t i = 0; lib && i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(lib, names[i]);
        if (!f) return false;
        memcpy(to[i], &f, sizeof f);
    }
    return lib != NULL;
}

/* Data that ranks share: where the GPU is, whether NCCL is installed, and rank 0's identifier. */
typedef struct meeting {
    char host[64], bus[32];
    int has;
    ncclUniqueId id;
} meeting;

static pl_status meet(pl_comm *w, meeting *all)
{
    for (int r = 0; r < w->size; r++) {
        w->send[r] = (pl_parcel){&all[w->rank], sizeof *all};
        w->recv[r] = (pl_parcel){&all[r], sizeof *all};
    }
    w->op = "meeting";
    w->name = "of cards";
    return pl_comm_exchange(w, PL_TRAFFIC_CONTROL);
}

static bool every_rank_alone(const meeting *all, int n)
{
    for (int i = 0; i < n; i++) {
        if (!all[i].has) return false;
        for (int k = 0; k < i; k++)
            if (strcmp(all[i].host, all[k].host) == 0 && strcmp(all[i].bus, all[k].bus) == 0)
                return false;
    }
    return true;
}

static pl_status enter(pl_comm *w, int size, int rank)
{
    meeting *all = pl_sys_alloc((size_t)size * sizeof *all);
    if (!all) return PL_ERR_MEMORY;
    meeting *own = &all[rank];
    const char *wish = getenv("PLIMSOLL_NCCL");
    pl_status rc = PL_OK;
    if (gethostname(own->host, sizeof own->host - 1) != 0) own->host[0] = 0;
    if (cudaDeviceGetPCIBusId(own->bus, sizeof own->bus, pl_cuda_props_get()->index) != cudaSuccess)
        own->bus[0] = 0;
    own->has = !(wish && wish[0] == '0') && load_nccl();
    if (own->has && rank == 0) own->has = nccl.get_id(&own->id) == ncclSuccess;
    if (w) rc = meet(w, all);
    if (rc == PL_OK && every_rank_alone(all, size)) {
        ncclResult_t got = nccl.init(&nccl.comm, size, all[0].id, rank);
        if (got != ncclSuccess)
            rc =
                pl__fail(PL_ERR_DEVICE, __FILE__, __LINE__, "ncclCommInitRank: %s", nccl.text(got));
        nccl.use = got == ncclSuccess;
    }
    pl_sys_free(all);
    return rc;
}

static bool has_type(pl_dtype d)
{
    return d == PL_F32 || d == PL_F64 || d == PL_BF16 || d == PL_F16;
}

static ncclDataType_t type_of(pl_dtype d)
{
    return d == PL_F32    ? ncclFloat32
           : d == PL_F64  ? ncclFloat64
           : d == PL_BF16 ? ncclBfloat16
                          : ncclFloat16;
}

static pl_status run_nccl(const pl_call *c, int kind)
{
    const pl_collective_attr *a = c->attr;
    ncclDataType_t t = type_of(c->in_type[0].dtype);
    size_t n_in = (size_t)pl_type_elems(&c->in_type[0]),
           n_out = (size_t)pl_type_elems(&c->out_type[0]);
    cudaStream_t s = pl_cuda_stream();
    ncclResult_t rc =
        kind == PL_TRAFFIC_ALL_REDUCE
            ? nccl.all_reduce(c->in[0], c->out[0], n_in, t, ncclSum, nccl.comm, s)
        : kind == PL_TRAFFIC_REDUCE_SCATTER
            ? nccl.reduce_scatter(c->in[0], c->out[0], n_out, t, ncclSum, nccl.comm, s)
        : kind == PL_TRAFFIC_ALL_GATHER
            ? nccl.all_gather(c->in[0], c->out[0], n_in, t, nccl.comm, s)
            : nccl.broadcast(c->in[0], c->out[0], n_in, t, (int)a->root, nccl.comm, s);
    PL_FAIL_IF(rc != ncclSuccess, PL_ERR_PEER, "NCCL: %s", nccl.text(rc));
    return PL_OK;
}

static pl_status decide(const pl_call *c)
{
    const pl_collective_attr *a = c->attr;
    const char *wish = getenv("PLIMSOLL_NCCL");
    bool alone = a->ranks == 1, asked = wish && wish[0] == '1';
    if (nccl.decided || (alone && !asked) || (!alone && !c->comm)) return PL_OK;
    PL_TRY(enter(c->comm, (int)a->ranks, c->comm ? c->comm->rank : 0));
    nccl.decided = true;
    return PL_OK;
}

static bool by_nccl(const pl_call *c)
{
    return nccl.use && has_type(c->in_type[0].dtype);
}
#else
static pl_status decide(const pl_call *c)
{
    (void)c;
    return PL_OK;
}

static bool by_nccl(const pl_call *c)
{
    (void)c;
    return false;
}

static pl_status run_nccl(const pl_call *c, int kind)
{
    (void)c, (void)kind;
    return PL_ERR_UNSUPPORTED;
}
#endif

/* ---- through the host ------------------------------------------------------------------- */
typedef struct staged {
    pl_call call; /* with host pointers */
    const void *in[1];
    void *out[1];
    pl_type in_type[1], out_type[1];
    pl_status (*run)(const pl_call *c); /* the CPU's kernel */
    size_t in_bytes, out_bytes;
} staged;

static void release(void *prep)
{
    staged *s = prep;
    if (!s) return;
    void *in = (void *)(uintptr_t)s->in[0];
    if (in) cudaFreeHost(in);
    if (s->out[0]) cudaFreeHost(s->out[0]);
    pl_sys_free(s->call.work);
    pl_sys_free(s);
}

static pl_status stage(const pl_call *c, const char *op, staged *s)
{
    const pl_op *cpu = pl_op_find(op);
    void *ignored = NULL;
    size_t work = 0;
    PL_FAIL_IF(!cpu, PL_ERR_UNSUPPORTED, "no op %s", op);
    s->in_type[0] = c->in_type[0];
    s->out_type[0] = c->out_type[0];
    s->call = *c;
    s->call.in_type = s->in_type;
    s->call.out_type = s->out_type;
    s->call.in = s->in;
    s->call.out = s->out;
    s->run = cpu->cpu[0].run;
    s->in_bytes = pl_type_bytes(&c->in_type[0]);
    s->out_bytes = pl_type_bytes(&c->out_type[0]);
    void *in = NULL;
    PL_CUDA(cudaHostAlloc(&in, s->in_bytes + 1, cudaHostAllocDefault));
    s->in[0] = in;
    PL_CUDA(cudaHostAlloc(&s->out[0], s->out_bytes + 1, cudaHostAllocDefault));
    if (cpu->cpu[0].prepare) PL_TRY(cpu->cpu[0].prepare(c, &ignored, &work));
    s->call.work = work ? pl_sys_alloc(work) : NULL;
    return work && !s->call.work ? PL_ERR_MEMORY : PL_OK;
}

static pl_status prepare(const pl_call *c, const char *op, void **prep)
{
    PL_TRY(decide(c));
    if (by_nccl(c) || ((const pl_collective_attr *)c->attr)->ranks == 1) return PL_OK;
    staged *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    pl_status rc = stage(c, op, s);
    if (rc == PL_OK)
        *prep = s;
    else
        release(s);
    return rc;
}

/* A failure here cannot be reported to the stream: the process ends, and the control channel
 * reports it. */
static void CUDART_CB on_host(void *arg)
{
    const staged *s = arg;
    if (s->run(&s->call) == PL_OK) return;
    fprintf(stderr, "plimsoll: %s\n", pl_error_text());
    _exit(8);
}

static pl_status run(const pl_call *c, int kind)
{
    cudaStream_t stream = pl_cuda_stream();
    staged *s = c->prep;
    size_t bytes = pl_type_bytes(&c->in_type[0]);
    if (by_nccl(c)) return run_nccl(c, kind);
    if (!s) {
        if (c->out[0] != c->in[0])
            PL_CUDA(cudaMemcpyAsync(c->out[0], c->in[0], bytes, cudaMemcpyDeviceToDevice, stream));
        return PL_OK;
    }
    PL_CUDA(cudaMemcpyAsync((void *)(uintptr_t)s->in[0], c->in[0], s->in_bytes,
                            cudaMemcpyDeviceToHost, stream));
    PL_CUDA(cudaLaunchHostFunc(stream, on_host, s));
    PL_CUDA(cudaMemcpyAsync(c->out[0], s->out[0], s->out_bytes, cudaMemcpyHostToDevice, stream));
    return PL_OK;
}

#define KERNELS(op, kind)                                                                          \
 static pl_status op##_prepare(const pl_call *c, void **prep, size_t *work)                        \
 {                                                                                                 \
  (void)work;                                                                                      \
  return prepare(c, #op, prep);                                                                    \
 }                                                                                                 \
 static pl_status op##_run(const pl_call *c)                                                       \
 {                                                                                                 \
  return run(c, kind);                                                                             \
 }                                                                                                 \
 static const pl_kernel op##_kernels[] = {{"ranks", NULL, op##_prepare, release, op##_run},        \
                                          PL_KERNEL_END};
KERNELS(all_reduce, PL_TRAFFIC_ALL_REDUCE)
KERNELS(reduce_scatter, PL_TRAFFIC_REDUCE_SCATTER)
KERNELS(all_gather, PL_TRAFFIC_ALL_GATHER)
KERNELS(broadcast_from, PL_TRAFFIC_BROADCAST)

const pl_cuda_entry pl_cuda_collective[] = {{"all_reduce", all_reduce_kernels},
                                            {"reduce_scatter", reduce_scatter_kernels},
                                            {"all_gather", all_gather_kernels},
                                            {"broadcast_from", broadcast_from_kernels},
                                            {NULL, NULL}};
