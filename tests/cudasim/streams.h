/* streams.h - CUDA's streams, events and graphs on the host, in any order that they allow.
 *
 * For one test file, which includes this header and then the file under test. Nothing runs when it
 * is enqueued: a call becomes a node with the nodes that it must follow. When the host waits, all
 * nodes run, each time one that is ready and was drawn by lot; the streams of `slow` come last. So
 * a missing wait shows as a wrong result, in some draw. While a graph is captured, the nodes that
 * the next call on a stream follows can be set (cudaStreamUpdateCaptureDependencies).
 */
#ifndef PL_CUDASIM_STREAMS_H
#define PL_CUDASIM_STREAMS_H

#include "base/err.h"
#include "base/hash.h"
#include "cuda/device/cuda.h"

enum { SIM_NODES = 8192, SIM_STREAMS = 8, SIM_EVENTS = 4096, SIM_DEPS = 16, SIM_GRAPHS = 8 };

typedef struct sim_node {
    void (*fn)(const void *ctx);
    void (*call)(void *ctx); /* of the host */
    const void *ctx;
    void *to; /* a copy or, without `from`, a fill */
    const void *from;
    size_t bytes;
    int byte, stream;
    int dep[SIM_DEPS]; /* nodes before it; -1: none */
    int since;         /* follows all nodes from this one on; -1: not */
    bool done;
} sim_node;

typedef struct sim_list {
    sim_node node[SIM_NODES];
    int n, tail[SIM_STREAMS];
} sim_list;

typedef struct sim_event {
    sim_list *list; /* where it was recorded; NULL: never */
    int node;
} sim_event;
typedef sim_event *cudaEvent_t;
typedef sim_list *cudaGraph_t, *cudaGraphExec_t;
typedef int cudaStreamCaptureMode, cudaGraphNode_t;
typedef struct cudaGraphEdgeData {
    int unused;
} cudaGraphEdgeData;
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusActive };
enum {
    cudaStreamCaptureModeRelaxed,
    cudaStreamNonBlocking,
    cudaEventDisableTiming,
    cudaStreamSetCaptureDependencies
};

static struct {
    sim_list now, *capture; /* capture: NULL: nothing is captured */
    bool joined[SIM_STREAMS];
    sim_event event[SIM_EVENTS];
    int n_events, n_streams, n_graphs;
    uint64_t draws;
    unsigned slow;              /* bit k: stream k */
    int next[SIM_DEPS], n_next; /* set dependencies of the next captured call; 0: the last call */
    float elapsed,
        faster; /* between events: milliseconds, and how many times less at each question */
    sim_list graph[SIM_GRAPHS];
} sim_gpu = {.n_streams = 2, .elapsed = 1, .faster = 1};

static inline int sim_stream(cudaStream_t s)
{
    return (int)(uintptr_t)s;
}

static inline sim_list *sim_list_of(int stream)
{
    return sim_gpu.capture && sim_gpu.joined[stream] ? sim_gpu.capture : &sim_gpu.now;
}

static void sim_clear(sim_list *l)
{
    l->n = 0;
    for (int i = 0; i < SIM_STREAMS; i++) l->tail[i] = -1;
}

static sim_node *sim_add(cudaStream_t s)
{
    int stream = sim_stream(s);
    sim_list *l = sim_list_of(stream);
    if (!l->n) sim_clear(l);
    if (l->n == SIM_NODES) PL_BUG("the simulated GPU has no room for more nodes");
    sim_node *x = &l->node[l->n];
    *x = (sim_node){.stream = stream, .since = -1};
    for (int i = 0; i < SIM_DEPS; i++) x->dep[i] = -1;
    x->dep[0] = l->tail[stream];
    if (l == sim_gpu.capture && sim_gpu.n_next) {
        for (int i = 0; i < sim_gpu.n_next; i++) x->dep[i] = sim_gpu.next[i];
        sim_gpu.n_next = 0;
    }
    l->tail[stream] = l->n++;
    return x;
}

static void sim_enqueue(void (*fn)(const void *), const void *ctx, cudaStream_t s)
{
    sim_node *x = sim_add(s);
    x->fn = fn;
    x->ctx = ctx;
}

/* ---- running ------------------------------------------------------------------------------ */
static bool sim_ready(const sim_list *l, const sim_node *x)
{
    for (int i = 0; i < SIM_DEPS; i++)
        if (x->dep[i] >= 0 && !l->node[x->dep[i]].done) return false;
    for (int i = x->since; i >= 0 && &l->node[i] < x; i++)
        if (!l->node[i].done) return false;
    return true;
}

static void sim_run(sim_node *x)
{
    if (x->fn) x->fn(x->ctx);
    if (x->call) x->call((void *)(uintptr_t)x->ctx);
    if (x->from)
        memmove(x->to, x->from, x->bytes);
    else if (x->to)
        memset(x->to, x->byte, x->bytes);
    x->done = true;
}

/* Runs what was enqueued, in some order that streams and events allow, until a node is done; -1:
 * until everything is. */
static void sim_wait_for(int node)
{
    sim_list *l = &sim_gpu.now;
    int first = 0, left = 0;
    for (int i = 0; i < l->n; i++) left += !l->node[i].done;
    while (first < l->n && l->node[first].done) first++;
    while (left > 0 && (node < 0 || !l->node[node].done)) {
        int best = -1;
        uint64_t least = UINT64_MAX;
        for (int i = first; i < l->n && i < first + 64; i++) {
            sim_node *x = &l->node[i];
            if (x->done || !sim_ready(l, x)) continue;
            uint64_t lot = pl_mix64(sim_gpu.draws++) >> 1;
            if (sim_gpu.slow >> x->stream & 1) lot |= (uint64_t)1 << 63;
            if (lot < least) least = lot, best = i;
        }
        if (best < 0) PL_BUG("nodes of the simulated GPU wait for each other");
        sim_run(&l->node[best]);
        left--;
        while (first < l->n && l->node[first].done) first++;
    }
    if (left) return;
    sim_clear(l);
    for (int i = 0; i < sim_gpu.n_events; i++)
        if (sim_gpu.event[i].list == l) sim_gpu.event[i].node = -1;
}

static void sim_wait(void)
{
    sim_wait_for(-1);
}

static void sim_wait_event_done(const sim_event *e)
{
    if (e->list == &sim_gpu.now && e->node >= 0) sim_wait_for(e->node);
}

/* ---- CUDA's calls ------------------------------------------------------------------------- */
#define cudaStreamCreateWithFlags(s, f)                                                            \
 (*(s) = (cudaStream_t)(uintptr_t)sim_gpu.n_streams++, (void)(f),                                  \
  sim_gpu.n_streams <= SIM_STREAMS ? cudaSuccess : cudaErrorInvalidValue)
#define cudaEventCreateWithFlags(e, f)                                                             \
 (*(e) = &sim_gpu.event[sim_gpu.n_events++], (void)(f),                                            \
  sim_gpu.n_events < SIM_EVENTS ? cudaSuccess : cudaErrorInvalidValue)
#define cudaEventCreate(e)  cudaEventCreateWithFlags(e, 0)
#define cudaEventDestroy(e) ((void)(e))
#define cudaEventElapsedTime(t, a, b)                                                              \
 (*(t) = (sim_gpu.elapsed /= sim_gpu.faster), (void)(a), (void)(b), cudaSuccess)
#define cudaEventSynchronize(e)  (sim_wait_event_done(e), cudaSuccess)
#define cudaStreamSynchronize(s) ((void)(s), sim_wait(), cudaSuccess)
#define cudaDeviceSynchronize()  sim_wait()
#define cudaMemcpyAsync          sim_memcpy
#define cudaLaunchHostFunc       sim_call
#define CUDART_CB
#define cudaMemsetAsync                     sim_memset
#define cudaEventRecord                     sim_record
#define cudaStreamWaitEvent                 sim_wait_event
#define cudaStreamBeginCapture              sim_begin
#define cudaStreamEndCapture                sim_end
#define cudaGraphInstantiate(x, g, f)       (*(x) = (g), cudaSuccess)
#define cudaGraphUpload(x, s)               ((void)(x), (void)(s), cudaSuccess)
#define cudaGraphDestroy(g)                 ((void)(g))
#define cudaGraphExecDestroy(g)             ((void)(g))
#define cudaGraphLaunch                     sim_launch
#define cudaStreamUpdateCaptureDependencies sim_follow
#define cudaStreamGetCaptureInfo            sim_capture_info

static cudaError_t sim_memcpy(void *to, const void *from, size_t n, cudaMemcpyKind k,
                              cudaStream_t s)
{
    sim_node *x = sim_add(s);
    (void)k;
    x->to = to;
    x->from = from;
    x->bytes = n;
    return cudaSuccess;
}

static cudaError_t sim_call(cudaStream_t s, void (*fn)(void *), void *ctx)
{
    sim_node *x = sim_add(s);
    x->call = fn;
    x->ctx = ctx;
    return cudaSuccess;
}

static cudaError_t sim_memset(void *to, int byte, size_t n, cudaStream_t s)
{
    sim_node *x = sim_add(s);
    x->to = to;
    x->byte = byte;
    x->bytes = n;
    return cudaSuccess;
}

static cudaError_t sim_record(cudaEvent_t e, cudaStream_t s)
{
    sim_list *l = sim_list_of(sim_stream(s));
    if (!l->n) sim_clear(l);
    *e = (sim_event){l, l->tail[sim_stream(s)]};
    return cudaSuccess;
}

static cudaError_t sim_wait_event(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    if (!e->list) return cudaSuccess;
    bool captured = e->list == sim_gpu.capture;
    if (captured) sim_gpu.joined[sim_stream(s)] = true;
    if (sim_list_of(sim_stream(s)) != e->list) return cudaErrorInvalidValue;
    sim_add(s)->dep[SIM_DEPS - 1] = e->node;
    return cudaSuccess;
}

static cudaError_t sim_follow(cudaStream_t s, const cudaGraphNode_t *node,
                              const cudaGraphEdgeData *edge, size_t n, unsigned flags)
{
    (void)s, (void)edge, (void)flags;
    if (!sim_gpu.capture || n >= SIM_DEPS) return cudaErrorInvalidValue;
    for (size_t i = 0; i < n; i++) sim_gpu.next[i] = node[i];
    sim_gpu.n_next = (int)n;
    return cudaSuccess;
}

static cudaError_t sim_capture_info(cudaStream_t s, enum cudaStreamCaptureStatus *status, void *id,
                                    void *graph, const cudaGraphNode_t **node,
                                    const cudaGraphEdgeData **edge, size_t *n)
{
    sim_list *l = sim_gpu.capture;
    (void)id, (void)graph;
    *status = cudaStreamCaptureStatusActive;
    *edge = NULL;
    *node = sim_gpu.n_next ? sim_gpu.next : &l->tail[sim_stream(s)];
    *n = sim_gpu.n_next ? (size_t)sim_gpu.n_next : **node >= 0;
    return cudaSuccess;
}

static cudaError_t sim_begin(cudaStream_t s, cudaStreamCaptureMode mode)
{
    (void)mode;
    if (sim_gpu.capture || sim_gpu.n_graphs == SIM_GRAPHS) return cudaErrorInvalidValue;
    sim_gpu.capture = &sim_gpu.graph[sim_gpu.n_graphs++];
    sim_clear(sim_gpu.capture);
    sim_gpu.n_next = 0;
    memset(sim_gpu.joined, 0, sizeof sim_gpu.joined);
    sim_gpu.joined[sim_stream(s)] = true;
    return cudaSuccess;
}

/* Whether node `a` is before node `b`, or is `b`. */
static bool sim_reaches(const sim_list *l, int a, int b)
{
    if (a == b) return true;
    for (int i = 0; i < SIM_DEPS && b > a; i++)
        if (l->node[b].dep[i] >= a && sim_reaches(l, a, l->node[b].dep[i])) return true;
    return false;
}

/* Every stream that was joined must come back to the first one. */
static cudaError_t sim_end(cudaStream_t s, cudaGraph_t *out)
{
    sim_list *l = sim_gpu.capture;
    sim_gpu.capture = NULL;
    *out = l;
    for (int i = 0; l && i < SIM_STREAMS; i++)
        if (l->tail[i] >= 0 && !sim_reaches(l, l->tail[i], l->tail[sim_stream(s)]))
            return cudaErrorLaunchFailure;
    return l ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t sim_launch(cudaGraphExec_t g, cudaStream_t s)
{
    sim_list *l = &sim_gpu.now;
    sim_add(s); /* the beginning */
    int head = l->n - 1, base = l->n;
    if (base + g->n + 1 >= SIM_NODES) PL_BUG("the simulated GPU has no room for a graph");
    for (int i = 0; i < g->n; i++) {
        sim_node x = g->node[i];
        for (int k = 0; k < SIM_DEPS; k++) x.dep[k] = x.dep[k] < 0 ? -1 : x.dep[k] + base;
        if (x.dep[0] < 0) x.dep[0] = head;
        l->node[l->n++] = x;
    }
    sim_add(s)->since = head;
    return cudaSuccess;
}

#endif
